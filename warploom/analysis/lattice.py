"""What can be known of a value: the elements of the lattices that analysis/facts.py computes with."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from warploom.ir.types import DType

MOST = 1 << 16  # the largest power of two that is looked for: it stands for any, and for those of 0


def power_of_two(n: int) -> int:
    """The largest power of two up to MOST that divides n.

    >>> power_of_two(48), power_of_two(-6), power_of_two(0) == MOST
    (16, 2, True)
    """
    return min(MOST, n & -n) if n else MOST


def range_of(dtype: DType) -> tuple[int, int]:
    """The least and the greatest integer of an integer dtype."""
    if dtype.kind == "bool":
        return 0, 1
    if dtype.kind == "uint":
        return 0, (1 << dtype.bits) - 1
    return -(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1


def counts_places(dtype: DType) -> bool:
    """Is arithmetic of the dtype taken not to overflow?  Signed integers of 32 bits or more count places in
    memory, which has fewer (Triton's rule as well); narrow and unsigned ones wrap."""
    return dtype.kind == "int" and dtype.bits >= 32


class Interval(NamedTuple):
    """An integer from low to high, both included, that `divisor` (a power of two up to MOST) divides.  Of a
    tile: each element.  Of a pointer: its address in bytes."""

    low: int
    high: int
    divisor: int = 1

    @property
    def constant(self) -> int | None:
        """The integer, where there is only one."""
        return self.low if self.low == self.high else None

    @property
    def is_nonzero(self) -> bool:
        return self.low > 0 or self.high < 0

    def within(self, other: Interval) -> bool:
        """Is it one of the other's numbers, whatever it is?"""
        return other.low <= self.low and self.high <= other.high

    def join(self, other: Interval) -> Interval:
        """What holds of a value that is one of the two."""
        return Interval(
            min(self.low, other.low),
            max(self.high, other.high),
            min(self.divisor, other.divisor),
        )

    def refined(self, low: int | None = None, high: int | None = None) -> Interval:
        """The same, known to be `low` or more and `high` or less.  Bounds that contradict what is known stand
        in code that never runs: they change nothing."""
        least = self.low if low is None else max(self.low, low)
        most = self.high if high is None else min(self.high, high)
        return Interval(least, most, self.divisor) if least <= most else self

    def widened(self, before: Interval, limits: Interval) -> Interval:
        """The same with each bound that moved since `before` at the next of few values, so that an iteration
        ends."""
        low, high = self.low, self.high
        if low < before.low:
            low = next((n for n in (0, -1) if n <= low), limits.low)
        if high > before.high:
            high = limits.high
        return Interval(low, high, self.divisor)


@cache
def limits_of(dtype: DType) -> Interval:
    """All integers of an integer dtype."""
    return Interval(*range_of(dtype))


def exactly(n: int) -> Interval:
    """The integer n.

    >>> exactly(24)
    Interval(low=24, high=24, divisor=8)
    """
    return Interval(n, n, power_of_two(n))


ADDRESS = Interval(0, (1 << 64) - 1)  # of which nothing is known
NO_NUMBER = Interval(-(1 << 64), 1 << 64)  # a float, a view, …


class AxisFact(NamedTuple):
    """How a tile's elements follow each other along one axis, whatever the coordinates of the others.

    slope: what each element exceeds the one before by (of pointers: in elements); None: not known.
    first: a power of two that divides the element at coordinate 0 (of pointers: in bytes).
    contiguity: a power of two n: aligned groups of n elements grow by one, each from a multiple of n (of
    pointers: by an element, from a multiple of n elements' bytes).
    constancy: a power of two n: aligned groups of n elements are equal.
    """

    slope: int | None = None
    first: int = 1
    contiguity: int = 1
    constancy: int = 1

    def join(self, other: AxisFact) -> AxisFact:
        """What holds of a value that is one of the two."""
        return AxisFact(
            self.slope if self.slope == other.slope else None,
            min(self.first, other.first),
            min(self.contiguity, other.contiguity),
            min(self.constancy, other.constancy),
        )


def flat(divisor: int) -> AxisFact:
    """Of elements that are all equal, multiples of `divisor`."""
    return AxisFact(0, divisor, 1, MOST)


def line(slope: int | None, first: int, size: int = 1) -> AxisFact:
    """Of elements that grow by `slope`; size: bytes of what they point to."""
    return AxisFact(slope, first, max(1, first // size) if slope == 1 else 1)
