"""Barriers and what goes with them: fences, registers that tasks trade, clusters, grids."""

from __future__ import annotations

import math

from warploom.codegen.context import Address, Emitter, Lowering, defined
from warploom.codegen.lower_shared import declared, plain
from warploom.errors import InternalError
from warploom.ir.core import Op, OpKind
from warploom.ir.ops import cluster, grid, mbarrier, regs, smem, tile
from warploom.ir.registers import action, counts_before
from warploom.ir.types import Barriers


def _fence_async(e: Emitter, o: Op) -> None:
    """Nothing where engines see memory as threads do."""
    if not e.target.sync.async_proxy:
        return
    if o.attrs.get("space") == "global":
        e.line("fence_async_global();")
        return
    e.line(f"fence_async{'_cluster' * (o.attrs.get('scope') == 'cluster')}();")


def _setmaxnreg(e: Emitter, o: Op) -> None:
    change = action(o, counts_before(e.func, e.target)[o])
    if not change:
        raise InternalError("codegen: a setmaxnreg that may be an increase or a decrease")
    e.line(f"registers_{change}<{o.attrs['registers']}>();")


def _named_barrier(e: Emitter, o: Op) -> None:
    what = "named_arrive" if o.attrs["arrive"] else "named_sync"
    which = " + ".join([str(o.attrs["id"]), *map(e.scalar, o.operands)])
    e.line(f"{what}({which}, {o.attrs['threads']});")


def barrier(e: Emitter, o: Op, at: int = 0) -> str:
    """Address of the mbarrier that operands at, at + 1 name."""
    bar, index = o.operands[at : at + 2]
    known = e.const(index)
    base, size = e.shared(bar), e.target.sync.barrier_bytes
    if known is not None:
        return str(base.plus(offset=known * size))
    return f"{base} + {size} * {e.scalar(index)}"


def _mbarrier_wait(e: Emitter, o: Op) -> None:
    bar, phase = barrier(e, o), e.scalar(o.operands[2])
    wide = o.attrs.get("scope", "cta") == "cluster"
    relaxed = o.attrs.get("sem", "acquire") == "relaxed"
    if wide or relaxed or not e.debug:
        e.line(f"mbarrier_wait{'_cluster' * wide}{'_relaxed' * relaxed}({bar}, {phase});")
        return
    name = e.definitions[o.operands[0]].attrs["name"]
    frame = e.frame.name if e.frame else "entry"
    index = e.scalar(o.operands[1])
    e.line(f'mbarrier_wait_bounded({bar}, {phase}, "{name}", {index}, "{frame}");')


def _mbarrier_arrive(e: Emitter, o: Op) -> None:
    by, count = o.attrs.get("by", "warp"), o.attrs.get("count", 1)
    if len(o.operands) > 2:
        _arrive_at_all(e, o, by, count)
        return
    arrive = f"{_arrival(_variant(o), barrier(e, o), count)};"
    if e.elected or by == "thread":
        e.line(arrive)
    elif by == "one":
        e.line(f"if ({e.use('leader')}) {arrive}")
    else:
        if o.attrs.get("synced", True):
            e.line("__syncwarp();")
        e.line(f"if ({e.use('lane')} == 0) {arrive}")


def _arrival(variant: str, at: str, count: int) -> str:
    """One instruction, that counts `count` times."""
    if count > 1:
        return f"mbarrier_arrive{variant}_many({at}, {count})"
    return f"mbarrier_arrive{variant}({at})"


def _arrive_at_all(e: Emitter, o: Op, by: str, count: int) -> None:
    """Arrivals at the CTAs of a mask: a lane for each where a warp arrives, else one after the other."""
    ctas = math.prod(cluster.cluster_of(e.func))
    known, mask = e.const(o.operands[2]), e.scalar(o.operands[2])
    is_relaxed = bool(o.attrs.get("sem", "release") == "relaxed")

    def arrive(rank: int | str) -> str:
        at = f"peer_address({barrier(e, o)}, {rank})"
        return f"{_arrival('_peer' + '_relaxed' * is_relaxed, at, count)};"

    if by == "warp" and not e.elected:
        if o.attrs.get("synced", True):
            e.line("__syncwarp();")
        lane = e.use("lane")
        everyone = known == (1 << ctas) - 1
        test = f"{lane} < {ctas}" if everyone else f"{mask} >> {lane} & 1"
        e.line(f"if ({test}) {arrive(lane)}")
        return
    guard = f"if ({e.use('leader')}) " if by == "one" and not e.elected else ""
    for rank in range(ctas):
        if known is None:
            e.line(f"if ({mask} >> {rank} & 1) {guard}{arrive(rank)}")
        elif known >> rank & 1:
            e.line(f"{guard}{arrive(rank)}")


def _mbarrier_expect(e: Emitter, o: Op) -> None:
    e.line(f"mbarrier_expect{_variant(o)}({barrier(e, o)}, {o.attrs['bytes']});")


def _variant(o: Op) -> str:
    """Which arrival: at a barrier here or of a peer, release or relaxed."""
    t = o.operands[0].typed(Barriers)
    is_relaxed = bool(o.attrs.get("sem", "release") == "relaxed")
    return "_peer" * t.peer + "_relaxed" * is_relaxed


def _peer(e: Emitter, o: Op) -> None:
    x, rank = o.operands
    name = e.name(f"{o.result.hint or x.hint or 'x'}_of_peer")
    e.line(f"const u32 {name} = peer_address({e.shared(x)}, {e.scalar(rank)});")
    e.env[o.result] = Address(name)


def _cluster_arrive(e: Emitter, o: Op) -> None:
    e.line("__syncwarp();")
    e.line(f"cluster_arrive{'_relaxed' * (o.attrs.get('sem', 'release') == 'relaxed')}();")


def _grid_release(e: Emitter, o: Op) -> None:
    last = e.constant("LAST_WAVE", o.attrs["last"])
    if o.attrs.get("by") != "warp":
        e.line(f"grid_release<{last}>();")
        return
    # The program is short: as little as may be.
    ids = e.func.body.by_kind.get(tile.program_id, ())
    axes = 1 + max((x.attrs["axis"] for x in ids), default=0)
    e.line(f"grid_release<{last}, {axes}>(threadIdx.x < {e.target.warp_size});")


def _cp_async_arrive(e: Emitter, o: Op) -> None:
    e.line(f"cp_async_arrive({barrier(e, o)});")


LOWER: dict[OpKind, Lowering] = {
    mbarrier.mbarrier_alloc: declared,
    smem.fence_async: _fence_async,
    smem.group_sync: Emitter.meet,
    smem.named_barrier: _named_barrier,
    regs.setmaxnreg: _setmaxnreg,
    mbarrier.mbarrier_wait: _mbarrier_wait,
    mbarrier.mbarrier_arrive: _mbarrier_arrive,
    mbarrier.mbarrier_expect: _mbarrier_expect,
    mbarrier.cp_async_arrive: _cp_async_arrive,
    cluster.cta_rank: defined(lambda e, o: "cta_rank()"),
    cluster.cta_id: defined(lambda e, o: f"cta_id_{'xyz'[o.attrs['axis']]}()"),
    cluster.peer: _peer,
    cluster.cluster_arrive: _cluster_arrive,
    cluster.cluster_wait: plain("cluster_wait();"),
    grid.grid_wait: plain("grid_wait();"),
    grid.grid_release: _grid_release,
}
