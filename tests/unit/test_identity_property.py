"""Whatever a kernel reads may change: the next launch, and the next process, run what is there now.

Modules are random (random_modules.py), every integer of one is edited, and the CUDA text that a launch takes is
compared with what a kernel without any history is compiled to.
"""

from __future__ import annotations

import itertools
import json
import linecache
import os
import re
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import warploom as wl
from tests.unit.fake_driver import FakeDriver, GpuArray
from tests.unit.random_modules import Module, random_module, random_script
from warploom.frontend.reads import Variants
from warploom.runtime import autotune, jit, launch
from warploom.runtime import kernel as kernel_module
from warploom.runtime.args import _PROBES, KEYS
from warploom.runtime.nvrtc import Build

X, OUT = GpuArray(1 << 20, (32,), "int32"), GpuArray(1 << 21, (32,), "int32")
SIGNATURE = ["*i32:16", "*i32:16"]
_numbers = itertools.count()


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A GPU that only records, a compiler that compiles nothing, and an empty cache."""
    monkeypatch.setenv("WARPLOOM_CACHE", str(tmp_path / "cache"))
    driver = FakeDriver()
    for module in (launch, jit, kernel_module, autotune):
        monkeypatch.setattr(module, "driver", lambda: driver)
    monkeypatch.setattr("warploom.runtime.build.compile_text", build)
    yield tmp_path
    for table in (_PROBES, KEYS):
        table.pop(GpuArray, None)  # type: ignore[attr-defined]


def build(source: str, plan: Any, *_: Any, **__: Any) -> Build:
    return Build(plan.name, b"", "", 0, 0, 0, 0, 0, (), 0.0, "none", "")


def run(text: str, module: types.ModuleType) -> None:
    """Runs text in a module, as a cell of a notebook: with its source at hand."""
    file = f"<cell {next(_numbers)}>"
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    exec(compile(text, file, "exec"), vars(module))


def imported(text: str) -> types.ModuleType:
    module = types.ModuleType("generated")
    run(text, module)
    return module


def code(kernel: Any) -> str:
    """The CUDA text without comments, which say where the source stands."""
    return re.sub("//.*", "", kernel.cuda)


def fresh(module: types.ModuleType) -> str:
    """What the module's kernel is compiled to now, by a translation that knows no earlier one."""
    before = os.environ["WARPLOOM_CACHE"]
    os.environ["WARPLOOM_CACHE"] = "off"
    try:
        return code(wl.jit(module.k.fn)[(1,)](X, OUT))
    finally:
        os.environ["WARPLOOM_CACHE"] = before


def launched(module: types.ModuleType) -> str:
    """What a launch of known arguments, then one of new ones, runs."""
    found = module.k[(1,)](X, OUT)
    other = module.k[(1,)](X, GpuArray((1 << 22) + 4096 * next(_numbers), (32,), "int32"))
    assert found is other
    return code(found)


def check(m: Module, slots: range) -> None:
    values = [100 + 7 * i for i in range(len(m.edits))]
    module = imported(m.text(values))
    first = launched(module)
    assert first == fresh(module)
    assert imported(m.text(values)).k[(1,)](X, OUT).from_cache
    for slot in slots:
        edited = [1000 + slot if i == slot else v for i, v in enumerate(values)]
        run(m.edit(slot, edited), module)
        changed = launched(module)
        assert changed == fresh(module) != first, f"slot {slot} of\n{m.text(values)}"
        again = imported(m.text(edited))  # as a new process would, beside the same cache
        assert launched(again) == fresh(again) != first
        run(m.edit(slot, values), module)
        assert launched(module) == fresh(module)


@settings(
    max_examples=4,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(seed=st.integers(0, 10**6), at=st.integers(0, 10**6))
def test_a_script_sees_an_edit(machine: Path, seed: int, at: int) -> None:
    m = random_script(seed)
    for slot in (0, 1, at % len(m.edits)):
        values = [100 + 7 * i for i in range(len(m.edits))]
        module = imported(m.text(values))
        first = compiled_script(module.s)
        values[slot] += 1000
        run(m.edit(slot, values), module)
        found = compiled_script(module.s)
        module.s._compiled_for = Variants()  # forgets all that it compiled
        assert found == compiled_script(module.s) != first, f"slot {slot} of\n{m.text(values)}"
        assert compiled_script(imported(m.text(values)).s) == found


@settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(seed=st.integers(0, 10**6), at=st.integers(0, 10**6))
def test_an_edit_is_seen(machine: Path, seed: int, at: int) -> None:
    m = random_module(seed)
    at %= len(m.edits)
    check(m, range(at, at + 1))


def compiled_script(script: Any) -> str:
    return code(script.compile(["*i32:16"]))


PROCESS = """
import json, os, sys
from tests.unit.test_identity_property import SIGNATURE, build, code, imported
from warploom.runtime import build as building
building.compile_text = build
cache = os.environ["WARPLOOM_CACHE"]
found = []
for file in sys.argv[1:]:
    module = imported(open(file).read())
    kernel = module.k.compile(SIGNATURE)
    os.environ["WARPLOOM_CACHE"] = "off"
    now = imported(open(file).read()).k.compile(SIGNATURE)
    os.environ["WARPLOOM_CACHE"] = cache
    found.append((kernel.from_cache, code(kernel) == code(now)))
print(json.dumps(found))
"""


def test_an_edit_is_seen_by_another_process(tmp_path: Path) -> None:
    modules = [random_module(seed) for seed in range(8)]
    files = [tmp_path / f"m{i}.py" for i in range(len(modules))]
    environment = {**os.environ, "WARPLOOM_CACHE": str(tmp_path / "cache")}

    def process(change: int) -> list[list[bool]]:
        for file, m in zip(files, modules, strict=True):
            values = [100 + 7 * i for i in range(len(m.edits))]
            values[len(values) // 2] += change
            file.write_text(m.text(values))
        command = [sys.executable, "-c", PROCESS, *map(str, files)]
        out = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        found: list[list[bool]] = json.loads(out.stdout)
        return found

    # some are alike in all that is read, and share an entry
    first, again, edited = process(0), process(0), process(1)
    assert all(right for _, right in (*first, *again, *edited))
    assert all(cached for cached, _ in again)
    assert not first[0][0] and not edited[0][0]
