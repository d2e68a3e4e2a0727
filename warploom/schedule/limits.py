"""What no schedule can have: refused before one is chosen."""

from __future__ import annotations

from warploom.errors import CompileError
from warploom.ir.core import Op
from warploom.ir.types import dtype_of, shape_of
from warploom.schedule.context import Context
from warploom.target import MatrixUnit


def check_limits(context: Context) -> None:
    """Knobs that no CTA can have."""
    knobs, target = context.knobs, context.target
    if not 1 <= knobs.num_warps <= target.grid.warps:
        raise CompileError(
            "num-warps",
            f"num_warps={knobs.num_warps}: a CTA has 1 to {target.grid.warps} warps",
            context.func.loc,
            help=f"use num_warps={target.warp_group} or {2 * target.warp_group}",
        )
    groups = knobs.num_consumer_groups or 0
    warps = (groups + 1) * target.warp_group
    if groups and warps > target.grid.warps:
        raise CompileError(
            "warps",
            f"num_consumer_groups={groups}: with a producer these are {warps} warps, a CTA has at most "
            f"{target.grid.warps}",
            context.func.loc,
            help="lower num_consumer_groups: two or three are usual",
        )
    most = target.registers.per_thread
    if knobs.maxnreg is not None and not 1 <= knobs.maxnreg <= most:
        raise CompileError(
            "maxnreg",
            f"maxnreg={knobs.maxnreg}: a thread has 1 to {most} registers",
            context.func.loc,
            help="leave maxnreg out: by default a thread gets what a CTA of its size can have",
        )


def check_dot_types(o: Op, matrix_unit: MatrixUnit) -> None:
    """Refuses a dot that no split makes legal."""
    a = dtype_of(o.operands[0].type)
    k = shape_of(o.operands[0].type)[-1]
    unit = matrix_unit.k_step(a.bits)
    if k % unit:
        raise CompileError(
            matrix_unit.code("k"),
            f"dot over K = {k}: {matrix_unit.instruction} takes multiples of {unit} for {a}",
            o.loc,
            help=f"use a BLOCK_K that is a multiple of {unit}",
        )
    limit = o.attrs.get("max_imprecise")
    if limit and limit < unit:
        raise CompileError(
            "dot-promotion",
            f"max_num_imprecise_acc={limit}: an instruction sums {unit} of K",
            o.loc,
            help=f"use max_num_imprecise_acc={unit}",
        )
