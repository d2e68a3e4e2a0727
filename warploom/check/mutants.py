"""Generated mutants of a WARP function: the test of the checker.

Each wait, arrival, expectation, fence, commit and release is removed, duplicated, or swapped with the
effect after it; each phase, count, byte count, number of pending groups and depth is changed by one.
A mutant is *judged apart from the checker*: harmful is one that hangs, gives a wrong result or is
stopped by the simulated machine in untracked data runs, in adversarial and in random orders.  Data are
random residues, and floats are computed in the field (sim/algebra.py), where any wrong operand shows.  A
harmful mutant that `check` passes is a bug of the checker.

    python -m warploom.check.mutants FILE [--out TABLE] [--sample N]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from warploom.check.cases import Case, find_cases
from warploom.check.protocol import check
from warploom.errors import Loc
from warploom.ir.analysis import effects
from warploom.ir.build import const
from warploom.ir.core import Builder, Effect, Func, Op, OpKind, Region, Value
from warploom.ir.ops import arith, cluster, hopper, task
from warploom.ir.parser import parse_func
from warploom.ir.types import Pointer
from warploom.sim import field
from warploom.sim.machine import simulate
from warploom.sim.report import MemoryFault, SimError
from warploom.sim.residues import ALGEBRA

PROTOCOL: frozenset[OpKind] = frozenset(
    (
        hopper.mbarrier_wait,
        hopper.mbarrier_arrive,
        hopper.mbarrier_expect,
        hopper.fence_async,
        hopper.group_sync,
        hopper.named_barrier,
        hopper.setmaxnreg,
        hopper.wgmma_fence,
        hopper.wgmma_commit,
        hopper.wgmma_wait,
        hopper.tma_store_commit,
        hopper.tma_store_wait,
        hopper.cp_async_arrive,
        cluster.cluster_arrive,
        cluster.cluster_wait,
    )
)
NUMBERS: dict[OpKind, dict[str, int]] = {  # attribute -> the least that is legal
    hopper.mbarrier_alloc: {"count": 1},
    hopper.mbarrier_expect: {"bytes": 0},
    hopper.wgmma_wait: {"pending": 0},
    hopper.tma_store_wait: {"pending": 0},
    task.ring_next: {"depth": 1},
}
MAX_STEPS = 20_000
MAX_ELEMENTS = 1 << 24


@dataclass(frozen=True)
class Mutant:
    """A changed function: the change ("duplicate", "swap", "pending -1" …), on which op, in words, where."""

    change: str
    kind: OpKind
    what: str
    loc: Loc | None
    func: Func


@dataclass(frozen=True)
class Verdict:
    """harm: how the mutant fails in data runs ("" where it does not).  found: the code of what `check`
    reports ("" where it passes)."""

    mutant: Mutant
    harm: str
    found: str
    message: str

    @property
    def is_missed(self) -> bool:
        return bool(self.harm) and not self.found


# ---- making them


def mutants(func: Func) -> Iterator[Mutant]:
    """All mutants of a function, in program order."""
    yield from _in_region(func, func.body)


def _in_region(func: Func, region: Region) -> Iterator[Mutant]:
    for i, o in enumerate(region.ops[:-1]):
        before, after = region.ops[:i], region.ops[i + 1 :]

        def made(change: str, ops: Sequence[Op], words: str = "", o: Op = o) -> Mutant:
            body = _put(func.body, region, Region(region.params, tuple(ops)))
            what = f"{words or change} {_words(o)}"
            return Mutant(change, o.kind, what, o.loc, func.with_(body=body))

        if o.kind in PROTOCOL:
            if not o.results:
                yield made("remove", [*before, *after])
            again = o.with_(results=tuple(Value(v.type, v.hint) for v in o.results))
            yield made("duplicate", [*before, o, again, *after])
        if _is_movable(o):
            past = _next_effect(after)
            if past is not None:
                moved = [*before, *after[: past + 1], o, *after[past + 1 :]]
                yield made("swap", moved, f"swap with the {after[past].kind.name} after it:")
        if o.kind is hopper.mbarrier_wait:
            yield made("flip", [*before, *_flipped(o), *after], "flip the phase of")
        for name, least in NUMBERS.get(o.kind, {}).items():
            for n in (o.attrs[name] - 1, o.attrs[name] + 1):
                if n >= least:
                    changed = o.with_(attrs={**o.attrs, name: n})
                    words = f"{name} {o.attrs[name]} → {n} in"
                    change = f"{name} {n - o.attrs[name]:+}"
                    yield made(change, [*before, changed, *after], words)
        for r in o.regions:
            yield from _in_region(func, r)


def _put(region: Region, old: Region, new: Region) -> Region:
    """`region` with `old`, somewhere inside it, exchanged for `new`."""
    if region is old:
        return new
    ops = tuple(
        o.with_(regions=tuple(_put(r, old, new) for r in o.regions)) if o.regions else o
        for o in region.ops
    )
    return Region(region.params, ops)


def _is_movable(o: Op) -> bool:
    """A protocol op without results, or an elect of nothing else."""
    if o.kind is task.elect:
        return all(inner.kind in PROTOCOL for inner in o.regions[0].ops[:-1])
    return o.kind in PROTOCOL and not o.results


def _next_effect(after: Sequence[Op]) -> int | None:
    """Index of the next op that does something."""
    for i, o in enumerate(after[:-1]):
        if effects(o) != Effect.NONE:
            return i
    return None


def _flipped(o: Op) -> tuple[Op, ...]:
    b = Builder(o.loc)
    barriers, index, phase = o.operands
    other: Value = arith.xor(b, phase, const(b, 1))
    return (*b.ops, o.with_(operands=(barriers, index, other)))


def _words(o: Op) -> str:
    inner = [i for r in o.regions for i in r.ops[:-1]]
    if inner:
        return f"{o.kind.name} of {', '.join(i.kind.name for i in inner)}"
    names = [v.hint for v in o.operands if v.hint]
    return f"{o.kind.name}({', '.join(names)})" if names else o.kind.name


# ---- judging them


@dataclass(frozen=True)
class Trial:
    """One data run's input and what the original gives."""

    case: Case
    expected: tuple[np.ndarray[Any, np.dtype[Any]], ...]


def trials(func: Func, cases: Sequence[Case]) -> list[Trial]:
    """Inputs for the data runs, random residues (sim/algebra.py), and the original's results on them."""
    return [_trial(func, case) for case in cases]


def _trial(func: Func, case: Case) -> Trial:
    """Arrays grow until the original stays inside them.  Integers (counters, flags) begin at zero."""
    elements = 1 << 12
    while True:
        rng = np.random.default_rng(0)
        args = tuple(
            (
                np.zeros(elements, p.type.dtype.numpy)
                if p.type.dtype.is_int
                else field.random(rng, elements)
            )
            if isinstance(p.type, Pointer)
            else a
            for p, a in zip(func.params, case.args, strict=True)
        )
        own = _copies(args)
        try:
            simulate(func, own, case.grid, order="early", track=False, numerics=ALGEBRA)
        except MemoryFault as e:
            if e.code != "out-of-bounds" or elements > MAX_ELEMENTS:
                raise
            elements *= 4
            continue
        expected = tuple(a for a in own if isinstance(a, np.ndarray))
        return Trial(Case(args, case.grid), expected)


def _copies(args: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(a.copy() if isinstance(a, np.ndarray) else a for a in args)


def judge(func: Func, inputs: Sequence[Trial], seeds: int = 4) -> str:
    """How a mutant fails by itself, without the checker: "" where it does not.

    Runs every input in the adversarial and in random orders, in the field, vector clocks off."""
    orders: list[tuple[str, int]] = [("late", 0), ("early", 0), ("reverse", 0)]
    orders += [("seeded", s) for s in range(seeds)]
    for order, seed in orders:
        for trial in inputs:
            args = _copies(trial.case.args)
            try:
                simulate(
                    func,
                    args,
                    trial.case.grid,
                    order=order,
                    seed=seed,
                    track=False,
                    max_steps=MAX_STEPS,
                    numerics=ALGEBRA,
                )
            except SimError as e:
                return f"{e.code} ({order})"
            arrays = [a for a in args if isinstance(a, np.ndarray)]
            for got, wanted in zip(arrays, trial.expected, strict=True):
                if not np.array_equal(got, wanted, equal_nan=got.dtype == np.float64):
                    return f"wrong result ({order})"
    return ""


def examine(
    func: Func,
    pick: Callable[[int], bool] = lambda i: True,
    seeds: int = 4,
    cases: Sequence[Case] | None = None,
) -> list[Verdict]:
    """Judges and checks the mutants whose number `pick` accepts, on `cases` or on inputs that are found."""
    inputs = trials(func, few(find_cases(func)) if cases is None else cases)
    cases = find_cases(func) if cases is None else cases
    return [verdict(m, inputs, cases, seeds) for i, m in enumerate(mutants(func)) if pick(i)]


def verdict(
    mutant: Mutant, inputs: Sequence[Trial], cases: Sequence[Case], seeds: int = 4
) -> Verdict:
    """One mutant, judged on `inputs` and checked on `cases`."""
    harm = judge(mutant.func, inputs, seeds)
    diagnostics = check(mutant.func, cases).diagnostics
    code = diagnostics[0].code if diagnostics else ""
    return Verdict(mutant, harm, code, str(diagnostics[0]) if diagnostics else "")


def few(cases: Sequence[Case]) -> list[Case]:
    """Up to eight cases for data runs, from the smallest to those of medium size."""
    medium = cases[: max(8, len(cases) * 2 // 3)]
    count = min(8, len(medium))
    return [medium[i * (len(medium) - 1) // max(count - 1, 1)] for i in range(count)]


# ---- the table


_BENIGN: dict[tuple[str, OpKind], str] = {
    ("duplicate", hopper.mbarrier_wait): "the phase is complete: the second wait passes at once",
    ("duplicate", hopper.fence_async): "nothing happens between the two",
    ("duplicate", hopper.wgmma_fence): "nothing happens between the two",
    ("duplicate", hopper.group_sync): "nothing happens between the two",
    ("duplicate", hopper.wgmma_commit): "an empty group more: waits cover more, not less",
    ("duplicate", hopper.tma_store_commit): "an empty group more: waits cover more, not less",
    ("duplicate", hopper.wgmma_wait): "nothing is left to wait for",
    ("duplicate", hopper.tma_store_wait): "nothing is left to wait for",
    ("pending -1", hopper.wgmma_wait): "waits for more than it must",
    ("pending -1", hopper.tma_store_wait): "waits for more than it must",
    ("swap", hopper.mbarrier_wait): "the two do not depend on each other's order",
    ("swap", hopper.fence_async): "still before the barrier that publishes the data",
    ("swap", hopper.wgmma_commit): "closed later, still before the wait for it",
    ("swap", hopper.group_sync): "the two do not depend on each other's order",
    ("swap", hopper.mbarrier_expect): "the phase can't complete before this arrival",
    ("swap", hopper.mbarrier_arrive): "told later, still before anybody needs it",
    ("swap", hopper.named_barrier): "the two do not depend on each other's order",
    ("remove", hopper.fence_async): "another fence covers it",
    ("remove", hopper.mbarrier_wait): "other waits imply it, or no input comes here",
    ("remove", hopper.mbarrier_arrive): "no input comes here, or nobody waits for the phase",
    ("duplicate", hopper.mbarrier_arrive): "no input comes here",
    ("flip", hopper.mbarrier_wait): "no input comes here",
    ("depth +1", task.ring_next): "no input comes to the last slot here",
}


def reason(v: Verdict) -> str:
    """Why a mutant that does no harm does none, or why it is refused all the same."""
    if v.harm:
        return ""
    if v.found:
        return "right only while other waits happen to cover it: nothing orders the accesses"
    return _BENIGN.get((v.mutant.change, v.mutant.kind), "not explained")


def table(func: Func, verdicts: Sequence[Verdict]) -> str:
    """The verdicts in Markdown."""
    harmful = [v for v in verdicts if v.harm]
    missed = [v for v in verdicts if v.is_missed]
    stricter = [v for v in verdicts if v.found and not v.harm]
    lines = [
        f"# Mutants of `{func.name}`",
        "",
        f"{len(verdicts)} mutants: {len(harmful)} harmful in data runs, of which `check` finds "
        f"{len(harmful) - len(missed)} and misses {len(missed)}; {len(stricter)} more it refuses although no "
        "data run failed (the proof rests on a rule that they break).",
        "",
        "| line | mutant | data runs | `check` | why no harm |",
        "| ---: | --- | --- | --- | --- |",
    ]
    for v in verdicts:
        line = v.mutant.loc.line if v.mutant.loc else ""
        found = v.found or ("**missed**" if v.harm else "passes")
        harm = v.harm or "as the original"
        lines.append(f"| {line} | {v.mutant.what} | {harm} | {found} | {reason(v)} |")
    return "\n".join(lines) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Examines the mutants of an IR file.  Returns 1 where the checker misses a harmful one."""
    parser = argparse.ArgumentParser(prog="python -m warploom.check.mutants", description=__doc__)
    parser.add_argument("file", type=Path, help="IR text of a function at WARP or PLACED")
    parser.add_argument("--out", type=Path, help="write the table here, not to the terminal")
    parser.add_argument("--sample", type=int, default=1, help="only every N-th mutant")
    options = parser.parse_args(argv)
    func = parse_func(options.file.read_text(encoding="utf-8"), str(options.file))
    verdicts = examine(func, lambda i: i % options.sample == 0)
    text = table(func, verdicts)
    if options.out:
        options.out.write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)
    return int(any(v.is_missed for v in verdicts))


if __name__ == "__main__":
    raise SystemExit(main())
