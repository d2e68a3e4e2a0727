"""What the tests of whole roads share."""

from __future__ import annotations

from typing import Any

import pytest

from warploom.runtime import compiled
from warploom.runtime.nvrtc import Build


def _no_nvrtc(source: str, plan: Any, *_: Any, want_ptx: bool) -> Build:
    return Build(plan.name, b"", "", 0, 0, 0, 0, 0, (), 0.0, "none", "")


@pytest.fixture
def without_nvrtc(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything up to CUDA text and launch plan is made; most tests need no cubin."""
    monkeypatch.setattr(compiled, "_compile_text", _no_nvrtc)
