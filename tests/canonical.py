"""One text for all functions that differ only in names and in the placing of pure computations.

For golden tests: the program that the passes derive against the hand-written one.  What is forgotten: hints,
ids, locations, attributes of the function, names of allocations, the order of what loops carry and ifs
give, where and how often a pure op stands (and with it the exchange that serves it), the order of a
commutative op's operands.  What is kept: every
op with an effect, in order, with all that it computes from.  The text is for comparison; it is not a
program to run (pure ops float out of their task).
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from warploom.ir.analysis import definitions
from warploom.ir.core import Effect, Func, Level, Op, Region, Value
from warploom.ir.ops import arith, control, mbarrier, mma, smem, task
from warploom.ir.printer import print_attrs, print_func
from warploom.ir.rewrite import rewrite
from warploom.ir.types import InFlight
from warploom.passes.tile.canonicalize.cleanup import drop_dead, merge_equal, until_stable
from warploom.passes.tile.canonicalize.simplify import Simplifier

# Mean something of their own in each region: never moved to an outer one.
_PINNED = (task.replica_id, mma.no_acc, mma.in_flight)


def canonical_text(func: Func) -> str:
    """The text that two functions share exactly if they are the same program modulo names.

    (One direction is exact: equal texts mean equal programs.  Programs that do the same differently have
    different texts.)
    """
    tiles = func.level is Level.TILE  # whose loops of one iteration are their bodies
    steps = (lambda f: rewrite(f, Simplifier(tiles)), merge_equal, drop_dead)
    func = until_stable(func, steps)
    body = _results_in_order_of_use(_carries_in_order_of_use(func.body))
    canonical = _Canonical(keeps_tasks=func.level < Level.WARP)
    return print_func(Func("f", canonical.function(body), func.level))


def _floats(o: Op) -> bool:
    """Whether the op is pure, so that only what uses it says where it stands."""
    return not o.regions and o.kind.effect is Effect.NONE and o.kind is not control.yield_


# ---- the order of loop carries


def _carries_in_order_of_use(region: Region) -> Region:
    """Every `for` with its carried values in the order in which its body first uses them."""
    made = definitions(region)

    def visit(region: Region) -> Region:
        return Region(region.params, tuple(order(o) for o in region.ops))

    def order(o: Op) -> Op:
        o = o.with_(regions=tuple(visit(r) for r in o.regions)) if o.regions else o
        if o.kind is control.while_:
            return order_while(o)
        if o.kind is not control.for_:
            return o
        (body,) = o.regions
        return _carrying(o, first_used(body.params[1:], _anchored_uses(body)))

    def order_while(o: Op) -> Op:
        condition, body = o.regions
        tested = reached(condition.params, (*_anchored_uses(condition), condition.yielded[0]))
        first = [condition.params.index(v) for v in tested]
        rest = first_used(body.params, _anchored_uses(body))
        return control.keeping(o, [*first, *(i for i in rest if i not in first)])

    def reached(carried: Sequence[Value], uses: Iterable[Value]) -> dict[Value, None]:
        """Which of the carried values the uses are computed from, in that order."""
        used: dict[Value, None] = {}
        seen: set[Value] = set()
        for v in uses:
            _collect(v, made, set(carried), used, seen)
        return used

    def first_used(carried: Sequence[Value], uses: Iterable[Value]) -> list[int]:
        at = {v: i for i, v in enumerate(reached(carried, uses))}
        return sorted(range(len(carried)), key=lambda i: at.get(carried[i], len(at)))

    return visit(region)


def _carrying(o: Op, order: Sequence[int]) -> Op:
    """A `for` that carries its values in another order."""
    (body,) = o.regions
    ending = body.ops[-1].with_(operands=tuple(body.yielded[i] for i in order))
    params = (body.params[0], *(body.params[1 + i] for i in order))
    return o.with_(
        operands=(*o.operands[:3], *(o.operands[3 + i] for i in order)),
        results=tuple(o.results[i] for i in order),
        regions=(Region(params, (*body.ops[:-1], ending)),),
    )


def _results_in_order_of_use(region: Region) -> Region:
    """Every `if` with its results in the order of their uses: in what follows, then in the block's yield.  So
    too what a `for` carries and its body uses for nothing but what it carries."""
    made = definitions(region)

    def visit(region: Region) -> Region:
        ops = []
        for i, o in enumerate(region.ops):
            if o.kind in (control.if_, control.for_) and len(o.results) > 1:
                after = (*_anchored_uses(Region((), region.ops[i + 1 :])), *region.yielded)
                o = order(o, after) if o.kind is control.if_ else order_rest(o, after)
            ops.append(o.with_(regions=tuple(visit(r) for r in o.regions)) if o.regions else o)
        return Region(region.params, tuple(ops))

    def places(values: Sequence[Value], uses: Iterable[Value]) -> list[int]:
        """Which use of each value is the first; those without one come last."""
        used: dict[Value, None] = {}
        seen: set[Value] = set()
        for v in uses:
            _collect(v, made, set(values), used, seen)
        at = {v: i for i, v in enumerate(used)}
        return [at.get(v, len(at)) for v in values]

    def order_rest(o: Op, after: Iterable[Value]) -> Op:
        (body,) = o.regions
        inside = places(body.params[1:], _anchored_uses(body))
        behind = places(o.results, after)
        keys = list(zip(inside, behind, strict=True))
        return _carrying(o, sorted(range(len(keys)), key=keys.__getitem__))

    def order(o: Op, after: Iterable[Value]) -> Op:
        at = places(o.results, after)
        kept = sorted(range(len(at)), key=at.__getitem__)
        arms = []
        for r in o.regions:
            ending = r.ops[-1].with_(operands=tuple(r.yielded[i] for i in kept))
            arms.append(Region(r.params, (*r.ops[:-1], ending)))
        return o.with_(results=tuple(o.results[i] for i in kept), regions=tuple(arms))

    return visit(region)


def _anchored_uses(region: Region) -> Iterator[Value]:
    """Operands of the ops that do not float, in program order; a region's own yield is left out."""
    for o in region.ops:
        if not _floats(o) and o.kind is not control.yield_:
            yield from o.operands
            for inner in o.regions:
                yield from _anchored_uses(inner)


def _collect(
    v: Value,
    made: dict[Value, Op],
    wanted: set[Value],
    found: dict[Value, None],
    seen: set[Value],
) -> None:
    if v in seen:
        return
    seen.add(v)
    if v in wanted:
        found.setdefault(v)
    o = made.get(v)
    if o is not None and _floats(o):
        for operand in o.operands:
            _collect(operand, made, wanted, found, seen)


# ---- floating


@dataclass
class _Node:
    """One pure computation: all ops of the function that compute it."""

    op: Op  # with canonical operands
    home: int  # depth of the region in which it stands
    key: str


@dataclass
class _Canonical:
    keeps_tasks: bool  # from WARP on the region says which task runs an op
    nodes: dict[str, _Node] = field(default_factory=dict)
    node_of: dict[Value, _Node] = field(default_factory=dict)  # canonical results -> their node
    env: dict[Value, Value] = field(default_factory=dict)  # old value -> canonical value
    keys: dict[Value, str] = field(default_factory=dict)
    depth: dict[Value, int] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)  # of allocations
    emitted: set[str] = field(default_factory=set)
    count: Iterator[int] = field(default_factory=itertools.count)  # what stays in place
    accumulators: Iterator[int] = field(default_factory=itertools.count)

    def function(self, body: Region) -> Region:
        anchored = self.anchor(body, 0)
        return self.place(anchored, 0)

    def define(self, values: Iterable[Value], depth: int) -> tuple[Value, ...]:
        """Fresh values without hints for parameters and results of ops that stay in place."""
        fresh = []
        for v in values:
            new = Value(v.type)
            self.env[v], self.keys[new], self.depth[new] = new, f"v{next(self.count)}", depth
            fresh.append(new)
        return tuple(fresh)

    def anchor(self, region: Region, depth: int) -> Region:
        """The region without the ops that float, which become nodes."""
        params = self.define(region.params, depth)
        name = f"region {next(self.count)}"
        ops: list[Op] = []
        for o in region.ops:
            if o.kind is smem.exchange:
                continue
            operands = tuple(self.env[v] for v in o.operands)
            if _floats(o):
                self.float(o, operands, depth, name)
                continue
            regions = tuple(self.anchor(r, depth + 1) for r in o.regions)
            results = self.define(o.results, depth)
            ops.append(Op(o.kind, operands, o.attrs, results, regions, self.tasks(o)))
        return Region(params, tuple(ops))

    def tasks(self, o: Op) -> frozenset[str]:
        return o.tasks if self.keeps_tasks else frozenset()

    def float(self, o: Op, operands: tuple[Value, ...], depth: int, region: str) -> None:
        kind = o.kind
        if kind in (arith.gt, arith.ge):
            kind, operands = arith.MIRRORED[kind], operands[::-1]
        elif arith.MIRRORED.get(kind) is kind:
            operands = tuple(sorted(operands, key=self.keys.__getitem__))
        home = max((self.depth[v] for v in operands), default=0)
        parts: list[Any] = [kind.name, print_attrs(o.attrs), *(self.keys[v] for v in operands)]
        parts += [*(str(v.type) for v in o.results), *sorted(self.tasks(o))]
        if kind in _PINNED:
            home = depth
            parts.append(region)
        if any(isinstance(v.type, InFlight) for v in o.results):
            parts.append(next(self.accumulators))  # each accumulator is its own
        key = hashlib.sha256("|".join(map(str, parts)).encode()).hexdigest()
        node = self.nodes.get(key)
        if node is None:
            results = tuple(Value(v.type) for v in o.results)
            node = _Node(Op(kind, operands, o.attrs, results, (), self.tasks(o)), home, key)
            self.nodes[key] = node
            for i, v in enumerate(results):
                self.node_of[v], self.keys[v], self.depth[v] = node, f"{key}.{i}", home
        self.env.update(zip(o.results, node.op.results, strict=True))

    def place(self, region: Region, depth: int) -> Region:
        """The region with each node that lives in it in front of the first op that needs it."""
        ops: list[Op] = []
        for o in region.ops:
            for v in self.needed(o):
                self.emit(v, depth, ops)
            ops.append(o.with_(regions=tuple(self.place(r, depth + 1) for r in o.regions)))
        return Region(region.params, tuple(ops))

    def needed(self, o: Op) -> Iterator[Value]:
        yield from o.operands
        for r in o.regions:
            for inner in r.ops:
                yield from self.needed(inner)

    def emit(self, v: Value, depth: int, ops: list[Op]) -> None:
        node = self.node_of.get(v)
        if node is None or node.key in self.emitted:
            return
        for operand in node.op.operands:
            self.emit(operand, depth, ops)
        if node.home == depth:
            self.emitted.add(node.key)
            ops.append(self.renamed(node.op))

    def renamed_to(self, name: str) -> str:
        return self.names.setdefault(name, f"m{len(self.names)}")

    def renamed(self, o: Op) -> Op:
        """Allocations are called by the order of their first use."""
        if o.kind not in (smem.shared_alloc, mbarrier.mbarrier_alloc):
            return o
        attrs = dict(o.attrs)
        for key in ("name", "alias"):
            if attrs.get(key) is not None:
                attrs[key] = self.renamed_to(attrs[key])
        if "reuses" in attrs:
            attrs["reuses"] = tuple(map(self.renamed_to, attrs["reuses"]))
        return o.with_(attrs=attrs)
