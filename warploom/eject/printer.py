"""A whole script: class, signature, declarations, groups."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from warploom.eject import copies as copies  # its rows of the table
from warploom.eject.expressions import DTYPE_NAMES
from warploom.eject.flow import Flow, analyse
from warploom.eject.names import Namer, depth_names, rings
from warploom.eject.reroll import reroll
from warploom.eject.statements import Statements
from warploom.eject.text import STEP, Block, Line, Node, Renderer, wrapped
from warploom.errors import CompileError
from warploom.ir.core import Func, Op, Region, Value, walk
from warploom.ir.ops import task
from warploom.ir.ops.cluster import cluster_of
from warploom.ir.registers import ctas_per_sm
from warploom.ir.rewrite import rewrite
from warploom.ir.types import Pointer, Scalar
from warploom.passes.tile.canonicalize.cleanup import drop_dead, merge_equal, until_stable
from warploom.passes.tile.canonicalize.simplify import Simplifier
from warploom.schedule.split_k import MOST_PARTS


def eject(func: Func, constexprs: Mapping[str, Any], signature: Sequence[str]) -> str:
    """The source of a script that compiles to `func`, a function at WARP without layouts.

    constexprs: the compile-time values that it was made with, for its docstring.  signature: of its
    parameters, as `Script.compile` takes it.  Raises CompileError `eject` where scripts can't say something.
    """
    if func.attrs.get("workspaces") and not func.attrs.get("programs"):
        raise CompileError(
            "eject",
            f"{func.name} has memory of its own (global_tensor), which has no spelling from its parameters",
            func.loc,
            help="pass that memory as an argument",
        )
    steps = (lambda f: rewrite(f, Simplifier()), merge_equal, drop_dead)
    flow = analyse(until_stable(func, steps))
    return _Printer(flow, dict(constexprs), tuple(signature)).text()


class _Printer:
    def __init__(self, flow: Flow, constexprs: dict[str, Any], signature: tuple[str, ...]) -> None:
        self.flow = flow
        self.func = flow.func
        self.constexprs = constexprs
        self.signature = signature
        self.rings = rings(flow)
        self.depth_names = depth_names(flow, self.rings)
        depths: dict[Op | Value, str] = {}
        for i, ring in enumerate(self.rings):
            name = f"self.{self.depth_names[i]}"
            depths.update(dict.fromkeys([*ring.allocations, *ring.cursors], name))
        names = Namer(flow, self.rings).run()
        self.s = Statements(flow, names, depths)

    def text(self) -> str:
        file = self.func.loc.file if self.func.loc is not None else ""
        render = Renderer(file)
        entry = self._entry()
        used = set(self.s.names.values())
        free = (name for n in itertools.count() for name in [f"i{n or ''}"] if name not in used)
        groups = [
            Block(g.head, reroll(g.body, free)) if isinstance(g, Block) else g
            for g in self._groups()
        ]
        body = [*render.lines(entry, STEP * 2, frozenset())]
        for group in groups:
            body += ["", *render.lines([group], STEP * 2, frozenset())]
        parameters = self._parameters()
        where = f" from {file.rpartition('/')[2]}:{self.func.loc.line}" if self.func.loc else ""
        fixed = ", ".join(f"{k}={v!r}" for k, v in self.constexprs.items())
        lines = [
            "# mypy: ignore-errors",
            f'"""{self.func.name} as an explicit kernel, ejected{where}.',
            *(["", f"Compile-time values: {fixed}."] if fixed else []),
            '"""',
            "",
            "from warploom import Script",
        ]
        if self.s.used:
            lines.append(f"from warploom.language import {', '.join(sorted(self.s.used))}")
        signature = ", ".join(f'"{entry}"' for entry in self.signature)
        lines += ["", *wrapped(f"SIGNATURE = [{signature}]", ""), "", ""]
        lines += [f"class {_camel(self.func.name)}(Script):"]
        first, *more = (self._arguments(), *self._own_memory())
        lines += [STEP + line for line in (f'"""{first}', *more)]
        lines[-1] += '"""'
        lines += [""]
        lines += [STEP + "def __init__(self, grid) -> None:", STEP * 2 + "super().__init__()"]
        lines += [STEP * 2 + "self.grid = grid"]
        for i, ring in enumerate(self.rings):
            lines.append(STEP * 2 + f"self.{self.depth_names[i]} = {ring.depth}")
        lines += ["", STEP + "def __call__(", STEP * 2 + "self,"]
        lines += [STEP * 2 + f"{p}," for p in parameters]
        lines += [STEP + "):", *body]
        return "\n".join(lines) + "\n"

    def _arguments(self) -> str:
        """What the numbers of __init__ are."""
        out = ["grid: CTAs of a launch."]
        for i, ring in enumerate(self.rings):
            named = [self.s.name(o.result) for o in ring.allocations]
            out.append(f"{self.depth_names[i]}: slots of {named[0] if named else 'a ring'}.")
        return "  ".join(out)

    def _own_memory(self) -> Iterator[str]:
        """What the arguments are that split_last_wave added to those of the kernel's caller."""
        asked = self.func.attrs.get("workspaces", ())
        if not asked:
            return
        n = asked[-1][0][1]  # a ticket for each multiprocessor
        yield (
            f"P programs, of a grid programs_x by programs_y by programs_z, are run by "
            f"P + P % {n} * (min({n} // max(P % {n}, 1), {MOST_PARTS}) - 1) CTAs."
        )
        for p, (size, clean) in zip(self.func.params[-len(asked) :], asked, strict=True):
            yield f"{self.s.name(p)}: {size[1]} elements{', zeros at first' * clean}."

    def _parameters(self) -> list[str]:
        out = []
        for p in self.func.params:
            mark = "~" if isinstance(p.type, Pointer) else ""
            assert isinstance(p.type, Pointer | Scalar)
            dtype = self.s.use(DTYPE_NAMES[p.type.dtype.name])
            out.append(f"{self.s.name(p)}: {mark}{dtype}")
        return out

    def _entry(self) -> list[Node]:
        warps = task.warps_of(task.phases(self.func)[-1])
        out: list[Node] = [
            Line("self.attrs.blocks = self.grid"),
            Line(f"self.attrs.warps = {warps}"),
        ]
        if self.s.in_clusters:
            out.append(Line(f"self.attrs.cluster_blocks = {list(cluster_of(self.func))}"))
        if (n := ctas_per_sm(self.func)) > 1:
            out.append(Line(f"self.attrs.ctas_per_sm = {n}"))
        fixed = [
            (self.s.name(p), fact.value)
            for p, fact in zip(self.func.params, self.func.facts, strict=True)
            if fact.value is not None
        ]
        if fixed:
            out.append(Line("# constants of this kernel: a launch with others is refused"))
            out += [Line(f"self.static_assert({name} == {value})") for name, value in fixed]
        ops = [o for o in self.func.body.ops[:-1] if o.kind is not task.tasks]
        return [*out, *(n for o in ops for n in self.s.statement(o))]

    def _groups(self) -> list[Node]:
        """The groups of all phases; between two phases their barrier."""
        out: list[Node] = []
        for o in task.phases(self.func):
            out += [Line("self.sync()")] if out else []
            out += self._phase(o)
        return out

    def _phase(self, o: Op) -> Iterator[Block]:
        a, first, size = o.attrs, 0, self.func.target.warp_size
        for rows in task.sharing(o, self.func.target.warp_group):
            start, budget, inside = first, a["registers"][rows[0]], []
            alone = len(rows) == 1
            for i in rows:
                name, warps, n = (a[k][i] for k in ("names", "warps", "replicas"))
                region = o.regions[i]
                own = budget if alone else None
                if len(region.ops) > 1 or own or not name.startswith("idle"):
                    at = first if alone or budget is None else first - start
                    inside.append(self._group(name, at, warps, n, own, region))
                first += warps * n
            if alone or budget is None:
                yield from inside
            else:  # one budget for the tasks of a warp group
                head = f"with self.thread_group({size * start}, {size * (first - start)}):"
                yield Block(Line(head), [Line(f"self.setmaxnreg({budget})"), *inside])

    def _group(
        self, name: str, first: int, warps: int, n: int, registers: int | None, region: Region
    ) -> Block:
        size = self.func.target.warp_size
        many = f", replicas={n}" if n > 1 else ""
        index = next((i.result for i in walk(region) if i.kind is task.replica_id), None)
        known = f" as {self.s.name(index)}" if index is not None else ""
        head = (
            f'with self.thread_group({size * first}, {size * warps}{many}, name="{name}"){known}:'
        )
        start: list[Node] = [Line(f"self.setmaxnreg({registers})")] if registers else []
        body = [*start, *(x for i in region.ops[:-1] for x in self.s.statement(i))]
        return Block(Line(head), body or [Line("pass")])


def _camel(name: str) -> str:
    return re.sub(r"(?:^|_+)([a-zA-Z0-9])", lambda m: m[1].upper(), name) or "Kernel"
