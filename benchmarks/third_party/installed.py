"""The installed Triton, for kernels that are served from here."""

from __future__ import annotations

import importlib
import subprocess
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch

from benchmarks.third_party.launches import Met, smallest, timed
from warploom.triton.fallback import Fallback


class Triton:
    """Without a GPU it only compiles, for a Hopper GPU.  Raises ModuleNotFoundError where there is none.
    seconds: of its ptxas, after which a kernel fails to compile."""

    def __init__(self, seconds: float = 60) -> None:
        self._installed = Fallback()
        self._gpu = torch.backends.cuda.is_built()
        if not self._gpu:
            with self._installed.working():
                pretend()
        x = torch.zeros(1, device="cuda" if self._gpu else "cpu")
        self._installed.launch(smallest, (1,), (x,), {}, warmup=not self._gpu)

        with self._installed.working():
            limit_ptxas(seconds)

    def launch(self, met: Met) -> Any:
        return self.start(met.kernel, met.grid, met.args, met.kwargs)

    def start(self, kernel: Any, grid: Any, args: Any, kwargs: Any) -> Any:
        return self._installed.launch(kernel, grid, args, kwargs)

    def first(self, met: Met) -> bool:
        """The first launch, which compiles; what came out goes into `met.told`.  Whether it succeeded."""
        given = (met.kernel, met.grid, met.args, met.kwargs)
        try:
            kernel = timed(
                met.told,
                "triton_compile",
                lambda: self._installed.launch(*given, warmup=not self._gpu),
            )
        except Exception as error:
            met.told["triton_error"] = f"{type(error).__name__}: {error}"[:1000]
            return False
        met.told["triton_shared"] = kernel.metadata.shared
        if self._gpu:
            torch.cuda.synchronize()
            met.told |= {"triton_registers": kernel.n_regs, "triton_spills": kernel.n_spills}
        return True


def limit_ptxas(seconds: float) -> None:
    """Some kernels keep Triton's ptxas busy for many minutes, which nobody waits for."""
    compiler = importlib.import_module("triton.backends.nvidia.compiler")
    limited = partial(subprocess.run, timeout=seconds)
    vars(compiler)["subprocess"] = SimpleNamespace(**vars(subprocess) | {"run": limited})


def pretend() -> None:
    """A driver that knows of an H200."""
    from triton.backends.compiler import GPUTarget
    from triton.runtime import driver

    class Driver:
        def get_current_target(self) -> Any:
            return GPUTarget("cuda", 90, 32)

        def get_current_device(self) -> int:
            return 0

        def get_current_stream(self, device: int) -> int:
            return 0

    driver.set_active(Driver())
