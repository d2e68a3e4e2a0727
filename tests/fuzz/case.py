"""A tree with its data: the arguments of a launch, and what the reference makes of them."""

from __future__ import annotations

import importlib.util
import zlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from tests.e2e import road
from tests.fuzz import reference, spell
from tests.fuzz.numbers import FORMATS
from tests.fuzz.tree import Array, Kernel

MARK = 7  # what outputs hold before


@dataclass(frozen=True)
class Case:
    """A kernel and everything that is needed to run it."""

    kernel: Kernel

    @cached_property
    def text(self) -> str:
        return spell.module(self.kernel)

    @cached_property
    def data(self) -> dict[str, Any]:
        """The arrays, by name, as the launch finds them.  Copied before anybody writes them."""
        return {a.name: filled(a, self.kernel.seed) for a in self.kernel.arrays}

    @cached_property
    def expected(self) -> dict[str, Any]:
        """The arrays after the reference ran.  Raises reference.Outside."""
        copies = {name: road.clone(a) for name, a in self.data.items()}
        reference.run(self.kernel, copies)
        return copies

    def arguments(self, arrays: dict[str, Any]) -> list[Any]:
        """In the order of the kernel's parameters.  arrays: of NumPy, or whatever has a shape."""
        found: list[Any] = []
        for a in self.kernel.arrays:
            host = self.data[a.name]
            strides = [s // host.itemsize for s in host.strides]
            found += [arrays[a.name], *host.shape, *strides]
        return [*found, *self.kernel.numbers.values()]

    def load(self, folder: Path) -> Any:
        """The kernel, from a file of its own in the folder."""
        stem = f"fuzz_{self.kernel.seed}_{zlib.crc32(self.text.encode()):08x}"
        path = folder / f"{stem}.py"
        path.write_text(self.text)
        spec = importlib.util.spec_from_file_location(stem, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.kernel

    def differences(self, found: dict[str, Any]) -> list[str]:
        """What is wrong in arrays after a run; empty where nothing is."""
        wrong = []
        allowed = reference.tolerances(self.kernel)
        for a in self.kernel.arrays:
            said = difference(self.expected[a.name], found[a.name], allowed[a.name])
            if said:
                wrong.append(f"{a.name}: {said}")
        return wrong


def filled(a: Array, seed: int) -> Any:
    """The array of a launch, with guards around it."""
    dtype = FORMATS[a.dtype].numpy
    rng = np.random.default_rng((seed, zlib.crc32(a.name.encode())))
    if a.data == "ints":
        whole = rng.integers(a.lo, a.hi, a.shape, endpoint=True)
        # By way of f32: NumPy converts no 64-bit integers to 8-bit floats.
        return road.filled(whole.astype(np.float32), dtype, a.order, a.pad)
    found = road.array(a.shape, dtype, a.order, a.pad)
    found[...] = np.asarray(0 if a.data == "zeros" else MARK).astype(np.float32).astype(dtype)
    return found


def difference(expected: Any, found: Any, allowed: float) -> str:
    """How an array differs from what it should hold; "" where it doesn't.  Equal are -0 and 0, and NaNs."""
    wide = np.float64 if expected.dtype.kind not in "iub" else expected.dtype
    with np.errstate(all="ignore"):
        x, y = np.asarray(expected).astype(wide), np.asarray(found).astype(wide)
        same = (x == y) | ((x != x) & (y != y))
        if allowed:
            same |= np.abs(x - y) <= allowed
    if not same.all():
        at = tuple(int(i) for i in np.argwhere(~same)[0])
        return f"{int((~same).sum())} of {same.size} elements, at {at} {y[at]} instead of {x[at]}"
    inside = road.clone(found)
    inside[...] = expected  # what is left to compare lies around the elements
    if not np.array_equal(road.around(inside), road.around(expected)):
        return "bytes outside of the array are overwritten"
    return ""
