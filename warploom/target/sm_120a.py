"""sm_120a: NVIDIA GeForce RTX 50 series and RTX PRO Blackwell.

TMA and mbarriers as on sm_90a, but no wgmma: products are mma.sync's, and shared memory is that of sm_86.
Warps keep their registers: ptxas (13.5) ignores setmaxnreg beside cp.async.bulk.tensor here (C7506).
Sources: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability" (12.0); PTX ISA, mma,
cp.async.bulk.tensor.  Clusters of one CTA, without multicast (CUTLASS documentation, "Blackwell GeForce").
How its tensor cores add: arXiv 2511.10909 (MMA-Sim, "RTX Blackwell"; block scales as tcgen05.mma), found on
hardware by its authors, not by us.  No rate here was fitted: 512 multiply-adds of 16-bit types a cycle and SM
(NVIDIA RTX PRO 6000 data sheet: 503.8 TFLOPS on 188 SMs at 2.6 GHz; GeForce chips half of it in float32).
"""

from __future__ import annotations

from dataclasses import replace

from warploom.target.model import Arithmetic, Grid, Product, SharedMemory, Sync
from warploom.target.sm_90a import (
    CP_ASYNC,
    EIGHT_BIT_FLOATS,
    F64,
    FMA,
    MMA_SYNC,
    SM_90A,
    TMA,
    WHOLE,
    WIDE,
)

SM_120A = replace(
    SM_90A,
    name="sm_120a",
    chips=("RTX 50", "RTX PRO Blackwell"),
    capabilities=((12, 0),),
    multiprocessors=188,
    # 99 and 100 KiB
    shared=SharedMemory(per_cta=101_376, per_sm=102_400, reserved=1024, stores_matrices=True),
    grid=Grid(ctas=(2**31 - 1, 65_535, 65_535), warps=32, threads_per_sm=1536, dependent=True),
    matrix_units=(
        replace(
            MMA_SYNC,
            products=(
                *WIDE,
                *(
                    Product(a, b, "f32", Arithmetic(32, 25, 23, "cut"))
                    for a in EIGHT_BIT_FLOATS
                    for b in EIGHT_BIT_FLOATS
                ),
                *WHOLE,
                F64,
                *(
                    Product(a, b, "f32", Arithmetic(32, 25, 23, "cut"), scale="u8")
                    for a in EIGHT_BIT_FLOATS
                    for b in EIGHT_BIT_FLOATS
                ),
                *(
                    Product("u8", "u8", "f32", Arithmetic(64, 35, 23, "cut", group=16), scale=scale)
                    for scale in ("u8", "f8e4m3")
                ),
            ),
        ),
        FMA,
    ),
    copy_engines=(replace(TMA, multicast=False), CP_ASYNC),
    sync=Sync(
        barriers="mbarrier", barrier_bytes=8, named_barriers=16, cluster_ctas=1, async_proxy=True
    ),
    registers=replace(SM_90A.registers, reallocation=None),
    cost=replace(
        SM_90A.cost, tensor_macs_16bit=512, in_order_macs_16bit=512, mma_least=8, tensor_latency=33
    ),
)
