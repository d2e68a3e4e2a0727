"""docs/triton.md's tables: complete, current, and true of the packages; what is the same is used somewhere."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import runpy
from pathlib import Path
from typing import Any

import pytest

from warploom.frontend.language.core import METHODS
from warploom.triton.names import MODULES

ROOT = Path(__file__).parents[2]
NAMES = [(module, name) for module, table in MODULES.items() for name in table.all]


def ours(module: str) -> Any:
    """A module, or an object in one."""
    return pkgutil.resolve_name(f"warploom.{module}")


def test_the_page_is_current() -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "door_reference.py"))
    file = ROOT / "docs" / "triton.md"
    assert tool["page"](file, MODULES) == file.read_text(encoding="utf-8")


def test_a_name_is_one_of_three() -> None:
    for module, table in MODULES.items():
        assert not table.different.keys() & table.missing.keys(), module
        assert all(len(w) > 5 for w in (*table.different.values(), *table.missing.values())), module


@pytest.mark.parametrize("module", MODULES)
def test_what_is_there_exists_and_what_is_missing_does_not(module: str) -> None:
    table = MODULES[module]
    if table.absent:
        with pytest.raises((ModuleNotFoundError, AttributeError)):
            ours(module)
        return
    package = ours(module)
    for name in table.all:
        is_missing = table.status(name)[0] == "missing"
        assert hasattr(package, name) is not is_missing, f"{module}.{name}"


def test_the_tables_hold_what_an_installed_triton_exports() -> None:
    """Where one is installed: its own lists of names."""
    triton = pytest.importorskip("triton")
    if triton.__version__ != "3.6.0":
        pytest.skip("another version")
    for module, table in MODULES.items():
        try:
            package = importlib.import_module(module)
        except ModuleNotFoundError:  # an object, whose names no list has
            continue
        wanted = getattr(package, "__all__", None)
        if wanted is not None:
            assert not set(wanted) - set(table.all), module


# What Triton's `tensor` has as a method.
TENSOR_METHODS = """
abs argmax argmin associative_scan atomic_load atomic_poll atomic_store atomic_add atomic_and atomic_cas atomic_max atomic_min atomic_or atomic_xchg
atomic_xor broadcast_to cast cdiv ceil cos cumprod cumsum erf exp exp2 expand_dims flip floor gather histogram
log log2 logical_and logical_or max min permute ravel reduce reduce_or reshape rsqrt sigmoid sin softmax sort
split sqrt sqrt_rn store sum to trans view xor_sum
"""


def test_tiles_have_triton_s_methods() -> None:
    assert not set(TENSOR_METHODS.split()) - METHODS.keys()


def used() -> set[str]:
    """Names that tests, the corpus and the library read of a module or use as methods."""
    found: set[str] = set()
    folders = [ROOT / "tests", ROOT / "corpus", ROOT / "warploom" / "kernels"]
    for path in (p for folder in folders for p in folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute):
                found.add(node.attr)
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                found.add(node.func.id)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.update(node.value.split() if len(node.value) < 500 else ())
    return found


def test_what_is_there_is_exercised() -> None:
    read = used()
    for module, table in MODULES.items():
        there = {name for name in table.all if table.status(name)[0] != "missing"}
        assert not there - read, f"no test uses {sorted(there - read)} of {module}"


def test_a_missing_name_is_refused_with_what_to_write_instead() -> None:
    import numpy as np

    import warploom.triton as triton
    import warploom.triton.language as tl
    from warploom.errors import CompileError

    @triton.jit
    def kernel(out_ptr: Any) -> None:
        tl.store(out_ptr, tl.str_to_ty)

    with pytest.raises(CompileError) as e:
        kernel[(1,)](np.zeros(1, np.float32))
    assert e.value.code == "not-yet" and "types are not" in str(e.value.help)
