"""Mutants of the attention kernel written by hand: judges all, writes their section of docs/mutants.md.

    python tools/attention_mutants.py [--sample N] [--out FILE]

The program is that of head size 64 in blocks of 64 rows, causal, two consumers in ping-pong, tiles drawn
from a counter by two CTAs: small enough for the data runs, with all that the larger ones have.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import ml_dtypes
import numpy as np

from warploom.check import Case
from warploom.check.mutants import examine, table
from warploom.ir.core import Func
from warploom.kernels.explicit.attention import Attention

SIZES = ((1, 1), (1, 100), (1, 300), (2, 200))  # heads, rows


def program() -> tuple[Func, list[Case]]:
    """The PLACED function, and inputs for it."""
    kernel = Attention(causal=True, d=64, block=64, programs=2)
    x, lse = np.zeros(16, ml_dtypes.bfloat16), np.zeros(16, np.float32)
    counter = np.zeros(2, np.int32)
    signature = ["*bf16:16"] * 4 + ["*fp32:16", "*i32:16", "i32", "i32", "fp32"]
    placed = kernel.compile(signature).placed
    cases = []
    for heads, rows in SIZES:
        tiles = heads * -(-rows // kernel.rows)
        cases.append(Case((x, x, x, x, lse, counter, heads, rows, 0.1), (min(2, tiles),)))
    return placed, cases


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sample", type=int, default=1, help="only every N-th mutant")
    parser.add_argument("--out", type=Path, default=Path("docs/mutants.md"))
    options = parser.parse_args()
    func, cases = program()
    verdicts = examine(func, lambda i: i % options.sample == 0, seeds=2, cases=cases)
    title, _, rest = table(func, verdicts).partition("\n")
    if options.sample > 1:
        rest = f"\nA sample: every {options.sample}th; `make mutants` judges all.\n{rest}"
    section = f"{title}\n{rest}"
    before = options.out.read_text(encoding="utf-8") if options.out.exists() else ""
    kept = before.partition(title)[0].rstrip("\n")
    options.out.write_text(f"{kept}\n\n{section}" if kept else section, encoding="utf-8")
    missed = [v.mutant.what for v in verdicts if v.is_missed]
    sys.stdout.write("\n".join(["missed:", *missed, ""]) if missed else "all found\n")
    return int(bool(missed))


if __name__ == "__main__":
    raise SystemExit(main())
