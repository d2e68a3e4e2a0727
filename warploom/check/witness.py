"""Two executions that touch one word of global memory, found by trying numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from warploom.check.disjoint import Condition
from warploom.check.global_accesses import Access
from warploom.check.samples import EXACT, SHIFTS, Sample
from warploom.check.terms import Atom, Terms, atoms_of
from warploom.ir.poly import Poly

TRIES = 1500


@dataclass(frozen=True)
class Witness:
    """words: which executions touch which element, under which arguments."""

    words: str


def find_witness(
    terms: Terms,
    a: Access,
    b: Access,
    executors: Sequence[tuple[Poly, Poly]],
    conditions: Sequence[Condition],
    alike: Sequence[Poly] = (),
) -> Witness | None:
    """Numbers for which a and b, by different executors (any, where there are none), touch one word; None
    where none are found, or where addresses or conditions depend on what no number is known for: what a
    function other than those of EXACT gives, whatever its arguments.  conditions:
    that the launch keeps.  alike: differences that are 0."""
    other = terms.other
    guards = [*a.guards, *map(other, b.guards)]
    within = [*a.within, *map(other, b.within)]
    offset = a.offset - other(b.offset)
    equal = [*alike, *a.equal, *map(other, b.equal), offset]
    atoms = atoms_of([*guards, *within, *equal])
    if any(x.kind not in EXACT for x in atoms):
        return None
    if any(c.least is None for c in conditions) or any(map(_asks_for_a_grid, atoms)):
        return None
    kept = [c.big - c.least for c in conditions if c.least is not None]
    for x in atoms:
        if x.kind == "trip":
            lo, hi, step = x.args
            within.append(hi - Poly.const(1) - lo - step * Poly.atom(x))
        elif x.kind in SHIFTS:
            within += [x.args[1], Poly.const(31) - x.args[1]]
        elif x.kind in ("quotient", "remainder"):
            guards.append(x.args[1])
    for seed in range(TRIES):
        sample = Sample(seed, twins=0.75)
        for x in atoms:
            if x.kind == "argument":
                by = terms.divisors.get(x.about, 1)
                sample.values[x] = -(-sample.of(x) // by) * by
        _aim(sample, offset)
        if any(sample(p) for p in equal) or any(sample(p) < 0 for p in (*within, *kept)):
            continue
        differ = not executors or any(sample(p) != sample(q) for p, q in executors)
        if differ and all(sample(g) for g in guards):
            return Witness(_words(sample, a, b, executors, atoms))
    return None


def _asks_for_a_grid(x: Atom) -> bool:
    """Is it a program's number divided by what arguments say, or a walk from it in steps of a number, of a
    grid that isn't known?  Such a kernel is launched with the grid that fits; what is tried need not be."""
    inside = [y.kind for y in atoms_of(x.args)]
    if "program" not in inside or "programs" not in inside:
        return False
    if x.kind == "trip":
        return not any(y.kind == "programs" for y in atoms_of(x.args[2:]))
    divides = x.kind in ("quotient", "remainder", "select")
    return divides and "trip" not in inside and "argument" in inside


def _aim(sample: Sample, offset: Poly) -> None:
    """Moves one coordinate so that both touch one word, if it can."""
    for m, k in offset.terms.items():
        (x,) = m if len(m) == 1 else (None,)
        if not isinstance(x, Atom) or x.kind != "coordinate" or abs(k) != 1:
            continue
        value = sample.of(x) - k * sample(offset)
        if 0 <= value < sample(x.args[0]):
            sample.values[x] = value
            return


def _words(
    sample: Sample,
    a: Access,
    b: Access,
    executors: Sequence[tuple[Poly, Poly]],
    atoms: dict[Atom, None],
) -> str:
    one = ", ".join(_number(p, sample) for p, _ in executors)
    two = ", ".join(_number(q, sample) for _, q in executors).replace("′", "")
    launch = [f"{x} = {sample.of(x)}" for x in atoms if x.kind in ("argument", "programs")]
    name = a.base.hint if a.base is not None else "memory"
    under = f", where {', '.join(launch)}" if launch else ""
    return f"element {sample(a.offset)} of {name} by {one} and by {two}{under}"


def _number(p: Poly, sample: Sample) -> str:
    (atom,) = p.atoms()
    return f"{atom} = {sample(p)}"
