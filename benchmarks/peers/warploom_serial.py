"""Warploom without programmatic dependent launch: each kernel starts when the one before has ended."""

from __future__ import annotations

from warploom.bench.data import Data
from warploom.bench.measure import Candidate
from warploom.bench.peers import warploom

NAME = "warploom, serial launches"


def candidates(data: Data) -> list[Candidate]:
    return warploom.candidates(data, pdl=False)
