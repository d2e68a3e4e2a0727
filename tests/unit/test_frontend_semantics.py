"""The language's rules, one by one: promotion, literals, broadcasting, integer division, sugar."""

from __future__ import annotations

import itertools
import operator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import warploom as wl
import warploom.language as tl
from tests.examples import examples
from tests.unit.tracing import kinds, launch, trace
from warploom.errors import WarploomError
from warploom.frontend.coerce import Const, Emitter, translating
from warploom.frontend.reads import Reads
from warploom.frontend.refuse import Refusal
from warploom.frontend.source import parameters, parse_function
from warploom.frontend.translate import translate
from warploom.ir.core import Value, walk
from warploom.ir.types import (
    DType,
    Pointer,
    Scalar,
    bf16,
    f8e4m3,
    f8e5m2,
    f16,
    f32,
    f64,
    i1,
    i8,
    i16,
    i32,
    i64,
    u8,
    u16,
    u32,
    u64,
)
from warploom.language import store

INTEGERS = (i1, i8, i16, i32, i64, u8, u16, u32, u64)
FLOATS = (f8e4m3, f8e5m2, f16, bf16, f32, f64)


# ---- promotion.  The table is written out from Triton's documentation, "Triton Semantics", type promotion,
# and the comments of its implementation: kind, then width, then unsigned; f64 > f32 > f16 > bf16 pairs.


def documented(a: DType, b: DType) -> DType | None:
    """The common dtype of two run-time values; None where there is none."""
    if a == b:
        return a
    pair = {a, b}
    for winner in (f64, f32, f16):
        if winner in pair:
            return winner
    if bf16 in pair:
        return f32
    if pair <= {f8e4m3, f8e5m2}:
        return f16
    if pair & {f8e4m3, f8e5m2}:
        return None
    ranks = {i1: 0, i8: 1, u8: 1, i16: 2, u16: 2, i32: 3, u32: 3, i64: 4, u64: 4}
    if ranks[a] != ranks[b]:
        return max(a, b, key=ranks.__getitem__)
    return a if a.kind == "uint" else b


def result(symbol: str, *operands: Any) -> DType:
    """The dtype of an operator's result, computed by the frontend."""
    emitter = Emitter()
    with translating(emitter):
        values = [Value(Scalar(x)) if isinstance(x, DType) else x for x in operands]
        out = emitter.binary(symbol, *values)
        found = emitter.dtype(out)
    assert isinstance(found, DType)
    return found


@pytest.mark.parametrize("a", INTEGERS + FLOATS, ids=str)
def test_promotion_table(a: DType) -> None:
    for b in INTEGERS + FLOATS:
        wanted = documented(a, b)
        if wanted is None:
            with pytest.raises(Refusal, match="no common type"):
                result("+", a, b)
        else:
            assert result("+", a, b) == wanted, (a, b)
            assert result("<", a, b) == i1


def test_promotion_is_symmetric() -> None:
    for a, b in itertools.combinations((*INTEGERS, f16, bf16, f32, f64), 2):
        assert result("*", a, b) == result("*", b, a)


@pytest.mark.parametrize(
    ("typed", "literal", "wanted"),
    [
        (i8, 3, i8), (u8, 3, u8), (i16, -1, i16), (i64, 3, i64), (u64, 3, u64),
        (i1, 3, i32), (i1, True, i1), (i32, True, i32),
        (f16, 3, f16), (bf16, 3, bf16), (f16, 2.5, f16), (bf16, 2.5, bf16), (f8e5m2, 1.0, f8e5m2),
        (i32, 2.5, f32), (i8, 2.5, f32), (i64, 2.5, f32), (i32, 1e300, f64), (f32, 1e300, f32),
        (i1, 2**31, u32), (i1, 2**32, i64), (i1, 2**63, u64),
    ],
)  # fmt: skip
def test_literals_adapt(typed: DType, literal: Any, wanted: DType) -> None:
    assert result("+", typed, literal) == wanted
    assert result("+", literal, typed) == wanted


def test_assigned_numbers_do_not_adapt() -> None:
    assert result("*", f16, Const(2.0, f32)) == f32
    assert result("*", i8, Const(2, i32)) == i32


@pytest.mark.parametrize(
    ("a", "b", "wanted"),
    [
        (i32, i32, f32),
        (i64, 2, f32),
        (f16, f16, f32),
        (bf16, 2, f32),
        (f32, i32, f32),
        (f64, f32, f64),
    ],
)
def test_true_division(a: Any, b: Any, wanted: DType) -> None:
    assert result("/", a, b) == wanted


@wl.jit
def stored_kernel(out_ptr, x_ptr):
    two = 2.0
    x = tl.load(x_ptr)
    tl.store(out_ptr, x * 2.0)
    tl.store(out_ptr, x * two)


def test_assignment_makes_a_number_strong() -> None:
    func = trace(stored_kernel, np.zeros(1, np.float16), np.zeros(1, np.float16))
    products = [o.result.type for o in func.body.ops if o.kind.name == "mul"]
    assert products == [Scalar(f16), Scalar(f32)]


# ---- integer arithmetic


@wl.jit
def division_kernel(out_ptr, a, b):
    tl.store(out_ptr, a // b)
    tl.store(out_ptr + 1, a % b)
    tl.store(out_ptr + 2, tl.cdiv(a, 7))
    tl.store(out_ptr + 3, -7 // 2 + 0 * a)  # both constexpr: Python's rounding


@pytest.mark.parametrize(("a", "b"), [(7, 2), (-7, 2), (7, -2), (-7, -2), (0, 5)])
def test_integer_division_rounds_as_c(a: int, b: int) -> None:
    out = np.zeros(4, np.int32)
    launch(division_kernel, 1, out, a, b)
    quotient = int(a / b)
    assert out[:2].tolist() == [quotient, a - quotient * b]
    assert out[3] == -4
    if a >= 0:
        assert out[2] == -(-a // 7)


@wl.jit
def folded_kernel(out_ptr, a, b):
    c = -7
    d = 2
    tl.store(out_ptr, c // d)
    tl.store(out_ptr + 1, c % d)
    tl.store(out_ptr + 2, 2147483647 + (d - 1))


def test_folding_computes_what_the_gpu_would() -> None:
    out = np.zeros(3, np.int32)
    launch(folded_kernel, 1, out, 1, 1)
    assert out.tolist() == [-3, -1, -(2**31)]


@wl.jit
def bools_kernel(out_ptr, x_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    odd = offs % 2 == 1
    big = offs > 2
    tl.store(out_ptr + offs, odd + big)
    tl.store(x_ptr + offs, odd * big)


def test_one_bit_arithmetic_wraps() -> None:
    added, product = np.zeros(5, np.bool_), np.zeros(5, np.bool_)
    launch(bools_kernel, 1, added, product, BLOCK=5)
    odd, big = np.arange(5) % 2 == 1, np.arange(5) > 2
    assert np.array_equal(added, odd ^ big) and np.array_equal(product, odd & big)


# ---- expressions at random: the same text evaluated by NumPy

BINARY = {"+": operator.add, "-": operator.sub, "*": operator.mul, "&": operator.and_, "|": operator.or_,
          "^": operator.xor}  # fmt: skip
expressions = st.recursive(
    st.sampled_from(["x", "y", "n", "row", "col", "3", "7"]),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(sorted(BINARY)), inner).map(
            lambda t: f"({t[0]} {t[1]} {t[2]})"
        ),
        inner.map(lambda e: f"(-{e})"),
        inner.map(lambda e: f"(~{e})"),
        st.tuples(inner, st.sampled_from(["<", "==", ">="]), inner, inner, inner).map(
            lambda t: f"tl.where({t[0]} {t[1]} {t[2]}, {t[3]}, {t[4]})"
        ),
        st.tuples(inner, inner).map(lambda t: f"tl.minimum({t[0]}, {t[1]})"),
    ),
    max_leaves=8,
)


class _NumPy:
    """tl for the reference, in int32."""

    @staticmethod
    def where(c: Any, x: Any, y: Any) -> Any:
        return np.where(c, np.asarray(x, np.int32), np.asarray(y, np.int32))

    @staticmethod
    def minimum(x: Any, y: Any) -> Any:
        return np.minimum(np.asarray(x, np.int32), np.asarray(y, np.int32))


@settings(max_examples=examples(60), deadline=None)
@given(text=expressions, seed=st.integers(0, 2**16))
def test_expressions_equal_numpy(tmp_path_factory: Any, text: str, seed: int) -> None:
    source = f"""
import warploom as wl
import warploom.language as tl

@wl.jit
def kernel(out_ptr, x_ptr, y_ptr, n, M: tl.constexpr, N: tl.constexpr):
    row = tl.arange(0, M)[:, None]
    col = tl.arange(0, N)[None, :]
    x = tl.load(x_ptr + row * N + col)
    y = tl.load(y_ptr + row)
    tl.store(out_ptr + row * N + col, {text})
"""
    path = tmp_path_factory.mktemp("expr") / "kernel.py"
    path.write_text(source)
    namespace: dict[str, Any] = {}
    exec(compile(source, str(path), "exec"), namespace)
    rng = np.random.default_rng(seed)
    x = rng.integers(-9, 9, (3, 5), np.int32)
    y = rng.integers(-9, 9, 3, np.int32)
    out = np.zeros((3, 5), np.int32)
    launch(namespace["kernel"], 1, out, x, y, 11, M=3, N=5)
    names = {
        "tl": _NumPy, "x": x, "y": y[:, None], "n": np.int32(11),
        "row": np.arange(3, dtype=np.int32)[:, None], "col": np.arange(5, dtype=np.int32),
    }  # fmt: skip
    with np.errstate(over="ignore"):
        wanted = np.broadcast_to(np.asarray(eval(text, names), np.int32), (3, 5))
    assert np.array_equal(out, wanted), text


# ---- sugar that must be gone


@wl.jit
def sugar_kernel(x_ptr, n, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=(offs >= 0) & (offs < n), other=1)
    keep = 0 < n <= 100
    y = x / 2 if keep else x * 1.0
    tl.store(x_ptr + offs, y)


def test_values_carry_the_users_names_and_places() -> None:
    func = trace(sugar_kernel, np.zeros(8, np.float32), 3, BLOCK=8)
    named = {v.hint: o for o in walk(func.body) for v in o.results if v.hint}
    assert {"offs", "x", "keep", "y"} <= set(named)
    source = parse_function(sugar_kernel.fn)
    load = named["x"]
    assert load.kind.name == "load" and load.loc is not None
    text = source.lines[load.loc.line - source.first_line]
    assert text[load.loc.col - 1 : load.loc.end_col - 1].startswith("tl.load(x_ptr + offs, mask=")
    assert load.loc.file == __file__


def test_pure_ternary_is_a_select() -> None:
    assert "if" not in kinds(trace(sugar_kernel, np.zeros(8, np.float32), 3, BLOCK=8))


@wl.jit
def accumulate_kernel(x_ptr, K, BLOCK: tl.constexpr, SAVE: tl.constexpr):
    offs = tl.arange(0, BLOCK)[:, None] * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs)
    acc = tl.zeros((BLOCK, BLOCK), tl.float32)
    for _ in range(K):
        if SAVE:
            p = tl.dot(x, x)
            acc += p
            acc += p
        else:
            acc = tl.dot(x, x) + acc
            acc += tl.dot(x, x)
    tl.store(x_ptr + offs, acc)


@pytest.mark.parametrize("save", [False, True])
def test_sum_with_a_dot_accumulates(save: bool) -> None:
    x = np.random.default_rng(0).integers(-3, 4, (16, 16)).astype(np.float32)
    out = x.copy()
    func = launch(accumulate_kernel, 1, out, 2, BLOCK=16, SAVE=save)
    assert np.array_equal(out, 4 * (x @ x))
    tile_adds = [o for o in walk(func.body) if o.kind.name == "add" and "f32" in str(o.result.type)]
    assert len(tile_adds) == (2 if save else 0)


# ---- what a kernel depends on

FACTOR = tl.constexpr(3)
SIZES = (1, 2)


@wl.jit
def inner_helper(x):
    return x * FACTOR


@wl.jit
def dependent_kernel(x_ptr, n):
    store(x_ptr, inner_helper(n) + SIZES[0])


def test_dependencies_follow_helpers_and_values(monkeypatch: pytest.MonkeyPatch) -> None:
    types = (Pointer(i32), Scalar(i32))

    def read() -> Reads:
        reads = Reads(dependent_kernel.fn)
        translate(dependent_kernel.fn, types, {}, reads=reads)
        return reads

    found = read()
    assert [line.rpartition(" (")[0] for line in found.described() if "text" not in line] == [
        "inner_helper: the kernel inner_helper", "FACTOR: 3", "SIZES: (1, 2)",
    ]  # fmt: skip
    assert read().text == found.text and found.is_current()
    monkeypatch.setitem(globals(), "FACTOR", tl.constexpr(4))
    assert read().text != found.text and not found.is_current()


def test_parameters() -> None:
    found = parameters(accumulate_kernel.fn)
    assert [(p.name, p.constexpr) for p in found] == [
        ("x_ptr", False), ("K", False), ("BLOCK", True), ("SAVE", True),
    ]  # fmt: skip


def test_the_language_is_for_kernels() -> None:
    with pytest.raises(WarploomError, match="inside a kernel"):
        tl.arange(0, 8)
    with pytest.raises(WarploomError, match="inside a kernel"):
        for _ in tl.range(3):
            pass


@wl.jit
def assumption_kernel(x_ptr, n):
    tl.assume(n > 2)
    tl.device_assert(n < 5, "n is large")
    assert n != 3, "n is three"
    tl.static_print("translating", n)


def test_assumptions_are_checked_by_the_oracle(capsys: pytest.CaptureFixture[str]) -> None:
    launch(assumption_kernel, 1, np.zeros(1, np.int32), 4)
    assert capsys.readouterr().out == "translating i32\n"
    for n in (2, 3, 5):
        with pytest.raises(WarploomError):
            launch(assumption_kernel, 1, np.zeros(1, np.int32), n)


@wl.jit
def nested_helper_names(x_ptr, n):
    x = n
    if n > 3:
        x = x + 1
    elif n > 1:
        x = x + 2
    tl.store(x_ptr, x)


@settings(max_examples=examples(10), deadline=None)
@given(n=st.integers(0, 6))
def test_elif_chain(n: int) -> None:
    out = np.zeros(1, np.int32)
    launch(nested_helper_names, 1, out, n)
    assert out[0] == n + (1 if n > 3 else 2 if n > 1 else 0)


def test_emitted_values_of_constants() -> None:
    emitter = Emitter()
    with translating(emitter):
        v = emitter.cast(300, u8)
        assert emitter.builder.ops[-1].attrs == {"value": 44, "dtype": u8} and v.type == Scalar(u8)
        emitter.cast(True, f32)
        assert emitter.builder.ops[-1].attrs == {"value": 1.0, "dtype": f32}


@wl.jit
def first(pair):
    return pair[0]


@wl.jit
def aliases_kernel(x_ptr, out_ptr, n):
    a = b = tl.load(x_ptr)
    pair = (tl.load(x_ptr + 1), 1)
    c = first(pair)
    for _ in range(n):
        pair = (pair[0] + c, 1)
    tl.store(out_ptr, a + b)
    tl.store(out_ptr + 1, pair[0] + c)


def test_values_with_several_names() -> None:
    out = np.zeros(2, np.int32)
    launch(aliases_kernel, 1, np.array([3, 5], np.int32), out, 2)
    assert out.tolist() == [6, 20]


@wl.jit
def host_helpers_kernel(x_ptr, BLOCK: tl.constexpr):
    SIZE: tl.constexpr = wl.next_power_of_2(BLOCK)
    tl.store(x_ptr + tl.arange(0, SIZE), wl.cdiv(SIZE, 3))


def test_host_helpers_work_on_constexprs() -> None:
    out = np.zeros(8, np.int32)
    launch(host_helpers_kernel, 1, out, BLOCK=5)
    assert out.tolist() == [3] * 8


# ---- Python's order of evaluation


@wl.jit
def assigned_in_conditions(out, n):
    i = at = 0
    while (i := i + 1) < n and i < 9:
        at = tl.atomic_add(out + 1, 1)
    last = [(most := k) for k in range(3)]
    tl.store(out, i * 100 + at * 10 + most + len(last) - 3)


@wl.jit
def compared_in_turn(out, n):
    if 5 < n < tl.atomic_add(out + 1, 1) + 20 < 30:
        tl.store(out, 1)
    if 5 < n < tl.load(out + 1000 * tl.where(n > 5, 0, 1)) + 7:  # out of bounds for others
        tl.store(out + 2, 1)


@pytest.mark.parametrize("n", [0, 1, 4, 12])
def test_conditions_of_loops_may_assign(n: int) -> None:
    out = np.zeros(2, np.int32)
    assigned_in_conditions[(1,)](out, n)
    wanted, i, at, count = 0, 0, 0, 0
    while (i := i + 1) < n and i < 9:
        at, count = count, count + 1
    wanted = i * 100 + at * 10 + 2
    assert out.tolist() == [wanted, count]


@pytest.mark.parametrize(
    "n, wanted", [(2, [0, 0, 0]), (5, [0, 0, 0]), (6, [1, 1, 1]), (20, [0, 1, 0])]
)
def test_comparisons_end_where_one_is_false(n: int, wanted: list[int]) -> None:
    out = np.zeros(3, np.int32)
    compared_in_turn[(1,)](out, n)
    assert out.tolist() == wanted


@wl.jit
def beyond_32_bits(out, DOWN: tl.constexpr):
    first = 2**40
    if DOWN:
        for i in range(2**40 + 2, 2**40 - 1, -1):
            tl.store(out + (i - first), (i > 2**33).to(tl.int32))
    else:
        for i in range(2**40, 2**40 + 3):
            tl.store(out + (i - first), (i > 2**33).to(tl.int32))
    for i in range(5, 10, 2**33):
        tl.store(out + i, 1)


@pytest.mark.parametrize("down", [False, True])
def test_bounds_of_loops_may_be_wider_than_32_bits(down: bool) -> None:
    out = np.zeros(12, np.int32)
    beyond_32_bits[(1,)](out, DOWN=down)
    assert out.tolist() == [1, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0]
