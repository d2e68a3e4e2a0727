"""Regions as Python functions: what an agent does, translated once for all runs of a function.

A region becomes a generator function of the agent and of the values from outside that it takes.  Values are
its local variables, loops and branches Python's own; every other op is a call of what its line names
(outline.py), so that the text has no meaning of ops of its own.  A line that names something for an `if` or a
loop gets it whole, as functions; so what is nested deeply is kept apart as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from types import CodeType, GeneratorType
from typing import Any, NamedTuple

from warploom.ir.core import Op, OpKind, Region, Value
from warploom.ir.ops import control, task
from warploom.ir.types import dtype_of
from warploom.sim.offsets import wrapped

CALLED: dict[str, Callable[..., Any]] = {}  # what control flow asks of an agent; filled by flow.py
MAX_DEPTH = 12  # of one function: Python takes 20 loops inside each other


def called(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Registers a function that the text calls by its name."""
    CALLED[fn.__name__] = fn
    return fn


class Mode(NamedTuple):
    """What of a run the text depends on; see state.Cta."""

    is_skeleton: bool
    has_data: bool
    is_timed: bool


class Line(NamedTuple):
    """One op as an agent runs it.

    run: of a pure op a function of its operands, otherwise of the agent, the op and the operands (a
    generator where it can block).  Of control flow (translate.py) nothing; or a generator function of agent,
    op, what it does as functions (of an `if` both regions), and operands.  tiles: its results that are
    tiles.  unit, cycles: of a pure op."""

    op: Op
    run: Callable[..., Any] | None
    is_pure: bool
    operands: tuple[Value, ...]
    results: tuple[Value, ...]
    tiles: tuple[Value, ...]
    unit: str
    cycles: float


class Translated(NamedTuple):
    """A region's function, which gives what the region yields, and what it takes beside the agent."""

    run: Callable[..., Any]
    asked: tuple[Value, ...]


@dataclass
class _Function:
    """One that is being written.  made, used: the names in it."""

    lines: list[str] = field(default_factory=list)
    depth: int = 1
    made: set[str] = field(default_factory=set)
    used: dict[str, None] = field(default_factory=dict)

    def add(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)


class Translator:
    """Writes the functions of a region for one mode.

    lines: of a region.  given: what a run need not compute.  wrapping: see Offsets."""

    def __init__(
        self,
        lines: Callable[[Region], Iterable[Line]],
        given: Mapping[Value, Any],
        wrapping: Callable[[Op], Iterable[int]],
        mode: Mode,
    ) -> None:
        self.lines, self.wrapping, self.mode = lines, wrapping, mode
        self._space: dict[str, Any] = {
            "G": GeneratorType,
            "partial": partial,
            "wrapped": wrapped,
            **CALLED,
        }
        self._constants: dict[Any, str] = {}
        self._known: dict[Value, str] = {}  # constants
        for v, number in given.items():
            self._known[v] = "None" if number is None else self._constant(number, v)
        self._names: dict[Value, str] = {}
        self._values: dict[str, Value] = {}
        self._functions: list[str] = []
        self._now = _Function()

    def translated(self, region: Region) -> Translated:
        name, asked = self._function(lambda: self._body(region), region)
        exec(_code("\n".join(self._functions)), self._space)
        return Translated(self._space[name], tuple(self._values[v] for v in asked))

    # ---- names

    def _constant(self, x: Any, key: Any = None) -> str:
        """A name for something that stays the same."""
        key = id(x) if key is None else key
        if key not in self._constants:
            name = self._constants[key] = f"k{len(self._constants)}"
            self._space[name] = x
        return self._constants[key]

    def _name(self, v: Value) -> str:
        name = self._names.setdefault(v, f"v{len(self._names)}")
        self._values[name] = v
        return name

    def _use(self, values: Iterable[Value]) -> list[str]:
        found = [self._known.get(v) or self._name(v) for v in values]
        self._now.used.update((x, None) for x in found if x[0] == "v")
        return found

    def _make(self, values: Iterable[Value]) -> list[str]:
        found = [self._name(v) for v in values]
        self._now.made.update(found)
        return found

    def _set(self, values: Sequence[Value], given: Sequence[str]) -> None:
        if values:
            self._now.add(f"{', '.join(self._make(values))} = {', '.join(given)}")

    # ---- functions

    def _function(
        self, write: Callable[[], None], of: Region | None = None
    ) -> tuple[str, list[str]]:
        """One of its own: its name, and the names that it takes from outside.  of: whose parameters are its
        last ones."""
        outer, self._now = self._now, _Function()
        params = self._make(of.params) if of is not None else []
        write()
        inner, self._now = self._now, outer
        asked = [x for x in inner.used if x not in inner.made]
        outer.used.update(dict.fromkeys(asked))
        name = f"r{len(self._functions)}"
        head = f"def {name}({', '.join(['a', *asked, *params])}):"
        self._functions.append("\n".join([head, "    if 0: yield", *inner.lines]))
        return name, asked

    def _apart(self, write: Callable[[], None]) -> str:
        """The text of a function without parameters."""
        name, asked = self._function(write)
        return f"partial({', '.join([name, 'a', *asked])})"

    def _body(self, region: Region) -> None:
        """A region that is a function."""
        self._ops(region)
        self._now.add(f"return ({''.join(f'{x}, ' for x in self._use(region.yielded))})")

    # ---- ops

    def _ops(self, region: Region) -> None:
        for line in self.lines(region):
            if line.op.kind in _FLOW:
                self._flow(line)
            elif line.is_pure:
                self._pure(line)
            else:
                self._step(line)

    def _pure(self, line: Line) -> None:
        values, mode, now = self._use(line.operands), self.mode, self._now
        if not mode.is_skeleton and line.cycles:
            if line.tiles and mode.is_timed:
                now.add("yield None")  # agents whose clock is behind go first
            name = repr(line.op.id or line.op.kind.name)
            spend = f"a.spend({line.unit!r}, {line.cycles!r}, {name})"
            now.add(spend if line.tiles else f"a.time += {line.cycles!r}")
        nothing = "None" if len(line.results) == 1 else f"({'None, ' * len(line.results)})"
        call = f"{self._constant(line.run)}({', '.join(values)})"
        if not mode.has_data:
            if line.tiles or "None" in values:
                call = nothing
            elif lacks := " or ".join(f"{x} is None" for x in dict.fromkeys(values) if x[0] == "v"):
                call = f"{nothing} if {lacks} else {call}"
        if call == "None":
            self._known[line.results[0]] = "None"
        else:
            now.add(f"{', '.join(self._make(line.results))} = {call}")
        self._came(line.tiles)

    def _step(self, line: Line) -> None:
        now, values = self._now, self._use(line.operands)
        call = ", ".join(["a", self._constant(line.op), *values])
        now.add("a.count += 1")
        now.add(f"t = {self._constant(line.run)}({call})")
        now.add("if type(t) is G: t = yield from t")
        self._set(line.results, ["t"])
        self._came(line.tiles, "")

    def _came(self, tiles: Sequence[Value], count: str = "a.count += 1; ") -> None:
        """Tiles came into registers."""
        for v in tiles:
            self._now.add(f"{count}a.made[{self._constant(v)}] = a.count")

    # ---- control flow

    def _flow(self, line: Line) -> None:
        write, o, now = _FLOW[line.op.kind], line.op, self._now

        def operands(of: Sequence[Value] = o.operands) -> list[str]:
            values = self._use(of)
            for i in self.wrapping(o):
                values[i] = f"wrapped({values[i]})"
            return values

        def whole() -> None:
            write(self, o, operands())
            self._return(o.results)

        if line.run is not None:
            is_branch = o.kind is control.if_
            parts = [partial(self._arm, r) for r in o.regions] if is_branch else [whole]
            given = ["a", self._constant(o), *map(self._apart, parts), *operands(line.operands)]
            now.add(f"t = yield from {self._constant(line.run)}({', '.join(given)})")
            self._set(o.results, ["t"])
        elif now.depth > MAX_DEPTH:
            now.add(f"t = yield from {self._apart(whole)}()")
            self._set(o.results, ["t"])
        else:
            write(self, o, operands())

    def _return(self, values: Sequence[Value]) -> None:
        """What an op gives: one by itself, several as a tuple."""
        self._now.add(f"return {', '.join(self._use(values)) or '()'}")

    def _arm(self, region: Region) -> None:
        self._ops(region)
        self._return(region.yielded)

    def _nested(self, region: Region) -> None:
        self._now.depth += 1
        self._ops(region)

    def _if(self, o: Op, values: list[str]) -> None:
        now = self._now
        for head, region in zip((f"if is_true({values[0]}):", "else:"), o.regions, strict=True):
            now.add(head)
            self._nested(region)
            self._set(o.results, self._use(region.yielded))
            now.add("pass")
            now.depth -= 1

    def _begin_iteration(self, op: str, name: str, value: str, iteration: str) -> None:
        loops = f"(*{op}l, ({op}, {name!r}, {value}, {iteration}))"
        self._now.add(f"a.loops = {loops}; a.iterations = (*{op}t, ({op}, {iteration}))")

    def _for(self, o: Op, values: list[str]) -> None:
        (body,), op, now = o.regions, self._constant(o), self._now
        variable, *carried = body.params
        now.add(f"{op}l, {op}t = a.loops, a.iterations")
        self._set(carried, values[3:])
        now.add(f"for {op}j, {op}i in enumerate(iterations_of(a, {op}, {', '.join(values[:3])})):")
        now.depth += 1
        self._begin_iteration(op, variable.hint or "i", f"{op}i", f"{op}j")
        number = self._constant(dtype_of(variable.type).numpy.type)
        self._set([variable], [f"{number}({op}i)"])
        self._ops(body)
        self._set(carried, self._use(body.yielded))
        now.depth -= 1
        now.add(f"a.loops, a.iterations = {op}l, {op}t")
        self._set(o.results, self._use(carried))

    def _while(self, o: Op, values: list[str]) -> None:
        (condition, body), op, now = o.regions, self._constant(o), self._now
        spins = (
            self.mode.is_skeleton and len(body.ops) == 1
        )  # waits for a word, of another program perhaps
        now.add(f"{op}l, {op}t, {op}j = a.loops, a.iterations, 0")
        self._set(condition.params, values)
        now.add("while True:")
        self._nested(condition)
        go, *rest = self._use(condition.yielded)
        now.add(f"if not is_true({go}): break")
        self._begin_iteration(op, "iteration", f"{op}j", f"{op}j")
        self._set(body.params, rest)
        self._ops(body)
        self._set(condition.params, self._use(body.yielded))
        now.add(f"a.loops, a.iterations = {op}l, {op}t")
        now.add(f"{op}j += 1")
        now.add(f"limit(a, {op}, {op}j, {spins})")
        now.depth -= 1
        now.add(f"a.cta.report.trips.setdefault({op}, set()).add({op}j)")
        self._set(o.results, rest)

    def _elect(self, o: Op, values: list[str]) -> None:
        op = self._constant(o)
        self._now.add(f"begin_elect(a, {op})")
        self._ops(o.regions[0])
        self._now.add(f"end_elect(a, {op})")


_FLOW: dict[OpKind, Callable[[Translator, Op, list[str]], None]] = {
    control.for_: Translator._for,
    control.while_: Translator._while,
    control.if_: Translator._if,
    task.elect: Translator._elect,
}
FLOW = frozenset(_FLOW)


@lru_cache(maxsize=32)
def _code(text: str) -> CodeType:
    """Functions that differ in their constants alone share it."""
    return compile(text, "<agents>", "exec")
