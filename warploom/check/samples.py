"""Numbers for atoms: executions that could be.  They refute at once what no proof will be found for, and
show two that touch one word."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence

from warploom.check.terms import Atom
from warploom.ir.fold import quotient
from warploom.ir.ops import arith
from warploom.ir.poly import Poly
from warploom.sim.evaluate import ON_INTEGERS

TRIES, WANTED, FEW = 120, 16, 6
_ARGUMENTS = (1, 2, 16, 64, 100, 128, 256, 257, 512, 1000, 4096)
COMPARED: dict[str, Callable[[int, int], bool]] = {
    "lt": lambda x, y: x < y, "le": lambda x, y: x <= y, "gt": lambda x, y: x > y,
    "ge": lambda x, y: x >= y, "eq": lambda x, y: x == y, "ne": lambda x, y: x != y,
}  # fmt: skip
LOGIC: dict[str, Callable[..., int]] = {
    "and": lambda x, y: x & y,
    "or": lambda x, y: x | y,
    "not": lambda x: 1 - x,
}
BITS: dict[str, Callable[..., int]] = {
    **{k.name: ON_INTEGERS[k] for k in (arith.abs_, arith.xor, arith.shl, arith.shr)},
    **{f"{k.name} of numbers": ON_INTEGERS[k] for k in (arith.and_, arith.or_)},
}
SHIFTS = frozenset({"shl", "shr"})
# Whose value follows from those of their arguments, or is any that an execution may have.
EXACT = frozenset(
    {"argument", "programs", "program", "cta", "replica", "coordinate", "trip", "quotient",
     "remainder", "min", "max", *COMPARED, *LOGIC, *BITS}
)  # fmt: skip


class Sample:
    """A value of each atom that it is asked for; those of the two sides are often alike.

    twins: how often, of 1, an execution's own number is the other's as well."""

    def __init__(self, seed: int, twins: float = 0.7) -> None:
        self.rng, self.twins = random.Random(seed), twins
        self.values: dict[Atom, int] = {}
        self._own: dict[tuple[object, ...], int] = {}

    def __call__(self, p: Poly) -> int:
        total, values = 0, self.values
        for m, c in p.terms.items():
            for a in m:
                if a not in values:
                    values[a] = self._value(a)  # type: ignore[index,arg-type]
                c *= values[a]  # type: ignore[index]
            total += c
        return total

    def of(self, a: Atom) -> int:
        """The atom's value."""
        return self(Poly.atom(a))

    def _value(self, a: Atom) -> int:
        rng = self.rng
        match a.kind:
            case "argument":
                return rng.choice(_ARGUMENTS)
            case "programs":
                return rng.randint(1, 6)
            case "one_of":
                return self(a.args[self._drawn(a, len(a.args))])
            case "program" | "cta" | "replica" | "coordinate":
                return self._drawn(a, self(a.args[0]))
            case "trip":
                lo, hi, step = map(self, a.args)
                return self._drawn(a, min(4, -(-(hi - lo) // step)) if step > 0 else 0)
        args = [self(x) for x in a.args]
        if a.kind in ("quotient", "remainder"):
            x, d = args
            whole = quotient(x, d) if d else 0
            return whole if a.kind == "quotient" else x - d * whole
        if a.kind in ("min", "max"):
            return (min if a.kind == "min" else max)(args)
        if a.kind == "select":
            return args[1] if args[0] else args[2]
        if a.kind in COMPARED:
            return int(COMPARED[a.kind](*args))
        if a.kind in LOGIC:
            return int(LOGIC[a.kind](*args))
        if a.kind in BITS and not (a.kind in SHIFTS and not 0 <= args[1] < 32):
            return int(BITS[a.kind](*args))
        return self._drawn(a, 40)

    def _drawn(self, a: Atom, n: int) -> int:
        """A number below n, of the execution itself: perhaps the same as the other's."""
        key = a.kind, a.about
        if n <= 0:
            return 0
        if key in self._own and self.rng.random() < self.twins:
            return self._own[key] % n
        self._own[key] = value = self.rng.choice((0, n - 1, self.rng.randrange(n)))
        return value


def samples(facts: Iterable[Poly], known: Sequence[Sample] = ()) -> list[Sample]:
    """Values for which none of the facts is negative; of those known what is fit."""
    facts = list(facts)
    found = [sample for sample in known if all(sample(f) >= 0 for f in facts)]
    for seed in range(TRIES if len(found) < FEW else 0):
        sample = Sample(seed)
        if all(sample(f) >= 0 for f in facts):
            found.append(sample)
            if len(found) == WANTED:
                break
    return found
