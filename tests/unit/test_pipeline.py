"""The one list of passes: its order, whose files it names, and what happens to a pass that breaks its word."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from warploom import compile as pipeline_runner
from warploom.compile import lower, lower_explicit
from warploom.errors import InternalError
from warploom.ir.core import Func, Level
from warploom.ir.parser import parse_func
from warploom.passes import pipeline
from warploom.passes.pipeline import PIPELINE, Pass, names
from warploom.schedule.model import Knobs
from warploom.target import SM_90A, TARGETS, Target

COPY = """func @copy(%p: ptr<f32>, %q: ptr<f32>) level=TILE {
  %x = load(%p) : f32
  store(%q, %x)
  yield()
}
"""


def copy() -> Func:
    return parse_func(COPY)


def test_levels_never_go_back() -> None:
    levels = [row.after for row in PIPELINE if isinstance(row, Pass)]
    assert levels == sorted(levels)
    assert levels[0] is Level.TILE and levels[-1] is Level.PLACED


def source(name: str) -> str:
    """The text of a pass's file."""
    folder = Path(pipeline.__file__).parent
    (file,) = (p for p in (*folder.glob(f"*/{name}.py"), *folder.glob(f"*/{name}/__init__.py")))
    return file.read_text()


def test_every_pass_is_a_file_of_its_name() -> None:
    for name in names():
        assert re.search(rf"def {name}\(\s*func: Func", source(name)), name


def test_passes_list_the_kernels_that_they_change() -> None:
    """tools/pass_families.py measures which."""
    for name in names():
        assert "\nChanges: " in source(name).split('"""')[1], name


def test_a_kernel_takes_the_passes_that_its_schedule_asks_for() -> None:
    lowered = lower(copy(), Knobs(num_warps=4), SM_90A)
    took = [name for name, _ in lowered.steps]
    assert took[0] == "frontend" and took[-1] == "place_warp_syncs"
    assert "partition_code" in took
    assert not {
        "peel_single_trip_loops",
        "partition_ctas",
        "expand_pipeline",
    } & set(took)


def test_what_is_at_warp_enters_there() -> None:
    """Also a function at WARP that no script made: the bare program of an automatic kernel."""
    bare = lower(copy(), Knobs(), SM_90A).bare
    steps = [name for name, _ in lower_explicit(bare, SM_90A).steps]
    assert steps == [
        "translate",
        "canonicalize",
        "merge_elects",
        "assign_layouts",
        "limit_unrolling",
        "place_fences",
        "allocate_shared",
        "place_grid_wait",
        "place_warp_syncs",
    ]


def test_a_pass_that_makes_another_level_is_blamed(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = tuple(
        replace(row, run=lambda f, r: f) if row.name == "partition_tasks" else row
        for row in PIPELINE
    )
    monkeypatch.setattr(pipeline, "PIPELINE", rows)
    with pytest.raises(
        InternalError, match=r"pass partition_tasks failed(.|\n)*level TILE, not TASK"
    ):
        lower(copy(), Knobs(), SM_90A)


def test_the_verifier_is_told_the_target(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Target] = []
    monkeypatch.setattr(pipeline_runner, "verify", lambda f, target: told.append(target))
    other = replace(SM_90A, name="sm_other")
    monkeypatch.setitem(TARGETS, other.name, other)
    lower(copy(), Knobs(), other)
    assert told and set(told) == {other}
