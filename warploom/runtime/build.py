"""From a lowered kernel to a cubin: the loop that asks ptxas, with one budget of builds and time.

What ptxas says of a build decides what is built next: the same function for another number of CTAs that share
a multiprocessor, where only registers tell it, or another schedule, with more registers left free.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from warploom.codegen.resources import Advisory, Resources
from warploom.errors import CompileError
from warploom.ir.core import Op
from warploom.runtime import nvrtc
from warploom.runtime.cache import DiskCache, compiler_package, digest
from warploom.runtime.plan import LaunchPlan
from warploom.runtime.request import Request
from warploom.schedule.model import Schedule
from warploom.target import Target
from warploom.target.model import Registers

if TYPE_CHECKING:
    from warploom.analysis.occupancy import OpenOccupancy
    from warploom.compile import Lowered

# Seconds of a processor after which no further schedule is tried for a kernel whose builds all spill.
NVRTC_SECONDS = 60.0
# Bytes of spill stores and loads beyond which a build is hopeless: four times the registers that a thread can
# have (255 of 4 bytes).  Other schedules and limits move some dozens of registers; a kernel of such spills is
# too large for its threads, and its compilation takes seconds.
HOPELESS_SPILLS = 4 * 255 * 4
# Bytes of spills that cost less than half of the programs that share a multiprocessor: a quarter of a
# thread's registers, once each.
LIGHT_SPILLS = 256
# NVRTC takes a second or more for a text of LONG statements.  Where such a one spills, no other schedule is
# tried unless there is a word of spills for every PER_SPILL statements: fewer are lost among so many (for one
# with 23 in 4000 four more builds, three times the compilation, found one with 21).  After two builds of 2 *
# LONG together there is no third: of one of 2244 statements it was the worst (928, 576 and 1280 bytes).
LONG = 2000
PER_SPILL = 150
# Of a thread's registers what tiles are estimated to take where the first build already holds less: of
# kernels that are less far over it some don't spill; those of twice LONG statements aren't asked about.
FAR_OVER = 1.4
# Threads of a multiprocessor beyond which registers serve better where loops only load and add: sums of
# columns with 48 a thread wait for each load in turn, with 80 they have all on their way
# (docs/log/2026-11-21-occupancy-and-registers.md).
ENOUGH_THREADS = 768
# Of the registers found, what more programs have to leave a thread: with 64 for 71 all loads are still issued
# first, and 1024 programs run in two waves, not three.  A program that has the multiprocessor to itself
# leaves it idle while its threads wait (unless loops only load): a second one may cost more, and some bytes.
# Fewer than a quarter more are not worth a build.
NEARLY_ALL = 7 / 8
WORTH_A_BUILD = 5 / 4
FOR_A_SECOND = 5 / 8
FEW_BYTES = 16
# Registers of a thread that one more program may cost where threads wait for each other: it hides waits.
FEWEST_REGISTERS = 40
# Threads of a multiprocessor that have to remain where registers are given to what a loop loads, and the
# registers of a thread beside that: with 112 a loop issues its 17 loads before it computes, with 80 in turns
# (64 programs of it took 122 us; Triton's, with 92, 100).  One that adds up 16 loads of 16 bytes into 64 sums
# does so one by one with 80, ten at once with 128.
FEWEST_THREADS = 512
BESIDE = 16


@dataclass(frozen=True)
class Built:
    """One attempt: a schedule, and what ptxas made of it."""

    request: Request
    lowered: Lowered
    source: str
    plan: LaunchPlan
    back: str  # key of the cache's entry
    cubin: bytes
    built: dict[str, Any]

    @property
    def resources(self) -> Resources:
        sizes = {"threads": self.plan.threads, "dynamic_shared": self.plan.shared_bytes}
        return resources_from(self.built, sizes)

    @property
    def badness(self) -> tuple[int, int]:
        """What to keep low: advisories, then spills."""
        return len(self.resources.advisories), self.resources.spill_bytes

    @property
    def resident(self) -> int:
        """Programs that share a multiprocessor."""
        return self.request.machine().resident(
            self.plan.threads, self.resources.registers, self.plan.shared_bytes
        )

    def is_good_enough(self) -> bool:
        """Are its spills so few that no other schedule is worth the time?  Where tasks have registers of
        their own a few more for one of them mend few spills, in a build that takes less than seconds."""
        advised, spilled = self.badness
        size = nvrtc.statements(self.source)
        moves = any(t.registers is not None for t in self.lowered.schedule.tasks)
        few = are_few(spilled, size) if not moves or size >= 2 * LONG else not spilled
        return not advised and few

    def is_better(self, other: Built) -> bool:
        """Is it to be kept rather than `other`?  Few spills are, with twice as many programs side by side."""
        advised, spilled = self.badness
        others, most = other.badness
        if advised == others and max(spilled, most) <= LIGHT_SPILLS:
            if self.resident >= 2 * other.resident:
                return True
            if other.resident >= 2 * self.resident:
                return False
        return self.badness < other.badness


@dataclass
class Search:
    """The builds made for one kernel, and whether there may be more.  Processor time, not the clock's: a busy
    machine gets the same kernel."""

    builds: int = 0
    seconds: float = 0.0
    busy: float = 0.0
    hopeless: int = 0  # bytes that the first build spills, where no schedule mends them
    attempts: int = 0  # headrooms tried, also those that change nothing
    statements: int = 0  # of the texts that were built
    stopped: str = ""
    known: set[str] = field(
        default_factory=set
    )  # keys of what was built: headrooms may change no code

    def add(self, found: Built) -> None:
        """Another build."""
        built = found.built
        self.known.add(found.back)
        self.statements += nvrtc.statements(found.source)
        if any(a["code"] == nvrtc.STOPPED for a in built["advisories"]):
            self.stopped = "a run of NVRTC was stopped"
        if not self.builds and built["spill_bytes"] > HOPELESS_SPILLS:
            self.hopeless = built["spill_bytes"]
        self.builds += built["builds"]
        self.seconds += built["compile_seconds"]
        self.busy += built["cpu_seconds"]

    def is_over(self) -> bool:
        """Whether the budget is spent: two schedules of a hopeless kernel, of a long one the first,
        NVRTC_SECONDS of any, two schedules of 2 * LONG statements together."""
        long = self.statements >= 2 * LONG
        if self.hopeless and (long or len(self.known) > 1 or self.attempts > 3):
            self.stopped = f"the first build spills {self.hopeless:,} bytes, which none would mend"
        elif self.busy > NVRTC_SECONDS:
            self.stopped = f"NVRTC was at work for {self.busy:.0f} s"
        elif long and len(self.known) > 1:
            self.stopped = f"{self.statements:,} statements were compiled"
        return bool(self.stopped)

    def summary(self) -> dict[str, Any]:
        """What `Resources` says of it."""
        return {
            "builds": self.builds,
            "compile_seconds": self.seconds,
            "stopped": self.stopped,
        }


def are_few(spills: int, size: int) -> bool:
    """Are so many bytes of spills lost in a text of so many statements, which takes NVRTC long?"""
    return not spills or (size >= LONG and spills // 4 * PER_SPILL <= size)


def best_build(request: Request, disk: DiskCache) -> tuple[Built, Search]:
    """The first attempt that ptxas has nothing to say against, else the one with the least.

    A hopeless first build is followed by one that holds less, or that with the most headroom, if there is
    budget left.  Raises CompileError where none compiles."""
    refusal: CompileError | None = None
    best: Built | None = None
    first: Lowered | None = None
    tried: list[Schedule] = []

    def is_new(schedule: Schedule) -> bool:
        return _applied(schedule) not in tried

    search = Search()
    headrooms = [request.headroom, *request.headrooms]
    while headrooms and (best is None or not search.is_over()):
        few = headrooms[0] is not None and headrooms[0].few_registers
        headroom = headrooms.pop(-1 if search.hopeless and not few else 0)
        if first and headroom and headroom.gives_nothing(first.schedule.tasks):
            continue
        search.attempts += 1
        try:
            attempt = request.with_headroom(headroom)
            lowered = attempt.lower_again(first, is_new) if first else attempt.lower()
            if lowered is None:
                continue
            if first is None and headrooms and _would_spill(attempt, lowered):
                first = lowered  # it would spill: the next holds less
                tried.append(_applied(lowered.schedule))
                continue
            first = first or lowered
            tried.append(_applied(lowered.schedule))
            text = _text(attempt, lowered)
            if text.back in search.known:
                continue
            found = build(attempt, lowered, disk, text)
        except CompileError as e:
            if not tried or (best is None and e.code != "ptxas-limit"):
                raise
            if e.code == "nvrtc-stopped":
                search.stopped = "a run of NVRTC was stopped"
                break
            refusal = refusal or e
            continue
        search.add(found)
        if best is None or found.is_better(best):
            best = found
        if found.is_good_enough():
            break
    if best is None and refusal:
        raise refusal
    if best is None:  # nothing holds less than the first schedule, which it was to
        assert first is not None
        best = build(request, first, disk)
        search.add(best)
    return best, search


def _would_spill(request: Request, lowered: Lowered) -> bool:
    """Do the tiles of a task with dots take so many more registers than a thread has that ptxas need not be
    asked?  Of a text for which it takes seconds: any more."""
    from warploom.ir.ops import task, tile
    from warploom.passes.placed.register_pressure import Pressure, limit_of

    regions = (r for o in task.phases(lowered.placed) for r in o.regions)
    held = max((Pressure(r).peak(r) for r in regions if r.by_kind.get(tile.dot)), default=0)
    over = held / limit_of(request.machine())
    if 1 < over <= FAR_OVER:
        return nvrtc.statements(_text(request, lowered).source) >= 2 * LONG
    return over > 1


def _held(lowered: Lowered) -> int:
    """The registers of a thread that tiles are estimated to take."""
    from warploom.ir.ops import task
    from warploom.passes.placed.register_pressure import Pressure

    regions = (r for o in task.phases(lowered.placed) for r in o.regions)
    return max((Pressure(r).peak(r) for r in regions), default=0)


def _held_by_loops(lowered: Lowered) -> int:
    """The registers of a thread for what a loop loads in a step, and for the tiles that it carries on."""
    from warploom.ir.ops import control
    from warploom.passes.placed.register_pressure import part_of

    def held(loop: Op) -> int:
        body = loop.regions[0]
        loaded = [v for o in body.ops if o.loads for v in o.results]
        return sum(map(part_of, (*body.params, *loaded)))

    return max(map(held, lowered.placed.body.by_kind.get(control.for_, ())), default=0)


def _applied(schedule: Schedule) -> Schedule:
    """A schedule without what no pass reads."""
    tasks = tuple(replace(t, needed=None) for t in schedule.tasks)
    return replace(schedule, tasks=tasks, reasons=())


@dataclass(frozen=True)
class _Text:
    """What NVRTC is to compile.  back: the cache's key of the result.  limit: registers, from maxnreg.
    asked: the occupancy that ptxas decides."""

    source: str
    plan: LaunchPlan
    limit: int | None
    asked: OpenOccupancy | None
    back: str


def _text(request: Request, lowered: Lowered) -> _Text:
    from warploom.analysis.occupancy import open_occupancy
    from warploom.codegen.emit import emit
    from warploom.runtime.signature import plan_of, short_of, split_k_of

    placed, file = lowered.placed, request.machine().registers
    asked = open_occupancy(placed, request.machine()) if request.knobs.maxnreg is None else None
    if asked is not None and (asked.steps or asked.dots):
        asked = replace(asked, held=_held(lowered))
    elif asked is not None and asked.streams:
        asked = replace(asked, held=_held_by_loops(lowered))
    if asked is not None and asked.dots and asked.held > file.per_thread - BESIDE:
        # It will spill: it should not to save registers as well.
        attrs = {**placed.attrs, "ctas_per_sm": _of_most_registers(asked, file)}
        placed, asked = placed.with_(attrs=attrs), None
    emitted = emit(placed, request.machine())
    by_waves, by_axes = lowered.schedule.by_waves, lowered.schedule.by_axes
    rings = bool(lowered.schedule.channels)
    pdl = request.knobs.pdl and request.machine().grid.dependent
    short, split_k = short_of(lowered), split_k_of(lowered)
    plan = plan_of(emitted, lowered.placed, pdl, short, by_waves, by_axes, split_k, rings)
    limit = _limit(request, plan, lowered.schedule.ctas_per_sm)
    flags = _flags(request, limit)
    back = digest(emitted.source, request.target, compiler_package(), flags, asked)
    return _Text(emitted.source, plan, limit, asked, back)


def build(request: Request, lowered: Lowered, disk: DiskCache, text: _Text | None = None) -> Built:
    """Emitted (unless `text` is that) and compiled, or from the cache's back part."""
    text = text or _text(request, lowered)
    found = load_back(disk, text.back)
    if found is None:
        try:
            source, build = _least_spills(request, lowered, text)
        except CompileError as refusal:
            refusal.loc = lowered.source.loc
            raise
        except nvrtc.RefusedTextError as refused:
            from warploom.runtime.user_assembly import told_to_user  # with what compiles

            raise told_to_user(refused, lowered.placed.body) from None
        found = source, build.cubin, _resources_to(build)
        entry = {
            "cuda": source.encode(),
            "cubin": build.cubin,
            "resources": json.dumps(found[2]).encode(),
        }
        disk.store("back", text.back, entry)
    source, cubin, built = found
    return Built(request, lowered, source, text.plan, text.back, cubin, built)


def _least_spills(request: Request, lowered: Lowered, text: _Text) -> tuple[str, nvrtc.Build]:
    """(source, build) at the occupancy at which ptxas spills least, of those worth asking for."""
    from warploom.codegen.emit import emit

    def asked(source: str) -> nvrtc.Build:
        return compile_text(source, text.plan, request, text.limit, want_ptx=False)

    first = asked(text.source)
    if text.asked is None:
        return text.source, first
    sources: dict[int | None, str] = {None: text.source}

    def again(ctas: int) -> nvrtc.Build:
        attrs = {**lowered.placed.attrs, "ctas_per_sm": ctas}
        sources[ctas] = emit(lowered.placed.with_(attrs=attrs), request.machine()).source
        return asked(sources[ctas])

    ctas, best = best_occupancy(first, text.asked, request.machine(), again)
    return sources[ctas], best


def best_occupancy(
    first: nvrtc.Build, asked: OpenOccupancy, target: Target, again: Callable[[int], nvrtc.Build]
) -> tuple[int | None, nvrtc.Build]:
    """(CTAs of a multiprocessor that ptxas is told, build).  first: what it made without being told; None
    where that spills least.  again: a build for a number of CTAs.

    Left to itself ptxas spills, or waits for each load in turn, to save registers that no further CTA needs.
    Where the first build is hopeless, one more is made, that with the most registers; none where it has all
    that a thread can have."""
    hopeless = first.spill_bytes > HOPELESS_SPILLS
    if first.is_stopped or (hopeless and first.registers == target.registers.per_thread):
        return None, first
    built: dict[int | None, nvrtc.Build] = {}
    wanted = _worth_asking(first, asked, target)
    for n in wanted[-1:] if hopeless else wanted:
        built[n] = again(n)
        if not built[n].spill_bytes:
            break
    built[None] = first
    ctas = min(built, key=lambda n: built[n].spill_bytes)
    settled = not ctas or asked.steps or asked.dots or built[ctas].spill_bytes
    if not settled and (more := _cheap_more(built[ctas].registers, asked, target)):
        found = built[more] if more in built else built.setdefault(more, again(more))
        if found.spill_bytes <= (FEW_BYTES if more == 2 and not asked.streams else 0):
            ctas = more
    best = replace(
        built[ctas],
        seconds=sum(b.seconds for b in built.values()),
        cpu_seconds=sum(b.cpu_seconds for b in built.values()),
        builds=len(built),
    )
    return ctas, best


def _of_most_registers(asked: OpenOccupancy, file: Registers) -> int:
    """The CTAs of a multiprocessor at which a thread has all registers that it can have."""
    return max(1, file.per_sm // (asked.threads * (file.per_thread + 1)))


def _cheap_more(registers: int, asked: OpenOccupancy, target: Target) -> int | None:
    """More CTAs than these registers allow, where that costs few of them, or where they allow but one."""
    file, threads = target.registers, asked.threads
    most = target.grid.threads_per_sm // threads
    units = -(-registers // file.unit)
    fit = min(file.per_sm // (units * file.unit * threads), most)
    left, alone = (units - 1) * file.unit, fit == 1 and not asked.streams
    if alone:
        left = min(left, file.per_sm // (2 * threads) // file.unit * file.unit)
    if not left or left < (FOR_A_SECOND if alone else NEARLY_ALL) * registers:
        return None
    more = min(file.per_sm // (left * threads), most)
    return more if more >= WORTH_A_BUILD * fit else None


def _worth_asking(build: nvrtc.Build, asked: OpenOccupancy, target: Target) -> list[int]:
    """CTAs to share a multiprocessor, by preference: as many as the registers found allow, but of loops that
    only load no more than make ENOUGH_THREADS (and more that are cheap: `_cheap_more`); else first one more,
    and half as many at last where ptxas spilled to save registers. Loops that load get the registers that
    tiles are estimated to take, while FEWEST_THREADS remain: else what could be on its way at once comes in
    turns. None where it found the registers for as many threads as there can be. Of kernels of dots ptxas is
    asked only where it spills without need: at times it takes a few registers of those that it may, and keeps
    whole accumulators in memory."""
    threads, file = asked.threads, target.registers
    if asked.dots:
        spared = build.spill_bytes and build.registers < file.per_thread - file.unit
        return [_of_most_registers(asked, file)] if spared else []
    each = max(1, -(-build.registers // file.unit)) * file.unit * threads
    most = target.grid.threads_per_sm // threads
    fit = min(file.per_sm // each, most)
    if fit == most and not build.spill_bytes:
        return []
    least = file.unit * -(-(asked.held + BESIDE) // file.unit)
    holding = max(file.per_sm // (least * threads), -(-FEWEST_THREADS // threads))
    if asked.streams:
        return [min(fit, holding, max(1, -(-ENOUGH_THREADS // threads)))]
    more = file.per_sm // ((fit + 1) * threads) // file.unit * file.unit
    found = [fit + 1, fit] if fit < most and more >= FEWEST_REGISTERS else [fit]
    if asked.held:
        found = [n for n in found if n <= holding] or [min(fit, holding)]
    if build.spill_bytes and build.registers < file.per_thread and fit > 1:
        found.append(fit // 2)
    return found


def ptx_of(source: str, plan: LaunchPlan, request: Request, ctas_per_sm: int) -> str:
    """The PTX of what was built from this source."""
    limit = _limit(request, plan, ctas_per_sm)
    return compile_text(source, plan, request, limit, want_ptx=True).ptx


def _limit(request: Request, plan: LaunchPlan, ctas_per_sm: int) -> int | None:
    """Registers of a thread at entry where maxnreg limits them: more than there are don't launch."""
    if request.knobs.maxnreg is None:
        return None
    return request.machine().entry_registers(plan.threads * ctas_per_sm)


def _flags(request: Request, limit: int | None) -> tuple[str, ...]:
    """NVRTC options of a request, with a limit to registers or none.  A kernel with launch bounds ignores
    maxrregcount unless ptxas is told that options override directives (`ptxas --help`,
    override-directive-values)."""
    flags = () if request.knobs.enable_fp_fusion else ("--fmad=false",)
    if limit is None:
        return flags
    return *flags, f"--maxrregcount={limit}", "--ptxas-options=--override-directive-values"


def compile_text(
    source: str, plan: LaunchPlan, request: Request, limit: int | None, want_ptx: bool
) -> nvrtc.Build:
    return nvrtc.compile_cuda(
        source,
        name=plan.name,
        target=request.machine(),
        options=_flags(request, limit),
        want_ptx=want_ptx,
    )


_BUILT = ("registers", "spill_bytes", "stack_bytes", "static_shared", "barriers")


def _resources_to(build: nvrtc.Build) -> dict[str, Any]:
    return {
        **{name: getattr(build, name) for name in _BUILT},
        "advisories": [asdict(a) for a in build.advisories],
        "compile_seconds": build.seconds,
        "cpu_seconds": build.cpu_seconds,
        "compiler": build.compiler,
        "builds": build.builds,
    }


def resources_from(built: Mapping[str, Any], head: Mapping[str, Any]) -> Resources:
    """What a build took, and of the kernel that it became: its launch, and the search for it."""
    return Resources(
        threads=head["threads"],
        dynamic_shared=head["dynamic_shared"],
        advisories=tuple(Advisory(**a) for a in built["advisories"]),
        compiler=built["compiler"],
        **{name: built[name] for name in _BUILT},
        **{name: head.get(name, built.get(name, "")) for name in Search().summary()},
    )


def load_back(disk: DiskCache, key: str) -> tuple[str, bytes, dict[str, Any]] | None:
    """(source, cubin, resources) of a build in the cache; None where there is none of this shape."""
    back = disk.load("back", key)
    if back is None:
        return None
    try:
        return back["cuda"].decode(), back["cubin"], json.loads(back["resources"])
    except (KeyError, ValueError):
        return None


def resources_fit(resources: Resources, target: Target) -> Sequence[str]:
    """Why a kernel can't launch on the target; empty where it can."""
    found = []
    shared = resources.static_shared + resources.dynamic_shared
    if shared > target.shared_bytes:
        found.append(f"{shared} bytes of shared memory, {target.shared_bytes} at most")
    if resources.threads * resources.registers > target.registers.per_sm:
        found.append(
            f"{resources.threads} threads of {resources.registers} registers, "
            f"{target.registers.per_sm} at most"
        )
    return found
