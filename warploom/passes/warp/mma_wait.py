"""Where the wait for late dots stands amid the arithmetic that hides them (part of expand_pipeline).

The largest tile that goes through the special function units is cut into columns: the first, and what reads
no others (sums that go from column to column), are computed before the wait; the rest after it.

before:                               after:
  %x = sub(%s, %max);  %p = exp2(%x)    %x0 = sub(slice(%s), %max0);  %p0 = exp2(%x0)
  %a0 = add(%a, slice(%p))              %a0 = add(%a, slice(%p0))
  %a1 = add(%a0, slice(%p))             hold(%a0)
  %r = reduce(%p)                       wgmma_wait
  wgmma_wait                            %x1 = …;  %p1 = exp2(%x1);  %p = concat(%p0, %p1)
                                        %a1 = add(%a0, slice(%p1));  %r = reduce(%p)
"""

from __future__ import annotations

from warploom.ir.core import Builder, Op, Value
from warploom.ir.ops import arith, regs, tile
from warploom.ir.types import shape_of

_UNIT = 8  # columns of a wgmma result that lie in whole registers of every lane


def place_wait(b: Builder, start: int, wait: int, behind: int, eighths: int) -> None:
    """Rewrites what b holds from `start` on: arithmetic, the wait and what belongs to it (from `wait`), what
    stands behind it (from `behind`).  Without a tile to cut, nothing changes."""
    under, end, rest = b.ops[start:wait], b.ops[wait:behind], b.ops[behind:]
    cut = _Cut.find(under, end + rest, eighths)
    if cut is None:
        return
    del b.ops[start:]
    cut.write(b, end)
    b.ops += rest


class _Cut:
    """Tile `x` (made by `ops`, which nothing else reads) cut after `columns`."""

    def __init__(self, under: list[Op], x: Op, columns: int, later: list[Op]) -> None:
        self.x, self.columns = x, columns
        (self.rows, self.n) = shape_of(x.result.type)
        self.made = {v: o for o in under for v in o.results}
        users: dict[Value, set[Op]] = {}
        for o in (*under, *later):
            for v in o.operands:
                users.setdefault(v, set()).add(o)
        self.users = users
        self.ops = {x}
        for o in reversed(under):
            if o in self.ops or self.is_part(o):
                self.ops.add(o)
        moved = {x}
        for o in under:
            if o not in self.ops and any(self.made.get(v) in moved for v in o.operands):
                moved.add(o)
        self.moved = moved - {x}
        self.under = under

    @staticmethod
    def find(under: list[Op], later: list[Op], eighths: int) -> _Cut | None:
        special = [
            o for o in under if o.kind in arith.SPECIAL and len(shape_of(o.result.type)) == 2
        ]
        if not special:
            return None
        x = max(special, key=lambda o: shape_of(o.result.type)[0] * shape_of(o.result.type)[1])
        columns = shape_of(x.result.type)[1] * eighths // (8 * _UNIT) * _UNIT
        if not 0 < columns < shape_of(x.result.type)[1]:
            return None
        return _Cut(under, x, columns, later)

    def is_part(self, o: Op) -> bool:
        """Is o computed only for x, element by element?"""
        if len(o.results) != 1 or not self.users.get(o.result, {None}) <= self.ops:
            return False
        plain = o.kind in arith.ELEMENTWISE or o.kind in (tile.splat, tile.broadcast)
        return plain and shape_of(o.result.type) == (self.rows, self.n)

    def write(self, b: Builder, end: list[Op]) -> None:
        b.ops += [o for o in self.under if o not in self.ops and o not in self.moved]
        chain = [o for o in self.under if o in self.ops]
        moved = [o for o in self.under if o in self.moved]
        first = self.part(b, chain, 0, self.columns)
        early: dict[Value, None] = {}  # what follows from the first columns alone
        late = []
        for o in moved:
            mine = [v for v in o.operands if self.made.get(v) in self.moved or v is self.x.result]
            if self.reads(o, 0, self.columns):
                b.append(o.with_(operands=(first,)))
            elif all(v in early for v in mine):
                b.append(o)
            else:
                late.append(o)
                continue
            early.update(dict.fromkeys(o.results))
        read = {v for o in late for v in o.operands}
        regs.hold(b, *([v for v in early if v in read] or [first]))
        b.ops += end
        second = self.part(b, chain, self.columns, self.n - self.columns)
        with b.at(self.x):
            whole = Op(
                tile.concat, (first, second), {"axis": 1}, self.x.results, (), b.tasks, b.loc
            )
        b.append(whole)
        for o in late:
            if self.reads(o, self.columns, self.n):
                row, column = o.attrs["offset"]
                offset = row, column - self.columns
                o = o.with_(operands=(second,), attrs={**o.attrs, "offset": offset})
            b.append(o)

    def reads(self, o: Op, start: int, end: int) -> bool:
        """Is o a slice of x that lies within columns start … end?"""
        if o.kind is not tile.slice_tile or o.operands[0] is not self.x.result:
            return False
        at = o.attrs["offset"][1]
        return bool(start <= at and at + o.attrs["shape"][1] <= end)

    def part(self, b: Builder, chain: list[Op], at: int, n: int) -> Value:
        """Columns at … at + n of x."""
        env: dict[Value, Value] = {}

        def columns(v: Value) -> Value:
            match shape_of(v.type):
                case (rows, self.n):  # one row where it is broadcast
                    if v not in env:
                        env[v] = tile.slice_tile(b, v, offset=(0, at), shape=(rows, n), hint=v.hint)
                    return env[v]
            return v

        for o in chain:
            with b.at(o):
                attrs = dict(o.attrs)
                if "shape" in attrs:
                    attrs["shape"] = (self.rows, n)
                operands = [columns(v) for v in o.operands]
                env[o.result] = o.kind(b, *operands, hint=o.result.hint, **attrs)
                b.ops[-1] = b.ops[-1].with_(id=o.id)
        return env[self.x.result]
