"""A run of NVRTC in a process of its own, which ends by itself when its processor time is spent.

This file is run as a script, so that the process imports nothing but the bindings: it reads a request from
its standard input and writes the answer to its standard output (pickles).  What takes NVRTC down (a crash,
too little memory) takes the process down, not the user's.
"""

from __future__ import annotations

import ctypes
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

PATIENCE = 20  # times its processor time that a process may take of the clock


class Answer(NamedTuple):
    """What NVRTC said.  fault: its error where it failed without judging the source.  seconds: of a
    processor, where a process of its own took them."""

    ok: bool
    log: str
    cubin: bytes = b""
    ptx: str = ""
    fault: str = ""
    seconds: float = 0.0


class StoppedError(Exception):
    """The process spent its time, or died; says which."""


def ask(
    source: str, name: str, flags: Sequence[str], want_ptx: bool, library: str, limit: float
) -> Answer:
    """`run` in a process with `limit` seconds of a processor.  library: the NVRTC to load.

    Raises StoppedError, and OSError where no process can be started."""
    request = pickle.dumps((sys.path, library, limit, (source, name, tuple(flags), want_ptx)))
    pipe = subprocess.PIPE
    command = [sys.executable, "-P", __file__]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL) as process:
        try:
            answer, _ = process.communicate(request, timeout=limit * PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            raise StoppedError(f"NVRTC did not end within {limit * PATIENCE:.0f} s") from None
        except BaseException:
            process.kill()
            raise
    if process.returncode == -signal.SIGPROF:
        raise StoppedError(f"NVRTC was stopped after {limit:g} s of processor time")
    if process.returncode == 1:  # Python's exceptions: NVRTC was not reached
        raise OSError("the process found no NVRTC")
    if process.returncode:
        raise StoppedError(f"NVRTC's process ended with code {process.returncode}")
    return Answer(*pickle.loads(answer))


def run(source: str, name: str, flags: Sequence[str], want_ptx: bool) -> Answer:
    """One compilation, in this process."""
    from cuda.bindings import nvrtc

    success = nvrtc.nvrtcResult.NVRTC_SUCCESS

    def call(function: Any, *args: Any) -> Any:
        result, *values = function(*args)
        if result != success:
            raise _Fault(f"{function.__name__} returned {result!r}")
        return values[0] if values else None

    def fetch(size: Any, get: Any) -> bytes:
        data: bytes = b"\0" * call(size, program)  # the bindings write into it
        call(get, program, data)
        return data

    program = None
    try:
        program = call(nvrtc.nvrtcCreateProgram, source.encode(), f"{name}.cu".encode(), 0, [], [])
        options = [f.encode() for f in flags]
        (result,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
        log = fetch(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog)
        text = log.replace(b"\0", b"").decode(errors="replace")  # zeros stand between parts
        if result == nvrtc.nvrtcResult.NVRTC_ERROR_COMPILATION:
            return Answer(False, text)
        if result != success:
            return Answer(False, text, fault=f"{result!r} with options {' '.join(flags)}\n{text}")
        real = not any("=compute_" in f for f in flags)
        cubin = fetch(nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN) if real else b""
        ptx = fetch(nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX) if want_ptx else b""
        return Answer(True, text, cubin, ptx.rstrip(b"\0").decode())
    except _Fault as fault:
        return Answer(False, "", fault=str(fault))
    finally:
        if program is not None:
            nvrtc.nvrtcDestroyProgram(program)


class _Fault(Exception):
    """A call of NVRTC's that must succeed did not."""


def _main() -> None:
    sys.path[:], library, limit, request = pickle.load(sys.stdin.buffer)
    signal.setitimer(signal.ITIMER_PROF, limit)  # its signal ends the process
    ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)  # the parent's, whatever else can be found
    answer = run(*request)._replace(seconds=time.process_time())
    sys.stdout.buffer.write(pickle.dumps(tuple(answer)))


if __name__ == "__main__":
    _main()
