"""Arrays of a launch that share memory: to the checker one array, which each argument points into."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from warploom.check.global_accesses import collect
from warploom.check.report import Unproved
from warploom.check.runs import Case
from warploom.ir import build
from warploom.ir.core import Builder, Func, Region, Value
from warploom.ir.ops import arith
from warploom.ir.rewrite import substitute
from warploom.ir.types import Pointer, i64


@dataclass(frozen=True)
class Place:
    """Where an array lies: the address of its first element, its first byte, and the byte after its last."""

    address: int
    begin: int
    end: int


@dataclass(frozen=True, eq=False)
class Launch(Case):
    """An input that is asked about.  places: of its arrays, by parameter; None of numbers."""

    places: tuple[Place | None, ...] = ()


def groups_of(launch: Case) -> tuple[dict[int, int], ...]:
    """`shared_memory` of a launch; nothing is known of other inputs."""
    return shared_memory(launch.places) if isinstance(launch, Launch) else ()


def shared_memory(places: Sequence[Place | None]) -> tuple[dict[int, int], ...]:
    """The arguments of arrays that overlap, directly or by way of others, together: of each the bytes from
    the largest array on, which comes first."""
    first = list(range(len(places)))
    for j, y in enumerate(places):
        for i, x in enumerate(places[:j]):
            if x and y and max(x.begin, y.begin) < min(x.end, y.end):
                low, high = sorted((first[i], first[j]))
                first = [low if k == high else k for k in first]
    found = []
    for i in set(first):
        group = [(j, y) for j, y in enumerate(places) if y and first[j] == i]
        group.sort(key=lambda x: x[1].begin - x[1].end)
        found.append({j: y.address - group[0][1].address for j, y in group})
    return tuple(g for g in found if len(g) > 1)


def merged(func: Func, launch: Case) -> Func:
    """The function with the arguments of arrays that overlap as offsets from the first of them; those of
    different types are left (`unlike`)."""
    b = Builder()
    instead: dict[Value, Value] = {}
    for group in groups_of(launch):
        first, *others = (func.params[i] for i in group)
        offsets = _offsets(func, group)
        for v, n in zip(others, offsets[1:], strict=False):
            instead[v] = arith.addptr(b, first, build.const(b, n, i64)) if n else first
    if not instead:
        return func
    body = substitute(func.body, instead)
    return func.with_(body=Region(body.params, (*b.ops, *body.ops)))


def _offsets(func: Func, group: dict[int, int]) -> list[int]:
    """In elements; none where these differ."""
    types = {func.params[i].type for i in group}
    (kind, *more) = types
    size = kind.dtype.bytes if isinstance(kind, Pointer) else 0
    if more or not size or any(n % size for n in group.values()):
        return []
    return [n // size for n in group.values()]


def unlike(func: Func, launch: Case) -> list[Unproved]:
    """Arrays that overlap and are left, where the function stores to one of them."""
    groups = [g for g in groups_of(launch) if not _offsets(func, g)]
    if not groups:
        return []
    accesses = collect(func).accesses
    used, written = {a.base for a in accesses}, {a.base for a in accesses if a.writes}
    found = []
    for group in groups:
        mine = [v for i in group if (v := func.params[i]) in used]
        if len(mine) > 1 and not written.isdisjoint(mine):
            names = " and ".join(v.hint for v in mine)
            found.append(Unproved(f"{names} share memory, and their elements do not coincide"))
    return found
