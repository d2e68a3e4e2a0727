"""CUDA C++ → cubin through NVRTC, with everything that ptxas says about the result.

Needs neither a GPU nor a driver nor a toolkit: the compiler is the `nvidia-cuda-nvrtc` wheel,
reached through cuda-bindings (importing cuda-core takes 0.5 s, the bindings 0.1 s, and they give
cubin, PTX and log of one compilation).

Three options are always passed.  `-v` to ptxas, because NVRTC reports the advisories C75xx only then.
`--no-cache`, because NVRTC's own cache works across processes and a hit of it has no log.  `--minimal`,
because no kernel needs textures or the runtime's types, whose declarations take a third of the time of a
small one.
"""

from __future__ import annotations

import atexit
import ctypes
import re
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from warploom.codegen.resources import Advisory, Remarked
from warploom.errors import CompileError, InternalError
from warploom.runtime.nvrtc_process import Answer, StoppedError, ask, run
from warploom.target import Target

# Statements, loops unrolled, from which on NVRTC runs in a process of its own: it may take ten seconds then,
# and the process 0.2 s more.
LARGE = 7000
# Those from which on it takes more than a minute: they are compiled with FAST alone.
HUGE = 20_000
# Seconds of a processor that such a run may take.
CALL_SECONDS = 30.0
# What the second run, with FAST, may take of these where the first one was stopped.
SECOND = 1 / 3
# What a text is compiled with whose run was stopped: it takes a tenth of the time.
FAST = "--Ofast-compile=mid"
STOPPED = "NVRTC"  # the advisory's code then


@dataclass(frozen=True)
class Build(Remarked):
    """One compiled kernel.  Registers are a thread's, at entry; the other sizes are in bytes."""

    name: str
    cubin: bytes
    ptx: str
    registers: int
    spill_bytes: int  # stores and loads together
    stack_bytes: int
    static_shared: int
    barriers: int  # named barriers that ptxas reserved; 16 where an id isn't a constant
    advisories: tuple[Advisory, ...]
    seconds: float  # wall time of NVRTC
    compiler: str  # "NVRTC 13.5"
    log: str
    cpu_seconds: float = 0.0  # of a processor
    builds: int = 1  # compilations that this one is the best of; the seconds are of all

    @property
    def is_stopped(self) -> bool:
        """Was NVRTC stopped, and this made with fewer optimizations?"""
        return any(a.code == STOPPED for a in self.advisories)


def compiler_version() -> str:
    """`NVRTC major.minor` of the library in use; part of every cache key."""
    nvrtc = _nvrtc()
    _, major, minor = nvrtc.nvrtcVersion()
    return f"NVRTC {major}.{minor}"


# Below which version ptxas makes wrong code of which form, and what that means here.
FAULTS = (
    (
        (13, 3),
        "ptxas before 13.3 overwrites A of a wgmma in registers where a copy of it is read over a loop's end "
        "(Triton #9433 and #11781; seen with 13.0 and 13.2): warploom emits no such loop",
    ),
    (
        (13, 1),
        "ptxas 13.0 made a kernel with wgmma write outside of shared memory (flash-linear-attention #1262): "
        "not seen in a kernel of warploom's",
    ),
)


def known_faults() -> tuple[str, ...]:
    """What is known to go wrong with the NVRTC in use."""
    _, *version = _nvrtc().nvrtcVersion()
    return tuple(text for below, text in FAULTS if tuple(version) < below)


def library_path() -> str:
    """The file of the NVRTC in use."""
    from cuda import pathfinder

    return str(pathfinder.load_nvidia_dynamic_lib("nvrtc").abs_path)


def compile_cuda(
    source: str,
    *,
    name: str,
    target: Target,
    options: Sequence[str] = (),
    want_ptx: bool = False,
) -> Build:
    """Compiles `source` and returns its `extern "C"` kernel `name`.

    options: further NVRTC options.  want_ptx: also fetch the PTX text (empty otherwise).
    Raises CompileError where the kernel is too large for ptxas (registers, shared memory), or takes NVRTC
    more than CALL_SECONDS, and SECOND of these with fewer optimizations, and InternalError, quoting the
    emitted line, where the source is wrong: users don't write it.
    """
    start, busy = time.perf_counter(), time.thread_time()
    flags = (
        f"--gpu-architecture={target.name}",
        "--std=c++17",
        "--ptxas-options=-v",
        "--no-cache",
        "--minimal",
        *options,
    )
    stopped: tuple[Advisory, ...] = ()
    spent, size = 0.0, statements(source)
    try:
        if size >= HUGE:
            raise StoppedError(f"NVRTC would take more than a minute for {size:,} statements")
        spent = CALL_SECONDS
        ok, log, cubin, ptx, _, more = _run(source, name, flags, want_ptx, spent)
    except StoppedError as first:
        left = SECOND * CALL_SECONDS if spent else CALL_SECONDS
        try:
            ok, log, cubin, ptx, _, more = _run(source, name, (*flags, FAST), want_ptx, left)
        except StoppedError as second:
            raise _too_large(size, name, second) from None
        more += spent
        stopped = (Advisory(STOPPED, f"{first}: compiled with {FAST} instead, so it is slower"),)
    if not ok:
        raise _refusal(source, name, flags, log)
    seconds, busy = time.perf_counter() - start, time.thread_time() - busy + more
    stats = _resources(log, name)
    return Build(
        name=name,
        cubin=cubin,
        ptx=ptx,
        registers=stats["registers"],
        spill_bytes=stats["spill_stores"] + stats["spill_loads"],
        stack_bytes=stats["stack"],
        static_shared=stats["smem"],
        barriers=stats["barriers"],
        advisories=(*stopped, *_advisories(log)),
        seconds=seconds,
        compiler=compiler_version(),
        log=log,
        cpu_seconds=busy,
    )


def _nvrtc() -> Any:  # a module without type information
    from cuda.bindings import nvrtc

    return nvrtc


def _run(
    source: str, name: str, flags: Sequence[str], want_ptx: bool, seconds: float = CALL_SECONDS
) -> Answer:
    """NVRTC's answer, from a process of its own where the text is large, or is tried again: there a run can
    be stopped.

    Raises StoppedError, and InternalError where NVRTC itself fails."""
    answer = None
    if statements(source) >= LARGE or FAST in flags:
        with suppress(OSError):  # no process can be started: it runs here
            answer = ask(source, name, flags, want_ptx, library_path(), seconds)
    answer = answer or _watched(source, name, flags, want_ptx, seconds)
    if answer.fault:
        raise InternalError(f"nvrtc: {answer.fault}")
    return answer


_ABANDONED: list[threading.Thread] = []  # that may still be in NVRTC


def _watched(
    source: str, name: str, flags: Sequence[str], want_ptx: bool, seconds: float
) -> Answer:
    """NVRTC's answer, from a thread: ptxas may take for ever over few statements (1,500, of which 63 are
    wgmmas whose registers don't suffice).  A thread can't be ended: nobody waits for it any longer.

    Raises StoppedError after so many seconds of a processor."""
    answer: Future[Answer] = Future()

    def work() -> None:
        try:
            found = run(source, name, flags, want_ptx)
            answer.set_result(found._replace(seconds=time.thread_time()))
        except BaseException as error:
            answer.set_exception(error)

    thread = threading.Thread(target=work, name=f"NVRTC {name}", daemon=True)
    start, left = time.perf_counter(), seconds
    thread.start()
    clock_of = getattr(time, "pthread_getcpuclockid", None)  # not everywhere
    while left > 0:
        thread.join(left)
        if not thread.is_alive():
            return answer.result()
        assert thread.ident is not None
        with suppress(OSError):  # it has just ended
            spent = time.clock_gettime(clock_of(thread.ident)) if clock_of else None
            left = seconds - (time.perf_counter() - start if spent is None else spent)
    if not _ABANDONED:
        atexit.register(_skip_destructors)
    _ABANDONED.append(thread)
    raise StoppedError(f"NVRTC was not done after {seconds:g} s of processor time")


def _skip_destructors() -> None:
    """At exit: while a thread is in NVRTC, the static destructors of libraries would destroy what it uses (2
    of 15 processes ended by a segmentation fault).  So the process ends without them, with its status."""
    if not any(t.is_alive() for t in _ABANDONED):
        return
    libc = ctypes.CDLL(None)
    if hasattr(libc, "on_exit"):  # of glibc
        libc.on_exit(libc._exit, None)  # gets the status; the last one registered is called first


_PRAGMA = re.compile(r"#pragma unroll(?: (\d+))?$")
_COUNTED = re.compile(r"for \(int \w+ = 0; \w+ < (\d+); \+\+")


@lru_cache(maxsize=4)  # of a text it is asked before its build, in it and after it
def statements(source: str) -> int:
    """Lines of a text with its loops unrolled: NVRTC's time grows with their square, 0.2 s of 1,000."""
    total, factors, asked = 0, [1], None
    for line in source.split("\n"):
        text = line.strip()
        if text.startswith("#"):
            asked = _PRAGMA.match(text)
            continue
        loop = _COUNTED.match(text) if asked else None
        copies = (asked and asked[1]) or (loop and loop[1]) or 1
        factor = factors[-1] * int(copies)
        asked = None
        if text.startswith("}") and len(factors) > 1:
            factors.pop()
        if text.endswith("{"):
            factors.append(factors[-1] if text.startswith("}") else factor)
        elif text and not text.startswith(("}", "//")):
            total += factor
    return total


# ---- reading the log.  The lines are those of ptxas 13.x; tests hold samples of them.

_ADVISORY = r"(?m)^ptxas (?:info|warning)\s*: \((C\d{4})\) (.*)$"
_ENTRY = r"(?m)^ptxas info\s*: Compiling entry function '([^']+)' for"
_NUMBERS = {
    "stack": r"(\d+) bytes stack frame",
    "spill_stores": r"(\d+) bytes spill stores",
    "spill_loads": r"(\d+) bytes spill loads",
    "registers": r"Used (\d+) registers",
    "barriers": r"used (\d+) barriers",
    "smem": r"(\d+) bytes smem",
}


def _advisories(log: str) -> tuple[Advisory, ...]:
    return tuple(Advisory(code, text.strip()) for code, text in re.findall(_ADVISORY, log))


def _resources(log: str, name: str) -> dict[str, int]:
    """The figures of entry `name`; InternalError if ptxas compiled no such kernel."""
    pieces = re.split(_ENTRY, log)
    entries = dict(zip(pieces[1::2], pieces[2::2], strict=True))
    if name not in entries:
        found = ", ".join(entries) or "none"
        raise InternalError(f"nvrtc: the source has no kernel {name!r}; kernels found: {found}")
    text = entries[name]
    matches = {key: re.search(pattern, text) for key, pattern in _NUMBERS.items()}
    return {key: int(m.group(1)) if m else 0 for key, m in matches.items()}


# ---- refusals


def _too_large(size: int, name: str, why: StoppedError) -> CompileError:
    return CompileError(
        "nvrtc-stopped",
        f"{why} at kernel {name}, which has {size:,} statements, loops unrolled",
        help="take smaller blocks, or more warps for them: each thread computes all of its elements of a "
        "tile one by one; or cut a wide tile into parts in a loop",
    )


_CUDA_ERROR = r"(?m)^[^\n(]*\.cu\((\d+)\): (?:catastrophic )?error:? ?(.*)$"
_PTX_ERROR = r"(?m)^ *ptxas .*?line (\d+); (?:error|fatal)\s*: (.*)$"
_LIMIT_ERROR = (
    r"(?m)^ *ptxas (?:error|fatal)\s*: (.*(?:too much|C7602|Register allocation|exceeds).*)$"
)


def _refusal(
    source: str, name: str, flags: Sequence[str], log: str
) -> CompileError | InternalError:
    """The error to raise for a failed compilation."""
    if limit := re.search(_LIMIT_ERROR, log):
        advice = "take smaller blocks, fewer buffers (num_buffers_warp_spec, num_stages), "
        advice += "or fewer consumer groups"
        if any("maxrregcount" in x for x in flags):
            advice = f"raise maxnreg, or {advice}"
        return CompileError(
            "ptxas-limit",
            f"kernel {name} does not fit the hardware: {limit.group(1).strip()}",
            help=advice,
        )
    rest = f"options: {' '.join(flags)}\n{log.strip()}"
    if error := re.search(_CUDA_ERROR, log):
        return RefusedTextError("NVRTC", name, source, int(error.group(1)), error.group(2), rest)
    if error := re.search(_PTX_ERROR, log):
        virtual = [f.replace("=sm_", "=compute_") for f in flags if not f.startswith("--ptxas")]
        ptx = _run(source, name, virtual, want_ptx=True).ptx
        return RefusedTextError("ptxas", name, ptx, int(error.group(1)), error.group(2), rest)
    return InternalError(f"nvrtc refused kernel {name}, {rest}")


class RefusedTextError(InternalError):
    """A line that NVRTC (of the emitted CUDA) or ptxas (of its PTX) refuses.

    compiler: which of them; told: what it says; block: of PTX the inline assembly around the line."""

    def __init__(self, compiler: str, name: str, text: str, number: int, told: str, rest: str):
        lines = text.splitlines()
        line = lines[number - 1] if 0 < number <= len(lines) else ""
        what = "emitted CUDA" if compiler == "NVRTC" else "PTX"
        super().__init__(
            f"nvrtc refused the {what} of kernel {name}, line {number}: {told}\n"
            f"{number} | {line}\n{rest}"
        )
        self.compiler, self.told, self.line = compiler, told, line.strip()
        self.block = _assembly_around(lines, number - 1)


def _assembly_around(lines: Sequence[str], at: int) -> str:
    """The inline assembly in which a line of PTX stands, or the last before it: what isn't complete is
    refused only where the next instruction begins."""
    begins = [i for i, line in enumerate(lines[:at]) if line.strip() == "// begin inline asm"]
    if not begins:
        return ""
    ends = (i for i in range(begins[-1], len(lines)) if lines[i].strip() == "// end inline asm")
    return "\n".join(lines[begins[-1] + 1 : next(ends, None)])
