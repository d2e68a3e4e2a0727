"""The arrays of a case, several sets of them, and what each peer's output should be.

They come from a `Source`: `Gpu` fills torch tensors with random numbers; `Paper` makes NumPy arrays
without contents, enough to compile the kernels of a case where there is no GPU.
"""

from __future__ import annotations

import importlib.util
import math
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

import ml_dtypes
import numpy as np

from benchmarks.cases import Attention, Awkward, Case, Dual, Fp8, Gemm

E4M3_MAX = 448.0
SMS_OF_AN_H200 = 132  # NVIDIA H100 whitepaper, "SXM5"; an H200 has the same chip
NUMPY = {
    "bf16": ml_dtypes.bfloat16,
    "fp16": np.float16,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "fp32": np.float32,
    "int32": np.int32,
    "int8": np.int8,
}
TORCH = {
    "bf16": "bfloat16",
    "fp16": "float16",
    "e4m3": "float8_e4m3fn",
    "fp32": "float32",
    "int32": "int32",
    "int8": "int8",
}
EPS = {"bf16": 2.0**-7, "fp16": 2.0**-10}  # from 1 to the next number


@dataclass
class Reference:
    """What an output should be, and how far each element may be off: both in float64, of its shape."""

    value: Any
    bound: Any

    def error(self, out: Any) -> float:
        """‖out − value‖ / ‖value‖; NaN for an element unwritten, not finite or too far off."""
        error = float64(out) - self.value
        if not bool((abs(error) <= self.bound).all()):
            return math.nan
        return math.sqrt(float((error * error).sum()) / float((self.value * self.value).sum()))


def float64(x: Any) -> Any:
    """A copy of a tensor (where it lies) or of an array in float64."""
    return x.astype(np.float64) if isinstance(x, np.ndarray) else x.double()


def transposed(x: Any) -> Any:
    """The same matrix (tensor or array of rank 2), copied to lie column by column."""
    return np.ascontiguousarray(x.T).T if isinstance(x, np.ndarray) else x.t().contiguous().t()


def strides(x: Any) -> tuple[int, ...]:
    """Of a tensor or an array, in elements."""
    if isinstance(x, np.ndarray):
        return tuple(step // x.itemsize for step in x.strides)
    return tuple(x.stride())


def zeros(beside: Any, *shape: int, dtype: str = "fp32") -> Any:
    """Zeros where `beside` lies, for what a kernel needs in addition."""
    if isinstance(beside, np.ndarray):
        return np.zeros(shape, NUMPY[dtype])
    import torch

    return beside.new_zeros(shape, dtype=getattr(torch, TORCH[dtype]))


@cache
def has_gpu() -> bool:
    """Whether torch is here and sees a GPU."""
    if importlib.util.find_spec("torch") is None:
        return False
    import torch

    return bool(torch.cuda.is_available())


def multiprocessors() -> int:
    """SMs of the present GPU; without one those of an H200."""
    if not has_gpu():
        return SMS_OF_AN_H200
    import torch

    return int(torch.cuda.get_device_properties(0).multi_processor_count)


def input_sets(bytes_each: int) -> int:
    """Input sets of so many bytes that together exceed four times the present GPU's L2 (2 to 12 of them)."""
    import torch

    l2 = int(torch.cuda.get_device_properties(0).L2_cache_size)
    return max(2, min(12, math.ceil(4 * l2 / bytes_each)))


class Source(Protocol):
    """Where arrays come from."""

    def sets(self, bytes_each: int) -> int:
        """How many input sets, each of so many bytes, a case should have."""

    def normal(self, *shape: int, dtype: str = "bf16", deviation: float = 1.0) -> Any:
        """Normally distributed numbers."""

    def quantized(self, rows: int, columns: int) -> tuple[Any, Any]:
        """(e4m3, float32 scales of the rows): normally distributed, each row using all of e4m3's range."""

    def rows(self, count: int, below: int | None = None) -> Any:
        """int32: 0 … count, or as many random numbers below `below`."""

    def empty(self, *shape: int, dtype: str = "bf16") -> Any:
        """An output."""


class Gpu:
    """Random torch tensors on the present GPU."""

    def __init__(self, seed: int = 0) -> None:
        import torch

        self.torch = torch
        self.random = torch.Generator(device="cuda").manual_seed(seed)

    def sets(self, bytes_each: int) -> int:
        return input_sets(bytes_each)

    def _normal(self, shape: tuple[int, ...]) -> Any:
        return self.torch.randn(*shape, device="cuda", generator=self.random)

    def normal(self, *shape: int, dtype: str = "bf16", deviation: float = 1.0) -> Any:
        return (self._normal(shape) * deviation).to(getattr(self.torch, TORCH[dtype]))

    def quantized(self, rows: int, columns: int) -> tuple[Any, Any]:
        x = self._normal((rows, columns))
        scale = x.abs().amax(1) / E4M3_MAX
        return (x / scale[:, None]).to(self.torch.float8_e4m3fn), scale

    def rows(self, count: int, below: int | None = None) -> Any:
        how = {"device": "cuda", "dtype": self.torch.int32}
        if below is None:
            return self.torch.arange(count, **how)
        return self.torch.randint(0, below, (count,), generator=self.random, **how)

    def empty(self, *shape: int, dtype: str = "bf16") -> Any:
        return self.torch.empty(*shape, device="cuda", dtype=getattr(self.torch, TORCH[dtype]))


class Paper:
    """NumPy arrays of the right shapes that nobody reads; one set."""

    def sets(self, bytes_each: int) -> int:
        return 1

    def normal(self, *shape: int, dtype: str = "bf16", deviation: float = 1.0) -> Any:
        return np.zeros(shape, NUMPY[dtype])  # pages that are not touched take no memory

    def quantized(self, rows: int, columns: int) -> tuple[Any, Any]:
        return np.zeros((rows, columns), NUMPY["e4m3"]), np.zeros(rows, np.float32)

    def rows(self, count: int, below: int | None = None) -> Any:
        return np.arange(count, dtype=np.int32)

    def empty(self, *shape: int, dtype: str = "bf16") -> Any:
        return np.zeros(shape, NUMPY[dtype])


@dataclass
class Data:
    """`a[i]` is M×K, `b[i]` K×N (a transposed view for TN), `c[i]` M×N."""

    case: Gemm
    a: list[Any]
    b: list[Any]
    c: list[Any]

    @classmethod
    def make(cls, case: Gemm, source: Source) -> Data:
        m, n, k, dtype = case.m, case.n, case.k, case.dtype
        sets = range(source.sets(2 * k * (m + n)))
        a = [source.normal(m, k, dtype=dtype) for _ in sets]
        if case.layout == "TN":
            b = [source.normal(n, k, dtype=dtype).T for _ in sets]
        else:
            b = [source.normal(k, n, dtype=dtype) for _ in sets]
        return cls(case, a, b, [source.empty(m, n, dtype=dtype) for _ in sets])

    def __len__(self) -> int:
        return len(self.a)

    @property
    def outputs(self) -> list[Any]:
        return self.c

    def reference(self, i: int) -> Reference:
        """Bound: rounding of the result, and of a float32 sum of K products of order 1."""
        value = float64(self.a[i]) @ float64(self.b[i])
        return Reference(value, abs(value) * EPS[self.case.dtype] + 1e-3 * math.sqrt(self.case.k))


@dataclass
class AttentionData:
    """`q[i]`, `k[i]`, `v[i]`, `o[i]` are (batch, heads, seq, d), contiguous."""

    case: Attention
    q: list[Any]
    k: list[Any]
    v: list[Any]
    o: list[Any]

    @classmethod
    def make(cls, case: Attention, source: Source) -> AttentionData:
        shape = (case.batch, case.heads, case.seq, case.d)
        sets = range(source.sets(3 * 2 * math.prod(shape)))
        q, k, v = ([source.normal(*shape, dtype=case.dtype) for _ in sets] for _ in range(3))
        return cls(case, q, k, v, [source.empty(*shape, dtype=case.dtype) for _ in sets])

    def __len__(self) -> int:
        return len(self.q)

    @property
    def outputs(self) -> list[Any]:
        return self.o

    @property
    def by_head(self) -> list[tuple[Any, ...]]:
        """(q, k, v, o) of each set as (batch · heads, seq, d)."""
        shape = (self.case.batch * self.case.heads, self.case.seq, self.case.d)
        sets = zip(self.q, self.k, self.v, self.o, strict=True)
        return [tuple(x.reshape(shape) for x in tensors) for tensors in sets]

    def reference(self, i: int) -> Reference:
        """Bound: rounding of the result, and of probabilities p to the dtype: errors of eps/2·p·v, as good as
        independent, so 16 times their deviation, which is at most eps/2·√(Σ p²v²)."""
        import torch

        q, k, v, _ = self.by_head[i]
        heads, seq, d = q.shape
        value = torch.empty(heads, seq, d, device=q.device, dtype=torch.float64)
        deviation = torch.empty_like(value)
        step = 2048
        for head in range(heads):
            kh, vh = k[head].double(), v[head].double()
            for row in range(0, seq, step):
                s = q[head, row : row + step].double() @ kh.t() / math.sqrt(d)
                if self.case.causal:
                    s += torch.full_like(s, -math.inf).triu_(row + 1)
                p = torch.softmax(s, 1)
                value[head, row : row + step] = p @ vh
                deviation[head, row : row + step] = (p.square_() @ vh.square()).sqrt_()
        eps = EPS[self.case.dtype]
        bound = value.abs() * eps + 16 * eps / 2 * deviation
        return Reference(value.view(self.o[i].shape), bound.view(self.o[i].shape))


@dataclass
class DualData:
    """`a[i]` is M×K, `w[i]` 2N×K: `b1[i]` is its first half, `b2[i]` the other; `c[i]` is M×N, bf16.  Both
    products have deviation 1: weights are drawn with 1/√K, or are e4m3 and count `scale` times."""

    case: Dual
    a: list[Any]
    w: list[Any]
    c: list[Any]

    @classmethod
    def make(cls, case: Dual, source: Source) -> DualData:
        size = np.dtype(NUMPY[case.dtype]).itemsize
        sets = range(source.sets(size * case.k * (case.m + 2 * case.n)))
        deviation = 1.0 if case.dtype == "e4m3" else case.k**-0.5
        a = [source.normal(case.m, case.k, dtype=case.dtype) for _ in sets]
        w = [source.normal(2 * case.n, case.k, dtype=case.dtype, deviation=deviation) for _ in sets]
        return cls(case, a, w, [source.empty(case.m, case.n) for _ in sets])

    def __len__(self) -> int:
        return len(self.a)

    @property
    def scale(self) -> float:
        """What both products are multiplied by."""
        return float(self.case.k**-0.5) if self.case.dtype == "e4m3" else 1.0

    @property
    def b1(self) -> list[Any]:
        return [w[: self.case.n] for w in self.w]

    @property
    def b2(self) -> list[Any]:
        return [w[self.case.n :] for w in self.w]

    @property
    def outputs(self) -> list[Any]:
        return self.c

    def reference(self, i: int) -> Reference:
        """Bound: rounding of the result and, as some do, of both products; a float32 sum of K products, or
        one that the tensor core keeps with few bits."""
        import torch

        a = self.a[i].double() * self.scale
        sums = 2e-2 if self.case.dtype == "e4m3" else 1e-3
        gate, up = (a @ b[i].double().t() for b in (self.b1, self.b2))
        value = torch.nn.functional.silu(gate) * up
        bound = value.abs().mul_(2 * EPS["bf16"])
        bound += (gate * up).abs_().mul_(EPS["bf16"]) + (gate.abs() + up.abs() + 1).mul_(sums)
        return Reference(value, bound)


@dataclass
class Fp8Data:
    """`a[i]` is M×K, `b[i]` N×K (NN: a view of what is stored K×N), e4m3; `scale_a[i]`, `scale_b[i]` are
    float32, one for each row; `c[i]` is M×N, bf16."""

    case: Fp8
    a: list[Any]
    b: list[Any]
    scale_a: list[Any]
    scale_b: list[Any]
    c: list[Any]

    @classmethod
    def make(cls, case: Fp8, source: Source) -> Fp8Data:
        sets = range(source.sets(case.k * (case.m + case.n)))
        a, scale_a = zip(*(source.quantized(case.m, case.k) for _ in sets), strict=True)
        b, scale_b = zip(*(source.quantized(case.n, case.k) for _ in sets), strict=True)
        if case.layout == "NN":
            b = tuple(transposed(x) for x in b)
        c = [source.empty(case.m, case.n) for _ in sets]
        return cls(case, list(a), list(b), list(scale_a), list(scale_b), c)

    def __len__(self) -> int:
        return len(self.a)

    @property
    def outputs(self) -> list[Any]:
        return self.c

    def reference(self, i: int) -> Reference:
        """Bound: rounding of the result, and of a sum that the tensor core keeps with few bits (‖·‖ ≈ √K)."""
        value = float64(self.a[i]) @ float64(self.b[i]).T
        value *= float64(self.scale_a[i])[:, None]
        value *= float64(self.scale_b[i])
        return Reference(value, abs(value) * EPS["bf16"] + 2e-2 * math.sqrt(self.case.k))


@dataclass
class AwkwardData:
    """`a[i]` is A as it lies in memory (2M rows where they are gathered), `rows[i]` which of them count,
    `b[i]` is N×K (in either order), `c[i]` M×N."""

    case: Awkward
    a: list[Any]
    rows: list[Any]
    b: list[Any]
    c: list[Any]

    @classmethod
    def make(cls, case: Awkward, source: Source) -> AwkwardData:
        m, n, k = case.m, case.n, case.k
        sets = range(source.sets(2 * k * (m + n)))
        stored = 2 * m if case.gather else m
        columns = slice(0, k * case.inner, case.inner)
        a = [source.normal(stored, k * case.inner + case.pad)[:, columns] for _ in sets]
        rows = [source.rows(m, stored if case.gather else None) for _ in sets]
        if case.pad_b is None:
            b = [source.normal(n, k) for _ in sets]
        else:
            b = [source.normal(k, n + case.pad_b)[:, :n].T for _ in sets]
        return cls(case, a, rows, b, [source.empty(m, n) for _ in sets])

    def __len__(self) -> int:
        return len(self.a)

    @property
    def outputs(self) -> list[Any]:
        return self.c

    def reference(self, i: int) -> Reference:
        """Bound: rounding of the result, and of a float32 sum of K products of order 1."""
        value = float64(self.a[i][self.rows[i].long()]) @ float64(self.b[i]).T
        return Reference(value, abs(value) * EPS["bf16"] + 1e-3 * math.sqrt(self.case.k))


def make_data(case: Case, source: Source | None = None) -> Any:
    """The case's arrays (`Data`, `AttentionData`, …), random on the GPU by default."""
    source = Gpu() if source is None else source
    match case:
        case Gemm():
            return Data.make(case, source)
        case Attention():
            return AttentionData.make(case, source)
        case Dual():
            return DualData.make(case, source)
        case Fp8():
            return Fp8Data.make(case, source)
        case Awkward():
            return AwkwardData.make(case, source)
