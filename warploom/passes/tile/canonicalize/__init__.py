"""Brings a function into the form that analyses expect: constants folded, nothing computed twice or in vain.

Order: first after the frontend, and again after recover_boxes, which leaves the pointer arithmetic behind
that it made superfluous.  Views of descriptors learn what is known to divide their base and strides, as those
that recover_boxes makes do.  Dots of too few rows are transposed (transpose_dots.py); tiles
that loops pass on and that differ by a number are passed on as that number (carried_tiles.py), those of equal
elements as one of them (uniform_tiles.py); a mask from outside selects after the loop (masked_state.py).
`number_ops` then gives the ids that a schedule names.
Changes: every kernel.

    before:  %n = const() {value=4, dtype=i32} : i32
             %a = mul(%n, %n) : i32
             %b = add(%a, %x) : i32
             %c = add(%x, %a) : i32
    after:   %a = const() {value=16, dtype=i32} : i32
             %b = add(%x, %a) : i32                      and %c's uses are %b's

Refuses nothing.
"""

from __future__ import annotations

from collections import Counter

from warploom.analysis.access import alignments
from warploom.analysis.facts import facts_of
from warploom.ir.analysis import backward_slice, sources
from warploom.ir.core import Builder, Func, Level, Op, Region, Value, walk
from warploom.ir.ops import arith, control, tile
from warploom.ir.rewrite import rewrite, substitute
from warploom.ir.types import Scalar
from warploom.passes.tile.canonicalize.carried_tiles import carry_numbers
from warploom.passes.tile.canonicalize.cleanup import (
    drop_dead,
    hoist_invariant,
    hoist_views,
    merge_equal,
    until_stable,
)
from warploom.passes.tile.canonicalize.masked_state import select_after_loops
from warploom.passes.tile.canonicalize.simplify import Simplifier
from warploom.passes.tile.canonicalize.transpose_dots import carry_transposed, transpose_dots
from warploom.passes.tile.canonicalize.uniform_tiles import carry_one_of_equal
from warploom.target import Target


def canonicalize(func: Func, target: Target, warps: int | None = None) -> Func:
    """The canonical form of `func`, at any level; ids stay.  Running it twice changes nothing more.  warps:
    as of `transpose_dots`."""
    steps = (
        _simplify,
        carry_transposed,
        carry_numbers,
        carry_one_of_equal,
        select_after_loops,
        merge_equal,
        hoist_invariant,
        hoist_views,
        drop_dead,
    )
    return describe_views(until_stable(transpose_dots(specialize(func), target, warps), steps))


def _simplify(func: Func) -> Func:
    return rewrite(func, Simplifier(func.level is Level.TILE))


def describe_views(func: Func) -> Func:
    """Views that say nothing of their divisors (descriptors, block pointers) say what is known, or promised
    of what is read from memory."""
    facts = facts_of(func)
    loaded = {v for o in walk(func.body) if o.loads for v in o.results}
    reach = sources(func.body)

    def rule(o: Op, b: Builder) -> tuple[Value, ...] | None:
        if o.kind is not tile.make_view or o.attrs.get("divisible"):
            return None
        base, *sizes = o.operands
        strides = sizes[len(sizes) // 2 :]
        known = found = alignments(facts, base, strides)
        if promised := o.attrs.get("promised"):
            known = tuple(
                n if loaded.isdisjoint(backward_slice([v], reach)) else max(n, promise)
                for n, promise, v in zip(known, promised, (base, *strides), strict=True)
            )
        # what is relied on is remembered: who makes a descriptor promises more than multiples
        attrs = {k: v for k, v in o.attrs.items() if k != "promised" or known != found}
        b.append(o.with_(attrs={**attrs, "divisible": known}))
        return o.results

    return rewrite(func, rule)


def specialize(func: Func) -> Func:
    """Parameters whose value the launch fixed (`Fact.value`) become constants in the body."""
    b = Builder(loc=func.loc)
    env: dict[Value, Value] = {}
    for param, fact in zip(func.params, func.facts, strict=True):
        if fact.value is not None and isinstance(param.type, Scalar):
            env[param] = arith.const(b, value=fact.value, dtype=param.type.dtype, hint=param.hint)
    body = substitute(func.body, env)
    if body is func.body:
        return func
    return func.with_(body=Region(body.params, (*b.ops, *body.ops)))


def number_ops(func: Func) -> Func:
    """Gives every op but the yields an id: the path of what encloses it, and a counter of its kind.

    `loop0/dot1` is the second dot directly in the first loop; `loop0.1` the second loop inside that loop;
    `loop0.if0.then/load0` stands in an arm.  Ids depend on the canonical function alone.
    """
    return func.with_(body=_number(func.body, "", in_loop=False))


def _number(region: Region, path: str, in_loop: bool) -> Region:
    count: Counter[str] = Counter()
    ops = []
    for o in region.ops:
        if o.kind is control.yield_:
            ops.append(o)
            continue
        is_loop = o.kind in control.LOOPS
        name = "loop" if is_loop else o.kind.name
        n, count[name] = count[name], count[name] + 1
        if o.regions:
            name = str(n) if is_loop and in_loop else f"{name}{n}"
            op_id = f"{path}.{name}" if path else name
        else:
            op_id = f"{path}/{name}{n}" if path else f"{name}{n}"
        regions = tuple(
            _number(r, f"{op_id}{part}", is_loop)
            for r, part in zip(o.regions, _parts(o), strict=True)
        )
        ops.append(o.with_(id=op_id, regions=regions))
    return Region(region.params, tuple(ops))


def _parts(o: Op) -> tuple[str, ...]:
    """What distinguishes an op's regions in a path."""
    if o.kind is control.if_:
        return (".then", ".else")
    if o.kind is control.while_:
        return (".condition", "")
    return tuple(f".{i}" if i else "" for i in range(len(o.regions)))
