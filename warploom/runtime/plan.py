"""The launch plan: how the host computes a kernel's parameters from the call's arguments.

Plain data that survives JSON, so that a cached kernel launches without importing the compiler.  What is
computed is Python text over `a`, the tuple of arguments (numbers, and addresses for pointers), as
codegen/host.py writes it.
"""

from __future__ import annotations

import ctypes
import dataclasses
import json
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from warploom.errors import LaunchError
from warploom.ir.nested_axes import first_meeting
from warploom.target import DEFAULT

if TYPE_CHECKING:
    from warploom.ir.core import Func


@dataclass(frozen=True)
class ScalarParam:
    """Argument `arg`, a number or an address, by value; `code` is its struct code (`i`, `Q`, `f`, …)."""

    arg: int
    code: str


@dataclass(frozen=True)
class ComputedParam:
    """A number that the host computes: Python text; `code` is its struct code."""

    text: str
    code: str


@dataclass(frozen=True)
class MapParam:
    """A TMA descriptor of a tiled array, encoded at launch.  Axes in TMA's order, fastest first.

    base, dims and strides are Python text: an address; elements; bytes, of all axes but the first
    (which is dense).  box in elements; swizzle 0, 32, 64 or 128 bytes; dtype by the IR's name.
    """

    dtype: str
    base: str
    dims: tuple[str, ...]
    strides: tuple[str, ...]
    box: tuple[int, ...]
    swizzle: int
    promote: int = 256  # bytes that the L2 fetches together


@dataclass(frozen=True)
class Workspace:
    """Memory of a launch's own, the address of which is an argument after those of the caller.

    elements: Python text.  clean: zeros when the kernel begins, and it leaves zeros."""

    name: str
    dtype: str
    elements: str
    clean: bool


Param = ScalarParam | ComputedParam | MapParam
MapKey = tuple[int, tuple[int, ...], tuple[int, ...]]  # base, dims, strides
# Of each need (stride, count) of axes, as Python text.
Spaced = tuple[tuple[tuple[str, str], ...], ...]
Rows = tuple[tuple[int, tuple[tuple[int, Any], ...]], ...]  # as of `Schedule.split_k`
Binder = Callable[[Sequence[Any]], tuple[tuple[Any, ...], tuple[MapKey, ...]]]


@dataclass(frozen=True)
class LaunchPlan:
    """Everything a launch needs beside the cubin.

    cluster: CTAs of one program along each axis; the grid counts programs.  shared_bytes: dynamic shared
    memory.  disjoint: pairs of arguments whose bytes must not overlap; stored: those pairs of which both
    are stored to.  nonnegative, positive: arguments that must be so.  spaced: axes along which no place of
    memory may be reached twice.  A launch that breaks one of these takes another variant.  in_place:
    pairs of disjoint that may be one array: there is a variant for these, whose pairs one_array has.  grid:
    an explicit kernel's grid in CTAs, as Python text over `a`.  workspaces: its last arguments.  programs:
    before these come the sizes of the grid of programs, of which `grid` makes CTAs.  short: (steps of the
    main loop as Python text, n): a launch of fewer than n takes another variant, too, as does one of a grid
    with other waves, where by_waves, or with programs along other axes, where by_axes.  split_k: (the same
    text, rows of `Schedule.split_k`): how CTAs share the steps in launches whose grid, or last wave, is
    short.  pdl: the launch need not wait for the kernel before it, as the kernel itself does (programmatic
    dependent launch).
    rings: do loads run ahead through shared memory?
    """

    name: str
    threads: int
    shared_bytes: int
    params: tuple[Param, ...]
    cluster: tuple[int, int, int] = (1, 1, 1)
    disjoint: tuple[tuple[int, int], ...] = ()
    stored: tuple[tuple[int, int], ...] = ()
    nonnegative: tuple[int, ...] = ()
    positive: tuple[int, ...] = ()
    spaced: Spaced = ()
    pdl: bool = True
    grid: tuple[str, ...] = ()
    workspaces: tuple[Workspace, ...] = ()
    programs: bool = False
    short: tuple[str, int] | None = None
    by_waves: bool = False
    by_axes: bool = False
    split_k: tuple[str, Rows] | None = None
    rings: bool = False
    in_place: tuple[tuple[int, int], ...] = ()
    one_array: tuple[tuple[int, int], ...] = ()

    def grid_for(self, args: Sequence[Any]) -> tuple[int, int, int]:
        """Programs along each axis, where the kernel says so itself.  Raises LaunchError."""
        return evaluate_grid(self.grid, args, self.cluster)

    @property
    def maps(self) -> tuple[MapParam, ...]:
        return tuple(p for p in self.params if isinstance(p, MapParam))

    def to_json(self) -> str:
        d = dataclasses.asdict(self)
        d["params"] = [{"kind": type(p).__name__, **dataclasses.asdict(p)} for p in self.params]
        return json.dumps(d)

    @staticmethod
    def from_json(text: str) -> LaunchPlan:
        """Inverse of to_json.  Raises ValueError on malformed text."""
        kinds: dict[str, type[Param]] = {
            kind.__name__: kind for kind in (ScalarParam, ComputedParam, MapParam)
        }
        try:
            d = _tupled(json.loads(text))
            params = tuple(kinds[p.pop("kind")](**p) for p in d.pop("params"))
            workspaces = tuple(Workspace(**w) for w in d.pop("workspaces"))
            return LaunchPlan(params=params, workspaces=workspaces, **d)
        except (KeyError, TypeError, AttributeError) as e:
            raise ValueError(f"no launch plan: {e}") from e


def _tupled(value: Any) -> Any:
    """JSON's arrays as tuples, all the way down."""
    if isinstance(value, dict):
        return {key: _tupled(v) for key, v in value.items()}
    return tuple(map(_tupled, value)) if isinstance(value, list) else value


def _quotient(x: int, y: int) -> int:
    """C's x / y; 0 where y is 0, which C leaves undefined: a launch also computes what an if guards."""
    if not y:
        return 0
    q = abs(x) // abs(y)
    return q if (x < 0) == (y < 0) else -q


def _remainder(x: int, y: int) -> int:
    """C's x % y."""
    return x - y * _quotient(x, y)


def _divided(x: int, y: int) -> int:
    """C's x / y; raises ZeroDivisionError."""
    return _quotient(x, y) if y else x // y


def _reduced(x: int, y: int) -> int:
    """C's x % y; raises ZeroDivisionError."""
    return _remainder(x, y) if y else x % y


def divider(d: int) -> int:
    """How a kernel divides by d (host.DividerParam).  Raises LaunchError where it can't."""
    if not 1 <= d < 1 << 31:
        raise LaunchError(
            "divisor", f"fast_divmod divides by {d}", help="its divisors are 1 to 2**31 - 1"
        )
    shift = (d - 1).bit_length()
    return shift << 32 | -(-(1 << 31 + shift) // d)


NAMES = {"_quotient": _quotient, "_remainder": _remainder, "_divider": divider}


def parameter_texts(plan: LaunchPlan) -> tuple[list[str], list[str]]:
    """The scalar parameters and the tensor maps' keys, as Python text over `a` and `NAMES`."""
    scalars = [
        p.text if isinstance(p, ComputedParam) else f"a[{p.arg}]"
        for p in plan.params
        if not isinstance(p, MapParam)
    ]
    maps = [f"({m.base}, ({_joined(m.dims)}), ({_joined(m.strides)}))" for m in plan.maps]
    return scalars, maps


def make_binder(plan: LaunchPlan) -> Binder:
    """A function of the tuple of arguments to (scalar parameters, tensor maps' keys)."""
    scalars, maps = parameter_texts(plan)
    text = f"lambda a: (({_joined(scalars)}), ({_joined(maps)}))"
    code = compile(text, f"<launch of {plan.name}>", "eval")
    binder: Binder = eval(code, dict(NAMES))
    return binder


def make_short_test(plan: LaunchPlan) -> Callable[[Sequence[Any]], bool]:
    """Whether a launch with these arguments takes fewer steps than the plan's variant is meant for."""
    text, fewest = plan.short or ("1", 0)
    code = compile(f"lambda a: {text} < {fewest}", f"<steps of {plan.name}>", "eval")
    test: Callable[[Sequence[Any]], bool] = eval(code, dict(NAMES))
    return test


def make_meeting(spaced: Spaced) -> Callable[[Sequence[Any]], tuple[int, int, int] | None]:
    """Which of `LaunchPlan.spaced` a launch with these arguments breaks: (need, axis, the places that smaller
    strides come to), by their numbers; None where it breaks none."""
    if not spaced:
        return lambda args: None
    texts = [f"({_joined([f'({s}, {n})' for s, n in need])})" for need in spaced]
    code = compile(f"lambda a: ({_joined(texts)})", "<strides>", "eval")
    axes = eval(code, dict(NAMES))

    def meeting(args: Sequence[Any]) -> tuple[int, int, int] | None:
        for i, need in enumerate(axes(args)):
            if (found := first_meeting(need)) is not None:
                return i, *found
        return None

    return meeting


def make_split_k(plan: LaunchPlan) -> Callable[[Sequence[Any], int], Any]:
    """How CTAs share the steps of programs (`Launch.split_k`) in a launch with these arguments and so many
    programs."""
    if plan.split_k is None:
        return lambda args, programs: 1
    text, rows = plan.split_k
    steps = eval(compile(f"lambda a: {text}", f"<steps of {plan.name}>", "eval"), dict(NAMES))

    def ctas(args: Sequence[Any], programs: int) -> Any:
        by_steps = next((pairs for most, pairs in rows if programs <= most), ())
        if not by_steps:
            return 1
        n = steps(args)
        return next((ctas for fewest, ctas in reversed(by_steps) if fewest <= n), 1)

    return ctas


def evaluate(text: str, args: Sequence[Any]) -> Any:
    """A number that a launch needs, from Python text over `a`, the arguments.  Raises LaunchError where it is
    divided by 0."""
    try:
        return eval(text, {"_quotient": _divided, "_remainder": _reduced, "a": args})
    except ZeroDivisionError:
        raise LaunchError(
            "zero-division",
            "the grid, or the size of an array of the kernel's own, is made by a division by 0",
            help="test the divisor first, in the kernel's arithmetic or before the call",
        ) from None


def evaluate_grid(
    texts: Sequence[str], args: Sequence[Any], cluster: tuple[int, int, int] = (1, 1, 1)
) -> tuple[int, int, int]:
    """The programs along each axis, from Python texts over `a` that count CTAs, filled up with clusters.

    Raises LaunchError where one is negative, and where the CTAs along an axis are no whole number of
    clusters."""
    sizes = [int(evaluate(t, args)) for t in texts]
    if any(n < 0 for n in sizes):
        raise LaunchError(
            "grid",
            f"a grid of {' x '.join(map(str, sizes))} CTAs",
            help="a launch without work has 0: max(self.attrs.blocks' sizes, 0)",
        )
    sizes += cluster[len(sizes) :]
    for axis, (n, per) in enumerate(zip(sizes, cluster, strict=True)):
        if n % per:
            raise LaunchError(
                "grid-cluster",
                f"{n} CTAs along axis {axis} of the grid are no whole number of clusters of {per}",
                help=f"round self.attrs.blocks up: cdiv(…, {per}) * {per}",
            )
    x, y, z = (n // per for n, per in zip(sizes, cluster, strict=True))
    return within_limits((x, y, z), cluster)


def within_limits(
    grid: tuple[int, int, int], cluster: tuple[int, int, int] = (1, 1, 1)
) -> tuple[int, int, int]:
    """The grid of programs.  Raises LaunchError where it has more CTAs along an axis than a device takes."""
    for axis, (n, per) in enumerate(zip(grid, cluster, strict=True)):
        if n * per > DEFAULT.grid.ctas[axis]:
            raise LaunchError(
                "grid",
                f"grid {grid} has {n * per} CTAs along axis {axis}, a device takes "
                f"{DEFAULT.grid.ctas[axis]}",
                help="the long axis goes first: axis 0 takes 2147483647 (and program_id changes "
                "with it); or let each program loop over tiles",
            )
    return grid


def grid_of(func: Func, args: Sequence[Any]) -> tuple[int, int, int]:
    """The programs of an explicit kernel's function (its attributes "grid", in CTAs, and "cluster") for these
    arguments.  Raises LaunchError."""
    from warploom.codegen.host import python_text
    from warploom.ir.ops.cluster import cluster_of

    return evaluate_grid([python_text(e) for e in func.attrs["grid"]], args, cluster_of(func))


def _joined(items: Sequence[str]) -> str:
    return "".join(f"{item}, " for item in items)


@dataclass(frozen=True)
class BlockLayout:
    """Where each parameter stands in the argument block: tensor maps first (128 bytes each), then the
    scalars, 8 bytes each.  The block itself starts at a multiple of 64 bytes, as a CUtensorMap must; the
    parameters' addresses, which a launch takes, stand before it."""

    packer: struct.Struct
    offsets: tuple[int, ...]  # of each parameter, in parameter order

    @cached_property
    def addresses(self) -> struct.Struct:
        """What packs the parameters' addresses."""
        return struct.Struct(f"={len(self.offsets)}Q")

    @cached_property
    def memory(self) -> Callable[[], Any]:
        """Makes room for both, wherever it begins."""
        made: Callable[[], Any] = ctypes.c_char * (self.addresses.size + 64 + self.packer.size)
        return made

    @staticmethod
    def of(plan: LaunchPlan) -> BlockLayout:
        maps = len(plan.maps)
        format = "<" + "128s" * maps
        offsets: list[int] = []
        map_at, scalar_at = 0, 128 * maps
        for p in plan.params:
            if isinstance(p, MapParam):
                offsets.append(map_at)
                map_at += 128
            else:
                offsets.append(scalar_at)
                scalar_at += 8
                format += f"{p.code}{8 - struct.calcsize('<' + p.code)}x"
        return BlockLayout(struct.Struct(format), tuple(offsets))
