"""benchmarks/timelines.py without a GPU: records of the simulator's clock become figures, data and page."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks import timelines
from benchmarks.cases import Gemm
from benchmarks.records import current, read
from benchmarks.timelines import BEGIN, END, TRACED, Traced
from tests.unit.test_measured import Clock, simulated
from warploom.passes.placed.instrument import instrument

PAGE = Path(__file__).parents[2] / "docs" / "timeline.md"


@pytest.mark.slow
@pytest.mark.parametrize("peer", ["warploom", "warploom_cluster"])
@pytest.mark.each(2)
def test_records_become_figures_data_and_a_page(
    peer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    traced = Traced("a product", peer, Gemm(512, 1024, 256), 4000.0)
    monkeypatch.setattr(timelines, "TRACED", {"one": traced})
    kernel, given, grid = traced.launch()
    func, _ = instrument(kernel.placed)
    clock = Clock(monkeypatch)
    simulated(func, given, grid)
    rows = {f"{c}.{i}": r for c, cta in enumerate(clock.records(func)) for i, r in enumerate(cta)}
    np.savez_compressed(tmp_path / "one.npz", **rows)
    facts = {"exact": True, "plain_ms": 0.05, "stamped_ms": 0.06, "stamped sites": 9}
    (tmp_path / "records.json").write_text(json.dumps({"device": "H200", "one": facts}))
    page, data = tmp_path / "page.md", tmp_path / "data.jsonl"
    page.write_text(f"before\n{BEGIN}of another day\n{END}behind\n")
    timelines.draw(tmp_path, data, tmp_path, page)

    found = read(data).by_case()["one"]
    assert found["measured"].median == pytest.approx(found["predicted"].median, rel=0.02)
    stalls = timelines.waits(timelines.load(tmp_path, "one"))
    for stall in stalls:
        assert "[" not in stall["for"]
        assert stall["measured"] == pytest.approx(stall["predicted"], rel=0.05, abs=20), stall
    assert {"full", "empty"} <= {stall["for"].split(" of ")[0] for stall in stalls}
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("behind\n") and "another day" not in text
    assert "| a product | " in text and "50.0 µs | 60.0 µs (+20.0%) |" in text
    assert "timeline_one.svg" in text and "<svg" in (tmp_path / "timeline_one.svg").read_text()


def test_the_page_says_what_the_records_say() -> None:
    text = PAGE.read_text()
    for name, records in current("timelines").by_case().items():
        cycles = (f"{records[which].median:,.0f}" for which in ("predicted", "measured"))
        assert f"| {TRACED[name].title} | {' | '.join(cycles)} |" in text, name


def test_the_page_has_a_place_for_them_and_small_figures() -> None:
    text = PAGE.read_text()
    assert text.index(BEGIN) < text.index(END)
    for name, traced in TRACED.items():
        figure = PAGE.parent / "figures" / f"timeline_{name}.svg"
        assert not traced.drawn or not figure.exists() or figure.stat().st_size < 300_000, name
