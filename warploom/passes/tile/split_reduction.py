"""Divides a reduction loop's iterations among the CTAs of a cluster (split K).

Order: at TILE, after recover_boxes and before the schedule is chosen: that is one CTA's.
Changes: products of few programs and long K, block-scaled ones too (`split_k`).

before:  %sum = for(0, %steps, 1, %zeros) do (%i, %acc) { … dot(%a, %b, %acc) … }
         store_box(%c, %sum, …)
after:   %cta = cta_rank()
         %start = idiv(mul(%cta, %steps), ctas)
         %end = idiv(mul(add(%cta, 1), %steps), ctas)
         %part = for(%start, %end, 1, %zeros) do (%i, %acc) { … dot(%a, %b, %acc) … }
         %sum = cluster_sum(%part)
         if(eq(%cta, 0)) do { store_box(%c, %sum, …) }

Sums begin at zero in all CTAs but the first one, what grows in each iteration with what it has grown to
there.  All that follows the loop CTA 0 does alone.  analysis/shared_loops.py says which loop it is; parts
are added in the order of the ranks, so that a result is always the same.
"""

from __future__ import annotations

from warploom.analysis.access import Accesses
from warploom.analysis.shared_loops import Reduction, reduction_of
from warploom.analysis.structure import Structure, structure_of
from warploom.ir import build
from warploom.ir.core import Builder, Func, Op, Region, Value
from warploom.ir.ops import arith, control, tile
from warploom.ir.ops.cluster import cluster_sum, cta_rank
from warploom.ir.rewrite import substitute
from warploom.ir.types import Tile, dtype_of, i32, shape_of
from warploom.schedule.model import ClusterPlan
from warploom.target import Target


def split_reduction(func: Func, cluster: ClusterPlan, target: Target) -> Func:
    """See the module's docstring.  That it is legal was found when it was chosen."""
    structure = structure_of(func)
    found = reduction_of(Accesses(func, target))
    at = func.body.ops.index(found.loop)
    b = Builder(loc=found.loop.loc)
    b.ops.extend(func.body.ops[:at])
    rank = cta_rank(b, hint="cta")
    first = arith.eq(b, rank, build.const(b, 0), hint="first")
    env = part_of_loop(b, found, structure, rank, build.const(b, cluster.ctas), first)
    for i in found.sums:
        v = found.loop.results[i]
        if structure.users.get(v):
            env[v] = cluster_sum(b, env[v], hint=v.hint)
    rest = substitute(Region((), func.body.ops[at + 1 :]), env)
    build.if_(b, first, lambda inner: inner.ops.extend(rest.ops[:-1]))
    control.yield_(b)
    body = Region(func.body.params, tuple(b.ops))
    return func.with_(body=body, attrs={**func.attrs, "cluster": (cluster.ctas, 1, 1)})


def part_of_loop(
    b: Builder, found: Reduction, structure: Structure, part: Value, parts: Value, first: Value
) -> dict[Value, Value]:
    """One of so many parts of the loop; gives what stands for the loop's results after it: of sums this
    part's.  first: is it part 0?"""
    loop = found.loop
    lo, hi, by = loop.operands[:3]
    number = dtype_of(lo.type)
    one = build.const(b, 1, number)
    mine, n = (v if number == i32 else arith.cast(b, v, dtype=number) for v in (part, parts))

    above = arith.add(b, arith.sub(b, hi, lo), arith.sub(b, by, one))
    steps = arith.idiv(b, above, by, hint="steps")

    def share(of: Value) -> Value:
        """The iterations before those of a part: all have some where there are as many."""
        return arith.idiv(b, arith.mul(b, of, steps), n, hint="before")

    def bound(before: Value, hint: str) -> Value:
        return arith.add(b, lo, arith.mul(b, before, by), hint=hint)

    before = share(mine)
    start, end = bound(before, "start"), bound(share(arith.add(b, mine, one)), "end")
    init = list(loop.operands[3:])
    results = tuple(Value(v.type, v.hint) for v in loop.results)
    env = dict(zip(loop.results, results, strict=True))
    for i in found.sums:
        if not build.is_zero(init[i], structure.maker):
            init[i] = _only_first(b, init[i], first)
    for i, o in found.growing:
        param = loop.regions[0].params[1 + i]
        if structure.users.get(loop.results[i]):
            all_steps = arith.maximum(b, steps, build.const(b, 0, number))
            env[loop.results[i]] = _grown(b, o, param, init[i], all_steps)
        init[i] = _grown(b, o, param, init[i], before)
    b.append(loop.with_(operands=(start, end, by, *init), results=results))
    return env


def _only_first(b: Builder, x: Value, first: Value) -> Value:
    """x in CTA 0, zeros in the others."""
    zero = tile.splat(b, build.const(b, 0, dtype_of(x.type)), shape=shape_of(x.type))
    return arith.select(b, tile.splat(b, first, shape=shape_of(x.type)), x, zero)


def _grown(b: Builder, step: Op, param: Value, init: Value, times: Value) -> Value:
    """What `param` is after so many steps."""
    (amount,) = (v for v in step.operands if v is not param)
    dtype = dtype_of(amount.type)
    if dtype != dtype_of(times.type):
        times = arith.cast(b, times, dtype=dtype)
    if isinstance(amount.type, Tile):
        times = tile.splat(b, times, shape=shape_of(amount.type))
    grown = arith.mul(b, amount, times)
    operands = (init, grown) if step.operands[0] is param else (grown, init)
    return step.kind(b, *operands, hint=init.hint)
