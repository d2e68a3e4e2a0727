"""What of the benchmarks needs no GPU: the yardstick's build, the cases, the report of the bars."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import overview
from benchmarks.bars import (
    BEGIN,
    END,
    LAST,
    PAGE,
    RECORDS,
    bars,
    put,
    standing,
    verdict,
)
from benchmarks.cases import BARS, CASES, DUAL, Gemm
from benchmarks.groups import GROUPS
from benchmarks.report import RECORDED, against, best_of, load, median, table
from benchmarks.yardstick.build import SHARED_BYTES, THREADS, compile_cubin
from warploom.target import SM_90A


def test_the_yardstick_compiles_without_spill_or_advisory() -> None:
    cubin, report = compile_cubin()
    assert cubin.startswith(b"\x7fELF")
    assert "0 bytes spill stores, 0 bytes spill loads" in report
    assert "(C75" not in report and "warning" not in report
    assert SM_90A.shared_bytes >= SHARED_BYTES and SM_90A.registers.per_sm >= THREADS * 168


def record(case: str, peer: str, burst: list[float], error: str = "") -> dict[str, Any]:
    return {"case": case, "peer": peer, "burst": burst, "sustained": burst, "error": error}


CASE = "bf16 TN 8192x8192x8192"


def write(path: Path, *records: dict[str, Any]) -> Path:
    path.write_text(json.dumps({"results": records}))
    return path


def judged(tmp_path: Path, group: str, *records: dict[str, Any]) -> dict[str, tuple[str, bool]]:
    """What each bar of the group makes of records of one case: what was found, whether it is met."""
    named = next(g for g in GROUPS if g.name == group)
    one = replace(named, shapes=[c for c in named.shapes if c.name == records[0]["case"]])
    results = load([write(tmp_path / "r.json", *records)])
    return {f"{bar.ours} of {bar.of}": verdict(one, results, bar) for bar in one.bars}


def test_bars_are_met_and_missed_by_the_margin(tmp_path: Path) -> None:
    def found(ours: float, triton: float) -> dict[str, tuple[str, bool]]:
        rows = [record(CASE, "cuBLAS", [800.0]), record(CASE, "Triton TMA", [triton])]
        rows.append(record(CASE, "warploom", [ours - 1, ours, ours + 50]))
        return judged(tmp_path, "GEMM bf16 and fp16", *rows)

    triton, cublas = "warploom of Triton's best", "warploom of cuBLAS"
    assert found(830.0, 830.0)[triton] == ("1.000 (1.000)", True)
    assert found(830.0, 834.0)[triton][1]  # 0.9952: within the margin of 0.005
    assert found(830.0, 840.0)[triton] == (f"0.988 (0.988); {CASE} 0.988", False)
    assert found(830.0, 840.0)[cublas] == ("1.038 (1.038)", True)
    assert not found(750.0, 700.0)[cublas][1]
    assert found(830.0, 830.0)["warploom of the uniform kernel"] == ("not measured", False)


def test_a_case_without_a_figure_misses_its_bars(tmp_path: Path) -> None:
    rows = [record(CASE, "cuBLAS", [800.0]), record(CASE, "warploom", [900.0])]
    text, met = bars(load([write(tmp_path / "r.json", *rows)]))
    assert not met and "1.125 (1.125); 13 of 14 cases not measured | **missed**" in text
    page = put(f"before\n{BEGIN}\nold\n{END}\nbehind", "new\n")
    assert page == f"before\n{BEGIN}\nnew\n{END}\nbehind"


def test_the_overview_is_relative_to_the_library() -> None:
    one = next(group for group in GROUPS if group.name == "attention d = 128")
    first, second = (case.name for case in one.shapes[:2])
    rows = [record(case, "cuDNN", [500.0]) for case in (first, second)]
    rows += [record(first, one.ours, [600.0]), record(second, one.ours, [600.0 * 1.44])]
    rows += [record(first, "FlashAttention-3", [550.0]), record(second, "Triton x", [400.0])]
    results = {case: {r["peer"]: r for r in rows if r["case"] == case} for case in (first, second)}
    found = overview.heights(one, results)
    assert found["cuBLAS, cuDNN"] == 1 and "warploom, by hand" not in found
    assert found["warploom, Triton-style source"] == pytest.approx(1.44)
    assert found["best of FlashAttention-3, Gluon, quack …"] > 1


def test_the_page_says_what_the_records_say() -> None:
    found, _ = standing(load(sorted(LAST.glob(RECORDS))))
    page = PAGE.read_text()
    assert page == put(page, found)  # else: python -m benchmarks.bars --write


def test_a_peer_that_did_not_run_counts_by_its_recorded_ratio(tmp_path: Path) -> None:
    rows = [record(CASE, "cuBLAS", [400.0]), record(CASE, "tilelang", [], "no such package")]
    results = load([write(tmp_path / "r.json", *rows)])
    recorded = json.loads(RECORDED.read_text())["burst_to_cublas"][CASE]
    name, figure = best_of(CASE, results[CASE])
    assert name.endswith("(recorded)") and figure == pytest.approx(400 * max(recorded.values()))


def test_a_bar_against_one_peer_is_their_geometric_mean(tmp_path: Path) -> None:
    quack, first, second = "quack gemm swiglu (CuTe DSL)", *(case.name for case in DUAL[:2])
    rows = [record(case, "cuBLAS, then silu·mul", [700.0]) for case in (first, second)]
    rows += [record(first, "explicit dual", [800.0]), record(second, "explicit dual", [900.0])]
    results = load([write(tmp_path / "r.json", *rows)])
    ratios = json.loads(RECORDED.read_text())["burst_to_cublas"]
    figures = [ratios[case][quack] * 700 for case in (first, second)]
    mean = (800 * 900 / (figures[0] * figures[1])) ** 0.5
    text, met = against(results, "explicit dual", quack, mean + 0.004)
    assert met and f"**{mean:.3f}**" in text and f"{800 / figures[0]:.3f} |" in text
    assert not against(results, "explicit dual", quack, mean + 0.006)[1]


def test_the_bars_of_attention(tmp_path: Path) -> None:
    case, other = (case for case in CASES["attention"] if case.seq == 4096 and not case.causal)

    def found(ours: float, fa3: float, cudnn: float, d: int, name: str) -> dict[str, Any]:
        rows = [record(name, "cuDNN", [cudnn]), record(name, "FlashAttention-3", [fa3])]
        rows.append(record(name, "warploom, explicit", [ours]))
        return judged(tmp_path, f"attention d = {d}", *rows)

    fa3, best = "warploom, explicit of FlashAttention-3", "warploom, explicit of the best peer"
    assert found(740.0, 728.0, 680.0, 128, case.name)[fa3] == ("1.016 (1.016)", True)
    assert not found(700.0, 728.0, 680.0, 128, case.name)[fa3][1]
    # CuTe counts as 1.136 × cuDNN
    assert found(569.0, 531.0, 483.0, 64, other.name)[best] == ("1.037 (1.037)", True)
    assert not found(560.0, 531.0, 483.0, 64, other.name)[best][1]


def test_a_later_file_replaces_and_a_failure_has_no_figure(tmp_path: Path) -> None:
    first = write(tmp_path / "a.json", record(CASE, "cuBLAS", [1.0, 2.0, 9.0]))
    second = write(tmp_path / "b.json", record(CASE, "gluon", [], "crashed"))
    results = load([first, second])
    assert median(results[CASE]["cuBLAS"]) == 2.0
    assert median(results[CASE]["gluon"]) != median(results[CASE]["gluon"])  # NaN
    assert "failed" in table(results, "burst") and "**2** (1..9)" in table(results, "burst")


def test_the_cases_are_those_of_the_bars() -> None:
    assert Gemm(8192, 8192, 512) in BARS and Gemm(64, 8192, 8192, layout="NN") in BARS
    assert len({case.name for case in BARS}) == len(BARS) == 14
    gemms = [case for group in CASES.values() for case in group if case.kind == "gemm"]
    assert all(case.flops == 2 * case.m * case.n * case.k for case in gemms)


def test_attention_has_the_cases_of_its_bars() -> None:
    cases = CASES["attention"]
    assert len({case.name for case in cases}) == len(cases) == 12
    assert {case.batch * case.seq for case in cases} == {16384}
    full = next(case for case in cases if not case.causal)
    assert full.flops == 2 * (2 * 16 * 16 * 1024 * 1024 * 128)  # two products
