"""Equality of functions modulo names and the order of independent pure ops."""

from __future__ import annotations

from collections import Counter
from typing import Any

from warploom.ir.analysis import is_pure
from warploom.ir.core import Func, Region, Value, walk
from warploom.ir.ops import arith


class _Canon:
    """Pure ops become expressions (interned), everything else a sequence."""

    def __init__(self, table: dict[Any, int]) -> None:
        self.table = table
        self.at: dict[Value, int] = {}
        self.count = 0

    def intern(self, key: Any) -> int:
        return self.table.setdefault(key, len(self.table))

    def region(self, r: Region) -> tuple[Any, ...]:
        for p in r.params:
            self.count += 1
            self.at[p] = self.intern(("parameter", self.count, p.type))
        found = []
        for o in r.ops:
            operands = tuple(self.at[v] for v in o.operands)
            attrs = tuple(sorted((k, repr(v)) for k, v in o.attrs.items() if k != "name"))
            if is_pure(o) and not o.regions:
                for i, v in enumerate(o.results):
                    self.at[v] = self.intern((o.kind.name, attrs, operands, i))
                continue
            regions = tuple(self.region(x) for x in o.regions)
            self.count += 1
            for i, v in enumerate(o.results):
                self.at[v] = self.intern(("result", self.count, i, v.type))
            found.append((o.kind.name, attrs, operands, regions))
        return tuple(found)


def _kinds(r: Region) -> Counter[str]:
    return Counter(o.kind.name for o in walk(r) if o.kind is not arith.const)


def difference(x: Func, y: Func) -> str | None:
    """None where the functions are the same, else where they first differ."""
    table: dict[Any, int] = {}
    a, b = _Canon(table).region(x.body), _Canon(table).region(y.body)
    found = _first(a, b, "")
    if found is None and _kinds(x.body) != _kinds(y.body):
        more, less = _kinds(x.body) - _kinds(y.body), _kinds(y.body) - _kinds(x.body)
        return f"ops only left: {dict(more)}, only right: {dict(less)}"
    return found


def _first(a: tuple[Any, ...], b: tuple[Any, ...], path: str) -> str | None:
    for n, (p, q) in enumerate(zip(a, b, strict=False)):
        here = f"{path}/{n}:{p[0]}"
        if p[:3] != q[:3]:
            return f"{here} {p[:3]} differs from {q[:3]}"
        for i, (r, s) in enumerate(zip(p[3], q[3], strict=True)):
            found = _first(r, s, f"{here}.{i}")
            if found:
                return found
    return None if len(a) == len(b) else f"{path}: {len(a)} ops against {len(b)}"
