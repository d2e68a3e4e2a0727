"""The wheel holds all that is needed: built, installed in an empty environment, used from elsewhere."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

KERNEL = """\
import warploom as wl
import warploom.language as tl


@wl.jit
def scale(x_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(x_ptr + at, x * 2.0, mask=at < n)


import warploom
assert "site-packages" in warploom.__file__, warploom.__file__
compiled = scale.compile(signature=("*fp32:16", "i32"), constexprs={"BLOCK": 256})
assert compiled.cubin[:4] == b"\\x7fELF"
print("compiled", len(compiled.cubin))
"""


def run(*command: object, cwd: Path, **more: str) -> str:
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    env = {**kept, **more}  # nothing is found but what is installed
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.thorough
def test_a_wheel_in_an_empty_environment_compiles_a_kernel(tmp_path: Path) -> None:
    source, wheels, elsewhere = (tmp_path / name for name in ("source", "wheels", "elsewhere"))
    elsewhere.mkdir()
    ignored = shutil.ignore_patterns("__pycache__")  # a copy: a build leaves files in its folder
    shutil.copytree(ROOT / "warploom", source / "warploom", ignore=ignored)
    for name in ("pyproject.toml", "setup.py", "warploom.pth", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    run(
        sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", wheels, source, cwd=tmp_path
    )  # fmt: skip
    (wheel,) = wheels.glob("warploom-*.whl")
    # Its pip and the bytecode of what it depends on would cost more than the rest.
    venv.create(tmp_path / "env", with_pip=False)
    python = tmp_path / "env" / "bin" / "python"
    run(
        sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-compile", wheel,
        cwd=elsewhere,
    )  # fmt: skip
    (elsewhere / "kernel.py").write_text(KERNEL)
    assert "compiled" in run(python, "kernel.py", cwd=elsewhere)
    command = tmp_path / "env" / "bin" / "warploom"
    assert "sm_90a" in run(command, "doctor", cwd=elsewhere)
    served = "import triton, tilus; print(triton.__name__, tilus.__name__)"
    told = run(python, "-c", served, cwd=elsewhere, WARPLOOM_AS_TRITON="1")
    assert told.split() == ["warploom.triton", "warploom.tilus"]
    absent = "import sys; print('warploom' in sys.modules)"
    assert run(python, "-c", absent, cwd=elsewhere).split() == ["False"]
    assert "PATH.py:FUNCTION" in run(command, "bench", "--help", cwd=elsewhere)
