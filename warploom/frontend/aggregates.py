"""Objects of classes under @triton.aggregate, made inside of kernels."""

from __future__ import annotations

import ast
import dis
import inspect
import sys
import types
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any, NoReturn, Protocol

from warploom.errors import WarploomError
from warploom.frontend.coerce import Const, Emitter, describe, is_literal, known
from warploom.frontend.follow import is_own
from warploom.frontend.language.core import FIELDS, Aggregate, Constexpr, Handle, builtin
from warploom.frontend.promotion import literal_dtype
from warploom.frontend.reads import MISSING, Reads
from warploom.frontend.refuse import refuse
from warploom.frontend.scope import admit, leaves
from warploom.frontend.source import plain_signature
from warploom.frontend.tokens import LITERALS, function_of, public_name, unwrapped
from warploom.ir.core import RuleError, Value


class Caller(Protocol):
    """What is asked of the translator of the function that calls (frontend/calls.py)."""

    emitter: Emitter

    def bind(
        self,
        node: ast.AST,
        name: str,
        signature: inspect.Signature,
        args: list[Any],
        kwargs: dict[str, Any],
    ) -> inspect.BoundArguments: ...

    def at(self, node: ast.AST, **operands: Any) -> AbstractContextManager[None]: ...

    def fail(self, node: ast.AST, code: str, message: str, help: str) -> NoReturn: ...


@builtin
def replaced(instance: Any, **changes: Any) -> Any:
    """tl.aggregate_replace: the same object with other fields."""
    raise NotImplementedError("calls of it are translated in frontend/calls.py")


def made(
    calls: Caller, node: ast.Call, kind: type, args: list[Any], kwargs: dict[str, Any]
) -> Aggregate:
    """A call of the class: what its __init__ assigns, or the arguments as its fields."""
    reads = calls.emitter.reads
    fields: dict[str, Any] = reads.attribute(kind, FIELDS)
    init = reads.attribute(kind, "__init__")
    draft: Any = _Draft()
    if init is object.__init__:
        given = {n: reads.attribute(kind, n) for n in fields}
        empty = inspect.Parameter.empty
        given = {n: empty if d is MISSING else admit(n, d) for n, d in given.items()}
        bound = calls.bind(node, kind.__name__, plain_signature(given), args, kwargs)
        bound.apply_defaults()
        vars(draft).update(bound.arguments)
    else:
        fn = function_of(init)
        with calls.at(node):
            _record(reads, kind, fn)
        bound = calls.bind(node, kind.__name__, inspect.signature(fn), [draft, *args], kwargs)
        with calls.at(node):
            _run(kind, fn, bound)
    with calls.at(node):
        return _finished(kind, fields, vars(draft))


def _record(reads: Reads, kind: type, fn: Any) -> None:
    """Puts what an __init__, which Python runs, is a function of into the record: its text, its defaults and
    the names that it reads.  Refuses names of what may change inside, which no record would show."""
    reads.source(fn)
    for name, parameter in inspect.signature(fn).parameters.items():
        if parameter.default is not parameter.empty:
            reads.default(fn, name)
    for name in dict.fromkeys(_outer_names(fn.__code__, frozenset())):
        found, value = reads.name(fn, name)
        if not found or not _stays(value):
            refuse(
                "aggregate",
                f"the __init__ of {kind.__name__} reads {name}",
                "read numbers, dtypes and tl alone there, and pass the rest as arguments",
            )


def _outer_names(code: types.CodeType, local: frozenset[str]) -> Iterator[str]:
    """The names that a code object has from outside, by those inside of it as well.  local: cells of the code
    around it."""
    local |= {*code.co_cellvars}
    for step in dis.get_instructions(code):
        free = step.opname in ("LOAD_DEREF", "LOAD_CLOSURE") and step.argval not in local
        if free or step.opname in ("LOAD_GLOBAL", "LOAD_NAME", "IMPORT_NAME"):
            yield step.argval
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            yield from _outer_names(inner, local)


def _stays(value: Any) -> bool:
    """Does a name's token say all of its value?"""
    value = unwrapped(value)
    if isinstance(value, tuple):
        return all(map(_stays, value))
    if isinstance(value, types.ModuleType):
        return is_own(value) or value.__name__.partition(".")[0] in sys.stdlib_module_names
    return type(value) in LITERALS or is_own(value) or public_name(value) is not None


def _run(kind: type, fn: Any, bound: inspect.BoundArguments) -> None:
    try:
        fn(*map(_shown, bound.args), **{n: _shown(v) for n, v in bound.kwargs.items()})
    except (WarploomError, RuleError):
        raise
    except Exception as e:
        what = f"the __init__ of {kind.__name__} raised {type(e).__name__}: {e}"
        refuse("aggregate", what, "check its arguments")


class _Draft:
    """An object while its __init__ runs."""


def _shown(x: Any) -> Any:
    """What an __init__, which Python runs, sees of an argument."""
    return Constexpr(x) if is_literal(x) or isinstance(x, str) else x


def _finished(kind: type, fields: dict[str, Any], given: dict[str, Any]) -> Aggregate:
    names, values, constants = [], [], []
    for name in [*fields, *(n for n in given if n not in fields)]:
        if name not in given or name not in fields:
            what = "has no value" if name in fields else "is no field"
            refuse(
                "aggregate", f"{name} of {kind.__name__} {what}", "annotate and assign each field"
            )
        value = given[name].value if isinstance(given[name], Constexpr) else given[name]
        if not _is_constant(fields[name]):
            names.append(name)
            values.append(Const(value, literal_dtype(value)) if is_literal(value) else value)
            continue
        if any(isinstance(leaf, Value) for leaf in leaves(value)) and not isinstance(value, Handle):
            refuse(
                "constexpr-required",
                f"{name} of {kind.__name__} is a tl.constexpr, found {describe(value)}",
                "annotate the field as tl.tensor",
            )
        constants.append((name, known(value) if isinstance(value, Const) else value))
    return Aggregate(kind, tuple(names), tuple(values), tuple(constants))


def _is_constant(annotation: Any) -> bool:
    return annotation is Constexpr or "constexpr" in str(annotation)


def fields_of(
    calls: Caller, node: ast.Call, args: list[Any], kwargs: dict[str, Any]
) -> dict[str, Any]:
    """The fields of aggregate_replace(x, …)."""
    if len(args) != 1 or not isinstance(args[0], Aggregate):
        given = ", ".join(map(describe, args))
        what = f"aggregate_replace of {given or 'nothing'}"
        calls.fail(node, "aggregate", what, "give one aggregate, then the fields by name")
    return {**args[0].as_dict(), **kwargs}
