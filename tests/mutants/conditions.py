"""Conditions that hold mostly: not at a late iteration, in a block, at an argument or a word of memory.

Each is drawn for one of the inputs of the data runs, in which it flips: who draws it knows the inputs.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tests.mutants.change import Setting
from warploom.check import Case
from warploom.ir.build import const, constant_of
from warploom.ir.core import Builder, Op, OpKind, Value
from warploom.ir.ops import arith, tile

LEAST_TRIPS = 3  # of a loop that has a late iteration


@dataclass(frozen=True)
class Seen:
    """One input of the data runs, and how often each loop runs in it at most."""

    case: Case
    trips: Mapping[Op, int]

    @property
    def programs(self) -> int:
        return self.case.grid[0]


@dataclass(frozen=True)
class Place:
    """Where a condition is put.

    numbers: the integer parameters, each with its index.  words, extra: the parameters that mutants have
    beside their original's, an array of integers and an integer.  loops: around it, outermost first.
    made: what defines each value."""

    numbers: tuple[tuple[int, Value], ...]
    words: Value
    extra: Value
    loops: tuple[Op, ...]
    made: Mapping[Value, Op]


Number = Callable[[Builder, Place], Value]  # appends what computes a scalar there


@dataclass(frozen=True)
class Condition:
    """A scalar i1 that holds mostly; it can be written at every place with loops like those of the place that
    it was drawn for.  setting: under which it flips.  promise: what the function assumes."""

    text: str
    write: Number
    setting: Setting = field(default_factory=Setting)
    promise: Number | None = None


Family = Callable[
    [random.Random, Place, Seen], Condition | None
]  # None: it has nothing to say here


def _made(kind: OpKind, *operands: Number | int) -> Number:
    def write(b: Builder, place: Place) -> Value:
        values = [const(b, x) if isinstance(x, int) else x(b, place) for x in operands]
        out: Value = kind(b, *values)
        return out

    return write


def _block(b: Builder, place: Place) -> Value:
    out: Value = tile.program_id(b, axis=0)
    return out


def _programs(b: Builder, place: Place) -> Value:
    out: Value = tile.num_programs(b, axis=0)
    return out


def _extra(b: Builder, place: Place) -> Value:
    return place.extra


def _word(at: Number) -> Number:
    return _made(tile.load, _made(arith.addptr, lambda b, place: place.words, at))


def _zero(b: Builder, place: Place) -> Value:
    return const(b, 0)


def _parameter(p: Value) -> Number:
    return lambda b, place: p


def _of_loop(at: int) -> tuple[Number, Number, Number]:
    """The index and the first two bounds of one of the loops around the place, counted from the last."""

    def index(b: Builder, place: Place) -> Value:
        return place.loops[at].regions[0].params[0]

    def lo(b: Builder, place: Place) -> Value:
        return place.loops[at].operands[0]

    def hi(b: Builder, place: Place) -> Value:
        return place.loops[at].operands[1]

    return index, lo, hi


def _iteration(at: int) -> Number:
    """The number of its iteration, from 0."""

    def write(b: Builder, place: Place) -> Value:
        loop = place.loops[at]
        n = loop.regions[0].params[0]
        lo, _, step = loop.operands[:3]
        if constant_of(place.made.get(lo)) != 0:
            n = arith.sub(b, n, lo)
        if constant_of(place.made.get(step)) != 1:
            n = arith.idiv(b, n, step)
        return n

    return write


def _late_loops(place: Place, seen: Seen) -> list[int]:
    """Which loops, counted from the last, have a late iteration, the last one first."""
    count = len(place.loops)
    return [-i for i in range(1, count + 1) if seen.trips.get(place.loops[-i], 0) >= LEAST_TRIPS]


# ---- the families


def late(rng: random.Random, place: Place, seen: Seen) -> Condition | None:
    """An iteration in the later half of what the input runs, every n-th, or all from one on."""
    loops = _late_loops(place, seen)
    if not loops:
        return None
    at = loops[0] if rng.random() < 0.7 else rng.choice(loops)
    loop, n = place.loops[at], _iteration(at)
    trips = seen.trips[loop]
    k, by = rng.randrange(trips // 2, trips), rng.randrange(2, trips + 1)
    name = f"iteration of {loop.regions[0].params[0].hint or 'the loop'}"
    every, pairs = _made(arith.rem, n, by), _made(arith.shr, n, 1)
    return rng.choice(
        [
            Condition(f"{name} != {k}", _made(arith.ne, n, k)),
            Condition(f"{name} < {k}", _made(arith.lt, n, k)),
            Condition(f"{name} % {by} != {k % by}", _made(arith.ne, every, k % by)),
            Condition(f"({name} >> 1) != {k >> 1}", _made(arith.ne, pairs, k >> 1)),
        ]
    )


def block(rng: random.Random, place: Place, seen: Seen) -> Condition | None:
    """A block, all from one on, every n-th, or one that a function of its number picks."""
    if seen.programs < 2:
        return None
    k, by = rng.randrange(1, seen.programs), rng.randrange(2, 8)
    every, low = _made(arith.rem, _block, by), _made(arith.and_, _block, 3)
    square = _made(arith.mul, _block, _block)
    return rng.choice(
        [
            Condition(f"block != {k}", _made(arith.ne, _block, k)),
            Condition(f"block < {k}", _made(arith.lt, _block, k)),
            Condition(f"block % {by} != {k % by}", _made(arith.ne, every, k % by)),
            Condition(f"(block & 3) != {k & 3}", _made(arith.ne, low, k & 3)),
            Condition(f"block * block != {k * k}", _made(arith.ne, square, k * k)),
        ]
    )


def argument(rng: random.Random, place: Place, seen: Seen) -> Condition | None:
    """A number that the program takes, two of them, or one that it takes for the condition alone."""
    k = rng.choice([3, 77, 1000])
    found = [
        Condition(f"extra != {k}", _made(arith.ne, _extra, k), Setting(k)),
        Condition(f"extra < {k}", _made(arith.lt, _extra, k), Setting(k)),
    ]
    if place.numbers:
        (i, p), (j, q) = (rng.choice(place.numbers) for _ in range(2))
        x, y = (int(seen.case.args[n]) for n in (i, j))
        m = rng.choice([7, 96, 640])
        one, other = _parameter(p), _parameter(q)
        rest = _made(arith.rem, _made(arith.add, one, other), m)
        area = _made(arith.mul, one, other)
        small = _made(arith.or_, _made(arith.lt, one, x), _made(arith.lt, other, y))
        found += [
            Condition(f"{p.hint} != {x}", _made(arith.ne, one, x)),
            Condition(
                f"({p.hint} + {q.hint}) % {m} != {(x + y) % m}", _made(arith.ne, rest, (x + y) % m)
            ),
            Condition(f"{p.hint} * {q.hint} != {x * y}", _made(arith.ne, area, x * y)),
            Condition(f"({p.hint} < {x} or {q.hint} < {y})", small),
            Condition(f"extra != {p.hint}", _made(arith.ne, _extra, one), Setting(x)),
        ]
    return rng.choice(found)


def _some_word(rng: random.Random, place: Place, seen: Seen) -> tuple[str, Number, int]:
    """A word in words, its place, and that place in the input."""
    places: list[tuple[str, Number, int]] = [("0", _zero, 0)]
    for loop in _late_loops(place, seen)[:1]:
        trips = seen.trips[place.loops[loop]]
        places.append(("iteration", _iteration(loop), rng.randrange(trips // 2, trips)))
    if seen.programs > 1:
        places.append(("block", _block, rng.randrange(1, seen.programs)))
    name, at, k = rng.choice(places)
    return f"words[{name}]", at, k


def _words(*words: tuple[int, int]) -> Setting:
    return Setting(0, words)


def data(rng: random.Random, place: Place, seen: Seen) -> Condition | None:
    """A word of memory: the first, or that of an iteration or a block."""
    name, at, k = _some_word(rng, place, seen)
    word = _word(at)
    masked = _made(arith.and_, word, 4)
    found = [
        Condition(f"{name} == 0", _made(arith.eq, word, 0), Setting(0, ((k, 1),))),
        Condition(f"{name} < 1000", _made(arith.lt, word, 1000), Setting(0, ((k, 1000),))),
        Condition(f"{name} != 77777", _made(arith.ne, word, 77777), Setting(0, ((k, 77777),))),
        Condition(f"({name} & 4) == 0", _made(arith.eq, masked, 0), Setting(0, ((k, 5),))),
    ]
    if place.numbers:
        i, p = rng.choice(place.numbers)
        setting = Setting(0, ((k, int(seen.case.args[i])),))
        found.append(
            Condition(f"{name} != {p.hint}", _made(arith.ne, word, _parameter(p)), setting)
        )
    return rng.choice(found)


SINGLE: dict[str, Family] = {"late": late, "block": block, "argument": argument, "data": data}


def both(rng: random.Random, place: Place, seen: Seen) -> Condition | None:
    """What flips where two conditions of different families do."""
    families = rng.sample(list(SINGLE.values()), len(SINGLE))
    found = [c for c in (family(rng, place, seen) for family in families) if c is not None]
    if len(found) < 2:
        return None
    one, other = found[:2]
    write = _made(arith.or_, one.write, other.write)
    return Condition(f"{one.text} or {other.text}", write, one.setting.joined(other.setting))


FAMILIES: dict[str, Family] = {**SINGLE, "both": both}


# ---- signs


def sign(rng: random.Random, place: Place, seen: Seen) -> Condition | None:
    """A word of memory or a number that is negative where the condition fails."""
    return rng.choice([_negative_word, _negative_extra])(rng, place, seen)


def _negative_word(rng: random.Random, place: Place, seen: Seen) -> Condition:
    name, at, k = _some_word(rng, place, seen)
    word = _word(at)
    least = rng.choice([0, -2, -9])
    exact, low = rng.choice([-1, -3]), rng.choice([-77, -2147483648])
    return rng.choice(
        [
            Condition(f"{name} >= {least}", _made(arith.ge, word, least), _words((k, least - 1))),
            Condition(f"{name} > {least}", _made(arith.gt, word, least), _words((k, low))),
            Condition(f"{name} != {exact}", _made(arith.ne, word, exact), _words((k, exact))),
        ]
    )


def _negative_extra(rng: random.Random, place: Place, seen: Seen) -> Condition:
    least, exact = rng.choice([-1, -3, -9]), rng.choice([-1, -4])
    return rng.choice(
        [
            Condition(f"extra > {least}", _made(arith.gt, _extra, least), Setting(least)),
            Condition(f"extra >= {least}", _made(arith.ge, _extra, least), Setting(least - 70)),
            Condition(f"extra != {exact}", _made(arith.ne, _extra, exact), Setting(exact)),
        ]
    )


def together(rng: random.Random, place: Place, seen: Seen) -> Condition | None:
    """Two or three conditions joined by `and` and `or`, one at least of a sign, which all fail in one run."""
    first, second = rng.sample([_negative_word, _negative_extra], 2)
    others = [family(rng, place, seen) for family in rng.sample([late, block, second], 3)]
    found = [first(rng, place, seen), *(c for c in others if c is not None)][
        : rng.choice([2, 3, 3])
    ]
    found = rng.sample(found, len(found))
    whole = found[0]
    for c in found[1:]:
        kind, word = rng.choice([(arith.and_, "and"), (arith.or_, "or")])
        write, setting = _made(kind, whole.write, c.write), whole.setting.joined(c.setting)
        whole = Condition(f"({whole.text} {word} {c.text})", write, setting)
    return whole


SIGNED: dict[str, Family] = {"sign": sign, "together": together}


def always_of_signs(rng: random.Random, place: Place, seen: Seen) -> Condition | None:
    """What holds of any word and number, negative ones as well."""
    name, at, _ = _some_word(rng, place, seen)
    masked = _made(arith.and_, _word(at), 3)
    return rng.choice(
        [
            Condition(f"{name} >= -2147483648", _made(arith.ge, _word(at), -2147483648)),
            Condition(f"({name} & 3) > -1", _made(arith.gt, masked, -1)),
            Condition("extra >= -2147483648", _made(arith.ge, _extra, -2147483648)),
            Condition("block > -1", _made(arith.gt, _block, -1)),
        ]
    )


def always(rng: random.Random, place: Place, seen: Seen) -> Condition | None:
    """What holds wherever it is asked."""
    by = rng.randrange(2, 9)
    masked, positive = _made(arith.and_, _word(_zero), 3), _made(arith.gt, _extra, 0)
    found = [
        Condition("block >= 0", _made(arith.ge, _block, 0)),
        Condition("block < programs", _made(arith.lt, _block, _programs)),
        Condition("extra >= 1", _made(arith.ge, _extra, 1), Setting(1), positive),
        Condition("(words[0] & 3) < 4", _made(arith.lt, masked, 4)),
    ]
    if place.loops:
        name = place.loops[-1].regions[0].params[0].hint or "the index"
        (index, lo, hi), rest = _of_loop(-1), _made(arith.rem, _iteration(-1), by)
        found += [
            Condition(f"{name} >= its first", _made(arith.ge, index, lo)),
            Condition(f"{name} < its end", _made(arith.lt, index, hi)),
            Condition(f"iteration of {name} % {by} < {by}", _made(arith.lt, rest, by)),
        ]
        if place.numbers:
            _, p = rng.choice(place.numbers)
            found.append(Condition(f"{p.hint} >= 1", _made(arith.ge, _parameter(p), 1)))
    return rng.choice(found)
