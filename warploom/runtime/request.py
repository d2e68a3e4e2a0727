"""What a kernel is compiled for, and what the disk cache knows of such a request."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from warploom.errors import CompileError, SharedMemoryError
from warploom.frontend.reads import Reads
from warploom.frontend.source import parse_function
from warploom.ir.core import Func
from warploom.runtime.args import Spec
from warploom.runtime.cache import DiskCache, compiler_package, digest, own_sources
from warploom.schedule.model import Knobs, Launch, Schedule
from warploom.schedule.resources import Headroom
from warploom.target import DEFAULT, Target, named

if TYPE_CHECKING:
    from warploom.compile import Lowered

# In this order: a producer needs little more; consumers that need much make the chooser split otherwise.  A
# headroom that changes nothing costs no compilation.
HEADROOMS = (
    Headroom(few_registers=True),
    Headroom(producer=32),
    Headroom(transpose=8),
    Headroom(producer=48),
    Headroom(consumer=16),
    Headroom(consumer=40),
    Headroom(producer=32, consumer=72),
    Headroom(consumer=112),
)


RECORDS_KEPT = 32  # of one request on disk


@dataclass(frozen=True)
class Request:
    """What a kernel is compiled for.

    specs: one for each run-time parameter, in order.  constexprs: (name, value) of the others.
    structured: False where a launch breaks what TMA or an early load would assume.
    overlap: True where arguments overlap in memory, so that every access keeps the program's order.
    in_order: True where stores may meet that are taken to keep apart, so that all keep it.
    one_array: pairs of parameters, by their numbers, that are one array.
    foreign: True where others launch the kernel: its parameters are its arguments in order, used or not, and
    no launch needs another variant.
    called: the name that jit(repr=) gives it, "" for the function's own.
    headroom: registers to leave beyond the estimate.  launch: what it knows of the launches.
    """

    fn: Callable[..., Any]
    specs: tuple[Spec, ...]
    constexprs: tuple[tuple[str, Any], ...]
    knobs: Knobs
    target: str = DEFAULT.name
    structured: bool = True
    overlap: bool = False
    in_order: bool = False
    schedule: Schedule | None = None
    headroom: Headroom = field(default_factory=Headroom)
    launch: Launch = field(default_factory=Launch)
    called: str = ""
    one_array: tuple[tuple[int, int], ...] = ()
    foreign: bool = False

    @property
    def name(self) -> str:
        """What the kernel is called: by jit(repr=), else as its function."""
        return self.called or self.fn.__name__

    @property
    def roots(self) -> tuple[Any, ...]:
        """What a translation starts from, as `Reads` takes it."""
        return (self.fn, *(value for _, value in self.constexprs))

    def reader(self) -> Reads:
        """A record of what a translation reads, with nothing in it yet."""
        return Reads(*self.roots)

    def key_with(self, reads: Reads) -> str:
        """The front key of the disk cache: the request, and all that its translation read."""
        return digest(self.prefix, reads.text)

    def recorded(self, disk: DiskCache) -> Iterator[Reads]:
        """What earlier translations of this request read and a translation now would read, too."""
        for text in _records(disk, self.prefix):
            if found := Reads.again(self.roots, text):
                yield found

    def record(self, disk: DiskCache, reads: Reads) -> None:
        """Lets `recorded` find this.  Of two processes that add at once one may be lost: its kernel is
        compiled again."""
        others = [text for text in _records(disk, self.prefix) if text != reads.text]
        kept = json.dumps([reads.text, *others][:RECORDS_KEPT])
        disk.store("reads", self.prefix, {"records": kept.encode()})

    @cached_property
    def prefix(self) -> str:
        """What is known of the front key before anything is translated."""
        return digest(
            own_sources(),
            compiler_package(),
            self.name,
            parse_function(self.fn).digest,
            tuple(map(str, self.specs)),
            tuple(name for name, _ in self.constexprs),
            self.reader().start,
            self.knobs,
            self.target,
            self.structured,
            self.overlap,
            self.in_order,
            self.one_array,
            self.foreign,
            None if self.schedule is None else self.schedule.to_json(),
            self.headroom,
            self.launch,
        )

    @property
    def headrooms(self) -> tuple[Headroom, ...]:
        """What to try where ptxas spills with the first schedule chosen; nothing where none is chosen, where
        the user set the limit, or where a debug build's traps serialise wgmmas anyway."""
        knobs = self.knobs
        given = self.schedule is not None or knobs.maxnreg is not None or knobs.debug is True
        return () if given else HEADROOMS

    def with_headroom(self, headroom: Headroom) -> Request:
        """The same with other headroom; itself, and what it has worked out, where that is the same."""
        return self if headroom == self.headroom else replace(self, headroom=headroom)

    def machine(self) -> Target:
        """What the kernel is made for, with no more registers at entry than are asked for.  Raises
        CompileError where the target is unknown, or lacks the matrix unit asked for."""
        target, unit = named(self.target), self.knobs.matrix_unit
        units = [u.instruction for u in target.matrix_units if not u.is_scalar]
        if unit not in (None, *units):
            have = ", ".join(units)
            what = f"matrix_unit={unit!r}: {target.name} multiplies by {have}"
            raise CompileError("matrix-unit", what, help="leave matrix_unit out")
        if not self.knobs.tma:
            target = target.without_boxes()
        return target.limited(self.knobs.maxnreg).multiplying_by(unit)

    def translate(self, reads: Reads | None = None) -> Func:
        """The kernel at TILE, as the frontend makes it.  reads: a `reader()` that records what it reads."""
        from warploom.frontend.targeted import KNOBS, TARGET
        from warploom.frontend.translate import translate
        from warploom.runtime.signature import facts_of, types_of

        types, facts = types_of(self.specs), facts_of(self.specs)
        before = TARGET.set(self.target), KNOBS.set(self.knobs)
        try:
            func = translate(self.fn, types, dict(self.constexprs), facts, reads)
            return func.with_(name=self.name)
        finally:
            TARGET.reset(before[0])
            KNOBS.reset(before[1])

    def lower(self) -> Lowered:
        """The kernel on its whole way down to PLACED."""
        if self.schedule is not None:
            return self._lower(self.headroom)
        found = _with_room(self._lower, self.headroom)
        assert found is not None
        return found

    def lower_again(self, first: Lowered, is_new: Callable[[Schedule], bool]) -> Lowered | None:
        """`first`, lowered with other headroom; None where the schedule is none that `is_new`."""
        from warploom.compile import lower_again

        def again(headroom: Headroom) -> Lowered | None:
            return lower_again(first, self.knobs, self.machine(), headroom, self.launch, is_new)

        found = _with_room(again, self.headroom)
        return replace(found, reads=first.reads) if found else None

    def _lower(self, headroom: Headroom) -> Lowered:
        from warploom.compile import lower

        reads = self.reader()
        lowered = lower(
            _united(self.translate(reads), self.one_array),
            self.knobs,
            self.machine(),
            schedule=self.schedule,
            structured=self.structured,
            overlap=self.overlap,
            foreign=self.foreign,
            in_order=self.in_order,
            headroom=headroom,
            launch=self.launch,
        )
        return replace(lowered, reads=reads)


def _with_room(lower: Callable[[Headroom], Lowered | None], headroom: Headroom) -> Lowered | None:
    """Lowered so that the scratch that layouts need fits in shared memory: with shallower rings, or, if these
    cost more than slots, without the exchanges that fill sectors."""
    try:
        return lower(headroom)
    except SharedMemoryError as e:
        if not e.unplanned:
            raise
        first, found = e, None
    refusal: CompileError | None = None
    try:
        found = lower(replace(headroom, shared=first.unplanned))
        if found is None or not _gives_up(found.schedule, first.schedule):
            return found
    except CompileError as e:
        refusal = e
    try:
        return lower(replace(headroom, partial_sectors=True))
    except SharedMemoryError:
        if refusal is not None:
            raise refusal from None
        return found


def _gives_up(now: Schedule, before: Schedule) -> bool:
    """Does a schedule lose more than slots: specialization, something that was asked for, or the second slot
    of a ring?"""
    depths = {c.name: c.depth for c in before.channels}
    kept = {(r.subject, r.decision) for r in before.reasons if r.warn}
    unmet = {(r.subject, r.decision) for r in now.reasons if r.warn} - kept
    single = any(c.depth < min(2, depths.get(c.name, 1)) for c in now.channels)
    return bool(unmet) or single or now.specialized != before.specialized


def _united(func: Func, pairs: tuple[tuple[int, int], ...]) -> Func:
    """The function with one parameter instead of those that pairs connect."""
    if not pairs:
        return func
    from warploom.ir.rewrite import substitute

    first = list(range(len(func.params)))
    for pair in pairs:
        least, most = sorted(first[i] for i in pair)
        first = [least if i == most else i for i in first]
    env = {func.params[i]: func.params[n] for i, n in enumerate(first) if i != n}
    return func.with_(body=substitute(func.body, env), attrs={**func.attrs, "one_array": pairs})


def _records(disk: DiskCache, prefix: str) -> list[str]:
    """What translations of a request read, as texts, the newest first."""
    entry = disk.load("reads", prefix)
    try:
        found = [] if entry is None else json.loads(entry["records"])
    except (KeyError, ValueError):
        return []
    return [text for text in found if isinstance(text, str)] if isinstance(found, list) else []
