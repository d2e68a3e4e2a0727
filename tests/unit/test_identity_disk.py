"""The disk cache across processes: a kernel whose source, or what it reaches, says 5 is never one compiled for 2."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

HEAD = """
import warploom as wl, warploom.language as tl
"""
KERNEL = """
@wl.jit
def k(x, o{more}):
    i = tl.arange(0, 64)
    tl.store(o + i, {value})
"""
LOAD = "tl.load(x + i)"
FUNCTION = "@tl.constexpr_function\ndef f(n):\n    return {}\n"
HELPER = "@wl.jit\ndef h(a{}):\n    return a * {}\n"
BY_F = KERNEL.format(more="", value=f"{LOAD} * f(1)")

# Each says VALUE somewhere, and its kernel multiplies by it.
CASES = {
    "a plain function": "def plain(n):\n    return n * VALUE\n" + FUNCTION.format("plain(n)") + BY_F,
    "a plain function in a lambda": FUNCTION.format("(lambda z: g(z))(n)")
    + "def g(z):\n    return z * VALUE\n"
    + BY_F,
    "a class attribute": "class Cfg:\n    B = VALUE\n" + FUNCTION.format("n * Cfg.B") + BY_F,
    "a dict": "D = {'B': VALUE}\n" + FUNCTION.format("n * D['B']") + BY_F,
    "an import": "@tl.constexpr_function\ndef f(n):\n    import cfg as q\n    return q.B * n\n" + BY_F,
    "a helper's default": HELPER.format(", s=VALUE", "s")
    + KERNEL.format(more="", value=f"h({LOAD})"),
    "a global as a helper's default": "S = VALUE\n"
    + HELPER.format(", s=S", "s")
    + KERNEL.format(more="", value=f"h({LOAD})"),
    "a global as a kernel's default": "S = VALUE\n"
    + KERNEL.format(more=", s: tl.constexpr = S", value=f"{LOAD} * s"),
    "a tuple": "S = (1.0, VALUE)\n" + KERNEL.format(more="", value=f"{LOAD} * S[1]"),
    "a helper in a tuple": HELPER.format("", "VALUE")
    + "F = (h,)\n"
    + KERNEL.format(more="", value=f"F[0]({LOAD})"),
    "a helper in a tuple as a constexpr": HELPER.format("", "VALUE")
    + KERNEL.format(more=", F: tl.constexpr = (h,)", value=f"F[0]({LOAD})").replace("(h,)", "(1, h)")
    .replace("F[0]", "F[1]"),
    "a helper as a constexpr": HELPER.format("", "VALUE")
    + KERNEL.format(more=", F: tl.constexpr = h", value=f"F({LOAD})"),
    "a tl.constexpr": "S = tl.constexpr(VALUE)\n" + KERNEL.format(more="", value=f"{LOAD} * S"),
    "a module by another name": "import cfg\n"
    + KERNEL.format(more="", value=f"{LOAD} * m.B").replace("    tl.st", "    m = cfg\n    tl.st"),
    "a module as an argument": "import cfg\n@wl.jit\ndef h(a, m):\n    return a * m.B\n"
    + KERNEL.format(more="", value=f"h({LOAD}, cfg)"),
}  # fmt: skip

PROCESS = """
import importlib, json, sys
from tests.unit.test_identity_property import build
from warploom.runtime import build as building
building.compile_text = build
found = []
for i in range(int(sys.argv[1])):
    kernel = importlib.import_module(f"case{i}").k.compile(["*fp32:16", "*fp32:16"])
    found.append((kernel.from_cache, kernel.cuda.count(" * " + sys.argv[2] + "f")))
print(json.dumps(found))
"""


def test_what_changes_between_processes(tmp_path: Path) -> None:
    paths = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    environment = {**os.environ, "WARPLOOM_CACHE": str(tmp_path / "cache"), "PYTHONPATH": paths}
    environment["PYTHONDONTWRITEBYTECODE"] = "1"  # files that change twice a second

    def process(value: str) -> dict[str, list[object]]:
        (tmp_path / "cfg.py").write_text(f"B = {value}\n")
        for i, body in enumerate(CASES.values()):
            (tmp_path / f"case{i}.py").write_text(HEAD + body.replace("VALUE", value))
        command = [sys.executable, "-c", PROCESS, str(len(CASES)), value]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return dict(zip(CASES, json.loads(done.stdout), strict=True))

    for value, cached in (("2.0", False), ("5.0", False), ("2.0", True)):
        found = process(value)
        assert {name for name, (_, times) in found.items() if not times} == set(), value
        if cached:
            assert {name for name, (from_cache, _) in found.items() if not from_cache} == set()
