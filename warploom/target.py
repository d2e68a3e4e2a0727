"""Facts of the GPUs that warploom compiles for: sizes and limits, with sources.

Sources: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability" (9.0);
PTX ISA, setmaxnreg, cp.async.bulk.tensor, wgmma.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Target:
    """One architecture.  Bytes, threads and registers (32-bit)."""

    name: str  # as NVRTC's -arch wants it: "sm_90a"
    shared_bytes: int  # dynamic shared memory one CTA may use
    registers_per_sm: int
    shared_bytes_per_sm: int
    shared_reserved: int  # of it for each resident CTA
    threads_per_sm: int
    multiprocessors: int
    max_registers_per_thread: int
    setmaxnreg: tuple[int, int, int]  # least, most, and what both are multiples of
    max_warps: int  # of one CTA
    max_named_barriers: int
    tma_box_limit: int  # elements along one axis of a TMA box
    wgmma_m: int
    wgmma_max_n: int
    max_grid: tuple[int, int, int]  # CTAs along each axis
    entry_limit: int | None = None  # registers a thread that a launch is to have at most

    def part(self, n: int) -> Target:
        """What one of n CTAs has that share a multiprocessor."""
        shared = self.shared_bytes_per_sm // n
        return replace(
            self,
            shared_bytes=min(self.shared_bytes, shared - self.shared_reserved),
            shared_bytes_per_sm=shared,
            registers_per_sm=self.registers_per_sm // n,
            threads_per_sm=self.threads_per_sm // n,
        )

    def limited(self, registers: int | None) -> Target:
        """The same for launches with so many registers a thread at most (None: with what there are)."""
        return replace(self, entry_limit=registers)

    def entry_registers(self, threads: int) -> int:
        """Registers a thread that a CTA of so many threads is launched with: the file divided evenly, in
        multiples of 8 (PTX ISA, setmaxnreg), never more than a thread can address or `entry_limit`."""
        most = min(self.max_registers_per_thread, self.entry_limit or self.max_registers_per_thread)
        return max(8, min(self.registers_per_sm // threads, most) // 8 * 8)


SM_90A = Target(
    name="sm_90a",
    shared_bytes=232_448,  # 227 KiB
    registers_per_sm=65_536,
    shared_bytes_per_sm=233_472,  # 228 KiB
    shared_reserved=1024,
    threads_per_sm=2048,
    multiprocessors=132,  # H100 SXM, H200 (NVIDIA H100 whitepaper)
    max_registers_per_thread=255,
    setmaxnreg=(24, 256, 8),  # PTX ISA, "setmaxnreg", operand imm-reg-count; both ends included
    max_warps=32,
    max_named_barriers=16,
    tma_box_limit=256,
    wgmma_m=64,
    wgmma_max_n=256,
    max_grid=(2**31 - 1, 65_535, 65_535),
)

TARGETS: dict[str, Target] = {SM_90A.name: SM_90A}
