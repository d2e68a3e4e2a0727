"""Products of block-scaled operands: by the tensor core where it takes scales, else decoded; both are exact here."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tests.sass
import warploom as wl
import warploom.language as tl
from corpus.case import Case
from corpus.microscaling import CASES, product
from tests.e2e import road
from tests.pairwise import diagonals
from warploom.errors import CompileError
from warploom.ir.core import Level, walk
from warploom.ir.ops import arith, smem, tile
from warploom.target import TARGETS

without_nvrtc = pytest.mark.usefixtures("without_nvrtc")
# What each is on a chip with block scales; all else is decoded.
NATIVE = {
    "mxfp8": "mxf8f6f4_f8e4m3_f8e5m2", "mxfp8-short": "mxf8f6f4_f8e5m2_f8e4m3", "mxfp4": "mxf4", "mxfp4-two": "mxf4",
    "nvfp4": "mxf4nvf4", "nvfp4-eight": "mxf4nvf4", "mixed": "mxf8f6f4_f8e4m3_f8e4m3",
    "activations": "mxf8f6f4_f8e4m3_f8e4m3", "along-n": "mxf8f6f4_f8e4m3_f8e4m3",
}  # fmt: skip
SASS = {
    "mxfp8": "QMMA.SF.16832.F32.E4M3.E5M2.E8",
    "mxfp4": "OMMA.SF.16864.F32.E2M1.E2M1.E8",
    "nvfp4": "OMMA.SF.16864.F32.E2M1.E2M1.UE4M3.4X",
}


def compiled(case: Case, target: str, **knobs: Any) -> Any:
    given = {**case.meta, **case.knobs, **knobs}
    return case.kernel.compile_for(*case.args, grid=case.grid, target=target, **given)


def right(case: Case, made: Any, order: str) -> None:
    found = tuple(np.copy(x, order="K") if isinstance(x, np.ndarray) else x for x in case.args)
    made.simulate(*found, grid=case.grid, order=order)
    assert not case.judge(found), order


@pytest.mark.parametrize(("target", "rows"), [("sm_90a", 128), ("sm_120a", 64)])
def test_what_is_decoded_is_held_a_part_of_k_at_a_time(target: str, rows: int) -> None:
    """Else 128 of K with 128 columns spill."""
    case = product(rows, 128, 256, (rows, 128, 128), "bf16", "e2m1", warps=8, scaled=False)
    made = compiled(case, target)
    assert made.resources.spill_bytes == 0
    dots = [o for o in walk(made.lowered.at(Level.TILE).body) if o.kind is tile.dot]
    assert [o.operands[0].type.shape[1] for o in dots] == [64, 64]


@wl.jit
def fours(
    a_ptr, a_scale_ptr, b_ptr, b_scale_ptr, c_ptr, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    m, n, byte, part = (
        tl.arange(0, BM),
        tl.arange(0, BN),
        tl.arange(0, BK // 2),
        tl.arange(0, BK // 32),
    )
    acc = tl.zeros((BM, BN), tl.float32)
    for k in tl.range(0, K // BK, num_stages=2):
        a = tl.load(a_ptr + m[:, None] * (K // 2) + (k * (BK // 2) + byte)[None, :])
        b = tl.load(b_ptr + n[None, :] * (K // 2) + (k * (BK // 2) + byte)[:, None])
        at = (k * (BK // 32) + part)[None, :]
        a_scale = tl.load(a_scale_ptr + m[:, None] * (K // 32) + at)
        b_scale = tl.load(b_scale_ptr + n[:, None] * (K // 32) + at)
        acc = tl.dot_scaled(a, a_scale, "e2m1", b, b_scale, "e2m1", acc)
    tl.store(c_ptr + m[:, None] * BN + n[None, :], acc)


@pytest.mark.filterwarnings("ignore::warploom.errors.WarploomWarning")
def test_wide_operands_are_decoded_in_smaller_parts() -> None:
    """The tile of Triton's tutorial 10.  All that is staged for its dots would not fit side by side."""
    case = product(128, 256, 512, (128, 256, 256), "e2m1", "e2m1")
    a, sa, b, sb, c, _, _, k = case.args
    made = fours.compile_for(a, sa, b, sb, c, k, grid=(1,), BM=128, BN=256, BK=256)
    dots = [o for o in walk(made.lowered.at(Level.TILE).body) if o.kind is tile.dot]
    assert [o.operands[0].type.shape[1] for o in dots] == [32] * 8
    assert made.resources.spill_bytes < 100  # in parts of 64: 4000 with half of this K
    made.simulate(a, sa, b, sb, c, k, grid=(1,), order="late")
    assert not case.judge((a, sa, b, sb, c))


@wl.jit
def loaded_along_k(
    a_ptr, a_scale_ptr, b_ptr, b_scale_ptr, c_ptr, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    m, n, byte, part = (
        tl.arange(0, BM),
        tl.arange(0, BN),
        tl.arange(0, BK // 2),
        tl.arange(0, BK // 32),
    )
    acc = tl.zeros((BM, BN), tl.float32)
    for k in tl.range(0, K // BK, num_stages=2):
        bytes_at, at = (k * (BK // 2) + byte)[None, :], (k * (BK // 32) + part)[None, :]
        a = tl.load(a_ptr + m[:, None] * (K // 2) + bytes_at)
        b = tl.load(b_ptr + n[:, None] * (K // 2) + bytes_at)
        a_scale = tl.load(a_scale_ptr + m[:, None] * (K // 32) + at)
        b_scale = tl.load(b_scale_ptr + n[:, None] * (K // 32) + at)
        acc = tl.dot_scaled(a, a_scale, "e2m1", b.T, b_scale, "e2m1", acc)
    tl.store(c_ptr + m[:, None] * BN + n[None, :], acc)


@pytest.mark.parametrize("groups", [0, 2])
def test_a_transposed_operand_is_decoded_as_it_was_loaded(groups: int) -> None:
    """Each thread decodes bytes that lie side by side, and stores 16 bytes of K at once: nothing is exchanged."""
    case = product(128, 128, 512, (128, 128, 128), "e2m1", "e2m1")
    a, sa, b, sb, c, _, _, k = case.args
    knobs = {"num_consumer_groups": groups, "target": "sm_90a"}
    made = loaded_along_k.compile_for(
        a, sa, b, sb, c, k, grid=(1,), BM=128, BN=128, BK=128, **knobs
    )
    kinds = {o.kind for o in walk(made.placed.body)}
    assert tile.convert_layout not in kinds
    operands = [
        o.result.type
        for o in walk(made.placed.body)
        if o.kind is smem.shared_alloc and o.attrs["name"].startswith("operand")
    ]
    assert operands and all(t.inner == 0 for t in operands)
    made.simulate(a, sa, b, sb, c, k, grid=(1,), order="late")
    assert not case.judge((a, sa, b, sb, c))


# What has instructions on a chip with them, all else on every third chip.
RUN = [
    *diagonals(3, ["sm_80", "sm_90a", "sm_120a"], [x for x in CASES if x not in NATIVE]),
    *diagonals(3, ["sm_80", "sm_90a"], [*NATIVE]),
    *(("sm_120a", name) for name in NATIVE),
]


@without_nvrtc
@pytest.mark.parametrize(("target", "name"), RUN)
@pytest.mark.each(2)
def test_a_product_is_right_and_proved(target: str, name: str) -> None:
    case = CASES[name]()
    made = compiled(case, target)
    for order in road.default_orders():
        right(case, made, order)
    assert made.check().ok
    assert made.simulate(*case.args, grid=case.grid, algebra=True).is_equal
    form = f"mma_{NATIVE[name]}<" if target == "sm_120a" and name in NATIVE else ""
    assert form in made.cuda and ("mma_mx" in made.cuda) == bool(form)
    scaled = [o for o in walk(made.placed.body) if o.kind is tile.dot and len(o.operands) > 3]
    assert bool(scaled) == bool(form)


@without_nvrtc
@pytest.mark.parametrize(
    ("name", "groups", "target"),
    diagonals(4, ["mxfp8", "mxfp4", "nvfp4", "weights"], [0, 2], ["sm_90a", "sm_120a"]),
)
@pytest.mark.each(2)
def test_tasks_and_none(name: str, groups: int, target: str) -> None:
    case = CASES[name]()
    made = compiled(case, target, num_consumer_groups=groups)
    assert made.schedule.specialized == bool(groups)
    right(case, made, "late")
    assert made.check().ok


@pytest.mark.parametrize(
    ("target", "name"), diagonals(4, [*TARGETS], ["mxfp8", "mxfp4", "nvfp4", "weights"])
)
@pytest.mark.each(2)
def test_builds_have_no_problems(name: str, target: str) -> None:
    case = CASES[name]()
    made = compiled(replace(case, kernel=wl.jit(case.kernel.fn)), target)  # others had no cubin
    assert made.cubin.startswith(b"\x7fELF") and made.resources.problems() == ()
    if target == "sm_120a" and name in SASS and tests.sass.disassembler() is not None:
        assert SASS[name] in tests.sass.disassembled(made.cubin)


@without_nvrtc
@pytest.mark.parametrize("name", ["mxfp4", "weights"])
def test_it_ejects(name: str) -> None:
    case = CASES[name]()
    made = compiled(case, "sm_120a", num_consumer_groups=1)
    text = made.eject()
    assert ('total, a_scale, b_scale, unit="mma.sync"' in text) == (name == "mxfp4")
    assert ("self.decode(" in text) == (name == "weights")


@without_nvrtc
def test_explain_says_what_it_became() -> None:
    assert "mma.sync m16n8k64 with block scales" in compiled(CASES["nvfp4"](), "sm_120a").explain()


@wl.jit
def every(x_ptr, y_ptr, FORMAT: tl.constexpr):
    i = tl.arange(0, 16)
    bytes = tl.load(x_ptr + i[:, None] * 16 + i[None, :])
    if FORMAT == "ue8m0":
        scale = tl.reshape(bytes, (256, 1))
        k = tl.full((256, 32), 1.0, tl.float8e4nv)
        eye = (tl.arange(0, 32)[:, None] == tl.arange(0, 8)[None, :]).to(tl.bfloat16)
        found = tl.dot_scaled(k, scale, "e4m3", eye, None, "bf16")
        tl.store(y_ptr + tl.arange(0, 256)[:, None] * 8 + tl.arange(0, 8)[None, :], found)
    else:
        eye = (i[:, None] == i[None, :]).to(tl.bfloat16)
        found = tl.dot_scaled(bytes, None, FORMAT, eye, None, "bf16")
        tl.store(y_ptr + i[:, None] * 16 + i[None, :], found)


FORMATS = {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}


@without_nvrtc
@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("format", FORMATS)
def test_every_finite_byte(format: str, target: str) -> None:
    bits = np.arange(256, dtype=np.uint8)
    want = bits.view(FORMATS[format]).astype(np.float32)
    finite = np.isfinite(want)
    bits[~finite], want[~finite] = 0, 0.0
    y = np.zeros((16, 16), np.float32)
    made = every.compile_for(bits, y, FORMAT=format, grid=(1,), target=target, num_warps=4)
    made.simulate(bits, y, grid=(1,))
    assert np.array_equal(y.ravel(), want)


@without_nvrtc
def test_every_scale() -> None:
    """2^-127 to 2^126 are bf16; 2^127 and the NaN too."""
    bits = np.arange(256, dtype=np.uint8)
    y = np.zeros((256, 8), np.float32)
    made = every.compile_for(bits, y, FORMAT="ue8m0", grid=(1,), target="sm_90a", num_warps=4)
    made.simulate(bits, y, grid=(1,))
    want = np.exp2(np.arange(255, dtype=np.float64) - 127)
    assert np.array_equal(y[:255], np.repeat(want[:, None], 8, 1)) and np.isnan(y[255]).all()


@wl.jit
def plain(a_ptr, c_ptr, R: tl.constexpr, SCALE: tl.constexpr, FORMAT: tl.constexpr):
    m, k = tl.arange(0, 16), tl.arange(0, 64)
    a = tl.load(a_ptr + m[:, None] * 64 + k[None, :])
    scale = tl.full((R, 2), 120, SCALE)
    c = tl.dot_scaled(a, scale, FORMAT, tl.trans(a), scale, FORMAT)
    tl.store(c_ptr + m[:, None] * 16 + m[None, :], c)


@without_nvrtc
@pytest.mark.parametrize(
    ("rows", "scale", "format", "code", "said"),
    [
        (16, tl.float16, "e4m3", "dot-scale", "scales are uint8"),
        (32, tl.uint8, "e4m3", "dot-scale", "scales of u8 for 16 rows of 64 are 16x2"),
        (16, tl.uint8, "e3m2", "dot-format", "lhs_format='e3m2'"),
        (16, tl.uint8, "bf16", "dot-format", "lhs_format='bf16' of tile<16x64xu8>"),
    ],
)
def test_refusals(rows: int, scale: Any, format: str, code: str, said: str) -> None:
    a, c = np.zeros((16, 64), np.uint8), np.zeros((16, 16), np.float32)
    with pytest.raises(CompileError, match=said) as refused:
        plain.compile_for(a, c, R=rows, SCALE=scale, FORMAT=format, grid=(1,))
    assert refused.value.code == code and refused.value.loc is not None and refused.value.help


@without_nvrtc
def test_bytes_are_read_as_floats() -> None:
    """Eight-bit floats come in their dtype, or as uint8."""
    a = np.arange(16 * 64).reshape(16, 64).astype(np.uint8) % 64
    c = np.zeros((16, 16), np.float32)
    made = plain.compile_for(a, c, R=16, SCALE=tl.uint8, FORMAT="e5m2", grid=(1,), num_warps=1)
    made.simulate(a, c, grid=(1,))
    wide = a.view(ml_dtypes.float8_e5m2).astype(np.float64) * 2.0**-7
    assert np.allclose(c, wide @ wide.T, rtol=1e-6, atol=0)
    func = made.lowered.at(Level.PLACED)
    assert any(o.kind is arith.decode for o in walk(func.body))
