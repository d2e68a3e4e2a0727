"""What a launch costs the host under torch.compile, and by `kernel[grid](…)`: beside the installed Triton's.

    python -m benchmarks.inductor_host [--out FILE]

Microseconds, of small kernels that the GPU runs faster than the host launches them; each compiler in a
process of its own, with caches of its own.  One JSON object is printed: {row: {compiler: µs}}.

| row | what |
|---|---|
| K: call | a call of the compiled function, with its guards and allocations |
| K: run | `CachingAutotuner.run`, which that calls for each kernel |
| K: launcher | what that calls: the function that Inductor writes, with our or Triton's launcher inside |
| K: tuned | what Inductor's own benchmarker takes for the kernel's time |
| nothing: tuned | the same of a function that does nothing |
| kernel[grid], same arrays | an ordinary launch |
| kernel[grid], new arrays | one with arrays that no launch had before |
| driver, … | the call of the driver alone, with and without the attribute that lets launches overlap |
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.host import CALLS, ROUNDS, measure

COMPILERS = ("warploom", "triton")
tl: Any = None  # triton.language, once there is one


# Triton looks up what stands in annotations.
def plus(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x, y = tl.load(x_ptr + at, at < n), tl.load(y_ptr + at, at < n)
    tl.store(out_ptr + at, x + y, at < n)


def functions() -> dict[str, tuple[Callable[..., Any], list[Any]]]:
    """What is compiled, with its arguments."""
    import torch
    import torch.nn.functional as F

    def drawn(*shape: int) -> Any:
        return torch.randn(shape, device="cuda", dtype=torch.bfloat16)

    def total(*xs: Any) -> Any:
        return sum(xs)

    return {
        "add": (lambda x, y: x + y, [drawn(4096), drawn(4096)]),
        "add_8": (total, [drawn(4096) for _ in range(8)]),
        "layer_norm": (
            lambda x, w: F.layer_norm(x, (16384,), w),
            [drawn(8, 16384), drawn(16384)],
        ),
    }


def compiled_rows() -> Iterator[tuple[str, float]]:
    from torch._inductor.runtime.benchmarking import InductorBenchmarker

    yield "nothing: tuned", InductorBenchmarker().benchmark_gpu(lambda: None) * 1e3
    for name, (function, args) in functions().items():
        for what, us in rows_of(function, args):
            yield f"{name}: {what}", us


def rows_of(function: Callable[..., Any], args: list[Any]) -> Iterator[tuple[str, float]]:
    """Of a function that becomes one kernel."""
    import torch
    from torch._inductor.runtime.benchmarking import InductorBenchmarker
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    stream, run = torch._C._cuda_getCurrentRawStream(0), CachingAutotuner.run
    taken: list[tuple[Any, tuple[Any, ...]]] = []

    def noting(self: Any, *given: Any, **named: Any) -> Any:
        taken.append((self, given))
        return run(self, *given, **named)

    def launch() -> None:
        launcher(*given, stream=stream)

    compiled, wait = torch.compile(function), torch.cuda.synchronize
    CachingAutotuner.run = noting
    compiled(*args)
    CachingAutotuner.run = run
    (tuner, given), *_ = taken
    (launcher,) = tuner.launchers
    measure(launch, wait)  # the first rows of a process come out too high
    yield "call", measure(lambda: compiled(*args), wait)
    yield "run", measure(lambda: tuner.run(*given, stream=stream), wait)
    yield "launcher", measure(launch, wait)
    yield "tuned", InductorBenchmarker().benchmark_gpu(launch) * 1e3


def ordinary_rows() -> Iterator[tuple[str, float]]:
    import torch
    import triton
    import triton.language

    global tl
    tl = triton.language
    kernel, wait = triton.jit(plus), torch.cuda.synchronize
    x, y = (torch.randn(1024, device="cuda") for _ in range(2))
    outs = torch.empty(CALLS * (ROUNDS + 2), 1024, device="cuda")
    unseen = iter(outs)
    yield "kernel[grid], same arrays", measure(lambda: kernel[(4,)](x, y, outs[0], 1024, 256), wait)
    yield (
        "kernel[grid], new arrays",
        measure(lambda: kernel[(4,)](x, y, next(unseen), 1024, 256), wait),
    )


def driver_rows() -> Iterator[tuple[str, float]]:
    """Of the driver that ours launches with."""
    import torch

    import warploom
    from warploom.runtime.launch import driver
    from warploom.runtime.plan import LaunchPlan

    x = torch.zeros(1024, device="cuda")
    prepared = warploom.jit(plus).prepare(x, x, x, 1024, grid=(4,), BLOCK=256)
    prepared()
    for what, pdl in (("overlapping", True), ("in turn", False)):
        plan = LaunchPlan("plus", 128, 0, (), pdl=pdl)
        config = driver().configure(plan, (4, 1, 1), torch._C._cuda_getCurrentRawStream(0))
        call = functools.partial(driver().launch, config, prepared._function, prepared.address, 0)
        yield f"driver, {what}", measure(call, torch.cuda.synchronize)


def work(compiler: str) -> None:
    """A line of JSON for each row."""
    parts = [ordinary_rows, compiled_rows, *([driver_rows] if compiler == "warploom" else [])]
    for part in parts:
        try:
            for row, us in part():
                print(json.dumps([row, round(us, 2)]), flush=True)
        except Exception as error:  # the other parts are worth having
            print(json.dumps([part.__name__, f"{type(error).__name__}: {error}"[:500]]), flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--compiler", choices=COMPILERS, help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.compiler:
        work(args.compiler)
        return 0
    found: dict[str, dict[str, Any]] = {}
    here = Path(__file__).resolve().parents[1]
    with tempfile.TemporaryDirectory() as folder:
        for compiler in COMPILERS:
            names = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "WARPLOOM_CACHE")
            env = os.environ | {name: f"{folder}/{compiler}/{name}" for name in names}
            served = ["-m", "warploom", "run"] if compiler == "warploom" else []
            words = ["-m", "benchmarks.inductor_host", f"--compiler={compiler}"]
            command = [sys.executable, *served, *words]
            done = subprocess.run(command, cwd=here, env=env, stdout=subprocess.PIPE, text=True)
            for line in done.stdout.splitlines():
                if line.startswith("["):
                    row, us = json.loads(line)
                    found.setdefault(row, {})[compiler] = us
    text = json.dumps(found, indent=1)
    if args.out:
        args.out.write_text(text)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
