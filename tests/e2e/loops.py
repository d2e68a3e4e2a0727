"""Kernels of one program each, whose loops and branches are not a plain product's.  A is M×K, B K×N, C M×N float32,
all contiguous; K is a run-time number, zero included."""

from __future__ import annotations

from typing import Any

import warploom as wl
import warploom.language as tl


@wl.jit
def a_block(a_ptr: Any, K: Any, k: Any, BM: tl.constexpr, BK: tl.constexpr) -> Any:
    ks = k + tl.arange(0, BK)
    at = a_ptr + tl.arange(0, BM)[:, None] * K + ks[None, :]
    return tl.load(at, mask=(ks < K)[None, :], other=0.0)


@wl.jit
def b_block(b_ptr: Any, K: Any, k: Any, BN: tl.constexpr, BK: tl.constexpr) -> Any:
    ks = k + tl.arange(0, BK)
    at = b_ptr + ks[:, None] * BN + tl.arange(0, BN)[None, :]
    return tl.load(at, mask=(ks < K)[:, None], other=0.0)


@wl.jit
def put(c_ptr: Any, acc: Any, BM: tl.constexpr, BN: tl.constexpr) -> None:
    tl.store(c_ptr + tl.arange(0, BM)[:, None] * BN + tl.arange(0, BN)[None, :], acc)


@wl.jit
def two_phases(
    a_ptr: Any, b_ptr: Any, c_ptr: Any, K: Any, cut: Any, BM: tl.constexpr, BN: tl.constexpr,
    BK: tl.constexpr,
) -> None:  # fmt: skip
    """Up to block `cut` as it is, behind it with the elements below the diagonal of each block left out."""
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, cut * BK, BK):
        acc = tl.dot(a_block(a_ptr, K, k, BM, BK), b_block(b_ptr, K, k, BN, BK), acc)
    for k in range(cut * BK, K, BK):
        b = b_block(b_ptr, K, k, BN, BK)
        above = tl.arange(0, BK)[:, None] <= tl.arange(0, BN)[None, :]
        acc = tl.dot(a_block(a_ptr, K, k, BM, BK), tl.where(above, b, 0.0), acc)
    put(c_ptr, acc, BM, BN)


@wl.jit
def plain_phases(
    a_ptr: Any, b_ptr: Any, c_ptr: Any, K: Any, cut: Any, BM: tl.constexpr, BN: tl.constexpr,
    BK: tl.constexpr,
) -> None:  # fmt: skip
    """Two loops on one accumulator, which is doubled between them."""
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, cut * BK, BK):
        acc = tl.dot(a_block(a_ptr, K, k, BM, BK), b_block(b_ptr, K, k, BN, BK), acc)
    acc = acc * 2.0
    for k in range(cut * BK, K, BK):
        acc = tl.dot(a_block(a_ptr, K, k, BM, BK), b_block(b_ptr, K, k, BN, BK), acc)
    put(c_ptr, acc, BM, BN)


@wl.jit
def rescaled(
    a_ptr: Any, b_ptr: Any, c_ptr: Any, K: Any, cut: Any, BM: tl.constexpr, BN: tl.constexpr,
    BK: tl.constexpr,
) -> None:  # fmt: skip
    """The accumulator is negated before every step from `cut` on."""
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        acc = acc * tl.where(k >= cut * BK, -1.0, 1.0)
        acc = tl.dot(a_block(a_ptr, K, k, BM, BK), b_block(b_ptr, K, k, BN, BK), acc)
    put(c_ptr, acc, BM, BN)


@wl.jit
def either_arm(
    a_ptr: Any, b_ptr: Any, c_ptr: Any, K: Any, cut: Any, BM: tl.constexpr, BN: tl.constexpr,
    BK: tl.constexpr,
) -> None:  # fmt: skip
    """A dot in each arm of an if, the second one on a negated operand."""
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        if k < cut * BK:
            acc = tl.dot(a_block(a_ptr, K, k, BM, BK), b_block(b_ptr, K, k, BN, BK), acc)
        else:
            a = a_block(a_ptr, K, k, BM, BK)
            acc = tl.dot(-a, b_block(b_ptr, K, k, BN, BK), acc)
    put(c_ptr, acc, BM, BN)


@wl.jit
def twice_on_one(
    a_ptr: Any, b_ptr: Any, c_ptr: Any, K: Any, cut: Any, BM: tl.constexpr, BN: tl.constexpr,
    BK: tl.constexpr,
) -> None:  # fmt: skip
    """Two dots of different blocks on one accumulator in every step; behind the end there are zeros."""
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, 2 * BK):
        acc = tl.dot(a_block(a_ptr, K, k, BM, BK), b_block(b_ptr, K, k, BN, BK), acc)
        j = k + BK
        acc = tl.dot(a_block(a_ptr, K, j, BM, BK), b_block(b_ptr, K, j, BN, BK), acc)
    put(c_ptr, acc, BM, BN)


@wl.jit
def needed_by_both(
    a_ptr: Any, b_ptr: Any, c_ptr: Any, starts_ptr: Any, K: Any, cut: Any, BM: tl.constexpr,
    BN: tl.constexpr, BK: tl.constexpr,
) -> None:  # fmt: skip
    """Which block a step takes is read from memory: the loads need it for their address, the sum for its sign."""
    acc = tl.zeros((BM, BN), tl.float32)
    for step in range(tl.cdiv(K, BK)):
        k = tl.load(starts_ptr + step)
        d = tl.dot(a_block(a_ptr, K, k, BM, BK), b_block(b_ptr, K, k, BN, BK))
        acc += tl.where(k < cut * BK, d, -d)
    put(c_ptr, acc, BM, BN)


@wl.jit
def column_sums(
    a_ptr: Any, b_ptr: Any, c_ptr: Any, K: Any, cut: Any, BM: tl.constexpr, BN: tl.constexpr,
    BK: tl.constexpr,
) -> None:  # fmt: skip
    """Every step's product less the sums of its columns: a reduction along M, which groups would share."""
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        d = tl.dot(a_block(a_ptr, K, k, BM, BK), b_block(b_ptr, K, k, BN, BK))
        acc += d - tl.sum(d, axis=0)[None, :]
    put(c_ptr, acc, BM, BN)


@wl.jit
def nested(
    a_ptr: Any, b_ptr: Any, c_ptr: Any, K: Any, cut: Any, BM: tl.constexpr, BN: tl.constexpr,
    BK: tl.constexpr,
) -> None:  # fmt: skip
    """A loop in a loop, the outer one `cut` + 1 times: the whole product so often, less what came before it."""
    acc = tl.zeros((BM, BN), tl.float32)
    for _ in range(cut + 1):
        inner = tl.zeros((BM, BN), tl.float32)
        for k in range(0, K, BK):
            inner = tl.dot(a_block(a_ptr, K, k, BM, BK), b_block(b_ptr, K, k, BN, BK), inner)
        acc = inner - acc
    put(c_ptr, acc, BM, BN)


@wl.jit
def carried_load(
    a_ptr: Any, b_ptr: Any, c_ptr: Any, K: Any, cut: Any, BM: tl.constexpr, BN: tl.constexpr,
    BK: tl.constexpr,
) -> None:  # fmt: skip
    """A's next block is loaded a step ahead, by hand."""
    acc = tl.zeros((BM, BN), tl.float32)
    a = a_block(a_ptr, K, 0, BM, BK)
    for k in range(0, K, BK):
        ahead = a_block(a_ptr, K, k + BK, BM, BK)
        acc = tl.dot(a, b_block(b_ptr, K, k, BN, BK), acc)
        a = ahead
    put(c_ptr, acc, BM, BN)


@wl.jit
def while_some(
    a_ptr: Any, b_ptr: Any, c_ptr: Any, K: Any, cut: Any, BM: tl.constexpr, BN: tl.constexpr,
    BK: tl.constexpr,
) -> None:  # fmt: skip
    """A while loop whose steps double."""
    acc = tl.zeros((BM, BN), tl.float32)
    k = 0
    step = 1
    while k < K:
        acc = tl.dot(a_block(a_ptr, K, k, BM, BK), b_block(b_ptr, K, k, BN, BK), acc)
        k += step * BK
        step = step * 2
    put(c_ptr, acc, BM, BN)


@wl.jit
def chained(
    a_ptr: Any, b_ptr: Any, c_ptr: Any, K: Any, cut: Any, BM: tl.constexpr, BN: tl.constexpr,
    BK: tl.constexpr,
) -> None:  # fmt: skip
    """max(A·B block, 0) times the block's transpose: the second dot waits for the first; not at all in the steps
    before `cut`."""
    acc = tl.zeros((BM, BK), tl.float32)
    for k in range(0, K, BK):
        if k >= cut * BK:
            a = a_block(a_ptr, K, k, BM, BK)
            b = b_block(b_ptr, K, k, BN, BK)
            s = tl.maximum(tl.dot(a, b), 0.0)
            acc = tl.dot(s.to(b_ptr.dtype.element_ty), b.T, acc)
    put(c_ptr, acc, BM, BK)
