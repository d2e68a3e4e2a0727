"""Mutants that differ from their original in every run.

Each wait, arrival, expectation, fence, commit and release is removed, duplicated, or swapped with the
effect after it; each phase, count, byte count, number of pending groups and depth is changed by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from warploom.errors import Loc
from warploom.ir.analysis import effects
from warploom.ir.build import const
from warploom.ir.core import Builder, Effect, Func, Op, OpKind, Region, Value
from warploom.ir.ops import arith, cluster, mbarrier, mma, regs, smem, task, tma

PROTOCOL: frozenset[OpKind] = frozenset(
    (
        mbarrier.mbarrier_wait,
        mbarrier.mbarrier_arrive,
        mbarrier.mbarrier_expect,
        smem.fence_async,
        smem.group_sync,
        smem.named_barrier,
        regs.setmaxnreg,
        mma.wgmma_fence,
        mma.wgmma_commit,
        mma.wgmma_wait,
        tma.tma_store_commit,
        tma.tma_store_wait,
        mbarrier.cp_async_arrive,
        smem.cp_async_commit,
        smem.cp_async_wait,
        cluster.cluster_arrive,
        cluster.cluster_wait,
    )
)
NUMBERS: dict[OpKind, dict[str, int]] = {  # attribute -> the least that is legal
    mbarrier.mbarrier_alloc: {"count": 1},
    mbarrier.mbarrier_expect: {"bytes": 0},
    mma.wgmma_wait: {"pending": 0},
    tma.tma_store_wait: {"pending": 0},
    smem.cp_async_wait: {"pending": 0},
    task.ring_next: {"depth": 1},
}


@dataclass(frozen=True)
class Setting:
    """What a run gives the parameters that a mutant has beside its original's.

    extra: the integer.  words: (place, word) of the array of integers, 0 elsewhere."""

    extra: int = 0
    words: tuple[tuple[int, int], ...] = ()

    def joined(self, other: Setting) -> Setting:
        """Both; where they differ, the other's integer."""
        return Setting(other.extra or self.extra, self.words + other.words)


@dataclass(frozen=True)
class Mutant:
    """A changed function.

    change: "duplicate", "swap", "pending -1", "only if" …; kind: of the op that is changed; what: both in
    words; make: builds the function.  family: of the condition that it hangs on ("" where there is none).
    setting: the runs in which the condition flips.  own_result: all orders are compared with the mutant's
    first, since it is meant to compute something else than its original."""

    change: str
    kind: OpKind
    what: str
    loc: Loc | None
    make: Callable[[], Func]
    family: str = ""
    setting: Setting = Setting()
    own_result: bool = False

    @cached_property
    def func(self) -> Func:
        return self.make()


def mutants(func: Func) -> Iterator[Mutant]:
    """All mutants of a function without a condition, in program order."""
    yield from _in_region(func, func.body)


def _in_region(func: Func, region: Region) -> Iterator[Mutant]:
    for i, o in enumerate(region.ops[:-1]):
        before, after = region.ops[:i], region.ops[i + 1 :]

        def made(change: str, ops: Sequence[Op], text: str = "", o: Op = o) -> Mutant:
            def make() -> Func:
                changed = Region(region.params, tuple(ops))
                return func.with_(body=put(func.body, {region: changed}))

            return Mutant(change, o.kind, f"{text or change} {words(o)}", o.loc, make)

        if o.kind in PROTOCOL:
            if not o.results:
                yield made("remove", [*before, *after])
            again = o.with_(results=tuple(Value(v.type, v.hint) for v in o.results))
            yield made("duplicate", [*before, o, again, *after])
        if _is_movable(o):
            past = _next_effect(after)
            if past is not None:
                moved = [*before, *after[: past + 1], o, *after[past + 1 :]]
                yield made("swap", moved, f"swap with the {after[past].kind.name} after it:")
        if o.kind is mbarrier.mbarrier_wait:
            yield made("flip", [*before, *_flipped(o), *after], "flip the phase of")
        for name, least in NUMBERS.get(o.kind, {}).items():
            for n in (o.attrs[name] - 1, o.attrs[name] + 1):
                if n >= least:
                    changed = o.with_(attrs={**o.attrs, name: n})
                    text = f"{name} {o.attrs[name]} → {n} in"
                    change = f"{name} {n - o.attrs[name]:+}"
                    yield made(change, [*before, changed, *after], text)
        for r in o.regions:
            yield from _in_region(func, r)


def put(region: Region, new: Mapping[Region, Region]) -> Region:
    """`region` with others in the place of some regions, which are itself or somewhere inside it."""
    if region in new:
        return new[region]
    ops = tuple(
        o.with_(regions=tuple(put(r, new) for r in o.regions)) if o.regions else o
        for o in region.ops
    )
    return Region(region.params, ops)


def _is_movable(o: Op) -> bool:
    """A protocol op without results, or an elect of nothing else."""
    if o.kind is task.elect:
        return all(inner.kind in PROTOCOL for inner in o.regions[0].ops[:-1])
    return o.kind in PROTOCOL and not o.results


def _next_effect(after: Sequence[Op]) -> int | None:
    """Index of the next op that does something."""
    for i, o in enumerate(after[:-1]):
        if effects(o) != Effect.NONE:
            return i
    return None


def _flipped(o: Op) -> tuple[Op, ...]:
    b = Builder(o.loc)
    barriers, index, phase = o.operands
    other: Value = arith.xor(b, phase, const(b, 1))
    return (*b.ops, o.with_(operands=(barriers, index, other)))


def words(o: Op) -> str:
    """An op in few words: its name and its operands', or the names of what it contains."""
    inner = [i for r in o.regions for i in r.ops[:-1]]
    if inner and o.kind is task.elect:
        return f"{o.kind.name} of {', '.join(i.kind.name for i in inner)}"
    names = [v.hint for v in o.operands if v.hint]
    return f"{o.kind.name}({', '.join(names)})" if names else o.kind.name
