"""What the checker does with the explicit kernels, in figures: the table of docs/checker.md.

python tools/checker_figures.py
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial

import ml_dtypes
import numpy as np

from warploom.check import Case, CheckReport, check
from warploom.check.report import Explored
from warploom.ir.core import Func
from warploom.kernels.explicit.attention import Attention
from warploom.kernels.explicit.gemm import Gemm

ATTENTION = ["*bf16:16"] * 4 + ["*fp32:16", "*i32:16", "i32", "i32", "fp32"]


def ring(depth: int, ctas: int = 1) -> Func:
    """The explicit GEMM with a ring of this depth: a loading thread, two consumers."""
    kernel = Gemm(block_n=128, stages=depth, ctas=ctas, programs=2 * ctas)
    return kernel.compile(["*bf16:16"] * 3 + ["i32:16"] * 3).placed


def attention(causal: bool) -> tuple[Func, list[Case]]:
    """Two consumers in ping-pong, tiles drawn from a counter; inputs of 1 to 5 tiles for two programs."""
    kernel = Attention(causal=causal)
    x, lse, counter = (
        np.zeros(16, ml_dtypes.bfloat16),
        np.zeros(4, np.float32),
        np.zeros(2, np.int32),
    )
    cases = []
    for heads, rows in ((1, 1), (1, 128), (1, 200), (1, 384), (3, 100), (1, 1600)):
        programs = min(2, heads * -(-rows // kernel.rows))
        cases.append(Case((x, x, x, x, lse, counter, heads, rows, 0.1), (programs,)))
    return kernel.compile(ATTENTION).placed, cases


def row(name: str, run: Callable[[], CheckReport]) -> str:
    """One line of the table; seconds of the processor, the median of three runs."""
    times = list[float]()
    for _ in range(3):
        start = time.process_time()
        report = run()
        times.append(time.process_time() - start)
    seconds = sorted(times)[1]
    assert report.ok, str(report)
    together = [e for e in report.explored if "together" in e.why]
    alone = [e for e in report.explored if e not in together]

    def words(explored: list[Explored]) -> str:
        if not explored:
            return "–"
        n = sum(e.interleavings for e in explored)
        m = sum(e.states for e in explored)
        cut = sum(not e.is_complete for e in explored)
        return f"{len(explored)}: {n}, {m} states" + (f" ({cut} cut short)" if cut else "")

    recurring = ", ".join(map(str, sorted(set(report.recurring.values()))))
    return (
        f"| {name} | {len(report.runs)} | {report.bound} | {words([*alone])} | {words([*together])} | "
        f"{recurring} | {seconds:.1f} |"
    )


def main() -> None:
    lines = [
        "| program | inputs | bound | explored: interleavings | programs together | recurs every | s |",
        "| --- | ---: | ---: | --- | --- | --- | ---: |",
    ]
    for depth in (2, 3, 4):
        lines.append(row(f"GEMM, ring of {depth}, two consumers", partial(check, ring(depth))))
    lines.append(row("the same, ring of 3, all explored", partial(check, ring(3), exhaustive=True)))
    lines.append(row("GEMM, cluster of two, ring of 3", partial(check, ring(3, ctas=2))))
    for causal in (False, True):
        func, cases = attention(causal)
        name = "attention, ping-pong, tiles from a counter" + (", causal" if causal else "")
        lines.append(row(name, partial(check, func)))
        lines.append(row(f"{name}, six inputs given", partial(check, func, cases)))
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
