"""Knobs: each is documented once, from where help, page and ranges come; what can't be had is told."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

import warploom as wl
from benchmarks.harness import with_current_names
from tests.passes import road
from tests.passes.kernels import gemm
from warploom.runtime.binding import make_knobs
from warploom.schedule.heuristic import choose
from warploom.schedule.model import Knobs
from warploom.target import SM_90A

ROOT = Path(__file__).parents[2]


def test_the_reference_is_current() -> None:
    command = [sys.executable, str(ROOT / "tools" / "knob_reference.py"), "--check"]
    assert not subprocess.run(command, cwd=ROOT, env={"PYTHONPATH": "."}).returncode


def test_a_config_has_the_defaults_of_the_knobs() -> None:
    knobs = {f.name: f.default for f in dataclasses.fields(Knobs)}
    for f in dataclasses.fields(wl.Config):
        assert f.name in ("kwargs", "pre_hook", "ir_override") or knobs[f.name] == f.default


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"mma_wait_position": 9}, "mma_wait_position is 0 to 8, not 9"),
        ({"consumer_stages": 0}, "consumer_stages is 1 to 2, not 0"),
        ({"num_stages": -1}, "num_stages is a whole number, not -1"),
        ({"ping_pong": "rows"}, "ping_pong is True or False or 'tiles', not 'rows'"),
        ({"num_warps": True}, "num_warps is a whole number, not True"),
        ({"num_warps": 4.0}, "num_warps is a whole number, not 4.0"),
        ({"matrix_unit": "imma"}, "matrix_unit is 'wgmma' or 'mma.sync', not 'imma'"),
        ({"num_wraps": 4}, "did you mean num_warps?"),
    ],
)
def test_a_value_that_no_knob_has_is_refused(given: dict[str, object], says: str) -> None:
    with pytest.raises(wl.CompileError, match=says):
        make_knobs(given)


def test_a_uniform_kernel_is_asked_for_nothing_that_tasks_have() -> None:
    asked = Knobs(num_consumer_groups=2, ping_pong="tiles", store_task=True, num_stages=2)
    assert asked.uniform() == Knobs(num_consumer_groups=0, num_stages=2)
    assert asked.ask_for_tasks and not Knobs(store_task=False, num_warps=8).ask_for_tasks


@pytest.mark.parametrize("asked", [{"ping_pong": True}, {"consumer_stages": 2}])
@pytest.mark.parametrize("groups", [0, 2])
def test_an_overlap_that_no_loop_allows_is_told(asked: dict[str, object], groups: int) -> None:
    func = road.tile(gemm(128, 64, 32))
    schedule = choose(func, make_knobs({"num_consumer_groups": groups, **asked}), SM_90A)
    (told,) = (r for r in schedule.reasons if r.warn and r.decision == "iterations don't overlap")
    assert told.because == ("no loop has a dot that waits for another one of the same iteration"
                            if groups else "the kernel is uniform")  # fmt: skip
    with pytest.raises(wl.CompileError, match="iterations don't overlap"):
        choose(func, make_knobs({"num_consumer_groups": groups, "strict": True, **asked}), SM_90A)


def test_more_groups_than_a_cta_has_are_refused_by_the_number_asked_for() -> None:
    with pytest.raises(
        wl.CompileError, match="num_consumer_groups=9: with a producer these are 40 warps"
    ):
        choose(road.tile(gemm(128, 64, 32)), Knobs(num_consumer_groups=9), SM_90A)


def test_records_are_read_under_present_names() -> None:
    assert with_current_names("wait_eighths=2, AND_BACK=True, D=64") == (
        "mma_wait_position=2, SERPENTINE=True, D=64"
    )
