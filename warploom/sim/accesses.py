"""Accesses of agents to shared memory, their own CTA's or another one's, as the proof sees them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from warploom.errors import Note
from warploom.ir import engines
from warploom.ir.core import Effect, Func, Op, Value, walk
from warploom.ir.ops import smem, tile, tma
from warploom.ir.ops.cluster import peer
from warploom.ir.types import Shared, TensorMap, Tile, pointee_of
from warploom.sim.agent import Agent
from warploom.sim.cluster import PeerAccess
from warploom.sim.global_order import SEVERAL, WRITES, GlobalAccess, is_of_one_thread
from warploom.sim.memory import Buffer, ViewValue
from warploom.sim.order import Access, Array, described
from warploom.sim.report import MemoryFault, ProtocolError
from warploom.sim.shared import Place
from warploom.sim.state import Cta

_PARTS = smem.PARTS | {peer}


def read(
    a: Agent,
    cta: Cta,
    o: Op,
    s: Place,
    components: Array,
    epochs: Array,
    is_async: bool,
    mn_axis: int | None = None,
) -> None:
    """A read of a tile in a CTA, over for whoever knows `epochs` of `components`.  mn_axis: as wgmma reads
    it; raises LayoutError where it can't."""
    if not cta.is_tracked:
        return
    a.log(o, s.name)
    now = Access(a.party(o), s, components, epochs, False)
    kind = 0 if not is_async else 1 + (o.kind is tma.tma_store)
    at = cta.outline.regions(s, mn_axis)
    try:
        cta.footprints.read(now, at, _doer(a, kind), a.rows, is_async)
    except MemoryFault as e:
        raise _explained(e, a, cta, s) from None


def _explained(e: MemoryFault, a: Agent, cta: Cta, s: Place) -> MemoryFault:
    """With advice where nothing wrote the bytes."""
    e.help, waits = _why_unwritten(a)
    writers = (Note("these bytes are written here", w.loc) for w in _writers(cta.func, s))
    e.notes = (*e.notes, *waits, *writers)
    return e


def write(
    a: Agent,
    cta: Cta,
    o: Op,
    s: Place,
    components: Array,
    epochs: Array,
    is_async: bool,
    visible: Array | None = None,
) -> None:
    """A write of a tile in a CTA.  visible: see Access."""
    if cta.is_tracked:
        a.log(o, s.name)
        now = Access(a.party(o), s, components, epochs, not is_async, visible)
        cta.footprints.write(now, cta.outline.regions(s), _doer(a, is_async), a.rows, is_async)


def _doer(a: Agent, kind: int) -> int:
    """A number for who accesses, and how."""
    return 8 * int(a.index) + 4 * a.is_solo + kind


def read_map(a: Agent, o: Op, components: Array, epochs: Array) -> None:
    """A copy reads its descriptor, if the kernel writes that itself; over for whoever knows `epochs` of
    `components`.  Raises ProtocolError where another thread wrote it: that takes a fence of this one."""
    cta, m = a.cta, o.operands[0]
    name = cta.outline.own_maps.get(m)
    if name is None or not cta.is_tracked:
        return
    s = cta.outline.place(name)
    who = -1 - int(components[0])  # copies that complete elsewhere are not ordered with these
    now = Access(a.party(o), s, components, epochs, False)
    cta.footprints.read(now, cta.outline.regions(s), who, a.rows, True)
    if cta.map_writers[name] != a.index:
        raise a.error(
            "map-fence",
            f"{described(o, s)} by a descriptor that another thread wrote, without a fence of this one",
            o,
            "let the thread that asks for the copies write their descriptor (self.tma.write_map)",
        )


def write_map(a: Agent, o: Op) -> None:
    """The executing thread writes a descriptor; copies by the one before are over, or a Race is raised."""
    cta = a.cta
    name = cta.outline.own_maps[o.operands[0]]
    write(a, cta, o, cta.outline.place(name), *a.proof(), True)
    cta.map_writers[name] = a.index


def read_now(a: Agent, o: Op, s: Place) -> Cta:
    """An ordinary read by the executing warps; gives the CTA that the place is in."""
    cta = _cta_of(a, o, s)
    is_joint = (
        o.kind is smem.shared_get and not a.is_solo
    )  # no lane goes on before all have the number
    components, epochs = (a.access_order, a.epochs()) if is_joint else a.proof()
    read(a, cta, o, s, components, epochs, False)
    return cta


def write_now(a: Agent, o: Op, s: Place) -> Cta:
    """An ordinary write by the executing warps; gives the CTA that the place is in."""
    cta = _cta_of(a, o, s)
    write(a, cta, o, s, *a.proof(), False)
    return cta


def combine_now(a: Agent, o: Op, s: Place) -> Cta:
    """Atomics of the executing warps, on elements that nobody knows without data."""
    cta = _cta_of(a, o, s)
    if cta.is_tracked:
        a.log(o, s.name)
        now = Access(a.party(o), s, *a.proof(), True)
        try:
            cta.footprints.combine(now, cta.outline.regions(s), _doer(a, 0), a.rows)
        except MemoryFault as e:
            raise _explained(e, a, cta, s) from None
    return cta


def _cta_of(a: Agent, o: Op, s: Place) -> Cta:
    """The CTA that a place is in, after the check that it can be reached."""
    there = a.cta.program.ctas[s.rank]
    if there is not a.cta:
        reach(a, there, o, described(o, s), None)
        there.reached[a, o] = PeerAccess(a.party(o), described(o, s), (a.proof(),))
    return there


def reach(a: Agent, there: Cta, o: Op, what: str, made: Op | None) -> None:
    """An agent touches another CTA's shared memory: it must have begun, and not ended."""
    known = int(a.rows[:, there.numbers.begun.start].min())
    if not there.has_begun or (there.is_tracked and not known):
        raise ProtocolError(
            "cluster-start",
            f"{a.who}: {what} of CTA {there.rank}, which may not have begun: its barriers are "
            "initialised when it does",
            o.loc,
            () if made is None else (Note("initialised at the start of each CTA", made.loc),),
            help="self.cluster.sync() must stand between the start and the first access to a peer",
        )
    there.still_runs(PeerAccess(a.party(o), what))


def touch_global(a: Agent, o: Op, *values: Any) -> None:
    """An ordinary access to global memory, in the order of its program's threads."""
    cta = a.cta
    if not (cta.is_tracked and cta.has_data and o in cta.outline.contended):
        return
    rows, *proof = global_proof(a, o)
    is_sole = proof[0] is a.elected_order
    if o.kind in engines.COPIES_PIECES:
        proof = [a.copy_order[: len(rows)], np.full(len(rows), a.copies.issued + 1)]
    first = a.cta.target.warp_size * a.warps_of_cta[0]
    now, threads = GlobalAccess(a.party(o), first, *proof), cta.outline.threads.of(o)
    for buffer, at, places in _global_elements(a, o, values):
        who = np.full(at.size, SEVERAL)
        if is_sole:
            who[:] = first
        elif threads is not None:
            who = threads[places]
            who = np.where(who == SEVERAL, SEVERAL, first + who)
        cta.global_accesses.add(now, rows, buffer, at, who, o.kind in WRITES)


def touch_by_bulk(a: Agent, o: Op, view: ViewValue, at: Sequence[int], group: int) -> None:
    """A TMA store's access, which is over for whoever knows that its bulk group has written."""
    cta, kind = a.cta, o.operands[0].typed(TensorMap)
    if not (cta.is_tracked and cta.has_data and o in cta.outline.contended):
        return
    buffer, start = cta.memory.split(view.base, o.loc)
    places, _ = view.elements(at, kind.thick)
    now = GlobalAccess(a.party(o), 0, a.written_order, np.array([group]))
    who = np.full(places.size, SEVERAL)
    cta.global_accesses.add(now, a.rows, buffer, places - view.base + start, who, True)


def global_proof(a: Agent, o: Op) -> tuple[Array, Array, Array]:
    """The knowledge of who accesses global memory, and the components and epochs of that.  A number is stored
    by one thread, and loaded by all lanes of a warp at once."""
    if a.is_solo or is_of_one_thread(o):
        return a.of_elected(), *a.proof_of_elected()
    if o.kind is tile.load and not isinstance(o.result.type, Tile):
        return a.rows, a.access_order, a.epochs()
    return a.rows, *a.proof()


def _global_elements(
    a: Agent, o: Op, values: Sequence[Any]
) -> Iterable[tuple[Buffer, Array, Array]]:
    """The elements that an access takes of each array, and at which places of its tile."""
    memory, place = a.cta.memory, values[0]
    if not isinstance(place, ViewValue):
        mask = (*values[1 if o.kind is tile.load else 2 :], None)[0]
        return memory.elements(o.kind.name, place, mask, pointee_of(o.operands[0].type), o.loc)
    of = o.result.type if o.results else o.operands[1].type
    assert isinstance(of, Tile | Shared)
    shape = (*(1,) * (len(place.extents) - len(of.shape)), *of.shape)
    buffer, start = memory.split(place.base, o.loc)
    at, places = place.elements(a.numbers(values[-len(shape) :]), shape)
    return [(buffer, at - place.base + start, places)]


def need_written(a: Agent, o: Op, at: Array, s: Place) -> None:
    """Raises MemoryFault where nothing wrote these bytes."""
    if not a.cta.program.ctas[s.rank].shared.is_written(at):
        raise MemoryFault(
            "uninitialised", f"{a.who}: {described(o, s)} reads bytes that nothing wrote", o.loc
        )


def _why_unwritten(a: Agent) -> tuple[str, tuple[Note, ...]]:
    """Advice where it reads what nothing wrote: its last wait let it pass too early, or there is none."""
    if a.passed is None:
        return "wait for the mbarrier on which the bytes complete before reading them", ()
    b, phase, op = a.passed
    note = (Note(f"the last wait before it, for phase {phase} of {b.name}", op.loc),)
    if phase < 0:
        return (
            f"parity 1 passes at once on a fresh {b.name}: who reads begins with phase 0, "
            "who fills the slots with phase 1",
            note,
        )
    return (
        f"phase {phase} of {b.name} completed without them: the wait for their own phase is missing, "
        "arrive_and_expect_tx leaves their bytes out, or their copy names another barrier",
        note,
    )


def _writers(func: Func, s: Place) -> list[Op]:
    """The ops that write the allocation which a place belongs to."""
    family: set[Value] = set()
    found = []
    for o in walk(func.body):
        if o.kind is smem.shared_alloc and o.attrs["name"] == s.name.partition("[")[0]:
            family.add(o.result)
        elif o.kind in _PARTS:
            if o.operands[0] in family:
                family.add(o.result)
        elif (
            Effect.WRITE in o.kind.effect
            and o.kind is not tma.tma_store
            and any(v in family for v in o.operands)
        ):
            found.append(o)
    return found
