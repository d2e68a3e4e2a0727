"""The tensors of the workloads that are more than one plain product: the gated pair, 8-bit products with
scales, and products whose left operand lies awkwardly in memory."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from benchmarks.cases import Awkward, Dual, Fp8
from benchmarks.harness import Reference, input_sets

E4M3_MAX = 448.0


@dataclass
class DualData:
    """a[i] is M×K, w[i] 2N×K: b1[i] is its first half, b2[i] the other; c[i] is M×N.  Weights are drawn with
    deviation 1/√K, so that both products have deviation 1."""

    case: Dual
    a: list[Any]
    w: list[Any]
    c: list[Any]

    @classmethod
    def make(cls, case: Dual, random: torch.Generator) -> DualData:
        def normal(rows: int, deviation: float) -> Any:
            x = torch.randn(rows, case.k, device="cuda", generator=random)
            return (x * deviation).to(torch.bfloat16)

        sets = range(input_sets(2 * case.k * (case.m + 2 * case.n)))
        a = [normal(case.m, 1.0) for _ in sets]
        w = [normal(2 * case.n, case.k**-0.5) for _ in sets]
        c = [torch.empty(case.m, case.n, device="cuda", dtype=torch.bfloat16) for _ in sets]
        return cls(case, a, w, c)

    def __len__(self) -> int:
        return len(self.a)

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
        """Bound: rounding of the result and, as some do, of both products; a float32 sum of K products."""
        a = self.a[i].double()
        gate, up = (a @ b[i].double().t() for b in (self.b1, self.b2))
        value = torch.nn.functional.silu(gate) * up
        eps = torch.finfo(torch.bfloat16).eps
        bound = value.abs().mul_(2 * eps)
        bound += (gate * up).abs_().mul_(eps) + (gate.abs() + up.abs() + 1).mul_(1e-3)
        return Reference(value, bound)


@dataclass
class Fp8Data:
    """a[i] is M×K, b[i] N×K (NN: a view of what is stored K×N), e4m3; scale_a[i], scale_b[i] are float32, one
    for each row; c[i] is M×N, bf16.  Rows are normally distributed, and scaled to use all of e4m3's range."""

    case: Fp8
    a: list[Any]
    b: list[Any]
    scale_a: list[Any]
    scale_b: list[Any]
    c: list[Any]

    @classmethod
    def make(cls, case: Fp8, random: torch.Generator) -> Fp8Data:
        def quantized(rows: int) -> tuple[Any, Any]:
            x = torch.randn(rows, case.k, device="cuda", generator=random)
            scale = x.abs().amax(1) / E4M3_MAX
            return (x / scale[:, None]).to(torch.float8_e4m3fn), scale

        sets = range(input_sets(case.k * (case.m + case.n)))
        a, scale_a = zip(*(quantized(case.m) for _ in sets), strict=True)
        b, scale_b = zip(*(quantized(case.n) for _ in sets), strict=True)
        if case.layout == "NN":
            b = [x.t().contiguous().t() for x in b]
        c = [torch.empty(case.m, case.n, device="cuda", dtype=torch.bfloat16) for _ in sets]
        return cls(case, list(a), list(b), list(scale_a), list(scale_b), c)

    def __len__(self) -> int:
        return len(self.a)

    @property
    def outputs(self) -> list[Any]:
        return self.c

    def reference(self, i: int) -> Reference:
        """Bound: rounding of the result, and of a sum that the tensor core keeps with few bits (‖·‖ ≈ √K)."""
        value = self.a[i].double() @ self.b[i].double().t()
        value *= self.scale_a[i].double()[:, None]
        value *= self.scale_b[i].double()
        eps = torch.finfo(torch.bfloat16).eps
        return Reference(value, value.abs() * eps + 2e-2 * math.sqrt(self.case.k))


@dataclass
class AwkwardData:
    """a[i] is A as it lies in memory (2M rows where they are gathered), rows[i] which of them count, b[i] is
    N×K, c[i] M×N."""

    case: Awkward
    a: list[Any]
    rows: list[Any]
    b: list[Any]
    c: list[Any]

    @classmethod
    def make(cls, case: Awkward, random: torch.Generator) -> AwkwardData:
        def normal(rows: int, columns: int) -> Any:
            return torch.randn(rows, columns, device="cuda", generator=random).to(torch.bfloat16)

        m, n, k = case.m, case.n, case.k
        sets = range(input_sets(2 * k * (m + n)))
        stored = 2 * m if case.gather else m
        a = [
            normal(stored, k * case.inner + case.pad)[:, : k * case.inner : case.inner]
            for _ in sets
        ]
        draw = {"device": "cuda", "generator": random, "dtype": torch.int32}
        rows = [
            torch.randint(0, stored, (m,), **draw)
            if case.gather
            else torch.arange(m, device="cuda", dtype=torch.int32)
            for _ in sets
        ]
        b = [normal(n, k) for _ in sets]
        c = [torch.empty(m, n, device="cuda", dtype=torch.bfloat16) for _ in sets]
        return cls(case, a, rows, b, c)

    def __len__(self) -> int:
        return len(self.a)

    @property
    def outputs(self) -> list[Any]:
        return self.c

    def reference(self, i: int) -> Reference:
        """Bound: rounding of the result, and of a float32 sum of K products of order 1."""
        value = self.a[i][self.rows[i].long()].double() @ self.b[i].double().t()
        eps = torch.finfo(torch.bfloat16).eps
        return Reference(value, value.abs() * eps + 1e-3 * math.sqrt(self.case.k))
