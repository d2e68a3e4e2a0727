"""`attend` and the tuned attention under odd arguments, against float64, and under bad ones: refused by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from tests.softmax import expected
from warploom.errors import LaunchError
from warploom.kernels.attention import attend, attention, grid_of, section_of

BF16, F16 = ml_dtypes.bfloat16, np.float16
RANDOM = np.random.default_rng(0)


def nan(*shape: int, dtype: Any = BF16) -> Any:
    return np.full(shape, np.nan, dtype)


def heads_of(heads: int, seq: int, d: int, dtype: Any = BF16) -> Any:
    return RANDOM.standard_normal((heads, seq, d)).astype(dtype)


def attended(q: Any, k: Any, v: Any, o: Any = None, **more: Any) -> tuple[Any, Any]:
    """O and log Σ exp, each NaN before."""
    o = nan(*q.shape, dtype=q.dtype) if o is None else o
    lse = more.pop("lse", nan(*q.shape[:2], dtype=np.float32))
    counter = more.pop("counter", np.zeros(2, np.int32))
    attend(q, k, v, o, lse, counter, **{"programs": 3, "want_lse": True, **more})
    return o, lse


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    "heads, heads_kv, seq, d, dtype",
    [(2, 2, 40, 64, BF16), (4, 2, 130, 16, F16), (3, 1, 1, 96, BF16), (2, 1, 70, 128, F16)],
)
def test_attend(heads: int, heads_kv: int, seq: int, d: int, dtype: Any, causal: bool) -> None:
    q = heads_of(heads, seq, d, dtype)
    k, v = (heads_of(heads_kv, seq, d, dtype) for _ in range(2))
    o, lse = attended(q, k, v, causal=causal)
    wanted, logs = expected(q, k, v, causal)
    assert np.linalg.norm(o.astype(float) - wanted) < 6e-3 * np.linalg.norm(wanted)
    np.testing.assert_allclose(lse, logs, atol=2e-5)


@pytest.mark.parametrize("heads, seq", [(0, 40), (2, 0)])
def test_attend_to_nothing(heads: int, seq: int) -> None:
    o, lse = attended(*(heads_of(heads, seq, 64) for _ in range(3)))
    assert o.size == lse.size == 0


def test_attend_on_arrays_that_are_flat_or_loose_where_it_makes_no_difference() -> None:
    """A log Σ exp without axes, and one head, whose stride is nobody's."""
    q, k, v = (heads_of(1, 40, 64) for _ in range(3))
    loose = as_strided(q, q.shape, (6, *q.strides[1:]))
    _, lse = attended(loose, k, v, lse=nan(40, dtype=np.float32))
    np.testing.assert_allclose(lse, expected(q, k, v, False)[1].ravel(), atol=2e-5)


def test_attend_without_lse() -> None:
    q, k, v = (heads_of(2, 40, 64) for _ in range(3))
    o, _ = attended(q, k, v, lse=None, want_lse=False)
    assert np.linalg.norm(o.astype(float) - expected(q, k, v, False)[0]) < 0.1


Q, K, V = (heads_of(4, 40, 64) for _ in range(3))
BY_TOKEN = heads_of(40, 4, 64).transpose(1, 0, 2)  # as PyTorch's users have it
BAD_ATTENTION: dict[str, tuple[Callable[[], Any], str]] = {
    "q by tokens": (
        lambda: attended(BY_TOKEN, K, V),
        r"attention: q is of shape \(4, 40, 64\) and strides \(64, 256, 1\), not \(4, 40, 64\), row-major and "
        r"without gaps\nhelp: pass q\.contiguous\(\)",
    ),
    "v by tokens": (lambda: attended(Q, K, BY_TOKEN), "attention: v is of shape"),
    "o by tokens": (
        lambda: attended(Q, K, V, nan(40, 4, 64).transpose(1, 0, 2)),
        r"attention: o is of shape \(4, 40, 64\) and strides \(64, 256, 1\), not \(4, 40, 64\), row-major and "
        r"without gaps\nhelp: allocate o whole: the result would be in its copy alone",
    ),
    "d not the last": (
        lambda: attended(Q, heads_of(4, 64, 40).transpose(0, 2, 1), V),
        r"k is of shape \(4, 40, 64\) and strides \(2560, 1, 40\)",
    ),
    "expanded heads": (
        lambda: attended(Q, np.broadcast_to(K[:1], K.shape), V),
        r"k is of shape \(4, 40, 64\) and strides \(0, 64, 1\)",
    ),
    "rows in part": (lambda: attended(Q, K, heads_of(4, 40, 128)[..., :64]), "v is of shape"),
    "four axes": (
        lambda: attended(Q[None], K, V),
        r"attend: q is of shape \(1, 4, 40, 64\), not \(heads, seq, d\)",
    ),
    "longer k": (
        lambda: attended(Q, heads_of(4, 50, 64), heads_of(4, 50, 64)),
        r"k is of shape \(4, 50, 64\), not \(4, 40, 64\)",
    ),
    "shorter v": (lambda: attended(Q, K, V[:, :30]), r"v is of shape \(4, 30, 64\)"),
    "heads": (
        lambda: attended(Q, K[:3], V[:3]),
        "attend: k is of 3 heads, not as many as q, 4, or a divisor",
    ),
    "no heads": (lambda: attended(Q, K[:0], V[:0]), r"k is of shape \(0, 40, 64\)"),
    "head size": (
        lambda: attended(*(heads_of(4, 40, 24) for _ in "qkv")),
        "attend: d is 24, not one of 16, 32",
    ),
    "large heads": (
        lambda: attended(*(heads_of(4, 40, 256) for _ in "qkv")),
        "d is 256, not one of",
    ),
    "no head size": (
        lambda: attended(*(heads_of(4, 40, 0) for _ in "qkv")),
        "attend: d is 0, not one of",
    ),
    "f32": (lambda: attended(*(x.astype(np.float32) for x in (Q, K, V))), "q is of f32"),
    "dtypes": (lambda: attended(Q, K, V.astype(F16)), "v is of f16, not bf16"),
    "o is q": (lambda: attended(Q, K, V, Q), "o is in the same memory as q"),
    "o is part of v": (
        lambda: attended(Q, V[:2], V[2:], V),
        "attention: o is in the same memory as k",
    ),
    "lse of halves": (lambda: attended(Q, K, V, lse=nan(4, 40)), "lse is of bf16, not f32"),
    "lse of one head": (
        lambda: attended(Q, K, V, lse=nan(40, dtype=np.float32)),
        r"lse is of shape \(40,\)",
    ),
    "no lse": (lambda: attended(Q, K, V, lse=None), "lse is a NoneType, not an array"),
    "counter": (
        lambda: attended(Q, K, V, counter=np.zeros(1, np.int32)),
        r"counter is of shape \(1,\)",
    ),
    "long counter": (
        lambda: attended(Q, K, V, counter=np.zeros(2, np.int64)),
        "counter is of i64, not i32",
    ),
    "parts": (lambda: attended(Q, K, V, parts=nan(9)), "parts is of bf16, not f32"),
    "programs": (
        lambda: attended(Q, K, V, programs=0),
        "attend: programs is 0, not a whole number from 1",
    ),
    "scale": (
        lambda: attended(Q, K, V, scale=float("nan")),
        "attend: scale is nan, not a finite number",
    ),
    "a list": (
        lambda: attend([1], K, V, Q, None, None, programs=3),
        "attend: q is a list, not an array",
    ),
}


@pytest.mark.parametrize("case", BAD_ATTENTION)
def test_attend_refuses(case: str) -> None:
    call, text = BAD_ATTENTION[case]
    before = Q.copy(), V.copy()
    with pytest.raises(LaunchError, match=text):
        call()
    np.testing.assert_array_equal(Q, before[0])
    np.testing.assert_array_equal(V, before[1])


def test_the_tuned_kernel_refuses_as_well() -> None:
    rest = nan(4, 40, dtype=np.float32), np.zeros(2, np.int32), 4, 40, section_of(4, 40, 64), 0.125
    grid = grid_of(4, 40, 3)
    with pytest.raises(
        LaunchError, match=r"q is of shape \(4, 40, 64\) and strides \(64, 256, 1\)"
    ):
        attention[grid](BY_TOKEN, K, V, nan(4, 40, 64), *rest, D=64, CAUSAL=True)
    o = nan(4, 40, 64)
    attention[grid](Q, K, V, o, *rest, D=64, CAUSAL=True)
    assert not np.isnan(o.astype(float)).any()
