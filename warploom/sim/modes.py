"""The simulator's modes, as a kernel's user asks for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from warploom.ir.core import Func
from warploom.sim.machine import simulate
from warploom.sim.report import SimReport


def simulate_in_mode(
    reference: Func,
    placed: Func,
    args: Sequence[Any],
    grid: Sequence[int],
    *,
    seed: int | None = None,
    algebra: bool = False,
    **options: Any,
) -> Any:
    """A run of `placed` on the arguments, which it writes: its SimReport.  algebra: an AlgebraReport instead,
    of `reference` and `placed` in a finite field; the arguments stay as they are (sim/algebra.py).  options:
    as for `simulate`, of the algebra mode as for `compare`."""
    if algebra:
        from warploom.sim.algebra import compare

        return compare(reference, placed, args, grid, seed=seed or 0, **options)
    report: SimReport = simulate(placed, args, grid, seed=seed, **options)
    return report
