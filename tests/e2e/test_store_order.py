"""Stores of one program happen in its order, also where different threads make them."""

from __future__ import annotations

import numpy as np

import warploom as wl
import warploom.language as tl


@wl.jit
def triangle(x_ptr, out_ptr, N: tl.constexpr):
    """Column by column, a row's element from the thread that holds its sum; then zeros above the diagonal,
    from whoever holds the element."""
    at = tl.arange(0, N)
    for j in range(N):
        row = tl.load(x_ptr + at[:, None] * N + at[None, :]) * j
        tl.store(out_ptr + at * N + j, tl.sum(row, 1))
    tl.store(
        out_ptr + at[:, None] * N + at[None, :], tl.zeros((N, N), tl.float32), mask=at[:, None] < at
    )


def test_a_barrier_parts_stores_of_different_threads() -> None:
    x, out = np.ones((16, 16), np.float32), np.empty((16, 16), np.float32)
    compiled = triangle.compile_for(x, out, N=16, grid=(1,), num_warps=4)
    _, *after = compiled.cuda.split("__global__")[1].split("store_global32(")
    assert ["__syncthreads()" in text for text in after] == [True, False, False]
    compiled.simulate(x, out, grid=(1,), seed=1)
    assert (out == np.tril(np.full((16, 16), 16.0) * np.arange(16))).all()
