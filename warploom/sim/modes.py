"""The simulator's modes, as a kernel's user asks for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from warploom.errors import LaunchError
from warploom.ir.core import Func
from warploom.sim import tensor_core
from warploom.sim.machine import simulate
from warploom.sim.numerics import FLOATS


def simulate_in_mode(
    reference: Func,
    placed: Func,
    args: Sequence[Any],
    grid: Sequence[int],
    *,
    seed: int | None = None,
    exact: bool = False,
    algebra: bool = False,
    programs: Sequence[int] | None = None,
    **options: Any,
) -> Any:
    """A run of `placed` on the arguments, which it writes: its SimReport.  exact: dots add as the tensor core
    of its target does, bit for bit (sim/tensor_core.py).  algebra: an AlgebraReport instead,
    of `reference` and `placed` in a finite field; the arguments stay as they are (sim/algebra.py).  programs:
    as of `compare`.  options: as for `simulate`, of the algebra mode as for `compare`."""
    if algebra and exact:
        raise LaunchError(
            "simulator-mode",
            "exact and algebra are two modes: floats are floats in one, residues in the other",
            help="ask for one of them at a time",
        )
    if algebra:
        from warploom.sim.algebra import compare

        how = {"seed": seed or 0, "programs": programs, **options}
        return compare(reference, placed, args, grid, **how)
    numerics = tensor_core.exact(placed.target) if exact else FLOATS
    return simulate(placed, args, grid, seed=seed, numerics=numerics, **options)
