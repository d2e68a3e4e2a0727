"""Which order of its accesses to global memory a program keeps: what a load may pass, where threads meet.

A store that a load may read keeps its order with that load: a barrier stands between them, as another thread
may have done the store.  Copies that engines and threads begin early pass stores, so that only those run
ahead which no store in between may concern (`Accesses.aliased`).  But a loop in which nothing writes what a
load of it reads is one such stretch: within a run of it the load moves as it likes.

        store(%c, …)            of the tile before
        group_sync()            once, before the loop
        for %k … load(%a, …)    may be copied iterations ahead
        group_sync()
        store(%c, …)
"""

from __future__ import annotations

from functools import partial
from itertools import takewhile

from warploom.analysis.access import Accesses, is_on_numbers, only_reads, writes_memory
from warploom.ir.core import Op
from warploom.ir.ops import tile
from warploom.ir.types import Tile


def ordered(accesses: Accesses) -> set[Op]:
    """Before which ops the program's threads meet, so that its accesses to global memory stay in order:
    before what may load what others stored, or store what others load or store.  For loads in loops that
    leave their memory alone that is once, before the outermost such loop.  (What programs leave for each
    other in workspaces their tickets order, within a program as well.)"""
    found = set()
    for o in accesses.aliased | overwriting(accesses):
        around = accesses.structure.loops(o) if only_reads(o) else ()
        outer = list(takewhile(partial(accesses.leaves, o), around))
        if not accesses.in_workspace(o):
            found.add(outer[-1] if outer else o)
    return found


def overwriting(accesses: Accesses) -> set[Op]:
    """Stores and atomics that write what an earlier one, or one in the same loop, may have written, and
    stores whose places in two iterations meet: other threads may have done that.  Atomics among themselves
    need no order, and one thread does all those on numbers."""
    writes = [(o, accesses.base_of(o)) for o in accesses.memory_ops if writes_memory(o)]
    found = {
        o
        for i, (o, base) in enumerate(writes)
        for j, (x, other) in enumerate(writes)
        if x is not o
        and (o.stores or x.stores)
        and (accesses.keeps_order or None in (base, other) or base == other)
        and (j < i or {*accesses.structure.loops(o)} & {*accesses.structure.loops(x)})
        and not (is_on_numbers(o) and is_on_numbers(x))
        and not accesses.apart(o, x)
    }
    return found | {o for o, _ in writes if o.stores and accesses.meets_itself(o)}


def announcing(accesses: Accesses) -> set[Op]:
    """Atomics that may tell somebody, in this launch or not, that the program's stores are done: of one
    number, with release order, after a store (or an atomic on a tile, which all threads do as well) or
    in a loop with one.

    All threads' stores come before them, those of TMA as well: a barrier and the fence of the thread that
    does the atomic order them for others (PTX ISA, "Causality order": barriers synchronise, and base
    causality order is transitive)."""
    stores = [
        o
        for o in accesses.structure.ops
        if o.stores or (o.kind is tile.atomic and isinstance(o.operands[0].type, Tile))
    ]
    place = {o: i for i, o in enumerate(accesses.structure.ops)}
    found = set()
    for o in accesses.structure.ops:
        if o.kind is not tile.atomic or isinstance(o.operands[0].type, Tile):
            continue
        if o.attrs.get("sem", "relaxed") in ("relaxed", "acquire"):
            continue
        around = set(accesses.structure.loops(o))
        if any(place[s] < place[o] or around & set(accesses.structure.loops(s)) for s in stores):
            found.add(o)
    return found
