"""The in-order interpretation of TILE, TASK and CHANNEL: what every later level must compute.

Programs run one after the other, each op whole.  At TASK and CHANNEL an op of a replicated task is run
once a replica: `func.attrs["replicas"]` ({task name: n}) says how often; the program is run through for
each replica index, and an op with effects only by the replicas that its tasks have.  The replicas' runs take
turns at accesses to global memory, which are in the program's order in all of them.  At CHANNEL
the rings are checked: slots and phases come in order, nothing is taken before it was committed, nothing
overwritten before every consumer released it.
"""

from __future__ import annotations

import itertools
import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from warploom import options
from warploom.errors import InternalError
from warploom.ir.core import SEQUENTIAL, Func, Op, OpKind, Region, Value, walk
from warploom.ir.ops import cluster, control, task, tile
from warploom.ir.types import Channel, Pointer, Scalar, Tile, dtype_of, elem_of, pointee_of
from warploom.sim.evaluate import PURE, entering
from warploom.sim.lockstep import Stop, in_step
from warploom.sim.memory import GlobalMemory, ViewValue, bind, grid_of
from warploom.sim.numerics import FLOATS, Numerics
from warploom.sim.offsets import Offsets
from warploom.sim.report import ProtocolError, SimError, endless, too_many, trips_of
from warploom.sim.undefined import Divisions, Undefined


def run(
    func: Func,
    args: Sequence[Any],
    grid: int | Sequence[int],
    numerics: Numerics = FLOATS,
) -> None:
    """Runs every program of the grid; arrays are written in place.

    args: in parameter order, NumPy arrays for pointers (any strides), numbers for scalars.
    grid: 1 to 3 sizes.  numerics: how numbers are held and computed.  Raises LaunchError (arguments),
    MemoryFault (bounds), ProtocolError (a ring misused), SimError (assume or device_assert failed)."""
    if func.level not in SEQUENTIAL:
        raise InternalError(
            f"the oracle interprets {func.name} in order; at {func.level.name} simulate it"
        )
    memory, params = bind(func, args, numerics)
    sizes = grid_of(grid)
    offsets, divisions = Offsets(func), Divisions(func)
    max_trips = options.get().max_trips
    replicas: dict[str, int] = dict(func.attrs.get("replicas", {}))
    rounds, consumers = max(replicas.values(), default=1), _consumers(func)
    for z, y, x in itertools.product(range(sizes[2]), range(sizes[1]), range(sizes[0])):
        sent: dict[tuple[Op, int], list[Any]] = {}
        for rank in reversed(range(math.prod(cluster.cluster_of(func)))):
            shared = _ProgramState(rank, sent)
            programs = [
                _Program(
                    consumers, offsets, divisions, memory, dict(params), (x, y, z), sizes, replica,
                    replicas, shared, max_trips,
                )
                for replica in range(rounds)
            ]  # fmt: skip
            in_step([partial(p.whole, func.body) for p in programs])


@dataclass
class _ProgramState:
    """What the replicas' runs of one CTA share: its rank, what the CTAs of higher rank sent to CTA 0, by op
    and replica, and what memory gave replica 0 where it is read once for all."""

    rank: int
    sent: dict[tuple[Op, int], list[Any]]
    numbers: defaultdict[Op, list[Any]] = field(default_factory=lambda: defaultdict(list))
    read: Counter[tuple[Op, int]] = field(default_factory=Counter)

    def again(self, o: Op, replica: int) -> Any:
        """The next of them by an op, for another replica."""
        self.read[o, replica] += 1
        return self.numbers[o][self.read[o, replica] - 1]


@dataclass
class _Slot:
    """One slot of a ring.  `busy`: the consumers that have not yet released its round."""

    items: list[Any]
    state: str = "free"  # free -> acquired -> full -> free
    busy: set[str] = field(default_factory=set)
    waited: set[str] = field(default_factory=set)


class _Ring:
    """A channel in order, with the checks."""

    def __init__(self, kind: Channel, name: str, consumers: frozenset[str]) -> None:
        self.name, self.depth, self.consumers = name, kind.depth, consumers
        self.producer: frozenset[str] = frozenset()  # tasks
        self.slots = [_Slot([None] * len(kind.items)) for _ in range(kind.depth)]
        self.uses: dict[str, int] = {}

    def _use(self, who: str, o: Op, slot: int, phase: int) -> _Slot:
        use = self.uses.get(who, 0)
        self.uses[who] = use + 1
        expected = (use % self.depth, use // self.depth % 2)
        if (slot, phase) != expected:
            raise ProtocolError(
                "ring-order",
                f"{who} uses channel {self.name} at slot {slot}, phase {phase}; use {use} of a ring of "
                f"{self.depth} is slot {expected[0]}, phase {expected[1]}",
                o.loc,
            )
        return self.slots[slot]

    def _need(self, ok: bool, o: Op, message: str) -> None:
        if not ok:
            raise ProtocolError("ring", f"channel {self.name}: {message}", o.loc)

    def acquire(self, o: Op, slot: int, phase: int) -> None:
        s = self._use("the producer", o, slot, phase)
        still = ", ".join(sorted(s.busy)) or "its own commit"
        self._need(
            s.state == "free",
            o,
            f"the producer waits for slot {slot}, held by {still}: run in order, it never ends "
            f"(is a depth of {self.depth} too small?)",
        )
        s.state = "acquired"

    def put(self, o: Op, slot: int, item: int, value: Any) -> None:
        s = self.slots[slot]
        self._need(s.state == "acquired", o, f"slot {slot} is written while {s.state}")
        s.items[item] = value

    def commit(self, o: Op, slot: int) -> None:
        s = self.slots[slot]
        self._need(s.state == "acquired", o, f"slot {slot} is committed while {s.state}")
        missing = [i for i, v in enumerate(s.items) if v is None]
        self._need(not missing, o, f"slot {slot} is committed without items {missing}")
        s.state, s.busy, s.waited = "full", set(self.consumers), set()

    def wait(self, o: Op, who: str, slot: int, phase: int) -> None:
        s = self._use(who, o, slot, phase)
        self._need(
            s.state == "full", o, f"{who} waits for slot {slot}, which nothing fills ({s.state})"
        )
        s.waited.add(who)

    def take(self, o: Op, who: str, slot: int, item: int) -> Any:
        s = self.slots[slot]
        ok = s.state == "full" and who in s.waited and who in s.busy
        self._need(ok, o, f"{who} takes item {item} of slot {slot} outside its wait and release")
        return s.items[item]

    def release(self, o: Op, who: str, slot: int) -> None:
        s = self.slots[slot]
        ok = s.state == "full" and who in s.waited and who in s.busy
        self._need(ok, o, f"{who} releases slot {slot}, which it does not hold")
        s.busy.discard(who)
        if not s.busy:
            s.state, s.items = "free", [None] * len(s.items)


def _consumers(func: Func) -> dict[Value, frozenset[str]]:
    """The tasks that take part in each channel as consumers."""
    found: dict[Value, set[str]] = {}
    for o in walk(func.body):
        if o.kind in (task.consumer_wait, task.consumer_release):
            found.setdefault(o.operands[0], set()).add(_who(o))
    return {v: frozenset(names) for v, names in found.items()}


def _who(o: Op, besides: frozenset[str] = frozenset()) -> str:
    return "+".join(sorted(o.tasks - besides)) or "the consumer"


@dataclass(eq=False)
class _Program:
    """One program, one replica's run.  consumers: of each channel."""

    consumers: Mapping[Value, frozenset[str]]
    offsets: Offsets
    divisions: Divisions
    memory: GlobalMemory
    env: dict[Value, Any]
    ids: tuple[int, int, int]
    grid: tuple[int, int, int]
    replica: int
    replicas: Mapping[str, int]
    shared: _ProgramState
    max_trips: int
    stop: Stop = lambda place: None  # before an access to global memory
    trips: int = 0  # of all `for`s so far
    path: list[int] = field(
        default_factory=list
    )  # of the regions around: which iteration, which op

    def whole(self, body: Region, stop: Stop) -> None:
        """Runs the program, and `stop` before each access to global memory."""
        self.stop = stop
        with np.errstate(all="ignore"):
            self.region(body)

    def region(self, region: Region, iteration: int = 0) -> tuple[Any, ...]:
        """Runs a region whose parameters are already bound; gives what it yields."""
        self.path += (iteration, 0)
        for i, o in enumerate(region.ops[:-1]):
            self.path[-1] = i
            self.op(o)
        del self.path[-2:]
        return tuple(self.env[v] for v in region.yielded)

    def op(self, o: Op) -> None:
        env = self.env
        if o.kind in PURE:
            xs = [env[v] for v in o.operands]
            meaning = self.offsets.meaning(o, self.memory.numerics.meaning(o))
            out = self.divisions.meaning(o, meaning)(*xs)
        else:
            handler = _EFFECTS.get(o.kind)
            if handler is None:
                raise InternalError(f"the oracle has no meaning for {o.kind.name}")
            if o.accesses or o.kind is task.produce:
                self.stop(tuple(self.path))
            run = self.divisions.step(o, self.offsets.narrowed(o, handler, first=2))
            out = run(self, o, *[env[v] for v in o.operands])
        if len(o.results) == 1:
            env[o.results[0]] = out
        elif o.results:
            env.update(zip(o.results, out, strict=True))

    def acts(self, o: Op) -> bool:
        """Does this replica's run carry out the op's effects?"""
        return self.replica < max((self.replicas.get(t, 1) for t in o.tasks), default=1)

    def given(self, o: Op, ask: Callable[[], Any]) -> Any:
        """What memory or the clock gives: where tasks of one replica alone run the op, or it is an atomic on
        a number, replica 0's run asks, and the later ones get the same."""
        is_atomic = o.kind is tile.atomic and not isinstance(o.result.type, Tile)
        if not self.acts(o) or (is_atomic and self.replica):
            return self.shared.again(o, self.replica)
        found = ask()
        if is_atomic or max((self.replicas.get(t, 1) for t in o.tasks), default=1) == 1:
            self.shared.numbers[o].append(found)
        return found


_EFFECTS: dict[OpKind, Callable[..., Any]] = {}


_effect = entering(_EFFECTS)


def _single(out: tuple[Any, ...]) -> Any:
    return out[0] if len(out) == 1 else out


# ---- control


@_effect(control.for_)
def _for(p: _Program, o: Op, lo: Any, hi: Any, step: Any, *init: Any) -> Any:
    (body,) = o.regions
    number = dtype_of(o.operands[0].type).numpy.type
    carried, (first, stop, stride) = init, map(int, (lo, hi, step))
    trips, most = trips_of(o, first, stop, stride), options.FOR_TRIPS * p.max_trips
    p.trips += trips
    if p.trips > most:
        raise too_many(o, trips, most)
    for i in range(first, stop, stride):
        p.env.update(zip(body.params, (number(i), *carried), strict=True))
        carried = p.region(body, i if stride > 0 else -i)
    return _single(carried)


@_effect(control.while_)
def _while(p: _Program, o: Op, *init: Any) -> Any:
    condition, body = o.regions
    carried = init
    for trips in itertools.count():
        p.env.update(zip(condition.params, carried, strict=True))
        go, *rest = p.region(condition, 2 * trips)
        if not go:
            return _single(tuple(rest))
        if trips == p.max_trips:
            raise endless(o, trips)
        p.env.update(zip(body.params, rest, strict=True))
        carried = p.region(body, 2 * trips + 1)


@_effect(control.if_)
def _if(p: _Program, o: Op, c: Any) -> Any:
    then, other = o.regions
    return _single(p.region(then if c else other))


@_effect(control.assume)
def _assume(p: _Program, o: Op, c: Any) -> None:
    if not c:
        raise SimError("assume", "an assumption does not hold", o.loc)


@_effect(control.device_assert)
def _device_assert(p: _Program, o: Op, c: Any) -> None:
    if not np.all(c):
        raise SimError("device-assert", f"device_assert failed: {o.attrs['message']}", o.loc)


def hexadecimal(x: Any) -> str:
    """Integers as device_print shows them with hex=True."""
    return np.array2string(np.asarray(x), formatter={"int": lambda n: f"{int(n):#x}"})


def _itself(x: Any) -> Any:
    return x


@_effect(control.device_print)
def _device_print(p: _Program, o: Op, *values: Any) -> None:
    if p.acts(o):
        print(
            o.attrs["prefix"], p.ids, *map(hexadecimal if o.attrs.get("hex") else _itself, values)
        )


@_effect(tile.multiple_of)
def _multiple_of(p: _Program, o: Op, x: Any) -> None:
    """Addresses count elements here, of buffers that start at 0."""
    if type(x) is Undefined:  # nothing is promised of what nobody may use
        return
    e = elem_of(o.operands[0].type)
    size = e.dtype.bytes if isinstance(e, Pointer) else 1
    for axis, n in enumerate(o.attrs["by"]):
        rows = np.moveaxis(x, axis, -1) if np.ndim(x) else np.array([x, x + 1])
        follows = rows[..., 1:] == rows[..., :-1] + 1
        begins = follows & (np.insert(follows, 0, False, axis=-1)[..., :-1] == 0)
        if np.any(begins & (rows[..., :-1] * size % n != 0)):
            raise SimError("multiple-of", f"it is no multiple of {n} along axis {axis}", o.loc)


# ---- the program and its memory


@_effect(tile.program_id)
def _program_id(p: _Program, o: Op) -> Any:
    return np.int32(p.ids[o.attrs["axis"]])


@_effect(tile.num_programs)
def _num_programs(p: _Program, o: Op) -> Any:
    return np.int32(p.grid[o.attrs["axis"]])


@_effect(tile.globaltimer)
def _globaltimer(p: _Program, o: Op) -> Any:
    return p.given(o, lambda: np.int64(time.perf_counter_ns()))


@_effect(task.replica_id)
def _replica_id(p: _Program, o: Op) -> Any:
    return np.int32(p.replica if p.acts(o) else 0)


@_effect(tile.load)
def _load(p: _Program, o: Op, pointers: Any, mask: Any = None, other: Any = None) -> Any:
    def load() -> Any:
        return p.memory.load(dtype_of(o.result.type), pointers, mask, other, o.loc)

    return p.given(o, load) if isinstance(o.result.type, Scalar) else load()


@_effect(tile.store)
def _store(p: _Program, o: Op, pointers: Any, value: Any, mask: Any = None) -> None:
    if p.acts(o):
        p.memory.store(pointee_of(o.operands[0].type), pointers, value, mask, o.loc)


@_effect(tile.atomic)
def _atomic(p: _Program, o: Op, pointers: Any, value: Any, rest: Any = None) -> Any:
    elem = pointee_of(o.operands[0].type)
    return p.given(o, lambda: p.memory.atomic(o.attrs["fn"], elem, pointers, value, rest, o.loc))


@_effect(cluster.cta_rank)
def _cta_rank(p: _Program, o: Op) -> Any:
    return np.int32(p.shared.rank)


@_effect(cluster.cluster_sum)
def _cluster_sum(p: _Program, o: Op, x: Any) -> Any:
    sent = p.shared.sent.setdefault((o, p.replica), [])
    if p.shared.rank:
        sent.append(x)
        return x
    while sent:  # CTA 1's came last
        x = p.memory.numerics.combined("add", x, sent.pop())
    return x


@_effect(tile.make_view)
def _make_view(p: _Program, o: Op, base: Any, *sizes: Any) -> ViewValue:
    rank = len(sizes) // 2
    numbers = tuple(int(n) for n in sizes)
    return ViewValue(
        int(p.memory.settled(base, pointee_of(o.operands[0].type), o.loc)),
        numbers[:rank],
        numbers[rank:],
        o.attrs.get("narrow", ()),
    )


@_effect(tile.load_box)
def _load_box(p: _Program, o: Op, view: ViewValue, *offsets: Any) -> Any:
    at = [int(n) for n in offsets]
    return p.memory.load_box(dtype_of(o.result.type), view, at, o.attrs["shape"], o.loc)


@_effect(tile.store_box)
def _store_box(p: _Program, o: Op, view: ViewValue, value: Any, *offsets: Any) -> None:
    if p.acts(o):
        p.memory.store_box(view, value, [int(n) for n in offsets], o.loc)


# ---- channels


@_effect(task.channel)
def _channel(p: _Program, o: Op) -> _Ring:
    kind = o.result.typed(Channel)
    return _Ring(kind, o.attrs["name"], p.consumers.get(o.result, frozenset()))


@_effect(task.producer_acquire)
def _acquire(p: _Program, o: Op, ring: _Ring, slot: Any, phase: Any) -> None:
    ring.producer = o.tasks
    ring.acquire(o, int(slot), int(phase))


@_effect(task.produce)
def _produce(p: _Program, o: Op, ring: _Ring, slot: Any, source: Any, *rest: Any) -> None:
    channel = o.operands[0].typed(Channel)
    item = channel.items[o.attrs["item"]]
    assert isinstance(item, Tile)
    if isinstance(source, ViewValue):
        value = p.memory.load_box(item.dtype, source, [int(n) for n in rest], item.shape, o.loc)
    else:
        value = p.memory.load(item.dtype, source, rest[0] if rest else None, None, o.loc)
    ring.put(o, int(slot), o.attrs["item"], value)


@_effect(task.put)
def _put(p: _Program, o: Op, ring: _Ring, slot: Any, value: Any) -> None:
    ring.put(o, int(slot), o.attrs["item"], value)


@_effect(task.producer_commit)
def _commit(p: _Program, o: Op, ring: _Ring, slot: Any) -> None:
    ring.commit(o, int(slot))


@_effect(task.consumer_wait)
def _wait(p: _Program, o: Op, ring: _Ring, slot: Any, phase: Any) -> None:
    ring.wait(o, _who(o), int(slot), int(phase))


@_effect(task.take)
def _take(p: _Program, o: Op, ring: _Ring, slot: Any) -> Any:
    return ring.take(o, _who(o, ring.producer), int(slot), o.attrs["item"])


@_effect(task.consumer_release)
def _release(p: _Program, o: Op, ring: _Ring, slot: Any) -> None:
    ring.release(o, _who(o), int(slot))
