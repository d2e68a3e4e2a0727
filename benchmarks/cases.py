"""The cases: in `warploom/bench/cases.py`."""

from warploom.bench.cases import *  # noqa: F403
