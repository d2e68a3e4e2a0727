"""What check() says of the explicit kernels, and how long it takes; docs/checker.md has the figures.

Times are of the processor, several times what they are here on an idle machine."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.explicit.broken.cluster import Multicast
from tests.explicit.broken.ring import Ring
from tests.pairwise import every
from warploom.check import Case, CheckReport, check
from warploom.ir.core import Func
from warploom.kernels.explicit.attention import Attention
from warploom.kernels.explicit.gemm import Gemm


def placed(script: Any, args: list[Any]) -> Func:
    func: Func = script._lowered(script._request(script.bind(args, {}), "sm_90a")).placed
    return func


def ring(depth: int) -> Func:
    x = np.zeros((128, 128), ml_dtypes.bfloat16)
    return placed(Gemm(block_n=128, stages=depth, programs=2), [x, x, x, 128, 128, 128])


def timed(run: Callable[[], CheckReport]) -> tuple[CheckReport, float]:
    start = time.process_time()
    return run(), time.process_time() - start


@pytest.mark.parametrize("depth", every(2, [2, 3, 4]))
@pytest.mark.each(2)
def test_a_ring_with_two_consumers_is_proved(depth: int) -> None:
    func = ring(depth)
    report, seconds = timed(lambda: check(func))
    assert report.ok, str(report)
    assert seconds < 10
    assert report.bound > 1000 and not report.explored
    assert 2 * depth in report.recurring.values() and not report.not_recurring
    assert f"{report.bound} arrivals, copies and waits, each bound to one full phase" in str(report)


def test_where_the_proof_holds_one_interleaving_is_all_there_is() -> None:
    """The exploration knows nothing of the proof: it finds no two steps that could change places."""
    func = ring(2)
    x = np.zeros(1, ml_dtypes.bfloat16)
    cases = [Case((x, x, x, m, 128, k), (1,)) for m, k in ((128, 0), (128, 320), (256, 192))]
    report = check(func, cases, exhaustive=True)
    assert report.ok and len(report.explored) == 3
    assert all(e.interleavings == 1 and e.is_complete for e in report.explored)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.each(2)
def test_attention_is_explored(causal: bool) -> None:
    """Ping-pong by named barriers, tiles drawn from a counter that programs share."""
    kernel = Attention(causal=causal)
    x, lse = np.zeros(16, ml_dtypes.bfloat16), np.zeros(4, np.float32)
    counter = np.zeros(2, np.int32)
    func = placed(kernel, [x, x, x, x, lse, counter, 2, 130, 0.1])
    sizes = ((1, 1), (1, 200), (3, 100))  # heads, rows: 1, 2 and 3 tiles
    cases = [
        Case((x, x, x, x, lse, counter, n, rows, 0.1), (min(2, n * -(-rows // kernel.rows)),))
        for n, rows in sizes
    ]
    report, seconds = timed(lambda: check(func, cases))
    assert report.ok, str(report)
    assert seconds < 10
    alone = [e for e in report.explored if "together" not in e.why]
    together = [e for e in report.explored if "together" in e.why]
    assert not alone  # ping-pong: one order, whatever happens; the loader alone draws
    # Which program draws first matters, and which leaves last: two by two, and with a third tile again two.
    assert [e.interleavings for e in together] == [4, 8]
    assert all(e.is_complete and e.states > 500 for e in together)
    assert "12 interleavings" in str(report)


def test_a_wrong_barrier_is_named_within_seconds() -> None:
    """From the source to the message, translation and passes included."""
    x = np.zeros((64, 64), ml_dtypes.bfloat16)

    def run() -> CheckReport:
        return check(placed(Ring("two groups, one release"), [x, x, x, 64, 64, 64]))

    report, seconds = timed(run)
    assert seconds < 5
    text = str(report)
    assert "empty[0]" in text and "4 of 8 arrivals" in text and "likely cause" in text
    assert "consumer[1]" in text and "producer" in text and "ring.py" in text


def test_clusters_are_explored() -> None:
    """CTAs of a cluster are processes like all others: one interleaving where it is right, and a late
    release that frees a slot too early for the other CTA is met in some order."""
    x = np.zeros((128, 128), ml_dtypes.bfloat16)
    args = [x, x, x, 128, 128, 128]
    cases = [Case((x, x, x, 128, 128, k), (1,)) for k in (0, 128, 320)]
    right = check(placed(Multicast(), args), cases, exhaustive=True)
    assert right.ok and [e.interleavings for e in right.explored] == [1, 1, 1]
    wrong = check(placed(Multicast("empty counts one CTA"), args), cases)
    (failure,) = wrong.failures
    assert failure.error.code == "unbound-arrival" and failure.interleaving is not None
    assert "of CTA 0" in str(wrong) and "of CTA 1" in str(wrong)
