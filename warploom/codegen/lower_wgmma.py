"""Products of the asynchronous matrix unit.

Facts: PTX ISA, "wgmma", matrix descriptors: bits 0-13 start, 16-29 leading, 32-45 stride byte offset, each in
units of 16 bytes, 62-63 swizzle mode (1: 128, 2: 64, 3: 32 bytes).  With swizzled layouts:

    K-major    stride: from 8 rows of M or N to the next; leading: unused (1)
    MN-major   leading: from one panel (swizzle bytes of M or N) to the next; stride: from 8 of K to the next
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from warploom.codegen import ptx
from warploom.codegen.context import Emitter, Lowering
from warploom.codegen.lower_casts import rounded, same_bits
from warploom.codegen.lower_shared import geometry, plain
from warploom.codegen.registers import BYTES, Array, Regs, word, words_of
from warploom.errors import InternalError
from warploom.ir.core import Op, OpKind
from warploom.ir.ops import cluster, mma, regs
from warploom.ir.types import InFlight, Shared, Tile, dtype_of, u32
from warploom.layout import wgmma_a, wgmma_acc
from warploom.layout.shared import Geometry, byte_offset

SWIZZLE_MODE = {128: 1, 64: 2, 32: 3}
ADDRESS_MASK = "0x3ffff"  # of an address in a matrix descriptor


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

    left = _left_operand(e, o, k_step)
    b_desc, b_geometry = descriptor(e, o, 1, "b")
    known = e.constants.get(use)
    first_use = e.scalar(use) if known is None else str(int(bool(known)))
    m_major = not in_registers and a.type.inner == 0  # type: ignore[attr-defined]
    for m_at in range(0, m, e.target.matrix_unit().m):
        for n_at, width in pieces:
            form = ptx.Wgmma(
                width, a_dtype, bt.dtype, m_major, bt.inner == 1, in_registers, k // k_step
            )
            e.made.update(form.definitions())
            first = (m_at // 64 * n + n_at) // 2  # this instruction's first accumulator
            registers = d.name if first == 0 else f"{d.name} + {first}"
            steps = [
                f"{left(m_at, k_at)}, {_stepped(b_desc, b_geometry, (k_at, n_at))}"
                for k_at in range(0, k, k_step)
            ]
            *before, last = [f"{form.name}({registers}, {first_use}", *steps]
            e.lines((2 * (i > 0), f"{text},") for i, text in enumerate(before))
            e.lines([(2, f"{last});")])


def _left_operand(e: Emitter, o: Op, k_step: int) -> Callable[[int, int], str]:
    """By row and column C for what an instruction takes of A there: four words, or a descriptor."""
    a = o.operands[0]
    if not isinstance(a.type, Tile):
        name, form = descriptor(e, o, 0, "a")
        return lambda m_at, k_at: _stepped(name, form, (m_at, k_at))
    dtype, (m, k) = a.type.dtype, a.type.shape
    if a.type.layout != wgmma_a((m, k), dtype.bits):
        raise InternalError(f"codegen: wgmma's A in registers is laid out as {a.type.layout}")
    fragment, per = e.regs(a), 4 // dtype.bytes
    if mma.packs(o):
        fragment = _packed(e, fragment, o.attrs.get("fenced", False))
        e.operand_words[o] = [word(fragment, i) for i in range(0, len(fragment.elements), per)]

    def words(m_at: int, k_at: int) -> str:
        start = (m_at // 64 * (k // k_step) + k_at // k_step) * 4 * per
        return ", ".join(word(fragment, start + per * i) for i in range(4))

    return words


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


LOWER: dict[OpKind, Lowering] = {
    mma.in_flight: _in_flight,
    mma.no_acc: _no_acc,
    mma.wgmma_fence: plain("wgmma_fence();"),
    mma.wgmma: _wgmma,
    mma.wgmma_commit: plain("wgmma_commit();"),
    mma.wgmma_wait: _wgmma_wait,
    regs.hold: _hold,
}
