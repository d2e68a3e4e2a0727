"""Shared memory, mbarriers, TMA, wgmma.

Facts: PTX ISA, "wgmma", matrix descriptors: bits 0-13 start, 16-29 leading, 32-45 stride byte offset, each in
units of 16 bytes, 62-63 swizzle mode (1: 128, 2: 64, 3: 32 bytes).  With swizzled layouts:

    K-major    stride: from 8 rows of M or N to the next; leading: unused (1)
    MN-major   leading: from one panel (swizzle bytes of M or N) to the next; stride: from 8 of K to the next
"""

from __future__ import annotations

import itertools
import math

import numpy as np

from warploom.codegen import ptx
from warploom.codegen.context import Address, Emitter, Lowering
from warploom.codegen.lower_casts import rounded, same_bits, same_bits_of_word
from warploom.codegen.registers import BYTES, Array, Regs, word, words_of
from warploom.errors import InternalError
from warploom.ir.core import Op, OpKind, Value
from warploom.ir.ops import cluster, grid, mbarrier, mma, regs, smem, tma
from warploom.ir.registers import action, counts_before
from warploom.ir.types import Barriers, InFlight, Shared, TensorMap, Tile, dtype_of, i64, u32, u64
from warploom.layout import wgmma_a, wgmma_acc
from warploom.layout.shared import Geometry, byte_offset

SWIZZLE_MODE = {128: 1, 64: 2, 32: 3}
BARRIER_BYTES = 8
ADDRESS_MASK = "0x3ffff"  # of an address in a matrix descriptor


def is_peer(s: Value) -> bool:
    """Is this shared memory of another CTA?"""
    return isinstance(s.type, Shared) and s.type.peer


def geometry(s: Shared | TensorMap) -> Geometry:
    """Of the allocated slot (a slice's addresses follow the slot's strides)."""
    return Geometry(s.box, s.dtype.bytes, s.inner, s.swizzle)


def _plain(text: str) -> Lowering:
    """Always this line."""
    return lambda e, o: e.line(text)


def declared(e: Emitter, o: Op) -> None:
    """Allocations and tensor maps: the frame has declared them."""


# ---- shared memory


def _shared_slot(e: Emitter, o: Op) -> None:
    s, *index = o.operands
    t = s.typed(Shared)
    at = e.shared(s)
    strides = [math.prod(t.lead[i + 1 :]) * t.slot_bytes for i in range(len(t.lead))]
    e.env[o.result] = _moved(e, o, at, list(zip(index, strides, strict=True)))


def _shared_slice(e: Emitter, o: Op) -> None:
    s, *block = o.operands
    t = s.typed(Shared)
    g = geometry(t)
    strides = []
    for axis, n in enumerate(o.attrs["shape"]):
        if axis == t.inner and t.swizzle:
            strides.append(n // g.row_elements * g.panel_bytes)
        elif axis == t.inner:
            strides.append(n * g.itemsize)
        else:
            strides.append(n * g.row_strides[axis] * g.row_bytes)
    e.env[o.result] = _moved(e, o, e.shared(s), list(zip(block, strides, strict=True)))


def _moved(e: Emitter, o: Op, at: Address, terms: list) -> Address:  # type: ignore[type-arg]
    """`at` plus Σ index·stride, in a variable of its own where that isn't constant."""
    text, offset = [], 0
    for index, stride in terms:
        known = e.const(index)
        if known is not None:
            offset += known * stride
        elif stride:
            text.append(f"{e.scalar(index)} * {stride}")
    if not text:
        return at.plus(offset=offset)
    name = e.name(o.result.hint, "slot")
    e.line(f"const u32 {name} = {' + '.join([at.base, *text])};")
    return Address(name, at.offset + offset)


def _shared_transpose(e: Emitter, o: Op) -> None:
    e.env[o.result] = e.shared(o.operands[0])


def _shared_get(e: Emitter, o: Op) -> None:
    (s,) = o.operands
    dtype = dtype_of(o.result.type)
    text = f"load_{'peer' if is_peer(s) else 'shared'}32({e.shared(s)})"
    if dtype.bits == 64:
        text = f"load_long({e.shared(s)})"
    if not e.elected:
        # The same in all lanes: told to the compiler, and all lanes have read when the warp goes on.
        text = f"__shfl_sync(~0u, {text}, 0)"
    if dtype.bits == 64:
        e.define(o.result, same_bits(text, i64, dtype))
    else:
        e.define(o.result, same_bits_of_word(text, dtype))


def _shared_put(e: Emitter, o: Op) -> None:
    s, value = o.operands
    dtype = dtype_of(value.type)
    if dtype.bits == 64:
        bits = same_bits(e.scalar(value), dtype, u64)
        e.line(f"store_shared64({e.shared(s)}, (u32)({bits}), (u32)(({bits}) >> 32));")
        return
    text = same_bits(e.scalar(value), dtype, u32)
    e.line(f"store_{'peer' if is_peer(s) else 'shared'}32({e.shared(s)}, {text});")


def _exchange(e: Emitter, o: Op) -> None:
    """The next op's way: see Emitter.exchange."""
    e.way = o


# ---- synchronisation


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
    base = e.shared(bar)
    if known is not None:
        return str(base.plus(offset=known * BARRIER_BYTES))
    return f"{base} + {BARRIER_BYTES} * {e.scalar(index)}"


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


# ---- TMA


def instruction_box(t: TensorMap, limit: int = 256) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(box of one copy instruction in tile axis order, the axes innermost dimension first)."""
    others = [a for a in range(len(t.box)) if a != t.inner]
    return geometry(t).copy_box(limit), (t.inner, *reversed(others))


def _copies(e: Emitter, t: TensorMap, offsets: list[str], s: Value) -> list[tuple[str, str]]:
    """(coordinates innermost first, shared address) of every instruction that moves a box to or from a slot
    (or a part of one)."""
    box, order = instruction_box(t, e.target.box_limit)
    at, g = e.shared(s), geometry(s.typed(Shared))
    out = []
    thin = [offsets[a] for a in reversed(t.thin)]
    ranges = [range(0, n, step) for n, step in zip(t.box, box, strict=True)]
    for start in itertools.product(*ranges):
        text = ", ".join([*(_plus(offsets[t.axes[a]], start[a]) for a in order), *thin])
        out.append((text, str(at.plus(offset=int(byte_offset(g, start))))))
    return out


def cache_policy(o: Op) -> str:
    """The last argument of a hinted access, with its comma; "" where the op has no hint."""
    policy = o.attrs.get("cache_policy")
    return f", l2_{policy}()" if policy else ""


def _plus(text: str, n: int) -> str:
    if n == 0:
        return text
    return str(int(text) + n) if text.isdigit() else f"{text} + {n}"


def _tma_load(e: Emitter, o: Op) -> None:
    m, dst, _, _, *offsets = o.operands
    assert isinstance(m.type, TensorMap)
    to_many = bool(o.attrs.get("multicast"))
    mask = f", {e.scalar(offsets.pop())}" if to_many else ""
    policy = cache_policy(o)
    name, definition = ptx.tma_load(m.type.rank, to_many, bool(policy))
    e.made[name] = definition
    bar = barrier(e, o, 2)
    for coordinates, address in _copies(e, m.type, [e.scalar(v) for v in offsets], dst):
        e.line(f"{name}({address}, &{e.env[m]}, {coordinates}, {bar}{mask}{policy});")


def _tma_store(e: Emitter, o: Op) -> None:
    m, src, *offsets = o.operands
    assert isinstance(m.type, TensorMap)
    policy = cache_policy(o)
    name, definition = ptx.tma_store(m.type.rank, o.attrs.get("reduce"), bool(policy))
    e.made[name] = definition
    for coordinates, address in _copies(e, m.type, [e.scalar(v) for v in offsets], src):
        e.line(f"{name}(&{e.env[m]}, {coordinates}, {address}{policy});")


def _tma_store_wait(e: Emitter, o: Op) -> None:
    e.line(f"tma_wait{'_read' if o.attrs.get('read', True) else ''}<{o.attrs['pending']}>();")


# ---- clusters


def _cta_rank(e: Emitter, o: Op) -> None:
    e.define(o.result, "cta_rank()")


def _cta_id(e: Emitter, o: Op) -> None:
    e.define(o.result, f"cta_id_{'xyz'[o.attrs['axis']]}()")


def _peer(e: Emitter, o: Op) -> None:
    x, rank = o.operands
    name = e.name(f"{o.result.hint or x.hint or 'x'}_of_peer")
    e.line(f"const u32 {name} = peer_address({e.shared(x)}, {e.scalar(rank)});")
    e.env[o.result] = Address(name)


def _cluster_arrive(e: Emitter, o: Op) -> None:
    e.line("__syncwarp();")
    e.line(f"cluster_arrive{'_relaxed' * (o.attrs.get('sem', 'release') == 'relaxed')}();")


# ---- wgmma


def _in_flight(e: Emitter, o: Op) -> None:
    e.assign(o.result, o.operands[0])


def _no_acc(e: Emitter, o: Op) -> None:
    e.array(o.result)


def _wgmma_wait(e: Emitter, o: Op) -> None:
    e.line(f"wgmma_wait<{o.attrs['pending']}>();")
    for v, result in zip(o.operands, o.results, strict=True):
        e.assign(result, v)
        e.line(f"pin({e.array(result).name});")
    for words in dict.fromkeys(tuple(_operand_words(e, x)) for x in e.finished.get(o, ())):
        _keep(e, words)


def _operand_words(e: Emitter, o: Op) -> list[str]:
    """Words of a wgmma's register operand; none where integers have not been packed yet."""
    a = o.operands[0]
    assert isinstance(a.type, Tile)
    if a.type.dtype.is_int:
        return e.operand_words.get(o, [])
    r = e.regs(a)
    return [word(r, i) for i in range(0, len(r.elements), 4 // a.type.dtype.bytes)]


def _keep(e: Emitter, words: tuple[str, ...]) -> None:
    """Operands stay in their registers up to here, in machine code of ptxas before 13.3 as well."""
    if not words:
        return
    name, _, first = words[0].rstrip("]").partition("[")
    if first.isdigit() and words == tuple(f"{name}[{int(first) + i}]" for i in range(len(words))):
        start = f"{name} + {first}" if int(first) else name
    else:
        start = e.name("kept")
        e.line(f"const u32 {start}[] = {{{', '.join(words)}}};")
    e.line(f"keep<{len(words)}>({start});")


def _hold(e: Emitter, o: Op) -> None:
    """One word that depends on all registers of the values."""
    words = []
    for v in o.operands:
        if isinstance(v.type, Tile):
            r, bits = e.regs(v), dtype_of(v.type).bits
            if bits == 64:
                words += words_of(r, 0, 8 * len(r.elements))
            else:
                words += [word(r, i) for i in range(0, len(r.elements), 32 // bits)]
        else:
            d = dtype_of(v.type)
            words.append(same_bits(rounded(e.scalar(v), d), d, u32))
    e.line(f"hold({' | '.join(dict.fromkeys(words))});")


def _stamp(e: Emitter, o: Op) -> None:
    buffer, program, *index = o.operands
    e.stamping = e.scalar(program), o.attrs["capacity"]
    what = str(o.attrs["site"])
    if index:
        known = e.const(index[0])
        what = (
            f"{what} | {e.scalar(index[0])} << 16" if known is None else f"{what} | {known} << 16"
        )
    n = e.constant("STAMP_BYTES", 8 * o.attrs["capacity"])
    e.line(f"stamp<{n}>({e.scalar(buffer)}, {e.use('stamp_at')}, {what});")


def descriptor(e: Emitter, o: Op, which: int, hint: str) -> tuple[str, Geometry]:
    """Defines the matrix descriptor of a shared operand's start; returns its name and geometry."""
    v = o.operands[which]
    t = v.typed(Shared)
    if t.swizzle not in SWIZZLE_MODE:
        raise InternalError(f"codegen: wgmma reads swizzled shared memory, not {t}")
    g = geometry(t)
    mn_major = t.inner == which  # a is (m, k), b is (k, n)
    leading = g.panel_bytes if mn_major else 16
    name = e.name(f"{v.hint or hint}_desc")
    address = str(e.shared(v))
    if cluster.cluster_of(e.func) != (1, 1, 1):
        # In a cluster a CTA's addresses hold its rank, above the 18 bits that a descriptor takes (PTX ISA,
        # matrix-descriptor-encode): it would fall into the leading byte offset.
        address = f"({address}) & {ADDRESS_MASK}"
    e.line(
        f"const u64 {name} = wgmma_desc<{leading}, {8 * g.row_bytes}, {SWIZZLE_MODE[t.swizzle]}>"
        f"({address});"
    )
    return name, g


def _wgmma(e: Emitter, o: Op) -> None:
    a, b, acc, use = o.operands
    bt = b.typed(Shared)
    assert isinstance(acc.type, InFlight)
    in_registers = isinstance(a.type, Tile)
    a_dtype = a.type.dtype  # type: ignore[attr-defined]
    m, n = acc.type.tile.shape
    k = bt.shape[0]
    if acc.type.tile.layout != wgmma_acc((m, n)):
        raise InternalError(
            f"codegen: wgmma accumulates in wgmma_acc({m}x{n}), not {acc.type.tile.layout}"
        )
    e.assign(o.result, acc)
    d = e.array(o.result)
    pieces = _pieces(n, ptx.columns(bt.dtype))
    k_step = 32 // bt.dtype.bytes

    fragment: Regs | None = None
    a_desc, a_geometry = "", None
    if in_registers:
        assert isinstance(a.type, Tile)
        if a.type.layout != wgmma_a((m, k), a_dtype.bits):
            raise InternalError(f"codegen: wgmma's A in registers is laid out as {a.type.layout}")
        fragment = e.regs(a)
        if mma.packs(o):
            fragment = _packed(e, fragment, o.attrs.get("fenced", False))
            per = 4 // a_dtype.bytes
            e.operand_words[o] = [word(fragment, i) for i in range(0, len(fragment.elements), per)]
    else:
        a_desc, a_geometry = descriptor(e, o, 0, "a")
    b_desc, b_geometry = descriptor(e, o, 1, "b")

    known = e.constants.get(use)
    for m_at in range(0, m, e.target.matrix_unit().m):
        for n_at, width in pieces:
            form = ptx.Wgmma(
                width,
                a_dtype,
                bt.dtype,
                not in_registers and a.type.inner == 0,  # type: ignore[attr-defined]
                bt.inner == 1,
                in_registers,
                k // k_step,
            )
            e.made.update(form.definitions())
            first = (m_at // 64 * n + n_at) // 2  # this instruction's first accumulator
            registers = d.name if first == 0 else f"{d.name} + {first}"
            first_use = e.scalar(use) if known is None else str(int(bool(known)))
            steps = []
            for k_at in range(0, k, k_step):
                if fragment is not None:
                    n_words = 4
                    per = 4 // a_dtype.bytes
                    start = (m_at // 64 * (k // k_step) + k_at // k_step) * n_words * per
                    given = ", ".join(word(fragment, start + per * i) for i in range(n_words))
                else:
                    assert a_geometry is not None
                    given = _stepped(a_desc, a_geometry, (m_at, k_at))
                other = _stepped(b_desc, b_geometry, (k_at, n_at))
                steps.append(f"{given}, {other}")
            *before, last = [f"{form.name}({registers}, {first_use}", *steps]
            e.lines((2 * (i > 0), f"{text},") for i, text in enumerate(before))
            e.lines([(2, f"{last});")])


def _packed(e: Emitter, r: Regs, fenced: bool) -> Regs:
    """A register operand of integers in words."""
    packed = Array(e.name("a_words"), BYTES, len(r.elements))
    values = ", ".join(word(r, i) for i in range(0, packed.count, 4))
    e.line(f"{packed.declaration} = {{{values}}};")
    if fenced:
        e.line("wgmma_fence();")
    return packed.whole


def _stepped(desc: str, g: Geometry, at: tuple[int, int]) -> str:
    """A descriptor moved to the element at `at`: the start address advances, unswizzled, as the hardware
    permutes the bits of the address that it computes."""
    plain = Geometry(g.shape, g.itemsize, g.inner, g.swizzle)
    linear = int(plain.permute(np.asarray(byte_offset(plain, at), np.int64)))
    return f"{desc} + {linear >> 4}" if linear else desc


def _pieces(n: int, widths: tuple[int, ...]) -> list[tuple[int, int]]:
    """Columns (start, width) of each instruction, the widest first.  Where operands may be MN-major there is
    every width up to the largest, so that each start falls on a whole panel."""
    out, start = [], 0
    while start < n:
        width = max(w for w in widths if w <= n - start)
        out.append((start, width))
        start += width
    return out


# ---- the grid


def _grid_release(e: Emitter, o: Op) -> None:
    call = f"grid_release<{e.constant('LAST_WAVE', o.attrs['last'])}>();"
    e.line(
        f"if (threadIdx.x < {e.target.warp_size}) {call}" if o.attrs.get("by") == "warp" else call
    )


LOWER: dict[OpKind, Lowering] = {
    tma.tensor_map: declared,
    smem.shared_alloc: declared,
    mbarrier.mbarrier_alloc: declared,
    smem.shared_slot: _shared_slot,
    smem.shared_slice: _shared_slice,
    smem.shared_transpose: _shared_transpose,
    smem.shared_get: _shared_get,
    smem.shared_put: _shared_put,
    smem.exchange: _exchange,
    smem.fence_async: _fence_async,
    smem.group_sync: Emitter.meet,
    smem.named_barrier: _named_barrier,
    regs.setmaxnreg: _setmaxnreg,
    mbarrier.mbarrier_wait: _mbarrier_wait,
    mbarrier.mbarrier_arrive: _mbarrier_arrive,
    mbarrier.mbarrier_expect: _mbarrier_expect,
    tma.tma_load: _tma_load,
    tma.tma_store: _tma_store,
    tma.tma_store_commit: _plain("tma_commit();"),
    tma.tma_store_wait: _tma_store_wait,
    cluster.cta_rank: _cta_rank,
    cluster.cta_id: _cta_id,
    cluster.peer: _peer,
    cluster.cluster_arrive: _cluster_arrive,
    cluster.cluster_wait: _plain("cluster_wait();"),
    grid.grid_wait: _plain("grid_wait();"),
    grid.grid_release: _grid_release,
    mma.in_flight: _in_flight,
    mma.no_acc: _no_acc,
    mma.wgmma_fence: _plain("wgmma_fence();"),
    mma.wgmma: _wgmma,
    mma.wgmma_commit: _plain("wgmma_commit();"),
    mma.wgmma_wait: _wgmma_wait,
    regs.hold: _hold,
    smem.stamp: _stamp,
}
