"""Every op kind of WARP has a spelling in ejected scripts."""

from __future__ import annotations

from warploom.eject.expressions import EXPRESSIONS
from warploom.eject.statements import STATEMENTS
from warploom.ir.core import KINDS, Level
from warploom.ir.ops import control, task

# Written by the printer itself: groups, and the assignments that end a block.
STRUCTURE = {task.tasks, control.yield_}


def test_every_kind_is_spelled() -> None:
    """Without one, kernels that have the op can't be ejected: write it in eject/expressions.py (what computes
    a value) or eject/statements.py (what has an effect)."""
    wanted = {k for k in KINDS.values() if Level.WARP in k.levels}
    assert wanted - EXPRESSIONS.keys() - STATEMENTS.keys() - STRUCTURE == set()


def test_none_is_spelled_twice() -> None:
    assert not EXPRESSIONS.keys() & STATEMENTS.keys()
