"""The target that a translation is for, and what its knobs say of dots."""

from __future__ import annotations

from contextvars import ContextVar

from warploom.target import DEFAULT

TARGET: ContextVar[str] = ContextVar("warploom_target", default=DEFAULT.name)
PRECISION: ContextVar[str] = ContextVar("warploom_precision", default="tf32")  # of float32 dots
