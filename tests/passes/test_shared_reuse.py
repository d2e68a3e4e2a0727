"""Which allocations share bytes (analysis/shared_reuse.py), what must not, and that the checker sees it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.passes.ir_cases import cases, computed
from warploom.analysis.phase_counts import PhaseCounts
from warploom.analysis.shared_reuse import Over, SharedReuse
from warploom.check import Case, CheckReport, Verdict, check
from warploom.errors import InternalError
from warploom.ir.core import Func, Region
from warploom.ir.ops import mbarrier, smem
from warploom.ir.parser import parse_func
from warploom.ir.types import Pointer
from warploom.ir.verify import verify
from warploom.passes.placed.allocate_shared import allocate_shared
from warploom.passes.placed.place_grid_wait import place_grid_wait
from warploom.sim.report import SimError
from warploom.target import SM_90A

CASE = cases()["allocate_shared.reuse"]
ORDERS = ("late", "early", "reverse", "seeded")
SYNC = '    group_sync() {scope="replica"}\n'
LAST_WAIT = "    %sum = wgmma_wait(%zeros_1) {pending=0}"


def changed(text: str, *pairs: tuple[str, str]) -> str:
    for old, new in pairs:
        assert old in text, old
        text = text.replace(old, new, 1)
    return text


def over(text: str, earlier: str, later: str) -> Over | None:
    """How far `earlier` is over when `later` is written."""
    func = parse_func(text)
    verify(func)
    named = {o.attrs["name"]: o for o in func.body.ops if o.kind is smem.shared_alloc}
    return SharedReuse(func).after(named[earlier], named[later])


def test_staging_may_lie_in_the_ring() -> None:
    assert over(CASE.before, "x", "c") is over(CASE.before, "y", "c") is Over.TASK
    assert over(CASE.before, "c", "x") is over(CASE.before, "x", "y") is None


TWO = (
    ("replicas=(1, 1)", "replicas=(2, 1)"),
    ('name="empty", n=2, count=4', 'name="empty", n=2, count=8'),
)
UNORDERED = {
    "no barrier between its warps": ((SYNC, ""),),
    "products still read": ((LAST_WAIT, LAST_WAIT.replace("pending=0", "pending=1")),),
    "one slot is not waited for": (("%zeros_1, %slot, %phase, %last = for(%c0,", "%zeros_1, %slot, %phase, %last = for(%c1,"),),
    "it waits for the phase before": (("for(%c0, %steps, %c1, %acc_init, %0, %0, %1)", "for(%c0, %steps, %c1, %acc_init, %0, %c1, %1)"),),
    "the wait acquires nothing": (("mbarrier_wait(%full, %slot_1, %phase_1)", 'mbarrier_wait(%full, %slot_1, %phase_1) {sem="relaxed"}'),),
    "the producer goes on with a slot of another ring": (("%5, %6 = ring_next(%slot_1, %phase_1) {depth=2}", "%5, %6 = ring_next(%slot_1, %phase_1) {depth=1}"),),
    "two arrivals make a phase": (('name="full", n=2, count=1', 'name="full", n=2, count=2'),),
    "one thread waits for all": (("      mbarrier_wait(%full, %slot_1, %phase_1)\n", "      elect() do {\n        mbarrier_wait(%full, %slot_1, %phase_1)\n        yield()\n      }\n"),),
}  # fmt: skip


@pytest.mark.parametrize("how", UNORDERED)
def test_what_is_not_ordered_shares_nothing(how: str) -> None:
    text = changed(CASE.before, *UNORDERED[how])
    func = parse_func(text)
    named = {o.attrs["name"]: o for o in func.body.ops if o.kind is smem.shared_alloc}
    assert SharedReuse(func).after(named["x"], named["c"]) is None


def test_a_barrier_of_one_group_counts_for_the_bytes_of_that_group() -> None:
    text = changed(CASE.before, *TWO)
    assert over(text, "x", "c") is Over.REPLICA
    whole = changed(text, (SYNC, SYNC.replace("replica", "task")))
    assert over(whole, "x", "c") is Over.TASK


def test_the_bytes_of_a_group_are_found_in_slots_and_parts() -> None:
    """Rows of x: each group's own half; of y: all of it."""
    text = changed(
        CASE.before,
        *TWO,
        ("%x = shared_slot(%x_smem, %slot_1) : shared<64x32xbf16, inner=1, swizzle=64>",
         "%group = replica_id() : i32\n      %whole = shared_slot(%x_smem, %slot_1) : shared<128x32xbf16, inner=1, swizzle=64>\n"
         "      %x = shared_slice(%whole, %group, %1) {shape=(64, 32)} : shared<64x32xbf16, inner=1, swizzle=64, of=128x32>"),
        ("lead=(), shape=(64, 32)", "lead=(2,), shape=(64, 32)"),
        ("%c_smem = shared_alloc() {", "%c_smem = shared_alloc() {"),
        ("%staging = shared_slot(%c_smem)", "%own = replica_id() : i32\n    %staging = shared_slot(%c_smem, %own)"),
    )  # fmt: skip
    text = text.replace(
        '{name="x", lead=(2,), shape=(64, 32)', '{name="x", lead=(2,), shape=(128, 32)'
    )
    text = text.replace("shared<[2]64x32xbf16, inner=1, swizzle=64>\n  %x_map", "shared<[2]128x32xbf16, inner=1, swizzle=64>\n  %x_map")  # fmt: skip
    text = text.replace(": shared<64x32xbf16, inner=1, swizzle=64>\n  %c_map", ": shared<[2]64x32xbf16, inner=1, swizzle=64>\n  %c_map")  # fmt: skip
    text = text.replace(
        "%x_slot = shared_slot(%x_smem, %slot_1) : shared<64x32",
        "%x_slot = shared_slot(%x_smem, %slot_1) : shared<128x32",
    )
    text = text.replace("{box=(64, 32), inner=1, swizzle=64} : tensormap<64x32xbf16, inner=1, swizzle=64>\n  %y_smem", "{box=(128, 32), inner=1, swizzle=64} : tensormap<128x32xbf16, inner=1, swizzle=64>\n  %y_smem")  # fmt: skip
    func = parse_func(text)
    verify(func)
    named = {o.attrs["name"]: o for o in func.body.ops if o.kind is smem.shared_alloc}
    reuse, half = SharedReuse(func), 64 * 64
    assert reuse.after(named["x"], named["c"]) is Over.REPLICA
    assert [reuse.fits(named["x"], named["c"], n * half) for n in range(-2, 5)] == [
        True, False, True, False, True, False, True
    ]  # fmt: skip
    assert not any(reuse.fits(named["y"], named["c"], n * half) for n in range(-1, 1))


PHASES = """func @k(%x: ptr<f32>, %n: i32) level=WARP {warps=4} {
  %0 = const() {value=0, dtype=i32} : i32
  %1 = const() {value=1, dtype=i32} : i32
  %value = const() {value=1.0, dtype=f32} : f32
  %a_smem = shared_alloc() {name="a", lead=(), shape=(64, 64), dtype=f32, inner=1, swizzle=128} : shared<64x64xf32, inner=1, swizzle=128>
  %b_smem = shared_alloc() {name="b", lead=(), shape=(64, 64), dtype=f32, inner=1, swizzle=128} : shared<64x64xf32, inner=1, swizzle=128>
  tasks() {names=("first",), warps=(4,), replicas=(1,), registers=(none,)} do {
FIRST
    yield()
  }
  tasks() {names=("second",), warps=(4,), replicas=(1,), registers=(none,)} do {
SECOND
    yield()
  }
  yield()
}"""


def use(name: str) -> str:
    """A tile into shared memory and back."""
    return f"""
    %t{name} = splat(%value) {{shape=(64, 64)}} : tile<64x64xf32>
    %s{name} = shared_slot(%{name}_smem) : shared<64x64xf32, inner=1, swizzle=128>
    shared_store(%s{name}, %t{name})
    group_sync() {{scope="replica"}}
    %r{name} = shared_load(%s{name}) : tile<64x64xf32>
"""


def in_loop(text: str) -> str:
    return f"for(%0, %n, %1) do (%i: i32) {{\n{text}\nyield()\n}}\n"


def test_phases_part_what_they_use() -> None:
    text = PHASES.replace("FIRST", use("a")).replace("SECOND", use("b"))
    assert over(text, "a", "b") is Over.TASK
    assert over(text, "b", "a") is None


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        (use("a") + SYNC + use("b") + SYNC, Over.TASK),
        (use("a") + use("b") + SYNC, None),  # its warps may still read a
        (use("a") + SYNC + use("b"), None),  # or b, in the next iteration
    ],
)
def test_by_turns_in_a_loop(body: str, wanted: Over | None) -> None:
    text = PHASES.replace("FIRST", in_loop(body)).replace("SECOND", "")
    assert over(text, "a", "b") is over(text, "b", "a") is wanted


def test_what_is_kept_over_the_other_one_is_not_shared() -> None:
    """b is written, a written and read, then b is read."""
    written, _, read = use("b").partition(SYNC)
    text = PHASES.replace("FIRST", in_loop(written + SYNC + use("a") + SYNC + read + SYNC))
    text = text.replace("SECOND", "")
    assert over(text, "a", "b") is over(text, "b", "a") is None


def test_a_loop_that_runs_ahead_counts_as_the_plain_one() -> None:
    """One task that fills its ring two steps ahead waits for all that it filled."""
    func = parse_func(cases()["fuse_tasks"].after)
    counts = PhaseCounts(func)
    (main,) = counts.tasks
    rings = {o.attrs["name"]: o.result for o in func.body.ops if o.kind is mbarrier.mbarrier_alloc}
    assert counts.awaited(main, main, rings["full"])
    assert not counts.awaited(main, main, rings["empty"])
    further = changed(cases()["fuse_tasks"].after, ("lt(%early", "le(%early"))
    func = parse_func(further)
    counts = PhaseCounts(func)
    full = next(o.result for o in func.body.ops if o.attrs.get("name") == "full")
    assert not counts.awaited(counts.tasks[0], counts.tasks[0], full)


# ---- that the simulator and the checker see bytes of two allocations


def checked(func: Func) -> CheckReport:
    """At a launch: of any leading dimension of C the rows may overlap."""
    grid, *given = CASE.told("run")
    args = [
        np.zeros(16, p.type.dtype.numpy) if isinstance(p.type, Pointer) else arg
        for p, arg in zip(func.params, given, strict=True)
    ]
    whole = place_grid_wait(func, SM_90A)
    return check(whole, launch=Case(tuple(args), (*grid, 1, 1)))


def forced(text: str) -> Func:
    """The function with c in the bytes of x, and a record that says it may be there."""
    func = allocate_shared(parse_func(text), None, SM_90A)
    ops = tuple(
        o.with_(attrs={**o.attrs, "offset": 0, "reuses": ("x",)})
        if o.attrs.get("name") == "c"
        else o
        for o in func.body.ops
    )
    func = func.with_(body=Region(func.body.params, ops))
    verify(func)
    return func


STORE = """    %staging = shared_slot(%c_smem) : shared<64x32xbf16, inner=1, swizzle=64>
    shared_store(%staging, %out)
    fence_async()
"""
EARLY = """    %blank = splat(%zero) {shape=(64, 32), layout=#layout<wgmma_acc(64x32)>} : tile<64x32xf32, #layout<wgmma_acc(64x32)>>
    %out = cast(%blank) {dtype=bf16} : tile<64x32xbf16, #layout<wgmma_acc(64x32)>>
"""
WRONG: dict[str, tuple[tuple[tuple[str, str], ...], str]] = {
    "no barrier between its warps": (((SYNC, ""),), "race"),
    "products still read": (
        ((LAST_WAIT, EARLY + SYNC + STORE + LAST_WAIT), (" " * 4 + "%out = cast(%sum_1)", " " * 4 + "%unused = cast(%sum_1)"), (SYNC + STORE + SYNC, SYNC + SYNC)),
        "race",
    ),
    "written while the ring is filled": (
        (("    %zeros_1, %slot", EARLY + STORE + "    %zeros_1, %slot"), (" " * 4 + "%out = cast(%sum_1)", " " * 4 + "%unused = cast(%sum_1)"), (SYNC + STORE + SYNC, SYNC)),
        "race",
    ),
}  # fmt: skip


@pytest.mark.parametrize("how", WRONG)
def test_a_wrong_sharing_is_found(how: str) -> None:
    pairs, code = WRONG[how]
    text = CASE.before
    for old, new in reversed(pairs):  # the last change first: it undoes what an earlier one adds
        text = changed(text, (old, new))
    placed = allocate_shared(parse_func(text), None, SM_90A)
    c = next(o for o in placed.body.ops if o.attrs.get("name") == "c")
    assert c.attrs["offset"] and "reuses" not in c.attrs  # the pass shares nothing here
    func = forced(text)
    report = checked(func)
    assert report.verdict is Verdict.BROKEN
    assert any(e.code == code for e in report.diagnostics), report
    for order in ORDERS:
        with pytest.raises(SimError, match="the same bytes"):
            computed(func, CASE.told("run"), order)


def test_a_wrong_sharing_computes_something_else() -> None:
    """Without the proof, in some order of events."""
    text = CASE.before
    for old, new in reversed(WRONG["written while the ring is filled"][0]):
        text = changed(text, (old, new))
    apart = allocate_shared(parse_func(text), None, SM_90A)
    told: Any = CASE.told("run")
    assert all(not computed(apart, told, order)[2].any() for order in ORDERS)  # it stores zeros
    assert any(computed(forced(text), told, order, track=False)[2].any() for order in ORDERS)


def test_the_right_sharing_is_proved_and_computes_the_same_in_every_order() -> None:
    _, func = CASE.functions()
    c = next(o for o in func.body.ops if o.attrs.get("name") == "c")
    assert c.attrs["reuses"] == ("x",) and c.attrs["offset"] == 0
    assert checked(func).verdict is Verdict.PROVED
    apart = func.with_(
        attrs={**func.attrs, "shared_bytes": 32768},
        body=Region(
            func.body.params,
            tuple(
                o.with_(attrs={**o.attrs, "offset": 16384}) if o is c else o for o in func.body.ops
            ),
        ),
    )
    for order in ORDERS:
        told: Any = CASE.told("run")
        for one, other in zip(
            computed(func, told, order), computed(apart, told, order), strict=True
        ):
            assert np.array_equal(one, other)


def test_what_another_allocation_left_is_not_read() -> None:
    """y, over now, holds what was never written to c."""
    text = changed(CASE.before, ("    shared_store(%staging, %out)\n", ""))
    report = checked(forced(text))
    assert [e.code for e in report.diagnostics][:1] == ["uninitialised"]
    assert "left in the same bytes" in str(report)


def test_the_verifier_wants_the_record() -> None:
    _, func = CASE.functions()
    ops = tuple(
        o.with_(attrs={k: v for k, v in o.attrs.items() if k != "reuses"}) for o in func.body.ops
    )
    with pytest.raises(InternalError, match="c overlaps x and neither reuses the other"):
        verify(func.with_(body=Region(func.body.params, ops)))
