"""From a request (kernel, specialization, knobs) to a compiled kernel, through the disk cache.

The compiler's parts are imported where they run, so that a kernel from the cache needs none of them.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Literal, overload

from warploom import options
from warploom.codegen.resources import Resources
from warploom.errors import CompileError, LaunchError, format_message, whole_number
from warploom.frontend.reads import Reads
from warploom.ir.collector import paused_collector
from warploom.ir.core import walk
from warploom.runtime.build import best_build, load_back, resources_from
from warploom.runtime.cache import DiskCache, default_cache
from warploom.runtime.introspection import Introspection
from warploom.runtime.launch import grid_sizes
from warploom.runtime.mistakes import user_facing, warn
from warploom.runtime.plan import LaunchPlan
from warploom.runtime.request import Request
from warploom.runtime.workspace import check_left_clean, with_programs
from warploom.schedule.resources import Headroom

if TYPE_CHECKING:
    from warploom.check import CheckReport
    from warploom.compile import Lowered
    from warploom.sim.algebra import AlgebraReport
    from warploom.sim.report import SimReport
    from warploom.timeline.compare import Comparison
    from warploom.timeline.model import Timeline


class CompiledKernel(Introspection):
    """One compiled variant of a kernel.  Get it by `kernel.compile(…)` or `kernel.compile_for(…)`.

    cuda: the emitted source.  cubin, plan: what a launch uses.  warnings: what was not done as asked.
    reads: what its translation read outside of the kernel; while that is as it was, the kernel is current.
    What the cache doesn't hold (IR, schedule, PTX) is made again when it is first looked at.
    """

    def explain(self) -> str:
        """The kernel's source, line by line with what became of it, and why."""
        from warploom.explain import explain

        lowered = self.lowered
        parts = (lowered.source, lowered.schedule, lowered.placed, self.request.machine())
        return str(explain(*parts, resources=self.resources, reads=self.reads.described()))

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

        programs = grid_sizes(grid)
        fields, ctas = with_programs(self.placed, self.fields_of(args), programs)
        report = simulate_in_mode(
            self.lowered.written,
            self.placed,
            [f.on_host for f in fields],
            ctas,
            seed=seed,
            exact=exact,
            algebra=algebra,
            programs=programs,
            **options,
        )
        if self.plan.programs and not algebra:
            from warploom.runtime.signature import workspaces_of

            check_left_clean(fields, workspaces_of(self.placed))
        return report

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
            text = f"the grid {sizes} has no program {options.get('program', 0)}"
            most = math.prod(sizes) - 1
            help = f"one from 0 to {most}" if most >= 0 else "launch some, to see one"
            raise LaunchError("program", text, help=help)
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
        back = load_back(disk, head["back"])
        if back is None:
            return None
        source, cubin, built = back
        return CompiledKernel(
            replace(request, headroom=Headroom(**head["headroom"])),
            source,
            cubin,
            LaunchPlan.from_json(front["plan"].decode()),
            resources_from(built, head),
            tuple(head["warnings"]),
            reads=reads,
        )
    except (KeyError, ValueError, TypeError):  # an entry of another shape is no entry
        return None


def _compile(request: Request, disk: DiskCache) -> CompiledKernel:
    asked = request.with_headroom(Headroom())
    with paused_collector():
        best, search = best_build(request, disk)
    request, lowered = best.request, best.lowered
    resources = replace(best.resources, **search.summary())
    reads = request.reader() if lowered.reads is None else lowered.reads
    remarks = (*_unmet_requests(request, lowered), *_resource_warnings(request, lowered, resources))
    head = {
        "back": best.back,
        "threads": best.plan.threads,
        "dynamic_shared": best.plan.shared_bytes,
        "warnings": remarks,
        "headroom": asdict(request.headroom),
        **search.summary(),
    }
    front = {"head": json.dumps(head).encode(), "plan": best.plan.to_json().encode()}
    disk.store("front", asked.key_with(reads), front)
    asked.record(disk, reads)
    return CompiledKernel(
        request, best.source, best.cubin, best.plan, resources, remarks, lowered, reads
    )


def _unmet_requests(request: Request, lowered: Lowered) -> tuple[str, ...]:
    """Warnings: the choices that go against what was asked, each with the line that is to blame."""
    reasons = [r for r in lowered.schedule.reasons if r.warn]
    if not reasons:
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
        for r in reasons
    )


def _resource_warnings(request: Request, lowered: Lowered, resources: Resources) -> tuple[str, ...]:
    """A warning for what ptxas could not keep in registers or had to serialise.

    Raises CompileError where the request is strict."""
    problems = resources.problems()
    if not problems or request.knobs.debug is True:
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


def is_cached(request: Request) -> bool:
    """Whether `compile_request` would run no pass."""
    return _from_cache(request, default_cache()) is not None
