"""How the frontend refuses: a code, a message, and always one line of advice.

`refuse` raises a `Refusal` without a location; the translator adds the span of the expression that it is
working on.  Refusals of the ops' own type rules (ir/ops) arrive as plain `RuleError`; their advice is
found here by code.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import NoReturn

from warploom.ir.core import RuleError

ADVICE: dict[str, str] = {
    "arange-empty": "give bounds with start < end",
    "axis": "axes count from 0, or from -1 backwards",
    "broadcast": "insert axes with x[:, None]; only axes of size 1 are repeated",
    "condition-type": "reduce a tile to one value first, or select elementwise with tl.where",
    "dot-acc": "start from tl.zeros((M, N), dtype=tl.float32); of integers tl.int32, of float64 tl.float64",
    "dot-dtype": "cast to one type that tensor cores multiply, as in b.to(a.dtype) or a.to(tl.float32)",
    "dot-integer": "cast both to tl.int8 where their values fit, or to tl.bfloat16, exact up to 256",
    "dot-operand": "load or compute a tile of rank 2 first",
    "dot-rank": "dot takes tiles of 2 axes, or of 3 with a batch first; use x[:, None] or tl.reshape",
    "dot-scale": "load scales of (M, K/32) and (N, K/32) as uint8, or (M, K/16) and (N, K/16) as float8e4nv",
    "dot-shape": "load the operand with the other shape, or transpose it with tl.trans(b)",
    "dtype-mismatch": "cast one side with .to(dtype)",
    "inline-asm": "give a constraint for each register: =r,=r,r for two results and an operand",
    "mask-shape": "build the mask from the same offsets as the pointer",
    "not-a-pointer": "add offsets to a pointer argument: ptr + offsets",
    "pointer-offset": "divide integers by //, or cast the offset with .to(tl.int32)",
    "program-axis": "use axis 0, 1 or 2",
    "reduce-operand": "a single value needs no reduction",
    "reshape": "the product of the new shape must equal the number of elements",
    "shape-mismatch": "insert axes with x[:, None], or make the blocks equal",
    "store-type": "cast the value to the pointer's dtype",
    "tma-shape": "give the shared tensor the view's dtype, and the box's shape",
    "type": "check the operands' types",
    "wgmma-major": "store operands that are not of 16 bits with K adjacent: a as (m, k), b as (n, k) rows",
    "wgmma-dtype": "multiply equal types (8-bit ones may differ) into float32, integers into int32",
    "wgmma-k": "split K into multiples of it",
    "wgmma-m": "64 rows for each warp group: use a larger tile, or pad it",
    "wgmma-shape": "a is (m, k), b (k, n), d (m, n): rows of K are b.transpose()",
    "wgmma-n": "use a tile of 8, 16 … 256 columns, or pad it",
    "view-rank": "give one offset for each axis of the block",
}


class Refusal(RuleError):
    """A RuleError that brings its advice along."""

    def __init__(self, code: str, message: str, help: str) -> None:
        super().__init__(message, code)
        self.help = help


def refuse(code: str, message: str, help: str) -> NoReturn:
    """The user's mistake at the expression now being translated."""
    raise Refusal(code, message, help)


def one_of(code: str, name: str, given: object, *allowed: object) -> None:
    """Refuses an argument that is none of what is allowed; "" and None stand for leaving it out."""
    if given not in allowed:
        *most, last = (repr(x) for x in allowed if x not in ("", None))
        refuse(code, f"{name}={given!r}", f"use {', '.join(most)} or {last}")


def still_in_flight(what: str) -> NoReturn:
    """Refuses the use of an accumulator before the wait for it."""
    refuse(
        "in-flight",
        f"{what} an accumulator that a wgmma may still be writing",
        "call self.wgmma.commit_group() and self.wgmma.wait_group(0) first",
    )


def advice(error: RuleError) -> str:
    """The one line of help that goes with a refusal."""
    return error.help if isinstance(error, Refusal) else ADVICE.get(error.code, ADVICE["type"])


def did_you_mean(name: str, known: Iterable[str], otherwise: str) -> str:
    """Advice for a misspelt name."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"did you mean {close[0]}?" if close else otherwise
