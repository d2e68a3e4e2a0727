"""An instruction that there is not, of an engine beside the threads: what one more takes, from the text of a program
through layouts, verifier, simulator, checker, CUDA and stamps.

The engine fills a slot of shared memory with a number, and completes the slot's bytes on an mbarrier.  It is
declared and entered in four tables; everything else follows from its family.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.passes import road
from warploom.check import check
from warploom.codegen.context import Emitter
from warploom.codegen.emit import emit
from warploom.codegen.lower import LOWER
from warploom.codegen.lower_barriers import barrier
from warploom.eject import eject
from warploom.eject.expressions import call
from warploom.eject.spelling import SPELLINGS, Spelling
from warploom.eject.statements import Statements
from warploom.errors import CompileError, InternalError
from warploom.explain import BUILT, Built, explain
from warploom.ir.core import HARDWARE, KINDS, Effect, Family, Func, Op, Runs, op, require
from warploom.ir.ops.mbarrier import check_barrier
from warploom.ir.parser import parse_func
from warploom.ir.printer import print_func
from warploom.ir.rules import Rules
from warploom.ir.types import Barriers, Scalar, Shared, dtype_of
from warploom.ir.verify import verify
from warploom.passes.placed.instrument import instrument
from warploom.schedule.model import Schedule, SplitPlan
from warploom.sim.accesses import write
from warploom.sim.machine import simulate
from warploom.sim.outline import STEPS
from warploom.sim.report import SimError
from warploom.target import SM_90A

PROGRAM = """func @fills(%y: ptr<f32>, %n: i32) level=WARP {warps=4, facts=(fact<16>, fact<1>)} {
  %c0 = const() {value=0, dtype=i32}
  %c1 = const() {value=1, dtype=i32}
  %c8 = const() {value=8, dtype=i32}
  %rows = const() {value=64, dtype=i64}
  %wide = const() {value=32, dtype=i64}
  %one = const() {value=1, dtype=i64}
  %y_view = make_view(%y, %rows, %wide, %wide, %one) {divisible=(16, 16, 1)}
  %s = shared_alloc() {name="s", lead=(2,), shape=(8, 32), dtype=f32, inner=1, swizzle=0}
  %full = mbarrier_alloc() {name="full", n=2, count=1}
  %empty = mbarrier_alloc() {name="empty", n=2, count=4}
  tasks() {names=("reader", "filler"), warps=(4, 1), replicas=(1, 1), registers=(none, none)} do {
    %last, %end = for(%c0, %n, %c1, %c0, %c0) do (%i: i32, %slot: i32, %phase: i32) {
      mbarrier_wait(%full, %slot, %phase)
      %mine = shared_slot(%s, %slot)
      %x = shared_load(%mine)
      mbarrier_arrive(%empty, %slot) {by="warp"}
      %at = mul(%i, %c8)
      store_box(%y_view, %x, %at, %c0)
      %s1, %p1 = ring_next(%slot, %phase) {depth=2}
      yield(%s1, %p1)
    }
    yield()
  } do {
    elect() do {
      %last, %end = for(%c0, %n, %c1, %c0, %c0) do (%i: i32, %slot: i32, %phase: i32) {
        %free = xor(%phase, %c1)
        mbarrier_wait(%empty, %slot, %free)
        mbarrier_expect(%full, %slot) {bytes=1024}
        %mine = shared_slot(%s, %slot)
        %value = cast(%i) {dtype=f32}
        fill_async(%mine, %full, %slot, %value)
        %s1, %p1 = ring_next(%slot, %phase) {depth=2}
        yield(%s1, %p1)
      }
      yield()
    }
    yield()
  }
  yield()
}
"""


def _spelled(e: Emitter, o: Op) -> None:
    e.line(f"fill_async({e.shared(o.operands[0])}, {barrier(e, o, 1)}, {e.scalar(o.operands[3])});")


def _written(s: Statements, o: Op) -> str:
    dst, array, index, value = o.operands
    return call("fill.start", s.text(dst), s.barrier(array, index), s.text(value))


def _step(a: Any, o: Op, dst: Any, barriers: Any, index: Any, value: Any) -> Iterator[None]:
    """As a copy by TMA, but for where the data come from."""
    cta, b, party = a.cta, a.barrier(o, barriers, index), a.party(o)
    a.need_solo(o, "every thread would ask for it", "put it inside elect")
    if cta.is_tracked:
        b.bind(party, a.rows, "issues a fill that completes")
    phase, size, stamp = b.phases, dst.type.tile_bytes, a.clock[0].copy()
    component, visible = np.array([[b.component], [b.visible]])
    write(a, cta, o, dst, component, np.array([phase + 1]), True, visible)
    b.in_flight += size
    cta.loads[b] = (phase, party)
    end = a.transfer(o, size) + cta.cost.tma_latency

    def run() -> None:
        if cta.has_data:
            data = np.full(dst.type.shape, value, dst.type.dtype.numpy)
            cta.shared.write(dst.addresses, data, dst.type.dtype, True)
        b.land(party, size, phase, stamp, end)

    cta.engine.issue("fill_async", run, end, a.own_lane("fill_async"))
    yield None
    return ()  # type: ignore[return-value]


@pytest.fixture(autouse=True)
def fill_async(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The declaration, and the tables."""

    @op(Family.ISSUE, levels=HARDWARE, effect=Effect.SYNC | Effect.WRITE, runs=Runs.ONE)
    def fill_async(dst: Shared, b: Barriers, index: Scalar, value: Scalar) -> None:
        """Fills a slot with a number, asynchronously; its bytes complete on barrier b[index]."""
        check_barrier(b, index)
        require(not dst.lead and dtype_of(value) == dst.dtype, f"fill of {dst} with {value}")

    monkeypatch.setitem(LOWER, fill_async, _spelled)
    monkeypatch.setitem(STEPS, fill_async, _step)
    monkeypatch.setitem(BUILT, fill_async, Built(shared="fill", engine=" (filler)"))
    monkeypatch.setitem(SPELLINGS, fill_async, Spelling(_written, frozenset(), is_value=False))
    yield fill_async
    del KINDS["fill_async"]


def placed(text: str = PROGRAM) -> Func:
    func = parse_func(text)
    verify(func)
    return road.placed(func)


def test_its_text_goes_round() -> None:
    func = parse_func(PROGRAM)
    assert print_func(parse_func(print_func(func))) == print_func(func)


@pytest.mark.parametrize("order", ["late", "early", "seeded"])
def test_it_computes(order: str) -> None:
    y = np.zeros((64, 32), np.float32)
    simulate(placed(), [y, 5], (1, 1, 1), order=order, seed=1)
    wanted = np.repeat(np.where(np.arange(8) < 5, np.arange(8), 0), 8).astype(np.float64)
    np.testing.assert_array_equal(y, np.broadcast_to(wanted[:, None], y.shape))


def test_its_protocol_is_proved() -> None:
    report = check(placed())
    assert report.ok, str(report)


@pytest.mark.parametrize(
    "old, new",
    [
        ("      mbarrier_wait(%full, %slot, %phase)\n", ""),
        ("        mbarrier_wait(%empty, %slot, %free)\n", ""),
        ("{bytes=1024}", "{bytes=512}"),
    ],
)
def test_a_broken_protocol_is_found(old: str, new: str) -> None:
    assert old in PROGRAM
    with pytest.raises(SimError):
        for order in ("late", "early"):
            y = np.zeros((64, 32), np.float32)
            simulate(placed(PROGRAM.replace(old, new)), [y, 5], (1, 1, 1), order=order)


def test_it_is_spelled_and_stamped() -> None:
    source = emit(placed(), SM_90A).source
    assert source.count("fill_async(") == 1
    _, sites = instrument(placed())
    assert [s.role for s in sites if s.op is not None and s.op.kind.name == "fill_async"] == [
        "issue"
    ]


def test_it_is_ejected() -> None:
    text = eject(parse_func(PROGRAM), {}, [])
    assert "self.fill.start(s[slot], full[slot], i.to(float32))" in text
    assert "self.depth = 2" in text  # its slots and barriers are seen to be a ring


def test_it_is_explained() -> None:
    func = placed()
    told = explain(func, Schedule("", True, (), {}, SplitPlan(None, 1), (), (), 0), func)
    assert any("filled by filler (filler); read by reader" in line for line in told.buffers)
    assert any(
        "full" in b and "signalled by filler (" in b and "waited for by reader (" in b
        for b in told.barriers
    )


@pytest.mark.parametrize("table", [SPELLINGS, BUILT], ids=lambda t: t.question)
def test_its_rows_are_asked_for(table: Rules[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(table, KINDS["fill_async"])
    assert KINDS["fill_async"] in table.incomplete()


def test_what_is_not_entered_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(STEPS, KINDS["fill_async"])
    with pytest.raises((InternalError, CompileError), match="fill_async"):
        simulate(placed(), [np.zeros((64, 32), np.float32), 5], (1, 1, 1))
