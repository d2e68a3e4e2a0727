"""Expressions: one method for each class of Python's ast that kernels may use."""

from __future__ import annotations

import ast
import builtins
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from warploom.errors import CompileError, Note
from warploom.frontend import scope as scopes
from warploom.frontend.attributes import attribute
from warploom.frontend.calls import Calls
from warploom.frontend.coerce import Const, describe, is_literal, known, static_int
from warploom.frontend.language import shape
from warploom.frontend.language.core import Aggregate, Table
from warploom.frontend.operators import METHOD_OF, PYTHON, SYMBOLS
from warploom.frontend.reads import MISSING
from warploom.frontend.refuse import did_you_mean, refuse
from warploom.frontend.scope import admit, leaves, rebuild, skeleton
from warploom.frontend.vocabulary import (
    INDEX_ENDS,
    NOT_YET,
    PYTHON_BUILTINS,
    REPLACED,
    SPECULATED,
)
from warploom.ir.core import Builder, Region, Value
from warploom.ir.ops import arith, control, scaled, tile
from warploom.ir.types import DType, Pointer, i1, shape_of

PUBLIC = ("warploom.language", "warploom.triton.language")  # what users import frontend/language as


class Expressions(Calls):
    """Translates the expressions of one function body."""

    # -- dispatch

    def expr(self, node: ast.expr) -> Any:
        """The value of an expression."""
        visit = getattr(self, f"expr_{type(node).__name__}", None)
        return visit(node) if visit else self.unsupported(node)

    def expr_Constant(self, node: ast.Constant) -> Any:
        if node.value is Ellipsis or isinstance(node.value, bytes | complex):
            self.fail(node, "constant", f"{node.value!r} has no meaning in a kernel", "use numbers")
        return node.value

    def expr_Name(self, node: ast.Name) -> Any:
        if node.id in self.scope:
            return self.scope[node.id].value
        found, value = self.emitter.reads.name(self.source.fn, node.id)
        if node.id in self.lost:
            why, where = self.lost[node.id]
            raise CompileError(
                "undefined-name",
                f"{node.id} has no value here: {why}",
                self.loc(node),
                (Note(f"{node.id} is assigned here", where),),
                f"let the loop assign it to another variable, that has a value before: last = {node.id}"
                if why == INDEX_ENDS
                else f"give {node.id} a value before that block",
            )
        pythons = vars(builtins).get(node.id, self)  # no kernel's value is self
        if found and value is pythons and node.id not in PYTHON_BUILTINS:
            help = REPLACED.get(
                node.id, "see the names of tl, and of Python: range, min, max, abs, len"
            )
            self.fail(node, "unsupported", f"kernels can't use Python's {node.id}", help)
        if not found:
            known_names = [*self.scope, *self.source.fn.__globals__, *PYTHON_BUILTINS]
            self.fail(
                node,
                "undefined-name",
                f"{node.id} is not defined",
                did_you_mean(node.id, known_names, "assign it first, or import it in the module"),
            )
        with self.at(node):
            return admit(node.id, value)

    def expr_Tuple(self, node: ast.Tuple | ast.List) -> Any:
        return tuple(self.elements(node.elts))

    expr_List = expr_Tuple

    def expr_JoinedStr(self, node: ast.JoinedStr) -> str:
        parts: list[str] = []
        for piece in node.values:
            if isinstance(piece, ast.Constant):
                parts.append(str(piece.value))
                continue
            assert isinstance(piece, ast.FormattedValue)
            value = self.expr(piece.value)
            if isinstance(value, Value):
                self.fail(
                    piece.value,
                    "string-value",
                    f"a run-time value ({describe(value)}) in a string",
                    "only constexprs can be formatted; use tl.device_print for run-time values",
                )
            shown = known(value) if isinstance(value, Const) else value
            spec = self.expr(piece.format_spec) if piece.format_spec is not None else ""
            shown = repr(shown) if piece.conversion == ord("r") else shown
            parts.append(format(shown, spec))
        return "".join(parts)

    # -- operators

    def expr_BinOp(self, node: ast.BinOp) -> Any:
        chain = [
            node
        ]  # a + b + c + …, outermost first: long sums nest deeper than Python's calls may
        while isinstance(chain[-1].left, ast.BinOp):
            chain.append(chain[-1].left)
        value = self.expr(chain[-1].left)
        for o in reversed(chain):
            mark = len(self.emitter.builder.ops)
            right = self.expr(o.right)
            fresh = o.right if len(self.emitter.builder.ops) > mark else o.left
            value = self.binary(o, SYMBOLS[type(o.op)], value, right, fresh)
        return value

    def binary(
        self, node: ast.AST, symbol: str, x: Any, y: Any, fresh: ast.AST | None = None
    ) -> Any:
        """x symbol y.  `fresh`: the operand that was evaluated last."""
        if isinstance(x, Aggregate) or isinstance(y, Aggregate):
            return self._of_aggregates(node, symbol, x, y)
        runtime = isinstance(x, Value | Const) or isinstance(y, Value | Const)
        if not runtime:
            return self._static_binary(node, symbol, x, y)
        with self.at(node, left=x, right=y):
            if symbol == "@":
                refuse("unsupported", "kernels can't use @", "write tl.dot(a, b)")
            if symbol == "**":
                refuse("unsupported", "kernels can't use ** on values", "multiply, or use tl.exp2")
            if symbol == "+" and isinstance(fresh, ast.Call):
                fused = self._accumulate(x, y)
                if fused is not None:
                    return fused
            return self.emitter.binary(symbol, x, y)

    def _of_aggregates(self, node: ast.AST, symbol: str, x: Any, y: Any) -> Any:
        """An operator that a class of aggregates defines."""
        for owner, other, name in zip((x, y), (y, x), METHOD_OF[symbol], strict=True):
            if isinstance(owner, Aggregate):
                fn = self.emitter.reads.attribute(owner.kind, name)
                if getattr(fn, "__warploom_fn__", None) is not None:
                    return self.inline(node, fn.__warploom_fn__, [owner, other], {})
        help = f"define {METHOD_OF[symbol][0]} under @triton.jit in the class"
        self.fail(node, "operand-type", f"{describe(x)} {symbol} {describe(y)}", help)

    def _static_binary(self, node: ast.AST, symbol: str, x: Any, y: Any) -> Any:
        """Both sides are known: Python's own operator."""
        numbers = is_literal(x) and is_literal(y)
        sequences = isinstance(x, str | tuple) and (type(x) is type(y) or isinstance(y, int))
        if not (numbers or sequences or symbol in ("==", "!=")):
            with self.at(node):
                refuse(
                    "operand-type",
                    f"{describe(x)} {symbol} {describe(y)}",
                    "operators take numbers, pointers and tiles",
                )
        try:
            return PYTHON[symbol](x, y)
        except (ArithmeticError, TypeError, KeyError, ValueError) as e:
            self.fail(
                node,
                "constant",
                f"{describe(x)} {symbol} {describe(y)}: {e}",
                "check the constexprs",
            )

    def _accumulate(self, x: Any, y: Any) -> Value | None:
        """x + dot(a, b) as dot(a, b, x), where the dot was just made upon zeros for this sum only."""
        emitter = self.emitter
        acc, product = (x, y) if emitter.is_last(y) else (y, x)
        ops = emitter.builder.ops
        if not emitter.is_last(product) or not isinstance(acc, Value) or acc.type != product.type:
            return None
        dot = ops[-1]
        if (
            dot.kind not in (tile.dot, scaled.dot_scaled)
            or len(ops) < 3
            or dot.operands[2] is not ops[-2].results[0]
        ):
            return None
        if (
            ops[-2].kind is not tile.splat
            or ops[-3].kind is not arith.const
            or ops[-3].attrs["value"]
        ):
            return None
        del ops[-3:]
        a, b, _, *scales = dot.operands
        return emitter.emit(dot.kind, a, b, acc, *scales, **dot.attrs)

    def expr_UnaryOp(self, node: ast.UnaryOp) -> Any:
        x = self.expr(node.operand)
        with self.at(node, operand=x):
            match node.op:
                case ast.Not() if self.emitter.is_tile(x):
                    return self.emitter.invert(self.emitter.logical(x))
                case ast.Not():
                    c = self.condition(x)
                    return not c if isinstance(c, bool) else self.emitter.invert(c)
                case ast.USub():
                    return -x if is_literal(x) else self.emitter.negative(x)
                case ast.Invert():
                    return ~x if isinstance(x, int) else self.emitter.invert(x)
            self.emitter.number(x)
            return x

    def condition(self, x: Any) -> bool | Value:
        """The truth of a scalar: Python's where it is known, else an i1."""
        if isinstance(x, Const):
            return bool(x.value)
        if isinstance(x, Value) and isinstance(x.type, Pointer) and not self.emitter.has_addresses:
            return True  # an array's; None is no pointer here
        return self.emitter.truth(x) if isinstance(x, Value) else bool(x)

    def expr_Compare(self, node: ast.Compare) -> Any:
        left = self.expr(node.left)

        def one(op: ast.cmpop, right: ast.expr) -> Any:
            nonlocal left
            x, left = left, self.expr(right)
            return self._compare(node, op, x, left)

        pairs = zip(node.ops, node.comparators, strict=True)
        return self._short_circuit(node, True, [(node, partial(one, *pair)) for pair in pairs])

    def _compare(self, node: ast.Compare, op: ast.cmpop, x: Any, y: Any) -> Any:
        match op:
            case ast.Is() | ast.IsNot():
                same = x is y or (is_literal(x) and is_literal(y) and x == y)
                return same if isinstance(op, ast.Is) else not same
            case ast.In() | ast.NotIn():
                y = y.keys if isinstance(y, Table) else y
                if isinstance(x, Value) or not isinstance(y, tuple | str):
                    self.fail(
                        node,
                        "operand-type",
                        f"{describe(x)} in {describe(y)}",
                        "`in` compares constexprs with a tuple or string; write x == a or x == b",
                    )
                inside = (known(x) if isinstance(x, Const) else x) in y
                return inside if isinstance(op, ast.In) else not inside
        return self.binary(node, SYMBOLS[type(op)], x, y)

    def expr_BoolOp(self, node: ast.BoolOp) -> Any:
        terms = [(v, partial(self.expr, v)) for v in node.values]
        return self._short_circuit(node, isinstance(node.op, ast.And), terms)

    def _short_circuit(
        self, node: ast.expr, is_and: bool, terms: Sequence[tuple[ast.expr, Callable[[], Any]]]
    ) -> Any:
        """`and` or `or` of terms, each evaluated only where those before it leave the result open."""
        emitter = self.emitter

        def chain(rest: Sequence[tuple[ast.expr, Callable[[], Any]]]) -> Any:
            at, evaluate = rest[0]
            x = evaluate()
            if len(rest) == 1:
                return x
            if emitter.is_tile(x):
                return elementwise(x, chain(rest[1:]))
            with self.at(at):
                c = self.condition(x)
            if isinstance(c, bool):  # decided while compiling, with Python's own value
                return chain(rest[1:]) if c is is_and else x
            arms = (
                emitter.builder.nested(),
                emitter.builder.nested(),
            )  # decided by x, and by the rest
            with emitter.inside(arms[1]), self._perhaps(node):
                value = chain(rest[1:])
                if not emitter.is_tile(value):
                    with self.at(rest[1][0]):
                        value = emitter.truth(value)
            if emitter.is_tile(value):  # nothing is decided by a single value
                emitter.builder.ops.extend(arms[1].ops)
                return elementwise(c, value)
            with emitter.inside(arms[0]):
                decided = emitter.const(not is_and, i1)
            order = (1, 0) if is_and else (0, 1)
            results = decided, value
            with self.at(node):
                return self.merge(c, [arms[i] for i in order], [results[i] for i in order], [""])

        def elementwise(x: Any, y: Any) -> Any:
            with self.at(node, left=x, right=y):
                sides = emitter.logical(x), emitter.logical(y)
                return emitter.binary("&" if is_and else "|", *sides)

        return chain(terms)

    @contextmanager
    def _perhaps(self, node: ast.AST) -> Iterator[None]:
        """Refuses assignments (:=) in what is evaluated under a condition of run time."""
        before = dict(self.scope)
        yield
        for name, binding in self.scope.items():
            if before.get(name) is not binding:
                self.fail(
                    node,
                    "conditional-assignment",
                    f"{name} is assigned (:=) in what may not be evaluated",
                    f"assign {name} in a statement of its own, under an if",
                )

    def expr_IfExp(self, node: ast.IfExp) -> Any:
        test = self.expr(node.test)
        with self.at(node.test):
            c = self.condition(test)
        if isinstance(c, bool):
            return self.expr(node.body if c else node.orelse)
        return self.either(node, c, lambda: self.expr(node.body), lambda: self.expr(node.orelse))

    def either(self, node: ast.AST, c: Value, yes: Callable[[], Any], no: Callable[[], Any]) -> Any:
        """yes() where c, else no(): a select where both are free of effects, else an `if`."""
        emitter = self.emitter
        arms: list[Builder] = []
        results: list[Any] = []
        for arm in (yes, no):
            with emitter.inside(emitter.builder.nested()) as builder, self._perhaps(node):
                results.append(arm())
            arms.append(builder)
        with self.at(node):
            return self.merge(c, arms, results, [""])

    def merge(self, c: Value, arms: list[Builder], results: list[Any], hints: list[str]) -> Any:
        """The value of two arms whose ops were built apart, as one."""
        emitter = self.emitter
        x, y = results
        if skeleton(x) != skeleton(y):
            refuse(
                "if-type",
                f"the arms give {scopes.summary(emitter, x)} and {scopes.summary(emitter, y)}",
                "make both arms give the same kind of value",
            )
        flat: list[tuple[Value, ...]] = []
        pairs = list(zip(leaves(x), leaves(y), strict=True))
        for side, builder in enumerate(arms):
            with emitter.inside(builder):
                flat.append(tuple(self._like(pair[side], pair[1 - side]) for pair in pairs))
        flat = [tuple(side) for side in self.level(c, arms, flat)]
        for a, b in zip(*flat, strict=True):
            if a.type != b.type:
                refuse(
                    "if-type",
                    f"the arms give {a.type} and {b.type}",
                    "cast one of them, as in x.to(tl.float32)",
                )
        if all(o.kind in SPECULATED for b in arms for o in b.ops):
            for b in arms:
                emitter.builder.ops.extend(b.ops)
            merged = [
                p if p is q else emitter.emit(arith.select, c, p, q)
                for p, q in zip(*flat, strict=True)
            ]
        else:
            merged = list(self.if_(c, arms, flat, hints * len(flat[0])))
        return rebuild(x, iter(merged))

    def _like(self, x: Any, other: Any) -> Value:
        """A literal takes the dtype of the number in the other arm."""
        if is_literal(x) and isinstance(other, Value | Const):
            d = self.emitter.dtype(other)
            if isinstance(d, DType):
                return self.emitter.cast(x, self.emitter.promoted(x, Const(0, d)))
        return self.emitter.carried(x)

    def if_(
        self, c: Value, arms: list[Builder], values: Sequence[Sequence[Value]], hints: list[str]
    ) -> tuple[Value, ...]:
        """An `if` op of two finished arms; of a condition by element what both arms give, selected."""
        if self.emitter.is_tile(c):
            return self._selected(c, arms, values)
        regions = []
        for builder, out in zip(arms, values, strict=True):
            with self.emitter.inside(builder):
                self.emitter.emit(control.yield_, *out)
            regions.append(Region((), tuple(builder.ops)))
        return self.emitter.append(control.if_, (c,), hints, regions=tuple(regions))

    def _selected(
        self, c: Value, arms: list[Builder], values: Sequence[Sequence[Value]]
    ) -> tuple[Value, ...]:
        emitter = self.emitter
        for o in Region((), tuple(o for b in arms for o in b.ops)).all_ops:
            if o.kind.effect:
                refuse(
                    "map-effect",
                    f"{o.kind.name} under an if on single elements",
                    "load and store outside of the function that map_elementwise maps",
                )
        for b in arms:
            emitter.builder.ops.extend(b.ops)
        return tuple(emitter.select(c, x, y) for x, y in zip(*values, strict=True))

    def level(
        self, c: Value, arms: list[Builder], values: Sequence[Sequence[Any]]
    ) -> list[list[Value]]:
        """What two arms leave as IR values, each pair of one shape where they are chosen by element."""
        made: list[list[Value]] = []
        for side, builder in enumerate(arms):
            with self.emitter.inside(builder):
                made.append([self.emitter.carried(x) for x in values[side]])
        if self.emitter.is_tile(c):
            for i, (x, y) in enumerate(zip(*made, strict=True)):
                shape = self.emitter.common_shape(c, x, y)
                for values_of, builder in zip(made, arms, strict=True):
                    with self.emitter.inside(builder):
                        values_of[i] = self.emitter.expand_to(values_of[i], shape)
        return made

    # -- attributes and subscripts

    def expr_Attribute(self, node: ast.Attribute) -> Any:
        return self.attribute_of(node, self.expr(node.value))

    def attribute_of(self, node: ast.Attribute, x: Any) -> Any:
        """The attribute `node` names, of a value that is there already."""
        if isinstance(x, types.ModuleType):
            return self._module_attribute(node, x)
        with self.at(node):
            value = attribute(self.emitter, x, node.attr)
        return value

    def _module_attribute(self, node: ast.Attribute, module: types.ModuleType) -> Any:
        value = self.emitter.reads.attribute(module, node.attr)
        if value is not MISSING:
            with self.at(node):
                return admit(self.source.text(node), value)
        if module.__name__ in PUBLIC and node.attr in NOT_YET:
            self.fail(
                node,
                "not-yet",
                f"{self.source.text(node)} is Triton's, but not supported here",
                NOT_YET[node.attr],
            )
        public = getattr(module, "__all__", dir(module))
        self.fail(
            node,
            "unknown-function",
            f"{module.__name__} has no {node.attr}",
            did_you_mean(node.attr, public, f"see the names in {module.__name__}"),
        )

    def expr_Subscript(self, node: ast.Subscript) -> Any:
        return self.subscript_of(node, self.expr(node.value))

    def subscript_of(self, node: ast.Subscript, x: Any) -> Any:
        """The part of x that `node` names."""
        if isinstance(x, Table):
            key, table = self.expr(node.slice), x.as_dict()
            if isinstance(key, Value) or key not in table:
                names = ", ".join(map(repr, table))
                self.fail(node, "dict-key", f"no entry {describe(key)}", f"there are {names}")
            return table[key]
        if isinstance(x, tuple | str):
            index = self._static_index(node.slice)
            try:
                return x[index]
            except IndexError:
                self.fail(node, "tuple-index", f"index {index} of {describe(x)}", "count from 0")
        if not isinstance(x, Value | Const) and not is_literal(x):
            self.fail(
                node,
                "subscript",
                f"{describe(x)} can't be indexed",
                f"a function is called without a grid: {ast.unparse(node.value)}(…)"
                if callable(x)
                else "only tiles (with : and None) and tuples can",
            )
        entries = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        return self._expand(node, x, entries)

    def _static_index(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Slice):
            parts = [
                None if p is None else static_int(self.expr(p), "a slice bound")
                for p in (node.lower, node.upper, node.step)
            ]
            return slice(*parts)
        index = self.expr(node)
        if isinstance(index, slice):
            return index
        with self.at(node):
            return static_int(index, "a tuple's index")

    def _expand(self, node: ast.Subscript, x: Any, entries: list[ast.expr]) -> Value:
        """x[:, None]: every `:` keeps an axis, every None makes one, axes that aren't named are kept."""
        with self.at(node, value=x):
            v = self.emitter.value(x)
            kept = 0
            for axis, entry in enumerate(entries):
                whole = isinstance(entry, ast.Slice) and not (
                    entry.lower or entry.upper or entry.step
                )
                new = isinstance(entry, ast.Constant) and entry.value is None
                if not (whole or new):
                    refuse(
                        "subscript",
                        f"a tile is indexed by : and None only, not by {self.source.text(entry)}",
                        "load the part that you need through pointers, or use tl.where and tl.sum",
                    )
                kept += whole
                if new:
                    v = shape.expand_dims(v, axis)
            rank = len(shape_of(self.emitter.value(x).type))
            if rank and kept > rank:
                refuse(
                    "subscript",
                    f"{kept} axes indexed of {describe(x)}",
                    "write at most one : for each axis of the tile",
                )
            return v
