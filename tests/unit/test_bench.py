"""`python -m benchmarks` without a GPU: cases, the measuring with a clock that is told what to say, the watched
harness, the report's table and chart, the command line."""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

from benchmarks import chart, harness, measure, watch
from benchmarks.__main__ import main
from benchmarks.cases import CASES, USUAL, Attention, Dual, Fp8, Gemm, named, of_shape
from benchmarks.data import Data, Paper, make_data, strides
from benchmarks.harness import beaten
from benchmarks.measure import Candidate, Steps, run_case
from benchmarks.peers import USUAL as USUAL_PEERS
from benchmarks.records import Record, Report, Run, read, write
from warploom.bench import in_turn
from warploom.cli.console import EXIT

PEERS = Path(measure.__file__).parent / "peers"


# ---- cases and data


def test_every_case_is_found_by_its_name() -> None:
    for cases in CASES.values():
        for case in cases:
            assert named(case.name) == case
    with pytest.raises(ValueError, match="is no case"):
        named("bf16 TN 8192x8192")


def test_a_case_by_its_sizes() -> None:
    assert of_shape("gemm", "64,128,256", "fp16", "NN") == Gemm(64, 128, 256, "fp16", "NN")
    assert of_shape("attention", "2,3,512,64,causal") == Attention(2, 3, 512, 64, True)
    assert of_shape("attention", "2,3,512,64") == Attention(2, 3, 512, 64, False)
    assert of_shape("dual", "64,128,256") == Dual(64, 128, 256)
    assert of_shape("dual", "64,128,256", "e4m3") == Dual(64, 128, 256, "e4m3")
    assert of_shape("fp8", "64,128,256") == Fp8(64, 128, 256)
    for kind, shape, dtype in (
        ("gemm", "64,128", None),
        ("gemm", "64,0,8", None),
        ("attention", "2,3,512", None),
        ("dual", "64,128,256", "fp16"),
    ):
        with pytest.raises(ValueError, match=r"is not (M,N,K|BATCH,HEADS)|not in fp16"):
            of_shape(kind, shape, dtype)


@pytest.mark.parametrize("kind", list(USUAL))
def test_arrays_on_paper_have_the_shapes_of_the_case(kind: str) -> None:
    case: Any = of_shape(kind, "2,3,256,64" if kind == "attention" else "32,48,64")
    data = make_data(case, Paper())
    assert len(data) == 1
    if kind == "attention":
        assert data.by_head[0][0].shape == (6, 256, 64)
    else:
        assert data.outputs[0].shape == (32, 48) and data.a[0].shape == (32, 64)
    if kind == "gemm":
        assert data.b[0].shape == (64, 48) and strides(data.b[0]) == (1, 64)


# ---- measuring


class Clock:
    """Says that a run takes its `ms`; remembers what was timed."""

    def __init__(self) -> None:
        self.bursts: list[str] = []

    def quick_ms(self, run: Any, sets: int) -> float:
        return float(run.ms)

    def burst_ms(self, run: Any, sets: int, expect_ms: float) -> float:
        self.bursts.append(run.name)
        return float(run.ms)

    sustained_ms = burst_ms

    def forget(self) -> None:
        pass


def test_bursts_by_turns() -> None:
    class Takes(NamedTuple):
        name: str
        ms: float

    clock = Clock()
    found = in_turn(clock, {"a": Takes("a", 1.0), "b": Takes("b", 2.0)}, 3, 2)  # type: ignore[arg-type, dict-item]
    assert found == {"a": [1.0, 1.0], "b": [2.0, 2.0]} and clock.bursts == ["a", "b", "a", "b"]


class Product:
    """Computes the product with an error; `ms` is what the clock says."""

    def __init__(
        self, data: Data, name: str, ms: float, error: float = 0.0, rows: int = 64
    ) -> None:
        self.data, self.name, self.ms, self.error, self.rows = data, name, ms, error, rows

    def __call__(self, i: int) -> None:
        a, b = (x[i].astype(np.float64) for x in (self.data.a, self.data.b))
        self.data.c[i][: self.rows] = ((a @ b) * (1 + self.error))[: self.rows]


def peer(**configurations: Callable[[Data], Any]) -> Any:
    """A module with these configurations."""

    def candidates(data: Data) -> list[Candidate]:
        made = configurations.items()
        return [Candidate(name, lambda make=make: make(data)) for name, make in made]  # type: ignore[misc]

    return SimpleNamespace(candidates=candidates)


def data_of(case: Gemm) -> Data:
    random = np.random.default_rng(0)
    a, b = (
        [random.standard_normal(s).astype(np.float16) for _ in range(2)]
        for s in ((64, 32), (32, 48))
    )
    return Data(case, a, b, [np.zeros((64, 48), np.float16) for _ in range(2)])


CASE = Gemm(64, 48, 32, "fp16", "NN")


def refused(data: Data) -> Any:
    raise RuntimeError("does not fit")


def test_the_fastest_right_configuration_is_measured_in_turn() -> None:
    clock = Clock()
    peers = {
        "one": peer(
            slow=lambda data: Product(data, "slow", 2.0),
            fast=lambda data: Product(data, "fast", 1.0),
            wrong=lambda data: Product(data, "wrong", 0.5, error=0.1),
            unwritten=lambda data: Product(data, "unwritten", 0.5, rows=63),
            refused=refused,
        ),
        "other": peer(only=lambda data: Product(data, "other", 4.0)),
        "none right": peer(wrong=lambda data: Product(data, "wrong", 0.1, error=-0.1)),
        "of another kind": SimpleNamespace(KINDS=("dual",)),
    }
    one, other, wrong = run_case(CASE, peers, 2, 1, clock, data=data_of(CASE))  # type: ignore[arg-type]
    assert one.config == "fast" and one.rel_err < 1e-3 and not one.error
    assert one.burst == [CASE.flops / 1e9] * 2 and other.burst == [CASE.flops / 4e9] * 2
    assert len(one.sustained) == 1
    assert dict(one.tried)["wrong"] == dict(one.tried)["unwritten"] == "wrong"
    assert dict(one.tried)["refused"] == "RuntimeError: does not fit"
    assert "no configuration ran right" in wrong.error and not wrong.burst
    assert clock.bursts[-6:] == ["fast", "other"] * 3


def test_a_lost_context_ends_the_measuring() -> None:
    def fail(data: Data) -> Any:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    with pytest.raises(RuntimeError, match="illegal"):
        run_case(CASE, {"one": peer(bad=fail)}, 1, 0, Clock(), data=data_of(CASE))  # type: ignore[arg-type]


def test_each_step_is_told_and_what_is_skipped_is_not_made() -> None:
    told: list[tuple[str, ...]] = []

    class Listening(Steps):
        def begin(self, *step: str) -> None:
            told.append(step)

    peers = {"one": peer(bad=refused, good=lambda data: Product(data, "good", 1.0))}
    steps = Listening({(CASE.name, "one", "bad"): "took the process down"})
    (entry,) = run_case(CASE, peers, 1, 0, Clock(), steps, data_of(CASE))  # type: ignore[arg-type]
    assert dict(entry.tried)["bad"] == "took the process down" and entry.config == "good"
    assert told == [(CASE.name, "one", "good")] * 3  # picked, checked, timed


def test_what_was_slow_in_a_report_is_left_out_and_stays_so(tmp_path: Path) -> None:
    report = tmp_path / "last.jsonl"
    run = Run("1", "H200")
    tried = [["best", 100.0], ["close", 97.5], ["slow", 96.0], ["refused", "CompileError: no"]]
    write(report, Report({"1": run}, [Record("1", "a", "1", tried=tried)]))
    why = {"slow": "96.0 of 100.0 in last.jsonl", "refused": "CompileError: no"}
    assert beaten([report]) == {("1", "a", label): text for label, text in why.items()}
    assert beaten([]) == {}
    tried = [[label, why.get(label, figure)] for label, figure in tried]
    write(report, Report({"1": run}, [Record("1", "a", "1", tried=tried)]))
    assert beaten([report]) == {("1", "a", label): text for label, text in why.items()}


def test_the_harness_writes_records_and_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def measured(case: Gemm, *_: Any) -> list[Record]:
        asked.append(case.name)
        return [Record(case.name, "a", burst=[1.0]), Record(case.name, "b", error="refused")]

    monkeypatch.setattr(harness, "run_case", measured)
    monkeypatch.setattr(harness, "load_peers", lambda names: ({}, {"c": "No module"}))
    monkeypatch.setattr(harness, "Clock", Clock)
    out, cases = tmp_path / "r.jsonl", "bf16 TN 8x8x8,bf16 TN 8x8x16"
    command = ["--peers", "a,b,c", "--out", str(out), "--commit", "abc1234"]
    assert harness.main([*command, "--cases", "bf16 TN 8x8x8"]) == 0
    (run,) = read(out).runs.values()
    assert run.commit == "abc1234" and run.missing == {"c": "No module"} and run.unit == "TFLOP/s"
    assert harness.main([*command, "--cases", cases, "--resume"]) == 0
    report = read(out)
    assert asked == ["bf16 TN 8x8x8", "bf16 TN 8x8x16"]
    assert [(r.peer, r.burst, r.error) for r in report.records] == [
        ("a", [1.0], ""),
        ("b", [], "refused"),
    ] * 2
    assert {r.run for r in report.records} == set(report.runs)


# ---- the watched harness

HARNESS = """
import json, os, signal, sys, time
from pathlib import Path
given = dict(zip(sys.argv[1::2], sys.argv[2::2]))
out, steps = Path(given["--out"]), Path(given["--steps"])
skipped = json.loads(Path(given["--skip"]).read_text())
done = json.loads(out.read_text()) if "--resume" in sys.argv else []
for case, peer, how in (("1", "a", "well"), ("2", "b", "killed"), ("3", "c", "hangs"), ("4", "d", "fails")):
    if case in done:
        continue
    if [case, peer, how] not in skipped:
        steps.write_text(json.dumps([case, peer, how]))
        if how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "hangs":
            time.sleep(60)
        if how == "fails":
            sys.exit(1)
    done.append(case)
    out.write_text(json.dumps(done))
"""


def test_what_takes_the_harness_down_is_left_out(tmp_path: Path) -> None:
    harness = tmp_path / "harness.py"
    harness.write_text(HARNESS)
    out, said = tmp_path / "out.json", []
    command = (sys.executable, str(harness))
    fallen = watch.watch([], out, command=command, silent_s=1.5, say=said.append)
    assert fallen == [["2", "b", "killed"], ["3", "c", "hangs"], ["4", "d", "fails"]]
    assert json.loads(out.read_text()) == ["1", "2", "3", "4"]
    for text, how in zip(
        said, ("signal 9 in 2, b", "silent for 2 s in 3", "exit code 1"), strict=True
    ):
        assert how in text


def test_a_harness_that_cannot_begin_is_not_begun_again(tmp_path: Path) -> None:
    command = (sys.executable, "-c", "raise SystemExit(3)")
    with pytest.raises(watch.Failed, match=r"exit code 3.*before its first step"):
        watch.watch([], tmp_path / "out.json", command=command)


# ---- peers


def constant(file: Path, name: str) -> Any:
    """What a module assigns to a name, without importing it; None if nothing."""
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return ast.literal_eval(node.value)
    return None


def test_usual_peers_take_the_kind_and_no_name_is_given_twice() -> None:
    for kind, modules in USUAL_PEERS.items():
        for module in modules:
            assert kind in (constant(PEERS / f"{module}.py", "KINDS") or ("gemm",)), module
    files = list(PEERS.glob("[!_]*.py"))
    names = [
        (kind, constant(file, "NAME"))
        for file in files
        for kind in constant(file, "KINDS") or ("gemm",)
    ]
    assert all(name for _, name in names) and len(set(names)) == len(names)
    usual = {module for modules in USUAL_PEERS.values() for module in modules}
    assert usual <= {file.stem for file in files}


# ---- report and command line


def record(case: str, peer: str, burst: list[float], error: str = "") -> Record:
    return Record(case, peer, "1", burst, error=error, config="how [it] is")


RECORDS = [
    record("bf16 TN 8x8x8", "cuBLAS", [100.0, 101.0, 99.0]),
    record("bf16 TN 8x8x8", "warploom", [110.0, 120.0, 109.0]),
    record("bf16 TN 8x8x8", "Gluon", [], "RuntimeError: no"),
    record("bf16 TN 8x8x16", "cuBLAS", [50.0]),
]


@pytest.mark.parametrize("suffix", [".svg", ".png"])
def test_the_chart_shows_who_was_measured(suffix: str, tmp_path: Path) -> None:
    file = tmp_path / "new" / f"chart{suffix}"
    chart.draw(RECORDS, "H200", file)
    if suffix == ".png":
        assert file.read_bytes().startswith(b"\x89PNG")
    else:
        text = file.read_text()
        assert all(name in text for name in ("warploom", "cuBLAS", "8x8x16", "H200"))
        assert "Gluon" not in text


@pytest.fixture
def on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The command line finds a GPU; the harness is one that writes RECORDS.  What it was given."""
    given: list[list[str]] = []

    def watched(arguments: list[str], out: Path, **_: Any) -> list[list[str]]:
        given.append(arguments)
        date = "2026-11-21T09:00:00Z"
        run = Run("1", "NVIDIA H200", date, missing={"quack_gemm": "No module"})
        write(out, Report({"1": run}, RECORDS))
        return []

    monkeypatch.setattr("benchmarks.__main__.has_gpu", lambda: True)
    monkeypatch.setattr("benchmarks.__main__.watch", watched)
    return given


def test_bench_measures_prints_and_draws(
    on_a_gpu: list[list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "results" / "gemm.jsonl"
    command = ["gemm", "--shape", "8,8,8", "--dtype", "fp16", "--bursts", "3"]
    assert main([*command, "--peers", "warploom,cublas", "--out", str(out)]) == EXIT.ok
    (given,) = on_a_gpu
    assert given[:4] == ["--peers", "warploom,cublas", "--cases", "fp16 TN 8x8x8"]
    assert given[4:6] == ["--bursts", "3"]
    text = capsys.readouterr().out
    ours = next(line for line in text.splitlines() if line.startswith("warploom"))
    assert ours.split()[1:4] == ["110", "109..120", "1.100"] and "how [it] is" in ours
    assert text.index("warploom") < text.index("cuBLAS") and "RuntimeError: no" in text
    assert "not measured: quack_gemm" in text
    assert out.with_suffix(".svg").is_file() and read(out).records


def test_a_kernel_of_ours_that_failed_is_found(
    on_a_gpu: list[list[str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(RECORDS[1], "error", "wrong result")
    command = ["gemm", "--out", str(tmp_path / "gemm.jsonl")]
    assert main([*command, "--chart", str(tmp_path / "chart.png")]) == EXIT.found
    assert (tmp_path / "chart.png").is_file()


def test_bench_without_a_gpu_says_what_can_be_had(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("benchmarks.__main__.has_gpu", lambda: False)
    assert main(["attention"]) == EXIT.lacking
    assert "--dry-run" in capsys.readouterr().err
    assert main(["attention", "--list"]) == EXIT.ok
    text = capsys.readouterr().out
    assert "B4 H16 S4096 D128 causal" in text
    assert all(name in text for name in USUAL_PEERS["attention"])


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["gemm", "--shape", "8,8"], "is not M,N,K"),
        (["fp8", "--cases", "attention"], "is no case of fp8"),
        (["dual", "--cases", "nonsense"], "is no case"),
    ],
)
def test_cases_that_are_none_are_a_usage_error(
    given: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(given) == EXIT.usage
    assert says in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "shape", "peers"),
    [
        ("gemm", "512,512,512", "warploom_uniform,explicit"),
        ("attention", "1,2,512,64", "warploom_auto_attention"),
        ("fp8", "512,512,512", "warploom_fp8,scaled_mm"),
        pytest.param("dual", "512,512,512", "warploom_dual", marks=pytest.mark.thorough),
    ],
)
@pytest.mark.each(2)
def test_a_dry_run_compiles_what_would_be_launched(
    kind: str, shape: str, peers: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([kind, "--dry-run", "--shape", shape, "--peers", peers]) == EXIT.ok
    lines = capsys.readouterr().out.splitlines()
    kernels = [line for line in lines if line.startswith(("warploom", "explicit"))]
    assert kernels and not any(line.startswith("torch") for line in lines)
    for line in kernels:
        numbers = [word for word in line.split() if word.isdecimal()]
        registers, spills = map(int, numbers[:2])
        assert 24 <= registers <= 255 and spills == 0, line
