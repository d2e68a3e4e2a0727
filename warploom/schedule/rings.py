"""What channels carry and how: which loads share a ring, how each item is filled and laid out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from warploom.analysis.access import Accesses
from warploom.analysis.contiguity import groups
from warploom.analysis.structure import Structure
from warploom.ir.core import Effect, Op, Region, Value
from warploom.ir.ops import control, mma, task, tile
from warploom.ir.types import dtype_of, pointee_of, shape_of
from warploom.layout.shared import swizzle_for

_VIEWS = frozenset({tile.transpose, task.slice_block, tile.concat})


def is_view(o: Op) -> bool:
    """Does o read an item in place?  A transpose keeps the order of a slot's rows: those of one batch are
    together."""
    if o.kind is tile.transpose and len(o.attrs["perm"]) > 2:
        return bool(o.attrs["perm"][0] == 0)
    if o.kind is tile.slice_tile:  # one of equal parts of a matrix, with whole patterns of 8 rows
        at = zip(o.attrs["offset"], o.attrs["shape"], shape_of(o.operands[0].type), strict=True)
        parts = [first % n == size % n == 0 and (n == size or n % 8 == 0) for first, n, size in at]
        return len(parts) == 2 and all(parts)
    return o.kind in _VIEWS


def real_users(structure: Structure, v: Value) -> Iterable[tuple[Op, Value]]:
    """(op, operand) of the ops that read the item v, looking through ops that only view it."""
    for o in structure.users.get(v, ()):
        if is_view(o) and v in o.operands:
            yield from real_users(structure, o.result)
        else:
            yield o, v


def viewed(structure: Structure, v: Value) -> Value:
    """The value, perhaps an item, of which v is a view."""
    o = structure.maker(v)
    return viewed(structure, o.operands[0]) if o is not None and is_view(o) else v


def _where_it_is(o: Op) -> Op:
    return o


def span(
    structure: Structure,
    v: Value,
    block: Region,
    mine: Callable[[Op], bool],
    stands: Callable[[Op], Op] = _where_it_is,
) -> tuple[int, int] | None:
    """Indices in `block` of the first and the last op that reads item v (or contains such an op).  stands: in
    whose place an op is going to be."""
    at = {o: i for i, o in enumerate(block.ops)}
    found = []
    for user, _ in real_users(structure, v):
        outer = structure.within(stands(user), block)
        if outer is not None and (mine(user) or user is block.ops[-1]):
            found.append(at[outer])
    return (min(found), max(found)) if found else None


def group(
    structure: Structure,
    loads: Sequence[Op],
    mine: Callable[[Op], bool],
    stands: Callable[[Op], Op] = _where_it_is,
    lone: bool = False,
) -> list[tuple[Op, ...]]:
    """Loads that share a channel: in one block, read first by the same op, and all before that op.  Vectors
    need not be read by the same op: nothing may stand between their first readers that takes time.
    lone: one warp runs all: matrices need not either, as each wait is one more in its only course."""
    groups: dict[tuple[Region, int], list[Op]] = {}
    waiting: dict[tuple[Region, int], int] = {}  # of a group of vectors, when it is first read
    for o in loads:
        block = structure.block[o]
        uses = span(structure, o.result, block, mine, stands)
        if uses is None:
            continue
        key = block, uses[0]
        if lone or is_vector(o):
            near = (k for k, n in waiting.items() if _together(structure, o, k, n, uses[0], lone))
            key = next(near, key)
            waiting[key] = min(waiting.get(key, uses[0]), uses[0])
        groups.setdefault(key, []).append(o)
    return [tuple(g) for g in groups.values()]


def is_vector(o: Op) -> bool:
    """Does load o bring one row of numbers?  No dot reads it as it is."""
    return len(shape_of(o.result.type)) == 1


def _together(
    structure: Structure, o: Op, key: tuple[Region, int], first: int, use: int, lone: bool
) -> bool:
    """May load o, first read at `use`, wait with the group `key`, which is first read at `first`?"""
    block, _ = key
    if structure.block[o] is not block or block.ops.index(o) >= min(first, use):
        return False
    if lone:
        return True
    between = block.ops[min(first, use) : max(first, use)]
    return not any(
        x.regions or x.kind is tile.dot or x.kind.effect is not Effect.NONE for x in between
    )


Group = tuple[Op, ...]


@dataclass(frozen=True)
class Sharing:
    """Which groups may share a ring.  depth: what the source asks for; mine: does the consumer run an op?
    widely: also those that bring blocks of different arrays, or stand in no loop.  They wait for each other
    where rings of their own would not, so that is for when memory is short."""

    accesses: Accesses
    vias: Mapping[Op, str]
    depth: Callable[[Op], int | None]
    mine: Callable[[Op], bool]
    widely: bool = False

    def find(self, groups: Sequence[Group]) -> tuple[list[Group], dict[Group, list[Group]]]:
        """As loops one after the other bring the same blocks (the two walks of causal attention): the first
        group of each kind, and for it those that follow."""
        first: list[Group] = []
        again: dict[Group, list[Group]] = {}
        for g in groups:
            like = (f for f in first if self.follows((f, *again.get(f, ()))[-1], g))
            f = next(like, None)
            if f is None:
                first.append(g)
            else:
                again.setdefault(f, []).append(g)
        return first, again

    def follows(self, f: Group, g: Group) -> bool:
        """Does group g bring, after all that f brings, items that are laid out alike?  By TMA, and unless
        rings are shared widely, from the same arrays."""
        if len(f) != len(g) or not self.behind(f, g):
            return False
        return all(
            self.vias[x] == self.vias[y] == "tma"
            and (self.widely or x.operands[0] is y.operands[0])
            and x.result.type == y.result.type
            and self.depth(x) == self.depth(y)
            and slot_layout(self.accesses, x) == slot_layout(self.accesses, y)
            for x, y in zip(f, g, strict=True)
        )

    def behind(self, f: Group, g: Group) -> bool:
        """Do f and g stand in two loops of one block?  Or in one block, and is f read before g is loaded?"""
        structure = self.accesses.structure
        loops = [structure.parent[x[0]] for x in (f, g)]
        if (
            all(p is not None and p.kind is control.for_ for p in loops)
            and loops[0] is not loops[1]
        ):
            one, other = (structure.block[p] for p in loops if p is not None)
            return one is other
        block = structure.block[f[0]]
        if not self.widely or block is not structure.block[g[0]] or loops[0] is not None:
            return False
        ends = [s[1] for x in f if (s := span(structure, x.result, block, self.mine)) is not None]
        return max(ends) < min(block.ops.index(x) for x in g)


Parts = Callable[[Op], tuple[int, int]]  # into how many parts M and N of a dot are going to be cut


def _uncut(dot: Op) -> tuple[int, int]:
    return 1, 1


def wanted_inner(structure: Structure, v: Value, parts: Parts = _uncut) -> int | None:
    """The axis that must be adjacent in shared memory for the dots which read item v in place; None
    where either will do.

    Operands of wgmma that are not of 16 bits are K-major, and MN-major ones need whole panels along M or N
    (PTX ISA, wgmma, "Shared memory matrix layout").
    """
    axes: set[int] = set()
    for user, operand in real_users(structure, v):
        read = user.kind is tile.dot and operand in user.operands[:2]
        if not read or user.attrs.get("ieee"):  # fma reads either
            continue
        k_axis = 1 if operand is user.operands[0] else 0
        shape = shape_of(operand.type)
        if len(shape) != 2:
            continue
        size = dtype_of(operand.type).bytes
        extent = shape[1 - k_axis] // parts(user)[1 - k_axis]
        if mma.only_k_major(dtype_of(operand.type)) or extent * size % 32:
            axes.add(traced(structure, operand, v, k_axis))
    return min(axes, default=None)


def traced(structure: Structure, at: Value, v: Value, axis: int) -> int:
    """The axis of item v that is `axis` of its view `at`."""
    for o in _views(structure, v, at) or ():
        if o.kind is tile.transpose:
            axis = o.attrs["perm"][axis]
    return axis


def _views(structure: Structure, v: Value, at: Value) -> list[Op] | None:
    """The ops that make `at` a view of item v, the last first; None where it is none."""
    if at is v:
        return []
    o = structure.maker(at)
    for x in o.operands if o is not None and is_view(o) else ():
        found = _views(structure, v, x)
        if o is not None and found is not None:
            return [o, *found]
    return None


def joined(structure: Structure, v: Value) -> tuple[Op, int, int] | None:
    """(concat through which item v is read, which of its parts v is, axis of v along which they lie); None
    where v is read alone."""
    for o in structure.users.get(v, ()):
        if o.kind is tile.concat:
            return o, o.operands.index(v), o.attrs["axis"]
        if o.kind is tile.transpose:
            found = joined(structure, o.result)
            if found is not None:
                concat, part, axis = found
                return concat, part, o.attrs["perm"][axis]
    return None


def slot_layout(accesses: Accesses, o: Op) -> tuple[int, int]:
    """(inner axis, swizzle) of the slots that load o fills."""
    return item_layout(accesses.structure, o.result, memory_inner(accesses, o))


def memory_inner(accesses: Accesses, o: Op) -> int | None:
    """The axis along which what load o reads is adjacent in memory; None where that is not known."""
    if o.kind is tile.load_box:
        return accesses.inner_axis(accesses.view(o), len(shape_of(o.result.type)))
    return pointer_pieces(accesses, o.operands[0], o.operands[1:], o.attrs.get("run", ()))[0]


def item_layout(structure: Structure, v: Value, memory_inner: int | None) -> tuple[int, int]:
    """(inner axis, swizzle) of an item's slots in shared memory."""
    shape = shape_of(v.type)
    wanted = wanted_inner(structure, v)
    inner = wanted if wanted is not None else memory_inner
    inner = len(shape) - 1 if inner is None or _batch_inner(shape, inner) else inner
    if len(shape) == 1:  # of what wgmma does not read; TMA swizzles rows of at most 128 bytes
        return inner, 0
    if len(shape) > 2 and math.prod(shape[1:]) // shape[inner] % 8:
        return inner, 0  # the pattern of 8 rows would begin elsewhere in each matrix of a batch
    parts = []
    for user, operand in real_users(structure, v):
        if user.kind is tile.dot and operand in user.operands[:2] and inner == wanted:
            parts.append(promotion_step(user))
        for o in _views(structure, v, operand) or ():
            if o.kind in (task.slice_block, tile.slice_tile):
                parts.append(shape_of(o.result.type)[_untranspose(structure, o, v, inner)])
    size = dtype_of(v.type).bytes
    rows = math.prod(shape) // shape[inner]
    return inner, swizzle_for(shape[inner] * size, rows, *(n * size for n in parts))


def promotion_step(dot: Op) -> int:
    """How much of K a dot leaves to the tensor core before it promotes the sum: whole instructions, of 32
    bytes of K (PTX ISA, "wgmma.mma_async"), and all of K where it need not promote."""
    k = shape_of(dot.operands[0].type)[1]
    limit: int = dot.attrs.get("max_imprecise") or k
    unit = 32 // dtype_of(dot.operands[0].type).bytes
    return max((s for s in range(unit, k + 1, unit) if k % s == 0 and s <= limit), default=k)


def _untranspose(structure: Structure, o: Op, v: Value, inner: int) -> int:
    """The axis of o's result that is axis `inner` of item v."""
    rank = len(shape_of(v.type))
    return next(i for i in range(rank) if traced(structure, o.result, v, i) == inner)


def _batch_inner(shape: tuple[int, ...], inner: int | None) -> bool:
    """Would the first of three axes be the adjacent one?  In a slot each batch is a matrix."""
    return len(shape) > 2 and inner == 0


def misplaced(accesses: Accesses, o: Op, parts: Parts = _uncut) -> str | None:
    """Why the dots that read load o can't read it as it lies in memory; None where they can."""
    inner = memory_inner(accesses, o)
    if _batch_inner(shape_of(o.result.type), inner):
        return "elements of its batches are adjacent in memory"
    wanted = wanted_inner(accesses.structure, o.result, parts)
    if wanted is None or wanted == inner:
        return None
    return f"wgmma reads it with axis {wanted} adjacent, in memory it is not"


def choose_via(
    accesses: Accesses, o: Op, parts: Parts = _uncut, forwarded: bool = False
) -> tuple[str, str]:
    """How load `o` fills its item ('tma', 'cp_async', 'registers') and the fact behind it.  forwarded:
    transpose warps are going to lay it out as its readers need it."""
    if o.kind is not tile.load_box:
        return _by_pointers(accesses, o, parts, forwarded)
    shape = shape_of(o.result.type)
    view = accesses.view(o)
    inner = accesses.inner_axis(view, len(shape))
    wrong = None if forwarded else misplaced(accesses, o, parts)
    if wrong is not None:
        return "registers", wrong
    why = accesses.why_not_tma(o, shape)
    if why is None:
        fact = "base and outer strides are multiples of 16 bytes, the inner stride is 1"
        box = accesses.tma_box(o, shape)
        cut = [n // m for i, (n, m) in enumerate(zip(shape, box, strict=True)) if i != inner]
        if max(cut, default=1) > 1:
            fact += f"; {max(cut)} instructions, of {'x'.join(map(str, box))} each, side by side"
        return "tma", fact
    pieces = accesses.piece_bytes(o, shape)
    if pieces:
        return "cp_async", f"{why}; runs of {pieces} bytes are aligned"
    return "registers", f"{why}; runs of 4 bytes are not known to be aligned"


def _by_pointers(accesses: Accesses, o: Op, parts: Parts, forwarded: bool) -> tuple[str, str]:
    """`choose_via` for a load by pointers."""
    no_box = "it is no box of a strided array"
    if len(o.operands) > 2:
        return "registers", f"{no_box}, and masked-off elements are not zero"
    _, pieces = pointer_pieces(accesses, o.operands[0], o.operands[1:], o.attrs.get("run", ()))
    if not pieces:
        return "registers", f"{no_box}; runs of 4 bytes are not known to be adjacent and aligned"
    wrong = None if forwarded else misplaced(accesses, o, parts)
    if wrong is not None:
        return "registers", wrong
    return "cp_async", f"{no_box}, but each row's; runs of {pieces} bytes are aligned"


def pointer_pieces(
    accesses: Accesses, pointers: Value, masks: Sequence[Value], given: tuple[int, ...]
) -> tuple[int | None, int]:
    """Of a tile of pointers (and its mask, if any) the axis along which elements are adjacent, None where
    there is none, and the bytes of the aligned runs that an engine can copy, or 0."""
    found = given or groups(accesses.facts, pointers, masks)
    if not found:
        return None, 0
    pieces = found[1] * pointee_of(pointers.type).bytes
    return found[0], pieces if pieces in accesses.target.pieces else 0


def slot_bytes(v: Value) -> int:
    """Shared memory of one slot of item v: swizzled slots start at multiples of 1024 bytes."""
    n = math.prod(shape_of(v.type), start=dtype_of(v.type).bytes)
    return -(-n // 1024) * 1024
