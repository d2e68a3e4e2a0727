"""CTAs that share a loop on a GPU: bit-equal on exact data launch after launch, right and always the same on
random numbers, and as many clusters at once as the chooser counts on."""

from __future__ import annotations

from typing import Any

import pytest

from corpus import split_k
from corpus.case import Case
from corpus.plain import matmul
from tests.e2e.corpus.judging import arrays, copies
from tests.gpu.probe import needs_gpu
from tests.gpu.test_mma_sync import on_device
from warploom.schedule.split_k import most_programs
from warploom.target import SM_90A

pytestmark = [pytest.mark.gpu, needs_gpu]
torch = pytest.importorskip("torch")


@pytest.mark.parametrize("name", split_k.CASES)
def test_every_case_is_right(name: str) -> None:
    right_on_exact_data(split_k.made(name))


def right_on_exact_data(case: Case) -> None:
    """Launches a case some times, and judges each."""
    for _ in range(5):
        given = copies(case.args)
        moved = [on_device(x) for x in given]
        case.kernel[case.grid](*moved, **case.meta, **case.knobs)
        found = list(given)
        for i in case.wants:
            raw = moved[i].contiguous().view(torch.uint8).cpu().numpy()
            found[i] = raw.view(given[i].dtype).reshape(given[i].shape)
        assert not case.judge(arrays(tuple(found)))


def launched(m: int, n: int, k: int, tile: tuple[int, int, int], **knobs: Any) -> tuple[Any, ...]:
    """(the kernel that ran, C, the product in float64, what float32 may be off)."""
    a = torch.randn(m, k, device="cuda", dtype=torch.bfloat16)
    b = torch.randn(n, k, device="cuda", dtype=torch.bfloat16).t()
    c = torch.full((m, n), float("nan"), device="cuda")
    rows, columns, depth = tile
    grid = (-(-m // rows) * -(-n // columns),)
    meta = {"BLOCK_M": rows, "BLOCK_N": columns, "BLOCK_K": depth, **knobs}
    args = (a, b, c, m, n, k, *a.stride(), *b.stride(), *c.stride())
    ran = matmul[grid](*args, **meta)
    first = c.clone()
    for _ in range(20):
        c.fill_(float("nan"))
        matmul[grid](*args, **meta)
        assert torch.equal(c, first)
    return ran, c.double(), a.double() @ b.double(), a.double().abs() @ b.double().abs()


@pytest.mark.parametrize("ctas", [None, 2, 4, 8])
@pytest.mark.parametrize(
    ("shape", "tile"),
    [((16, 1000, 8200), (16, 64, 128)), ((200, 136, 4104), (64, 64, 64)), ((9, 72, 104), (16, 64, 64))],
    ids=str,
)  # fmt: skip
def test_random_numbers_beside_float64(
    shape: tuple[int, int, int], tile: tuple[int, int, int], ctas: int | None
) -> None:
    ran, found, wanted, size = launched(*shape, tile, split_k=ctas)
    assert (found - wanted).abs().max() <= 2.0**-18 * size.max()
    if ctas is not None or shape[2] > 1000:
        assert ran.plan.cluster[0] == (ctas or 4)


@pytest.mark.parametrize("ctas", [2, 4, 8])
def test_a_chip_has_room_for_the_clusters(ctas: int) -> None:
    """Of CTAs that leave no room for another one beside them."""
    ran, *_ = launched(16, 1000, 8192, (16, 64, 256), split_k=ctas)
    assert ran.resources.dynamic_shared * 2 > SM_90A.shared.per_sm
    assert ran.loaded().resident(0) >= most_programs(SM_90A, ctas)
