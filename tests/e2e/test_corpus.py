"""Third-party products (corpus/): a sample against float64, and what they once broke."""

from __future__ import annotations

from pathlib import Path

import pytest

from corpus import catalog
from corpus.case import Case
from tests.e2e.corpus import judging
from warploom.errors import CompileError
from warploom.ir.core import walk
from warploom.ir.ops import tma

pytestmark = pytest.mark.usefixtures("without_nvrtc")

# One of each shape; `python -m tests.e2e.corpus` judges all of them, in every order, checked and ejected.
SAMPLE = [
    "matmul-e4m3-e5m2-rr",
    "matmul-64x64x0",
    "matmul-f32-rr",
    "matmul-int8-cr",
    "f32-tf32-cc",
    "f32-tf32x3-rc",
    "f32-layers-100",
    "int8-scaled-rr",
    "int8-zero-40",
    "hinted-104",
    "blocks-cc",
    "asked-1",
    "tile-64x208x64-8",
    "linear-silu-kept",
    "beta1.0",
    "quantised",
    "int8-64-zeros",
    "gptq",
    "interleaved",
    "mixed-f32-bf16-rc",
    "deepseek-70",
    "layernorm",
    "splitk-atomic",
    "splitk-locked",
    "moe-weighted",
    "swiglu-3",
    "complex",
    "conv-40-3",
    "syrk-mirrored",
    "weight-grad",
    "lora-16",
    "banded",
]
CASES = {c.name: c for c in catalog.cases()}


@pytest.mark.parametrize("name", SAMPLE)
def test_a_kernel_of_the_corpus(name: str, tmp_path: Path) -> None:
    judging.judge(CASES[name], "tasks", tmp_path, orders=("late",), full=False)


def fully(name: str, folder: Path, form: str = "auto") -> str:
    """The oracle, every order, the checker, the way out and back."""
    case: Case = CASES[name]
    return judging.judge(case, form, folder)


def test_a_carried_tile_in_two_layouts(tmp_path: Path) -> None:
    """One arange begins both offsets; the emitter waited for a variable that was not there yet, forever."""
    assert fully("flat-72", tmp_path).startswith("tasks")


def test_a_while_that_counts(tmp_path: Path) -> None:
    """Pointers that it moves are boxes, as in a `for`."""
    assert fully("bmm-128x64", tmp_path) == "tasks tma"


def test_a_load_that_a_while_tests_is_ejected_once(tmp_path: Path) -> None:
    assert fully("grouped", tmp_path).startswith("tasks")


def test_one_long_argument_in_parentheses(tmp_path: Path) -> None:
    """A comma behind it made it a tuple."""
    assert fully("linear-gelu_tanh", tmp_path).startswith("tasks")


def test_rows_too_short_for_a_swizzle_lie_the_other_way(tmp_path: Path) -> None:
    """24 columns of bf16: the script has to find that they are stored along K."""
    assert fully("tile-64x24x32-4", tmp_path) == "tasks tma"


def test_a_lock(tmp_path: Path) -> None:
    """Stream-K: compare and swap until it is free."""
    case = CASES["streamk"]
    judging.judge(case, "tasks", tmp_path, orders=("late",), full=False)
    compiled = case.kernel.compile_for(*case.args, grid=case.grid, **case.meta)
    with pytest.raises(CompileError) as caught:  # the `while` takes the lock in its condition
        compiled.eject()
    assert caught.value.code == "eject"


def test_what_is_turned_is_loaded_first() -> None:
    """Else it would wait for slots of the other operand, which the consumers still read, on the longer way."""
    case = CASES["matmul-f32-rr"]
    compiled = case.kernel.compile_for(
        *case.args, grid=case.grid, **case.meta, num_consumer_groups=1
    )
    placed = compiled.lowered.placed
    loads = [o.operands[1].hint for o in walk(placed.body) if o.kind is tma.tma_load]
    assert [hint[0] for hint in loads] == ["b", "a"], loads
    (arrived,) = (c for c in compiled.schedule.channels if c.name.endswith("_arrived"))
    others = [c for c in compiled.schedule.channels if c is not arrived]
    assert arrived.depth == 2 and all(c.depth >= 3 for c in others)
