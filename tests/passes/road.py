"""From TILE text to every level, and what each level computes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from tests.orders import default_orders
from warploom.ir.core import Func, Level
from warploom.ir.parser import parse_func
from warploom.ir.printer import print_func
from warploom.ir.verify import verify
from warploom.passes.pipeline import PIPELINE, Choice, Pass, Road
from warploom.passes.tile.canonicalize import canonicalize, number_ops
from warploom.passes.tile.partition_ctas import partition_ctas
from warploom.schedule.clusters import choose_cluster
from warploom.schedule.heuristic import choose
from warploom.schedule.model import Knobs, Schedule
from warploom.sim.machine import simulate
from warploom.sim.oracle import run
from warploom.target import SM_90A

DEFAULT = Knobs()


@lru_cache(maxsize=64)  # tests ask for the same program with several arguments
def tile(text: str) -> Func:
    """TILE text, verified and numbered."""
    func = number_ops(parse_func(text))
    verify(func)
    return func


def _behind_the_choice() -> list[Pass]:
    """The passes from TILE to WARP, all of which read a schedule."""
    at = next(
        i for i, row in enumerate(PIPELINE) if isinstance(row, Choice) and row.name == "choose"
    )
    end = next(i for i, row in enumerate(PIPELINE) if row.name == "assign_layouts")
    return [row for row in PIPELINE[at + 1 : end] if isinstance(row, Pass)]


@lru_cache(maxsize=64)
def lower(
    func: Func, knobs: Knobs = DEFAULT, edit: Callable[[Schedule], Schedule] = lambda s: s
) -> tuple[Schedule, tuple[tuple[str, Func], ...]]:
    """(schedule, ((pass, function after it), …)); each verified, and read back from its text."""
    steps = []
    cluster = choose_cluster(func, knobs, SM_90A)
    if cluster.ctas > 1:
        func = number_ops(canonicalize(partition_ctas(func, cluster), SM_90A))
        verify(func)
        steps.append(("partition_ctas", func))
    schedule = edit(choose(func, knobs, SM_90A))
    assert Schedule.from_json(schedule.to_json()) == schedule
    road = Road(SM_90A, knobs, schedule=schedule)
    for row in _behind_the_choice():
        if not row.when(func, road):
            continue
        name, before, func = row.name, func, row.run(func, road)
        assert func.level is row.after, name
        if func is not before:  # what a pass leaves alone was looked at before
            verify(func)
            text = print_func(func)
            assert print_func(parse_func(text)) == text, name
        steps.append((name, func))
    return schedule, tuple(steps)


def placed(func: Func) -> Func:
    """A function at WARP on the rest of its road, which no schedule decides; verified after each pass."""
    at = next(i for i, row in enumerate(PIPELINE) if row.name == "merge_elects")
    road = Road(func.target)
    for row in PIPELINE[at + 1 :]:
        assert isinstance(row, Pass)
        if row.when(func, road):
            func = row.run(func, road)
            verify(func)
    return func


def check_equal(
    func: Func,
    args: Sequence[Any],
    grid: int | Sequence[int],
    knobs: Knobs = DEFAULT,
    edit: Callable[[Schedule], Schedule] = lambda s: s,
    orders: Sequence[str] = ("late", "seeded"),
) -> tuple[Schedule, tuple[tuple[str, Func], ...]]:
    """Every level computes, bit for bit, what TILE computes (`args` are copied for each run), the last in the
    `default_orders` of these.

    An output array must not be all zeros, else nothing was tested."""
    expected = _copied(args)
    run(func, expected, grid)
    schedule, steps = lower(func, knobs, edit)
    last = steps[-1]
    for (_, before), (name, step) in itertools.pairwise((("", func), *steps)):
        if step.level <= Level.CHANNEL:
            if step is before:
                continue
            found = _copied(args)
            run(step, found, grid)
            _compare(expected, found, name)
        elif (name, step) == last:
            for order in default_orders(orders):
                found = _copied(args)
                simulate(step, found, grid, order=order, seed=1)
                _compare(expected, found, f"{name}, {order}")
    return schedule, steps


def _copied(args: Sequence[Any]) -> list[Any]:
    """Copies of the arrays; one that is passed twice stays one."""
    copies = {id(a): a.copy() for a in args if isinstance(a, np.ndarray)}
    return [copies.get(id(a), a) for a in args]


def _compare(expected: Sequence[Any], found: Sequence[Any], where: str) -> None:
    for i, (x, y) in enumerate(zip(expected, found, strict=True)):
        if isinstance(x, np.ndarray):
            same = x.view(np.uint8) == y.view(np.uint8)
            assert np.all(same), f"after {where}: argument {i} differs in {np.sum(~same)} bytes"


def integers(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> Any:
    """Small integers: sums of their products are exact in float32."""
    return rng.integers(-4, 5, shape).astype(np.float32).astype(dtype)
