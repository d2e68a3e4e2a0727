"""What starting a CTA takes: kernels that do next to nothing, each with one thing that ours do beside it.

    python -m benchmarks.launch_rate --out out/launch_rate.jsonl

`us` of a kernel: the time of a launch of --programs CTAs, once with programmatic dependent launch allowed
and once without; the median of --bursts bursts.  A CTA of four warps, of which an SM holds 16.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from benchmarks.measure import begun
from benchmarks.records import Record, write
from warploom.bench import Clock
from warploom.runtime.launch import LoadedKernel, driver
from warploom.runtime.nvrtc import compile_cuda
from warploom.runtime.plan import LaunchPlan, ScalarParam
from warploom.target import SM_90A

WAIT = 'asm volatile("griddepcontrol.wait;" ::: "memory");'
RELEASE = 'asm volatile("griddepcontrol.launch_dependents;" ::: "memory");'
LAST = "if (gridDim.x - blockIdx.x <= 132 * 16)"
SHARED = (
    "extern __shared__ __align__(1024) char memory[]; memory[threadIdx.x] = n; __syncthreads();"
)
KERNELS: dict[
    str, tuple[str, int]
] = {  # what stands before the store; bytes of dynamic shared memory
    "nothing": ("", 0),
    "wait": (WAIT, 0),
    "release": (RELEASE, 0),
    "wait, release": (WAIT + RELEASE, 0),
    "wait, release in the last wave": (WAIT + LAST + RELEASE, 0),
    "wait, release by one thread": (WAIT + "if (threadIdx.x == 0)" + RELEASE, 0),
    "shared memory": (SHARED, 128),
}


def kernel(body: str, shared: int, *, pdl: bool) -> LoadedKernel:
    source = f"""
extern "C" __global__ void __launch_bounds__(128) probe(int* out, int n) {{
  {body}
  if (threadIdx.x == n) out[blockIdx.x] = n;
}}
"""
    build = compile_cuda(source, name="probe", target=SM_90A)
    params = (ScalarParam(0, "Q"), ScalarParam(1, "i"))
    plan = LaunchPlan("probe", 128, shared, params, pdl=pdl)
    return LoadedKernel(driver(), build.cubin, plan)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--programs", type=int, default=131072)
    parser.add_argument("--bursts", type=int, default=3)
    args = parser.parse_args(argv)
    out = torch.zeros(args.programs, device="cuda", dtype=torch.int32)
    launches: dict[str, Callable[[int], object]] = {}
    for name, (body, shared) in KERNELS.items():
        for pdl in (False, True):
            loaded = kernel(body, shared, pdl=pdl)
            run = loaded.prepare(0, (args.programs, 1, 1), (out.data_ptr(), 1))
            launches[f"{name}{', overlapping' * pdl}"] = lambda i, run=run: run(0)
    clock, times = Clock(), {name: list[float]() for name in launches}
    expected = {name: clock.quick_ms(run, 1) for name, run in launches.items()}
    for _ in range(args.bursts):
        for name, run in launches.items():
            times[name].append(clock.burst_ms(run, 1, expected[name]) * 1e3)
    report, run = begun("us")
    case = f"{args.programs} CTAs"
    report.records = [Record(case, name, run, bursts) for name, bursts in times.items()]
    write(args.out, report)
    for record in report.records:
        print(f"{record.peer:50s} {record.median:8.2f} us")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
