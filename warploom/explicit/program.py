"""The program that a script is being translated to: declarations, groups, accumulators in flight.

Statements go to an emitter's builder as in the automatic door; what a script declares (shared memory,
barriers, tensor maps) is kept here apart, whichever group declares it, since all of it happens at entry.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from warploom.errors import CompileError, Loc, Note
from warploom.frontend.coerce import Const, Emitter, Operand
from warploom.frontend.refuse import refuse
from warploom.ir.analysis import is_pure
from warploom.ir.core import Builder, Op, OpKind, Value
from warploom.ir.ops import arith, tile
from warploom.ir.types import DType, InFlight, Tile
from warploom.layout.shared import swizzle_for
from warploom.target import Target

UNCOMMITTED = -1  # age of an accumulator whose wgmma is in no group yet
SETTLED = 1 << 30  # age of one that nothing writes


@dataclass(frozen=True)
class Threads:
    """The threads that run a piece of code together.

    first: index of the first warp in the CTA.  warps: of one replica.  kind: 'all' (every thread of the
    CTA, outside groups), 'group', or 'one' (an elected thread).  loc: where the group begins.
    """

    first: int
    warps: int | None
    replicas: int
    kind: str
    loc: Loc | None = None

    def meets(self, other: Threads) -> bool:
        """Do two groups have a warp in common?"""
        ends = (t.first + (t.warps or 0) * t.replicas for t in (self, other))
        return max(self.first, other.first) < min(ends)

    def __str__(self) -> str:
        if self.kind == "one":
            return "one thread"
        if self.warps is None:
            return "all threads"
        each = "one warp" if self.warps == 1 else f"{self.warps} warps"
        return f"{self.replicas} replicas of {each}" if self.replicas > 1 else each


@dataclass(frozen=True)
class Group:
    """A finished thread group: its code is the region of a marker, a `tasks` op whose name is its key."""

    name: str
    threads: Threads


@dataclass(frozen=True)
class SharedChoice:
    """How the tiles of one shared_tensor lie in memory, and which line asked for it.

    lead: number of leading axes that index slots.  None: nothing asked yet.
    """

    lead: int | None = None
    inner: int | None = None
    swizzle: int | None = None
    why: dict[str, tuple[str, Loc | None]] = field(default_factory=dict)


class Again(Exception):
    """A use fixed how a shared tensor lies in memory, or that a register tensor is numbers: translate once
    more with that known."""


@dataclass
class Declaration:
    """One op at entry: shared memory, barriers or a tensor map."""

    kind: OpKind
    operands: tuple[Value, ...]
    attrs: dict[str, Any]
    value: Value
    loc: Loc | None

    def op(self) -> Op:
        return Op(self.kind, self.operands, self.attrs, (self.value,), (), frozenset(), self.loc)


@dataclass(frozen=True)
class Workspace:
    """A global_tensor: its pointer, which becomes a parameter of the function, and its elements."""

    pointer: Value
    elements: Operand
    clean: bool
    loc: Loc | None


@dataclass
class State:
    """What a loop that is translated a second time must find as it was."""

    declarations: list[Declaration] = field(default_factory=list)
    groups: dict[str, Group] = field(default_factory=dict)  # by the names of their markers
    names: set[str] = field(default_factory=set)
    sites: dict[Value, int] = field(default_factory=dict)  # shared value -> its shared_tensor call
    orders: dict[Value, tuple[int, ...]] = field(
        default_factory=dict
    )  # transposes' axes, in terms of that
    maps: dict[tuple[Any, ...], Value] = field(default_factory=dict)
    flight: dict[Value, int] = field(default_factory=dict)  # accumulator -> groups committed since
    count: int = 0  # of shared_tensor calls
    objects: int = 0
    changed: dict[Value, tuple[tuple[Threads, Loc], ...]] = field(default_factory=dict)
    # register tensors of the threads around groups: which of these changed what they made of them
    workspaces: list[Workspace] = field(default_factory=list)
    freed: dict[int, Loc | None] = field(default_factory=dict)  # shared_tensor call -> free_shared
    reusable: dict[str, int] = field(default_factory=dict)  # allocation -> its bytes
    layouts: list[tuple[Value, Any, Loc | None]] = field(default_factory=list)

    def copy(self) -> State:
        return State(**{k: copy.copy(v) for k, v in vars(self).items()})


class Program:
    """See the module's docstring.  `choices` and `elementwise` survive from one translation to the next."""

    def __init__(
        self,
        choices: dict[int, SharedChoice],
        elementwise: set[tuple[str, tuple[int, ...], DType]],
        machine: Target,
    ) -> None:
        self.choices = choices
        self.elementwise = (
            elementwise  # register tensors whose elements are assigned: name, shape, dtype
        )
        self.machine = machine  # what it is compiled for
        self.state = State()
        self.attrs: dict[str, tuple[Any, Loc | None]] = {}
        self.cluster = (1, 1, 1)  # CTAs of a program along each axis
        self.ctas_per_sm = 1  # CTAs for whose part of a multiprocessor it is made
        self.is_cluster_fixed = False  # something has used it
        self.threads: list[Threads] = [Threads(0, None, 1, "all")]
        self.top: Builder | None = None
        self.body: Builder | None = None  # of the group being translated, outside its control flow
        self.is_lone = False  # under a condition that holds for one thread
        self.around: list[Builder] = []  # of the groups being translated: where each begins
        self.elsewhere: dict[
            Value, str
        ] = {}  # register tensors of other threads than those here: whose
        self.target = ""  # the variable that the statement now translated assigns
        self.facts: dict[Value, int] = {}  # parameter -> known divisor (bytes for pointers)

    @property
    def here(self) -> Threads:
        """Who runs the code now being translated."""
        return self.threads[-1]

    def unique(self, name: str) -> str:
        """A name that no declaration has yet."""
        base = name.lstrip("_") or "x"
        found, n = base, 1
        while found in self.state.names:
            n += 1
            found = f"{base}_{n}"
        self.state.names.add(found)
        return found

    def declare(
        self, kind: OpKind, operands: tuple[Value, ...], loc: Loc | None, hint: str, **attrs: Any
    ) -> Value:
        """An op at entry; gives its value."""
        (t,) = kind.infer(operands, attrs)
        value = Value(t, hint)
        self.state.declarations.append(Declaration(kind, operands, attrs, value, loc))
        return value

    # ---- how shared tensors lie in memory

    def choose(self, site: int, what: str, n: int, because: str, loc: Loc | None) -> None:
        """A use wants `what` (lead, inner, swizzle) of a shared tensor to be n.  Starts the translation
        again where it is otherwise; refuses where another line has asked for something else."""
        choice = self.choices.setdefault(site, SharedChoice())
        if getattr(choice, what) == n:
            return
        if what in choice.why:
            before, where = choice.why[what]
            words = {
                "inner": "which axis of this shared tensor is adjacent in memory",
                "lead": "how many axes of this shared tensor index slots",
                "swizzle": "how this shared tensor is swizzled",
            }
            raise CompileError(
                "layout-conflict",
                f"two lines disagree on {words[what]}: here it is {n} ({because})",
                loc,
                (Note(f"here it is {getattr(choice, what)} ({before})", where),),
                "use two shared tensors, or make both accesses agree",
            )
        self.choices[site] = replace(choice, **{what: n}, why={**choice.why, what: (because, loc)})
        raise Again

    def choose_inner(self, s: Value, axis: int, because: str, loc: Loc | None) -> None:
        """A use of `s`, a part of a shared tensor or a transpose of one, wants its `axis` adjacent."""
        order = self.state.orders.get(s)
        self.choose(self.state.sites[s], "inner", order[axis] if order else axis, because, loc)

    def site(self, s: Value) -> int | None:
        return self.state.sites.get(s)

    def derived(self, old: Value, new: Value, perm: tuple[int, ...] | None = None) -> Value:
        """`new` is a part of the shared tensor `old`, or it with its axes in the order `perm`."""
        site, order = self.state.sites.get(old), self.state.orders.get(old)
        if site is not None:
            self.state.sites[new] = site
            if perm:
                order = tuple(order[axis] for axis in perm) if order else perm
            if order:
                self.state.orders[new] = order
        return new


class ScriptEmitter(Emitter):
    """The emitter of a script; surface functions find the program through it."""

    program: Program

    @staticmethod
    def of(program: Program) -> ScriptEmitter:
        emitter = ScriptEmitter()
        emitter.program = program
        program.top = emitter.builder
        return emitter

    def binary(self, symbol: str, x: Operand, y: Operand) -> Value | Const:
        """As Emitter.binary; / of integers is C's, as Tilus's."""
        if symbol == "/" and (isinstance(x, Value) or isinstance(y, Value)):
            kinds = self.dtype(x), self.dtype(y)
            symbol = "//" if all(isinstance(d, DType) and d.is_int for d in kinds) else "/"
        return super().binary(symbol, x, y)

    def emit(self, kind: OpKind, *operands: Value, hint: str = "", **attrs: Any) -> Any:
        """As Emitter.emit; tensors that meet one whose layout is annotated lie as it does."""
        given = [v.type.layout for v in operands if isinstance(v.type, Tile) and v.type.layout]
        if given and kind in arith.ELEMENTWISE:
            operands = tuple(
                super(ScriptEmitter, self).emit(
                    tile.convert_layout, v, layout=given[0], hint=v.hint
                )
                if isinstance(v.type, Tile) and v.type.layout != given[0]
                else v
                for v in operands
            )
        return super().emit(kind, *operands, hint=hint, **attrs)


def without_unused(ops: Sequence[Op]) -> list[Op]:
    """Without register tensors that nothing of this level uses: each group made them for itself."""
    kept: list[Op] = []
    used: set[Value] = set()
    for o in reversed(ops):
        makes_tiles = any(isinstance(v.type, Tile | InFlight) for v in o.results)
        if makes_tiles and is_pure(o) and used.isdisjoint(o.results):
            continue
        used.update(v for i in o.all_ops for v in i.operands)
        kept.append(o)
    return kept[::-1]


def shared_shape(
    shape: tuple[int, ...], dtype: DType, choice: SharedChoice
) -> tuple[tuple[int, ...], tuple[int, ...], int, int]:
    """(lead, tile shape, inner axis, swizzle) of a shared tensor."""
    lead = max(0, len(shape) - 2) if choice.lead is None else choice.lead
    slots, tile = shape[:lead], shape[lead:]
    inner = len(tile) - 1 if choice.inner is None else choice.inner
    if not 0 <= inner < len(tile):
        refuse(
            "axis", f"axis {inner} of a tile of {len(tile)} axes", "count axes of one slot from 0"
        )
    row = tile[inner] * dtype.bytes
    swizzle = choice.swizzle
    if swizzle is None:
        swizzle = swizzle_for(row, math.prod(tile) // tile[inner]) if len(tile) > 1 else 0
    return slots, tile, inner, swizzle
