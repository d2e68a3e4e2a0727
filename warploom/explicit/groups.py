"""Thread groups of a script: who runs a block, and what the others don't know of it."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from warploom.errors import CompileError, Note
from warploom.explicit.assignments import Assignments
from warploom.explicit.handles import Enter, IsThread
from warploom.explicit.operands import is_register
from warploom.explicit.program import Group, Threads, without_unused
from warploom.frontend.branches import Outcome
from warploom.frontend.coerce import Const, describe
from warploom.frontend.refuse import refuse
from warploom.frontend.scope import Binding, Scope
from warploom.ir.analysis import is_pure
from warploom.ir.core import Op, Region, Value
from warploom.ir.ops import control, task
from warploom.ir.rewrite import clone_region
from warploom.ir.types import Scalar, i32


class Groups(Assignments):
    """Translates the `with` blocks of one function of a script."""

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
            self._group(node, item, entered, threads, saved)
            self._forget(saved, "only the threads of one group assign it")

    def _decided(
        self, node: ast.If, test: Any, rest: list[ast.stmt]
    ) -> tuple[Outcome, list[ast.stmt]]:
        """if self.get_thread_binding() == 0: what the block stores is one thread's."""
        if not isinstance(test, IsThread):
            return super()._decided(node, test, rest)
        if node.orelse:
            self.fail(node, "thread-index", "an else of one thread", "write it without a condition")
        saved, p = dict(self.scope), self.program
        p.is_lone, before = True, p.is_lone
        self.ends(node.body, "an if of one thread")
        p.is_lone = before
        self._forget(saved, "one thread assigns it, the others do not know it")
        return None, rest

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
        if not isinstance(value, Value):
            return value
        for threads, where in self.program.state.changed.get(value, ()):
            raise CompileError(
                "group-tile",
                f"{node.id} is what {threads} have changed it to, and the other threads have not",
                self.loc(node),
                (Note("it is changed here", where),),
                "use it in that group, or hand it over by shared memory: store_shared, self.sync(), "
                "and load_shared",
            )
        owners = self.program.elsewhere.get(value)
        if owners is not None:
            self.fail(
                node,
                "group-tile",
                f"{node.id} lies in the registers of {owners}, and here run {self.program.here}",
                "compute it inside the group, or hand it over by shared memory: store_shared, self.sync(), "
                "and load_shared in the group",
            )
        return value

    def _group(
        self, node: ast.With, item: ast.withitem, e: Enter, threads: Threads, saved: Scope
    ) -> None:
        """A thread group: its code becomes the region of a marker, which assemble() places."""
        emitter, p = self.emitter, self.program
        elsewhere, owners = p.elsewhere, str(p.here)
        p.around.append(emitter.builder)
        p.threads.append(threads)
        with emitter.inside(emitter.builder.nested()) as builder:
            outer, p.body = p.body, builder
            made = self._made_again()
            tiles = (b.value for b in self.scope.values() if is_register(b.value))
            p.elsewhere = elsewhere | dict.fromkeys((v for v in tiles if v not in made), owners)
            if item.optional_vars is not None:
                with self.at(item.context_expr):
                    index = emitter.emit(task.replica_id) if e.replicas > 1 else Const(0, i32)
                    self.assign(item.optional_vars, index)
            self.ends(node.body, "a thread group")
            emitter.loc = self.loc(node)
            emitter.emit(control.yield_)
            p.body = outer
        p.threads.pop()
        p.around.pop()
        p.elsewhere = elsewhere
        for name, b in self.scope.items():  # what the group left as it found it
            if b.value in made:
                self.scope[name] = Binding(made[b.value], b.loc)
            elif name in saved and saved[name].value in made.values():
                old = saved[name].value
                p.state.changed[old] = (*p.state.changed.get(old, ()), (threads, b.loc))
                self.scope[name] = saved[name]
        assert threads.warps is not None
        key = str(len(p.state.groups))
        with self.at(item.context_expr):
            emitter.append(
                task.tasks, (), [], names=(key,), warps=(threads.warps,), replicas=(e.replicas,),
                registers=(None,), regions=(Region((), tuple(without_unused(builder.ops))),),
            )  # fmt: skip
        p.state.groups[key] = Group(e.name, threads)

    def _made_again(self) -> dict[Value, Value]:
        """Register tensors of the threads around a group that are computed from numbers alone: the group
        computes them for itself.  The new ones, each with the old one; variables hold the new ones."""
        emitter, p = self.emitter, self.program
        makers = {v: o for b in (p.top, *p.around) if b for o in b.ops for v in o.results}
        again: dict[Value, Value] = {}
        for name, b in self.scope.items():
            old = b.value
            others = (t for t, _ in p.state.changed.get(old, ()))
            if not is_register(old) or any(t.meets(p.here) for t in others):
                continue
            if old not in again:
                ops = _computed(emitter.renamed.get(old, old), makers)
                if ops is None:
                    continue
                body = clone_region(Region((), tuple(ops)), {})
                emitter.builder.ops += body.ops
                again[old] = body.ops[-1].results[0]
                if old in p.state.flight:
                    p.state.flight[again[old]] = p.state.flight[old]
            self.scope[name] = Binding(again[old], b.loc)
        return {new: old for old, new in again.items()}

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


MOST_OPS = 32  # that a group computes again


def _computed(tile: Value, makers: Mapping[Value, Op]) -> list[Op] | None:
    """The ops that make a register tensor of numbers, in order; None where something else takes part."""
    ops: dict[Op, None] = {}
    todo = [tile]
    while todo and len(ops) <= MOST_OPS:
        o = makers.get(todo.pop())
        if o is None or o.regions or not is_pure(o):
            return None
        ops[o] = None
        todo += [v for v in o.operands if not isinstance(v.type, Scalar)]
    place = {o: i for i, o in enumerate(dict.fromkeys(makers.values()))}
    return sorted(ops, key=place.__getitem__) if len(ops) <= MOST_OPS else None
