"""Clock stamps on a GPU: the same results, records that hang together, stalls where they are predicted."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")

TILE = {"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "GROUP_M": 16}


@pytest.mark.parametrize("groups", [0, 1, 2])
def test_a_measured_gemm_is_exact_and_its_times_hang_together(own_cache: None, groups: int) -> None:
    from warploom.kernels.gemm import gemm_pointers

    size, k = 1000, 520
    a, b = (torch.randint(-3, 4, (size, k), device="cuda").bfloat16() for _ in range(2))
    c = torch.full((size, size), torch.nan, device="cuda", dtype=torch.bfloat16)
    arguments = (a, b, c, size, size, k, k, 1, 1, k, size, 1)
    tile = {**TILE, "BLOCK_N": 128} if groups < 2 else TILE
    knobs = {"num_consumer_groups": groups} | ({"num_warps": 8} if groups == 0 else {})
    kernel = gemm_pointers.compile_for(*arguments, grid=(16,), **tile, **knobs)
    for program in (0, 7):
        found = kernel.timeline(*arguments, grid=(16,), measured=True, program=program)
        wanted = a.double() @ b.double().T
        assert torch.equal(c.double(), wanted.bfloat16().double())
        assert not found.is_cut
        assert {r.agent for r in found.measured.rows} == {r.agent for r in found.predicted.rows}
        for row in found.measured.rows:
            for before, after in zip(row.boxes, row.boxes[1:], strict=False):
                assert before.end <= after.start
        assert 0.2 < found.measured.cycles / found.predicted.cycles < 5
        assert {"full", "wgmma"} <= {barrier for barrier, _ in found.measured.stalls()}


def test_host_arrays_and_scripts(own_cache: None) -> None:
    import ml_dtypes
    import numpy as np

    from warploom.kernels.explicit.gemm import Gemm

    m = n = k = 512
    a, b, c = (np.ones(s, ml_dtypes.bfloat16) for s in ((m, k), (n, k), (m, n)))
    found = Gemm().timeline(a, b, c, m, n, k, measured=True)
    assert (c == 1).all()  # host arrays stay as they are
    assert found.measured.cycles > 0 and found.measured.stalls()
