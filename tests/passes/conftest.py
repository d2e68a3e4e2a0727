"""What the tests of passes share."""

import pytest


@pytest.fixture(autouse=True)
def only_passes(without_nvrtc: None) -> None:
    """No pass is behind the CUDA text."""
