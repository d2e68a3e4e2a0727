"""What stands after an overlapped loop and need not wait for the end of its last stage (part of
expand_pipeline).

    before:  acc, total = if(runs) { …; acc = wgmma(…); wgmma_wait; yield }
             mbarrier_arrive(%empty_q, …)         what only stage 0 has read
             %r = div(1, reduce(total))           arithmetic on what stage 0 carried
             mbarrier_wait; %t = shared_get; …    a number from the producer, and what follows from it
             tma_store_wait; group_sync           staging of the store before is free
             shared_store(acc * %r)
    after:   acc, %r = if(runs) {
               …; mbarrier_arrive(%empty_q, …)
               acc = wgmma(…); %r = …; %t = …; tma_store_wait; group_sync; wgmma_wait
             }
             shared_store(acc * %r)               the other arm does all but the dots as well

A number that stands after the loop was handed on after the last load that the loop waits for, so it does
not wait for what the last dots still read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from warploom.ir.analysis import closure, effects, is_pure, reads
from warploom.ir.core import Builder, Effect, Op, Value
from warploom.ir.ops import control, mbarrier, smem
from warploom.ir.rewrite import Env, clone_op
from warploom.passes.warp.select_instructions import waits_for_stores
from warploom.passes.warp.skip_idle import REST


@dataclass(frozen=True)
class Tail:
    """releases: what moves before the last late dots; under: what moves before their end, both in
    order; gives: results of those that others read; rest: what stays after the loop."""

    releases: tuple[Op, ...] = ()
    under: tuple[Op, ...] = ()
    gives: tuple[Value, ...] = ()
    rest: tuple[Op, ...] = ()

    @staticmethod
    def find(
        behind: Sequence[Op],
        early: Iterable[Value],
        late: Iterable[Value],
        is_done: Callable[[Value], bool],
        slots: Callable[[Op], Iterable[Value]],
        is_cheap: Callable[[Op], bool],
    ) -> Tail:
        """behind: the rest of the loop's block.  early, late: the loop's results, by the stage that makes
        them.  is_done: does stage 0 alone, of the loop, read the slot of that index?  slots: indices of
        those that an op reads.  is_cheap: is it better to make the op's result twice than to hand it on?"""
        # values that wait for stage 1; that follow from the loop
        waits, follows = set(late), set(early)
        made: dict[Value, Op] = {}
        numbers = _numbers(behind)
        held: set[Value] = set()  # slots that are still read after the loop
        releases: list[Op] = []
        roots: list[Op] = []
        in_order = True
        last: Op | None = None
        for o in behind[:-1]:
            if o.id.endswith(REST):
                # The producer hands numbers on when these slots are free: they come after.
                waits.update(o.results)
                held.update(slots(o))
                numbers = set()
            elif in_order and o in numbers and waits.isdisjoint(o.operands):
                made.update(dict.fromkeys(o.results, o))
                follows.update(o.results)
                roots.append(o)
            elif _is_release(o, held) and in_order and is_done(o.operands[1]):
                releases.append(o)
            elif in_order and (waits_for_stores(o) or (_is_sync(o) and waits_for_stores(last))):
                roots.append(o)
                last = o
            elif is_pure(o) and not o.regions and waits.isdisjoint(o.operands):
                made.update(dict.fromkeys(o.results, o))
                if not follows.isdisjoint(o.operands):
                    follows.update(o.results)
                    roots += [] if is_cheap(o) else [o]
            else:
                waits.update(o.results)
                held.update(slots(o))
                in_order = in_order and not effects(o) & (Effect.WRITE | Effect.SYNC)
        needed = closure(roots, lambda o: [made[v] for v in o.operands if v in made])
        moved = {*releases, *roots}
        rest = [o for o in behind if o not in moved]
        read = {v for o in rest for v in reads(o)}
        rest = [o for o in rest if o not in needed or not read.isdisjoint(o.results)]
        return Tail(
            tuple(releases),
            tuple(o for o in behind if o in needed),
            tuple(v for o in roots for v in o.results if v in read),
            tuple(rest),
        )

    def release(self, b: Builder, env: Env) -> None:
        _write(b, self.releases, env)

    def run(self, b: Builder, env: Env) -> None:
        """What runs under the dots; env: the loop's results, and learns those of the tail."""
        _write(b, self.under, env)


def _numbers(behind: Sequence[Op]) -> set[Op]:
    """Of the ops after a loop those that take numbers: wait, read, release, and the user's promises."""
    slots = {o.result: o.operands[1] for o in behind if o.kind is smem.shared_slot}
    gets = [o for o in behind if o.kind is smem.shared_get and o.operands[0] in slots]
    at = {slots[o.operands[0]] for o in gets}
    ends = (mbarrier.mbarrier_wait, mbarrier.mbarrier_arrive)
    around = [o for o in behind if o.kind in ends and o.operands[1] in at]
    return {*gets, *around, *(o for o in behind if o.kind is control.assume)}


def _is_release(o: Op, held: set[Value]) -> bool:
    return o.kind is mbarrier.mbarrier_arrive and o.operands[1] not in held


def _is_sync(o: Op) -> bool:
    return o.kind is smem.group_sync and bool(o.attrs["scope"] == "replica")


def _write(b: Builder, ops: Iterable[Op], env: Env) -> None:
    for o in ops:
        with b.at(o):
            b.append(clone_op(o, env))
