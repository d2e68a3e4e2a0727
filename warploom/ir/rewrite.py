"""Building changed IR: substitution, local rewriting, cloning, inlining.

IR is frozen: everything here returns new regions and shares the ops and values that did not change, so
that the dumps before and after a pass differ only where the program does.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from typing import overload

from warploom.ir.core import Builder, Func, Op, Region, Value
from warploom.ir.ops import task

Env = dict[Value, Value]
Rule = Callable[[Op, Builder], Sequence[Value] | None]


@overload
def rewrite(target: Func, rule: Rule) -> Func: ...
@overload
def rewrite(target: Region, rule: Rule) -> Region: ...
def rewrite(target: Func | Region, rule: Rule) -> Func | Region:
    """One walk over a function or region in program order, the regions of an op before the op itself.

    rule(op, builder) sees each op with its operands and regions already rewritten.  It returns None to
    keep it, or the values that replace the op's results (one each, of the same type), having built what
    computes them with the builder, which stands where the op stood and has its location and tasks.  What
    it built stays before the op even where it keeps it.  A rule is not applied to what it built.
    Where nothing changes, the result is `target` itself.
    """
    if isinstance(target, Region):
        return _rewrite(target, rule, {})
    body = _rewrite(target.body, rule, {})
    return target if body is target.body else target.with_(body=body)


def _rewrite(region: Region, rule: Rule, env: Env) -> Region:
    b = Builder()
    for old in region.ops:
        o = substitute_operands(old, env)
        o = with_regions(o, lambda r: _rewrite(r, rule, env))
        b.loc, b.tasks = o.loc, o.tasks
        values = rule(o, b)
        if values is None:
            b.append(o)
        else:
            env.update(zip(o.results, values, strict=True))
    return with_ops(region, b.ops)


def annotate(func: Func, more: Callable[[Op], Mapping[str, object]]) -> Func:
    """The function with what `more` gives for each op among the op's attributes."""

    def rule(o: Op, b: Builder) -> Sequence[Value] | None:
        if not (attrs := more(o)):
            return None
        b.append(o.with_(attrs={**o.attrs, **attrs}))
        return o.results

    return rewrite(func, rule)


def with_ops(region: Region, ops: Sequence[Op]) -> Region:
    """The region with other ops; itself where these are its own."""
    return region if tuple(ops) == region.ops else Region(region.params, tuple(ops))


def with_regions(o: Op, change: Callable[[Region], Region]) -> Op:
    """The op with each of its regions changed; itself where none is."""
    if not o.regions:
        return o
    regions = tuple(map(change, o.regions))
    return o if regions == o.regions else o.with_(regions=regions)


def without(o: Op, gone: Container[Op]) -> Op:
    """The op without those of `gone` in its regions; itself where none is."""
    return with_regions(
        o, lambda r: with_ops(r, [without(i, gone) for i in r.ops if i not in gone])
    )


def rewrite_tasks(func: Func, change: Callable[[Op], Op]) -> Func:
    """The function with each of its `tasks` ops changed; itself where none is."""
    body = with_ops(func.body, [change(o) if o.kind is task.tasks else o for o in func.body.ops])
    return func if body is func.body else func.with_(body=body)


def rewrite_regions(func: Func, change: Callable[..., Region], *named: str) -> Func:
    """The function with each task's region changed, by its own entries of these attributes; itself where none
    is."""

    def phase(o: Op) -> Op:
        rows = zip(o.regions, *(o.attrs[name] for name in named), strict=True)
        regions = tuple(change(*row) for row in rows)
        return o if regions == o.regions else o.with_(regions=regions)

    return rewrite_tasks(func, phase)


def substitute_operands(o: Op, env: Mapping[Value, Value]) -> Op:
    """The op with its own operands (not those inside its regions) replaced through `env`."""
    if not env.keys().isdisjoint(o.operands):
        return o.with_(operands=tuple(env.get(v, v) for v in o.operands))
    return o


def substitute(region: Region, env: Mapping[Value, Value]) -> Region:
    """The region with every use of a value in `env` replaced, nested uses too."""
    return _rewrite(region, lambda o, b: None, dict(env)) if env else region


def clone_op(o: Op, env: Env) -> Op:
    """A copy with fresh results (and fresh values inside its regions).  Operands go through `env`, which
    learns what each old value became; ids, tasks and locations are kept."""
    operands = tuple(env.get(v, v) for v in o.operands)
    regions = tuple(clone_region(r, env) for r in o.regions)
    results = tuple(Value(v.type, v.hint) for v in o.results)
    env.update(zip(o.results, results, strict=True))
    return o.with_(operands=operands, results=results, regions=regions)


def clone_region(region: Region, env: Env) -> Region:
    """A copy with fresh parameters and values; `env` maps values from outside, and learns the others."""
    params = tuple(Value(v.type, v.hint) for v in region.params)
    env.update(zip(region.params, params, strict=True))
    return Region(params, tuple(clone_op(o, env) for o in region.ops))


def inline(
    b: Builder, region: Region, arguments: Sequence[Value], env: Env | None = None
) -> tuple[Value, ...]:
    """Appends a copy of the region's ops with `arguments` for its parameters; returns what it yields."""
    env = dict(env or {})
    env.update(zip(region.params, arguments, strict=True))
    for o in region.ops[:-1]:
        b.append(clone_op(o, env))
    return tuple(env.get(v, v) for v in region.yielded)
