"""The derived WARP program of the ordinary persistent GEMM is the hand-written one."""

from pathlib import Path

from tests.passes import road
from tests.passes.same import difference
from warploom.ir.parser import parse_func
from warploom.schedule.model import Knobs

HERE = Path(__file__).parent
GOLDEN = HERE.parent / "golden" / "gemm_bf16_tn.warp.ir"
TILE = HERE / "gemm_bf16_tn.tile.ir"


def test_derived_equals_hand_written() -> None:
    knobs = Knobs(num_consumer_groups=2, num_buffers_warp_spec=3)
    _, steps = road.lower(road.tile(TILE.read_text()), knobs)
    assert difference(steps[-1][1], parse_func(GOLDEN.read_text())) is None


def test_the_chooser_alone_finds_the_same() -> None:
    _, steps = road.lower(road.tile(TILE.read_text()))
    assert difference(steps[-1][1], parse_func(GOLDEN.read_text())) is None


def test_a_difference_is_seen() -> None:
    text = GOLDEN.read_text()
    golden = parse_func(text)
    for old, new in (
        ("pending=1", "pending=0"),
        ("count=8", "count=7"),
        ("mul(%group, %c64)", "mul(%group, %c63)"),
    ):
        assert old in text
        assert difference(parse_func(text.replace(old, new, 1)), golden) is not None
