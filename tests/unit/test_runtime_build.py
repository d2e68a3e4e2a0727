"""How many CTAs of a multiprocessor ptxas is told: what is asked, and which answer is taken."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

import warploom as wl
import warploom.language as tl
from tests.unit.codegen_kernels import kernel, placed
from warploom.analysis.occupancy import OpenOccupancy, given_ctas, open_occupancy
from warploom.codegen.emit import emit
from warploom.runtime.build import (
    BESIDE,
    ENOUGH_THREADS,
    FEWEST_REGISTERS,
    FEWEST_THREADS,
    HOPELESS_SPILLS,
    LONG,
    PER_SPILL,
    Search,
    are_few,
    best_occupancy,
)
from warploom.runtime.compiled import CompiledKernel
from warploom.runtime.nvrtc import Build
from warploom.schedule.model import TaskPlan
from warploom.schedule.resources import Headroom
from warploom.target import SM_90A

LIMIT = SM_90A.registers.per_sm


def build(registers: int, spills: int = 0) -> Build:
    return Build("k", b"", "", registers, spills, 0, 0, 0, (), 1.0, "none", "", 0.5)


def asked(
    first: Build, streams: bool = False, threads: int = 128, dots: bool = False, held: int = 0
) -> list[int]:
    """The numbers of CTAs that are asked for, where all spill."""
    seen: list[int] = []

    def again(ctas: int) -> Build:
        seen.append(ctas)
        return build(8, 8)

    best_occupancy(first, OpenOccupancy(threads, streams, dots, held=held), SM_90A, again)
    return seen


@pytest.mark.parametrize("registers", [80, 56, 41])
def test_as_many_as_the_registers_allow_and_one_more(registers: int) -> None:
    fit = LIMIT // (-(-registers // 8) * 8 * 128)
    one_more = LIMIT // ((fit + 1) * 128) // 8 * 8 >= FEWEST_REGISTERS
    assert asked(build(registers)) == [*([fit + 1] if one_more else []), fit]


def test_nothing_where_all_threads_fit() -> None:
    assert asked(build(32)) == asked(build(8)) == []
    assert asked(build(32, spills=4)) == [16, 8]  # it spilled to get there


def test_loops_that_only_load_get_enough_threads() -> None:
    assert asked(build(56), streams=True) == [ENOUGH_THREADS // 128]
    assert asked(build(200), streams=True) == [2]  # no more fit
    # What a step loads stays on its way at once: 96 registers; at the end FEWEST_THREADS remain.
    assert asked(build(56), streams=True, held=80) == [5]
    assert asked(build(56), streams=True, held=200) == [FEWEST_THREADS // 128]


@pytest.mark.parametrize(
    ("threads", "streams", "found", "chosen"),
    [
        (256, True, {3: build(71), 4: build(64)}, 4),  # seven registers for a fourth program
        (256, True, {3: build(71), 4: build(64, 8)}, 3),
        (256, True, {3: build(80)}, 3),  # a fifth of all
        (256, True, {3: build(64)}, 3),  # four fit
        (128, True, {6: build(72)}, 6),  # seven fit: an eighth is not worth a build
        (1024, False, {1: build(48), 2: build(32, 4)}, 2),  # a second one, for a word that spills
        (1024, False, {1: build(48), 2: build(32, 80)}, 1),
        (1024, False, {1: build(60)}, 1),  # nearly half of all
        (1024, True, {1: build(48)}, 1),  # its loads are on their way while others are used
    ],
)
def test_more_programs_where_they_cost_few_registers(
    threads: int, streams: bool, found: dict[int, Build], chosen: int
) -> None:
    question = OpenOccupancy(threads, streams)
    first = build(next(iter(found.values())).registers)
    ctas, _ = best_occupancy(first, question, SM_90A, found.__getitem__)
    assert ctas == chosen


def test_all_threads_for_few_registers() -> None:
    """Without loops as well: 16 programs of 128 threads have 32 registers, 12 had 35."""
    found = {12: build(35), 16: build(32)}
    ctas, _ = best_occupancy(build(36), OpenOccupancy(128, False), SM_90A, found.__getitem__)
    assert ctas == 16


def test_no_build_is_made_twice() -> None:
    """A second program was asked for first, and spilled; it is asked about again where one has it all."""
    seen: list[int] = []

    def again(ctas: int) -> Build:
        seen.append(ctas)
        return {1: build(166), 2: build(128, 80)}[ctas]

    ctas, best = best_occupancy(build(168), OpenOccupancy(256, False), SM_90A, again)
    assert (ctas, best.builds, seen) == (1, 3, [2, 1])


def test_a_hopeless_build_with_all_registers_is_the_last() -> None:
    most = SM_90A.registers.per_thread
    assert asked(build(most, HOPELESS_SPILLS + 4), threads=32) == []
    assert asked(build(most - 55, HOPELESS_SPILLS + 4), threads=32) == [5]


@pytest.mark.parametrize(
    ("held", "wanted"), [(0, [4, 3]), (40, [4, 3]), (60, [3]), (68, [2]), (200, [2])]
)
def test_steps_that_load_keep_their_loads_together(held: int, wanted: list[int]) -> None:
    """No more programs than have the registers of what a step loads, while 512 threads remain."""
    seen: list[int] = []

    def again(ctas: int) -> Build:
        seen.append(ctas)
        return build(8, 8)

    best_occupancy(build(76), OpenOccupancy(256, False, steps=True, held=held), SM_90A, again)
    assert seen == wanted


@wl.jit
def steps(x, y, n, BLOCK: tl.constexpr):
    """In place, from the end of the block before: threads meet between storing and loading."""
    at = tl.arange(0, BLOCK)
    for start in range(BLOCK, n, BLOCK):
        last = tl.load(x + start - 1)
        v = tl.load(x + start + at) + tl.load(y + start + at)
        tl.store(x + start + at, v + last)


def test_what_steps_load_is_estimated() -> None:
    made: CompiledKernel = steps.compile(
        ["*fp32:16", "*fp32:16", "i32:16"], {"BLOCK": 8192}, num_warps=8
    )
    question = open_occupancy(made.placed, SM_90A)
    assert question is not None and question.steps
    (told,) = re.findall(r"__launch_bounds__\(THREADS, (\d+)\)", made.cuda)
    assert int(told) * (2 * 32 + BESIDE) * 256 <= LIMIT


def test_dots_are_asked_for_where_registers_are_left() -> None:
    assert asked(build(200), dots=True) == asked(build(255, spills=400), dots=True) == []
    assert asked(build(32, spills=30_000), threads=64, dots=True) == [4]  # of 255 registers
    assert asked(build(96, spills=80), threads=256, dots=True) == [1]


@pytest.mark.parametrize(
    ("spills", "chosen"),
    [
        ({None: 76, 10: 80, 9: 0}, 9),
        ({None: 76, 10: 40, 9: 8, 4: 8}, 9),
        ({None: 76, 10: 0, 9: 0}, 10),
        ({None: 76, 10: 80, 9: 76, 4: 0}, 4),
        ({None: 4, 10: 80, 9: 8, 4: 8}, None),
        ({None: 0, 10: 80, 9: 0}, 9),
        ({None: HOPELESS_SPILLS + 1, 4: 400}, 4),  # one more, with the most registers
        ({None: HOPELESS_SPILLS + 1, 4: 60_000}, None),
    ],
)
def test_the_one_that_spills_least(spills: dict[int | None, int], chosen: int | None) -> None:
    def again(ctas: int) -> Build:
        return build(56, spills[ctas])

    first = build(56, spills[None])
    ctas, best = best_occupancy(first, OpenOccupancy(128, False), SM_90A, again)
    assert ctas == chosen and best.spill_bytes == spills[chosen]
    assert best.builds == best.seconds == 2 * best.cpu_seconds <= len(spills)


def test_few_spills_of_a_long_text_are_let_be() -> None:
    """Another schedule would take NVRTC seconds, for accesses of which there is one in three hundred statements."""
    assert are_few(0, 10) and are_few(4 * LONG // PER_SPILL, LONG)
    assert not are_few(4 * LONG // PER_SPILL + 4, LONG)
    assert not are_few(4, LONG - 1)


def test_no_third_schedule_of_texts_that_take_long() -> None:
    """It takes as long as the first one."""
    search = Search(statements=2 * LONG, known={"first"})
    assert not search.is_over()
    search.known.add("second")
    assert search.is_over() and search.stopped == "4,000 statements were compiled"
    assert not Search(statements=2 * LONG - 1, known={"first", "second"}).is_over()


@wl.jit
def statistics(x, out, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + row * n + at, mask=at < n, other=0.0)
    v = tl.exp(v - tl.max(v, 0))
    tl.store(out + row * n + at, v / tl.sum(v, 0), mask=at < n)


def test_a_kernel_is_built_for_what_its_registers_allow() -> None:
    """The text that a user sees is the one that was compiled."""
    made: CompiledKernel = statistics.compile(
        ["*fp32:16", "*fp32:16", "i32:16"], {"BLOCK": 4096}, num_warps=4
    )
    question = open_occupancy(made.placed, SM_90A)
    assert question == OpenOccupancy(128, streams=False)
    assert "__launch_bounds__(THREADS)" in emit(made.placed, SM_90A).source
    (told,) = re.findall(r"__launch_bounds__\(THREADS, (\d+)\)", made.cuda)
    assert made.resources.builds > 1
    assert f".minnctapersm {told}" in made.ptx
    assert not re.search(r"#if|#define (?!DEV)", made.cuda[made.cuda.index("// ---- the kernel") :])


def test_what_is_told_is_not_asked() -> None:
    func = placed(kernel("%p: ptr<f32>", "  %x = const() {value=0, dtype=i32}"))
    assert given_ctas(func, SM_90A) is None and open_occupancy(func, SM_90A)
    for attrs in ({"ctas_per_sm": 3}, {"shared_bytes": 200 * 1024}):
        told = func.with_(attrs={**func.attrs, **attrs})
        assert open_occupancy(told, SM_90A) is None
        ctas = attrs.get("ctas_per_sm", 1)
        assert f"__launch_bounds__(THREADS, {ctas})" in emit(told, SM_90A).source
    phase = func.body.ops[-2]
    trading = phase.with_(attrs={**phase.attrs, "registers": (168,)})
    body = replace(func.body, ops=(*func.body.ops[:-2], trading, func.body.ops[-1]))
    assert given_ctas(func.with_(body=body), SM_90A) == 1


def test_headroom_for_tasks_that_there_are() -> None:
    """Else a schedule would be chosen again for each, which takes as long as a small kernel's whole compilation."""
    consumer = TaskPlan("consumer", "consumer", 4, 1, None)
    producer = TaskPlan("producer", "producer", 4, 1, None)
    transposing = TaskPlan("transpose", "transpose", 4, 1, 96)
    fixed, given = (consumer, producer), (replace(consumer, registers=240), producer)
    for_producer, for_transposes = Headroom(producer=32), Headroom(transpose=8)
    assert for_producer.gives_nothing(fixed) and not for_producer.gives_nothing(given)
    assert for_transposes.gives_nothing(given)
    assert not for_transposes.gives_nothing((*given, transposing))
    assert not Headroom(producer=32, consumer=72).gives_nothing(fixed)
    assert not Headroom(few_registers=True).gives_nothing(fixed)


@wl.jit
def gathered_product(
    x, w, out, signs, N, scale, width, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    """A 3 x 3 convolution, channels last: a producer gathers rows of x from nine places each, masked."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    column, row, image = m % width, m // width % 64, m // width // 64
    n = tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for step in range(9):
        h, v = row + step // 3 - 1, column + step % 3 - 1
        k = tl.arange(0, BK)
        inside = (image < N) & (h >= 0) & (h < 64) & (v >= 0) & (v < width)
        places = image * 4096 * width + h * 64 * width + v * 64
        a = tl.load(x + places[:, None] + k[None, :], inside[:, None] & (k < 64)[None, :], 0.0)
        b = tl.load(w + n[None, :] * 576 + k[:, None] + step // 3 * 192 + step % 3 * 64)
        acc += tl.dot(a, b)
    at = m[:, None] * 128 + n[None, :]
    y = tl.minimum(tl.maximum(acc, 0), 6) * scale
    mask = (image < N)[:, None] & (row < 64)[:, None] & (n < 128)[None, :]
    tl.store(out + at, y, mask)
    tl.store(signs + at, y <= 0, mask)


def test_a_producer_that_spills_a_little_gets_more_registers() -> None:
    meta = {"BM": 256, "BN": 128, "BK": 64}
    made: CompiledKernel = gathered_product.compile(
        ["*bf16:16", "*bf16:16", "*bf16:16", "*i1:16", "i32", "fp32", "i32"],
        meta,
        num_warps=8,
        num_stages=2,
    )
    assert any(t.registers for t in made.lowered.schedule.tasks)
    assert made.resources.spill_bytes == 0
