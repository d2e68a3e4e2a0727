"""Kernels of rows on the GPU: masks, loads that run ahead or come early, elements that are shared, boxes whose
sizes stand in memory.  Integers: bit-equal."""

from __future__ import annotations

from typing import Any

import pytest

import warploom as wl
import warploom.language as tl
from tests.e2e.test_deduplicate_loads import weighed
from tests.e2e.test_local_boxes import products
from tests.e2e.test_prefetch_loads import centred, centred_rows, normed, shifted
from tests.e2e.test_scans import running, sums
from tests.e2e.test_wide_rows import standardized

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore::warploom.errors.WarploomWarning"),
]


def numbers(*shape: int, dtype: Any = None, high: int = 9) -> Any:
    return torch.randint(-high, high + 1, shape, device="cuda").to(dtype or torch.int32)


def equal(found: Any, wanted: Any) -> None:
    torch.cuda.synchronize()
    assert torch.equal(found.double(), wanted.double())


@wl.jit
def masked(
    x_ptr: Any, y_ptr: Any, n: Any, by: Any, start: Any, BLOCK: tl.constexpr, HOW: tl.constexpr
) -> None:
    """`by` moves the place where the array begins; places are counted from `start`."""
    at = tl.arange(0, BLOCK)
    place = start + at
    if HOW == "lt":
        mask = place < n
    elif HOW == "ge":
        mask = place >= n
    elif HOW == "gt":
        mask = n > place
    elif HOW == "le":
        mask = n <= place
    elif HOW == "up to":
        mask = place <= n
    else:
        mask = (place < n) & (place > 3)
    tl.store(y_ptr + at, tl.load(x_ptr + by + at, mask=mask, other=3).to(tl.float32))


@pytest.mark.parametrize("how", ["lt", "ge", "gt", "le", "up to", "both"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "int8", "float8_e4m3fn"])
def test_masks(how: str, dtype: str) -> None:
    x = numbers(2048, dtype=torch.float32).to(getattr(torch, dtype))
    at = torch.arange(1024, device="cuda")
    for by, n, start in ((0, 1000, 0), (0, 1024, 0), (16, 512, 16), (16, -16, 0), (3, 777, 0),
                         (1, 8, 8), (16, 0, 0), (32, 9, -16), (2, 640, 1)):  # fmt: skip
        place = start + at
        masks = {"lt": place < n, "ge": place >= n, "gt": n > place, "le": n <= place,
                 "up to": place <= n, "both": (place < n) & (place > 3)}  # fmt: skip
        y = torch.full((1024,), float("nan"), device="cuda")
        masked[(1,)](x, y, n, by, start, BLOCK=1024, HOW=how)
        equal(y, torch.where(masks[how], x[by : by + 1024].float(), 3.0))


@pytest.mark.parametrize("stages", [1, 2, 3])
@pytest.mark.parametrize("columns", [256, 250, 40])
def test_rows_ahead(stages: int, columns: int) -> None:
    for rows in (0, 1, 2, 3, 4, 5, 7, 60):
        x, y = numbers(60, columns), numbers(60, columns)
        old = y.clone()
        meta = {"BLOCK": 256, "STAGES": stages, "num_warps": 4}
        centred[(3,)](x, y, rows, columns, 0, **meta)
        seen = torch.arange(60, device="cuda")[:, None] // 3 + 1
        old[:rows] = (x - x.max(1, keepdim=True).values + seen)[:rows]
        equal(y, old)


@pytest.mark.parametrize("by", [0, 64, 128, 512])
def test_rows_in_place(by: int) -> None:
    whole = numbers(1024)
    wanted = whole.clone()
    for at in range(0, 256, 64):
        wanted[by + at : by + at + 64] = wanted[at : at + 64] + 1
    shifted[(1,)](whole, whole[by:], 4, BLOCK=64, num_warps=1)
    equal(whole, wanted)


@pytest.mark.parametrize("columns", [1, 40, 1024, 1025, 5000])
def test_walks_along_a_row(columns: int) -> None:
    x, y = numbers(columns), torch.zeros(columns, device="cuda", dtype=torch.int32)
    again = torch.tensor([2], device="cuda", dtype=torch.int32)
    x = x.abs()
    centred_rows[(1,)](x, y, again, columns, BLOCK=1024)
    equal(y, x - x.sum() // columns - 2 * x[:1024].max())


def test_loads_that_come_early() -> None:
    x, w, y = numbers(40), numbers(40), numbers(40)
    label = torch.tensor([7, 0], device="cuda", dtype=torch.int32)
    normed[(1,)](x, w, label, y, 40, BLOCK=64, HOW="plain")
    bests = [
        torch.cat([x[i : i + 64], torch.zeros_like(x[:1]) if i else x[:1]]).max()
        for i in (0, 16, 32)
    ]
    bests[0] = torch.maximum(bests[0], torch.zeros_like(bests[0]))  # what is masked off
    equal(y, w * (x.sum() + sum(bests)) + x[7])


@pytest.mark.parametrize("pixels", [16, 48, 24, 20, 7, 1024])
def test_a_weight_of_every_channel(pixels: int) -> None:
    size = 5000
    x, w, y = numbers(size), numbers(-(-size // pixels)), torch.zeros_like(numbers(size))
    weighed[(-(-size // 1024),)](x, w, y, size, pixels, 0, BLOCK=1024)
    equal(y, x * w[torch.arange(size, device="cuda") // pixels])


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("knobs", [{}, {"num_consumer_groups": 0}])
def test_sizes_from_memory(transposed: bool, knobs: dict[str, int]) -> None:
    sizes = [(64, 64, 128), (37, 5, 71), (1, 1, 1), (100, 33, 65), (128, 64, 1000)]
    starts, (p, q, r) = [], (0, 1, 3)
    for m, n, k in sizes:
        starts.append((p, q, r))
        p, q, r = p + m * k, q + n * k, r + m * n
    a, b = (numbers(size, dtype=torch.float16, high=3) for size in (p, q))
    c = torch.full((r,), float("nan"), device="cuda")
    tables = [torch.tensor(t, device="cuda", dtype=torch.int32).ravel() for t in (starts, sizes)]
    products[(len(sizes), 2)](a, b, c, *tables, BLOCK=64, TRANSPOSED=transposed, **knobs)
    for (m, n, k), (i, j, o) in zip(sizes, starts, strict=True):
        x, y = a[i : i + m * k].reshape(m, k).double(), b[j : j + n * k].double()
        y = y.reshape(n, k).t() if transposed else y.reshape(k, n)
        equal(c[o : o + m * n].reshape(m, n), x @ y)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize("dtype", ["int32", "int64", "float32", "float16", "int8", "float64"])
def test_scans(axis: int, back: bool, dtype: str) -> None:
    sizes = [(5, 61, 4), (1, 1024, 8)]
    if dtype == "int32":
        sizes += [(8, 64, 1), (64, 32, 4), (128, 1, 8), (3, 1000, 4), (16, 24, 8)]
    for rows, columns, warps in sizes:
        x = numbers(rows, columns, high=3, dtype=getattr(torch, dtype))
        block = {"ROWS": max(8, 1 << (rows - 1).bit_length()), "BLOCK": max(16, columns)}
        wide = torch.int32 if dtype == "int8" else x.dtype
        y = torch.full((rows, columns), 77, device="cuda", dtype=wide)
        meta = {**block, "AXIS": axis, "BACK": back, "PRODUCT": False, "num_warps": warps}
        sums[(1,)](x, y, rows, columns, **meta)
        wanted = x.double().cumsum(axis)
        equal(y, x.double().flip(axis).cumsum(axis).flip(axis) if back else wanted)


@pytest.mark.parametrize("n", [1, 100, 1024, 5000])
def test_a_vector_block_by_block(n: int) -> None:
    x, y = numbers(n), torch.zeros(n, device="cuda", dtype=torch.int32)
    running[(1,)](x, y, n, BLOCK=1024)
    equal(y, x.cumsum(0))


def test_a_wide_row_that_is_stored_where_it_was_loaded() -> None:
    """By two pointers to one array, then apart again, and to arrays that share a part."""
    memory = torch.randn(2, 1 << 17, device="cuda")
    kept, n = memory.clone(), 1 << 16

    def run(out: Any, x: Any) -> None:
        wanted = (x - x.mean()) / x.std(correction=0)
        standardized[(1,)](out, x, n, B=n, num_warps=4)
        torch.testing.assert_close(out, wanted, atol=1e-4, rtol=1e-4)

    for _ in range(2):
        memory.copy_(kept)
        run(memory[1, :n], memory[0, :n])
        run(memory[0, :n], memory[0, :n])
        run(memory[1, :n], memory[0, :n])
        run(memory[0, 4 : n + 4], memory[0, :n])
