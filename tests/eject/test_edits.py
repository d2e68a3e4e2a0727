"""Edits of an ejected file behave as edits of any script."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.e2e import gemms, road
from tests.e2e.gemms import WS, Gemm
from tests.eject.owned import owned
from warploom.errors import CompileError, WarploomError
from warploom.runtime.args import fields_of

pytestmark = pytest.mark.usefixtures("without_nvrtc")
CASE = Gemm(150, 96, 200, kernel="host", orders="rr")


def text_and_args(case: Gemm = CASE) -> tuple[str, list[Any]]:
    a, b, c = case.arrays(np.random.default_rng(0))
    args = case.args(a, b, c)
    compiled = road.compile_for(case.jit, args, case.programs, {**case.meta, **WS})
    return compiled.eject(), args


def edited(text: str, old: str, new: str, times: int = 1) -> str:
    assert text.count(old) == times, text
    return text.replace(old, new)


def product(script: Any, args: list[Any]) -> tuple[Any, Any]:
    """(what a call computes, A·B)"""
    script(*args)
    a, b, c = (d.base for d in args[:3])
    return c, gemms.exact(a, b, CASE.out)


def test_the_depth(tmp_path: Path) -> None:
    text, args = text_and_args()
    script, signature = owned(edited(text, "self.depth = 3", "self.depth = 2"), tmp_path, 2)
    shapes = [o.attrs for o in script.compile(signature).placed.body.ops if "lead" in o.attrs]
    assert [a["lead"] for a in shapes][:2] == [(2,), (2,)]
    found, wanted = product(script, args)
    np.testing.assert_array_equal(found, wanted)
    assert script.check(*args).ok


def test_an_op_of_the_epilogue(tmp_path: Path) -> None:
    text, args = text_and_args()
    line = next(s for s in text.splitlines() if "self.where(ran, acc, 0.0)" in s)
    more = line.replace("self.where(ran, acc, 0.0)", "self.maximum(self.where(ran, acc, 0.0), 0.0)")
    script, _ = owned(edited(text, line, more), tmp_path, 2)
    found, wanted = product(script, args)
    np.testing.assert_array_equal(found, np.maximum(wanted, 0))


@pytest.mark.parametrize(
    "line",
    [
        "self.mbarrier.wait(full[slot], phase)",
        "self.mbarrier.wait(empty[slot], phase ^ 1)",
        "self.fence.proxy_async()",
    ],
)
@pytest.mark.each(2)
def test_a_line_left_out_is_found(line: str, tmp_path: Path) -> None:
    """check() says so, with a line of the edited file."""
    text, args = text_and_args(
        CASE.with_(kernel="pointers")
    )  # C's rows are whole units: stored by TMA
    script, _ = owned(edited(text, line, "pass"), tmp_path, 2)
    report = script.check(*args)
    assert not report.ok
    found: WarploomError = report.diagnostics[0]
    assert str(tmp_path) in str(found)
    assert script.compile_for(*args).placed.loc is not None


def test_another_argument_than_it_was_made_for(tmp_path: Path) -> None:
    """A stride that was the constant 1: refused with its line, not computed wrongly."""
    text, args = text_and_args(CASE.with_(kernel="pointers"))
    script, _ = owned(text, tmp_path, 2)
    args[7] = 2  # stride_ak
    with pytest.raises(CompileError, match=r"self.static_assert\(stride_ak == 1\)"):
        script(*args)


def test_descriptors_by_name(tmp_path: Path) -> None:
    text, args = text_and_args()
    script, _ = owned(text, tmp_path, 2)
    names = ["a_desc", "b_desc", "c_desc", "M", "N", "K"]
    by_name = script.bind([], dict(zip(names, args, strict=True)))
    assert by_name.specs == script.bind(args, {}).specs
    assert len(by_name.fields) == sum(
        len(fields_of(n, a)) for n, a in zip(names, args, strict=True)
    )
