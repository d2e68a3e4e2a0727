"""A script's `__call__` becomes a function at WARP.

Expressions and statements are the automatic door's (frontend/); what is added: `self` and objects, thread
groups, register tensors that instructions change in place, and accumulators in flight.

A register tensor that an instruction changes is a new value for every variable that held the old one.  An
accumulator has an *age*: the groups committed since its last wgmma.  A wait_group(n) gives back those of
age n and more.  Loops are translated until kind and age of what they carry agree at both ends.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from warploom.errors import CompileError, Loc
from warploom.explicit.assemble import assemble
from warploom.explicit.elements import Numbers
from warploom.explicit.groups import Groups
from warploom.explicit.handles import Instance
from warploom.explicit.operands import is_register
from warploom.explicit.pieces import with_pieces
from warploom.explicit.program import SETTLED, Again, Program, ScriptEmitter, SharedChoice
from warploom.explicit.script import ScriptBase
from warploom.frontend.branches import FLAG, RESULT, Arm, Outcome
from warploom.frontend.coerce import Const, translating
from warploom.frontend.reads import Reads
from warploom.frontend.scope import Binding, Scope, assigned_names, leaves
from warploom.frontend.source import Function, call_signature
from warploom.ir.core import Builder, Fact, Func, Type, Value
from warploom.ir.ops import mma, tile
from warploom.ir.types import Barriers, DType, InFlight, Scalar, Shared, Tile
from warploom.target import DEFAULT, Target

MOST_TRIES = 50
# What one translation learns for the next: see Program.
_Known = tuple[dict[int, SharedChoice], set[tuple[str, tuple[int, ...], DType]]]


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
    known: _Known = {}, set()
    reads = Reads(script, type(script), *constexprs.values()) if reads is None else reads
    for _ in range(MOST_TRIES):
        try:
            return _translate(script, signature, constexprs, facts, known, reads, machine)
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
        try:
            out.append((p.name, eval(a, fn.__globals__, around) if isinstance(a, str) else a))
        except Exception as error:
            text = (
                f"the annotation of {p.name}, {a!r}, has no value: {type(error).__name__}: {error}"
            )
            where = Loc(fn.__code__.co_filename, fn.__code__.co_firstlineno)
            raise CompileError("annotation", text, where, help="import what it names") from error
    return out


def _translate(
    script: ScriptBase,
    signature: Mapping[str, Type],
    constexprs: Mapping[str, Any],
    facts: Sequence[Fact],
    known: _Known,
    reads: Reads,
    machine: Target,
) -> Func:
    fn = reads.attribute(type(script), "kernel")
    source = reads.source(fn)
    program = Program(*known, machine)
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
        func = assemble(
            type(script).__name__, program, params, tuple(facts) or (Fact(),) * len(params),
            source.loc(source.tree),
        )  # fmt: skip
        return with_pieces(func)


def _read_annotation(reads: Reads, fn: Function, node: ast.arg) -> None:
    """An annotation that is text is evaluated at each call: its names are read."""
    if isinstance(fn.__annotations__.get(node.arg), str) and node.annotation is not None:
        for part in ast.walk(node.annotation):
            if isinstance(part, ast.Name):
                reads.name(fn, part.id)


class _Retry(Exception):
    """A loop carries something in another form than was assumed."""


class _Loop:
    """What is assumed of the register tensors that a loop carries: which are in flight, and their ages; which
    layouts the body gives them."""

    def __init__(self) -> None:
        self.in_flight: set[str] = set()
        self.layouts: dict[str, object] = {}
        self.ages: dict[str, int] = {}
        self.after: dict[str, int] = {}  # ages at the end of the body
        self.params: dict[str, Any] = {}  # what each is at the start of the body,
        self.kept: set[str] = set()  # and which are it at its end


class ScriptStatements(Groups):
    """Translates one function of a script: the kernel, a method, a helper.

    What is in flight through ifs and loops is followed here."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.loops: list[_Loop] = []

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
        special = [n for n in (FLAG, RESULT) if n in names]
        names = sorted({*names, *changed} - {*special})
        for name in names:  # parts of shared memory can't be carried out of an if
            if any(name in s and _is_static(s[name].value) for s in (then, other)):
                if name in then and name in other and then[name].value is other[name].value:
                    continue
                for s in (then, other):
                    s.pop(name, None)
        super()._join(where, c, arms, [*names, *special])
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
            elsewhere, around = p.elsewhere, list(p.around)
            self.loops.append(assumed)
            try:
                translate()
                return
            except _Retry:
                emitter.builder, p.threads, p.body = builder, threads, body
                p.elsewhere, p.around = elsewhere, around
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
            if (is_register(b.value) and self.program.here.kind != "one")
            or isinstance(b.value, Numbers)
            or (n.startswith("#") and isinstance(b.value, Value | Const))
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
            if n in assumed.layouts:
                self.scope[n] = self._lying(self.scope[n], assumed.layouts[n])
        ordered = sorted(names)
        before = {n: self.scope[n] for n in ordered}
        init = tuple(self.emitter.carried(x) for n in ordered for x in leaves(before[n].value))
        return ordered, before, init

    def _lying(self, binding: Binding, layout: object) -> Binding:
        """A register tensor in a layout."""
        v = binding.value
        made = self.emitter.emit(tile.convert_layout, v, layout=layout, hint=v.hint)
        return Binding(made, binding.loc)

    def _as_before(self, name: str, starts: Tile, ends: Tile, new: Binding) -> Binding:
        """What the body gives, lying as what it started with; where the body says how, that does as well."""
        if replace(ends, layout=starts.layout) != starts:
            return new
        if starts.layout is None:
            self.loops[-1].layouts[name] = ends.layout
            raise _Retry
        return self._lying(new, starts.layout)

    def _enter(
        self, carried: list[str], before: Scope, init: tuple[Value, ...]
    ) -> tuple[Value, ...]:
        params = super()._enter(carried, before, init)
        flight, assumed = self.program.state.flight, self.loops[-1]
        assumed.params, assumed.kept = {n: self.scope[n].value for n in carried}, set()
        for n in carried:
            v, old = self.scope[n].value, before[n].value
            if isinstance(v, Value) and isinstance(v.type, InFlight):
                flight[v] = min(flight.get(old, SETTLED), assumed.ages.get(n, SETTLED))
        return params

    def _unchanged_kind(self, node: Any, name: str, old: Binding, new: Binding | None) -> None:
        assumed, flight = self.loops[-1], self.program.state.flight
        if new is not None and is_register(new.value) and new.value is assumed.params[name]:
            assumed.kept.add(name)
        if new is not None and isinstance(new.value, Value) and isinstance(old.value, Value):
            starts, ends = old.value.type, new.value.type
            if isinstance(starts, Tile) and isinstance(ends, Tile) and starts != ends:
                new = self.scope[name] = self._as_before(name, starts, ends, new)
                ends = new.value.type
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
            if n in assumed.kept:
                self.scope[n] = before[n]
                continue
            v = self.scope[n].value
            if isinstance(v, Value) and isinstance(v.type, InFlight):
                start = flight.get(before[n].value, SETTLED)
                flight[v] = min(start, assumed.after.get(n, SETTLED))


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
