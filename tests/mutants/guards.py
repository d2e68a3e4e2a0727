"""Mutants that differ from their original under a condition.

  only if                     an event of the protocol comes only where the condition holds
  again unless                it comes twice where it doesn't
  a trip less unless          a loop of one task has an iteration less where it doesn't
  all iterate only if         a loop's iterations are empty, in all tasks, where it doesn't
  a trip less for all unless  a loop's end is a step earlier, for all tasks, where it doesn't
  all tasks only if           all tasks are empty where it doesn't

What all tasks do or leave out alike does no harm as a rule.  Where trips are left out, results are missing
that the checker claims nothing of: all orders have to give the same.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tests.mutants.change import PROTOCOL, Mutant, put, words
from tests.mutants.conditions import (
    FAMILIES,
    SIGNED,
    Condition,
    Family,
    Place,
    Seen,
    always,
    always_of_signs,
)
from warploom.check.dependence import EVENTS
from warploom.ir.analysis import definitions, loops
from warploom.ir.core import Builder, Fact, Func, Op, Region, Value
from warploom.ir.ops import arith, control, task, tma
from warploom.ir.rewrite import substitute
from warploom.ir.types import Pointer, Scalar, dtype_of, i32

GUARD = "guard"  # id of the ops that compute conditions
CONDITIONAL = PROTOCOL | {tma.tma_load, task.ring_next}
Edit = Callable[[Condition], Func]
Replacement = Callable[[Builder, Value, Op], None]  # of an op, by what depends on a condition


def conditional(
    func: Func, seen: Sequence[Seen], seed: str = "", signed: bool = False
) -> Iterator[Mutant]:
    """All mutants under a condition: each place with a condition of each family, drawn by the seed and the
    mutant's number.  seen: inputs in which the conditions flip.  signed: the conditions ask for signs."""
    families = (SIGNED, always_of_signs) if signed else (FAMILIES, always)
    for number, (site, family) in enumerate(_Edits(func).sites(*families)):
        name = next((n for n, f in families[0].items() if f is family), "always")
        rng = random.Random(f"{seed}/{number}")
        condition = _drawn(rng, family, site.place, seen)
        if condition is not None:
            yield site.mutant(name, condition)


def _drawn(
    rng: random.Random, family: Family, place: Place, seen: Sequence[Seen]
) -> Condition | None:
    """A condition that flips in one of the inputs: in one time of two the longest that has such."""
    inputs = rng.sample(seen, len(seen))
    if rng.random() < 0.5:
        inputs.sort(key=lambda s: -max(s.trips.values(), default=0) * s.programs)
    for one in inputs:
        found = family(rng, place, one)
        if found is not None:
            return found
    return None


@dataclass(frozen=True)
class Site:
    """A change that waits for its condition.  op: that is changed, for words.  place: of the condition.
    own_result: see Mutant."""

    change: str
    op: Op
    place: Place
    edit: Edit
    own_result: bool = False

    def mutant(self, family: str, c: Condition) -> Mutant:
        what = f"{self.change} {c.text}: {words(self.op)}"
        make = functools.partial(self.edit, c)
        of = self.change, self.op.kind, what, self.op.loc, make
        return Mutant(*of, family, c.setting, self.own_result)


class _Edits:
    """The places of one function, which gets two parameters more: `words` and `extra`."""

    def __init__(self, func: Func) -> None:
        self.words, self.extra = Value(Pointer(i32), "words"), Value(Scalar(i32), "extra")
        params = (*func.params, self.words, self.extra)
        facts = func.attrs.get("facts", (Fact(),) * len(func.params))
        self.func = func.with_(
            body=Region(params, func.body.ops),
            attrs={**func.attrs, "facts": (*facts, Fact(16), Fact())},
        )
        self.made = definitions(func.body)
        self.numbers = tuple((i, p) for i, p in enumerate(func.params) if p.type == Scalar(i32))
        self.loops = {
            o: tuple(x for x in around if x.kind is control.for_)
            for o, around in loops(func.body).items()
        }
        self.tasks = task.phases(func)[-1]
        self.outside = Place(self.numbers, self.words, self.extra, (), self.made)

    def place(self, *inside: Op) -> Place:
        """What a condition beside the first of some ops may speak of, if it stands beside all of them."""
        depth = min(len(self.loops[o]) for o in inside)
        around = self.loops[inside[0]]
        return Place(self.numbers, self.words, self.extra, around[len(around) - depth :], self.made)

    def sites(
        self, families: Mapping[str, Family], harmless: Family
    ) -> Iterator[tuple[Site, Family]]:
        """Each change with each family that may decide it, or with what never leaves it out."""
        whole = {n: f for n, f in families.items() if n != "late"}
        for region in _regions(self.tasks):
            for o in region.ops[:-1]:
                beside = self.place(o)
                if o.kind in CONDITIONAL and (not o.results or o.kind is task.ring_next):
                    only = Site("only if", o, beside, self._replaced(region, o, _kept_if))
                    yield from ((only, f) for f in (*families.values(), harmless))
                if o.kind in CONDITIONAL and not o.results:
                    again = Site("again unless", o, beside, self._replaced(region, o, _twice))
                    yield from ((again, f) for f in families.values())
                if o.kind is control.for_ and _does_something(o):
                    fewer = Site(
                        "a trip less unless", o, beside, self._replaced(region, o, _fewer), True
                    )
                    yield from ((fewer, f) for f in families.values())
        for group in self._shared_loops():
            loop, beside = group[0], self.place(*(o.regions[0].ops[0] for o in group))
            empty = Site("all iterate only if", loop, beside, self._iterations(group), True)
            yield from ((empty, f) for f in families.values())
            if self.made.get(loop.operands[1]) in self.func.body.ops:
                less = Site(
                    "a trip less for all unless", loop, self.outside, self._bound(loop), True
                )
                yield from ((less, f) for f in whole.values())
        tasks = Site("all tasks only if", self.tasks, self.outside, self._tasks, True)
        yield from ((tasks, f) for f in whole.values())

    def _shared_loops(self) -> list[list[Op]]:
        """The loops that several tasks have: of one loop of the source, or with the same bounds."""
        groups: dict[object, dict[int, Op]] = {}
        for number, region in enumerate(self.tasks.regions):
            for o in region.all_ops:
                if o.kind is control.for_ and _does_something(o):
                    groups.setdefault(o.id or o.operands[:3], {}).setdefault(number, o)
        return [list(g.values()) for g in groups.values() if len(g) > 1]

    # ---- the edits

    def _replaced(self, region: Region, o: Op, write: Replacement) -> Edit:
        """One op becomes what `write` appends."""

        def edit(c: Condition) -> Func:
            i = region.ops.index(o)
            b = Builder(o.loc, o.tasks)
            write(b, _guard(b, c, self.place(o)), o)
            ops = (*region.ops[:i], *b.ops, *region.ops[i + 1 :])
            return self._with(c, {region: Region(region.params, ops)})

        return edit

    def _iterations(self, group: Sequence[Op]) -> Edit:
        """The bodies of loops become bodies under a condition, which pass on what they carry where it
        fails."""

        def edit(c: Condition) -> Func:
            new = {}
            for loop in group:
                (body,) = loop.regions
                b, other = Builder(loop.loc, loop.tasks), Builder(loop.loc, loop.tasks)
                holds = _guard(b, c, self.place(body.ops[0]))
                control.yield_(other, *body.params[1:])
                arms = Region((), body.ops), other.region()
                results = tuple(Value(v.type, v.hint) for v in body.yielded)
                b.append(Op(control.if_, (holds,), {}, results, arms, b.tasks, b.loc))
                control.yield_(b, *results)
                new[body] = b.region(body.params)
            return self._with(c, new)

        return edit

    def _bound(self, loop: Op) -> Edit:
        """What bounds a loop becomes less by a step, wherever a task asks for it."""

        def edit(c: Condition) -> Func:
            _, hi, step = loop.operands[:3]
            b = Builder(self.tasks.loc)
            less = _less(b, _guard(b, c, self.outside), hi, step)
            regions = tuple(substitute(r, {hi: less}) for r in self.tasks.regions)
            return self._instead_of_tasks(c, [*b.ops, self.tasks.with_(regions=regions)])

        return edit

    def _tasks(self, c: Condition) -> Func:
        """What each task does comes under the condition."""
        regions = []
        for region in self.tasks.regions:
            b = Builder(self.tasks.loc, region.ops[0].tasks)
            holds = _guard(b, c, self.outside)
            end = Builder(b.loc, b.tasks)
            control.yield_(end)
            b.append(Op(control.if_, (holds,), {}, (), (region, end.region()), b.tasks, b.loc))
            control.yield_(b)
            regions.append(b.region())
        return self._instead_of_tasks(c, [self.tasks.with_(regions=tuple(regions))])

    def _instead_of_tasks(self, c: Condition, ops: Sequence[Op]) -> Func:
        body = self.func.body
        i = body.ops.index(self.tasks)
        whole = Region(body.params, (*body.ops[:i], *ops, *body.ops[i + 1 :]))
        return self._promising(c, self.func.with_(body=whole))

    def _with(self, c: Condition, new: Mapping[Region, Region]) -> Func:
        return self._promising(c, self.func.with_(body=put(self.func.body, new)))

    def _promising(self, c: Condition, func: Func) -> Func:
        """The function, which begins with what the condition promises."""
        if c.promise is None:
            return func
        b = Builder()
        control.assume(b, c.promise(b, self.outside))
        return func.with_(body=Region(func.params, (*b.ops, *func.body.ops)))


def _guard(b: Builder, c: Condition, place: Place) -> Value:
    """The condition, written here.  Its op can be told by its id."""
    holds = c.write(b, place)
    b.ops[-1] = b.ops[-1].with_(id=GUARD)
    return holds


def _regions(o: Op) -> Iterator[Region]:
    for r in o.regions:
        yield r
        for inner in r.ops:
            yield from _regions(inner)


def _does_something(loop: Op) -> bool:
    return any(o.kind in EVENTS for o in loop.regions[0].all_ops)


def _kept_if(b: Builder, holds: Value, o: Op) -> None:
    """The op under a condition; a ring's cursor stays where it is otherwise."""
    then, other = Builder(b.loc, b.tasks), Builder(b.loc, b.tasks)
    inner = o.with_(results=tuple(Value(v.type, v.hint) for v in o.results))
    then.append(inner)
    control.yield_(then, *inner.results)
    control.yield_(other, *(o.operands if o.results else ()))
    arms = then.region(), other.region()
    b.append(Op(control.if_, (holds,), {}, o.results, arms, b.tasks, b.loc))


def _twice(b: Builder, holds: Value, o: Op) -> None:
    b.append(o)
    _kept_if(b, arith.not_(b, holds), o)


def _fewer(b: Builder, holds: Value, loop: Op) -> None:
    lo, hi, step, *init = loop.operands
    b.append(loop.with_(operands=(lo, _less(b, holds, hi, step), step, *init)))


def _less(b: Builder, holds: Value, hi: Value, step: Value) -> Value:
    """A loop's end, or what ends it one iteration earlier where the condition fails."""
    fails = arith.cast(b, arith.not_(b, holds), dtype=dtype_of(hi.type))
    out: Value = arith.sub(b, hi, arith.mul(b, fails, step))
    return out
