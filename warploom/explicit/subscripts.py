"""Subscripts of a script: barriers and slots by number, parts by slices with constant bounds."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from warploom.explicit.elements import Numbers, element, global_element
from warploom.explicit.handles import Barrier, BarrierList, GlobalView
from warploom.explicit.operands import index_of, shared_block
from warploom.explicit.program import Program, ScriptEmitter
from warploom.frontend.coerce import describe, known, static_int
from warploom.frontend.refuse import refuse
from warploom.frontend.translate import Statements
from warploom.ir.core import Value
from warploom.ir.ops import smem, tile
from warploom.ir.types import Barriers, Shared, Tile


class Subscripts(Statements):
    """Translates the subscripts of one function of a script."""

    emitter: ScriptEmitter

    @property
    def program(self) -> Program:
        return self.emitter.program

    def subscript_of(self, node: ast.Subscript, x: Any) -> Any:
        entries = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        match x:
            case Value(type=Barriers(n=n)):
                index = self.expr(node.slice)
                with self.at(node):
                    if not isinstance(index, Value) and not 0 <= static_int(index, "an index") < n:
                        refuse(
                            "barrier-index", f"barrier {known(index)} of {n}", f"use 0 to {n - 1}"
                        )
                    return Barrier(x, index if isinstance(index, Value) else known(index))
            case BarrierList(arrays=arrays):
                with self.at(node):
                    i = static_int(
                        self.expr(node.slice), "the index of barriers with different counts"
                    )
                    if not 0 <= i < len(arrays):
                        refuse("barrier-index", f"barrier {i} of {len(arrays)}", "count from 0")
                    return Barrier(arrays[i], 0)
            case Value(type=Shared()):
                return self._slot(node, x, entries)
            case Numbers() | GlobalView():
                index = tuple(map(self.expr, entries))
                with self.at(node):
                    if isinstance(x, GlobalView):
                        return global_element(x, index)
                    return x[index[0] if len(index) == 1 else index]
            case Value(type=Tile()) if not any(map(_is_axis, entries)):
                index = tuple(map(self.expr, entries))
                with self.at(node, value=x):
                    return element(x, *index)
            case Value(type=Tile()) if any(_cuts(e) for e in entries):
                return self._cut(node, x, entries)
        return super().subscript_of(node, x)

    def _slot(self, node: ast.Subscript, x: Value, entries: list[ast.expr]) -> Value:
        """s[i, j]: a slot; constant slices cut the slot itself."""
        t = x.typed(Shared)
        indices = [e for e in entries if not isinstance(e, ast.Slice)]
        values = [self.expr(e) for e in indices]
        with self.at(node):
            if len(indices) != len(t.lead) or list(entries[: len(indices)]) != indices:
                site = self.program.site(x)
                is_whole = site is not None and t.box == t.shape
                if len(indices) == len(entries) == len(t.lead) + len(t.shape):
                    return self._element(x, t, values)
                if is_whole and 0 < len(indices) < len(t.lead) + len(t.shape):
                    assert site is not None
                    self.program.choose(
                        site, "lead", len(indices), "it is indexed so", self.emitter.loc
                    )
                refuse(
                    "slot-index",
                    f"{len(indices)} slot indices of a shared tensor with {len(t.lead)}",
                    "index every leading axis, then cut with constant slices",
                )
            out = x
            if t.lead:
                for v, n in zip(values, t.lead, strict=True):
                    if not isinstance(v, Value) and not 0 <= static_int(v, "a slot") < n:
                        refuse("slot-index", f"slot {known(v)} of {n}", f"use 0 to {n - 1}")
                slot = self.emitter.emit(smem.shared_slot, x, *map(index_of, values))
                out = self.program.derived(x, slot)
            cuts = entries[len(indices) :]
            if not cuts:
                return out
            bounds = self._bounds_of(cuts, t.shape)
            shape = tuple(hi - lo for lo, hi in bounds)
            if shape == t.shape:
                return out
            if any(lo % n for (lo, _), n in zip(bounds, shape, strict=True)):
                refuse("slice", f"a cut at {bounds}", "cut at multiples of the part's own size")
            return shared_block(  # type: ignore[no-any-return]
                out, shape, tuple(lo // n for (lo, _), n in zip(bounds, shape, strict=True))
            )

    def _element(self, x: Value, t: Shared, index: Sequence[Any]) -> Value:
        """s[i, j] with an index for each axis: a part of one element."""
        n, out, site = len(t.lead), x, self.program.site(x)
        if t.swizzle and site is not None:
            self.program.choose(site, "swizzle", 0, "one element of it is read", self.emitter.loc)
        if n:
            slot = self.emitter.emit(smem.shared_slot, x, *map(index_of, index[:n]))
            out = self.program.derived(x, slot)
        part: Value = shared_block(out, (1,) * len(t.shape), tuple(index[n:]))
        return part

    def _bounds_of(
        self, entries: Sequence[ast.expr], shape: tuple[int, ...]
    ) -> list[tuple[int, int]]:
        """(start, end) on every axis of constant slices."""
        out = []
        for axis, n in enumerate(shape):
            e = entries[axis] if axis < len(entries) else ast.Slice()
            if not isinstance(e, ast.Slice) or e.step is not None:
                refuse("slice", "only slices a:b after the slot indices", "write s[slot, a:b]")
            lo = 0 if e.lower is None else static_int(self.expr(e.lower), "a slice bound")
            hi = n if e.upper is None else static_int(self.expr(e.upper), "a slice bound")
            if not 0 <= lo < hi <= n:
                refuse("slice", f"{lo}:{hi} of an axis of {n}", f"stay inside 0:{n}")
            out.append((lo, hi))
        return out

    def _cut(self, node: ast.Subscript, x: Value, entries: list[ast.expr]) -> Value:
        """x[:, 0:64] of a register tensor, with constant bounds."""
        with self.at(node, value=x):
            shape = self.emitter.shape(x)
            if len(entries) > len(shape):
                refuse("slice", f"{len(entries)} slices of {describe(x)}", "one slice an axis")
            bounds = self._bounds_of(entries, shape)
            out: Value = self.emitter.emit(
                tile.slice_tile,
                x,
                offset=tuple(lo for lo, _ in bounds),
                shape=tuple(hi - lo for lo, hi in bounds),
            )
            return out


def _is_axis(e: ast.expr) -> bool:
    """Does a subscript's entry keep or make an axis?"""
    return isinstance(e, ast.Slice) or (isinstance(e, ast.Constant) and e.value is None)


def _cuts(e: ast.expr) -> bool:
    return isinstance(e, ast.Slice) and not (e.lower is None and e.upper is None)
