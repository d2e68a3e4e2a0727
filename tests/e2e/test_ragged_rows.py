"""Rows of C that end inside a unit of 16 bytes: what lies behind them stays untouched.

On the H200 a TMA store writes whole units of 16 bytes along a row, so that columns behind the last one
were overwritten; the simulator does as the hardware does, and the chooser stores such rows directly.
"""

import numpy as np
import pytest

from tests.e2e import road
from tests.e2e.gemms import Gemm

WS = {"num_consumer_groups": 2, "num_buffers_warp_spec": 2}


@pytest.mark.parametrize("columns,via", [(96, "tma"), (100, "direct"), (97, "direct")])
def test_columns_behind_the_last_stay(columns: int, via: str) -> None:
    case = Gemm(160, columns, 72, pads=(0, 0, -columns % 8 + 8))
    arrays = case.arrays(np.random.default_rng(5))
    args = case.args(*arrays)
    kernel = road.compile_for(case.jit, args, case.programs, {**case.meta, **WS})
    assert [s.via for s in kernel.schedule.stores] == [via]
    road.check_equal(case.jit, args, case.programs, {**case.meta, **WS})
