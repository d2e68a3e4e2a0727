"""triton.profiler.language: scopes inside of kernels, which are accepted, and change nothing.

As in Triton nothing is recorded unless a session instruments kernels, which none does here; what a kernel's
tasks do when is told by `compiled.timeline(…)`.
"""

from __future__ import annotations

from typing import Any

from warploom.frontend.language.core import async_task, builtin

__all__ = ["disable_semantic", "enable_semantic", "enter_scope", "exit_scope", "scope"]


def enable_semantic(semantic_name: str) -> None:
    """Nothing: scopes are accepted in all kernels."""


disable_semantic = enable_semantic


@builtin
def enter_scope(name: Any) -> None:
    """Nothing."""


@builtin
def exit_scope(name: Any) -> None:
    """Nothing."""


@builtin
def scope(name: Any) -> Any:
    """`with scope("loads"):` leaves the code inside as it is."""
    return async_task(())
