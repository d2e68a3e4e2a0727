"""The fit of the cost table undoes the simulator: from the iterations that a table predicts it finds the table."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest

from benchmarks import calibrate


@pytest.mark.slow
@pytest.mark.usefixtures("without_nvrtc")
def test_the_fit_finds_the_table_that_made_the_iterations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibrate, "PROGRAMS", {})
    table = replace(
        calibrate.SM_90A.cost,
        tensor_macs_16bit=1900,
        in_order_macs_16bit=1000,
        mma_least=18,
        tensor_latency=30,
        alu_lanes=118,
        convert_lanes=56,
        sfu_lanes=16,
        shared_bytes=100,
        tma_bytes=50,
        tma_latency=700,
        store_read=400,
        store_written=900,
        sync=15,
        wake=40,
        barrier=24,
    )
    found = calibrate.fit(calibrate.predicted(table))
    assert asdict(found) == pytest.approx(
        asdict(table), abs=1
    )  # the iterations count their own cycle
