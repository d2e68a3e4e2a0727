"""What a WARP program does beside pure arithmetic, as lines of text with rings by name.

For golden tests of large programs: two texts are equal where tasks do the same effects in the same order, in the
same nesting of loops and branches.  Rings are called by the kernel's parameter that they bring ("k" from k_ptr);
of the arithmetic there are exponentials and reductions, with their shapes.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

from warploom.ir.analysis import definitions
from warploom.ir.core import Func, Op, OpKind, Region, Value, walk
from warploom.ir.ops import arith, control, mbarrier, mma, smem, task, tile, tma
from warploom.ir.types import shape_of

_SILENT = frozenset((control.yield_, task.replica_id, task.ring_next, mma.in_flight))
_SHOWN = frozenset((arith.exp2, tile.reduce))


class Protocol:
    """The lines of a function, by task."""

    def __init__(self, func: Func) -> None:
        self.func = func
        self.made = definitions(func.body)
        self.names = self.names_of_memory()

    def names_of_memory(self) -> dict[Value, str]:
        """Shared memory and barriers -> what they hold."""
        ops = list(walk(self.func.body))
        names: dict[Value, str] = {}
        barriers = [o.result for o in ops if o.kind is mbarrier.mbarrier_alloc]
        for o in ops:
            if o.kind is tma.tma_load:
                view = self.made[self.made[o.operands[0]].operands[0]]
                name = view.operands[0].hint.removesuffix("_ptr")
                full = o.operands[2]
                empty = barriers[barriers.index(full) + 1]
                names |= {
                    self.memory(o.operands[1]): name,
                    full: f"full {name}",
                    empty: f"empty {name}",
                }
            if o.kind is tma.tma_store:
                view = self.made[self.made[o.operands[0]].operands[0]]
                names[self.memory(o.operands[1])] = view.operands[0].hint.removesuffix("_ptr")
        return names

    def memory(self, v: Value) -> Value:
        """The allocation that a slot is part of."""
        while self.made[v].kind is not smem.shared_alloc:
            v = self.made[v].operands[0]
        return v

    def name(self, v: Value) -> str:
        return self.names.get(v, v.hint)

    def tasks(self) -> dict[str, list[str]]:
        """Task -> its lines."""
        (o,) = [o for o in walk(self.func.body) if o.kind is task.tasks]
        return {name: self.region(r) for name, r in zip(o.attrs["names"], o.regions, strict=True)}

    def region(self, r: Region) -> list[str]:
        found: list[str] = []
        for o in r.ops:
            if o.regions and o.kind is not task.elect:
                arms = [["  " + line for line in self.region(x)] for x in o.regions]
                if any(arms):
                    found.append(o.kind.name.removesuffix("_"))
                    found += [
                        line
                        for n, arm in enumerate(arms)
                        for line in (["else"] if n and arm and o.kind is control.if_ else []) + arm
                    ]
            elif o.kind is task.elect:
                found += self.region(o.regions[0])
            elif o.kind in _SHOWN or (o.kind.effect and o.kind not in _SILENT):
                found.append(self.line(o))
        return found

    def line(self, o: Op) -> str:
        kind, attrs = o.kind, o.attrs
        if kind is mma.wgmma:
            return " ".join(["dot", *(self.operand(v) for v in o.operands[:2])])
        if kind is mma.wgmma_wait:
            return f"pending {attrs['pending']}"
        if kind is smem.named_barrier:
            return "pass turn" if attrs["arrive"] else "take turn"
        if kind is tile.reduce:
            return f"{attrs['fn']} of {'x'.join(map(str, shape_of(o.operands[0].type)))}"
        if kind in _SHOWN:
            return f"{kind.name} {'x'.join(map(str, shape_of(o.result.type)))}"
        name = kind.name.removeprefix("mbarrier_").removeprefix("tma_").removeprefix("wgmma_")
        memory = {tma.tma_load: 1, tma.tma_store: 1, smem.shared_store: 0}.get(kind)
        if memory is not None:
            return f"{name} {self.operand(o.operands[memory])}"
        if name in ("wait", "arrive", "expect"):
            return f"{name} {self.name(o.operands[0])}"
        return name

    def operand(self, v: Value) -> str:
        """The ring of a slot; "registers"."""
        made = self.made.get(v)
        shared = made is not None and made.kind.name.startswith("shared_")
        return self.name(self.memory(v)) if shared else "registers"


def all_of(func: Func, kind: OpKind) -> Iterator[Op]:
    return (o for o in walk(func.body) if o.kind is kind)


def machinery(func: Func) -> dict[str, list[Any]]:
    """What the program takes of the machine; axes of tiles in shared memory may come in either order."""
    (tasks,) = all_of(func, task.tasks)
    return {
        "tasks": [tasks.attrs[k] for k in ("names", "warps", "replicas", "registers")],
        "slots": sorted(
            (prod(t.lead), t.slot_bytes, t.swizzle, sorted(t.shape))
            for o in all_of(func, smem.shared_alloc)
            if (t := o.result.type)
        ),
        "barriers": [
            (o.attrs["n"], o.attrs["count"]) for o in all_of(func, mbarrier.mbarrier_alloc)
        ],
        "boxes": [sorted(o.attrs["box"]) for o in all_of(func, tma.tensor_map)],
        "bytes": [o.attrs["bytes"] for o in all_of(func, mbarrier.mbarrier_expect)],
        "dots": [
            (o.operands[0].type.shape, o.operands[1].type.shape)  # type: ignore[attr-defined]
            for o in all_of(func, mma.wgmma)
        ],
    }
