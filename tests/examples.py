"""How many examples a property test draws."""

from __future__ import annotations

import os


def examples(most: int) -> int:
    """Half of `most`; all in `make test-all`."""
    return most if os.environ.get("TESTS_ORDERS") == "all" else most // 2
