"""The IR.  Nothing in this file knows any op by name.

A `Func` is one region of ops in SSA form with structured control flow: a region is a list of ops, the
last one a `yield`; scope is nesting.  Everything is frozen: a pass builds a new function and keeps the
values that it does not change, so that dumps before and after differ only where the program does.
"""

from __future__ import annotations

import builtins
import enum
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any, TypeVar, cast, get_type_hints

from warploom.errors import Loc
from warploom.target import DEFAULT, Target, named


class RuleError(Exception):
    """A type rule refused.  It carries no location: whoever called the rule adds one.  code: the stable error
    code that a user sees when the frontend reports the refusal."""

    def __init__(self, message: str, code: str = "type") -> None:
        super().__init__(message)
        self.code = code


def require(ok: bool, message: str, code: str = "type") -> None:
    if not ok:
        raise RuleError(message, code)


class Level(enum.IntEnum):
    """States of a function on its way down; see docs/architecture.md for what each promises."""

    TILE = 0
    TASK = 1
    CHANNEL = 2
    WARP = 3
    PLACED = 4


ALL_LEVELS = frozenset(Level)
SEQUENTIAL = frozenset({Level.TILE, Level.TASK, Level.CHANNEL})
TILE_ONLY = frozenset({Level.TILE})
CHANNEL_ONLY = frozenset({Level.CHANNEL})
HARDWARE = frozenset({Level.WARP, Level.PLACED})


class Effect(enum.Flag):
    """What an op does beside computing its results."""

    NONE = 0
    READ = enum.auto()  # reads memory that others may write
    WRITE = enum.auto()  # writes memory
    SYNC = enum.auto()  # waits, signals or orders; never moved, cloned or dropped


class Family(enum.Enum):
    """What an op is for: the question that most analyses ask of an op before they ask which one it is."""

    NUMBER = "a number that no tile goes into"
    POINTWISE = "each element of the result follows from the operands' elements in its place"
    FILL = "a tile that is made of numbers"
    MOVE = "elements of the operands, unchanged, in other places"
    COMBINE = "elements that follow from several of an operand"
    ACCESS = "reads or writes global memory, and waits for what it reads"
    SHARED = "reads or writes shared memory, and waits for what it reads"
    PLACE = "a part of memory, or what describes one: a view, a slot, a barrier"
    PROMISE = "says or checks that something holds"
    OUTPUT = "prints, tells the time, or writes down when it was there"
    CONTROL = "decides what runs"
    CHANNEL = "a step of the protocol of a channel"
    ACCUMULATOR = "begins a chain of products"
    ISSUE = "starts what an engine does beside the threads"
    WAIT = "waits for other threads, or for engines"
    SIGNAL = "tells those who wait"
    FENCE = "orders accesses"
    REGISTERS = "gives or takes registers"


class Runs(enum.Enum):
    """Which threads of a replica run an op."""

    ANY = "one thread or all"
    ONE = "one thread: inside elect"
    ALL = "all threads of the replica: outside elect"


class Type:
    """Compared by value, printed by str().  The concrete types are in ir/types.py."""


K = TypeVar("K", bound=Type)


@dataclass(frozen=True, eq=False)
class Value:
    """Identity is the name; `hint` (the user's variable, where there is one) only helps printers."""

    type: Type
    hint: str = ""

    def typed(self, kind: builtins.type[K]) -> K:
        """Its type, which is one of that kind."""
        assert isinstance(self.type, kind)
        return self.type


@dataclass(frozen=True, eq=False)
class Region:
    """One list of ops, the last one a yield."""

    params: tuple[Value, ...]
    ops: tuple[Op, ...]

    @property
    def yielded(self) -> tuple[Value, ...]:
        return self.ops[-1].operands

    @cached_property
    def all_ops(self) -> tuple[Op, ...]:
        """Its ops and those inside them, in the order of `walk`."""
        found: list[Op] = []
        for o in self.ops:
            found.append(o)
            for inner in o.regions:
                found += inner.all_ops
        return tuple(found)

    @cached_property
    def by_kind(self) -> dict[OpKind, list[Op]]:
        """All its ops of each kind that it has, in the order of `walk`."""
        found: dict[OpKind, list[Op]] = {}
        for o in self.all_ops:
            found.setdefault(o.kind, []).append(o)
        return found


@dataclass(frozen=True, eq=False)
class Op:
    kind: OpKind
    operands: tuple[Value, ...] = ()
    attrs: Mapping[str, Any] = field(default_factory=dict)
    results: tuple[Value, ...] = ()
    regions: tuple[Region, ...] = ()
    tasks: frozenset[str] = frozenset()  # names of the tasks that run it; set from Level.TASK on
    loc: Loc | None = None
    id: str = ""  # stable from canonicalisation on ("loop0/dot1"); what a schedule names
    # What need not be asked again: typed, its rule gives these results; agreed, at this level the verifier
    # had nothing against it, its surroundings aside.
    typed: bool = field(default=False, init=False, repr=False)
    agreed: Level | None = field(default=None, init=False, repr=False)

    @property
    def result(self) -> Value:
        (value,) = self.results
        return value

    @property
    def all_ops(self) -> tuple[Op, ...]:
        """It and those inside it, in the order of `walk`."""
        inside = chain.from_iterable(r.all_ops for r in self.regions) if self.regions else ()
        return (self, *inside)

    @property
    def computes(self) -> bool:
        """Does it make its results and do nothing else, without ops inside?"""
        return self.kind.effect is Effect.NONE and not self.regions

    @property
    def accesses(self) -> bool:
        """Does it read or write global memory, by pointers or by a view?"""
        return self.kind.family is Family.ACCESS

    @property
    def loads(self) -> bool:
        """Does it read global memory, and do nothing else?"""
        return self.accesses and self.kind.effect is Effect.READ

    @property
    def stores(self) -> bool:
        """Does it write global memory, and do nothing else?"""
        return self.accesses and self.kind.effect is Effect.WRITE

    def with_(self, **changes: Any) -> Op:
        """A copy with some fields changed.  Results keep their identity unless they are given."""
        if not changes.keys() <= _FIELDS:
            raise TypeError(f"an op has no {', '.join(sorted(changes.keys() - _FIELDS))}")
        copy = object.__new__(Op)  # several times as fast as by its constructor
        known = vars(copy)
        known.update(vars(self), **changes, agreed=None)
        if self.typed and not changes.keys() <= _LABELS:
            known["typed"] = (
                copy.kind is self.kind
                and copy.attrs is self.attrs
                and copy.regions == self.regions
                and _types(self.operands) == _types(copy.operands)
                and _types(self.results) == _types(copy.results)
            )
        return copy


def _types(values: Iterable[Value]) -> list[Type]:
    return [v.type for v in values]


_FIELDS = frozenset(name for name, f in Op.__dataclass_fields__.items() if f.init)
_LABELS = frozenset({"tasks", "loc", "id"})
MIXED = -1  # no one axis (see OpKind)
Axes = Callable[[Op, int], tuple[int | None, ...]]


@dataclass(frozen=True, eq=False)
class OpKind:
    """One op, declared once.  Calling it appends an Op to a builder and returns its result(s).

    axes: for a tile that it makes, the axis of each operand along which an axis of the result lies; None for
    an operand that is the same all along it, MIXED where a result depends on several places of one."""

    name: str
    family: Family
    rule: Callable[..., Any]  # operand types, attributes -> result type(s)
    effect: Effect
    levels: frozenset[Level]
    axes: Axes | None = None
    runs: Runs = Runs.ANY
    doc: str = ""

    @cached_property
    def acts(self) -> bool:
        """Does it write or synchronise, so that it stays though nobody uses its results?"""
        return bool(self.effect & (Effect.WRITE | Effect.SYNC))

    @cached_property
    def operands(self) -> tuple[tuple[str, Any], ...]:
        """Name and annotated type of each operand of the rule; the last repeats where it is variadic."""
        hints = get_type_hints(self.rule)
        declared = inspect.signature(self.rule).parameters.values()
        return tuple((p.name, hints[p.name]) for p in declared if p.kind is not p.KEYWORD_ONLY)

    @cached_property
    def fixed(self) -> int:
        """How many operands stand before those of which there may be any number."""
        declared = inspect.signature(self.rule).parameters.values()
        return len(self.operands) - any(p.kind is p.VAR_POSITIONAL for p in declared)

    @cached_property
    def attributes(self) -> dict[str, Any]:
        """The attributes that the rule declares, and what each is where it is not given."""
        declared = inspect.signature(self.rule).parameters.values()
        named = (p for p in declared if p.kind is p.KEYWORD_ONLY and p.name != "regions")
        return {p.name: p.default for p in named}

    def infer(
        self, operands: Iterable[Value], attrs: Mapping[str, Any], regions: tuple[Region, ...] = ()
    ) -> tuple[Type, ...]:
        """Result types by the op's own rule.  Raises RuleError (refused) or TypeError (bad attribute)."""
        extra: dict[str, Any] = {"regions": regions} if regions else {}
        out = self.rule(*(v.type for v in operands), **attrs, **extra)
        if out is None:
            return ()
        return out if isinstance(out, tuple) else (out,)

    def __call__(
        self,
        b: Builder,
        *operands: Value,
        regions: tuple[Region, ...] = (),
        hint: str = "",
        **attrs: Any,
    ) -> Value:
        """Append the op; returns its one result (of an op of none or several: the tuple; see `several`)."""
        types = self.infer(operands, attrs, regions)
        results = tuple(Value(t, hint) for t in types)
        o = Op(self, operands, attrs, results, tuple(regions), b.tasks, b.loc)
        vars(o)["typed"] = True
        b.append(o)
        return results[0] if len(results) == 1 else cast(Value, results)

    def several(self, b: Builder, *operands: Value, **how: Any) -> tuple[Value, ...]:
        """Append an op of several results; returns them."""
        return cast(tuple[Value, ...], self(b, *operands, **how))

    def __repr__(self) -> str:
        return f"<op {self.name}>"


KINDS: dict[str, OpKind] = {}


def op(
    family: Family,
    *,
    effect: Effect = Effect.NONE,
    levels: Iterable[Level] = ALL_LEVELS,
    axes: Axes | None = None,
    runs: Runs = Runs.ANY,
) -> Callable[[Callable[..., Any]], OpKind]:
    """Declare an op kind: the function's signature is the schema, its body the only type rule."""

    def declare(rule: Callable[..., Any]) -> OpKind:
        name = rule.__name__.rstrip("_")
        if name in KINDS:
            raise AssertionError(f"op {name} declared twice")
        doc = rule.__doc__ or ""
        kind = OpKind(name, family, rule, effect, frozenset(levels), axes, runs, doc)
        KINDS[name] = kind
        return kind

    return declare


@dataclass
class Builder:
    """A growing list of ops, and the location and tasks that new ops take."""

    loc: Loc | None = None
    tasks: frozenset[str] = frozenset()
    ops: list[Op] = field(default_factory=list)

    def append(self, o: Op) -> None:
        self.ops.append(o)

    @contextmanager
    def at(self, o: Op) -> Iterator[None]:
        """New ops take `o`'s location and tasks."""
        saved = self.loc, self.tasks
        self.loc, self.tasks = o.loc, o.tasks
        try:
            yield
        finally:
            self.loc, self.tasks = saved

    def nested(self) -> Builder:
        """A builder for a region inside this one."""
        return Builder(self.loc, self.tasks)

    def region(self, params: Iterable[Value] = ()) -> Region:
        """The finished region (its last op must be the yield)."""
        return Region(tuple(params), tuple(self.ops))


@dataclass(frozen=True, eq=False)
class Func:
    """A kernel at some level.  `body.params` are its parameters; their hints are the user's names.

    attrs, by key:
      "facts"   tuple[Fact, ...]   one a parameter: what specialization knows (read as `facts`)
      "warps"   int                warps of a consumer replica (4), or of the uniform program
      "target"  str                name of the chip that it is made for, where that is not the default one
      further keys belong to the pass that sets them and are documented there.
    """

    name: str
    body: Region
    level: Level
    attrs: Mapping[str, Any] = field(default_factory=dict)
    loc: Loc | None = None

    @property
    def params(self) -> tuple[Value, ...]:
        return self.body.params

    @property
    def facts(self) -> tuple[Fact, ...]:
        """What specialization knows, one a parameter: nothing where attrs don't say."""
        given: tuple[Fact, ...] = self.attrs.get("facts", ())
        return (*given, *(Fact() for _ in self.params[len(given) :]))

    @property
    def target(self) -> Target:
        """The chip that it is made for.  Raises CompileError where there is none of the name."""
        return named(self.attrs["target"]) if "target" in self.attrs else DEFAULT

    def with_(self, **changes: Any) -> Func:
        return Func(**{**vars(self), **changes})


@dataclass(frozen=True)
class Fact:
    """What a launch knows of one argument.

    divisible: an integer's largest power-of-two divisor up to 16; for a pointer, its alignment in
    bytes up to 16.  value: the integer itself where it was specialized (equal to 1, say).
    """

    divisible: int = 1
    value: int | None = None


def walk(region: Region) -> Iterator[Op]:
    """Every op of a region, outer before inner, in program order."""
    return iter(region.all_ops)
