"""sm_80: NVIDIA A100 and A30.

Sources of sizes and limits: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"
(8.0); PTX ISA, mma, ldmatrix, cp.async, mbarrier.  How its tensor cores add: arXiv 2511.10909 (MMA-Sim),
found on hardware by its authors, not by us.  No rate here was fitted: no such chip was at hand.
"""

from __future__ import annotations

from warploom.target.model import (
    Arithmetic,
    CopyEngine,
    CostTable,
    Grid,
    MatrixUnit,
    ProducerRegisters,
    Product,
    Registers,
    SharedMemory,
    Sync,
    Target,
)

INTEGERS = tuple(Product(a, b, "i32") for a in ("i8", "u8") for b in ("i8", "u8"))
# A sum of k 16-bit products is made of two, of 8 each, with 24 bits kept; tf32 of two of 4.
WIDE = (
    Product("f16", "f16", "f32", Arithmetic(8, 24, 23, "cut")),
    Product("bf16", "bf16", "f32", Arithmetic(8, 24, 23, "cut")),
    Product("f32", "f32", "f32", Arithmetic(4, 24, 23, "cut")),
    Product("f16", "f16", "f16", Arithmetic(8, 24, 10, "nearest", "f16")),
)
# PTX ISA, "mma": m16n8k16 of 16-bit types, m16n8k8 of tf32, m16n8k32 of 8-bit ones; "ldmatrix", .trans of
# 16-bit elements.
MMA_SYNC = MatrixUnit(
    instruction="mma.sync",
    threads=32,
    m=16,
    n_step=8,
    n_max=8,
    k_bytes=32,
    a_from=frozenset({"registers"}),
    b_from=frozenset({"registers"}),
    accumulates_in="registers",
    completes="in order",
    along_mn=frozenset({16}),
    products=(*WIDE, *INTEGERS),
    fragments_by="ldmatrix",
)
CP_ASYNC = CopyEngine("cp.async", moves="pieces", completes="mbarrier", pieces=(4, 8, 16))

# Rates: 1024 multiply-adds of 16-bit types a cycle and SM (NVIDIA A100 whitepaper: 312 TFLOPS on 108 SMs at
# 1.41 GHz); CUDA C++ Programming Guide, "Arithmetic Instructions" (8.0): 64 float32 lanes, 64 for
# conversions, 16 for special functions; 32 banks of shared memory; 64 bytes a cycle and SM from the L2 (the
# whitepaper).
# Latencies: those of sm_90a where nothing better is known.
COST = CostTable(
    tensor_macs_16bit=1024,
    in_order_macs_16bit=1024,
    mma_least=8,
    tensor_latency=33,
    alu_lanes=64,
    convert_lanes=64,
    sfu_lanes=16,
    shared_bytes=128,
    tma_bytes=64,
    tma_latency=600,
    store_read=349,
    store_written=343,
    sync=46,
    wake=16,
    barrier=21,
    scalar=1,
    start=1000,
    handover=450,
    turn=400,
    store_bytes=32,
)
REGISTERS = Registers(
    per_sm=65_536,
    per_thread=255,
    unit=8,
    reallocation=None,
    # As on sm_90a: what a producer does takes the same registers.
    producers={
        "issues": ProducerRegisters(32, 24),
        "copies": ProducerRegisters(72, 56),
        "holds": ProducerRegisters(152, 72),
        "loads": ProducerRegisters(152, 104),
    },
    reserve=32,
    reserve_of_pieces=40,
    reserve_of_turns=16,
    least_reserve=16,
    instruction_reserve=28,
)
SM_80 = Target(
    name="sm_80",
    chips=("A100", "A30"),
    capabilities=((8, 0),),
    multiprocessors=108,
    warp_size=32,
    warp_group=4,
    registers=REGISTERS,
    shared=SharedMemory(
        per_cta=166_912, per_sm=167_936, reserved=1024, stores_matrices=False
    ),  # 163 and 164 KiB
    grid=Grid(ctas=(2**31 - 1, 65_535, 65_535), warps=32, dependent=False, threads_per_sm=2048),
    matrix_units=(MMA_SYNC,),
    copy_engines=(CP_ASYNC,),
    sync=Sync(
        barriers="mbarrier", barrier_bytes=8, named_barriers=16, cluster_ctas=1, async_proxy=False
    ),
    cost=COST,
    converts=frozenset(),
)
