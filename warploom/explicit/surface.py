"""What scripts are written in, beside the methods of `wl.Script` and `wl.Class`: their namespaces.

Names and semantics are Tilus's; where an instruction has more to say, it takes more keywords.
Every function here runs while a script is translated and emits IR (ir/ops says what each op
stands for).  "The group" is the threads that run the statement together.
"""

from __future__ import annotations

import math
from typing import Any, NoReturn

from warploom.errors import CompileError, Note
from warploom.explicit.handles import (
    Barrier,
    BarrierList,
    Changed,
    Dim3,
    Evaluated,
    GlobalView,
)
from warploom.explicit.operands import (
    barrier_of,
    box_offsets,
    index_of,
    known_int,
    not_yet,
    one_thread,
    policy_of,
    program,
    shared_of,
    tensor_map,
    tile_value,
    whole_group,
)
from warploom.explicit.program import (
    SETTLED,
    UNCOMMITTED,
    Program,
    default_swizzle,
)
from warploom.frontend.coerce import (
    Operand,
    current,
    describe,
    is_literal,
    static_bool,
    static_int,
    static_ints,
)
from warploom.frontend.language import shape as shapes
from warploom.frontend.language.core import builtin
from warploom.frontend.language.memory import mask_for
from warploom.frontend.refuse import refuse
from warploom.ir.build import if_
from warploom.ir.core import Builder, Op, Value
from warploom.ir.ops import cluster, mbarrier, mma, smem, tma
from warploom.ir.types import (
    Barriers,
    InFlight,
    Shared,
    Tile,
    i1,
)

# ---- namespaces


class Mbarrier:
    """self.mbarrier: barriers in shared memory that count arrivals and bytes; a phase completes when all
    its arrivals and all expected bytes are in, then the next one begins."""

    producer_initial_phase = 1  # a wait for it passes at once on a fresh barrier
    consumer_initial_phase = 0

    @builtin
    def alloc(self, counts: Any = 1, count: Any = None) -> Any:
        """Barriers that expect so many arrivals a phase: one for each number in `counts`.  They are
        initialised before any group starts, wherever the call stands."""
        p, emitter = program(), current()
        many = static_ints(counts if count is None else count, "an arrival count")
        for n in many:
            if not 1 <= n < 1 << 20:
                refuse("arrival-count", f"a barrier for {n} arrivals", "give 1 to 2**20 - 1")
        name = p.target or "barrier"

        def made(n: int, count: int) -> Value:
            return p.declare(
                mbarrier.mbarrier_alloc,
                (),
                emitter.loc,
                name,
                name=p.unique(name),
                n=n,
                count=count,
            )

        if len(set(many)) == 1:
            return made(len(many), many[0])
        return BarrierList(tuple(made(1, n) for n in many))

    @builtin
    def wait(self, barrier: Any, phase: Operand, sem: str = "acquire", scope: str = "cta") -> None:
        """Until the phase of this parity is complete: passes where the barrier's running phase has the other.

        sem: 'relaxed' is enough where only TMA and wgmma follow (which is what rings of these want); what the
        group loads and stores itself needs 'acquire'.  scope: with 'cluster' also what threads of other
        CTAs wrote by ordinary stores before they arrived."""
        how = _sem(sem, "acquire")
        if _scope(scope) == "cluster":
            how["scope"] = "cluster"
        b = barrier_of(barrier)
        current().emit(mbarrier.mbarrier_wait, b.array, index_of(b.index), index_of(phase), **how)

    @builtin
    def arrive(
        self,
        barrier: Any,
        count: Any = 1,
        sem: str = "release",
        scope: str = "cta",
        by: str = "thread",
    ) -> None:
        """One arrival of every thread of the group (by='thread'), of every warp (by='warp': lane 0 after
        the warp's own __syncwarp), or one for the group (by='one': only where the group has
        synchronised before).  It releases, in the CTA or (at another CTA's barrier) in the cluster.

        count: as how many arrivals each of them counts.  All of them together count in one phase.
        sem: 'relaxed' is enough where only asynchronous reads (wgmma's, after their wait) come before;
        ordinary loads and stores of shared memory need 'release'."""
        _scope(scope)
        _arrive(barrier_of(barrier), by, sem, count)

    @builtin
    def arrive_and_expect_tx(
        self, barrier: Any, transaction_bytes: Any, sem: str = "release", scope: str = "cta"
    ) -> None:
        """Expects so many bytes more in this phase, then arrives once.  The copies that bring the bytes
        do not raise the expectation: they count it down.  sem: as arrive's."""
        _scope(scope)
        _expect(barrier_of(barrier), transaction_bytes, sem)

    @builtin
    def arrive_remote(
        self,
        barrier: Any,
        target_rank: Operand,
        sem: str = "release",
        scope: str = "cluster",
        by: str = "thread",
        count: Any = 1,
    ) -> None:
        """An arrival at the same barrier in the CTA of that rank of the cluster; sem, count as arrive's."""
        _scope(scope)
        _arrive(_at(barrier_of(barrier), rank_of(target_rank)), by, sem, count)

    @builtin
    def arrive_multicast(
        self,
        barrier: Any,
        mask: Operand,
        sem: str = "release",
        scope: str = "cluster",
        by: str = "thread",
        count: Any = 1,
    ) -> None:
        """An arrival at the same barrier in each CTA of the mask (bit r: rank r), as arrive_remote."""
        _scope(scope)
        _arrive(barrier_of(barrier), by, sem, count, _mask(mask))

    @builtin
    def arrive_and_expect_tx_remote(
        self,
        barrier: Any,
        transaction_bytes: Any,
        target_rank: Operand,
        sem: str = "release",
        scope: str = "cluster",
    ) -> None:
        """As arrive_and_expect_tx, at the same barrier in the CTA of that rank."""
        _scope(scope)
        _expect(_at(barrier_of(barrier), rank_of(target_rank)), transaction_bytes, sem)

    @builtin
    def arrive_and_expect_tx_multicast(
        self,
        barrier: Any,
        transaction_bytes: Any,
        multicast_mask: Operand,
        sem: str = "release",
        scope: str = "cluster",
    ) -> None:
        """As arrive_and_expect_tx, at the same barrier in each CTA of the mask."""
        _scope(scope)
        b = barrier_of(barrier)
        _each_cta(multicast_mask, lambda rank: _expect(_at(b, rank), transaction_bytes, sem))


def _arrive(b: Barrier, by: str, sem: str, count: Any, *mask: Value) -> None:
    how, n = _sem(sem, "release"), static_int(count, "an arrival count")
    if not 1 <= n < 1 << 20:
        refuse("arrival-count", f"an arrival that counts {n} times", "give 1 to 2**20 - 1")
    if n > 1:
        how["count"] = n
    current().emit(mbarrier.mbarrier_arrive, b.array, index_of(b.index), *mask, by=by, **how)


def _sem(sem: Any, usual: str) -> dict[str, Any]:
    """The attribute for an ordering that is not the usual one."""
    if sem not in (usual, "relaxed"):
        refuse("sem", f"sem={sem!r}", f"use {usual!r} or 'relaxed'")
    return {"sem": "relaxed"} if sem == "relaxed" else {}


def _expect(b: Barrier, transaction_bytes: Any, sem: str) -> None:
    here = program().here
    if here.kind != "one":
        refuse(
            "expect-tx-threads",
            f"{here} would each expect the bytes and arrive",
            "put it under `with self.single_thread():`",
        )
    n = static_int(transaction_bytes, "the number of bytes")
    how = _sem(sem, "release")
    current().emit(mbarrier.mbarrier_expect, b.array, index_of(b.index), bytes=n, **how)


class Tma:
    """self.tma: copies of boxes by the TMA unit.  One elected thread of the group issues each."""

    @builtin
    def global_to_shared(
        self,
        src: GlobalView,
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
            at, how = [*at, _mask(multicast_mask)], {"multicast": True, **how}
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
        m = tensor_map(dst, s, dims, promote)
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


class Wgmma:
    """self.wgmma: the tensor core's asynchronous products, issued by one warp group."""

    @builtin
    def fence(self) -> None:
        """Orders earlier register accesses before the following mma."""
        _warp_group("wgmma.fence")
        current().emit(mma.wgmma_fence)

    @builtin
    def mma(
        self, a: Any, b: Any, d: Any, use_acc: Operand = True, enable_input_d: Operand = None
    ) -> Changed:
        """Issues d ← a·b + d; where use_acc (enable_input_d) is false d ← a·b.  a: (m, k) in shared memory or
        registers; b: (k, n) in shared memory; d: (m, n) in registers, float32 (int32 for products of 8-bit
        integers), not to be touched before the wait_group that covers it.  An a in registers that a loop
        makes is waited for in the same iteration.  float32 operands count as tf32: their lowest 13 bits are
        ignored."""
        _warp_group("wgmma.mma")
        p, emitter = program(), current()
        right = shared_of(b)
        left = shared_of(a) if isinstance(a, Value) and isinstance(a.type, Shared) else None
        if left is None:
            left = tile_value(a, "wgmma's a")
        if not isinstance(d, Value) or not isinstance(d.type, Tile | InFlight):
            refuse(
                "wgmma-acc",
                f"wgmma accumulates in registers, found {describe(d)}",
                "pass a register_tensor",
            )
        acc = d
        if isinstance(d.type, Tile):
            acc = emitter.emit(mma.in_flight, d, hint=d.hint)
            _before_fence(emitter.builder.ops, d)
        use = use_acc if enable_input_d is None else enable_input_d
        flag = emitter.truth(use) if not is_literal(use) else emitter.const(bool(use), i1)
        for s, k_axis in ((left, 1), (right, 0)):
            if (
                isinstance(s.type, Shared)
                and mma.only_k_major(s.type.dtype)
                and s.type.inner != k_axis
            ):
                _k_major(s, k_axis)
            if isinstance(s.type, Shared) and s.type.swizzle == 0:
                _no_swizzle(p, s)
        out = emitter.emit(mma.wgmma, left, right, acc, flag, hint=d.hint)
        p.state.flight[out] = UNCOMMITTED
        return Changed(((d, out),))

    @builtin
    def commit_group(self) -> None:
        """Closes the group of products issued so far."""
        _warp_group("wgmma.commit_group")
        flight = program().state.flight
        for v, age in flight.items():
            if age != SETTLED:
                flight[v] = age + 1
        current().emit(mma.wgmma_commit)

    @builtin
    def wait_group(self, n: Any = 0) -> Any:
        """Until at most n of the latest groups are going on.  The accumulators of the others are register
        tensors again."""
        _warp_group("wgmma.wait_group")
        return Wait(static_int(n, "n"))


def _no_swizzle(p: Program, s: Value) -> NoReturn:
    """wgmma on shared memory that lies unswizzled: as a line asked, or as its rows are too short."""
    site = p.site(s)
    choice = p.choices.get(site) if site is not None else None
    if choice is not None and "swizzle" in choice.why:
        raise CompileError(
            "layout-conflict",
            f"wgmma reads swizzled shared memory, {s.type} is not",
            current().loc,
            (Note("its swizzle is fixed here", choice.why["swizzle"][1]),),
            "leave the swizzle out, or annotate 32, 64 or 128 bytes",
        )
    t = s.type
    assert isinstance(t, Shared)
    if site is not None and t.shape == t.box and (choice is None or "inner" not in choice.why):
        other = 1 - t.inner
        if default_swizzle(t.box[other] * t.dtype.bytes):
            because = f"wgmma reads swizzled rows, those along axis {t.inner} are too short"
            p.choose_inner(s, other, because, current().loc)
    refuse(
        "wgmma-swizzle",
        f"wgmma reads swizzled shared memory, {s.type} has rows of too few bytes",
        "make its inner axis a multiple of 32 bytes",
    )


class Wait:
    """A wait_group, which the translator finishes: it knows the variables."""

    def __init__(self, pending: int) -> None:
        self.pending = pending


class Fence:
    """self.fence: order between ordinary accesses and those of TMA and wgmma (the async proxy)."""

    @builtin
    def proxy_async(self, space: str = "shared") -> None:
        """This thread's ordinary accesses to shared memory so far come before later accesses of the async
        proxy that a barrier orders after it.  space: 'global' does the same for global memory, which TMA is
        to read after ordinary stores."""
        if space not in ("shared", "global"):
            refuse("fence-space", f"a fence of {space!r} memory", "use 'shared' or 'global'")
        how = {"space": "global"} if space == "global" else {}
        current().emit(smem.fence_async, **how)

    @builtin
    def proxy_async_release(self) -> None:
        """As proxy_async of shared memory."""
        current().emit(smem.fence_async)

    @builtin
    def mbarrier_init(self) -> None:
        """Nothing: barriers are made visible before any group starts."""


class NamedBarrier:
    """self.named_barrier: the 16 hardware barriers of a CTA, by number."""

    @builtin
    def sync(self, id: Any, threads: Any, index: Operand = None, n: Any = None) -> None:
        """Arrives at barrier `id` (1 to 15) and waits until `threads` have arrived.  index: a run-time number
        below n that is added to id."""
        _named(id, threads, index, n, False)

    @builtin
    def arrive(self, id: Any, threads: Any, index: Operand = None, n: Any = None) -> None:
        """Arrives without waiting."""
        _named(id, threads, index, n, True)


def _none(x: Any, name: str, why: str) -> None:
    if x is not None:
        refuse(
            "not-with-this-source", f"{name} does not go with this source: {why}", "leave it out"
        )


class CpAsync:
    """self.cp_async: copies by all threads of the group together, a few bytes each."""

    @builtin
    def load(
        self,
        src: Any,
        dst: Any,
        offsets: Any = None,
        bytes: Any = 16,
        mask: Operand = None,
        cache_policy: Any = None,
    ) -> None:
        """Fills dst in pieces of 4, 8 or 16 bytes: from a view the box of dst's shape at offsets, zeros
        out of bounds; from a tile of pointers what they point at, zeros where the mask is false.  Of these
        each piece, along dst's adjacent axis, is adjacent in memory, aligned, and masked alike.
        cache_policy: none, so far: the assembler (NVRTC 13.5) makes an illegal instruction of it."""
        whole_group("cp_async.load")
        if cache_policy is not None:
            refuse(
                "cache-policy",
                "cp.async with a cache policy, of which NVRTC 13.5's assembler makes an illegal instruction",
                "leave it out, or copy by self.tma.global_to_shared",
            )
        d, size = shared_of(dst), static_int(bytes, "bytes")
        if isinstance(src, GlobalView):
            _none(mask, "mask", "a view's box ends at its bounds")
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
        current().emit(smem.cp_async, src, d, *rest, bytes=size)

    @builtin
    def arrive(self, barrier: Any) -> None:
        """Every thread arrives once its copies so far are done."""
        whole_group("cp_async.arrive")
        b = barrier_of(barrier)
        current().emit(mbarrier.cp_async_arrive, b.array, index_of(b.index))


def _later(what: str, names: str) -> type:
    """A namespace whose instructions parse, and stop with an error that names their line."""

    def made(name: str) -> Any:
        def fn(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
            not_yet(f"{what}.{name}", _REASONS[what])

        fn.__name__, fn.__doc__ = name, f"{what}.{name} of Tilus; not supported yet."
        return builtin(fn)

    return type(what, (), {name: made(name) for name in names.split()})


_REASONS = {
    "tcgen05": "tensor cores that no target of this version has (use self.wgmma)",
    "clc": "cluster launch control, which no target of this version has",
}
Tcgen05 = _later(
    "tcgen05",
    "alloc dealloc slice view load wait_load store wait_store copy mma commit relinquish_alloc_permit",
)
Clc = _later("clc", "try_cancel query_response")


class Cluster:
    """self.cluster: the CTAs that self.attrs.cluster_blocks puts together."""

    blockRank = Evaluated(lambda: _own(cluster.cta_rank), "This CTA's rank in the cluster.")
    blockIdx = Dim3(
        lambda axis: _own(cluster.cta_id, axis=axis), "This CTA's index in the cluster."
    )
    clusterIdx = Dim3(shapes.program_id, "This cluster's index in the grid of clusters.")
    gridDim = Dim3(shapes.num_programs, "Clusters along an axis.")

    @builtin
    def sync(self) -> None:
        """The barrier of all threads of the cluster that have not ended: every group of each CTA comes to it.
        Ordinary accesses before it come before those after it."""
        whole_group("cluster.sync")
        current().emit(cluster.cluster_arrive)
        current().emit(cluster.cluster_wait)

    @builtin
    def arrive(self, sem: str = "release") -> None:
        """Arrives at the cluster's barrier without waiting.  'relaxed' orders the initialisation of
        mbarriers, but no ordinary accesses."""
        whole_group("cluster.arrive")
        if sem not in ("release", "relaxed"):
            refuse("sem", f"an arrival with sem={sem!r}", "use 'release' or 'relaxed'")
        relaxed = {"sem": sem} if sem == "relaxed" else {}
        current().emit(cluster.cluster_arrive, **relaxed)

    @builtin
    def wait(self) -> None:
        """Waits for the cluster's barrier, at which the group has arrived."""
        whole_group("cluster.wait")
        current().emit(cluster.cluster_wait)

    @builtin
    def map_shared_addr(self, x: Any, target_rank: Operand) -> Any:
        """The same shared tensor (or part of one), or the same barriers, in the CTA of that rank.

        load_shared and store_shared access it, arrivals reach its barriers; TMA, wgmma and waits do not."""
        rank = rank_of(target_rank)
        if isinstance(x, Barrier):
            return _at(x, rank)
        if isinstance(x, Value) and isinstance(x.type, Shared | Barriers):
            out = current().emit(cluster.peer, x, rank, hint=x.hint)
            return program().derived(x, out)
        refuse(
            "not-shared",
            f"expected a shared tensor or barriers, found {describe(x)}",
            "pass a shared_tensor or what mbarrier.alloc gave",
        )


def _own(kind: Any, **attrs: Any) -> Any:
    program().is_cluster_fixed = True
    return current().emit(kind, **attrs)


def block_index(axis: int) -> Any:
    """self.blockIdx: this CTA's index in the grid."""
    first = _in_ctas(shapes.program_id(axis), axis)
    if program().cluster[axis] == 1:
        return first
    return current().binary("+", first, _own(cluster.cta_id, axis=axis))


def grid_size(axis: int) -> Any:
    """self.gridDim: CTAs along an axis."""
    return _in_ctas(shapes.num_programs(axis), axis)


def _in_ctas(programs: Any, axis: int) -> Any:
    p = program()
    p.is_cluster_fixed = True
    n = p.cluster[axis]
    return programs if n == 1 else current().binary("*", programs, n)


def rank_of(x: Operand) -> Value:
    """A CTA's rank as an i32.  Refuses a constant outside the cluster."""
    ctas = math.prod(program().cluster)
    if not isinstance(x, Value) and not 0 <= static_int(x, "a rank") < ctas:
        refuse(
            "cluster-rank",
            f"CTA {known_int(x)} of a cluster of {ctas}",
            "set self.attrs.cluster_blocks, and count CTAs from 0",
        )
    program().is_cluster_fixed = True
    return index_of(x)


def _mask(x: Operand) -> Value:
    """A mask of CTAs as an i32.  Refuses a constant with bits outside the cluster."""
    ctas = math.prod(program().cluster)
    if not isinstance(x, Value) and not 0 < static_int(x, "a mask") < 1 << ctas:
        refuse(
            "multicast-mask",
            f"the mask {known_int(x):#b} in a cluster of {ctas} CTAs",
            "set self.attrs.cluster_blocks; bit r of the mask stands for the CTA of rank r",
        )
    program().is_cluster_fixed = True
    return index_of(x)


def _at(b: Barrier, rank: Value) -> Barrier:
    return Barrier(current().emit(cluster.peer, b.array, rank, hint=b.array.hint), b.index)


def _each_cta(mask: Operand, emit: Any) -> None:
    """Emits once for each CTA of a mask."""
    emitter = current()
    bits = _mask(mask)
    for rank in range(math.prod(program().cluster)):
        if not isinstance(mask, Value):
            if static_int(mask, "a mask") >> rank & 1:
                emit(rank_of(rank))
            continue

        def arm(b: Builder, rank: int = rank) -> None:
            with emitter.inside(b):
                emit(rank_of(rank))

        there = emitter.binary("&", emitter.binary(">>", bits, rank), 1)
        emitter.builder.loc = emitter.loc
        if_(emitter.builder, emitter.truth(there), arm)


def _before_fence(ops: list[Op], d: Value) -> None:
    """Moves the in_flight just appended before the last fence where `d` was there already: it is no
    instruction, so the fence covers the accumulator."""
    for i in range(len(ops) - 2, -1, -1):
        if d in ops[i].results:
            return
        if ops[i].kind is mma.wgmma_fence:
            ops.insert(i, ops.pop())
            return


def _k_major(s: Value, k_axis: int) -> None:
    """Operands that are not of 16 bits lie along K (PTX ISA, wgmma.mma_async): the shared tensor does, where
    it may."""
    p, t = program(), s.type
    assert isinstance(t, Shared)
    site = p.site(s)
    if site is not None and t.shape == t.box:
        p.choose_inner(s, k_axis, f"products of {t.dtype} read along K", current().loc)


def _scope(scope: str) -> str:
    if scope not in mbarrier.SCOPES:
        refuse("scope", f"scope={scope!r}", "use 'cta' or 'cluster'")
    return scope


def _warp_group(what: str) -> None:
    here = whole_group(what)
    machine = program().machine
    n, threads = machine.warp_group, machine.group_threads
    if here.warps != n or here.first % n:
        refuse(
            "wgmma-group",
            f"{what} is run by one warp group of {threads} threads, here run {here}",
            f"put it under `with self.warp_group(warp_begin, {n}):`, warp_begin a multiple of {n}; several "
            f"groups that run the same code are `with self.thread_group(begin, {threads}, replicas=n):`",
        )


def _named(id: Any, threads: Any, index: Operand, n: Any, arrive: bool) -> None:
    whole_group("a named barrier")
    attrs: dict[str, Any] = {"id": static_int(id, "the barrier's number"), "arrive": arrive}
    attrs["threads"] = static_int(threads, "the number of threads")
    operands = []
    if index is not None:
        operands = [index_of(index)]
        attrs["n"] = static_int(n, "n, the bound of index")
    current().emit(smem.named_barrier, *operands, **attrs)
