"""Statements as text: blocks, the user's lines above them, and lines of at most 100 columns."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from warploom.errors import Loc, source_line

WIDTH = 100
STEP = "    "


@dataclass(frozen=True)
class Line:
    """A statement.  loc: the user's line that it came from."""

    text: str
    loc: Loc | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Block:
    """A statement with a body."""

    head: Line
    body: list[Node]


Node = Line | Block


class Renderer:
    """Nodes as lines.  file: the user's own file; lines of others are quoted with their file's name."""

    def __init__(self, file: str) -> None:
        self.file = file

    def lines(self, nodes: Sequence[Node], indent: str, said: frozenset[str]) -> Iterator[str]:
        """said: the quotes that stand above already, in the blocks around this one."""
        for n in nodes:
            line = n.head if isinstance(n, Block) else n
            quote = self._quote(line)
            if quote and quote not in said:
                said |= {quote}
                yield indent + quote
            yield from wrapped(line.text, indent)
            if isinstance(n, Block):
                yield from self.lines(n.body, indent + STEP, said)

    def _quote(self, line: Line) -> str:
        """The user's line; "" where it is what stands here anyway."""
        if line.loc is None:
            return ""
        text = source_line(line.loc.file, line.loc.line).strip()
        name = "" if line.loc.file == self.file else f"{line.loc.file.rpartition('/')[2]}:"
        return f"# {name}{line.loc.line}: {text}" if text and text != line.text else ""


def wrapped(text: str, indent: str) -> Iterator[str]:
    """A statement on one line, or with the arguments of its last bracket on lines of their own."""
    if len(indent) + len(text) <= WIDTH:
        yield indent + text
        return
    opened = _last_bracket(text)
    if opened is None:
        yield indent + text
        return
    start, end = opened
    head, inside, tail = text[: start + 1], text[start + 1 : end], text[end:]
    yield indent + head
    if len(indent) + len(STEP) + len(inside) <= WIDTH:
        yield indent + STEP + inside
    else:
        parts = _parts(inside)
        # A comma after the only part would make a tuple of what is in parentheses, or of an index.
        named = start > 0 and (text[start - 1].isalnum() or text[start - 1] in "_)]")
        comma = "," if len(parts) > 1 or named == (text[start] == "(") else ""
        for part in parts:
            yield from wrapped(part + comma, indent + STEP)
    yield indent + tail


def _scan(text: str) -> Iterator[tuple[int, str, int]]:
    """(index, character, depth of brackets around it) outside of strings."""
    depth, quote = 0, ""
    for i, c in enumerate(text):
        if quote:
            quote = "" if c == quote else quote
            continue
        if c in "\"'":
            quote = c
            continue
        if c in ")]}":
            depth -= 1
        yield i, c, depth
        if c in "([{":
            depth += 1


def _last_bracket(text: str) -> tuple[int, int] | None:
    """Where the last outermost pair of brackets opens and closes."""
    opens: int | None = None
    found: tuple[int, int] | None = None
    for i, c, depth in _scan(text):
        if depth == 0 and c in "([{":
            opens = i
        elif depth == 0 and c in ")]}" and opens is not None and i > opens + 1:
            is_call = c == ")" or not text[i + 1 :].strip(",")  # no lines inside of an index
            found = (opens, i) if is_call else found
    return found


def _parts(text: str) -> list[str]:
    """What commas outside of brackets part."""
    cuts = [-1, *(i for i, c, depth in _scan(text) if depth == 0 and c == ","), len(text)]
    return [text[a + 1 : b].strip() for a, b in itertools.pairwise(cuts)]
