"""Builds `gemm.cu` by NVRTC and launches it through cuda-core.

python -m benchmarks.reference.build OUT.cubin     # compile only: no GPU needed; prints ptxas' report
"""

from __future__ import annotations

import ctypes
import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cuda.core import Program, ProgramOptions

SOURCE = Path(__file__).with_name("gemm.cu")
THREADS = 384  # of gemm.cu
SHARED_BYTES = 213_040
BOX_A, BOX_B, BOX_C = (128, 64), (256, 64), (64, 64)  # rows, columns


def compile_cubin() -> tuple[bytes, str]:
    """The cubin for sm_90a and ptxas' report on it (registers, spills, advisories)."""
    log = io.StringIO()
    options = ProgramOptions(arch="sm_90a", std="c++17", ptxas_options="-v", name=SOURCE.name)
    code = Program(SOURCE.read_text(), "c++", options).compile("cubin", logs=log).code
    return bytes(code), log.getvalue()


class ReferenceKernel:
    """The loaded kernel; `prepare` binds it to tensors."""

    def __init__(self, cubin: bytes) -> None:
        from cuda.bindings import driver
        from cuda.core import Device, ObjectCode

        self.device = Device()
        self.device.set_current()
        self.kernel = ObjectCode.from_cubin(cubin).get_kernel("gemm")
        # cuda-core leaves the limit at 48 KiB: a launch with more would be refused.
        limit = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        (status,) = driver.cuKernelSetAttribute(
            limit, SHARED_BYTES, self.kernel.handle, self.device.device_id
        )
        if int(status) != 0:
            raise RuntimeError(f"cuKernelSetAttribute: {status}")

    def prepare(
        self, a: Any, b: Any, c: Any, stream: int, programs: int | None = None
    ) -> Callable[[], None]:
        """A function of no arguments that launches C[M,N] = A[M,K]·B[N,K]ᵀ.

        a, b, c: bf16 torch tensors, rows contiguous, row strides multiples of 16 bytes.
        `stream`: a CUDA stream's handle, 0 for the default stream.
        `programs`: the grid (at most the tiles); all SMs by default.
        """
        from cuda.core import LEGACY_DEFAULT_STREAM, LaunchConfig, Stream, launch

        m, k = a.shape
        n = b.shape[0]
        tiles = -(-m // 128) * -(-n // 256)
        grid = min(tiles, programs or self.device.properties.multiprocessor_count)
        maps = [
            _tensor_map(t, box) for t, box in zip((a, b, c), (BOX_A, BOX_B, BOX_C), strict=True)
        ]
        sizes = [ctypes.c_int(x) for x in (m, n, k)]
        config = LaunchConfig(grid=grid, block=THREADS, shmem_size=SHARED_BYTES)
        on = Stream.from_handle(stream) if stream else LEGACY_DEFAULT_STREAM
        kernel = self.kernel
        return lambda: launch(on, config, kernel, *maps, *sizes)


def _tensor_map(tensor: Any, box: tuple[int, int]) -> Any:
    from cuda.core._tensor_map import (
        TensorMapDataType,
        TensorMapL2Promotion,
        TensorMapSwizzle,
    )
    from cuda.core.utils import StridedMemoryView

    view = StridedMemoryView.from_any_interface(tensor, stream_ptr=-1)
    return view.as_tensor_map(
        box_dim=box,
        data_type=TensorMapDataType.BFLOAT16,
        swizzle=TensorMapSwizzle.SWIZZLE_128B,
        l2_promotion=TensorMapL2Promotion.L2_256B,
    )


if __name__ == "__main__":
    cubin, report = compile_cubin()
    Path(sys.argv[1]).write_bytes(cubin)
    print(report)
