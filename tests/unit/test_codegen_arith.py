"""The C expressions of integer arithmetic, evaluated with C's rules: they overflow nowhere that C leaves
undefined, and compute what the simulator computes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import warploom as wl
import warploom.codegen
import warploom.language as tl
from tests.examples import examples
from tests.unit.codegen_kernels import SIZES, kernel, placed
from warploom.codegen.emit import emit
from warploom.codegen.lower_arith import expression
from warploom.codegen.lower_casts import converted
from warploom.codegen.registers import c_type
from warploom.ir.core import Builder, OpKind, Value
from warploom.ir.ops import arith
from warploom.ir.types import DTYPES, Scalar
from warploom.runtime.nvrtc import compile_cuda
from warploom.sim.evaluate import PURE
from warploom.target import SM_90A

INTS = ("i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64")
BINARY = (arith.add, arith.sub, arith.mul, arith.idiv, arith.rem, arith.and_, arith.or_, arith.xor,
          arith.shl, arith.shr, arith.minimum, arith.maximum)  # fmt: skip
UNARY = (arith.neg, arith.abs_, arith.not_)


class Undefined(Exception):
    """What C leaves undefined."""


class C:
    """An integer of C (C++17, [expr]): narrow ones are promoted to int, of two kinds the unsigned or the
    wider one wins, unsigned ones wrap, signed ones must not overflow."""

    def __init__(self, value: int, bits: int, signed: bool) -> None:
        self.value, self.bits, self.signed = value, bits, signed

    @staticmethod
    def cast(name: str, x: C) -> C:
        bits, signed = int(name[1:]), name[0] == "i"
        value = int(x) % (1 << bits)
        if signed and value >= 1 << (bits - 1):
            value -= 1 << bits
        return C(value, bits, signed)

    def __int__(self) -> int:
        return self.value

    def promoted(self) -> C:
        return C(self.value, 32, True) if self.bits < 32 else self

    def _with(self, other: C, value: Any) -> C:
        x, y = self.promoted(), other.promoted()
        bits = max(x.bits, y.bits)
        signed = all(z.signed or z.bits < bits for z in (x, y))
        name = f"{'i' if signed else 'u'}{bits}"
        x, y = (C.cast(name, z) for z in (x, y))
        found = value(int(x), int(y))
        if signed and C.cast(name, C(found, 128, True)).value != found:
            raise Undefined(f"{int(x)}, {int(y)} overflow {name}")
        return C.cast(name, C(found, 128, True))

    def __add__(self, other: C) -> C:
        return self._with(other, lambda x, y: x + y)

    def __sub__(self, other: C) -> C:
        return self._with(other, lambda x, y: x - y)

    def __mul__(self, other: C) -> C:
        return self._with(other, lambda x, y: x * y)

    def __truediv__(self, other: C) -> C:
        return self._with(other, lambda x, y: abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1))

    def __mod__(self, other: C) -> C:
        return self._with(other, lambda x, y: abs(x) % abs(y) * (-1 if x < 0 else 1))

    def __and__(self, other: C) -> C:
        return self._with(other, lambda x, y: x & y)

    def __or__(self, other: C) -> C:
        return self._with(other, lambda x, y: x | y)

    def __xor__(self, other: C) -> C:
        return self._with(other, lambda x, y: x ^ y)

    def __lshift__(self, other: C) -> C:
        x = self.promoted()
        if x.signed and x.value < 0:
            raise Undefined("a negative number shifted left")
        found = x.value << other.value
        if x.signed and found >= 1 << (x.bits - 1):
            raise Undefined("a bit shifted out")
        return C.cast(f"{'i' if x.signed else 'u'}{x.bits}", C(found, 128, True))

    def __rshift__(self, other: C) -> C:
        x = self.promoted()
        return C(x.value >> other.value, x.bits, x.signed)

    def __invert__(self) -> C:
        x = self.promoted()
        return C.cast(f"{'i' if x.signed else 'u'}{x.bits}", C(~x.value, 128, True))

    def __lt__(self, other: C) -> bool:
        return bool(self._with(other, lambda x, y: int(x < y)).value)


class _Cast:
    """`(u32)x` is written `u32 ** x`, which binds as tightly."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __pow__(self, x: C) -> C:
        return C.cast(self.name, x)


def _ptx_shift(name: str) -> Any:
    """shl_u32 and the like of the prelude: PTX's shifts clamp, by an unsigned number of bits."""
    kind, of = name.split("_")
    dtype = of.replace("s", "i")
    bits = int(of[1:])

    def shift(x: C, n: C) -> C:
        by = min(C.cast(f"u{bits}", n).value, bits)
        value = C.cast(dtype, x).value
        return C.cast(dtype, C(value << by if kind == "shl" else value >> by, 128, True))

    return shift


SHIFTS = {
    n: _ptx_shift(n) for n in ("shl_u32", "shr_u32", "shr_s32", "shl_u64", "shr_u64", "shr_s64")
}


def evaluate(text: str, **names: C) -> C:
    """A C expression of the forms that `expression` writes."""
    for name in INTS:
        text = text.replace(f"({c_type(DTYPES[name])})", f"{name} ** ").replace(
            f"({name})", f"{name} ** "
        )
    text = re.sub(r"(\w+ \*\* )(min|max)\((\w+), (\w+)\)", r"\1(\2(\3, \4))", text)
    text = re.sub(r"\((\w+ < 0) \? (.*) : (\w+)\)", r"((\2) if \1 else \3)", text)
    text = re.sub(r"\b0ull\b", "Z64", re.sub(r"\b0u\b", "Z32", re.sub(r"\b0\b", "Z", text)))
    zeros = {"Z": C(0, 32, True), "Z32": C(0, 32, False), "Z64": C(0, 64, False)}
    functions = {"min": lambda x, y: x if x < y else y, "max": lambda x, y: y if x < y else x}
    casts = {n: _Cast(n) for n in INTS}
    functions["nonzero"] = lambda y: y if int(y) else C(1, y.bits, y.signed)
    found: C = eval(text, {**casts, **zeros, **functions, **SHIFTS, **names})
    return found


def reference(kind: OpKind, dtype: str, *xs: int) -> int:
    d = DTYPES[dtype]
    operands = tuple(Value(Scalar(d)) for _ in xs)
    b = Builder()
    kind(b, *operands)
    return int(PURE[kind](b.ops[0], *(d.numpy.type(x) for x in xs)))


def numbers(dtype: str) -> st.SearchStrategy[int]:
    info = np.iinfo(DTYPES[dtype].numpy)
    edges = [info.min, info.min + 1, -1, 0, 1, 7, info.max - 1, info.max]
    near = st.sampled_from([n for n in edges if n >= info.min])
    return near | st.integers(int(info.min), int(info.max))


@settings(deadline=None, derandomize=True, max_examples=examples(600))
@given(st.data(), st.sampled_from(BINARY + UNARY), st.sampled_from(INTS))
def test_integer_expressions(data: st.DataObject, kind: OpKind, dtype: str) -> None:
    bits, signed = DTYPES[dtype].bits, dtype[0] == "i"
    x = data.draw(numbers(dtype))
    xs = [x]
    if kind in BINARY:
        shift = kind in (arith.shl, arith.shr)
        y = data.draw(st.integers(0, bits + 8) | numbers(dtype) if shift else numbers(dtype))
        undefined = y == 0 or (bits >= 32 and signed and y == -1 and x == -(1 << (bits - 1)))
        if kind in (arith.idiv, arith.rem) and undefined:
            return
        xs.append(y)
    text = expression(kind, DTYPES[dtype], *"xy"[: len(xs)])
    found = evaluate(text, **{n: C(v, bits, signed) for n, v in zip("xy", xs, strict=False)})
    assert C.cast(dtype, found).value == reference(kind, dtype, *xs), text


@pytest.mark.parametrize("dtype", INTS)
def test_a_shift_by_a_constant_is_an_operator_of_c_below_the_width(dtype: str) -> None:
    width = max(DTYPES[dtype].bits, 32)
    for kind, sign in ((arith.shl, "<<"), (arith.shr, ">>")):
        texts = [expression(kind, DTYPES[dtype], "x", f"{n}") for n in (0, width - 1, width)]
        assert [sign in text for text in texts] == [True, True, False]


@wl.jit
def far_shifts(x_ptr: Any, y_ptr: Any, f_ptr: Any, BY: tl.constexpr) -> None:
    at = tl.arange(0, 128)
    x = tl.load(x_ptr + at)
    tl.store(y_ptr + at, (x >> BY) + (x << BY))
    tl.store(f_ptr + at, tl.full((128,), float("inf"), tl.float32).to(tl.int32))


def test_what_c_leaves_undefined_is_computed_all_the_same() -> None:
    """NVRTC stored whatever a register held."""
    signature = {"x_ptr": "*i32:16", "y_ptr": "*i32:16", "f_ptr": "*i32:16"}
    text = far_shifts.compile(signature=signature, constexprs={"BY": 40}).ptx
    assert "shr.s32" in text and "shl.b32" in text and "cvt.rzi.s32.f32" in text


@pytest.mark.parametrize(
    ("to", "wanted"),
    [
        ("i8", "(signed char)min(max(__float2int_rz(x), -128), 127)"),
        ("u16", "(u16)min(__float2uint_rz(x), 65535u)"),
        ("i32", "__float2int_rz(x)"),
        ("u64", "__float2ull_rz(x)"),
    ],
)
def test_floats_out_of_an_integers_range_clamp(to: str, wanted: str) -> None:
    assert converted("x", DTYPES["bf16"], DTYPES[to]) == wanted
    assert converted("x", DTYPES["f64"], DTYPES[to]) == wanted.replace("float2", "double2")


@pytest.mark.parametrize(
    ("x", "y", "quotient", "rest"), [(7, 2, 3, 1), (-7, 2, -3, -1), (7, -2, -3, 1), (-7, -2, 3, -1)]
)
def test_division_truncates(x: int, y: int, quotient: int, rest: int) -> None:
    for kind, wanted in ((arith.idiv, quotient), (arith.rem, rest)):
        assert reference(kind, "i32", x, y) == wanted
        found = evaluate(
            expression(kind, DTYPES["i32"], "x", "y"), x=C(x, 32, True), y=C(y, 32, True)
        )
        assert int(found) == wanted


@wl.jit
def rests(x_ptr: Any, y_ptr: Any, z_ptr: Any) -> None:
    at = tl.arange(0, 128)
    row = tl.program_id(0).to(tl.int64) * 128 + at
    wraps = tl.program_id(0) * 100000000 + at
    x = tl.load(x_ptr + at)
    tl.store(y_ptr + row, (row % 16).to(tl.int32) + (at // 8) + x % 4)
    tl.store(z_ptr + row, wraps % 32)


def test_places_divide_by_powers_of_two_as_bits() -> None:
    """Elsewhere C's signed rests of x and x + 16 by 16 differ for all that NVRTC knows, and it loads what they
    lead to twice.  What is loaded, or wraps, may be negative."""
    signature = {"x_ptr": "*i32:16", "y_ptr": "*i32:16", "z_ptr": "*i32:16"}
    cuda = rests.compile(signature=signature, constexprs={}).cuda
    assert "& 15ll" in cuda and ">> 3" in cuda and "% 4;" in cuda and "% 32;" in cuda


def ptx(body: str, *options: str, params: str = "%a: ptr<i32>, %M: i32, %N: i32") -> str:
    e = emit(placed(kernel(params, body, before=SIZES)), SM_90A)
    return compile_cuda(e.source, name=e.name, target=SM_90A, options=options, want_ptx=True).ptx


@pytest.mark.parametrize(
    "ops",
    [
        "%y = add(%M, %c1) : i32\n%q = lt(%y, %M) : i1",
        "%y = mul(%M, %c8) : i32\n%z = idiv(%y, %c8) : i32\n%q = ne(%z, %M) : i1",
        "%y = sub(%M, %c8) : i32\n%q = gt(%y, %M) : i1",
    ],
    ids=["x + 1 < x", "x * 8 / 8 != x", "x - 8 > x"],
)
def test_the_compiler_may_not_assume_that_scalars_stay_in_range(ops: str) -> None:
    """With signed arithmetic each of these would be the constant false, and x not even read."""
    eight = "%c8 = const() {value=8, dtype=i32} : i32\n"
    text = ptx(f"{eight}{ops}\n%r = cast(%q) {{dtype=i32}} : i32\nstore(%a, %r)")
    assert re.search(r"ld\.param[^\n]*_param_1\]", text), text


def test_products_and_sums_fuse_unless_told_not_to() -> None:
    body = "%y = mul(%f, %g) : f32\n%z = add(%y, %h) : f32\nstore(%a, %z)"
    params = "%a: ptr<f32>, %M: i32, %N: i32, %f: f32, %g: f32, %h: f32"
    assert "fma.rn.f32" in ptx(body, params=params)
    apart = ptx(body, "--fmad=false", params=params)
    assert "fma.rn.f32" not in apart and "mul.rn.f32" in apart and "add.rn.f32" in apart


@wl.jit
def axpy(x_ptr: Any, y_ptr: Any, a: Any, N: Any, BLOCK: tl.constexpr) -> None:
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    y = a * tl.load(x_ptr + at, mask=at < N) + tl.load(y_ptr + at, mask=at < N)
    tl.store(y_ptr + at, y, mask=at < N)


def test_the_knob_is_part_of_the_variant() -> None:
    signature = {"x_ptr": "*fp32:16", "y_ptr": "*fp32:16", "a": "fp32", "N": "i32"}

    def compiled(**knobs: Any) -> Any:
        return axpy.compile(signature=signature, constexprs={"BLOCK": 256}, **knobs)

    fused, apart = compiled(), compiled(enable_fp_fusion=False)
    assert "fma.rn.f32" in fused.ptx and "fma.rn.f32" not in apart.ptx
    assert fused.cubin != apart.cubin and fused.key != apart.key


@pytest.mark.parametrize(
    ("source", "to"), [("f16", "bf16"), ("bf16", "f16"), ("f8e4m3", "f8e5m2"), ("f8e5m2", "f8e4m3")]
)
def test_a_float_is_rounded_to_another_of_the_same_size(source: str, to: str) -> None:
    """Numbers of 16 and 8 bits are kept as float: the cast has to round, though no size changes."""
    body = f"""    %x = load(%p) : {source}
    %y = cast(%x) {{dtype={to}}} : {to}
    %z = cast(%y) {{dtype=f32}} : f32
    store(%out, %z)"""
    cuda = emit(placed(kernel(f"%p: ptr<{source}>, %out: ptr<f32>", body)), SM_90A).source
    assert f"round_{to}(x)" in cuda


def test_a_cast_of_a_constant_wraps() -> None:
    """300 as a byte is 44, also where the code generator computes with what it knows."""
    slots = '  %slots = shared_alloc() {name="s", lead=(64,), shape=(1, 1), dtype=i32, inner=1, swizzle=0}'
    body = """    %n = const() {value=300, dtype=i32} : i32
    %byte = cast(%n) {dtype=u8} : u8
    %index = cast(%byte) {dtype=i32} : i32
    %slot = shared_slot(%slots, %index)
    %x = shared_get(%slot)
    store(%p, %x)"""
    cuda = emit(placed(kernel("%p: ptr<i32>", body, before=slots)), SM_90A).source
    assert f"load_shared32(slots + {44 * 128})" in cuda


@pytest.mark.parametrize(
    ("dtype", "read"),
    [("f32", "float_of((u32)__shfl"), ("i32", "(int)__shfl"), ("u32", "__shfl")],
)
def test_a_number_from_shared_memory_is_its_bits(dtype: str, read: str) -> None:
    """A conversion of the word by value would show on no CPU."""
    slots = f'  %slots = shared_alloc() {{name="s", lead=(1,), shape=(1, 1), dtype={dtype}, inner=1, swizzle=0}}'
    body = """    %n = const() {value=0, dtype=i32} : i32
    %slot = shared_slot(%slots, %n)
    %x = shared_get(%slot)
    store(%p, %x)"""
    cuda = emit(placed(kernel(f"%p: ptr<{dtype}>", body, before=slots)), SM_90A).source
    assert f" x = {read}_sync(" in cuda


@wl.jit
def scaled(x_ptr: Any, w_ptr: Any, y_ptr: Any, BLOCK: tl.constexpr) -> None:
    at = tl.arange(0, BLOCK)
    w = tl.load(w_ptr + at).to(tl.bfloat16)
    tl.store(y_ptr + at, (tl.load(x_ptr + at) + 1.0) * w)


def test_16_bit_floats_are_computed_with_in_pairs() -> None:
    """One instruction for two: nothing is unpacked."""

    source = scaled.compile(
        signature=("*bf16:16", "*i8:16", "*bf16:16"), constexprs={"BLOCK": 1024}
    ).cuda
    body = source[source.index("scaled(") :]
    assert "add_bf16x2(" in body and "mul_bf16x2(" in body and "i8_bf16x2<1>(" in body
    assert "bf16_lo(" not in body and "bf16_hi(" not in body


def test_bytes_become_16_bit_floats() -> None:
    """The constants in the prelude: what lies between a byte among others' bits and its number."""
    x = np.arange(256, dtype=np.uint16)
    f16 = (0x6400 | (x ^ 0x80)).astype(np.uint16).view(np.float16)
    np.testing.assert_array_equal(
        f16 - np.uint16(0x6480).view(np.float16), x.astype(np.int8).astype(np.float16)
    )
    bf16 = [((0x4300 | x) & mask).astype(np.uint32) << 16 for mask in (0xFF7F, 0xFF80)]
    value = bf16[0].astype(np.uint32).view(np.float32) - bf16[1].astype(np.uint32).view(np.float32)
    np.testing.assert_array_equal(value, x.astype(np.int8).astype(np.float32))
    text = (Path(warploom.codegen.__file__).parent / "prelude" / "numbers.cuh").read_text()
    assert "^ 0x80808080u, 0x64646464u" in text and "0x64806480u" in text
    assert "x & 0xff7fff7fu, x & 0xff80ff80u" in text and "four, 0x43434343u" in text


@wl.jit
def apart(x: Any, BY: tl.constexpr, B: tl.constexpr) -> None:
    at = tl.arange(0, B) * BY
    tl.atomic_add(x + at, 1, sem="relaxed")


@pytest.mark.usefixtures("without_nvrtc")
@pytest.mark.parametrize("by", [3, -5])
def test_pointers_that_a_constant_parts_are_one_and_constants(by: int) -> None:
    """By how much registers differ follows from slopes, multiples of an index included."""
    x = np.zeros(640, np.int32)
    made = apart.compile_for(x, BY=by, B=128, grid=(1,), num_warps=1)
    found = re.findall(r"\[(\d)\] = \w+_first \+ (-?\d+);", made.cuda)
    assert [(int(r), int(n)) for r, n in found] == [(r, 32 * r * by) for r in range(4)]


@wl.jit
def rotated(x_ptr: Any, o_ptr: Any, BLOCK: tl.constexpr) -> None:
    """The halves of each 64 elements behind the first 2048 change places, one of them with its sign."""
    x = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK) - 2048
    half, row = x % 64, x // 64 * 64
    left = tl.load(x_ptr + row + half + 32, (x >= 0) & (half < 32), other=0.0)
    right = tl.load(x_ptr + row + half - 32, (x >= 0) & (half >= 32), other=0.0)
    tl.store(o_ptr + x + 2048, tl.where(half < 32, -left, right))


def test_what_a_vector_has_in_common_is_compared_once() -> None:
    made = rotated.compile({"x_ptr": "*bf16:16", "o_ptr": "*bf16:16"}, {"BLOCK": 1024})
    assert made.cuda.count("load_global128_if") >= 2
    compared = re.findall(r"\w+\[\d+\] = \w+\[\d+\] (?:<|>=) 32;", made.cuda)
    assert len(compared) == 2 and all("[0] =" in line for line in compared), compared
