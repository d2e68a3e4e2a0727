"""Warploom without programmatic dependent launch: each kernel starts when the one before has ended."""

from __future__ import annotations

from benchmarks.data import Data
from benchmarks.measure import Candidate
from benchmarks.peers import warploom

NAME = "warploom, serial launches"


def candidates(data: Data) -> list[Candidate]:
    return warploom.candidates(data, pdl=False)
