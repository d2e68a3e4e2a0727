"""What is ejected compiles to the program that it was ejected from, and computes the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import warploom as wl
import warploom.language as tl
from tests.e2e import road
from tests.e2e.library_products import GEMMS, PRODUCTS, LibraryProduct
from tests.eject.corpus import cases
from tests.eject.owned import owned, same_program
from tests.explicit.test_spelling import Cluster, Machinery, Numbers
from tests.pairwise import every
from warploom import Script
from warploom.explicit.translate import kernel_parameters
from warploom.ir.ops import tile
from warploom.ir.types import Pointer
from warploom.kernels.explicit.attention import Attention
from warploom.kernels.explicit.dual_gemm import DualGemm
from warploom.kernels.explicit.fp8_gemm import Fp8GemmPromoted
from warploom.kernels.explicit.gemm import Gemm
from warploom.language import float32, int32

pytestmark = pytest.mark.usefixtures("without_nvrtc")
CASES = cases()
# One of each kind of load, store and control flow; what is proved equal needs no run, these run anyway.
RUN = [
    n for n in CASES if n.startswith(("host", "config7", "add", "statistics", "histogram", "soft"))
]
RUN += ["gated-two-groups", "block_sparse-uniform", "batched-depth-1", "attention-one-group"]
RUN += ["hinted", "assorted", *[n for n in CASES if "pads" in n][:5]]


@pytest.mark.parametrize("name", every(5, [*CASES]))
@pytest.mark.each(2)
def test_the_same_program(name: str, tmp_path: Path) -> None:
    compiled = CASES[name].compiled()
    script, signature = owned(compiled.eject(), tmp_path, CASES[name].grid)
    again = script.compile(signature)
    same_program(compiled, again)
    attrs = [k.placed.attrs for k in (compiled, again)]
    for key in ("shared_bytes", "threads"):
        assert attrs[0].get(key) == attrs[1].get(key)


@pytest.mark.parametrize(
    "product", every(2, [*{p.name: p for p in PRODUCTS + GEMMS}.values()]), ids=str
)
@pytest.mark.each(3)
def test_the_library_s_products(product: LibraryProduct, tmp_path: Path) -> None:
    constexprs = product.config.kwargs
    knobs = {k: v for k, v in product.config.all_kwargs.items() if k not in constexprs}
    compiled = product.kernel.compile(signature=product.signature, constexprs=constexprs, **knobs)
    script, signature = owned(compiled.eject(), tmp_path, 132)
    same_program(compiled, script.compile(signature))


@pytest.mark.parametrize("name", every(2, RUN))
@pytest.mark.each(2)
def test_it_takes_the_same_arguments(name: str, tmp_path: Path) -> None:
    """On host arrays a call runs the simulator; descriptors are passed as they are."""
    case = CASES[name]
    compiled = case.compiled()
    args = case.make()
    expected = road.expected_of(compiled, args, case.grid)
    script, _ = owned(compiled.eject(), tmp_path, case.grid)
    found = [road.clone(a) for a in args]
    script(*found)
    if "soft" in name:  # sums in another order than the oracle's
        np.testing.assert_allclose(found[1], expected[1], rtol=1e-6)
    else:
        road.same(expected, found, name)


class Tickets(Script):
    """A warp counts itself, and stores which it is."""

    def __call__(self, x: ~float32, counts: ~int32):
        self.attrs.blocks = [4]
        self.attrs.warps = 1
        at = self.blockIdx.x * 32 + self.arange(0, 32)
        self.store(x + at, self.cast(at, float32))
        came = self.atomic_add(counts, 1)
        self.atomic_add(counts + 1, 1)
        self.store(counts + 2 + came, came)


SCRIPTS: dict[str, Any] = {
    "gemm": Gemm(),
    "multicast": Gemm(ctas=2, share="a"),
    "dual": DualGemm(),
    "fp8": Fp8GemmPromoted(),
    "attention": Attention(eighths=3, programs=2),
    "causal": Attention(causal=True, d=64, groups=3, lse=True, shared_by=4),
    "store role": Attention(causal=True, store_role=True),
    "numbers": Numbers(),
    "machinery": Machinery(),
    "cluster": Cluster(),
    "tickets": Tickets(),
}


def test_barriers_around_a_ticket_are_said() -> None:
    """Once: the script that has them is given no more."""
    text = Tickets().compile(aligned(Tickets())).eject()
    lines = [x.strip() for x in text.splitlines()]
    at = lines.index("came = self.atomic_add(counts, 1)")
    assert lines[at - 1] == lines[at + 1] == "self.sync()"
    assert 'sem="release"' in text  # what it counts nobody reads


def aligned(script: Any) -> list[str]:
    """A signature in which everything is a multiple of 16."""
    return [
        f"*{a.dtype}:16" if isinstance(a, Pointer) else f"{a}:16" if a.is_int else str(a)
        for _, a in kernel_parameters(type(script).kernel)
    ]


@pytest.mark.parametrize("name", every(4, [*SCRIPTS]))
@pytest.mark.each(2)
def test_scripts_too(name: str, tmp_path: Path) -> None:
    """What was written by hand is ejected as well, and once more what came out."""
    compiled = SCRIPTS[name].compile(aligned(SCRIPTS[name]))
    first, signature = owned(compiled.eject(), tmp_path, 1)
    again = first.compile(signature)
    same_program(compiled, again)
    second, signature = owned(again.eject(), tmp_path, 1)
    same_program(compiled, second.compile(signature))


@wl.jit
def ordered(x_ptr: Any, y_ptr: Any, BLOCK: tl.constexpr) -> None:
    at = tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.sort(tl.load(x_ptr + at)))


def test_partners_of_sorts_are_found_again(tmp_path: Path) -> None:
    """That a gather exchanges partners no script says: its index does."""
    args = [road.filled(np.arange(64)[::-1] % 7, np.int32), road.array((64,), np.int32)]
    compiled, expected = road.check_equal(ordered, args, 1, {"BLOCK": 64}, ("late",))
    script, signature = owned(compiled.eject(), tmp_path, 1)
    again = script.compile(signature)
    same_program(compiled, again)
    gathers = [
        [o.attrs.get("flips") for o in k.placed.body.all_ops if o.kind is tile.gather]
        for k in (compiled, again)
    ]
    assert gathers[0] == gathers[1] and set(gathers[0]) == {1, 2, 4, 8, 16, 32}
    road.same(expected, road.simulated(again, args, 1), "ejected")
