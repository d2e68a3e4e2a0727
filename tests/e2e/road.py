"""What a call's arguments compile to, run at every level on copies of these arguments."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

import warploom as wl
from corpus.arrays import GUARD, around
from corpus.arrays import array as array
from corpus.arrays import filled as filled
from tests.orders import ORDERS as ORDERS
from tests.orders import default_orders as default_orders
from warploom.ir.core import SEQUENTIAL, Func, Level
from warploom.runtime.args import fields_of
from warploom.runtime.compiled import CompiledKernel
from warploom.runtime.launch import grid_sizes
from warploom.runtime.workspace import with_programs
from warploom.sim.machine import simulate
from warploom.sim.oracle import run


def clone(value: Any) -> Any:
    """A copy with its guards, alignment and strides; one of descriptors too."""
    if isinstance(value, wl.TensorDescriptor):
        return replace(value, base=clone(value.base))
    if not isinstance(value, np.ndarray) or value.size == 0:
        return value
    old = around(value)
    owner = np.empty(old.size + 128, np.uint8)
    at = (old.ctypes.data - owner.ctypes.data) % 128
    owner[at : at + old.size] = old
    return np.ndarray(value.shape, value.dtype, owner, at + GUARD, value.strides)


def _whole(value: Any) -> Any:
    found = value.base if isinstance(value, wl.TensorDescriptor) else value
    return around(found) if isinstance(found, np.ndarray) and found.size else None


def same(expected: Sequence[Any], found: Sequence[Any], where: str) -> None:
    """All arrays and their guards are equal byte for byte."""
    for i, (x, y) in enumerate(zip(map(_whole, expected), map(_whole, found), strict=True)):
        if x is not None:
            wrong = int(np.sum(x != y))
            assert wrong == 0, f"{where}: argument {i} differs in {wrong} bytes"


def compile_for(
    kernel: Any, args: Sequence[Any], grid: Any, meta: dict[str, Any]
) -> CompiledKernel:
    """The variant that a launch with these arguments would take."""
    compiled: CompiledKernel = kernel.compile_for(*args, grid=grid, **meta)
    return compiled


def expected_of(compiled: CompiledKernel, args: Sequence[Any], grid: Any) -> list[Any]:
    """Copies of the arguments after the oracle ran the frontend's TILE on them."""
    copies = [clone(a) for a in args]
    run(compiled.lowered.written, _on_host(copies), _grid(grid))
    return copies


def simulated(
    compiled: CompiledKernel, args: Sequence[Any], grid: Any, order: str = "late"
) -> list[Any]:
    """Copies of the arguments after the PLACED program was simulated on them."""
    copies = [clone(a) for a in args]
    compiled.simulate(*copies, grid=grid, order=order, seed=1)
    return copies


def check_equal(
    kernel: Any,
    args: Sequence[Any],
    grid: Any,
    meta: dict[str, Any],
    orders: Sequence[str] = ORDERS,
    levels: bool = False,
) -> tuple[CompiledKernel, list[Any]]:
    """PLACED computes, bit for bit, what TILE computes, in the `default_orders` of these; with `levels` every level.

    (the variant, the arguments after the oracle)"""
    compiled = compile_for(kernel, args, grid, meta)
    expected = expected_of(compiled, args, grid)
    for order in default_orders(orders):
        same(expected, simulated(compiled, args, grid, order), f"PLACED, {order}")
    if levels:
        for name, at_level in _runs(compiled):
            copies = [clone(a) for a in args]
            at_level(_on_host(copies), _grid(grid))
            same(expected, copies, name)
    return compiled, expected


def _runs(compiled: CompiledKernel) -> list[tuple[str, Callable[[list[Any], Any], Any]]]:
    """What every step of the road that can be run does to arguments."""
    steps = compiled.lowered.steps
    found: list[tuple[str, Callable[[list[Any], Any], Any]]] = [
        (f"after {name}", partial(_run, run, func))
        for (_, before), (name, func) in itertools.pairwise(steps)
        if func.level in SEQUENTIAL and func is not before
    ]
    return [
        *found,
        ("WARP", partial(_run, partial(simulate, seed=2), compiled.lowered.at(Level.WARP))),
    ]


def _run(how: Callable[..., Any], func: Func, values: list[Any], grid: Any) -> Any:
    """A run of a step, with what it asks for beside the caller's arguments."""
    fields = [f for a in values for f in fields_of("", a)]
    given, ctas = with_programs(func, fields, grid_sizes(grid))
    return how(func, [f.on_host for f in given], ctas)


def _on_host(args: Sequence[Any]) -> list[Any]:
    return [f.on_host for a in args for f in fields_of("", a)]


def _grid(grid: Any) -> tuple[int, ...]:
    return (grid,) if isinstance(grid, int) else tuple(grid)
