"""From a request (kernel, specialization, knobs) to a compiled kernel, through the disk cache.

The compiler's parts are imported where they run, so that a kernel from the cache needs none of them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, overload

from warploom import options
from warploom.codegen.resources import Advisory, Resources
from warploom.errors import (
    CompileError,
    LaunchError,
    SharedMemoryError,
    format_message,
    whole_number,
)
from warploom.frontend.reads import Reads
from warploom.frontend.source import parse_function
from warploom.ir.core import walk
from warploom.runtime.args import Spec
from warploom.runtime.cache import DiskCache, compiler_package, default_cache, digest, own_sources
from warploom.runtime.launch import LoadedKernel, driver, grid_sizes
from warploom.runtime.mistakes import user_facing, warn
from warploom.runtime.nvrtc import HOPELESS_SPILLS
from warploom.runtime.plan import Binder, LaunchPlan, make_binder, make_short_test
from warploom.runtime.values import fields_for
from warploom.schedule.model import Knobs, Launch, Schedule
from warploom.schedule.resources import Headroom
from warploom.target import DEFAULT, Target, named

if TYPE_CHECKING:
    from warploom.check import CheckReport
    from warploom.compile import Lowered
    from warploom.ir.core import Func
    from warploom.runtime.nvrtc import Build
    from warploom.sim.algebra import AlgebraReport
    from warploom.sim.report import SimReport
    from warploom.timeline.compare import Comparison
    from warploom.timeline.model import Timeline


# In this order: a producer needs little more; consumers that need much make the chooser split otherwise.  A
# headroom that changes nothing costs no compilation.
HEADROOMS = (
    Headroom(producer=32),
    Headroom(transposer=8),
    Headroom(producer=48),
    Headroom(consumer=16),
    Headroom(consumer=40),
    Headroom(producer=32, consumer=72),
    Headroom(consumer=112),
)


# Seconds of a processor after which no further schedule is tried for a kernel whose builds all spill.
NVRTC_SECONDS = 60.0


@dataclass(frozen=True)
class Request:
    """What a kernel is compiled for.

    specs: one for each run-time parameter, in order.  constexprs: (name, value) of the others.
    structured: False where a launch breaks what TMA or an early load would assume.
    overlap: True where arguments overlap in memory, so that every access keeps the program's order.
    headroom: registers to leave beyond the estimate.  launch: what it knows of the launches.
    """

    fn: Callable[..., Any]
    specs: tuple[Spec, ...]
    constexprs: tuple[tuple[str, Any], ...]
    knobs: Knobs
    target: str = DEFAULT.name
    structured: bool = True
    overlap: bool = False
    schedule: Schedule | None = None
    headroom: Headroom = field(default_factory=Headroom)
    launch: Launch = field(default_factory=Launch)

    @property
    def name(self) -> str:
        return self.fn.__name__

    def reader(self) -> Reads:
        """A record of what a translation reads, with nothing in it yet."""
        return Reads(self.fn, *(value for _, value in self.constexprs))

    def key_with(self, reads: Reads) -> str:
        """The front key of the disk cache: the request, and all that its translation read."""
        return digest(self.prefix, reads.text)

    def recorded(self, disk: DiskCache) -> Iterator[Reads]:
        """What earlier translations of this request read and a translation now would read, too."""
        for text in _records(disk, self.prefix):
            if found := Reads.again(self.reader().roots, text):
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
            None if self.schedule is None else self.schedule.to_json(),
            self.headroom,
            self.launch,
        )

    @property
    def headrooms(self) -> tuple[Headroom, ...]:
        """What to try where ptxas spills with the first schedule chosen; nothing where none is chosen, where
        the user set the limit, or where a debug build's traps serialise wgmmas anyway."""
        knobs = self.knobs
        given = self.schedule is not None or knobs.maxnreg is not None or knobs.debug
        return () if given else HEADROOMS

    def with_headroom(self, headroom: Headroom) -> Request:
        """The same with other headroom; itself, and what it has worked out, where that is the same."""
        return self if headroom == self.headroom else replace(self, headroom=headroom)

    def machine(self) -> Target:
        """What the kernel is made for, with no more registers at entry than are asked for.  Raises
        CompileError where the target is unknown."""
        return named(self.target).limited(self.knobs.maxnreg)

    def translate(self, reads: Reads | None = None) -> Func:
        """The kernel at TILE, as the frontend makes it.  reads: a `reader()` that records what it reads."""
        from warploom.frontend.translate import translate
        from warploom.runtime.signature import facts_of, types_of

        types, facts = types_of(self.specs), facts_of(self.specs)
        return translate(self.fn, types, dict(self.constexprs), facts, reads)

    def lower(self) -> Lowered:
        """The kernel on its whole way down to PLACED; with shallower rings where layouts need the memory."""
        try:
            return self._lower(self.headroom)
        except SharedMemoryError as e:
            if self.schedule is not None or not e.unplanned:
                raise
            return self._lower(replace(self.headroom, shared=e.unplanned))

    def _lower(self, headroom: Headroom) -> Lowered:
        from warploom.compile import lower

        reads = self.reader()
        lowered = lower(
            self.translate(reads),
            self.knobs,
            self.machine(),
            schedule=self.schedule,
            structured=self.structured,
            overlap=self.overlap,
            headroom=headroom,
            launch=self.launch,
        )
        return replace(lowered, reads=reads)


RECORDS_KEPT = 32  # of one request on disk


def _records(disk: DiskCache, prefix: str) -> list[str]:
    """What translations of a request read, as texts, the newest first."""
    entry = disk.load("reads", prefix)
    try:
        found = [] if entry is None else json.loads(entry["records"])
    except (KeyError, ValueError):
        return []
    return [text for text in found if isinstance(text, str)] if isinstance(found, list) else []


class CompiledKernel:
    """One compiled variant of a kernel.  Get it by `kernel.compile(…)` or `kernel.compile_for(…)`.

    cuda: the emitted source.  cubin, plan: what a launch uses.  warnings: what was not done as asked.
    reads: what its translation read outside of the kernel; while that is as it was, the kernel is current.
    What the cache doesn't hold (IR, schedule, PTX) is made again when it is first looked at.
    """

    def __init__(
        self,
        request: Request,
        cuda: str,
        cubin: bytes,
        plan: LaunchPlan,
        resources: Resources,
        warnings: tuple[str, ...] = (),
        lowered: Lowered | None = None,
        reads: Reads | None = None,
    ) -> None:
        self.request = request
        self.cuda = cuda
        self.cubin = cubin
        self.plan = plan
        self.resources = resources
        self.warnings = warnings
        self.reads = Reads() if reads is None else reads
        self._lowered = lowered
        self._loaded: LoadedKernel | None = None

    def __repr__(self) -> str:
        signature = ", ".join(self.signature)
        return f"<CompiledKernel {self.name}({signature}) for {self.request.target}>"

    @property
    def name(self) -> str:
        return self.request.name

    @property
    def signature(self) -> tuple[str, ...]:
        """As `kernel.compile(signature=…)` takes it."""
        return tuple(map(str, self.request.specs))

    @property
    def constexprs(self) -> dict[str, Any]:
        return dict(self.request.constexprs)

    @property
    def key(self) -> str:
        """The kernel's identity, in any process: its request and what its translation read."""
        return self.request.with_headroom(Headroom()).key_with(self.reads)

    @property
    def from_cache(self) -> bool:
        """Whether no pass has run for it in this process."""
        return self._lowered is None

    @property
    def lowered(self) -> Lowered:
        """The kernel after every pass.  Raises CompileError `outdated` where the kernel is from the cache
        and a translation now would read something else."""
        if self._lowered is None:
            lowered = self.request.lower()
            if lowered.reads is not None and lowered.reads.text != self.reads.text:
                raise CompileError(
                    "outdated",
                    f"what {self.name} reads has changed since it was compiled, so that its IR can't be made "
                    "again",
                    lowered.source.loc,
                    help="compile it again",
                )
            self._lowered = lowered
        return self._lowered

    @property
    def ir(self) -> dict[str, str]:
        """Level name (`TILE` … `PLACED`) to IR text."""
        return self.lowered.levels

    @property
    def schedule(self) -> Schedule:
        return self.lowered.schedule

    @property
    def placed(self) -> Func:
        """The function that the CUDA text was emitted from."""
        return self.lowered.placed

    @cached_property
    def ptx(self) -> str:
        limit = _limit(self.request, self.plan, self.schedule.ctas_per_sm)
        return _compile_text(self.cuda, self.plan, self.request, limit, want_ptx=True).ptx

    @cached_property
    def binder(self) -> Binder:
        """Arguments to kernel parameters, as the launch plan says."""
        return make_binder(self.plan)

    @cached_property
    def is_short(self) -> Callable[[Sequence[Any]], bool]:
        """Whether a launch with these arguments takes the variant `for_short`."""
        return make_short_test(self.plan)

    def loaded(self) -> LoadedKernel:
        """The kernel in the process's driver.  Raises LaunchError where there is no GPU."""
        if self._loaded is None:
            self._loaded = LoadedKernel(driver(), self.cubin, self.plan, self.binder)
        return self._loaded

    def explain(self) -> str:
        """The kernel's source, line by line with what became of it, and why."""
        from warploom.explain import explain

        lowered = self.lowered
        parts = (lowered.source, lowered.schedule, lowered.placed, self.request.machine())
        return str(explain(*parts, resources=self.resources, reads=self.reads.told()))

    @user_facing
    def check(self, *args: Any, grid: Any = None, **options: Any) -> CheckReport:
        """Deadlocks and races of the PLACED program; the report says what was proved, and for which launches.

        args, grid: a launch, as for `simulate`: what is not known of global memory for all launches is
        decided for this one, with what its host arrays hold.  options: as of `warploom.check.check`.

            kernel.compile_for(x, y, n, grid=(n // 128,)).check(x, y, n, grid=(n // 128,))"""
        from warploom.check import check
        from warploom.runtime.checked import launch_of_values

        if args:
            options["launch"] = launch_of_values(self, args, grid)
        return check(self.placed, **options)

    @overload
    def simulate(
        self,
        *args: Any,
        grid: Any,
        seed: int | None = None,
        exact: bool = False,
        algebra: Literal[False] = False,
        **options: Any,
    ) -> SimReport: ...
    @overload
    def simulate(
        self,
        *args: Any,
        grid: Any,
        seed: int | None = None,
        algebra: Literal[True],
        **options: Any,
    ) -> AlgebraReport: ...
    @user_facing
    def simulate(
        self,
        *args: Any,
        grid: Any,
        seed: int | None = None,
        exact: bool = False,
        algebra: bool = False,
        **options: Any,
    ) -> Any:
        """Run the PLACED program on the CPU with the hardware's asynchrony; arrays are written in place.

        args: the run-time arguments in order, NumPy arrays or CPU tensors for pointers.  LaunchError
        `variant-argument`: a value contradicts what this variant was compiled for.
        exact: dots add as the GPU's tensor cores do, bit for bit; else in float32, in any order.
        algebra: run the kernel as written and the PLACED program in a finite field instead, where the order
        of sums changes nothing and any wrong operand does, and report whether they agree; arrays stay as
        they are (docs/simulator.md).
        """
        from warploom.sim.modes import simulate_in_mode

        values = [f.on_host for f in fields_for(self.placed, self.request.specs, args)]
        return simulate_in_mode(
            self.lowered.written,
            self.placed,
            values,
            grid_sizes(grid),
            seed=seed,
            exact=exact,
            algebra=algebra,
            **options,
        )

    @overload
    def timeline(
        self, *args: Any, grid: Any, measured: Literal[False] = False, **options: Any
    ) -> Timeline: ...
    @overload
    def timeline(
        self, *args: Any, grid: Any, measured: Literal[True], program: int = 0
    ) -> Comparison: ...
    @user_facing
    def timeline(self, *args: Any, grid: Any, measured: bool = False, **options: Any) -> Any:
        """The predicted timeline of one program of a launch, which is simulated with these arguments.

        options: `program`, of the grid (default: 0); and the simulator's: `order="timed"`, by the cost
        table's clock, unless said otherwise.
        measured: launch the kernel with clock stamps on the GPU instead (runtime/measure.py), and give both
        timelines with what each barrier cost.  The arguments may lie on the host or the GPU; the kernel
        runs on them many times."""
        if measured:
            from warploom.runtime.measure import measure

            return measure(self, args, grid, **options)
        from warploom.timeline import from_report

        sizes = grid_sizes(grid)
        if whole_number("program", options.get("program", 0), 0) >= math.prod(sizes):
            text = f"the grid {sizes} has no program {options['program']}"
            raise LaunchError("program", text, help=f"one from 0 to {math.prod(sizes) - 1}")
        program = options.pop("program", 0)
        report = self.simulate(*args, grid=grid, **{"order": "timed", **options})
        kind = "specialized" if self.schedule.specialized else "uniform"
        return from_report(report, f"{self.name}, {kind}", program)

    @user_facing
    def eject(self) -> str:
        """The kernel as the source of an explicit `wl.Script` that its user owns and edits (docs/eject.md).

        It compiles, for its own SIGNATURE, to the same program.  Raises CompileError `eject` where the
        kernel has something that scripts can't say yet."""
        from warploom.eject import eject
        from warploom.runtime.signature import signature_of

        return eject(self.lowered.bare, self.constexprs, signature_of(self.lowered.bare))


# ---- compiling


def compile_request(request: Request, cache: DiskCache | None = None) -> CompiledKernel:
    """The compiled kernel, from the cache where it is there.  Warns where a request was not met.

    Raises CompileError for the user's mistakes.
    """
    disk = default_cache() if cache is None else cache
    kernel = _from_cache(request, disk) or _compile(request, disk)
    if options.get().dump and kernel.from_cache:
        kernel.lowered  # noqa: B018 - its passes run again, and leave what they make
    _keep(kernel)
    for text in kernel.warnings:
        warn(text)
    return kernel


def _from_cache(request: Request, disk: DiskCache) -> CompiledKernel | None:
    for reads in request.recorded(disk):
        if kernel := _load(request, reads, disk):
            return kernel
    return None


def _load(request: Request, reads: Reads, disk: DiskCache) -> CompiledKernel | None:
    front = disk.load("front", request.key_with(reads))
    if front is None:
        return None
    try:
        head = json.loads(front["head"])
        back = disk.load("back", head["back"])
        if back is None:
            return None
        return CompiledKernel(
            replace(request, headroom=Headroom(**head["headroom"])),
            back["cuda"].decode(),
            back["cubin"],
            LaunchPlan.from_json(front["plan"].decode()),
            _resources_from(json.loads(back["resources"]), head),
            tuple(head["warnings"]),
            reads=reads,
        )
    except (KeyError, ValueError, TypeError):  # an entry of another shape is no entry
        return None


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
        return _resources_from(self.built, sizes)

    @property
    def badness(self) -> tuple[int, int]:
        """What to keep low: advisories, then spills."""
        return len(self.resources.advisories), self.resources.spill_bytes


def _compile(request: Request, disk: DiskCache) -> CompiledKernel:
    asked = request.with_headroom(Headroom())
    best, search = _best_build(request, disk)
    request, lowered = best.request, best.lowered
    resources = replace(best.resources, **search.told())
    reads = request.reader() if lowered.reads is None else lowered.reads
    told = (*_unmet_requests(request, lowered), *_resource_warnings(request, lowered, resources))
    head = {
        "back": best.back,
        "threads": best.plan.threads,
        "dynamic_shared": best.plan.shared_bytes,
        "warnings": told,
        "headroom": asdict(request.headroom),
        **search.told(),
    }
    front = {"head": json.dumps(head).encode(), "plan": best.plan.to_json().encode()}
    disk.store("front", asked.key_with(reads), front)
    asked.record(disk, reads)
    return CompiledKernel(
        request, best.source, best.cubin, best.plan, resources, told, lowered, reads
    )


@dataclass
class _Search:
    """The builds made for one kernel, and whether there may be more.  Processor time, not the clock's: a busy
    machine gets the same kernel."""

    builds: int = 0
    seconds: float = 0.0
    busy: float = 0.0
    hopeless: int = 0  # bytes that the first build spills, where no schedule mends them
    stopped: str = ""
    known: set[str] = field(
        default_factory=set
    )  # keys of what was built: headrooms may change no code

    def add(self, found: Built) -> None:
        """Another build."""
        built = found.built
        self.known.add(found.back)
        if not self.builds and built["spill_bytes"] > HOPELESS_SPILLS:
            self.hopeless = built["spill_bytes"]
        self.builds += built["builds"]
        self.seconds += built["compile_seconds"]
        self.busy += built["cpu_seconds"]

    def is_over(self) -> bool:
        """Whether the budget is spent: two builds of a hopeless kernel, NVRTC_SECONDS of any."""
        if self.hopeless and self.builds > 1:
            self.stopped = f"the first build spills {self.hopeless:,} bytes, which none would mend"
        elif self.busy > NVRTC_SECONDS:
            self.stopped = f"NVRTC was at work for {self.busy:.0f} s"
        return bool(self.stopped)

    def told(self) -> dict[str, Any]:
        """What `Resources` says of it."""
        return {
            "builds": self.builds,
            "compile_seconds": self.seconds,
            "stopped": self.stopped,
        }


def _best_build(request: Request, disk: DiskCache) -> tuple[Built, _Search]:
    """The first attempt that ptxas has nothing to say against, else the one with the least.

    A hopeless first build is followed by that with the most headroom, if there is budget left.  Raises
    CompileError where none compiles."""
    refusal: CompileError | None = None
    best: Built | None = None
    tried: list[Schedule] = []
    search = _Search()
    headrooms = [request.headroom, *request.headrooms]
    while headrooms:
        headroom = headrooms.pop(-1 if search.hopeless else 0)
        try:
            attempt = request.with_headroom(headroom)
            lowered = attempt.lower()
            schedule = replace(lowered.schedule, reasons=())
            if schedule in tried:
                continue
            tried.append(schedule)
            text = _text(attempt, lowered)
            if text.back in search.known:
                continue
            if best is not None and search.is_over():
                break
            found = build(attempt, lowered, disk, text)
        except CompileError as e:
            if not tried or (best is None and e.code != "ptxas-limit"):
                raise
            refusal = refusal or e
            continue
        search.add(found)
        if best is None or found.badness < best.badness:
            best = found
        if best.badness == (0, 0):
            break
    if best is None:
        assert refusal is not None
        raise refusal
    return best, search


@dataclass(frozen=True)
class _Text:
    """What NVRTC is to compile.  back: the cache's key of the result.  limit: registers, from maxnreg."""

    source: str
    plan: LaunchPlan
    limit: int | None
    back: str


def _text(request: Request, lowered: Lowered) -> _Text:
    from warploom.codegen.emit import emit
    from warploom.runtime.signature import plan_of, short_of

    emitted = emit(lowered.placed, request.machine())
    by_waves, rings = lowered.schedule.by_waves, bool(lowered.schedule.channels)
    plan = plan_of(emitted, lowered.placed, request.knobs.pdl, short_of(lowered), by_waves, rings)
    limit = _limit(request, plan, lowered.schedule.ctas_per_sm)
    back = digest(emitted.source, request.target, compiler_package(), _flags(request, limit))
    return _Text(emitted.source, plan, limit, back)


def build(request: Request, lowered: Lowered, disk: DiskCache, text: _Text | None = None) -> Built:
    """Emitted (unless `text` is that) and compiled, or from the cache's back part."""
    text = text or _text(request, lowered)
    found = _resources_of_entry(disk.load("back", text.back))
    if found is None:
        try:
            build = _compile_text(text.source, text.plan, request, text.limit, want_ptx=False)
        except CompileError as refusal:
            refusal.loc = lowered.source.loc
            raise
        found = build.cubin, _resources_to(build)
        entry = {
            "cuda": text.source.encode(),
            "cubin": build.cubin,
            "resources": json.dumps(found[1]).encode(),
        }
        disk.store("back", text.back, entry)
    return Built(request, lowered, text.source, text.plan, text.back, *found)


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


def _compile_text(
    source: str, plan: LaunchPlan, request: Request, limit: int | None, want_ptx: bool
) -> Build:
    from warploom.runtime.nvrtc import compile_cuda

    return compile_cuda(
        source,
        name=plan.name,
        target=request.machine(),
        options=_flags(request, limit),
        want_ptx=want_ptx,
        threads=plan.threads,
    )


def _unmet_requests(request: Request, lowered: Lowered) -> tuple[str, ...]:
    """Warnings: the choices that go against what was asked, each with the line that is to blame."""
    told = [r for r in lowered.schedule.reasons if r.warn]
    if not told:
        return ()
    lines = {o.id: o.loc for o in walk(lowered.tile.body) if o.id}
    return tuple(
        format_message(
            "warning",
            "not-as-asked",
            f"{request.name}: {r.subject}: {r.decision}, because {r.because}",
            lines.get(r.subject) or lowered.tile.loc,
            (),
            "ask for what fits, or make it an error with strict=True",
        )
        for r in told
    )


def _resource_warnings(request: Request, lowered: Lowered, resources: Resources) -> tuple[str, ...]:
    """A warning for what ptxas could not keep in registers or had to serialise.

    Raises CompileError where the request is strict."""
    problems = resources.problems()
    if not problems or request.knobs.debug:
        return ()
    found = f"{request.name}: ptxas reports {'; '.join(problems)}"
    tasks = ", ".join(
        f"{t.name} {t.registers}" for t in lowered.schedule.tasks if t.registers is not None
    )
    have = f"; registers a thread: {tasks or resources.registers}"
    if resources.stopped:
        have += f"; {resources.search()}"
    limit = request.knobs.maxnreg
    advice = "take smaller blocks, or more warps or consumer groups for them"
    if limit is not None:
        advice = f"raise maxnreg={limit}, or {advice}"
    if request.knobs.strict:
        raise CompileError("resources", found + have, lowered.source.loc, help=advice)
    return (format_message("warning", "resources", found + have, lowered.source.loc, (), advice),)


_BUILT = ("registers", "spill_bytes", "stack_bytes", "static_shared", "barriers")


def _resources_to(build: Build) -> dict[str, Any]:
    return {
        **{name: getattr(build, name) for name in _BUILT},
        "advisories": [asdict(a) for a in build.advisories],
        "compile_seconds": build.seconds,
        "cpu_seconds": build.cpu_seconds,
        "compiler": build.compiler,
        "builds": build.builds,
    }


def _resources_from(built: Mapping[str, Any], head: Mapping[str, Any]) -> Resources:
    """What a build took, and of the kernel that it became: its launch, and the search for it."""
    return Resources(
        threads=head["threads"],
        dynamic_shared=head["dynamic_shared"],
        advisories=tuple(Advisory(**a) for a in built["advisories"]),
        compiler=built["compiler"],
        **{name: built[name] for name in _BUILT},
        **{name: head.get(name, built.get(name, "")) for name in _Search().told()},
    )


def _resources_of_entry(back: Mapping[str, bytes] | None) -> tuple[bytes, dict[str, Any]] | None:
    """(cubin, resources) of a back entry; None where there is none of this shape."""
    try:
        return None if back is None else (back["cubin"], json.loads(back["resources"]))
    except (KeyError, ValueError):
        return None


def _keep(kernel: CompiledKernel) -> None:
    """Option WARPLOOM_KEEP: leave every form of the kernel in a folder."""
    folder = options.get().keep
    if folder is None:
        return
    stem = f"{kernel.name}-{kernel.key[:8]}"
    texts: dict[str, str] = {
        "cu": kernel.cuda,
        "ptx": kernel.ptx,
        "schedule.json": kernel.schedule.to_json(),
    }
    texts |= {f"{level.lower()}.ir": text for level, text in kernel.ir.items()}
    options.write(folder / f"{stem}.cubin", kernel.cubin, "KEEP")
    for suffix, text in texts.items():
        options.write(folder / f"{stem}.{suffix}", text.encode(), "KEEP")


def for_overlap(request: Request) -> Request:
    """The variant for arguments that overlap: uniform, every load and store in the program's order."""
    knobs = replace(request.knobs.uniform(), num_stages=1)
    return replace(request, knobs=knobs, overlap=True, schedule=None)


def for_negative(request: Request) -> Request:
    """The variant for negative sizes or strides: no boxes, every access by pointers."""
    return replace(request, structured=False, schedule=None)


def for_short(request: Request) -> Request:
    """The variant for launches whose main loop has few steps."""
    return replace(request, launch=replace(request.launch, short=True))


def for_empty(request: Request) -> Request:
    """The variant for extents of 0, which TMA can't describe: no pointer counts as aligned."""
    specs = tuple(
        s if s.kind == "scalar" else replace(s, fact=replace(s.fact, divisible=1))
        for s in request.specs
    )
    return replace(request, specs=specs, schedule=None)


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


def is_cached(request: Request, cache: DiskCache | None = None) -> bool:
    """Whether `compile_request` would run no pass."""
    return _from_cache(request, default_cache() if cache is None else cache) is not None
