"""The road from the shell: the demo, and explain, compile and check of a kernel in a file."""

from __future__ import annotations

import json
import re
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from warploom.cli import main
from warploom.cli.console import EXIT
from warploom.cli.kernel import load
from warploom.errors import LaunchError

KERNEL = """\
import warploom as wl
import warploom.language as tl


@wl.jit
def product(a_ptr, b_ptr, c_ptr, K, lda, ldb, ldc, BLOCK: tl.constexpr):
    m = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    n = tl.arange(0, BLOCK)
    k = tl.arange(0, 64)
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for step in range(tl.cdiv(K, 64)):
        left = K - step * 64
        a = tl.load(a_ptr + m[:, None] * lda + (step * 64 + k)[None, :], mask=k[None, :] < left)
        b = tl.load(b_ptr + n[None, :] * ldb + (step * 64 + k)[:, None], mask=k[:, None] < left)
        acc = tl.dot(a, b, acc)
    tl.store(c_ptr + m[:, None] * ldc + n[None, :], acc.to(tl.bfloat16))


@wl.jit
def wrong(x_ptr, n):
    tl.store(x_ptr, n + tl.nothing(n))
"""
ARGS = ["--signature", "*bf16:16 *bf16:16 *bf16:16 i32 i32:16 i32:16 i32:16"]
ARGS += ["--constexpr", "BLOCK=128", "--num-consumer-groups", "2"]


@pytest.fixture
def kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WARPLOOM_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "kernels.py"
    path.write_text(KERNEL)
    return path


@pytest.mark.slow
def test_demo_leaves_its_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--out", str(tmp_path)]) == EXIT.ok
    text = capsys.readouterr().out
    assert "specialized: compiled" in text and "uniform: compiled" in text
    assert "no deadlock, and no race on shared memory" in text and "0 bytes of spills" in text
    for name in ("timeline.svg", "timeline.png", "specialized.cu", "uniform.txt"):
        assert (tmp_path / name).stat().st_size > 1000
    events = json.loads((tmp_path / "timeline.json").read_text())["traceEvents"]
    rows = {e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert {"producer", "consumer[0]", "consumer[1] · tensor"} <= rows
    assert "wgmma" in (tmp_path / "specialized.cu").read_text()
    told = re.findall(
        r"^((?:uniform|specialized): [\d,]+ cycles, tensor cores busy \d+%)", text, re.M
    )
    assert len(told) == 2
    committed = Path(__file__).parents[2] / "docs" / "figures" / "demo.svg"  # what the README shows
    for figure in (tmp_path / "timeline.svg", committed):  # else: copy the first over the second
        assert all(f"<!-- {title} -->" in figure.read_text() for title in told), figure
    faster = float(re.search(r"specialized: ([\d.]+) times as fast", text)[1])  # type: ignore[index]
    uniform, specialized = (int(re.sub(r"\D", "", title.split(" cycles")[0])) for title in told)
    assert faster == pytest.approx(uniform / specialized, abs=0.01) and faster > 1.2


def test_a_measured_demo_without_a_gpu_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def none() -> None:
        raise LaunchError("no-driver", "no CUDA driver was found on this machine")

    monkeypatch.setattr("warploom.runtime.launch.driver", none)
    assert main(["demo", "--measured", "--out", str(tmp_path)]) == EXIT.lacking
    said = capsys.readouterr().err
    assert "--measured needs a GPU" in said and "no CUDA driver" in said


def test_explain_tells_the_producer_and_the_ring(
    kernels: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", f"{kernels}:product", *ARGS]) == EXIT.ok
    lines = capsys.readouterr().out.splitlines()
    at = next(i for i, line in enumerate(lines) if "a = tl.load" in line)
    assert "producer" in lines[at].split("|")[0] and "consumer" not in lines[at].split("|")[0]
    notes = "\n".join(lines[at + 1 : at + 5])
    assert "a box of 128×64" in notes and "by TMA into ring" in notes
    assert any("consumer: 2 × 4 warps" in line for line in lines)
    assert any("no spill" in line for line in lines)


def test_compile_writes_each_form(kernels: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = f"{kernels}:product"
    assert main(["compile", "--emit", "cuda", name, *ARGS]) == EXIT.ok
    assert "__global__" in capsys.readouterr().out
    assert main(["compile", "--emit", "ir", "--level", "warp", name, *ARGS]) == EXIT.ok
    assert "level=WARP" in capsys.readouterr().out
    cubin = kernels.with_suffix(".cubin")
    assert main(["compile", "--emit", "cubin", name, *ARGS, "-o", str(cubin)]) == EXIT.ok
    assert cubin.read_bytes().startswith(b"\x7fELF")
    assert "registers" in capsys.readouterr().err
    assert main(["compile", "--emit", "ptx", name, *ARGS]) == EXIT.ok
    assert "wgmma.mma_async" in capsys.readouterr().out
    assert main(["compile", "--emit", "ir", "--level", "nowhere", name, *ARGS]) == EXIT.usage


def test_a_simulated_call_leaves_its_timeline(
    kernels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figure = kernels.with_suffix(".svg")
    monkeypatch.setenv("WARPLOOM_SIM", "1")
    monkeypatch.setenv("WARPLOOM_TIMELINE", str(figure))
    a, b = (np.ones((128, 64), ml_dtypes.bfloat16) for _ in range(2))
    c = np.zeros((128, 128), ml_dtypes.bfloat16)
    kernel = load(f"{kernels}:product")
    kernel[(1,)](a, b, c, 64, 64, 64, 128, BLOCK=128, num_consumer_groups=2)
    assert (c == 64).all()
    assert "producer" in figure.read_text()


@pytest.mark.slow
def test_check_says_what_was_proved(kernels: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", f"{kernels}:product", *ARGS]) == EXIT.ok
    assert "no deadlock, and no race on shared memory" in capsys.readouterr().out


def test_a_kernel_that_does_not_compile_is_code_3_with_its_line(
    kernels: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", f"{kernels}:wrong", "--signature", "*i32 i32"]) == EXIT.compile
    message = capsys.readouterr().err
    line = next(i for i, text in enumerate(KERNEL.splitlines(), 1) if "tl.nothing" in text)
    assert f"kernels.py:{line}:" in message and "tl.nothing" in message and "^" in message


def test_a_specialization_that_did_not_happen_is_told_with_its_reason(
    kernels: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kernels.write_text(
        "import warploom as wl\nimport warploom.language as tl\n\n\n@wl.jit\n"
        "def copy(x_ptr, n, BLOCK: tl.constexpr):\n"
        "    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
        "    tl.store(x_ptr + at, tl.load(x_ptr + at, mask=at < n), mask=at < n)\n"
    )
    asked = ["--signature", "*fp32 i32", "--constexpr", "BLOCK=256", "--num-consumer-groups", "2"]
    assert main(["explain", f"{kernels}:copy", *asked]) == EXIT.ok
    told = capsys.readouterr()
    assert "uniform, against num_consumer_groups, because it has no dot" in told.out
    assert told.err.startswith("warning[not-as-asked]: copy: ")
    assert "def copy(x_ptr" in told.err
    assert main(["explain", f"{kernels}:copy", *asked, "--strict"]) == EXIT.compile
