"""The hand-written reference kernel is right: each shape in a process of its own, with a time limit."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.reference.run import LIMIT_S, SHAPES

pytestmark = pytest.mark.gpu
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: "x".join(map(str, s)))
def test_reference_kernel_equals_float64(shape: tuple[int, int, int]) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    command = [sys.executable, "-m", "benchmarks.reference.run", *map(str, shape)]
    done = subprocess.run(
        command, cwd=ROOT, timeout=LIMIT_S, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
