"""The chooser: what it decides, that it says why, and what it refuses."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.passes import kernels, road
from tests.passes.kernels import View
from warploom.errors import CompileError
from warploom.ir.core import walk
from warploom.ir.ops import smem, tile, tma
from warploom.schedule.heuristic import choose
from warploom.schedule.model import Knobs, Schedule
from warploom.target import SM_90A

BF16 = ml_dtypes.bfloat16


def chosen(text: str, **knobs: Any) -> Schedule:
    return choose(road.tile(text), Knobs(**knobs), SM_90A)


def refused(text: str, **knobs: Any) -> CompileError:
    with pytest.raises(CompileError) as caught:
        chosen(text, **knobs)
    return caught.value


def because(schedule: Schedule, word: str) -> str:
    """The one reason whose decision contains `word`."""
    (found,) = [r for r in schedule.reasons if word in r.decision]
    return found.because


def test_deterministic_and_named_after_its_kernel() -> None:
    text = kernels.gemm(128, 256, 64)
    assert chosen(text).to_json() == chosen(text).to_json()
    assert chosen(text).tile_hash != chosen(kernels.gemm(128, 128, 64)).tile_hash


@pytest.mark.parametrize(
    ("groups", "rows", "registers"),
    [(1, 128, (None, None)), (2, 128, (232, 40)), (3, 192, (160, 32))],
)
def test_registers_by_groups(
    groups: int, rows: int, registers: tuple[int | None, int | None]
) -> None:
    schedule = chosen(kernels.gemm(rows, 128, 64), num_consumer_groups=groups)
    assert tuple(t.registers for t in schedule.tasks) == registers
    assert schedule.split.count == groups


@pytest.mark.parametrize("by", [kernels.EIGHT, kernels.ODD])
def test_a_producer_that_holds_data_gets_more_registers(by: int) -> None:
    text = kernels.gemm(128, 128, 64, View("a", "M", "K", "la", by))
    consumer, producer = chosen(text, num_consumer_groups=2).tasks
    assert producer.registers is not None and producer.registers > 40
    assert consumer.registers is not None
    assert 2 * consumer.registers + producer.registers == 3 * 168


@pytest.mark.parametrize(
    ("knobs", "words"),
    [
        ({"reg_inc_consumer": 240}, ["2048 more", "64512"]),
        ({"reg_inc_consumer": 233}, ["multiples of 8"]),
        ({"reg_dec_producer": 16}, ["from 24"]),
    ],
)
def test_register_over_ask(knobs: dict[str, int], words: list[str]) -> None:
    error = refused(kernels.gemm(128, 256, 64), num_consumer_groups=2, **knobs)
    assert error.code == "registers" and error.help
    for word in words:
        assert word in error.message


def test_registers_of_the_user() -> None:
    schedule = chosen(
        kernels.gemm(128, 256, 64),
        num_consumer_groups=2,
        reg_dec_producer=24,
        reg_inc_consumer=240,
    )
    assert tuple(t.registers for t in schedule.tasks) == (240, 24)


def test_too_deep_a_ring() -> None:
    error = refused(kernels.gemm(128, 256, 64), num_consumer_groups=2, num_buffers_warp_spec=6)
    assert error.code == "shared-memory"
    assert "more than there are" in error.message and "num_buffers_warp_spec" in str(error.help)


def whole_rows(text: str) -> str:
    """The kernel where every argument is known to be a multiple of 16: rows of C end where TMA may end."""
    params = text.split("level=TILE", 1)[0].count(": ")
    facts = ", ".join(["fact<16>"] * params)
    return text.replace("level=TILE {", f"level=TILE {{facts=({facts})}} {{", 1)


def test_a_tma_store_needs_rows_of_whole_units() -> None:
    """It would write up to the next multiple of 16 bytes behind a row that ends elsewhere."""
    ragged = chosen(kernels.gemm(128, 256, 64), num_consumer_groups=2)
    assert [s.via for s in ragged.stores] == ["direct"]
    assert any("whole units of 16" in r.because for r in ragged.reasons)
    whole = chosen(whole_rows(kernels.gemm(128, 256, 64)), num_consumer_groups=2)
    assert [s.via for s in whole.stores] == ["tma"]


def test_boxes_of_many_rows_are_cut_where_that_makes_few() -> None:
    """B's rows run along N, so that a block of K is a column of rows: 320 = 2 · 160, but 592 = 37 · 16."""
    cut, prime = (chosen(kernels.gemm(64, 32, k), num_consumer_groups=1) for k in (320, 592))
    assert cut.channels[0].via == ("tma", "tma") and prime.channels[0].via == ("tma", "cp_async")
    assert (
        "2 instructions, of 160x32 each"
        in [r.because for r in cut.reasons if "by tma" in r.decision][1]
    )
    assert "592 wide on axis 0, TMA's limit is 256" in because(prime, "by cp_async")


def hinted(text: str, loop: str, hints: str) -> str:
    """The kernel with hints on the loop whose text starts so."""
    head, tail = text.split(loop, 1)
    types, body = tail.split(" do (", 1)
    at = types.index(")") + 1
    return f"{head}{loop}{types[:at]} {{{hints}}}{types[at:]} do ({body}"


INNER, OUTER = "%sum = for(", "  for(%first"


def test_the_depth_of_a_loop_counts_before_the_launchs() -> None:
    text = hinted(kernels.gemm(128, 128, 64), INNER, "num_stages=2")
    for knobs in ({}, {"num_buffers_warp_spec": 4}, {"num_consumer_groups": 0, "num_stages": 5}):
        schedule = chosen(text, **knobs)
        assert [c.depth for c in schedule.channels] == [2]
        assert because(schedule, "2 slots") == "num_stages of its loop"
        assert not any(r.warn for r in schedule.reasons)
    rng = np.random.default_rng(3)
    a, b = road.integers(rng, (140, 200), BF16), road.integers(rng, (200, 136), BF16)
    args = [a, b, np.zeros((140, 136), BF16), 140, 136, 200, 200, 136, 136]
    road.check_equal(road.tile(text), args, 2)


@pytest.mark.parametrize("groups", [0, 1])
def test_a_ring_has_no_more_slots_than_are_filled(groups: int) -> None:
    """Two iterations of one tile: each slot is filled once.  A producer goes on with the next tile's."""
    text = kernels.gemm(128, 128, 64)
    text = text.replace("%ku = add(%K, %c63)", "%ku = add(%c64, %c64)")
    alone = text.replace("for(%first, %tiles, %programs) do", "for(%c0, %c1, %c1) do")
    schedule = chosen(alone, num_consumer_groups=groups)
    assert [c.depth for c in schedule.channels] == [2]
    assert because(schedule, "2 slots") == "its loop has no more iterations"
    (ring,) = chosen(text, num_consumer_groups=groups).channels
    assert ring.depth > 2 if groups else ring.depth == 2


@pytest.mark.parametrize(
    ("slots", "ahead"), [(1, ()), (2, (("loop0.0", 1),)), (4, (("loop0.0", 3),))]
)
def test_loads_of_a_uniform_kernel_run_ahead_by_the_slots_but_one(
    slots: int, ahead: object
) -> None:
    """Of the loop that multiplies; the loop around it, over tiles, has no loads of its own."""
    text = kernels.gemm(128, 128, 64)
    schedule = chosen(text, num_consumer_groups=0, num_stages=slots)
    assert [c.depth for c in schedule.channels] == [slots]
    assert schedule.prefetched == ahead
    assert chosen(text, num_consumer_groups=1).prefetched == ()


def test_rings_of_nested_loops_have_depths_of_their_own() -> None:
    text = kernels.attention().replace(
        "for(%first, %tiles, %programs)", "for(%first, %tiles, %programs) {num_stages=2}"
    )
    assert sorted(
        c.depth for c in chosen(kernels.attention(), num_buffers_warp_spec=3).channels
    ) == [1, 3, 3]
    assert sorted(c.depth for c in chosen(text, num_buffers_warp_spec=3).channels) == [2, 3, 3]
    (told,) = [r for r in chosen(text, num_consumer_groups=0).reasons if r.warn]
    assert "innermost" in told.because and "instead of 2" in told.decision


@pytest.mark.parametrize(
    ("loop", "hints", "knobs", "says", "code"),
    [
        (
            INNER,
            "warp_specialize=false",
            {"num_consumer_groups": 2},
            "warp_specialize=False",
            "no-specialization",
        ),
        (OUTER, "num_stages=3", {}, "runs ahead", "not-as-asked"),
        (
            OUTER,
            "flatten=true",
            {"num_consumer_groups": 0},
            "only a producer runs on",
            "not-as-asked",
        ),
        (INNER, "disable_licm=true", {}, "NVRTC", "not-as-asked"),
    ],
)
def test_a_hint_that_cannot_be_honoured_warns_or_raises(
    loop: str, hints: str, knobs: dict[str, int], says: str, code: str
) -> None:
    text = hinted(kernels.gemm(128, 128, 64), loop, hints)
    (told,) = [r for r in chosen(text, **knobs).reasons if r.warn]
    assert says in told.because
    error = refused(text, strict=True, **knobs)
    assert error.code == code and says in error.message and error.help


@pytest.mark.parametrize("hints", ["flatten=true", "unroll=2", "disallow_acc_multi_buffer=true"])
def test_a_hint_that_is_honoured_says_so(hints: str) -> None:
    loop = OUTER if "flatten" in hints else INNER
    text = hinted(kernels.gemm(128, 128, 64), loop, hints)
    plain = chosen(kernels.gemm(128, 128, 64)).reasons
    schedule = chosen(text, strict=True)
    (new,) = [r for r in schedule.reasons if r not in plain]
    assert new.subject == ("loop0" if loop is OUTER else "loop0.0") and not new.warn


def test_hints_rest_where_arguments_overlap() -> None:
    """That variant is what a launch took back to, with a warning of its own."""
    text = hinted(kernels.gemm(128, 128, 64), INNER, "num_stages=4, warp_specialize=true")
    func = road.tile(text)
    func = func.with_(attrs={**func.attrs, "overlap": True})
    schedule = choose(func, Knobs(num_consumer_groups=0, num_stages=1, strict=True), SM_90A)
    assert not schedule.specialized and not any(r.warn for r in schedule.reasons)
    assert [(c.via, c.depth) for c in schedule.channels] == [(("cp_async", "cp_async"), 1)]


def test_staging_gives_way_to_the_ring() -> None:
    text = whole_rows(kernels.gemm(128, 256, 64))
    four = chosen(text, num_consumer_groups=2, num_buffers_warp_spec=4)
    assert four.channels[0].depth == 4
    assert four.stores[0].buffers == 2
    three = chosen(text, num_consumer_groups=2)
    assert (three.channels[0].depth, three.stores[0].buffers) == (3, 4)


@pytest.mark.parametrize(
    ("bm", "bn", "bk", "code"),
    [(40, 64, 64, "wgmma-m"), (64, 60, 64, "wgmma-n"), (64, 64, 8, "wgmma-k")],
)
def test_dots_that_no_unit_takes(bm: int, bn: int, bk: int, code: str) -> None:
    func = road.tile(kernels.gemm(bm, bn, bk))
    with pytest.raises(CompileError) as caught:
        choose(func, Knobs(num_consumer_groups=1), SM_90A.multiplying_by("wgmma"))
    error = caught.value
    assert error.code == code and error.loc is not None and error.help


def test_f32_operands_step_by_eight() -> None:
    a, b = (
        View(n, x, y, s, 4, "f32") for n, x, y, s in (("a", "M", "K", "la"), ("b", "K", "N", "lb"))
    )
    assert refused(kernels.gemm(64, 64, 12, a, b)).code == "wgmma-k"


ADDITION = """
func @add_one(%x: ptr<f32>, %N: i32) level=TILE {
  %c0 = const() {value=0, dtype=i32} : i32
  %one = const() {value=1, dtype=i64} : i64
  %up = const() {value=1.0, dtype=f32} : f32
  %N64 = cast(%N) {dtype=i64} : i64
  %v = make_view(%x, %N64, %one) {divisible=(16, 1)} : view<1xf32>
  %p = program_id() {axis=0} : i32
  %c128 = const() {value=128, dtype=i32} : i32
  %at = mul(%p, %c128) : i32
  %t = load_box(%v, %at) {shape=(128,)} : tile<128xf32>
  %ups = splat(%up) {shape=(128,)} : tile<128xf32>
  %s = add(%t, %ups) : tile<128xf32>
  store_box(%v, %s, %at)
  yield()
}
"""


@pytest.mark.parametrize("warps", [1, 2])
def test_without_dots_one_task(warps: int) -> None:
    func = road.tile(ADDITION)
    x = np.arange(300, dtype=np.float32)
    schedule, steps = road.check_equal(func, [x, 300], 3, Knobs(num_warps=warps))
    assert [(t.role, t.warps, t.replicas) for t in schedule.tasks] == [("main", warps, 1)]
    assert not schedule.channels and not schedule.specialized
    assert "no dot" in because(schedule, "uniform")
    # x is read and written: what other threads stored must be seen
    kinds = [o.kind for o in walk(steps[-1][1].body)]
    assert smem.group_sync in kinds


@pytest.mark.parametrize(
    ("elements", "asked", "taken"),
    [(128, 8, 2), (1024, 8, 8), (1024, 32, 8), (512, 1, 1), (96, 4, 2)],
)
def test_no_more_warps_than_move_whole_vectors(elements: int, asked: int, taken: int) -> None:
    func = road.tile(ADDITION.replace("128", str(elements)))
    x = np.arange(2 * elements + 5, dtype=np.float32)
    schedule, _ = road.check_equal(func, [x, len(x)], 3, Knobs(num_warps=asked))
    assert schedule.tasks[0].warps == taken
    assert bool(taken < asked) == any(f"{taken} warps" == r.decision for r in schedule.reasons)


@pytest.mark.parametrize(
    ("function", "times", "warps"), [("erf", 9, 8), ("erf", 4, 4), ("exp", 9, 4), ("y0", 1, 8)]
)
def test_long_code_is_not_doubled(function: str, times: int, warps: int) -> None:
    """Nine functions of many instructions, or one of very many, are more than is at hand, for four elements
    a thread."""
    steps = "".join(
        f"  %f{i} = {function}(%{f'f{i - 1}' if i else 't'}) : tile<512xf32>\n"
        for i in range(times)
    )
    text = ADDITION.replace("128", "512").replace("  %ups", steps + "  %ups")
    func = road.tile(text.replace("add(%t,", f"add(%f{times - 1},"))
    assert choose(func, Knobs(num_warps=8), SM_90A).tasks[0].warps == warps


@pytest.mark.parametrize(("carries", "taken"), [(False, 2), (True, 8)])
def test_a_loop_that_carries_tiles_keeps_its_warps(carries: bool, taken: int) -> None:
    """It waits for its arithmetic, whose elements more threads share."""
    tiles = ("%up = splat(%zero) {shape=(128,)} : tile<128xf32>", ", %up", " : tile<128xf32>")
    begin, init, type_ = tiles if carries else ("", "", "")
    held = ", %held: tile<128xf32>" if carries else ""
    added = "add(%t, %held)" if carries else "add(%t, %t)"
    text = f"""
func @walk(%x: ptr<f32>, %N: i32) level=TILE {{
  %c0 = const() {{value=0, dtype=i32}} : i32
  %c1 = const() {{value=1, dtype=i32}} : i32
  %one = const() {{value=1, dtype=i64}} : i64
  %zero = const() {{value=0.0, dtype=f32}} : f32
  %N64 = cast(%N) {{dtype=i64}} : i64
  %v = make_view(%x, %N64, %one) {{divisible=(16, 1)}} : view<1xf32>
  %c128 = const() {{value=128, dtype=i32}} : i32
  {begin}
  {"%sum = " if carries else ""}for(%c0, %N, %c1{init}){type_} do (%i: i32{held}) {{
    %at = mul(%i, %c128) : i32
    %t = load_box(%v, %at) {{shape=(128,)}} : tile<128xf32>
    %s = {added} : tile<128xf32>
    store_box(%v, %s, %at)
    yield({"%s" if carries else ""})
  }}
  yield()
}}
"""
    assert choose(road.tile(text), Knobs(num_warps=8), SM_90A).tasks[0].warps == taken


def test_what_makes_larger_tiles_than_it_loads_keeps_its_warps() -> None:
    """A row and a column of few elements are a tile of many, which its threads share."""
    text = """
func @outer(%x: ptr<f32>) level=TILE {
  %c0 = const() {value=0, dtype=i32} : i32
  %one = const() {value=1, dtype=i64} : i64
  %n = const() {value=128, dtype=i64} : i64
  %v = make_view(%x, %n, %one) {divisible=(16, 1)} : view<1xf32>
  %t = load_box(%v, %c0) {shape=(128,)} : tile<128xf32>
  %row = expand_dims(%t) {axis=0} : tile<1x128xf32>
  %rows = broadcast(%row) {shape=(128, 128)} : tile<128x128xf32>
  %column = expand_dims(%t) {axis=1} : tile<128x1xf32>
  %columns = broadcast(%column) {shape=(128, 128)} : tile<128x128xf32>
  %products = mul(%rows, %columns) : tile<128x128xf32>
  %sums = reduce(%products) {axis=1, fn="add"} : tile<128xf32>
  store_box(%v, %sums, %c0)
  yield()
}
"""
    assert choose(road.tile(text), Knobs(num_warps=16), SM_90A).tasks[0].warps == 16


def test_a_request_that_cannot_be_met_warns_or_raises() -> None:
    schedule = chosen(ADDITION, num_consumer_groups=2)
    (warning,) = [r for r in schedule.reasons if r.warn]
    assert "no dot" in warning.because
    error = refused(ADDITION, num_consumer_groups=2, strict=True)
    assert error.code == "no-specialization"
    assert not any(r.warn for r in chosen(ADDITION).reasons)


def test_loads_in_no_loop_are_not_specialized() -> None:
    text = kernels.function(
        "once",
        [
            View("a", "M", "K", "la"),
            View("b", "K", "N", "lb"),
            View("c", "M", "N", "lc", dtype="f32"),
        ],
        ("M", "N", "K", "la", "lb", "lc"),
        """
  %zeros = splat(%zero) {shape=(64, 64)} : tile<64x64xf32>
  %x = load_box(%a_view, %c0, %c0) {shape=(64, 64)} : tile<64x64xbf16>
  %y = load_box(%b_view, %c0, %c0) {shape=(64, 64)} : tile<64x64xbf16>
  %s = dot(%x, %y, %zeros) : tile<64x64xf32>
  store_box(%c_view, %s, %c0, %c0)
""",
    )
    assert "no loop" in because(chosen(text), "uniform")
    error = refused(text, num_consumer_groups=1, strict=True)
    assert error.code == "no-specialization" and error.loc is not None
    rng = np.random.default_rng(0)
    a, b = (road.integers(rng, (64, 64), BF16) for _ in range(2))
    c = np.full((64, 64), 7, np.float32)
    road.check_equal(road.tile(text), [a, b, c, 60, 64, 50, 64, 64, 64], 1)


def test_fewer_groups_than_asked_for_warns() -> None:
    schedule = chosen(kernels.gemm(64, 40, 64), num_consumer_groups=2)
    (warning,) = [r for r in schedule.reasons if r.warn]
    assert "rows" in warning.because and "columns" in warning.because
    assert schedule.split.count == 1


IN_PLACE = kernels.gemm(128, 64, 64, persistent=False).replace(
    "    store_box(%c_view, %out, %row, %col)",
    """
    %old = load_box(%c_view, %row, %col) {shape=(128, 64)} : tile<128x64xbf16>
    %new = add(%out, %old) : tile<128x64xbf16>
    store_box(%c_view, %new, %row, %col)""",
)


def test_memory_that_is_read_and_written_stays_in_order() -> None:
    func = road.tile(IN_PLACE)
    rng = np.random.default_rng(6)
    a, b = road.integers(rng, (128, 128), BF16), road.integers(rng, (128, 64), BF16)
    c = road.integers(rng, (128, 64), BF16)
    args = [a, b, c, 128, 64, 128, 128, 64, 64]
    schedule, steps = road.check_equal(func, args, 1, Knobs(num_consumer_groups=2))
    assert schedule.split.count == 2
    assert steps[0][1].attrs["disjoint"] == ((2, 0), (2, 1))


def test_an_operand_that_the_kernel_writes_is_not_moved_ahead() -> None:
    text = kernels.gemm(64, 64, 64, persistent=False).replace(
        "      yield(%next)",
        "      store_box(%a_view, %x, %row, %at)\n      yield(%next)",
    )
    schedule = chosen(text, num_consumer_groups=1)
    assert "also writes through a" in because(schedule, "not brought by a producer")
    carried = {i for c in schedule.channels for i in c.items}
    loads = [o for o in walk(road.tile(text).body) if o.kind is tile.load_box]
    assert carried == {loads[1].id}
    rng = np.random.default_rng(7)
    a, b = road.integers(rng, (64, 128), BF16), road.integers(rng, (128, 64), BF16)
    c = np.zeros((64, 64), BF16)
    args = [a, b, c, 64, 64, 128, 128, 64, 64]
    road.check_equal(road.tile(text), args, 1, Knobs(num_consumer_groups=1))


def test_an_address_that_depends_on_a_dot_keeps_its_load() -> None:
    text = kernels.gemm(64, 64, 64, persistent=False).replace(
        "      %y = load_box(%b_view, %at, %col)",
        """
      %s0 = reduce(%acc) {axis=1, fn="max"} : tile<64xf32>
      %s1 = reduce(%s0) {axis=0, fn="max"} : f32
      %s2 = cast(%s1) {dtype=i32} : i32
      %s3 = mul(%s2, %c0) : i32
      %moved = add(%at, %s3) : i32
      %y = load_box(%b_view, %moved, %col)""",
    )
    schedule = chosen(text, num_consumer_groups=1)
    assert "depends on" in because(schedule, "not brought by a producer")
    rng = np.random.default_rng(8)
    a, b = road.integers(rng, (64, 128), BF16), road.integers(rng, (128, 64), BF16)
    c = np.zeros((64, 64), BF16)
    args = [a, b, c, 64, 64, 128, 128, 64, 64]
    road.check_equal(road.tile(text), args, 1, Knobs(num_consumer_groups=1))


def test_every_decision_has_its_reason() -> None:
    schedule = chosen(kernels.gemm(128, 256, 64), num_consumer_groups=2)
    subjects = {r.subject for r in schedule.reasons}
    assert {"kernel", "consumer", "producer"} <= subjects
    assert {c.name for c in schedule.channels} <= subjects
    assert {i for c in schedule.channels for i in c.items} <= subjects
    assert {s.op for s in schedule.stores} <= subjects
    assert all(r.because for r in schedule.reasons)


@pytest.mark.parametrize("knobs", [{"num_consumer_groups": 1}, {"num_consumer_groups": 0}])
def test_a_result_too_large_for_one_warp_group_takes_more(knobs: dict[str, int]) -> None:
    schedule = chosen(kernels.gemm(128, 256, 64), **knobs)
    assert schedule.split.count == 2
    (warning,) = [r for r in schedule.reasons if r.warn]
    assert "256 registers" in warning.because


def test_a_result_too_large_for_any_number_of_groups() -> None:
    error = refused(kernels.gemm(64, 2048, 64))
    assert error.code == "registers" and error.help


@pytest.mark.parametrize("groups", [0, 2])
def test_overlapping_arguments_keep_the_order(groups: int) -> None:
    func = road.tile(kernels.gemm(128, 64, 64))
    func = func.with_(attrs={**func.attrs, "overlap": True})
    rng = np.random.default_rng(10)
    memory, b = (road.integers(rng, (128, 128), BF16) for _ in range(2))
    # C is A: the loads of the second tile see what the first tile stored
    args = [memory, b, memory, 128, 128, 128, 128, 128, 128]
    knobs = Knobs(num_consumer_groups=groups, num_warps=4 if groups else 8)
    schedule, steps = road.lower(func, knobs)
    # no producer, but copies within each run of the inner loop, which stores nothing
    assert not schedule.specialized and [p[0] for p in schedule.prefetched] == ["loop0.0"]
    kinds = [o.kind for o in walk(steps[-1][1].body)]
    assert smem.group_sync in kinds and tma.tma_load not in kinds
    road.check_equal(func, args, 1, knobs)


def test_stores_whose_order_matters_are_direct() -> None:
    again = kernels.gemm(64, 64, 64, persistent=False).replace(
        "      yield(%next)",
        "      %part = cast(%next) {dtype=bf16} : tile<64x64xbf16>\n"
        "      store_box(%c_view, %part, %row, %col)\n      yield(%next)",
    )
    schedule = chosen(again)
    assert [s.via for s in schedule.stores] == ["direct", "direct"]
    assert all("written again" in r.because for r in schedule.reasons if "directly" in r.decision)
    rng = np.random.default_rng(11)
    a, b = road.integers(rng, (64, 128), BF16), road.integers(rng, (128, 64), BF16)
    args = [a, b, np.zeros((64, 64), BF16), 64, 64, 128, 128, 64, 64]
    road.check_equal(road.tile(again), args, 1)
    stored = "  store_box(%c_view, %out, %row, %c0)\n"
    for turns, via in (("%c1", "tma"), ("%c64", "direct")):
        text = f"  for(%c0, {turns}, %c1) do (%once: i32) {{\n  {stored}    yield()\n  }}\n"
        looped = kernels.TWO_DOTS.replace(stored, text)
        assert looped != kernels.TWO_DOTS
        assert [s.via for s in chosen(whole_rows(looped)).stores] == [via]
    halves = kernels.TWO_DOTS.replace(
        "  store_box(%c_view, %out, %row, %c0)\n",
        "  store_box(%c_view, %s, %row, %c0)\n  store_box(%c_view, %r, %row, %c64)\n",
    )
    assert [s.via for s in chosen(whole_rows(halves)).stores] == ["tma", "tma"]


def test_a_load_that_an_address_depends_on_is_no_item() -> None:
    text = kernels.gemm(64, 64, 64, persistent=False).replace(
        "      %y = load_box(%b_view, %at, %col)",
        """
      %w = cast(%x) {dtype=f32} : tile<64x64xf32>
      %s0 = reduce(%w) {axis=1, fn="max"} : tile<64xf32>
      %s1 = reduce(%s0) {axis=0, fn="max"} : f32
      %s2 = cast(%s1) {dtype=i32} : i32
      %moved = add(%at, %s2) : i32
      %y = load_box(%b_view, %moved, %col)""",
    )
    schedule = chosen(text, num_consumer_groups=1)
    assert "depends on it" in because(schedule, "not brought by a producer")
    assert len(schedule.channels) == 1 and len(schedule.channels[0].items) == 1
    rng = np.random.default_rng(12)
    a, b = road.integers(rng, (64, 128), BF16), road.integers(rng, (128, 64), BF16)
    args = [a, b, np.zeros((64, 64), BF16), 64, 64, 128, 128, 64, 64]
    road.check_equal(road.tile(text), args, 1, Knobs(num_consumer_groups=1))
