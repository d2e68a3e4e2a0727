"""The launches that an operator makes, one of each kind."""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

import warploom.triton as triton
import warploom.triton.language as tl
from warploom.errors import ReportedError
from warploom.runtime.hooks import AROUND
from warploom.runtime.jit import JITFunction

SHARED = 232448  # bytes a block may have on Hopper
SERVED_AS = "3.7.1"  # Triton's first version whose gated gradients the libraries trust on Hopper


@triton.jit
def smallest(x_ptr):  # type: ignore[no-untyped-def]  # Triton looks annotations up
    """Compiled before any other, so that none pays for the compiler's imports."""
    tl.store(x_ptr, 0.0)


@dataclass
class Met:
    """A kind of launch: a kernel with arguments of these shapes, dtypes and values.  told: what was found."""

    kernel: JITFunction
    grid: tuple[int, ...]
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    told: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        code = self.kernel.fn.__code__
        parts = Path(code.co_filename).parts
        at = next((i for i, p in enumerate(parts) if p in ("fla", "liger_kernel", "as_triton")), -1)
        return f"{'/'.join(parts[at:])}:{code.co_firstlineno} {self.kernel.fn.__name__}"

    def tensors(self) -> list[Any]:
        values = [*self.args, *self.kwargs.values()]
        values = [getattr(x, "base", x) for x in values]  # of descriptors
        return [once(x) for x in values if isinstance(x, torch.Tensor)]

    def launch(self) -> Any:
        return self.kernel[self.grid](*self.args, **self.kwargs)

    def facts(self) -> dict[str, Any]:
        """What a reader needs to launch it again."""
        names = dict(zip(self.kernel.arg_names, self.args, strict=False)) | dict(self.kwargs)
        return {
            "kernel": self.name,
            "grid": list(self.grid),
            "arguments": {n: shown(x) for n, x in names.items()},
            **self.told,
        }


def once(x: Any) -> Any:
    """A view of a tensor's elements, each once: of expanded axes the first."""
    for axis, stride in enumerate(x.stride()):
        x = x if stride else x.narrow(axis, 0, min(1, x.shape[axis]))
    return x


def shown(x: Any) -> Any:
    x = getattr(x, "base", x)
    if isinstance(x, torch.Tensor):
        strides = "" if x.is_contiguous() else f", strides {tuple(x.stride())}"
        return f"{str(x.dtype).removeprefix('torch.')}{list(x.shape)}{strides}"
    return x if isinstance(x, int | float | bool | str | None) else str(x)


Meet = Callable[[Met, Callable[[], Any]], Any]


class Recorder:
    """Follows the launches of this process.  meet: makes each kind's first launch, given a function that does
    it; later: makes later ones."""

    def __init__(self, meet: Meet, later: Meet | None = None) -> None:
        self.met: dict[Any, Met] = {}
        self._meet, self._later = meet, later or (lambda met, launch: launch())

    def __enter__(self) -> Recorder:
        AROUND.append(self._around)
        return self

    def __exit__(self, *_: object) -> None:
        AROUND.remove(self._around)

    def _around(
        self,
        kernel: JITFunction,
        launch: Callable[[], Any],
        grid: Any,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> Any:
        sizes = kernel.sizes(grid, args, kwargs)
        values = [*args, *kwargs.items()]
        key = (kernel, sizes, *(str(shown(x)) for x in values))
        if 0 in sizes:
            return launch()
        met = Met(kernel, sizes, tuple(args), dict(kwargs))
        known = self.met.setdefault(key, met)
        if known is met:
            return self._meet(met, launch)
        met.told = known.told
        return self._later(met, launch)


def timed(told: dict[str, Any], name: str, work: Callable[[], Any]) -> Any:
    """work(), its seconds and its refusal kept under names that begin so."""
    start = time.perf_counter()
    try:
        return work()
    except ReportedError as error:
        told[f"{name}_refused"] = str(error)
        raise
    finally:
        told[f"{name}_seconds"] = round(time.perf_counter() - start, 3)


def serve(pretend: bool) -> None:
    """Serves `import triton` from here.

    pretend: libraries that choose by what the GPU is choose as on Hopper, though there is none."""
    from warploom.runtime.serve import serve as start
    from warploom.triton.backends import GPUTarget
    from warploom.triton.runtime import driver

    triton.__version__ = SERVED_AS
    sys.modules.setdefault("transformers", None)  # type: ignore[arg-type]  # fla's models': slow to import
    if pretend:
        driver.Driver.get_current_target = lambda self: GPUTarget("cuda", 90, 32)  # type: ignore[method-assign]
        torch.cuda.get_device_capability = lambda *_: (9, 0)  # type: ignore[assignment]
        torch.cuda.get_device_name = lambda *_: "NVIDIA H200"  # type: ignore[assignment]
        torch.cuda.device_count = lambda: 1  # type: ignore[assignment]
        torch.Tensor.is_cuda = property(lambda self: True)  # type: ignore[assignment]
        torch.cuda.current_device = lambda: 0  # type: ignore[assignment]
        torch.cuda.is_available = lambda: True  # type: ignore[assignment]
        torch.cuda.get_device_properties = lambda *_: SimpleNamespace(  # type: ignore[assignment]
            multi_processor_count=132, shared_memory_per_block_optin=SHARED
        )
    start()
    if pretend:
        with suppress(ModuleNotFoundError):
            hardware = importlib.import_module("fla.utils.hardware")
            hardware.get_all_max_shared_mem = lambda: {None: SHARED, 0: SHARED}  # None: the CPU
