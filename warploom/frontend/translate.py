"""Statements and whole kernels: Python's ast becomes a function at TILE.

Loops and ifs find out by themselves which variables they carry: those that the body assigns and that have
a value before.  A variable that only the body assigns has no value after it.  Everything that the
language leaves implicit (promotion, broadcasting, defaults, helpers) is gone in the result.
"""

from __future__ import annotations

import ast
import copy
import inspect
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from warploom.errors import CompileError, InternalError, Loc, Note
from warploom.frontend import language
from warploom.frontend.branches import Branches, Outcome
from warploom.frontend.bytes_of_e4b15 import store_as_bytes
from warploom.frontend.calls import typed
from warploom.frontend.coerce import (
    Const,
    Emitter,
    describe,
    is_literal,
    known,
    static_bool,
    static_int,
    translating,
)
from warploom.frontend.language.core import Constexpr, Descriptor, async_task
from warploom.frontend.operators import SYMBOLS
from warploom.frontend.packed import Packed
from warploom.frontend.promotion import promote
from warploom.frontend.reads import Reads
from warploom.frontend.refuse import did_you_mean, refuse
from warploom.frontend.rolled import MOST_WRITTEN, may_roll
from warploom.frontend.scope import (
    Binding,
    Scope,
    assigned_names,
    leaves,
    rebuild,
    skeleton,
    summary,
    types_of,
)
from warploom.frontend.signature import DescriptorType, expand
from warploom.frontend.source import Function, Parameter, Source, parameters
from warploom.frontend.source import declared as declared_in
from warploom.frontend.vocabulary import INDEX_ENDS
from warploom.ir.core import Fact, Func, Level, Region, Type, Value
from warploom.ir.ops import control, tile
from warploom.ir.types import DType, Scalar, i1, i32, i64


def translate(
    fn: Function,
    signature: Mapping[str, Type] | Sequence[Type],
    constexprs: Mapping[str, Any],
    facts: Sequence[Fact] = (),
    reads: Reads | None = None,
) -> Func:
    """The function at TILE that a kernel is, for these types and compile-time values.

    fn: a plain Python function.  signature: types of the run-time parameters (Scalar, Pointer or
    DescriptorType), by name or in parameter order.  constexprs: the other parameters by name.
    facts: one for each parameter of the resulting function (signature.expand says which those are),
    or none at all; an integer whose fact gives a value becomes that constant, its parameter stays.
    reads: where what the translation reads is recorded, begun with fn and the constexprs' values.

    attrs["facts"] of the result holds the facts.  Raises CompileError for the user's mistakes.
    """
    emitter = Emitter(reads=Reads(fn, *constexprs.values()) if reads is None else reads)
    source = emitter.reads.source(fn)
    declared = parameters(fn)
    names = [p.name for p in declared]
    if not isinstance(signature, Mapping):
        signature = _by_name(declared, signature, constexprs)
    parts = {n for k, v in constexprs.items() if isinstance(v, Packed) for n in _parts_of(k, v)}
    for given in (*signature, *constexprs):
        if given not in names and given not in parts:
            raise CompileError(
                "unknown-parameter",
                f"{fn.__name__} has no parameter {given}",
                source.loc(source.tree),
                help=did_you_mean(given, names, f"its parameters are {', '.join(names)}"),
            )
    emitter.loc = source.loc(source.tree)
    params: list[Value] = []
    with translating(emitter):
        scope = _bound(emitter, source, declared, signature, constexprs, facts, params)
        if facts and len(facts) != len(params):
            raise InternalError(f"{len(facts)} facts for {len(params)} parameters of {fn.__name__}")
        Statements(emitter, source, scope, (fn,), None).kernel_body()
        emitter.loc = None
        emitter.emit(control.yield_)
    body = Region(tuple(params), tuple(emitter.builder.ops))
    attrs = {"facts": tuple(facts) or tuple(Fact() for _ in params)}
    return store_as_bytes(Func(fn.__name__, body, Level.TILE, attrs, source.loc(source.tree)))


def _bound(
    emitter: Emitter, source: Source, declared: Sequence[Parameter], signature: Mapping[str, Type],
    constexprs: Mapping[str, Any], facts: Sequence[Fact], params: list[Value],
) -> Scope:  # fmt: skip
    """The kernel's parameters as its code sees them; the function's are added to `params`."""

    def run_time(name: str) -> Any:
        fields = [Value(t, field) for field, t in expand(name, signature[name])]
        known_facts = facts[len(params) : len(params) + len(fields)]
        params.extend(fields)
        return _argument(emitter, signature[name], fields, known_facts)

    scope: Scope = {}
    for p, node in zip(declared, declared_in(source.tree), strict=True):
        emitter.loc = where = source.loc(node)
        packed = constexprs.get(p.name)
        if isinstance(packed, Packed):
            value = packed.filled(map(run_time, _parts_of(p.name, packed)))
        elif p.name in signature and not p.constexpr:
            value = run_time(p.name)
        else:
            value = _constant_argument(p.name, p.default, constexprs, p.name in signature, where)
        scope[p.name] = Binding(value, where)
    return scope


def _parts_of(name: str, packed: Packed) -> list[str]:
    """What the arguments in a tuple are called."""
    return [f"{name}_{i}" for i in range(packed.count)]


def _by_name(
    declared: Sequence[Parameter], types: Sequence[Type], constexprs: Mapping[str, Any]
) -> dict[str, Type]:
    """Types in order as those of the run-time parameters, and of what tuples among them hold."""
    names: list[str] = []
    for p in declared:
        given = constexprs.get(p.name)
        if isinstance(given, Packed):
            names += _parts_of(p.name, given)
        elif not p.constexpr and p.name not in constexprs:
            names.append(p.name)
    return dict(zip(names, types, strict=True))


def _argument(
    emitter: Emitter, t: Type, fields: list[Value], facts: Sequence[Fact]
) -> Value | Const | Descriptor:
    """A run-time parameter as the kernel's code sees it."""
    values: list[Any] = list(fields)
    for i, fact in enumerate(facts):
        field_type = fields[i].type
        if fact.value is not None and isinstance(field_type, Scalar):
            values[i] = Const(fact.value, field_type.dtype)
    if not isinstance(t, DescriptorType):
        return values[0]  # type: ignore[no-any-return]
    sizes = [emitter.value(v) for v in values[1 : 2 * t.rank]] + [emitter.const(1, i64)]
    view = emitter.emit(tile.make_view, fields[0], *sizes)
    extents, strides = tuple(sizes[: t.rank]), tuple(sizes[t.rank :])
    return Descriptor(fields[0], view, extents, strides, t.block_shape, t.dtype, t.padding)


def _constant_argument(
    name: str, default: Any, constexprs: Mapping[str, Any], typed: bool, where: Loc
) -> Any:
    """The value of a compile-time parameter."""
    if name in constexprs:
        value = constexprs[name]
    elif typed:
        raise CompileError(
            "constexpr-required",
            f"{name} is a tl.constexpr, but was given a run-time type",
            where,
            help=f"pass the value of {name} while compiling, or drop the annotation",
        )
    elif default is not inspect.Parameter.empty:
        value = default
    else:
        raise CompileError(
            "missing-argument",
            f"no value for {name}",
            where,
            help=f"pass {name}= in the call or the config",
        )
    value = value.value if isinstance(value, Constexpr) else value
    return tuple(value) if isinstance(value, list) else value


def _returns(tree: ast.FunctionDef) -> list[ast.Return]:
    return [n for n in ast.walk(tree) if isinstance(n, ast.Return) and n.value is not None]


class Statements(Branches):
    """Translates the statements of one function body."""

    ASSIGNED: tuple[type[ast.expr], ...] = (ast.Name,)  # what `+=` may assign

    def body(self) -> Any:
        """The whole function; gives what it returns."""
        statements = self.source.tree.body
        at_the_end = ast.copy_location(ast.Return(None), statements[-1])
        outcome = self.block([*statements, at_the_end])
        assert outcome is not None and outcome.when is None
        return outcome.value

    def kernel_body(self) -> None:
        """The whole function, which is the kernel: it returns nothing.  Raises CompileError."""
        try:
            result = self.body()
        except RecursionError as error:
            raise self._too_deep(error) from None
        if result is not None:
            returned = _returns(self.source.tree)
            raise CompileError(
                "return-value",
                f"a kernel returns nothing, found {describe(result)}",
                self.source.loc(returned[0] if returned else self.source.tree),
                help="store results through a pointer argument",
            )

    def _too_deep(self, error: RecursionError) -> CompileError:
        """Code that nests deeper than Python's own calls may, at the place where they ended."""
        here, trace = self.loc(self.source.tree), error.__traceback__
        while trace is not None:
            names = trace.tb_frame.f_locals
            owner, node = names.get("self"), names.get("node")
            if (
                isinstance(owner, Statements)
                and isinstance(node, ast.AST)
                and hasattr(node, "lineno")
            ):
                here = replace(owner.loc(node), caller=None)
            trace = trace.tb_next
        return CompileError(
            "nesting",
            f"the code nests too deeply here, beyond the {sys.getrecursionlimit()} calls that Python allows",
            here,
            help="name parts of a long expression, call helpers fewer levels deep (about 100), and make one "
            "condition of many ifs that follow on each other with a return",
        )

    def statement(self, node: ast.stmt) -> Outcome:
        visit = getattr(self, f"stmt_{type(node).__name__}", None)
        if visit is None:
            self.unsupported(node)
        with self.at(node):
            outcome: Outcome = visit(node)
        return outcome

    # -- assignments

    def assign(self, target: ast.expr, value: Any, rename: bool = True) -> None:
        """Bind a name or a tuple of names."""
        match target:
            case ast.Name(id=name):
                if rename and self.emitter.is_last(value) and not value.hint:
                    value = self.emitter.rename(value, name)
                self.scope[name] = Binding(value, self.loc(target))
                self.lost.pop(name, None)
            case ast.Tuple(elts=targets) | ast.List(elts=targets):
                self._unpack(target, targets, value)
            case ast.Starred():
                self.unsupported(target)
            case _:
                self.fail(
                    target,
                    "assign-target",
                    f"can't assign to {self.source.text(target)}",
                    "values are immutable: assign to a name, or write memory with tl.store",
                )

    def _unpack(self, target: ast.expr, targets: list[ast.expr], value: Any) -> None:
        for t in targets:
            if isinstance(t, ast.Starred):
                self.unsupported(t)
        if not isinstance(value, tuple):
            self.fail(
                target,
                "unpack",
                f"{describe(value)} can't be unpacked",
                "only tuples can be unpacked",
            )
        if len(value) != len(targets):
            self.fail(
                target,
                "unpack",
                f"{len(value)} values for {len(targets)} names",
                f"name {len(value)} variables",
            )
        for t, v in zip(targets, value, strict=True):
            self.assign(t, v, rename=False)

    def stmt_Assign(self, node: ast.Assign) -> None:
        value = self.expr(node.value)
        for target in node.targets:
            self.store(target, value, fresh=not isinstance(node.value, ast.Name))

    def store(self, target: ast.expr, value: Any, fresh: bool = True) -> None:
        """An assignment.  fresh: the value has no other name."""
        self.assign(target, typed(self.emitter, value), rename=fresh)

    def stmt_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is None:
            return
        value = self.expr(node.value)
        is_known = "constexpr" in ast.unparse(node.annotation)
        if not is_known or any(isinstance(leaf, Value) for leaf in leaves(value)):
            # Triton's constexpr, too, wraps what only the run knows, and then stands for it.
            self.assign(node.target, typed(self.emitter, value))
            return
        self.assign(node.target, known(value) if isinstance(value, Const) else value)

    def stmt_AugAssign(self, node: ast.AugAssign) -> None:
        if not isinstance(node.target, self.ASSIGNED):
            self.assign(node.target, None)
        read = copy.copy(node.target)
        read.ctx = ast.Load()
        old = self.expr(read)
        new = self.expr(node.value)
        self.store(node.target, self.binary(node, SYMBOLS[type(node.op)], old, new, node.value))

    # -- simple statements

    def stmt_Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):  # else a docstring
            self.expr(node.value)

    def stmt_FunctionDef(self, node: ast.FunctionDef) -> None:
        """A function of the kernel's own, inlined where it is called; decorators change nothing."""
        self.scope[node.name] = Binding(self.nested(node), self.loc(node))

    def stmt_Pass(self, node: ast.Pass) -> None:
        pass

    def stmt_Assert(self, node: ast.Assert) -> None:
        cond = self.expr(node.test)
        message = self.expr(node.msg) if node.msg is not None else ""
        with self.at(node):
            if isinstance(cond, Value):
                language.device_assert(cond, str(message))
            else:
                language.static_assert(cond, message)

    def stmt_With(self, node: ast.With) -> None:
        for item in node.items:
            context = self.expr(item.context_expr)
            if not isinstance(context, async_task) or item.optional_vars is not None:
                self.fail(
                    item.context_expr,
                    "with",
                    "kernels know no context manager but tl.async_task",
                    "write `with tl.async_task([0]):`, without `as`",
                )
            with self.at(item.context_expr):
                ids = context.task_ids
                ids = ids if isinstance(ids, tuple) else (ids,)
                named = frozenset(f"user{static_int(i, 'a task id')}" for i in ids)
                tasks = named or self.emitter.builder.tasks
        saved, self.emitter.builder.tasks = self.emitter.builder.tasks, tasks
        self.ends(node.body, "a with block")
        self.emitter.builder.tasks = saved

    # -- loops

    def _no_else(self, node: ast.For | ast.While) -> None:
        if node.orelse:
            what = f"kernels can't use {type(node).__name__.lower()} … else"
            self.fail(node.orelse[0], "unsupported", what, "drop the else")

    def stmt_For(self, node: ast.For) -> Outcome:
        self._no_else(node)
        space = self.expr(node.iter)
        if isinstance(space, language.range):
            self._loop(node, space)
            return None
        items = self.items(node.iter, space)
        static = isinstance(space, language.static_range) and len(items) > MOST_WRITTEN
        if static and may_roll(node, self.source.tree, self.scope) and self._rolled(node, space):
            return None
        return self._unroll(node, items)

    def _rolled(self, node: ast.For, space: language.static_range) -> bool:
        """Translates a loop of dots as one, where no step needs its index while compiling."""
        builder, scope, lost = self.emitter.builder, dict(self.scope), dict(self.lost)
        done = len(builder.ops)
        try:
            self._loop(node, language.range(*space.bounds))
            found = any(o.kind is tile.dot for x in builder.ops[done:] for o in x.all_ops)
        except CompileError:  # the body needs its index
            found = False
        if not found:
            del builder.ops[done:]
            self.scope, self.lost = scope, lost
        return found

    def _unroll(self, node: ast.For, items: Sequence[Any]) -> Outcome:
        for i, item in enumerate(items):
            self.assign(node.target, item, rename=False)
            outcome = self.block(node.body)
            if outcome is not None:
                left = items[i + 1 :]
                return self.unless_returned(
                    node, outcome, [node] if left else [], partial(self._unroll, node, left)
                )
        return None

    def _bounds(self, node: ast.For, space: language.range) -> tuple[list[Value], bool]:
        """lo, hi, step in one integer type, step positive; and whether the loop runs backwards."""
        emitter = self.emitter
        with self.at(node.iter):
            lo, hi, step = space.bounds
            d: DType = i32
            for b in (lo, hi, step):
                kind = emitter.number(b)
                if not kind.is_int or emitter.shape(b):
                    refuse(
                        "range-bound",
                        f"a loop bound is an integer, found {describe(b)}",
                        "divide integers by // or tl.cdiv, or cast it with .to(tl.int32)",
                    )
                d = promote(d, False, kind, is_literal(b) and kind.bits <= d.bits)
            backwards = False
            if not isinstance(step, Value):
                s = int(known(step))
                if s == 0:
                    refuse("range-step", "a range with step 0", "use a step other than 0")
                backwards = s < 0
                if backwards:
                    lo, hi, step = hi, lo, -s
            return [emitter.cast(b, d) for b in (lo, hi, step)], backwards

    def _loop(self, node: ast.For, space: language.range) -> None:
        """A loop at run time."""
        emitter = self.emitter
        if not isinstance(node.target, ast.Name):
            self.fail(node.target, "unpack", "a loop's index is one name", "write for i in …")
        (lo, hi, step), backwards = self._bounds(node, space)
        hints = self._loop_hints(node, space)
        index = Value(lo.type, node.target.id)
        carried, before, init = self._carried(node.body, {node.target.id})

        def start() -> None:
            i: Any = index
            if backwards:  # from hi down to lo: mirrored
                i = emitter.binary("-", emitter.binary("+", lo, hi), index)
            self.scope[node.target.id] = Binding(i, self.loc(node.target))  # type: ignore[attr-defined]

        inner = self._region(node, node.body, carried, before, init, start)
        region = replace(inner, params=(index, *inner.params))
        with self.at(node.iter):
            names = [v.hint for v in inner.params]
            results = emitter.append(
                control.for_, (lo, hi, step, *init), names, regions=(region,), **hints
            )
        self._after(node, carried, before, results)
        self.scope.pop(node.target.id, None)
        self.lost[node.target.id] = (
            INDEX_ENDS,
            self.loc(node.target),
        )

    def _loop_hints(self, node: ast.For, space: language.range) -> dict[str, Any]:
        """The attributes of the for op: those hints that were given."""
        given = {k: v for k, v in space.hints.items() if v is not None}
        with self.at(node.iter):
            for k, v in given.items():
                if k == "unroll":
                    given[k] = max(1, static_int(v, k))
                elif k == "num_stages":
                    given[k] = static_int(v, k)
                else:
                    given[k] = static_bool(v, k)
        # False asks for something where nothing said is no False: tasks
        return {k: v for k, v in given.items() if v is not False or k == "warp_specialize"}

    def _carried(
        self, body: Sequence[ast.stmt], but: set[str]
    ) -> tuple[list[str], Scope, tuple[Value, ...]]:
        """The variables that a loop carries, as they are before it, and their IR values."""
        names = [n for n in sorted(assigned_names(body) - but) if n in self.scope]
        before = {n: self.scope[n] for n in names}
        init = tuple(self.emitter.carried(x) for n in names for x in leaves(before[n].value))
        return names, before, init

    def _region(
        self,
        node: ast.For | ast.While,
        body: Sequence[ast.stmt],
        carried: list[str],
        before: Scope,
        init: tuple[Value, ...],
        start: Any,
    ) -> Region:
        """A loop's body with the carried values as parameters, yielding the next ones."""
        emitter = self.emitter
        saved = self.scope
        params = self._enter(carried, before, init)
        with emitter.inside(emitter.builder.nested()) as builder:
            start()
            self.ends(body, "a loop")
            with self.at(node):
                emitter.emit(control.yield_, *self._next(node, carried, before))
        self.scope = saved
        return Region(params, tuple(builder.ops))

    def _next(
        self, node: ast.For | ast.While, carried: list[str], before: Scope
    ) -> tuple[Value, ...]:
        """What the carried variables hold now, of the types that they had before the loop."""
        for name in carried:
            self._unchanged_kind(node, name, before[name], self.scope.get(name))
        found = (x for n in carried for x in leaves(self.scope[n].value))
        return tuple(map(self.emitter.carried, found))

    def _enter(
        self, carried: list[str], before: Scope, init: tuple[Value, ...]
    ) -> tuple[Value, ...]:
        """A new scope in which carried variables are region parameters; gives those."""
        hints = [n for n in carried for _ in leaves(before[n].value)]
        params = tuple(Value(v.type, h) for v, h in zip(init, hints, strict=True))
        values = iter(params)
        self.scope = dict(self.scope)
        for n in carried:
            self.scope[n] = Binding(rebuild(before[n].value, values), before[n].loc)
        return params

    def _unchanged_kind(
        self, node: ast.For | ast.While, name: str, old: Binding, new: Binding | None
    ) -> None:
        """Refuse a variable whose type the body changes."""
        emitter = self.emitter
        if new is None:  # an inner loop used it as its index
            self.fail(
                node,
                "loop-type",
                f"{name} has no value at the end of the loop's body",
                "use another name for the inner loop's index",
            )
        x, y = old.value, new.value
        if skeleton(x) == skeleton(y) and types_of(emitter, x) == types_of(emitter, y):
            return
        raise CompileError(
            "loop-type",
            f"{name} is {summary(emitter, x)} before the loop and {summary(emitter, y)} after one iteration",
            new.loc,
            (Note(f"{name} is {summary(emitter, x)} here", old.loc),),
            "start with the type that the body gives it, or cast in the body",
        )

    def _after(
        self, node: ast.For | ast.While, carried: list[str], before: Scope, results: Sequence[Value]
    ) -> None:
        """The variables after a loop."""
        values = iter(results)
        for n in carried:
            self.scope[n] = Binding(rebuild(before[n].value, values), before[n].loc)
        test = [ast.Expr(node.test)] if isinstance(node, ast.While) else []
        for n in assigned_names([*node.body, *test]):
            if n not in self.scope:
                self.lost[n] = ("only a loop's body assigns it", self.loc(node))

    def stmt_While(self, node: ast.While) -> None:
        self._no_else(node)
        emitter = self.emitter
        # the condition may assign (:=) too
        carried, before, init = self._carried([*node.body, ast.Expr(node.test)], set())
        saved = self.scope
        params = self._enter(carried, before, init)
        with emitter.inside(emitter.builder.nested()) as builder:
            test = self.expr(node.test)
            with self.at(node.test):
                c = self.condition(test)
                kept = self._next(node, carried, before)
                emitter.emit(control.yield_, emitter.cast(c, i1), *kept)
        self.scope = saved
        condition = Region(params, tuple(builder.ops))
        body = self._region(node, node.body, carried, before, init, lambda: None)
        with self.at(node.test):
            names = [v.hint for v in params]
            results = emitter.append(control.while_, init, names, regions=(condition, body))
        self._after(node, carried, before, results)
