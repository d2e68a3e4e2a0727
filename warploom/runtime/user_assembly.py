"""What NVRTC and ptxas say against assembly that a user wrote, told at the user's line."""

from __future__ import annotations

import re

from warploom.codegen.lower_arith import asm_text
from warploom.errors import CompileError, InternalError, Note
from warploom.ir.core import Op, Region, walk
from warploom.ir.ops import arith
from warploom.runtime.nvrtc import RefusedTextError

# By what ptxas says: what to do.
_ADVICE = {
    "Duplicate definition": "put the assembly into braces, { … }: it stands once for every `pack` elements",
    "Not a name of any known instruction": "see the instruction's spelling in the PTX ISA",
    "Arguments mismatch": "let the letters of `constraints` (r, h, l, f, d) fit the instruction's types",
    "Unexpected instruction types": "let the instruction's types fit those that the PTX ISA lists for it",
    "Parsing error": "end each instruction with a semicolon; close what is opened",
    "requires .target": "use an instruction that the chip has, or ask for another target",
    "not supported on .target": "use an instruction that the chip has, or ask for another target",
    "asm operand": "number the operands from $0: the results first, then args",
}
_USUAL = "correct the assembly; $0 … are the results, then args, in registers as `constraints` names them"


def told_to_user(refused: RefusedTextError, body: Region) -> CompileError | InternalError:
    """The refusal as an error at the user's line, where an inline_asm of `body` emits what was refused.

    Several of the same assembly can't be told apart: those after the first are notes."""
    ops = (o for o in walk(body) if o.kind is arith.inline_asm)
    places = list(dict.fromkeys(o.loc for o in ops if _emits(o, refused)))
    if not places:
        return refused
    help = next((told for said, told in _ADVICE.items() if said in refused.told), _USUAL)
    notes = tuple(Note("the same assembly stands here", loc) for loc in places[1:])
    text = _spaced(refused.block or refused.line)
    what = f"{refused.compiler} refuses `{text}`: {refused.told}"
    return CompileError("inline-asm", what, places[0], notes, help)


def _emits(o: Op, refused: RefusedTextError) -> bool:
    if refused.compiler == "NVRTC":
        return f"asm volatile({asm_text(o.attrs['asm'])} :" in refused.line
    if "near ''" in refused.told:  # at the end of the whole text: something wasn't closed
        return bool(o.attrs["asm"].count("{") != o.attrs["asm"].count("}"))
    pieces = re.split(r"(\$\$|\$\d+|\$\{\d+\})", _spaced(o.attrs["asm"]))
    own = refused.line in refused.block or "Parsing error" in refused.told
    pattern = "".join(
        re.escape("$" if p == "$$" else p) if i % 2 == 0 or p == "$$" else r"[^\s,;]+"
        for i, p in enumerate(pieces)
    )
    return own and re.fullmatch(pattern, _spaced(refused.block)) is not None


def _spaced(text: str) -> str:
    return " ".join(text.split())
