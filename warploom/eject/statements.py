"""Ops with effects, declarations and control flow as statements of a script, one function an op kind."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from warploom.analysis.access import alignments
from warploom.analysis.facts import Facts, parameters
from warploom.eject.assignments import Assignments
from warploom.eject.expressions import by_name, call, keywords, plain, quoted, sizes
from warploom.eject.spelling import enter, spelling_of, unspelled
from warploom.eject.text import Block, Line, Node
from warploom.explicit.program import SharedChoice, shared_shape
from warploom.ir.core import Op, OpKind, Region, Value
from warploom.ir.ops import (
    arith,
    cluster,
    combine,
    control,
    mbarrier,
    mma,
    regs,
    smem,
    task,
    tile,
    tma,
)
from warploom.ir.types import InFlight, Scalar, Shared, TensorMap, i32


class Statements(Assignments):
    """Writes blocks."""

    def block(self, region: Region, ending: Iterable[Node] = ()) -> list[Node]:
        """The statements of a region, then those of `ending`; `pass` where there are none."""
        found = [n for o in region.ops[:-1] for n in self.statement(o)]
        found += ending
        return found or [Line("pass")]

    def statement(self, o: Op) -> Sequence[Node]:
        if o in self.flow.late or (len(o.results) == 1 and o.result in self.flow.folded):
            return []
        row = spelling_of(o)
        if not row.is_value:
            found: str | Sequence[Node] = row.write(self, o)
            return [Line(found, o.loc)] if isinstance(found, str) else found
        text = self.expression(row, o).text
        if o.result not in self.flow.users:
            return [Line(text, o.loc)]
        if isinstance(o.result.type, Scalar) and _is_literal(text):  # a bare number has no dtype
            text = self.full(o.result)
        return [Line(f"{self.name(o.result)} = {text}", o.loc)]


def _is_literal(text: str) -> bool:
    return text.lstrip("-").replace(".", "").isdigit()


# ---- the table's rows.  A text is a line.

Writer = Callable[[Statements, Op], str | Sequence[Node]]


def statement(*kinds: OpKind, says: str = "") -> Callable[[Writer], Writer]:
    """Enters the spelling of kinds that are statements; says: see Spelling."""

    def register(write: Writer) -> Writer:
        enter(kinds, write, says, is_value=False)
        return write

    return register


for _kind, _name, _says in (
    (control.assume, "assume", ""),
    (control.device_assert, "device_assert", "message"),
    (smem.shared_store, "store_shared", ""),
    (smem.shared_put, "store_shared", ""),
    (smem.cp_async_commit, "cp_async.commit_group", ""),
    (smem.cp_async_wait, "cp_async.wait_group", "pending"),
    (tma.tma_store_commit, "tma.commit_group", ""),
    (mma.wgmma_fence, "wgmma.fence", ""),
    (mma.wgmma_commit, "wgmma.commit_group", ""),
    (regs.hold, "hold", ""),
):
    statement(_kind, says=_says)(partial(plain, name=_name, says=_says))
for _kind, _name, _says, _keys in (
    (mma.wgmma_wait, "wgmma.wait_group", "pending", ""),
    (regs.setmaxnreg, "setmaxnreg", "registers", "action"),
    (smem.fence_async, "fence.proxy_async", "", "space"),
):
    _write = partial(plain, name=_name, says=_says, keys=_keys, bare=True)
    statement(_kind, says=f"{_says} {_keys}")(_write)


@statement(control.yield_)
@statement(task.tasks, says="names warps replicas registers")
def _framed(s: Statements, o: Op) -> str:
    """Groups, and the assignments that end a block: the printer's."""
    raise unspelled(o, f"{o.kind.name} inside a block")


@statement(smem.shared_scatter, says="axis")
def _scatter(s: Statements, o: Op) -> str:
    place, v, index = map(s.full, o.operands)
    where = f"dim={o.attrs['axis']}", f"indices={index}", f"values={v}"
    return call("store_shared_scatter", place, *where)


# ---- declarations


@statement(tile.make_view, says="divisible promised")
def _view(s: Statements, o: Op) -> str:
    base, *numbers = o.operands
    rank = len(numbers) // 2
    extents, strides = numbers[:rank], numbers[rank:]
    dtype = s.dtype(o.result.type.dtype)  # type: ignore[attr-defined]
    parts = [s.text(base), f"dtype={dtype}", f"shape=[{', '.join(_size(s, v) for v in extents)}]"]
    if not _is_row_major(s, extents, strides):
        parts.append(f"strides=[{', '.join(_size(s, v) for v in strides)}]")
    divisible = o.attrs.get("divisible", ())
    known = alignments(Facts(s.flow.made.get, parameters(s.flow.func)), base, strides)
    if divisible and divisible != known:
        parts.append(f"divisible={divisible!r}")
    return f"{s.name(o.result)} = {call('global_view', *parts)}"


def _size(s: Statements, v: Value) -> str:
    """An extent or stride: global_view casts to int64 by itself."""
    o = s.flow.made.get(v)
    if v in s.flow.folded and o is not None and o.kind is arith.cast:
        return s.full(o.operands[0])
    return s.text(v)


def _is_row_major(s: Statements, extents: Sequence[Value], strides: Sequence[Value]) -> bool:
    """Whether the strides are those that global_view takes by itself (of one or two axes)."""
    last = s.flow.made.get(strides[-1])
    if len(extents) > 2 or last is None or last.attrs.get("value") != 1:
        return False
    return len(extents) == 1 or strides[0] is extents[1]


@statement(smem.shared_alloc, says="name lead shape dtype inner swizzle alias")
def _shared(s: Statements, o: Op) -> list[Node]:
    a, name = o.attrs, s.name(o.result)
    lead = [s.depths[o]] if o in s.depths else list(map(str, a["lead"]))
    shape = ", ".join([*lead, *map(str, a["shape"])])
    parts = [f"dtype={s.dtype(a['dtype'])}", f"shape=[{shape}]"]
    if a.get("alias") is not None:
        other = next(
            d.result
            for d in s.flow.func.body.ops
            if d.kind is smem.shared_alloc and d.attrs["name"] == a["alias"]
        )
        parts.append(f"alias={s.name(other)}")
    out: list[Node] = [Line(f"{name} = {call('shared_tensor', *parts)}", o.loc)]
    choice = SharedChoice(len(a["lead"]), _inner_by_use(s, o))
    _, _, inner, swizzle = shared_shape((*a["lead"], *a["shape"]), a["dtype"], choice)
    fixed = [f"inner={a['inner']}"] if a["inner"] != inner else []
    if fixed:
        choice = SharedChoice(len(a["lead"]), a["inner"])
        swizzle = shared_shape((*a["lead"], *a["shape"]), a["dtype"], choice)[3]
    if a["swizzle"] != swizzle:
        fixed.append(f"swizzle={a['swizzle']}")
    if fixed:
        out.append(Line(call("annotate_layout", name, *fixed), o.loc))
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
                m = u.operands[0].typed(TensorMap)
                found = m.inner
    return found


@statement(mbarrier.mbarrier_alloc, says="name n count")
def _barriers(s: Statements, o: Op) -> str:
    n, count = o.attrs["n"], o.attrs["count"]
    many = s.depths.get(o, str(n))
    counts = str(count) if n == 1 and o not in s.depths else f"[{count}] * {many}"
    return f"{s.name(o.result)} = {call('mbarrier.alloc', counts)}"


@statement(task.ring_next, says="depth")
def _next(s: Statements, o: Op) -> str:
    return f"{', '.join(map(s.name, o.results))} = {s.next_slot(o)}"


for _kind in combine.SEVERAL:

    @statement(_kind, says=" ".join(n for n in _kind.attributes if n != "layout"))
    def _several(s: Statements, o: Op) -> str:
        return f"{', '.join(map(s.name, o.results))} = {by_name(s, o)}"


@statement(task.replica_id)
def _index(s: Statements, o: Op) -> list[Node]:
    """Said at the group: `with … as i`."""
    return []


# ---- control flow


@statement(control.for_, says="unroll")
def _for(s: Statements, o: Op) -> list[Node]:
    (body,) = o.regions
    index, *params = body.params
    out = s.assign(s.flow.copies(params, o.operands[3:]), o.loc, first=True)
    name = s.name(index)
    bounds = _bounds(s, o)
    unroll = o.attrs.get("unroll")
    space = f"range({bounds})" if unroll is None else f"self.range({bounds}, unroll={unroll})"
    ending = s.assign(s.flow.copies(params, body.yielded), body.ops[-1].loc)
    out.append(Block(Line(f"for {name} in {space}:", o.loc), s.block(body, ending)))
    return out


def _bounds(s: Statements, o: Op) -> str:
    lo, hi, step = (s.tight(v) for v in o.operands[:3])
    known = lo.literal and hi.literal and step.literal
    texts = [lo.text, hi.text, step.text]
    if known and o.operands[0].type != Scalar(i32):
        texts = [s.full(v) for v in o.operands[:3]]
    if texts[2] != "1":
        return ", ".join(texts)
    return ", ".join(texts[:2]) if texts[0] != "0" else texts[1]


@statement(control.while_)
def _while(s: Statements, o: Op) -> list[Node]:
    condition, body = o.regions
    if condition.yielded[1:] != condition.params:
        raise unspelled(o, "a while whose condition changes variables")
    if s.block(condition) != [Line("pass")]:
        raise unspelled(o, "a while whose condition does more than compute")
    out = s.assign(s.flow.copies(condition.params, o.operands), o.loc, first=True)
    ending = s.assign(s.flow.copies(body.params, body.yielded), body.ops[-1].loc)
    head = Line(f"while {s.text(condition.yielded[0])}:", o.loc)
    out.append(Block(head, s.block(body, ending)))
    return out


@statement(control.if_)
def _if(s: Statements, o: Op) -> list[Node]:
    then, other = (
        s.block(r, s.assign(s.flow.copies(o.results, r.yielded), r.ops[-1].loc)) for r in o.regions
    )
    out: list[Node] = [Block(Line(f"if {s.text(o.operands[0])}:", o.loc), then)]
    if other != [Line("pass")]:
        out.append(Block(Line("else:"), other))
    return out


@statement(task.elect)
def _elect(s: Statements, o: Op) -> list[Node]:
    """One block, or two where waiting for stores follows their commit: neighbours are one again."""
    head = Line("with self.single_thread():", o.loc)
    body = s.block(o.regions[0])
    kinds = [i.kind for i in o.regions[0].ops[-3:-1]]
    if kinds == [tma.tma_store_commit, tma.tma_store_wait]:
        return [Block(head, body[:-1]), Block(head, body[-1:])]
    return [Block(head, body)]


@statement(control.device_print, says="prefix hex")
def _print(s: Statements, o: Op) -> str:
    values = map(s.full, o.operands)
    return call("device_print", quoted(o.attrs["prefix"]), *values, *keywords(o, "hex"))


@statement(control.printf, says="format")
def _printf(s: Statements, o: Op) -> str:
    return call("printf", quoted(o.attrs["format"]), *map(s.full, o.operands))


# ---- memory


@statement(tile.store, says="cache_policy")
def _store(s: Statements, o: Op) -> str:
    p, given, *mask = o.operands
    parts = [s.text(p), s.loose(given).text, *(f"mask={s.loose(m).text}" for m in mask)]
    return call("store", *parts, *keywords(o, "cache_policy=eviction_policy"))


@statement(tile.store_box, says="cache_policy")
def _store_box(s: Statements, o: Op) -> str:
    view, given, *offsets = o.operands
    where = f"offsets={s.items(offsets)}"
    return call("store_global", s.text(view), s.full(given), where, *keywords(o, "cache_policy"))


# ---- barriers


@statement(smem.group_sync, says="scope memory")
def _sync(s: Statements, o: Op) -> str:
    scope = o.attrs["scope"]
    if scope == "cta":
        raise unspelled(o, "a barrier of the CTA inside a group")
    return call("sync", *(['"task"'] if scope == "task" else []))


@statement(smem.named_barrier, says="id threads arrive n")
def _named(s: Statements, o: Op) -> str:
    a = o.attrs
    index = [f"index={s.text(v)}, n={a.get('n', 1)}" for v in o.operands]
    what = "arrive" if a["arrive"] else "sync"
    return call(f"named_barrier.{what}", str(a["id"]), str(a["threads"]), *index)


@statement(mbarrier.mbarrier_wait, says="scope sem")
def _wait(s: Statements, o: Op) -> str:
    array, index, phase = o.operands
    how = keywords(o, "sem", "scope")
    return call("mbarrier.wait", s.barrier(array, index), s.text(phase), *how)


def _remote(s: Statements, array: Value) -> tuple[Value, Value | None]:
    """(the barriers here, the rank of the CTA whose they are; None: its own)"""
    o = s.flow.made.get(array)
    return o.operands if o is not None and o.kind is cluster.peer else (array, None)  # type: ignore[return-value]


@statement(mbarrier.mbarrier_arrive, says="by sem count")
def _arrive(s: Statements, o: Op) -> str:
    array, rank = _remote(s, o.operands[0])
    by = o.attrs.get("by", "warp")  # scripts take 'thread' by themselves
    how = [*keywords(o, "sem"), *([f'by="{by}"'] if by != "thread" else []), *keywords(o, "count")]
    at = s.barrier(array, o.operands[1])
    if len(o.operands) > 2:
        return call("mbarrier.arrive_multicast", at, s.text(o.operands[2]), *how)
    if rank is None:
        return call("mbarrier.arrive", at, *how)
    return call("mbarrier.arrive_remote", at, s.text(rank), *how)


@statement(mbarrier.mbarrier_expect, says="bytes sem")
def _expect(s: Statements, o: Op) -> str:
    array, rank = _remote(s, o.operands[0])
    at, how = s.barrier(array, o.operands[1]), keywords(o, "sem")
    n = " + ".join(_expected(s, o)) or str(o.attrs["bytes"])
    if rank is None:
        return call("mbarrier.arrive_and_expect_tx", at, f"transaction_bytes={n}", *how)
    return call("mbarrier.arrive_and_expect_tx_remote", at, n, s.text(rank), *how)


def _expected(s: Statements, o: Op) -> list[str]:
    """The bytes as those of the copies that follow in the same block, where these make them up."""
    block, at = s.flow.place[o]
    left = o.attrs["bytes"]
    found: list[str] = []
    for u in block.ops[at + 1 :]:
        if left <= 0 or u.kind is mbarrier.mbarrier_expect:
            break
        if u.kind is tma.tma_load and u.operands[2:4] == o.operands:
            slot = u.operands[1]
            found.append(f"{s.text(slot)}.nbytes")
            left -= slot.typed(Shared).tile_bytes
    return found if left == 0 else []


# ---- clusters


@statement(cluster.cluster_arrive, says="sem")
def _cluster_arrive(s: Statements, o: Op) -> str:
    block, at = s.flow.place[o]
    how = keywords(o, "sem")
    both = not how and block.ops[at + 1].kind is cluster.cluster_wait
    return call("cluster.sync" if both else "cluster.arrive", *how)


@statement(cluster.cluster_wait)
def _cluster_wait(s: Statements, o: Op) -> str | Sequence[Node]:
    block, at = s.flow.place[o]
    arrival = block.ops[at - 1] if at else o
    is_sync = arrival.kind is cluster.cluster_arrive and "sem" not in arrival.attrs
    return [] if is_sync else call("cluster.wait")


# ---- wgmma and registers


@statement(mma.no_acc, says="shape dtype")
def _no_acc(s: Statements, o: Op) -> str:
    t = o.result.typed(InFlight)
    parts = f"dtype={s.dtype(t.tile.dtype)}", f"shape={sizes(o.attrs['shape'])}"
    return f"{s.name(o.result)} = {call('register_tensor', *parts)}"


@statement(tile.agree)
@statement(mma.in_flight)
def _in_flight(s: Statements, o: Op) -> str | Sequence[Node]:
    """No instruction; where the start has no variable of its own, it gets that of the accumulator."""
    (start,) = o.operands
    return f"{s.name(o.result)} = {s.full(start)}" if start in s.flow.folded else []


@statement(tile.convert_layout, says="layout")
def _convert(s: Statements, o: Op) -> Sequence[Node]:
    text = call("annotate_layout", s.name(o.result), f'"{o.attrs["layout"]}"')
    first = _in_flight(s, o)
    return [*([Line(first, o.loc)] if isinstance(first, str) else []), Line(text, o.loc)]


@statement(mma.wgmma)
def _wgmma(s: Statements, o: Op) -> str:
    a, b, acc, use = map(s.text, o.operands)
    return call("wgmma.mma", a, b, acc, *([f"use_acc={use}"] if use != "True" else []))
