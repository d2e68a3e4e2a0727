"""Which of a target's matrix units a dot is for.  Decides nothing."""

from __future__ import annotations

from warploom.ir.core import Op
from warploom.ir.types import dtype_of
from warploom.target import MatrixUnit, Target


def unit_of(dot: Op, target: Target) -> MatrixUnit:
    """The preferred unit for a dot's operands."""
    a, b = (dtype_of(v.type).name for v in dot.operands[:2])
    return target.matrix_unit(a, b, dtype_of(dot.result.type).name)
