"""What the tests of the simulator share."""

from tests.e2e.conftest import without_nvrtc

__all__ = ["without_nvrtc"]
