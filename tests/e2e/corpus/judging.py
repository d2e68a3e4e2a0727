"""Whether a third-party kernel does what it should, everywhere but on a GPU."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from corpus.case import Case
from tests.e2e import road
from tests.eject.owned import owned, same_program
from warploom import TensorDescriptor
from warploom.errors import CompileError

# What the checker leaves open of right kernels: programs that hand words on by locks and flags; a loop whose
# bounds are differences of loaded offsets, cut at the diagonal.
OPEN = {
    "splitk-locked": ("may touch one word",),
    "streamk": ("may touch one word", "the place depends on step", "no input was found that"),
    "serving-ragged": ("no input was found that makes it run for more than 1 iterations",),
}
FORMS: dict[str, dict[str, Any]] = {"auto": {}, "tasks": {"num_consumer_groups": 1}}


def copies(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Fresh arrays of the same strides."""
    from dataclasses import replace

    def copy(x: Any) -> Any:
        if isinstance(x, TensorDescriptor):
            return replace(x, base=copy(x.base))
        return _strided(x) if isinstance(x, np.ndarray) else x

    return tuple(map(copy, args))


def _strided(x: Any) -> Any:
    """A copy with the same strides; what lies between its rows is not defined."""
    reach = sum(s * (n - 1) for n, s in zip(x.shape, x.strides, strict=True)) if x.size else 0
    new = np.ndarray(x.shape, x.dtype, np.empty(reach + x.itemsize, np.uint8), 0, x.strides)
    new[...] = x
    return new


def arrays(args: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(x.base if isinstance(x, TensorDescriptor) else x for x in args)


def judge(case: Case, form: str, folder: Path, nvrtc: bool = False, orders: Any = None,
          full: bool = True) -> str:  # fmt: skip
    """What there is to say of it; raises what shows a bug."""
    start = time.perf_counter()
    knobs = {**FORMS[form], **case.knobs}
    compiled = case.kernel.compile_for(*case.args, grid=case.grid, **case.meta, **knobs)
    seconds = time.perf_counter() - start
    specialized = len(compiled.schedule.tasks) > 1 and not any(
        t.role == "inline" for t in compiled.schedule.tasks
    )
    said = ["tasks" if specialized else "uniform", *(c.via[0] for c in compiled.schedule.channels)]
    if form == "tasks" and case.tasks:
        assert specialized, "not specialized: " + "; ".join(
            r.text for r in compiled.schedule.reasons if r.warn
        )
    compiled.explain()
    plain = copies(case.args)
    case.kernel[case.grid](*plain, **case.meta, **knobs)  # the oracle
    wrong = case.judge(arrays(plain))
    assert not wrong, f"oracle: {wrong}"
    for order in orders or road.default_orders():
        found = copies(case.args)
        compiled.simulate(*found, grid=case.grid, order=order, seed=3)
        wrong = case.judge(arrays(found))
        assert not wrong, f"{order}: {wrong}"
    if full:
        sizes = case.kernel.sizes(case.grid, case.args, {**case.meta, **knobs})
        report = compiled.check(*copies(case.args), grid=sizes)
        known = OPEN.get(case.name, ())
        assert report.ok or known, str(report)
        assert not report.failures, str(report)
        assert all(any(part in u.reason for part in known) for u in report.unproved), str(report)
        try:
            text = compiled.eject()
        except CompileError as e:  # what no script can say is refused
            assert e.code == "eject", str(e)
            said.append("no script")
        else:
            script, signature = owned(text, folder, case.grid)
            same_program(compiled, script.compile(signature))
    if nvrtc:
        problems = compiled.resources.problems()
        told = any("warning[resources]" in w for w in compiled.warnings)
        assert told or not problems, f"not told: {problems}"
        said += [*problems, f"compiled in {seconds:.1f} s"]
    return " ".join(said)
