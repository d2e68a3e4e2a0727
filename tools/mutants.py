"""The checker against mutants of the library's programs: judges them all, writes docs/mutants.md.

    python tools/mutants.py [--only NAME …] [--jobs N] [--seconds S] [--out FILE] [--results FILE]

Programs are small enough for the data runs, with all that the larger ones have: the hand-written GEMM of
tests/golden, attention by hand (causal, two consumers in ping-pong, tiles from a counter), and what the
compiler makes of the library's Triton-style attention (two groups; the library's four, that sit out what is
of no use to their rows), dual GEMM and promoted FP8 GEMM (groups that store; a task that stores).

A mutant that today's checker has judged already, as the results say, is left as it is: a run that was
stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import ast
import functools
import hashlib
import json
import math
import multiprocessing
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from warploom.check import Case
from warploom.check.cases import find_cases
from warploom.check.mutants import (
    Mutant,
    Trial,
    Verdict,
    few,
    mutants,
    reason,
    trials,
    verdict,
)
from warploom.ir.core import Func
from warploom.ir.parser import parse_func
from warploom.ir.printer import print_func
from warploom.kernels.attention import ATTENTION_CONFIGS, attention_forward, section_of
from warploom.kernels.dual import dual_gemm_forward
from warploom.kernels.explicit.attention import Attention
from warploom.kernels.fp8 import fp8_gemm_rowwise
from warploom.runtime.autotune import Config

ROOT = Path(__file__).parents[1]
SECONDS_BETWEEN_WRITES = 5.0
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


TWO_GROUPS = Config(
    {"BLOCK_M": 128, "BLOCK_N": 64, "Q_STAGES": 1, "PAIRS": False},
    num_consumer_groups=2,
    num_buffers_warp_spec=2,
)
FOUR_GROUPS = next(c for c in ATTENTION_CONFIGS[64, True] if c.num_consumer_groups == 4)


def attention(causal: bool, config: Config = TWO_GROUPS) -> Program:
    """Causal: tiles are drawn from a counter; else taken in turn."""
    tile = {
        "D": 64,
        "CAUSAL": causal,
        "SHARED_BY": 1,
        "LSE": True,
        "DRAWN": causal,
        **config.kwargs,
    }
    knobs = {name: x for name, x in config.all_kwargs.items() if name not in config.kwargs}
    signature = dict.fromkeys(("q_ptr", "k_ptr", "v_ptr", "o_ptr"), "*bf16:16")
    signature |= {
        "lse_ptr": "*fp32:16",
        "counter_ptr": "*i32:16",
        "heads": "i32",
        "seq": "i32",
        "section": "i32",
    }
    built = attention_forward.compile({**signature, "scale": "fp32"}, tile, **knobs)
    x, lse, counter = array(ml_dtypes.bfloat16), array(np.float32), np.zeros(2, np.int32)
    block = tile["BLOCK_M"]
    cases = []
    for heads, rows in SEQUENCES:
        rows = rows * block // 128  # as many tiles whatever their size
        section, tiles = section_of(heads, rows, 64), heads * -(-rows // block)
        # Two tiles of Q in memory: a ring that one program goes round where it has all three tiles.
        programs = 1 if tiles == 3 and tile["Q_STAGES"] == 2 else min(2, tiles)
        cases.append(Case((x, x, x, x, lse, counter, heads, rows, section, 0.1), (programs,)))
    return built.placed, cases


def products(args: Callable[[int, int, int], tuple[Any, ...]], k: int) -> list[Case]:
    return [Case(args(m, n, steps * k), (programs,)) for m, n, steps, programs in PRODUCTS]


def dual(store_task: bool | None = None) -> Program:
    tile = {"BLOCK_M": 128, "BLOCK_N": 64, "BLOCK_K": 64, "GROUP_M": 2}
    signature = dict.fromkeys(("a_ptr", "b1_ptr", "b2_ptr", "c_ptr"), "*bf16:16")
    signature |= {"scale1": "fp32", "scale2": "fp32"} | dict.fromkeys("MNK", "i32:16")
    built = dual_gemm_forward.compile(
        signature,
        tile,
        num_consumer_groups=2,
        num_buffers_warp_spec=2,
        store_task=store_task,
    )
    x = array(ml_dtypes.bfloat16)
    return built.placed, products(lambda m, n, k: (x, x, x, x, 1.0, 1.0, m, n, k), 64)


def fp8_promoted(store_task: bool | None = None) -> Program:
    tile = {"BLOCK_M": 128, "BLOCK_N": 64, "BLOCK_K": 128, "GROUP_M": 2, "PROMOTE": True}
    signature = {"a_ptr": "*fp8e4nv:16", "b_ptr": "*fp8e4nv:16", "c_ptr": "*bf16:16"}
    signature |= {"scale_a_ptr": "*fp32:16", "scale_b_ptr": "*fp32:16"}
    signature |= dict.fromkeys("MNK", "i32:16")
    built = fp8_gemm_rowwise.compile(
        signature,
        tile,
        num_consumer_groups=2,
        num_buffers_warp_spec=2,
        store_task=store_task,
    )
    x, s, c = array(ml_dtypes.float8_e4m3fn), array(np.float32), array(ml_dtypes.bfloat16)
    return built.placed, products(lambda m, n, k: (x, x, s, s, c, m, n, k), 128)


PROGRAMS: dict[str, Callable[[], Program]] = {
    "gemm": gemm,
    "attention by hand, causal": attention_by_hand,
    "attention": functools.partial(attention, False),
    "attention, causal": functools.partial(attention, True),
    "attention, four groups": functools.partial(attention, True, FOUR_GROUPS),
    "dual GEMM": dual,
    "dual GEMM, store task": functools.partial(dual, True),
    "FP8 GEMM, promoted": fp8_promoted,
    "FP8 GEMM, promoted, store task": functools.partial(fp8_promoted, True),
}


@functools.cache
def program(name: str) -> tuple[Func, list[Case], list[Mutant]]:
    func, cases = PROGRAMS[name]()
    return func, cases, list(mutants(func))


@functools.cache
def inputs(name: str) -> list[Trial]:
    func, cases, _ = program(name)
    return trials(func, cases)


@functools.cache
def checker() -> str:
    """A name for what judges: changes with the code of the checker and of the machine, not with their
    comments."""
    text = hashlib.sha256()
    for folder in ("check", "sim"):
        for file in sorted((ROOT / "warploom" / folder).glob("*.py")):
            text.update(ast.dump(ast.parse(file.read_text(encoding="utf-8"))).encode())
    return text.hexdigest()[:12]


Row = dict[str, Any]  # a verdict as data
Record = dict[
    str, Any
]  # a program's: the hash of its text, how many mutants it has, a row of each judged


def row(number: int, mutant: Mutant, found: Verdict) -> Row:
    loc = mutant.loc
    return {
        "number": number,
        "by": checker(),
        "at": f"{Path(loc.file).name}:{loc.line}" if loc else "",
        "change": mutant.change,
        "op": mutant.kind.name,
        "mutant": mutant.what,
        "harm": found.harm,
        "check": found.found,
        "why": reason(found),
    }


def judged(job: tuple[str, int, float]) -> tuple[str, Row | None]:
    """One mutant of a program, by its number; None where the time is over."""
    name, i, deadline = job
    if time.time() > deadline:
        return name, None
    _, cases, made = program(name)
    return name, row(i, made[i], verdict(made[i], inputs(name), cases, seeds=2))


def begun(name: str, before: Record) -> Record:
    """A program's record with what was judged of the same program before."""
    func, _, made = program(name)
    text = hashlib.sha256(print_func(func).encode()).hexdigest()
    old = before["judged"] if before.get("program") == text else []
    return {"program": text, "mutants": len(made), "judged": old}


def put(record: Record, found: Row) -> None:
    """Adds a row to a program's record, in the place of what was said of the same mutant before."""
    rows = {r["number"]: r for r in record["judged"]} | {found["number"]: found}
    record["judged"] = [rows[i] for i in sorted(rows)]


def write(results: Path, record: dict[str, Record]) -> None:
    """At once or not at all: a run that is stopped leaves a whole file."""
    part = results.with_suffix(".part")
    part.write_text(json.dumps(record, indent=0) + "\n", encoding="utf-8")
    part.replace(results)


Rows = dict[str, list[Row]]  # of each program the mutants that were judged
HEAD = """# Mutants

Each wait, arrival, expectation, fence, commit, setmaxnreg and release of a program is removed, duplicated, or
swapped with what comes after it; each phase, count, byte count, number of pending groups and depth is changed
by one.  *Harmful* is judged apart from the checker, in data runs: the mutant hangs, gives a wrong result, or
the simulated machine stops it.  A harmful one that `check` passes is a bug of the checker.  `make mutants`
writes this file, and each mutant of each program into benchmarks/results/mutants.json.  *By today's*: the
checker as it was when this was written; the rest before, of the same program but by an earlier one.
"""


def table_of(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    lines = [f"| {' | '.join(head)} |", f"| {' | '.join('---' for _ in head)} |"]
    return [*lines, *(f"| {' | '.join(map(str, r))} |" for r in rows), ""]


def summary(found: Rows, of: dict[str, int]) -> str:
    """docs/mutants.md.  of: how many mutants each program has."""
    counts = []
    for name, rows in found.items():
        harmful = [r for r in rows if r["harm"]]
        missed = sum(not r["check"] for r in harmful)
        strict = sum(bool(r["check"]) and not r["harm"] for r in rows)
        rest = len(rows) - len(harmful) - strict
        n = f"{len(rows)}" if len(rows) == of[name] else f"{len(rows)} of {of[name]}, at random"
        today = sum(r.get("by") == checker() for r in rows)
        n += "" if today == len(rows) else f", {today} by today's"
        counts.append((name, n, len(harmful), len(harmful) - missed, missed, strict, rest))
    head = ["program", "mutants", "harmful", "found", "missed", "refused all the same", "harmless"]
    everything = [(name, r) for name, rows in found.items() for r in rows]
    strict_rows = Counter(
        (name, r["change"], r["op"], r["check"])
        for name, r in everything
        if r["check"] and not r["harm"]
    )
    benign = Counter(
        (r["change"], r["op"], r["why"]) for _, r in everything if not r["check"] and not r["harm"]
    )
    lines = [HEAD, *table_of(head, counts)]
    lines += [
        "What is refused all the same did no harm in the data runs, but nothing orders it:",
        "",
    ]
    lines += table_of(
        ["program", "change", "of", "`check`", "times"], ((*k, n) for k, n in strict_rows.items())
    )
    lines += ["Why the rest does no harm:", ""]
    lines += table_of(
        ["change", "of", "why", "times"], ((*k, n) for k, n in sorted(benign.items()))
    )
    lines += ["## The hand-written GEMM, line by line", ""]
    lines += table_of(
        ["at", "mutant", "data runs", "`check`", "why no harm"],
        (
            (
                r["at"].partition(":")[2],
                r["mutant"],
                r["harm"] or "as the original",
                r["check"] or ("**missed**" if r["harm"] else "passes"),
                r["why"],
            )
            for r in found.get("gemm", ())
        ),
    )
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--only", nargs="*", choices=PROGRAMS, help="these; others stay as they are"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument(
        "--seconds", type=float, default=math.inf, help="the rest is not judged anew"
    )
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "mutants.md")
    parser.add_argument(
        "--results", type=Path, default=ROOT / "benchmarks" / "results" / "mutants.json"
    )
    options = parser.parse_args(argv)
    names = options.only or list(PROGRAMS)
    kept = json.loads(options.results.read_text()) if options.results.exists() else {}
    # Made before the fork, so that each is compiled once.
    kept |= {name: begun(name, kept.get(name, {})) for name in names}
    deadline, dice, turns = time.time() + options.seconds, random.Random(0), []
    for name in names:
        inputs(name)
        n, rows = kept[name]["mutants"], kept[name]["judged"]
        todo = set(range(n)) - {r["number"] for r in rows if r.get("by") == checker()}
        turns += [(k / n, name, i) for k, i in enumerate(dice.sample(sorted(todo), len(todo)))]
    # Where time ends, as large a part of each program has had its turn.
    jobs = [(name, i, deadline) for _, name, i in sorted(turns)]
    options.results.parent.mkdir(parents=True, exist_ok=True)
    missed, written = 0, time.time()
    with multiprocessing.get_context("fork").Pool(options.jobs) as pool:
        for name, found in pool.imap_unordered(judged, jobs):
            if found is None:
                continue
            put(kept[name], found)
            if found["harm"] and not found["check"]:
                missed += 1
                sys.stdout.write(f"missed in {name}: {found['mutant']}: {found['harm']}\n")
                sys.stdout.flush()
            if time.time() > written + SECONDS_BETWEEN_WRITES:
                write(options.results, kept)
                written = time.time()
    write(options.results, kept)
    rest = [name for name in PROGRAMS if name in kept]
    found_all = {name: kept[name]["judged"] for name in rest}
    of = {name: kept[name]["mutants"] for name in rest}
    options.out.write_text(summary(found_all, of), encoding="utf-8")
    return int(missed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
