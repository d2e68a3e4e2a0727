"""PLACED → CUDA C++: one self-contained, readable source a kernel.

Reading order: types, constants, instructions, the kernel; in the kernel shared-memory addresses, scalars
that every thread computes, barriers, and one branch a task.  This file builds that frame.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from warploom.analysis.occupancy import given_ctas
from warploom.codegen import host
from warploom.codegen.context import Address, Emitter, TaskFrame
from warploom.codegen.lower import LOWER
from warploom.codegen.lower_casts import paren
from warploom.codegen.lower_tma import OWN_MAP_BYTES, instruction_box
from warploom.codegen.prelude import FILE_SCOPE, prelude
from warploom.codegen.registers import c_type
from warploom.codegen.short_loops import write_out_short_loops
from warploom.codegen.text import INDENT, Line, identifier, is_used, upper
from warploom.errors import CompileError, InternalError
from warploom.ir.analysis import effects
from warploom.ir.core import Func, Level, Op, Region, walk
from warploom.ir.ops import arith, cluster, mbarrier, smem, task, tma
from warploom.ir.registers import at_entry
from warploom.ir.types import Barriers, Pointer, Scalar, TensorMap, elem_of
from warploom.target import Target


@dataclass(frozen=True)
class Emitted:
    """A kernel's source and what a launch needs to know of it.

    params: the kernel's parameters in order.  lines: the source's, each with the user's location and the op
    of PLACED that it came from.
    """

    source: str
    name: str
    threads: int
    shared_bytes: int
    params: tuple[host.Param, ...]
    lines: tuple[Line, ...]


def emit(func: Func, target: Target) -> Emitted:
    """The CUDA C++ of a function at PLACED (`attrs["debug"]`: bounded waits that trap, device asserts).

    Raises CompileError where the kernel exceeds a limit of the target, InternalError on IR that no
    earlier pass should have let through.
    """
    if func.level != Level.PLACED:
        raise InternalError(f"codegen: {func.name} is at {func.level.name}, not PLACED")
    if target.emits != "cuda":
        raise CompileError(
            "target",
            f"no code is emitted for {target.name}",
            func.loc,
            help="kernels for it can be lowered, simulated and checked",
        )
    return _Kernel(func, target).run()


class _Kernel(Emitter):
    """The frame of a kernel."""

    def __init__(self, func: Func, target: Target) -> None:
        self.phases = task.phases(func)
        if not self.phases:
            raise InternalError(f"codegen: {func.name} has no tasks op")
        self.inits: list[tuple[str, int, int]] = []  # barriers: name, how many, arrivals
        self.maps: list[str] = []  # tensor maps
        super().__init__(func, target, LOWER)

    def run(self) -> Emitted:
        self.depth = 1
        params = self._parameters()
        self._shared_memory()
        prologue = [o for o in self.func.body.ops if o not in self.phases]
        pure = list(itertools.takewhile(lambda o: not effects(o), prologue))
        self.region(Region((), tuple(pure)))
        self._start()
        self.region(Region((), tuple(prologue[len(pure) :])))
        self.loc = None
        for i, phase in enumerate(self.phases):
            if i > 0 and self.phases[i - 1].attrs.get("synced", True):
                self.line("__syncthreads();")
            self._tasks(phase)
        self.out = write_out_short_loops(self.out, self.given)
        if not self.func.attrs.get("foreign"):
            used = "".join(line.text for line in self.out)
            params = tuple(p for p in params if is_used(p.name, used))
        return self._assemble(params)

    def _parameters(self) -> tuple[host.Param, ...]:
        params: list[host.Param] = []
        for o in self.func.body.ops:
            if o.kind is tma.tensor_map and o in self.needed:
                name = self.name(o.result.hint, "map")
                box, order = instruction_box(o.result.typed(TensorMap), self.target.box_limit)
                params.append(
                    host.tensor_map_param(name, o, [box[a] for a in order], order, self.program)
                )
                self.env[o.result] = name
                self.maps.append(name)
        params += self._own_maps()
        for o in walk(self.func.body):
            if o.kind is arith.fast_div and o in self.needed:
                divisor = self.program.expression(o.operands[1])
                if divisor not in self.dividers:
                    self.dividers[divisor] = self.name(f"by_{o.operands[1].hint or 'divisor'}")
                    params.append(host.DividerParam(self.dividers[divisor], divisor))
        for i, v in enumerate(self.func.params):
            name = self.name(v.hint, f"arg{i}")
            self.env[v] = name
            if isinstance(v.type, Pointer):
                params.append(host.PointerParam(name, i))
            elif isinstance(v.type, Scalar):
                params.append(host.ScalarParam(name, i, v.type.dtype.name))
            else:
                raise InternalError(f"codegen: a kernel parameter of type {v.type}")
        return tuple(params)

    def _own_maps(self) -> list[host.Param]:
        """The descriptors that the kernel writes: what it copies, and memory for them."""
        own = [o for o in self.func.body.ops if o.kind is tma.map_alloc and o in self.needed]
        if not own:
            return []
        params: list[host.Param] = []
        memory, size = self.name("own_maps"), OWN_MAP_BYTES * len(own)
        for i, o in enumerate(own):
            box, order = instruction_box(o.result.typed(TensorMap), self.target.box_limit)
            name = self.name(o.result.hint, "map")
            at = f"own_map({memory}, {size}, {OWN_MAP_BYTES * i})"
            template = host.map_template(f"{name}_like", o, [box[a] for a in order])
            params.append(template)
            self.line(f"TensorMap* const {name} = {at};")
            self.env[o.result] = f"*{name}"
            self.templates[o.result] = template.name
        return [*params, host.OwnMapsParam(memory, size)]

    def _shared_memory(self) -> None:
        """Names and addresses of allocations and barriers; nothing but constants is emitted."""
        for o in walk(self.func.body):
            if o.kind not in (smem.shared_alloc, mbarrier.mbarrier_alloc):
                continue
            offset = o.attrs.get("offset")
            if offset is None:
                raise InternalError(
                    f"codegen: {o.attrs['name']} has no offset: allocate_shared didn't run"
                )
            constant = self.constant(f"{upper(o.attrs['name'])}_AT", offset)
            t = o.result.type
            if o in self.needed:
                name = self.name(o.result.hint or o.attrs["name"])
                self.line(f"const u32 {name} = smem + {constant};")
                self.env[o.result] = Address(name)
                if isinstance(t, Barriers):
                    self.inits.append((name, t.n, o.attrs["count"]))

    def _start(self) -> None:
        """What allocations and maps take before anybody uses them; it needs nothing of global memory."""
        self.loc = self.shown = None
        self.line("")
        if self.maps or self.inits:
            with self.block("if (threadIdx.x == 0)"):
                for name in self.maps:
                    self.line(f"prefetch_map(&{name});")
                for name, n, count in self.inits:
                    each = f"mbarrier_init({name}{' + 8 * i' if n > 1 else ''}, {count});"
                    self.line(f"for (int i = 0; i < {n}; ++i) {each}" if n > 1 else each)
                if self.inits and self.target.sync.cluster_ctas > 1:
                    self.line("mbarrier_init_fence();")
        if self.inits:
            self.line("__syncthreads();")

    def _tasks(self, o: Op) -> None:
        """One branch a task of a phase."""
        names, warps, replicas = (o.attrs[k] for k in ("names", "warps", "replicas"))
        frames, first = [], 0
        for name, w, n in zip(names, warps, replicas, strict=True):
            frames.append(TaskFrame(name, first, w, n))
            first += w * n
        self.line("")
        budgets, shared = o.attrs["registers"], task.sharing(o, self.target.warp_group)
        if all(len(rows) == 1 or budgets[rows[0]] is None for rows in shared):
            unit = 4 if all(w * n % 4 == 0 for w, n in zip(warps, replicas, strict=True)) else 1
            for i, header in enumerate(_branches(frames, unit)):
                self._task(frames[i], header, budgets[i], o.regions[i], unit)
            return
        # The tasks of one warp group take its budget together, then part.
        spans = [
            TaskFrame("", frames[rows[0]].first_warp, sum(warps[i] * replicas[i] for i in rows), 1)
            for rows in shared
        ]
        for rows, header in zip(shared, _branches(spans, 4), strict=True):
            if len(rows) == 1:
                (i,) = rows
                self._task(frames[i], header, budgets[i], o.regions[i], 4)
                continue
            mine = [frames[i] for i in rows]
            with self.block(self._joined(header)):
                self._budget("_and_".join(f.name for f in mine), budgets[rows[0]])
                for i, inner in zip(rows, _branches(mine, 1), strict=True):
                    self._task(frames[i], inner, None, o.regions[i], 1)

    def _joined(self, header: str) -> str:
        """A branch's header, after the closing brace of the branch before."""
        if not header.startswith("else"):
            return header
        self.out.pop()
        return "} " + header

    def _budget(self, name: str, registers: int | None) -> None:
        if registers is None:
            return
        entry = at_entry(self.func, self.target)
        change = "dec" if registers < entry else "inc"
        constant = self.constant(f"{upper(name)}_REGISTERS", registers)
        self.line(f"registers_{change}<{constant}>();")

    def _task(
        self, frame: TaskFrame, header: str, registers: int | None, region: Region, unit: int
    ) -> None:
        many = f" x {frame.replicas}" if frame.replicas > 1 else ""
        title = f"// ==== {frame.name}: {frame.warps} warp{'s' * (frame.warps > 1)}{many}"
        self.frame, self.wanted, self.heads = frame, set(), {}
        self.sole_elect = task.sole_elect(region)
        self.loc = self.shown = None
        with self.block(self._joined(header)):
            self.out[-1] = self.out[-1]._replace(text=f"{self.out[-1].text.ljust(60)} {title}")
            self._budget(frame.name, registers)
            at = len(self.out)
            self.task_scope = self.scopes[-1]
            self.region(region)
            head = self._task_variables(frame, unit)
            self.out[at:at] = [Line(self.depth, text) for text in head]
        self.frame = None

    def _task_variables(self, frame: TaskFrame, unit: int) -> list[str]:
        """Declarations of what the task's body asked for."""
        want = self.wanted
        if frame.warps % unit:  # several replicas share a group of four warps
            unit = 1
        which = "group" if unit == 4 else "warp_id"
        size, first = 32 * frame.warps, frame.first_warp
        single = frame.warps * frame.replicas * 32 == self.threads
        if "stamp_at" in want and frame.replicas > 1:
            want.add("replica")
        recorder = ""
        if "stamp_at" in want:
            recorder = self.electing(self.sole_elect) if self.sole_elect else self.use("leader")
        out = []
        if "replica" in want:
            base = f"{which} - {first // unit}" if first else which
            per = frame.warps // unit
            if frame.replicas == 1:
                out.append("const int replica = 0;")
            else:
                out.append(f"const int replica = {f'{paren(base)} / {per}' if per > 1 else base};")
        if frame.warps & (frame.warps - 1) == 0 and first % frame.warps == 0:
            thread = "threadIdx.x" if single and frame.replicas == 1 else f"threadIdx.x % {size}"
        else:
            thread = f"(threadIdx.x - {32 * first}) % {size}" if first else f"threadIdx.x % {size}"
        if "thread" in want:
            out.append(f"const int thread = {thread};")
        if "leader" in want:
            out.append(f"const bool leader = {thread} == 0;")
        if "lane" in want:
            out.append("const int lane = threadIdx.x % 32;")
        if "warp" in want:
            value = "0" if frame.warps == 1 else f"threadIdx.x / 32 % {frame.warps}"
            if "%" in thread and first % frame.warps:
                value = f"({thread}) / 32"
            out.append(f"const int warp = {value};")
        if recorder:
            out.append(f"u32 stamp_at = {recorder} && {self._first_stamp(frame)};")
        out += [f"const int {name} = {text};" for text, name in self.heads.items()]
        return out

    def _first_stamp(self, frame: TaskFrame) -> str:
        """C for "this program is measured ? the last record of the replica : 0" (see smem.stamp)."""
        assert self.stamping is not None
        program, capacity = self.stamping
        rows = task.agents(self.func)
        first = next(i for i, (name, _) in enumerate(rows) if name == frame.name)
        x, y, z = cluster.cluster_of(self.func)
        number = "blockIdx.x" + f" / {x}" * (x > 1)
        for ids, here, size in (("x", "y", y), ("xy", "z", z)):
            before = " * ".join(
                f"(gridDim.{i} / {n})" if n > 1 else f"gridDim.{i}"
                for i, n in zip(ids, (x, y), strict=False)
            )
            index = f"(blockIdx.{here} / {size})" if size > 1 else f"blockIdx.{here}"
            number += f" + {before} * {index}"
        agent = f"{first}" + " + replica" * (frame.replicas > 1)
        if x * y * z > 1:
            agent = f"cta_rank() * {len(rows)} + {agent}"
        return f"{number} == {program} ? ({agent}) * {8 * capacity} + {8 * (capacity - 1)} : 0"

    def _bounds(self, threads: int) -> str:
        """`maxThreadsPerBlock, minBlocksPerMultiprocessor`; the second one where the function says it."""
        ctas, constant = given_ctas(self.func, self.target), self.constant("THREADS", threads)
        return constant if ctas is None else f"{constant}, {ctas}"

    def _assemble(self, params: tuple[host.Param, ...]) -> Emitted:
        name, threads = kernel_name(self.func), self.threads
        shared_bytes = int(self.func.attrs["shared_bytes"])
        body = [x._replace(text=INDENT * x.depth + x.text if x.text else "") for x in self.out]
        used = "\n".join(x.text for x in body)
        first = [
            f"const int {which} = __shfl_sync(~0u, threadIdx.x / {per}, 0);"
            "  // uniform, so that it stays in a uniform register"
            for which, per in (("group", 128), ("warp_id", 32))
            if is_used(which, used)
        ]
        if is_used("smem", used):
            first.append("extern __shared__ __align__(1024) char memory[];")
            first.append("const u32 smem = (u32)__cvta_generic_to_shared(memory);")
        declared = ", ".join(_declaration(p, self.func) for p in params)
        shape = cluster.cluster_of(self.func)
        clustered = f" __cluster_dims__{shape}" if shape != (1, 1, 1) else ""
        bounds = f"__launch_bounds__({self._bounds(threads)}){clustered}"
        kernel = [
            Line(0, f'extern "C" __global__ void {bounds}'),
            Line(0, f"{name}({declared}) {{"),
            *(Line(1, INDENT + text) for text in first),
            *body,
            Line(0, "}"),
        ]
        made: list[str] = []
        for made_name, definition in reversed(self.made.items()):  # each stands before what uses it
            if is_used(made_name, "".join([used, *made])):
                made.insert(0, definition)
        instructions = prelude(used + "".join(made) + declared)
        text = [
            f"// {name}: {threads} threads, {shared_bytes} bytes of shared memory.",
            *instructions["types"],
            "",
            "// ---- constants of this instance",
            *(f"constexpr int {k} = {v};" for k, v in self.top.items()),
            "",
            "// ---- instructions",
            *instructions["functions"],
            *made,
            "",
            "// ---- the kernel",
        ]
        head = "\n".join(text).split("\n")
        lines = (*(Line(0, text) for text in head), *kernel)
        source = "".join(f"{x.text}\n" for x in lines)
        return Emitted(source, name, threads, shared_bytes, params, lines)


def kernel_name(func: Func) -> str:
    """The kernel's own, unless C or CUDA has it."""
    name = identifier(func.name)
    return f"{name}_kernel" if name in FILE_SCOPE else name


def _branches(frames: list[TaskFrame], unit: int) -> list[str]:
    """Headers of an if/else chain over the warps of each."""
    which = "group" if unit == 4 else "warp_id"
    headers: list[str] = []
    for f in frames[:-1]:
        test = f"{which} < {(f.first_warp + f.warps * f.replicas) // unit}"
        headers.append(f"else if ({test})" if headers else f"if ({test})")
    return [*headers, "else" if headers else ""]


def _declaration(p: host.Param, func: Func) -> str:
    match p:
        case host.TensorMapParam():
            return f"const __grid_constant__ TensorMap {p.name}"
        case host.OwnMapsParam():
            return f"u8* {p.name}"
        case host.DividerParam():
            return f"u64 {p.name}"
    return f"{c_type(elem_of(func.params[p.arg].type))} {p.name}"
