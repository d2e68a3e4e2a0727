"""Runs WARP text on the GPU against NumPy arrays: what the probes share."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from tests.unit.codegen_kernels import placed
from warploom.analysis.occupancy import open_occupancy
from warploom.codegen.emit import emit
from warploom.errors import LaunchError
from warploom.runtime.build import best_occupancy
from warploom.runtime.launch import LoadedKernel, driver
from warploom.runtime.nvrtc import Build, compile_cuda
from warploom.runtime.signature import plan_of
from warploom.target import SM_90A


@functools.cache
def has_gpu() -> bool:
    try:
        return driver().architecture(0)[0] == 9
    except LaunchError:
        return False


needs_gpu = pytest.mark.skipif(not has_gpu(), reason="no Hopper GPU")


def run(text: str, *args: Any, grid: tuple[int, int, int] = (1, 1, 1)) -> list[Any]:
    """Launches the kernel of `text` once; arrays are copied to the GPU and come back as it left them."""
    from cuda.bindings import driver as cu

    func = placed(text)
    emitted = emit(func, SM_90A)
    build = compile_cuda(emitted.source, name=emitted.name, target=SM_90A)
    if (asked := open_occupancy(func, SM_90A)) is not None:

        def again(ctas: int) -> Build:
            told = func.with_(attrs={**func.attrs, "ctas_per_sm": ctas})
            return compile_cuda(emit(told, SM_90A).source, name=emitted.name, target=SM_90A)

        _, build = best_occupancy(build, asked, SM_90A, again)
    assert build.problems() == ()
    gpu = driver()
    kernel = LoadedKernel(gpu, build.cubin, plan_of(emitted, func, 1))
    with gpu.using(0):
        given, held = [], []
        for a in args:
            if isinstance(a, np.ndarray):
                result, pointer = cu.cuMemAlloc(max(a.nbytes, 16))
                gpu.check(result, "cuMemAlloc")
                flat = np.ascontiguousarray(a)
                gpu.check(cu.cuMemcpyHtoD(pointer, flat.ctypes.data, a.nbytes)[0], "cuMemcpyHtoD")
                held.append((pointer, flat))
                given.append(int(pointer))
            else:
                given.append(a)
        kernel.prepare(0, grid, tuple(given))(0)
        gpu.check(cu.cuCtxSynchronize()[0], "the kernel")
        for pointer, flat in held:
            gpu.check(cu.cuMemcpyDtoH(flat.ctypes.data, pointer, flat.nbytes)[0], "cuMemcpyDtoH")
            cu.cuMemFree(pointer)
    return [flat for _, flat in held]


def integers(shape: tuple[int, ...], dtype: Any, seed: int = 0, high: int = 4) -> Any:
    """Small integers, exact in every dtype down to fp8."""
    low = 0 if np.dtype(dtype).kind == "u" else -high
    return np.random.default_rng(seed).integers(low, high + 1, shape).astype(dtype)
