"""Runs a case everywhere and compares: the tree in NumPy, the oracle, and the simulator in adversarial orders."""

from __future__ import annotations

import contextlib
import io
import random
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.conftest import no_nvrtc
from tests.e2e import road
from tests.fuzz.case import Case
from warploom.errors import CompileError, InternalError, WarploomError, WarploomWarning
from warploom.ir.core import Level, walk
from warploom.ir.ops import tile
from warploom.runtime import build, request
from warploom.runtime.compiled import CompiledKernel
from warploom.sim.oracle import run as run_oracle

ORDERS = ("late", "reverse", "early", "seeded")


@dataclass
class Verdict:
    """status: "ok", "refused" (code), or what failed: "wrong", "error", "invalid" (the generator's own fault)."""

    status: str
    code: str = ""
    said: str = ""
    ops: set[str] = field(default_factory=set)
    specialized: bool = False
    dots: bool = False
    in_order: bool = False  # has dots in registers

    @property
    def failed(self) -> bool:
        return self.status in ("wrong", "error", "invalid")

    @property
    def kind(self) -> str:
        """What a smaller kernel has to fail with too."""
        return f"{self.status}:{self.code}"


@contextlib.contextmanager
def without_nvrtc() -> Iterator[None]:
    """Everything but the cubin is made."""
    saved = build.compile_text
    build.compile_text = no_nvrtc
    try:
        yield
    finally:
        build.compile_text = saved


@contextlib.contextmanager
def one_schedule() -> Iterator[None]:
    """No further schedules are tried where ptxas spills."""
    saved, request.HEADROOMS = request.HEADROOMS, ()
    try:
        yield
    finally:
        request.HEADROOMS = saved


def compile_case(case: Case, folder: Path) -> CompiledKernel:
    """The variant that a launch would take.  Raises CompileError and whatever is a bug."""
    k = case.kernel
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", WarploomWarning)
        return road.compile_for(case.load(folder), case.arguments(case.data), k.grid, k.knobs)


def judge(case: Case, folder: Path, orders: int = 2, nvrtc: bool = False) -> Verdict:
    """Never raises: what is raised is a failure.  orders: how many of the simulator's, beside "late"."""
    try:
        _ = case.expected
    except Exception as e:
        return Verdict("invalid", type(e).__name__, _said(e))
    quiet = contextlib.redirect_stdout(io.StringIO())
    with quiet, one_schedule() if nvrtc else without_nvrtc():
        try:
            compiled = compile_case(case, folder)
        except Exception as e:
            return _of_error(e, "compile")
        try:
            return _compare(case, compiled, orders)
        except Exception as e:
            return _of_error(e, "run")


def _of_error(e: Exception, where: str) -> Verdict:
    if isinstance(e, CompileError) and not isinstance(e, InternalError) and where == "compile":
        if e.loc is None:
            return Verdict("error", f"{e.code} without a line", _said(e))
        return Verdict("refused", e.code, e.message)
    code = f"{where} {type(e).__name__}"
    if isinstance(e, InternalError):
        code += f" {str(e)[:60]}"
    elif isinstance(e, WarploomError):
        code += f" {getattr(e, 'code', '')}"
    else:
        code += f" at {traceback.extract_tb(e.__traceback__)[-1].name}"
    return Verdict("error", code, _said(e))


def _said(e: Exception) -> str:
    return "".join(traceback.format_exception(e))[-4000:]


def _compare(case: Case, compiled: CompiledKernel, orders: int) -> Verdict:
    grid = case.kernel.grid
    lowered = compiled.lowered
    found = Verdict("ok")
    # `cta_rank` comes with the passes that divide a cluster's work, at TILE as well.
    found.ops = {
        o.kind.name for _, f in lowered.steps if f.level is Level.TILE for o in walk(f.body)
    }
    found.specialized = lowered.schedule.specialized
    found.dots = "dot" in found.ops
    found.in_order = any(o.kind is tile.dot for o in walk(lowered.at(Level.PLACED).body))
    r = random.Random(case.kernel.seed)
    picked = ["late", *r.sample(ORDERS[1:], min(orders, 3))]
    for where in ("oracle", *picked):
        arrays = {name: road.clone(a) for name, a in case.data.items()}
        args = case.arguments(arrays)
        if where == "oracle":
            run_oracle(lowered.written, road._on_host(args), grid)
        else:
            compiled.simulate(*args, grid=grid, order=where, seed=case.kernel.seed)
        wrong = case.differences(arrays)
        if wrong:
            at = "oracle" if where == "oracle" else "simulator"
            return Verdict(
                "wrong", at, f"{where}: {'; '.join(wrong)}", found.ops, found.specialized
            )
    seed = case.kernel.seed
    for where, also, turn in (("level", _levels, seed % 4), ("algebra", _algebra, seed % 3)):
        said = "" if turn else also(case, compiled)
        if said:
            return Verdict("wrong", where, said, found.ops, found.specialized)
    return found


def _algebra(case: Case, compiled: CompiledKernel) -> str:
    """What differs in the field of residues, where a wrong operand shows for certain."""
    order = ORDERS[case.kernel.seed % len(ORDERS)]
    args = case.arguments({name: road.clone(a) for name, a in case.data.items()})
    report = compiled.simulate(*args, grid=case.kernel.grid, algebra=True, order=order)
    return "" if report.is_equal else str(report)


def _levels(case: Case, compiled: CompiledKernel) -> str:
    """The first step of the road after which the kernel computes something else."""
    for name, run in road._runs(compiled):
        arrays = {name: road.clone(a) for name, a in case.data.items()}
        run(road._on_host(case.arguments(arrays)), case.kernel.grid)
        wrong = case.differences(arrays)
        if wrong:
            return f"{name}: {'; '.join(wrong)}"
    return ""
