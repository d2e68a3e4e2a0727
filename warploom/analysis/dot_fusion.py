"""Which dots become one wider dot: those that multiply the same left operand.

    gate = dot(a, b1, gate)          pair = dot(a, [b1 | b2], pair)
    up   = dot(a, b2, up)

A is read once for both, and one wide instruction keeps the tensor cores busier than two narrow ones (N = 256
against 128: docs/log/2026-11-21-gated-pair.md).  The right operands come to lie side by side in
one slot, the results in one register array, whose parts are slices: that moves nothing.

Only where the parts can lie so from the start: right operands that loads of one block bring and that
nothing else reads; sums that start at zero, or that a loop carries from dot to dot.  Dots that share a right
operand gain nothing: an instruction takes 64 rows however many there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from warploom.analysis.structure import Structure
from warploom.ir import build
from warploom.ir.analysis import effects, only_user, reads
from warploom.ir.core import Effect, Op, Region, Value
from warploom.ir.ops import control, tile
from warploom.ir.types import shape_of

Group = tuple[Op, ...]  # dots of one block, in program order
_APART = "its sum is not carried from dot to dot alone"


@dataclass(frozen=True)
class Joins:
    """What was found: the groups, and why other dots that share their left operand stay apart."""

    groups: tuple[Group, ...] = ()
    refused: tuple[tuple[Op, str], ...] = ()

    def stands(self, o: Op) -> Op:
        """Where a dot is done: with the last of its group."""
        return next((g[-1] for g in self.groups if o in g), o)

    def ids(self) -> tuple[tuple[str, ...], ...]:
        return tuple(tuple(o.id for o in g) for g in self.groups)


def find(
    structure: Structure,
    way: Callable[[Op], object],
    columns: Callable[[Op], int],
    most: int,
) -> Joins:
    """The groups of the dots in `structure`.

    way: how a ring is filled by this load, and how its slots lie; None where it is none of a ring's.
    columns: of the dot that a consumer group computes, 0 where the columns are divided among the groups.
    most: columns of one instruction.
    """
    return _Search(structure, way, columns, most).joins()


@dataclass(eq=False)
class _Search:
    structure: Structure
    way: Callable[[Op], object]
    columns: Callable[[Op], int]
    most: int
    refused: dict[Op, str] = field(default_factory=dict)

    def joins(self) -> Joins:
        groups: list[Group] = []
        for dots in self.candidates():
            each = self.columns(dots[0])
            room = self.most // each if each else 1
            if room < 2:
                self.refuse(dots, self.too_wide(each))
                continue
            groups += [dots[i : i + room] for i in range(0, len(dots), room)]
        groups = [g for g in groups if len(g) > 1]
        while True:  # what a sum is added to in an iteration is joined as a whole or not at all
            sound = [g for g in groups if not self.refuse(g, self.why_not(g, groups))]
            if len(sound) == len(groups):
                break
            groups = sound
        joined = {o for g in groups for o in g}
        refused = tuple((o, why) for o, why in self.refused.items() if o not in joined)
        return Joins(tuple(groups), refused)

    def too_wide(self, each: int) -> str:
        if not each:
            return "the consumer groups divide the columns among them"
        return f"two of {each} columns are more than the {self.most} of one instruction"

    def refuse(self, dots: Iterable[Op], why: str) -> str:
        if why:
            self.refused.update(dict.fromkeys(dots, why))
        return why

    def candidates(self) -> list[Group]:
        """Dots of one block that share the left operand, whose right ones can lie in one slot and whose sums
        come alike."""
        sharing: dict[object, list[Op]] = {}
        for o in self.structure.ops:
            if o.kind is tile.dot and len(o.operands) == 3 and len(shape_of(o.result.type)) == 2:
                sharing.setdefault((self.structure.block[o], o.operands[0]), []).append(o)
        found: dict[object, list[Op]] = {}
        for dots in sharing.values():
            for o in dots if len(dots) > 1 else ():
                transposes, load = self.source(o.operands[1])
                way = self.way(load) if load is not None else None
                chain = () if build.is_zero(o.operands[2], self.structure.maker) else self.chain(o)
                if load is None or way is None:
                    self.refuse([o], "its right operand comes through no ring")
                elif self.read_otherwise(o.operands[1]):
                    self.refuse([o], "its right operand is read elsewhere, too")
                elif chain is None:
                    self.refuse([o], _APART)
                else:
                    self.refuse([o], "no other dot's right operand and sum come as its own do")
                    right = self.structure.block[load], way, transposes, o.operands[1].type
                    attrs = o.attrs.get("max_imprecise"), o.attrs.get("ieee")
                    sums = attrs, chain and (len(chain), chain.index(o))
                    key = self.structure.block[o], o.operands[0], right, sums
                    found.setdefault(key, []).append(o)
        return [tuple(dots) for dots in found.values() if len(dots) > 1]

    # ---- right operands

    def source(self, v: Value) -> tuple[int, Op | None]:
        """(how often it is transposed, the load) of a dot's right operand."""
        transposes, o = 0, self.structure.maker(v)
        while o is not None and o.kind is tile.transpose:
            transposes, o = transposes + 1, self.structure.maker(o.operands[0])
        return transposes, o

    def read_otherwise(self, v: Value) -> bool:
        """Has v, or what it views, more than one reader?"""
        if only_user(self.structure.users, v) is None:
            return True
        o = self.structure.maker(v)
        return o is not None and o.kind is tile.transpose and self.read_otherwise(o.operands[0])

    # ---- sums

    def why_not(self, dots: Group, groups: list[Group]) -> str:
        """Empty where the dots can be done in the place of the last, on one accumulator."""
        block = self.structure.block[dots[0]]
        late = between(block, dots)
        if any(o in late for o in dots):
            return "one needs another's result"
        if any(effects(o) & (Effect.WRITE | Effect.SYNC) for o in late):
            return "what stands between them needs a result and writes memory"
        if all(build.is_zero(o.operands[2], self.structure.maker) for o in dots):
            return ""
        chains = [self.chain(o) or () for o in dots]
        return "" if all(step in groups for step in zip(*chains, strict=True)) else _APART

    def chain(self, o: Op) -> Group | None:
        """The dots through which the sum that o adds to passes in an iteration; None where a loop does not
        carry it, or where anything else reads it."""
        block, dots = self.structure.block[o], [o]
        while True:
            v = dots[0].operands[2]
            made = self.structure.made[v]
            if only_user(self.structure.users, v) is None:
                return None
            if v in block.params:
                break
            if made.op is None or made.op.kind is not tile.dot or made.op not in block.ops:
                return None
            dots.insert(0, made.op)
        loop, index = made.op, made.number - 1
        if loop is None or loop.kind is not control.for_:
            return None
        while True:
            v = dots[-1].result
            user = only_user(self.structure.users, v)
            if user is block.ops[-1]:
                return tuple(dots) if block.yielded[index] is v else None
            if user is None or user.kind is not tile.dot or user.operands[2] is not v:
                return None
            dots.append(user)


def between(block: Region, dots: Iterable[Op]) -> list[Op]:
    """The ops of the block up to the last of `dots` that need a result of an earlier one: where all are done
    in the place of the last, they have to come after it."""
    wanted = set(dots)
    known: set[Value] = set()
    late = []
    for o in block.ops:
        if not wanted:
            break
        if not known.isdisjoint(reads(o)):
            late.append(o)
            known.update(o.results)
        if o in wanted:
            wanted.remove(o)
            known.update(o.results)
    return late
