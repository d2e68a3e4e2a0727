"""What a worker does with a task: run a kernel or a script of a seed, or make a failure small."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path
from typing import Any

import warploom.ir.ops
from tests.fuzz.case import Case
from tests.fuzz.draw import draw
from tests.fuzz.judge import Verdict, judge
from warploom.ir.core import Level, OpKind

# Legal at TILE for the sake of passes and later levels; the frontend never makes them.
NOT_WRITTEN = {"cluster_sum", "convert_layout"}


def all_ops() -> set[str]:
    """The kinds of op that are legal at TILE."""
    found = set()
    for m in pkgutil.iter_modules(warploom.ir.ops.__path__):
        module = importlib.import_module(f"{warploom.ir.ops.__name__}.{m.name}")
        kinds = (v for v in vars(module).values() if isinstance(v, OpKind))
        found |= {k.name for k in kinds if Level.TILE in k.levels}
    return found - NOT_WRITTEN


def work(task: tuple[str, int, str], folder: Path, orders: int, nvrtc: bool) -> dict[str, Any]:
    """The record of a task."""
    what, seed, kind = task
    if what == "script":
        from tests.fuzz.scripts import judge_script

        return judge_script(seed, folder)
    if what == "shrink":
        from tests.fuzz.shrink import reproducer

        return {
            "what": what,
            "seed": seed,
            "status": "shrunk",
            "code": kind,
            "reproducer": reproducer(seed, kind, folder, orders),
        }
    try:
        case = Case(draw(seed))
        v = judge(case, folder, orders, nvrtc)
    except Exception as e:  # of the generator
        v = Verdict("invalid", f"draw {type(e).__name__}", str(e))
    record: dict[str, Any] = {"what": what, "seed": seed, "status": v.status, "code": v.code}
    if v.failed:
        record["said"] = v.said[-2000:]
    seen = {"specialized": v.specialized, "dots": v.dots, "in order": v.in_order}
    return {**record, "ops": sorted(v.ops), **seen}
