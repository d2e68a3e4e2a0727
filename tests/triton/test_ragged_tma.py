"""Boxes of batches of rows that follow on each other, of any length each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import warploom.triton as triton
import warploom.triton.language as tl
from warploom.errors import CompileError
from warploom.triton.tools import ragged_tma

ragged = ragged_tma.create_ragged_descriptor
ENDS = np.array([0, 70, 70, 133, 190], np.int32)


@triton.jit
def products(
    x: Any,
    y: Any,
    w: Any,
    ends_ptr: Any,
    K: Any,
    BM: tl.constexpr,
    BK: tl.constexpr,
    ADD: tl.constexpr,
) -> None:
    start = tl.load(ends_ptr + tl.program_id(0))
    size = tl.load(ends_ptr + tl.program_id(0) + 1) - start
    for row in range(0, size, BM):
        acc = tl.zeros((BM, w.block_shape[1]), tl.float32)
        for k in range(0, K, BK):
            acc = tl.dot(ragged_tma.load_ragged(x, start, size, [row, k]), w.load([k, 0]), acc)
        if ADD:
            ragged_tma.atomic_add_ragged(y, start, size, [row, 0], acc)
        else:
            ragged_tma.store_ragged(y, start, size, [row, 0], acc)


@pytest.mark.parametrize("add", [False, True])
def test_products_of_batches_leave_other_rows_alone(add: bool) -> None:
    random = np.random.default_rng(0)
    x = random.integers(-3, 4, (200, 104)).astype(np.float16)
    w = random.integers(-2, 3, (104, 64)).astype(np.float16)
    y = np.full((200, 64), 7, np.float32)
    wanted = y.copy()
    wanted[:190] = x[:190].astype(np.float32) @ w.astype(np.float32) + 7 * add
    given = ragged(x, [64, 32]), ragged(y, [64, 64]), ragged(w, [32, 64]), ENDS, 104
    sizes = {"BM": 64, "BK": 32, "ADD": add}
    products[(4,)](*given, **sizes)
    assert np.array_equal(y, wanted)
    compiled = products.compile_for(*given, grid=(4,), **sizes)
    y[:] = 7
    compiled.simulate(*given, grid=(4,))
    assert np.array_equal(y, wanted) and compiled.cubin


def test_rows_of_any_axis_but_the_last() -> None:
    @triton.jit
    def kernel(x: Any, y: Any) -> None:
        box = ragged_tma.load_ragged(x, 3, 5, [1, 2, 0], ragged_dim=1)
        ragged_tma.store_ragged(y, 3, 6, [0, 1, 0], box + 1, ragged_dim=-2)

    x = np.arange(3 * 16 * 8).astype(np.int32).reshape(3, 16, 8)
    y = np.zeros_like(x)
    kernel[(1,)](ragged(x, [2, 8, 8], 1), ragged(y, [2, 8, 8], ragged_dim=1))
    wanted = np.zeros_like(x)
    wanted[:2, 4:9] = 1  # rows 1 to 5 of the batch, beyond which nothing is written
    wanted[:2, 4:7] += x[1:3, 5:8]  # rows 2 to 4 of the batch, beyond which zeros are read
    assert np.array_equal(y, wanted)


def test_what_is_no_descriptor_is_refused() -> None:
    @triton.jit
    def kernel(x_ptr: Any) -> None:
        tl.store(x_ptr, ragged_tma.load_ragged(x_ptr, 0, 1, [0, 0]))

    with pytest.raises(CompileError) as e:
        kernel[(1,)](np.zeros(4, np.float32))
    assert e.value.code == "not-a-descriptor"
