"""The arrays of cases: in `warploom/bench/data.py`."""

from warploom.bench.data import AwkwardData, DualData, Fp8Data

__all__ = ["AwkwardData", "DualData", "Fp8Data"]
