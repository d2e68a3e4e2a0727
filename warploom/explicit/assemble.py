"""From a translated script to a function at WARP: what is entry, and the tasks of each phase.

Code outside of groups that only computes numbers is entry: every thread runs it.  The rest falls into
*phases*, one `tasks` op each, parted by the script's own self.sync(): sibling groups run beside each
other; code of all threads is a phase of one task.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from warploom.errors import CompileError, InternalError, Loc, Note
from warploom.explicit.budgets import with_budgets
from warploom.explicit.divide import Divider, Part
from warploom.explicit.program import Group, Program, Threads, Workspace, without_unused
from warploom.explicit.register_operands import check_register_operands
from warploom.frontend.bytes_of_e4b15 import store_as_bytes
from warploom.frontend.coerce import Const, current, describe, is_literal, known
from warploom.ir.analysis import definitions, free_values, is_pure
from warploom.ir.capabilities import refuse_missing
from warploom.ir.core import Effect, Fact, Func, Level, Op, Region, Value, walk
from warploom.ir.host_expressions import Expressions
from warploom.ir.ops import arith, cluster, control, smem, task
from warploom.ir.rewrite import without
from warploom.ir.types import InFlight, Tile, dtype_of
from warploom.passes.tile.canonicalize.cleanup import is_host
from warploom.target import DEFAULT


@dataclass
class _Phase:
    """Groups that run beside each other, or code of all threads."""

    groups: list[tuple[Op, Group]] = field(default_factory=list)
    code: list[Op] = field(default_factory=list)


def assemble(
    name: str, p: Program, params: Sequence[Value], facts: tuple[Fact, ...], loc: Loc
) -> Func:
    """The function.  Raises CompileError where groups overlap or code between them is not parted."""
    assert p.top is not None
    grid, workspaces = _grid(p, params, loc), _workspaces(p, params)
    params = (*params, *(w.pointer for w in p.state.workspaces))
    facts = (*facts, *(Fact(16) for _ in p.state.workspaces))
    warps, names = _warps(p, loc), set[str]()
    top = without_unused(p.top.ops)
    numbered = {
        o.attrs["id"] + i
        for o in (o for t in top for o in t.all_ops)
        if o.kind is smem.named_barrier
        for i in range(o.attrs.get("n", 1))
    }
    own = partial(_unused, names=names)
    divider = Divider(p.machine, p.state.groups, range(warps), numbered, own)
    split = _Split(p)
    for o in _kept_together(top, divider):
        split.add(o)
    entry = split.entry
    phases = [ph for ph in split.phases if ph.groups or ph.code]
    declared = [d.op() for d in p.state.declarations]
    allocations = [o for o in declared if not o.operands]
    maps = [o for o in declared if o.operands]
    viewed = {v for o in maps for v in o.operands}
    entry = [*allocations, *_with_views(entry, phases, viewed, set(params)), *maps]
    made = [_tasks(ph, divider, loc, names) for ph in phases or [_Phase()]]
    _check_scopes(params, entry, made)
    _check_one_thread(made)
    _check_divisors(params, [*entry, *made])
    ending = Op(control.yield_, (), {}, (), (), frozenset(), loc)
    body = Region(tuple(params), (*entry, *made, ending))
    attrs: dict[str, Any] = {"facts": facts, "warps": 4, "grid": grid}
    if p.machine.name != DEFAULT.name:
        attrs["target"] = p.machine.name
    if p.cluster != (1, 1, 1):
        attrs["cluster"] = p.cluster
    if p.ctas_per_sm > 1:
        _check_ctas_per_sm(p, warps)
        attrs["ctas_per_sm"] = p.ctas_per_sm
    if workspaces:
        attrs["workspaces"] = workspaces
    func = store_as_bytes(Func(name, body, Level.WARP, attrs, loc))
    refuse_missing(func, loc)
    check_register_operands(func)
    return with_budgets(func)


# ---- splitting


def _kept_together(ops: Sequence[Op], divider: Divider) -> list[Op]:
    """Groups between the making and the use of a register tensor of all threads are run by the elected
    thread, where they can be: what parts phases would part the tensor from its use."""
    out: list[Op] = []
    last = {v: i for i, o in enumerate(ops) for j in o.all_ops for v in j.operands}
    until = -1  # where the last use of a tensor made so far stands
    for i, o in enumerate(ops):
        out += divider.by_one_thread(o) if o.kind is task.tasks and i < until else [o]
        if o.kind is not task.tasks:
            tiles = (v for v in o.results if isinstance(v.type, Tile | InFlight))
            until = max((until, *(last.get(v, -1) for v in tiles)))
    return out


class _Split:
    def __init__(self, p: Program) -> None:
        self.p = p
        self.entry: list[Op] = []
        self.at_entry: set[Value] = set()
        self.local: set[Value] = set()  # values that code of a phase makes
        self.phases: list[_Phase] = [_Phase()]

    def add(self, o: Op) -> None:
        phase = self.phases[-1]
        if o.kind is task.tasks:
            if phase.code:
                last = phase.code[-1].kind
                if last not in (smem.group_sync, cluster.cluster_wait):
                    raise _unparted(o, phase.code[-1], "code of all threads and a thread group")
                if last is smem.group_sync:
                    phase.code.pop()
                phase = _Phase()
                self.phases.append(phase)
            self._disjoint(o, phase.groups)
            phase.groups.append((o, _group_of(self.p, o)))
        elif o.kind is smem.group_sync:
            if phase.groups:
                self.phases.append(_Phase())
            elif phase.code:
                phase.code.append(o)
        elif o.kind in (cluster.cluster_arrive, cluster.cluster_wait):
            if phase.groups:
                phase = _Phase()
                self.phases.append(phase)
            phase.code.append(o)
        elif self._is_entry(o):
            self.entry.append(o)
        else:
            if phase.groups:
                before = phase.groups[-1][0]
                raise _unparted(o, before, "code of all threads after thread groups")
            self.local.update(o.results)
            phase.code.append(o)

    def _is_entry(self, o: Op) -> bool:
        """Numbers computed from numbers, and what is promised of them."""
        values = (*o.operands, *(v for r in o.regions for v in free_values(r)))
        if any(v in self.local for v in values):
            return False
        inner = [i for r in o.regions for i in walk(r)]
        made = (v for i in (o, *inner) for v in i.results)
        if any(isinstance(v.type, Tile | InFlight) for v in made):
            return False
        if is_pure(o) or o.kind is control.assume:
            return True
        reads = o.kind.effect is Effect.READ and not o.regions
        return reads and len(self.phases) == 1 and not self.phases[0].code

    def _disjoint(self, o: Op, others: list[tuple[Op, Group]]) -> None:
        mine = _warps_of(_group_of(self.p, o).threads)
        for other, group in others:
            theirs = _warps_of(group.threads)
            if mine.start < theirs.stop and theirs.start < mine.stop:
                size = self.p.machine.warp_size
                shared = range(max(mine.start, theirs.start), min(mine.stop, theirs.stop))
                raise CompileError(
                    "group-overlap",
                    f"threads {size * shared.start} to {size * shared.stop - 1} are in two groups that run "
                    "beside each other",
                    o.loc,
                    (Note("the other group", other.loc),),
                    "make the groups disjoint, or part them by self.sync()",
                )


def _group_of(p: Program, marker: Op) -> Group:
    return p.state.groups[marker.attrs["names"][0]]


def _unparted(o: Op, before: Op, what: str) -> CompileError:
    return CompileError(
        "phase-sync",
        f"{what} are not parted by a barrier",
        o.loc,
        (Note("what comes before", before.loc),),
        "put self.sync() between them, or move the code into the group that needs it",
    )


def _warps_of(t: Threads) -> range:
    assert t.warps is not None
    return range(t.first, t.first + t.warps * t.replicas)


def _with_views(
    entry: list[Op], phases: list[_Phase], wanted: set[Value], known_values: set[Value]
) -> list[Op]:
    """The entry with the views that declarations need, wherever in the script they stand."""
    out = list(entry)
    have = set(known_values)
    at_entry = {v: o for o in entry for v in o.results}
    made = {
        v: o
        for ph in phases
        for top in (*(g for g, _ in ph.groups), *ph.code)
        for o in top.all_ops
        for v in o.results
    }

    def bring(v: Value) -> None:
        if v in have:
            return
        o = at_entry.get(v) or made.get(v)
        if o is None or not is_host(o) or isinstance(v.type, Tile):
            raise CompileError(
                "tma-view",
                "TMA's descriptor is encoded by the host at launch, but this view depends on a value that "
                "only the kernel knows",
                o.loc if o is not None else None,
                help="make the view of kernel arguments, and put what changes into offsets",
            )
        for x in o.operands:
            bring(x)
        if v not in at_entry:
            out.append(o)
        have.update(o.results)

    for v in sorted(wanted, key=lambda v: v.hint):
        bring(v)
    moved = set(out) - set(entry)
    if moved:
        for ph in phases:
            ph.groups = [(without(o, moved), g) for o, g in ph.groups]
            ph.code = [without(o, moved) for o in ph.code if o not in moved]
    return out


# ---- tasks


def _warps(p: Program, loc: Loc) -> int:
    """Warps of the CTA: what self.attrs.warps says, or what the groups take."""
    given = p.threads[0].warps
    if given is not None:
        return given
    ends = [_warps_of(g.threads).stop for g in p.state.groups.values()]
    if not ends:
        raise CompileError(
            "attrs-warps",
            "the kernel does not say how many warps a CTA has",
            loc,
            help="set self.attrs.warps = 4 at its start",
        )
    return max(ends)


def _check_ctas_per_sm(p: Program, warps: int) -> None:
    """As many CTAs run side by side as have the threads of a multiprocessor."""
    most = p.machine.grid.threads_per_sm // (p.machine.warp_size * warps)
    if p.ctas_per_sm > most:
        raise CompileError(
            "attrs-ctas-per-sm",
            f"{p.ctas_per_sm} CTAs of {p.machine.warp_size * warps} threads on a multiprocessor: one has "
            f"{p.machine.grid.threads_per_sm} threads",
            p.attrs["ctas_per_sm"][1],
            help=f"at most {most} fit",
        )


def _tasks(phase: _Phase, divider: Divider, loc: Loc, names: set[str]) -> Op:
    """One phase: its groups beside each other, or code of all threads; unused warps are idle."""
    parts: list[Part] = []
    warps = len(divider.threads)
    if not phase.groups:
        ending = Op(control.yield_, (), {}, (), (), frozenset(), loc)
        everyone = Group("", Threads(0, warps, 1, "all", loc))
        region = Region((), (*phase.code, ending))
        parts = divider.parts(everyone, region, _unused("main", names))
    for o, g in phase.groups:
        name = g.name or _unused(f"group{g.threads.first}", names)
        if (g.name and name in names) or not name.isidentifier():
            raise CompileError(
                "group-name",
                f"{name!r} can't name this group",
                o.loc,
                help="give each its own identifier",
            )
        names.add(name)
        parts += divider.parts(g, o.regions[0], name)
    at = 0
    rows: list[Part] = []
    for part in (*sorted(parts, key=lambda part: part.first), None):
        start = warps if part is None else part.first
        if start > at:
            rows.append(Part(_unused(f"idle{at}", names), at, start - at, 1, _empty(loc)))
        if part is not None:
            rows.append(part)
            at = part.first + part.warps * part.replicas
    attrs = {
        "names": tuple(r.name for r in rows),
        "warps": tuple(r.warps for r in rows),
        "replicas": tuple(r.replicas for r in rows),
        "registers": (None,) * len(rows),
    }
    first = [*(o for o, _ in phase.groups), *phase.code]
    where = first[0].loc if first else loc
    return Op(task.tasks, (), attrs, (), tuple(r.region for r in rows), frozenset(), where)


def _unused(name: str, names: set[str]) -> str:
    """The name, or with a number where it is taken; taken from now on."""
    found, n = name, 1
    while found in names:
        n += 1
        found = f"{name}_{n}"
    names.add(found)
    return found


def _empty(loc: Loc | None) -> Region:
    return Region((), (Op(control.yield_, (), {}, (), (), frozenset(), loc),))


def _check_scopes(params: Sequence[Value], entry: Sequence[Op], made: list[Op]) -> None:
    """What a phase computes stays in it: threads of another phase don't know it."""
    have = {*params, *(v for o in entry for v in o.results)}
    for o in made:
        for r in o.regions:
            bound = have | {v for i in walk(r) for v in (*i.results, *_params(i))}
            for i in walk(r):
                for v in i.operands:
                    if v in bound:
                        continue
                    raise CompileError(
                        "phase-value",
                        f"{v.hint or 'a value'} ({v.type}) is computed by all threads before the groups; "
                        "groups and phases share numbers only where they follow from arguments and blockIdx",
                        i.loc,
                        help="compute it inside the group that uses it",
                    )


def _check_one_thread(made: list[Op]) -> None:
    """One thread has no register tensors."""
    elects = (o for m in made for r in m.regions for o in walk(r) if o.kind is task.elect)
    for o in (i for e in elects for i in walk(e.regions[0])):
        for v in (*o.operands, *o.results):
            if isinstance(v.type, Tile | InFlight):
                raise CompileError(
                    "one-thread",
                    f"single_thread() works on {v.hint or 'a register tensor'} ({v.type}), which all threads "
                    "of the group hold together",
                    o.loc,
                    help="move it out of single_thread()",
                )


def _check_divisors(params: Sequence[Value], ops: Sequence[Op]) -> None:
    """The host can compute what fast_divmod divides by."""
    program = Expressions(params, definitions(Region((), tuple(ops))))
    for o in (i for top in ops for i in top.all_ops if i.kind is arith.fast_div):
        try:
            program.expression(o.operands[1])
        except InternalError:
            raise CompileError(
                "fast-div",
                f"fast_divmod divides by {o.operands[1].hint or 'a value'}, which only the kernel knows; "
                "the host computes what it multiplies by",
                o.loc,
                help="divide by arguments of the kernel and what follows from them, or use // and %",
            ) from None


def _params(o: Op) -> Iterator[Value]:
    for r in o.regions:
        yield from r.params


# ---- the grid


def _grid(p: Program, params: Sequence[Value], loc: Loc) -> tuple[Any, ...]:
    """The host's expressions of self.attrs.blocks."""
    assert p.top is not None
    if "blocks" not in p.attrs:
        raise CompileError(
            "attrs-blocks",
            "the kernel does not say how many CTAs it runs as",
            loc,
            help="set self.attrs.blocks = [cdiv(m, block_m), …] at its start",
        )
    value, where = p.attrs["blocks"]
    sizes = value if isinstance(value, tuple) else (value,)
    if not 1 <= len(sizes) <= 3:
        raise CompileError(
            "attrs-blocks", f"a grid of {len(sizes)} axes", where, help="give 1 to 3"
        )
    advice = "compute self.attrs.blocks from integer arguments"
    program = Expressions(params, definitions(Region((), tuple(p.top.ops))))
    return tuple(_on_host(program, x, "attrs-blocks", "the grid", where, advice) for x in sizes)


def _on_host(
    program: Expressions, x: Any, code: str, what: str, loc: Loc | None, advice: str
) -> Any:
    """The host's expression of an integer."""
    if is_literal(x) or isinstance(x, Const):
        x = known(x)
        if isinstance(x, int):
            return ("const", int(x))
    try:
        v = current()._current(x)
        if isinstance(x, float) or not dtype_of(v.type).is_int:
            message = f"{what} is counted in integers, found {describe(x)}"
            raise CompileError(code, message, loc, help="divide by // or cdiv")
        return program.expression(v)
    except (InternalError, AttributeError) as e:
        depends = f"the host can't compute {what}: it depends on {describe(x)}"
        raise CompileError(code, depends, loc, help=advice) from e


def _workspaces(p: Program, params: Sequence[Value]) -> tuple[Any, ...]:
    """For each global_tensor the host's expression of its elements, and whether it has to be clean."""
    assert p.top is not None
    made = [o for top in p.top.ops for o in top.all_ops]
    program = Expressions(params, definitions(Region((), tuple(made))))
    advice = "make its shape of numbers and integer arguments of the kernel"

    def size(w: Workspace) -> Any:
        what = f"the size of {w.pointer.hint}"
        return _on_host(program, w.elements, "global-tensor", what, w.loc, advice)

    return tuple((size(w), w.clean) for w in p.state.workspaces)
