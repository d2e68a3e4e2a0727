"""Ops with effects, declarations and control flow as statements of a script, one function an op kind."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from warploom.analysis.access import alignments
from warploom.analysis.facts import Facts, parameters
from warploom.eject.assignments import Assignments
from warploom.eject.expressions import (
    EXPRESSIONS,
    SAID,
    barrier,
    check_attributes,
    hint,
    quoted,
    sizes,
    slot_bytes,
    unspelled,
)
from warploom.eject.text import Block, Line, Node
from warploom.explicit.program import SharedChoice, shared_shape
from warploom.ir.core import Op, OpKind, Region, Value
from warploom.ir.ops import arith, cluster, control, mbarrier, mma, regs, smem, task, tile, tma
from warploom.ir.types import InFlight, Scalar, TensorMap, Tile, i32

Writer = Callable[["Statements", Op], list[Node]]
STATEMENTS: dict[OpKind, Writer] = {}


def writes(*kinds: OpKind, says: str = "") -> Callable[[Writer], Writer]:
    """As of expressions."""

    def register(fn: Writer) -> Writer:
        STATEMENTS.update(dict.fromkeys(kinds, fn))
        SAID.update(dict.fromkeys(kinds, frozenset(says.split())))
        return fn

    return register


class Statements(Assignments):
    """Writes blocks."""

    # ---- blocks

    def block(self, region: Region, ending: Iterable[Node] = ()) -> list[Node]:
        """The statements of a region, then those of `ending`; `pass` where there are none."""
        found = [n for o in region.ops[:-1] for n in self.statement(o)]
        found += ending
        return found or [Line("pass")]

    def statement(self, o: Op) -> list[Node]:
        if o in self.flow.late or (len(o.results) == 1 and o.result in self.flow.folded):
            return []
        check_attributes(o)
        write = STATEMENTS.get(o.kind)
        if write is not None:
            return write(self, o)
        if o.kind not in EXPRESSIONS:
            raise unspelled(o, o.kind.name)
        text = EXPRESSIONS[o.kind](self.x, o).text
        if o.result not in self.flow.users:
            return [Line(text, o.loc)]
        if isinstance(o.result.type, Scalar) and _is_literal(text):  # a bare number has no dtype
            text = self.x.full(o.result)
        return [Line(f"{self.names[self.flow.find(o.result)]} = {text}", o.loc)]


def _is_literal(text: str) -> bool:
    return text.lstrip("-").replace(".", "").isdigit()


# ---- declarations


@writes(tile.make_view, says="divisible")
def _view(s: Statements, o: Op) -> list[Node]:
    x, (base, *numbers) = s.x, o.operands
    rank = len(numbers) // 2
    extents, strides = numbers[:rank], numbers[rank:]
    dtype = x.dtype(o.result.type.dtype)  # type: ignore[attr-defined]
    parts = [x.text(base), f"dtype={dtype}", f"shape=[{', '.join(_size(s, v) for v in extents)}]"]
    if not _is_row_major(s, extents, strides):
        parts.append(f"strides=[{', '.join(_size(s, v) for v in strides)}]")
    divisible = o.attrs.get("divisible", ())
    known = alignments(Facts(s.flow.made.get, parameters(s.flow.func)), base, strides)
    if divisible and divisible != known:
        parts.append(f"divisible={divisible!r}")
    name = s.names[s.flow.find(o.result)]
    return [Line(f"{name} = self.global_view({', '.join(parts)})", o.loc)]


def _size(s: Statements, v: Value) -> str:
    """An extent or stride: global_view casts to int64 by itself."""
    o = s.flow.made.get(v)
    if v in s.flow.folded and o is not None and o.kind is arith.cast:
        return s.x.full(o.operands[0])
    return s.x.text(v)


def _is_row_major(s: Statements, extents: Sequence[Value], strides: Sequence[Value]) -> bool:
    """Whether the strides are those that global_view takes by itself (of one or two axes)."""
    last = s.flow.made.get(strides[-1])
    if len(extents) > 2 or last is None or last.attrs.get("value") != 1:
        return False
    return len(extents) == 1 or strides[0] is extents[1]


@writes(smem.shared_alloc, says="name lead shape dtype inner swizzle alias")
def _shared(s: Statements, o: Op) -> list[Node]:
    a, name = o.attrs, s.names[s.flow.find(o.result)]
    lead = [s.depths[o]] if o in s.depths else list(map(str, a["lead"]))
    shape = ", ".join([*lead, *map(str, a["shape"])])
    parts = [f"dtype={s.x.dtype(a['dtype'])}", f"shape=[{shape}]"]
    if a.get("alias") is not None:
        other = next(
            d.result
            for d in s.flow.func.body.ops
            if d.kind is smem.shared_alloc and d.attrs["name"] == a["alias"]
        )
        parts.append(f"alias={s.names[s.flow.find(other)]}")
    out: list[Node] = [Line(f"{name} = self.shared_tensor({', '.join(parts)})", o.loc)]
    choice = SharedChoice(len(a["lead"]), _inner_by_use(s, o))
    _, _, inner, swizzle = shared_shape((*a["lead"], *a["shape"]), a["dtype"], choice)
    fixed = [f"inner={a['inner']}"] if a["inner"] != inner else []
    if fixed:
        choice = SharedChoice(len(a["lead"]), a["inner"])
        swizzle = shared_shape((*a["lead"], *a["shape"]), a["dtype"], choice)[3]
    if a["swizzle"] != swizzle:
        fixed.append(f"swizzle={a['swizzle']}")
    if fixed:
        out.append(Line(f"self.annotate_layout({name}, {', '.join(fixed)})", o.loc))
    return out


def _inner_by_use(s: Statements, o: Op) -> int | None:
    """The axis that the TMA copies of an allocation lay adjacent; None where there are none, or where parts
    are cut, which have to fit before a copy is seen."""
    pending, found = [o.result], None
    for v in pending:
        for u in s.flow.users.get(v, ()):
            if u.kind is smem.shared_slice:
                return None
            if u.kind is smem.shared_slot:
                pending.append(u.result)
            elif u.kind in (tma.tma_load, tma.tma_store) and found is None:
                m = u.operands[0].type
                assert isinstance(m, TensorMap)
                found = m.inner
    return found


@writes(mbarrier.mbarrier_alloc, says="name n count")
def _barriers(s: Statements, o: Op) -> list[Node]:
    n, count = o.attrs["n"], o.attrs["count"]
    many = s.depths.get(o, str(n))
    counts = str(count) if n == 1 and o not in s.depths else f"[{count}] * {many}"
    name = s.names[s.flow.find(o.result)]
    return [Line(f"{name} = self.mbarrier.alloc({counts})", o.loc)]


@writes(task.ring_next, says="depth")
def _next(s: Statements, o: Op) -> list[Node]:
    targets = ", ".join(s.names[s.flow.find(v)] for v in o.results)
    return [Line(f"{targets} = {s.next_slot(o)}", o.loc)]


@writes(task.replica_id)
def _index(s: Statements, o: Op) -> list[Node]:
    """Said at the group: `with … as i`."""
    return []


@writes(tma.tensor_map, says="box inner swizzle promote thin")
def _map(s: Statements, o: Op) -> list[Node]:
    """Said by the copies that use it."""
    return []


# ---- control flow


@writes(control.for_, says="unroll")
def _for(s: Statements, o: Op) -> list[Node]:
    (body,) = o.regions
    index, *params = body.params
    out = s.assign(s.flow.copies(params, o.operands[3:]), o.loc, first=True)
    name = s.names[s.flow.find(index)]
    bounds = _bounds(s, o)
    unroll = o.attrs.get("unroll")
    space = f"range({bounds})" if unroll is None else f"self.range({bounds}, unroll={unroll})"
    ending = s.assign(s.flow.copies(params, body.yielded), body.ops[-1].loc)
    out.append(Block(Line(f"for {name} in {space}:", o.loc), s.block(body, ending)))
    return out


def _bounds(s: Statements, o: Op) -> str:
    lo, hi, step = (s.x.tight(v) for v in o.operands[:3])
    known = lo.literal and hi.literal and step.literal
    texts = [lo.text, hi.text, step.text]
    if known and o.operands[0].type != Scalar(i32):
        texts = [s.x.full(v) for v in o.operands[:3]]
    if texts[2] != "1":
        return ", ".join(texts)
    return ", ".join(texts[:2]) if texts[0] != "0" else texts[1]


@writes(control.while_)
def _while(s: Statements, o: Op) -> list[Node]:
    condition, body = o.regions
    if condition.yielded[1:] != condition.params:
        raise unspelled(o, "a while whose condition changes variables")
    if s.block(condition) != [Line("pass")]:
        raise unspelled(o, "a while whose condition does more than compute")
    out = s.assign(s.flow.copies(condition.params, o.operands), o.loc, first=True)
    ending = s.assign(s.flow.copies(body.params, body.yielded), body.ops[-1].loc)
    head = Line(f"while {s.x.text(condition.yielded[0])}:", o.loc)
    out.append(Block(head, s.block(body, ending)))
    return out


@writes(control.if_)
def _if(s: Statements, o: Op) -> list[Node]:
    then, other = (
        s.block(r, s.assign(s.flow.copies(o.results, r.yielded), r.ops[-1].loc)) for r in o.regions
    )
    out: list[Node] = [Block(Line(f"if {s.x.text(o.operands[0])}:", o.loc), then)]
    if other != [Line("pass")]:
        out.append(Block(Line("else:"), other))
    return out


@writes(task.elect)
def _elect(s: Statements, o: Op) -> list[Node]:
    """One block, or two where waiting for stores follows their commit: neighbours are one again."""
    head = Line("with self.single_thread():", o.loc)
    body = s.block(o.regions[0])
    kinds = [i.kind for i in o.regions[0].ops[-3:-1]]
    if kinds == [tma.tma_store_commit, tma.tma_store_wait]:
        return [Block(head, body[:-1]), Block(head, body[-1:])]
    return [Block(head, body)]


@writes(control.assume)
def _assume(s: Statements, o: Op) -> list[Node]:
    return [Line(f"self.assume({s.x.text(o.operands[0])})", o.loc)]


@writes(control.device_assert, says="message")
def _assert(s: Statements, o: Op) -> list[Node]:
    message = quoted(o.attrs["message"])
    return [Line(f"self.device_assert({s.x.text(o.operands[0])}, {message})", o.loc)]


@writes(control.device_print, says="prefix")
def _print(s: Statements, o: Op) -> list[Node]:
    parts = [quoted(o.attrs["prefix"]), *(s.x.full(v) for v in o.operands)]
    return [Line(f"self.device_print({', '.join(parts)})", o.loc)]


@writes(control.printf, says="format")
def _printf(s: Statements, o: Op) -> list[Node]:
    parts = [quoted(o.attrs["format"]), *(s.x.full(v) for v in o.operands)]
    return [Line(f"self.printf({', '.join(parts)})", o.loc)]


# ---- memory


@writes(tile.store, says="cache_policy")
def _store(s: Statements, o: Op) -> list[Node]:
    p, value, *mask = o.operands
    parts = [s.x.tight(p).text, s.x.loose(value).text, *(f"mask={s.x.loose(m).text}" for m in mask)]
    parts += hint(o, "eviction_policy")
    return [Line(f"self.store({', '.join(parts)})", o.loc)]


@writes(tile.store_box, says="cache_policy")
def _store_box(s: Statements, o: Op) -> list[Node]:
    view, value, *offsets = o.operands
    parts = [s.x.text(view), s.x.full(value), f"offsets=[{s.x.items(offsets)}]", *hint(o)]
    return [Line(f"self.store_global({', '.join(parts)})", o.loc)]


@writes(smem.shared_store, smem.shared_put)
def _shared_store(s: Statements, o: Op) -> list[Node]:
    to, value = o.operands
    return [Line(f"self.store_shared({s.x.text(to)}, {s.x.full(value)})", o.loc)]


# ---- barriers


@writes(smem.fence_async, says="space")
def _fence(s: Statements, o: Op) -> list[Node]:
    space = 'space="global"' if o.attrs.get("space") == "global" else ""
    return [Line(f"self.fence.proxy_async({space})", o.loc)]


@writes(smem.group_sync, says="scope")
def _sync(s: Statements, o: Op) -> list[Node]:
    scope = o.attrs["scope"]
    if scope == "cta":
        raise unspelled(o, "a barrier of the CTA inside a group")
    return [Line("self.sync()" if scope == "replica" else 'self.sync("task")', o.loc)]


@writes(smem.named_barrier, says="id threads arrive n")
def _named(s: Statements, o: Op) -> list[Node]:
    a = o.attrs
    parts = [str(a["id"]), str(a["threads"])]
    if o.operands:
        parts += [f"index={s.x.text(o.operands[0])}", f"n={a.get('n', 1)}"]
    what = "arrive" if a["arrive"] else "sync"
    return [Line(f"self.named_barrier.{what}({', '.join(parts)})", o.loc)]


@writes(mbarrier.mbarrier_wait, says="scope sem")
def _wait(s: Statements, o: Op) -> list[Node]:
    array, index, phase = o.operands
    scope, how = o.attrs.get("scope", "cta"), _sem(o)
    how += "" if scope == "cta" else f', scope="{scope}"'
    return [
        Line(f"self.mbarrier.wait({barrier(s.x, array, index)}, {s.x.text(phase)}{how})", o.loc)
    ]


def _sem(o: Op) -> str:
    return ', sem="relaxed"' if o.attrs.get("sem") == "relaxed" else ""


def _remote(s: Statements, array: Value) -> tuple[Value, Value | None]:
    """(the barriers here, the rank of the CTA whose they are; None: its own)"""
    o = s.flow.made.get(array)
    return o.operands if o is not None and o.kind is cluster.peer else (array, None)  # type: ignore[return-value]


@writes(mbarrier.mbarrier_arrive, says="by sem count")
def _arrive(s: Statements, o: Op) -> list[Node]:
    array, rank = _remote(s, o.operands[0])
    by, how = o.attrs.get("by", "warp"), _sem(o)
    how += "" if by == "thread" else f', by="{by}"'
    if (count := o.attrs.get("count", 1)) > 1:
        how += f", count={count}"
    at = barrier(s.x, array, o.operands[1])
    if len(o.operands) > 2:
        mask = s.x.text(o.operands[2])
        return [Line(f"self.mbarrier.arrive_multicast({at}, {mask}{how})", o.loc)]
    if rank is None:
        return [Line(f"self.mbarrier.arrive({at}{how})", o.loc)]
    return [Line(f"self.mbarrier.arrive_remote({at}, {s.x.text(rank)}{how})", o.loc)]


@writes(mbarrier.mbarrier_expect, says="bytes sem")
def _expect(s: Statements, o: Op) -> list[Node]:
    array, rank = _remote(s, o.operands[0])
    at = barrier(s.x, array, o.operands[1])
    n = " + ".join(_expected(s, o)) or str(o.attrs["bytes"])
    if rank is None:
        parts = f"{at}, transaction_bytes={n}{_sem(o)}"
        return [Line(f"self.mbarrier.arrive_and_expect_tx({parts})", o.loc)]
    parts = f"{at}, {n}, {s.x.text(rank)}{_sem(o)}"
    return [Line(f"self.mbarrier.arrive_and_expect_tx_remote({parts})", o.loc)]


def _expected(s: Statements, o: Op) -> list[str]:
    """The bytes as those of the copies that follow in the same block, where these make them up."""
    block, at = s.flow.place[o]
    left = o.attrs["bytes"]
    found: list[str] = []
    for u in block.ops[at + 1 :]:
        if left <= 0 or u.kind is mbarrier.mbarrier_expect:
            break
        if u.kind is tma.tma_load and u.operands[2:4] == o.operands:
            found.append(f"{s.x.text(u.operands[1])}.nbytes")
            left -= slot_bytes(u.operands[1])
    return found if left == 0 else []


# ---- TMA and cp.async


def _options(s: Statements, o: Op, m: Value) -> str:
    """Keyword arguments of a copy: which axes of the view are the slot's, what the L2 fetches and keeps."""
    t, maker = m.type, s.flow.made[m]
    assert isinstance(t, TensorMap)
    leading = t.thin == tuple(range(len(t.thin)))
    text = "" if leading else f", dims={list(t.axes)}"
    if maker.attrs.get("promote", 256) != 256:
        text += f", promote={maker.attrs['promote']}"
    return "".join([text, *(f", {h}" for h in hint(o))])


def _viewed(s: Statements, m: Value) -> str:
    return s.x.text(s.flow.made[m].operands[0])


@writes(tma.tma_load, says="multicast cache_policy")
def _tma_load(s: Statements, o: Op) -> list[Node]:
    m, slot, array, index, *offsets = o.operands
    many = ""
    if o.attrs.get("multicast"):
        many = f", multicast_mask={s.x.text(offsets.pop())}"
    parts = (
        f"{_viewed(s, m)}, {s.x.text(slot)}, [{s.x.items(offsets)}], {barrier(s.x, array, index)}"
    )
    return [Line(f"self.tma.global_to_shared({parts}{many}{_options(s, o, m)})", o.loc)]


@writes(tma.tma_store, says="reduce cache_policy")
def _tma_store(s: Statements, o: Op) -> list[Node]:
    m, slot, *offsets = o.operands
    parts = f"{s.x.text(slot)}, {_viewed(s, m)}, [{s.x.items(offsets)}]"
    fn = o.attrs.get("reduce")
    how = f', reduce="{fn}"' if fn else ""
    return [Line(f"self.tma.shared_to_global({parts}{how}{_options(s, o, m)})", o.loc)]


@writes(tma.tma_store_commit)
def _tma_commit(s: Statements, o: Op) -> list[Node]:
    return [Line("self.tma.commit_group()", o.loc)]


@writes(tma.tma_store_wait, says="pending read")
def _tma_wait(s: Statements, o: Op) -> list[Node]:
    read = ", read=True" if o.attrs.get("read", True) else ""
    return [Line(f"self.tma.wait_group({o.attrs['pending']}{read})", o.loc)]


@writes(smem.cp_async, says="bytes")
def _cp_async(s: Statements, o: Op) -> list[Node]:
    source, to, *rest = o.operands
    size = f"bytes={o.attrs['bytes']}"
    if isinstance(source.type, Tile):
        masks = [f"mask={s.x.tight(m).text}" for m in rest]
        parts = ", ".join((s.x.tight(source).text, s.x.text(to), *masks, size))
    else:
        parts = f"{s.x.text(source)}, {s.x.text(to)}, [{s.x.items(rest)}], {size}"
    return [Line(f"self.cp_async.load({parts})", o.loc)]


@writes(mbarrier.cp_async_arrive)
def _cp_arrive(s: Statements, o: Op) -> list[Node]:
    return [Line(f"self.cp_async.arrive({barrier(s.x, *o.operands)})", o.loc)]


# ---- clusters


@writes(cluster.cluster_arrive, says="sem")
def _cluster_arrive(s: Statements, o: Op) -> list[Node]:
    block, at = s.flow.place[o]
    if o.attrs.get("sem", "release") != "release":
        return [Line(f'self.cluster.arrive(sem="{o.attrs["sem"]}")', o.loc)]
    both = block.ops[at + 1].kind is cluster.cluster_wait
    return [Line("self.cluster.sync()" if both else "self.cluster.arrive()", o.loc)]


@writes(cluster.cluster_wait)
def _cluster_wait(s: Statements, o: Op) -> list[Node]:
    block, at = s.flow.place[o]
    arrival = block.ops[at - 1] if at else o
    is_sync = arrival.kind is cluster.cluster_arrive and "sem" not in arrival.attrs
    return [] if is_sync else [Line("self.cluster.wait()", o.loc)]


# ---- wgmma


@writes(mma.no_acc, says="shape dtype")
def _no_acc(s: Statements, o: Op) -> list[Node]:
    t = o.result.type
    assert isinstance(t, InFlight)
    name, dtype = s.names[s.flow.find(o.result)], s.x.dtype(t.tile.dtype)
    shape = sizes(o.attrs["shape"])
    return [Line(f"{name} = self.register_tensor(dtype={dtype}, shape={shape})", o.loc)]


@writes(mma.in_flight)
def _in_flight(s: Statements, o: Op) -> list[Node]:
    """No instruction; where the start has no variable of its own, it gets that of the accumulator."""
    (start,) = o.operands
    if start not in s.flow.folded:
        return []
    return [Line(f"{s.names[s.flow.find(o.result)]} = {s.x.full(start)}", o.loc)]


@writes(tile.convert_layout, says="layout")
def _convert(s: Statements, o: Op) -> list[Node]:
    name = s.names[s.flow.find(o.result)]
    out: list[Node] = []
    if o.operands[0] in s.flow.folded:
        out.append(Line(f"{name} = {s.x.full(o.operands[0])}", o.loc))
    return [*out, Line(f'self.annotate_layout({name}, "{o.attrs["layout"]}")', o.loc)]


@writes(mma.wgmma_fence)
def _wgmma_fence(s: Statements, o: Op) -> list[Node]:
    return [Line("self.wgmma.fence()", o.loc)]


@writes(mma.wgmma)
def _wgmma(s: Statements, o: Op) -> list[Node]:
    a, b, acc, flag = o.operands
    use = s.x.text(flag)
    option = "" if use == "True" else f", use_acc={use}"
    return [
        Line(
            f"self.wgmma.mma({s.x.text(a)}, {s.x.text(b)}, {s.x.text(acc)}{option})",
            o.loc,
        )
    ]


@writes(mma.wgmma_commit)
def _wgmma_commit(s: Statements, o: Op) -> list[Node]:
    return [Line("self.wgmma.commit_group()", o.loc)]


@writes(regs.hold)
def _hold(s: Statements, o: Op) -> list[Node]:
    return [Line(f"self.hold({', '.join(s.x.full(v) for v in o.operands)})", o.loc)]


@writes(mma.wgmma_wait, says="pending")
def _wgmma_wait(s: Statements, o: Op) -> list[Node]:
    return [Line(f"self.wgmma.wait_group({o.attrs['pending']})", o.loc)]


@writes(regs.setmaxnreg, says="registers action")
def _setmaxnreg(s: Statements, o: Op) -> list[Node]:
    action = f', action="{o.attrs["action"]}"' if o.attrs.get("action") else ""
    return [Line(f"self.setmaxnreg({o.attrs['registers']}{action})", o.loc)]
