"""Most tests here need no cubin: everything up to the launch plan is made, NVRTC is left out."""

from __future__ import annotations

from typing import Any

import pytest

from warploom.runtime import compiled
from warploom.runtime.nvrtc import Build


def _no_nvrtc(source: str, name: str, request: Any, want_ptx: bool) -> Build:
    return Build(name, b"", "", 0, 0, 0, 0, 0, (), 0.0, "none", "")


@pytest.fixture(autouse=True)
def without_nvrtc(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests marked `nvrtc` compile to cubins.  No test reads or writes the user's cache."""
    monkeypatch.setenv("WARPLOOM_CACHE", "off")
    if request.node.get_closest_marker("nvrtc") is None:
        monkeypatch.setattr(compiled, "_compile_text", _no_nvrtc)
