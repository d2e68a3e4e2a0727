"""Attention by hand on a GPU, against float64: odd lengths, few and many tiles a CTA, three launches each (the
counter is as the launch before left it), output surrounded by guards."""

from __future__ import annotations

import math
from typing import Any

import pytest

from warploom.kernels.explicit.attention import Attention

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")

GUARD = 4096  # elements on both sides of O

VARIANTS = [
    {"d": 128, "eighths": 2},
    {"d": 128, "eighths": 0, "pingpong": False},
    {"d": 128, "q_stages": 2, "shared_by": 4},
    {"d": 128, "groups": 3, "block": 80, "eighths": 0, "stages": 2},
    {"d": 64, "groups": 3, "eighths": 0, "q_stages": 2},
    {"d": 64, "groups": 2, "eighths": 2, "shared_by": 2, "stages": 3},
    {"d": 128, "eighths": 3, "store_role": True},
    {"d": 64, "groups": 3, "eighths": 0, "q_stages": 2, "store_role": True},
]


def expected(q: Any, k: Any, v: Any, causal: bool) -> tuple[Any, Any]:
    """O and log Σ exp in float64."""
    q, k, v = (x.double() for x in (q, k, v))
    k, v = (x.repeat_interleave(len(q) // len(x), 0) for x in (k, v))
    s = q @ k.transpose(1, 2) / math.sqrt(q.shape[-1])
    if causal:
        s += torch.full_like(s, -math.inf).triu_(1)
    return torch.softmax(s, -1) @ v, torch.logsumexp(s, -1)


@pytest.fixture(autouse=True)
def one_gpu(monkeypatch: pytest.MonkeyPatch) -> Any:
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    # The proof before a first launch takes seconds a variant; tests/explicit/test_attention.py makes it.
    monkeypatch.setenv("WARPLOOM_CHECK", "0")
    yield
    torch.cuda.synchronize()


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("options", VARIANTS, ids=str)
def test_it_is_right(options: dict[str, Any], causal: bool) -> None:
    counter = torch.zeros(2, device="cuda", dtype=torch.int32)
    kernel = Attention(causal=causal, lse=True, **options)
    d, shared_by = options["d"], options.get("shared_by", 1)
    for heads, seq in ((4, 1), (8, 77), (4, 128), (8, 1000), (64, 1537), (4, 4096)):
        random = torch.Generator(device="cuda").manual_seed(seq)
        q, k, v = (
            torch.randn(n, seq, d, device="cuda", generator=random).bfloat16()
            for n in (heads, heads // shared_by, heads // shared_by)
        )
        whole = torch.empty(q.numel() + 2 * GUARD, device="cuda", dtype=q.dtype)
        o = whole[GUARD:-GUARD].view(q.shape)
        right, right_lse = expected(q, k, v, causal)
        for _ in range(3):
            whole.fill_(math.nan)
            lse = torch.full((heads, seq), math.nan, device="cuda")
            kernel(q, k, v, o, lse, counter, heads, seq, d**-0.5 * math.log2(math.e))
            error = o.double() - right
            assert error.norm() / right.norm() < 4e-3 and error.abs().max() < 0.04
            assert (lse - right_lse).abs().max() < 2e-5
            assert whole[:GUARD].isnan().all() and whole[-GUARD:].isnan().all()
            assert not counter.any()
