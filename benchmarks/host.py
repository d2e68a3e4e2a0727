"""What a launch costs the host: microseconds a call, kernel time excluded.

    python -m benchmarks.host [--out out/host.jsonl]

On a GPU: torch tensors, the library's GEMM on a problem of one tile, launched often without
synchronising.  Elsewhere the driver's launch is replaced by a function that returns at once and the
tensors by objects with torch's methods, so that what is left is the Python part.

| row | what |
|---|---|
| prepared | `prepared()`, a launch with everything in place |
| call | `kernel[grid](12 arguments, 4 constexprs)`, seen before |
| call, grid function | the same with `grid=lambda meta: …` |
| call, tuned | the same through `@wl.autotune` with two configs |
| new pointers | a call whose arrays were never seen: two tensor maps |
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import warploom as wl
from benchmarks.measure import begun
from benchmarks.records import Record, write
from warploom.kernels.gemm import gemm_pointers
from warploom.runtime import autotune, jit, launch
from warploom.runtime import kernel as kernel_module

META = {"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "GROUP_M": 16}
KNOBS = {"num_consumer_groups": 2, "num_buffers_warp_spec": 3}
SIZE = 256
CALLS, ROUNDS = 500, 15  # fewer launches at once than the driver queues (1024)
CLOCK = time.thread_time  # of this thread: other work on the machine does not count


def measure(call: Callable[[], object], wait: Callable[[], object]) -> float:
    """Median over rounds of microseconds a call."""
    call()
    times = []
    for _ in range(ROUNDS):
        wait()
        start = CLOCK()
        for _ in range(CALLS):
            call()
        times.append((CLOCK() - start) / CALLS * 1e6)
    wait()
    return statistics.median(times)


def rows(tensor: Callable[[], Any], wait: Callable[[], object]) -> dict[str, float]:
    """All rows, with arrays from `tensor` and `wait` to let the GPU catch up."""
    n = SIZE
    a, b, c = tensor(), tensor(), tensor()
    sizes = (n, n, n, n, 1, 1, n, n, 1)
    grid = (2,)
    options = {**META, **KNOBS}
    configs = [wl.Config(META, **KNOBS), wl.Config({**META, "GROUP_M": 8}, **KNOBS)]
    tuned = wl.autotune(configs, key=["M", "N", "K"])(gemm_pointers)
    args = (a, b, c, *sizes)
    tuned.verdicts[*tuned.key_of(args, {}), jit.chip_of(args, {})] = autotune.Verdict(0, {}, {})
    prepared = gemm_pointers.prepare(*args, grid=grid, **options)
    found = {
        "prepared": measure(prepared, wait),
        "call": measure(lambda: gemm_pointers[grid](*args, **options), wait),
        "call, grid function": measure(
            lambda: gemm_pointers[lambda meta: (wl.cdiv(meta["M"], meta["BLOCK_M"]),)](
                *args, **options
            ),
            wait,
        ),
        "call, tuned": measure(lambda: tuned[grid](*args), wait),
    }
    outputs = iter([tensor() for _ in range(CALLS * (ROUNDS + 1))])
    found["new pointers"] = measure(
        lambda: gemm_pointers[grid](a, b, next(outputs), *sizes, **options), wait
    )
    return found


def on_gpu() -> dict[str, float]:
    import torch

    tensors = CALLS * (ROUNDS + 2)
    arena = torch.randn(tensors, SIZE, SIZE, device="cuda", dtype=torch.bfloat16)
    unused = iter(range(tensors))
    return rows(lambda: arena[next(unused)], torch.cuda.synchronize)


def on_cpu() -> dict[str, float]:
    """The Python part alone."""

    class Tensor:
        """As much of torch.Tensor as a launch reads."""

        made = 0

        def __init__(self) -> None:
            Tensor.made += 1
            self.dtype, self.shape = "torch.bfloat16", (SIZE, SIZE)
            self._pointer = Tensor.made << 20

        def is_neg(self) -> bool:
            return False

        def data_ptr(self) -> int:
            return self._pointer

        def untyped_storage(self) -> Tensor:
            return self

        def nbytes(self) -> int:
            return 2 * SIZE * SIZE

        def stride(self) -> tuple[int, int]:
            return SIZE, 1

        def get_device(self) -> int:
            return 0

    class Driver:
        """Launches nothing."""

        device_count = 1

        def configure(self, plan: Any, grid: Any, stream: int) -> Any:
            return grid

        def device_name(self, device: int) -> str:
            return "none"

        def enter(self, device: int) -> None:
            return None

        def launch(self, *_: Any) -> tuple[int]:
            return (0,)

        def load(self, cubin: bytes, name: str) -> str:
            return name

        def prepare(self, *_: Any) -> None:
            return None

        def encode(self, *_: Any) -> bytes:
            return bytes(128)

        def stream(self, handle: int) -> int:
            return handle

        def is_capturing(self, stream: int, device: int = 0) -> bool:
            return False

        def architecture(self, device: int) -> tuple[int, int]:
            return 9, 0

    null = Driver()
    for module in (launch, jit, kernel_module, autotune):
        module.driver = lambda: null  # type: ignore[attr-defined]
    from warploom.runtime import args

    args._PROBES[Tensor] = args.KEYS[Tensor] = args.probe_torch
    return rows(Tensor, lambda: None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    try:
        launch.driver()
        where, found = "gpu", on_gpu()
    except wl.LaunchError:
        where, found = "python part", on_cpu()
    for row, microseconds in found.items():
        print(f"{row:22} {microseconds:6.2f} us  ({where})")
    if arguments.out:
        report, run = begun("us", note=where)
        report.records = [Record("launch", row, run, [us]) for row, us in found.items()]
        write(arguments.out, report)


if __name__ == "__main__":
    main()
