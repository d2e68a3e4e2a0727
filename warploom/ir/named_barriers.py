"""Which threads meet at which named barriers of a CTA (PTX ISA, "bar, barrier")."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from warploom.ir.core import Func, Op, walk
from warploom.ir.ops import smem, task


class Meeting(NamedTuple):
    """Threads that meet at an op.

    owner: the task and its scope, whose barriers these are; ("", "") of a program's own named barriers, None
    of all threads of the CTA.  warps: that meet at each of them.  barriers: how many, one a replica; 0 where
    the threads are one warp's."""

    op: Op
    owner: tuple[str, str] | None
    warps: int
    barriers: int

    @property
    def ids(self) -> range:
        """The numbers of the barriers; none before they have some."""
        first = self.op.attrs.get("id")
        return range(0) if first is None else range(first, first + self.barriers)


def meetings(func: Func) -> Iterator[Meeting]:
    """Of all ops of a function's tasks at which threads meet, in order."""
    for phase in task.phases(func):
        rows = [*zip(*(phase.attrs[k] for k in ("names", "warps", "replicas")), strict=True)]
        whole = sum(warps * n for _, warps, n in rows)
        for (name, warps, n), region in zip(rows, phase.regions, strict=True):
            for o in walk(region):
                scope = o.attrs.get("scope", "replica")
                if o.kind is smem.named_barrier:
                    yield Meeting(o, ("", ""), warps, o.attrs.get("n", 1))
                elif o.kind not in (smem.group_sync, smem.exchange):
                    continue
                elif scope == "task" and n > 1:
                    yield Meeting(o, (name, scope), warps * n, 1)
                elif scope == "cta" or (warps == whole and warps > 1):
                    yield Meeting(o, None, whole, 1)
                else:
                    yield Meeting(o, (name, "replica"), warps, n if warps > 1 else 0)
