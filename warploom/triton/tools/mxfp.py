"""triton.tools.mxfp: tensors of 4-bit floats (E2M1) and of block scales (E8M0), by PyTorch."""

from __future__ import annotations

import itertools
import math
from typing import Any

__all__ = ["MXFP4Tensor", "MXScaleTensor"]

_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)  # by the lowest three bits
_BETWEEN = tuple((a + b) / 2 for a, b in itertools.pairwise(_VALUES))
_BIAS, _NAN = 127, 255


class _Codes:
    """data: the codes, a tensor of uint8; of float32 numbers, or of a size, which `random` fills."""

    data: Any

    def __init__(self, data: Any = None, size: Any = None, device: Any = None) -> None:
        if data is None and size is None:
            raise ValueError("a tensor, or a size, is needed")
        self.device = device if data is None else data.device
        if data is None:
            self.size = tuple(size) if isinstance(size, tuple | list) else (size,)
        else:
            self.size = tuple(data.shape)
            self.data = self._from_float(data)

    def _from_float(self, values: Any) -> Any:
        raise NotImplementedError

    def _drawn(self, low: int, high: int) -> Any:
        import torch

        return torch.randint(low, high, self.size, dtype=torch.uint8, device=self.device)


class MXFP4Tensor(_Codes):
    """4-bit floats, one in each uint8: sign, two bits of exponent, one of mantissa."""

    def random(self) -> MXFP4Tensor:
        """Fills it with random codes."""
        self.data = self._drawn(0, 16)
        return self

    def to(self, dtype: Any) -> Any:
        """The numbers, as float32.  Raises ValueError on another dtype."""
        import torch

        _check_float32(dtype)
        values = torch.tensor(_VALUES, device=self.device)
        magnitude = values[(self.data & 7).long()]
        return torch.where(self.data & 8 != 0, -magnitude, magnitude)

    def _from_float(self, values: Any) -> Any:
        """The nearest, of two the one with an even code; beyond the largest, that one."""
        import torch

        size = values.abs()
        between = torch.tensor(_BETWEEN, device=values.device, dtype=values.dtype)
        code = torch.bucketize(size, between)
        # One half of those in the middle lies above: where the code below is odd.
        code += (code % 2 == 1) & (size == between[code.clamp(max=len(_BETWEEN) - 1)])
        return (code + 8 * torch.signbit(values)).to(torch.uint8)

    def to_packed_tensor(self, dim: int) -> Any:
        """Two neighbours along `dim` in each uint8, the first in the low bits; after an odd last one comes 0.
        Raises ValueError where there is no such axis."""
        import torch

        if not 0 <= dim < self.data.ndim:
            raise ValueError(f"a tensor of {self.data.ndim} axes has no axis {dim}")
        rows = self.data.movedim(dim, -1)
        rows = torch.nn.functional.pad(rows, (0, rows.shape[-1] % 2))
        return (rows[..., ::2] | rows[..., 1::2] << 4).movedim(-1, dim).contiguous()

    def unpack_packed_tensor(self, packed_tensor: Any, dim: int, original_shape: Any) -> Any:
        """The codes that `to_packed_tensor` packed of a tensor of this shape."""
        import torch

        rows = packed_tensor.movedim(dim, -1)
        pairs = torch.stack((rows & 15, rows >> 4), -1).flatten(-2)
        return pairs[..., : original_shape[dim]].movedim(-1, dim).contiguous()


class MXScaleTensor(_Codes):
    """Powers of two, as biased exponents; 255 is no number."""

    def random(self, low: float | None = None, high: float | None = None) -> MXScaleTensor:
        """Fills it with random powers of two from low to high.  Raises ValueError where there is none."""
        first = 0 if low is None else max(0, int(math.log2(low)) + _BIAS)
        last = _NAN - 1 if high is None else min(_NAN - 1, max(0, int(math.log2(high)) + _BIAS))
        if first > last:
            raise ValueError(f"there is no power of two from {low} to {high}")
        self.data = self._drawn(first, last + 1)
        return self

    def to(self, dtype: Any) -> Any:
        """The numbers, as float32.  Raises ValueError on another dtype."""
        import torch

        _check_float32(dtype)
        powers = torch.exp2(self.data.float() - _BIAS)
        return torch.where(self.data == _NAN, torch.nan, powers)

    def _from_float(self, values: Any) -> Any:
        """The power of two that is no larger; what isn't positive and finite is no number."""
        import torch

        _, exponent = torch.frexp(values)
        code = (exponent - 1 + _BIAS).clamp(0, _NAN - 1)
        good = torch.isfinite(values) & (values > 0)
        return torch.where(good, code, _NAN).to(torch.uint8)


def _check_float32(dtype: Any) -> None:
    import torch

    if dtype != torch.float32:
        raise ValueError(f"as float32 alone, not {dtype}")
