"""What the compiler made of a kernel, line by line, and why: text for people.

Pure functions of the function at TILE (the user's lines), the schedule (who runs what, and why), the
function at PLACED (what was built) and, where the kernel was compiled, its resources.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from warploom.codegen.resources import Resources
from warploom.errors import Loc, source_line
from warploom.ir.analysis import definitions
from warploom.ir.core import HARDWARE, Family, Func, Level, Op, Region, Value, walk
from warploom.ir.ops import arith, cluster, mbarrier, mma, smem, task, tile, tma, unaligned
from warploom.ir.rules import Rules
from warploom.ir.types import Shared, Tile, dtype_of, f16, u8
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
    if func.attrs.get("overlap"):
        yield "  for launches whose arguments overlap in memory: no load passes a store"
    elif func.attrs.get("in_order"):
        yield "  for launches whose stores may meet (overlaps, small strides): all keep their order"
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
    if placed.level is Level.PLACED:
        ends = ((o.attrs.get("offset") or 0) + n for o in walk(placed.body) if (n := _bytes(o)))
        shared = max(ends, default=0)
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
    texts = " ".join(f"{r.decision} {r.because}" for r in schedule.reasons)
    named = set(_ID.findall(texts))
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
        if (tell := BUILT[o.kind].notes) is not None:
            at(o.loc).notes.update(dict.fromkeys(tell(o, placed.target)))
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
    if (asked := ASKED[o.kind]) is not None:
        yield from asked(o, made)
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


def _box(o: Op, made: dict[Value, Op]) -> Iterator[str]:
    view, *values = o.operands
    moved = o.result if o.results else values[0]
    at = ", ".join(_name(v, made) for v in o.operands[o.kind.fixed :])
    yield f"a box of {_shape(moved)} at ({at}) of {_view(view, made)}"


def _gathered(o: Op, made: dict[Value, Op]) -> Iterator[str]:
    if isinstance(o.result.type, Tile):
        yield f"{_shape(o.result)} elements by their addresses"


def _product(o: Op, target: Target) -> Iterator[str]:
    a, b = (v.type for v in o.operands[:2])
    assert isinstance(b, Shared) and isinstance(a, (Shared, Tile))
    (m, k), n = a.shape, b.shape[1]
    unit = target.unit_of("wgmma") or target.matrix_unit()
    step = unit.k_step(b.dtype.bits)
    source = "shared memory" if isinstance(a, Shared) else "registers"
    count = m // unit.m * (k // step)
    yield f"{count} × {unit.instruction} m{unit.m}n{n}k{step} a group and step, A from {source}"


def _dot(o: Op, target: Target) -> Iterator[str]:
    """What a dot in registers is made of, in all warps together."""
    batches, m, n, k = tile.dot_sizes(o)
    unit = target.unit_of(o.attrs.get("unit") or "")
    if unit is not None:
        dtype, scales = dtype_of(o.operands[0].type), o.operands[3:]
        step = unit.k_step(dtype.bits)
        count = batches * unit.instructions(m, n) * (k // step)
        shape = f"m{unit.m}n{unit.n_step}k{2 * step if scales and dtype == u8 else step}"
        how = " with block scales" if scales else ""
        how += " in f16" if dtype_of(o.result.type) == f16 else ""
        yield f"{count} × {unit.instruction} {shape}{how}, both operands from registers"


def _fused(o: Op, target: Target) -> Iterator[str]:
    each = getattr(o.result.typed(Tile).layout, "registers", None)
    k = o.operands[0].typed(Shared).shape[-1]
    yield f"{each} × {k} fma a thread, both operands from shared memory"


def _in_registers(o: Op, target: Target) -> Iterator[str]:
    for v in o.results:
        if isinstance(v.type, Tile) and v.type.layout is not None and len(v.type.shape) > 1:
            registers = getattr(v.type.layout, "registers", None)
            yield f"{_shape(v)} {v.type.elem} in registers, {registers} elements a thread"


def _said(text: str) -> Callable[[Op, Target], Iterable[str]]:
    """The same of each op, but for attributes that the text names."""
    return lambda o, target: (text.format(**o.attrs),)


@dataclass(frozen=True)
class Built:
    """What is told of an op that was built.

    notes: at its line.  shared: what it does to shared memory among its operands ("fill", "read").
    engine: who does it, where that are not the task's threads."""

    notes: Callable[[Op, Target], Iterable[str]] | None = None
    shared: str = ""
    engine: str = ""


_QUIET = Built()
_PURE = (Family.NUMBER, Family.POINTWISE, Family.FILL, Family.MOVE, Family.COMBINE, Family.PLACE)
_ORDER = (Family.CONTROL, Family.WAIT, Family.SIGNAL, Family.FENCE)
_OTHERS = (Family.PROMISE, Family.OUTPUT, Family.ACCUMULATOR, Family.REGISTERS)

ASKED: Rules[Callable[[Op, dict[Value, Op]], Iterable[str]] | None] = Rules(
    "what does its line ask for",
    {
        **dict.fromkeys((*_PURE, *_ORDER, *_OTHERS, Family.SHARED, Family.ISSUE), None),
        **dict.fromkeys((tile.load_box, tile.store_box), _box),
        tile.load: _gathered,
        **dict.fromkeys((tile.store, tile.atomic), None),
    },
    frozenset({Level.TILE, Level.WARP}),
)
_UNALIGNED = "its rows begin anywhere in 16 bytes: aligned units are read "
BUILT: Rules[Built] = Rules(
    "what was built for it",
    {
        **dict.fromkeys((*_PURE, *_ORDER, *_OTHERS), _QUIET),
        tile.convert_layout: Built(_said("elements change hands between threads (convert_layout)")),
        tile.load: Built(_in_registers),
        **dict.fromkeys((tile.store, tile.atomic, tile.load_box, tile.store_box), _QUIET),
        unaligned.load_unaligned: Built(_said(_UNALIGNED + "and shifted")),
        unaligned.load_unaligned_ahead: Built(
            _said(_UNALIGNED + "an iteration early, and shifted")
        ),
        unaligned.prefetch_box: Built(
            _said("the L2 is asked for what lies {by} further along axis {axis}")
        ),
        smem.exchange: _QUIET,
        smem.shared_load: Built(_in_registers, "read"),
        smem.shared_get: Built(shared="read"),
        **dict.fromkeys((smem.shared_store, smem.shared_put), Built(shared="fill")),
        **dict.fromkeys(smem.BY_ELEMENT, Built(shared="fill")),
        smem.cp_async: Built(shared="fill", engine=" (cp.async)"),
        tma.tma_load: Built(shared="fill", engine=" (TMA)"),
        tma.tma_store: Built(shared="read", engine=" (TMA)"),
        mma.wgmma: Built(_product, "read"),
        mma.fma: Built(_fused, "read"),
        mma.wgmma_wait: Built(_in_registers),
        tile.dot: Built(_dot),
    },
    HARDWARE,
)


def _shape(v: Value) -> str:
    return "×".join(map(str, v.typed(Tile).shape))


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


def _bytes(o: Op) -> int:
    """Bytes of an allocation of shared memory, 0 of other ops."""
    if o.kind is mbarrier.mbarrier_alloc:
        return 8 * int(o.attrs["n"])
    if o.kind is not smem.shared_alloc:
        return 0
    return int(math.prod((*o.attrs["lead"], *o.attrs["shape"])) * o.attrs["dtype"].bytes)


def _buffers(placed: Func) -> Iterator[str]:
    use = _touching(placed)
    for o in walk(placed.body):
        if o.kind is not smem.shared_alloc:
            continue
        shape = "×".join(map(str, o.attrs["shape"]))
        by = use.get(o.result, {})
        shared = [o.attrs["alias"]] if o.attrs.get("alias") else o.attrs.get("reuses", ())
        reuse = f", in the bytes of {', '.join(shared)}" if shared else ""
        at = "" if o.attrs.get("offset") is None else f", at byte {o.attrs['offset']:,}"
        swizzle = f", {o.attrs['swizzle']}-byte swizzle" if o.attrs["swizzle"] else ""
        slots = math.prod(o.attrs["lead"])
        yield (
            f"{o.attrs['name']}: {slots} × {shape} {o.attrs['dtype']} = {_bytes(o):,} bytes"
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
            f"signalled by {_list(by.get('signal'), True)}; waited for by {_list(by.get('wait'), True)}"
        )


def _roles(o: Op) -> Iterator[tuple[Value, str, str]]:
    """(shared memory or barriers, what the op does there, by which engine) of its operands."""
    built = BUILT[o.kind]
    if built.shared:
        yield from (
            (v, built.shared, built.engine) for v in o.operands if isinstance(v.type, Shared)
        )
    if found := mbarrier.barrier_of(o):
        yield found[0], "wait" if o.kind.family is Family.WAIT else "signal", ""


Tasks = dict[str, dict[int, None]]  # by name: the lines of their ops


def _touching(placed: Func) -> dict[Value, dict[str, Tasks]]:
    """For each shared allocation and barrier: role ("fill", "read", "signal", "wait") -> the tasks."""
    made = definitions(placed.body)

    def origin(v: Value) -> Value:
        while (o := made.get(v)) is not None and o.kind in _PARTS:
            v = o.operands[0]
        return v

    found: dict[Value, dict[str, Tasks]] = {}
    for name, region in _regions(placed):
        for o in walk(region):
            for v, role, engine in _roles(o):
                tasks = found.setdefault(origin(v), {}).setdefault(role, {})
                lines = tasks.setdefault(name + engine, {})
                if o.loc is not None:
                    lines[_root(o.loc).line] = None
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


def _list(tasks: Tasks | None, with_lines: bool = False) -> str:
    def named(name: str, lines: dict[int, None]) -> str:
        if not with_lines or not lines:
            return name
        return f"{name} (line{'s' * (len(lines) > 1)} {', '.join(map(str, sorted(lines)))})"

    return " and ".join(named(*one) for one in (tasks or {}).items()) or "nobody"
