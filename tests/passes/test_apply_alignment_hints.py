"""apply_alignment_hints: what tl.multiple_of says of pointers becomes runs of loads; and whom nobody believes."""

from typing import Any

import numpy as np
import pytest

import warploom as wl
import warploom.language as tl
from tests.unit.tracing import trace
from warploom.errors import CompileError
from warploom.ir.core import Fact, Func, walk
from warploom.ir.ops import tile
from warploom.ir.types import Tile, f16
from warploom.ir.verify import verify
from warploom.passes.tile.apply_alignment_hints import apply_alignment_hints
from warploom.passes.tile.canonicalize import canonicalize
from warploom.sim import oracle
from warploom.sim.report import SimError
from warploom.target import SM_90A


@wl.jit
def rows(x_ptr: Any, at_ptr: Any, out_ptr: Any, BY: tl.constexpr, HOW: tl.constexpr) -> None:
    """Four rows of 32 elements, each where a number from memory says."""
    r, c = tl.arange(0, 4), tl.arange(0, 32)
    p = x_ptr + tl.load(at_ptr + r)[:, None] + c[None, :]
    if HOW == "pointers":
        tl.multiple_of(p, [1, BY])
    if HOW == "other axis":
        tl.multiple_of(p, [BY, 1])
    if HOW == "number":
        p = x_ptr + tl.multiple_of(tl.load(at_ptr), BY) + r[:, None] * 64 + c[None, :]
    if HOW == "condition" and tl.load(at_ptr) >= 0:
        tl.multiple_of(p, [1, BY])
    if HOW == "loop":
        for _ in range(2):
            tl.multiple_of(p, [1, BY])
            tl.store(out_ptr + r[:, None] * 32 + c[None, :], tl.load(p))
            p += 64
    else:
        tl.store(out_ptr + r[:, None] * 32 + c[None, :], tl.load(p))


def taken(how: str, by: int) -> tuple[Func, tuple[int, ...]]:
    """The function, before the pass; and what its one load of a tile of f16 moves at once, after it."""
    x, at = np.zeros(0, np.float16), np.zeros(0, np.int32)
    func = trace(rows, x, at, x, BY=by, HOW=how)
    func = canonicalize(func.with_(attrs={**func.attrs, "facts": (Fact(16),) * 3}), SM_90A)
    out = apply_alignment_hints(func)
    verify(out)
    assert not any(o.kind is tile.multiple_of for o in walk(out.body))
    assert apply_alignment_hints(out) == out
    loads = [o for o in walk(out.body) if o.kind is tile.load and o.results]
    (run,) = {tuple(o.attrs.get("run", ())) for o in loads if o.result.type == Tile((4, 32), f16)}
    return func, run


@pytest.mark.parametrize(
    ("how", "by", "run"),
    [("pointers", 16, (1, 8)), ("pointers", 8, (1, 4)), ("pointers", 48, (1, 8)), ("pointers", 3, ()),
     ("loop", 16, (1, 8)), ("number", 8, (1, 8)), ("number", 2, (1, 2)), ("other axis", 16, ()),
     ("condition", 16, ())],
)  # fmt: skip
def test_what_is_promised_is_moved_at_once(how: str, by: int, run: tuple[int, ...]) -> None:
    assert taken(how, by)[1] == run


@pytest.mark.parametrize("how", ["pointers", "loop", "number", "condition"])
@pytest.mark.parametrize("first", [64, 65])
def test_a_promise_that_does_not_hold_is_reported(how: str, first: int) -> None:
    """By the oracle; by the simulator where something hangs on it."""
    func, _ = taken(how, 8)
    x = np.arange(400, dtype=np.float16)
    at = np.array([first, 8, 200, 112], np.int32)
    out = np.zeros((4, 32), np.float16)
    if first == 65:
        with pytest.raises(SimError, match="multiple of 8"):
            oracle.run(func, [x, at, out], (1,))
        return
    oracle.run(func, [x, at, out], (1,))
    begin = first + 64 * np.arange(4) if how == "number" else at + 64 * (how == "loop")
    np.testing.assert_array_equal(out, begin[:, None] + np.arange(32))


def test_the_simulator_holds_the_access_against_the_promise() -> None:
    kernel = rows.compile(("*fp16:16", "*i32", "*fp16:16"), {"BY": 16, "HOW": "pointers"})
    x, out = np.arange(400, dtype=np.float16), np.zeros((4, 32), np.float16)
    at = np.array([64, 8, 200, 112], np.int32)
    kernel.simulate(x, at, out, grid=(1,))
    np.testing.assert_array_equal(out, at[:, None] + np.arange(32))
    with pytest.raises(SimError, match="runs of 8 along axis 1"):
        kernel.simulate(x, at + 4, out, grid=(1,))


@pytest.mark.parametrize("by", [[16], [1, 16, 1], [0, 16], 16])
def test_divisors_that_do_not_fit_are_refused(by: Any) -> None:
    @wl.jit
    def kernel(x_ptr: Any, BY: tl.constexpr) -> None:
        p = x_ptr + tl.arange(0, 4)[:, None] + tl.arange(0, 4)[None, :]
        tl.multiple_of(p, BY)

    with pytest.raises(CompileError) as e:
        trace(kernel, np.zeros(4, np.float16), BY=by)
    assert e.value.code == "multiple-of"
