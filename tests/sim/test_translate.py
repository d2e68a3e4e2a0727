"""Regions as Python functions: however deep they are nested, they do what the oracle says."""

from __future__ import annotations

import numpy as np
import pytest

from warploom.ir.parser import parse_func
from warploom.sim.machine import simulate
from warploom.sim.path import Paths
from warploom.sim.report import TripLimit

HEAD = """func @nested(%p: ptr<i32>, %n: i32) level=WARP {warps=4} {
  %zero = const() {value=0, dtype=i32} : i32
  %one = const() {value=1, dtype=i32} : i32
  tasks() {names=("main",), warps=(4,), replicas=(1,), registers=(none,)} do {
"""
TAIL = """
    store(%p, %x0)
    yield()
  }
  yield()
}
"""


def loops(depth: int) -> str:
    """Each runs n times and adds 1 to what the one inside it makes of a number."""
    text = "%sum = add(%y, %one) : i32\nyield(%sum)"
    for i in reversed(range(depth)):
        given = "%zero" if i == 0 else f"%y{i}"
        carried = "%y" if i == depth - 1 else f"%y{i + 1}"
        after = "" if i == depth - 1 else f"\n%s{i} = add(%x{i + 1}, %one) : i32\nyield(%s{i})"
        text = f"%x{i} = for(%zero, %n, %one, {given}) : i32 do (%i{i}: i32, {carried}: i32) {{\n{text}{after}\n}}"
    return HEAD + text + TAIL


def branches(depth: int) -> str:
    """The number of the first of these that n is."""
    text = f"%c = const() {{value={depth}, dtype=i32}} : i32\nyield(%c)"
    for i in reversed(range(depth)):
        inner = "%c" if i == depth - 1 else f"%x{i + 1}"
        if i < depth - 1:
            text += f"\nyield({inner})"
        text = (
            f"%k{i} = const() {{value={i}, dtype=i32}} : i32\n%is{i} = eq(%n, %k{i}) : i1\n"
            f"%x{i} = if(%is{i}) : i32 do {{\nyield(%k{i})\n}} do {{\n{text}\n}}"
        )
    return HEAD + text + TAIL


def run(text: str, n: int, **options: object) -> int:
    out = np.full(1, -1, np.int32)
    simulate(parse_func(text), [out, n], (1,), **options)  # type: ignore[arg-type]
    return int(out[0])


@pytest.mark.parametrize("data", [True, False])
@pytest.mark.parametrize("depth, n, wanted", [(2, 3, 12), (30, 1, 30), (30, 0, 0)])
def test_loops_may_be_nested_deeper_than_pythons(
    depth: int, n: int, wanted: int, data: bool
) -> None:
    assert run(loops(depth), n, data=data) == wanted


@pytest.mark.parametrize("n", [0, 13, 69, 70])
def test_so_may_branches(n: int) -> None:
    assert run(branches(70), n) == n


def test_a_loop_apart_counts_its_turns() -> None:
    with pytest.raises(TripLimit, match="more than 2 iterations"):
        run(loops(14), 3, max_trips=2)


def test_paths_tell_loops_that_are_nested() -> None:
    func, out = parse_func(loops(3)), np.zeros(1, np.int32)
    path = Paths(func)([out, 2], (1,), 0)
    assert path is not None
    assert sorted(path.most_trips.values()) == [2, 2, 2]
