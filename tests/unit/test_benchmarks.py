"""What of the benchmarks needs no GPU: the reference kernel's build, the cases, the report of the targets."""

from __future__ import annotations

import fnmatch
import functools
import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import overview, page
from benchmarks.cases import CASES, DUAL, TARGETS, Gemm
from benchmarks.groups import GROUPS, MMA_SYNC
from benchmarks.mma_sync import rates
from benchmarks.records import (
    RESULTS,
    Record,
    RecordError,
    Report,
    Run,
    current,
    main,
    read,
    write,
)
from benchmarks.reference.build import SHARED_BYTES, THREADS, compile_cubin
from benchmarks.report import RECORDED, against, best_of, load, median, table
from benchmarks.targets import judged, last, verdict
from warploom.target import SM_90A


def test_the_reference_kernel_compiles_without_spill_or_advisory() -> None:
    cubin, report = compile_cubin()
    assert cubin.startswith(b"\x7fELF")
    assert "0 bytes spill stores, 0 bytes spill loads" in report
    assert "(C75" not in report and "warning" not in report
    assert SM_90A.shared_bytes >= SHARED_BYTES and SM_90A.registers.per_sm >= THREADS * 168


def record(case: str, peer: str, burst: list[float], error: str = "") -> Record:
    return Record(case, peer, "1", burst, burst, error=error)


CASE = "bf16 TN 8192x8192x8192"
ROOT = Path(__file__).parents[2]


def written(path: Path, *records: Record, run: str = "1") -> Path:
    write(path, Report({run: Run(run, "H200")}, list(records)))
    return path


def verdicts(tmp_path: Path, group: str, *records: Record) -> dict[str, tuple[str, bool]]:
    """What each target of the group makes of records of one case: what was found, whether it is met."""
    named = next(g for g in GROUPS if g.name == group)
    one = replace(named, shapes=[c for c in named.shapes if c.name == records[0].case])
    results = load([written(tmp_path / "r.jsonl", *records)])
    return {
        f"{target.ours} of {target.of}": verdict(one, results, target) for target in one.targets
    }


def test_targets_are_met_and_missed_by_the_margin(tmp_path: Path) -> None:
    def found(ours: float, triton: float) -> dict[str, tuple[str, bool]]:
        rows = [record(CASE, "cuBLAS", [800.0]), record(CASE, "Triton TMA", [triton])]
        rows.append(record(CASE, "warploom", [ours - 1, ours, ours + 50]))
        return verdicts(tmp_path, "GEMM bf16 and fp16", *rows)

    triton, cublas = "warploom of Triton's best", "warploom of cuBLAS"
    assert found(830.0, 830.0)[triton] == ("1.000 (1.000)", True)
    assert found(830.0, 834.0)[triton][1]  # 0.9952: within the margin of 0.005
    assert found(830.0, 840.0)[triton] == (f"0.988 (0.988); {CASE} 0.988", False)
    assert found(830.0, 840.0)[cublas] == ("1.038 (1.038)", True)
    assert not found(750.0, 700.0)[cublas][1]
    assert found(830.0, 830.0)["warploom of the uniform kernel"] == ("not measured", False)


def test_times_of_dots_in_registers_are_held_against_their_targets(tmp_path: Path) -> None:
    """Records in microseconds: less is more."""
    in_order, few_rows = MMA_SYNC
    case, short = (group.shapes[0].name for group in MMA_SYNC)
    rows = [record(case, "warploom", [100.0]), record(case, "triton", [96.0])]
    rows += [record(short, "warploom", [40.0]), record(short, "cuBLAS", [42.0])]
    found = rates(load([written(tmp_path / "r.jsonl", *rows)]))
    assert found[case]["warploom"].burst == [2 * 4096**3 / 100 / 1e6]
    for group, ours, met in ((in_order, 0.96, False), (few_rows, 1.05, True)):
        one = replace(group, shapes=group.shapes[:1])
        text, held = verdict(one, one.cases(found), one.targets[0])
        assert text.startswith(f"{ours:.3f}") and held == met
    assert {c.name for g in MMA_SYNC for c in g.shapes} <= last().keys()


def test_a_case_without_a_figure_misses_its_targets(tmp_path: Path) -> None:
    rows = [record(CASE, "cuBLAS", [800.0]), record(CASE, "warploom", [900.0])]
    text, met = judged(load([written(tmp_path / "r.jsonl", *rows)]))
    assert not met and "1.125 (1.125); 13 of 14 cases not measured | **missed**" in text


def test_the_overview_is_relative_to_the_library() -> None:
    one = next(group for group in GROUPS if group.name == "attention d = 128")
    first, second = (case.name for case in one.shapes[:2])
    rows = [record(case, "cuDNN", [500.0]) for case in (first, second)]
    rows += [record(first, one.ours, [600.0]), record(second, one.ours, [600.0 * 1.44])]
    rows += [record(first, "FlashAttention-3", [550.0]), record(second, "Triton x", [400.0])]
    results = {case: {r.peer: r for r in rows if r.case == case} for case in (first, second)}
    found = overview.heights(one, results)
    assert found["cuBLAS or cuDNN"] == 1 and "warploom, by hand" not in found
    assert found["warploom, Triton-style"] == pytest.approx(1.44)
    assert found["best of the others"] > 1


@pytest.mark.parametrize("file", page.TABLES, ids=lambda p: p.name)
def test_the_page_says_what_the_records_say(file: Path) -> None:
    assert file.read_text() == page.written(file)  # else: python -m benchmarks.page


def test_the_readme_s_figure_says_what_the_records_say() -> None:
    drawn = re.findall("<!-- (.*?) -->", (page.FIGURES / "overview.svg").read_text())
    told = [text for text in drawn if re.fullmatch(r"\d\.\d\d|.* cases", text)]
    wanted = []
    for title, heights in overview.groups(last()).items():
        wanted += [f"{height:.2f}" for height in sorted(heights.values(), reverse=True)] + [title]
    assert told == wanted  # else: python -m benchmarks.page
    assert not [text for text in drawn if re.fullmatch("[0-9a-f]{7,40}", text)]


def test_a_table_has_its_place() -> None:
    begin, end = "<!-- it: python -m benchmarks.page -->", "<!-- /it -->"
    text = page.put(f"before\n{begin}\nold\n{end}\nafter", "it", "new")
    assert text == f"before\n{begin}\nnew\n{end}\nafter"
    with pytest.raises(ValueError, match="no place for other"):
        page.put(text, "other", "new")


def test_every_target_is_met() -> None:
    text, met = judged(last())
    assert met, text


def test_an_experiment_says_what_it_expected_and_found() -> None:
    for file in page.experiments():
        told = page.front_matter(file)
        assert all(told.get(key) for key in ("hypothesis", "prediction", "outcome", "record")), file
    for file in [*page.experiments(), *page.notes()]:
        assert re.fullmatch(r"\d{4}-\d\d-\d\d-[a-z0-9-]+", file.stem), file


@pytest.mark.parametrize("file", page.experiments(), ids=lambda p: p.stem)
def test_an_experiment_names_its_record_where_it_is(file: Path) -> None:
    """In the tree, or with a commit that has it."""
    told = page.front_matter(file)["record"]
    here, _, gone = told.rpartition("; ") if " of " in told else (told, "", "")
    for name in filter(None, here.split("; ")):
        assert (ROOT / name).is_file(), name
    if gone:
        names, commit = gone.rsplit(" of ", 1)
        assert re.fullmatch("[0-9a-f]{7,40}", commit)
        have = _files(commit)
        names, _, folder = names.partition(" in ")
        for name in names.split(", "):
            path = f"{folder}/{name}" if folder else name
            assert not have or fnmatch.filter(have, path), f"{path} is not in {commit}"


@functools.cache
def _files(commit: str) -> list[str]:
    """The files of a commit; none where git doesn't have it (a shallow clone, a source archive)."""
    done = subprocess.run(
        ["git", "ls-tree", "-r", "--name-only", commit], cwd=ROOT, capture_output=True, text=True, check=False
    )  # fmt: skip
    return done.stdout.splitlines()


# ---- the records


def test_the_records_are_small_and_of_the_schema() -> None:
    files = sorted(RESULTS.iterdir())
    assert files and all(file.suffix == ".jsonl" for file in files)
    assert sum(file.stat().st_size for file in files) < 220_000
    for file in files:
        report = current(file.stem)
        keys = [(r.case, r.peer) for r in report.records]
        assert len(set(keys)) == len(keys), f"{file.name}: {max(keys, key=keys.count)}"
        assert all(r.burst or r.error for r in report.records), file.name
        assert all(run.commit and run.device and run.date for run in report.runs.values()), (
            file.name
        )
        assert not any(r.tried for r in report.records)


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    run = Run("6a", "H200", "2026-11-21T15:23:37Z", "004ed69", versions={"torch": "2"}, unit="us")
    one = Record(CASE, "a", "6a", [123.456789, 99.0], config="x=1", rel_err=1.23456e-3)
    two = Record(CASE, "b", "6a", error="refused", tried=[("x", 1.0), ("y", "wrong")])
    write(tmp_path / "r.jsonl", Report({"6a": run}, [one, two]))
    texts = (tmp_path / "r.jsonl").read_text().splitlines()
    assert [text.count('"run":') for text in texts] == [1, 0, 0]  # those of the line before
    found = read(tmp_path / "r.jsonl")
    assert [r.run for r in found.records] == ["6a", "6a"] and found.runs == {"6a": run}
    assert found.records[0].burst == [123.457, 99.0] and found.records[0].rel_err == 1.23e-3
    assert (
        found.records[1].error == "refused" and found.records[1].median != found.records[1].median
    )
    assert [tuple(x) for x in found.records[1].tried] == two.tried


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ('{"run":"1","device":"H200"}', "schema"),
        ('{"schema":2,"run":"1","device":"H200"}', "schema"),
        ('{"case":"c","peer":"p","run":"2"}', "run '2' has no line before"),
        ('{"case":"c","peer":"p","run":"1","brust":[1.0]}', "Record has no brust"),
        ('{"case":"c","peer":"p","run":"1","burst":1.0}', "burst of a Record is no list"),
        ('{"case":"c","run":"1"}', "peer"),
        ("{", "Expecting"),
    ],
)
def test_what_is_no_record_is_refused_with_its_line(line: str, what: str, tmp_path: Path) -> None:
    file = tmp_path / "r.jsonl"
    file.write_text('{"schema":1,"run":"1","device":"H200"}\n' + line + "\n")
    with pytest.raises(RecordError, match=rf"r\.jsonl:2: .*{what}"):
        read(file)


def test_a_run_takes_the_place_of_what_it_measured_again(tmp_path: Path) -> None:
    kept, new = tmp_path / "kept.jsonl", tmp_path / "new.jsonl"
    written(kept, Record("c", "a", "1", [1.0]), Record("c", "b", "1", [2.0]))
    written(new, Record("c", "a", "2", [3.0], tried=[("x", 3.0)]), run="2")
    assert main([str(new), "--into", str(kept)]) == 0
    report = read(kept)
    assert [(r.peer, r.run, r.burst, r.tried) for r in report.records] == [
        ("a", "2", [3.0], []),
        ("b", "1", [2.0], []),
    ]
    main([str(written(new, Record("c", "b", "2", [4.0]), run="2")), "--into", str(kept)])
    assert list(read(kept).runs) == ["2"]  # of the first one nothing is left


def test_a_peer_that_did_not_run_counts_by_its_recorded_ratio(tmp_path: Path) -> None:
    rows = [record(CASE, "cuBLAS", [400.0]), record(CASE, "tilelang", [], "no such package")]
    results = load([written(tmp_path / "r.jsonl", *rows)])
    recorded = json.loads(RECORDED.read_text())["burst_to_cublas"][CASE]
    name, figure = best_of(CASE, results[CASE])
    assert name.endswith("(recorded)") and figure == pytest.approx(400 * max(recorded.values()))


def test_a_bar_against_one_peer_is_their_geometric_mean(tmp_path: Path) -> None:
    quack, first, second = "quack gemm swiglu (CuTe DSL)", *(case.name for case in DUAL[:2])
    rows = [record(case, "cuBLAS, then silu·mul", [700.0]) for case in (first, second)]
    rows += [record(first, "explicit dual", [800.0]), record(second, "explicit dual", [900.0])]
    results = load([written(tmp_path / "r.jsonl", *rows)])
    ratios = json.loads(RECORDED.read_text())["burst_to_cublas"]
    figures = [ratios[case][quack] * 700 for case in (first, second)]
    mean = (800 * 900 / (figures[0] * figures[1])) ** 0.5
    text, met = against(results, "explicit dual", quack, mean + 0.004)
    assert met and f"**{mean:.3f}**" in text and f"{800 / figures[0]:.3f} |" in text
    assert not against(results, "explicit dual", quack, mean + 0.006)[1]


def test_the_targets_of_attention(tmp_path: Path) -> None:
    case, other = (case for case in CASES["attention"] if case.seq == 4096 and not case.causal)

    def found(ours: float, fa3: float, cudnn: float, d: int, name: str) -> dict[str, Any]:
        rows = [record(name, "cuDNN", [cudnn]), record(name, "FlashAttention-3", [fa3])]
        rows.append(record(name, "warploom, explicit", [ours]))
        return verdicts(tmp_path, f"attention d = {d}", *rows)

    fa3, best = "warploom, explicit of FlashAttention-3", "warploom, explicit of the best peer"
    assert found(740.0, 728.0, 680.0, 128, case.name)[fa3] == ("1.016 (1.016)", True)
    assert not found(700.0, 728.0, 680.0, 128, case.name)[fa3][1]
    # CuTe counts as 1.136 × cuDNN
    assert found(569.0, 531.0, 483.0, 64, other.name)[best] == ("1.037 (1.037)", True)
    assert not found(560.0, 531.0, 483.0, 64, other.name)[best][1]


def test_a_later_file_replaces_and_a_failure_has_no_figure(tmp_path: Path) -> None:
    first = written(tmp_path / "a.jsonl", record(CASE, "cuBLAS", [1.0, 2.0, 9.0]))
    second = written(tmp_path / "b.jsonl", record(CASE, "gluon", [], "crashed"))
    results = load([first, second])
    assert median(results[CASE]["cuBLAS"]) == 2.0
    assert median(results[CASE]["gluon"]) != median(results[CASE]["gluon"])  # NaN
    assert "failed" in table(results, "burst") and "**2** (1..9)" in table(results, "burst")


def test_the_cases_are_those_of_the_bars() -> None:
    assert Gemm(8192, 8192, 512) in TARGETS and Gemm(64, 8192, 8192, layout="NN") in TARGETS
    assert len({case.name for case in TARGETS}) == len(TARGETS) == 14
    gemms = [case for group in CASES.values() for case in group if case.kind == "gemm"]
    assert all(case.flops == 2 * case.m * case.n * case.k for case in gemms)


def test_attention_has_the_cases_of_its_bars() -> None:
    cases = CASES["attention"]
    assert len({case.name for case in cases}) == len(cases) == 12
    assert {case.batch * case.seq for case in cases} == {16384}
    full = next(case for case in cases if not case.causal)
    assert full.flops == 2 * (2 * 16 * 16 * 1024 * 1024 * 128)  # two products
