"""An operator of another library: its inputs, its call, and what it should give."""

from __future__ import annotations

import contextlib
import importlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch

Tensors = dict[str, Any]


@dataclass(frozen=True)
class Sizes:
    """batch, time, heads and widths of keys and values; rows, columns and words of what has no heads."""

    batch: int
    time: int
    heads: int
    keys: int
    values: int
    rows: int
    columns: int
    words: int


TINY = Sizes(1, 40, 1, 32, 32, 16, 48, 96)
SMALL = Sizes(1, 100, 2, 64, 64, 48, 300, 700)
REAL = Sizes(2, 4096, 16, 128, 128, 8192, 4096, 32768)


class Source:
    """Random inputs of one size on one device; floating-point tensors are differentiated."""

    def __init__(self, sizes: Sizes, device: str, dtype: torch.dtype = torch.bfloat16) -> None:
        self.sizes, self.device, self.dtype = sizes, device, dtype
        self._random = torch.Generator(device)
        self._random.manual_seed(0)

    def normal(self, *shape: int, scale: float = 1.0, dtype: torch.dtype | None = None) -> Any:
        x = torch.randn(shape, generator=self._random, device=self.device) * scale
        return x.to(dtype or self.dtype)

    def uniform(
        self, *shape: int, low: float = 0.0, high: float = 1.0, dtype: torch.dtype | None = None
    ) -> Any:
        x = torch.rand(shape, generator=self._random, device=self.device)
        return (x * (high - low) + low).to(dtype or self.dtype)

    def integers(self, *shape: int, below: int) -> Any:
        return torch.randint(below, shape, generator=self._random, device=self.device)

    def head(self, width: int | None = None, scale: float = 1.0) -> Any:
        """[batch, time, heads, width], or without a width [batch, time, heads]."""
        s = self.sizes
        return self.normal(
            s.batch, s.time, s.heads, *([] if width is None else [width]), scale=scale
        )

    def unit(self, width: int) -> Any:
        """As head, rows of norm 1."""
        return torch.nn.functional.normalize(self.head(width).float(), dim=-1).to(self.dtype)

    def gate(self, width: int | None = None, scale: float = 1.0) -> Any:
        """As head: logarithms of decays, in float32."""
        return torch.nn.functional.logsigmoid(self.head(width).float()) * scale

    def share(self, width: int | None = None) -> Any:
        """As head, between 0 and 1."""
        return self.head(width).float().sigmoid().to(self.dtype)


@dataclass(frozen=True)
class Operator:
    """inputs: by name, of a source.  run: the library's function, as it is called.  reference: the same
    of tensors in float64; without one the operator is only run.  backward: whether gradients are asked for.
    tolerance: of the norm of an output's or gradient's error, relative."""

    name: str
    inputs: Callable[[Source], Tensors]
    run: Callable[..., Any]
    reference: Callable[..., Any] | None = None
    backward: bool = True
    tolerance: float = 0.02
    fixed: frozenset[str] = frozenset()  # inputs that are not differentiated
    sizes: Mapping[str, int] = field(default_factory=dict)  # in the place of REAL's
    small: Mapping[str, int] = field(default_factory=dict)  # in the place of SMALL's and TINY's
    exact: bool = False  # small inputs are float32: bfloat16 would hide what is compared

    def source(self, device: str, sizes: Sizes = SMALL) -> Source:
        if sizes is REAL:
            return Source(replace(REAL, **self.sizes), device)
        dtype = torch.float32 if self.exact else torch.bfloat16
        return Source(replace(sizes, **self.small), device, dtype)


def late(module: str, name: str, **fixed: Any) -> Callable[..., Any]:
    """A function that is imported when it is first called, with keywords."""

    def call(*args: Any, **kwargs: Any) -> Any:
        found = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
        return found(*args, **kwargs, **fixed)

    return call


def outputs_of(found: Any) -> list[Any]:
    """The floating-point tensors of a result, in order."""
    if isinstance(found, torch.Tensor):
        return [found] if found.is_floating_point() else []
    if isinstance(found, Mapping):
        found = list(found.values())
    if isinstance(found, list | tuple):
        return [t for part in found for t in outputs_of(part)]
    return []


def leaves(operator: Operator, inputs: Tensors) -> dict[str, Any]:
    return {
        n: x
        for n, x in inputs.items()
        if isinstance(x, torch.Tensor) and x.is_floating_point() and n not in operator.fixed
    }


def run(
    operator: Operator, function: Callable[..., Any], inputs: Tensors, seed: int
) -> dict[str, Any]:
    """Outputs ("out0", …) and gradients ("d" and an input's name) of a call."""
    wanted = leaves(operator, inputs) if operator.backward else {}
    for x in wanted.values():
        x.requires_grad_()
    given = {n: x.clone() if n in wanted else x for n, x in inputs.items()}  # some work in place
    outputs = outputs_of(function(**given))
    found = {f"out{i}": y.detach().clone() for i, y in enumerate(outputs)}
    differentiable = [y for y in outputs if y.requires_grad]
    if operator.backward and differentiable:
        random = torch.Generator().manual_seed(seed)
        factors = [torch.randn(y.shape, generator=random) for y in differentiable]
        up = [f.to(y.device, y.dtype) for f, y in zip(factors, differentiable, strict=True)]
        with contextlib.suppress(NotImplementedError):  # of the library's own: it has no gradients
            gradients = torch.autograd.grad(
                differentiable, list(wanted.values()), up, allow_unused=True
            )
            parts = zip(wanted, gradients, strict=True)
            found |= {f"d{n}": g for n, g in parts if g is not None}
    return found


def exact(inputs: Tensors) -> Tensors:
    """The same inputs in float64."""
    return {
        n: x.detach().double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x
        for n, x in inputs.items()
    }


def errors(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, float]:
    """The error of each result that both have, relative to its norm.  One that isn't finite is infinite."""
    told = {}
    for name in found.keys() & wanted.keys():
        x, y = found[name].double(), wanted[name].double()
        if x.shape != y.shape:
            x, y = x.flatten(), y.flatten()
        size = float(y.norm())
        off = float((x - y).norm()) / (size or 1.0)
        told[name] = off if math.isfinite(off) else math.inf
    return told
