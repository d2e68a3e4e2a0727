"""Says what atomics order, where the lanes of a warp meet around them, and who gets what they found.

Order: at WARP, after broadcast_scalars, which leaves such a result to one thread or to one warp.
Changes: 7 families: split-K and stream-K, whose locks and tickets are atomics; sums of gradients, whose old
values nobody reads.

Who reads no result can't tell whose value was met, so nothing is acquired (PTX ISA, "Release and Acquire
Patterns").  One number's atomic is done by one thread: what the other lanes did before is released, and what
they do afterwards is ordered, where a barrier stands between (PTX ISA, "Causality order").

    before:  %n = atomic(%p, %one) {fn="add", sem="acq_rel"}      by a lone warp that reads %n
             %m = atomic(%q, %one) {fn="add", sem="acq_rel"}      nobody reads %m
    after:   group_sync() {scope="replica"}
             %n = atomic(%p, %one) {fn="add", sem="acq_rel"}
             group_sync() {scope="replica"}
             %m = atomic(%q, %one) {fn="add", sem="release"}

One thread does the atomic of each element of a tile; that its result is read means that all threads that hold
the element get it.

    before:  %n = atomic(%p, %x) {fn="add"}                       of tiles; somebody reads %n
    after:   %m = atomic(%p, %x) {fn="add"}
             %n = agree(%m)

Refuses (CompileError) what no instruction does on its dtype (`atomic-dtype`), and one number's whose result a
task of several warps reads (`atomic-result`), where none has made them agree (a script's).
"""

from __future__ import annotations

from warploom.analysis.access import is_on_numbers
from warploom.errors import CompileError
from warploom.ir.analysis import first_meeting
from warploom.ir.core import Builder, Func, Op, Region, Value
from warploom.ir.ops import control, smem, task, tile
from warploom.ir.rewrite import rewrite_regions, with_ops, with_regions
from warploom.ir.types import Tile, dtype_of

_WITHOUT_ACQUIRE = {"acquire": "relaxed", "acq_rel": "release"}

ATOMICS = frozenset((tile.atomic, smem.shared_atomic))
_WHOLE = frozenset(("i32", "u32", "i64", "u64"))
_NARROW = frozenset(("i16", "u16"))
_DTYPES = {
    "add": _WHOLE | {"f32", "f64", "f16", "bf16"},
    **dict.fromkeys(("max", "min"), _WHOLE | {"f32", "f64"}),
    **dict.fromkeys(("and", "or", "xor"), _WHOLE),
    "xchg": _WHOLE | {"f32", "f64"},
    "cas": _WHOLE | _NARROW,
    "load": _WHOLE | _NARROW | {"f32", "f64"},
}


def order_atomics(func: Func) -> Func:
    """See the module's docstring."""
    read = {v for o in func.body.all_ops if o.kind is not control.assume for v in o.operands}
    return rewrite_regions(func, lambda r, warps: _region(r, read, warps), "warps")


def _region(region: Region, read: set[Value], warps: int) -> Region:
    """warps: that run it; 0: one elected thread."""
    b = Builder()
    for i, o in enumerate(region.ops):
        inner = 0 if o.kind is task.elect else warps
        o = with_regions(o, lambda r, n=inner: _region(r, read, n))  # type: ignore[misc]
        if o.kind not in ATOMICS:
            b.append(o)
            continue
        is_read, is_tile = o.result in read, isinstance(o.result.type, Tile)
        _check(o, is_read and not is_tile and warps > 1)
        if is_read and is_tile:
            found = Value(o.result.type, o.result.hint)
            b.append(o.with_(results=(found,)))
            b.append(Op(tile.agree, (found,), results=(o.result,), loc=o.loc, tasks=o.tasks))
            continue
        sem = o.attrs.get("sem", "relaxed")
        if not is_read and sem in _WITHOUT_ACQUIRE:
            o = o.with_(attrs={**o.attrs, "sem": _WITHOUT_ACQUIRE[sem]})
        meets = is_read and sem != "relaxed" and is_on_numbers(o) and warps > 0
        with b.at(o):
            if meets and not first_meeting(reversed(b.ops)):
                smem.group_sync(b, scope="replica")
            b.append(o)
            if meets and not first_meeting(region.ops[i + 1 :]):
                smem.group_sync(b, scope="replica")
    return with_ops(region, b.ops)


def _check(o: Op, is_of_several_warps: bool) -> None:
    dtype = dtype_of(o.result.type)
    if dtype.name not in _DTYPES[o.attrs["fn"]]:
        raise CompileError(
            "atomic-dtype",
            f"there is no atomic {o.attrs['fn']} on {dtype}",
            o.loc,
            help="use i32, i64, u32, u64, f32 or f64 (f16 and bf16: add only)",
        )
    if is_of_several_warps:
        raise CompileError(
            "atomic-result",
            "the result of an atomic on one address can be used by a single warp only",
            o.loc,
            help="compile with num_warps=1, or do the atomic on a tile",
        )
