"""self.tma and self.cp_async: copies between global and shared memory."""

from __future__ import annotations

from typing import Any

from warploom.explicit.clusters import mask_of
from warploom.explicit.handles import GlobalView, OwnMap
from warploom.explicit.operands import (
    axes_of,
    barrier_of,
    box_offsets,
    index_of,
    known_int,
    lie_along,
    need_tma,
    not_yet,
    one_thread,
    own_map_of,
    policy_of,
    program,
    shared_of,
    tensor_map,
    view_of,
    whole_group,
)
from warploom.explicit.program import SharedChoice, shared_shape
from warploom.explicit.tensors import Tensors
from warploom.frontend.coerce import (
    Operand,
    current,
    describe,
    static_bool,
    static_dtype,
    static_int,
    static_ints,
)
from warploom.frontend.language import shape as shapes
from warploom.frontend.language.core import builtin
from warploom.frontend.language.memory import mask_for
from warploom.frontend.refuse import refuse
from warploom.ir.core import Value
from warploom.ir.ops import mbarrier, smem, tma
from warploom.ir.types import Shared, Tile


class Tma:
    """self.tma: copies of boxes by the TMA unit.  One elected thread of the group issues each."""

    @builtin
    def map_alloc(
        self,
        dtype: Any,
        shape: Any,
        inner: Any = None,
        swizzle: Any = None,
        rank: Any = None,
        dims: Any = None,
        promote: Any = 256,
    ) -> OwnMap:
        """Memory of the CTA's own for a tensor map that the kernel writes, of a view which the launch doesn't
        know; copies take it for their view.  shape: of the slots; inner: their axis that is adjacent in
        memory, by default the last; swizzle: as of shared tensors of this shape, by default.
        rank: axes of the views, by default as many; dims: which of these are the slots', by default the last.
        promote: bytes that the L2 fetches together along a row."""
        p, emitter = program(), current()
        box, d = shapes.positive_shape(shape, "shape"), static_dtype(dtype, "dtype")
        at = len(box) - 1 if inner is None else static_int(inner, "inner")
        lies = shared_shape(box, d, SharedChoice(0, at))[3]
        axes = len(box) if rank is None else static_int(rank, "rank")
        thick = axes_of(dims, axes, len(box))
        if thick is None:
            refuse(
                "tma-dims", f"{len(box)} of {axes} axes by dims {dims}", "name the axes in order"
            )
        attrs: dict[str, Any] = {
            "name": p.unique(p.target or "map"),
            "rank": axes,
            "dtype": d,
            "box": box,
            "inner": at,
            "swizzle": lies if swizzle is None else static_int(swizzle, "swizzle"),
        }
        thin = tuple(a for a in range(axes) if a not in thick)
        if thin != tuple(range(len(thin))):
            attrs["thin"] = thin
        if (fetched := static_int(promote, "promote")) != 256:
            attrs["promote"] = fetched
        return OwnMap(p.declare(tma.map_alloc, (), emitter.loc, p.target or "map", **attrs))

    @builtin
    def write_map(self, dst: OwnMap, view: GlobalView) -> None:
        """Makes dst the tensor map of a view, for copies that the elected thread asks for from now on.  Those
        by the map before are over.  Its base and strides are whole 16 bytes, strides are positive."""
        need_tma(view_of(view))
        m = own_map_of(dst)
        one_thread(lambda: current().emit(tma.map_write, m, view.view))

    @builtin
    def global_to_shared(
        self,
        src: GlobalView | OwnMap,
        dst: Any,
        offsets: Any,
        mbarrier: Any,
        dims: Any = None,
        cta_group: Any = 1,
        multicast_mask: Any = None,
        cache_policy: Any = None,
        promote: Any = 256,
    ) -> None:
        """A box of dst's shape at offsets (one for each axis of src; `dims` says which of them are dst's,
        by default the last).  Its bytes complete on the barrier; what is out of bounds reads as 0.

        multicast_mask: CTAs of the cluster (bit r: rank r) that all get the box, at the same place of their
        shared memory; its bytes complete on the same barrier of each.
        cache_policy: a hint which lines the L2 gives up first: 'evict_first' (what is read once),
        'evict_last' (what is read again), 'evict_normal' or 'evict_unchanged'.
        promote: bytes that the L2 fetches together along a row (64, 128 or 256), to be read soon."""
        if known_int(cta_group) != 1:
            not_yet("cta_group", "pairs of CTAs")
        d = shared_of(dst)
        m = tensor_map(src, d, dims, promote)
        b = barrier_of(mbarrier)
        emitter = current()
        at = box_offsets(offsets, src)
        index = index_of(b.index)
        how = policy_of(cache_policy)
        if multicast_mask is not None:
            at, how = [*at, mask_of(multicast_mask)], {"multicast": True, **how}
        one_thread(lambda: emitter.emit(tma.tma_load, m, d, b.array, index, *at, **how))

    @builtin
    def shared_to_global(
        self,
        src: Any,
        dst: GlobalView,
        offsets: Any,
        dims: Any = None,
        cache_policy: Any = None,
        promote: Any = 256,
        reduce: Any = None,
    ) -> None:
        """Writes a slot to the box at offsets; in the elected thread's current bulk group.

        reduce: combines each element with the one that is there, atomically: 'add' (16-bit floats, float32,
        int32, uint32, uint64), 'min' or 'max' (16-bit floats, 32- and 64-bit integers), 'and', 'or' or
        'xor' (those integers), 'inc' or 'dec' (uint32)."""
        s = shared_of(src)
        m = tensor_map(
            view_of(dst), s, dims, promote
        )  # no map of the kernel's: another thread stores
        emitter = current()
        at = box_offsets(offsets, dst)
        how = policy_of(cache_policy)
        if reduce is not None:
            how["reduce"] = reduce
        one_thread(lambda: emitter.emit(tma.tma_store, m, s, *at, **how))

    @builtin
    def commit_group(self) -> None:
        """Closes the elected thread's bulk group."""
        one_thread(lambda: current().emit(tma.tma_store_commit))

    @builtin
    def wait_group(self, n: Any = 0, read: Any = False) -> None:
        """Until at most n of the elected thread's latest bulk groups are going on: what the others wrote is
        in global memory, and this thread sees it there.  read=True: only until the others have read their
        shared memory, which is all that its reuse needs, and takes less time."""
        pending, only_read = static_int(n, "n"), static_bool(read, "read")
        one_thread(lambda: current().emit(tma.tma_store_wait, pending=pending, read=only_read))


def _none(x: Any, name: str, why: str) -> None:
    if x is not None:
        refuse(
            "not-with-this-source", f"{name} does not go with this source: {why}", "leave it out"
        )


def _along_rows(src: GlobalView, d: Value) -> None:
    """The slot lies as the rows of the view that a cp.async copies pieces of."""
    assert isinstance(d.type, Shared)
    extra = len(src.shape) - len(d.type.shape)
    if src.unit is None or src.unit < extra:
        refuse(
            "view-strides",
            f"cp.async of {d.type} from a view whose last {len(d.type.shape)} axes are not dense",
            "one of these axes has a stride of 1",
        )
    lie_along(d, src.unit - extra, "cp.async copies pieces of the view's rows")


class CopyAsync:
    """Copies by cp.async under Tilus's names."""

    @builtin
    def copy_async(
        self,
        src: Any,
        dst: Any,
        offsets: Any,
        dims: Any = None,
        evict: Any = None,
        check_bounds: Any = True,
    ) -> None:
        """self.cp_async.load of a view's box, in pieces as wide as is known to be aligned; dims: which axes
        of the view are dst's, by default the last.  evict and check_bounds are accepted; bounds are always
        checked."""
        if not isinstance(src, GlobalView):
            refuse(
                "not-a-view", f"expected a global view, found {describe(src)}", "use global_view"
            )
        at = offsets if isinstance(offsets, tuple) else (offsets,)
        if dims is not None:
            rank, given = len(src.shape), static_ints(dims, "dims")
            axes = axes_of(given, rank, len(shared_of(dst).typed(Shared).shape))
            if axes is None or len(at) != rank:
                refuse(
                    "dims",
                    f"dims {given} of a view of {rank} axes",
                    "name an axis for each of the shared tensor's, and an offset for each of the view's",
                )
            order = [a for a in range(rank) if a not in axes] + list(axes)
            shape, steps = (tuple(x[a] for a in order) for x in (src.shape, src.strides))
            if order != list(range(rank)):
                src = Tensors.global_view(self, src.pointer, src.dtype, shape, steps)  # type: ignore[arg-type]
                at = tuple(at[a] for a in order)
        CpAsync.load(self, src, dst, at)  # type: ignore[arg-type]

    @builtin
    def copy_async_commit_group(self) -> None:
        """self.cp_async.commit_group."""
        CpAsync.commit_group(self)  # type: ignore[arg-type]

    @builtin
    def copy_async_wait_group(self, n: Any) -> None:
        """self.cp_async.wait_group: until at most n of each thread's latest groups are going on."""
        CpAsync.wait_group(self, n)  # type: ignore[arg-type]

    @builtin
    def copy_async_wait_all(self) -> None:
        """self.cp_async.wait_all."""
        CpAsync.wait_all(self)  # type: ignore[arg-type]


class CpAsync:
    """self.cp_async: copies by all threads of the group together, a few bytes each."""

    @builtin
    def load(
        self,
        src: Any,
        dst: Any,
        offsets: Any = None,
        bytes: Any = None,
        mask: Operand = None,
        cache_policy: Any = None,
    ) -> None:
        """Fills dst in pieces of 4, 8 or 16 bytes: from a view the box of dst's shape at offsets, zeros
        out of bounds; from a tile of pointers what they point at, zeros where the mask is false.  Of these
        each piece, along dst's adjacent axis, is adjacent in memory, aligned, and masked alike.  bytes: of a
        piece, by default as many as rows and offsets are known to be aligned to (16 from pointers).
        cache_policy: none, so far: the assembler (NVRTC 13.5) makes an illegal instruction of it."""
        whole_group("cp_async.load")
        if cache_policy is not None:
            refuse(
                "cache-policy",
                "cp.async with a cache policy, of which NVRTC 13.5's assembler makes an illegal instruction",
                "leave it out, or copy by self.tma.global_to_shared",
            )
        d = shared_of(dst)
        if isinstance(src, GlobalView):
            _none(mask, "mask", "a view's box ends at its bounds")
            size = 0 if bytes is None else static_int(bytes, "bytes")
            _along_rows(view_of(src), d)
            current().emit(smem.cp_async, src.view, d, *box_offsets(offsets, src), bytes=size)
            return
        _none(offsets, "offsets", "pointers say where they point")
        if not isinstance(src, Value) or not isinstance(src.type, Tile):
            refuse(
                "not-a-view",
                f"expected a global view or a tile of pointers, found {describe(src)}",
                "use self.global_view, or ptr + offsets",
            )
        rest = [] if mask is None else [mask_for(mask, src.type.shape, "cp_async.load")]
        size = 16 if bytes is None else static_int(bytes, "bytes")
        current().emit(smem.cp_async, src, d, *rest, bytes=size)

    @builtin
    def commit_group(self) -> None:
        """Closes each thread's group of its copies so far."""
        whole_group("cp_async.commit_group")
        current().emit(smem.cp_async_commit)

    @builtin
    def wait_group(self, n: Any = 0) -> None:
        """Until at most n of each thread's latest groups are going on.  A thread then sees what its own
        copies wrote; what others copied it sees after a self.sync() after the wait."""
        whole_group("cp_async.wait_group")
        current().emit(smem.cp_async_wait, pending=static_int(n, "n"))

    @builtin
    def wait_all(self) -> None:
        """Closes each thread's group, and waits for all groups: commit_group(), then wait_group(0)."""
        CpAsync.commit_group(self)
        CpAsync.wait_group(self, 0)

    @builtin
    def arrive(self, barrier: Any) -> None:
        """Every thread arrives once its copies so far are done."""
        whole_group("cp_async.arrive")
        b = barrier_of(barrier)
        current().emit(mbarrier.cp_async_arrive, b.array, index_of(b.index))
