"""A script's `__call__` becomes a function at WARP.

Expressions and statements are the automatic door's (frontend/); what is added: `self` and objects, thread
groups, register tensors that instructions change in place, and accumulators in flight.

A register tensor that an instruction changes is a new value for every variable that held the old one.  An
accumulator has an *age*: the groups committed since its last wgmma.  A wait_group(n) gives back those of
age n and more.  Loops are translated until kind and age of what they carry agree at both ends.
"""

from __future__ import annotations

import ast
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from warploom.errors import deprecated
from warploom.explicit.assemble import assemble
from warploom.explicit.handles import (
    Attrs,
    Barrier,
    BarrierList,
    Bound,
    Changed,
    Dim3,
    Enter,
    Evaluated,
    GlobalView,
    Instance,
    Surface,
)
from warploom.explicit.operands import index_of, shared_block, shared_transpose
from warploom.explicit.program import (
    SETTLED,
    Again,
    Group,
    Program,
    ScriptEmitter,
    SharedChoice,
    Threads,
)
from warploom.explicit.script import NAMESPACES, Class, ScriptBase
from warploom.explicit.surface import Wait, block_index, grid_size
from warploom.frontend.branches import FLAG, RESULT, Arm, Outcome
from warploom.frontend.coerce import (
    Const,
    describe,
    is_literal,
    known,
    static_int,
    translating,
)
from warploom.frontend.language import shape as shapes
from warploom.frontend.operators import SYMBOLS
from warploom.frontend.reads import MISSING, Reads
from warploom.frontend.refuse import did_you_mean, refuse
from warploom.frontend.scope import Binding, Scope, admit, assigned_names, leaves
from warploom.frontend.source import Function, call_signature
from warploom.frontend.translate import Statements, typed
from warploom.ir.core import Builder, Fact, Func, Region, Type, Value
from warploom.ir.ops import control, mma, smem, task, tile
from warploom.ir.ops.cluster import MAX_CTAS
from warploom.ir.types import Barriers, DType, InFlight, Scalar, Shared, Tile, i32
from warploom.layout import Layout
from warploom.target import DEFAULT, Target

MOST_TRIES = 50
# Instructions of Tilus's or Triton's that scripts have under another name, or don't need.
INSTEAD = {
    "dot": "write self.wgmma.mma(a, b, acc), between self.wgmma.fence() and commit_group()",
    "mma": "write self.wgmma.mma(a, b, acc), between self.wgmma.fence() and commit_group()",
    "free_shared": "leave it out; shared_tensor(…, alias=other) reuses the bytes of another tensor",
    "copy_async": "write self.cp_async.load(src, dst, offsets) and self.cp_async.arrive(barrier)",
    "zeros": "write self.register_tensor(dtype=…, shape=…, init=0)",
    "full": "write self.register_tensor(dtype=…, shape=…, init=…)",
}


def translate_script(
    script: ScriptBase,
    signature: Mapping[str, Type],
    constexprs: Mapping[str, Any],
    facts: Sequence[Fact] = (),
    reads: Reads | None = None,
    machine: Target = DEFAULT,
) -> Func:
    """The function at WARP that a script is, for these types of its run-time parameters and values of its
    compile-time ones (by name).  facts: one for each run-time parameter, in order.  reads: where what the
    translation reads is recorded, begun with the script, its class and the constexprs' values.  machine: what
    it is compiled for.

    attrs of the result: "facts"; "grid", for each grid axis the host's expression (codegen/host.py) of the
    number of CTAs.  Raises CompileError for the user's mistakes.
    """
    choices: dict[int, SharedChoice] = {}
    reads = Reads(script, type(script), *constexprs.values()) if reads is None else reads
    for _ in range(MOST_TRIES):
        try:
            return _translate(script, signature, constexprs, facts, choices, reads, machine)
        except Again:
            continue
    raise AssertionError("the layouts of shared tensors do not settle")


def kernel_parameters(fn: Function) -> list[tuple[str, Any]]:
    """(name, annotation) of a kernel's parameters after self.  Those that are text are evaluated."""
    out = []
    cells = zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True)
    around = {name: cell.cell_contents for name, cell in cells if name != "__class__"}
    for p in list(call_signature(fn).parameters.values())[1:]:
        a = p.annotation
        out.append((p.name, eval(a, fn.__globals__, around) if isinstance(a, str) else a))
    return out


def _translate(
    script: ScriptBase,
    signature: Mapping[str, Type],
    constexprs: Mapping[str, Any],
    facts: Sequence[Fact],
    choices: dict[int, SharedChoice],
    reads: Reads,
    machine: Target,
) -> Func:
    fn = reads.attribute(type(script), "kernel")
    source = reads.source(fn)
    program = Program(choices, machine)
    emitter = ScriptEmitter.of(program)
    emitter.reads = reads
    emitter.loc = source.loc(source.tree)
    instance = Instance(type(script), 0, script)
    nodes = source.tree.args.args
    scope: Scope = {nodes[0].arg: Binding(instance, emitter.loc)}
    params: list[Value] = []
    for node in nodes[1:]:
        where = source.loc(node)
        _read_annotation(reads, fn, node)
        if node.arg not in signature:
            scope[node.arg] = Binding(constexprs[node.arg], where)
            continue
        v = Value(signature[node.arg], node.arg)
        fact = facts[len(params)] if facts else Fact()
        params.append(v)
        program.facts[v] = fact.divisible
        bound: Any = v
        if fact.value is not None and isinstance(v.type, Scalar):
            bound = Const(fact.value, v.type.dtype)
        scope[node.arg] = Binding(bound, where)
    with translating(emitter):
        ScriptStatements(emitter, source, scope, (fn,), None).kernel_body()
        return assemble(
            type(script).__name__, program, params, tuple(facts) or (Fact(),) * len(params),
            source.loc(source.tree),
        )  # fmt: skip


def _read_annotation(reads: Reads, fn: Function, node: ast.arg) -> None:
    """An annotation that is text is evaluated at each call: its names are read."""
    if isinstance(fn.__annotations__.get(node.arg), str) and node.annotation is not None:
        for part in ast.walk(node.annotation):
            if isinstance(part, ast.Name):
                reads.name(fn, part.id)


class _Retry(Exception):
    """A loop carries something in another form than was assumed."""


class _Loop:
    """What is assumed of the register tensors that a loop carries: which are in flight, and their ages."""

    def __init__(self) -> None:
        self.in_flight: set[str] = set()
        self.ages: dict[str, int] = {}
        self.after: dict[str, int] = {}  # ages at the end of the body


class ScriptStatements(Statements):
    """Translates one function of a script: the kernel, a method, a helper."""

    emitter: ScriptEmitter

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.declared: dict[str, DType] = {}  # variables with a type of their own
        self.loops: list[_Loop] = []

    @property
    def program(self) -> Program:
        return self.emitter.program

    # ---- self and objects

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
            case Dim3():
                if name not in ("x", "y", "z"):
                    refuse("attribute", f"a grid has x, y and z, not {name}", "use x, y or z")
                return x.fn("xyz".index(name))
            case GlobalView() if name in ("shape", "dtype", "pointer"):
                return getattr(x, name)
            case Value(type=Shared() as t):
                return self._shared_attribute(x, t, name)
            case Value(type=InFlight(tile=t)) if name in ("shape", "dtype"):
                return getattr(t, name)
            case Value(type=InFlight()):
                refuse(
                    "in-flight",
                    f".{name} of an accumulator that a wgmma may still be writing",
                    "call self.wgmma.commit_group() and self.wgmma.wait_group(0) first",
                )
            case Value() if name == "transpose":
                return Bound(shapes.trans, x)
        return NotImplemented

    def _shared_attribute(self, x: Value, t: Shared, name: str) -> Any:
        match name:
            case "nbytes":
                slots = 1
                for n in t.lead:
                    slots *= n
                return slots * t.tile_bytes
            case "shape":
                return (*t.lead, *t.shape)
            case "dtype":
                return t.dtype
            case "transpose" | "permute":
                return Bound(shared_transpose, x)
            case "block":
                return Bound(shared_block, x)
        refuse(
            "attribute",
            f"a shared tensor has no {name}",
            "it has nbytes, shape, dtype, transpose(), block(shape, at) and slots s[i]",
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
        if name in ("blockIdx", "gridDim"):
            return Dim3(block_index if name == "blockIdx" else grid_size)
        reads = self.emitter.reads
        value = MISSING if x.host is None else reads.field(x.host, name)
        if value is not MISSING:
            return value if isinstance(value, Layout) else admit(f"self.{name}", value)
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

    # ---- subscripts

    def subscript_of(self, node: ast.Subscript, x: Any) -> Any:
        entries = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        match x:
            case Value(type=Barriers(n=n)):
                index = self.expr(node.slice)
                with self.at(node):
                    if not isinstance(index, Value) and not 0 <= static_int(index, "an index") < n:
                        refuse(
                            "barrier-index", f"barrier {known(index)} of {n}", f"use 0 to {n - 1}"
                        )
                    return Barrier(x, index if isinstance(index, Value) else known(index))
            case BarrierList(arrays=arrays):
                with self.at(node):
                    i = static_int(
                        self.expr(node.slice), "the index of barriers with different counts"
                    )
                    if not 0 <= i < len(arrays):
                        refuse("barrier-index", f"barrier {i} of {len(arrays)}", "count from 0")
                    return Barrier(arrays[i], 0)
            case Value(type=Shared()):
                return self._slot(node, x, entries)
            case Value(type=Tile()) if any(_cuts(e) for e in entries):
                return self._cut(node, x, entries)
        return super().subscript_of(node, x)

    def _slot(self, node: ast.Subscript, x: Value, entries: list[ast.expr]) -> Value:
        """s[i, j]: a slot; constant slices cut the slot itself."""
        t = x.type
        assert isinstance(t, Shared)
        indices = [e for e in entries if not isinstance(e, ast.Slice)]
        values = [self.expr(e) for e in indices]
        with self.at(node):
            if len(indices) != len(t.lead) or list(entries[: len(indices)]) != indices:
                site = self.program.site(x)
                is_whole = site is not None and t.box == t.shape
                if is_whole and 0 < len(indices) < len(t.lead) + len(t.shape):
                    assert site is not None
                    self.program.choose(
                        site, "lead", len(indices), "it is indexed so", self.emitter.loc
                    )
                refuse(
                    "slot-index",
                    f"{len(indices)} slot indices of a shared tensor with {len(t.lead)}",
                    "index every leading axis, then cut with constant slices",
                )
            out = x
            if t.lead:
                for v, n in zip(values, t.lead, strict=True):
                    if not isinstance(v, Value) and not 0 <= static_int(v, "a slot") < n:
                        refuse("slot-index", f"slot {known(v)} of {n}", f"use 0 to {n - 1}")
                slot = self.emitter.emit(smem.shared_slot, x, *map(index_of, values))
                out = self.program.derived(x, slot)
            cuts = entries[len(indices) :]
            if not cuts:
                return out
            bounds = self._bounds_of(cuts, t.shape)
            shape = tuple(hi - lo for lo, hi in bounds)
            if shape == t.shape:
                return out
            if any(lo % n for (lo, _), n in zip(bounds, shape, strict=True)):
                refuse("slice", f"a cut at {bounds}", "cut at multiples of the part's own size")
            return shared_block(  # type: ignore[no-any-return]
                out, shape, tuple(lo // n for (lo, _), n in zip(bounds, shape, strict=True))
            )

    def _bounds_of(
        self, entries: Sequence[ast.expr], shape: tuple[int, ...]
    ) -> list[tuple[int, int]]:
        """(start, end) on every axis of constant slices."""
        out = []
        for axis, n in enumerate(shape):
            e = entries[axis] if axis < len(entries) else ast.Slice()
            if not isinstance(e, ast.Slice) or e.step is not None:
                refuse("slice", "only slices a:b after the slot indices", "write s[slot, a:b]")
            lo = 0 if e.lower is None else static_int(self.expr(e.lower), "a slice bound")
            hi = n if e.upper is None else static_int(self.expr(e.upper), "a slice bound")
            if not 0 <= lo < hi <= n:
                refuse("slice", f"{lo}:{hi} of an axis of {n}", f"stay inside 0:{n}")
            out.append((lo, hi))
        return out

    def _cut(self, node: ast.Subscript, x: Value, entries: list[ast.expr]) -> Value:
        """x[:, 0:64] of a register tensor, with constant bounds."""
        with self.at(node, value=x):
            shape = self.emitter.shape(x)
            if len(entries) > len(shape):
                refuse("slice", f"{len(entries)} slices of {describe(x)}", "one slice an axis")
            bounds = self._bounds_of(entries, shape)
            out: Value = self.emitter.emit(
                tile.slice_tile,
                x,
                offset=tuple(lo for lo, _ in bounds),
                shape=tuple(hi - lo for lo, hi in bounds),
            )
            return out

    def expr_ListComp(self, node: ast.ListComp) -> Any:
        """[f(i) for i in range(n)] with a compile-time range."""
        if len(node.generators) != 1 or node.generators[0].ifs:
            self.unsupported(node)
        (generator,) = node.generators
        space = self.expr(generator.iter)
        bounds = getattr(space, "bounds", None)
        with self.at(node):
            if bounds is not None:
                space = tuple(range(*(static_int(b, "a bound") for b in bounds)))
            if not isinstance(space, tuple):
                refuse("iterate", f"a list over {describe(space)}", "iterate over range(constant)")
        saved = dict(self.scope)
        out = []
        for item in space:
            self.assign(generator.target, item, rename=False)
            out.append(self.expr(node.elt))
        self.scope = saved
        return tuple(out)

    # ---- calls

    def call_of(self, node: ast.Call, fn: Any) -> Any:
        if getattr(fn, "__module__", "").startswith("warploom.layout"):
            args = [self.expr(a) for a in node.args]
            return fn(*(known(a) if isinstance(a, Const) else a for a in args))
        if not isinstance(fn, Bound) and not (inspect.isclass(fn) and issubclass(fn, Class)):
            return self._finish(node, super().call_of(node, fn))
        args = [self.expr(a) for a in node.args]
        kwargs = {k.arg: self.expr(k.value) for k in node.keywords if k.arg is not None}
        if len(kwargs) != len(node.keywords):
            self.fail(node, "unsupported", "kernels can't use **", "name each argument")
        if not isinstance(fn, Bound):
            return self._construct(node, fn, args, kwargs)
        if isinstance(fn.receiver, Instance) and not getattr(fn.fn, "__warploom_builtin__", False):
            return self._method(node, fn.fn, fn.receiver, args, kwargs)
        own = not isinstance(fn.receiver, Value) and _takes_self(fn.fn)
        before = [fn.receiver] if own or isinstance(fn.receiver, Value) else []
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

    def _replace(self, old: Value, new: Value) -> None:
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
        name = fn.__name__
        if fn in self.stack:
            self.fail(
                node, "recursion", f"{name} calls itself", "methods are inlined: write a loop"
            )
        bound = self.bind(node, name, call_signature(fn), [receiver, *args], kwargs)
        reads = self.emitter.reads
        source = reads.source(fn)
        here = self.loc(node)
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
            elif _is_register(binding.value):
                inner_scope[f"&{key}"] = binding
        inner = type(self)(self.emitter, source, inner_scope, (*self.stack, fn), here)
        out = inner.body()
        for key, binding in inner.scope.items():
            if key.startswith("#"):
                self.scope[key] = binding
            elif key.startswith("&") and key[1:] in self.scope:
                self.scope[key[1:]] = binding
        return out

    # ---- assignments

    def stmt_Expr(self, node: ast.Expr) -> None:
        match node.value:
            case ast.Call(func=ast.Attribute(value=ast.Call(func=ast.Name(id="super")))):
                return  # super().__init__(): nothing to do
        super().stmt_Expr(node)

    def stmt_Assign(self, node: ast.Assign) -> None:
        target = node.targets[0]
        self.program.target = getattr(target, "id", getattr(target, "attr", ""))
        value = self.expr(node.value)
        self.program.target = ""
        for t in node.targets:
            self._store(t, value, fresh=not isinstance(node.value, ast.Name))

    def stmt_AnnAssign(self, node: ast.AnnAssign) -> None:
        annotation = self.expr(node.annotation)
        name = getattr(node.target, "id", getattr(node.target, "attr", ""))
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
        self._store(node.target, value, fresh=True, declares=True)

    def _as(self, value: Any, dtype: DType) -> Any:
        """A number as a variable of that dtype keeps it."""
        if isinstance(value, Const) or is_literal(value):
            number = known(value)
            return Const(int(number) if dtype.is_int else float(number), dtype)
        return self.emitter.cast(value, dtype)

    def _store(self, target: ast.expr, value: Any, fresh: bool, declares: bool = False) -> None:
        match target:
            case ast.Attribute():
                self._bind(target, value)
            case ast.Name(id=name):
                value = typed(self.emitter, value)
                if declares and name in self.declared and isinstance(value, Const | Value):
                    pass  # of that type already
                if isinstance(value, Value) and isinstance(
                    value.type, Shared | Barriers | InFlight
                ):
                    self._bind(target, value)
                else:
                    self.assign(target, value, rename=fresh)
            case _:
                self.assign(target, typed(self.emitter, value), rename=False)

    def assign(self, target: ast.expr, value: Any, rename: bool = True) -> None:
        match target:
            case ast.Attribute():
                self._bind(target, value)
            case ast.Name(id=name) if isinstance(value, Const | Value) and name in self.declared:
                dtype = self.declared[name]
                if self.emitter.shape(value) == () and self.emitter.dtype(value) != dtype:
                    with self.at(target):
                        value = self._as(value, dtype)
                super().assign(target, value, rename)
            case _:
                super().assign(target, value, rename)

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
        if name == "blocks_abreast":  # until the next release
            name = "ctas_per_sm"
            deprecated("self.attrs.blocks_abreast", name)
        names = ("blocks", "warps", "cluster_blocks", "ctas_per_sm")
        if name not in names:
            self.fail(
                target,
                "attrs",
                f"self.attrs has no {name}",
                did_you_mean(name, names, f"it has {', '.join(names)}"),
            )
        with self.at(target):
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

    def stmt_AugAssign(self, node: ast.AugAssign) -> None:
        if not isinstance(node.target, ast.Name | ast.Attribute):
            self.fail(
                node.target, "assign-target", "can't be assigned", "assign to a name or a field"
            )
        read: Any = (
            ast.Name(node.target.id, ast.Load())
            if isinstance(node.target, ast.Name)
            else ast.Attribute(node.target.value, node.target.attr, ast.Load())
        )
        old = self.expr(ast.copy_location(read, node.target))
        new = self.expr(node.value)
        value = self.binary(node, SYMBOLS[type(node.op)], old, new, node.value)
        self._store(node.target, value, fresh=True)

    # ---- groups

    def stmt_With(self, node: ast.With) -> None:
        item, *rest = node.items
        if rest:  # with a, b: is with a: with b:
            inner = ast.copy_location(ast.With(rest, node.body), node)
            node = ast.copy_location(ast.With([item], [inner]), node)
        entered = self.expr(item.context_expr)
        if not isinstance(entered, Enter):
            self.fail(
                item.context_expr,
                "with",
                f"a script can't enter {describe(entered)}",
                "use self.thread_group, warp_group, single_warp or single_thread",
            )
        with self.at(item.context_expr):
            threads = self._inside(entered)
        saved = dict(self.scope)
        if threads is None:  # the group is the one that runs already
            self._index(item)
            self.ends(node.body, "a thread group")
        elif threads.kind == "one":
            self._elect(node, threads)
            self._forget(saved, "one thread assigns it, the others do not know it")
        else:
            self._group(node, item, entered, threads)
            self._forget(saved, "only the threads of one group assign it")

    def _inside(self, e: Enter) -> Threads | None:
        """Who runs the block of a `with`; None: whoever runs the code around it."""
        here, p = self.program.here, self.program
        loc = self.emitter.loc
        if here.kind == "one":
            if e.kind == "one":
                return None
            refuse(
                "one-thread", f"{e.what} inside single_thread()", "put single_thread() inside it"
            )
        if e.kind == "one":
            return Threads(here.first, 1, 1, "one", loc)
        size = self.program.machine.warp_size
        warps, first = e.threads // size, e.begin // size
        if here.warps is not None and first + warps * e.replicas > here.warps:
            whole = "self.attrs.warps says" if here.kind == "all" else "the group around it has"
            refuse(
                "group-threads",
                f"{e.what} ends at thread {size * (first + warps * e.replicas)}, {whole} {size * here.warps}",
                "raise self.attrs.warps, or make the group smaller",
            )
        is_top = here.kind == "all" and self.emitter.builder is p.top
        if not is_top and first == 0 and warps == here.warps and e.replicas == 1:
            return None
        return Threads(here.first + first, warps, e.replicas, "group", loc)

    def _index(self, item: ast.withitem) -> None:
        if item.optional_vars is not None:
            self._bind(item.optional_vars, Const(0, i32))

    def _elect(self, node: ast.With, threads: Threads) -> None:
        emitter, p = self.emitter, self.program
        p.threads.append(threads)
        with emitter.inside(emitter.builder.nested()) as builder:
            self.ends(node.body, "a thread group")
            emitter.loc = self.loc(node)
            emitter.emit(control.yield_)
        p.threads.pop()
        with self.at(node.items[0].context_expr):
            emitter.append(task.elect, (), [], regions=(Region((), tuple(builder.ops)),))

    def expr_Name(self, node: ast.Name) -> Any:
        value = super().expr_Name(node)
        owners = self.program.elsewhere.get(value) if isinstance(value, Value) else None
        if owners is not None:
            self.fail(
                node,
                "group-tile",
                f"{node.id} lies in the registers of {owners}, and here run {self.program.here}",
                "compute it inside the group, or hand it over by shared memory: store_shared, self.sync(), "
                "and load_shared in the group",
            )
        return value

    def _group(self, node: ast.With, item: ast.withitem, e: Enter, threads: Threads) -> None:
        """A thread group: its code becomes the region of a marker, which assemble() places."""
        emitter, p = self.emitter, self.program
        elsewhere, owners = p.elsewhere, str(p.here)
        tiles = (b.value for b in self.scope.values() if _is_register(b.value))
        p.elsewhere = elsewhere | dict.fromkeys(tiles, owners)
        p.threads.append(threads)
        with emitter.inside(emitter.builder.nested()) as builder:
            outer, p.body = p.body, builder
            if item.optional_vars is not None:
                with self.at(item.context_expr):
                    index = emitter.emit(task.replica_id) if e.replicas > 1 else Const(0, i32)
                    self.assign(item.optional_vars, index)
            self.ends(node.body, "a thread group")
            emitter.loc = self.loc(node)
            emitter.emit(control.yield_)
            p.body = outer
        p.threads.pop()
        p.elsewhere = elsewhere
        assert threads.warps is not None
        key = str(len(p.state.groups))
        with self.at(item.context_expr):
            emitter.append(
                task.tasks, (), [], names=(key,), warps=(threads.warps,), replicas=(e.replicas,),
                registers=(None,), regions=(Region((), tuple(builder.ops)),),
            )  # fmt: skip
        p.state.groups[key] = Group(e.name, threads)

    def _forget(self, saved: Scope, why: str) -> None:
        """Variables as they were before a group; what the group assigned has no value after it."""
        changed = [
            n for n, b in self.scope.items() if n not in saved or saved[n].value is not b.value
        ]
        after = self.scope
        self.scope = saved
        for name in changed:
            if name[0] in "#&":
                if name in saved:
                    self.scope[name] = saved[name]
                continue
            self.scope.pop(name, None)
            self.lost[name] = (why, after[name].loc)

    # ---- if

    def _built(
        self, builder: Builder, scope: Scope, translate: Callable[[], Outcome], state: Any = None
    ) -> Arm:
        """An arm's `state` is what is in flight at its end."""
        program = self.program.state
        before = program.flight
        program.flight = dict(before if state is None else state)
        arm = super()._built(builder, scope, translate)
        arm, program.flight = replace(arm, state=program.flight), before
        return arm

    def _join(self, where: ast.AST, c: Value, arms: list[Arm], names: Sequence[str]) -> None:
        flights = [a.state for a in arms]
        then, other = (a.scope for a in arms)
        changed = {
            n
            for n, b in self.scope.items()
            if any(n in s and s[n].value is not b.value for s in (then, other))
        }
        told = [n for n in (FLAG, RESULT) if n in names]
        names = sorted({*names, *changed} - {*told})
        for name in names:  # parts of shared memory can't be carried out of an if
            if any(n in s and _is_static(s[n].value) for s in (then, other) for n in (name,)):
                if name in then and name in other and then[name].value is other[name].value:
                    continue
                for s in (then, other):
                    s.pop(name, None)
        super()._join(where, c, arms, [*names, *told])
        flight = self.program.state.flight
        for v in {*flights[0], *flights[1]}:
            flight[v] = min(f[v] for f in flights if v in f)
        for name in names:
            b = self.scope.get(name)
            if b is not None and isinstance(b.value, Value) and isinstance(b.value.type, InFlight):
                ages = [
                    f.get(s[name].value, SETTLED)
                    for f, s in zip(flights, (then, other), strict=True)
                ]
                flight[b.value] = min(ages)

    # ---- loops

    def _loop(self, node: ast.For, space: Any) -> None:
        self._until_agreed(lambda: super(ScriptStatements, self)._loop(node, space))

    def stmt_While(self, node: ast.While) -> None:
        self._until_agreed(lambda: super(ScriptStatements, self).stmt_While(node))

    def _until_agreed(self, translate: Any) -> None:
        """Translates a loop until what it carries has one form at both ends of its body."""
        assumed = _Loop()
        p, emitter = self.program, self.emitter
        for _ in range(MOST_TRIES):
            state, scope, lost = p.state.copy(), dict(self.scope), dict(self.lost)
            declared, count = dict(self.declared), len(emitter.builder.ops)
            builder, threads, body = emitter.builder, list(p.threads), p.body
            elsewhere = p.elsewhere
            self.loops.append(assumed)
            try:
                translate()
                return
            except _Retry:
                emitter.builder, p.threads, p.body = builder, threads, body
                p.elsewhere = elsewhere
                del builder.ops[count:]
                p.state, self.scope, self.lost, self.declared = state, scope, lost, declared
            finally:
                self.loops.pop()
        raise AssertionError("what a loop carries does not settle")

    def _carried(self, body: Sequence[ast.stmt], but: set[str]) -> Any:
        """Beside what the body assigns: register tensors and fields, which it may change otherwise.  Those
        that it does not change are no longer carried after simplification."""
        local = _declared_first(body)
        names = {n for n in assigned_names(body) - but - local if n in self.scope}
        names |= {
            n
            for n, b in self.scope.items()
            if _is_register(b.value) or (n.startswith("#") and isinstance(b.value, Value | Const))
        }
        names = {n for n in names if not _is_static(self.scope[n].value)} - but
        elsewhere = self.program.elsewhere  # to use them is an error, which expr_Name tells
        kept = {n: self.scope[n].value for n in names}
        names = {n for n, v in kept.items() if not isinstance(v, Value) or v not in elsewhere}
        assumed = self.loops[-1]
        for n in sorted(names):
            v = self.scope[n].value
            if n in assumed.in_flight and isinstance(v, Value) and isinstance(v.type, Tile):
                started = self.emitter.emit(mma.in_flight, v, hint=v.hint)
                self.program.state.flight[started] = SETTLED
                self.scope[n] = Binding(started, self.scope[n].loc)
        ordered = sorted(names)
        before = {n: self.scope[n] for n in ordered}
        init = tuple(self.emitter.carried(x) for n in ordered for x in leaves(before[n].value))
        return ordered, before, init

    def _enter(
        self, carried: list[str], before: Scope, init: tuple[Value, ...]
    ) -> tuple[Value, ...]:
        params = super()._enter(carried, before, init)
        flight, assumed = self.program.state.flight, self.loops[-1]
        for n in carried:
            v, old = self.scope[n].value, before[n].value
            if isinstance(v, Value) and isinstance(v.type, InFlight):
                flight[v] = min(flight.get(old, SETTLED), assumed.ages.get(n, SETTLED))
        return params

    def _unchanged_kind(self, node: Any, name: str, old: Binding, new: Binding | None) -> None:
        assumed, flight = self.loops[-1], self.program.state.flight
        if new is not None and isinstance(new.value, Value) and isinstance(old.value, Value):
            starts, ends = old.value.type, new.value.type
            if isinstance(starts, Tile) and isinstance(ends, InFlight) and ends.tile == starts:
                assumed.in_flight.add(name)
                assumed.ages[name] = flight.get(new.value, SETTLED)  # at the next one's start
                raise _Retry
            if isinstance(starts, InFlight) and isinstance(ends, Tile) and starts.tile == ends:
                v = self.emitter.emit(mma.in_flight, new.value, hint=new.value.hint)
                flight[v] = SETTLED
                new = self.scope[name] = Binding(v, new.loc)
                ends = v.type
            if isinstance(ends, InFlight):
                age = flight.get(new.value, SETTLED)
                begun = min(flight.get(old.value, SETTLED), assumed.ages.get(name, SETTLED))
                assumed.after[name] = age
                if age < begun:
                    assumed.ages[name] = age
                    raise _Retry
        super()._unchanged_kind(node, name, old, new)

    def _after(
        self, node: Any, carried: list[str], before: Scope, results: Sequence[Value]
    ) -> None:
        assigned = assigned_names(node.body)
        for n in assigned:  # a part of shared memory that the body assigned anew
            stays = n not in self.scope or n in carried or n in _declared_first(node.body)
            if not stays and _is_static(self.scope[n].value):
                self.lost[n] = ("a loop's body assigns it", self.loc(node))
                self.scope.pop(n)
        super()._after(node, carried, before, results)
        flight, assumed = self.program.state.flight, self.loops[-1]
        for n in carried:
            v = self.scope[n].value
            if isinstance(v, Value) and isinstance(v.type, InFlight):
                start = flight.get(before[n].value, SETTLED)
                flight[v] = min(start, assumed.after.get(n, SETTLED))


def _is_register(x: Any) -> bool:
    return isinstance(x, Value) and isinstance(x.type, Tile | InFlight)


def _is_static(x: Any) -> bool:
    """Holds nothing that a loop or an if could carry."""
    if isinstance(x, Value):
        return isinstance(x.type, Shared | Barriers)
    return not leaves(x)


def _declared_first(body: Sequence[ast.stmt]) -> set[str]:
    """Variables that a block declares (`x: int32 = 0`) before it uses them: its own."""
    found: set[str] = set()
    seen: set[str] = set()
    for s in body:
        if (
            isinstance(s, ast.AnnAssign)
            and isinstance(s.target, ast.Name)
            and s.target.id not in seen
        ):
            found.add(s.target.id)
        seen |= {n.id for n in ast.walk(s) if isinstance(n, ast.Name)}
    return found


def _cuts(e: ast.expr) -> bool:
    return isinstance(e, ast.Slice) and not (e.lower is None and e.upper is None)


def _takes_self(fn: Any) -> bool:
    return next(iter(call_signature(fn).parameters), "") == "self"
