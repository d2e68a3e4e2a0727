"""Tiles that differ by a number are passed on as that number; what begins below 0 may still begin a box."""

from __future__ import annotations

import numpy as np
import pytest

from warploom.ir.core import Func, walk
from warploom.ir.ops import control, tile
from warploom.ir.parser import parse_func
from warploom.ir.types import Tile
from warploom.ir.verify import verify
from warploom.passes.tile.canonicalize import canonicalize
from warploom.passes.tile.recover_boxes import recover_boxes
from warploom.sim import oracle
from warploom.target import SM_90A

HEAD = """func @k(%x: ptr<i32>, %y: ptr<i32>, %n: i32, %s: i32) level=TILE {
  %ar = arange() {start=0, end=8} : tile<8xi32>
  %yt = splat(%y) {shape=(8,)} : tile<8xptr<i32>>
  %xt = splat(%x) {shape=(8,)} : tile<8xptr<i32>>
  %zero = const() {value=0, dtype=i32} : i32
  %one = const() {value=1, dtype=i32} : i32
  %eight = const() {value=8, dtype=i32} : i32
"""
# A tile that begins anew in every third iteration, and is stored at every one.
FOR = """
  %last = for(%zero, %n, %one, %ar) : tile<8xi32> do (%i: i32, %t: tile<8xi32>) {
    %three = const() {value=3, dtype=i32} : i32
    %r = rem(%i, %three) : i32
    %c = eq(%r, %zero) : i1
    %u = if(%c) : tile<8xi32> do {
      %f = mul(%i, %s) : i32
      %ft = splat(%f) {shape=(8,)} : tile<8xi32>
      %w = add(%ft, %ar) : tile<8xi32>
      yield(%w)
    } do { yield(%t) }
    %at = mul(%i, %eight) : i32
    %att = splat(%at) {shape=(8,)} : tile<8xi32>
    %where = add(%att, %ar) : tile<8xi32>
    %p = addptr(%yt, %where) : tile<8xptr<i32>>
    store(%p, %u)
    yield(%u)
  }"""
WHILE = """
  %last, %j = while(%ar, %zero) : tile<8xi32>, i32 do (%t: tile<8xi32>, %i: i32) {
    %c = lt(%i, %n) : i1
    yield(%c, %t, %i)
  } do (%t: tile<8xi32>, %i: i32) {
    %at = mul(%i, %eight) : i32
    %att = splat(%at) {shape=(8,)} : tile<8xi32>
    %where = add(%att, %ar) : tile<8xi32>
    %p = addptr(%yt, %where) : tile<8xptr<i32>>
    store(%p, %t)
    %f = mul(%i, %s) : i32
    %ft = splat(%f) {shape=(8,)} : tile<8xi32>
    %w = add(%ar, %ft) : tile<8xi32>
    %i1 = add(%i, %one) : i32
    yield(%w, %i1)
  }"""
END = "\n  %pl = addptr(%xt, %ar) : tile<8xptr<i32>>\n  store(%pl, %last)\n  yield()\n}"


def canonical(text: str) -> Func:
    func = canonicalize(parse_func(text), SM_90A)
    verify(func)
    assert canonicalize(func, SM_90A) is func
    return func


def outputs(func: Func, n: int) -> list[np.ndarray]:
    found = [np.full(8, -1, np.int32), np.full(8 * 9, -1, np.int32)]
    oracle.run(func, [*found, n, 5], (1,))
    return found


def carried_tiles(func: Func) -> int:
    return sum(
        isinstance(v.type, Tile)
        for o in walk(func.body)
        if o.kind in (control.for_, control.while_, control.if_)
        for v in o.results
    )


@pytest.mark.parametrize("body", [FOR, WHILE], ids=["for", "while"])
def test_a_number_is_passed_on(body: str) -> None:
    before = parse_func(HEAD + body + END)
    after = canonical(HEAD + body + END)
    assert carried_tiles(before) and not carried_tiles(after)
    for n in (0, 1, 2, 5, 7):
        for x, y in zip(outputs(before, n), outputs(after, n), strict=True):
            np.testing.assert_array_equal(x, y)


def test_tiles_with_different_rests_stay() -> None:
    """Every other iteration's grows by two from element to element."""
    body = FOR.replace("add(%ft, %ar)", "add(%ft, %wide)").replace(
        "%f = mul", "%wide = add(%ar, %ar) : tile<8xi32>\n      %f = mul"
    )
    before, after = parse_func(HEAD + body + END), canonical(HEAD + body + END)
    assert carried_tiles(after) == carried_tiles(before)
    for x, y in zip(outputs(before, 5), outputs(after, 5), strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("step,boxed", [(4, True), (5, True), (3, False)])
def test_what_begins_a_step_before_the_first(step: int, boxed: bool) -> None:
    """A tile's number that begins at pid - 4 and grows before it is used, in some iterations only."""
    func = canonical(
        HEAD
        + f"""
  %pid = program_id() {{axis=0}} : i32
  %four = const() {{value=4, dtype=i32}} : i32
  %step = const() {{value={step}, dtype=i32}} : i32
  %first = sub(%pid, %four) : i32
  %end = for(%zero, %n, %one, %first) : i32 do (%i: i32, %t: i32) {{
    %r = rem(%i, %four) : i32
    %c = eq(%r, %zero) : i1
    %u, %v = if(%c) : i32, i32 do {{
      %w = add(%t, %step) : i32
      yield(%w, %w)
    }} do {{ yield(%t, %zero) }}
    %at = mul(%v, %eight) : i32
    %att = splat(%at) {{shape=(8,)}} : tile<8xi32>
    %where = add(%att, %ar) : tile<8xi32>
    %p = addptr(%xt, %where) : tile<8xptr<i32>>
    %l = load(%p) : tile<8xi32>
    %q = addptr(%yt, %ar) : tile<8xptr<i32>>
    store(%q, %l)
    yield(%u)
  }}
  yield()
}}"""
    )
    out = recover_boxes(func)
    verify(out)
    assert (tile.load_box in {o.kind for o in walk(out.body)}) == boxed
