"""The launch plan: how the host computes a kernel's parameters from the call's arguments.

Plain data that survives JSON, so that a cached kernel launches without importing the compiler.  An
*expression* is an int, `("arg", i)` (argument i: a number, or a pointer's address) or `(op, x, …)` with
an op of `OPS`; it means what the IR op of that name means on 64-bit integers.
"""

from __future__ import annotations

import dataclasses
import json
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Expr = int | tuple[Any, ...]


def _idiv(x: int, y: int) -> int:
    q = abs(x) // abs(y)
    return q if (x < 0) == (y < 0) else -q


def _rem(x: int, y: int) -> int:
    return x - y * _idiv(x, y)


def _wrap(x: int, bits: int) -> int:
    """x as a signed integer of `bits` bits."""
    half = 1 << (bits - 1)
    return (x + half) % (2 * half) - half


OPS: dict[str, str] = {
    "add": "({} + {})",
    "sub": "({} - {})",
    "mul": "({} * {})",
    "neg": "(-{})",
    "idiv": "_idiv({}, {})",
    "rem": "_rem({}, {})",
    "minimum": "min({}, {})",
    "maximum": "max({}, {})",
    "and": "({} & {})",
    "or": "({} | {})",
    "shl": "({} << {})",
    "shr": "({} >> {})",
    "lt": "({} < {})",
    "le": "({} <= {})",
    "gt": "({} > {})",
    "ge": "({} >= {})",
    "eq": "({} == {})",
    "ne": "({} != {})",
    "select": "({1} if {0} else {2})",
    "wrap": "_wrap({}, {})",
}


@dataclass(frozen=True)
class ScalarParam:
    """A number or an address passed by value; `code` is its struct code (`i`, `q`, `Q`, `f`, …)."""

    value: Expr
    code: str


@dataclass(frozen=True)
class MapParam:
    """A TMA descriptor of a tiled array, encoded at launch.  Axes in TMA's order, fastest first.

    base: an address; dims in elements; strides in bytes, of all axes but the first (which is dense);
    box in elements; swizzle 0, 32, 64 or 128 bytes; dtype by the IR's name.
    """

    dtype: str
    base: Expr
    dims: tuple[Expr, ...]
    strides: tuple[Expr, ...]
    box: tuple[int, ...]
    swizzle: int


Param = ScalarParam | MapParam
MapKey = tuple[int, tuple[int, ...], tuple[int, ...]]  # base, dims, strides
Binder = Callable[..., tuple[tuple[Any, ...], tuple[MapKey, ...]]]


@dataclass(frozen=True)
class LaunchPlan:
    """Everything a launch needs beside the cubin.

    arguments: how many run-time arguments the kernel takes.  cluster: CTAs of one program; the grid
    counts programs.  shared_bytes: dynamic shared memory.  disjoint: pairs of arguments whose bytes
    must not overlap.
    """

    name: str
    arguments: int
    threads: int
    shared_bytes: int
    params: tuple[Param, ...]
    cluster: int = 1
    disjoint: tuple[tuple[int, int], ...] = ()

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
        kinds: dict[str, type[Param]] = {"ScalarParam": ScalarParam, "MapParam": MapParam}
        try:
            d = {key: _tupled(value) for key, value in json.loads(text).items() if key != "params"}
            params = [
                kinds[p["kind"]](**{k: _tupled(v) for k, v in p.items() if k != "kind"})
                for p in json.loads(text)["params"]
            ]
            return LaunchPlan(params=tuple(params), **d)
        except (KeyError, TypeError, AttributeError) as e:
            raise ValueError(f"no launch plan: {e}") from e


def _tupled(value: Any) -> Any:
    return tuple(map(_tupled, value)) if isinstance(value, list) else value


def source_of(e: Expr) -> str:
    """The expression as Python text over the names a0, a1, …"""
    if isinstance(e, int):
        return str(e)
    head, *rest = e
    if head == "arg":
        return f"a{int(rest[0])}"
    return OPS[head].format(*map(source_of, rest))


def make_binder(plan: LaunchPlan) -> Binder:
    """A function of the arguments (numbers and addresses) to (scalar parameters, tensor maps' keys)."""
    names = ", ".join(f"a{i}" for i in range(plan.arguments))
    scalars = [source_of(p.value) for p in plan.params if isinstance(p, ScalarParam)]
    maps = [
        f"({source_of(m.base)}, {_tuple_source(m.dims)}, {_tuple_source(m.strides)})"
        for m in plan.maps
    ]
    source = f"def bind({names}):\n    return ({_joined(scalars)}), ({_joined(maps)})\n"
    scope: dict[str, Any] = {"_idiv": _idiv, "_rem": _rem, "_wrap": _wrap}
    exec(compile(source, f"<launch of {plan.name}>", "exec"), scope)
    binder: Binder = scope["bind"]
    return binder


def _tuple_source(es: tuple[Expr, ...]) -> str:
    return f"({_joined([source_of(e) for e in es])})"


def _joined(items: list[str]) -> str:
    return "".join(f"{item}, " for item in items)


@dataclass(frozen=True)
class BlockLayout:
    """Where each parameter stands in the argument block: tensor maps first (128 bytes each), then the
    scalars, 8 bytes each.  The block itself starts at a multiple of 64 bytes, as a CUtensorMap must."""

    packer: struct.Struct
    offsets: tuple[int, ...]  # of each parameter, in parameter order

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
