"""Products of operands in block-scaled formats."""

from __future__ import annotations

from typing import Any

from warploom.frontend.coerce import Operand, Tensor, current, describe, static_bool, static_dtype
from warploom.frontend.language.core import builtin
from warploom.frontend.language.shape import full, tile_of
from warploom.frontend.refuse import refuse
from warploom.ir.core import Value
from warploom.ir.ops import arith, scaled
from warploom.ir.types import DType, bf16, dtype_of, f8e4m3, f8e5m2, f16, f32, shape_of, u8

__all__ = ["dot_scaled"]

FORMATS = {"e2m1": u8, "e4m3": f8e4m3, "e5m2": f8e5m2, "bf16": bf16, "fp16": f16}


@builtin
def dot_scaled(
    lhs: Operand,
    lhs_scale: Operand,
    lhs_format: str,
    rhs: Operand,
    rhs_scale: Operand,
    rhs_format: str,
    acc: Operand = None,
    fast_math: bool = False,
    lhs_k_pack: bool = True,
    rhs_k_pack: bool = True,
    out_dtype: DType = f32,
) -> Tensor:
    """(lhs · lhs_scale) (M×K) @ (rhs · rhs_scale) (K×N) + acc, in f32.

    Formats: "e2m1" (uint8, two a byte along K, with k_pack=False along M or N, the first in the lower
    bits), "e4m3", "e5m2" (these dtypes, or uint8), "bf16", "fp16".  lhs_scale is M×(K/32) of uint8 (ue8m0:
    2^(x - 127), 255 NaN) or M×(K/16) of float8e4nv (ue4m3, not negative), rhs_scale N×(K/32) or N×(K/16);
    None: 1.

    Tensor cores with block scales (sm_120a) take e2m1 packed along K with scales of either kind, and 8-bit
    formats in any pair with ue8m0.  All else is converted in registers to bf16, or to f16 where one operand
    is f16: exact where an element times its scale lies within that format's range, as e2m1 by ue4m3 always
    does.  fast_math changes nothing.

    acc = tl.dot_scaled(a, a_scale, "e4m3", b, b_scale, "e2m1", acc)
    """
    emitter = current()
    static_bool(fast_math, "fast_math")
    if static_dtype(out_dtype, "out_dtype") != f32:
        refuse(
            "dot-out", f"dot_scaled into {out_dtype}", "leave it out and cast the result with .to()"
        )
    operands = [
        _operand(x, format, f"{side}_format")
        for side, x, format in (("lhs", lhs, lhs_format), ("rhs", rhs, rhs_format))
    ]
    scales = {
        which: tile_of(s, f"{side}_scale")
        for which, side, s in (("a", "lhs", lhs_scale), ("b", "rhs", rhs_scale))
        if s is not None
    }
    packs = static_bool(lhs_k_pack, "lhs_k_pack"), static_bool(rhs_k_pack, "rhs_k_pack")
    packed = (1 if packs[0] else 0, 0 if packs[1] else 1)
    start = emitter.value(acc) if acc is not None else _zeros(operands, packed)
    return emitter.emit(
        scaled.dot_scaled,
        *operands,
        start,
        *scales.values(),
        scaled="".join(scales),
        packed=packed,
    )


def _operand(x: Operand, format: Any, what: str) -> Value:
    """A tile of the format's dtype."""
    if format not in FORMATS:
        refuse("dot-format", f"{what}={format!r}", f"formats are {', '.join(FORMATS)}")
    v, dtype = tile_of(x, "dot_scaled"), FORMATS[format]
    given = dtype_of(v.type)
    if given == u8 and dtype.is_8bit_float:
        return current().emit(arith.bitcast, v, dtype=dtype)
    if given != dtype:
        refuse(
            "dot-format",
            f"{what}={format!r} of {describe(x)}",
            f"{format} is kept in {dtype}" + (", or in uint8" if dtype.is_8bit_float else ""),
        )
    return v


def _zeros(operands: list[Value], packed: tuple[int, int]) -> Value:
    shapes = [scaled.unpacked(v.type, axis) for v, axis in zip(operands, packed, strict=True)]
    if any(len(shape_of(v.type)) != 2 for v in operands):
        refuse("dot-rank", "dot_scaled needs two 2-D tiles", "use tl.reshape to get two axes")
    found: Value = full((shapes[0][0], shapes[1][1]), 0, f32)
    return found
