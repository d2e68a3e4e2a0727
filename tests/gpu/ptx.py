"""A kernel compiled for another chip on the GPU at hand: its PTX, which the driver compiles for this one."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from warploom.runtime.args import fields_of
from warploom.runtime.kernel import Kernel
from warploom.runtime.launch import CudaDriver, LoadedKernel, grid_sizes
from warploom.runtime.values import flat

GUARD = 1024  # bytes on both sides of each array
PATTERN = 0x5A  # that the kernel must leave there
VERSION = ".version 9.0"  # of PTX that all drivers of CUDA 13 read; instructions of sm_89 take 8.4


def portable(ptx: str) -> bytes:
    """PTX as `cuLibraryLoadData` takes it of a driver that is older than NVRTC: with the version of CUDA 13.0,
    and a zero behind it.  An instruction that needs a newer one is an error of the driver."""
    text, found = re.subn(r"(?m)^\.version \d+\.\d+$", VERSION, ptx)
    assert found == 1, "one version in each PTX"
    return text.encode() + b"\0"


def launch(gpu: CudaDriver, kernel: Kernel, args: Sequence[Any], grid: Any) -> None:
    """Launches the kernel's PTX on device 0 with its own launch plan.

    args: the run-time arguments in order; what the kernel leaves in arrays on the host (NumPy, also as the bases
    of descriptors) is copied back into them.  Asserts that nothing around an array was written."""
    loaded = LoadedKernel(gpu, portable(kernel.ptx), kernel.plan)
    values, moved = [], []
    try:
        for field in (f for a in flat(args) for f in fields_of("", a)):
            value = field.launched
            if field.array is not None:
                low, high = field.array.bytes_range()
                here = np.ctypeslib.as_array((ctypes.c_uint8 * (high - low)).from_address(low))
                whole = np.full(high - low + 2 * GUARD, PATTERN, np.uint8)
                whole[GUARD:-GUARD] = here
                there = gpu.allocate(0, whole.size)
                moved.append((here, whole, there))
                gpu.copy_in(0, there, whole)
                value = there + GUARD + value - low
            values.append(value)
        loaded.prepare(0, grid_sizes(grid), tuple(values))(0)
        for here, whole, there in moved:
            gpu.copy_out(0, there, memoryview(whole))
            here[:] = whole[GUARD:-GUARD]
            assert (whole[:GUARD] == PATTERN).all() and (whole[-GUARD:] == PATTERN).all()
    finally:
        for _, _, there in moved:
            gpu.free(0, there)
