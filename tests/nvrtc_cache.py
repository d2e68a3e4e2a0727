"""NVRTC's answers, kept between runs of the suite.

What NVRTC says is a function of the text, the options and its version, and most tests of most commits ask what
was asked before: half of the suite's time.  Answers lie in a folder by the hash of the question, an answer a
file, which appears by rename; what can't be read is asked again.  Refusals are answers too.

TESTS_NVRTC_CACHE names the folder; `off` asks NVRTC each time.  Without it: `warploom-tests` in the user's
cache folder, outside of the clone, so that a fresh clone finds it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import zlib
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

from warploom.runtime import nvrtc
from warploom.runtime.nvrtc_process import Answer

LARGEST = 512 << 20  # bytes that are kept after a run; a run of the whole suite leaves a tenth

_ask = nvrtc._run


def folder() -> Path | None:
    """Where answers are kept; None where they are not."""
    named = os.environ.get("TESTS_NVRTC_CACHE")
    if named:
        return None if named == "off" else Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "warploom-tests"


def install() -> None:
    """From now on this process asks NVRTC only what is not in the folder."""
    if folder() is not None:
        nvrtc._run = answered


def answered(
    source: str, name: str, flags: Sequence[str], want_ptx: bool, *seconds: float
) -> Answer:
    """`nvrtc._run`, from the folder where it is there."""
    kept = folder()
    assert kept is not None
    question = json.dumps([_version(), source, name, list(flags), want_ptx])
    file = kept / f"{hashlib.sha256(question.encode()).hexdigest()}.z"
    try:
        ok, log, cubin, ptx = json.loads(zlib.decompress(file.read_bytes()))
        os.utime(file)  # what was used last is evicted last
        return Answer(ok, log, base64.b64decode(cubin), ptx)
    except (OSError, ValueError, zlib.error):
        answer = _ask(source, name, flags, want_ptx, *seconds)
    text = json.dumps([answer.ok, answer.log, base64.b64encode(answer.cubin).decode(), answer.ptx])
    try:
        kept.mkdir(parents=True, exist_ok=True)
        partial = file.with_suffix(f".{os.getpid()}")
        partial.write_bytes(zlib.compress(text.encode(), 1))
        partial.replace(file)
    except OSError:  # a cache that can't be written slows a run, no more
        pass
    return answer


@cache
def _version() -> list[object]:
    """Which NVRTC it is: its version has no patch level, its file a size."""
    return [nvrtc.compiler_version(), Path(nvrtc.library_path()).stat().st_size]


def evict(largest: int = LARGEST) -> None:
    """Delete what was used longest ago, until `largest` bytes are left."""
    kept = folder()
    if kept is None or not kept.is_dir():
        return
    files = []
    for f in kept.glob("*.z"):  # an answer on its way has another name
        with suppress(FileNotFoundError):  # another run evicts as well
            files.append((f.stat(), f))
    files.sort(key=lambda x: -x[0].st_mtime)
    total = 0
    for stat, file in files:
        total += stat.st_size
        if total > largest:
            file.unlink(missing_ok=True)
