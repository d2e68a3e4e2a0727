"""What instructions of a script take, each checked: who runs them, shared tensors, barriers, views."""

from __future__ import annotations

import math
from typing import Any, NoReturn, TypeGuard, cast

from warploom.errors import CompileError, Note
from warploom.explicit.handles import Barrier, GlobalView, NarrowView, OwnMap
from warploom.explicit.program import Program, ScriptEmitter, Threads
from warploom.frontend.coerce import (
    Const,
    Operand,
    current,
    describe,
    static_int,
    static_ints,
)
from warploom.frontend.language import shape as shapes
from warploom.frontend.language.core import builtin
from warploom.frontend.refuse import one_of, refuse, still_in_flight
from warploom.ir.build import elect
from warploom.ir.core import Builder, Value
from warploom.ir.ops import smem, tma
from warploom.ir.types import Barriers, InFlight, Shared, TensorMap, Tile, i32


def program() -> Program:
    """The script being translated; outside of one the error `script-only`."""
    emitter = current()
    if not isinstance(emitter, ScriptEmitter):
        refuse(
            "script-only", "an instruction of wl.Script outside of a script", "write a wl.Script"
        )
    return emitter.program


def index_of(x: Operand) -> Value:
    """A slot, phase or offset as the i32 that the hardware takes."""
    return current().cast(x, i32)


def one_thread(emit: Any) -> None:
    """Emits ops that one thread runs: here where one thread runs already, else in an elect of their own."""
    emitter, here = current(), program().here
    if here.kind == "one":
        emit()
        return

    def body(b: Builder) -> None:
        with emitter.inside(b):
            emit()

    emitter.builder.loc = emitter.loc
    elect(emitter.builder, body)


def whole_group(what: str) -> Threads:
    """The group, which has to run `what` with all its threads; in single_thread() the error `one-thread`."""
    here = program().here
    if here.kind == "one":
        refuse(
            "one-thread",
            f"{what} is run by all threads of a group, not by one",
            "move it out of single_thread()",
        )
    if program().is_lone and what != "store_global":
        refuse(
            "one-thread",
            f"{what} under a condition that holds for one thread",
            "move it out of the if: one thread only stores single elements there",
        )
    return here


def need_tma(view: GlobalView) -> None:
    """Refuses (`tma-view`) a view that TMA can't move boxes of: its base and outer strides are to be whole 16
    bytes (PTX ISA, tensor copies; CUDA driver API, cuTensorMapEncodeTiled)."""
    if view.fits_tma:
        refuse(
            "tma-view",
            view.fits_tma,
            "TMA needs bases and strides of whole 16 bytes, one axis of stride 1",
        )


def is_register(x: object) -> TypeGuard[Value]:
    """A register tensor, or an accumulator in flight."""
    return isinstance(x, Value) and isinstance(x.type, Tile | InFlight)


def tile_value(x: Operand, what: str) -> Value:
    """A register tensor's value; refuses accumulators in flight (`in-flight`) and what is no tile."""
    if isinstance(x, Value) and isinstance(x.type, InFlight):
        still_in_flight(f"{what} reads")
    return shapes.tile_of(x, what)


def not_yet(what: str, needs: str) -> NoReturn:
    """Refuses (`not-yet`) what Tilus has and this language has not, and says what it would need."""
    refuse("not-yet", f"{what} is not supported yet", f"it needs {needs}")


def policy_of(cache_policy: Any) -> dict[str, Any]:
    """The attributes of an access with such a hint."""
    return {} if cache_policy is None else {"cache_policy": cache_policy}


def ordering(sem: Any, usual: str) -> dict[str, Any]:
    """The attribute for an ordering that is not the usual one."""
    one_of("sem", "sem", sem, usual, "relaxed")
    return {"sem": "relaxed"} if sem == "relaxed" else {}


def known_int(x: Any) -> Any:
    """The number behind a compile-time value; anything else as it is."""
    return x.value if isinstance(x, Const) else x


# ---- operands


def shared_of(x: Any) -> Value:
    """One slot of shared memory.  An array that is used whole is one of tiles of all its axes.  Refuses
    (`not-shared`, `slot-index`) anything else, and slots without their index."""
    if not isinstance(x, Value) or not isinstance(x.type, Shared):
        refuse(
            "not-shared", f"expected a shared tensor, found {describe(x)}", "pass a shared_tensor"
        )
    freed, made = program().state.freed, program().site(x)
    if made in freed:
        raise CompileError(
            "freed-shared",
            f"{describe(x)} was freed, its bytes may be another tensor's",
            current().loc,
            (Note("it is freed here", freed[made]),),
            "free it after its last use",
        )
    if x.type.lead:
        p = program()
        site = p.site(x)
        if site is not None and x in _allocated(p):
            p.choose(site, "lead", 0, "it is used without a slot index", current().loc)
        refuse(
            "slot-index",
            f"{describe(x)} is an array of slots",
            "index every leading axis, as in s[slot]",
        )
    return x


def _allocated(p: Program) -> set[Value]:
    return {d.value for d in p.state.declarations}


def barrier_of(x: Any) -> Barrier:
    """One mbarrier.  Refuses several of them (`barrier-index`) and anything else (`not-a-barrier`)."""
    match x:
        case Barrier():
            return x
        case Value(type=Barriers(n=1)):
            return Barrier(x, 0)
        case Value(type=Barriers(n=n)):
            refuse(
                "barrier-index",
                f"{n} barriers where one is expected",
                "index them, as in full[slot]",
            )
    refuse("not-a-barrier", f"expected an mbarrier, found {describe(x)}", "use self.mbarrier.alloc")


def view_of(x: Any) -> GlobalView:
    """A global view; refuses (`not-a-view`) anything else."""
    if not isinstance(x, GlobalView):
        refuse("not-a-view", f"expected a global view, found {describe(x)}", "use self.global_view")
    if isinstance(x, NarrowView):
        refuse(
            "narrow-view",
            f"a view of {x.dtype}, of which self.load_global reads numbers, and nothing else",
            "copy and store its bytes, by a view of uint8",
        )
    return x


def axes_of(dims: Any, rank: int, thick: int) -> tuple[int, ...] | None:
    """The axes of a view of `rank` axes that are those of a box of `thick`: the last ones, or dims; None
    where these are not so many, in order."""
    axes = tuple(range(rank - thick, rank)) if dims is None else static_ints(dims, "dims")
    inside = len(axes) == thick <= rank and list(axes) == sorted(set(axes) & set(range(rank)))
    return axes if inside else None


def own_map_of(x: Any) -> Value:
    """A tensor map that the kernel writes; refuses (`not-a-map`) anything else."""
    if not isinstance(x, OwnMap):
        refuse("not-a-map", f"expected a tensor map, found {describe(x)}", "use self.tma.map_alloc")
    return x.value


def box_offsets(offsets: Any, view: GlobalView | OwnMap) -> list[Value]:
    """Where a box begins, in elements, as i32: one offset for each axis of the view (else `offset-count`)."""
    at = offsets if isinstance(offsets, tuple) else (offsets,)
    is_own = isinstance(view, OwnMap)
    rank = own_map_of(view).typed(TensorMap).rank if is_own else len(view_of(view).shape)
    if len(at) != rank:
        refuse(
            "offset-count",
            f"{len(at)} offsets for a view of {rank} axes",
            "give one offset for each axis of the view",
        )
    return [index_of(x) for x in at]


def lie_along(s: Value, inner: int, because: str) -> None:
    """A copy of rows of a view that is dense along `inner`: the shared tensor lies so, too."""
    p, t = program(), s.typed(Shared)
    if inner == t.inner:
        return
    if p.site(s) is None:
        refuse(
            "layout-conflict",
            f"the view is dense along axis {inner}, {t} is not",
            "transpose one",
        )
    p.choose_inner(s, inner, because, current().loc)


def tensor_map(view: GlobalView | OwnMap, s: Value, dims: Any, promote: Any) -> Value:
    """The tensor map that moves boxes of a slot's shape between a view and shared memory.

    dims: which axes of the view, in order, are the slot's (None: the last).  promote: bytes that the L2
    fetches together.  Refuses what TMA can't do (`tma-view`, `view-rank`, `tma-dims`, `layout-conflict`)."""
    if isinstance(view, OwnMap):
        lie_along(s, view.value.typed(TensorMap).inner, "the tensor map moves rows that lie so")
        return view.value
    p, emitter = program(), current()
    need_tma(view_of(view))
    t = s.typed(Shared)
    assert view.unit is not None
    rank = len(view.shape)
    if len(t.shape) > rank:
        refuse(
            "view-rank",
            f"{t} has more axes than the view ({rank})",
            "make the view of as many axes",
        )
    axes = axes_of(dims, rank, len(t.shape))
    if axes is None:
        given = static_ints(dims, "dims")
        why = f"dims {given} of a view of {rank} axes for {t}"
        refuse("tma-dims", why, "name the axes in order")
    if view.unit not in axes:
        refuse(
            "tma-dims",
            f"the view is dense along axis {view.unit}, which dims leave out",
            "include it",
        )
    inner = axes.index(view.unit)
    lie_along(s, inner, "TMA moves rows of the view as they lie")
    thin = tuple(a for a in range(rank) if a not in axes)
    fetched = static_int(promote, "promote")
    key = (view.view, t.shape, inner, t.swizzle, thin, fetched)
    if key not in p.state.maps:
        hint = f"{view.view.hint or 'view'}_map"
        attrs: dict[str, Any] = {"box": t.shape, "inner": inner, "swizzle": t.swizzle}
        if thin != tuple(range(len(thin))):
            attrs["thin"] = thin
        if fetched != 256:
            attrs["promote"] = fetched
        p.state.maps[key] = p.declare(tma.tensor_map, (view.view,), emitter.loc, hint, **attrs)
    m = p.state.maps[key]
    assert isinstance(m.type, TensorMap)
    return m


# ---- parts of shared tensors: methods of theirs


def part_of(x: Any, offsets: Any, shape: Any, dims: Any) -> Value:
    """The part of a shared tensor at offsets, one an axis; `dims` are the axes of the part, of `shape`, in
    the others it is one element thick.  Refuses (`slice`) offsets that are no multiples of its sizes."""
    if not isinstance(x, Value) or not isinstance(x.type, Shared):
        return shared_of(x)
    whole = (*x.type.lead, *x.type.shape)
    at, sizes = tuple(offsets), static_ints(shape, "the shape")
    axes = axes_of(dims, len(whole), len(sizes))
    if len(at) != len(whole) or axes is None:
        refuse(
            "slice", f"{len(at)} offsets and {len(sizes)} sizes of {x.type}", "one offset an axis"
        )
    n, thick = len(x.type.lead), dict(zip(axes, sizes, strict=True))
    if any(a < n for a in axes):
        refuse("slice", f"a part of several slots of {x.type}", "store each slot by itself")
    box, index = [thick.get(a, 1) for a in range(len(whole))], []
    for a in range(len(whole)):
        if box[a] == whole[a]:
            index.append(Const(0, i32))
        elif box[a] == 1:
            index.append(at[a])
        else:
            first = static_int(at[a], "an offset along an axis of the part")
            if first % box[a]:
                refuse(
                    "slice", f"a part of {box[a]} from {first}", "begin at multiples of its size"
                )
            index.append(Const(first // box[a], i32))
    emitter, out = current(), x
    if n:
        out = program().derived(x, emitter.emit(smem.shared_slot, x, *map(index_of, index[:n])))
    if tuple(box[n:]) == x.type.shape:
        return shared_of(out)
    return cast(Value, shared_block(out, tuple(box[n:]), tuple(index[n:])))


@builtin
def shared_transpose(x: Value, *perm: Any, dims: Any = None) -> Any:
    """s.transpose(): the same bytes with the axes in reverse order, or permuted, by dims or numbers."""
    s = shared_of(x)
    first = perm[0] if len(perm) == 1 else dims
    perm = first if isinstance(first, tuple) else perm
    order = static_ints(perm, "an axis") if perm else tuple(range(len(s.typed(Shared).shape)))[::-1]
    return program().derived(s, current().emit(smem.shared_transpose, s, perm=order), order)


@builtin
def shared_item(x: Value) -> Any:
    """s.item(): the number in a slot, or a part of one, of one element."""
    s = shared_of(x)
    if math.prod(s.typed(Shared).shape) != 1:
        refuse(
            "element", f"item() of {describe(x)}", "it is the only element of a tensor: index it"
        )
    return current().emit(smem.shared_get, s)


@builtin
def shared_block(x: Value, shape: Any, at: Any) -> Any:
    """s.block(shape, at): part number `at` (one index an axis) of a slot cut into parts of `shape`."""
    s = shared_of(x)
    sizes = static_ints(shape, "the shape")
    index = at if isinstance(at, tuple) else (at,)
    if len(index) != len(sizes):
        refuse("slice", f"{len(index)} indices for a part of {len(sizes)} axes", "give one an axis")
    out = current().emit(smem.shared_slice, s, *map(index_of, index), shape=sizes)
    return program().derived(s, out)
