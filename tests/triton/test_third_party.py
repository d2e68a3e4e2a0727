"""Operators of other libraries, served from here, against their references: skipped where these aren't installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

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
    found = told_of(name, "--no-compile")
    assert "error" not in found and found["right"], found.get("error", found.get("errors"))
    assert found["launches"]


def test_an_operator_on_the_simulator() -> None:
    found = told_of("fla l2norm", "--simulate")
    assert "error" not in found and found["right"], found.get("error", found.get("errors"))
    assert [one["check"] for one in found["launches"]] == ["proved", "proved"]


def told_of(name: str, flag: str) -> Any:
    command = [sys.executable, "-m", "benchmarks.third_party", flag, "--one", name]
    path = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path)}
    run = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT)
    return json.loads(run.stdout.rpartition("FOUND ")[2])


def test_elements_of_expanded_tensors_count_once() -> None:
    import torch

    from benchmarks.third_party.launches import once

    x = torch.arange(6.0).reshape(2, 1, 3).expand(2, 4, 3)
    assert once(x).shape == (2, 1, 3)
    once(x).data.copy_(torch.ones(2, 1, 3))
    assert bool((x == 1).all())
