"""`demo`: one GEMM on the whole road, on any machine: compiled, simulated, checked, explained, drawn."""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from warploom.cli.console import EXIT, stderr, stdout, working
from warploom.errors import LaunchError

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
    from warploom.kernels.gemm import gemm_pointers
    from warploom.runtime.launch import driver
    from warploom.timeline.model import Timeline, from_report
    from warploom.timeline.render import draw, save, told, write_trace

    console = stdout()
    if args.measured:
        try:
            driver()
        except LaunchError as e:
            stderr().print(f"--measured needs a GPU\n{e}", markup=False, soft_wrap=True)
            return EXIT.lacking
    out: Path = args.out
    out.mkdir(parents=True, exist_ok=True)
    a, b, arguments = _arguments()
    exact = a.astype(np.float64) @ b.astype(np.float64)
    timelines: list[Timeline] = []
    measured: list[Timeline] = []
    right = True
    for name, knobs in VARIANTS.items():
        start = time.perf_counter()
        with working(f"{name}: compiling"):
            compiled = gemm_pointers.compile_for(*arguments, grid=(1,), **TILE, **knobs)
            cuda = compiled.cuda
        resources = compiled.resources
        console.print(
            f"{name}: compiled in {time.perf_counter() - start:.2f} s, "
            f"{resources.registers} registers, {resources.spill_bytes} bytes of spills",
            markup=False,
            soft_wrap=True,
        )
        c = arguments[2]
        c.fill(np.nan)
        start = time.perf_counter()
        with working(f"{name}: simulating"):
            report = compiled.simulate(*arguments, grid=(1,), order="timed")
        error = np.linalg.norm(c.astype(np.float64) - exact) / np.linalg.norm(exact)
        right &= bool(error < TOLERANCE)
        timelines.append(from_report(report, name))
        console.print(
            f"{told(timelines[-1])} (simulated in {time.perf_counter() - start:.2f} s, relative "
            f"error {error:.1e})",
            markup=False,
            soft_wrap=True,
        )
        with working(f"{name}: checking"):
            checked = compiled.check()
        right &= checked.ok
        console.print(f"{name}: {checked}", markup=False, soft_wrap=True)
        if args.measured:
            with working(f"{name}: measuring"):
                found = compiled.timeline(*arguments, grid=(1,), measured=True)
            console.print(str(found), markup=False, soft_wrap=True)
            measured += [replace(found.predicted, title=name), replace(found.measured, title=name)]
        (out / f"{name}.cu").write_text(cuda)
        (out / f"{name}.txt").write_text(compiled.explain() + "\n")
    with working("drawing"):
        for suffix in (".svg", ".png"):
            draw(timelines, out / f"timeline{suffix}", stacked=True)
        write_trace(timelines, out / "timeline.json")
        for suffix in (".svg", ".png", ".json") if measured else ():
            save(measured, out / f"measured{suffix}")
    uniform, specialized = (timeline.cycles for timeline in timelines)
    console.print(f"specialized: {uniform / specialized:.2f} times as fast", markup=False)
    files = ", ".join(sorted(p.name for p in out.iterdir() if p.is_file()))
    console.print(f"in {out}/: {files}", markup=False, soft_wrap=True)
    return EXIT.ok if right else EXIT.found


def _arguments() -> tuple[Any, Any, tuple[Any, ...]]:
    """Random A and B, and the kernel's arguments: C = A·Bᵀ of bf16 arrays stored row by row."""
    import ml_dtypes

    random = np.random.default_rng(0)
    a, b = (random.standard_normal(s).astype(ml_dtypes.bfloat16) for s in ((M, K), (N, K)))
    c = np.empty((M, N), ml_dtypes.bfloat16)
    return a, b.T, (a, b, c, M, N, K, K, 1, 1, K, N, 1)
