"""What scaled operands of products stand for: bytes decoded by tables, and their scales along K."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import ml_dtypes
import numpy as np

from warploom.ir.core import Op, Value
from warploom.ir.ops import scaled, tile
from warploom.ir.types import dtype_of, u8
from warploom.sim import field

_FORMATS: dict[str, tuple[int, Any]] = {  # the bits that count, and ml_dtypes' own format
    "e2m1": (15, ml_dtypes.float4_e2m1fn),
    "e4m3": (255, ml_dtypes.float8_e4m3fn),
    "e5m2": (255, ml_dtypes.float8_e5m2),
    "ue8m0": (255, ml_dtypes.float8_e8m0fnu),
}


@lru_cache
def table(encoding: str) -> Any:
    """The float32 that each of the 256 bytes stands for."""
    mask, dtype = _FORMATS[encoding]
    return (np.arange(256, dtype=np.uint8) & np.uint8(mask)).view(dtype).astype(np.float32)


@dataclass(frozen=True)
class Meaning:
    """How numbers of operands are made: decode(bytes, encoding), wide(floats), product(x, y)."""

    decode: Callable[[Any, str], Any]
    wide: Callable[[Any], Any]
    product: Callable[[Any, Any], Any]

    def number(self, o: Op, x: Any) -> Any:
        """What `decode` gives."""
        is_float = dtype_of(o.operands[0].type).is_float
        return self.wide(x) if is_float else self.decode(x, o.attrs["encoding"])

    def operands(self, o: Op, values: tuple[Any, ...]) -> tuple[Any, Any]:
        """Both operands of a product with their scales, decoded: of `dot_scaled`, or of `dot`."""
        by_value = dict(zip(o.operands, values, strict=True))
        left, right = (self._operand(s, by_value) for s in _sides(o))
        return left, right

    def _operand(self, side: scaled.Side, values: dict[Value, Any]) -> Any:
        x = values[side.value]
        x = self.elements(x, side.packed) if side.dtype == u8 else self.wide(x)
        if side.scale is None:
            return x
        s = values[side.scale]
        s = self.decode(s, "ue8m0") if dtype_of(side.scale.type) == u8 else self.wide(s)
        s = s if side.k == 1 else s.T
        return self.product(x, np.repeat(s, x.shape[side.k] // s.shape[side.k], axis=side.k))

    def elements(self, pairs: Any, axis: int) -> Any:
        """Two e2m1 a byte along an axis, the first in the lower bits."""
        two = (self.decode(x, "e2m1") for x in (pairs, pairs >> 4))
        whole = list(pairs.shape)
        whole[axis] *= 2
        return np.stack(tuple(two), axis=axis + 1).reshape(whole)


def _sides(o: Op) -> tuple[scaled.Side, scaled.Side]:
    if o.kind is not tile.dot:
        return scaled.sides(o)
    a, b, _, *scales = o.operands
    return scaled.Side(a, scales[0], 1, 1), scaled.Side(b, scales[1], 0, 0)


def decoded(x: Any, scale: Any) -> tuple[Any, Any]:
    """A row-major operand of a product and its scales as floats, each in a format that holds them."""
    elements = FLOATS.elements(x, 1) if x.dtype == np.uint8 else x
    powers = table("ue8m0").astype(np.float64)  # 2^-127 is no normal float32
    return elements, powers[scale] if scale.dtype == np.uint8 else scale


FLOATS = Meaning(
    lambda x, encoding: table(encoding)[x], lambda x: x.astype(np.float32), np.multiply
)
RESIDUES = Meaning(
    lambda x, encoding: field.naturals(table(encoding))[x], lambda x: x, field.product
)
