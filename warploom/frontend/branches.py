"""`if` and `return`: which paths through a block go on, and what the variables are where paths meet.

A block ends in one of three ways: all of its paths reach its end (None), all of them return (`Returned`), or
those do where a flag is true (`Returned` with `when`).  The IR has no jumps.  Statements after an `if` of
which one arm returns become a part of the other arm; where both arms have a path that goes on, the `if`
gives the flag, and the statements after it stand under `if not flag`.  Each statement is translated once.
"""

from __future__ import annotations

import ast
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from warploom.errors import CompileError, Loc, Note
from warploom.frontend.coerce import Const, describe
from warploom.frontend.comprehensions import Comprehensions
from warploom.frontend.scope import (
    Binding,
    Scope,
    assigned_names,
    leaves,
    rebuild,
    same,
    skeleton,
    summary,
    types_of,
)
from warploom.ir.core import Builder, Region, Value
from warploom.ir.ops import arith, control, tile
from warploom.ir.types import Pointer, Scalar, Tile, elem_of, i1, shape_of

FLAG = "#returned"  # as variables of an arm: whether it has returned,
RESULT = "#result"  # and what
_SAME_BASE = (arith.addptr, tile.splat, tile.expand_dims, tile.broadcast)  # from operand 0


@dataclass(frozen=True)
class Returned:
    """A block that a return ends, with its value: on all paths, or where `when` is true."""

    value: Any
    loc: Loc
    when: Value | None = None


@dataclass(frozen=True)
class Arm:
    """One arm of an `if`, built apart, with the variables as it leaves them.

    `state`: what else a front door follows from statement to statement."""

    builder: Builder
    scope: Scope
    outcome: Returned | None
    state: Any = None

    @property
    def is_left(self) -> bool:
        """True where all its paths return."""
        return self.outcome is not None and self.outcome.when is None


Outcome = Returned | None


class Branches(Comprehensions):
    """Translates the control flow inside of one function body, but for its loops."""

    @abstractmethod
    def statement(self, node: ast.stmt) -> Outcome:
        """Translates a statement that is neither an `if` nor a return."""

    def block(self, statements: Sequence[ast.stmt]) -> Outcome:
        """Statements in order; how they end."""
        left = list(statements)
        while left:
            node, *left = left
            match node:
                case ast.Return():
                    value = self.expr(node.value) if node.value else None
                    return Returned(value, self.loc(node))
                case ast.If():
                    with self.at(node):
                        outcome, left = self._if(node, left)
                case _:
                    outcome = self.statement(node)
            if outcome is not None:
                return self.unless_returned(node, outcome, left, partial(self.block, left))
        return None

    def unless_returned(
        self,
        node: ast.stmt,
        outcome: Returned,
        left: Sequence[ast.stmt],
        go_on: Callable[[], Outcome],
    ) -> Outcome:
        """What `go_on` translates, the statements `left`, after those before ended in `outcome` at `node`."""
        if outcome.when is None or not left:
            return outcome
        gone = replace(self._arm(lambda: None), outcome=replace(outcome, when=None))
        return self._meet(node, outcome.when, [gone, self._arm(go_on)], assigned_names(left))

    def ends(self, body: Sequence[ast.stmt], where: str) -> None:
        """A block that no return may leave: what runs it would go on.  Raises CompileError."""
        outcome = self.block(body)
        if outcome is not None:
            raise CompileError(
                "return-nested",
                f"a return inside {where}",
                outcome.loc,
                help="return before or after it; inside, set a flag and put what follows under an if",
            )

    # -- if

    def _if(self, node: ast.If, rest: list[ast.stmt]) -> tuple[Outcome, list[ast.stmt]]:
        """An if, and where one arm of it returns also the statements after it: how that ends, and which
        statements are left."""
        return self._decided(node, self.expr(node.test), rest)

    def _decided(
        self, node: ast.If, test: Any, rest: list[ast.stmt]
    ) -> tuple[Outcome, list[ast.stmt]]:
        with self.at(node.test):
            c = self.condition(test)
        if isinstance(c, bool):
            return self.block(node.body if c else node.orelse), rest
        arms = [self._arm(partial(self.block, body)) for body in (node.body, node.orelse)]
        names = assigned_names([*node.body, *node.orelse])
        if arms[0].is_left != arms[1].is_left:
            arms = [a if a.is_left else self._resume(node, a, rest) for a in arms]
            names |= assigned_names(rest)
            rest = []
        return self._meet(node, c, arms, names), rest

    def _arm(self, translate: Callable[[], Outcome]) -> Arm:
        """What `translate` makes, apart."""
        return self._built(self.emitter.builder.nested(), dict(self.scope), translate)

    def _resume(self, node: ast.stmt, arm: Arm, rest: Sequence[ast.stmt]) -> Arm:
        """An arm with the statements after its `if` after it."""

        def translate() -> Outcome:
            if arm.outcome is None:
                return self.block(rest)
            return self.unless_returned(node, arm.outcome, rest, partial(self.block, rest))

        return self._built(arm.builder, arm.scope, translate, arm.state)

    def _built(
        self, builder: Builder, scope: Scope, translate: Callable[[], Outcome], state: Any = None
    ) -> Arm:
        saved, self.scope = self.scope, scope
        with self.emitter.inside(builder):
            outcome = translate()
        after, self.scope = self.scope, saved
        return Arm(builder, after, outcome)

    # -- where paths meet

    def _meet(self, node: ast.stmt, c: Value, arms: list[Arm], names: Iterable[str]) -> Outcome:
        """The `if` op of two arms, with the variables that it changes and how it ends."""
        where = node.test if isinstance(node, ast.If) else node
        ends = [a.outcome for a in arms]
        if all(a.is_left for a in arms):
            values = [end.value for end in ends if end is not None]
            with self.at(where):
                merged = self.merge(c, [a.builder for a in arms], values, ["result"])
            return Returned(merged, _loc(ends))
        special = []
        if any(ends):
            special = [FLAG, RESULT]
            for arm, end in zip(arms, ends, strict=True):
                when = end.when if end is not None else None
                arm.scope[FLAG] = Binding(when or Const(arm.is_left, i1), self.loc(where))
                if end is not None:
                    arm.scope[RESULT] = Binding(end.value, end.loc)
        self._join(where, c, arms, [*sorted(names), *special])
        if not special:
            return None
        flag, result = self.scope.pop(FLAG), self.scope.pop(RESULT, None)
        if result is None:
            what = next(describe(end.value) for end in ends if end is not None)
            raise CompileError(
                "return-nested",
                f"a return of {what} that only some paths reach",
                _loc(ends),
                help="return it at the end of the function, where all paths come by",
            )
        return Returned(result.value, _loc(ends), flag.value)

    def _join(self, where: ast.AST, c: Value, arms: list[Arm], names: Sequence[str]) -> None:
        """The `if` op, and the variables `names` that it changes."""
        merged: dict[str, tuple[Binding, Binding]] = {}
        for name in names:
            a, b = (self._leaves_as(arms, i, name) for i in (0, 1))
            if a is None or b is None:
                only = a or b or Binding(None, self.loc(where))
                self.lost[name] = ("only one arm of an if assigns it", only.loc)
                self.scope.pop(name, None)
            elif not same(a.value, b.value):
                if name == RESULT:
                    a, b = self._results_alike(arms, a, b)
                self._same_kind(where, name, a, b)
                merged[name] = a, b
            else:
                self.scope[name] = a
        values = [[x for b in merged.values() for x in leaves(b[i].value)] for i in (0, 1)]
        with self.at(where):
            values = self.level(c, [arm.builder for arm in arms], values)
        hints = [n for n, (a, _) in merged.items() for _ in leaves(a.value)]
        with self.at(where):
            results = iter(self.if_(c, [arm.builder for arm in arms], values, hints))
        for name, (binding, _) in merged.items():
            self.scope[name] = Binding(rebuild(binding.value, results), binding.loc)

    def _leaves_as(self, arms: Sequence[Arm], i: int, name: str) -> Binding | None:
        """What arm i leaves a variable as; None: without a value.  Where nobody reads what this arm leaves,
        it is whatever costs least beside the other arm's."""
        arm = arms[i]
        is_read = name == FLAG or (arm.outcome is not None if name == RESULT else not arm.is_left)
        if is_read:
            return arm.scope.get(name)
        other = arms[1 - i].scope.get(name)
        if other is None or not any(isinstance(x, Value) for x in leaves(other.value)):
            return other
        before = self.scope.get(name)
        if before is not None and self._are_alike(before.value, other.value):
            return before
        made = []
        for x in leaves(other.value):
            x = self._placeholder(x, arm.builder, arms[1 - i].builder)
            if x is None:
                return None
            made.append(x)
        return Binding(rebuild(other.value, iter(made)), other.loc)

    def _placeholder(self, x: Any, builder: Builder, made: Builder) -> Any:
        """Some value of x's type in `builder`, None where there is none.  x was made in `made`, and a pointer
        there of one that is known here as well."""
        if not isinstance(x, Value):
            return x
        t = x.type
        if not isinstance(t, Scalar | Pointer | Tile):
            return None
        with self.emitter.inside(builder):
            element = elem_of(t)
            if not isinstance(element, Pointer):
                return self.emitter.expand_to(self.emitter.const(0, element), shape_of(t))
            base = self._base(x, made)
            if base is None or base.type not in (t, element):
                return None
            return self.emitter.expand_to(base, shape_of(t))

    def _base(self, pointer: Value, made: Builder) -> Value | None:
        """The pointer from outside of `made` that a pointer comes from; None where that is not plain."""
        ops = Region((), tuple(made.ops)).all_ops
        makers = {v: (o, i) for o in ops for i, v in enumerate(o.results)}
        inner = {v for o in ops for r in o.regions for v in r.params}
        v = self.emitter.renamed.get(pointer, pointer)
        while v in makers:
            o, i = makers[v]
            if o.kind is control.if_:
                v = o.regions[0].yielded[i]
            elif o.kind in _SAME_BASE:
                v = o.operands[0]
            else:
                return None
        return None if v in inner else v

    def _results_alike(self, arms: Sequence[Arm], *results: Binding) -> list[Binding]:
        """What two arms return: a literal takes the dtype of the number in the other arm."""
        parts = [leaves(r.value) for r in results]
        if skeleton(results[0].value) != skeleton(results[1].value):
            return list(results)
        made = []
        for i, (arm, r) in enumerate(zip(arms, results, strict=True)):
            with self.emitter.inside(arm.builder):
                like = [self._like(x, y) for x, y in zip(parts[i], parts[1 - i], strict=True)]
            made.append(Binding(rebuild(r.value, iter(like)), r.loc))
        return made

    def _are_alike(self, x: Any, y: Any) -> bool:
        """True where y can be carried in the place of x."""
        return skeleton(x) == skeleton(y) and types_of(self.emitter, x) == types_of(self.emitter, y)

    def _same_kind(self, where: ast.AST, name: str, a: Binding, b: Binding) -> None:
        """Refuse a variable that the arms leave with different types."""
        x, y = a.value, b.value
        if self._are_alike(x, y) or (self.emitter.by_element and skeleton(x) == skeleton(y)):
            return
        emitter = self.emitter
        what = "what is returned" if name == RESULT else name
        raise CompileError(
            "if-type",
            f"{what} is {summary(emitter, x)} in one arm and {summary(emitter, y)} in the other",
            b.loc if b.loc.line != a.loc.line else self.loc(where),
            (Note(f"{what} is {summary(emitter, x)} here", a.loc),),
            "give it one type, as in x.to(tl.float32), or use two variables",
        )


def _loc(ends: Sequence[Outcome]) -> Loc:
    return next(end.loc for end in ends if end is not None)
