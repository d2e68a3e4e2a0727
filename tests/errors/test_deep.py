"""Code that nests deeply: it works, or the error names the place."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from warploom.errors import CompileError

HEAD = "import warploom as wl\nimport warploom.language as tl\n\n"
KERNEL = "@wl.jit\ndef kernel(x, o, n, B: tl.constexpr):\n    i = tl.arange(0, B)\n    v = tl.load(x + i)\n"


def kernel(text: str, folder: Path) -> Any:
    path = folder / "deep.py"
    path.write_text(HEAD + text)
    spec = importlib.util.spec_from_file_location("deep", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.kernel


def ones() -> Iterator[Any]:
    return (np.ones(16, np.float32) for _ in range(2))


@pytest.mark.usefixtures("without_nvrtc")
@pytest.mark.parametrize("terms", [500, 1000])
@pytest.mark.each(2)
def test_long_sums(terms: int, tmp_path: Path) -> None:
    sums = " + ".join(f"v * {i % 5}" for i in range(terms))
    text = f"{KERNEL}    tl.store(o + i, {sums})\n"
    k, (x, out) = kernel(text, tmp_path), ones()
    k[(1,)](x, out, 5, B=16)
    assert (out == 2 * terms).all()
    out[:] = 0
    k.compile_for(x, out, 5, B=16, grid=1).simulate(x, out, 5, grid=1)
    assert (out == 2 * terms).all()


def helpers(n: int) -> str:
    first = "@wl.jit\ndef h0(v):\n    return v\n"
    more = (f"@wl.jit\ndef h{i}(v):\n    return h{i - 1}(v) + 1\n" for i in range(1, n))
    return f"{first}{''.join(more)}{KERNEL}    tl.store(o + i, h{n - 1}(v))\n"


def test_helpers_within_the_limit(tmp_path: Path) -> None:
    k, (x, out) = kernel(helpers(60), tmp_path), ones()
    k[(1,)](x, out, 5, B=16)
    assert (out == 60).all()


DEEP = {
    "helpers": helpers(400),
    "ternaries": KERNEL
    + "    tl.store(o + i, v + ("
    + "".join(f"{i}.0 if n == {i} else " for i in range(600))
    + "0.0))\n",
    "returns": KERNEL
    + "".join(f"    if n == {i + 100}:\n        return\n" for i in range(900))
    + "    tl.store(o + i, v)\n",
}


@pytest.mark.parametrize("name", DEEP)
def test_too_deep(name: str, tmp_path: Path) -> None:
    k, (x, out) = kernel(DEEP[name], tmp_path), ones()
    with pytest.raises(CompileError) as refused:
        k[(1,)](x, out, 5, B=16)
    error = refused.value
    assert error.code == "nesting" and "calls that Python allows" in error.message
    assert error.loc is not None and error.loc.file == str(tmp_path / "deep.py")
    assert error.loc.line > 3 and len(str(error).splitlines()) < 12
