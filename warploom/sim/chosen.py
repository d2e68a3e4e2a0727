"""Global memory whose words are chosen when they are first read: for runs without data.

A run of the checker has no arrays worth the name.  What a program reads from memory by itself (a loop's
bound, a flag) may be any number; a `Fill` says which, word by word.  The same address gives the same number
to every agent, so that a producer and a consumer that read one bound agree on it, as they do on the hardware.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from warploom.errors import Loc
from warploom.ir.types import DType
from warploom.sim.memory import GlobalMemory

PATTERNS = ("always", "first", "rest", "odd", "even", "late")
RISING = "rising"
LATE = 12  # elements before those that are late
IN_TURN = 8  # elements: half of them, then the other half


@dataclass(frozen=True)
class Fill:
    """The numbers in one array: `base`, but `other` in the elements that the pattern names; RISING: `other`
    more in each element than in the one before.

    drift: what other programs add to a word between two atomic operations of this one."""

    base: int = 1
    other: int = 0
    pattern: str = "always"
    drift: int = 0

    def __call__(self, element: int) -> int:
        match self.pattern:
            case "first":
                is_other = element == 0
            case "rest":
                is_other = element != 0
            case "odd":
                is_other = element % 2 == 1
            case "even":
                is_other = element % 2 == 0
            case "late":
                is_other = element >= LATE
            case "in turn":
                is_other = element % IN_TURN >= IN_TURN // 2
            case "rising":
                return self.base + element * self.other
            case _:
                is_other = False
        return self.other if is_other else self.base

    def __str__(self) -> str:
        drift = f", {self.drift} more at each atomic" if self.drift else ""
        if self.pattern == "always":
            return f"{self.base} everywhere{drift}"
        if self.pattern == RISING:
            return f"{self.base}, {self.other} more in each element{drift}"
        words = {
            "late": f"from element {LATE}",
            "in turn": f"{IN_TURN // 2} by {IN_TURN // 2} in turn",
        }
        where = words.get(self.pattern, f"in {self.pattern}")
        return f"{self.base}, {self.other} {where}{drift}"


class ChosenMemory(GlobalMemory):
    """The words that were read so far, by their address; those of no array are words, too."""

    def __init__(self, given: GlobalMemory, fills: Mapping[str, Fill]) -> None:
        super().__init__(has_data=False)
        self.buffers, self.fills = given.buffers, fills
        self.words: dict[int, Any] = {}
        self._held = []

    def _fill(self, address: int) -> tuple[Fill, int]:
        buffer, at = self.split(address)
        return self.fills.get(buffer.name, Fill()), at - buffer.origin

    def _word(self, address: int, dtype: Any) -> Any:
        if address not in self.words:
            fill, element = self._fill(address)
            self.words[address] = np.asarray(fill(element)).astype(dtype)[()]
        return self.words[address]

    def load(
        self, dtype: DType, pointers: Any, mask: Any, other: Any, loc: Loc | None = None
    ) -> Any:
        """One word; where masked off, `other` or 0."""
        if mask is not None and not mask:
            return dtype.numpy.type(0 if other is None else other)
        return self._word(int(pointers), dtype.numpy)

    def store(
        self, dtype: DType, pointers: Any, values: Any, mask: Any, loc: Loc | None = None
    ) -> None:
        if mask is None or mask:
            self.words[int(pointers)] = values

    def atomic(
        self, fn: str, dtype: DType, pointers: Any, values: Any, rest: Any, loc: Loc | None = None
    ) -> Any:
        """As GlobalMemory's, on one word, to which other programs may have added in between."""
        address, mask = int(pointers), None if fn == "cas" else rest
        if mask is not None and not mask:
            return dtype.numpy.type(0)
        old = self._word(address, dtype.numpy) + dtype.numpy.type(self._fill(address)[0].drift)
        self.words[address] = dtype.numpy.type(self.updated(fn, old, values, rest))
        return old
