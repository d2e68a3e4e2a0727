"""explain(): buffers and barriers of the hand-written text; lines, reasons and resources by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from warploom.errors import Loc
from warploom.explain import ASKED, BUILT, Line, explain
from warploom.ir.core import KINDS, Builder, Func, Level, Op, Region, Value
from warploom.ir.ops import arith, control, tile
from warploom.ir.parser import parse_func
from warploom.ir.rules import Rules
from warploom.ir.types import Tile, View, bf16, i32
from warploom.schedule.model import (
    ChannelPlan,
    Reason,
    Schedule,
    SplitPlan,
    StorePlan,
    TaskPlan,
)

GOLDEN = Path(__file__).parents[1] / "golden" / "gemm_bf16_tn.warp.ir"


def schedule() -> Schedule:
    return Schedule(
        tile_hash="",
        specialized=True,
        tasks=(
            TaskPlan("consumer", "consumer", 4, 2, 232, 196),
            TaskPlan("producer", "producer", 4, 1, 40),
        ),
        assign={"load0": ("producer",), "store0": ("consumer",)},
        split=SplitPlan("M", 2),
        channels=(ChannelPlan("a", ("load0",), ("tma",), "producer", ("consumer",), 3),),
        stores=(StorePlan("store0", "tma", (64, 64), 4),),
        dots_in_flight=1,
        reasons=(
            Reason("load0", "filled by tma", "its rows are multiples of 16 bytes"),
            Reason("kernel", "two consumer groups", "as asked"),
            Reason("b", "2 slots", "3 don't fit", warn=True),
            Reason("store0", "waits for load0", "it stores what that loads"),
        ),
    )


def kernel(file: Path) -> Func:
    """A box copied, on lines 2 (in a helper called from there) and 4 of `file`."""
    file.write_text("def f(a):\n    x = load(a)\n    # nothing\n    store(a, x)\n")
    view = Value(View(2, bf16), "a")
    helper = Loc(str(file.with_name("helper.py")), 99, caller=Loc(str(file), 2))
    b = Builder(helper)
    zero = arith.const(b, value=0, dtype=i32)
    loaded = Value(Tile((128, 64), bf16), "x")
    b.append(
        Op(
            tile.load_box,
            (view, zero, zero),
            {"shape": (128, 64)},
            (loaded,),
            loc=helper,
            id="load0",
        )
    )
    b.append(Op(tile.store_box, (view, loaded, zero, zero), loc=Loc(str(file), 4), id="store0"))
    control.yield_(b)
    return Func("f", Region((view,), tuple(b.ops)), Level.TILE, loc=Loc(str(file), 1))


@pytest.mark.parametrize("table", [ASKED, BUILT], ids=lambda t: t.question)
def test_every_kind_is_explained(table: Rules[object]) -> None:
    """What is silent is so by its own row, or by its family's."""
    for kind in KINDS.values():
        if kind.levels & table.levels:
            table[kind]


def test_buffers_and_barriers_of_the_hand_written_gemm(tmp_path: Path) -> None:
    placed = parse_func(GOLDEN.read_text())
    told = explain(kernel(tmp_path / "k.py"), schedule(), placed)
    assert told.buffers[0].startswith("a: 3 × 128×64 bf16 = 49,152 bytes")
    assert "filled by producer (TMA); read by consumer × 2" in told.buffers[1]
    assert "filled by consumer × 2; read by consumer × 2 (TMA)" in told.buffers[5]
    full, empty = told.barriers
    assert "3 mbarriers, a phase is 1 arrival and 49,152 bytes" in full
    assert "signalled by producer (" in full and "waited for by consumer × 2 (" in full
    assert (
        "8 arrivals; signalled by consumer × 2 (" in empty and "waited for by producer (" in empty
    )


def test_a_barrier_tells_the_lines_that_signal_and_wait(tmp_path: Path) -> None:
    func = kernel(tmp_path / "k.py")
    placed = parse_func(GOLDEN.read_text())
    numbers = {"mbarrier_expect": 9, "tma_load": 8, "mbarrier_wait": 12, "mbarrier_arrive": 15}
    lines = {name: Loc("k.py", number) for name, number in numbers.items()}

    def located(region: Region) -> Region:
        ops = (o.with_(regions=tuple(map(located, o.regions))) for o in region.ops)
        return Region(region.params, tuple(o.with_(loc=lines.get(o.kind.name)) for o in ops))

    placed = placed.with_(body=located(placed.body))
    full, empty = explain(func, schedule(), placed).barriers
    assert full.endswith("by producer (lines 8, 9); waited for by consumer × 2 (line 12)")
    assert empty.endswith("by consumer × 2 (line 15); waited for by producer (line 12)")


def test_bytes_of_a_phase_that_is_told_in_several_places_count_once(tmp_path: Path) -> None:
    """As where the first iteration of a loop is peeled."""
    text = GOLDEN.read_text()
    (expect,) = (line for line in text.splitlines() if " mbarrier_expect(" in f" {line}")
    twice = parse_func(text.replace(expect, f"{expect}\n{expect}"))
    told = explain(kernel(tmp_path / "k.py"), schedule(), twice)
    assert "a phase is 1 arrival and 49,152 bytes" in told.barriers[0]


def test_lines_tell_tasks_boxes_rings_and_reasons(tmp_path: Path) -> None:
    placed = parse_func(GOLDEN.read_text())
    told = explain(kernel(tmp_path / "k.py"), schedule(), placed)
    assert [line.number for line in told.lines] == [1, 2, 3, 4]
    load, store = told.lines[1], told.lines[3]
    assert load.text == "    x = load(a)" and load.tasks == ("producer",)
    assert load.notes == (  # found through the helper's call
        "this is load0",  # which the store's reason names
        "a box of 128×64 at (0, 0) of a",
        "by TMA into ring a of 3 slots: producer → consumer",
        "filled by tma: its rows are multiples of 16 bytes",
    )
    assert store.tasks == ("consumer",)
    assert "this is store0" not in store.notes
    assert "leaves by TMA in chunks of 64×64, 4 buffered" in store.notes
    assert told.lines[2] == Line(3, "    # nothing")


def test_the_text_says_who_runs_and_what_went_against_a_request(tmp_path: Path) -> None:
    placed = parse_func(GOLDEN.read_text())
    text = str(explain(kernel(tmp_path / "k.py"), schedule(), placed))
    assert "f (" in text and "for sm_90a, specialized" in text
    assert "consumer: 2 × 4 warps, 232 registers a thread, 196 estimated" in text
    assert "the tile is split along M among 2 groups" in text
    assert "store0 (line 4): waits for load0, because it stores what that loads" in text
    assert "kernel: two consumer groups, because as asked" in text
    assert "! b: 2 slots, because 3 don't fit" in text
    assert all(line == line.rstrip() for line in text.splitlines())
