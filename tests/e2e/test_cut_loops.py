"""Loops that overlap, cut where a mask begins or ceases to let all through."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import warploom as wl
import warploom.language as tl
from tests.e2e import road
from tests.pairwise import diagonals
from warploom.analysis.mask_ranges import Bounds, UnknownError
from warploom.analysis.structure import Structure, structure_of
from warploom.ir.core import Builder, Op, Region, Value, walk
from warploom.ir.ops import arith, control, mma
from warploom.ir.parser import parse_func

pytestmark = pytest.mark.usefixtures("without_nvrtc")
BF16 = ml_dtypes.bfloat16


@wl.jit
def weighed(
    q_ptr, k_ptr, v_ptr, o_ptr, first, end, n, MASK: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Σ over the columns of a stretch of (q·kᵀ)·v, in integers."""
    rows = tl.program_id(0) * 128 + tl.arange(0, 128)
    d = tl.arange(0, D)
    q = tl.load(q_ptr + rows[:, None] * D + d[None, :], mask=rows[:, None] < n, other=0.0)
    acc = tl.zeros([128, D], tl.float32)
    for j in range(0, n, BLOCK):
        cols = j + tl.arange(0, BLOCK)
        inside = cols[:, None] < n
        k = tl.load(k_ptr + cols[:, None] * D + d[None, :], mask=inside, other=0.0)
        v = tl.load(v_ptr + cols[:, None] * D + d[None, :], mask=inside, other=0.0)
        s = tl.dot(q, k.T)
        if MASK == "before":
            s = tl.where((cols < end)[None, :], s, 1.0)
        elif MASK == "behind":
            s = tl.where((cols >= first)[None, :], s, 1.0)
        elif MASK == "causal":
            s = tl.where((cols[None, :] <= rows[:, None]) & (cols < end)[None, :], s, 1.0)
        else:
            s = tl.where((cols >= first)[None, :] & (cols < end)[None, :], s, 1.0)
        acc = tl.dot(s.to(v.dtype), v, acc)
    tl.store(o_ptr + rows[:, None] * D + d[None, :], acc, mask=rows[:, None] < n)


@pytest.mark.parametrize(
    ("mask", "size"),
    diagonals(
        2,
        ["before", "behind", "causal", "both"],
        [(300, 130, 200), (300, 0, 300), (64, 64, 0), (200, 63, 65)],
    ),
)
@pytest.mark.each(3)
def test_what_a_mask_lets_through(mask: str, size: tuple[int, int, int]) -> None:
    """Bit-equal in every form; where the mask lets all through there is a loop without a select."""
    n, first, end = size
    rng = np.random.default_rng(n)
    q, k, v = (road.filled(rng.integers(-1, 2, (n, 64)), BF16) for _ in range(3))
    o = road.array((n, 64), np.float32)
    args = [q, k, v, o, first, end, n]
    meta = {"MASK": mask, "D": 64, "BLOCK": 64, "num_consumer_groups": 2}
    compiled, found = road.check_equal(weighed, args, (-(-n // 128),), meta, orders=("late",))
    at = np.arange(n)
    seen = {
        "before": at[None] < end,
        "behind": at[None] >= first,
        "causal": (at[None] <= at[:, None]) & (at[None] < end),
        "both": (at[None] >= first) & (at[None] < end),
    }[mask]
    exact = [x.astype(np.float64) for x in (q, k, v)]
    s = np.where(seen, exact[0] @ exact[1].T, 1.0).astype(BF16).astype(np.float64)
    np.testing.assert_array_equal(found[3], s @ exact[2])
    counted = [sum(o.kind is arith.select for o in walk(x)) for x in _loops(compiled)]
    assert (
        counted == {"before": [0, 1], "behind": [1, 0], "causal": [0, 1], "both": [1, 0, 1]}[mask]
    )


def _loops(compiled: Any) -> list[Region]:
    """The loops with dots of the consumer."""
    from warploom.ir.core import Level

    body = compiled.lowered.at(Level.WARP).body
    found = (o for o in walk(body) if o.kind is control.for_)
    return [o.regions[0] for o in found if any(x.kind is mma.wgmma for x in o.regions[0].ops)]


COMPARED = """func @f(%n: i32, %p: ptr<i32>) level=TILE {{}} {{
  %c0 = const() {{value=0, dtype=i32}} : i32
  %c4 = const() {{value=4, dtype=i32}} : i32
  for(%c0, %n, %c4) do (%i: i32) {{
    %lanes = arange() {{start=0, end=4}} : tile<4xi32>
    %at = splat(%i) {{shape=(4,)}} : tile<4xi32>
    %cols = add(%at, %lanes) : tile<4xi32>
    %limit = splat(%n) {{shape=(4,)}} : tile<4xi32>
    {mask}
    yield()
  }}
  yield()
}}
"""


@pytest.mark.parametrize(
    ("mask", "rises", "off"),
    [
        ("%m = lt(%cols, %limit) : tile<4xi1>", False, -3),
        ("%m = le(%cols, %limit) : tile<4xi1>", False, -2),
        ("%m = gt(%limit, %cols) : tile<4xi1>", False, -3),
        ("%m = lt(%limit, %cols) : tile<4xi1>", True, 1),
        ("%m = ge(%cols, %limit) : tile<4xi1>", True, 0),
        ("%x = sub(%limit, %at) : tile<4xi32>\n    %m = lt(%lanes, %x) : tile<4xi1>", None, 0),
        ("%m = lt(%cols, %cols) : tile<4xi1>", None, 0),
        ("%m = eq(%cols, %limit) : tile<4xi1>", None, 0),
    ],
)
def test_where_a_comparison_is_true_everywhere(mask: str, rises: bool | None, off: int) -> None:
    """n + off is the index from which it holds, or up to which it does."""
    func = parse_func(COMPARED.format(mask=mask))
    structure = structure_of(func)
    loop = next(o for o in structure.ops if o.kind is control.for_)
    (body,) = loop.regions
    value = body.ops[-2].result
    b = Builder()
    tell = Bounds(b, structure, lambda v: _outside(structure, loop, v), body.params[0])
    if rises is None:
        with pytest.raises(UnknownError):
            tell.always(value)
        return
    found = tell.always(value)
    made = {v: o for o in b.ops for v in o.results}
    bound, other = (found.begin, found.end) if rises else (found.end, found.begin)
    assert other is None and bound is not None
    assert _evaluated(bound, made, func.params[0], 100) == 100 + off


def _outside(structure: Structure, loop: Op, v: Value) -> Value:
    maker = structure.maker(v)
    if maker is not None and structure.parent[maker] is loop:
        raise UnknownError(v.hint)
    return v


def _evaluated(v: Value, made: dict[Value, Op], n: Value, at: int) -> int:
    if v is n:
        return at
    o = made[v]
    if o.kind is arith.const:
        return int(o.attrs["value"])
    if o.kind is arith.cast:
        return _evaluated(o.operands[0], made, n, at)
    x, y = (_evaluated(u, made, n, at) for u in o.operands)
    return x + y if o.kind is arith.add else x - y
