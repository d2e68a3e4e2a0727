"""Numbers that memory gives (drawn tiles, stop flags, work lists): run once, the same at every level."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import warploom as wl
import warploom.language as tl
from tests.e2e import road
from tests.eject.owned import owned, same_program
from tests.pairwise import diagonals
from warploom.errors import CompileError
from warploom.ir.core import Level, walk
from warploom.ir.ops import mma, smem, task, tile, tma
from warploom.runtime.compiled import CompiledKernel

pytestmark = pytest.mark.usefixtures("without_nvrtc")
BF16 = ml_dtypes.bfloat16
ORDERS = ("late", "early", "reverse")


@wl.jit
def product(a: Any, b: Any, c: Any, m: Any, n: Any, K: Any, BLOCK_K: tl.constexpr) -> None:
    """One tile of C = A·B by descriptors."""
    acc = tl.zeros((c.block_shape[0], c.block_shape[1]), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        acc = tl.dot(a.load([m, k]), b.load([k, n]), acc)
    c.store([m, n], acc.to(c.dtype))


@wl.jit
def drawn(
    a_ptr: Any, b_ptr: Any, c_ptr: Any, counter: Any, M: Any, N: Any, K: Any, lda: Any, ldb: Any,
    ldc: Any, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    HOW: tl.constexpr,
) -> None:  # fmt: skip
    """C = A·B by tiles drawn from a counter: at the iteration's end, at its beginning, or the first, too."""
    a = tl.make_tensor_descriptor(a_ptr, [M, K], [lda, 1], [BLOCK_M, BLOCK_K])
    b = tl.make_tensor_descriptor(b_ptr, [K, N], [ldb, 1], [BLOCK_K, BLOCK_N])
    c = tl.make_tensor_descriptor(c_ptr, [M, N], [ldc, 1], [BLOCK_M, BLOCK_N])
    columns = tl.cdiv(N, BLOCK_N)
    tiles = tl.cdiv(M, BLOCK_M) * columns
    t = tl.atomic_add(counter, 1).to(tl.int32) if HOW == "all" else tl.program_id(0)
    while t < tiles:
        if HOW == "begin":
            following = tl.atomic_add(counter, 1).to(tl.int32) + tl.num_programs(0)
        product(a, b, c, t // columns * BLOCK_M, t % columns * BLOCK_N, K, BLOCK_K)
        if HOW == "begin":
            t = following
        elif HOW == "end":
            t = tl.atomic_add(counter, 1).to(tl.int32) + tl.num_programs(0)
        else:
            t = tl.atomic_add(counter, 1).to(tl.int32)


@wl.jit
def listed(
    a_ptr: Any, b_ptr: Any, c_ptr: Any, work: Any, M: Any, N: Any, K: Any, lda: Any, ldb: Any,
    ldc: Any, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
) -> None:  # fmt: skip
    """Rows of tiles that a list names, up to an entry below 0; the condition of the loop reads it."""
    a = tl.make_tensor_descriptor(a_ptr, [M, K], [lda, 1], [BLOCK_M, BLOCK_K])
    b = tl.make_tensor_descriptor(b_ptr, [K, N], [ldb, 1], [BLOCK_K, BLOCK_N])
    c = tl.make_tensor_descriptor(c_ptr, [M, N], [ldc, 1], [BLOCK_M, BLOCK_N])
    at = work + tl.program_id(0)
    while tl.load(at, volatile=True) >= 0:
        row = tl.load(at, volatile=True)
        if row % 2 == 0:
            product(a, b, c, row * BLOCK_M, 0, K, BLOCK_K)
        at += tl.num_programs(0)


def matrices(m: int, n: int, k: int) -> list[Any]:
    rng = np.random.default_rng(m + n + k)
    a, b = (
        road.filled(rng.integers(-3, 4, shape).astype(np.float32), BF16)
        for shape in ((m, k), (k, n))
    )
    return [a, b, road.filled(np.zeros((m, n)), np.float32)]


def strides(*arrays: Any) -> list[int]:
    return [x.strides[0] // x.itemsize for x in arrays]


def drawing(m: int, n: int, k: int, counter: Any = np.int32) -> list[Any]:
    a, b, c = matrices(m, n, k)
    return [a, b, c, road.filled(np.zeros(1), counter), m, n, k, *strides(a, b, c)]


META = {"BLOCK_M": 128, "BLOCK_N": 64, "BLOCK_K": 64}
TWO = {**META, "num_consumer_groups": 2}


def kinds(compiled: CompiledKernel, level: Level = Level.WARP) -> list[str]:
    return [o.kind.name for o in walk(compiled.lowered.at(level).body)]


@pytest.mark.parametrize(
    ("how", "size"),
    diagonals(2, ["begin", "end", "all"], [(300, 100, 200), (1, 8, 0), (128, 64, 64)]),
)
@pytest.mark.each(2)
def test_drawn_tiles(how: str, size: tuple[int, int, int]) -> None:
    m, n, k = size
    args = drawing(m, n, k)
    compiled, expected = road.check_equal(drawn, args, 2, {**TWO, "HOW": how}, ORDERS, levels=True)
    np.testing.assert_array_equal(expected[2], args[0].astype(np.float32) @ args[1])
    tiles = -(-m // 128) * -(-n // 64)
    assert expected[3][0] == tiles + (2 if how == "all" else 0)
    assert compiled.schedule.specialized
    assert kinds(compiled).count("atomic") == (2 if how == "all" else 1)


@pytest.mark.parametrize("how", ["end", "all"])
@pytest.mark.each(2)
def test_it_is_proved(how: str) -> None:
    """For several tiles a program, too, and programs that draw from one counter in any order."""
    meta = {**TWO, "num_buffers_warp_spec": 1, "HOW": how}
    report = road.compile_for(drawn, drawing(300, 100, 200), 2, meta).check()
    assert report.ok and "together" in str(report), str(report)
    tiles = [n for run in report.runs for loop, n in run.trips.items() if "loop over t" in loop]
    assert {0, 1, 2, 3} <= {x for n in tiles for x in n}


@pytest.mark.parametrize("how", ["begin", "end"])
def test_the_number_is_asked_for_first_and_needed_last(how: str) -> None:
    """The producer draws before it loads and hands on behind; consumers take it behind their products."""
    compiled = road.compile_for(drawn, drawing(300, 100, 200), 2, {**TWO, "HOW": how})
    consumer, producer = next(
        o for o in compiled.lowered.at(Level.WARP).body.ops if o.kind is task.tasks
    ).regions
    order = [
        o.kind for o in walk(producer) if o.kind in (tile.atomic, tma.tma_load, smem.shared_put)
    ]
    assert order == [tile.atomic, tma.tma_load, tma.tma_load, smem.shared_put]
    order = [
        o.kind
        for o in walk(consumer)
        if o.kind in (mma.wgmma, smem.shared_get, tma.tma_store, tile.store_box)
    ]
    assert order[:2] == [mma.wgmma, smem.shared_get] and len(order) == 3


@pytest.mark.parametrize("counter", [np.int64, np.uint32])
def test_counters_of_other_types(counter: Any) -> None:
    road.check_equal(drawn, drawing(300, 100, 200, counter), 2, {**TWO, "HOW": "end"}, levels=True)


@pytest.mark.parametrize(
    "knobs",
    [
        {"num_consumer_groups": 1},
        {"num_consumer_groups": 2, "num_buffers_warp_spec": 1},
        {"num_consumer_groups": 0},
        {"num_consumer_groups": 0, "num_stages": 1},
        {"num_consumer_groups": 0, "num_warps": 8},
    ],
)
@pytest.mark.each(2)
def test_drawn_tiles_in_other_programs(knobs: dict[str, int]) -> None:
    road.check_equal(
        drawn, drawing(300, 100, 200), 2, {**META, **knobs, "HOW": "end"}, ORDERS, levels=True
    )


def test_a_producer_of_several_warps_shares_the_number() -> None:
    """Rows that are not aligned to 16 bytes: all threads of the producer load."""
    m, n, k = 300, 100, 201
    _, b, c = matrices(m, n, k)
    rows = np.random.default_rng(0).integers(-3, 4, (m, k)).astype(np.float32)
    a = road.filled(rows, BF16, pad=1)
    args = [a, b, c, road.filled(np.zeros(1), np.int32), m, n, k, *strides(a, b, c)]
    compiled, expected = road.check_equal(
        drawn, args, 2, {**TWO, "HOW": "end"}, ORDERS, levels=True
    )
    assert compiled.schedule.specialized
    np.testing.assert_array_equal(expected[2], a.astype(np.float32) @ args[1])
    assert kinds(compiled).count("shared_put") == 2  # for its own threads, and for the consumers


@pytest.mark.parametrize("knobs", [{"num_consumer_groups": 2}, {"num_consumer_groups": 0}])
def test_a_list_of_work(knobs: dict[str, int]) -> None:
    m, n, k = 700, 64, 100
    a, b, c = matrices(m, n, k)
    work = road.filled(np.array([4, 1, 0, 2, -1, -1]), np.int32)
    args = [a, b, c, work, m, n, k, *strides(a, b, c)]
    compiled, expected = road.check_equal(listed, args, 2, {**META, **knobs}, ORDERS, levels=True)
    whole = a.astype(np.float32) @ b
    for row in range(6):
        at = slice(row * 128, (row + 1) * 128)
        wanted = whole[at] if row in (0, 2, 4) else np.zeros_like(whole[at])
        np.testing.assert_array_equal(expected[2][at], wanted)
    assert compiled.schedule.specialized == bool(knobs["num_consumer_groups"])


def test_explain_tells_of_them() -> None:
    text = road.compile_for(drawn, drawing(300, 100, 200), 2, {**TWO, "HOW": "end"}).explain()
    assert "its number goes into ring atomic0 of 2 slots: producer → consumer" in text
    assert "done once, by the producer; the number crosses to the consumer" in text
    assert "filled by producer; read by consumer × 2" in text


def test_it_ejects_and_compiles_back(tmp_path: Path) -> None:
    compiled = road.compile_for(drawn, drawing(300, 100, 200), 2, {**TWO, "HOW": "end"})
    script, signature = owned(compiled.eject(), tmp_path, 2)
    same_program(compiled, script.compile(signature))


@wl.jit
def mixed(
    a_ptr: Any, b_ptr: Any, c_ptr: Any, counter: Any, M: Any, N: Any, K: Any, lda: Any, ldb: Any,
    ldc: Any, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
) -> None:  # fmt: skip
    """The counter's memory is stored by tiles as well."""
    a = tl.make_tensor_descriptor(a_ptr, [M, K], [lda, 1], [BLOCK_M, BLOCK_K])
    b = tl.make_tensor_descriptor(b_ptr, [K, N], [ldb, 1], [BLOCK_K, BLOCK_N])
    c = tl.make_tensor_descriptor(c_ptr, [M, N], [ldc, 1], [BLOCK_M, BLOCK_N])
    t = tl.program_id(0)
    while t * BLOCK_M < M:
        product(a, b, c, t * BLOCK_M, 0, K, BLOCK_K)
        tl.store(counter + 1 + tl.arange(0, 4), t)
        t = tl.atomic_add(counter, 1) + tl.num_programs(0)


def test_what_may_order_other_accesses_stays() -> None:
    """With the reason and the line; an error where strict."""
    a, b, c = matrices(300, 64, 64)
    args = [a, b, c, road.filled(np.zeros(5), np.int32), 300, 64, 64, *strides(a, b, c)]
    with pytest.warns(wl.WarploomWarning, match="accesses tiles of the same memory, counter"):
        compiled, _ = road.check_equal(mixed, args, 2, TWO, levels=True)
    assert not compiled.schedule.specialized
    with pytest.raises(CompileError, match="no-specialization") as e:
        road.compile_for(mixed, args, 2, {**TWO, "strict": True})
    assert "test_numbers.py" in str(e.value)


@wl.jit
def in_a_row(
    a_ptr: Any, b_ptr: Any, c_ptr: Any, counter: Any, M: Any, N: Any, K: Any, lda: Any, ldb: Any,
    ldc: Any, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
) -> None:  # fmt: skip
    """Even columns of tiles drawn from one counter, then odd ones from another, every third drawn number skipped;
    the order in which tiles come is written behind the counters."""
    a = tl.make_tensor_descriptor(a_ptr, [M, K], [lda, 1], [BLOCK_M, BLOCK_K])
    b = tl.make_tensor_descriptor(b_ptr, [K, N], [ldb, 1], [BLOCK_K, BLOCK_N])
    c = tl.make_tensor_descriptor(c_ptr, [M, N], [ldc, 1], [BLOCK_M, BLOCK_N])
    rows = tl.cdiv(M, BLOCK_M)
    t = tl.atomic_add(counter, 1)
    while t < rows * tl.cdiv(N, 2 * BLOCK_N):
        product(a, b, c, t % rows * BLOCK_M, t // rows * 2 * BLOCK_N, K, BLOCK_K)
        t = tl.atomic_add(counter, 1)
        if t % 3 == 1:
            t = tl.atomic_add(counter, 1)
    u = tl.program_id(0)
    while u < rows * (N // (2 * BLOCK_N)):
        place = tl.atomic_add(counter + 1, 1)
        product(a, b, c, u % rows * BLOCK_M, (u // rows * 2 + 1) * BLOCK_N, K, BLOCK_K)
        tl.store(counter + 2 + place, u)
        u += tl.num_programs(0)


@pytest.mark.parametrize(("k", "groups"), diagonals(2, [0, 64, 200], [2, 0]))
@pytest.mark.each(2)
def test_loops_in_a_row(k: int, groups: int) -> None:
    """Draws in an `if`, numbers that only stores need; loops of no iteration among them."""
    m, n = 300, 3 * 64
    args = drawing(m, n, k)
    args[3] = road.filled(np.zeros(16), np.int32)
    compiled, expected = road.check_equal(
        in_a_row, args, 1, {**META, "num_consumer_groups": groups}, ORDERS, levels=True
    )
    whole = args[0].astype(np.float32) @ args[1]
    skipped = {t for t in range(6) if t % 3 == 1}
    for t in range(6):
        at = slice(t % 3 * 128, t % 3 * 128 + 128), slice(t // 3 * 128, t // 3 * 128 + 64)
        wanted = np.zeros_like(whole[at]) if t in skipped else whole[at]
        np.testing.assert_array_equal(expected[2][at], wanted)
    assert expected[3][1] == 3 and list(expected[3][2:5]) == [0, 1, 2]
    assert compiled.schedule.specialized == bool(groups)


def test_clusters_have_no_numbers_yet() -> None:
    for kernel, args, more in (
        (drawn, drawing(300, 128, 64), {"HOW": "end"}),
        (listed, [*drawing(300, 128, 64)], {}),
    ):
        with pytest.raises(CompileError, match="the same number for all CTAs"):
            road.compile_for(kernel, args, 2, {**TWO, **more, "num_ctas": 2})


def test_transpose_warps_take_them_too() -> None:
    """8-bit B stored K by N is transposed by a task of its own, whose loop follows the drawn tiles as well."""
    rng = np.random.default_rng(0)
    a, b = (
        road.filled(rng.integers(-3, 4, shape).astype(np.float32), ml_dtypes.float8_e4m3fn)
        for shape in ((300, 256), (256, 128))
    )
    c = road.filled(np.zeros((300, 128)), np.float32)
    args = [a, b, c, road.filled(np.zeros(1), np.int32), 300, 128, 256, *strides(a, b, c)]
    compiled, expected = road.check_equal(
        drawn, args, 2, {**TWO, "HOW": "end"}, ORDERS[:2], levels=True
    )
    np.testing.assert_array_equal(expected[2], a.astype(np.float32) @ b.astype(np.float32))
    (numbers,) = (c for c in compiled.schedule.channels if "number" in c.via)
    assert numbers.consumers == ("consumer", "transpose")


@wl.jit
def noted(
    a_ptr: Any, b_ptr: Any, c_ptr: Any, counter: Any, M: Any, N: Any, K: Any, lda: Any, ldb: Any,
    ldc: Any, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
) -> None:  # fmt: skip
    """Which tile was last stands beside the counter."""
    a = tl.make_tensor_descriptor(a_ptr, [M, K], [lda, 1], [BLOCK_M, BLOCK_K])
    b = tl.make_tensor_descriptor(b_ptr, [K, N], [ldb, 1], [BLOCK_K, BLOCK_N])
    c = tl.make_tensor_descriptor(c_ptr, [M, N], [ldc, 1], [BLOCK_M, BLOCK_N])
    t = tl.program_id(0)
    while t * BLOCK_M < M:
        product(a, b, c, t * BLOCK_M, 0, K, BLOCK_K)
        tl.store(counter + 1, t)
        t = tl.atomic_add(counter, 1) + tl.num_programs(0)


def test_accesses_of_one_memory_keep_their_order() -> None:
    """No draw passes a store beside its counter: both are the producer's, as they stand in the source."""
    args = drawing(300, 64, 200)
    args[3] = road.filled(np.zeros(2), np.int32)
    compiled, expected = road.check_equal(noted, args, 1, TWO, ORDERS, levels=True)
    assert list(expected[3]) == [3, 2]
    tasks = next(o for o in compiled.lowered.at(Level.WARP).body.ops if o.kind is task.tasks)
    kinds_of = (tile.atomic, tile.store, tma.tma_load)
    order = [o.kind for o in walk(tasks.regions[1]) if o.kind in kinds_of]
    assert order == [tma.tma_load, tma.tma_load, tile.store, tile.atomic]
    assert not any(o.kind in (tile.atomic, tile.store) for o in walk(tasks.regions[0]))


@wl.jit
def counted(
    a: Any, b: Any, c: Any, count: Any, flag: Any, K: Any, BLOCK_K: tl.constexpr, PARTS: tl.constexpr
) -> None:  # fmt: skip
    """Each program stores a product; the last one that has tells somebody that all are there."""
    part = tl.program_id(0)
    rows, columns = tl.arange(0, 64)[:, None], tl.arange(0, 64)[None, :]
    total = tl.zeros((64, 64), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        at = part * K + k + tl.arange(0, BLOCK_K)
        x = tl.load(a + rows * (K * PARTS) + at[None, :])
        y = tl.load(b + at[:, None] * 64 + columns)
        total = tl.dot(x, y, total)
    tl.store(c + part * 64 * 64 + rows * 64 + columns, total)
    before = tl.atomic_add(count, 1)
    if before == PARTS - 1:
        tl.store(flag, 1)


def test_a_count_comes_behind_what_all_threads_stored() -> None:
    """Its result is used as well as looked at by others: TMA has written, and all threads have met."""
    k, parts = 128, 3
    rng = np.random.default_rng(0)
    a = rng.integers(-2, 3, (64, k * parts)).astype(BF16)
    b = rng.integers(-2, 3, (k * parts, 64)).astype(BF16)
    c = np.zeros((parts, 64, 64), np.float32)
    count, flag = np.zeros(1, np.int32), np.zeros(1, np.int32)
    meta = {"BLOCK_K": 64, "PARTS": parts, "num_consumer_groups": 0}
    compiled = counted.compile_for(a, b, c, count, flag, k, grid=(parts,), **meta)
    assert {s.via for s in compiled.schedule.stores if s.op == "store0"} == {"tma"}
    ops = [o for o in walk(compiled.lowered.at(Level.WARP).body) if o.kind.effect]
    (at,) = (i for i, o in enumerate(ops) if o.kind is tile.atomic)
    written, met, once = ops[at - 3 : at]
    assert written.kind is tma.tma_store_wait and not written.attrs["read"]
    assert met.kind is smem.group_sync and once.kind is task.elect
    compiled.simulate(a, b, c, count, flag, k, grid=(parts,))
    for i in range(parts):
        mine = slice(i * k, (i + 1) * k)
        np.testing.assert_array_equal(c[i], np.float32(a[:, mine]) @ np.float32(b[mine]))
    assert count[0] == parts and flag[0] == 1
