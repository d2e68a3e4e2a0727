"""Kernels of Triton's tutorials, and rows that an index names, on the GPU: beside float64."""

from __future__ import annotations

from typing import Any

import pytest

from corpus import tutorials
from tests.e2e import kernels

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore::warploom.errors.WarploomWarning"),
]


def whole(*shape: int, dtype: Any = None) -> Any:
    """Small integers: products of them are exact."""
    values = torch.randint(-2, 3, shape, device="cuda")
    return values.to(dtype or torch.bfloat16)


def empty(*shape: int, dtype: Any = None) -> Any:
    return torch.full(shape, float("nan"), device="cuda", dtype=dtype or torch.float32)


def equal(found: Any, wanted: Any) -> None:
    torch.cuda.synchronize()
    assert torch.equal(found.double(), wanted.double())


@pytest.mark.parametrize("groups", [None, 2, 0])
@pytest.mark.parametrize(("m", "n", "k"), [(1000, 520, 264), (128, 128, 64), (2048, 1024, 4096)])
def test_matmul(m: int, n: int, k: int, groups: int | None) -> None:
    a, b, c = whole(m, k), whole(k, n), empty(m, n)
    meta = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP_M": 8, "ACTIVATION": ""}
    if groups is not None:
        meta["num_consumer_groups"] = groups
    grid = (-(-m // 128) * -(-n // 128),)
    tutorials.matmul[grid](
        a, b, c, m, n, k, *a.stride(), *b.stride(), *c.stride(), **meta
    )  # fmt: skip
    equal(c, a.double() @ b.double())


@pytest.mark.parametrize("subtile", [False, True])
@pytest.mark.parametrize("ws", [True, False])
def test_persistent_matmul(subtile: bool, ws: bool) -> None:
    m, n, k = 2000, 1536, 1024
    a, b, c = whole(m, k), whole(n, k), empty(m, n, dtype=torch.bfloat16)
    meta = {"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "GROUP_M": 8, "NUM_SMS": 132}
    meta |= {"SUBTILE": subtile, "WARP_SPECIALIZE": ws, "num_warps": 4 if ws else 8}
    tutorials.matmul_persistent[(132,)](a, b, c, m, n, k, **meta)
    equal(c, (a.double() @ b.double().t()).float().bfloat16())


def test_grouped_matmul() -> None:
    sizes = torch.tensor([[512, 512, 512], [1024, 256, 128], [128, 192, 64]])
    a = [whole(m, k) for m, _, k in sizes.tolist()]
    b = [whole(k, n) for _, n, k in sizes.tolist()]
    extents = torch.tensor(
        [
            [x.numel(), y.numel(), m * n]
            for x, y, (m, n, _) in zip(a, b, sizes.tolist(), strict=True)
        ]
    )
    starts = (extents.cumsum(0) - extents).int().cuda().flatten()
    c = empty(int(extents[:, 2].sum()))
    flat = [torch.cat([x.flatten() for x in parts]) for parts in (a, b)]
    meta = {"BLOCK_M": 128, "BLOCK_N": 64, "BLOCK_K": 64, "NUM_SM": 132}
    tutorials.grouped_matmul[(132,)](*flat, c, starts, sizes.int().cuda().flatten(), len(a), **meta)
    equal(c, torch.cat([(x.double() @ y.double()).flatten() for x, y in zip(a, b, strict=True)]))


def test_softmax_and_layer_norm() -> None:
    x = torch.randn(1823, 781, device="cuda")
    out = torch.empty_like(x)
    strides = (x.stride(0), out.stride(0))
    tutorials.softmax[(264,)](out, x, *strides, *x.shape, BLOCK_SIZE=1024, STAGES=4)
    torch.testing.assert_close(out, x.softmax(1))
    w, b = (torch.randn(781, device="cuda") for _ in range(2))
    mean, rstd = (empty(1823) for _ in range(2))
    tutorials.layer_norm[(1823,)](x, out, w, b, mean, rstd, x.stride(0), 781, 1e-5, BLOCK_SIZE=256)
    torch.testing.assert_close(
        out, torch.nn.functional.layer_norm(x, (781,), w, b, 1e-5), atol=1e-4, rtol=1e-4
    )


@pytest.mark.parametrize("ws", [True, False, None])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("d", "rows", "columns"), [(128, 128, 128), (64, 192, 128), (64, 128, 64)])
def test_attention(causal: bool, d: int, rows: int, columns: int, ws: bool | None) -> None:
    z, heads, seq = 2, 4, rows * 8
    q, k, v = (torch.randn(z, heads, seq, d, device="cuda").bfloat16() for _ in range(3))
    out, m = empty(z, heads, seq, d, dtype=torch.bfloat16), empty(z * heads, seq)
    meta = {"HEAD_DIM": d, "BLOCK_M": rows, "BLOCK_N": columns, "STAGE": 3 if causal else 1}
    flat = [x.view(-1, d) for x in (q, k, v, out)]
    if causal and rows % columns:
        pytest.skip("the tutorial's diagonal takes whole blocks")
    tutorials.attention[(seq // rows, z * heads)](
        d**-0.5, m, z, heads, *flat, seq, **meta, WARP_SPECIALIZE=ws
    )
    s = q.double() @ k.double().transpose(2, 3) * d**-0.5
    if causal:
        s += torch.full_like(s[0, 0], float("-inf")).triu_(1)
    wanted = s.softmax(3) @ v.double()
    assert (out.double() - wanted).norm() < 0.005 * wanted.norm()


@pytest.mark.parametrize(("pad", "k"), [(0, 1024), (4, 516), (2, 514), (1, 100), (0, 64)])
@pytest.mark.parametrize("groups", [2, 1, 0])
def test_rows_that_an_index_names(pad: int, k: int, groups: int) -> None:
    """By cp.async in pieces of 16, 8 and 4 bytes, and through registers."""
    m, n = 1500, 320
    a, b, c = whole(900, k + pad)[:, :k], whole(k, n), empty(m, n)
    rows = torch.randint(0, 900, (m,), device="cuda", dtype=torch.int32)
    meta = {"BLOCK_M": 128, "BLOCK_N": 64, "BLOCK_K": 64, "num_consumer_groups": groups}
    args = (a, rows, b, c, m, n, k, a.stride(0), n, n)
    kernels.gathered[(60,)](*args, **meta)
    equal(c, a[rows.long()].double() @ b.double())
