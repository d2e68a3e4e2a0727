"""What the tests that need a GPU share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A test's own cache on disk; skipped without a GPU, and what was launched is over in the end."""
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    monkeypatch.setenv("WARPLOOM_CACHE", str(tmp_path))
    yield
    torch.cuda.synchronize()
