"""What Ampere and Ada get, on the GPU at hand: kernels compiled for sm_80, sm_86 and sm_89, whose PTX the driver
compiles for it.  These are the programs of those chips (cp.async groups, ldmatrix, mma.sync), not the cubins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import warploom as wl
import warploom.language as tl
from corpus import catalog
from corpus.in_order import CASES as IN_ORDER
from tests.e2e import road
from tests.e2e import test_split_k as split_k
from tests.e2e.corpus.judging import arrays, copies
from tests.e2e.library_products import IN_ORDER as PRODUCTS
from tests.e2e.library_products import LibraryProduct
from tests.e2e.test_attention import arguments, close
from tests.e2e.test_library_targets import takes
from tests.explicit.products import BF16
from tests.gpu.probe import needs_gpu
from tests.gpu.ptx import launch
from tests.unit.test_byte_floats import FORMATS, numbers
from warploom.kernels.attention import ATTENTION_IN_ORDER_CONFIGS, attention_forward, grid_of
from warploom.kernels.split_k import SPLIT_K_IN_ORDER_CONFIGS, gemm_split_k
from warploom.runtime.compiled import CompiledKernel
from warploom.runtime.launch import driver
from warploom.target.sm_80 import SM_80

pytestmark = [pytest.mark.gpu, needs_gpu]

CHIPS = ["sm_80", "sm_86", "sm_89"]
MORE = [
    "matmul-77x51x97", "matmul-127x129x31-c", "matmul-bf16-cr", "tasks-1", "tasks-2", "bmm-100x60",
    "attention-alibi", "attention-bias-descriptor", "states-linear", "layernorm", "splitk-atomic",
    "batched-bf16", "batched-heads", "f32-tf32x3-rr", "int8-scaled-rr", "skinny-16x256", "fused-mlp",
    "matmul-e4m3-rc", "skinny-e5m2", "mixed-bf16-e4m3-rc", "mixed-e4m3-bf16-rr",
]  # fmt: skip
KERNELS = [*(f"in order-{name}" for name in IN_ORDER), *MORE]
TASKS = ["matmul-bf16-rc", "attention-alibi", "in order-32x32-tf32", "in order-48x32-four"]


def on_chips(cases: Sequence[Any], narrow: Callable[[Any], bool]) -> Any:
    """A test of each case for sm_80, of every third one for each other chip; those of narrow operands, whose
    products the others lack, for sm_89."""
    found = [
        pytest.param(chip, case, id=f"{chip}-{case}")
        for i, case in enumerate(cases)
        for at, chip in enumerate(CHIPS)
        if (chip == "sm_89" if narrow(case) else at == 0 or i % 3 == at)
    ]
    return pytest.mark.parametrize(("chip", "case"), found)


def has_bytes(name: str) -> bool:
    """Does a case multiply 8-bit floats by each other?"""
    given = (x for x in catalog.by_name()[name].args if isinstance(x, np.ndarray))
    return sum(x.dtype.name.startswith("float8") for x in given) > 1


def judged(chip: str, name: str, **knobs: Any) -> CompiledKernel:
    """A kernel of the corpus, compiled for a chip and run here."""
    case = catalog.by_name()[name]
    kernel = wl.jit(case.kernel.fn)
    given = {**case.meta, **case.knobs, **knobs}
    compiled = kernel.compile_for(*case.args, grid=case.grid, target=chip, **given)
    for _ in range(3):
        found = copies(case.args)
        launch(driver(), compiled, found, kernel.sizes(case.grid, found, given))
        assert not case.judge(arrays(found))
    return compiled


@on_chips(KERNELS, has_bytes)
def test_a_kernel_is_right(chip: str, case: str) -> None:
    judged(chip, case)


@on_chips(TASKS, has_bytes)
def test_producers_copy_by_cp_async(chip: str, case: str) -> None:
    assert judged(chip, case, num_consumer_groups=1).schedule.specialized


@on_chips(PRODUCTS, lambda product: not takes(SM_80, product))
def test_a_product_of_the_library(chip: str, case: LibraryProduct) -> None:
    m, n, k = 1035, 331, 264
    inputs = case.exact(np.random.default_rng(n), m, n, k)
    wanted = case.wanted(*inputs).astype(np.float32).astype(BF16)
    flat = [road.filled(x.ravel(), x.dtype) for x in inputs]
    args = case.arguments(flat, road.array((m * n,), BF16), m, n, k)
    programs = 20  # several tiles each
    meta = {**case.config.all_kwargs, "target": chip, "strict": True}
    compiled = case.kernel.compile_for(*args, grid=programs, **meta)
    for _ in range(3):
        args[len(inputs)][...] = np.nan
        launch(driver(), compiled, args, programs)
        np.testing.assert_array_equal(args[len(inputs)].reshape(m, n), wanted)


@wl.jit
def casts(x_ptr: Any, y_ptr: Any, BLOCK: tl.constexpr) -> None:
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at).to(y_ptr.dtype.element_ty))


@pytest.mark.parametrize("wide", [np.float32, np.float16, BF16], ids=["f32", "f16", "bf16"])
@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("chip", CHIPS)
def test_8_bit_floats_are_converted_bit_for_bit(chip: str, name: str, wide: Any) -> None:
    """By arithmetic on sm_80 and sm_86: all codes, and numbers that round (tests/unit/test_byte_floats.py)."""
    dtype, most = FORMATS[name]
    codes = np.arange(256, dtype=np.uint8).view(dtype)
    with np.errstate(all="ignore"):
        given = numbers(dtype, most)[: 256 * 150].astype(wide)
        rounded = np.clip(given.astype(np.float32), -most, most).astype(dtype)
    for x, want in ((codes, codes.astype(wide)), (given, rounded)):
        y = np.zeros(len(x), want.dtype)
        compiled = wl.jit(casts.fn).compile_for(x, y, grid=len(x) // 256, BLOCK=256, target=chip)
        launch(driver(), compiled, [x, y], len(x) // 256)
        found, want = (v.astype(np.float32) for v in (y, want))
        np.testing.assert_array_equal(found, want)
        np.testing.assert_array_equal(np.signbit(found[found == 0]), np.signbit(want[want == 0]))


ATTENTION = [
    (d, causal, i)
    for d, configs in ATTENTION_IN_ORDER_CONFIGS.items()
    for causal in (False, True)
    for i in range(len(configs))
]


@on_chips(ATTENTION, lambda case: False)
def test_attention_of_the_library(chip: str, case: tuple[int, bool, int]) -> None:
    d, causal, i = case
    meta = {**ATTENTION_IN_ORDER_CONFIGS[d][i].all_kwargs, "D": d, "CAUSAL": causal}
    meta |= {"GQA_GROUP": 2, "LSE": True, "target": chip, "strict": True}
    for heads, seq, programs in ((2, 77, 2), (4, 1000, 7)):
        args = arguments(heads, seq, d, 2)
        grid = grid_of(heads, seq, programs=programs)(meta)
        compiled = attention_forward.compile_for(*args, grid=grid, **meta)
        for _ in range(3):
            args[3][...] = np.nan
            launch(driver(), compiled, args, grid)
            close(args, causal)


@on_chips(SPLIT_K_IN_ORDER_CONFIGS, lambda config: False)
def test_a_product_of_few_rows(chip: str, case: wl.Config) -> None:
    rows, split = case.kwargs["BLOCK_M"], case.kwargs["SPLIT_K"]
    args, _, grid, want = split_k.arguments(
        rows + 3, 1000, 3000, rows, split, BF16, np.float32, "rc", **dict(case.kwargs)
    )
    meta = {**case.all_kwargs, "target": chip, "strict": True}
    compiled = gemm_split_k.compile_for(*args, grid=grid, **meta)
    for _ in range(20):
        args[2][...] = np.nan
        launch(driver(), compiled, args, grid)
        assert np.array_equal(args[2], want) and not args[4].any()
