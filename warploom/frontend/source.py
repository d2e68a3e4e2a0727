"""Kernel functions as text: their ast, and where each node stands.

A function's text is that of its file when it was decorated (`capture`), however the file changes afterwards.
"""

from __future__ import annotations
import __future__

import ast
import builtins
import contextlib
import functools
import hashlib
import inspect
import io
import linecache
import tokenize
import types
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from warploom.errors import CompileError, Loc, keep_text

Function = Callable[..., Any]


@dataclass(frozen=True)
class Parameter:
    """One parameter of a kernel.  `default` is inspect.Parameter.empty where there is none; `annotation` is
    text, empty where there is none."""

    name: str
    constexpr: bool
    default: Any
    annotation: str = ""
    many: bool = False  # *name: a tuple of all further arguments


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

    @functools.cached_property
    def digest(self) -> str:
        """A hash of what the function says: of its parameters and body, wherever they stand."""
        try:
            body = ast.dump(ast.Module(self.tree.body, []), include_attributes=False)
        except (
            RecursionError
        ):  # a sum of a thousand terms: the text itself tells as much, and spaces
            body = "".join(self.lines)
        return hashlib.sha256((body + ast.dump(self.tree.args)).encode()).hexdigest()[:16]


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


@dataclass(frozen=True)
class _Capture:
    """A function's file as it was when the function was decorated."""

    code: types.CodeType
    lines: Sequence[str]  # of the file; empty where it has none, as on Python's command line


_captured: weakref.WeakKeyDictionary[Function, _Capture] = weakref.WeakKeyDictionary()


def capture(fn: Function) -> None:
    """Keep the text of a function's file as it is now: what is translated later is what was imported, though
    an editor may have changed the file.  Python replaces linecache's lists and never changes them."""
    kept = _captured.get(fn)
    if kept is not None and kept.code is fn.__code__ and kept.lines:
        return
    file = fn.__code__.co_filename
    linecache.checkcache(file)
    lines = linecache.getlines(file, fn.__globals__)
    _captured[fn] = _Capture(fn.__code__, lines)
    keep_text(file, lines)


def parse_function(fn: Function) -> Source:
    """The ast of a plain Python function, parsed once.

    Raises CompileError `no-source` where its text can't be found, `not-a-function` for a lambda,
    `source-changed` where its file holds other text than what Python runs, and `decorated` for what another
    decorator made of a function.
    """
    return _parsed(fn, id(fn.__code__))


def refuse_wrapper(fn: Function) -> None:
    """Raises CompileError `decorated` for a function that stands in for another one (functools.wraps): the
    text that Python gives for it is the other's, so that the wrapper would be dropped."""
    if hasattr(fn, "__wrapped__"):
        name = getattr(fn, "__name__", repr(fn))
        raise CompileError(
            "decorated",
            f"a decorator has replaced {name} by a wrapper, which a kernel can't be",
            Loc(fn.__code__.co_filename, fn.__code__.co_firstlineno),
            help=f"write @jit directly above `def {name}`, and drop the other decorator or put it above",
        )


@functools.cache
def _parsed(fn: Function, code: int) -> Source:
    """code: id of the code object, which the capture keeps alive."""
    refuse_wrapper(fn)
    name = getattr(fn, "__name__", repr(fn))
    lines, first = _lines_of(fn, name)
    file = fn.__code__.co_filename
    text, shift = "".join(lines), first - 1
    if text[:1].isspace():  # nested in a class or function: keep columns as they are
        text, shift = "if 1:\n" + text, shift - 1
    try:
        statement = next(iter(ast.parse(text).body), None)
    except SyntaxError:  # a lambda's line cut out of its statement
        statement = None
    if isinstance(statement, ast.If):
        statement = statement.body[0]
    if fn.__code__.co_name == "<lambda>" or isinstance(statement, ast.AsyncFunctionDef):
        raise CompileError(
            "not-a-function",
            f"{name} is not defined by a def statement",
            Loc(file, first),
            help="write the kernel as a def",
        )
    if not isinstance(statement, ast.FunctionDef) or not _is_text_of(statement, fn.__code__):
        raise CompileError(
            "source-changed",
            f"{file} has changed since Python read {name} from it",
            Loc(file, first),
            help="restart the process, or reload the module",
        )
    return Source(fn, file, statement, tuple(lines), first, shift)


def _lines_of(fn: Function, name: str) -> tuple[Sequence[str], int]:
    """The function's own lines, decorators included, and the number of the first."""
    kept = _captured.get(fn)
    if kept is None or kept.code is not fn.__code__:
        capture(fn)
        kept = _captured[fn]
    first = fn.__code__.co_firstlineno
    try:
        if not kept.lines:  # text that Python itself keeps, as its interactive interpreter's
            return inspect.getsourcelines(fn.__code__)
        return inspect.getblock(kept.lines[first - 1 :]), first
    except (OSError, TypeError, SyntaxError, tokenize.TokenError, IndexError) as e:
        raise CompileError(
            "no-source",
            f"the source of {name} is not available",
            help="define the kernel in a file",
        ) from e


def _is_text_of(tree: ast.FunctionDef, code: types.CodeType) -> bool:
    """Whether a def can be what a code object was compiled from: it has the name, the parameters, and no
    name or constant that the code lacks (which may have more: a tool such as pytest adds some)."""
    bare = ast.FunctionDef(**{**dict(ast.iter_fields(tree)), "decorator_list": []})
    module = ast.copy_location(ast.Module([ast.copy_location(bare, tree)], []), tree)
    try:
        flags = code.co_flags & __future__.annotations.compiler_flag
        inside = compile(module, "<kernel>", "exec", flags=flags, dont_inherit=True).co_consts
    except (SyntaxError, RecursionError):  # which the translator refuses with its place
        return tree.name == code.co_name
    found = (c for c in inside if isinstance(c, types.CodeType) and c.co_name == tree.name)
    made = next(found, None)
    if made is None:  # type parameters stand around it
        return tree.name == code.co_name
    count = code.co_argcount + code.co_kwonlyargcount
    same = tree.name == code.co_name and made.co_varnames[:count] == code.co_varnames[:count]
    return same and set(_words(made)) <= set(_words(code))


def _words(code: types.CodeType) -> Iterator[tuple[str, Any]]:
    """Names (but private ones, which a class renames) and constants of a code object and those inside."""
    for name in (*code.co_names, *code.co_varnames, *code.co_freevars, *code.co_cellvars):
        if not name.startswith("__"):
            yield "name", name
    for value in code.co_consts:
        if isinstance(value, types.CodeType):
            yield from _words(value)
        else:
            yield type(value).__name__, value if isinstance(value, frozenset) else repr(value)


def plain_signature(defaults: Mapping[str, Any]) -> inspect.Signature:
    """Parameters by position or name, with their defaults; Parameter.empty: without one."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return inspect.Signature([inspect.Parameter(n, kind, default=d) for n, d in defaults.items()])


@functools.cache
def call_signature(fn: Callable[..., Any]) -> inspect.Signature:
    """Python's own account of a callable's parameters, asked for once."""
    return inspect.signature(fn)


def default_of(fn: Callable[..., Any], parameter: str) -> Any:
    """What a parameter is by default now: a function may be given other defaults."""
    return inspect.signature(fn).parameters[parameter].default


def declared(tree: ast.FunctionDef) -> list[ast.arg]:
    """The parameters of a function, in order."""
    a = tree.args
    many = [] if a.vararg is None else [a.vararg]
    return [*a.posonlyargs, *a.args, *many, *a.kwonlyargs]


@functools.cache
def parameters(fn: Function) -> tuple[Parameter, ...]:
    """The kernel's parameters in order; `constexpr` where the annotation says tl.constexpr."""
    source = parse_function(fn)
    args = source.tree.args
    if args.kwarg is not None:
        raise CompileError(
            "parameter-kind",
            f"{fn.__name__} takes any names (**{args.kwarg.arg})",
            source.loc(args.kwarg),
            help="name each parameter",
        )
    defaults = {name: p.default for name, p in call_signature(fn).parameters.items()}
    every = declared(source.tree)
    said = ["" if a.annotation is None else ast.unparse(a.annotation).strip("'\"") for a in every]
    return tuple(
        Parameter(a.arg, "constexpr" in text, defaults[a.arg], text, a is args.vararg)
        for a, text in zip(every, said, strict=True)
    )


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
