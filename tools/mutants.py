"""The checker against mutants of the library's programs: judges them all, writes docs/mutants.md.

    python tools/mutants.py [--only NAME …] [--sample N] [--jobs N] [--out FILE] [--results FILE]

Programs are small enough for the data runs, with all that the larger ones have: the hand-written GEMM of
tests/golden, attention by hand (causal, two consumers in ping-pong, tiles from a counter), and what the
compiler makes of the library's Triton-style attention, dual GEMM and promoted FP8 GEMM.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from warploom.check import Case
from warploom.check.cases import find_cases
from warploom.check.mutants import Verdict, examine, few, mutants, reason, table
from warploom.ir.core import Func
from warploom.ir.parser import parse_func
from warploom.kernels.attention import attention_forward, section_of
from warploom.kernels.dual import dual_gemm_forward
from warploom.kernels.explicit.attention import Attention
from warploom.kernels.fp8 import fp8_gemm_rowwise

ROOT = Path(__file__).parents[1]
SEQUENCES = ((1, 1), (1, 100), (1, 300), (2, 200))  # heads, rows
PRODUCTS = (  # M, N, steps along K, programs
    (128, 64, 0, 1),
    (100, 40, 1, 1),
    (128, 64, 3, 1),
    (128, 64, 6, 1),
    (128, 160, 2, 1),
    (256, 128, 3, 2),
)

Program = tuple[Func, list[Case]]


def array(dtype: Any) -> Any:
    """Stands for any: the data runs make their own."""
    return np.zeros(16, dtype)


def gemm() -> Program:
    """The hand-written GEMM, on inputs that are found."""
    file = ROOT / "tests" / "golden" / "gemm_bf16_tn.warp.ir"
    func = parse_func(file.read_text(encoding="utf-8"), str(file.relative_to(ROOT)))
    return func, few(find_cases(func))


def attention_by_hand() -> Program:
    kernel = Attention(causal=True, d=64, block=64, programs=2)
    x, lse, counter = array(ml_dtypes.bfloat16), array(np.float32), np.zeros(2, np.int32)
    signature = ["*bf16:16"] * 4 + ["*fp32:16", "*i32:16", "i32", "i32", "fp32"]
    cases = []
    for heads, rows in SEQUENCES:
        tiles = heads * -(-rows // kernel.rows)
        cases.append(Case((x, x, x, x, lse, counter, heads, rows, 0.1), (min(2, tiles),)))
    return kernel.compile(signature).placed, cases


def attention(causal: bool) -> Program:
    """Causal: tiles are drawn from a counter; else taken in turn."""
    tile = {"D": 64, "BLOCK_M": 128, "BLOCK_N": 64, "CAUSAL": causal}
    tile |= {"SHARED_BY": 1, "LSE": True, "Q_STAGES": 1, "PAIRS": False, "DRAWN": causal}
    signature = dict.fromkeys(("q_ptr", "k_ptr", "v_ptr", "o_ptr"), "*bf16:16")
    signature |= {
        "lse_ptr": "*fp32:16",
        "counter_ptr": "*i32:16",
        "heads": "i32",
        "seq": "i32",
        "section": "i32",
    }
    built = attention_forward.compile(
        {**signature, "scale": "fp32"}, tile, num_consumer_groups=2, num_buffers_warp_spec=2
    )
    x, lse, counter = array(ml_dtypes.bfloat16), array(np.float32), np.zeros(2, np.int32)
    cases = []
    for heads, rows in SEQUENCES:
        section, tiles = section_of(heads, rows, 64), heads * -(-rows // 128)
        cases.append(Case((x, x, x, x, lse, counter, heads, rows, section, 0.1), (min(2, tiles),)))
    return built.placed, cases


def products(args: Callable[[int, int, int], tuple[Any, ...]], k: int) -> list[Case]:
    return [Case(args(m, n, steps * k), (programs,)) for m, n, steps, programs in PRODUCTS]


def dual() -> Program:
    tile = {"BLOCK_M": 128, "BLOCK_N": 64, "BLOCK_K": 64, "GROUP_M": 2}
    signature = dict.fromkeys(("a_ptr", "b1_ptr", "b2_ptr", "c_ptr"), "*bf16:16")
    signature |= {"scale1": "fp32", "scale2": "fp32"} | dict.fromkeys("MNK", "i32:16")
    built = dual_gemm_forward.compile(
        signature, tile, num_consumer_groups=2, num_buffers_warp_spec=2
    )
    x = array(ml_dtypes.bfloat16)
    return built.placed, products(lambda m, n, k: (x, x, x, x, 1.0, 1.0, m, n, k), 64)


def fp8_promoted() -> Program:
    tile = {"BLOCK_M": 128, "BLOCK_N": 64, "BLOCK_K": 128, "GROUP_M": 2, "PROMOTE": True}
    signature = {"a_ptr": "*fp8e4nv:16", "b_ptr": "*fp8e4nv:16", "c_ptr": "*bf16:16"}
    signature |= {"scale_a_ptr": "*fp32:16", "scale_b_ptr": "*fp32:16"}
    signature |= dict.fromkeys("MNK", "i32:16")
    built = fp8_gemm_rowwise.compile(
        signature, tile, num_consumer_groups=2, num_buffers_warp_spec=2
    )
    x, s, c = array(ml_dtypes.float8_e4m3fn), array(np.float32), array(ml_dtypes.bfloat16)
    return built.placed, products(lambda m, n, k: (x, x, s, s, c, m, n, k), 128)


PROGRAMS: dict[str, Callable[[], Program]] = {
    "gemm": gemm,
    "attention by hand, causal": attention_by_hand,
    "attention": functools.partial(attention, False),
    "attention, causal": functools.partial(attention, True),
    "dual GEMM": dual,
    "FP8 GEMM, promoted": fp8_promoted,
}


@functools.cache
def program(name: str) -> Program:
    return PROGRAMS[name]()


def examined(name: str, i: int) -> tuple[Verdict, float]:
    """One mutant's verdict, and the seconds that it took."""
    func, cases = program(name)
    start = time.perf_counter()
    (verdict,) = examine(func, lambda n: n == i, seeds=2, cases=cases)
    return verdict, time.perf_counter() - start


def _job(job: tuple[str, int]) -> tuple[str, int, Verdict, float]:
    return *job, *examined(*job)


def row(v: Verdict) -> dict[str, Any]:
    loc = v.mutant.loc
    where = f"{Path(loc.file).name}:{loc.line}" if loc else ""
    return {"at": where, "mutant": v.mutant.what, "harm": v.harm, "check": v.found}


def summary(found: dict[str, list[Verdict]], sample: int) -> list[str]:
    """The head of docs/mutants.md."""
    lines = [
        "# Mutants",
        "",
        "Each wait, arrival, expectation, fence, commit, setmaxnreg and release of a program is removed, "
        "duplicated, or swapped with what comes after it; each phase, count, byte count, number of pending "
        "groups and depth is changed by one.  *Harmful* is judged apart from the checker, in data runs: the "
        "mutant hangs, gives a wrong result, or the simulated machine stops it.  `make mutants` writes this "
        "file, and every mutant of every program into benchmarks/results/mutants.json.",
        "",
    ]
    if sample > 1:
        lines += [f"A sample: every {sample}th mutant.", ""]
    lines += [
        "| program | mutants | harmful | found by `check` | missed | refused all the same | harmless |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, verdicts in found.items():
        harmful = [v for v in verdicts if v.harm]
        missed = sum(v.is_missed for v in verdicts)
        stricter = sum(bool(v.found) and not v.harm for v in verdicts)
        rest = len(verdicts) - len(harmful) - stricter
        lines.append(
            f"| {name} | {len(verdicts)} | {len(harmful)} | {len(harmful) - missed} | {missed} | "
            f"{stricter} | {rest} |"
        )
    lines += [
        "",
        "What is refused all the same did no harm in the data runs, but nothing orders it:",
        "",
    ]
    strict = Counter(
        (name, v.mutant.change, v.mutant.kind.name, v.found)
        for name, verdicts in found.items()
        for v in verdicts
        if v.found and not v.harm
    )
    lines += ["| program | change | of | `check` | times |", "| --- | --- | --- | --- | ---: |"]
    lines += [f"| {' | '.join(key)} | {n} |" for key, n in strict.items()]
    lines += [
        "",
        "Why the rest does no harm:",
        "",
        "| change | of | why | times |",
        "| --- | --- | --- | ---: |",
    ]
    benign = Counter(
        (v.mutant.change, v.mutant.kind.name, reason(v))
        for verdicts in found.values()
        for v in verdicts
        if not v.harm and not v.found
    )
    lines += [f"| {' | '.join(key)} | {n} |" for key, n in sorted(benign.items())]
    return [*lines, ""]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", choices=PROGRAMS, help="these programs")
    parser.add_argument("--sample", type=int, default=1, help="only every N-th mutant")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "mutants.md")
    parser.add_argument(
        "--results", type=Path, default=ROOT / "benchmarks" / "results" / "mutants.json"
    )
    options = parser.parse_args(argv)
    names = options.only or list(PROGRAMS)
    jobs = []
    for name in names:
        func, _ = program(name)  # before the fork, so that it is compiled once
        jobs += [(name, i) for i, _ in enumerate(mutants(func)) if i % options.sample == 0]
    found: dict[str, dict[int, Verdict]] = {name: {} for name in names}
    seconds: Counter[str] = Counter()
    with multiprocessing.get_context("fork").Pool(options.jobs) as pool:
        for name, i, verdict, took in pool.imap_unordered(_job, jobs):
            found[name][i] = verdict
            seconds[name] += took
            if verdict.is_missed:
                sys.stdout.write(f"missed in {name}: {verdict.mutant.what}: {verdict.harm}\n")
                sys.stdout.flush()
    verdicts = {name: [v for _, v in sorted(found[name].items())] for name in names}
    lines = summary(verdicts, options.sample)
    if "gemm" in verdicts:
        title, _, rest = table(program("gemm")[0], verdicts["gemm"]).partition("\n")
        lines += [f"#{title}: line by line", rest]
    options.out.write_text("\n".join(lines), encoding="utf-8")
    rows = {name: [row(v) for v in those] for name, those in verdicts.items()}
    options.results.parent.mkdir(parents=True, exist_ok=True)
    options.results.write_text(json.dumps(rows, indent=0) + "\n", encoding="utf-8")
    sys.stdout.write(", ".join(f"{name}: {s:.0f} s" for name, s in seconds.items()) + "\n")
    return int(any(v.is_missed for v in itertools.chain(*verdicts.values())))


if __name__ == "__main__":
    raise SystemExit(main())
