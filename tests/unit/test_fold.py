"""Constant folding agrees with NumPy on every dtype and refuses what is undefined."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from warploom.ir.core import OpKind
from warploom.ir.fold import fold, round_float, wrap
from warploom.ir.ops import arith
from warploom.ir.types import DTYPES, DType, bf16, f8e4m3, f16, f32, f64, i8, i32, u8

many = settings(max_examples=examples(300), deadline=None, derandomize=True)
INTEGERS = [d for d in DTYPES.values() if d.kind in ("int", "uint")]

NUMPY: dict[OpKind, object] = {
    arith.add: np.add, arith.sub: np.subtract, arith.mul: np.multiply, arith.rem: np.fmod,
    arith.minimum: np.minimum, arith.maximum: np.maximum, arith.and_: np.bitwise_and,
    arith.or_: np.bitwise_or, arith.xor: np.bitwise_xor, arith.shl: np.left_shift,
    arith.shr: np.right_shift, arith.lt: np.less, arith.le: np.less_equal, arith.gt: np.greater,
    arith.ge: np.greater_equal, arith.eq: np.equal, arith.ne: np.not_equal,
}  # fmt: skip


def numbers(dtype) -> st.SearchStrategy[int]:  # type: ignore[no-untyped-def]
    info = np.iinfo(dtype.numpy)
    return st.one_of(
        st.integers(int(info.min), int(info.max)),
        st.sampled_from([0, 1, 2, 3, 7, int(info.min), int(info.max)]),
    )


@many
@given(st.data())
def test_integers_as_numpy(data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(INTEGERS))
    kind = data.draw(st.sampled_from(list(NUMPY)))
    x, y = data.draw(numbers(dtype)), data.draw(numbers(dtype))
    if kind in (arith.shl, arith.shr) and data.draw(st.booleans()):
        y = data.draw(st.integers(0, dtype.bits - 1))
    got = fold(kind, (x, y), dtype)
    undefined = (kind is arith.rem and y == 0) or (
        kind in (arith.shl, arith.shr) and not 0 <= y < dtype.bits
    )
    if undefined:
        assert got is None
        return
    with np.errstate(all="ignore"):
        want = NUMPY[kind](dtype.numpy.type(x), dtype.numpy.type(y))  # type: ignore[operator]
    assert got == want.item() and type(got) is type(want.item())


@many
@given(st.data())
def test_division_rounds_to_zero(data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(INTEGERS))
    x, y = data.draw(numbers(dtype)), data.draw(numbers(dtype))
    q, r = fold(arith.idiv, (x, y), dtype), fold(arith.rem, (x, y), dtype)
    if y == 0:
        assert q is None and r is None
    else:
        assert isinstance(q, int) and isinstance(r, int)
        assert wrap(q * y + r, dtype) == x and abs(r) < abs(y) and (r == 0 or (r < 0) == (x < 0))


@many
@given(st.data())
def test_casts_of_integers_as_numpy(data: st.DataObject) -> None:
    source, to = data.draw(st.sampled_from(INTEGERS)), data.draw(st.sampled_from([*INTEGERS, f32]))
    x = data.draw(numbers(source))
    got = fold(arith.cast, (x,), source, to)
    if got is None:
        assert to is f32 and abs(x) > 2**53
    else:
        assert got == source.numpy.type(x).astype(to.numpy).item()


@many
@given(
    st.sampled_from([f16, f32, f64]),
    st.sampled_from(
        [
            (arith.add, np.add),
            (arith.sub, np.subtract),
            (arith.mul, np.multiply),
            (arith.div, np.divide),
        ]
    ),
    st.floats(-60000, 60000, width=16),
    st.floats(-60000, 60000, width=16),
)
def test_floats_round_once(dtype, pair, x: float, y: float) -> None:  # type: ignore[no-untyped-def]
    kind, ufunc = pair
    got = fold(kind, (x, y), dtype)
    if kind is arith.div and x == y == 0:
        assert got is None
        return
    with np.errstate(all="ignore"):
        want = ufunc(dtype.numpy.type(x), dtype.numpy.type(y)).item()
    assert got == want and np.signbit(got) == np.signbit(want)


@pytest.mark.parametrize(
    ("kind", "values", "dtype", "to", "want"),
    [
        (arith.idiv, (-7, 2), i32, None, -3),
        (arith.rem, (-7, 2), i32, None, -1),
        (arith.idiv, (-128, -1), i8, None, -128),
        (arith.shr, (-8, 1), i8, None, -4),
        (arith.not_, (0,), u8, None, 255),
        (arith.cast, (300,), i32, u8, 44),
        (arith.cast, (2.9,), f32, i32, 2),
        (arith.cast, (3e9,), f64, i32, None),
        (arith.cast, (-1,), i32, DTYPES["i1"], True),
        (arith.select, (True, 1, 2), i32, None, 1),
        (arith.and_, (True, False), DTYPES["i1"], None, False),
        (arith.add, (True, True), DTYPES["i1"], None, None),
        (arith.mul, (float("inf"), 0.0), f32, None, None),
    ],
)
def test_cases(kind, values, dtype, to, want) -> None:  # type: ignore[no-untyped-def]
    got = fold(kind, values, dtype, to)
    assert got == want and type(got) is type(want)


@pytest.mark.parametrize("dtype", [f32, f16, bf16, f8e4m3])
@pytest.mark.parametrize("value", [0.1, 300.0, 464.0, 70000.0, -0.0])
def test_constants_are_what_their_type_holds(dtype: DType, value: float) -> None:
    with np.errstate(over="ignore"):
        want = float(dtype.numpy.type(value))
    got = fold(arith.cast, [value], dtype, f64)
    assert got == want or (got is not None and math.isnan(got) and math.isnan(want))
    assert fold(arith.eq, [value, want], dtype) is (want == want)


def test_rounding_refuses_what_it_can_not_tell() -> None:
    assert round_float(0.1, f32) == float(np.float32(0.1))
    assert round_float(1e300, f32) == float("inf")
    assert round_float(1.5, bf16) == 1.5 and round_float(0.1, bf16) is None
    assert round_float(1.0, f8e4m3) is None


@pytest.mark.parametrize(
    ("kind", "values", "wanted"),
    [
        (arith.sub, (0.0, math.inf), -math.inf),
        (arith.mul, (-2.0, math.inf), -math.inf),
        (arith.div, (1.0, -math.inf), -0.0),
        (arith.sub, (math.inf, math.inf), None),
        (arith.mul, (0.0, math.inf), None),
        (arith.div, (math.inf, math.inf), None),
    ],
)
def test_infinities(kind: OpKind, values: tuple[float, float], wanted: float | None) -> None:
    """Exact, but where the result is no number: which one the machine gives is its own affair."""
    found = fold(kind, values, f32)
    assert found == wanted
    if found is not None and wanted is not None:
        assert math.copysign(1, found) == math.copysign(1, wanted)
