"""All strangers' kernels."""

from __future__ import annotations

from collections.abc import Iterator

from tests.e2e.strangers import around, plain, several
from tests.e2e.strangers.case import Case


def cases() -> Iterator[Case]:
    yield from plain.cases()
    yield from around.cases()
    yield from several.cases()
