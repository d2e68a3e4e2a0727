"""Between a launch and the compiler: specializations as IR types, emitted parameters as a launch plan.

Imported only where a kernel is compiled.
"""

from __future__ import annotations

from collections.abc import Sequence

from warploom.analysis.trip_counts import single_trips
from warploom.codegen import host
from warploom.codegen.emit import Emitted
from warploom.compile import Lowered
from warploom.frontend.signature import DescriptorType
from warploom.ir.analysis import definitions
from warploom.ir.core import Fact, Func, Type, walk
from warploom.ir.host_expressions import Expressions
from warploom.ir.ops.cluster import cluster_of
from warploom.ir.types import ARGUMENT_DTYPES, Pointer, Scalar
from warploom.passes.tile.peel_single_trip_loops import peel_single_trip_loops
from warploom.runtime.args import NOTHING, Spec
from warploom.runtime.dtypes import ELEMENTS
from warploom.runtime.plan import (
    ComputedParam,
    LaunchPlan,
    MapParam,
    Param,
    Rows,
    ScalarParam,
    Spaced,
    Workspace,
)
from warploom.target import Target


def types_of(specs: Sequence[Spec]) -> tuple[Type, ...]:
    """The types of the run-time arguments, as the frontend takes them."""
    return tuple(map(_type, specs))


def _type(s: Spec) -> Type:
    dtype = ARGUMENT_DTYPES[s.dtype]
    if s.kind == "descriptor":
        return DescriptorType(s.block, dtype, s.padding)
    return Pointer(dtype) if s.kind == "pointer" else Scalar(dtype)


def facts_of(specs: Sequence[Spec]) -> tuple[Fact, ...]:
    """The facts of the function's parameters: of a descriptor its base, extents and strides."""
    found: list[Fact] = []
    for s in specs:
        found.append(s.fact)
        if s.kind == "descriptor":
            found += [NOTHING] * (len(s.block) - 1) + [Fact(s.row)]
            found += [Fact(d) for d in s.strides] + [Fact(1, 1)]
    return tuple(found)


def signature_of(func: Func) -> tuple[str, ...]:
    """The function's parameters as `Script.compile(signature)` takes them."""
    return tuple(str(_spec(p.type, fact)) for p, fact in zip(func.params, func.facts, strict=True))


def _spec(t: Type, fact: Fact) -> Spec:
    assert isinstance(t, Pointer | Scalar)
    return Spec("pointer" if isinstance(t, Pointer) else "scalar", t.dtype.name, fact)


def plan_of(
    emitted: Emitted,
    placed: Func,
    pdl: bool = True,
    short: tuple[str, int] | None = None,
    by_waves: bool = False,
    by_axes: bool = False,
    split_k: tuple[str, Rows] | None = None,
    rings: bool = False,
) -> LaunchPlan:
    """What a launch of the emitted kernel does on the host."""
    grid = tuple(map(host.python_text, placed.attrs.get("grid", ())))
    workspaces = workspaces_of(placed)
    last, programs = len(placed.params), placed.attrs.get("programs", False)
    own = next((p for p in emitted.params if isinstance(p, host.OwnMapsParam)), None)
    if own is not None:
        if not grid:  # its sizes are arguments
            grid = tuple(f"a[{last + i}] * {n}" for i, n in enumerate(cluster_of(placed)))
            last, programs = last + len(grid), True
        ctas = " * ".join(f"({n})" for n in grid)
        workspaces = (*workspaces, Workspace(own.name, "u8", f"{own.bytes} * {ctas}", False))
    return LaunchPlan(
        name=emitted.name,
        threads=emitted.threads,
        shared_bytes=emitted.shared_bytes,
        params=tuple(_param(p, last) for p in emitted.params),
        cluster=cluster_of(placed),
        disjoint=tuple(placed.attrs.get("disjoint", ())),
        stored=tuple(placed.attrs.get("stored", ())),
        nonnegative=tuple(placed.attrs.get("nonnegative", ())),
        positive=tuple(placed.attrs.get("positive", ())),
        spaced=spaced_of(placed),
        pdl=pdl,
        grid=grid,
        workspaces=workspaces,
        programs=programs,
        short=short,
        by_waves=by_waves,
        by_axes=by_axes,
        split_k=split_k,
        rings=rings,
        in_place=tuple(
            (i, j)
            for i, j in placed.attrs.get("reordered", ())
            if placed.params[i].type == placed.params[j].type
        ),
        one_array=tuple(placed.attrs.get("one_array", ())),
    )


def spaced_of(func: Func) -> Spaced:
    """The axes along which a function takes places to be different, as Python text."""
    needs = func.attrs.get("spaced", ())
    return tuple(
        tuple((host.python_text(s), host.python_text(n)) for s, n in need) for need in needs
    )


def workspaces_of(func: Func) -> tuple[Workspace, ...]:
    """The memory that a function asks for itself, in its last parameters."""
    asked = func.attrs.get("workspaces", ())
    own = func.params[len(func.params) - len(asked) :]
    out = []
    for v, (elements, clean) in zip(own, asked, strict=True):
        out.append(
            Workspace(v.hint, v.typed(Pointer).dtype.name, host.python_text(elements), clean)
        )
    return tuple(out)


def short_of(lowered: Lowered) -> tuple[str, int] | None:
    """The steps of the loop that `Schedule.short` names, as Python text, and below how many of them a launch
    takes another variant; None where none does.  Of `Schedule.single_trip_loop` a number that is 0 for one
    step."""
    once = lowered.schedule.single_trip_loop
    if lowered.schedule.short is None and not once:
        return None
    named, fewest = lowered.schedule.short or (once, 1)
    steps = _steps(lowered.tile, named)
    return (f"({steps} - 1) ** 2" if once else steps), fewest


def split_k_of(lowered: Lowered) -> tuple[str, Rows] | None:
    """The steps of the loop that `Schedule.split_k` names, as Python text, and its rows."""
    if lowered.schedule.split_k is None:
        return None
    named, rows = lowered.schedule.split_k
    return _steps(lowered.tile, named), rows


def peeled_of(lowered: Lowered, target: Target) -> str | None:
    """The steps, as Python text, of a loop that a variant is made without, as it takes launches of one; None
    where it has its loops."""
    names = [name for name, _ in lowered.steps]
    if peel_single_trip_loops.__name__ not in names:
        return None
    _, before = lowered.steps[names.index(peel_single_trip_loops.__name__) - 1]
    return _steps(before, single_trips(before, target)[0].id)


def _steps(tile: Func, named: str) -> str:
    """How often a loop runs, as Python text."""
    loop = next(o for o in walk(tile.body) if o.id == named)
    program = Expressions(tile.params, definitions(tile.body))
    lo, hi, by = (host.python_text(program.expression(v)) for v in loop.operands[:3])
    return f"-(({lo} - {hi}) // {by})"


def _param(p: host.Param, own_maps: int) -> Param:
    """own_maps: the argument that memory for descriptors is."""
    match p:
        case host.OwnMapsParam():
            return ScalarParam(own_maps, "Q")
        case host.PointerParam():
            return ScalarParam(p.arg, "Q")
        case host.ScalarParam():
            return ScalarParam(p.arg, ELEMENTS[p.dtype].code)
        case host.DividerParam():
            return ComputedParam(f"_divider({host.python_text(p.divisor)})", "Q")
        case host.TensorMapParam():
            return MapParam(
                p.dtype,
                host.python_text(p.base),
                tuple(map(host.python_text, p.extents)),
                tuple(map(host.python_text, p.strides)),
                p.box,
                p.swizzle,
                p.promote,
            )
