"""The target that a translation is for."""

from __future__ import annotations

from contextvars import ContextVar

from warploom.target import DEFAULT

TARGET: ContextVar[str] = ContextVar("warploom_target", default=DEFAULT.name)
