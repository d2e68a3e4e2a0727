"""The package's harness (`warploom/bench/harness.py`), with this folder's peers as well.

python -m benchmarks.harness --peers warploom,cublas,yardstick --cases core --out results.json
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from warploom.bench.data import AttentionData, Data, DualData, Fp8Data
from warploom.bench.harness import main as package_main
from warploom.bench.measure import Candidate, Run

__all__ = ["AttentionData", "Candidate", "Data", "DualData", "Fp8Data", "Run"]


def main(argv: Sequence[str] | None = None) -> int:
    return package_main(argv, "benchmarks.peers")


if __name__ == "__main__":
    sys.exit(main())
