"""`demo`: one GEMM on the whole road, on any machine: compiled, simulated, checked, explained, drawn."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from warploom.cli.console import EXIT, remark, say, working
from warploom.errors import LaunchError

if TYPE_CHECKING:
    from warploom.timeline.model import Timeline

# Eight tiles for one program.  K is short, so a tile's prologue and epilogue are a large part of its time.
# Meanwhile the uniform kernel's tensor cores idle; the specialized one's work for the other consumer's tile.
M, N, K = 256, 512, 512
TILE = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP_M": 16}
VARIANTS: dict[str, dict[str, int | str]] = {
    "uniform": {"num_consumer_groups": 0, "num_warps": 8, "num_stages": 5},
    "specialized": {
        "num_consumer_groups": 2,
        "num_buffers_warp_spec": 5,
        "ping_pong": "tiles",
    },
}
TOLERANCE = 6e-3  # of the norm; rounding to bf16 gives 1.7e-3


def add_commands(commands: Any) -> None:
    demo = commands.add_parser(
        "demo", help="simulate, check, explain and draw a specialized GEMM (needs no GPU)"
    )
    demo.add_argument("--out", type=Path, default=Path("out"), help="folder (default: out)")
    demo.add_argument(
        "--measured",
        action="store_true",
        help="also run on the GPU with clock stamps: measured.svg, .png and .json, stalls by barrier",
    )
    demo.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Leaves in `out`: timeline.svg, .png and .json, and of each variant CUDA and explanation."""
    from warploom.runtime.launch import driver
    from warploom.timeline.render import draw, save, write_trace

    if args.measured:
        try:
            driver()
        except LaunchError as e:
            remark(f"--measured needs a GPU\n{e}")
            return EXIT.lacking
    out: Path = args.out
    out.mkdir(parents=True, exist_ok=True)
    made = [_shown(name, knobs, out, args.measured) for name, knobs in VARIANTS.items()]
    timelines = [v.timeline for v in made]
    measured = [timeline for v in made for timeline in v.measured]
    with working("drawing"):
        for suffix in (".svg", ".png"):
            draw(timelines, out / f"timeline{suffix}", stacked=True)
        write_trace(timelines, out / "timeline.json")
        for suffix in (".svg", ".png", ".json") if measured else ():
            save(measured, out / f"measured{suffix}")
    uniform, specialized = (timeline.cycles for timeline in timelines)
    say(f"specialized: {uniform / specialized:.2f} times as fast")
    files = ", ".join(sorted(p.name for p in out.iterdir() if p.is_file()))
    say(f"in {out}/: {files}")
    return EXIT.ok if all(v.is_right for v in made) else EXIT.found


class _Shown(NamedTuple):
    """A variant: its predicted timeline, and where it was measured that and the prediction beside it."""

    timeline: Timeline
    measured: list[Timeline]
    is_right: bool


def _shown(name: str, knobs: Mapping[str, Any], out: Path, measures: bool) -> _Shown:
    """Compiles, simulates, checks and perhaps measures a variant; leaves its CUDA and explanation."""
    from warploom.kernels.gemm import gemm_pointers
    from warploom.timeline.model import from_report
    from warploom.timeline.render import summary

    a, b, arguments = _arguments()
    start = time.perf_counter()
    with working(f"{name}: compiling"):
        compiled = gemm_pointers.compile_for(*arguments, grid=(1,), **TILE, **knobs)
        cuda = compiled.cuda
    resources, seconds = compiled.resources, time.perf_counter() - start
    taken = f"{resources.registers} registers, {resources.spill_bytes} bytes of spills"
    say(f"{name}: compiled in {seconds:.2f} s, {taken}")
    start = time.perf_counter()
    with working(f"{name}: simulating"):
        report = compiled.simulate(*arguments, grid=(1,), order="timed")
    exact = a.astype(np.float64) @ b.astype(np.float64)
    error = np.linalg.norm(arguments[2].astype(np.float64) - exact) / np.linalg.norm(exact)
    timeline, seconds = from_report(report, name), time.perf_counter() - start
    say(f"{summary(timeline)} (simulated in {seconds:.2f} s, relative error {error:.1e})")
    with working(f"{name}: checking"):
        checked = compiled.check()
    say(f"{name}: {checked}")
    measured = []
    if measures:
        with working(f"{name}: measuring"):
            found = compiled.timeline(*arguments, grid=(1,), measured=True)
        say(found)
        measured = [replace(t, title=name) for t in (found.predicted, found.measured)]
    (out / f"{name}.cu").write_text(cuda)
    (out / f"{name}.txt").write_text(compiled.explain() + "\n")
    return _Shown(timeline, measured, bool(error < TOLERANCE) and checked.ok)


def _arguments() -> tuple[Any, Any, tuple[Any, ...]]:
    """Random A and B, and the kernel's arguments: C = A·Bᵀ of bf16 arrays stored row by row."""
    import ml_dtypes

    random = np.random.default_rng(0)
    a, b = (random.standard_normal(s).astype(ml_dtypes.bfloat16) for s in ((M, K), (N, K)))
    c = np.full((M, N), np.nan, ml_dtypes.bfloat16)
    return a, b.T, (a, b, c, M, N, K, K, 1, 1, K, N, 1)
