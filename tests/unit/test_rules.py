"""Tables of rules answer for every op, or refuse it by name."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from typing import Any

import pytest

import warploom
from warploom.errors import InternalError
from warploom.ir.core import KINDS, MIXED, Builder, Effect, Family, Op, OpKind, Value, op
from warploom.ir.ops import arith, tile
from warploom.ir.rules import TABLES, Rules
from warploom.ir.types import Pointer, Scalar, Tile, View, f16, f32, i1, i32

for _module in pkgutil.walk_packages(warploom.__path__, "warploom."):
    if _module.name.split(".")[1] in ("analysis", "passes", "eject", "explain"):
        importlib.import_module(_module.name)


@pytest.fixture
def stranger() -> Any:
    """An op of which no table has heard."""

    @op(Family.COMBINE)
    def stranger(x: Tile) -> Tile:
        """Nobody knows it."""
        return x

    yield stranger
    del KINDS["stranger"]


def test_there_are_tables() -> None:
    assert len(TABLES) >= 4


@pytest.mark.parametrize("table", TABLES, ids=lambda t: t.question)
def test_a_table_answers_for_every_op_of_the_families_it_knows(table: Rules[object]) -> None:
    assert not table.incomplete()
    families = {k if isinstance(k, Family) else k.family for k in table}
    for kind in KINDS.values():
        if kind.family in families and kind.levels & table.levels:
            table[kind]  # no error
        elif kind.family not in families:
            with pytest.raises(InternalError, match=f"{kind.name} has no rule"):
                table[kind]


def test_a_forgotten_op_is_found_and_refused(stranger: OpKind) -> None:
    table = Rules("is it here", {tile.reduce: True, tile.scan: True, tile.dot: True})
    TABLES.remove(table)
    assert stranger in table.incomplete()
    with pytest.raises(InternalError, match="is it here: stranger has no rule"):
        table[stranger]
    by_family = Rules("is it here", {Family.COMBINE: True})
    TABLES.remove(by_family)
    assert not by_family.incomplete() and by_family[stranger]


def test_families_are_what_they_say() -> None:
    for kind in KINDS.values():
        pure = kind.family in (
            Family.NUMBER, Family.POINTWISE, Family.FILL, Family.MOVE, Family.COMBINE,
        )  # fmt: skip
        assert not (pure and kind.effect), kind
        if kind.family in (Family.ACCESS, Family.SHARED):
            assert kind.effect & (Effect.READ | Effect.WRITE) and not kind.effect & Effect.SYNC
        if kind.family in (Family.ISSUE, Family.WAIT, Family.SIGNAL, Family.FENCE):
            assert kind.effect & Effect.SYNC, kind


# ---- axes


def made(kind: OpKind, *types: Any, **attrs: Any) -> Op:
    b = Builder()
    kind(b, *map(Value, types), **attrs)
    return b.ops[0]


WIDE = Tile((4, 8), f32, None)
EXAMPLES: dict[OpKind, Op] = {
    tile.splat: made(tile.splat, Scalar(f32), shape=(4, 8)),
    tile.arange: made(tile.arange, start=3, end=11),
    tile.expand_dims: made(tile.expand_dims, WIDE, axis=1),
    tile.broadcast: made(tile.broadcast, Tile((4, 1), f32, None), shape=(4, 8)),
    tile.transpose: made(tile.transpose, WIDE, perm=(1, 0)),
    tile.reshape: made(tile.reshape, WIDE, shape=(2, 2, 8)),
    tile.slice_tile: made(tile.slice_tile, WIDE, offset=(0, 4), shape=(4, 4)),
    tile.concat: made(tile.concat, WIDE, WIDE, axis=1),
    tile.convert_layout: made(tile.convert_layout, WIDE, layout=None),
    tile.reduce: made(tile.reduce, WIDE, axis=0, fn="add"),
    tile.scan: made(tile.scan, WIDE, axis=1, fn="add", reverse=False),
    tile.gather: made(tile.gather, WIDE, Tile((4, 6), i32, None), axis=1),
    arith.add: made(arith.add, WIDE, WIDE),
    arith.select: made(arith.select, Scalar(i1), WIDE, WIDE),
}


def _values(o: Op, seed: int) -> list[Any]:
    import numpy as np

    rng = np.random.default_rng(seed)
    out = []
    for v in o.operands:
        shape = v.type.shape if isinstance(v.type, Tile) else ()
        dtype = v.type.elem if isinstance(v.type, Tile) else v.type.dtype  # type: ignore[attr-defined]
        out.append(
            rng.integers(0, 2 if dtype == i1 else 8 if dtype == i32 else 90, shape).astype(
                dtype.numpy
            )[()]
        )
    return out


@pytest.mark.parametrize("kind", EXAMPLES, ids=lambda k: k.name)
def test_a_part_of_a_result_follows_from_the_parts_that_axes_tell(kind: OpKind) -> None:
    """Changing what an axis says not to be looked at changes nothing in the result's part."""
    import numpy as np

    from warploom.sim.evaluate import PURE

    o = EXAMPLES[kind]
    run: Callable[..., Any] = PURE[kind]
    shape = o.result.type.shape  # type: ignore[attr-defined]
    for axis, n in enumerate(shape):
        assert kind.axes is not None
        along = kind.axes(o, axis)
        assert len(along) == len(o.operands)
        if MIXED in along or n % 2:
            continue
        one, other = _values(o, 0), _values(o, 1)
        for half in (0, 1):
            part = np.s_[half * n // 2 : (half + 1) * n // 2]
            mixed = []
            for x, y, a in zip(one, other, along, strict=True):
                kept = np.array(y)
                if a is None:
                    kept = np.array(x)
                else:
                    m = kept.shape[a] // 2
                    at = [np.s_[:]] * kept.ndim
                    at[a] = np.s_[half * m : (half + 1) * m]
                    kept[tuple(at)] = x[tuple(at)]
                mixed.append(kept[()])
            at = [np.s_[:]] * len(shape)
            at[axis] = part
            np.testing.assert_array_equal(run(o, *one)[tuple(at)], run(o, *mixed)[tuple(at)])


def test_every_op_that_makes_a_tile_of_others_tells_its_axes() -> None:
    families = (Family.POINTWISE, Family.FILL, Family.MOVE, Family.COMBINE)
    assert all(k.axes is not None for k in KINDS.values() if k.family in families)
    assert [tile.dot.axes(dot(), a) for a in (0, 1)] == [(0, None, 0), (None, 1, 1)]  # type: ignore[misc]
    p = made(tile.load, Tile((4, 8), Pointer(f32), None))
    assert tile.load.axes is not None and tile.load.axes(p, 1) == (1,)
    box = made(tile.load_box, View(2, f32), Scalar(i32), Scalar(i32), shape=(4, 8))
    assert tile.load_box.axes is not None and tile.load_box.axes(box, 0) == (None, None, None)


def dot() -> Op:
    a, b = Tile((64, 16), f16, None), Tile((16, 8), f16, None)
    return made(tile.dot, a, b, Tile((64, 8), f32, None))
