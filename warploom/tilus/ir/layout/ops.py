"""tilus.ir.layout.ops: the functions that make register layouts."""

from warploom.layout.modes import (
    auto_local_spatial,
    column_local,
    column_spatial,
    compose,
    flatten,
    local,
    permute,
    reduce,
    register_layout,
    replicated,
    spatial,
    squeeze,
    unsqueeze,
)

__all__ = [
    "auto_local_spatial",
    "column_local",
    "column_spatial",
    "compose",
    "flatten",
    "local",
    "permute",
    "reduce",
    "register_layout",
    "replicated",
    "spatial",
    "squeeze",
    "unsqueeze",
]
