"""Broken explicit kernels: each is refused while compiling or caught by check, with its line and a cause."""

from __future__ import annotations

import functools
import linecache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.explicit.broken.cluster import Exchange, Multicast
from tests.explicit.broken.counts import Counted
from tests.explicit.broken.pool import Pool
from tests.explicit.broken.refused import Groups, Products
from tests.explicit.broken.registers import Registers
from tests.explicit.broken.ring import Ring
from tests.explicit.broken.store import Store
from tests.explicit.broken.turns import Turns
from tests.pairwise import every
from warploom.check import Case, CheckReport, check, replay
from warploom.check.explore import explore, simulation
from warploom.errors import CompileError

# bug: (code of the first finding, part of the line that it points at)
RING = {
    "consumer starts with phase 1": "uninitialised",
    "producer starts with phase 0": "deadlock",
    "no wait for full": "uninitialised",
    "no wait for empty": "unbound-arrival",
    "no wgmma fence": "wgmma-fence",
    "released before the wait": "race",
    "two in flight": "race",
    "two groups, one release": "deadlock",
    "first slot released at once": "unbound-arrival",
    "never released": "deadlock",
    "consumer ring too short": "deadlock",
    "phase never flips": "late-wait",
    "last product never waited for": "exit-wgmma",
    "empty count short": "split-arrival",
    "empty count over": "deadlock",
    "full count is two": "deadlock",
    "too few bytes": "uninitialised",
    "too many bytes": "deadlock",
    "no expect": "unbound-arrival",
    "no arrival at full": "deadlock",
    "B on the next barrier": "deadlock",
    "one load too many": "exit-load",
}
STORE = {
    "buffer reused while read": "race",
    "no proxy fence": "proxy-fence",
    "no sync before the store": "race",
    "store never committed": "",
    "exit while the store reads": "exit-store",
}
MULTICAST = {
    "empty counts one CTA": "unbound-arrival",
    "empty count over": "deadlock",
    "no sync after init": "cluster-start",
    "sync in one group": "cluster-start",
    "release to the own CTA": "deadlock",
    "release to the peer": "deadlock",
    "no sync at the end": "cluster-exit",
    "only the producer waits": "cluster-exit",
    "expects its own part": "uninitialised",
    "mask of the own CTA": "deadlock",
    "mask of the peer": "deadlock",
    "mask outside at run time": "multicast-mask",
}
EXCHANGE = {
    "read without a cluster sync": "uninitialised",
    "relaxed sync": "race",
    "exit while the peer may read": "cluster-exit",
    "arrives twice": "cluster-arrive",
    "waits without an arrival": "cluster-arrive",
    "relaxed arrival": "race",
    "arrives at its own barrier": "race",
    "acquires in the CTA": "race",
}
CLUSTERS_REFUSED = {
    "nine CTAs": "attrs-cluster",
    "wait at a peer's barrier": "peer",
    "wgmma of a peer's slot": "peer",
    "rank outside": "cluster-rank",
    "mask outside": "multicast-mask",
}
TURNS = {
    "no turns": "race",
    "waits for the other's turn": "deadlock",
    "passes to itself": "deadlock",
    "never passed": "deadlock",
    "nobody begins": "deadlock",
    "turn of one group": "unbound-arrival",
    "passed while the store reads": "race",
}
REGISTERS = {
    "operand changed after the fence": "wgmma-fence",
    "accumulator changed after the fence": "wgmma-fence",
    "operand in shared memory not fenced": "proxy-fence",
    "one warp's part not awaited": "race",
}
POOL = {  # bug: (code, words of the report)
    "gives nothing up": (
        "setmaxnreg",
        ("pool.py:33", "first (_=0) waits for setmaxnreg to 232", "third has 168"),
    ),
    "gives up too late": (
        "setmaxnreg",
        ("first (_=0) waits for setmaxnreg", "third waits for phase 0 of taken"),
    ),
    "keeps them": ("setmaxnreg", ("second (_=0) waits for setmaxnreg", "first has 232")),
    "keeps them until the other is done": (
        "setmaxnreg",
        ("first (_=0) waits for phase 0 of back", "first has 232"),
    ),
    "asks for more than is there": (
        "setmaxnreg",
        ("asks for 2304 more, the pool has 1280 of 384 × 168",),
    ),
    "asks without waiting": (
        "setmaxnreg",
        ("some of its warps got theirs", "each group gets a part", "warps of first: 168 → 232"),
    ),
    "two without a sync": ("setmaxnreg-sync", ("self.sync()",)),
}
POOL_REFUSED = {
    "a lower budget by one path": ("setmaxnreg-action", "168 or 200"),
    "dec to more": ("setmaxnreg-action", "have 168"),
}
GROUPS = {
    "registers over the pool": "setmaxnreg-pool",
    "setmaxnreg in a partial group": "setmaxnreg-group",
    "overlapping groups": "group-overlap",
    "a group beyond the CTA": "group-threads",
    "a register tensor around smaller groups": "group-collective",
    "expect by every thread": "expect-tx-threads",
    "sync by one thread": "one-thread",
    "a register tensor in one thread": "one-thread",
    "used outside its group": "undefined-name",
    "a misspelt instruction": "unknown-instruction",
}
PRODUCTS = {
    "accumulator read in flight": "in-flight",
    "register operand in flight over the loop's end": "register-operand",
    "fp8 not K-major": "wgmma-major",
    "int8 into floats": "wgmma-dtype",
    "M of 32": "wgmma-m",
    "wgmma by two warp groups": "wgmma-group",
    "stride of 8 bytes": "tma-view",
    "view depends on blockIdx": "tma-view",
    "two orders of one tensor": "layout-conflict",
    "shared memory over": "shared-memory",
    "slot out of range": "slot-index",
    "copy of another shape": "offset-count",
    "N of 12": "wgmma-n",
    "K of 8": "wgmma-k",
    "K disagrees": "wgmma-shape",
    "box of another dtype": "tma-shape",
    "tile of another shape": "store-shape",
}


# What a message must say, of the mistakes that are made most: what was found, and what to do.
SAID = {
    ("ring", "consumer starts with phase 1"): ("nothing wrote", "phase -1 of full[0]", "who reads begins with phase 0"),
    ("ring", "producer starts with phase 0"): ("phase 0 of empty[0]", "lacks 8 of 8", "who fills slots begins with 1"),
    ("ring", "phase never flips"): ("a whole phase further", "flips each time the ring comes round"),
    ("ring", "no arrival at full"): ("lacks 1 of 1 arrivals", "32768 bytes that came already", "a missing arrive_and_expect_tx"),
    ("ring", "no expect"): ("issues a copy that completes at full[0]", "arrive_and_expect_tx before the copy"),
    ("ring", "too few bytes"): ("nothing wrote", "the wait for their own phase is missing", "phase 0 of full[0] completed without them", "leaves their bytes out"),
    ("ring", "too many bytes"): ("an arrival at full[0] by producer", "lacks 16384 bytes (0 of them", "expect-tx and the copies differ by 16384"),
    ("ring", "released before the wait"): ("earlier read by consumer", "wgmma.wait_group first, then the arrival"),
    ("ring", "no wait for empty"): ("arrives at full[0] in phase 1", "the barrier's count", "or one arrives twice", "the slot's release"),
    ("ring", "no wait for full"): ("nothing wrote", "wait for the mbarrier"),
    ("ring", "last product never waited for"): ("self.wgmma.commit_group()", "self.wgmma.wait_group(0)"),
    ("ring", "empty count short"): ("4 times together", "complete after 3", "made for 7", "the barrier's count"),
    ("ring", "empty count over"): ("lacks 1 of 9 arrivals", "only 8 of 9 arrivals come: wrong count", "leaves this round out", "an arrival at empty[0] by consumer", "the barrier's count"),
    ("ring", "one load too many"): ("phase 0 of full[1]", "leave the last copies out"),
    ("ring", "no wgmma fence"): ("touched after the last", "self.wgmma.fence()"),
    ("store", "no proxy fence"): ("not made visible to the async proxy", "self.fence.proxy_async()"),
    ("store", "buffer reused while read"): ("earlier read", "later write", "self.tma.wait_group(0)"),
    ("store", "exit while the store reads"): ("may still read", "self.tma.wait_group(0)"),
    ("turns", "turn of one group"): ("named barrier 4", "counts 256 threads", "before counted 128"),
    ("multicast", "no sync at the end"): ("may have ended by then", "ends without waiting for it", "self.cluster.sync()"),
    ("exchange", "exit while the peer may read"): ("may have ended by then", "self.cluster.sync()"),
}  # fmt: skip


def placed(script: Any, args: list[Any]) -> Any:
    return script._lowered(script._request(script.bind(args, {}), "sm_90a")).placed


@functools.cache
def ring_report(bug: str) -> CheckReport:
    x = np.zeros((64, 64), ml_dtypes.bfloat16)
    return check(placed(Ring(bug), [x, x, x, 64, 64, 64]))


@functools.cache
def store_report(bug: str) -> CheckReport:
    x = np.zeros((64, 64), np.float16)
    return check(placed(Store(bug), [x, x, 64, 64]))


def multicast_report(bug: str) -> CheckReport:
    x = np.zeros((64, 64), ml_dtypes.bfloat16)
    return check(placed(Multicast(bug), [x, x, x, 128, 128, 64]))


def exchange_report(bug: str) -> CheckReport:
    x = np.zeros((64, 32), np.float32)
    return check(placed(Exchange(bug), [x, x, 64]))


@functools.cache
def turns_report(bug: str) -> CheckReport:
    x = np.zeros((64, 64), np.float16)
    return check(placed(Turns(bug), [x, x, 64, 64]))


@functools.cache
def registers_report(bug: str) -> CheckReport:
    x = np.zeros((64, 64), np.float16)
    return check(placed(Registers(bug), [x, x, x, 128]))


@functools.cache
def pool_report(bug: str) -> CheckReport:
    return check(placed(Pool(bug), [np.zeros(64, np.float32), 64]))


REPORTS = {
    "ring": ring_report,
    "store": store_report,
    "turns": turns_report,
    "multicast": multicast_report,
    "exchange": exchange_report,
}


def test_the_originals_are_right() -> None:
    assert pool_report("").ok, str(pool_report(""))
    assert turns_report("").ok, str(turns_report(""))
    assert registers_report("").ok, str(registers_report(""))
    assert multicast_report("").ok, str(multicast_report(""))
    assert exchange_report("").ok, str(exchange_report(""))
    assert ring_report("").ok, str(ring_report(""))
    assert store_report("").ok, str(store_report(""))


def _judge(report: CheckReport, code: str) -> None:
    assert report.diagnostics, f"missed: {report}"
    first = report.diagnostics[0]
    assert first.loc is not None and linecache.getline(first.loc.file, first.loc.line).strip()
    if code:
        assert first.code == code, str(first)
    if first.code in ("race", "proxy-fence"):
        assert len(first.notes) == 2 and all(n.loc is not None for n in first.notes)


@pytest.mark.parametrize("bug", RING)
@pytest.mark.each(2)
def test_ring(bug: str) -> None:
    _judge(ring_report(bug), RING[bug])


def test_an_accumulator_that_no_group_holds_is_refused() -> None:
    with pytest.raises(CompileError) as e:
        ring_report("no commit")
    assert e.value.code == "in-flight" and "commit_group" in str(e.value)


ARRIVALS = {"thread": 128, "warp": 4, "one": 1}  # of a group of 128 threads
FORMS = [(form, by) for form in ("local", "remote", "multicast") for by in ARRIVALS]


@pytest.mark.parametrize(("form", "by"), every(2, FORMS))
@pytest.mark.each(2)
def test_counts_of_arrivals(form: str, by: str) -> None:
    """Only the right one passes; where some threads of the group complete the phase, that is what is said."""
    arrivals = ARRIVALS[by]
    right = arrivals * (1 + (form == "multicast"))
    x = np.zeros(1024, np.float32)
    case = [((x, 3), 1)]
    for count in sorted({right - 1, right, right + 1, 127, 129, 1, 2, 4, 32, 64, 128} - {0}):
        report = check(placed(Counted(form, by, count), [x, 3]), case)
        assert report.ok == (count == right), f"{count}: {report}"
        if count != right:
            _judge(report, "split-arrival" if count % arrivals and count < right else "")


@pytest.mark.parametrize(("form", "by"), FORMS)
@pytest.mark.each(2)
def test_arrivals_that_count_several_times(form: str, by: str) -> None:
    x, times = np.zeros(1024, np.float32), 3
    right = times * ARRIVALS[by] * (1 + (form == "multicast"))
    for count in (right - 1, right, right + 1, right // times):
        kernel = Counted(form, by, count, times)
        report = check(placed(kernel, [x, 3]), [((x, 3), 1)])
        assert report.ok == (count == right), f"{count}: {report}"
    built = Counted(form, by, right, times).compile(["*fp32:16", "i32"])
    assert "_many(" in built.cuda and ", 3);" in built.cuda


@pytest.mark.parametrize("bug", STORE)
def test_store(bug: str) -> None:
    _judge(store_report(bug), STORE[bug])


@pytest.mark.parametrize("bug", MULTICAST)
@pytest.mark.each(2)
def test_multicast(bug: str) -> None:
    _judge(multicast_report(bug), MULTICAST[bug])


@pytest.mark.parametrize("bug", EXCHANGE)
def test_exchange(bug: str) -> None:
    _judge(exchange_report(bug), EXCHANGE[bug])


@pytest.mark.parametrize("bug", CLUSTERS_REFUSED)
def test_refused_clusters(bug: str) -> None:
    with pytest.raises(CompileError) as e:
        multicast_report(bug)
    assert e.value.code == CLUSTERS_REFUSED[bug], str(e.value)
    assert e.value.loc is not None and e.value.loc.file.endswith("cluster.py")


@pytest.mark.parametrize("bug", ["no sync after init", "no sync at the end"])
def test_both_lines_of_a_cluster_hazard_are_named(bug: str) -> None:
    first = multicast_report(bug).diagnostics[0]
    assert first.loc is not None and first.help
    assert any(n.loc is not None and n.loc.line != first.loc.line for n in first.notes)


@pytest.mark.parametrize("bug", TURNS)
def test_turns(bug: str) -> None:
    """Ping-pong: both groups are named, and where they stand."""
    report = turns_report(bug)
    _judge(report, TURNS[bug])
    text = str(report)
    assert "writer[0]" in text and "writer[1]" in text and "turns.py:" in text
    if TURNS[bug] == "deadlock":
        assert "an arrival that nobody makes or that goes to another barrier" in text


@pytest.mark.parametrize("bug", REGISTERS)
def test_registers(bug: str) -> None:
    _judge(registers_report(bug), REGISTERS[bug])


@pytest.mark.parametrize("bug", POOL)
def test_pool(bug: str) -> None:
    """Registers that run dry: who asks, who has what, where, and why."""
    code, words = POOL[bug]
    report = pool_report(bug)
    _judge(report, code)
    assert all(w in str(report) for w in words), str(report)


@pytest.mark.parametrize("bug", POOL)
def test_pool_where_all_orders_are_explored(bug: str) -> None:
    func = placed(Pool(bug), [np.zeros(64, np.float32), 64])
    found = explore(simulation(func, Case((np.zeros(64, np.float32), 16), (1,)), 0, False))
    assert {f.error.code for f in found.failures} == {POOL[bug][0]}


@pytest.mark.parametrize("bug", POOL_REFUSED)
def test_refused_changes_of_registers(bug: str) -> None:
    code, words = POOL_REFUSED[bug]
    with pytest.raises(CompileError) as e:
        pool_report(bug)
    assert e.value.code == code and words in str(e.value) and e.value.help
    assert e.value.loc is not None and e.value.loc.file.endswith("pool.py")


def test_registers_taken_in_turns() -> None:
    """In a loop of any length: the pool's state recurs, too."""
    report = pool_report("takes turns in a loop")
    assert report.ok, str(report)
    assert {2} == set(report.recurring.values()) and not report.not_recurring


@pytest.mark.parametrize("bug", sorted({*RING, *TURNS, *POOL} - {"two in flight"}))
@pytest.mark.each(3)
def test_what_fails_is_repeated(bug: str, tmp_path: Path) -> None:
    """The interleaving that is kept fails again, in another process's words the same."""
    made = ring_report if bug in RING else turns_report if bug in TURNS else pool_report
    report = made(bug)
    (failure, *_) = report.failures
    assert failure.interleaving is not None
    failure.save(tmp_path / "kept")
    again = replay(tmp_path / "kept")
    assert again is not None and again.code == failure.interleaving.error.code
    assert again.message == failure.interleaving.error.message


@pytest.mark.parametrize(("kernel", "bug"), SAID, ids=lambda x: x)
def test_what_is_said(kernel: str, bug: str) -> None:
    """Where, with the line and a caret, what was expected, what was found, and what to do."""
    error = REPORTS[kernel](bug).diagnostics[0]
    text = str(error)
    assert error.help and f"\nhelp: {error.help}" in text and "^^^" in text
    for words in SAID[kernel, bug]:
        assert words in text, text


def _refused(script: Any, args: list[Any], code: str, bug: str) -> None:
    with pytest.raises(CompileError) as e:
        placed(script, args)
    assert e.value.code == code, str(e.value)
    assert e.value.loc is not None and e.value.help
    assert e.value.loc.file.endswith("refused.py")


@pytest.mark.parametrize("bug", GROUPS)
def test_groups(bug: str) -> None:
    _refused(Groups(bug), [np.zeros(64, np.float32), 64], GROUPS[bug], bug)


@pytest.mark.parametrize("bug", PRODUCTS)
def test_products(bug: str) -> None:
    args = [np.zeros(4096, np.float16), np.zeros(4096, ml_dtypes.float8_e4m3fn), 64]
    _refused(Products(bug), args, PRODUCTS[bug], bug)


def test_both_lines_of_a_layout_conflict_are_named() -> None:
    args = [np.zeros(4096, np.float16), np.zeros(4096, ml_dtypes.float8_e4m3fn), 64]
    with pytest.raises(CompileError) as e:
        placed(Products("two orders of one tensor"), args)
    (note,) = e.value.notes
    assert e.value.loc is not None and note.loc is not None
    assert e.value.loc.line != note.loc.line
