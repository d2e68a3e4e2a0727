"""`python -m benchmarks` on the GPU: a small case of each kind, from another folder; and `do_bench`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.records import read

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.gpu

CASES = {
    "gemm": ("512,768,256", "warploom,explicit,cublas"),
    "attention": (
        "1,2,512,64,causal",
        "warploom_auto_attention,warploom_attention,cudnn_attention",
    ),
    "fp8": ("512,768,256", "warploom_fp8,explicit_fp8,scaled_mm"),
    "dual": ("512,768,256", "warploom_dual,explicit_dual,torch_dual"),
}


@pytest.mark.parametrize("kind", list(CASES))
def test_bench_measures_a_small_case(kind: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    shape, peers = CASES[kind]
    command = [sys.executable, "-m", "benchmarks", kind, "--shape", shape, "--bursts", "2"]
    done = subprocess.run(
        [*command, "--peers", peers, "--out", "found.jsonl"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=240, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    results = read(tmp_path / "found.jsonl").records
    assert len(results) == len(peers.split(","))
    for record in results:
        assert not record.error and len(record.burst) == 2, record
        assert record.rel_err < 6e-3 and min(record.burst) > 0
        assert record.peer in done.stdout
    assert "<svg" in (tmp_path / "found.svg").read_text()


def test_a_launch_takes_the_time_that_its_work_takes() -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    from warploom.bench import do_bench

    def copied(megabytes: int) -> float:
        x = torch.empty(megabytes << 20, dtype=torch.uint8, device="cuda")
        y = torch.empty_like(x)
        return do_bench(lambda: y.copy_(x), bursts=3)

    small, large = copied(256), copied(1024)
    assert 2.5 < large / small < 6
    with pytest.raises(ValueError, match="at least one"):
        do_bench(lambda: None, bursts=0)
