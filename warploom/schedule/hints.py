"""What the source asks of single loops and ops: the hints of `tl.range`, the groups of `tl.async_task`.

    for k in tl.range(…, num_stages=4):     rings of this loop have 4 slots, whatever the launch asks for
    for k in tl.range(…, warp_specialize=False):    its loads stay with the task that uses them
    with tl.async_task([0]): a = tl.load(…)         a producer issues it
    with tl.async_task([1, 2]): acc = tl.dot(…)     two consumer groups run it

A loop's word counts before the launch's, but for num_consumer_groups=0: that is a uniform kernel, and hints
that ask for tasks rest.  Decides nothing: the chooser asks here, and tells with `Hints.kept` what
became of every hint.  Where the arguments of a launch overlap (func.attrs["overlap"]) hints rest as well.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

from warploom.analysis.structure import Structure
from warploom.errors import CompileError
from warploom.ir.core import Effect, Func, Op
from warploom.ir.ops import control, tile
from warploom.ir.types import Tile
from warploom.schedule.model import ChannelPlan, Reason
from warploom.schedule.rings import is_view

_USER = "user"  # prefix of the tasks that tl.async_task names (frontend/translate.py)
Ids = frozenset[str]


Outcome = tuple[Op, Reason]  # what became of a hint of an op


@dataclass(eq=False)
class Hints:
    """See the module's docstring.  Raises CompileError for a depth that no ring has."""

    func: Func
    structure: Structure
    loops: tuple[Op, ...] = field(init=False)
    tasked: tuple[Op, ...] = field(init=False)  # loads, dots and writes under a tl.async_task
    main: Ids = field(init=False)  # tasks of the dots, else of the stores
    side: Ids = field(init=False)  # task of the first load that is not theirs

    def __post_init__(self) -> None:
        rests = bool(self.func.attrs.get("overlap"))
        ops = () if rests else tuple(self.structure.ops)
        self.loops = tuple(o for o in ops if o.kind is control.for_)
        self.tasked = tuple(o for o in ops if ids(o) and _anchor(o))
        dots = [o for o in self.tasked if o.kind is tile.dot]
        writes = [o for o in self.tasked if Effect.WRITE in o.kind.effect]
        self.main = next((ids(o) for o in (*dots, *writes)), frozenset())
        self.side = next((ids(o) for o in self.tasked if self.wants_producer(o)), frozenset())
        for o in self.loops:
            n = o.attrs.get("num_stages")
            if n is not None and n < 1:
                raise CompileError(
                    "depth",
                    f"num_stages={n}: a ring has at least one slot",
                    o.loc,
                    help="use num_stages=3, or leave it out for what fits",
                )

    # ---- asked by the chooser

    def speaker(self, o: Op) -> Op | None:
        """The loop whose num_stages counts for load o.  A loop that is flattened is one with the loop in
        it, and speaks for that too where that is silent."""
        for loop in self._loops_around(o):
            if loop.attrs.get("num_stages") is not None:
                return loop
            outer = next(self._loops_around(loop), None)
            if outer is None or not outer.attrs.get("flatten"):
                return None
        return None

    def stages(self, o: Op) -> int | None:
        """The depth that a loop around load o asks for."""
        loop = self.speaker(o)
        return loop.attrs["num_stages"] if loop is not None else None

    def wants_producer(self, o: Op) -> bool:
        """Does a tl.async_task give load o to another task than the dots'?"""
        return o.loads and bool(ids(o)) and o in self.tasked and not ids(o) & self.main

    def wants_store_task(self, o: Op) -> bool:
        """Does a tl.async_task give store o to a task that is neither the dots' nor the loads'?"""
        others = self.main | self.side
        return o in self.tasked and o.stores and bool(ids(o)) and not ids(o) & others

    def keeps(self, o: Op) -> str | None:
        """Why load o has to stay with the task that uses it; None where nothing was said."""
        if o in self.tasked and ids(o) & self.main:
            return f"{spelled(ids(o))} gives it to the task of the dots"
        for loop in self._loops_around(o):
            asked = loop.attrs.get("warp_specialize")
            if asked is not None:
                return None if asked else "its loop says warp_specialize=False"
        return None

    def for_tasks(self) -> list[tuple[str, Op]]:
        """What in the source asks for more than one task, as it is spelled there, and of which op."""
        loops = [o for o in self.loops if o.attrs.get("warp_specialize")]
        apart = next((o for o in self.tasked if not ids(o) & self.main), None)
        found = [("tl.range(warp_specialize=True)", o) for o in loops]
        return found if apart is None else [*found, (spelled(ids(apart)), apart)]

    def _loops_around(self, o: Op) -> Iterator[Op]:
        return (p for p in self.structure.enclosing(o) if p in self.loops)

    # ---- told afterwards

    def kept(
        self,
        specialized: bool,
        channels: Iterable[ChannelPlan],
        handed: Collection[str] = (),
        ahead: Collection[str] = (),
    ) -> Iterator[Outcome]:
        """What became of the hints, apart from depths and warp_specialize in a uniform kernel, which the
        chooser tells where it decides them.  ahead: loops whose loads run ahead in registers."""
        items = {i for c in channels for i in c.all_items}
        moved = [o for o in self.structure.ops if o.id in items]
        for loop in self.loops:
            inside = [o for o in moved if loop in self.structure.enclosing(o)]
            yield from self._of_loop(loop, inside, specialized, loop.id in ahead)
        if specialized:
            yield from self._of_tasks(moved, handed)

    def _of_loop(
        self, loop: Op, inside: list[Op], specialized: bool, ahead: bool
    ) -> Iterator[Outcome]:
        attrs = loop.attrs
        nested = any(
            o.kind is control.for_ and loop in self.structure.enclosing(o) for o in self.loops
        )
        if attrs.get("warp_specialize") and specialized and not inside:
            why = "no load in it could be given to a producer"
            yield _outcome(loop, "not specialized, against warp_specialize", why, True)
        silent = all(self.speaker(o) is not loop for o in inside)
        if attrs.get("num_stages", 1) > 1 and silent and not ahead:
            why = "no load in it runs ahead"
            yield _outcome(loop, f"one stage instead of {attrs['num_stages']}", why, True)
        if attrs.get("flatten"):
            if not nested:
                yield _outcome(loop, "flat already", "there is no loop in it")
            elif specialized and inside:
                yield _outcome(
                    loop, "flat already", "the producer runs on from iteration to iteration"
                )
            else:
                why = "only a producer runs on through the loops in it, and it has none"
                yield _outcome(loop, "not flattened", why, True)
        if attrs.get("unroll", 1) > 1:
            yield _outcome(loop, f"unrolled {attrs['unroll']} times", "loop_unroll_factor")
        if attrs.get("disallow_acc_multi_buffer"):
            why = "an accumulator lies in registers, once"
            yield _outcome(loop, "accumulators have one buffer already", why)
        if attrs.get("disable_licm"):
            why = "tensor maps are made before the kernel starts, and NVRTC moves what it likes"
            yield _outcome(loop, "invariant code leaves the loop, against disable_licm", why, True)

    def _of_tasks(self, moved: Collection[Op], handed: Collection[str]) -> Iterator[Outcome]:
        seen: set[Ids] = set()
        for o in self.structure.ops:
            mine = ids(o)
            if not mine or mine & self.main or mine in seen:
                continue
            asked = spelled(mine)
            if o in moved:
                if mine & self.side:
                    yield _outcome(o, "issued by the producer", asked)
                    continue
                why = f"one producer issues all loads, those of {spelled(self.side)} too"
                decision = f"issued by the producer, not by a task of its own as {asked} asks"
            elif o.loads or o.id in handed:
                continue  # told where it was decided
            elif _anchor(o):
                why = "whatever is computed or written is so by the consumers"
                decision = f"run by the consumers, not as {asked} asks"
            elif self._uses(o, mine, moved):
                why = "a producer only loads"
                decision = f"run by the consumers, not as {asked} asks"
            else:
                continue
            seen.add(mine)
            yield _outcome(o, decision, why, True)

    def _uses(self, o: Op, mine: Ids, moved: Collection[Op]) -> bool:
        """Does o compute with what a moved load of the same group brought?"""
        makers = (self.structure.maker(v) for v in o.operands if isinstance(v.type, Tile))
        return not is_view(o) and any(m in moved and ids(m) == mine for m in makers if m)


def _outcome(o: Op, decision: str, because: str, warn: bool = False) -> Outcome:
    return o, Reason(o.id, decision, because, warn)


def ids(o: Op) -> Ids:
    """The tasks that a tl.async_task around o names."""
    return frozenset(t for t in o.tasks if t.startswith(_USER))


def spelled(tasks: Ids) -> str:
    """As the source has it."""
    numbers = sorted(int(t.removeprefix(_USER)) for t in tasks)
    return f"tl.async_task([{', '.join(map(str, numbers))}])"


def _anchor(o: Op) -> bool:
    """Is it an op that a task can be asked for: a load, a dot, a write?"""
    return o.loads or o.kind is tile.dot or Effect.WRITE in o.kind.effect
