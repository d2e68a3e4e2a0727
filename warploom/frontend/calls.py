"""Calls: of the language's functions, of Python's, of constexpr functions, of kernels (inlined)."""

from __future__ import annotations

import ast
import inspect
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NoReturn, Self

from warploom.errors import CompileError, InternalError, Loc, Note
from warploom.frontend import aggregates, language
from warploom.frontend.attributes import Method
from warploom.frontend.coerce import Const, Emitter, describe, known
from warploom.frontend.language import math as elementwise
from warploom.frontend.language.core import FIELDS, Constexpr, Table
from warploom.frontend.python_functions import CLASSES, PYTHON_FUNCTIONS
from warploom.frontend.refuse import advice, did_you_mean
from warploom.frontend.scope import Binding, Scope, admit, leaves, tuple_like
from warploom.frontend.source import Function, Source, call_signature, parameters, plain_signature
from warploom.frontend.vocabulary import UNSUPPORTED
from warploom.ir.core import RuleError, Value
from warploom.ir.types import DType, Scalar, Tile, f32

DEEPEST = 32  # calls of a function inside of itself


@dataclass(frozen=True, eq=False)
class NestedFunction:
    """A function that a kernel defines inside: its text, its parameters, and whose variables it sees."""

    node: ast.FunctionDef
    signature: inspect.Signature
    owner: Calls


class Calls(ABC):
    """Translates the calls of one function body, and says where something is wrong in it.

    `scope` holds its variables, `lost` those that an inner block assigned and where, `stack` the functions
    being inlined, outermost first."""

    def __init__(
        self, emitter: Emitter, source: Source, scope: Scope, stack: tuple[Any, ...],
        caller: Loc | None,
    ) -> None:  # fmt: skip
        self.emitter = emitter
        self.source = source
        self.scope = scope
        self.stack = stack
        self.caller = caller
        self.lost: dict[str, tuple[str, Loc]] = {}

    # -- places and errors

    def loc(self, node: ast.AST) -> Loc:
        return self.source.loc(node, self.caller)

    @contextmanager
    def at(self, node: ast.AST, **operands: Any) -> Iterator[None]:
        """Ops made inside stand at `node`; refusals become errors there, with notes on the operands."""
        saved, self.emitter.loc = self.emitter.loc, self.loc(node)
        try:
            yield
        except RuleError as e:
            error = CompileError(
                e.code, str(e), self.loc(node), self._notes(node, operands), advice(e)
            )
            raise error.with_traceback(e.__traceback__) from None  # which says the same
        finally:
            self.emitter.loc = saved

    def _notes(self, node: ast.AST, operands: dict[str, Any]) -> tuple[Note, ...]:
        """Where the tiles came from that did not fit; variables that are None or a float, which a launch may
        have given by mistake."""
        here = self.loc(node)
        notes: list[Note] = []
        for name, x in operands.items():
            made = self.emitter.made.get(x) if isinstance(x, Value) else None
            if made is not None and made.line != here.line and isinstance(x.type, Tile):
                notes.append(Note(f"{name} is {x.type}, made here", made))
        named = {n.id: n for n in ast.walk(node) if isinstance(n, ast.Name)}
        for name in sorted(named.keys() & self.scope.keys()):
            binding = self.scope[name]
            if binding.value is None:
                notes.append(
                    Note(f"{name} is None here: `if {name} is not None:` tests for it", binding.loc)
                )
            elif isinstance(binding.value, Value) and binding.value.type == Scalar(f32):
                notes.append(Note(f"{name} is a float (f32)", binding.loc))
        return tuple(notes)

    def fail(self, node: ast.AST, code: str, message: str, help: str) -> NoReturn:
        raise CompileError(code, message, self.loc(node), help=help)

    def unsupported(self, node: ast.AST) -> NoReturn:
        what, help = UNSUPPORTED.get(
            type(node),
            (f"{type(node).__name__}", "rewrite it with the constructs that kernels know"),
        )
        self.fail(node, "unsupported", f"kernels can't use {what}", help)

    # -- calls

    def expr_Call(self, node: ast.Call) -> Any:
        return self.call_of(node, self.expr(node.func))

    def call_of(self, node: ast.Call, fn: Any) -> Any:
        """What the call `node` of a function gives."""
        args, kwargs = self.arguments(node)
        if isinstance(fn, Method):
            args, fn = [fn.receiver, *args], fn.fn
        if isinstance(fn, NestedFunction):
            return self.inline_nested(node, fn, args, kwargs)
        if getattr(fn, "__warploom_fn__", None) is not None:
            return self.inline(node, fn.__warploom_fn__, args, kwargs)
        return self._call(node, fn, args, kwargs)

    def arguments(self, node: ast.Call) -> tuple[list[Any], dict[str, Any]]:
        """What a call gives, by position and by name."""
        args = self.elements(node.args)
        kwargs: dict[str, Any] = {}
        for k in node.keywords:
            if k.arg in ("_semantic", "_builder"):
                continue  # what Triton's builtins hand on to others
            value = self.expr(k.value)
            if k.arg is None:
                if not isinstance(value, Table):
                    what = f"kernels can't use ** of {describe(value)}"
                    self.fail(k.value, "unsupported", what, "name each argument, or give a dict")
                kwargs |= value.as_dict()
            else:
                kwargs[k.arg] = value
        return args, kwargs

    def elements(self, nodes: list[ast.expr]) -> list[Any]:
        """The values of expressions; a starred tuple's are its own."""
        found: list[Any] = []
        for e in nodes:
            if not isinstance(e, ast.Starred):
                found.append(self.expr(e))
                continue
            many = self.expr(e.value)
            if not isinstance(many, tuple):
                what = f"* of {describe(many)}"
                self.fail(e, "unpack", what, "only tuples can be unpacked")
            found += many
        return found

    def _call(self, node: ast.Call, fn: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        name = self.source.text(node.func)
        if isinstance(fn, DType):
            fn, args = elementwise.to, [*args, fn]
        if fn is aggregates.replaced:
            changed = aggregates.fields_of(self, node, args, kwargs)
            return aggregates.made(self, node, args[0].kind, [], changed)
        if fn in PYTHON_FUNCTIONS:
            fn = PYTHON_FUNCTIONS[fn]
        if getattr(fn, "__warploom_builtin__", False) or fn in CLASSES:
            bound = self.bind(node, name, call_signature(fn), args, kwargs)
            named = {k: v for k, v in bound.arguments.items() if isinstance(v, Value)}
            given = [self.helper(node, a) for a in bound.args]
            with self.at(node, **named):
                out = fn(*given, **bound.kwargs)
                return out.value if isinstance(out, Constexpr) else out
        if isinstance(fn, type) and hasattr(fn, FIELDS):
            return aggregates.made(self, node, fn, args, kwargs)
        if getattr(fn, "__triton_builtin__", False):  # another library's, which takes constexprs so
            given = [a if isinstance(a, Value) else Constexpr(a) for a in args]
            with self.at(node):
                out = fn(*given, **kwargs)
                return out.value if isinstance(out, Constexpr) else out
        if isinstance(fn, type) and issubclass(fn, tuple) and hasattr(fn, "_fields"):
            return self._named_tuple(node, fn, args, kwargs)
        if getattr(fn, "__warploom_constexpr__", None) is not None:
            return self._call_static(node, name, fn, args, kwargs)
        self.fail(
            node.func, "call-target", f"{name} is not a kernel function", _instead_of(name, fn)
        )

    def _named_tuple(
        self, node: ast.Call, kind: Any, args: list[Any], kwargs: dict[str, Any]
    ) -> Any:
        """A named tuple of a class from outside."""
        reads = self.emitter.reads
        fields, defaults = (reads.attribute(kind, n) for n in ("_fields", "_field_defaults"))
        given = plain_signature({n: defaults.get(n, inspect.Parameter.empty) for n in fields})
        bound = self.bind(node, kind.__name__, given, args, kwargs)
        bound.apply_defaults()
        return kind._make(bound.arguments.values())

    def bind(
        self,
        node: ast.AST,
        name: str,
        signature: inspect.Signature,
        args: list[Any],
        kwargs: dict[str, Any],
    ) -> inspect.BoundArguments:
        """Arguments to parameters, with errors that name them."""
        try:
            return signature.bind(*args, **kwargs)
        except TypeError as e:
            names = list(signature.parameters)
            strange = next((k for k in kwargs if k not in names), "")
            help = did_you_mean(strange, names, f"the parameters are ({', '.join(names)})")
            self.fail(node, "call-arguments", f"{name}: {e}", help)

    def _call_static(
        self, node: ast.Call, name: str, fn: Any, args: list[Any], kwargs: dict[str, Any]
    ) -> Any:
        """A function of constexprs, run now."""

        def plain(x: Any) -> Any:
            if any(isinstance(leaf, Value) for leaf in leaves(x)):
                self.fail(
                    node,
                    "constexpr-required",
                    f"{name} runs while compiling, but got {describe(x)}",
                    "pass constexprs only",
                )
            return known(x) if isinstance(x, Const) else x

        try:
            named = {k: plain(v) for k, v in kwargs.items()}
            out = self.emitter.reads.call(fn, [plain(a) for a in args], named)
        except (CompileError, InternalError):
            raise
        except Exception as e:
            self.fail(
                node,
                "constexpr-function",
                f"{name} raised {type(e).__name__}: {e}",
                "check its arguments",
            )
        with self.at(node):
            return admit(f"{name}'s result", out)

    def inline(self, node: ast.AST, fn: Function, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """A call of another kernel function: its body, here."""
        bound, here = self.bound(node, fn, args, kwargs), self.loc(node)
        scope: Scope = {}
        for p in parameters(fn):
            if p.name in bound.arguments:
                value = bound.arguments[p.name]
            elif p.many:
                value = ()
            else:
                value = self.emitter.reads.default(fn, p.name)
            if p.name not in kwargs and isinstance(value, Constexpr):
                value = value.value
            # A helper may be given a tile for what it annotates as a constexpr, as in Triton.
            if p.constexpr and isinstance(value, Const):
                value = value.value
            scope[p.name] = Binding(value, here)
        return typed(self.emitter, self.inside(fn, scope, here).body())

    def inline_nested(
        self, node: ast.Call, fn: NestedFunction, args: list[Any], kwargs: dict[str, Any]
    ) -> Any:
        """A call of a function that the kernel defines: its body, here, with the variables around it as they
        are now."""
        self._limit_recursion(node, fn.node.name, self.stack.count(fn.node))
        bound, here = self.bind(node, fn.node.name, fn.signature, args, kwargs), self.loc(node)
        bound.apply_defaults()
        scope = {**fn.owner.scope, **{n: Binding(v, here) for n, v in bound.arguments.items()}}
        source, stack = replace(fn.owner.source, tree=fn.node), (*self.stack, fn.node)
        return type(self)(self.emitter, source, scope, stack, here).body()

    def _limit_recursion(self, node: ast.AST, name: str, depth: int) -> None:
        """Functions that call themselves are inlined as often: an `if` of a constexpr has to end it."""
        if depth >= DEEPEST:
            self.fail(
                node,
                "recursion",
                f"{name} calls itself {depth} times and on",
                "end it by an `if` of a constexpr that each call makes smaller, or write a loop",
            )

    def bound(
        self, node: ast.AST, fn: Function, args: list[Any], kwargs: dict[str, Any]
    ) -> inspect.BoundArguments:
        """The arguments of a function that is to be inlined."""
        self._limit_recursion(node, fn.__name__, self.stack.count(fn))
        return self.bind(node, fn.__name__, call_signature(fn), args, kwargs)

    def inside(self, fn: Function, scope: Scope, here: Loc) -> Self:
        """The translator of a function that is inlined here."""
        source = self.emitter.reads.source(fn)
        return type(self)(self.emitter, source, scope, (*self.stack, fn), here)

    def helper(self, node: ast.Call, x: Any) -> Any:
        """An argument of one of the language's functions: of a kernel function what inlines it."""
        if isinstance(x, NestedFunction):
            return lambda *values: self.inline_nested(node, x, list(values), {})
        fn = getattr(x, "__warploom_fn__", None)
        return x if fn is None else lambda *values: self.inline(node, fn, list(values), {})

    @abstractmethod
    def expr(self, node: ast.expr) -> Any:
        """The value of an expression."""

    @abstractmethod
    def body(self) -> Any:
        """Translates the whole body; gives the function's value."""


def _instead_of(name: str, fn: Any) -> str:
    """What to write instead of a call of something that is no kernel function."""
    own = name.rpartition(".")[2]
    theirs = getattr(language, own, None) if own in language.NAMES else None
    if theirs is not None and theirs is not fn:
        return f"write tl.{own}"
    if isinstance(fn, type):
        return f"kernels make no objects of a class: pass what {own} stands for as an argument"
    return "decorate it with @jit, or with tl.constexpr_function if it only computes constexprs"


def typed(emitter: Emitter, x: Any) -> Any:
    """What a variable holds of an assigned value, and a call gives of a returned one: a literal becomes a
    number of its own dtype."""
    if isinstance(x, tuple):
        return tuple_like(x, (typed(emitter, v) for v in x))
    return emitter.strong(x)
