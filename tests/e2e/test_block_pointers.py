"""Block pointers along axes that no boundary_check names: memory is read and written beyond the shape."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import warploom as wl
import warploom.language as tl


@wl.jit
def heads(x_ptr, out_ptr, length, G: tl.constexpr, N: tl.constexpr):  # type: ignore[no-untyped-def]
    """Rows of one group's heads, whose parent says that it has no more than them."""
    first = tl.program_id(0) * G
    x = tl.make_block_ptr(x_ptr, (G, length), (length, 1), (first, 0), (G, N), (1, 0))
    out = tl.make_block_ptr(out_ptr, (G, length), (length, 1), (first, 0), (G, N), (1, 0))
    tile = tl.load(x, boundary_check=(1,), padding_option="nan")
    tl.store(out, tl.where(tile == tile, tile, 7) * 2, boundary_check=(1,))


@wl.jit
def before(x_ptr, out_ptr, start, N: tl.constexpr):  # type: ignore[no-untyped-def]
    """A block that begins ahead of its base."""
    x = tl.make_block_ptr(x_ptr + 64, (N,), (1,), (start,), (N,), (0,))
    tl.store(out_ptr + tl.arange(0, N), tl.load(x))


@wl.jit
def walk(a_ptr, b_ptr, out_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):  # type: ignore[no-untyped-def]
    """A product of the second of two matrices: both parents have the first one's shape."""
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    a = tl.make_block_ptr(a_ptr, (M, K), (K, 1), (M + m, 0), (BM, BK), (1, 0))
    b = tl.make_block_ptr(b_ptr, (K, N), (N, 1), (K, n), (BK, BN), (1, 0))
    out = tl.make_block_ptr(out_ptr, (M, N), (N, 1), (M + m, n), (BM, BN), (1, 0))
    acc = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, K, BK):
        acc = tl.dot(tl.load(a), tl.load(b, boundary_check=(1,)), acc)
        a = tl.advance(a, (0, BK))
        b = tl.advance(b, (BK, 0))
    tl.store(out, acc, boundary_check=(1,))


def forms(
    kernel: Any, arrays: tuple[Any, ...], out: Any, args: tuple[Any, ...], grid: Any, **meta: Any
) -> list[Any]:
    """`out` by the oracle, and by the simulator in three orders."""
    found = []
    compiled = kernel.compile_for(*arrays, out, *args, grid=grid, **meta)
    for order in (None, "early", "late", "reverse"):
        out[...] = 0
        if order is None:
            kernel[grid](*arrays, out, *args, **meta)
        else:
            compiled.simulate(*arrays, out, *args, grid=grid, order=order)
        found.append(out.copy())
    return found


@pytest.mark.parametrize("length", [1, 13, 16])
def test_rows_of_other_heads(length: int) -> None:
    x = np.random.default_rng(0).integers(-9, 9, (24, length)).astype(np.float32)
    for found in forms(heads, (x,), np.zeros_like(x), (length,), (3,), G=8, N=16):
        assert np.array_equal(found, 2 * x)


@pytest.mark.parametrize("start", [-64, -3, 0, 5])
def test_a_start_ahead_of_the_base(start: int) -> None:
    x = np.arange(256, dtype=np.float32)
    for found in forms(before, (x,), np.zeros(128, np.float32), (start,), (1,), N=128):
        assert np.array_equal(found, x[64 + start :][:128])


@pytest.mark.parametrize("columns", [128, 104, 77])
@pytest.mark.parametrize("knobs", [{"num_consumer_groups": 1}, {"num_consumer_groups": 0}], ids=str)
def test_another_matrix(columns: int, knobs: dict[str, Any]) -> None:
    M, N, K = 128, columns, 192
    g = np.random.default_rng(1)
    a, b = (g.integers(-3, 4, s).astype(ml_dtypes.bfloat16) for s in ((2 * M, K), (2 * K, N)))
    want = a[M:].astype(np.float32) @ b[K:].astype(np.float32)
    meta = {"BM": 64, "BN": 128, "BK": 64, **knobs}
    for found in forms(walk, (a, b), np.zeros((2 * M, N), np.float32), (M, N, K), (2, 1), **meta):
        assert np.array_equal(found[M:], want) and not found[:M].any()


@wl.jit
def alternate(x_ptr, y_ptr, out_ptr, n, KIND: tl.constexpr, B: tl.constexpr):  # type: ignore[no-untyped-def]
    """Blocks of two arrays in turn, which a loop hands on."""
    x = tl.make_block_ptr(x_ptr, (n, B), (B, 1), (0, 0), (1, B), (1, 0))
    y = tl.make_block_ptr(y_ptr, (n, B), (B, 1), (0, 0), (1, B), (1, 0))
    a, b = x_ptr, y_ptr
    for i in range(n):
        out = out_ptr + i * B + tl.arange(0, B)
        if KIND == "pointers":
            tl.store(out, tl.load(a + tl.arange(0, B)))
            a, b = b, a
        elif KIND == "blocks":
            tl.store(out, tl.load(x, boundary_check=(0, 1)).reshape(B))
            x, y = y, x
        else:
            tl.store(out, tl.load(x, boundary_check=(0, 1)).reshape(B))
            x, y = tl.advance(y, (1, 0)), x


@pytest.mark.parametrize("kind", ["pointers", "blocks", "blocks that move"])
def test_a_loop_swaps_what_it_reads(kind: str) -> None:
    x = np.arange(5 * 16, dtype=np.float32).reshape(5, 16)
    rows = [0, 1, 1, 2, 2] if kind == "blocks that move" else [0] * 5
    want = np.array([(-x if i % 2 else x)[row] for i, row in enumerate(rows)])
    for found in forms(alternate, (x, -x), np.zeros_like(x), (5,), (1,), KIND=kind, B=16):
        assert np.array_equal(found, want)
