"""Generated mutants of a WARP function: the test of the checker.

Each wait, arrival, expectation, fence, commit and release is removed, duplicated, or swapped with the
effect after it; each phase, count, byte count, number of pending groups and depth is changed by one.
A mutant is *judged apart from the checker*: harmful is one that hangs, gives a wrong result or is
stopped by the simulated machine in untracked data runs, in adversarial and in random orders.  A harmful
mutant that `check` passes is a bug of the checker.

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

from warploom.check.protocol import Case, check, find_cases
from warploom.errors import Loc
from warploom.ir.analysis import effects
from warploom.ir.build import const
from warploom.ir.core import Builder, Effect, Func, Op, OpKind, Region, Value
from warploom.ir.ops import arith, hopper, task
from warploom.ir.parser import parse_func
from warploom.ir.types import Pointer
from warploom.sim.machine import simulate
from warploom.sim.report import MemoryFault, SimError

PROTOCOL: frozenset[OpKind] = frozenset(
    (
        hopper.mbarrier_wait,
        hopper.mbarrier_arrive,
        hopper.mbarrier_expect,
        hopper.fence_async,
        hopper.group_sync,
        hopper.named_barrier,
        hopper.wgmma_fence,
        hopper.wgmma_commit,
        hopper.wgmma_wait,
        hopper.tma_store_commit,
        hopper.tma_store_wait,
        hopper.cp_async_arrive,
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
    """A changed function: what was changed, and where."""

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

        def made(what: str, *ops: Op, o: Op = o, region: Region = region) -> Mutant:
            new = Region(region.params, ops)
            return Mutant(
                f"{what} {_words(o)}", o.loc, func.with_(body=_put(func.body, region, new))
            )

        if o.kind in PROTOCOL:
            if not o.results:
                yield made("remove", *before, *after)
            again = o.with_(results=tuple(Value(v.type, v.hint) for v in o.results))
            yield made("duplicate", *before, o, again, *after)
        if _is_movable(o):
            past = _next_effect(after)
            if past is not None:
                moved = (*before, *after[: past + 1], o, *after[past + 1 :])
                yield made(f"swap with the {after[past].kind.name} after it:", *moved)
        if o.kind is hopper.mbarrier_wait:
            yield made("flip the phase of", *before, *_flipped(o), *after)
        for name, least in NUMBERS.get(o.kind, {}).items():
            for n in (o.attrs[name] - 1, o.attrs[name] + 1):
                if n >= least:
                    changed = o.with_(attrs={**o.attrs, name: n})
                    yield made(f"{name} {o.attrs[name]} → {n} in", *before, changed, *after)
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
    """Inputs with integer data for the data runs, and the original's results on them."""
    return [_trial(func, case) for case in cases]


def _trial(func: Func, case: Case) -> Trial:
    """Arrays grow until the original stays inside them."""
    elements = 1 << 12
    while True:
        rng = np.random.default_rng(0)
        args = tuple(
            rng.integers(-3, 4, elements).astype(np.float32).astype(p.type.dtype.numpy)
            if isinstance(p.type, Pointer)
            else a
            for p, a in zip(func.params, case.args, strict=True)
        )
        own = _copies(args)
        try:
            simulate(func, own, case.grid, order="early", track=False)
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

    Runs every input in the adversarial and in random orders, vector clocks off."""
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
                )
            except SimError as e:
                return f"{e.code} ({order})"
            arrays = [a for a in args if isinstance(a, np.ndarray)]
            for got, wanted in zip(arrays, trial.expected, strict=True):
                if got.tobytes() != wanted.tobytes():
                    return f"wrong result ({order})"
    return ""


def examine(
    func: Func, pick: Callable[[int], bool] = lambda i: True, seeds: int = 4
) -> list[Verdict]:
    """Judges and checks the mutants whose number `pick` accepts."""
    cases = find_cases(func)
    inputs = trials(func, _few(func, cases))
    out = []
    for i, mutant in enumerate(mutants(func)):
        if not pick(i):
            continue
        harm = judge(mutant.func, inputs, seeds)
        diagnostics = check(mutant.func, cases).diagnostics
        code = diagnostics[0].code if diagnostics else ""
        out.append(Verdict(mutant, harm, code, str(diagnostics[0]) if diagnostics else ""))
    return out


def _few(func: Func, cases: Sequence[Case]) -> list[Case]:
    """Up to eight cases, from the smallest to about the largest, for data runs."""
    count = min(8, len(cases))
    return [cases[i * (len(cases) - 1) // max(count - 1, 1)] for i in range(count)]


# ---- the table


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
        "| line | mutant | data runs | `check` |",
        "| ---: | --- | --- | --- |",
    ]
    for v in verdicts:
        line = v.mutant.loc.line if v.mutant.loc else ""
        found = v.found or ("**missed**" if v.harm else "passes")
        lines.append(f"| {line} | {v.mutant.what} | {v.harm or 'as the original'} | {found} |")
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
