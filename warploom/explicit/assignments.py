"""Assignments of a script: to variables, which may keep a declared type, to fields, and to self.attrs."""

from __future__ import annotations

import ast
import math
from typing import Any

from warploom.explicit.elements import Numbers
from warploom.explicit.handles import Attrs, Instance
from warploom.explicit.objects import Objects
from warploom.explicit.program import Again, Threads
from warploom.frontend.coerce import Const, describe, is_literal, known, static_int
from warploom.frontend.refuse import did_you_mean, refuse
from warploom.frontend.scope import Binding
from warploom.ir.core import Value
from warploom.ir.ops.cluster import MAX_CTAS
from warploom.ir.types import Barriers, DType, InFlight, Shared, Tile


class Assignments(Objects):
    """Translates the assignments of one function of a script."""

    ASSIGNED = (ast.Name, ast.Attribute, ast.Subscript)

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.declared: dict[str, DType] = {}  # variables with a type of their own

    def stmt_Expr(self, node: ast.Expr) -> None:
        match node.value:
            case ast.Call(func=ast.Attribute(value=ast.Call(func=ast.Name(id="super")))):
                return  # super().__init__(): nothing to do
        super().stmt_Expr(node)

    def stmt_Assign(self, node: ast.Assign) -> None:
        self.program.target = _name_of(node.targets[0])
        super().stmt_Assign(node)
        self.program.target = ""

    def stmt_AnnAssign(self, node: ast.AnnAssign) -> None:
        annotation = self.expr(node.annotation)
        name = _name_of(node.target)
        if node.value is None:
            self.fail(node, "declaration", f"{name} has no value", "give it one: slot: int32 = 0")
        self.program.target = name
        value = self.expr(node.value)
        self.program.target = ""
        if isinstance(annotation, DType):
            with self.at(node.value):
                value = self._as(value, annotation)
            if isinstance(node.target, ast.Name):
                self.declared[name] = annotation
        elif isinstance(node.target, ast.Name):
            self.declared.pop(name, None)
        if annotation in (int, bool, float) and is_literal(value):
            self._bind(node.target, value)  # stays a compile-time number
            return
        self.store(node.target, value)

    def _as(self, value: Any, dtype: DType) -> Any:
        """A number as a variable of that dtype keeps it."""
        if isinstance(value, Const) or is_literal(value):
            number = known(value)
            return Const(int(number) if dtype.is_int else float(number), dtype)
        return self.emitter.cast(value, dtype)

    def store(self, target: ast.expr, value: Any, fresh: bool = True) -> None:
        is_held = isinstance(value, Value) and isinstance(value.type, Shared | Barriers | InFlight)
        if isinstance(target, ast.Attribute) or (is_held and isinstance(target, ast.Name)):
            self._bind(target, value)
        else:
            super().store(target, value, fresh)

    def assign(self, target: ast.expr, value: Any, rename: bool = True) -> None:
        match target:
            case ast.Attribute():
                self._bind(target, value)
            case ast.Subscript():
                self._set_element(target, value)
            case ast.Name(id=name) if isinstance(value, Const | Value) and name in self.declared:
                dtype = self.declared[name]
                if self.emitter.shape(value) == () and self.emitter.dtype(value) != dtype:
                    with self.at(target):
                        value = self._as(value, dtype)
                super().assign(target, value, rename)
            case _:
                super().assign(target, value, rename)

    def _set_element(self, target: ast.Subscript, value: Any) -> None:
        """x[i] = value of a register tensor, which is numbers then."""
        x = self.expr(target.value)
        name = _name_of(target.value)
        if isinstance(x, Value) and isinstance(x.type, Tile):
            key = name, x.type.shape, x.type.dtype
            if key not in self.program.elementwise:
                self.program.elementwise.add(key)
                raise Again
        if not isinstance(x, Numbers):
            self.fail(
                target,
                "assign-target",
                f"elements of {describe(x)} can't be assigned",
                "they can be of a register_tensor under the name that it was made for; of others write "
                "self.where(…), or go by shared memory",
            )
        index = self.expr(target.slice)
        with self.at(target):
            self._replace(x, x.with_element(index, value))

    def _bind(self, target: ast.expr, value: Any) -> None:
        """A name or a field becomes a value, as it is."""
        if isinstance(target, ast.Name):
            self.scope[target.id] = Binding(value, self.loc(target))
            self.lost.pop(target.id, None)
            return
        if not isinstance(target, ast.Attribute):
            self.fail(target, "assign-target", "can't be assigned", "assign to a name or a field")
        owner = self.expr(target.value)
        match owner:
            case Attrs():
                self._set_attr(target, value)
            case Instance():
                old = self.scope.get(owner.key(target.attr))
                if old is not None and isinstance(old.value, Value | Const):
                    d = self.emitter.dtype(old.value)
                    if isinstance(d, DType) and self.emitter.shape(old.value) == ():
                        with self.at(target):
                            value = self._as(value, d)
                self.scope[owner.key(target.attr)] = Binding(value, self.loc(target))
            case _:
                self.fail(
                    target, "assign-target", f"{describe(owner)} has no fields", "assign to a name"
                )

    def _set_attr(self, target: ast.Attribute, value: Any) -> None:
        name = target.attr
        names = ("blocks", "warps", "cluster_blocks", "ctas_per_sm")
        if name not in names:
            self.fail(
                target,
                "attrs",
                f"self.attrs has no {name}",
                did_you_mean(name, names, f"it has {', '.join(names)}"),
            )
        with self.at(target):
            if self.emitter.builder is not (self.program.body or self.program.top):
                refuse(
                    "attrs",
                    f"self.attrs.{name} under a condition, or in a loop, of the run",
                    "a launch has one of each: set it outside, by what is known at compile time",
                )
            if name == "warps":
                n = static_int(value, "the number of warps")
                if not 1 <= n <= 32:
                    refuse("attrs-warps", f"{n} warps", "a CTA has 1 to 32 warps")
                self.program.threads[0] = Threads(0, n, 1, "all", self.emitter.loc)
            elif name == "cluster_blocks":
                self._set_cluster(value)
            elif name == "ctas_per_sm":
                n = static_int(value, "how many CTAs share a multiprocessor")
                if n < 1:
                    refuse("attrs-ctas-per-sm", f"{n} CTAs a multiprocessor", "give 1 or more")
                self.program.ctas_per_sm = n
            self.program.attrs[name] = (value, self.emitter.loc)

    def _set_cluster(self, value: Any) -> None:
        p = self.program
        sizes = value if isinstance(value, tuple) else (value,)
        shape = tuple(static_int(n, "a cluster size") for n in sizes)
        if not 1 <= len(shape) <= 3 or min(shape) < 1 or math.prod(shape) > MAX_CTAS:
            refuse(
                "attrs-cluster",
                f"a cluster of {' × '.join(map(str, shape))} CTAs",
                f"give 1 to 3 sizes, at most {MAX_CTAS} CTAs in all",
            )
        if p.is_cluster_fixed:
            refuse(
                "attrs-cluster",
                "self.attrs.cluster_blocks is set after blockIdx, gridDim or self.cluster was used",
                "set it at the start of the kernel",
            )
        x, y, z = (*shape, 1, 1)[:3]
        p.cluster = (x, y, z)


def _name_of(target: ast.expr) -> str:
    """What an assigned variable or field is called."""
    return getattr(target, "id", getattr(target, "attr", ""))
