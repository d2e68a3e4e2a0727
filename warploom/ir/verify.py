"""What must hold of a function at its level, checked after every pass.

Structure and the rules of each op by itself first, then the invariants of the level: a function each, listed
in `INVARIANTS` (also in verify_resources.py and verify_placed.py).  What was found of an op at a level is not
asked again.  A violation is a bug of ours: InternalError with op, location, rule.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cache

from warploom.errors import InternalError
from warploom.ir.analysis import closure, definitions, effects, sources
from warploom.ir.capabilities import missing
from warploom.ir.core import (
    ALL_LEVELS,
    KINDS,
    Effect,
    Func,
    Level,
    Op,
    OpKind,
    Region,
    RuleError,
    Runs,
    Type,
    Value,
    walk,
)
from warploom.ir.in_flight import overwritten_operands
from warploom.ir.ops import arith, cluster, control, mbarrier, mma, regs, smem, task, tile, tma
from warploom.ir.ops.grid import grid_release, grid_wait
from warploom.ir.printer import print_op
from warploom.ir.types import InFlight, Shared, Tile
from warploom.ir.verify_placed import PLACED, Violation, has_layouts
from warploom.ir.verify_resources import resources
from warploom.target import Target


def verify(func: Func, target: Target | None = None) -> None:
    """Raises InternalError that names op, location and rule where `func` is not what its level promises.

    The limits of `target` count from PLACED on, except the number of warps and registers (from WARP on).
    """
    problem = next(_violations(func, target or func.target), None)
    if problem is None:
        return
    where = f"in @{func.name} at level {func.level.name}"
    if problem.op is None:
        raise InternalError(f"invalid IR {where}\n  rule: {problem.rule}")
    line = print_op(problem.op).split("\n", 1)[0]
    named = f" #{problem.op.id}" if problem.op.id else ""
    at = f"\n  at: {problem.op.loc}" if problem.op.loc is not None else ""
    raise InternalError(
        f"invalid IR {where}: {problem.op.kind.name}{named}\n  op: {line}{at}\n  rule: {problem.rule}"
    )


def _violations(func: Func, target: Target) -> Iterator[Violation]:
    yield from _structure(func)
    for levels, invariant in INVARIANTS:
        if func.level in levels:
            yield from invariant(func, target)


# ---- structure: every level


def _structure(func: Func) -> Iterator[Violation]:
    level = func.level
    alone = [rule for levels, rule in OF_AN_OP if level in levels]
    bound: set[Value] = set()
    scope: set[Value] = set()

    def bind(values: tuple[Value, ...], o: Op | None) -> Sequence[Violation]:
        wrong: Sequence[Violation] = ()
        if not bound.isdisjoint(values) or len(set(values)) < len(values):
            twice = (v for i, v in enumerate(values) if v in bound or v in values[:i])
            wrong = [Violation(o, f"%{v.hint}: {v.type} is defined twice") for v in twice]
        bound.update(values)
        scope.update(values)
        return wrong

    def region(r: Region, owner: Op | None) -> Iterator[Violation]:
        yield from bind(r.params, owner)
        if not r.ops or r.ops[-1].kind is not control.yield_:
            yield Violation(owner, "a region ends in a yield")
        for o in r.ops:
            if o.agreed is not level:
                wrong = [v for rule in alone for v in rule(o, level)]
                if not wrong:
                    vars(o)["agreed"] = level
                yield from wrong
            if not scope.issuperset(o.operands):
                v = next(v for v in o.operands if v not in scope)
                yield Violation(o, f"%{v.hint}: {v.type} is used outside its scope")
            for inner in o.regions:
                yield from region(inner, o)
            if o.results:
                yield from bind(o.results, o)
        for o in r.ops[:-1]:
            if o.kind is control.yield_:
                yield Violation(o, "a yield stands at the end of its region")
        scope.difference_update(r.params, *(o.results for o in r.ops))

    yield from region(func.body, None)
    if func.body.yielded:
        yield Violation(func.body.ops[-1], "a function yields nothing")


def _legal(o: Op, level: Level) -> Iterator[Violation]:
    if KINDS.get(o.kind.name) is not o.kind:
        yield Violation(o, "the op's kind is declared in ir/ops")
    if level not in o.kind.levels:
        legal = ", ".join(level.name for level in sorted(o.kind.levels))
        yield Violation(o, f"{o.kind.name} is legal at {legal} only")


def _typed(o: Op, _: Level) -> Iterator[Violation]:
    for i, v in enumerate(o.operands):
        declared = o.kind.operands
        name, t = declared[min(i, len(declared) - 1)] if declared else ("operand", Type)
        if not isinstance(v.type, t):
            yield Violation(o, f"{o.kind.name}'s {name} is a {t.__name__}, not {v.type}")
    if o.typed:
        return
    found = tuple(v.type for v in o.results)
    try:
        expected = o.kind.infer(o.operands, o.attrs, o.regions)
    except RuleError as e:
        yield Violation(o, str(e))
    except (TypeError, ValueError, AttributeError, LookupError) as e:
        # A rule reads its operands' types as declared; on others it fails as Python does.
        yield Violation(o, f"operands or attributes do not fit {o.kind.name}: {e}")
    else:
        if expected != found:
            shown = ", ".join(map(str, expected)) or "nothing"
            yield Violation(o, f"by its rule {o.kind.name} gives {shown}")
        else:
            vars(o)["typed"] = True


# ---- TASK and CHANNEL


def _has_tasks(o: Op, _: Level) -> Iterator[Violation]:
    if not o.tasks and o.kind is not control.yield_:
        yield Violation(o, "from TASK on every op says which tasks run it")


def _crosses_by_channels(func: Func, _: Target) -> Iterator[Violation]:
    """What an op reads is computed by every task that runs the op.  (The values that control flow carries
    belong to some of its tasks only.)"""
    made_by = definitions(func.body)
    for o in walk(func.body):
        if o.kind is control.yield_:
            continue
        for v in o.operands[: control.LEAD.get(o.kind)]:
            maker = made_by.get(v)
            if maker is not None and maker.kind not in control.LEAD and not o.tasks <= maker.tasks:
                missing = ", ".join(sorted(o.tasks - maker.tasks))
                yield Violation(
                    o, f"%{v.hint} is not computed in {missing}: values cross by channels"
                )


# ---- WARP and PLACED

_DECLARATIONS = (tma.tensor_map, tma.map_alloc, smem.shared_alloc, mbarrier.mbarrier_alloc)
_WHO = (tile.program_id, cluster.cta_rank, cluster.cta_id)
_USER_CHECKS = (control.assume, control.device_assert, control.device_print, control.printf)
_AT_ENTRY = (*_USER_CHECKS, grid_wait, grid_release)


def _one_tasks_op(func: Func, _: Target) -> Iterator[Violation]:
    found = task.phases(func)
    if not found or func.body.ops[-1 - len(found) : -1] != found:
        yield Violation(None, "the last ops before the yield are `tasks`")
    for o in walk(func.body):
        if o.kind is task.tasks and o not in found:
            yield Violation(o, "`tasks` are the last ops of the function but the yield")
    names = [name for o in found for name in o.attrs["names"]]
    if len(set(names)) < len(names):
        yield Violation(found[-1], "two tasks have one name")
    for o in found[:-1]:
        if task.warps_of(o) != task.warps_of(found[-1]):
            yield Violation(o, "all phases have the same number of warps")
        if any(budget is not None for budget in o.attrs["registers"]):
            yield Violation(o, "only the last phase has register budgets")
    budgets = found and any(budget is not None for budget in found[-1].attrs["registers"])
    for o in (i for phase in found[:-1] for r in phase.regions for i in walk(r)):
        if budgets and o.kind is regs.setmaxnreg:
            yield Violation(o, "the last phase has register budgets: no setmaxnreg before it")


def _entry(func: Func, _: Target) -> Iterator[Violation]:
    """What stands before `tasks`, and what stands only there."""
    for o in func.body.ops[: -1 - len(task.phases(func))]:
        if effects(o) & (Effect.WRITE | Effect.SYNC) and o.kind not in _AT_ENTRY:
            yield Violation(o, "before `tasks` nothing is written and nothing synchronises")
        if any(isinstance(v.type, Tile) for v in o.results):
            yield Violation(o, "before `tasks` there are scalars and declarations, no tiles")
    for o in _all(func, *_DECLARATIONS):
        if o not in func.body.ops:
            yield Violation(o, f"{o.kind.name} stands before `tasks`, outside control flow")


def _launch_invariant(func: Func, _: Target) -> Iterator[Violation]:
    asked = {tma.tensor_map: ("encodes the map", 0), arith.fast_div: ("needs the divisor", 1)}
    of_the_host = _all(func, *asked)
    if not of_the_host:
        return
    made_by = definitions(func.body)

    @cache
    def flow() -> dict[Value, tuple[Value, ...]]:
        return sources(func.body)

    def behind(v: Value) -> tuple[Value, ...]:
        """Most come of sums of parameters alone: where control flow leads to is only asked if it must be."""
        maker = made_by.get(v)
        if maker is None:
            return () if v in func.params else flow().get(v, ())
        return flow()[v] if maker.regions else maker.operands

    for o in of_the_host:
        what, first = asked[o.kind]
        for v in closure(o.operands[first:], behind):
            maker = made_by.get(v)
            if maker is not None and (maker.kind in _WHO or effects(maker)):
                yield Violation(o, f"the host {what}, but it depends on {maker.kind.name}")


def _names(func: Func, _: Target) -> Iterator[Violation]:
    seen: set[str] = set()
    for o in func.body.ops:
        if o.kind in (smem.shared_alloc, mbarrier.mbarrier_alloc, tma.map_alloc):
            if o.attrs["name"] in seen:
                yield Violation(o, f"{o.attrs['name']} names two allocations")
            seen.add(o.attrs["name"])


def _elected(func: Func, _: Target) -> Iterator[Violation]:
    elected = {i for o in _all(func, task.elect) for r in o.regions for i in r.all_ops}
    for kind, ops in func.body.by_kind.items():
        if kind.runs is not Runs.ANY:
            for o in ops:
                if kind.runs is (Runs.ALL if o in elected else Runs.ONE):
                    yield Violation(o, f"{kind.name} is run by {kind.runs.value}")
    own = {o.result for o in _all(func, tma.map_alloc)}
    for o in _all(func, tma.tma_store):
        if o.operands[0] in own:  # who waits for groups is not who writes maps (Emitter.electing)
            yield Violation(o, "no copy to global memory is by a descriptor that the kernel writes")
    for o in elected:
        if any(isinstance(v.type, (Tile, InFlight)) for v in (*o.operands, *o.results)):
            yield Violation(o, "inside elect there is one thread, and no tile")


def _clusters(func: Func, _: Target) -> Iterator[Violation]:
    """The cluster's shape; constant ranks and multicast masks are inside it."""
    shape = func.attrs.get("cluster", (1, 1, 1))
    n = math.prod(shape)
    if len(shape) != 3 or min(shape) < 1 or n > cluster.MAX_CTAS:
        yield Violation(None, f"a cluster has three sizes and 1 to {cluster.MAX_CTAS} CTAs")
    made_by = {v: o for o in _all(func, arith.const) for v in o.results}
    for o in _all(func, cluster.peer, tma.tma_load, mbarrier.mbarrier_arrive):
        to_mask = (o.kind is tma.tma_load and o.attrs.get("multicast")) or (
            o.kind is mbarrier.mbarrier_arrive and len(o.operands) > 2
        )
        if o.kind is cluster.peer or to_mask:
            maker = made_by.get(o.operands[-1])
            if maker is None:
                continue
            value, first = maker.attrs["value"], int(to_mask)
            if not first <= value < (n if o.kind is cluster.peer else 1 << n):
                yield Violation(o, f"{value} is outside a cluster of {n} CTAs")


def _in_flight(o: Op, _: Level) -> Iterator[Violation]:
    for i, v in enumerate(o.operands):
        if not isinstance(v.type, InFlight):
            continue
        match o.kind:
            case control.yield_ | mma.wgmma_wait:
                continue
            case mma.wgmma if i == 2:
                continue
            case control.for_ | control.while_:
                continue
            case arith.select if i > 0 and not isinstance(o.operands[0].type, Tile):
                continue
        yield Violation(o, f"%{v.hint} is in flight: only wgmma and wgmma_wait may use it")


def _register_operands(func: Func, _: Target) -> Iterator[Violation]:
    for wgmma, _loop in overwritten_operands(func):
        yield Violation(wgmma, "a loop makes its register operand again while it may be read")


def _capabilities(func: Func, target: Target) -> Iterator[Violation]:
    """The target has what the ops are made of."""
    if found := missing(func, target):
        yield Violation(*found)


def _indices(func: Func, _: Target) -> Iterator[Violation]:
    """Constant indices of slots and barriers are in range."""
    known = {v: o.attrs["value"] for o in _all(func, arith.const) for v in o.results}

    def outside(index: Value, n: int) -> bool:
        return index in known and not 0 <= known[index] < n

    for kind, ops in func.body.by_kind.items():
        if kind is smem.shared_slot:
            for o in ops:
                slots = o.operands[0].typed(Shared)
                if any(outside(v, n) for v, n in zip(o.operands[1:], slots.lead, strict=True)):
                    yield Violation(o, f"the index is outside {slots}")
            continue
        for o in ops:
            found = mbarrier.barrier_of(o)
            if found is None:  # so has no other of the kind
                break
            array, index = found
            if outside(index, array.type.n):  # type: ignore[attr-defined]
                yield Violation(o, f"the index is outside {array.type}")


def _all(func: Func, *kinds: OpKind) -> list[Op]:
    """The ops of these kinds, kind by kind."""
    return [o for kind in kinds for o in func.body.by_kind.get(kind, ())]


_SPLIT = frozenset({Level.TASK, Level.CHANNEL})
_CHANNEL = frozenset({Level.CHANNEL})
_HARDWARE = frozenset({Level.WARP, Level.PLACED})
_PLACED = frozenset({Level.PLACED})

# Rules of an op by itself, whatever stands around it: asked once at a level.
OF_AN_OP: tuple[tuple[frozenset[Level], Callable[[Op, Level], Iterator[Violation]]], ...] = (
    (ALL_LEVELS, _legal),
    (ALL_LEVELS, _typed),
    (_SPLIT, _has_tasks),
    (_HARDWARE, _in_flight),
    (_PLACED, has_layouts),
)
# In this order: a later invariant may rely on the earlier ones.
INVARIANTS: tuple[tuple[frozenset[Level], Callable[[Func, Target], Iterator[Violation]]], ...] = (
    (_CHANNEL, _crosses_by_channels),
    (_HARDWARE, _one_tasks_op),
    (_HARDWARE, _entry),
    (_HARDWARE, _launch_invariant),
    (_HARDWARE, _names),
    (_HARDWARE, _elected),
    (_HARDWARE, _clusters),
    (_HARDWARE, _register_operands),
    (_HARDWARE, _capabilities),
    (_HARDWARE, resources),
    (_HARDWARE, _indices),
    *((_PLACED, invariant) for invariant in PLACED),
)
