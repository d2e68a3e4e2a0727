"""Chooses how the CTAs of a cluster divide a program: before all else, since the schedule is one CTA's.

Asked for by num_ctas, every CTA takes a part of the dots' results, along M or N.  The operand that is not cut
is needed by all of them; which loads are multicast is chosen with the rings (memory.py).  Where the grid is
short, or by split_k, they take a part of K: which iterations each does of the loop that adds up the results.
So do CTAs that are no cluster, of programs of a last wave that does not fill the chip.
"""

from __future__ import annotations

from math import prod

from warploom.analysis.access import Accesses
from warploom.analysis.data_split import RefusalError, Split
from warploom.analysis.matrix_units import preferred
from warploom.analysis.memory_order import announcing
from warploom.analysis.scalars import Numbers
from warploom.analysis.shared_loops import NoReductionError, reduction_of
from warploom.analysis.structure import Structure, structure_of
from warploom.errors import CompileError, Loc
from warploom.ir.analysis import backward_slice, definitions, effects, sources
from warploom.ir.core import Func, Op, Value
from warploom.ir.ops import cluster, control, tile
from warploom.ir.types import shape_of
from warploom.schedule.model import LAST_WAVE, SPLITS, ClusterPlan, Knobs, Parts
from warploom.schedule.rings import slot_bytes
from warploom.target import Target

ROWS = 8  # after which a swizzle's pattern repeats (PTX ISA, "Swizzling modes")
PANEL_BYTES = 128  # of the widest swizzle


def choose_cluster(func: Func, knobs: Knobs, target: Target, parts: Parts = 1) -> ClusterPlan:
    """How many CTAs run a program of a canonical TILE function, and which axis of its dots they divide.
    parts: of K, where the grid is short, or its last wave.

    Raises CompileError where num_ctas or split_k can't be met."""
    if knobs.split_k is not None:
        return _parts_of_k(func, knobs, target)
    if parts != 1:  # a variant for what launches seldom have may keep another order
        try:
            reduction_of(Accesses(func, target))
        except NoReductionError:
            return ClusterPlan()
        if parts == LAST_WAVE:
            return ClusterPlan(LAST_WAVE, because="the programs of the last wave are few")
        return ClusterPlan("K", parts, "the grid has fewer programs than the chip multiprocessors")
    return _parts_of_results(func, knobs, target)


def _parts_of_k(func: Func, knobs: Knobs, target: Target) -> ClusterPlan:
    """What split_k asks for."""
    n = knobs.split_k

    def refused(why: str, loc: Loc | None = func.loc) -> CompileError:
        return CompileError("split-k", f"split_k={n!r}: {why}", loc, help="leave split_k out")

    if n not in (1, *SPLITS, LAST_WAVE):
        raise refused("the CTAs that share a loop are 1, 2, 4 or 8")
    if n == 1:
        return _parts_of_results(func, knobs, target)
    if knobs.num_ctas > 1:
        raise refused(f"num_ctas={knobs.num_ctas} divides the program already")
    if n != LAST_WAVE and n > target.sync.cluster_ctas:
        most = target.sync.cluster_ctas
        raise refused(f"a cluster of {target.name} has {most} CTA{'s' * (most > 1)} at most")
    try:
        reduction_of(Accesses(func, target))
    except NoReductionError as e:
        raise refused(str(e), e.loc) from None
    asked = f"split_k={n!r}"
    return ClusterPlan(LAST_WAVE, because=asked) if n == LAST_WAVE else ClusterPlan("K", n, asked)


def _parts_of_results(func: Func, knobs: Knobs, target: Target) -> ClusterPlan:
    """What num_ctas asks for."""
    n = knobs.num_ctas
    if n == 1:
        return ClusterPlan()
    if not 1 <= n <= cluster.MAX_CTAS:
        raise _refused(
            n, f"a cluster has 1 to {cluster.MAX_CTAS} CTAs", func.loc, "use num_ctas=2 or 4"
        )
    if n > target.sync.cluster_ctas:
        most = target.sync.cluster_ctas
        raise _refused(
            n, f"a cluster of {target.name} has {most} CTAs at most", func.loc, "use num_ctas=1"
        )
    structure = structure_of(func)
    dots = [o for o in structure.ops if o.kind is tile.dot]
    if not dots:
        why = "the kernel has no dot, whose result they could divide"
        raise _refused(n, why, func.loc, "use num_ctas=1")
    accesses = Accesses(func, target)
    aliased = accesses.aliased
    if aliased:
        at = next(o for o in structure.ops if o in aliased)
        why = "the kernel loads memory that it also writes, and CTAs keep no order"
        raise _refused(n, why, at.loc, "use num_ctas=1")
    numbers = Numbers(structure, accesses)
    number = next((o for o in structure.ops if numbers.gives(o)), None)
    if number is not None:
        why = "what it reads from memory there has to be the same number for all CTAs"
        raise _refused(n, why, number.loc, "use num_ctas=1: numbers cross tasks, not yet CTAs")
    telling = announcing(accesses)
    if telling:
        at = next(o for o in structure.ops if o in telling)
        why = "it tells others that stores are done, and one CTA does not know of another's"
        raise _refused(n, why, at.loc, "use num_ctas=1")
    _, rows, columns, _ = tile.dot_sizes(dots[0])
    tried: list[tuple[str, Op]] = []
    for axis in "MN" if rows >= columns else "NM":
        try:
            split = Split(structure, lambda o: True, frozenset(), axis, n)
        except RefusalError as e:
            tried.append((f"along {axis}: {e}", e.op))
            continue
        bad = next((o for o in dots if not _fits(o, split, n, target)), None)
        if bad is None:
            larger = "the larger axis" if axis == "MN"[columns > rows] else "the other one can't be"
            return ClusterPlan(axis, n, larger)
        which = preferred(bad, target).instruction
        tried.append((f"along {axis}: {which} can't take the parts of {_words(bad)}", bad))
    m = max(preferred(o, target).m for o in dots)
    raise _refused(
        n,
        "the dots' results can't be divided: " + "; ".join(text for text, _ in tried),
        tried[0][1].loc,
        f"BLOCK_M is the cluster's: make it a multiple of {m * n}, or use num_ctas=1",
    )


def _refused(n: int, why: str, loc: Loc | None, help: str) -> CompileError:
    return CompileError("num-ctas", f"num_ctas={n}: {why}", loc, help=help)


def _words(dot: Op) -> str:
    return f"a dot of {'×'.join(map(str, shape_of(dot.result.type)))}"


def _fits(dot: Op, split: Split, n: int, target: Target) -> bool:
    """Can the matrix unit take a CTA's part of a dot?"""
    (*batch, m, columns), unit = shape_of(dot.result.type), preferred(dot, target)
    cut = split.forward.get(dot.result)
    if cut == len(batch):
        return m // n % unit.m == 0
    return cut == 0 or columns // n % unit.n_step == 0


def sum_bytes(func: Func) -> int:
    """Shared memory in which the parts of sums meet that the other CTAs of a cluster send."""
    sums = func.body.by_kind.get(cluster.cluster_sum, ())
    others = prod(cluster.cluster_of(func)) - 1
    return sum(others * slot_bytes(o.result) for o in sums)


# ---- what all CTAs need


def is_common(func: Func, structure: Structure, load: Op) -> bool:
    """Is a load the same in all CTAs of the cluster, and done equally often?  So it is where neither its box
    nor the control flow around it depends on the CTA, or on a number from memory."""
    roots: list[Value] = list(load.operands)
    for outer in structure.enclosing(load):
        if outer.kind is control.for_:
            roots += outer.operands[:3]
        elif outer.kind is control.while_:
            roots += outer.regions[0].yielded[:1]
        else:
            roots += outer.operands
    made = definitions(func.body)
    makers = (made.get(v) for v in backward_slice(roots, sources(func.body)))
    own = (o for o in makers if o is not None and not o.regions)
    return not any(o.kind is cluster.cta_rank or effects(o) for o in own)


def part_axis(shape: tuple[int, ...], inner: int, size: int, ctas: int) -> int | None:
    """The axis of an item that the CTAs divide when each loads a part for all: rows, or else whole panels.
    None where there are no such parts.  size: bytes of an element."""
    for axis in sorted(range(len(shape)), key=lambda a: a == inner):
        unit = PANEL_BYTES // size if axis == inner else ROWS
        outermost = all(shape[a] == 1 for a in range(axis) if a != inner)
        if (outermost or axis == inner) and shape[axis] % (ctas * unit) == 0:
            return axis
    return None
