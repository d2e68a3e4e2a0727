"""setmaxnreg: the pool of a CTA's registers, in runs and in all orders of events."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest

from warploom.ir.core import Func, Op
from warploom.ir.ops import regs
from warploom.ir.parser import parse_func
from warploom.sim.cuts import Exchange, find_stuck
from warploom.sim.machine import simulate
from warploom.sim.report import Deadlock, ProtocolError

# Two warp groups of 248 registers a thread; %go: one gives before the other asks, or waits for it to ask.
POOL = """func @pool() level=WARP {warps=4} {
  %c0 = const() {value=0, dtype=i32} : i32
  %done = mbarrier_alloc() {name="done", n=1, count=4} : mbarriers<1>
  tasks() {names=("gives", "asks"), warps=(4, 4), replicas=(1, 1), registers=(none, none)} do {
    GIVE
    yield()
  } do {
    setmaxnreg() {registers=256}
    mbarrier_arrive(%done, %c0) {by="warp"}
    yield()
  }
  yield()
}
"""
WAIT = "mbarrier_wait(%done, %c0, %c0)"


def pool(*gives: str) -> Func:
    return parse_func(POOL.replace("GIVE", "\n".join(gives)), "pool.ir")


def test_it_waits_until_there_are_enough() -> None:
    """In any order, the clock's too, where the wait is drawn."""
    func = pool("setmaxnreg() {registers=240}")
    for order in ("late", "early", "reverse", "seeded"):
        for track in (True, False):
            simulate(func, (), 1, order=order, track=track)
    late = pool('group_sync() {scope="replica"}', 'setmaxnreg() {registers=240, action="dec"}')
    report = simulate(late, (), 1, order="timed")
    (wait,) = (e for e in report.events if e.unit == "wait")
    assert (wait.agent, wait.cause) == ("asks", "registers")


def test_each_of_two_has_its_part() -> None:
    """Of 128 registers a thread, those of one half of a multiprocessor, 24 and 232 can be had, 240 can't."""
    text = POOL.replace("{warps=4}", "{warps=4, ctas_per_sm=2}").replace(
        "registers=256", "registers=232"
    )
    text = text.replace("GIVE", "setmaxnreg() {registers=24}")
    simulate(parse_func(text, "pool.ir"), (), 1)
    with pytest.raises(Deadlock, match="256 × 128"):
        simulate(parse_func(text.replace("232", "240"), "pool.ir"), (), 1)


@pytest.mark.parametrize("track", [True, False])
def test_it_waits_for_ever(track: bool) -> None:
    for gives in (["setmaxnreg() {registers=248}"], [WAIT, "setmaxnreg() {registers=240}"]):
        with pytest.raises(Deadlock) as e:
            simulate(pool(*gives), (), 1, track=track)
        assert e.value.code == "setmaxnreg"
        assert "asks waits for setmaxnreg to 256 registers a thread: it asks for 1024 more" in str(
            e.value
        )
        assert "the pool has 0 of 256 × 248; gives has 248" in str(e.value)


def test_what_ptx_leaves_undefined() -> None:
    sync = 'group_sync() {scope="replica"}'
    low, lower = "setmaxnreg() {registers=240}", "setmaxnreg() {registers=232}"
    assert simulate(pool(low, sync, lower), (), 1).steps
    with pytest.raises(ProtocolError) as e:
        simulate(pool(low, lower), (), 1)
    assert e.value.code == "setmaxnreg-sync"
    with pytest.raises(ProtocolError) as e:
        simulate(pool(low, sync, 'setmaxnreg() {registers=248, action="dec"}'), (), 1)
    assert e.value.code == "setmaxnreg-action"


# ---- orders of exchanges


OP = Op(regs.setmaxnreg, (), {"registers": 24}, (), ())


def some(rng: random.Random) -> list[list[Exchange]]:
    """Exchanges of three warps; now and then one learns how far another is."""
    warps = 3
    known = np.zeros((warps, warps), np.int64)
    known[range(warps), range(warps)] = 1
    sequences: list[list[Exchange]] = [[] for _ in range(warps)]
    held = [rng.choice((2, 3, 4)) for _ in range(warps)]
    for _ in range(rng.randint(3, 7)):
        w = rng.randrange(warps)
        if rng.random() < 0.4:
            other = rng.randrange(warps)
            if other != w:
                np.maximum(known[w], known[other], out=known[w])
                known[other, other] += 1
        after = max(0, held[w] + rng.choice((-2, -1, 1, 2)))
        at = int(known[w, w])
        sequences[w].append(Exchange("", str(w), OP, w, held[w], after, known[w].copy(), at))
        held[w] = after
    return sequences


def is_stuck_somewhere(sequences: Sequence[Sequence[Exchange]]) -> bool:
    """By all orders, without any reduction."""
    todo, seen = [(0,) * len(sequences)], set()
    while todo:
        done = todo.pop()
        if done in seen:
            continue
        seen.add(done)
        past = [e for s, n in zip(sequences, done, strict=True) for e in s[:n]]
        free = -sum(e.asks for e in past)
        ready = []
        for w, (s, n) in enumerate(zip(sequences, done, strict=True)):
            if n == len(s):
                continue
            before = [
                e
                for v, theirs in enumerate(sequences)
                for e in theirs
                if v != w and s[n].known[v] >= e.epoch
            ]
            if all(any(e is p for p in past) for e in before):
                ready.append(w)
        fit = [w for w in ready if sequences[w][done[w]].asks <= free]
        if ready and not fit:
            return True
        todo += [tuple(n + (v == w) for v, n in enumerate(done)) for w in fit]
    return False


def test_it_finds_what_all_orders_find() -> None:
    rng = random.Random(3)
    outcomes = []
    for _ in range(400):
        sequences = some(rng)
        found = find_stuck(sequences)
        assert (found is not None) == is_stuck_somewhere(sequences)
        if found is not None:
            assert found.waiting and all(e.asks > found.free for e in found.waiting)
            assert found.free == -sum(e.asks for e in found.path)
        outcomes.append(found is None)
    assert 40 < sum(outcomes) < 360


def test_many_warps_that_take_turns_are_few_states() -> None:
    """Eight groups one after the other, 64 rounds: nothing branches."""
    warps, rounds = 32, 64
    known = np.zeros((warps, warps), np.int64)
    sequences: list[list[Exchange]] = [[] for _ in range(warps)]
    sequences.append([Exchange("", "g", OP, warps, 100, 0, np.zeros(33, np.int64), 1)])
    for turn in range(rounds):
        for group in range(8):
            mine = range(4 * group, 4 * group + 4)
            for step, (before, after) in enumerate(((0, 25), (25, 0))):
                seen = known.copy()
                for w in mine:
                    row = np.append(seen.max(axis=0), 0)
                    at = 16 * turn + 2 * group + step + 1
                    sequences[w].append(Exchange("", str(group), OP, w, before, after, row, at))
                    known[w, w] = at
    assert find_stuck(sequences, max_states=50) is None
    nobody = np.zeros(33, np.int64)
    for s in sequences[:8]:
        s[0] = Exchange("", s[0].label, OP, s[0].warp, 0, 25, nobody, s[0].epoch)
    assert find_stuck(sequences) is not None
