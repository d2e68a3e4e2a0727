"""`warploom run` and WARPLOOM_AS_TRITON: a program that imports triton and tilus is served from here."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

LIBRARY = """\
from triton import language as tl
import triton

TWO = tl.constexpr(2)

@triton.jit
def twice(x):
    return x * TWO
"""
SCRIPT = """\
import sys
import numpy as np
import tilus
import triton
import triton.language as tl
import triton.language.core
import triton.runtime.driver as driver
from triton.language.extra import libdevice
from triton.language.extra.cuda import libdevice as again
from triton.runtime.jit import JITFunction
from triton.tools.tensor_descriptor import TensorDescriptor
import a_library

HALF = tl.constexpr(0.5)

@triton.jit
def doubled(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, a_library.twice(tl.load(x_ptr + at, mask=at < n)), mask=at < n)

@triton.jit
def strange(x_ptr, out_ptr, n, BLOCK: tl.constexpr, FACTOR: tl.constexpr = 2 * HALF):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(out_ptr + at, a_library.twice(x).unheard_of(), mask=at < n)

import importlib.metadata
assert importlib.metadata.version("triton") == triton.__version__
assert importlib.metadata.version("tilus") == tilus.__version__
assert libdevice.rsqrt.__module__.startswith("triton.language") and warploom is sys.modules["warploom"]
assert libdevice is again and tl.core.constexpr is tl.constexpr and isinstance(doubled, JITFunction)
assert triton.__name__ == "warploom.triton" and tilus.__name__ == "warploom.tilus"
x = np.arange(100, dtype=np.float32)
out = np.zeros_like(x)
for _ in range(2):
    doubled[(2,)](x, out, 100, BLOCK=64)
assert (out == 2 * x).all()
if "strange" in sys.argv:
    strange[(1,)](x, out, 100, BLOCK=128)
    strange[(1,)](x, out, 100, BLOCK=128)
    print("handed on", out[:3])
print("ran with", sys.argv[1:])
if "raise" in sys.argv:
    raise ValueError("of the script")
sys.exit(len(sys.argv) - 1)
"""
# An installed Triton: it runs kernels by calling them, with numbers in place of tiles.
INSTALLED = {
    "triton/__init__.py": """
import types
from triton import language
class Kernel:
    def __init__(self, fn):
        self.fn = fn
    def __getitem__(self, grid):
        import triton.late
        return self.launch
    def __call__(self, *args):
        return self.fn(*args)
    def launch(self, x, out, n, BLOCK):
        names = self.fn.__globals__
        assert names["HALF"].value == 0.5  # Triton evaluates defaults itself
        assert names["tl"] is language and type(names["a_library"]).__name__ == "module"
        assert self.fn.__annotations__["BLOCK"] is language.constexpr
        out[:] = 7
def jit(do_not_specialize, do_not_specialize_on_alignment):
    return Kernel
""",
    "triton/late.py": "import triton\nassert triton.jit((), ()) is triton.Kernel",
    "triton/language/__init__.py": """
class constexpr:
    def __init__(self, value): self.value = value
""",
    "triton/language/math.py": "",
    "triton/language/extra/__init__.py": "",
    "triton/language/extra/libdevice.py": "",
    "triton/tools/__init__.py": "",
    "triton/tools/tensor_descriptor.py": "class TensorDescriptor: pass",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a_library.py").write_text(LIBRARY)
    (tmp_path / "script.py").write_text(SCRIPT)
    return tmp_path


def python(
    folder: Path, *arguments: str, code: int = 0, **env: str
) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(ROOT), env.pop("path", "")])
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, **env},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done


def test_a_script_and_the_libraries_that_it_imports(folder: Path) -> None:
    done = python(folder, "-m", "warploom", "run", "script.py", "--a", "b", code=2)
    assert done.stdout == "ran with ['--a', 'b']\n" and not done.stderr
    done = python(folder, "-m", "warploom", "run", "-m", "script", code=0)
    assert done.stdout == "ran with []\n"


def test_the_variable_serves_who_imports_warploom(folder: Path) -> None:
    text = "import warploom, sys; sys.argv = ['']; import script"
    python(folder, "-c", text, WARPLOOM_AS_TRITON="1")


def test_processes_that_a_program_starts_are_served(folder: Path) -> None:
    """Whether they are given the environment or sys.path, as PyTorch gives Inductor's workers; what else is
    called sitecustomize runs."""
    (folder / "parent.py").write_text(
        "import os, subprocess, sys\n"
        "child = [sys.executable, '-c', 'import triton; print(triton.__name__)']\n"
        "for path in os.environ['PYTHONPATH'], os.pathsep.join(sys.path):\n"
        "    subprocess.run(child, check=True, env={**os.environ, 'PYTHONPATH': path})\n"
    )
    (folder / "others").mkdir()
    (folder / "others" / "sitecustomize.py").write_text("print('customized')")
    path = str(folder / "others")
    done = python(folder, "-m", "warploom", "run", "parent.py", code=0, path=path)
    assert done.stdout.split() == ["customized", *["customized", "warploom.triton"] * 2]


def test_other_pythons_that_a_program_starts_say_nothing(tmp_path: Path) -> None:
    """What runs first in them is text to all, and imports warploom where that runs."""
    hook = ROOT / "warploom" / "cli" / "startup" / "sitecustomize.py"
    text = hook.read_text(encoding="ascii")
    ast.parse(text, feature_version=(3, 4))
    assert "import annotations" not in text
    code = f"import runpy, sys; sys.version_info = 3, 10, 0; runpy.run_path({str(hook)!r})"
    code += "; assert 'warploom' not in sys.modules"
    env = {**os.environ, "WARPLOOM_AS_TRITON": "1"}
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], env=env, capture_output=True, text=True
    )
    assert done.returncode == 0 and not done.stdout + done.stderr


def test_a_script_s_own_errors_are_its_own(folder: Path) -> None:
    done = python(folder, "-m", "warploom", "run", "script.py", "raise", code=1)
    lines = done.stderr.splitlines()
    assert lines[0].startswith("Traceback") and "script.py" in lines[1]
    assert lines[-1] == "ValueError: of the script"
    done = python(folder, "-m", "warploom", "run", "absent.py", code=2)
    assert "there is no file absent.py" in done.stderr
    (folder / "imports.py").write_text("import triton.unheard_of")
    done = python(folder, "-m", "warploom", "run", "imports.py", code=1)
    assert "No module named 'triton.unheard_of' (warploom serves triton" in done.stderr


def test_a_report(folder: Path) -> None:
    done = python(folder, "-m", "warploom", "run", "--report", "script.py", "strange", code=1)
    report = done.stderr.splitlines()[-4:]
    assert report[0].startswith("doubled (script.py:16): interpreted; 2 launches, ")
    assert report[1].startswith("strange (script.py:21): refused; 1 launch, ")
    assert report[2].startswith("  error[attribute]: tile<128xf32> has no attribute unheard_of")
    assert report[3] == "2 kernels met, 1 refused each time; 3 launches, 1 refused"


def test_what_is_refused_goes_to_an_installed_triton(folder: Path) -> None:
    done = python(folder, "-m", "warploom", "run", "--fallback", "script.py", "strange", code=2)
    assert "--fallback needs the real Triton: No module named 'triton'" in done.stderr
    for name, text in INSTALLED.items():
        (folder / "installed" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "installed" / name).write_text(text)
    flags = ["--fallback", "--report", "script.py", "strange"]
    done = python(folder, "-m", "warploom", "run", *flags, code=1, path=str(folder / "installed"))
    assert done.stdout.splitlines() == ["handed on [7. 7. 7.]", "ran with ['strange']"]
    told = "strange is handed to the installed Triton: error[attribute]: tile<128xf32> has no"
    assert done.stderr.count(told) == 1
    assert "strange (script.py:21): by the installed Triton; 2 launches" in done.stderr
