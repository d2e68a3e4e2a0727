"""Sums over blocks of rows: what all elements have alike is carried once, and rows that there are not are left out
after the loop."""

from __future__ import annotations

import numpy as np
import pytest

from warploom.ir.core import Func, Op, walk
from warploom.ir.ops import arith, control
from warploom.ir.parser import parse_func
from warploom.ir.types import shape_of
from warploom.ir.verify import verify
from warploom.passes.tile.canonicalize import canonicalize
from warploom.sim import oracle
from warploom.target import SM_90A

# The mean of rows of END numbers, read by eights; program p has rows 2·p and 2·p + 1, of `rows`.
WELFORD = """func @k(%x: ptr<f32>, %y: ptr<f32>, %rows: i32) level=TILE {
  %zero = const() {value=0, dtype=i32} : i32
  %eight = const() {value=8, dtype=i32} : i32
  %end = const() {value=END, dtype=i32} : i32
  %whole = const() {value=32, dtype=i32} : i32
  %f0 = const() {value=0.0, dtype=f32} : f32
  %f1 = const() {value=1.0, dtype=f32} : f32
  %none = splat(%f0) {shape=(2, 8)} : tile<2x8xf32>
  %one = splat(%f1) {shape=(2, 8)} : tile<2x8xf32>
  %p = program_id() {axis=0} : i32
  %two = arange() {start=0, end=2} : tile<2xi32>
  %first = add(%p, %p) : i32
  %firsts = splat(%first) {shape=(2,)} : tile<2xi32>
  %mine = add(%firsts, %two) : tile<2xi32>
  %row = expand_dims(%mine) {axis=1} : tile<2x1xi32>
  %most = splat(%rows) {shape=(2, 1)} : tile<2x1xi32>
  %is = lt(%row, %most) : tile<2x1xi1>
  %is_row = broadcast(%is) {shape=(2, 8)} : tile<2x8xi1>
  %ar = arange() {start=0, end=8} : tile<8xi32>
  %columns = expand_dims(%ar) {axis=0} : tile<1x8xi32>
  %column = broadcast(%columns) {shape=(2, 8)} : tile<2x8xi32>
  %stride = splat(%end) {shape=(2, 1)} : tile<2x1xi32>
  %base = mul(%row, %stride) : tile<2x1xi32>
  %bases = broadcast(%base) {shape=(2, 8)} : tile<2x8xi32>
  %px = splat(%x) {shape=(2, 8)} : tile<2x8xptr<f32>>
  %ends = splat(%end) {shape=(2, 8)} : tile<2x8xi32>
  %mean, %count = for(%zero, %whole, %eight, %none, %none) : tile<2x8xf32>, tile<2x8xf32>
    do (%i: i32, %m: tile<2x8xf32>, %w: tile<2x8xf32>) {
    %is_ = splat(%i) {shape=(2, 8)} : tile<2x8xi32>
    %at = add(%is_, %column) : tile<2x8xi32>
    %inside = lt(%at, %ends) : tile<2x8xi1>
    %mask = and(%inside, %is_row) : tile<2x8xi1>
    %place = add(%bases, %at) : tile<2x8xi32>
    %from = addptr(%px, %place) : tile<2x8xptr<f32>>
    %v = load(%from, %mask) : tile<2x8xf32>
    %more = add(%w, %one) : tile<2x8xf32>
    %off = sub(%v, %m) : tile<2x8xf32>
    %part = div(%off, %more) : tile<2x8xf32>
    %new = add(%m, %part) : tile<2x8xf32>
    %m2 = select(%mask, %new, %m) : tile<2x8xf32>
    %w2 = select(%mask, %more, %w) : tile<2x8xf32>
    USED
    yield(%m2, %w2)
  }
  %sums = mul(%mean, %count) : tile<2x8xf32>
  %sum = reduce(%sums) {axis=1, fn="add"} : tile<2xf32>
  %all = reduce(%count) {axis=1, fn="add"} : tile<2xf32>
  %result = add(%sum, %all) : tile<2xf32>
  %py = splat(%y) {shape=(2,)} : tile<2xptr<f32>>
  %to = addptr(%py, %mine) : tile<2xptr<f32>>
  store(%to, %result)
  yield()
}"""
# Somebody looks at what a row that there is not would have.
LOOK = """%pl = splat(%y) {shape=(2, 8)} : tile<2x8xptr<f32>>
    %there = add(%place, %ends) : tile<2x8xi32>
    %pl2 = addptr(%pl, %there) : tile<2x8xptr<f32>>
    store(%pl2, %w)"""


def outputs(func: Func, end: int) -> np.ndarray:
    rows = 3
    x = np.random.default_rng(0).integers(-4, 5, (4, end)).astype(np.float32)
    y = np.full(256, -1, np.float32)
    oracle.run(func, [x.reshape(-1), y, rows], (2,))
    return y


def canonical(text: str) -> Func:
    func = canonicalize(parse_func(text), SM_90A)
    verify(func)
    assert canonicalize(func, SM_90A) is func
    return func


def loop_of(func: Func) -> Op:
    (loop,) = [o for o in walk(func.body) if o.kind is control.for_]
    return loop


def selections(loop: Op) -> int:
    return sum(o.kind is arith.select for o in loop.all_ops)


@pytest.mark.parametrize(("end", "whole"), [(32, True), (29, False)])
def test_whole_rows_count_once(end: int, whole: bool) -> None:
    text = WELFORD.replace("END", str(end)).replace("USED", "")
    before, after = parse_func(text), canonical(text)
    loop = loop_of(after)
    assert {shape_of(v.type) for v in loop.results} == ({(2, 8), (1, 1)} if whole else {(2, 8)})
    assert selections(loop) == (0 if whole else 2)
    np.testing.assert_array_equal(outputs(before, end), outputs(after, end))


def test_what_is_looked_at_is_selected_in_the_loop() -> None:
    """The count is stored, and the mean follows from it: both are as the program says in every step."""
    text = WELFORD.replace("END", "32").replace("USED", LOOK)
    before, after = parse_func(text), canonical(text)
    loop = loop_of(after)
    assert (2, 1) in [shape_of(v.type) for v in loop.results]
    assert selections(loop) == 1  # what only the mean is needs none
    np.testing.assert_array_equal(outputs(before, 32), outputs(after, 32))


def test_another_mask_is_another_state() -> None:
    """A sum over all rows that follows from one that is masked."""
    text = (
        WELFORD.replace("END", "32")
        .replace("USED", "")
        .replace("%w2 = select(%mask, %more, %w)", "%w2 = add(%more, %m)")
    )
    before, after = parse_func(text), canonical(text)
    assert selections(loop_of(after)) == 1
    np.testing.assert_array_equal(outputs(before, 32), outputs(after, 32))
