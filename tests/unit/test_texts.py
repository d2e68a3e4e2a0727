"""The texts of recorded configurations (benchmarks/texts.py)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.records import RESULTS, read
from benchmarks.texts import texts

pytestmark = pytest.mark.usefixtures("without_nvrtc")


def test_a_recorded_configuration_is_found_by_its_label() -> None:
    records = read(RESULTS / "gemm.jsonl").records
    record = next(r for r in records if r.peer == "warploom")
    ((name, text),) = texts([record])
    assert name == "warploom_" + record.case.replace(" ", "_") and "__launch_bounds__" in text


def test_what_no_peer_has_any_longer_has_no_text() -> None:
    record = next(r for r in read(RESULTS / "gemm.jsonl").records if r.peer == "warploom")
    others = [replace(record, config="BLOCK_M=7"), replace(record, peer="cuBLAS")]
    assert not list(texts([*others, replace(record, error="wrong")]))
