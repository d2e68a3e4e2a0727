"""order_atomics: what a ticket orders for a warp's lanes is in the program, and the checker misses it."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
import pytest

import warploom as wl
import warploom.language as tl
from tests.passes import road
from warploom.check import Case, Verdict, check
from warploom.check.launches import at_launch
from warploom.errors import CompileError, InternalError
from warploom.ir.core import Func, Op, Region
from warploom.ir.ops import smem, tile
from warploom.ir.parser import parse_func
from warploom.ir.verify import verify
from warploom.passes.warp.order_atomics import _DTYPES, order_atomics

ARGS = (*(np.zeros(n, np.float32) for n in (192, 192, 64)), np.zeros(2, np.int32))

# Three programs of a warp store a part each; who draws the last number adds them up.
TEXT = """func @k(%x: ptr<f32>, %parts: ptr<f32>, %y: ptr<f32>, %counts: ptr<i32>) level=WARP {warps=1} {
  %c1 = const() {value=1, dtype=i32}
  %c2 = const() {value=2, dtype=i32}
  %c3 = const() {value=3, dtype=i32}
  %c32 = const() {value=32, dtype=i32}
  %row = program_id() {axis=0}
  %part = program_id() {axis=1}
  %rows = mul(%row, %c3)
  %place = add(%rows, %part)
  %here = mul(%place, %c32)
  %all = mul(%rows, %c32)
  %out = mul(%row, %c32)
  tasks() {names=("main",), warps=(1,), replicas=(1,), registers=(none,)} do {
    %at = arange() {start=0, end=32}
    %mine = splat(%here) {shape=(32,)}
    %to = add(%mine, %at)
    %xs = splat(%x) {shape=(32,)}
    %from = addptr(%xs, %to)
    %v = load(%from)
    %ps = splat(%parts) {shape=(32,)}
    %into = addptr(%ps, %to)
    store(%into, %v)
    %count = addptr(%counts, %row)
    %came = atomic(%count, %c1) {fn="add", sem="acq_rel"}
    %last = eq(%came, %c2)
    if(%last) do {
      %first = splat(%all) {shape=(32,)}
      %a0 = add(%first, %at)
      %p0 = addptr(%ps, %a0)
      %v0 = load(%p0)
      %step = splat(%c32) {shape=(32,)}
      %a1 = add(%a0, %step)
      %p1 = addptr(%ps, %a1)
      %v1 = load(%p1)
      %a2 = add(%a1, %step)
      %p2 = addptr(%ps, %a2)
      %v2 = load(%p2)
      %s = add(%v0, %v1)
      %t = add(%s, %v2)
      %yrow = splat(%out) {shape=(32,)}
      %yat = add(%yrow, %at)
      %ys = splat(%y) {shape=(32,)}
      %yp = addptr(%ys, %yat)
      store(%yp, %t)
      yield()
    } do {
      yield()
    }
    yield()
  }
  yield()
}"""


@lru_cache
def tickets() -> Func:
    return road.placed(parse_func(TEXT))


def changed(func: Func, change: Callable[[Op], Op | None]) -> Func:
    def region(r: Region) -> Region:
        ops = (o.with_(regions=tuple(map(region, o.regions))) if o.regions else o for o in r.ops)
        return Region(r.params, tuple(x for o in ops if (x := change(o)) is not None))

    return func.with_(body=region(func.body))


def kinds(func: Func) -> list[str]:
    acting = (smem.group_sync, tile.atomic, tile.store, tile.load)
    return [o.kind.name for o in func.body.all_ops if o.kind in acting]


def verdict(func: Func) -> str:
    return at_launch(func, Case(ARGS, (2, 3))).verdict


def test_lanes_meet_on_both_sides_of_a_ticket() -> None:
    func = tickets()
    assert kinds(func)[:5] == ["load", "store", "group_sync", "atomic", "group_sync"]
    assert verdict(func) == "proved"


@pytest.mark.parametrize("side", ["before", "behind"])
def test_without_a_barrier_on_one_side_it_is_not_proved(side: str) -> None:
    func = tickets()
    syncs = [o for o in func.body.all_ops if o.kind is smem.group_sync]
    assert len(syncs) == 2
    lost = syncs[side == "behind"]
    spoilt = changed(func, lambda o: None if o is lost else o)
    assert verdict(spoilt) == "not proved"
    with pytest.raises(InternalError, match="one number's order"):
        verify(spoilt)


def test_without_its_order_it_is_not_proved() -> None:
    def relaxed(o: Op) -> Op:
        return o.with_(attrs={**o.attrs, "sem": "release"}) if o.kind is tile.atomic else o

    assert verdict(changed(tickets(), relaxed)) == "not proved"


def test_what_is_ordered_stays_as_it_is() -> None:
    """As in a script that was ejected."""
    func = tickets()
    assert kinds(order_atomics(func)) == kinds(func)
    assert check(func).verdict is not Verdict.BROKEN


@wl.jit
def greatest(x_ptr, y_ptr):
    tl.atomic_max(y_ptr, tl.load(x_ptr))


def test_what_no_instruction_does_is_refused_with_its_line() -> None:
    x = np.zeros(2, np.float16)
    with pytest.raises(CompileError) as caught:
        greatest.compile_for(x, x.copy(), grid=1)
    assert caught.value.code == "atomic-dtype" and "no atomic max on f16" in caught.value.message
    assert "tl.atomic_max(y_ptr, tl.load(x_ptr))" in str(caught.value)
    greatest.compile_for(x.astype(np.float32), x.astype(np.float32), grid=1)


@wl.jit
def extremes(x_ptr, most_ptr, least_ptr, old_ptr):
    at = tl.arange(0, 64)
    x = tl.load(x_ptr + at)
    tl.atomic_max(most_ptr + at % 8, x)
    tl.store(old_ptr + at, tl.atomic_min(least_ptr + at, x))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_greatest_and_least_of_floats(dtype: type) -> None:
    x = np.random.default_rng(3).standard_normal(64).astype(dtype)
    most, least, old = np.full(8, 0.5, dtype), np.full(64, 0.25, dtype), np.zeros(64, dtype)
    extremes.compile_for(x, most, least, old, grid=1).simulate(x, most, least, old, grid=(1,))
    assert np.array_equal(most, np.maximum(x.reshape(8, 8).max(0), dtype(0.5)))
    assert np.array_equal(least, np.minimum(x, dtype(0.25))) and (old == 0.25).all()


def test_one_number_is_for_one_warp() -> None:
    several = TEXT.replace("warps=(1,)", "warps=(4,)")
    assert several != TEXT
    with pytest.raises(CompileError, match="by a single warp only") as caught:
        order_atomics(parse_func(several))
    assert caught.value.code == "atomic-result"


@wl.jit
def for_everybody(x, y, FN: tl.constexpr, SCOPE: tl.constexpr):
    i = tl.arange(0, 64)
    if FN == "cas":
        old = tl.atomic_cas(x + i, tl.load(y + i), tl.load(y + 63 - i), scope=SCOPE)
    elif FN == "load":
        old = tl.atomic_load(x + i, scope=SCOPE)
    else:
        old = getattr(tl, f"atomic_{FN}")(x + i, tl.load(y + i), scope=SCOPE)
    tl.store(y + i, old)


NUMPY = {"i32": np.int32, "u32": np.uint32, "i64": np.int64, "u64": np.uint64, "f32": np.float32,
         "f64": np.float64}  # fmt: skip


@pytest.mark.parametrize("fn", _DTYPES)
@pytest.mark.each(3)
def test_what_the_system_sees_is_atomic_and_ordered_for_it(fn: str) -> None:
    for d in sorted(_DTYPES[fn] & NUMPY.keys()):
        x, y = (np.arange(64).astype(NUMPY[d]) for _ in range(2))
        wide, plain = (
            for_everybody.compile_for(x, y, grid=(1,), FN=fn, SCOPE=s) for s in ("sys", "gpu")
        )
        assert (
            "_system" in wide.cuda and "fence_gpu" not in wide.cuda
        ) and "_system" not in plain.cuda
        assert wide.resources.problems() == ()
        found = [(x.copy(), y.copy()) for _ in range(2)]
        for compiled, args in zip((wide, plain), found, strict=True):
            compiled.simulate(*args, grid=(1,))
        assert np.array_equal(found[0], found[1])


def test_halves_are_combined_by_the_gpu_alone() -> None:
    x = np.zeros(64, np.float16)
    with pytest.raises(CompileError, match="combine 32 or 64 bits there"):
        for_everybody.compile_for(x, x.copy(), grid=(1,), FN="add", SCOPE="sys")
