"""corpus/as_triton on the GPU: through the door, and where another Triton is installed by that, in processes of
their own.  `python -m tests.gpu.test_as_triton` prints both times of each program as JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.triton.test_tutorials import SIZES

pytestmark = pytest.mark.gpu
ROOT = Path(__file__).parents[2]
# What Triton 3.6 ends with on Hopper, and why.
OF_TRITON = {
    "attention": "NVGPUWarpSpecialization",  # loops with warp_specialize=True
    "persistent_matmul": "NVGPUWarpSpecialization",  # and by descriptors
    "packed_scales": "PassManager::run failed",  # e4m3 beside e2m1
}
RUN = """
import importlib, json, time, torch
module = importlib.import_module("corpus.as_triton.{name}")
module.check("cuda")
torch.cuda.synchronize()
begin = time.perf_counter()
module.check("cuda")
torch.cuda.synchronize()
import triton
print(json.dumps({{"triton": triton.__name__, "seconds": time.perf_counter() - begin}}))
"""


def ran(name: str, served: bool) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    env.pop("WARPLOOM_AS_TRITON", None)
    text = RUN.format(name=name)
    if served:
        text = "from warploom.runtime.serve import serve\nserve()\n" + text
    return subprocess.run(
        [sys.executable, "-c", text],
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


@pytest.mark.parametrize("name", SIZES)
def test_a_program(name: str) -> None:
    done = ran(name, served=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1])["triton"] == "warploom.triton"


@pytest.mark.parametrize("name", SIZES)
def test_a_program_by_triton_itself(name: str) -> None:
    """The programs are right where Triton's own compiler runs them."""
    pytest.importorskip("triton")
    done = ran(name, served=False)
    if done.returncode and name in OF_TRITON and OF_TRITON[name] in done.stderr:
        pytest.xfail(f"{name}: {OF_TRITON[name]}")
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1])["triton"] == "triton"


if __name__ == "__main__":
    for program in sys.argv[1:] or SIZES:
        for served in (True, False):
            done = ran(program, served)
            told = json.loads(done.stdout.splitlines()[-1]) if not done.returncode else {}
            error = {"error": done.stderr[-500:]} if done.returncode else {}
            print(json.dumps({"program": program, **told, **error}), flush=True)
