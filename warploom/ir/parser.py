"""Text to IR: the inverse of `ir/printer.py`.  The syntax is described in docs/internals/ir.md.

One regular expression cuts the text into tokens (a whole type is one token), and a recursive-descent
parser of one function a construct reads them.  It checks syntax and scope; whether ops are legal is
`ir/verify.py`'s business.
"""

from __future__ import annotations

import bisect
import json
import linecache
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NoReturn

import warploom.ir.ops  # noqa: F401  (declares the op kinds)
from warploom.errors import CompileError, Loc
from warploom.ir.core import KINDS, Fact, Func, Level, Op, Region, RuleError, Type, Value
from warploom.ir.types import (
    DTYPES,
    Barriers,
    Channel,
    DType,
    InFlight,
    Pointer,
    Scalar,
    Shared,
    TensorMap,
    Tile,
    Units,
    View,
)
from warploom.layout import Layout


def parse_func(text: str, file: str = "<ir>") -> Func:
    """The function that `text` spells.  Raises CompileError (code `ir-syntax`) with line and caret.

    Ops take their location from the text where it gives none (`loc("file":line:col-end)`).  A `file` in
    angle brackets is remembered, so that messages can quote its lines.
    """
    if file.startswith("<"):
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    return _Parser(text, file).func()


def parse_type(text: str) -> Type:
    """The type that `text` spells, as str() prints it.  Raises ValueError."""
    try:
        return _parse_type(text)
    except (KeyError, TypeError) as e:
        raise ValueError(f"no type: {text}") from e


# ---- types and attribute values that are one token

_SPLIT = re.compile(r"->|[<>]|, ")  # an arrow is no bracket (a layout's text may hold one)


def _split(text: str) -> list[str]:
    """Cuts at the commas that no angle bracket encloses."""
    parts, start, depth = [], 0, 0
    for m in _SPLIT.finditer(text):
        match m.group():
            case "<":
                depth += 1
            case ">":
                depth -= 1
            case ", " if not depth:
                parts.append(text[start : m.start()])
                start = m.end()
    return [*parts, text[start:]]


def _dims(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split("x")))


def _shaped(text: str) -> tuple[tuple[int, ...], str]:
    """`128x64xbf16` as ((128, 64), 'bf16')."""
    m = re.fullmatch(r"(\d+(?:x\d+)*)x(.+)", text)
    if m is None:
        raise ValueError(f"expected dimensions and an element, as in 128x64xbf16, found {text}")
    return _dims(m[1]), m[2]


def _fields(parts: list[str]) -> dict[str, str]:
    pairs = [part.partition("=") for part in parts]
    return {key: value for key, _, value in pairs}


def _elem(text: str) -> DType | Pointer:
    return (
        DTYPES[text] if text in DTYPES else _pointer([text.removeprefix("ptr<").removesuffix(">")])
    )


def _pointer(parts: list[str]) -> Pointer:
    (elem,) = parts
    return Pointer(DTYPES[elem])


def _tile(parts: list[str]) -> Tile:
    shape, elem = _shaped(parts[0])
    layout = parse_layout(", ".join(parts[1:])) if len(parts) > 1 else None
    return Tile(shape, _elem(elem), layout)


def _view(parts: list[str]) -> View:
    ((rank,), elem) = _shaped(*parts)
    return View(rank, DTYPES[elem])


def _tensor_map(parts: list[str]) -> TensorMap:
    box, elem = _shaped(parts[0])
    at = _fields(parts[1:])
    thin = tuple(int(n) for n in at.get("thin", "").split("/") if n)
    return TensorMap(box, DTYPES[elem], int(at["inner"]), int(at["swizzle"]), thin)


def _shared(parts: list[str]) -> Shared:
    m = re.fullmatch(r"((?:\[\d+\])*)(.+)", parts[0])
    if m is None:
        raise ValueError(f"no slots and shape: {parts[0]}")
    shape, elem = _shaped(m[2])
    at = _fields(parts[1:])
    box = _dims(at["of"]) if "of" in at else shape
    lead = tuple(map(int, re.findall(r"\d+", m[1])))
    dtype, inner, swizzle = DTYPES[elem], int(at["inner"]), int(at["swizzle"])
    return Shared(lead, shape, dtype, inner, swizzle, box, "peer" in at)


def _channel(parts: list[str]) -> Channel:
    items = tuple(_parse_type(part) for part in parts[1:])
    if not all(isinstance(item, Tile | Scalar) for item in items):
        raise ValueError("a channel carries tiles and numbers")
    return Channel(items, int(parts[0]))  # type: ignore[arg-type]


def _of_tile(parts: list[str]) -> Tile:
    tile = _parse_type(", ".join(parts))
    if not isinstance(tile, Tile):
        raise ValueError(f"only a tile can be in flight or in units, not {tile}")
    return tile


_TYPES: dict[str, Callable[[list[str]], Type]] = {
    "scalar": lambda parts: Scalar(DTYPES[parts[0]]),
    "ptr": _pointer,
    "tile": _tile,
    "view": _view,
    "tensormap": _tensor_map,
    "shared": _shared,
    "mbarriers": lambda parts: Barriers(int(parts[0]), "peer" in parts),
    "inflight": lambda parts: InFlight(_of_tile(parts)),
    "units": lambda parts: Units(_of_tile(parts)),
    "channel": _channel,
}


@lru_cache(maxsize=4096)
def _parse_type(text: str) -> Type:
    if text in DTYPES:
        return Scalar(DTYPES[text])
    name, _, inner = text.partition("<")
    return _TYPES[name](_split(inner.removesuffix(">")))


def parse_layout(text: str) -> Layout:
    """The layout that `#layout<…>` spells.  Raises ValueError."""
    return Layout.parse(text.removeprefix("#layout<").removesuffix(">"))


def _fact(text: str) -> Fact:
    return Fact(*map(int, text.removeprefix("fact<").removesuffix(">").split(",")))


# ---- tokens

_TOKEN = re.compile(
    r"""[ \t\r\n]*(?://[^\n]*\n?[ \t\r\n]*)*   # blanks and comments
    (?:(?P<value>%\w+)
     |(?P<bracketed>\#?[a-z]+<)                # opens a type, a layout or a fact: the scanner finds its end
     |(?P<number>-?(?:\d[\w.]*(?:(?<=e)[+-]\d+)?|inf\b|nan\b))
     |(?P<word>[A-Za-z_]\w*)
     |(?P<id>\#[\w./]+)
     |(?P<string>"(?:[^"\\\n]|\\.)*")
     |(?P<mark>@\w+|[-@(){}=:,])
     |(?P<end>\Z))""",
    re.VERBOSE | re.ASCII,
)
_BRACKET = re.compile(r"->|[<>]|\n")

Token = tuple[str, str, int]  # group of _TOKEN, text, offset


def _close(text: str, start: int) -> int:
    """The offset after the bracket that closes the one just before `start`; -1 where none does."""
    depth = 1
    for m in _BRACKET.finditer(text, start):
        match m.group():
            case "<":
                depth += 1
            case ">":
                depth -= 1
                if not depth:
                    return m.end()
            case "\n":
                return -1
    return -1


class _Parser:
    def __init__(self, text: str, file: str) -> None:
        self.text, self.file = text, file
        self.starts = [0, *(m.end() for m in re.finditer("\n", text))]  # offset of each line
        self.tokens: list[Token] = []
        self.tokenize()
        self.at = 0

    # -- tokens

    def tokenize(self) -> None:
        text, append, match = self.text, self.tokens.append, _TOKEN.match
        position, group = 0, ""
        while group != "end":
            m = match(text, position)
            if m is None:
                at = position + len(text[position:]) - len(text[position:].lstrip())
                self.fail(f"unexpected character {text[at : at + 1]!r}", (at, at + 1))
            group = m.lastgroup or ""
            start, position = m.span(group)
            if group == "bracketed":
                position = _close(text, position)
                if position < 0:
                    self.fail("this bracket is not closed on its line", m.span(group))
            append((group, text[start:position], start))

    def fail(self, message: str, span: tuple[int, int] | None = None) -> NoReturn:
        """Raises CompileError at `span` of the text, by default at the next token."""
        if span is None:
            _, token, offset = self.tokens[self.at]
            span = offset, offset + len(token)
        raise CompileError("ir-syntax", message, self.loc(*span))

    def loc(self, start: int, end: int) -> Loc:
        line = bisect.bisect_right(self.starts, start)
        col = start - self.starts[line - 1] + 1
        return Loc(self.file, line, col, col + end - start)

    def accept(self, text: str) -> bool:
        if self.tokens[self.at][1] == text:
            self.at += 1
            return True
        return False

    def expect(self, text: str) -> None:
        if self.tokens[self.at][1] != text:
            self.fail(f"expected `{text}`, found {self.found()}")
        self.at += 1

    def take(self, group: str, what: str) -> str:
        kind, text, _ = self.tokens[self.at]
        if kind != group:
            self.fail(f"expected {what}, found {self.found()}")
        self.at += 1
        return text

    def found(self) -> str:
        text = self.tokens[self.at][1]
        return f"`{text}`" if text else "the end of the text"

    # -- grammar

    def func(self) -> Func:
        start = self.at
        self.expect("func")
        name = self.take("mark", "a name such as `@gemm`").removeprefix("@")
        env: dict[str, Value] = {}
        params = self.params(env)
        self.expect("level")
        self.expect("=")
        level = self.take("word", "a level")
        if level not in Level.__members__:
            self.at -= 1
            self.fail(f"no level: {level}; levels are {', '.join(Level.__members__)}")
        attrs = self.attrs() if self.tokens[self.at][1] == "{" and self.is_attrs() else {}
        loc = self.location() or self.loc(
            self.tokens[start][2], self.tokens[start][2] + len("func")
        )
        body = self.region(params, env)
        if self.tokens[self.at][0] != "end":
            self.fail(f"expected the end of the text, found {self.found()}")
        return Func(name, body, Level[level], attrs, loc)

    def is_attrs(self) -> bool:
        """Whether the brace ahead opens attributes: `{}` or `{key=…`, where a region has `{key(…`."""
        first, second = self.tokens[self.at + 1], self.tokens[self.at + 2]
        return first[1] == "}" or (first[0] == "word" and second[1] == "=")

    def params(self, env: dict[str, Value]) -> tuple[Value, ...]:
        self.expect("(")
        params: list[Value] = []
        while not self.accept(")"):
            if params:
                self.expect(",")
            at = self.at
            name = self.take("value", "a parameter such as `%x`")
            self.expect(":")
            params.append(self.define(name, self.type(), env, at))
        return tuple(params)

    def define(self, name: str, t: Type, env: dict[str, Value], at: int) -> Value:
        if name in env:
            self.at = at
            self.fail(f"{name} is defined twice")
        hint = name[1:]
        value = env[name] = Value(t, "" if hint.isdigit() else hint)
        return value

    def type(self) -> Type:
        kind, text, _ = self.tokens[self.at]
        if kind not in ("word", "bracketed") or text.startswith("#"):
            self.fail(f"expected a type, found {self.found()}")
        try:
            t = parse_type(text)
        except ValueError as e:
            self.fail(str(e))
        self.at += 1
        return t

    def region(self, params: tuple[Value, ...], env: dict[str, Value]) -> Region:
        """`{ops}`; `env` belongs to the region from here on."""
        self.expect("{")
        ops: list[Op] = []
        while not self.accept("}"):
            ops.append(self.op(env))
        if not ops or ops[-1].kind.name != "yield":
            self.at -= 1
            self.fail("a region ends in a yield")
        return Region(params, tuple(ops))

    def op(self, env: dict[str, Value]) -> Op:
        first = self.at
        names: list[str] = []
        if self.tokens[first][0] == "value":
            names.append(self.take("value", "a value"))
            while self.accept(","):
                names.append(self.take("value", "a value"))
            self.expect("=")
        kind_at = self.at
        _, kind_name, start = self.tokens[kind_at]
        if self.tokens[kind_at][0] != "word":
            self.fail(f"expected an op, found {self.found()}")
        kind = KINDS.get(kind_name)
        if kind is None:
            self.fail(f"no op is called {kind_name}")
        self.at += 1
        operands = self.operands(env)
        attrs = self.attrs() if self.tokens[self.at][1] == "{" else {}
        op_id = self.take("id", "an id")[1:] if self.tokens[self.at][0] == "id" else ""
        tasks = self.tasks() if self.accept("@") else frozenset[str]()
        types_at = self.at
        types: list[Type] | None = None
        if self.accept(":"):
            types = [self.type()]
            while self.accept(","):
                types.append(self.type())
        _, last, last_start = self.tokens[self.at - 1]
        loc = self.location() or self.loc(start, last_start + len(last))
        regions: list[Region] = []
        while self.accept("do"):
            inner = {**env}
            params = self.params(inner) if self.tokens[self.at][1] == "(" else ()
            regions.append(self.region(params, inner))
        if types is None and names:
            try:
                types = list(kind.infer(operands, attrs, tuple(regions)))
            except (RuleError, TypeError, ValueError) as e:
                self.at = kind_at
                self.fail(
                    f"the types of {kind_name}'s results are not given and can't be inferred: {e}"
                )
        if len(names) != len(types or ()):
            self.at = types_at if names else first
            self.fail(f"{len(names)} results, but {len(types or ())} types")
        results = tuple(
            self.define(name, t, env, first + 2 * i)
            for i, (name, t) in enumerate(zip(names, types or (), strict=True))
        )
        return Op(kind, operands, attrs, results, tuple(regions), tasks, loc, op_id)

    def operands(self, env: dict[str, Value]) -> tuple[Value, ...]:
        self.expect("(")
        operands: list[Value] = []
        while not self.accept(")"):
            if operands:
                self.expect(",")
            name = self.tokens[self.at][1]
            if name not in env:
                self.take("value", "a value")
                self.at -= 1
                self.fail(f"{name} is not defined here")
            operands.append(env[name])
            self.at += 1
        return tuple(operands)

    def tasks(self) -> frozenset[str]:
        self.expect("{")
        tasks: set[str] = set()
        while not self.accept("}"):
            if tasks:
                self.expect(",")
            tasks.add(self.take("word", "the name of a task"))
        return frozenset(tasks)

    def attrs(self) -> dict[str, Any]:
        self.expect("{")
        attrs: dict[str, Any] = {}
        while not self.accept("}"):
            if attrs:
                self.expect(",")
            key = self.take("word", "the name of an attribute")
            if key in attrs:
                self.at -= 1
                self.fail(f"attribute {key} is given twice")
            self.expect("=")
            attrs[key] = self.attr()
        return attrs

    def attr(self) -> Any:
        kind, text, _ = self.tokens[self.at]
        try:
            value = self.attr_value(kind, text)
        except (ValueError, KeyError, TypeError) as e:
            self.fail(f"no attribute value: {e}")
        return value

    def attr_value(self, kind: str, text: str) -> Any:
        if text == "(":
            return self.attr_tuple()
        self.at += 1
        try:
            match kind:
                case "number":
                    is_float = not text.removeprefix("-").isdigit()
                    return float(text) if is_float else int(text)
                case "string":
                    return json.loads(text)
                case "bracketed" if text.startswith("#layout<"):
                    return parse_layout(text)
                case "bracketed" if text.startswith("fact<"):
                    return _fact(text)
                case "bracketed":
                    return parse_type(text)
                case "word" if text in _WORDS:
                    return _WORDS[text]
        except (ValueError, KeyError, TypeError):
            self.at -= 1
            raise
        self.at -= 1
        raise ValueError(self.found())

    def attr_tuple(self) -> tuple[Any, ...]:
        self.expect("(")
        items: list[Any] = []
        while not self.accept(")"):
            if items:
                self.expect(",")
                if self.accept(")"):
                    break
            items.append(self.attr())
        return tuple(items)

    def location(self) -> Loc | None:
        """`loc("file":line:col-end from "file":line:col-end …)`, or None where the next token is none."""
        if not self.accept("loc"):
            return None
        self.expect("(")
        places = [self.place()]
        while self.accept("from"):
            places.append(self.place())
        self.expect(")")
        loc: Loc | None = None
        for file, line, col, end in reversed(places):
            loc = Loc(file, line, col, end, loc)
        return loc

    def place(self) -> tuple[str, int, int, int]:
        file: str = json.loads(self.take("string", "a file"))
        self.expect(":")
        line = int(self.take("number", "a line"))
        self.expect(":")
        col = int(self.take("number", "a column"))
        # "-9" is one token: the dash and the end column
        return file, line, col, -int(self.take("number", "the end column, as `-9`"))


_WORDS: dict[str, Any] = {
    "true": True,
    "false": False,
    "none": None,
    "inf": float("inf"),
    "nan": float("nan"),
    **DTYPES,
}
