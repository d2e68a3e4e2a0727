"""Operators of other libraries, served from here, against their references: skipped where these aren't installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

for name in ("torch", "liger_kernel", "fla"):
    pytest.importorskip(name)

ROOT = Path(__file__).parents[2]
QUICK = ["liger rms_norm llama", "fla chunk_local_cumsum_vector", "fla l2norm"]
THOROUGH = [
    "liger cross_entropy",
    "liger fused_moe",
    "fla chunk_gated_delta_rule",
    "fla parallel_attn",
]


@pytest.mark.parametrize(
    "name", [*QUICK, *(pytest.param(n, marks=pytest.mark.thorough) for n in THOROUGH)]
)
def test_operator(name: str) -> None:
    command = [sys.executable, "-m", "benchmarks.third_party", "--no-compile", "--one", name]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    run = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT)
    found = json.loads(run.stdout.rpartition("FOUND ")[2])
    assert "error" not in found and found["right"], found.get("error", found.get("errors"))
    assert found["launches"]
