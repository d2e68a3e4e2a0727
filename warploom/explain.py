"""What the compiler made of a kernel, line by line, and why: text for people.

Pure functions of the function at TILE (the user's lines), the schedule (who runs what, and why), the
function at PLACED (what was built) and, where the kernel was compiled, its resources.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from warploom.codegen.resources import Resources
from warploom.errors import Loc, source_line
from warploom.ir.analysis import definitions
from warploom.ir.core import Func, Level, Op, Region, Value, walk
from warploom.ir.ops import arith, cluster, mbarrier, mma, smem, task, tile, tma, unaligned
from warploom.ir.types import Shared, Tile
from warploom.schedule.model import ChannelPlan, Reason, Schedule
from warploom.target import Target


@dataclass(frozen=True)
class Line:
    """One line of the user's source: the tasks that run something of it, and what became of it."""

    number: int
    text: str
    tasks: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Explanation:
    """`str()` of it is what `compiled.explain()` returns."""

    heading: tuple[str, ...]
    lines: tuple[Line, ...]
    buffers: tuple[str, ...]
    barriers: tuple[str, ...]
    decisions: tuple[str, ...]
    reads: tuple[str, ...] = ()

    def __str__(self) -> str:
        out = [*self.heading, ""]
        number = max((len(str(line.number)) for line in self.lines), default=1)
        tasks = max((len(", ".join(line.tasks)) for line in self.lines), default=1)
        for line in self.lines:
            out.append(f"{line.number:>{number}} {', '.join(line.tasks):<{tasks}} | {line.text}")
            indent = " " * (len(line.text) - len(line.text.lstrip()))
            out += [f"{'':>{number}} {'':<{tasks}} |   {indent}· {note}" for note in line.notes]
        for title, entries in (
            ("shared memory", self.buffers),
            ("barriers", self.barriers),
            ("decisions", self.decisions),
            ("read while translating", self.reads),
        ):
            if entries:
                out += ["", title, *(f"  {entry}" for entry in entries)]
        return "\n".join(line.rstrip() for line in out)


def explain(
    func: Func,
    schedule: Schedule,
    placed: Func,
    target: Target | None = None,
    resources: Resources | None = None,
    reads: Iterable[str] = (),
) -> Explanation:
    """The explanation of a kernel from its parts.

    func: at TILE (of an explicit kernel: WARP).  placed: at WARP or PLACED.  reads: what its translation
    read outside of it."""
    found = {o.id: _root(o.loc).line for o in walk(func.body) if o.id and o.loc}
    return Explanation(
        heading=tuple(_heading(func, schedule, placed, target or placed.target, resources)),
        lines=tuple(_lines(func, schedule, placed)),
        buffers=tuple(_buffers(placed)),
        barriers=tuple(_barriers(placed)),
        decisions=tuple(_decision(r, found) for r in schedule.reasons),
        reads=tuple(reads),
    )


# ---- the kernel as a whole


def _heading(
    func: Func, schedule: Schedule, placed: Func, target: Target, resources: Resources | None
) -> Iterator[str]:
    where = f" ({func.loc.file}:{func.loc.line})" if func.loc else ""
    kind = "specialized" if schedule.specialized else "uniform: all warps run the same program"
    yield f"{func.name}{where} for {target.name}, {kind}"
    for plan in schedule.tasks:
        if plan.warps == 0:
            yield f"  {plan.name}: by the same warps, iterations ahead"
            continue
        groups = f"{plan.replicas} × " if plan.replicas > 1 else ""
        registers = f", {plan.registers} registers a thread" if plan.registers else ""
        needed = f", {plan.needed} estimated" if plan.needed else ""
        yield f"  {plan.name}: {groups}{plan.warps} warps{registers}{needed}"
    if schedule.split.count > 1:
        yield f"  the tile is split along {schedule.split.axis} among {schedule.split.count} groups"
    shared = max((end for _, end in _extents(placed)), default=0)
    if placed.level is Level.PLACED:
        yield f"  shared memory: {shared:,} of {target.shared_bytes:,} bytes"
    if resources is not None:
        spills = (
            f"{resources.spill_bytes:,} bytes of spills" if resources.spill_bytes else "no spill"
        )
        yield f"  ptxas ({resources.compiler}): {resources.registers} registers a thread at entry, {spills}"
        if resources.stopped:
            yield f"    {resources.search()}"
        for advisory in resources.advisories:
            yield f"  ptxas: {advisory}"


def _decision(reason: Reason, lines: dict[str, int]) -> str:
    mark = "! " if reason.warn else ""
    line = lines.get(reason.subject)
    where = f" (line {line})" if line else ""
    return f"{mark}{reason.subject}{where}: {reason.decision}, because {reason.because}"


# ---- line by line


@dataclass
class _Notes:
    tasks: dict[str, None] = field(default_factory=dict)  # ordered, each once
    notes: dict[str, None] = field(default_factory=dict)


def _lines(func: Func, schedule: Schedule, placed: Func) -> Iterator[Line]:
    made = definitions(func.body)
    found: dict[int, _Notes] = {}
    file = (
        func.loc.file
        if func.loc
        else next((_root(o.loc).file for o in walk(func.body) if o.loc), "")
    )

    def at(loc: Loc | None) -> _Notes:
        """Where notes of an op go; those of ops without a line of this file are dropped."""
        if loc is None or _root(loc).file != file:
            return _Notes()
        return found.setdefault(_root(loc).line, _Notes())

    reasons: dict[str, list[Reason]] = {}
    for reason in schedule.reasons:
        reasons.setdefault(reason.subject, []).append(reason)
    no_box: dict[str, list[str]] = {}  # what recover_boxes found in the way, by op
    for subject, why in func.attrs.get("access_notes", ()):
        no_box.setdefault(subject, []).append(why)
    told = " ".join(f"{r.decision} {r.because}" for r in schedule.reasons)
    named = set(_ID.findall(told))
    order = [t.name for t in schedule.tasks]
    for o in walk(func.body):
        entry = at(o.loc)
        for name in sorted(schedule.assign.get(o.id, ()), key=order.index):
            entry.tasks[name] = None
        if o.id in named:  # so that one finds what the reasons of other ops mean
            entry.notes[f"this is {o.id}"] = None
        for note in _op_notes(o, schedule, made):
            entry.notes[note] = None
        for note in no_box.get(o.id, ()):
            entry.notes[f"no box: {note}"] = None
        for reason in reasons.get(o.id, ()):
            entry.notes[f"{reason.decision}: {reason.because}"] = None
    for o in walk(placed.body):
        for note in _built_notes(o, placed.target):
            at(o.loc).notes[note] = None
    if not found:
        return
    first = min([*found, func.loc.line] if func.loc else found)
    for number in range(first, max(found) + 1):
        notes = found.get(number, _Notes())
        text = source_line(file, number).rstrip()
        tasks = tuple(sorted(notes.tasks, key=order.index))
        yield Line(number, text, tasks, tuple(notes.notes))


_ID = re.compile(r"[\w.]*/?[a-z_]+\d[\w.]*(?:/[a-z_]+\d+)?")


def _root(loc: Loc) -> Loc:
    """The line in the kernel itself where a helper's code was inlined."""
    while loc.caller is not None:
        loc = loc.caller
    return loc


def _op_notes(o: Op, schedule: Schedule, made: dict[Value, Op]) -> Iterator[str]:
    if o.kind is tile.load_box:
        yield f"a box of {_shape(o.result)} at {_offsets(o, made)} of {_view(o.operands[0], made)}"
    elif o.kind is tile.store_box:
        yield f"a box of {_shape(o.operands[1])} at {_offsets(o, made)} of {_view(o.operands[0], made)}"
    elif o.kind is tile.load and isinstance(o.result.type, Tile):
        yield f"{_shape(o.result)} elements by their addresses"
    channel = next((c for c in schedule.channels if o.id and o.id in c.all_items), None)
    if channel is not None:
        yield _filled(o, channel)
    for plan in schedule.stores:
        if o.id and plan.op == o.id and plan.via != "direct":
            chunk = "×".join(map(str, plan.chunk))
            yield f"leaves by {_VIA.get(plan.via, plan.via)} in chunks of {chunk}, {plan.buffers} buffered"


_VIA = {"tma": "TMA", "cp_async": "cp.async", "registers": "registers (ld.global, st.shared)"}


def _filled(o: Op, channel: ChannelPlan) -> str:
    via = channel.via[channel.all_items.index(o.id) % len(channel.items)]
    to = " and ".join(channel.consumers)
    how = "its number goes" if via == "number" else f"by {_VIA.get(via, via)}"
    return f"{how} into ring {channel.name} of {channel.depth} slots: {channel.producer} → {to}"


def _built_notes(o: Op, target: Target) -> Iterator[str]:
    if o.kind is mma.wgmma:
        a, b = (v.type for v in o.operands[:2])
        assert isinstance(b, Shared) and isinstance(a, (Shared, Tile))
        (m, k), n = a.shape, b.shape[1]
        unit = target.unit_of("wgmma") or target.matrix_unit()
        step = unit.k_step(b.dtype.bits)
        source = "shared memory" if isinstance(a, Shared) else "registers"
        count = m // unit.m * (k // step)
        yield f"{count} × {unit.instruction} m{unit.m}n{n}k{step} a group and step, A from {source}"
    elif o.kind is tile.convert_layout:
        yield "elements change hands between threads (convert_layout)"
    elif o.kind is unaligned.load_unaligned:
        yield "its rows begin anywhere in 16 bytes: aligned units are read and shifted"
    elif o.kind is unaligned.load_unaligned_ahead:
        yield "its rows begin anywhere in 16 bytes: aligned units are read an iteration early, and shifted"
    elif o.kind is unaligned.prefetch_box:
        yield f"the L2 is asked for what lies {o.attrs['by']} further along axis {o.attrs['axis']}"
    if o.kind in (mma.wgmma_wait, smem.shared_load, tile.load):
        for v in o.results:
            if isinstance(v.type, Tile) and v.type.layout is not None and len(v.type.shape) == 2:
                registers = getattr(v.type.layout, "registers", None)
                yield f"{_shape(v)} {v.type.elem} in registers, {registers} elements a thread"


def _shape(v: Value) -> str:
    assert isinstance(v.type, Tile)
    return "×".join(map(str, v.type.shape))


def _offsets(o: Op, made: dict[Value, Op]) -> str:
    first = 1 if o.kind is tile.load_box else 2
    return "(" + ", ".join(_name(v, made) for v in o.operands[first:]) + ")"


def _view(v: Value, made: dict[Value, Op]) -> str:
    o = made.get(v)
    if o is None or o.kind is not tile.make_view:
        return _name(v, made)
    base, *sizes = (_name(x, made) for x in o.operands)
    rank = len(sizes) // 2
    sizes[:rank] = ["any" if size == str(tile.UNBOUNDED) else size for size in sizes[:rank]]
    return f"{base}[{', '.join(sizes[:rank])}], strides ({', '.join(sizes[rank:])})"


def _name(v: Value, made: dict[Value, Op], depth: int = 4) -> str:
    """A value as the user would write it: a name, a number, a small formula, or …"""
    o = made.get(v)
    if o is None:
        return v.hint or "…"
    if o.kind is arith.const:
        return str(o.attrs["value"])
    if o.kind is arith.cast:
        return _name(o.operands[0], made, depth)
    if o.kind in (tile.program_id, tile.num_programs):
        return f"{o.kind.name}({o.attrs['axis']})"
    if v.hint:
        return v.hint
    sign = _SIGNS.get(o.kind)
    if sign is None or depth == 0:
        return "…"
    x, y = (_name(operand, made, depth - 1) for operand in o.operands)
    if sign in ("+", "-"):
        return f"{x} {sign} {y}"
    x, y = (f"({part})" if " " in part else part for part in (x, y))
    return f"{x}{sign}{y}"


_SIGNS = {
    arith.add: "+",
    arith.sub: "-",
    arith.mul: "*",
    arith.idiv: "//",
    arith.fast_div: "//",
    arith.rem: "%",
}


# ---- buffers and barriers


def _extents(placed: Func) -> Iterator[tuple[Op, int]]:
    """Shared-memory declarations with the byte after their last one."""
    for o in walk(placed.body):
        if o.kind is smem.shared_alloc:
            yield o, (o.attrs.get("offset") or 0) + _bytes(o)
        elif o.kind is mbarrier.mbarrier_alloc:
            yield o, (o.attrs.get("offset") or 0) + 8 * o.attrs["n"]


def _bytes(o: Op) -> int:
    return _slot_bytes(o) * _slots(o)


def _slots(o: Op) -> int:
    slots = 1
    for n in o.attrs["lead"]:
        slots *= n
    return slots


def _slot_bytes(o: Op) -> int:
    size: int = o.attrs["dtype"].bytes
    for n in o.attrs["shape"]:
        size *= n
    return size


def _buffers(placed: Func) -> Iterator[str]:
    use = _touching(placed)
    for o in walk(placed.body):
        if o.kind is not smem.shared_alloc:
            continue
        shape = "×".join(map(str, o.attrs["shape"]))
        by = use.get(o.result, {})
        reuse = f", in the bytes of {o.attrs['alias']}" if o.attrs.get("alias") else ""
        at = "" if o.attrs.get("offset") is None else f", at byte {o.attrs['offset']:,}"
        swizzle = f", {o.attrs['swizzle']}-byte swizzle" if o.attrs["swizzle"] else ""
        yield (
            f"{o.attrs['name']}: {_slots(o)} × {shape} {o.attrs['dtype']} = {_bytes(o):,} bytes"
            f"{at}{reuse}{swizzle}"
        )
        yield f"  filled by {_list(by.get('fill'))}; read by {_list(by.get('read'))}"


def _barriers(placed: Func) -> Iterator[str]:
    use = _touching(placed)
    for o in walk(placed.body):
        if o.kind is not mbarrier.mbarrier_alloc:
            continue
        by = use.get(o.result, {})
        sizes = {  # one a phase, wherever it is told: a loop may be cut or peeled
            inner.attrs["bytes"]: None
            for inner in walk(placed.body)
            if inner.kind is mbarrier.mbarrier_expect and inner.operands[0] is o.result
        }
        sent = f" and {' or '.join(f'{n:,}' for n in sizes)} bytes" if sizes else ""
        arrivals = f"{o.attrs['count']} arrival{'s' if o.attrs['count'] > 1 else ''}"
        yield (
            f"{o.attrs['name']}: {o.attrs['n']} mbarriers, a phase is {arrivals}{sent}; "
            f"signalled by {_list(by.get('signal'))}; waited for by {_list(by.get('wait'))}"
        )


_ROLES = {
    tma.tma_load: {1: "fill", 2: "signal"},
    smem.cp_async: {1: "fill"},
    mbarrier.cp_async_arrive: {0: "signal"},
    smem.shared_store: {0: "fill"},
    smem.shared_put: {0: "fill"},
    smem.shared_get: {0: "read"},
    smem.shared_load: {0: "read"},
    mma.wgmma: {0: "read", 1: "read"},
    tma.tma_store: {1: "read"},
    mbarrier.mbarrier_wait: {0: "wait"},
    mbarrier.mbarrier_arrive: {0: "signal"},
    mbarrier.mbarrier_expect: {0: "signal"},
}
_BY_ENGINE = {tma.tma_load: " (TMA)", tma.tma_store: " (TMA)", smem.cp_async: " (cp.async)"}


def _touching(placed: Func) -> dict[Value, dict[str, list[str]]]:
    """For each shared allocation and barrier: role ("fill", "read", "signal", "wait") -> the tasks."""
    made = definitions(placed.body)

    def origin(v: Value) -> Value:
        while (o := made.get(v)) is not None and o.kind in _PARTS:
            v = o.operands[0]
        return v

    found: dict[Value, dict[str, list[str]]] = {}
    for name, region in _regions(placed):
        for o in walk(region):
            for i, role in _ROLES.get(o.kind, {}).items():
                who = name + (_BY_ENGINE.get(o.kind, "") if role != "signal" else "")
                tasks = found.setdefault(origin(o.operands[i]), {}).setdefault(role, [])
                if who not in tasks:
                    tasks.append(who)
    return found


_PARTS = smem.PARTS | {cluster.peer}


def _regions(placed: Func) -> Iterator[tuple[str, Region]]:
    """Each task's name and region; the whole body where the function has no tasks."""
    phases = task.phases(placed)
    if not phases:
        yield "all warps", placed.body
    for o in phases:
        for name, replicas, region in zip(
            o.attrs["names"], o.attrs["replicas"], o.regions, strict=True
        ):
            yield f"{name} × {replicas}" if replicas > 1 else name, region


def _list(names: list[str] | None) -> str:
    return " and ".join(names) if names else "nobody"
