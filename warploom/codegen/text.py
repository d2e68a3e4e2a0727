"""The emitted text as it grows: lines, each with the op that it is for, and names."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from warploom.codegen.prelude import RESERVED
from warploom.errors import Loc
from warploom.ir.core import Op

INDENT = "  "


class Line(NamedTuple):
    """A line of the kernel's body, without its indentation.  op: of PLACED, None where it is for none."""

    depth: int
    text: str
    loc: Loc | None = None
    op: Op | None = None


class Text:
    """Lines in blocks, and the names that each block declares."""

    def __init__(self) -> None:
        self.out: list[Line] = []
        self.depth = 0
        self.op: Op | None = None  # what is being lowered
        self.loc: Loc | None = None
        self.shown: Loc | None = None
        self.scopes: list[set[str]] = [set(RESERVED)]
        # Of each block around: stem -> a number up to which its names are taken while the block is open.
        self.taken: list[dict[str, int]] = [{}]
        self.shared_by_ops: list[dict[Hashable, Any]] = [{}]  # of each block around
        self.given: set[str] = set()  # names, in whatever scope
        self.top: dict[str, str] = {}  # constants at the top: name -> value

    # ---- lines

    def line(self, text: str) -> None:
        if self.loc is not None and self.loc != self.shown and not text.startswith(("}", "#")):
            if self.shown is None or (self.loc.file, self.loc.line) != (
                self.shown.file,
                self.shown.line,
            ):
                where = f"// {Path(self.loc.file).name}:{self.loc.line}"
                self.out.append(Line(self.depth, where, self.loc, self.op))
            self.shown = self.loc
        self.out.append(Line(self.depth, text, self.loc, self.op))

    def line_if(self, tests: Iterable[str], text: str) -> None:
        """A statement under all of the conditions; "" is one that always holds."""
        test = all_of(tests)
        self.line(f"if ({test}) {text}" if test else text)

    def lines(self, texts: Iterable[tuple[int, str]]) -> None:
        for extra, text in texts:
            self.depth += extra
            self.line(text)
            self.depth -= extra

    def unrolled(self, name: str, count: int, body: str = "") -> None:
        """The head of an unrolled loop, and its body or what the next line is of it."""
        self.line("#pragma unroll")
        self.line(f"for (int {name} = 0; {name} < {count}; ++{name}){' ' * bool(body)}{body}")

    @contextmanager
    def block(self, header: str, tail: str = "}") -> Iterator[None]:
        """`header {` … `}` with a scope of its own."""
        self.line(f"{header} {{" if header else "{")
        self.depth += 1
        self.open_scope()
        self.shared_by_ops.append({})
        yield
        self.close_scope()
        self.shared_by_ops.pop()
        self.depth -= 1
        self.out.append(Line(self.depth, tail))

    # ---- names

    def open_scope(self) -> None:
        self.scopes.append(set())
        self.taken.append({})

    def close_scope(self) -> None:
        self.scopes.pop()
        self.taken.pop()

    def name(self, hint: str, otherwise: str = "x") -> str:
        """A name that is new in the visible scopes."""
        stem = identifier(hint).strip("_") or otherwise
        if stem[0].isdigit():
            stem = f"{otherwise}{stem}"
        joint = "_" if stem[-1].isdigit() else ""
        n = max(names.get(stem, 1) for names in self.taken)
        candidate = f"{stem}{joint}{n}" if n > 1 else stem
        while candidate in self.top or any(candidate in s for s in self.scopes):
            n += 1
            candidate = f"{stem}{joint}{n}"
        self.taken[-1][stem] = n
        self.scopes[-1].add(candidate)
        self.given.add(candidate)
        return candidate

    def name_in(self, scope: set[str], hint: str) -> str:
        """A name for the head of the task: new in every scope visible now."""
        name = self.name(hint)
        self.scopes[-1].discard(name)
        scope.add(name)
        return name

    def shared_in_scope(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """What the ops of a block have in common, names that it declares: made where it is first needed."""
        for scope in reversed(self.shared_by_ops):
            if key in scope:
                return scope[key]
        made = self.shared_by_ops[-1][key] = make()
        return made

    def constant(self, name: str, value: int | str) -> str:
        """A named constant at the top of the source."""
        wanted, n = name, 1
        while wanted in self.given or self.top.get(wanted, str(value)) != str(value):
            n += 1
            wanted = f"{name}_{n}"
        self.top[wanted] = str(value)
        return wanted


def identifier(name: str) -> str:
    """The name in letters that C has."""
    return re.sub(r"\W", "_", name, flags=re.ASCII)


def upper(name: str) -> str:
    return identifier(name).upper()


def is_used(name: str, text: str) -> bool:
    """Does a name stand in a text, by itself?"""
    # A search for a pattern that begins with \b takes a hundred times as long.
    found = (m.start() for m in re.finditer(rf"{re.escape(name)}\b", text))
    return any(not re.match(r"\w", text[at - 1 : at]) for at in found)


def all_of(tests: Iterable[str]) -> str:
    """C for "all of these hold"; "" where nothing is to be tested."""
    return " && ".join(x for x in tests if x)
