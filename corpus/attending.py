"""What the cases of attention-like kernels are made of: random data, softmax, names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from corpus.arrays import array, filled
from corpus.case import BF16, Case

I32 = np.int32
Builds = Mapping[str, Callable[[], Case]]


def launch(
    kernel: Any, args: list[Any], grid: Any, meta: dict[str, Any], wants: dict[int, Any], *,
    off: float = 0.02, tasks: bool = True, knobs: dict[str, Any],
) -> Case:  # fmt: skip
    """A case without a name; the rounding of 16-bit probabilities is allowed for."""
    return Case("", kernel, tuple(args), grid, meta, wants, off, tasks, knobs)


def named(builds: Builds, family: str) -> Iterator[Case]:
    """The cases that `builds` makes, as family-name."""
    for name, build in builds.items():
        yield replace(build(), name=f"{family}-{name}")


def normal(seed: int, *shape: int, dtype: Any = BF16, scale: float = 1.0) -> Any:
    """Random normal numbers of a dtype."""
    rng = np.random.default_rng(seed)
    return filled((rng.standard_normal(shape) * scale).astype(np.float32), dtype)


def integers(seed: int, *shape: int, dtype: Any = BF16, low: int = -2, high: int = 3) -> Any:
    """Small random integers: products and sums of them are exact."""
    rng = np.random.default_rng(seed)
    return filled(rng.integers(low, high, shape), dtype)


def out(*shape: int, dtype: Any = BF16) -> Any:
    """What a kernel is to fill."""
    return array(shape, dtype)


def strides(a: Any) -> list[int]:
    """In elements."""
    return [s // a.itemsize for s in a.strides]


def f64(*arrays: Any) -> Any:
    """In float64."""
    found = [np.asarray(a).astype(np.float64) for a in arrays]
    return found[0] if len(found) == 1 else found


def softmax(s: Any) -> tuple[Any, Any]:
    """(softmax of the last axis, its log of sums); rows of -inf give zeros."""
    top = np.maximum(s.max(-1, keepdims=True), -1e30)
    p = np.exp(s - top)
    total = p.sum(-1, keepdims=True)
    with np.errstate(divide="ignore"):
        return p / np.where(total == 0, 1, total), (top + np.log(total))[..., 0]
