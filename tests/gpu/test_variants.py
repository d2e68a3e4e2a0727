"""GEMMs of every producer, tile, number of groups, store and dtype, bit-equal to float64 on integers."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from tests.e2e import variants
from tests.e2e.gemms import Gemm
from warploom.errors import WarploomWarning

pytestmark = pytest.mark.gpu
pytest.importorskip("torch")

from tests.gpu.test_gemm import cache, check, one_cache  # noqa: E402, F401  (two are fixtures)

CASES = variants.sample(9)


@pytest.mark.parametrize(("case", "knobs"), CASES, ids=map(variants.name, CASES))
def test_variants(case: Gemm, knobs: dict[str, Any]) -> None:
    """Also those that spill: told is not wrong."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", WarploomWarning)
        check(case, knobs, clean=False)
