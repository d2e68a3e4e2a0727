"""The chips that warploom compiles for: `model.py` says what a target tells, each other file tells it of one.

Passes, schedule, simulator and checker ask a `Target` for a capability (`target.matrix_unit(…)`,
`target.sync.named_barriers`), never for its name.  A new chip is a file of facts here, and a row of TARGETS.
"""

from __future__ import annotations

from warploom.errors import CompileError
from warploom.target.model import (
    Arithmetic,
    CopyEngine,
    CostTable,
    Grid,
    MatrixUnit,
    ProducerRegisters,
    Product,
    Registers,
    SharedMemory,
    Sync,
    Target,
)
from warploom.target.sm_80 import SM_80
from warploom.target.sm_86 import SM_86
from warploom.target.sm_89 import SM_89
from warploom.target.sm_90a import SM_90A
from warploom.target.sm_120a import SM_120A
from warploom.target.sm_121a import SM_121A

TARGETS: dict[str, Target] = {t.name: t for t in (SM_80, SM_86, SM_89, SM_90A, SM_120A, SM_121A)}
DEFAULT = SM_90A  # what a kernel is compiled for that no launch on a GPU asks for

__all__ = [
    "DEFAULT",
    "SM_90A",
    "TARGETS",
    "Arithmetic",
    "CopyEngine",
    "CostTable",
    "Grid",
    "MatrixUnit",
    "ProducerRegisters",
    "Product",
    "Registers",
    "SharedMemory",
    "Sync",
    "Target",
    "for_device",
    "named",
    "supported",
]


def named(name: str) -> Target:
    """The target of this name.  Raises CompileError `target`."""
    if name not in TARGETS:
        raise CompileError(
            "target", f"there is no target {name!r}", help=f"targets: {', '.join(TARGETS)}"
        )
    return TARGETS[name]


def for_device(capability: tuple[int, int]) -> Target | None:
    """The target of devices of this compute capability; None where there is none."""
    return next((t for t in TARGETS.values() if capability in t.capabilities), None)


def supported() -> str:
    """The targets and their chips, for messages: "sm_90a (H100, H200)"."""
    return ", ".join(f"{t.name} ({', '.join(t.chips)})" for t in TARGETS.values())
