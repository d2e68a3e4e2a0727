"""Products of operands whose elements share scales, in groups along K (OCP Microscaling Formats 1.0; NVFP4).

`decode_scaled_dots` makes them what the target has.
"""

from __future__ import annotations

from dataclasses import dataclass

from warploom.ir.core import TILE_ONLY, Family, Op, Type, Value, op, require
from warploom.ir.types import DType, Tile, bf16, dtype_of, f8e4m3, f8e5m2, f16, f32, shape_of, u8

# Elements of K that share a scale, by the dtype of scales: u8 is read as ue8m0, f8e4m3 as ue4m3.
GROUPS: dict[DType, int] = {u8: 32, f8e4m3: 16}
ELEMENTS = (u8, f8e4m3, f8e5m2, bf16, f16)  # u8: two e2m1, the first in the lower bits


@dataclass(frozen=True)
class Side:
    """An operand of a scaled dot.  k: its axis of K; packed: the one along which pairs of e2m1 lie."""

    value: Value
    scale: Value | None
    k: int
    packed: int

    @property
    def dtype(self) -> DType:
        return dtype_of(self.value.type)

    @property
    def shape(self) -> tuple[int, ...]:
        """In elements."""
        return unpacked(self.value.type, self.packed)


def unpacked(t: Type, packed: int) -> tuple[int, ...]:
    """The shape of an operand in elements, whose pairs lie along axis `packed` where it is of bytes."""
    each = 2 if dtype_of(t) == u8 else 1
    return tuple(n * each if axis == packed else n for axis, n in enumerate(shape_of(t)))


def _multiplied(o: Op, axis: int) -> tuple[int | None, ...]:
    """Rows of scales are rows of a and columns of b."""
    scales = {"ab"[axis]: 0}
    return (
        0 if axis == 0 else None,
        1 if axis else None,
        axis,
        *map(scales.get, o.attrs["scaled"]),
    )


@op(Family.COMBINE, levels=TILE_ONLY, axes=_multiplied)
def dot_scaled(
    a: Tile,
    b: Tile,
    acc: Tile,
    *scales: Tile,
    scaled: str = "ab",
    packed: tuple[int, ...] = (1, 0),
) -> Tile:
    """acc + (a · its scales) @ (b · its scales), summed in f32.

    a is M×K and b K×N: f8e4m3, f8e5m2, bf16, f16, or u8, two e2m1 a byte along axis `packed` of each.
    `scaled` names those that have scales, which follow: of a M×(K/g), of b N×(K/g), each for g elements that
    follow one another along K; of u8, which is 2^(x - 127) (ue8m0), with g = 32, or of f8e4m3, which is not
    negative (ue4m3), with g = 16.
    """
    for name, t in (("lhs", a), ("rhs", b)):
        two = isinstance(t, Tile) and len(t.shape) == 2
        require(two, f"dot_scaled's {name} is no tile of two axes but {t}", "dot-rank")
        require(t.dtype in ELEMENTS, f"dot_scaled multiplies no {t.dtype}", "dot-dtype")
    (m, k), (k2, n) = unpacked(a, packed[0]), unpacked(b, packed[1])
    require(k == k2, f"dot_scaled operands disagree on K: lhs has {k}, rhs {k2}", "dot-shape")
    fits = acc.shape == (m, n) and acc.dtype == f32
    require(fits, f"dot_scaled accumulates {m}x{n}xf32 into {acc}", "dot-acc")
    require(len(scales) == len(scaled), f"{len(scales)} scales for {scaled!r}", "dot-scale")
    for which, s in zip(scaled, scales, strict=True):
        require(
            isinstance(s, Tile) and s.dtype in GROUPS,
            f"scales are uint8 (ue8m0) or float8e4nv (ue4m3), not {s}",
            "dot-scale",
        )
        check_scale(s, m if which == "a" else n, k)
    return acc


def check_scale(s: Tile, rows: int, k: int) -> None:
    """Refuses scales that are not one for each group along K and each row (column) of an operand."""
    group = GROUPS[s.dtype]
    require(
        k % group == 0 and s.shape == (rows, k // group),
        f"scales of {s.dtype} for {rows} rows of {k} are {rows}x{k / group:g}, not {s}",
        "dot-scale",
    )


def sides(o: Op) -> tuple[Side, Side]:
    """The operands of a scaled dot, left and right."""
    scales = dict(zip(o.attrs["scaled"], o.operands[3:], strict=True))
    pa, pb = o.attrs["packed"]
    a, b = o.operands[:2]
    return Side(a, scales.get("a"), 1, pa), Side(b, scales.get("b"), 0, pb)
