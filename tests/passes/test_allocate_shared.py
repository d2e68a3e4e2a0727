"""allocate_shared: offsets, alignment, aliases, scratch, and the message where it doesn't fit."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from tests.passes import road
from warploom.errors import CompileError, InternalError
from warploom.ir.core import Func, Level, walk
from warploom.ir.ops import mbarrier, smem
from warploom.ir.parser import parse_func
from warploom.ir.rewrite import rewrite
from warploom.ir.types import Barriers, Shared
from warploom.ir.verify import verify
from warploom.sim.machine import simulate
from warploom.sim.report import ProtocolError
from warploom.target import SM_90A

GOLDEN = Path(__file__).parents[1] / "golden" / "gemm_bf16_tn.warp.ir"


def place(text: str) -> Func:
    out = road.placed(parse_func(text))
    assert out.level is Level.PLACED
    return out


def kernel(declarations: str, tasks: str = 'names=("main",), warps=(4,), replicas=(1,), registers=(none,)', body: str = "") -> str:  # fmt: skip
    regions = " ".join(f"do {{ {b}\n yield() }}" for b in body.split("---"))
    return f"func @k(%x: ptr<f32>) level=WARP {{warps=4}} {{\n{declarations}\ntasks() {{{tasks}}} {regions}\n  yield()\n}}"


def offsets(func: Func) -> dict[str, int]:
    return {o.attrs["name"]: o.attrs["offset"] for o in func.body.ops if "name" in o.attrs}


def extents(func: Func) -> list[tuple[int, int]]:
    """(first byte, byte after) of every allocation."""
    found = []
    for o in walk(func.body):
        if o.kind in (smem.shared_alloc, mbarrier.mbarrier_alloc):
            t = o.results[0].type
            if isinstance(t, Barriers):
                size = 8 * t.n
            else:
                assert isinstance(t, Shared)
                size = t.slot_bytes
                for n in t.lead:
                    size *= n
            found.append((o.attrs["offset"], o.attrs["offset"] + size))
    return found


def alloc(
    name: str, lead: str, shape: str, swizzle: int, more: str = "", dtype: str = "bf16"
) -> str:
    rank = shape.count(",") + (not shape.endswith(",)"))
    return (
        f'%{name} = shared_alloc() {{name="{name}", lead={lead}, shape={shape}, dtype={dtype}, '
        f"inner={rank - 1}, swizzle={swizzle}{more}}}\n"
    )


def test_the_target_gemm() -> None:
    out = place(GOLDEN.read_text())
    assert offsets(out) == {"a": 0, "b": 49152, "c": 147456, "full": 212992, "empty": 213016}
    assert out.attrs["shared_bytes"] == 213040
    assert out.attrs["threads"] == 384


def test_swizzled_slots_start_at_1024_and_nothing_overlaps() -> None:
    text = kernel(
        alloc("bias", "(2,)", "(96,)", 0, dtype="f32")
        + alloc("a", "(3,)", "(4, 64)", 128)
        + '%full = mbarrier_alloc() {name="full", n=3, count=1}\n'
        + alloc("odd", "()", "(3, 5)", 0)
        + alloc("b", "(3,)", "(64, 32)", 64)
    )
    out = place(text)
    at = offsets(out)
    assert at["a"] % 1024 == at["b"] % 1024 == 0
    assert at["bias"] % 128 == at["odd"] % 128 == 0
    assert at["full"] % 8 == 0
    spans = sorted(extents(out))
    assert all(a[1] <= b[0] for a, b in pairwise(spans))
    assert out.attrs["shared_bytes"] == spans[-1][1]
    assert at["full"] == max(at.values())  # barriers come last


def test_slots_of_a_ring_are_apart_by_whole_patterns() -> None:
    small = parse_func(kernel(alloc("a", "(3,)", "(4, 64)", 128))).body.ops[0].result.type
    assert isinstance(small, Shared) and (small.tile_bytes, small.slot_bytes) == (512, 1024)
    plain = parse_func(kernel(alloc("a", "(3,)", "(16,)", 0))).body.ops[0].result.type
    assert isinstance(plain, Shared) and (plain.tile_bytes, plain.slot_bytes) == (32, 128)


def test_an_alias_takes_the_place_of_what_it_names() -> None:
    text = kernel(
        alloc("ring", "(3,)", "(64, 64)", 128)
        + alloc("staging", "(4,)", "(64, 64)", 128, ', alias="ring"')
        + alloc("more", "()", "(64, 64)", 128)
    )
    out = place(text)
    at = offsets(out)
    assert at["staging"] == at["ring"]
    assert at["more"] == 4 * 8192  # behind the larger of the two
    assert out.attrs["shared_bytes"] == 5 * 8192


def test_an_alias_of_what_nobody_uses_has_a_place_of_its_own() -> None:
    """A script may declare the tensor and not touch it: then it is gone."""
    text = kernel(
        alloc("more", "()", "(64, 64)", 128) + alloc("b", "()", "(64, 64)", 128, ', alias="a"')
    )
    assert sorted(offsets(place(text)).values()) == [0, 8192]


def test_an_alias_of_itself_is_our_bug() -> None:
    text = kernel(
        alloc("a", "()", "(8, 64)", 128, ', alias="b"')
        + alloc("b", "()", "(8, 64)", 128, ', alias="a"')
    )
    with pytest.raises(InternalError, match="alias"):
        place(text)


ROW_SUMS = """
  %at = arange() {start=0, end=ROWS}
  %col = expand_dims(%at) {axis=1}
  %wide = broadcast(%col) {shape=(ROWS, 64)}
  %p0 = splat(%x) {shape=(ROWS, 64)}
  %p = addptr(%p0, %wide)
  %t = load(%p)
  %sum = reduce(%t) {axis=1, fn="add"}
  device_print(%sum) {prefix=""}
"""


def test_reductions_across_warps_get_scratch_for_each_replica() -> None:
    text = kernel(
        alloc("a", "()", "(64, 64)", 128)
        + '%full = mbarrier_alloc() {name="full", n=2, count=1}\n',
        'names=("sum", "idle", "one"), warps=(4, 1, 1), replicas=(2, 1, 3), registers=(none, none, none)',
        ROW_SUMS.replace("ROWS", "64") + "---" + "---" + ROW_SUMS.replace("ROWS", "8"),
    )
    out = place(text)
    scratch = 4 * 64 * 4  # a partial sum of every row by each warp
    at = offsets(out)
    assert at == {"a": 0, "sum_scratch": 8192, "full": 8192 + 2 * scratch}
    assert out.attrs["threads"] == 32 * (4 * 2 + 1 + 3)


def too_much(depth: int) -> CompileError:
    text = GOLDEN.read_text().replace("lead=(3,)", f"lead=({depth},)")
    text = text.replace("shared<[3]", f"shared<[{depth}]")
    with pytest.raises(CompileError) as caught:
        place(text)
    return caught.value


def test_too_much_says_how_much_and_which_knob() -> None:
    error = too_much(5)
    total = 5 * (128 * 64 + 64 * 256) * 2 + 65536 + 48
    assert error.code == "shared-memory"
    assert str(total) in error.message
    assert str(total - SM_90A.shared_bytes) in error.message and "232448" in error.message
    assert [n.message for n in error.notes[:3]] == [
        "163840 bytes: b (5 slots of 64x256xbf16)",
        "81920 bytes: a (5 slots of 128x64xbf16)",
        "65536 bytes: c (8 slots of 64x64xbf16)",
    ]
    assert error.help == (
        "make the rings 3 slots deep instead of 5 (num_buffers_warp_spec), or "
        "use smaller tiles (BLOCK_M, BLOCK_N or BLOCK_K)"
    )
    assert too_much(4).help is not None and "3 slots deep instead of 4" in str(too_much(4).help)


def test_too_much_for_any_depth_asks_for_smaller_blocks() -> None:
    text = kernel(alloc("a", "(2,)", "(1024, 128)", 128))
    with pytest.raises(CompileError) as caught:
        place(text)
    assert caught.value.help == (
        "even one slot a ring is too much: use smaller tiles (BLOCK_M, BLOCK_N or BLOCK_K)"
    )
    text = kernel(alloc("a", "()", "(1024, 128)", 128))
    with pytest.raises(CompileError) as caught:
        place(text)
    assert caught.value.help == "use smaller tiles (BLOCK_M, BLOCK_N or BLOCK_K)"


def test_what_just_fits_is_placed() -> None:
    rows = SM_90A.shared_bytes // 128
    out = place(kernel(alloc("a", "()", f"({rows}, 64)", 128)))
    assert out.attrs["shared_bytes"] == SM_90A.shared_bytes
    barrier = '%b = mbarrier_alloc() {name="b", n=1, count=1}\n'
    with pytest.raises(CompileError, match="8 more than the 232448"):
        place(kernel(alloc("a", "()", f"({rows}, 64)", 128) + barrier))


# ---- named barriers

TWO = 'names=("a", "b"), warps=(4, 2), replicas=(2, 1), registers=(none, none)'
MEET = """group_sync() {scope="replica"}
 group_sync() {scope="task"}
---
 named_barrier() {id=2, threads=64, arrive=false}
 group_sync() {scope="replica"}
 group_sync() {scope="cta"}"""


def ids(func: Func) -> list[int]:
    return [o.attrs["id"] for o in walk(func.body) if o.kind is smem.group_sync]


def changed(func: Func, n: int, id: int) -> Func:
    """With another number at its n-th barrier."""
    other = [o for o in walk(func.body) if o.kind is smem.group_sync][n]
    return rewrite(
        func,
        lambda o, b: (
            (b.append(o.with_(attrs={**o.attrs, "id": id})), ())[1] if o is other else None
        ),
    )


def test_barriers_are_numbered_around_a_program_s_own() -> None:
    func = place(kernel("", TWO, MEET))
    assert ids(func) == [3, 1, 5, 0]  # replicas of a meet at 3 and 4
    one = place(kernel("", 'names=("a", "b"), warps=(1, 3), replicas=(1, 1), registers=(none, none)', 'group_sync() {scope="replica"}\n---\n'))  # fmt: skip
    assert not any("id" in o.attrs for o in walk(one.body) if o.kind is smem.group_sync)


@pytest.mark.parametrize(("n", "id"), [(2, 4), (2, 2), (1, 3)])
def test_one_barrier_for_two_is_found(n: int, id: int) -> None:
    """By the verifier, and in the simulator where both come there."""
    spoilt = changed(place(kernel("", TWO, MEET)), n, id)
    with pytest.raises(InternalError, match="that of other threads"):
        verify(spoilt)
    with pytest.raises(ProtocolError, match="which is that of"):
        simulate(spoilt, [np.zeros(1, np.float32)], 1)


def test_more_barriers_than_there_are_is_the_user_s_mistake() -> None:
    tasks = 'names=("a",), warps=(2,), replicas=(16,), registers=(none,)'
    with pytest.raises(CompileError, match="more than the 16 named barriers") as caught:
        place(kernel("", tasks, 'group_sync() {scope="replica"}'))
    assert caught.value.code == "named-barriers"
