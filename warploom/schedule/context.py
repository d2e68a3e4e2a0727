"""Scheduling context: the function, knobs and target that a schedule is for, and the log of decisions.

The parts of the chooser that decide (roles, partition, memory, stores, tasks, consumer) share one context.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace

from warploom.analysis.access import Accesses
from warploom.analysis.matrix_units import preferred, unit_of
from warploom.analysis.structure import structure_of
from warploom.errors import CompileError
from warploom.ir.analysis import backward_slice, sources
from warploom.ir.core import Func, Op, Value
from warploom.ir.ops import control, tile
from warploom.ir.types import Tile
from warploom.schedule.hints import Hints
from warploom.schedule.model import ChannelPlan, Knobs, Reason, StorePlan
from warploom.schedule.resources import Headroom
from warploom.target import MatrixUnit, Target


@dataclass(eq=False)
class Context:
    """A canonical, numbered TILE function with what is asked of it, and the reasons recorded until now.

    headroom: registers to leave beyond the estimate.  ctas_per_sm: occupancy; the target is one CTA's
    part of a multiprocessor.  held: where shared memory is short, loads that get no slots.  crowded: so few
    programs share a multiprocessor that wider loads of loops with dots go to registers.
    """

    func: Func
    knobs: Knobs
    target: Target
    headroom: Headroom = field(default_factory=Headroom)
    reasons: list[Reason] = field(default_factory=list)
    ctas_per_sm: int = 1
    held: frozenset[str] | None = None
    crowded: bool = False

    def __post_init__(self) -> None:
        self.structure = structure_of(self.func)
        self.sources = sources(self.func.body)
        self.accesses = Accesses(self.func, self.target)
        self.ops = [o for o in self.structure.ops if o.kind is not control.yield_]
        self.dots = [o for o in self.ops if o.kind is tile.dot]
        self.aliased = self.accesses.aliased
        self.hints = Hints(self.func, self.structure)

    def overtakes(self, o: Op) -> bool:
        """Is o a load that would pass a store to what it reads, if it ran iterations ahead?"""
        return o.loads and o in self.aliased and self.accesses.unwritten_loop(o) is None

    def afresh(self) -> Context:
        """The same without reasons, for another schedule of it: the analyses are shared."""
        other = copy.copy(self)
        other.reasons = []
        return other

    def holding(self, loads: Iterable[str]) -> Context:
        """The same where these loads go to registers, whoever uses them."""
        other = self.afresh()
        other.held = (self.held or frozenset()) | {*loads}
        return other

    def in_registers(self) -> Context:
        """The same with wider loads in registers, where a uniform kernel's slots keep other programs away."""
        other = self.afresh()
        other.crowded = True
        return other

    def sharing(self, n: int) -> Context:
        """The same for n programs that share a multiprocessor, each with one consumer group unless told
        otherwise."""
        other = self.afresh()
        other.ctas_per_sm, other.target = n, self.target.part(n)
        if other.knobs.num_consumer_groups is None:
            other.knobs = replace(self.knobs, num_consumer_groups=1)
        return other

    def unit(self, dot: Op) -> MatrixUnit:
        """The preferred matrix unit for a dot's operands, whatever its size."""
        return preferred(dot, self.target)

    def executed(self, dot: Op) -> MatrixUnit:
        """The preferred one of those that the warps of a launch execute."""
        return preferred(dot, self.target, self.target.warps_together(self.knobs.num_warps))

    def is_async(self, dot: Op) -> bool:
        """Does what a dot's threads issue complete later, where nothing is cut among groups?"""
        unit = unit_of(dot, self.target, self.target.warps_together(self.knobs.num_warps))
        return unit is not None and unit.is_async

    def because(self, context: str, decision: str, reason: str, warn: bool = False) -> None:
        """Records a decision about `context`, an op's id or the name of a part, with its reason."""
        self.reasons.append(Reason(context, decision, reason, warn))

    def unmet(self, o: Op, decision: str, why: str) -> None:
        """What the source or the launch asks of op o is not done: a warning, an error where strict."""
        if self.knobs.strict:
            raise CompileError(
                "not-as-asked",
                f"{o.id}: {decision}, because {why}",
                o.loc,
                help="ask for what fits, or drop strict=True for a warning",
            )
        self.because(o.id, decision, why, warn=True)

    def decided(self, o: Op, decision: str, why: str, asked: bool) -> None:
        """Records a decision about op o; asked: against a request."""
        if asked:
            self.unmet(o, decision, why)
        else:
            self.because(o.id, decision, why)

    def tell_hints(
        self,
        specialized: bool,
        channels: tuple[ChannelPlan, ...],
        stores: tuple[StorePlan, ...] = (),
        ahead: Collection[str] = (),
    ) -> None:
        """What became of the hints in the source.  ahead: loops whose loads run ahead in registers."""
        handed = [s.op for s in stores if s.by_task]
        for o, outcome in self.hints.kept(specialized, channels, handed, ahead):
            self.decided(o, outcome.decision, outcome.because, outcome.warn)

    def from_dot(self, v: Value) -> bool:
        """Is v computed from a dot's result (whose layout makes direct stores slow)?"""
        found = backward_slice([v], self.sources, lambda x: not isinstance(x.type, Tile))
        return any(o.result in found for o in self.dots)


def named(ops: Iterable[Op]) -> str:
    """The ids of ops, for a sentence."""
    return ", ".join(o.id for o in ops)
