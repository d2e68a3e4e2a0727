"""Tuples among a launch's arguments."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

RUN_TIME = "run time"  # in `Packed.items`: a value that is passed


@dataclass(frozen=True)
class Packed:
    """A tuple argument.  items: RUN_TIME for each value that is an argument of its own, (what it is,) for
    what is known while compiling, Packed for tuples inside.  kind: a named tuple's class, which has `fields`,
    or `tuple`."""

    kind: Any
    fields: tuple[str, ...]
    items: tuple[Any, ...]

    @property
    def count(self) -> int:
        """How many arguments it holds."""
        inner = (item.count for item in self.items if isinstance(item, Packed))
        return sum(inner) + sum(item is RUN_TIME for item in self.items)

    def filled(self, values: Iterator[Any]) -> Any:
        """The tuple, of these values."""
        parts = [
            item.filled(values)
            if isinstance(item, Packed)
            else next(values)
            if item is RUN_TIME
            else item[0]
            for item in self.items
        ]
        return self.kind._make(parts) if self.fields else tuple(parts)
