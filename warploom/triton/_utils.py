"""triton._utils: what PyTorch takes from there to find which arguments are specialized."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

Path = tuple[int, ...]


def find_paths_if(items: Sequence[Any], holds: Callable[[Path, Any], bool]) -> list[Path]:
    """The positions of the items, and of those of nested sequences, of which `holds` is true."""
    return [path for path, item in _leaves(items, ()) if holds(path, item)]


def _leaves(item: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    if isinstance(item, list | tuple):
        for i, inner in enumerate(item):
            yield from _leaves(inner, (*path, i))
    else:
        yield path, item


def get_iterable_path(items: Any, path: Path) -> Any:
    """The item at a position."""
    for i in path:
        items = items[i]
    return items
