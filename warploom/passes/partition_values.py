"""Writes the versions of values that analysis/data_split.py asks for: the part of partition_data and
partition_copies that cuts tiles among replicas.

Each version gets an op; a part's place along the cut axis follows from the replica's id.  How ops with
effects are cut differs: `effect` is the subclasses' own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from warploom.analysis.data_split import Axis, Split, operand_axes
from warploom.analysis.structure import Demand
from warploom.errors import InternalError
from warploom.ir import build
from warploom.ir.core import Builder, Effect, Op, OpKind, Region, Value
from warploom.ir.ops import arith, control, task, tile
from warploom.ir.types import Scalar, Tile, elem_of, i32, shape_of


@dataclass(eq=False)
class Cutter:
    """tasks: the replicated task; none at TILE, where every op has its parts whatever task the source asks
    for, and at WARP, where a region belongs to one.  identity: the op that tells the parts' owners apart."""

    split: Split
    tasks: frozenset[str] = frozenset()
    identity: OpKind = task.replica_id
    env: dict[tuple[Value, int], Value] = field(default_factory=dict)  # cut versions
    replica: Value = field(default_factory=lambda: Value(Scalar(i32), "replica"))
    elsewhere: set[Value] = field(default_factory=set)  # what other tasks hold

    def __post_init__(self) -> None:
        if not self.tasks:
            return
        structure = self.split.structure
        demand = Demand.assigned(structure, lambda o: o.tasks - self.tasks)
        self.elsewhere = {v for v, _ in demand.live}
        for o in structure.ops:  # a loop's result is held where the value that it carries is
            for c in control.carried(o):
                if not self.elsewhere.isdisjoint(c.params):
                    self.elsewhere.add(c.result)

    def whole(self, body: Region) -> Region:
        """The body of a function or of a task, with the replica's id in front."""
        b = Builder(tasks=self.tasks)
        b.append(Op(self.identity, (), {}, (self.replica,), (), b.tasks))
        self.ops(body, b)
        return Region(body.params, tuple(b.ops))

    # ---- values

    def get(self, b: Builder, v: Value, axis: Axis) -> Value:
        """A version of v; the part of an item is cut out where it is used."""
        if axis is None:
            return v
        if (v, axis) in self.env:
            return self.env[v, axis]
        if v not in self.split.items:
            raise InternalError(f"{v} has no version cut along axis {axis}")
        shape = self.cut_shape(shape_of(v.type), axis)
        blocks = self.blocks(b, axis, len(shape))
        return task.slice_block(b, v, *blocks, shape=shape, hint=v.hint)

    def blocks(self, b: Builder, axis: int, rank: int) -> list[Value]:
        """This replica's part, counted in parts along every axis."""
        zero = build.const(b, 0)
        return [self.replica if i == axis else zero for i in range(rank)]

    def cut_shape(self, shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
        return tuple(n // self.split.count if i == axis else n for i, n in enumerate(shape))

    def fresh(self, v: Value, axis: Axis) -> Value:
        """The value that stands for a version of v, made where v is made."""
        if axis is None:
            return v
        new = Value(Tile(self.cut_shape(shape_of(v.type), axis), elem_of(v.type)), v.hint)
        self.env[v, axis] = new
        return new

    def start(self, b: Builder, offset: Value, extent: int) -> Value:
        """offset + this replica's share of an axis."""
        share = arith.mul(b, self.replica, build.const(b, extent))
        return arith.add(b, offset, share)

    # ---- ops

    def ops(self, region: Region, b: Builder) -> None:
        for o in region.ops:
            with b.at(o):
                self.op(o, b)

    def op(self, o: Op, b: Builder) -> None:
        if not self.split.mine(o):
            b.append(o)
        elif o.kind in control.LEAD:
            b.append(self.control(o, b))
        elif o.kind is control.yield_:
            b.append(o)
        elif o in self.split.effects:
            self.effect(o, b)
        else:
            self.pure(o, b)

    def pure(self, o: Op, b: Builder) -> None:
        cuts: set[Axis] = {axis for v in o.results for axis in self.split.cuts(v)}
        others = o.tasks - self.tasks if self.tasks else frozenset()
        if None in cuts or not cuts:
            b.append(o)
        elif others:
            b.append(o.with_(tasks=others))
        b.tasks = self.tasks or b.tasks
        for axis in sorted(a for a in cuts if a is not None):
            self.part(o, axis, b)

    def part(self, o: Op, axis: int, b: Builder) -> None:
        """Append the version of a pure op (or load) whose results are cut along `axis`."""
        axes = operand_axes(o, axis)
        operands = [self.get(b, v, a) for v, a in zip(o.operands, axes, strict=True)]
        attrs = dict(o.attrs)
        # Several only where tiles are combined together.
        results = tuple(self.fresh(v, axis) for v in o.results)
        new = results[0]
        n = shape_of(new.type)[axis]
        if "shape" in attrs:
            attrs["shape"] = shape_of(new.type)
        if o.kind is tile.load_box:
            at = len(operands) - len(shape_of(new.type)) + axis
            operands[at] = self.start(b, operands[at], n)
        if o.kind is tile.arange:
            begin = o.attrs["start"]
            local = tile.arange(b, start=begin, end=begin + n)
            share = self.start(b, build.const(b, 0), n)
            wide = tile.splat(b, share, shape=(n,))
            b.append(Op(arith.add, (local, wide), {}, (new,), (), b.tasks, o.loc, o.id))
            return
        b.append(Op(o.kind, tuple(operands), attrs, results, (), b.tasks, o.loc, o.id))

    def effect(self, o: Op, b: Builder) -> None:
        """Appends an op with side effects, cut along split.effects[o]."""
        raise NotImplementedError

    def alone(self, o: Op, b: Builder) -> None:
        """Only replica 0 does what is not cut."""
        first = arith.eq(b, self.replica, build.const(b, 0), hint="alone")
        build.if_(b, first, lambda inner: inner.append(o))

    # ---- control flow: each carried value once a version

    def control(self, o: Op, b: Builder) -> Op:
        axes = [self.axes(o, i) for i in range(len(o.results))]
        results = self.several(o.results, axes)
        lead = control.LEAD[o.kind]
        entering = axes if o.kind in control.LOOPS else []  # an if's arms take no parameters
        init = self.operands(o.operands[lead:], entering, b)
        regions = []
        for r in o.regions:
            lone = len(r.params) - len(entering)  # the index of a `for`
            params = (*r.params[:lone], *self.several(r.params[lone:], entering))
            tests = [(None,)] * (len(r.yielded) - len(axes))  # what a while's condition says
            regions.append(self.region(r, params, [*tests, *axes], b))
        return o.with_(
            operands=(*o.operands[:lead], *init), results=results, regions=tuple(regions)
        )

    def axes(self, o: Op, i: int) -> tuple[Axis, ...]:
        """Versions of the i-th value that o passes on; where another task holds it, whole as well."""
        found = self.split.cuts(o.results[i])
        shared = None not in found and o.results[i] in self.elsewhere
        return (None, *found) if shared else found

    def several(
        self, values: Sequence[Value], axes: Sequence[tuple[Axis, ...]]
    ) -> tuple[Value, ...]:
        return tuple(self.fresh(v, a) for v, each in zip(values, axes, strict=True) for a in each)

    def operands(
        self, values: Sequence[Value], axes: Sequence[tuple[Axis, ...]], b: Builder
    ) -> tuple[Value, ...]:
        return tuple(self.get(b, v, a) for v, each in zip(values, axes, strict=True) for a in each)

    def region(
        self, r: Region, params: tuple[Value, ...], axes: Sequence[tuple[Axis, ...]], b: Builder
    ) -> Region:
        inner = b.nested()
        self.ops(Region(r.params, r.ops[:-1]), inner)
        end = r.ops[-1]
        inner.tasks = self.tasks
        operands = self.operands(end.operands, axes, inner)
        inner.append(end.with_(operands=operands))
        return inner.region(params)


class Stores(Cutter):
    """Stores and atomics take the part of what they write; what is not cut replica 0 writes alone.  Where an
    atomic's number is broadcast to all replicas, replica 0 does it: broadcast_scalars sees to that."""

    def effect(self, o: Op, b: Builder) -> None:
        axis = self.split.effects[o]
        if axis is None:
            if Effect.WRITE in o.kind.effect and not self.split.gives(o):
                self.alone(o, b)
            else:
                b.append(o)
            return
        operands = [self.get(b, v, axis if shape_of(v.type) else None) for v in o.operands]
        if o.kind is tile.store_box:
            shape = shape_of(operands[1].type)
            at = len(operands) - len(shape) + axis
            operands[at] = self.start(b, operands[at], shape[axis])
        results: Sequence[Value] = tuple(self.fresh(v, axis) for v in o.results)
        b.append(o.with_(operands=tuple(operands), results=tuple(results)))
