"""A random kernel as a tree: expressions, statements, arrays.  What a kernel means is what `reference.py` computes
from the tree, and its text is what `spell.py` writes; neither looks at the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from tests.fuzz.numbers import FORMATS, Format


@dataclass(frozen=True)
class T:
    """What is known of a value: its dtype and shape; all elements lie in [lo, hi] and are multiples of 2^-grain,
    or (err > 0) at most `err` away from what the reference computes."""

    dtype: str
    shape: tuple[int, ...] = ()
    lo: float = 0.0
    hi: float = 0.0
    grain: int = 0
    err: float = 0.0

    @property
    def format(self) -> Format:
        return FORMATS[self.dtype]

    @property
    def top(self) -> float:
        return max(abs(self.lo), abs(self.hi))

    def like(self, **changes: Any) -> T:
        return replace(self, **changes)

    def within(self, other: T) -> bool:
        """May a value of this type stand where one of the other was?"""
        same = self.dtype == other.dtype and self.shape == other.shape
        inside = other.lo <= self.lo and self.hi <= other.hi
        return same and inside and self.grain <= other.grain and self.err <= other.err

    def hull(self, other: T) -> T:
        lo, hi = min(self.lo, other.lo), max(self.hi, other.hi)
        return self.like(
            lo=lo, hi=hi, grain=max(self.grain, other.grain), err=max(self.err, other.err)
        )


@dataclass(frozen=True, eq=False)
class E:
    """An expression.  `op` is a name in ops.OPS, or "var" (attrs["name"]) or "call" (attrs["body"])."""

    op: str
    args: tuple[E, ...]
    t: T
    attrs: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Array:
    """An argument in memory.  order: 'r' or 'c'.  pad: elements between rows.  data: how it is filled."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    order: str = "r"
    pad: int = 0
    lo: int = -2
    hi: int = 2
    data: str = "ints"  # "ints", "empty", "zeros"


@dataclass(frozen=True, eq=False)
class Access:
    """A block of an array, or (sizes == ()) one element: along axis a the elements at[a] + 0 … sizes[a] - 1.

    lead: the place along the array's first axis, which the block does not have.  way: how the kernel says it.
    bounded: axes that are masked (or checked) by the array's extents.  index: a tile of places instead, an axis.
    wrap: axes whose places are taken modulo the extent.  mask: beside the bounds.  other: where masked out.
    walk: the loop variable that moves the pointer."""

    array: str
    at: tuple[E, ...]
    sizes: tuple[int, ...]
    way: str = "ptr"
    lead: E | None = None
    bounded: tuple[int, ...] = ()
    wrap: tuple[int, ...] = ()
    index: dict[int, E] = field(default_factory=dict)
    mask: E | None = None
    other: int | None = None
    walk: str = ""
    hint: str = ""


# ---- statements


@dataclass(frozen=True, eq=False)
class Let:
    name: str
    value: E


@dataclass(frozen=True, eq=False)
class Load:
    name: str
    access: Access
    t: T


@dataclass(frozen=True, eq=False)
class Store:
    access: Access
    value: E


@dataclass(frozen=True, eq=False)
class Atomic:
    """name: of the old values, "" where they are dropped."""

    name: str
    access: Access
    fn: str
    value: E
    t: T
    compare: E | None = None
    sem: str = ""


@dataclass(frozen=True, eq=False)
class For:
    var: str
    lo: E
    hi: E
    step: int
    kind: str  # "range", "tl.range" or "tl.static_range"
    hints: tuple[tuple[str, Any], ...]
    body: tuple[Any, ...]
    spelled: str = ""  # the step, where it is no literal


@dataclass(frozen=True, eq=False)
class While:
    """`var` counts from 0 to the limit; or (halve) is halved from the limit until it is below 2."""

    var: str
    limit: E
    halve: bool
    body: tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class If:
    test: E
    then: tuple[Any, ...]
    other: tuple[Any, ...] = ()


@dataclass(frozen=True, eq=False)
class Return:
    """`if test: return`, at the top of the kernel."""

    test: E


@dataclass(frozen=True, eq=False)
class Note:
    """What has no effect on a right kernel: "print", "assert", "assume", "multiple_of"."""

    kind: str
    value: E
    by: int = 1


Statement = Let | Load | Store | Atomic | For | While | If | Return | Note


@dataclass(frozen=True, eq=False)
class Kernel:
    """A kernel with its arguments.  numbers: run-time integers, by name.  seed: of the data."""

    seed: int
    body: tuple[Statement, ...]
    arrays: tuple[Array, ...]
    numbers: dict[str, int]
    grid: tuple[int, ...]
    knobs: dict[str, Any]

    def array(self, name: str) -> Array:
        return next(a for a in self.arrays if a.name == name)


# ---- walking and rebuilding


def blocks(s: Any) -> dict[str, tuple[Any, ...]]:
    """The blocks of a statement, by field."""
    return {
        k: getattr(s, k)
        for k in ("body", "then", "other")
        if isinstance(getattr(s, k, None), tuple)
    }


def statements(body: tuple[Any, ...]) -> Iterator[Any]:
    """All statements of a block, also inside of others."""
    for s in body:
        yield s
        for inner in blocks(s).values():
            yield from statements(inner)


def accesses(s: Any) -> Iterator[Access]:
    if isinstance(s, Load | Store | Atomic):
        yield s.access


def expressions(s: Any) -> Iterator[E]:
    """The expressions that a statement itself evaluates."""
    for key in ("value", "lo", "hi", "limit", "test", "compare"):
        e = getattr(s, key, None)
        if isinstance(e, E):
            yield e
    for a in accesses(s):
        yield from (*a.at, *a.index.values(), *(x for x in (a.lead, a.mask) if x is not None))


def parts(e: E) -> Iterator[E]:
    """An expression and all that it is made of (bodies of helpers too)."""
    yield e
    for a in e.args:
        yield from parts(a)
    for body in bodies(e):
        yield from parts(body)


def bodies(e: E) -> tuple[E, ...]:
    """What a helper that is called here computes."""
    return e.attrs["bodies"] if e.op == "call" else ()


def rewrite_expression(e: E, change: Callable[[E], E]) -> E:
    """e with every part replaced by change(part), outermost first."""
    new = change(e)
    if new is not e:
        return new
    args = tuple(rewrite_expression(a, change) for a in e.args)
    attrs = e.attrs
    if e.op == "call":
        attrs = {**attrs, "bodies": tuple(rewrite_expression(b, change) for b in bodies(e))}
        changed = any(a is not b for a, b in zip(attrs["bodies"], bodies(e), strict=True))
    else:
        changed = False
    if not changed and all(a is b for a, b in zip(args, e.args, strict=True)):
        return e
    return replace(e, args=args, attrs=attrs)


def rewrite_statement(s: Any, change: Callable[[E], E]) -> Any:
    """s with its own expressions rewritten, blocks inside included."""

    def over(e: E | None) -> E | None:
        return None if e is None else rewrite_expression(e, change)

    fields: dict[str, Any] = {}
    for key in ("value", "lo", "hi", "limit", "test", "compare"):
        e = getattr(s, key, None)
        if isinstance(e, E):
            fields[key] = over(e)
    for a in accesses(s):
        fields["access"] = replace(
            a,
            at=tuple(rewrite_expression(e, change) for e in a.at),
            index={k: rewrite_expression(e, change) for k, e in a.index.items()},
            lead=over(a.lead),
            mask=over(a.mask),
        )
    for key, inner in blocks(s).items():
        fields[key] = tuple(rewrite_statement(x, change) for x in inner)
    return replace(s, **fields) if fields else s
