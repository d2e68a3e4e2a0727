"""sm_80: NVIDIA A100 and A30.

Sources of sizes and limits: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"
(8.0); PTX ISA, mma, ldmatrix, cp.async, mbarrier.  How its tensor cores add: arXiv 2511.10909 (MMA-Sim),
found on hardware by its authors, not by us.  No rate here was fitted: no such chip was at hand.
"""

from __future__ import annotations

from dataclasses import replace

from warploom.target import sm_90a
from warploom.target.model import Arithmetic, Grid, Product, SharedMemory, Sync, Target

# A sum of k 16-bit products is made of two, of 8 each, with 24 bits kept; tf32 of two of 4.
WIDE = (
    Product("f16", "f16", "f32", Arithmetic(8, 24, 23, "cut")),
    Product("bf16", "bf16", "f32", Arithmetic(8, 24, 23, "cut")),
    Product("f32", "f32", "f32", Arithmetic(4, 24, 23, "cut")),
    Product("f16", "f16", "f16", Arithmetic(8, 24, 10, "nearest", "f16")),
)
# PTX ISA, "mma": m8n8k4 of f64, with the fragments of which m16n8k4 has two (of A and of the accumulator).
F64 = Product("f64", "f64", "f64", halves=True)
MMA_SYNC = replace(sm_90a.MMA_SYNC, products=(*WIDE, *sm_90a.WHOLE, F64))

# Rates: 1024 multiply-adds of 16-bit types a cycle and SM (NVIDIA A100 whitepaper: 312 TFLOPS on 108 SMs at
# 1.41 GHz); CUDA C++ Programming Guide, "Arithmetic Instructions" (8.0): 64 float32 lanes, 64 for
# conversions, 16 for special functions; 32 banks of shared memory; 64 bytes a cycle and SM from the L2 (the
# whitepaper).
# Latencies: those of sm_90a where nothing better is known.
COST = replace(
    sm_90a.COST,
    tensor_macs_16bit=1024,
    in_order_macs_16bit=1024,
    mma_least=8,
    tensor_latency=33,
    alu_lanes=64,
    convert_lanes=64,
    tma_latency=600,
)
SM_80 = Target(
    name="sm_80",
    chips=("A100", "A30"),
    capabilities=((8, 0),),
    multiprocessors=108,
    warp_size=32,
    warp_group=4,
    registers=replace(sm_90a.REGISTERS, reallocation=None),
    # 163 and 164 KiB
    shared=SharedMemory(per_cta=166_912, per_sm=167_936, reserved=1024, stores_matrices=False),
    grid=Grid(ctas=(2**31 - 1, 65_535, 65_535), warps=32, dependent=False, threads_per_sm=2048),
    matrix_units=(MMA_SYNC, sm_90a.FMA),
    # beside the arrivals at mbarriers that sm_90a's has (PTX ISA, cp.async.mbarrier.arrive)
    copy_engines=(replace(sm_90a.CP_ASYNC, completes="group"),),
    sync=Sync(
        barriers="mbarrier", barrier_bytes=8, named_barriers=16, cluster_ctas=1, async_proxy=False
    ),
    cost=COST,
    converts=frozenset(),
)
