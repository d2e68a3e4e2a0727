"""Statements that repeat with growing numbers as a loop that is unrolled while compiling.

    self.store_shared(out[0], acc[:, 0:64])
    self.sync()
    self.tma.shared_to_global(out[0], g_c, [row, col])
    self.store_shared(out[1], acc[:, 64:128])
    self.sync()
    self.tma.shared_to_global(out[1], g_c, [row, col + 64])

    for i in self.range(2, unroll="all"):
        self.store_shared(out[i], acc[:, 64 * i : 64 * i + 64])
        self.sync()
        self.tma.shared_to_global(out[i], g_c, [row, col + 64 * i])

Two repetitions are the same tokens but for integers, each of which grows by the same amount each time; a
term that the first one lacks is 0 there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from warploom.eject.text import Block, Line, Node

_TOKEN = re.compile(r'"[^"]*"|\'[^\']*\'|\d+\.\d*(?:e[+-]?\d+)?|\w+|//|<<|>>|[<>=!]=|\S')
_TIGHT = frozenset({"*", "/", "//", "%", "-", "<<", ">>", "&", "^", "|", "~"})


def reroll(nodes: Sequence[Node], free: Iterator[str]) -> list[Node]:
    """The nodes with repetitions as loops, at every depth.  free: names that nothing uses."""
    todo = [Block(n.head, reroll(n.body, free)) if isinstance(n, Block) else n for n in nodes]
    out: list[Node] = []
    while todo:
        found = _repetition(todo)
        if found is None:
            out.append(todo.pop(0))
            continue
        period, count, body = found
        name = next(free)
        head = Line(f'for {name} in self.range({count}, unroll="all"):', _line(todo[0]).loc)
        out.append(Block(head, [_with_index(n, name) for n in body]))
        del todo[: period * count]
    return out


def _line(n: Node) -> Line:
    return n.head if isinstance(n, Block) else n


def _repetition(nodes: Sequence[Node]) -> tuple[int, int, list[Node]] | None:
    """(statements, times, the statements with holes) of the longest repetition at the start."""
    best: tuple[int, int, list[Node]] | None = None
    for period in range(1, len(nodes) // 2 + 1):
        first = nodes[:period]
        steps = _steps(first, nodes[period : 2 * period])
        if steps is None:
            continue
        count = 2
        while nodes[period * count : period * (count + 1)] == [
            _filled(n, count) for n in steps
        ] and len(nodes) >= period * (count + 1):
            count += 1
        worth = period >= 3 or (period >= 2 and count >= 3)
        if worth and (best is None or period * count > best[0] * best[1]):
            best = period, count, steps
    return best


# ---- holes: in the text of a line, ⟨first,step⟩ stands for first + step·i


@dataclass(frozen=True)
class _Token:
    text: str
    start: int
    end: int


def _tokens(text: str) -> list[_Token]:
    return [_Token(m.group(), m.start(), m.end()) for m in _TOKEN.finditer(text)]


def _steps(first: Sequence[Node], second: Sequence[Node]) -> list[Node] | None:
    """The first repetition with holes where the second one differs; None where it is another thing."""
    out: list[Node] = []
    for a, b in zip(first, second, strict=True):
        if isinstance(a, Block) is not isinstance(b, Block):
            return None
        text = _with_holes(_line(a).text, _line(b).text)
        if text is None:
            return None
        line = Line(text, _line(a).loc)
        if isinstance(a, Block) and isinstance(b, Block):
            body = _steps(a.body, b.body) if len(a.body) == len(b.body) else None
            if body is None:
                return None
            out.append(Block(line, body))
        else:
            out.append(line)
    return out


def _with_holes(first: str, second: str) -> str | None:
    a, b = _tokens(first), _tokens(second)
    out, at, i, j = "", 0, 0, 0
    while i < len(a) or j < len(b):
        x = a[i] if i < len(a) else None
        y = b[j] if j < len(b) else None
        if x is not None and y is not None and x.text == y.text:
            i, j = i + 1, j + 1
        elif x is not None and y is not None and x.text.isdigit() and y.text.isdigit():
            out += first[at : x.start] + _hole(int(x.text), int(y.text) - int(x.text))
            at, i, j = x.end, i + 1, j + 1
        elif y is not None and y.text == "+" and j + 1 < len(b) and b[j + 1].text.isdigit():
            end = a[i - 1].end if i else 0
            out += first[at:end] + " + " + _hole(0, int(b[j + 1].text))
            at, j = end, j + 2
        else:
            return None
    return out + first[at:]


def _hole(first: int, step: int) -> str:
    return f"⟨{first},{step}⟩"


_HOLE = re.compile(r"( \+ )?⟨(\d+),(-?\d+)⟩")


def _filled(n: Node, i: int) -> Node:
    """Repetition number i."""

    def number(m: re.Match[str]) -> str:
        return f"{m[1] or ''}{int(m[2]) + i * int(m[3])}"

    return _mapped(n, lambda text: _HOLE.sub(number, text))


def _with_index(n: Node, name: str) -> Node:
    """The statement with a loop's index in its holes."""

    def write(text: str) -> str:
        out, at = "", 0
        for m in _HOLE.finditer(text):
            out += text[at : m.start()] + (m[1] or "")
            before, after = out.rstrip()[-1:], text[m.end() :].lstrip()
            term = _linear(int(m[2]), int(m[3]), name)
            tight = not term.isidentifier() and (
                before in _TIGHT or any(after.startswith(t) for t in _TIGHT)
            )
            term = f"({term})" if tight else term
            if not term.isalnum():  # a slice's bounds
                term = f" {term}" if out.endswith(":") else term
                term = f"{term} " if text[m.end() :].startswith(":") else term
            out += term
            at = m.end()
        return out + text[at:]

    return _mapped(n, write)


def _linear(first: int, step: int, name: str) -> str:
    term = name if step == 1 else f"{step} * {name}"
    if step < 0:
        return f"{first} - {-step} * {name}" if step != -1 else f"{first} - {name}"
    return f"{term} + {first}" if first else term


def _mapped(n: Node, fn: Callable[[str], str]) -> Node:
    line = Line(fn(_line(n).text), _line(n).loc)
    return Block(line, [_mapped(x, fn) for x in n.body]) if isinstance(n, Block) else line
