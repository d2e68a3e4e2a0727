"""The library's attention on a GPU, against float64: odd lengths, few and many tiles a program, output surrounded
by guards, three launches each."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.gpu.test_attention import GUARD, expected
from warploom.kernels.attention import (
    ATTENTION_CONFIGS,
    attend,
    attention,
    grid_of,
    launches,
    parts_size,
    room_for_parts,
    section_of,
)

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")

CASES = [
    (d, causal, i)
    for (d, causal), configs in ATTENTION_CONFIGS.items()
    for i in range(len(configs))
]


def parts_for(heads: int, seq: int, d: int, block_m: int) -> Any:
    """Memory for the parts of a launch of 132 programs, or fewer."""
    return torch.empty(room_for_parts(heads, seq, d, 132, block_m), device="cuda")


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("knobs", [{}, {"ping_pong": False}], ids=["turns", "as-they-come"])
def test_it_is_right(case: tuple[int, bool, int], knobs: dict[str, Any]) -> None:
    d, causal, index = case
    meta = {**ATTENTION_CONFIGS[d, causal][index].all_kwargs, **knobs, "LSE": True}
    for heads, seq, shared_by in ((4, 1, 1), (8, 77, 2), (4, 128, 1), (8, 1000, 4), (64, 1537, 1)):
        random = torch.Generator(device="cuda").manual_seed(seq)
        q, k, v = (
            torch.randn(n, seq, d, device="cuda", generator=random).bfloat16()
            for n in (heads, heads // shared_by, heads // shared_by)
        )
        whole = torch.full((q.numel() + 2 * GUARD,), 7.0, device="cuda", dtype=q.dtype)
        o = whole[GUARD:-GUARD].view(q.shape)
        lse = torch.empty(heads, seq, device="cuda")
        wanted, logs = expected(q, k, v, causal)
        scale = d**-0.5 * math.log2(math.e)
        counter = torch.zeros(2, device="cuda", dtype=torch.int32)
        args = (q, k, v, o, lse, counter, heads, seq, section_of(heads, seq, d, shared_by), scale)
        parts = parts_for(heads, seq, d, meta["BLOCK_M"])
        meta |= {"D": d, "CAUSAL": causal, "GQA_GROUP": shared_by}
        for _ in range(3):
            o.fill_(math.nan)
            lse.fill_(math.nan)
            parts.fill_(math.nan)
            for kernel, its, how in launches(args, 132 if index else None, parts, **meta):
                kernel[how.pop("grid")](*its, **how)
            torch.cuda.synchronize()
            assert float((o.double() - wanted).norm() / wanted.norm()) < 4e-3
            assert float((lse.double() - logs).abs().max()) < 1e-4
            assert not counter.any()
            assert bool((whole[:GUARD] == 7).all() and (whole[-GUARD:] == 7).all())


@pytest.mark.parametrize("d, causal", ATTENTION_CONFIGS, ids=str)
def test_its_error_is_no_larger_than_cudnns(d: int, causal: bool) -> None:
    """In every configuration.  Sums of another order make a difference in the sixth digit, larger or smaller."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    heads, seq = 32, 1024
    random = torch.Generator(device="cuda").manual_seed(d)
    q, k, v = (
        torch.randn(heads, seq, d, device="cuda", generator=random).bfloat16() for _ in range(3)
    )
    wanted, _ = expected(q, k, v, causal)
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        theirs = torch.nn.functional.scaled_dot_product_attention(
            q[None], k[None], v[None], is_causal=causal
        )[0]
    o, lse = torch.empty_like(q), torch.empty(heads, seq, device="cuda")
    counter = torch.zeros(2, device="cuda", dtype=torch.int32)
    for config in ATTENTION_CONFIGS[d, causal]:
        o.fill_(math.nan)
        parts = parts_for(heads, seq, d, config.kwargs["BLOCK_M"])
        attend(q, k, v, o, lse, counter, parts, programs=132, causal=causal, config=config)
        torch.cuda.synchronize()
        ours = float((o.double() - wanted).norm())
        assert ours <= 1.0001 * float((theirs.double() - wanted).norm())


@pytest.mark.parametrize("causal", [False, True])
def test_it_is_tuned(causal: bool) -> None:
    """Arrays that are neighbours in memory without being one allocation."""
    heads, seq, d = 64, 1024, 128
    random = torch.Generator(device="cuda").manual_seed(1)
    q, k, v = (
        torch.randn(heads, seq, d, device="cuda", generator=random).bfloat16() for _ in range(3)
    )
    o, lse = torch.empty_like(q), torch.empty(heads, seq, device="cuda")
    counter = torch.zeros(2, device="cuda", dtype=torch.int32)
    scale = d**-0.5 * math.log2(math.e)
    wanted, _ = expected(q, k, v, causal)
    attention[grid_of(heads, seq, 132)](
        q, k, v, o, lse, counter, heads, seq, section_of(heads, seq, d), scale, D=d, CAUSAL=causal
    )
    torch.cuda.synchronize()
    assert float((o.double() - wanted).norm() / wanted.norm()) < 4e-3
    (times,) = (v.times for k, v in attention.verdicts.items() if k[:4] == (heads, seq, d, causal))
    assert len(times) == sum(not c.kwargs["SPLIT_KV_TAIL"] for c in ATTENTION_CONFIGS[d, causal])


def test_parts_are_joined() -> None:
    """Of 16 heads of 16384 the last 68 tiles are shared out: O and lse as they should be, and the tuner tries it."""
    heads, seq, d = 16, 16384, 128
    random = torch.Generator(device="cuda").manual_seed(1)
    q, k, v = (
        torch.randn(heads, seq, d, device="cuda", generator=random).bfloat16() for _ in range(3)
    )
    counter = torch.zeros(2, device="cuda", dtype=torch.int32)
    parts = torch.empty(parts_size(heads, seq, d, 132), device="cuda")
    split = [c for c in ATTENTION_CONFIGS[d, False] if c.kwargs["SPLIT_KV_TAIL"]]
    assert split
    for config in (*split, None):
        o = torch.full_like(q, float("nan"))
        lse = torch.full((heads, seq), float("nan"), device="cuda")
        attend(q, k, v, o, lse, counter, parts, programs=132, want_lse=True, config=config)
        torch.cuda.synchronize()
        for head in (0, heads - 1):
            wanted, logs = expected(q[head:][:1], k[head:][:1], v[head:][:1], False)
            assert float((o[head:][:1].double() - wanted).norm() / wanted.norm()) < 4e-3
            assert float((lse[head:][:1].double() - logs).abs().max()) < 1e-4
    (found,) = (v for k, v in attention.verdicts.items() if k[:2] == (heads, seq))
    assert {str(config) for config in split} <= set(found.times)
