"""Cases of one pass each: a function before the pass, and what the pass has to make of it.

A file `cases/<pass>[.<what>].ir`:

    // One sentence: what happens here.
    // schedule: {"fused_dots": [["loop0/dot0", "loop0/dot1"]]}     only where the pass reads one, only what it reads
    // cluster: {"axis": "M", "ctas": 2}                            the same
    // run: [[2], "bf16 128x64", "f32 64", 100]                     the grid, then arguments: both sides compute the same
    func @before(…) level=… { … }
    // after
    func @after(…) level=… { … }

`python -m tests.passes.ir_cases` writes the second functions again, as the passes make them now: read the
diff before committing it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from warploom.ir.analysis import unwaited
from warploom.ir.core import SEQUENTIAL, Func, Level
from warploom.ir.parser import parse_func
from warploom.ir.printer import print_func
from warploom.ir.types import DTYPES
from warploom.ir.verify import verify
from warploom.passes.pipeline import PIPELINE, Pass, Road
from warploom.passes.placed.place_grid_wait import place_grid_wait
from warploom.runtime.args import fields_of
from warploom.runtime.launch import grid_sizes
from warploom.runtime.workspace import with_programs
from warploom.schedule.model import ClusterPlan, Schedule, SplitPlan
from warploom.sim.machine import simulate
from warploom.sim.oracle import run
from warploom.target import SM_90A

FOLDER = Path(__file__).parent / "cases"
AFTER = "// after\n"
# What a case doesn't say of its schedule.
SILENT = Schedule("", True, (), {}, SplitPlan(None, 1), (), (), 0)


@dataclass(frozen=True)
class IrCase:
    """One file.  head: its comments; before, after: texts."""

    path: Path
    head: str
    before: str
    after: str

    @property
    def row(self) -> Pass:
        """The pass that the file is named after."""
        name = self.path.name.partition(".")[0]
        return next(row for row in PIPELINE if isinstance(row, Pass) and row.name == name)

    def told(self, key: str) -> Any:
        """What a comment `// key: JSON` says; None without it."""
        mark = f"// {key}: "
        return next(
            (
                json.loads(x.removeprefix(mark))
                for x in self.head.splitlines()
                if x.startswith(mark)
            ),
            None,
        )

    def road(self) -> Road:
        schedule = self.told("schedule")
        return Road(
            SM_90A,
            cluster=ClusterPlan(**(self.told("cluster") or {})),
            schedule=None
            if schedule is None
            else Schedule.from_json(json.dumps({**json.loads(SILENT.to_json()), **schedule})),
        )

    def functions(self) -> tuple[Func, Func]:
        """Before the pass, and what the pass makes of it now; both verified."""
        before = parse_func(self.before, self.path.name)
        verify(before, SM_90A)
        after = self.row.run(before, self.road())
        verify(after, SM_90A)
        return before, after


def cases() -> dict[str, IrCase]:
    """By file name without its ending, in the order of names."""
    found = {}
    for path in sorted(FOLDER.glob("*.ir")):
        text = path.read_text()
        first, found_mark, after = text.partition(AFTER)
        assert found_mark, f"{path.name} has no line {AFTER.strip()!r}"
        at = first.index("func @")
        found[path.stem] = IrCase(path, first[:at], first[at:], after)
    return found


def computed(func: Func, told: list[Any], order: str, track: bool = True) -> list[np.ndarray]:
    """The arrays after a run of a function on small integers; of WARP and PLACED in an adversarial order of
    events."""
    if func.level is Level.PLACED and unwaited(func) is not None:  # a later pass places the wait
        func = place_grid_wait(func, SM_90A)
    grid, *args = told
    rng = np.random.default_rng(len(args))
    given: list[Any] = []
    for arg in args:
        if isinstance(arg, str):
            dtype, _, shape = arg.partition(" ")
            sizes = [int(x) for x in shape.split("x")]
            numbers = rng.integers(-3, 4, sizes).astype(np.float32)
            given.append(numbers.astype(DTYPES[dtype].numpy))
        else:
            given.append(arg)
    fields = [f for x in given for f in fields_of("", x)]
    fields, ctas = with_programs(func, fields, grid_sizes(grid))
    values = [f.on_host for f in fields]
    if func.level in SEQUENTIAL:
        run(func, values, ctas)
    else:
        simulate(func, values, ctas, order=order, seed=1, track=track)
    return [a for a in given if isinstance(a, np.ndarray)]


def update() -> None:
    """Write the functions after each pass again."""
    for case in cases().values():
        _, after = case.functions()
        text = case.head + case.before + AFTER + print_func(after)
        if text != case.path.read_text():
            case.path.write_text(text)
            print(case.path.name)


if __name__ == "__main__":
    update()
