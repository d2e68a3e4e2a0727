"""The bytes of a script's cp.asyncs: as many as rows and offsets are known to be aligned to."""

from __future__ import annotations

from collections.abc import Sequence

from warploom.analysis.access import Accesses
from warploom.errors import CompileError
from warploom.ir.core import Builder, Func, Op, Value
from warploom.ir.ops import smem
from warploom.ir.rewrite import rewrite
from warploom.ir.types import Shared, View


def with_pieces(func: Func) -> Func:
    """The function with each cp_async of a box that has 0 bytes made in the widest pieces.  Raises
    CompileError `cp-async-pieces` where those asked for, or the narrowest that there are, are not known to be
    aligned (PTX ISA, cp.async: both addresses are multiples of the bytes copied)."""
    accesses = Accesses(func, func.target)

    def settle(o: Op, b: Builder) -> Sequence[Value] | None:
        if o.kind is not smem.cp_async or not isinstance(o.operands[0].type, View):
            return None
        view, dst, *offsets = o.operands
        known = accesses.piece_bytes(o.with_(operands=(view, *offsets)), dst.typed(Shared).shape)
        asked = o.attrs["bytes"]
        if not known or asked > known:
            raise _unaligned(o, asked, known)
        if not asked:
            smem.cp_async(b, *o.operands, bytes=known)
            return ()
        return None

    return rewrite(func, settle)


def _unaligned(o: Op, asked: int, known: int) -> CompileError:
    least = f", of which {known} are known to be aligned" if known else ""
    what = (
        f"in pieces of {asked} bytes{least}"
        if asked and known
        else "of rows not known to be aligned"
    )
    return CompileError(
        "cp-async-pieces",
        f"cp.async {what}",
        o.loc,
        help=(f"bytes={known}, or " if known else "")
        + "say what base, strides and offsets are multiples of: an argument's type in the signature, "
        "divisible= of the view, self.assume; else self.load_global and self.store_shared",
    )
