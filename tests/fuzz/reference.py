"""What a tree means, in NumPy: the reference of the comparison.  It shares no code with the compiler."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np

from tests.fuzz.numbers import convert
from tests.fuzz.ops import OPS
from tests.fuzz.tree import (
    Access,
    Array,
    Atomic,
    E,
    For,
    If,
    Kernel,
    Let,
    Load,
    Note,
    Return,
    Store,
    While,
    accesses,
    statements,
)


class Outside(Exception):
    """An access without a mask leaves its array, or a promise does not hold: the tree is no legal kernel."""


class _Done(Exception):
    """The program has returned."""


def run(kernel: Kernel, data: Mapping[str, Any]) -> None:
    """Runs all programs, one after the other; the arrays of `data` are written in place.  Raises Outside."""
    grid = (*kernel.grid, 1, 1)[:3]
    with np.errstate(all="ignore"):
        for z, y, x in itertools.product(*(range(n) for n in reversed(grid))):
            with contextlib.suppress(_Done):
                _Program(kernel, data, (x, y, z), grid).block(kernel.body)


def tolerances(kernel: Kernel) -> dict[str, float]:
    """How far an element of each array may be from the reference's; 0: not at all."""
    found = dict.fromkeys((a.name for a in kernel.arrays), 0.0)
    for s in statements(kernel.body):
        if isinstance(s, Store | Atomic):
            name = s.access.array
            found[name] = max(found[name], s.value.t.err)
    return found


def written(kernel: Kernel) -> set[str]:
    return {
        a.array for s in statements(kernel.body) if not isinstance(s, Load) for a in accesses(s)
    }


class _Program:
    def __init__(self, kernel: Kernel, data: Mapping[str, Any], ids: Any, grid: Any) -> None:
        self.kernel, self.data, self.ids, self.grid = kernel, data, ids, grid
        self.env: dict[str, Any] = {k: np.int32(v) for k, v in kernel.numbers.items()}

    # ---- expressions

    def value(self, e: E, env: Mapping[str, Any] | None = None) -> Any:
        env = self.env if env is None else env
        if e.op == "var":
            return env[e.attrs["name"]]
        if e.op == "program_id":
            return np.int32(self.ids[e.attrs["axis"]])
        if e.op == "num_programs":
            return np.int32(self.grid[e.attrs["axis"]])
        args = [self.value(a, env) for a in e.args]
        if e.op == "call":
            inner = {f"x{i}": a for i, a in enumerate(args)}
            *tests, last = e.attrs["bodies"]
            for test, then in zip(tests[::2], tests[1::2], strict=True):
                if self.value(test, inner):
                    return self.value(then, inner)
            return self.value(last, inner)
        return OPS[e.op].value(e, args)

    # ---- memory

    def places(self, a: Access) -> tuple[Any, Any]:
        """(index into the array, which of the elements are accessed)."""
        array: Array = self.kernel.array(a.array)
        shape = array.shape if a.lead is None else array.shape[1:]
        rank = len(a.sizes)
        index, live = [], np.ones(a.sizes, bool)
        for axis, extent in enumerate(shape):
            if axis in a.index:
                at = np.asarray(self.value(a.index[axis])).astype(np.int64)
            else:
                n = a.sizes[axis] if rank else 1
                at = int(self.value(a.at[axis])) + np.arange(n, dtype=np.int64)
                at = at if rank else at[0]
            if axis in a.wrap:
                at = np.fmod(at, extent)
            if rank > 1 and at.ndim == 1:
                at = at.reshape(tuple(-1 if i == axis else 1 for i in range(rank)))
            if axis in a.bounded:
                live = live & (at >= 0) & (at < extent)
            index.append(at)
        if a.mask is not None:
            live = live & self.value(a.mask)
        live = np.broadcast_to(live, a.sizes)
        full = [np.broadcast_to(i, a.sizes) for i in index]
        if a.lead is not None:
            full.insert(0, np.full(a.sizes, int(self.value(a.lead))))
        for i, n in zip(full, array.shape, strict=True):
            if np.any(live & ((i < 0) | (i >= n))):
                raise Outside(a.array)
        return tuple(np.where(live, i, 0) for i in full), live

    def load(self, s: Load) -> Any:
        index, live = self.places(s.access)
        array = self.data[s.access.array]
        values = array[index] if array.size else np.zeros(s.access.sizes, array.dtype)
        other = np.asarray(s.access.other or 0).astype(array.dtype)
        if s.access.hint == "nan":
            other = np.asarray(np.float32("nan")).astype(array.dtype)
        found = np.where(live, values, other)
        return found if found.ndim else found[()]

    def store(self, s: Store) -> None:
        index, live = self.places(s.access)
        array = self.data[s.access.array]
        value = convert(
            self.value(s.value), s.value.t.dtype, self.kernel.array(s.access.array).dtype
        )
        value = np.broadcast_to(value, live.shape)
        array[tuple(i[live] for i in index)] = value[live]

    def atomic(self, s: Atomic) -> None:
        index, live = self.places(s.access)
        array = self.data[s.access.array]
        value = np.broadcast_to(self.value(s.value), live.shape).astype(array.dtype)
        old = np.zeros(live.shape, array.dtype)
        compare = None if s.compare is None else np.broadcast_to(self.value(s.compare), live.shape)
        for at in np.ndindex(*live.shape):
            if live[at]:
                place = tuple(i[at] for i in index)
                old[at] = array[place]
                if compare is None:
                    array[place] = _COMBINE[s.fn](array[place], value[at])
                elif array[place] == compare[at]:
                    array[place] = value[at]
        if s.name:
            self.env[s.name] = old if old.ndim else old[()]

    # ---- statements

    def block(self, body: tuple[Any, ...]) -> None:
        for s in body:
            self.statement(s)

    def statement(self, s: Any) -> None:
        match s:
            case Let():
                self.env[s.name] = self.value(s.value)
            case Load():
                self.env[s.name] = self.load(s)
            case Store():
                self.store(s)
            case Atomic():
                self.atomic(s)
            case For():
                for i in range(int(self.value(s.lo)), int(self.value(s.hi)), s.step):
                    self.env[s.var] = np.int32(i)
                    self.block(s.body)
            case While():
                self.repeat(s)
            case If():
                self.block(s.then if self.value(s.test) else s.other)
            case Return():
                if self.value(s.test):
                    raise _Done
            case Note():
                self.note(s)

    def repeat(self, s: While) -> None:
        limit = self.value(s.limit)
        at = limit if s.halve else np.int32(0)
        while at > 1 if s.halve else at < limit:
            self.env[s.var] = at
            self.block(s.body)
            at = np.int32(at // 2 if s.halve else at + 1)
        self.env[s.var] = at

    def note(self, s: Note) -> None:
        value = self.value(s.value)
        ok = np.all(value % s.by == 0) if s.kind == "multiple_of" else np.all(value)
        if s.kind != "print" and not ok:
            raise Outside(s.kind)


_COMBINE: dict[str, Any] = {
    "add": lambda x, y: x + y,
    "max": max,
    "min": min,
    "and": lambda x, y: x & y,
    "or": lambda x, y: x | y,
    "xor": lambda x, y: x ^ y,
    "xchg": lambda x, y: y,
}
