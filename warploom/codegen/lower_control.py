"""Structured control flow, tasks and rings."""

from __future__ import annotations

from warploom.codegen.context import Emitter, Lowering, defined
from warploom.codegen.registers import c_type, read
from warploom.codegen.text import all_of
from warploom.ir import format
from warploom.ir.core import Op, OpKind, Region, Value
from warploom.ir.ops import control, task, tile
from warploom.ir.ops.cluster import cluster_of
from warploom.ir.types import Scalar, Tile, dtype_of, elem_of


def _for(e: Emitter, o: Op) -> None:
    lo, hi, step, *init = o.operands
    (body,) = o.regions
    iv, *carried = body.params
    e.parallel_assign(list(zip(carried, init, strict=True)))
    if o.attrs.get("unroll") is not None:
        e.line(f"#pragma unroll {o.attrs['unroll']}")
    kind = c_type(elem_of(iv.type))
    e.open_scope()
    variable = e.storage.variables[iv]
    variable.name = name = e.name(iv.hint, "i")
    e.bind(variable)
    advance = f"++{name}" if e.const(step) == 1 else f"{name} += {e.scalar(step)}"
    with e.block(f"for ({kind} {name} = {e.scalar(lo)}; {name} < {e.scalar(hi)}; {advance})"):
        e.region(body)
        e.parallel_assign(list(zip(carried, body.yielded, strict=True)))
    e.close_scope()


def _while(e: Emitter, o: Op) -> None:
    condition, body = o.regions
    e.parallel_assign(list(zip(condition.params, o.operands, strict=True)))
    with e.block("while (true)"):
        e.region(condition)
        go, *carried = condition.yielded
        e.parallel_assign(list(zip(condition.params, carried, strict=True)))
        e.line(f"if (!{e.scalar(go)}) break;")
        e.region(body)
        e.parallel_assign(list(zip(condition.params, body.yielded, strict=True)))


def _if(e: Emitter, o: Op) -> None:
    then, other = o.regions
    c = e.scalar(o.operands[0])
    for v in o.results:  # both arms assign
        if not e.storage.variables[v].name:
            e.declare(e.storage.variables[v])

    def arm(head: str, r: Region) -> bool:
        """The arm as a block, which is left out where nothing stands in it; is it there?"""
        before = len(e.out)
        with e.block(head):
            start = len(e.out)
            e.region(r)
            e.parallel_assign(list(zip(o.results, r.yielded, strict=True)))
            is_there = len(e.out) > start
        if not is_there:
            del e.out[before:]
        return is_there

    if not arm(f"if ({c})", then):
        arm(f"if (!{c})", other)
        return
    closing = e.out.pop()
    if not arm("} else", other):
        e.out.append(closing)


def _device_assert(e: Emitter, o: Op) -> None:
    (c,) = o.operands
    where = f"{o.loc.file}:{o.loc.line}: " if o.loc else ""
    message = f"assertion failed: {where}{o.attrs['message']}\n".replace("%", "%%")
    failed = f"{{ printf({_quoted(message)}); __trap(); }}"
    if isinstance(c.type, Scalar):
        e.line(f"if (!{e.scalar(c)}) {failed}")
        return
    r, t = e.regs(c), c.typed(Tile)  # one branch: loads cross none
    holds = (e.guarded(t, i, read(x, r.elem), "true") for i, x in enumerate(r.elements))
    e.line(f"if (!({all_of(holds)})) {failed}")


PRINT = {"bool": "%d", "signed char": "%d", "short": "%d", "int": "%d", "i64": "%lld", "u8": "%u",
         "u16": "%u", "u32": "%u", "u64": "%llu", "float": "%g", "double": "%g"}  # fmt: skip


def _device_print(e: Emitter, o: Op) -> None:
    """Each number once, with its program's place in the grid and, of a tile, its own in the tile."""
    prefix = o.attrs["prefix"].replace("%", "%%")

    def line(name: str, form: str, values: list[str], tests: list[str]) -> None:
        text = _quoted(f"(%d, %d, %d) {prefix}{name}: {form}\n")
        given = ", ".join([text, "blockIdx.x", "blockIdx.y", "blockIdx.z", *values])
        e.line_if(tests, f"printf({given});")

    for v in o.operands:
        name = v.hint or "value"
        form = PRINT.get(c_type(elem_of(v.type)), "%p")
        if o.attrs.get("hex") and form != "%p":
            form = form[:-1].replace("%", "0x%") + "x"
        if not isinstance(v.type, Tile):
            line(name, form, [e.scalar(v)], [] if e.elected else [e.use("leader")])
            continue
        r, layout = e.regs(v), v.type.layout
        holder, indices = e.holder(layout), ", ".join(["%d"] * len(v.type.shape))
        for i, element in enumerate(r.elements):
            at = [e.coordinate(layout, axis, i) for axis in range(len(v.type.shape))]
            values, tests = [*at, read(element, r.elem)], [holder, e.inside(v.type, i)]
            line(f"{name}[{indices}]", form, values, tests)


def _printf(e: Emitter, o: Op) -> None:
    pieces = format.parse(o.attrs["format"])
    directives = [p for p in pieces if isinstance(p, format.Directive)]
    text = "".join(p.c if isinstance(p, format.Directive) else p.replace("%", "%%") for p in pieces)
    tiles = [v for v in o.operands if isinstance(v.type, Tile)]

    def line(values: list[str], tests: list[str]) -> None:
        given = (_printed(d, v, x) for d, v, x in zip(directives, o.operands, values, strict=True))
        call = f"printf({', '.join([_quoted(text), *given])});"
        e.line_if(tests, call)

    if not tiles:
        line([e.scalar(v) for v in o.operands], [] if e.elected else [e.use("leader")])
        return
    whole = tiles[0].typed(Tile)
    holder, regs = e.holder(whole.layout), {v: e.regs(v) for v in tiles}
    for i in range(whole.layout.registers):
        values = [
            read(regs[v].elements[i], regs[v].elem) if v in regs else e.scalar(v)
            for v in o.operands
        ]
        line(values, [holder, e.inside(whole, i)])


def _printed(d: format.Directive, v: Value, text: str) -> str:
    """A value as what its directive takes."""
    elem = dtype_of(v.type)
    if elem.is_float:
        return f"(double)({text})"
    if d.conversion in format.UNSIGNED:
        narrow = f"({c_type(elem)})"
        unsigned = {8: "(u8)", 16: "(u16)", 32: "(u32)"}.get(elem.bits, "")
        return f"(u64){unsigned}{narrow}({text})"
    return f"({'int' if d.conversion == 'c' else 'i64'})({text})"


_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def _quoted(text: str) -> str:
    """A C string."""
    return '"' + "".join(_ESCAPES.get(c, c) for c in text) + '"'


def _elect(e: Emitter, o: Op) -> None:
    assert e.frame is not None
    (body,) = o.regions
    e.elected = True
    with e.block(f"if ({e.electing(o)})"):
        e.region(body)
    e.elected = False
    if o.attrs.get("synced"):
        e.line("__syncwarp();")


def _replica_id(e: Emitter, o: Op) -> None:
    assert e.frame is not None
    if e.frame.replicas == 1:
        e.constants[o.result] = 0
        e.env[o.result] = "0"
    else:
        e.env[o.result] = e.use("replica")


def _ring_next(e: Emitter, o: Op) -> None:
    slot, phase = o.operands
    next_slot, next_phase = o.results
    depth = o.attrs["depth"]
    if depth == 1:
        e.define(next_slot, "0")
        e.define(next_phase, f"{e.scalar(phase)} ^ 1")
        return
    e.define(next_slot, f"{e.scalar(slot)} + 1", is_mutable=True)
    e.define(next_phase, e.scalar(phase), is_mutable=True)
    s, p = e.scalar(next_slot), e.scalar(next_phase)
    with e.block(f"if ({s} == {depth})"):
        e.line(f"{s} = 0;")
        e.line(f"{p} ^= 1;")


def _assume(e: Emitter, o: Op) -> None:
    """Nothing: its operand isn't even computed (see `needed_ops`)."""


def _in_clusters(what: str) -> Lowering:
    """CUDA counts CTAs, a program is a cluster of them."""

    def counted(e: Emitter, o: Op) -> str:
        text, size = f"{what}.{'xyz'[o.attrs['axis']]}", cluster_of(e.func)[o.attrs["axis"]]
        return text if size == 1 else f"(int){text} / {size}"

    return defined(counted)


LOWER: dict[OpKind, Lowering] = {
    tile.program_id: _in_clusters("blockIdx"),
    tile.num_programs: _in_clusters("gridDim"),
    tile.globaltimer: defined(lambda e, o: "globaltimer()"),
    control.for_: _for,
    control.while_: _while,
    control.if_: _if,
    control.assume: _assume,
    control.device_assert: _device_assert,
    control.device_print: _device_print,
    control.printf: _printf,
    task.replica_id: _replica_id,
    task.elect: _elect,
    task.ring_next: _ring_next,
}
