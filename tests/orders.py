"""The orders of events in which a test simulates a program."""

from __future__ import annotations

import os
import zlib
from collections.abc import Sequence

ORDERS = ("late", "early", "seeded")


def default_orders(orders: Sequence[str] = ORDERS) -> Sequence[str]:
    """One of the orders, by the test's name, so that many tests try each; all in `make test-all`
    (TESTS_ORDERS=all), and outside of tests."""
    name = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]  # without the phase
    if not name or os.environ.get("TESTS_ORDERS") == "all":
        return orders
    return (orders[zlib.crc32(name.encode()) % len(orders)],)
