"""What a translation is for: the target, and the knobs of the launch."""

from __future__ import annotations

from contextvars import ContextVar

from warploom.schedule.model import Knobs
from warploom.target import DEFAULT

TARGET: ContextVar[str] = ContextVar("warploom_target", default=DEFAULT.name)
_DEFAULTS = Knobs()
KNOBS: ContextVar[Knobs] = ContextVar("warploom_knobs", default=_DEFAULTS)
