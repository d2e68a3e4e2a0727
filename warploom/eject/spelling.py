"""How scripts write each op: one table, which expressions.py (values) and statements.py fill."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from warploom.errors import CompileError
from warploom.ir.core import Level, Op, OpKind
from warploom.ir.rules import Rules


@dataclass(frozen=True)
class Spelling:
    """write: gives the text.  says: the attributes that it takes account of.  is_value: it is an expression.
    always: written at each use, however many there are: shorter than any name for it."""

    write: Callable[..., Any]
    says: frozenset[str]
    is_value: bool
    always: bool = False


SPELLINGS: Rules[Spelling] = Rules("how do scripts write it", {}, frozenset({Level.WARP}))


def enter(kinds: tuple[OpKind, ...], write: Callable[..., Any], says: str, **how: bool) -> None:
    """A row for each of the kinds, of which none has one."""
    assert not SPELLINGS.keys() & {*kinds}, kinds
    row = Spelling(write, frozenset(says.split()), **how)
    SPELLINGS.update(dict.fromkeys(kinds, row))


def unspelled(o: Op | None, what: str) -> CompileError:
    """The refusal of what scripts can't say."""
    return CompileError(
        "eject",
        f"{what} has no spelling in scripts yet, so this kernel can't be ejected",
        o.loc if o is not None else None,
        help="leave out what needs it, or read the program with compiled.ir['WARP']",
    )


# How the kernel as written came to a place, which the script does by itself, and what is found of it again.
UNSAID = frozenset(("narrow", "flips"))


def spelling_of(o: Op) -> Spelling:
    """The row of an op.  Refuses an attribute that no spelling says, but where it says nothing either."""
    found = SPELLINGS[o.kind]
    for name, given in o.attrs.items():
        if name not in found.says | UNSAID and given not in (None, False, ()):
            raise unspelled(o, f"{name}={given} of {o.kind.name}")
    return found
