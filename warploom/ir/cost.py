"""How long each op holds which unit, in cycles of one SM: the clock of the predicted timeline, and
what the chooser weighs.

Sources, for sm_90:
  tensor   dense f16/bf16: 2048 multiply-adds a cycle and SM (NVIDIA H100 whitepaper: 989 TFLOPS on 132 SMs at
           1.83 GHz), 8-bit: twice that
  alu      128 float32 lanes a cycle and SM (CUDA C++ Programming Guide, "Arithmetic Instructions"), 64 for
           conversions; sfu: 16 (same table)
  shared   32 banks of 4 bytes a cycle (same guide, "Shared Memory")
  tma      64 bytes a cycle and SM from L2 (NVIDIA A100 whitepaper; unchanged on H100), and the latency of a
           load that misses L1: about 600 cycles (measured on H100 by public microbenchmarks)
  sync     barrier instructions: about 20 cycles (same)
Fitted on an H200 (2026-11-21, `python -m benchmarks.calibrate`, benchmarks/results/calibration.json):
the floor and latency of wgmma, lanes, stores, arrivals and wake-ups.  TMA's rate and latency are what
whole kernels have, not the probes' of the idle chip: from the L2 an SM gets 36 bytes a cycle of lines
that no other wants, 84 of those that others load with it; a box is there 250 cycles after its bytes'
time, in kernels some 900 (what fits the GEMMs, uniform and specialized, and attention).
start, handover, turn and store_bytes were fitted to 49 pairs of launches,
uniform and specialized (`python -m benchmarks.choice`, benchmarks/results/choice_fitted.json).  No
result depends on these, only schedules and timelines.
"""

from __future__ import annotations

from dataclasses import dataclass

from warploom.ir.core import Effect, Op, Type
from warploom.ir.ops import arith, tile
from warploom.ir.types import Tile

UNITS = ("alu", "sfu", "shared", "tensor", "tma", "sync")


@dataclass(frozen=True)
class CostTable:
    """One chip's numbers: rates a cycle and SM, latencies in cycles.

    tensor_macs_16bit: multiply-adds of f16 or bf16.  wgmma_least: cycles of an instruction, however small.
    tensor_latency: from the last of them to a result.  tma_bytes, tma_latency: how fast boxes arrive, how
    long after; store_read, store_written: how long after its bytes have gone a store has read its source,
    and written.  sync: an arrival, an issue, a wait that finds nothing to wait for.  wake: from what a wait
    waits for to the next instruction.  barrier: of a warp group.

    What forms of a kernel are weighed by (schedule/forms.py): start, from a program's launch until its first
    operands are there; handover, what tasks cost it more; turn, what a step takes a uniform program's group
    beside arithmetic; store_bytes, how fast results leave.
    """

    tensor_macs_16bit: float
    wgmma_least: float
    tensor_latency: float
    alu_lanes: float
    convert_lanes: float
    sfu_lanes: float
    shared_bytes: float
    tma_bytes: float
    tma_latency: float
    store_read: float
    store_written: float
    sync: float
    wake: float
    barrier: float
    scalar: float
    start: float
    handover: float
    turn: float
    store_bytes: float

    def elementwise(self, o: Op) -> tuple[str, float]:
        """(unit, cycles) of a pure op; no unit is held by ops that cost nothing (shape, registers)."""
        size = max((_size(v.type) for v in (*o.results, *o.operands)), default=0)
        if size == 0:
            return "alu", float(self.scalar)
        if o.kind in _FREE:
            return "alu", 0.0
        if o.kind in _SFU:
            return "sfu", size / self.sfu_lanes
        lanes = self.convert_lanes if o.kind is arith.cast else self.alu_lanes
        return "alu", size / lanes

    def wgmma(self, m: int, n: int, k: int, bits: int) -> float:
        """Cycles of the tensor cores for an m×n×k product of `bits`-wide operands.  An instruction takes 64
        rows and 32 bytes of k."""
        step = 256 // bits
        one = max(64 * n * step / (self.tensor_macs_16bit * 16 / bits), self.wgmma_least)
        return one * (m / 64) * (k / step)

    def transfer(self, size: int) -> float:
        """Cycles that TMA (or cp.async) takes to move `size` bytes, without the latency."""
        return size / self.tma_bytes


def computes_tile(o: Op) -> bool:
    """Does o compute a tile by arithmetic alone?  Then `CostTable.elementwise` tells what it takes."""
    whole = bool(o.results) and not o.regions and isinstance(o.results[0].type, Tile)
    return whole and o.kind.effect is Effect.NONE


def _size(t: Type) -> int:
    return t.size if isinstance(t, Tile) else 0


_SFU = arith.SPECIAL | {arith.div, arith.div_rn}
_FREE = frozenset(
    (tile.splat, tile.expand_dims, tile.broadcast, tile.transpose, tile.reshape, tile.slice_tile)
) | {tile.concat}

SM_90A = CostTable(
    tensor_macs_16bit=2048,
    wgmma_least=18,
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
    turn=400,
    store_bytes=32,
)
