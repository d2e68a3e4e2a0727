"""tl.inline_asm_elementwise: on the oracle, which reads the PTX, on the simulator, and compiled."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import warploom.triton as triton
import warploom.triton.language as tl
from warploom.errors import CompileError
from warploom.sim.report import SimError


def numbers(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


@triton.jit
def floats(x_ptr: Any, o_ptr: Any, N: tl.constexpr) -> None:
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i)
    y = tl.inline_asm_elementwise(
        "tanh.approx.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
    )
    z = tl.inline_asm_elementwise(
        "add.f32 $0, $1, $2;", "=f,f,f", [x, 1.5], dtype=tl.float32, is_pure=True, pack=1
    )
    tl.store(o_ptr + i, y)
    tl.store(o_ptr + N + i, z)


@triton.jit
def of_four(a_ptr: Any, b_ptr: Any, c_ptr: Any, d_ptr: Any, B: tl.constexpr) -> None:
    i = tl.arange(0, B)
    a = tl.load(a_ptr + i)
    b = tl.load(b_ptr + i)
    c, d = tl.inline_asm_elementwise(
        asm="""
    {
        .reg .b8 part<4>;
        mov.b32 {part0, part1, part2, part3}, $8;
        cvt.u32.u8 $0, part0;
        cvt.u32.u8 $1, part1;
        cvt.u32.u8 $2, part2;
        cvt.u32.u8 $3, part3;
    }
    cvt.rn.f32.s32 $4, $0;
    cvt.rn.f32.s32 $5, $1;
    cvt.rn.f32.s32 $6, $2;
    cvt.rn.f32.s32 $7, $3;
    max.f32 $4, $4, $9;  // the larger one
    max.f32 $5, $5, $10;
    max.f32 $6, $6, $11;
    max.f32 $7, $7, $12;
    """,
        constraints="=r,=r,=r,=r,=r,=r,=r,=r,r,r,r,r,r",
        args=[a, b],
        dtype=(tl.int32, tl.float32),
        is_pure=True,
        pack=4,
    )
    tl.store(c_ptr + i, c)
    tl.store(d_ptr + i, d)


@triton.jit
def bits(x_ptr: Any, o_ptr: Any, N: tl.constexpr) -> None:
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i)
    h = tl.inline_asm_elementwise(
        "cvt.rn.f16x2.f32 $0, $2, $1;", "=r,f,f", [x], dtype=tl.float16, is_pure=True, pack=2
    )
    g = tl.inline_asm_elementwise(
        "fma.rn.f16x2 $0, $1, $1, $1;", "=r,r", [h], dtype=tl.float16, is_pure=True, pack=2
    )
    u = x.to(tl.int32, bitcast=True)
    p = tl.inline_asm_elementwise(
        "prmt.b32 $0, $1, $1, 0x0123;", "=r,r", [u], dtype=tl.int32, is_pure=True, pack=1
    )
    q = tl.inline_asm_elementwise(
        "{ .reg .pred p; setp.lt.f32 p, $1, 0f00000000; selp.b32 $0, 7, 9, p; }",
        "=r,f",
        [x],
        dtype=tl.int32,
        is_pure=True,
        pack=1,
    )
    r = tl.inline_asm_elementwise(
        "lop3.b32 $0, $1, 0xff00, 0x12340000, 0xea; shr.u32 $0, $0, 3;",
        "=r,r",
        [u],
        dtype=tl.int32,
        is_pure=True,
        pack=1,
    )
    tl.store(o_ptr + i, g.to(tl.float32))
    tl.store(o_ptr + N + i, p.to(tl.float32, bitcast=True))
    tl.store(o_ptr + 2 * N + i, q.to(tl.float32))
    tl.store(o_ptr + 3 * N + i, r.to(tl.float32, bitcast=True))


def on_both(kernel: Any, args: list[Any], outs: list[Any], **constexprs: Any) -> None:
    """Leaves in `outs` what the oracle computes; the simulator's bits are the same, and NVRTC takes the text."""
    kernel[(1,)](*args, *outs, **constexprs)
    found = [np.zeros_like(o) for o in outs]
    compiled = kernel.compile_for(*args, *found, grid=(1,), **constexprs)
    compiled.simulate(*args, *found, grid=(1,))
    assert [f.tobytes() for f in found] == [o.tobytes() for o in outs]
    assert compiled.resources.spill_bytes == 0


def test_floats() -> None:
    x, out = numbers(256), np.zeros((2, 256), np.float32)
    on_both(floats, [x], [out], N=256)
    np.testing.assert_allclose(out, [np.tanh(x), x + 1.5], rtol=1e-5)


@pytest.mark.parametrize("n", [256, 1024])
def test_four_elements_at_a_time_and_two_results(n: int) -> None:
    a = np.random.default_rng(n).integers(0, 255, n, dtype=np.uint8)
    b, c, d = numbers(n) * 200, np.zeros(n, np.int32), np.zeros(n, np.float32)
    on_both(of_four, [a, b], [c, d], B=n)
    assert np.array_equal(c, a)
    np.testing.assert_allclose(d, np.maximum(a, b))


def test_bits_and_halves() -> None:
    x, out = numbers(512), np.zeros((4, 512), np.float32)
    on_both(bits, [x], [out], N=512)
    half, u = x.astype(np.float16).astype(np.float32), x.view(np.uint32)
    np.testing.assert_allclose(out[0], (half * half + half).astype(np.float16), rtol=2e-3)
    assert np.array_equal(out[1].view(np.uint32), u.byteswap())
    assert np.array_equal(out[2], np.where(x < 0, 7, 9))
    assert np.array_equal(out[3].view(np.uint32), ((u & 0xFF00) | 0x12340000) >> 3)


def of_text(asm: str, constraints: str, pack: int = 1) -> Any:
    @triton.jit
    def kernel(out_ptr: Any) -> None:
        i = tl.arange(0, 8)
        x = tl.inline_asm_elementwise(asm, constraints, [i], tl.int32, is_pure=True, pack=pack)
        tl.store(out_ptr + i, x)

    return kernel


# (text, what it makes of 0 … 7), for one register of 32 bits
TEXTS = [
    ("add.s32 $0, $1, -3;", lambda i: i - 3),
    ("mad.lo.s32 $0, $1, $1, 5;", lambda i: i * i + 5),
    ("mul.hi.u32 $0, $1, 0x80000000;", lambda i: i // 2),
    ("{ .reg .u32 t; shl.b32 t, $1, 4; xor.b32 $0, t, 0xff; }", lambda i: i << 4 ^ 0xFF),
    ("bfe.u32 $0, $1, 1, 2;", lambda i: i >> 1 & 3),
    ("{ .reg .pred p; setp.ge.s32 p, $1, 4; mov.u32 $0, 1; @p mov.u32 $0, 2; @!p add.u32 $0, $0, 5; }",
     lambda i: np.where(i >= 4, 2, 6)),
    ("popc.b32 $0, $1;", lambda i: np.bitwise_count(i)),
    ("clz.b32 $0, $1;", lambda i: [32 - int(v).bit_length() for v in i]),
    ("brev.b32 $0, $1; shr.u32 $0, $0, 29;", lambda i: [int(f"{v:03b}"[::-1], 2) for v in i]),
    ("not.b32 $0, $1; neg.s32 $0, $0;", lambda i: i + 1),
    ("min.s32 $0, $1, 3; max.s32 $0, $0, 1;", lambda i: np.clip(i, 1, 3)),
    ("{ .reg .b16 lo, hi; mov.b32 {lo, hi}, $1; mov.b32 $0, {hi, lo}; shr.u32 $0, $0, 16; }", lambda i: i),
    ("{ .reg .f32 f; cvt.rn.f32.s32 f, $1; div.rn.f32 f, f, 0f40000000; cvt.rmi.s32.f32 $0, f; }",
     lambda i: i // 2),
    ("div.s32 $0, $1, 3; rem.s32 $0, $0, 2;", lambda i: i // 3 % 2),
    ("shf.l.wrap.b32 $0, $1, $1, 35;", lambda i: i * 8),
    ("shf.r.clamp.b32 $0, 0x10, $1, 36; and.b32 $0, $0, 0xf;", lambda i: i),
    ("shf.l.clamp.b32 $0, 0x80000000, $1, 1;", lambda i: 2 * i + 1),
    ("bfi.b32 $0, $1, 0x70f, 4, 3;", lambda i: 0x70F & ~0x70 | (i << 4)),
    ("bfind.u32 $0, $1;", lambda i: [int(v).bit_length() - 1 for v in i]),
    ("sad.s32 $0, $1, 5, 1;", lambda i: abs(i - 5) + 1),
    ("cnot.b32 $0, $1;", lambda i: i == 0),
    ("dp4a.s32.s32 $0, $1, 0x0102ff03, 2;", lambda i: 3 * i + 2),
    ("{ .reg .b32 t; mov.b32 t, 0x05050505; vabsdiff4.u32.u32.u32 t, $1, t, t; and.b32 $0, t, 0xff; }",
     lambda i: abs(i - 5)),
    ("{ .reg .b32 t; mov.b32 t, 0x00010003; vadd2.s32.s32.s32 $0, $1, t, t; }", lambda i: i + 0x10003),
]  # fmt: skip


@pytest.mark.parametrize(("text", "means"), TEXTS)
def test_instructions(text: str, means: Any) -> None:
    out = np.zeros(8, np.int32)
    kernel = of_text(text, "=r,r")
    kernel[(1,)](out)
    assert np.array_equal(out, means(np.arange(8)))
    assert "asm volatile" in kernel.compile_for(out, grid=(1,)).cuda


@pytest.mark.parametrize(("name", "theirs"), [("e4m3", "float8_e4m3fn"), ("e5m2", "float8_e5m2")])
def test_pairs_of_8_bit_floats(name: str, theirs: str) -> None:
    make, back = f"cvt.rn.satfinite.{name}x2.f32 $0, $2, $1;", f"cvt.rn.f16x2.{name}x2 $0, $1;"

    @triton.jit
    def kernel(x_ptr: Any, y_ptr: Any, N: tl.constexpr) -> None:
        i = tl.arange(0, N)
        x = tl.load(x_ptr + i)
        b = tl.inline_asm_elementwise(make, "=h,f,f", [x], dtype=tl.int8, is_pure=True, pack=2)
        h = tl.inline_asm_elementwise(back, "=r,h", [b], dtype=tl.float16, is_pure=True, pack=2)
        tl.store(y_ptr + i, h)

    dtype = getattr(ml_dtypes, theirs)
    x = (np.random.default_rng(0).standard_normal(64) * 99).astype(np.float32)
    x[:2] = 1e6, -1e6
    y = np.zeros(64, np.float16)
    kernel[(1,)](x, y, N=64)
    most = float(ml_dtypes.finfo(dtype).max)
    assert np.array_equal(y, np.clip(x, -most, most).astype(dtype).astype(np.float16))
    assert kernel.compile_for(x, y, grid=(1,), N=64).cubin


def test_what_the_cpu_does_not_know() -> None:
    with pytest.raises(SimError, match=r"doesn't know `mma\.sync"):
        of_text("mma.sync $0, $1;", "=r,r")[(1,)](np.zeros(8, np.int32))


@pytest.mark.parametrize(
    ("constraints", "pack", "says"),
    [("=r", 1, "no constraint for"), ("=r,r,r", 1, "without an operand"), ("=f,r", 1, "doesn't take"),
     ("=r,r", 2, "needs 2"), ("=x,r", 1, "no constraint for")],
)  # fmt: skip
def test_constraints_that_do_not_fit(constraints: str, pack: int, says: str) -> None:
    with pytest.raises(CompileError, match=says):
        of_text("mov.b32 $0, $1;", constraints, pack)[(1,)](np.zeros(8, np.int32))


@triton.jit
def of_registers(out_ptr: Any) -> None:
    start = tl.inline_asm_elementwise(
        "mov.u64 $0, %globaltimer;", "=l", [], dtype=tl.int64, is_pure=False, pack=1
    )
    sm = tl.inline_asm_elementwise(
        "mov.u32 $0, %smid;", "=r", [], dtype=tl.int32, is_pure=True, pack=1
    )
    tl.store(out_ptr + tl.arange(0, 4), tl.arange(0, 4) + sm)
    end = tl.inline_asm_elementwise(
        "mov.u64 $0, %globaltimer;", "=l", [], dtype=tl.int64, is_pure=False, pack=1
    )
    tl.store(out_ptr + 4, end - start)
    tl.store(out_ptr + 5, end)


def test_special_registers_need_no_operand() -> None:
    """As profilers inside of kernels read them: the clock twice, each time where it stands."""
    out = np.full(6, -1)
    compiled = of_registers.compile_for(out, grid=(1,))
    assert compiled.cubin and compiled.cuda.count("= globaltimer();") == 2
    assert compiled.cuda.count("%%smid") == 1
    for run in (of_registers[(1,)], lambda x: compiled.simulate(x, grid=(1,))):
        out[:] = -1
        run(out)
        assert out[:4].tolist() == [0, 1, 2, 3] and 0 < out[4] < out[5]


@pytest.mark.parametrize("asm", ["mov.u32 $0, %laneid;", "mov.u32 $0, %smid; add.u32 $0, $0, 1;"])
def test_registers_that_threads_have_of_their_own(asm: str) -> None:
    @triton.jit
    def kernel(out_ptr: Any) -> None:
        tl.store(out_ptr, tl.inline_asm_elementwise(asm, "=r", [], tl.int32, is_pure=True, pack=1))

    with pytest.raises(CompileError, match="without an operand") as e:
        kernel[(1,)](np.zeros(1, np.int32))
    assert e.value.loc is not None


@triton.jit
def written_by_hand(x_ptr: Any, out_ptr: Any, ASM: tl.constexpr, N: tl.constexpr) -> None:
    x = tl.load(x_ptr + tl.arange(0, N))
    y = tl.inline_asm_elementwise(ASM, "=f,f", [x], tl.float32, is_pure=True, pack=1)
    tl.store(out_ptr + tl.arange(0, N), y)


@pytest.mark.parametrize(
    ("asm", "told", "advice"),
    [
        ("frobnicate.f32 $0, $1;", "Not a name of any known instruction", "spelling"),
        ("add.f32 $0, $1, $9;", "asm operand index", "number the operands"),
        (".reg .b32 q; mov.b32 q, $1; mov.b32 $0, q;", "Duplicate definition", "into braces"),
        ("add.s64 $0, $1, $1;", "Arguments mismatch", "letters of `constraints`"),
        ("mov.b32 $0, $1", "Parsing error", "a semicolon"),
        ("{ mov.b32 $0, $1;", "Parsing error", "close what is opened"),
        ("tcgen05.wait::ld.sync.aligned; mov.f32 $0, $1;", "not supported", "the chip has"),
    ],
)
def test_what_ptxas_refuses_is_told_at_the_users_line(asm: str, told: str, advice: str) -> None:
    x = np.zeros(512, np.float32)
    with pytest.raises(CompileError) as refused:
        written_by_hand.compile_for(x, x.copy(), ASM=asm, N=512, grid=(1,))
    text = str(refused.value)
    assert refused.value.code == "inline-asm" and told in text and advice in text
    assert "y = tl.inline_asm_elementwise(ASM" in text and "^^^^" in text
