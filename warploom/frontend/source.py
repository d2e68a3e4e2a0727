"""Kernel functions as text: their ast, where each node stands, and what a kernel reaches."""

from __future__ import annotations

import ast
import builtins
import contextlib
import functools
import hashlib
import inspect
import io
import tokenize
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from warploom.errors import CompileError, Loc

Function = Callable[..., Any]


@dataclass(frozen=True)
class Parameter:
    """One parameter of a kernel.  `default` is inspect.Parameter.empty where there is none."""

    name: str
    constexpr: bool
    default: Any


@dataclass(frozen=True)
class Source:
    """A function's ast with its place in the file.  Build it with `parse_function`."""

    fn: Function
    file: str
    tree: ast.FunctionDef
    lines: tuple[str, ...]
    first_line: int  # of `lines`, in the file
    shift: int  # ast line number + shift = line in the file

    def loc(self, node: ast.AST, caller: Loc | None = None) -> Loc:
        """The node's span; of a node on several lines the part on its first line."""
        line: int = node.lineno + self.shift  # type: ignore[attr-defined]
        text = self.lines[line - self.first_line].rstrip("\n")
        start = _column(text, node.col_offset)  # type: ignore[attr-defined]
        end = _code_end(text)
        if node.end_lineno == node.lineno:  # type: ignore[attr-defined]
            end = _column(text, node.end_col_offset)  # type: ignore[attr-defined]
        return Loc(self.file, line, start + 1, end + 1, caller)

    def text(self, node: ast.AST) -> str:
        """The node as source text, for messages."""
        return ast.unparse(node)


@functools.lru_cache(4096)
def _code_end(line: str) -> int:
    """Where the code on a line ends, before a comment."""
    if "#" in line:
        with contextlib.suppress(tokenize.TokenError, IndentationError):
            for token in tokenize.generate_tokens(io.StringIO(line.lstrip()).readline):
                if token.type == tokenize.COMMENT:
                    indent = len(line) - len(line.lstrip())
                    return len(line[: indent + token.start[1]].rstrip())
    return len(line.rstrip())


def _column(line: str, offset: int) -> int:
    """ast counts columns in bytes of UTF-8, we in characters."""
    return offset if line.isascii() else len(line.encode()[:offset].decode(errors="ignore"))


@functools.cache
def parse_function(fn: Function) -> Source:
    """The ast of a plain Python function, parsed once.

    Raises CompileError `no-source` where its text can't be found, `not-a-function` for a lambda.
    """
    name = getattr(fn, "__name__", repr(fn))
    try:
        lines, first = inspect.getsourcelines(fn)
        file = inspect.getsourcefile(fn) or "<unknown>"
    except (OSError, TypeError) as e:
        raise CompileError(
            "no-source",
            f"the source of {name} is not available",
            help="define the kernel in a file",
        ) from e
    text, shift = "".join(lines), first - 1
    if text[:1].isspace():  # nested in a class or function: keep columns as they are
        text, shift = "if 1:\n" + text, shift - 1
    try:
        statement = ast.parse(text).body[0]
    except SyntaxError:  # a lambda's line cut out of its statement
        statement = ast.Pass()
    if isinstance(statement, ast.If):
        statement = statement.body[0]
    if not isinstance(statement, ast.FunctionDef):
        raise CompileError(
            "not-a-function",
            f"{name} is not defined by a def statement",
            Loc(file, first),
            help="write the kernel as a def",
        )
    return Source(fn, file, statement, tuple(lines), first, shift)


@functools.cache
def call_signature(fn: Callable[..., Any]) -> inspect.Signature:
    """Python's own account of a callable's parameters, asked for once."""
    return inspect.signature(fn)


@functools.cache
def parameters(fn: Function) -> tuple[Parameter, ...]:
    """The kernel's parameters in order; `constexpr` where the annotation says tl.constexpr."""
    source = parse_function(fn)
    args = source.tree.args
    for extra in (args.vararg, args.kwarg):
        if extra is not None:
            raise CompileError(
                "parameter-kind",
                f"{fn.__name__} takes a variable number of arguments",
                source.loc(extra),
                help="name each parameter",
            )
    defaults = {name: p.default for name, p in call_signature(fn).parameters.items()}
    return tuple(
        Parameter(
            a.arg,
            a.annotation is not None and "constexpr" in ast.unparse(a.annotation),
            defaults[a.arg],
        )
        for a in (*args.posonlyargs, *args.args, *args.kwonlyargs)
    )


@dataclass(frozen=True)
class Dependencies:
    """All text and values outside its arguments that a kernel's meaning depends on."""

    functions: tuple[str, ...]  # ast dumps: the kernel, then the helpers it reaches
    values: tuple[tuple[str, str], ...]  # (dotted name as used, repr), sorted

    @property
    def key(self) -> str:
        """A hash of everything, stable across processes."""
        return hashlib.sha256(repr((self.functions, self.values)).encode()).hexdigest()


def dependencies(fn: Function) -> Dependencies:
    """What `fn` reaches: helper functions followed, globals and closure variables by value.

    Modules contribute the attributes that are used, except those of warploom itself (the cache key
    holds the hash of warploom's own sources)."""
    functions: dict[Function, str] = {}
    values: dict[str, str] = {}

    def visit_value(name: str, value: Any) -> None:
        inner = plain_function(value)
        if inner is not None:
            visit(inner)
        elif callable(value) and hasattr(value, "__qualname__"):  # its repr would hold an address
            values[name] = f"{value.__module__}.{value.__qualname__}"
        elif not isinstance(value, types.ModuleType):
            values[name] = repr(value)

    def visit(f: Function) -> None:
        if f in functions:
            return
        tree = parse_function(f).tree
        functions[f] = ast.dump(ast.Module(tree.body, []), include_attributes=False) + ast.dump(
            tree.args
        )
        local = {a.arg for a in ast.walk(tree.args) if isinstance(a, ast.arg)}
        for node in ast.walk(tree):
            match node:
                case ast.Name(id=name, ctx=ast.Load()) if name not in local:
                    found, value = lookup(f, name)
                    if found:
                        visit_value(name, value)
                case ast.Attribute():
                    chain = _chain(node)
                    if chain and chain[0] not in local:
                        _visit_chain(f, chain, visit_value)

    visit(fn)
    return Dependencies(tuple(functions.values()), tuple(sorted(values.items())))


def _chain(node: ast.expr) -> list[str]:
    """['a', 'b', 'c'] of a.b.c; [] where the root is no name."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return [node.id, *reversed(parts)] if isinstance(node, ast.Name) else []


def _visit_chain(f: Function, chain: list[str], visit_value: Callable[[str, Any], None]) -> None:
    found, value = lookup(f, chain[0])
    for attr in chain[1:]:
        if not found or not isinstance(value, types.ModuleType):
            return
        if value.__name__.split(".")[0] == "warploom":
            return
        found, value = hasattr(value, attr), getattr(value, attr, None)
    if found:
        visit_value(".".join(chain), value)


def lookup(fn: Function, name: str) -> tuple[bool, Any]:
    """A name that is not local to `fn`: closure variables, then globals, then Python's builtins."""
    code = fn.__code__
    if name in code.co_freevars and fn.__closure__ is not None:
        cell = fn.__closure__[code.co_freevars.index(name)]
        try:
            return True, cell.cell_contents
        except ValueError:  # a variable of the enclosing function that has no value yet
            return False, None
    if name in fn.__globals__:
        return True, fn.__globals__[name]
    return hasattr(builtins, name), getattr(builtins, name, None)


def plain_function(value: Any) -> Function | None:
    """The Python function behind a kernel helper (an object with `__warploom_fn__`) or behind one that
    runs at compile time (`__warploom_constexpr__`); None for anything else."""
    inner = getattr(value, "__warploom_fn__", None) or getattr(
        value, "__warploom_constexpr__", None
    )
    return inner if isinstance(inner, types.FunctionType) else None
