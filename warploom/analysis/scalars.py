"""Numbers that side effects give: which ops run once, in the producer, so that all tasks know the result.

Address arithmetic and loop control are replicated, so every task computes them for itself.  The result of an
atomic, of a volatile load, of the clock, or of a load from memory that the kernel writes can't be: the op
runs once, in one task, and its result crosses to the others by a channel.

    t = tl.program_id(0)
    while t < tiles:                                 every task's condition depends on t
        …
        t = tl.atomic_add(counter, 1) + tl.num_programs(0)       run by the producer alone

Ops on numbers (no tile among operands and results) that access the same memory are a *family*: they stay
together, in the program's order.  A family moves to the producer as a whole, ahead of what the consumers
still do, so it must not be the family that orders these: memory that the kernel both loads and writes is all
in families.  (A kernel that hands data to another one that runs at the same time does so by atomics whose
results it does not use; they stay where they are.)
"""

from __future__ import annotations

from dataclasses import dataclass, field

from warploom.analysis.access import Accesses, is_on_numbers
from warploom.analysis.structure import Structure
from warploom.ir.core import Op
from warploom.ir.ops import tile

NUMBER_DEPTH = 2  # so that handing one on doesn't wait for whoever still works with the one before
SLOT_BYTES = 128  # of a number in shared memory (Shared.slot_bytes)


@dataclass(eq=False)
class Numbers:
    """The families of a function.  why_not: of each op on numbers that must stay with the consumers, why."""

    structure: Structure
    accesses: Accesses
    families: list[tuple[Op, ...]] = field(default_factory=list)
    why_not: dict[Op, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.aliased = self.accesses.aliased
        by_base: dict[int | None, list[Op]] = {}
        for o in self.accesses.memory_ops:
            by_base.setdefault(self.accesses.base(o.operands[0]), []).append(o)
        for base, ops in by_base.items():
            if any(self.gives(o) for o in ops):
                self.family(base, ops)
        self.stay_behind_others()

    def gives(self, o: Op) -> bool:
        """Does o give a number that only whoever runs it knows, and that somebody needs?"""
        if not any(self.structure.users.get(v) for v in o.results):
            return False
        by_address = o.kind is tile.atomic or o.attrs.get("volatile") or o in self.aliased
        return o.kind is tile.globaltimer or bool(by_address and is_on_numbers(o))

    def family(self, base: int | None, ops: list[Op]) -> None:
        func = self.accesses.func
        other = next((o for o in ops if not is_on_numbers(o)), None)
        why = ""
        if base is None:
            why = "it is not known to which argument its pointer belongs"
        elif func.attrs.get("overlap"):
            why = "the arguments overlap"
        elif other is not None:
            why = f"{other.id} accesses tiles of the same memory, {func.params[base].hint}"
        if why:
            self.why_not |= {o: why for o in ops if is_on_numbers(o)}
        else:
            self.families.append(tuple(ops))

    def stay_behind_others(self) -> None:
        """Where other memory is both loaded and written, a family may be what orders these accesses."""
        mine = {o for f in self.families for o in f}
        other = next((o for o in self.structure.ops if o in self.aliased and o not in mine), None)
        if other is not None:
            why = f"it may order accesses like {other.id}, whose memory is both loaded and written"
            self.why_not |= dict.fromkeys(mine, why)
            self.families.clear()

    def drop(self, o: Op, why: str) -> None:
        """The family of o stays with the consumers after all."""
        family = next(f for f in self.families if o in f)
        self.families.remove(family)
        self.why_not |= dict.fromkeys(family, why)

    @property
    def ops(self) -> list[Op]:
        """All that move to the producer, in program order."""
        mine = {o for f in self.families for o in f}
        return [o for o in self.structure.ops if o in mine]

    @property
    def given(self) -> list[Op]:
        """Those of them whose results others need."""
        return [o for o in self.ops if self.gives(o)]
