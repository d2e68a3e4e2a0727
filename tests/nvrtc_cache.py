"""NVRTC's answers, kept between runs of the suite.

What NVRTC says is a function of the text, the options and its version, and most tests of most commits ask what
was asked before: half of the suite's time.  Answers are kept (kept.py) by the hash of the question; what can't
be read is asked again.  Refusals are answers too.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import zlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from tests.kept import folder, write
from warploom.runtime import nvrtc
from warploom.runtime.nvrtc_process import Answer

_ask = nvrtc._run


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
    write(file, zlib.compress(text.encode(), 1))
    return answer


@cache
def _version() -> list[object]:
    """Which NVRTC it is: its version has no patch level, its file a size."""
    return [nvrtc.compiler_version(), Path(nvrtc.library_path()).stat().st_size]
