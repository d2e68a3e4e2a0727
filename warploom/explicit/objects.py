"""`self` and what hangs on it: attributes, instructions, methods and objects of a script's classes."""

from __future__ import annotations

import ast
import inspect
import math
from typing import Any

from warploom.explicit import elements
from warploom.explicit.clusters import block_index, grid_size
from warploom.explicit.elements import GlobalElement, Numbers
from warploom.explicit.handles import (
    Attrs,
    Bound,
    Changed,
    Dim3,
    Evaluated,
    GlobalView,
    Instance,
    IsThread,
    Surface,
    ThreadIndex,
)
from warploom.explicit.layouts import DotConfig, SharedLayout
from warploom.explicit.operands import is_register, shared_block, shared_item, shared_transpose
from warploom.explicit.products import Wait
from warploom.explicit.program import SETTLED
from warploom.explicit.script import Class
from warploom.explicit.subscripts import Subscripts
from warploom.explicit.surface import NAMESPACES
from warploom.frontend.coerce import Const, known, static_int
from warploom.frontend.language import shape as shapes
from warploom.frontend.language.core import builtin
from warploom.frontend.reads import MISSING
from warploom.frontend.refuse import did_you_mean, refuse, still_in_flight
from warploom.frontend.scope import Binding, admit
from warploom.frontend.source import Function, call_signature
from warploom.ir.core import Value
from warploom.ir.ops import mma
from warploom.ir.types import DType, InFlight, Scalar, Shared, Tile
from warploom.layout import Layout
from warploom.layout.modes import RegisterLayout

# Instructions of Tilus's or Triton's that scripts have under another name, or don't need.
INSTEAD = {
    "mma": "write self.wgmma.mma(a, b, acc), between self.wgmma.fence() and commit_group()",
    "zeros": "write self.register_tensor(dtype=…, shape=…, init=0)",
    "full": "write self.register_tensor(dtype=…, shape=…, init=…)",
}


CURRENT = {
    "current_thread_begin": "begin",
    "current_thread_end": "end",
    "current_num_threads": "num",
}  # numbers of the threads that run, by name

# What scripts ask of layouts that they have.
LAYOUT_NAMES = frozenset(
    (
        "la",
        "lb",
        "lc",
        "shape",
        "spatial",
        "local",
        "column_spatial",
        "column_local",
        "spatial_size",
        "local_size",
        "size",
    )
)
_LAYOUTS = Layout, RegisterLayout, SharedLayout, DotConfig  # fields of a script's


class Objects(Subscripts):
    """Translates what one function of a script asks of `self` and of objects."""

    # ---- attributes

    def attribute_of(self, node: ast.Attribute, x: Any) -> Any:
        with self.at(node):
            found = self._attribute(x, node.attr)
        return super().attribute_of(node, x) if found is NotImplemented else found

    def _attribute(self, x: Any, name: str) -> Any:
        match x:
            case Instance():
                return self._member(x, name)
            case Surface():
                fn = getattr(x.cls, name, None)
                if fn is None:
                    names = [n for n in vars(x.cls) if not n.startswith("_")]
                    refuse(
                        "unknown-instruction",
                        f"self.{x.cls.__name__.lower()} has no {name}",
                        did_you_mean(name, names, f"it has {', '.join(names)}"),
                    )
                if isinstance(fn, Evaluated):
                    return fn.fn()
                return Bound(fn, None) if callable(fn) else fn
            case Attrs() if name in self.program.attrs:
                return self.program.attrs[name][0]
            case Dim3():
                if name not in ("x", "y", "z"):
                    refuse("attribute", f"a grid has x, y and z, not {name}", "use x, y or z")
                return x.fn("xyz".index(name))
            case DotConfig() | RegisterLayout() if name in LAYOUT_NAMES:
                return getattr(x, name)
            case GlobalView() if name in ("shape", "dtype", "pointer"):
                return getattr(x, name)
            case Numbers() if name in ("shape", "dtype"):
                return getattr(x, name)
            case Numbers() | Value(type=Tile()) if name in elements.OF_REGISTERS:
                return Bound(elements.OF_REGISTERS[name], x)
            case Value(type=Scalar()) | Const() if name == "item":
                return Bound(elements.number, x)
            case GlobalElement() if name in elements.METHODS:
                return Bound(elements.METHODS[name], x)
            case Value(type=Shared() as t):
                return self._shared_attribute(x, t, name)
            case Value(type=InFlight(tile=t)) if name in ("shape", "dtype"):
                return getattr(t, name)
            case Value(type=InFlight()):
                still_in_flight(f".{name} of")
            case Value() if name == "transpose":
                return Bound(shapes.trans, x)
        return NotImplemented

    def _shared_attribute(self, x: Value, t: Shared, name: str) -> Any:
        match name:
            case "nbytes":
                return math.prod(t.lead) * t.tile_bytes
            case "shape":
                return (*t.lead, *t.shape)
            case "dtype":
                return t.dtype
            case "transpose" | "permute":
                return Bound(shared_transpose, x)
            case "block":
                return Bound(shared_block, x)
            case "item":
                return Bound(shared_item, x)
        refuse(
            "attribute",
            f"a shared tensor has no {name}",
            "it has nbytes, shape, dtype, transpose(), block(shape, at), item() and slots s[i]",
        )

    def _member(self, x: Instance, name: str) -> Any:
        """A field, a method, a namespace or an instruction of an object."""
        field = self.scope.get(x.key(name))
        if field is not None:
            return field.value
        if name in NAMESPACES:
            return Surface(NAMESPACES[name])
        if name == "attrs":
            return Attrs()
        if name.startswith("current_") and name in CURRENT:
            return self._threads(name)
        if name in ("blockIdx", "gridDim"):
            return Dim3(block_index if name == "blockIdx" else grid_size)
        reads = self.emitter.reads
        value = MISSING if x.host is None else reads.field(x.host, name)
        if value is not MISSING:
            return value if isinstance(value, _LAYOUTS) else admit(f"self.{name}", value)
        fn = reads.attribute(x.cls, name)
        if fn is MISSING:
            fn = None
        if isinstance(inspect.getattr_static(x.cls, name, None), staticmethod):
            return fn
        if inspect.isfunction(fn):
            return Bound(fn, x)
        if fn is not None:
            return admit(f"self.{name}", fn)
        names = [*vars(x.host or x.cls), *NAMESPACES, *dir(x.cls)]
        close = did_you_mean(
            name, [n for n in names if not n.startswith("_")], "set it in __init__"
        )
        refuse("attribute", f"self has no {name}", INSTEAD.get(name, close))

    def expr_UnaryOp(self, node: ast.UnaryOp) -> Any:
        """~g[i, j]: where the element lies; ~float16: a pointer's type."""
        if isinstance(node.op, ast.Invert):
            x = self.expr(node.operand)
            if isinstance(x, GlobalElement):
                return x.pointer
            with self.at(node, operand=x):
                return ~x if isinstance(x, DType | int) else self.emitter.invert(x)
        return super().expr_UnaryOp(node)

    def _threads(self, name: str) -> int:
        """Where the group begins in the CTA and ends, and its threads."""
        here = self.program.here
        size = self.program.machine.warp_size
        if here.warps is None or here.replicas > 1:
            refuse(
                "attrs-warps",
                f"self.{name} of {here}",
                "set self.attrs.warps before; with replicas use the index that `with … as i` gives",
            )
        first, n = size * here.first, 1 if here.kind == "one" else size * here.warps
        return {"begin": first, "end": first + n, "num": n}[CURRENT[name]]

    def _unpack(self, target: ast.expr, targets: list[ast.expr], value: Any) -> None:
        """x, y, z = self.blockIdx: with all three."""
        if isinstance(value, Dim3):
            with self.at(target):
                value = tuple(value.fn(axis) for axis in range(3))
        super()._unpack(target, targets, value)

    def _compare(self, node: ast.Compare, op: ast.cmpop, x: Any, y: Any) -> Any:
        if not isinstance(x, ThreadIndex):
            return super()._compare(node, op, x, y)
        with self.at(node):
            if isinstance(op, ast.Eq):
                return IsThread(static_int(y, "a thread"))
            refuse(
                "thread-index",
                "a thread's number is compared by == alone",
                "use self.single_thread(), or a group of threads",
            )

    # ---- functions

    def expr_Lambda(self, node: ast.Lambda) -> Any:
        """A function of the script's values, for an instruction that takes one (register_tensor's init)."""
        names = [a.arg for a in node.args.args]
        if (
            len(names) != sum(isinstance(x, ast.arg) for x in ast.walk(node.args))
            or node.args.defaults
        ):
            self.unsupported(node)

        def call(*values: Any) -> Any:
            if len(values) != len(names):
                found = f"a lambda of {len(names)} arguments, called with {len(values)}"
                self.fail(node, "lambda", found, "give it one for each axis")
            around, here = self.scope, self.loc(node)
            bound = {n: Binding(v, here) for n, v in zip(names, values, strict=True)}
            self.scope = {**around, **bound}
            try:
                return self.expr(node.body)
            finally:
                self.scope = around

        return builtin(call)

    # ---- calls

    def call_of(self, node: ast.Call, fn: Any) -> Any:
        if getattr(fn, "__module__", "").startswith("warploom.layout"):
            args = [self.expr(a) for a in node.args]
            return fn(*(known(a) if isinstance(a, Const) else a for a in args))
        if inspect.isclass(fn) and issubclass(fn, Class):
            return self._construct(node, fn, *self.arguments(node))
        if not isinstance(fn, Bound):
            return self._finish(node, super().call_of(node, fn))
        args, kwargs = self.arguments(node)
        if isinstance(fn.receiver, Instance) and not getattr(fn.fn, "__warploom_builtin__", False):
            return self._method(node, fn.fn, fn.receiver, args, kwargs)
        is_value = isinstance(fn.receiver, Value | Const | Numbers | GlobalElement)
        own = not is_value and _takes_self(fn.fn)
        before = [fn.receiver] if own or is_value else []
        return self._finish(node, self._call(node, fn.fn, [*before, *args], kwargs))

    def _finish(self, node: ast.AST, out: Any) -> Any:
        """Carries out what an instruction says about variables."""
        if isinstance(out, Wait):
            with self.at(node):
                self._wait(out.pending)
            return None
        if isinstance(out, Changed):
            for old, new in out.pairs:
                self._replace(old, new)
            return out.value
        return out

    def _replace(self, old: Any, new: Any) -> None:
        """Every variable that holds `old` holds `new`."""
        for name, binding in list(self.scope.items()):
            if binding.value is old:
                self.scope[name] = Binding(new, binding.loc)

    def _wait(self, pending: int) -> None:
        """wgmma.wait_group: accumulators that it covers become tiles."""
        flight = self.program.state.flight
        found: dict[Value, None] = {}
        for name in sorted(self.scope):
            v = self.scope[name].value
            if isinstance(v, Value) and isinstance(v.type, InFlight):
                age = flight.get(v, SETTLED)
                if pending <= age < SETTLED:
                    found[v] = None
        values = tuple(found)
        out = self.emitter.append(
            mma.wgmma_wait, values, [v.hint for v in values], pending=pending, regions=()
        )
        for old, new in zip(values, out, strict=True):
            self._replace(old, new)

    def _construct(self, node: ast.Call, cls: type, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """An object of a wl.Class: its __init__, inlined."""
        state = self.program.state
        state.objects += 1
        made = Instance(cls, state.objects)
        init = self.emitter.reads.attribute(cls, "__init__")
        if inspect.isfunction(init):
            self._method(node, init, made, args, kwargs)
        return made

    def _method(
        self, node: ast.Call, fn: Function, receiver: Any, args: list[Any], kwargs: dict[str, Any]
    ) -> Any:
        """A method of the user's: its body, here."""
        bound, here = self.bound(node, fn, [receiver, *args], kwargs), self.loc(node)
        reads = self.emitter.reads
        inner_scope = {p: Binding(v, here) for p, v in bound.arguments.items()}
        for p, declared in bound.signature.parameters.items():
            if p not in inner_scope:
                many = declared.kind is declared.VAR_POSITIONAL
                inner_scope[p] = Binding(() if many else reads.default(fn, p), here)
        # Fields are everybody's; register tensors go along under names that nobody can assign, so that
        # what the method changes in place is changed for its caller.
        for key, binding in self.scope.items():
            if key.startswith("#"):
                inner_scope[key] = binding
            elif is_register(binding.value) or isinstance(binding.value, Numbers):
                inner_scope[f"&{key}"] = binding
        inner = self.inside(fn, inner_scope, here)
        out = inner.body()
        for key, binding in inner.scope.items():
            if key.startswith("#"):
                self.scope[key] = binding
            elif key.startswith("&") and key[1:] in self.scope:
                self.scope[key[1:]] = binding
        return out


def _takes_self(fn: Any) -> bool:
    return next(iter(call_signature(fn).parameters), "") == "self"
