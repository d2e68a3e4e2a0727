"""What a script's variables hold beside numbers and tiles: barriers, views, objects, groups.

Shared tensors are IR values of type Shared, accumulators in flight values of type InFlight.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from warploom.frontend.language.core import Handle
from warploom.ir.core import Value
from warploom.ir.types import DType


@dataclass(frozen=True)
class Barrier(Handle):
    """One mbarrier: an array and an i32 index into it."""

    carried = ("index",)
    array: Value
    index: Any


@dataclass(frozen=True)
class BarrierList:
    """mbarriers with different counts: each its own array of one; indexed by constants."""

    arrays: tuple[Value, ...]


@dataclass(frozen=True)
class GlobalView:
    """self.global_view: a typed view of a pointer.  `unit`: the axis of stride 1, or None."""

    view: Value
    pointer: Value
    dtype: DType
    shape: tuple[Any, ...]
    strides: tuple[Any, ...]
    unit: int | None
    fits_tma: str  # "" or why TMA can't move boxes of it


@dataclass(frozen=True)
class OwnMap:
    """self.tma.map_alloc: a tensor map that the kernel writes."""

    value: Value


@dataclass(frozen=True)
class NarrowView(GlobalView):
    """A view of elements of fewer than 8 bits, packed in the bytes that `pointer` (and `view`) points at."""


@dataclass(frozen=True, eq=False)
class Instance:
    """An object of a script's world, `self` or a `wl.Class`: its run-time fields are variables of the
    scope, named `#number.field`.  host: the Python object with what __init__ set (None for a Class)."""

    cls: type
    number: int
    host: Any = None

    def key(self, name: str) -> str:
        return f"#{self.number}.{name}"


@dataclass(frozen=True)
class Bound:
    """A surface function with its receiver, waiting for its call."""

    fn: Callable[..., Any]
    receiver: Any


@dataclass(frozen=True)
class Surface:
    """A namespace of instructions, as self.mbarrier."""

    cls: type


@dataclass(frozen=True)
class Attrs:
    """self.attrs, which the kernel assigns to."""


@dataclass(frozen=True)
class Dim3:
    """A value for each axis, made where it is used: self.blockIdx and the like.  doc: what it is."""

    fn: Callable[[int], Any]
    doc: str = ""


@dataclass(frozen=True)
class ThreadIndex:
    """self.get_thread_binding(): the number of the thread that runs a statement."""


@dataclass(frozen=True)
class IsThread:
    """Whether it is this one: a condition."""

    number: int


@dataclass(frozen=True)
class Evaluated:
    """A name of a namespace that stands for a value made where it is used, as self.cluster.blockRank.
    doc: what it is."""

    fn: Callable[[], Any]
    doc: str = ""


@dataclass(frozen=True)
class Enter:
    """What a `with` of the script's world enters.

    kind: 'group' (threads first … first + threads of the current group, `replicas` times) or 'one' (an
    elected thread).
    """

    kind: str
    begin: int = 0
    threads: int = 0
    replicas: int = 1
    name: str = ""
    what: str = ""


@dataclass(frozen=True)
class Changed:
    """What an instruction returns that changes register tensors in place: old value to new."""

    pairs: tuple[tuple[Value, Value], ...]
    value: Any = None
