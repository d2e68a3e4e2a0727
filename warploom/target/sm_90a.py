"""sm_90a: NVIDIA H100 and H200.

Sources of sizes and limits: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"
(9.0); PTX ISA, setmaxnreg, cp.async.bulk.tensor, wgmma.  How tensor cores add was measured on an H200
(docs/simulator.md: how, on how many sums, and what was tested thinly).
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

EIGHT_BIT_FLOATS = ("f8e4m3", "f8e5m2")
_INTEGERS = ("i8", "u8")
WIDE = (  # the same for both instructions
    Product("f16", "f16", "f32", Arithmetic(16, 25, 23, "cut")),
    Product("bf16", "bf16", "f32", Arithmetic(16, 25, 23, "cut")),
    Product("f32", "f32", "f32", Arithmetic(8, 25, 23, "cut")),
    Product("f16", "f16", "f16", Arithmetic(16, 25, 10, "nearest", "f16")),
)
F64 = Product("f64", "f64", "f64")
WHOLE = tuple(Product(a, b, "i32") for a in _INTEGERS for b in _INTEGERS)
_CUT, _CUT_F16 = Arithmetic(32, 13, 13, "cut"), Arithmetic(32, 13, 10, "nearest", "f16")
# sm_90 has no mma.sync of fp8: ptxas converts to f16 and issues two of those, of bytes 0 and 1 of every word,
# then of bytes 2 and 3.
_TWO_HALVES = Arithmetic(32, 25, 23, "cut", parts=((0, 1), (2, 3)), after=True, through="f16")

# PTX ISA, "wgmma.mma_async": shapes m64nNkK, N a multiple of 8 up to 256, K 32 bytes; imm-trans-a and
# imm-trans-b for 16-bit types; executed by four contiguous warps.
WGMMA = MatrixUnit(
    instruction="wgmma",
    threads=128,
    m=64,
    n_step=8,
    n_max=256,
    k_bytes=32,
    a_from=frozenset({"shared", "registers"}),
    b_from=frozenset({"shared"}),
    completes="group",
    products=(
        *WIDE,
        *(Product(a, b, "f32", _CUT) for a in EIGHT_BIT_FLOATS for b in EIGHT_BIT_FLOATS),
        *(Product(a, b, "f16", _CUT_F16) for a in EIGHT_BIT_FLOATS for b in EIGHT_BIT_FLOATS),
        *WHOLE,
    ),
)
# PTX ISA, "mma": m16n8k16 of 16-bit types, m16n8k8 of tf32, m16n8k32 of 8-bit ones, m16n8k4 of f64 (sm_90);
# "ldmatrix", .trans of 16-bit elements.  For what wgmma does not take.
MMA_SYNC = MatrixUnit(
    instruction="mma.sync",
    threads=32,
    m=16,
    n_step=8,
    n_max=8,
    k_bytes=32,
    a_from=frozenset({"registers"}),
    b_from=frozenset({"registers"}),
    completes="in order",
    products=(
        *WIDE,
        *(Product(a, b, "f32", _TWO_HALVES) for a in EIGHT_BIT_FLOATS for b in EIGHT_BIT_FLOATS),
        *WHOLE,
        F64,
    ),
)
# CUDA C++ Programming Guide, "Arithmetic Instructions": one multiply-add of float32 a lane and cycle.  The
# tensor cores of A100 and H100 do as many of float64 (19.5 TFLOPS of either, 67 on H100: the whitepapers and
# the H100 data sheet), whose operands would have to be converted; other chips do a 64th.
FMA = MatrixUnit(
    instruction="fma",
    threads=1,
    m=1,
    n_step=1,
    n_max=1,
    k_bytes=4,
    a_from=frozenset({"shared"}),
    b_from=frozenset({"shared"}),
    completes="in order",
    products=(Product("f32", "f32", "f32", ieee=True),),
)

# PTX ISA, "cp.async.bulk.tensor" (boxes of at most 256 elements an axis, rows of whole 16 bytes),
# "tensormap.replace" (sm_90a, sm_100a, sm_120a), "cp.async".
TMA = CopyEngine(
    instruction="cp.async.bulk.tensor",
    moves="boxes",
    completes="mbarrier",
    stores=True,
    multicast=True,
    box_limit=256,
    writes_maps=True,
)
CP_ASYNC = CopyEngine("cp.async", moves="pieces", completes="mbarrier", pieces=(4, 8, 16))

# Rates and latencies:
#   tensor   dense f16/bf16: 2048 multiply-adds a cycle and SM (NVIDIA H100 whitepaper: 989 TFLOPS on 132 SMs
#            at 1.83 GHz), 8-bit: twice that; by mma.sync what 4096³ reaches on an H200
#            (docs/log/2026-11-23-mma-sync-beside-triton.md; 63 % of wgmma in arXiv 2402.13499, H100)
#   alu      128 float32 lanes a cycle and SM (CUDA C++ Programming Guide, "Arithmetic Instructions"), 64 for
#            conversions; sfu: 16 (same table)
#   shared   32 banks of 4 bytes a cycle (same guide, "Shared Memory")
#   tma      64 bytes a cycle and SM from L2 (NVIDIA A100 whitepaper; unchanged on H100), and the latency of a
#            load that misses L1: about 600 cycles (measured on H100 by public microbenchmarks)
#   sync     barrier instructions: about 20 cycles (same)
# Fitted on an H200 (2026-11-21, `python -m benchmarks.calibrate`, benchmarks/results/calibration.jsonl): the
# floor and latency of wgmma, lanes, stores, arrivals and wake-ups.  TMA's rate and latency are what whole
# kernels have, not the probes' of the idle chip: from the L2 an SM gets 36 bytes a cycle of lines that no
# other wants, 84 of those that others load with it; a box is there 250 cycles after its bytes' time, in
# kernels some 900 (what fits the GEMMs, uniform and specialized, and attention).  start, handover,
# uniform_step and store_bytes were fitted to 49 pairs of launches, uniform and specialized (`python -m
# benchmarks.choice`, whose results git has).  own_bytes: the rate above of lines that no other SM
# wants.  memory_bytes: what products of 16 rows get of an H200's memory, 3.6 TB/s at 1.755 GHz
# (docs/log/2026-11-23-mma-sync-beside-triton.md).  in_order_macs_16bit: of four warps; products of 4096³ keep
# 1090 of them at the clock that their power allows.  cluster is assumed, not measured.  meeting and
# parts_bytes: by products on an H100 whose last wave was shared (docs/log/2026-11-28-stream-k.md).
COST = CostTable(
    tensor_macs_16bit=2048,
    in_order_macs_16bit=1350,
    mma_least=18,
    tensor_latency=43,
    alu_lanes=118,
    convert_lanes=56,
    sfu_lanes=16,
    shared_bytes=128,
    tma_bytes=64,
    tma_latency=900,
    store_read=349,
    store_written=343,
    sync=46,
    wake=16,
    barrier=21,
    scalar=1,
    start=1000,
    handover=450,
    uniform_step=400,
    store_bytes=32,
    own_bytes=36,
    memory_bytes=2100,
    cluster=2000,
    meeting=2000,
    parts_bytes=9,
)

REGISTERS = Registers(
    per_sm=65_536,
    per_thread=255,
    unit=8,
    reallocation=(24, 256, 8),  # PTX ISA, "setmaxnreg", operand imm-reg-count; both ends included
    # What NVRTC 13.5 needs without spills for slots of up to 64 KiB.
    producers={
        "issues": ProducerRegisters(32, 24),
        "copies": ProducerRegisters(72, 56),
        "holds": ProducerRegisters(152, 72),
        "loads": ProducerRegisters(152, 104),
    },
    # NVRTC 13.5: 64 x 208 in 232 and 64 x 176 in 200 registers spill, 16 columns less don't.
    reserve=32,
    reserve_of_pieces=40,
    reserve_of_ping_pong=16,  # NVRTC 13.5: 128 x 192 in 232 registers spills, in 240 it doesn't
    least_reserve=16,
    instruction_reserve=28,  # with less ptxas refuses (C7602), however many setmaxnreg adds
)

SM_90A = Target(
    name="sm_90a",
    chips=("H100", "H200"),
    capabilities=((9, 0),),
    multiprocessors=132,  # H100 SXM, H200 (NVIDIA H100 whitepaper)
    warp_size=32,
    warp_group=4,  # PTX ISA, wgmma: "warpgroup", four contiguous warps
    registers=REGISTERS,
    # 227 and 228 KiB
    shared=SharedMemory(per_cta=232_448, per_sm=233_472, reserved=1024, stores_matrices=True),
    grid=Grid(ctas=(2**31 - 1, 65_535, 65_535), warps=32, threads_per_sm=2048, dependent=True),
    matrix_units=(WGMMA, MMA_SYNC, FMA),
    copy_engines=(TMA, CP_ASYNC),
    sync=Sync(
        barriers="mbarrier",
        barrier_bytes=8,  # PTX ISA, mbarrier: "size 8 bytes, aligned to 8"
        named_barriers=16,
        cluster_ctas=8,
        async_proxy=True,
    ),
    cost=COST,
)
