"""What lowering functions write through: names, variables, lines, threads.

An `Emitter` holds the state of one emission.  It knows no op; `lower_*.py` say what each op becomes,
`emit.py` builds the frame around them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from warploom.analysis.facts import facts_of
from warploom.analysis.signs import Signs, extents
from warploom.codegen.formula import Bools, Ints, displaced, thread_formula
from warploom.codegen.registers import (
    BYTES,
    Array,
    Regs,
    c_type,
    is_packed,
    map_lines,
    pack,
    per_word,
    splat,
)
from warploom.codegen.storage import (
    Variable,
    assign_storage,
    needed_ops,
    only_moved,
    operands,
    registers_of,
)
from warploom.codegen.text import Text, all_of, is_used
from warploom.errors import InternalError
from warploom.ir.core import Func, Op, OpKind, Region, Type, Value, walk
from warploom.ir.engines import copies_boxes
from warploom.ir.host_expressions import Expr, Expressions
from warploom.ir.in_flight import finished_operands
from warploom.ir.ops import arith, control
from warploom.ir.types import Pointer, Scalar, Tile, Units, elem_of, i32, i64
from warploom.layout import Layout
from warploom.target import Target


@dataclass(frozen=True)
class Address:
    """A place in shared memory: the C variable `base` plus constant bytes."""

    base: str
    offset: int = 0

    def plus(self, text: str = "", offset: int = 0) -> Address:
        return Address(f"{self.base} + {text}" if text else self.base, self.offset + offset)

    def __str__(self) -> str:
        return f"{self.base} + {self.offset}" if self.offset else self.base


@dataclass(frozen=True)
class ViewRef:
    """A view on the device: its make_view op."""

    op: Op


@dataclass(frozen=True)
class TaskFrame:
    """The task being emitted.  `index` of `names`, first warp of the CTA, warps of a replica, replicas."""

    name: str
    first_warp: int
    warps: int
    replicas: int


class Emitter(Text):
    """State of one emission.  The lowering functions write C through `line`, `define` and the readers."""

    def __init__(self, func: Func, target: Target, table: Mapping[OpKind, Lowering]) -> None:
        super().__init__()
        self.func, self.target, self.table = func, target, table
        self.threads: int = func.attrs["threads"]
        self.facts = facts_of(func)
        asked = func.attrs.get("debug", False)
        self.debug = asked is True  # else at most the asserts of users
        self.definitions: dict[Value, Op] = {v: o for o in walk(func.body) for v in o.results}
        # By wait: the wgmmas whose register operands it finishes; by wgmma: the words of its operand.
        self.finished = finished_operands(func)
        self.operand_words: dict[Op, list[str]] = {}
        self.needed = needed_ops(func, bool(asked))
        self.signs = Signs(self.facts, extents(self.needed, self.facts))
        self.wrapping = self.facts.wrapping()
        self.storage = assign_storage(func, self.needed)
        self.used = {v for o in self.needed for v in operands(o)}  # what something reads
        self.only_moved = only_moved(self.needed)
        self.program = Expressions(func.params, self.definitions)
        self.dividers: dict[Expr, str] = {}  # parameters that divide, by their divisors
        self.env: dict[Value, Any] = {}  # C text of scalars, Regs, Address, ViewRef, names of maps
        self.templates: dict[Value, str] = {}  # what map_write copies, by its descriptor
        self.constants: dict[Value, int | float | bool] = {}
        self.steps: dict[Value, Any] = {}  # what lower_arith.steps_of found
        self.made: dict[str, str] = {}  # generated instructions: name -> definition
        self.frame: TaskFrame | None = None
        self.wanted: set[str] = set()  # of a task's variables
        self.way: Op | None = None  # the `exchange` of the op that comes next
        self.elected = False
        self.heads: dict[str, str] = {}  # formula -> variable at the head of the task
        self.task_scope: set[str] = set()
        self.sole_elect: Op | None = None
        # C of the program to measure; records an agent.
        self.stamping: tuple[str, int] | None = None

    def use(self, what: str) -> str:
        """`lane`, `warp`, `thread`, `leader`, `replica` or `stamp_at`: declared at the head of the task."""
        self.wanted.add(what)
        return what

    # ---- values

    def scalar(self, v: Value) -> str:
        """A scalar or pointer operand: a name or a literal."""
        text = self.env[v]
        assert isinstance(text, str)
        return text

    def regs(self, v: Value) -> Regs:
        r = self.env[v]
        assert isinstance(r, Regs)
        return r

    def shared(self, v: Value) -> Address:
        a = self.env[v]
        assert isinstance(a, Address)
        return a

    def const(self, v: Value) -> int | None:
        """The value of a scalar that is an integer constant."""
        value = self.constants.get(v)
        return int(value) if isinstance(value, int) else None

    def declare(self, variable: Variable) -> None:
        """Declares without a value."""
        v = variable.values[0]
        t = registers_of(v)
        assert t is not None
        variable.name = self.name(variable.hint, "tile" if isinstance(t, Tile) else "x")
        if isinstance(t, Tile):
            self.line(f"{self.array_of(variable).declaration};")
            if isinstance(v.type, Units):
                variable.flag = self.name(f"{variable.name}_are_read")
                self.line(f"bool {variable.flag};")
        else:
            self.line(f"{c_type(elem_of(t))} {variable.name};")
        self.bind(variable)

    def bind(self, variable: Variable) -> None:
        for v in variable.values:
            t = registers_of(v)
            self.env[v] = self.array_of(variable).whole if isinstance(t, Tile) else variable.name

    def define(self, v: Value, text: str, is_mutable: bool = False) -> None:
        """A scalar result: `const int row = …;`, or an assignment to a variable of several values.
        is_mutable: it will be changed in place."""
        variable = self.storage.variables[v]
        if variable.name:
            if text != variable.name:
                self.line(f"{variable.name} = {text};")
            return
        variable.name = self.name(variable.hint)
        t = registers_of(v)
        assert t is not None
        is_constant = not is_mutable and not variable.is_mutable
        kind = _constant(t) if is_constant else c_type(elem_of(t))
        self.line(f"{kind} {variable.name} = {text};")
        self.bind(variable)

    def array(self, v: Value) -> Array:
        """The array of a tile result, declared if need be."""
        variable = self.storage.variables[v]
        if not variable.name:
            self.declare(variable)
        return self.array_of(variable)

    def array_of(self, variable: Variable) -> Array:
        v = variable.values[0]
        t = registers_of(v)
        assert isinstance(t, Tile)
        if isinstance(v.type, Units):  # two for each 16 bytes
            return Array(variable.name, BYTES, 2 * t.elem.bytes * t.layout.registers)  # type: ignore[union-attr]
        return Array(variable.name, BYTES if v in self.only_moved else t.elem, t.layout.registers)

    def put(self, v: Value, texts: Sequence[str]) -> None:
        """Gives a tile result its elements."""
        dst = self.array(v)
        n = per_word(dst.elem)
        for w in range(dst.words):
            self.line(f"{dst.name}[{w}] = {pack(dst.elem, texts[w * n : (w + 1) * n])};")

    def units_flag(self, v: Value) -> str:
        """The variable that tells whether units were read."""
        return self.storage.variables[v].flag

    def assign(self, v: Value, source: Value) -> None:
        """Makes v's variable hold `source` (a copy only where they are different)."""
        if not isinstance(registers_of(v), Tile):
            self.define(v, self.scalar(source))
            return
        self.copy(self.array(v), self.regs(source))

    def copy(self, dst: Array, source: Regs) -> None:
        if dst.whole == source:
            return
        whole = source.array
        if whole is not None and is_packed(dst.elem):  # else each word would be unpacked and packed
            self.unrolled("i", dst.words, f"{dst.name}[i] = {whole.name}[i];")
            return
        first = source.elements[0]
        if dst.elem == i32 and first.array is None and set(source.elements) == {first}:
            # NVVM follows an integer's constant through a branch, duplicates what comes after it, and tiles
            # are spilled (NVRTC 13.5).
            name = self.name("filler")
            self.line(f"const int {name} = opaque({first.text});")
            source = splat(dst.elem, name, len(source.elements))
        self.lines(map_lines(dst, [source], lambda x: x))

    def parallel_assign(self, pairs: list[tuple[Value, Value]]) -> None:
        """All assignments at once, as a yield means them: a variable is read before it is overwritten."""
        todo = [(a, b) for a, b in pairs if not self._same(a, b)]
        while todo:
            read = {p: any(self._reads(q[1], p[0]) for q in todo if q is not p) for p in todo}
            ready = next((p for p in todo if not read[p]), None)
            if ready is not None:
                todo.remove(ready)
                self.assign(*ready)
                continue
            # A cycle: a source that another one's variable is read by is kept aside.
            stuck = next(
                p for p in todo if any(self._reads(p[1], q[0]) for q in todo if q is not p)
            )
            todo[todo.index(stuck)] = stuck[0], self._kept(stuck[1])

    def _kept(self, v: Value) -> Value:
        """A value that is a copy of v."""
        kept, t = Value(v.type, v.hint), registers_of(v)
        if isinstance(t, Tile):
            source = self.regs(v)
            copy = Array(self.name("kept"), source.elem, len(source.elements))
            self.line(f"{copy.declaration};")
            self.copy(copy, source)
            self.env[kept] = copy.whole
        else:
            name = self.env[kept] = self.name("kept")
            self.line(f"{_constant(v.type)} {name} = {self.scalar(v)};")
        return kept

    def _same(self, a: Value, b: Value) -> bool:
        return a is b or (a in self.env and self.env[a] == self.env.get(b))

    def _reads(self, source: Value, target: Value) -> bool:
        """Does reading `source` read target's variable?"""
        mine, theirs = self.env[source], self.storage.variables[target].name
        if not theirs:  # not declared yet
            return False
        if isinstance(mine, Regs):
            return any(
                (e.array is not None and e.array.name == theirs) or e.text == theirs
                for e in mine.elements
            )
        return is_used(theirs, mine)

    # ---- regions

    def region(self, r: Region) -> None:
        """The ops of a region but its yield."""
        around = self.op
        for o in r.ops:
            if o.kind is control.yield_ or o not in self.needed:
                continue
            self.op, self.loc = o, o.loc or self.loc
            for variable in self.storage.declare_before.get(o, ()):
                self.declare(variable)
            if o.kind not in self.table:
                raise InternalError(
                    f"codegen: {o.kind.name} has no lowering (level {self.func.level.name})"
                )
            self.table[o.kind](self, o)
        self.op = around

    def exchange(self, size: int) -> Address:
        """Scratch of `size` bytes for an exchange between the replica's warps: the caller writes, calls
        `exchanged`, and reads.  The `exchange` before the op says where."""
        o = self.way
        if o is None or size > o.operands[0].type.tile_bytes:  # type: ignore[attr-defined]
            raise InternalError(f"codegen: no exchange of {size} bytes was planned")
        if o.attrs.get("guarded"):
            self.meet(o)
        return self.shared(o.operands[0])

    def exchanged(self) -> None:
        """The barrier between the writes and the reads of an exchange."""
        o, self.way = self.way, None
        assert o is not None
        self.meet(o)

    def meet(self, o: Op) -> None:
        """The barrier of an op at which the threads of a replica, or of a task, meet."""
        frame, number = self.frame, o.attrs.get("id")
        assert frame is not None
        if number is None:
            self.line("__syncwarp();")
        elif number == 0:
            self.line("__syncthreads();")
        elif o.attrs.get("scope") == "task" and frame.replicas > 1:
            self.line(f"named_sync({number}, {32 * frame.warps * frame.replicas});")
        else:
            which = f"{number} + {self.use('replica')}" if frame.replicas > 1 else number
            self.line(f"named_sync({which}, {32 * frame.warps});")

    # ---- threads

    def electing(self, o: Op) -> str:
        """The condition that only the elected thread of the replica passes.

        In a task that is one elect, and where boxes are copied (by descriptors that the same thread may have
        written), elect.sync names it: ptxas knows that it is one, and writes no loop over threads that might
        each have a box of their own.  Elsewhere it is thread 0, as who waits for groups has to be who closed
        them.
        """
        assert self.frame is not None
        if self.sole_elect is o or copies_boxes(o):
            return all_of(
                (f"{self.use('warp')} == 0" if self.frame.warps > 1 else "", "elect_one()")
            )
        return self.use("leader")

    def thread_value(self, table: Ints, hint: str, needed: Bools | None = None) -> str:
        """C for a number that depends on the thread alone (table: one a warp and lane): a constant, or a
        variable at the head of the task.  needed: where it matters."""
        text, reads = thread_formula(table, needed)
        if not reads:
            return text
        if text not in self.heads:
            for name in reads:
                self.use(name)
            self.heads[text] = self.name_in(self.task_scope, hint)
        return self.heads[text]

    def coordinate(self, layout: Layout, axis: int, register: int) -> str:
        """C for the coordinate along an axis of what the thread holds in a register."""
        base, more = self.coordinate_from(layout, axis, register)
        if base.isdigit():
            return str(int(base) + more)
        return f"{base} + {more}" if more else base

    def coordinate_from(self, layout: Layout, axis: int, register: int) -> tuple[str, int]:
        """The same as C that many registers share and a constant to add."""
        table = layout.table[axis]
        first = np.ascontiguousarray(table[..., 0])
        name = self.thread_value(first, f"at{axis}")
        more = table[..., register] - first
        if (more == more.flat[0]).all():
            return name, int(more.flat[0])
        return displaced(name, first.reshape(-1), table[..., register].reshape(-1)), 0

    def holder(self, layout: Layout) -> str:
        """C for "of the threads that hold the same elements, I am the first"; "" where no two do."""
        same = zip(("lane", "warp"), layout.copies, strict=True)
        return all_of([f"({self.use(name)} & {bits}) == 0" for name, bits in same if bits])

    def int_of(self, v: Value) -> str | None:
        """C of an integer scalar as an int, where it is one (perhaps widened)."""
        known = self.const(v)
        if known is not None:
            return str(known) if -(2**31) < known < 2**31 else None
        o = self.definitions.get(v)
        if o is not None and o.kind is arith.cast and v.type == Scalar(i64):
            v = o.operands[0]
            variable = self.storage.variables.get(v)
            if variable is not None and variable.is_mutable:  # it may hold another value by now
                return None
        return self.scalar(v) if v.type == Scalar(i32) else None

    def inside(self, t: Tile, register: int) -> str:
        """C for "the element exists" (its coordinates are in the tile's shape); "" where it always does."""
        layout = t.layout
        tests = [
            f"{self.coordinate(layout, axis, register)} < {n}"
            for axis, n in enumerate(t.shape)
            if int(layout.table[axis][..., register].max()) >= n
        ]
        return all_of(tests)

    def elementwise(self, o: Op, of: Callable[..., str]) -> None:
        """Gives an op's result, a scalar or a tile, what `of` makes of its operands' elements."""
        if isinstance(o.result.type, Tile):
            sources = [self.regs(v) for v in o.operands]
            self.lines(map_lines(self.array(o.result), sources, of))
        else:
            self.define(o.result, of(*map(self.scalar, o.operands)))

    def guarded(self, t: Tile, register: int, text: str, otherwise: str) -> str:
        """`text` where the element exists, else `otherwise`."""
        test = self.inside(t, register)
        return f"({test} ? {text} : {otherwise})" if test else text


def defined(text: Callable[[Emitter, Op], str]) -> Lowering:
    """Its result is a number: this expression."""
    return lambda e, o: e.define(o.result, text(e, o))


def _constant(t: Type) -> str:
    """The C type of a variable of a scalar or pointer type that isn't assigned to again."""
    kind = c_type(elem_of(t))
    return f"{kind} const" if isinstance(t, Pointer) else f"const {kind}"


def uniform(t: Tile, text: str) -> Regs:
    """A tile full of one value."""
    return splat(t.elem, text, t.layout.registers)


Lowering: TypeAlias = Callable[[Emitter, Op], None]
