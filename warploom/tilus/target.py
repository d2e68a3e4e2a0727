"""tilus.target: which GPU there is."""

from __future__ import annotations

from warploom.errors import LaunchError
from warploom.runtime.jit import target_of
from warploom.target import DEFAULT, Target


def get_current_target() -> Target:
    """The chip that kernels are compiled for: the present GPU's, without one the default."""
    try:
        return target_of(0)
    except LaunchError:
        return DEFAULT
