"""Measured timelines without a GPU: the simulator's clock stands in for the SM's, so that what the records
say can be held against what the simulator itself reports."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.explicit.test_lessons import kernel as lesson_of
from tests.unit.fake_driver import FakeDriver
from warploom.cli.demo import TILE, VARIANTS, _arguments
from warploom.codegen.emit import emit
from warploom.errors import LaunchError
from warploom.ir.core import walk
from warploom.ir.ops import smem, task
from warploom.ir.ops.cluster import cluster_of
from warploom.ir.verify import verify
from warploom.kernels.explicit.attention import Attention
from warploom.kernels.explicit.gemm import Gemm
from warploom.kernels.gemm import gemm_pointers
from warploom.passes.placed.instrument import CAPACITY, instrument
from warploom.runtime import launch, measure
from warploom.runtime.nvrtc import compile_cuda
from warploom.sim.machine import simulate
from warploom.sim.outline import STEPS
from warploom.target import SM_90A
from warploom.timeline.measured import Records, events_of
from warploom.timeline.model import from_report

LESSONS = Path(__file__).parents[2] / "docs" / "lessons"


def compiled(variant: str) -> Any:
    return gemm_pointers.compile_for(*_arguments()[2], grid=(1,), **TILE, **VARIANTS[variant])


def uniform() -> Any:
    """(kernel, arguments, grid)"""
    return compiled("uniform"), _arguments()[2], (1, 1, 1)


def specialized() -> Any:
    return compiled("specialized"), _arguments()[2], (1, 1, 1)


def clustered() -> Any:
    """Two CTAs that share B by multicast."""
    given = [np.zeros(s, ml_dtypes.bfloat16) for s in ((512, 256), (512, 256), (512, 512))]
    arguments = (*given, 512, 512, 256)
    return Gemm(ctas=2).compile_for(*arguments), arguments, (2, 1, 1)


def attention() -> Any:
    """Products in flight across iterations, registers as operands, named barriers, tiles from a counter."""
    given = [np.zeros((4, 512, 64), ml_dtypes.bfloat16) for _ in range(4)]
    more = np.zeros((4, 512), np.float32), np.zeros(2, np.int32)
    arguments = (*given, *more, 4, 512, 0.1)
    return Attention(d=64, causal=True).compile_for(*arguments), arguments, (16, 1, 1)


def grouped() -> Any:
    """Copies by cp.async in groups."""
    given = [np.zeros(s, np.float16) for s in ((128, 512), (512, 128), (128, 128))]
    arguments = (*given, 128, 128, 512)
    lesson = LESSONS / "ampere" / "04_stages.py"
    return lesson_of(lesson).compile_for(*arguments), arguments, (1, 1, 1)


class Clock:
    """Makes the simulator write down stamps: by agent, (site | index << 16, cycles)."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, start: int = 0) -> None:
        self.seen: dict[str, list[tuple[int, int]]] = {}

        def record(a: Any, o: Any, buffer: Any, program: Any, index: Any = 0) -> None:
            what = o.attrs["site"] | int(index) << 16
            clock = (round(a.time) + start) & 0xFFFFFFFF
            self.seen.setdefault(a.label, []).append((what, clock))

        monkeypatch.setitem(STEPS, smem.stamp, record)

    def records(self, func: Any) -> list[list[Records]]:
        rows, ctas = task.agents(func), math.prod(cluster_of(func))
        several = {name for name, r in rows if r > 0}
        labels = [f"{name}[{r}]" if name in several else name for name, r in rows]
        return [
            [
                np.array(self.seen[x + (f" of CTA {i}" if ctas > 1 else "")], np.uint32)
                for x in labels
            ]
            for i in range(ctas)
        ]


def simulated(func: Any, arguments: Any, grid: Any = (1, 1, 1)) -> Any:
    how: dict[str, Any] = {"order": "timed", "track": False, "data": False, "program": 0}
    return simulate(func, [*arguments, np.zeros(1, np.uint32), 0], grid, **how)


@pytest.mark.parametrize("case", [uniform, specialized, clustered, attention, grouped])
@pytest.mark.each(2)
def test_records_of_the_simulators_clock_give_the_simulators_stalls(
    case: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel, arguments, grid = case()
    func, sites = instrument(kernel.placed)
    verify(func)
    clock = Clock(monkeypatch, start=0xFFFFFFFF - 1000)  # it wraps on the way
    report = simulated(func, arguments, grid)
    found = events_of(func, sites, clock.records(func), SM_90A.cost)
    wanted, got = from_report(report, "simulated"), from_report(found, "from stamps")
    assert got.cycles == pytest.approx(wanted.cycles, rel=0.02)
    assert wanted.stalls() and wanted.stalls().keys() == got.stalls().keys()
    for key, cycles in wanted.stalls().items():
        # The records have whole cycles.
        assert got.stalls()[key] == pytest.approx(cycles, abs=4, rel=2e-3), key
    assert {r.agent for r in got.rows} >= {r.agent for r in wanted.rows}
    for unit in ("tensor", "tma"):
        ops = {e.op for e in report.events if e.unit == unit}
        assert {x for e in found.events if e.unit == unit for x in e.op.split(", ")} <= ops
        # What is issued is on its way at least as long as the engine works on it.
        assert got.utilisation(unit) >= 0.9 * wanted.utilisation(unit)


class Recording(FakeDriver):
    """A driver whose stamped launches leave the simulator's records in the buffer."""

    def __init__(self, records: list[Records], full: bool = False) -> None:
        super().__init__()
        self.records, self.full = records, full

    def load(self, cubin: bytes, name: str) -> str:
        self.loads = getattr(self, "loads", 0) + 1
        return f"{name}:{self.loads}"  # the stamped kernel is loaded first

    def launch(self, config: Any, function: Any, address: int, _: int) -> tuple[int]:
        self.launches.append(function)
        if function.endswith(":1"):
            size = 8 * CAPACITY * len(self.records)
            (buffer,) = (m for m in self.memory.values() if m.nbytes == size)
            rows = buffer.view(np.uint32).reshape(len(self.records), CAPACITY, 2)
            for row, mine in zip(rows, self.records, strict=True):
                row[CAPACITY - len(mine) :] = mine[::-1]
                if self.full:
                    row[1:, 0] = np.maximum(row[1:, 0], 1)
        return (0,)


def recorded(monkeypatch: pytest.MonkeyPatch, kernel: Any, full: bool = False) -> Recording:
    """The driver with the records of a simulated launch."""
    with monkeypatch.context() as patch:
        clock = Clock(patch)
        func, _ = instrument(kernel.placed)
        simulated(func, _arguments()[2])
    gpu = Recording(clock.records(func)[0], full)
    for module in (launch, measure):
        monkeypatch.setattr(module, "driver", lambda: gpu)
    monkeypatch.setattr("warploom.runtime.kernel.driver", lambda: gpu)
    return gpu


def test_a_measured_timeline_stands_beside_the_predicted_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    kernel = compiled("specialized")
    gpu = recorded(monkeypatch, kernel)
    found = kernel.timeline(*_arguments()[2], grid=(1,), measured=True)
    assert not gpu.memory  # all that was allocated is free again
    assert gpu.launches[-1].endswith(":1") and any(f.endswith(":2") for f in gpu.launches)
    assert not found.is_cut and found.overhead == 0
    assert (found.predicted.origin, found.measured.origin) == ("predicted", "measured")
    assert found.measured.cycles == pytest.approx(found.predicted.cycles, rel=0.05)
    table = found.stalls()
    assert "| full | consumer[0] | " in table and "| empty | producer | " in table
    assert table in str(found) and "with stamps" in str(found)
    for suffix in ("svg", "json"):
        found.save(tmp_path / f"both.{suffix}")
        assert (tmp_path / f"both.{suffix}").stat().st_size


def test_full_records_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = compiled("specialized")
    recorded(monkeypatch, kernel, full=True)
    found = kernel.timeline(*_arguments()[2], grid=(1,), measured=True)
    assert found.is_cut and "full before the end" in str(found)


def test_a_program_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(LaunchError, match="no program 3"):
        compiled("specialized").timeline(*_arguments()[2], grid=(2,), measured=True, program=3)


@pytest.mark.parametrize("variant", VARIANTS)
def test_stamps_cost_no_spill_and_no_shared_memory(variant: str) -> None:
    kernel = compiled(variant)
    func, sites = instrument(kernel.placed)
    emitted = emit(func, SM_90A)
    built = compile_cuda(emitted.source, name=emitted.name, target=SM_90A)
    assert built.problems() == ()
    assert emitted.shared_bytes == kernel.plan.shared_bytes
    assert len(sites) == sum(o.kind is smem.stamp for o in walk(func.body))


def test_the_stamped_program_is_the_same_program() -> None:
    from tests.canonical import canonical_text
    from warploom.check import check
    from warploom.ir.rewrite import rewrite

    placed = compiled("specialized").placed
    func, _ = instrument(placed)
    bare = rewrite(func, lambda o, b: () if o.kind is smem.stamp else None)
    kept = {k: v for k, v in bare.attrs.items() if k != "facts"}
    body = bare.body.__class__(placed.params, bare.body.ops)
    facts = placed.attrs["facts"]
    assert canonical_text(bare.with_(body=body, attrs={**kept, "facts": facts})) == canonical_text(
        placed
    )
    assert check(func).ok
