"""A product over a part of K, which begins where the launch says."""

from typing import Any

import warploom as wl
import warploom.language as tl


@wl.jit
def part_of_k(
    a_ptr: Any,
    b_ptr: Any,
    c_ptr: Any,
    N: Any,
    lo: Any,
    hi: Any,
    stride_a: Any,
    stride_b: Any,
    BLOCK: tl.constexpr,
    STEP: tl.constexpr,
) -> None:
    """C = A[:, lo:hi]·B[:, lo:hi]ᵀ, one block of C a program."""
    offs_m = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.arange(0, BLOCK)
    offs_k = lo + tl.arange(0, STEP)
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for _k in range(lo, hi, STEP):
        left = offs_k[None, :] < hi
        a = tl.load(a_ptr + offs_m[:, None] * stride_a + offs_k[None, :], mask=left, other=0.0)
        b = tl.load(b_ptr + offs_n[:, None] * stride_b + offs_k[None, :], mask=left, other=0.0)
        acc += tl.dot(a, b.T)
        offs_k += STEP
    tl.store(c_ptr + offs_m[:, None] * N + offs_n[None, :], acc)
