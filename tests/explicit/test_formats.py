"""Products by hand of float32 and of 8-bit integers: simulated, proved, compiled, on a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.explicit.formats import product
from warploom.check import check
from warploom.language import float32, int8, int32, uint8

CASES: dict[str, tuple[Any, Any, Any, int, int]] = {
    "tf32": (float32, float32, float32, 72, 32),
    "s8": (int8, int8, int32, 40, 64),  # two instructions: none has 40 columns
    "u8 s8": (uint8, int8, int32, 240, 32),
    "u8": (uint8, uint8, int32, 64, 128),
}
SIGNATURES = {float32: "*fp32:16", int8: "*i8:16", uint8: "*u8:16", int32: "*i32:16"}
each = pytest.mark.parametrize("name", CASES)
ways = pytest.mark.parametrize("in_registers", [False, True], ids=["shared", "registers"])


def inputs(name: str, m: int, n: int, k: int) -> tuple[Any, Any, Any]:
    """A, B and their product: whole numbers, and in floats 13 bits below them that the tensor core ignores."""
    left, right, *_ = CASES[name]
    rng = np.random.default_rng(m + n + k)
    bounds = {float32: (-64, 65), int8: (-128, 128), uint8: (0, 256)}
    a, b = (rng.integers(*bounds[d], (r, k)) for d, r in ((left, m), (right, n)))
    want = a @ b.T
    a, b = (x.astype(d.numpy) for x, d in ((a, left), (b, right)))
    if left == float32:
        for x in (a, b):
            x.view(np.uint32)[...] |= rng.integers(0, 1 << 13, x.shape, np.uint32)
    return a, b, want


def made(name: str, in_registers: bool) -> Any:
    left, right, sums, n, k = CASES[name]
    return product(left, right, sums, n, k, in_registers)


@each
@ways
@pytest.mark.each(2)
def test_it_multiplies_and_is_proved(name: str, in_registers: bool) -> None:
    left, right, sums, n, k = CASES[name]
    script = made(name, in_registers)
    a, b, want = inputs(name, 70, n + 8, 2 * k)
    c = np.full(want.shape, 7, sums.numpy)
    script(a, b, c, 70, n + 8, 2 * k)
    assert np.array_equal(c, want)
    compiled = script.compile(
        [*(SIGNATURES[d] for d in (left, right, sums)), "i32", "i32:16", "i32:16"]
    )
    assert compiled.resources.problems() == ()
    report = check(compiled.placed)
    assert report.ok, str(report)


@pytest.mark.gpu
@each
@ways
def test_on_a_gpu(name: str, in_registers: bool) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    _, _, sums, n, k = CASES[name]
    a, b, want = inputs(name, 200, 3 * n + 16, 4 * k)
    x, y = (torch.from_numpy(v).cuda() for v in (a, b))
    c = torch.full(want.shape, 7, dtype=torch.float32 if sums == float32 else torch.int32).cuda()
    made(name, in_registers)(x, y, c, *want.shape, a.shape[1])
    assert np.array_equal(c.cpu().numpy(), want)
