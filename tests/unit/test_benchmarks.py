"""What of the benchmarks needs no GPU: the yardstick's build, the cases, the report of the bars."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.report import (
    RECORDED,
    against,
    attention_bars,
    bars,
    best_peer,
    load,
    median,
    table,
)
from benchmarks.yardstick.build import SHARED_BYTES, THREADS, compile_cubin
from warploom.bench.cases import BARS, CASES, DUAL, Gemm
from warploom.target import SM_90A


def test_the_yardstick_compiles_without_spill_or_advisory() -> None:
    cubin, report = compile_cubin()
    assert cubin.startswith(b"\x7fELF")
    assert "0 bytes spill stores, 0 bytes spill loads" in report
    assert "(C75" not in report and "warning" not in report
    assert SM_90A.shared_bytes >= SHARED_BYTES and SM_90A.registers_per_sm >= THREADS * 168


def record(case: str, peer: str, burst: list[float], error: str = "") -> dict[str, Any]:
    return {"case": case, "peer": peer, "burst": burst, "sustained": burst, "error": error}


CASE = "bf16 TN 8192x8192x8192"


def write(path: Path, *records: dict[str, Any]) -> Path:
    path.write_text(json.dumps({"results": records}))
    return path


def test_bars_are_met_and_missed_by_the_margin(tmp_path: Path) -> None:
    def verdict(ours: float, triton: float) -> tuple[str, bool]:
        rows = [record(CASE, "cuBLAS", [800.0]), record(CASE, "Triton TMA", [triton])]
        rows.append(record(CASE, "warploom", [ours - 1, ours, ours + 50]))
        return bars(load([write(tmp_path / "r.json", *rows)]))

    text, met = verdict(830.0, 830.0)
    assert met and "| 830 | 1.038 | 1.000 |" in text
    assert verdict(830.0, 834.0)[1]  # 0.9952: within the margin of 0.005
    text, met = verdict(830.0, 840.0)
    assert not met and "0.988 × the best Triton kernel is under 1.0" in text
    text, met = verdict(750.0, 700.0)
    assert not met and "0.938 × cuBLAS is under 0.95" in text


def test_a_peer_that_did_not_run_counts_by_its_recorded_ratio(tmp_path: Path) -> None:
    rows = [record(CASE, "cuBLAS", [400.0]), record(CASE, "tilelang", [], "no such package")]
    results = load([write(tmp_path / "r.json", *rows)])
    recorded = json.loads(RECORDED.read_text())["burst_to_cublas"][CASE]
    name, figure = best_peer(CASE, results[CASE], "warploom")
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

    def verdict(ours: float, fa3: float, cudnn: float, name: str) -> tuple[str, bool]:
        rows = [record(name, "cuDNN", [cudnn]), record(name, "FlashAttention-3", [fa3])]
        rows.append(record(name, "warploom, explicit", [ours]))
        results = load([write(tmp_path / "r.json", *rows)])
        return attention_bars(results, "warploom, explicit")

    text, met = verdict(740.0, 728.0, 680.0, case.name)
    assert met and "| 740 | 1.016 | 1.088 |" in text
    assert not verdict(700.0, 728.0, 680.0, case.name)[1]
    text, met = verdict(569.0, 531.0, 483.0, other.name)  # CuTe counts as 1.136 × cuDNN
    assert met and "FlashAttention CuTe (SM90) (recorded) 549" in text
    assert not verdict(560.0, 531.0, 483.0, other.name)[1]


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
