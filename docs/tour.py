"""A tour of Warploom: one matrix product, from Triton-style source to CUDA, a level at a time.

    python docs/tour.py      # prints the program at each level; needs no GPU

Read it from top to bottom; it is the first thing to read.  A line that begins with `# |` is printed
by the code above it ("…" stands for what is left out).  `tests/unit/test_tour.py` runs this file
and holds that it is so.

What the compiler is for.  A multiprocessor (SM) of Hopper has engines that work by themselves: the
tensor memory accelerator (TMA) copies boxes of an array into shared memory, the tensor cores
multiply matrices that lie there (instruction wgmma).  A kernel is fast if both are busy all the
time.  A *warp-specialized* kernel gives each of them warps of its own: a *producer* that only
loads, and *consumers* that only multiply and store.  Between them is a ring of buffers in shared
memory, and barriers (mbarriers) that say which buffer is full and which is empty. By hand, that is
hard to write and easy to get wrong.  Warploom derives it from a sequential program.
"""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np

import warploom as wl
import warploom.language as tl
from warploom.ir.parser import parse_func
from warploom.sim.machine import simulate
from warploom.sim.report import SimError


def show(title: str, text: str) -> None:
    """Prints a title and the text; long lines are cut."""
    print(f"\n== {title}")
    for line in text.splitlines():
        print(line if len(line) <= 110 else f"{line[:109]}…")


def loops(text: str) -> str:
    """Of a function's text only its loops over tiles: the part that takes the time."""
    lines, kept, indent = text.splitlines(), [], ""
    for line in lines:
        if not indent and re.search(r"= for\(", line):
            indent = re.match(" *", line)[0] + "}"
        if indent:
            kept.append(line)
        if line == indent:
            indent = ""
    return "\n".join(kept)


# ---- 1. The program
#
# One program computes one tile of C = A·Bᵀ.  It is sequential: load, multiply, add, store.  Nothing
# in it says which warp does what, where buffers lie, or who waits for whom.


@wl.jit
def matmul(a_ptr, b_ptr, c_ptr, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(0, K, BK):
        k = step + tl.arange(0, BK)
        a = tl.load(a_ptr + m[:, None] * K + k[None, :])
        b = tl.load(b_ptr + k[:, None] + n[None, :] * K)
        acc = tl.dot(a, b, acc)
    tl.store(c_ptr + m[:, None] * N + n[None, :], acc.to(tl.bfloat16))


M, N, K = 128, 128, 256
random = np.random.default_rng(0)
a = random.integers(-4, 5, (M, K)).astype(ml_dtypes.bfloat16)
b = random.integers(-4, 5, (N, K)).astype(ml_dtypes.bfloat16)
c = np.zeros((M, N), ml_dtypes.bfloat16)
arguments = (a, b, c, N, K)
tiles = {"BM": 128, "BN": 128, "BK": 64}

# Two knobs are set, so that the rest of the tour has known numbers.  Without them the compiler
# chooses.
compiled = matmul.compile_for(
    *arguments, grid=(1, 1), **tiles, num_consumer_groups=2, num_buffers_warp_spec=3
)

# ---- 2. TILE: one sequential program over tiles
#
# The compiler has one IR, with five levels.  At TILE it says what the source says.  One thing has
# already been found out: the tiles of pointers are *boxes* of arrays, which a TMA can load.  The
# pass recover_boxes (warploom/passes/tile) proves that from the arithmetic of the pointers.

show("TILE", loops(compiled.ir["TILE"]))

# | == TILE
# |     %a = load_box(…) {shape=(128, 64)} …
# |     %b = load_box(…) {shape=(64, 128)} …
# |     %acc_3 = dot(%a, %b, %acc_2) …

# ---- 3. The schedule: decisions, as data
#
# warploom/schedule looks at the TILE program and decides; the passes after it only apply what was
# decided.  So every decision can be printed, with its reason, and changed.

show(
    "schedule",
    "\n".join(f"{r.subject}: {r.decision}, because {r.because}" for r in compiled.schedule.reasons),
)

# | == schedule
# | kernel: specialized, because loop0/load0, loop0/load1 feed dots in a loop: …
# | kernel: M split over 2 groups, because each part fills whole instructions …
# | loop0/load0: filled by tma, because … multiples of 16 bytes, …
# | a_b: 3 slots of 32768 bytes, because num_buffers_warp_spec

assert [(task.name, task.replicas) for task in compiled.schedule.tasks] == [
    ("consumer", 2),
    ("producer", 1),
]

# ---- 4. TASK: each op knows who runs it
#
# A *task* is what one kind of warp does.  The producer gets the loads, the consumer the dot and the
# store; both need the loop.  There are two consumers (replicas): each has half of the rows, so a
# dot is 64×128 here.

show("TASK", loops(compiled.ir["TASK"]))

# | == TASK
# |     %a = load_box(…) … @{producer} : tile<128x64xbf16>
# |     %b = load_box(…) … @{producer} : tile<64x128xbf16>
# |     %a_1 = slice_block(%a, %replica, …) {shape=(64, 64)} @{consumer} …
# |     %acc_3 = dot(%a_1, %b, %acc_2) … @{consumer} : tile<64x128xf32>

# ---- 5. CHANNEL: what crosses from task to task goes through a ring
#
# A and B are made by one task and read by another.  A *channel* carries them: a ring of three
# slots.  Four ops use it, as in every producer-consumer ring: the producer acquires an empty slot
# and commits it when it is full; the consumer waits for a full slot and releases it.  Slot and
# phase say where in the ring each task is.

show("CHANNEL", loops(compiled.ir["CHANNEL"]))

# | == CHANNEL
# |     producer_acquire(%a_b, %slot_1, %phase_1) @{producer}
# |     produce(%a_b, %slot_1, …) {item=0} … @{producer}
# |     produce(%a_b, %slot_1, …) {item=1} … @{producer}
# |     producer_commit(%a_b, %slot_1) @{producer}
# |     consumer_wait(%a_b, %slot_1, %phase_1) @{consumer}
# |     %a = take(%a_b, %slot_1) {item=0} @{consumer} …
# |     consumer_release(%a_b, %slot_1) @{consumer}

# ---- 6. WARP: a program for each task
#
# The one loop becomes two, which run at the same time.  Channels become mbarriers: `full` and
# `empty`, one of each a slot.  Loads become TMA, dots become wgmma.  The consumer keeps one wgmma
# in flight: it releases the slot of the step before while the tensor cores work on this one
# (expand_pipeline).

show("WARP", loops(compiled.ir["WARP"]))

# | == WARP
# |       mbarrier_wait(%full, %slot_1, %phase_1)
# |       wgmma_fence()
# |       %acc_3 = wgmma(%a_1, %b, %acc_2, %started) …
# |       wgmma_commit()
# |       wgmma_wait() {pending=1}
# |         mbarrier_arrive(%empty, %previous) {by="warp"}
# |         mbarrier_wait(%empty, %slot_1, %free)
# |         mbarrier_expect(%full, %slot_1) {bytes=32768}
# |         tma_load(%a_map, %a_slot, %full, %slot_1, …)
# |         tma_load(%b_map, %b_slot, %full, %slot_1, …)

# ---- 7. PLACED: where everything lies
#
# Every tile in registers has a *layout*: which thread holds which element.  Every buffer and
# barrier has its byte in shared memory.  Nothing is left to decide.

show("PLACED", "\n".join(line for line in compiled.ir["PLACED"].splitlines() if "_alloc" in line))

# | == PLACED
# |   %a_smem = shared_alloc() {name="a", lead=(3,), shape=(128, 64), dtype=bf16, inner=1, …
# |   %full = mbarrier_alloc() {name="full", n=3, count=1, offset=…} : mbarriers<3>
# |   %empty = mbarrier_alloc() {name="empty", n=3, count=8, offset=…} : mbarriers<3>

# ---- 8. CUDA C++
#
# Code generation spells.  The text is meant to be read: it has the user's names and source
# lines.

kernel = compiled.cuda.splitlines()
main = next(i for i, line in enumerate(kernel) if re.match(r"\s+for \(", line) and "K" in line)
show("CUDA, the consumer's loop", "\n".join(kernel[main : main + 20]))

# | == CUDA, the consumer's loop
# | for (int step = 0; step < K; step += 64) {
# |       // tour.py:…
# |       mbarrier_wait(full + 8 * slot, phase);
# |       wgmma_fence();
# |       wgmma_m64n128k16_bf16_kk_x4(acc, started,
# |       wgmma_commit();

# ---- 9. It runs, without a GPU
#
# The simulator runs the PLACED program with the hardware's asynchrony: TMA, mbarriers and wgmma
# finish when they like, in an order that a seed chooses.  On integers the result is exact, so it
# has to be equal bit for bit.

report = compiled.simulate(*arguments, grid=(1, 1), seed=1)
exact = (a.astype(np.float64) @ b.astype(np.float64).T).astype(ml_dtypes.bfloat16)
assert (c == exact).all()
show("simulated", f"{report.programs} program, equal to NumPy's product")

# | == simulated
# | 1 program, equal to NumPy's product

# ---- 10. It is right in every order, or it is refused
#
# A simulation is one order of events.  The checker decides for all of them: no deadlock, and no
# race on shared memory.  A kernel written by hand is checked before its first launch, too
# (docs/checker.md).

show("checked", str(compiled.check()))

# | == checked
# | matmul: proved: no deadlock, and no race on shared memory, in any order of events, …

# A bug shows.  Without the wait for the wgmma of the step before, the consumer releases a slot that
# the tensor cores still read, and the producer's next TMA writes over it:

assert "wgmma_wait() {pending=1}\n" in compiled.ir["PLACED"]
broken = parse_func(compiled.ir["PLACED"].replace("wgmma_wait() {pending=1}\n", "\n"))
try:
    simulate(broken, arguments, (1, 1, 1))
except SimError as error:
    show("broken", str(error))

# | == broken
# | error[race]: consumer[…] (step=0): wgmma of a[0] … is not ordered before tma_load of a[0] by produ…
# | help: a wgmma reads until its group is waited for: …

# ---- Where to go from here
#
#   warploom/passes/pipeline.py    the ordered list of passes
#   docs/architecture.md           how the parts hang together
#   docs/lessons/                  the same product by hand, in nine measured steps
#   docs/performance.md            how fast it is, why, and how that was measured
#   docs/knobs.md                  what can be asked of the compiler
