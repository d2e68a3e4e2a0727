"""sm_86: NVIDIA A10, A40, RTX A6000 and the GeForce RTX 30 series.

As sm_80, with less shared memory, fewer threads and twice the float32 lanes (CUDA C++ Programming Guide,
"Technical Specifications per Compute Capability" and "Arithmetic Instructions", 8.6).  Rates are those of
A10, A40 and RTX A6000: 512 multiply-adds of 16-bit types a cycle and SM (NVIDIA GA102 whitepaper: 154.8
TFLOPS on 84 SMs at 1.8 GHz); GeForce chips accumulate in float32 at half of it.
"""

from __future__ import annotations

from dataclasses import replace

from warploom.target.model import Grid, SharedMemory
from warploom.target.sm_80 import COST, SM_80

SM_86 = replace(
    SM_80,
    name="sm_86",
    chips=("A10", "A40", "RTX A6000", "RTX 30"),
    capabilities=((8, 6),),
    multiprocessors=84,
    # 99 and 100 KiB
    shared=SharedMemory(per_cta=101_376, per_sm=102_400, reserved=1024, stores_matrices=False),
    grid=Grid(ctas=(2**31 - 1, 65_535, 65_535), warps=32, dependent=False, threads_per_sm=1536),
    cost=replace(COST, tensor_macs_16bit=512, in_order_macs_16bit=512, alu_lanes=128),
)
