"""Names of a script's variables: the user's where there is one, else what a value is for; and its rings:
which buffers and barriers one cursor walks, and how deep they are.
"""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from warploom.eject.expressions import DTYPE_NAMES
from warploom.eject.flow import Flow
from warploom.ir.analysis import defined
from warploom.ir.core import Op, Region, Value, walk
from warploom.ir.ops import arith, control, mbarrier, smem, task, tile, tma
from warploom.ir.types import Barriers, InFlight, Scalar, Shared, TensorMap, Tile, View


@dataclass
class Ring:
    """allocations: the ops of its buffers and barriers, buffers first.  cursors: the variables (leaders of
    their classes) that hold a slot of it.  filling: those of them that whoever fills the ring moves."""

    depth: int
    allocations: list[Op] = field(default_factory=list)
    cursors: list[Value] = field(default_factory=list)
    filling: set[Value] = field(default_factory=set)


def rings(flow: Flow) -> list[Ring]:
    """The rings that some cursor walks with ring_next, in the order of their declaration."""
    depth: dict[Value, int] = {}
    uses: dict[Value, set[Op]] = {}
    filling: set[Value] = set()
    for o in walk(flow.func.body):
        if o.kind is task.ring_next:
            moved = o.results if o.operands[0] in flow.folded else o.operands
            if o not in flow.late or moved is o.operands:
                depth[flow.find(moved[0])] = o.attrs["depth"]
        if found := _indexing(o):
            maker = flow.made.get(found[0])
            if maker is not None and found[1] not in flow.folded:
                uses.setdefault(flow.find(found[1]), set()).add(maker)
        if o.kind is mbarrier.mbarrier_wait:
            parity = flow.made.get(o.operands[2])
            if parity is not None and parity.kind is arith.xor:
                filling.add(flow.find(o.operands[1]))
    made: list[Ring] = []
    for slot, n in depth.items():
        mine = {o for o in uses.get(slot, ()) if _slots(o) == n}
        ring = next((r for r in made if mine & {*r.allocations}), None)
        if ring is None:
            ring = Ring(n)
            made.append(ring)
        ring.allocations += [o for o in mine if o not in ring.allocations]
        ring.cursors.append(slot)
        if slot in filling:
            ring.filling |= {slot}
    at = {o: i for i, o in enumerate(flow.func.body.ops)}
    for ring in made:
        ring.allocations.sort(key=lambda o: (o.kind is mbarrier.mbarrier_alloc, at[o]))
    return sorted(made, key=lambda r: min((at[o] for o in r.allocations), default=0))


def _indexing(o: Op) -> tuple[Value, Value] | None:
    """(array, index) of what an op indexes."""
    if o.kind is smem.shared_slot and len(o.operands) == 2:
        return o.operands[0], o.operands[1]
    return mbarrier.barrier_of(o)


def _slots(o: Op) -> int:
    if o.kind is mbarrier.mbarrier_alloc:
        return int(o.attrs["n"])
    lead: tuple[int, ...] = o.attrs.get("lead", ())
    return lead[0] if len(lead) == 1 else 0


_TAKEN = frozenset(
    {*keyword.kwlist, *dir(builtins), *DTYPE_NAMES.values(), "self", "cdiv", "Script", "SIGNATURE"}
)
_MOVES = frozenset(
    {arith.addptr, tile.splat, tile.broadcast, tile.expand_dims, tile.reshape, tile.transpose}
)
_NUMBERED = re.compile(r"(load|store)(_box)?\d")  # after an op of the compiler's
_WORDS = {
    arith.rem: "rest", arith.idiv: "quotient", arith.mul: "product", arith.add: "sum_", arith.sub: "rest",
    arith.minimum: "least", arith.maximum: "most", **dict.fromkeys(arith.COMPARE, "condition"),
}  # fmt: skip


@dataclass
class Namer:
    """Gives every variable of a flow its name.

    A name is free again after the loop, `if` or group that its variable belongs to; wherever it stands for
    another variable, that one has the same type (scripts remember the types of declared variables)."""

    flow: Flow
    rings: list[Ring]
    names: dict[Value, str] = field(default_factory=dict)  # leader of a class -> name
    types: dict[str, str] = field(default_factory=dict)  # name -> what it holds, anywhere

    def run(self) -> dict[Value, str]:
        """Leader of each class -> its name."""
        taken = set(_TAKEN)
        for p in self.flow.func.params:  # the launch's arguments keep their names
            name = p.hint if p.hint.isidentifier() and p.hint not in taken else f"{p.hint or 'p'}_"
            taken.add(name)
            self.names[self.flow.find(p)] = name
        self._cursors = self._cursor_names()
        self._block(self.flow.func.body.ops, taken)
        return self.names

    def _block(self, ops: Iterable[Op], taken: set[str]) -> None:
        for o in ops:
            for v in (*o.results, *(p for r in o.regions for p in r.params)):
                self._name(v, o, taken)
            inner = set(taken)
            for r in o.regions:
                if o.kind is task.tasks:
                    inner = set(taken)
                self._block(r.ops, inner)

    def _name(self, v: Value, o: Op, taken: set[str]) -> None:
        leader = self.flow.find(v)
        nameless = v in self.flow.folded or o in self.flow.late or o.kind is tma.tensor_map
        if nameless or leader in self.names:
            return
        holds = "tile" if isinstance(leader.type, Tile | InFlight) else str(leader.type)
        wanted = name = self._wanted(v)
        n = 1
        while name in taken or self.types.get(name, holds) != holds:
            n += 1
            name = f"{wanted}_{n}"
        taken.add(name)
        self.types[name] = holds
        self.names[leader] = name

    # ---- what a variable is called

    def _wanted(self, v: Value) -> str:
        members = self.flow.class_of(v)
        if isinstance(v.type, View):
            return _identifier(f"g_{view_name(self.flow, self.flow.made[v])}")
        if isinstance(v.type, Shared | Barriers):
            return allocation_name(self.flow, self.flow.made[v], self.rings)
        cursor = self._cursors.get(self.flow.find(v))
        if cursor is not None:
            return cursor
        user = [m.hint for m in members if m.hint and self._is_users(m)]
        other = [m.hint for m in members if m.hint]
        for hints in (user, other):
            if hints:
                return _identifier(max(hints, key=hints.count))
        found = next((r for m in members for r in self._roles(m)), "")
        return _identifier(found or self._by_kind(v))

    def _is_users(self, v: Value) -> bool:
        """Whether a value's name is the user's own: of an op of theirs, or of a loop's variable."""
        o = self.flow.made.get(v)
        return o is None or (bool(o.id) and not o.regions)

    def _by_kind(self, v: Value) -> str:
        """A name from how a value is computed: `tile_rest` of tile % n."""
        o = self.flow.made.get(v)
        if o is None or not o.operands:
            return "value"
        if o.kind is arith.addptr:
            return f"{view_name(self.flow, o)}_at"
        first = self.flow.find(o.operands[0])
        of = self.names.get(first, "") if o.operands[0] not in self.flow.folded else ""
        word = _WORDS.get(o.kind, "value")
        return f"{of}_{word}" if of and isinstance(v.type, Scalar) else word

    def _roles(self, v: Value) -> Iterator[str]:
        """What a value without a name is for, from its uses."""
        flow = self.flow
        maker = flow.made.get(v)
        for u in flow.users.get(v, ()):
            at = u.operands.index(v)
            if u.kind is control.for_ and at < 3:
                name = u.regions[0].params[0].hint.strip("_") or "loop"
                yield f"{name}_{('begin', 'end', 'step')[at]}"
            elif u.kind is control.if_:
                yield "condition"
            offset = self._offset(u, at)
            if offset is not None:
                yield offset
        if maker is not None and maker.kind in (tile.load_box, tile.load, smem.shared_load):
            yield "loaded"

    def _offset(self, u: Op, at: int) -> str | None:
        """The name of a number that is operand `at` of `u` and says where a box starts."""
        view, first = u.operands[0], u.kind.fixed
        if at < first or not isinstance(view.type, View | TensorMap):
            return None
        if isinstance(view.type, TensorMap):
            described = self.flow.made[view].operands
            if not described:  # map_alloc
                return None
            view = described[0]
        base = view_name(self.flow, self.flow.made[view])
        axis, rank = at - first, len(u.operands) - first
        part = ("row", "col")[axis - (rank - 2)] if rank >= 2 and axis >= rank - 2 else f"at{axis}"
        return f"{base}_{part}"

    def _cursor_names(self) -> dict[Value, str]:
        """Slot and phase variables: by the ring where a task walks several, by what they do where it walks
        one in two ways."""
        flow, found = self.flow, {}
        for region in _task_regions(flow):
            inside = {flow.find(v) for v in defined(region)}
            mine = [(r, c) for r in self.rings for c in r.cursors if c in inside]
            many = len({id(r) for r, _ in mine}) > 1
            for ring, slot in mine:
                both = len({c for r, c in mine if r is ring}) > 1
                words = []
                if both and slot in ring.filling:
                    words.append("fill")
                if many:
                    words.append(_ring_name(self.flow, ring))
                found[slot] = "_".join([*words, "slot"])
                phase = self._phase_of(slot)
                if phase is not None:
                    found[phase] = "_".join([*words, "phase"])
                for earlier in self._earlier(slot):
                    found[earlier] = "_".join([*words, "previous"])
        return found

    def _earlier(self, slot: Value) -> Iterator[Value]:
        """Variables of loops that keep where a cursor stood."""
        for o in walk(self.flow.func.body):
            for c in control.carried(o) if o.kind is control.for_ else ():
                late = self.flow.made.get(c.yielded[0]) in self.flow.late
                kept = self.flow.find(c.params[0])
                if not late and self.flow.find(c.yielded[0]) is slot and kept is not slot:
                    yield kept

    def _phase_of(self, slot: Value) -> Value | None:
        for v in self.flow.class_of(slot):
            for u in self.flow.users.get(v, ()):
                if u.kind is task.ring_next and u.operands[0] is v:
                    return self.flow.find(u.operands[1])
        return None


def view_name(flow: Flow, o: Op) -> str:
    """What the pointer is called that a view or an addptr starts from."""
    base = o.operands[0]
    while base in flow.made and flow.made[base].kind in _MOVES:
        base = flow.made[base].operands[0]
    return re.sub("_(ptr|desc)$", "", base.hint) or "array"


def allocation_name(flow: Flow, o: Op, rings: list[Ring]) -> str:
    """Shared memory and barriers: as they are called, or by the array whose boxes they take."""
    hint = o.result.hint
    if not _NUMBERED.search(hint):
        return _identifier(hint)
    if o.kind is smem.shared_alloc:
        return next(_filled_from(flow, o), "buffer")
    ring = next((r for r in rings if o in r.allocations), None)
    of = f"_{_ring_name(flow, ring)}" if ring is not None and len(rings) > 1 else ""
    return f"{hint.partition('_')[0]}{of}"


def _filled_from(flow: Flow, o: Op) -> Iterator[str]:
    """The arrays whose boxes come into shared memory."""
    pending = [o.result]
    for v in pending:
        for u in flow.users.get(v, ()):
            if u.kind in smem.PARTS:
                pending.append(u.result)
            source = None
            if u.kind is tma.tma_load and u.operands[1] is v:
                source = next(iter(flow.made[u.operands[0]].operands), None)
            elif u.kind is smem.cp_async and u.operands[1] is v:
                source = u.operands[0] if isinstance(u.operands[0].type, View) else None
            elif u.kind is smem.shared_store and u.operands[1] in flow.made:
                loaded = flow.made[u.operands[1]]
                source = loaded.operands[0] if loaded.kind is tile.load_box else None
            if source is not None and source in flow.made:
                yield _identifier(view_name(flow, flow.made[source]))


def depth_names(flow: Flow, rings: list[Ring]) -> dict[int, str]:
    """Ring (by its place in the list) -> the attribute that holds its depth."""
    if len(rings) == 1:
        return {0: "depth"}
    taken: dict[str, None] = {}
    for i, ring in enumerate(rings):
        name = f"{_ring_name(flow, ring)}_depth"
        while name in taken:
            name = f"{_ring_name(flow, ring)}{i}_depth"
        taken[name] = None
    return dict(enumerate(taken))


def _ring_name(flow: Flow, ring: Ring) -> str:
    """A ring is called like its first buffer."""
    return allocation_name(flow, ring.allocations[0], []) if ring.allocations else "ring"


def _task_regions(flow: Flow) -> Iterator[Region]:
    for o in flow.func.body.ops:
        if o.kind is task.tasks:
            yield from o.regions


def _identifier(hint: str) -> str:
    """A hint as a Python name."""
    name = re.sub(r"\W", "_", hint) or "value"
    name = name.removesuffix("_smem") or name
    name = f"_{name}" if name[0].isdigit() else name
    return f"{name}_" if keyword.iskeyword(name) or hasattr(builtins, name) else name
