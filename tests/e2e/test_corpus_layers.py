"""Kernels of the corpus beside its products: losses, layers, experts, linear attention, tiles drawn from a counter."""

from __future__ import annotations

from pathlib import Path

import pytest

from corpus import chunk_gradients, chunks, dynamic, experts, layers, losses
from tests.e2e.corpus import judging
from tests.pairwise import every

pytestmark = pytest.mark.usefixtures("without_nvrtc")
FAMILIES = losses, layers, dynamic, experts, chunks, chunk_gradients
CASES = {case.name: case for family in FAMILIES for case in family.cases()}


@pytest.mark.parametrize("name", every(2, [*CASES]))
def test_a_kernel(name: str, tmp_path: Path) -> None:
    judging.judge(CASES[name], "auto", tmp_path)
