"""Rows that begin or end inside a unit of 16 bytes.  Of C: what lies behind them stays untouched.

On the H200 a TMA store writes whole units of 16 bytes along a row, so that columns behind the last one
were overwritten; the simulator does as the hardware does, and the chooser stores such rows directly.
"""

import ml_dtypes
import numpy as np
import pytest

from tests.e2e import road
from tests.e2e.gemms import Gemm
from tests.e2e.parts import part_of_k

WS = {"num_consumer_groups": 2, "num_buffers_warp_spec": 2}


@pytest.mark.parametrize("columns,via", [(96, "tma"), (100, "direct"), (97, "direct")])
def test_columns_behind_the_last_stay(columns: int, via: str) -> None:
    case = Gemm(160, columns, 72, pads=(0, 0, -columns % 8 + 8))
    arrays = case.arrays(np.random.default_rng(5))
    args = case.args(*arrays)
    kernel = road.compile_for(case.jit, args, case.programs, {**case.meta, **WS})
    assert [s.via for s in kernel.schedule.stores] == [via]
    road.check_equal(case.jit, args, case.programs, {**case.meta, **WS})


@pytest.mark.parametrize("first,via", [(0, "tma"), (8, "tma"), (6, "cp_async"), (5, "registers")])
@pytest.mark.parametrize("knobs", [WS, {"num_consumer_groups": 0}], ids=["specialized", "uniform"])
@pytest.mark.each(2)
def test_columns_from_anywhere_on(first: int, via: str, knobs: dict[str, int]) -> None:
    """A TMA box begins at a multiple of 16 bytes, or the H200 ends the copy as an illegal instruction."""
    rng = np.random.default_rng(6)
    a, b = (
        road.filled(rng.integers(-2, 3, (n, 208)).astype(np.float32), ml_dtypes.bfloat16)
        for n in (128, 64)
    )
    c = road.array((128, 64), np.float32)
    args = [a, b, c, 64, first, 190, a.strides[0] // 2, b.strides[0] // 2]
    meta = {"BLOCK": 64, "STEP": 32, **knobs}
    kernel, (_, _, found, *_) = road.check_equal(part_of_k, args, 2, meta)
    assert {x for channel in kernel.schedule.channels for x in channel.via} == {via}
    left, right = (x.astype(np.float32)[:, first:190] for x in (a, b))
    np.testing.assert_array_equal(found, left @ right.T)
