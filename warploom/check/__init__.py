"""Deadlocks and races, proved absent or named: see protocol.py."""

from __future__ import annotations

from warploom.check.aliases import Launch, Place
from warploom.check.interleaving import Interleaving, replay
from warploom.check.protocol import check
from warploom.check.report import CheckReport, Failure, Unproved, Verdict
from warploom.check.runs import Case

__all__ = [
    "Case",
    "CheckReport",
    "Failure",
    "Interleaving",
    "Launch",
    "Place",
    "Unproved",
    "Verdict",
    "check",
    "replay",
]
