"""What arguments are, their facts, and signature strings."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from warploom.errors import CompileError, LaunchError
from warploom.ir.core import Fact
from warploom.ir.types import ARGUMENT_DTYPES, DTYPES
from warploom.runtime.args import (
    CPU,
    Array,
    Spec,
    TensorDescriptor,
    divisor,
    fields_of,
    inspect,
    int_spec,
    parse_spec,
    spec_of,
)
from warploom.runtime.dtypes import ITEM_BYTES

DIVISORS = st.sampled_from([1, 2, 4, 8, 16])
DTYPE = st.sampled_from(sorted(DTYPES))
INT_DTYPE = st.sampled_from([n for n in sorted(DTYPES) if n[0] in "iu" and n != "i1"])


@st.composite
def specs(draw: st.DrawFn) -> Spec:
    match draw(st.sampled_from(["pointer", "int", "constant", "number", "descriptor"])):
        case "pointer":
            return Spec("pointer", draw(DTYPE), Fact(draw(DIVISORS)))
        case "int":
            return Spec("scalar", draw(INT_DTYPE), Fact(draw(DIVISORS)))
        case "constant":
            n = draw(st.integers(-100, 100))
            return Spec("scalar", draw(INT_DTYPE), Fact(divisor(n), n))
        case "number":
            return Spec("scalar", draw(DTYPE))
    block = tuple(draw(st.lists(st.integers(1, 256), min_size=1, max_size=5)))
    strides = tuple(draw(DIVISORS) for _ in block[1:])
    padding = draw(st.sampled_from(["zero", "nan"]))
    row = draw(DIVISORS)
    return Spec("descriptor", draw(DTYPE), Fact(draw(DIVISORS)), block, strides, padding, row)


@given(specs())
def test_signature_entries_round_trip(spec: Spec) -> None:
    assert parse_spec(str(spec)) == spec


def test_signature_spelling() -> None:
    assert parse_spec("*fp16:16") == Spec("pointer", "f16", Fact(16))
    assert parse_spec("i32:16") == Spec("scalar", "i32", Fact(16))
    assert parse_spec("i32=1") == Spec("scalar", "i32", Fact(1, 1))
    assert parse_spec("fp32") == Spec("scalar", "f32")
    assert str(Spec("pointer", "f8e4m3", Fact(16))) == "*fp8e4nv:16"


@pytest.mark.parametrize(
    "text",
    ["", "*", "fp17", "*fp16:3", "*fp16=1", "fp32:16", "i1=1", "i32:32", "desc<fp16,[64,64],()>"],
)
def test_signature_mistakes(text: str) -> None:
    with pytest.raises(CompileError, match="signature entry") as e:
        parse_spec(text)
    assert e.value.code == "signature"


@given(st.integers(-(1 << 63), (1 << 64) - 1))
def test_integer_facts_hold(n: int) -> None:
    spec = int_spec(n)
    low, high = {"i32": (-(1 << 31), 1 << 31), "i64": (-(1 << 63), 1 << 63), "u64": (0, 1 << 64)}[
        spec.dtype
    ]
    assert low <= n < high
    assert n % spec.fact.divisible == 0
    assert spec.fact.divisible == 16 or n % (2 * spec.fact.divisible) != 0
    assert spec.fact.value == (1 if n == 1 else None)


def test_integers_beyond_64_bits() -> None:
    with pytest.raises(LaunchError, match="64 bits"):
        int_spec(1 << 64)


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(-3, 3)), min_size=1, max_size=3),
    st.sampled_from(["i8", "f16", "f64"]),
)
def test_byte_ranges_cover_exactly_the_elements(axes: list[tuple[int, int]], dtype: str) -> None:
    shape, strides = tuple(n for n, _ in axes), tuple(s for _, s in axes)
    a = Array(dtype, 1000, shape, strides, 0)
    item = ITEM_BYTES[dtype]
    starts = [1000 + item * int(np.dot(i, strides)) for i in np.ndindex(shape)]
    expected = (min(starts), max(starts) + item) if starts else (1000, 1000)
    assert a.bytes_range() == expected


AXES = st.lists(st.tuples(st.integers(1, 4), st.integers(-12, 12)), min_size=1, max_size=3)


@given(AXES, AXES, st.integers(-12, 12), st.sampled_from(["i8", "f16"]))
def test_arrays_that_share_an_element_meet(
    x: list[tuple[int, int]], y: list[tuple[int, int]], ahead: int, dtype: str
) -> None:
    item = ITEM_BYTES[dtype]

    def made(axes: list[tuple[int, int]], pointer: int) -> tuple[Array, set[int]]:
        shape, strides = tuple(n for n, _ in axes), tuple(s for _, s in axes)
        starts = {pointer + item * int(np.dot(i, strides)) for i in np.ndindex(shape)}
        held = {at + i for at in starts for i in range(item)}
        return Array(dtype, pointer, shape, strides, 0, bounded=True), held

    (a, bytes_a), (b, bytes_b) = made(x, 1000), made(y, 1000 + ahead)
    assert a.bytes().meets(b.bytes()) or bytes_a.isdisjoint(bytes_b)
    assert a.bytes().meets(b.bytes()) == b.bytes().meets(a.bytes())


def test_columns_of_one_matrix_share_no_bytes() -> None:
    """As heads of packed queries and keys, and as gates beside what they scale."""
    for shape, strides, first in [
        ((2, 64, 32), (64 * 96, 96, 1), 32),
        ((64, 4, 8), (3 * 32, 8, 1), 32),
        ((64, 4, 8), (2 * 64, 16, 1), 8),
    ]:
        x, y = (Array("f16", at, shape, strides, 0, bounded=True) for at in (0, 2 * first))
        assert not x.bytes().meets(y.bytes())
        near = Array("f16", 2 * first - 2, shape, strides, 0, bounded=True)
        assert x.bytes().meets(near.bytes())
        # Through a pointer all between its rows may be reached.
        assert Array("f16", 0, shape, strides, 0).bytes().meets(y.bytes())


def test_item_bytes_are_the_dtypes() -> None:
    assert {name: d.bytes for name, d in ARGUMENT_DTYPES.items()} == ITEM_BYTES


@pytest.mark.parametrize(
    "dtype", [np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, np.int64]
)
def test_numpy_arrays(dtype: type) -> None:
    x = np.zeros((6, 8), dtype)[::2, 1:]
    a = inspect(x)
    assert a is not None
    assert (a.shape, a.strides, a.device) == ((3, 7), (16, 1), CPU)
    assert DTYPES[a.dtype].numpy == np.dtype(dtype)
    spec = spec_of(x, a, "x")
    assert a.pointer % spec.fact.divisible == 0


def test_what_numbers_become() -> None:
    def of(value: object) -> str:
        return str(spec_of(value, None, "x"))

    assert [of(v) for v in (1, 48, 7, True, 1.5)] == ["i32=1", "i32:16", "i32", "i1", "fp32"]
    assert [of(v) for v in (np.int64(8), np.float32(2), np.float64(2), np.bool_(1))] == [
        "i64:8",
        "fp32",
        "fp64",
        "i1",
    ]
    for wrong in ("text", object(), [1], 1j):
        with pytest.raises(LaunchError, match="argument x is a"):
            spec_of(wrong, inspect(wrong), "x")


def test_descriptors_become_base_extents_and_strides() -> None:
    x = np.zeros((64, 48), np.float16)
    d = TensorDescriptor.from_tensor(x, (32, 16))
    fields = fields_of("d", d)
    assert [(f.name, f.on_host) for f in fields[1:]] == [
        ("d_shape0", 64),
        ("d_shape1", 48),
        ("d_stride0", 48),
        ("d_stride1", 1),
    ]
    assert fields[0].on_host is x
    spec = spec_of(d, fields[0].array, "d")
    assert (spec.kind, spec.block, spec.strides) == ("descriptor", (32, 16), (16,))


def test_descriptor_mistakes() -> None:
    x = np.zeros((64, 48), np.float16)
    for arguments, code in (
        ((x, (64,), (48, 1), (32, 16)), "descriptor-rank"),
        ((x, (48, 64), (1, 48), (32, 16)), "descriptor-stride"),
        ((x, (64, 48), (48, 1), (32, 16), "edge"), "descriptor-padding"),
        ((3, (64, 48), (48, 1), (32, 16)), "argument-type"),
    ):
        with pytest.raises(LaunchError) as e:
            TensorDescriptor(*arguments)  # type: ignore[arg-type]
        assert e.value.code == code


def test_arrays_of_dtypes_that_kernels_do_not_take() -> None:
    with pytest.raises(LaunchError, match="complex128"):
        inspect(np.zeros(3, np.complex128))


@pytest.mark.parametrize(
    ("described", "missing"),
    [
        ({"shape": (4,), "typestr": "<f4"}, "'data'"),
        ({"shape": 4, "typestr": "<f4", "data": (64, False)}, "int"),
        (None, "None"),
    ],
)
@pytest.mark.parametrize("name", ["__cuda_array_interface__", "__array_interface__"])
def test_an_interface_that_is_no_description(name: str, described: object, missing: str) -> None:
    bad = type("Bad", (), {name: described})()
    with pytest.raises(LaunchError) as refused:
        inspect(bad)
    assert refused.value.code == "array-memory"
    assert "an argument is a Bad" in refused.value.message and missing in refused.value.message
