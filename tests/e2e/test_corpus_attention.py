"""Third-party attention-like kernels (corpus/): a sample against float64, unasked with a producer and
consumers, and what they once broke.  `python -m tests.e2e.corpus` judges all of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from corpus.attending import named
from corpus.backward import two_walks_case
from corpus.case import Case
from corpus.catalog import ATTENDING
from tests.e2e.corpus import judging
from tests.pairwise import every
from warploom.layout import wgmma_acc

pytestmark = pytest.mark.usefixtures("without_nvrtc")

SAMPLE = [
    "attention-bias",
    "attention-window-s4",
    "attention-documents",
    "attention-stages",
    "attention-while",
    "serving-paged",
    "serving-pages",
    "serving-ragged",
    "serving-fp8",
    "decoding-pages-all",
    "decoding-latent",
    "backward-dq",
    "backward-at-once",
    "states-linear",
    "states-decayed",
    "states-gated",
    "fused-chain",
    "fused-mlp",
    "fused-rotated",
]


def case_of(name: str) -> Case:
    family, _, rest = name.partition("-")
    (case,) = named({rest: ATTENDING[family][rest]}, family)
    return case


@pytest.mark.parametrize("name", every(2, SAMPLE))
def test_an_attention_of_the_corpus(name: str, tmp_path: Path) -> None:
    said = judging.judge(case_of(name), "auto", tmp_path, orders=("late",), full=False)
    assert said.startswith("tasks")


def fully(name: str, folder: Path) -> str:
    """The oracle, every order, the checker, the way out and back."""
    return judging.judge(case_of(name), "auto", folder)


def test_a_row_that_is_broadcast_is_cut_with_its_tile(tmp_path: Path) -> None:
    """What is subtracted from scores is a vector of their columns; place_wait left it whole.  It is infinite where
    it is masked, and comes by TMA all the same; no thread asks another for its part of it."""
    assert fully("backward-dkdv-32", tmp_path) == "tasks tma tma tma tma tma"
    case = case_of("backward-dkdv-32")
    compiled = case.kernel.compile_for(*case.args, grid=case.grid, **case.meta)
    assert "convert_layout" not in compiled.ir["PLACED"]


def test_the_way_back_from_a_row_of_infinities(tmp_path: Path) -> None:
    """Its layout came once from the whole and once from a part: one map, written in two ways."""
    assert fully("backward-dkdv", tmp_path) == "tasks tma tma tma tma tma"


def test_rings_leave_memory_for_what_layouts_need(tmp_path: Path) -> None:
    """The producer's pointers change hands in 8 KiB, of which nobody knew when the slots were dealt out."""
    case = case_of("serving-ragged-128")
    assert judging.judge(case, "auto", tmp_path, ("late",), full=False).startswith("tasks")


def test_turns_at_the_end_of_a_loop_that_carries_tiles(tmp_path: Path) -> None:
    """The turn was passed on behind the yield."""
    assert fully("fused-cross-entropy-256", tmp_path) == "tasks tma"


def test_rows_of_an_array_moved_by_a_number_are_aligned(tmp_path: Path) -> None:
    """K of a head begins at a multiple of 64 elements: its rows go by cp.async, whoever names them."""
    assert fully("serving-sparse", tmp_path) == "tasks tma cp_async cp_async"


def test_sixteen_rows(tmp_path: Path) -> None:
    """Their products are made transposed: the instruction has 64 rows, and any eight columns."""
    assert fully("serving-decode", tmp_path) == "tasks tma cp_async cp_async"


def test_equal_differences_of_indices_are_equal_in_c() -> None:
    """row + 8 - (column + 8): half of ALiBi's distances, each once from the first and a constant."""
    case = case_of("attention-alibi")
    cuda = case.kernel.compile_for(*case.args, grid=case.grid, **case.meta).cuda
    rows, columns = wgmma_acc((64, 112)).table
    apart = rows[1, 5] - columns[1, 5]  # of any thread
    firsts = re.findall(r"const int (\w+_first\w*) = ", cuda)
    assert len(firsts) == 3  # before the loop, and in the two that it is cut into
    for first in set(firsts):
        found = re.findall(rf"\[(\d+)\] = \(int\)\(\(u32\){first} \+ \(?(-?\d+)\)?\);", cuda)
        wanted = list(enumerate(apart - apart[0])) * firsts.count(first)
        assert [(int(i), int(n)) for i, n in found] == wanted
    assert len(set(apart)) == 30 and len(apart) == 56


def test_walks_one_after_the_other_share_rings_where_memory_is_short(tmp_path: Path) -> None:
    """K, V and what is loaded behind the walk over rows, Q and dO, take the same slots, as do the blocks of both
    walks; with rings of their own no loop had a second slot.  Dots of two iterations read one of them: behind
    its loop it goes on where it was moved to, not where the last dots still read."""
    case = two_walks_case(1, 1, 256, 128)
    compiled = case.kernel.compile_for(*case.args, grid=case.grid, **case.meta)
    channels = {c.name: c for c in compiled.schedule.channels}
    assert {n for n, c in channels.items() if c.also} == {"k_v", "qT", "qT1"}
    assert min(c.depth for n, c in channels.items() if n != "k_v") >= 2
    assert len(compiled.schedule.pipelines) == 4
    assert not any(p.ping_pong for p in compiled.schedule.pipelines)  # too short for turns
    judging.judge(case, "auto", tmp_path, orders=("late",), full=False)
