"""What the tests of ejecting share."""

from tests.e2e.conftest import no_cache, without_nvrtc

__all__ = ["no_cache", "without_nvrtc"]
