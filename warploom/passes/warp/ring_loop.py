"""Pipelined loops that fill or read rings; the producer's side of overlapped_dots.py (part of
expand_pipeline).

before (in a loop):        after:
  load k;  load v            load k of the next iteration;  load v

What the consumer waits for in stage 1 is asked for in stage 1: in the order in which it is waited for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from warploom.ir.analysis import effects, reads
from warploom.ir.core import Effect, Op, Value
from warploom.ir.ops import arith, mma, smem, task, tile
from warploom.ir.types import Shared
from warploom.passes.warp.pipelined_loop import PipelinedLoop


class RingLoop(PipelinedLoop):
    """A loop that fills or reads rings.  What is made again takes no instruction, or no register that another
    place could spare; a wgmma stands for its fence and commit as well.

    outer: definitions around the loop."""

    remade = smem.PARTS | {
        arith.const, tile.splat, tile.expand_dims, tile.broadcast, tile.arange, mma.no_acc,
    }  # fmt: skip
    implied = mma.GROUPING

    def __init__(self, o: Op, outer: Mapping[Value, Op]) -> None:
        self.outer = outer
        super().__init__(o)

    def slots(self, o: Op) -> Iterable[Value]:
        """Indices of the slots whose memory o accesses."""
        work = [v for v in reads(o) if isinstance(v.type, Shared)]
        while work:
            v = work.pop()
            maker = self.maker(v)
            if maker is None:
                continue
            if maker.kind is smem.shared_slot:
                yield maker.operands[1]
            else:
                work += [v for v in maker.operands if isinstance(v.type, Shared)]

    def maker(self, v: Value) -> Op | None:
        """The op that makes v, in the loop or around it."""
        return self.made.get(v) or self.outer.get(v)


class ProducerLoop(RingLoop):
    """The producer's side of a consumer's loop.  What the consumer waits for in stage 1 (`late`: the full
    barriers) is asked for an iteration later.

    tangled: an op fills slots for both stages, or the slot of a late one is not the loop's own: the loop has
    to stay as it is."""

    def __init__(self, o: Op, late: set[Value]) -> None:
        self.late = late
        self.tangled = False
        super().__init__(o, {})

    def stages(self) -> dict[Op, int]:
        late = self.late_slots()
        early = {o.operands[0] for o in self.ops if o.kind is task.ring_next} - late
        self.tangled = not late <= set(self.old.params) or not early
        readers: dict[Value, list[Op]] = {}
        for o in self.ops:
            for v in self.needs(o):
                readers.setdefault(v, []).append(o)
        stage: dict[Op, int] = {}
        behind = 0  # stage of the op behind that fills something
        for o in reversed(self.ops):
            touched = {*reads(o), *self.slots(o)}
            if touched & (late | early):
                self.tangled |= bool(touched & late and touched & early)
                behind = stage[o] = int(bool(touched & late))
            elif effects(o) & (Effect.WRITE | Effect.SYNC):
                stage[o] = behind
            else:
                users = [x for v in o.results for x in readers.get(v, ())]
                passed_on = not set(o.results).isdisjoint(self.old.yielded)
                stage[o] = int(bool(users) and not passed_on and all(stage[x] for x in users))
        return stage

    def late_slots(self) -> set[Value]:
        """Slots that are filled for stage 1."""
        inside = [x for o in self.ops for x in o.all_ops]
        return {
            x.operands[i + 1] for x in inside for i, v in enumerate(x.operands) if v in self.late
        }
