"""What the compiler asks of a chip.

A `Target` is data: sizes and limits, the units that multiply matrices, the engines that copy, how threads
synchronise, and what each costs.  Whoever needs something asks for the capability:

    unit = target.matrix_unit("bf16", "bf16", "f32")
    if m % unit.m or n % unit.n_step or n > unit.n_max: …

Sizes are in bytes, threads, and registers of 32 bits.  The values stand in one file a chip, with sources.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import gcd
from typing import Literal

Place = Literal["registers", "shared", "tensor memory"]


# ---- matrix units


@dataclass(frozen=True)
class Arithmetic:
    """How one instruction adds: k products at a time, `kept` bits after the largest exponent's point, and a
    result of `fraction` bits (sim/tensor_core.py computes by it).

    accumulator: name of the dtype of c and d.  floor: with 25 bits kept, terms are never cut below 2^-158,
    nine bits after the smallest float32.  parts: the products of an instruction by their index modulo 4,
    where it is several sums one after the other.  after: these sums begin at zero, and c is added to the last
    one as an FADD adds (IEEE float32).  through: the dtype that operands are converted to before they are
    read, in which subnormals of their own format may be normal numbers.  group: with scales, products that
    are added exactly first, and whose exponent is then that of their scales (1: each counts for itself)."""

    k: int
    kept: int
    fraction: int
    rounding: Literal["cut", "nearest"]
    accumulator: str = "f32"
    floor: int = -133
    parts: tuple[tuple[int, ...], ...] = ((0, 1, 2, 3),)
    after: bool = False
    through: str | None = None
    group: int = 1


@dataclass(frozen=True)
class Product:
    """Operands that a unit multiplies, by the names of their dtypes; f32 operands count as tf32.
    arithmetic: how it adds them; None for integers, whose sums are exact (they wrap), and for f64, whose
    products and sums each round as IEEE says, in an order of its own.  scale: the dtype of scales that they
    come with, "u8" (ue8m0) or "f8e4m3" (ue4m3): operands of u8 are pairs of e2m1 then.  halves: of such
    operands an instruction has half of the unit's rows, and two of them do it.  ieee: f32 operands are
    themselves, and each product is added by one rounding (fma), in the order of K."""

    a: str
    b: str
    accumulator: str
    arithmetic: Arithmetic | None = None
    scale: str = ""
    halves: bool = False
    ieee: bool = False


@dataclass(frozen=True)
class MatrixUnit:
    """One instruction that multiplies matrices: d = a·b + c, of m × n × k elements.

    threads: how many execute it together.  m: its rows; a product has a multiple.  n_step, n_max: its columns
    are a multiple of n_step, at most n_max (equal where the instruction has one shape).  k_bytes: an
    operand's bytes along K.

    a_from, b_from: where operands may lie.

    completes: "in order", its result is there for the next instruction; "group", it runs beside the thread
    that issued it, which commits groups and waits for them; "mbarrier", likewise, and it arrives at an
    mbarrier.  products: what it multiplies, with what it accumulates in."""

    instruction: str
    threads: int
    m: int
    n_step: int
    n_max: int
    k_bytes: int
    a_from: frozenset[Place]
    b_from: frozenset[Place]
    completes: Literal["in order", "group", "mbarrier"]
    products: tuple[Product, ...]

    @property
    def reads_shared(self) -> bool:
        """Does it read both operands where they lie in shared memory?  Else threads load them first."""
        return "shared" in self.a_from & self.b_from

    @property
    def is_async(self) -> bool:
        return self.completes != "in order"

    @property
    def is_scalar(self) -> bool:
        """Does a thread multiply two numbers with an instruction?"""
        return self.threads == 1

    def product(
        self, a: str, b: str, accumulator: str, scale: str = "", ieee: bool = False
    ) -> Product | None:
        """What it makes of operands of these dtypes; None where it can't multiply them."""
        asked = a, b, accumulator, scale, ieee
        return next(
            (p for p in self.products if (p.a, p.b, p.accumulator, p.scale, p.ieee) == asked), None
        )

    def k_step(self, bits: int) -> int:
        """Elements of K that one instruction takes of operands this wide."""
        return self.k_bytes * 8 // bits

    def accumulator_registers(self, n: int) -> int:
        """Registers a thread of an instruction's accumulator of n columns (32 bits an element)."""
        return self.m * n // self.threads

    def takes_columns(self, n: int) -> bool:
        """Do instructions take n columns?  Asynchronous ones as one each, others one after the other."""
        return n % self.n_step == 0 and (n <= self.n_max or not self.is_async)

    def takes(self, m: int, n: int, threads: int, in_part: bool = False) -> bool:
        """Does it take a product of m × n whose threads share the rows and columns?  What completes later is
        issued by all of them at once.  in_part: also one that fills a part of each instruction, where
        threads hold the fragments."""
        whole = self.fills(m, n) or (in_part and not self.is_async)
        return self.is_shared_by(threads) and whole

    def is_shared_by(self, threads: int) -> bool:
        """Do so many threads execute its instructions?"""
        return threads == self.threads if self.is_async else threads % self.threads == 0

    def fills(self, m: int, n: int) -> bool:
        """Is a product of m × n made of whole instructions?"""
        return m % self.m == 0 and self.takes_columns(n)

    def part(self, m: int, n: int) -> tuple[int, int]:
        """The rows and columns that a product of m × n fills of each instruction."""
        return gcd(m, self.m), gcd(n, self.n_step)

    def instructions(self, m: int, n: int) -> int:
        """How many a step of K of such a product takes."""
        rows, columns = self.part(m, n)
        return m // rows * (n // columns)

    @property
    def rows(self) -> str:
        """For messages: what rows it takes."""
        return f"{self.instruction} takes multiples of {self.m}"

    @property
    def columns(self) -> str:
        """For messages: what columns it takes."""
        most = f" up to {self.n_max}" if self.is_async else ""
        return f"{self.instruction} takes multiples of {self.n_step}{most}"

    def code(self, axis: Literal["m", "n", "k"]) -> str:
        """The code of errors of products whose M, N or K it does not take: "mma-m"."""
        return f"{self.instruction.partition('.')[0]}-{axis}"


# ---- copies, synchronisation, registers


@dataclass(frozen=True)
class CopyEngine:
    """A way from global to shared memory beside the threads.

    moves: "boxes" of a tensor, which one thread asks for, or "pieces" of `pieces` bytes, one an instruction
    of every thread.  completes: how it tells threads that bytes of their own copies have arrived, at an
    "mbarrier" or by "group" (others hear of it at mbarriers in either case).
    stores: does it copy back to global memory?  multicast: into several CTAs of a cluster at once?
    box_limit: elements along one axis of an instruction's box.  writes_maps: may kernels write its
    descriptors?"""

    instruction: str
    moves: Literal["boxes", "pieces"]
    completes: Literal["mbarrier", "group"]
    pieces: tuple[int, ...] = ()
    stores: bool = False
    multicast: bool = False
    box_limit: int = 0
    writes_maps: bool = False


@dataclass(frozen=True)
class Sync:
    """How threads of a CTA wait for each other and for engines.

    barriers: what signals between tasks are made of: "mbarrier", objects in shared memory that the hardware
    waits at, that engines complete and that count bytes; or "counter", words in shared memory that threads
    add to and poll, and no engine completes.  A counter's phase is over when it has grown by a phase's count,
    so that parities tell its phases apart as those of an mbarrier.  barrier_bytes: of one, and its alignment.
    named_barriers: of a CTA, 0 where there are none.  cluster_ctas: CTAs that reach each other's shared
    memory, at most.  async_proxy: do engines see shared memory through a proxy of their own, which a fence
    orders with the threads'?"""

    barriers: Literal["mbarrier", "counter"]
    barrier_bytes: int
    named_barriers: int
    cluster_ctas: int
    async_proxy: bool


@dataclass(frozen=True)
class ProducerRegisters:
    """What a thread of a producer gets, and the least that it manages with where consumers need more."""

    usual: int
    least: int


@dataclass(frozen=True)
class Registers:
    """Registers of 32 bits, and what tasks were found to need of them.

    unit: what a thread is given is a multiple.  reallocation: (least, most, unit) of what warps may change
    theirs to while they run; None where they keep what they were launched with.

    Measured with the assembler of this target, without spills: producers, by the work of a producer (the
    lightest first: `schedule/resources.py` says what each does); reserve: what a consumer takes beside the
    tiles that it holds (addresses, slots, phases, loops), reserve_of_pieces: of a main task that holds pieces
    on their way to a slot as well, reserve_of_ping_pong: more, of a group that takes whole tiles in turn,
    and so holds where its next one begins; least_reserve: with less it certainly spills.
    instruction_reserve: what the accumulators of one instruction must leave of the registers that a
    kernel is launched with."""

    per_sm: int
    per_thread: int
    unit: int
    reallocation: tuple[int, int, int] | None
    producers: Mapping[str, ProducerRegisters] = field(hash=False)
    reserve: int
    reserve_of_pieces: int
    reserve_of_ping_pong: int
    least_reserve: int
    instruction_reserve: int


@dataclass(frozen=True)
class SharedMemory:
    """per_cta: what a CTA may use.  reserved: what each resident CTA takes of `per_sm` beside its own.
    stores_matrices: may a warp store 8 × 8 matrices of 16 bits at once (PTX ISA, "stmatrix")?"""

    per_cta: int
    per_sm: int
    reserved: int
    stores_matrices: bool


@dataclass(frozen=True)
class Grid:
    """Limits of a launch: CTAs along each axis, warps of a CTA, threads resident on a multiprocessor.
    dependent: may it start before the kernel ahead of it has ended?"""

    ctas: tuple[int, int, int]
    warps: int
    threads_per_sm: int
    dependent: bool


# ---- costs


@dataclass(frozen=True)
class CostTable:
    """One chip's numbers: rates a cycle and SM, latencies in cycles.

    tensor_macs_16bit: multiply-adds of f16 or bf16; in_order_macs_16bit: of units that complete in order.
    mma_least: cycles of an instruction, however small.
    tensor_latency: from the last of them to a result.  tma_bytes, tma_latency: how fast boxes arrive, how
    long after; store_read, store_written: how long after its bytes have gone a store has read its source,
    and written.  sync: an arrival, an issue, a wait that finds nothing to wait for.  wake: from what a wait
    waits for to the next instruction.  barrier: of a warp group.

    What forms of a kernel are weighed by (schedule/forms.py): start, from a program's launch until its first
    operands are there; handover, what tasks cost it more; uniform_step, what a step takes a uniform program's
    group beside arithmetic; store_bytes, how fast results leave.  What short grids are weighed by
    (schedule/split_k.py): own_bytes, how fast boxes arrive that no other SM loads; memory_bytes, what all
    SMs together get of memory; cluster, what CTAs take to begin as a cluster and to meet in it; meeting, what
    they take to meet in memory, parts_bytes, how fast what they leave there is to be seen by others.
    """

    tensor_macs_16bit: float
    in_order_macs_16bit: float
    mma_least: float
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
    uniform_step: float
    store_bytes: float
    own_bytes: float
    memory_bytes: float
    cluster: float
    meeting: float
    parts_bytes: float

    def transfer(self, size: float) -> float:
        """Cycles that TMA (or cp.async) takes to move `size` bytes, without the latency."""
        return size / self.tma_bytes


# ---- the chip


@dataclass(frozen=True)
class Target:
    """One architecture.

    name: as NVRTC's -arch wants it ("sm_90a").  chips: that have it.  capabilities: of devices that run it.
    warp_size: threads.  warp_group: warps that compute together: that multiply with one instruction, and that
    registers are reallocated for.  converts: 8-bit floats that an instruction converts.  emits: the language
    that kernels for it are emitted in; None: they are only simulated.  matrix_units, copy_engines: the
    preferred one first.  entry_limit: registers a thread that a launch is to have at most."""

    name: str
    chips: tuple[str, ...]
    capabilities: tuple[tuple[int, int], ...]
    multiprocessors: int
    warp_size: int
    warp_group: int
    registers: Registers
    shared: SharedMemory
    grid: Grid
    matrix_units: tuple[MatrixUnit, ...]
    copy_engines: tuple[CopyEngine, ...]
    sync: Sync
    cost: CostTable
    converts: frozenset[str] = frozenset({"f8e4m3", "f8e5m2"})
    emits: Literal["cuda"] | None = "cuda"
    entry_limit: int | None = None

    @property
    def group_threads(self) -> int:
        """Threads of a warp group."""
        return self.warp_size * self.warp_group

    def warps_together(self, warps: int) -> int:
        """How many of a program's warps share a dot, or a part of one: the greatest common divisor with a
        warp group's, so that groups of them make up the program."""
        return gcd(warps, self.warp_group)

    @property
    def shared_bytes(self) -> int:
        """Shared memory that one CTA may use."""
        return self.shared.per_cta

    def matrix_unit(self, a: str = "", b: str = "", accumulator: str = "") -> MatrixUnit:
        """The preferred unit for operands of these dtypes (by name); of none, where nobody multiplies them or
        none are given, the preferred unit."""
        for unit in self.matrix_units:
            if unit.product(a, b, accumulator):
                return unit
        return self.matrix_units[0]

    def unit_of(self, instruction: str) -> MatrixUnit | None:
        """The unit with this instruction; None where the target has none."""
        return next((u for u in self.matrix_units if u.instruction == instruction), None)

    def copy_engine(self, moves: Literal["boxes", "pieces"]) -> CopyEngine | None:
        """The engine that moves these; None where threads do it."""
        return next((e for e in self.copy_engines if e.moves == moves), None)

    @property
    def writes_maps(self) -> bool:
        """May kernels write descriptors of the engine that moves boxes?"""
        engine = self.copy_engine("boxes")
        return engine is not None and engine.writes_maps

    @property
    def box_limit(self) -> int:
        """Elements along one axis of a box that an engine moves; 0 where none moves boxes."""
        engine = self.copy_engine("boxes")
        return engine.box_limit if engine else 0

    @property
    def pieces(self) -> tuple[int, ...]:
        """Bytes that an engine copies at once for each thread; none where there is no such engine."""
        engine = self.copy_engine("pieces")
        return engine.pieces if engine else ()

    def part(self, n: int) -> Target:
        """What one of n CTAs has that share a multiprocessor."""
        shared = self.shared.per_sm // n
        of_cta = min(self.shared.per_cta, shared - self.shared.reserved)
        return replace(
            self,
            shared=replace(self.shared, per_cta=of_cta, per_sm=shared),
            registers=replace(self.registers, per_sm=self.registers.per_sm // n),
            grid=replace(self.grid, threads_per_sm=self.grid.threads_per_sm // n),
        )

    def resident(self, threads: int, registers: int, shared: int) -> int:
        """How many CTAs of so many threads, registers a thread (1: they are not known) and bytes of shared
        memory share a multiprocessor."""
        each = -(-max(registers, 1) // self.registers.unit) * self.registers.unit
        return min(
            self.shared.per_sm // (shared + self.shared.reserved),
            self.registers.per_sm // (threads * each),
            self.grid.threads_per_sm // threads,
        )

    def limited(self, registers: int | None) -> Target:
        """The same for launches with so many registers a thread at most (None: with what there are)."""
        return replace(self, entry_limit=registers)

    def without_boxes(self) -> Target:
        """The same without an engine that moves boxes."""
        return replace(self, copy_engines=tuple(e for e in self.copy_engines if e.moves != "boxes"))

    def multiplying_by(self, instruction: str | None) -> Target:
        """The same with this matrix unit, and what threads multiply themselves, alone (None: with all that
        there are)."""
        units = tuple(
            u for u in self.matrix_units if instruction in (None, u.instruction) or u.is_scalar
        )
        return replace(self, matrix_units=units)

    def entry_registers(self, threads: int) -> int:
        """Registers a thread that a CTA of so many threads is launched with: the file divided evenly, in
        whole units, never more than a thread can address or `entry_limit`."""
        r = self.registers
        most = min(r.per_thread, self.entry_limit or r.per_thread)
        return max(r.unit, min(r.per_sm // threads, most) // r.unit * r.unit)

    def mma_cycles(
        self, m: int, n: int, k: int, bits: int, unit: MatrixUnit | None = None
    ) -> float:
        """Cycles of a matrix unit, by default the preferred one, for an m×n×k product of `bits`-wide
        operands."""
        unit, cost = unit or self.matrix_unit(), self.cost
        if unit.is_scalar:
            return m * n * k / cost.alu_lanes
        if not unit.is_async:
            macs = unit.instructions(m, n) * unit.m * unit.n_step * k
            return macs * bits / (16 * cost.in_order_macs_16bit)
        step = unit.k_step(bits)
        rate = cost.tensor_macs_16bit * 16 / bits
        one = max(unit.m * n * step / rate, cost.mma_least)
        return one * (m / unit.m) * (k / step)
