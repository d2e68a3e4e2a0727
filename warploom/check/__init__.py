"""Deadlocks and races, proved absent or named: see protocol.py.  mutants.py tests the checker itself."""

from warploom.check.protocol import Case, CheckReport, check

__all__ = ["Case", "CheckReport", "check"]
