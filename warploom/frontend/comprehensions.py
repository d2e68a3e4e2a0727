"""Expressions that bind names, or make several values: lambdas, `:=`, comprehensions, dicts."""

from __future__ import annotations

import ast
import inspect
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

from warploom.frontend import language
from warploom.frontend.calls import NestedFunction
from warploom.frontend.coerce import Const, describe, static_bool, static_int
from warploom.frontend.expressions import Expressions
from warploom.frontend.language.core import Table, static_range
from warploom.frontend.refuse import refuse
from warploom.ir.core import Value

MOST_UNROLLED = 1 << 16  # iterations that are written out


class Comprehensions(Expressions):
    """Translates what binds names inside of expressions."""

    @abstractmethod
    def assign(self, target: ast.expr, value: Any, rename: bool = True) -> None:
        """Bind a name or a tuple of names."""

    @abstractmethod
    def store(self, target: ast.expr, value: Any, fresh: bool = True) -> None:
        """An assignment.  fresh: the value has no other name."""

    def expr_Lambda(self, node: ast.Lambda) -> NestedFunction:
        """A lambda is a function that returns its expression."""
        made = ast.FunctionDef("<lambda>", node.args, [ast.Return(node.body)], [], None)
        for new in (made, made.body[0]):
            ast.copy_location(new, node)
        return self.nested(made)

    def nested(self, node: ast.FunctionDef) -> NestedFunction:
        """A function with its parameters and their defaults, which are evaluated now."""
        a = node.args
        if a.kwarg is not None:
            what = f"{node.name} takes any names (**{a.kwarg.arg})"
            self.fail(a.kwarg, "parameter-kind", what, "name each parameter")
        empty, kind = inspect.Parameter.empty, inspect.Parameter
        plain = [*a.posonlyargs, *a.args]
        values = [self.expr(d) for d in a.defaults]
        given: list[Any] = [*[empty] * (len(plain) - len(values)), *values]
        found = [
            kind(p.arg, kind.POSITIONAL_OR_KEYWORD, default=d)
            for p, d in zip(plain, given, strict=True)
        ]
        if a.vararg is not None:
            found.append(kind(a.vararg.arg, kind.VAR_POSITIONAL))
        found += [
            kind(p.arg, kind.KEYWORD_ONLY, default=empty if d is None else self.expr(d))
            for p, d in zip(a.kwonlyargs, a.kw_defaults, strict=True)
        ]
        return NestedFunction(node, inspect.Signature(found), self)

    def expr_NamedExpr(self, node: ast.NamedExpr) -> Any:
        self.store(node.target, self.expr(node.value))
        return self.scope[node.target.id].value

    def expr_ListComp(self, node: ast.ListComp | ast.GeneratorExp) -> tuple[Any, ...]:
        """A tuple: what is iterated over is known while compiling."""
        saved = dict(self.scope)
        found = tuple(self._comprehended(node.elt, node.generators))
        for n in (n.target.id for n in ast.walk(node) if isinstance(n, ast.NamedExpr)):
            if n in self.scope:  # an assignment (:=) is one of the function around
                saved[n] = self.scope[n]
        self.scope = saved
        return found

    expr_GeneratorExp = expr_ListComp

    def _comprehended(
        self, element: ast.expr, generators: Sequence[ast.comprehension]
    ) -> Iterator[Any]:
        if not generators:
            yield self.expr(element)
            return
        first, *rest = generators
        for item in self.items(first.iter, self.expr(first.iter)):
            self.assign(first.target, item, rename=False)
            if all(static_bool(self.expr(c), "a comprehension's condition") for c in first.ifs):
                yield from self._comprehended(element, rest)

    def items(self, node: ast.expr, space: Any) -> Sequence[Any]:
        """What a loop that is unrolled runs over."""
        match space:
            case static_range() | language.range():
                with self.at(node):
                    what = (
                        "tl.static_range" if isinstance(space, static_range) else "a range unrolled"
                    )
                    bounds = [static_int(b, f"a bound of {what}") for b in space.bounds]
                    if bounds[2] == 0:
                        refuse("range-step", "a range with step 0", "use a step other than 0")
                    if len(found := range(*bounds)) > MOST_UNROLLED:
                        iterations = f"{what} of {len(found):,} iterations"
                        refuse("unrolled", iterations, "let the loop run: for i in range(…)")
                return found
            case Table():
                return space.keys
            case tuple():
                return space
        self.fail(
            node,
            "iterate",
            f"can't iterate over {describe(space)}",
            "loop over range, tl.range, tl.static_range or a tuple",
        )

    def expr_Dict(self, node: ast.Dict) -> Table:
        keys: list[Any] = []
        for k, v in zip(node.keys, node.values, strict=True):
            if k is None:
                self.fail(v, "unsupported", "kernels can't use ** in a dict", "name each entry")
            key = self.expr(k)
            if isinstance(key, Value | Const):
                self.fail(
                    k, "constexpr-required", f"the key {describe(key)}", "use strings or ints"
                )
            keys.append(key)
        return Table(tuple(keys), tuple(self.elements(node.values)))
