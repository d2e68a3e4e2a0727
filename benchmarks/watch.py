"""A harness in a process of its own: what takes it down, or hangs, is left out when it begins again.

Peers are other people's compilers and kernels.  The harness writes down each step before it takes it, and
its report after each case; so the cases that are done are kept, and the configuration that it died in is
skipped.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

SILENT_S = 180.0  # no step takes longer; the first kernel of a peer may be compiled in it
RESTARTS = 12
HARNESS = (sys.executable, "-m", "benchmarks.harness")


class Failed(Exception):
    """The harness can't go on: it stops before its first step, or again and again."""


def watch(
    arguments: Sequence[str],
    out: Path,
    *,
    command: Sequence[str] = HARNESS,
    silent_s: float = SILENT_S,
    say: Callable[[str], None] = print,
) -> list[list[str]]:
    """Runs the harness with `arguments` until its report is complete, in `out`.

    Returns the (case, peer, configuration)s that took it down.  Raises Failed."""
    fallen: list[list[str]] = []
    with tempfile.TemporaryDirectory() as folder:
        steps, skip = Path(folder) / "steps", Path(folder) / "skip"
        for _ in range(RESTARTS + 1):
            steps.unlink(missing_ok=True)
            skip.write_text(json.dumps(fallen))
            given = ["--out", out, "--steps", steps, "--skip", skip, *(["--resume"] * bool(fallen))]
            child = subprocess.Popen([*command, *arguments, *map(str, given)])
            try:
                how = _ended(child, steps, silent_s)
            finally:
                child.kill()
                child.wait()
            if how == "":
                return fallen
            if not steps.exists():
                raise Failed(f"the harness {how} before its first step")
            step = json.loads(steps.read_text())
            if step in fallen:
                raise Failed(f"the harness {how} in {', '.join(step)}, which was to be left out")
            fallen.append(step)
            say(f"the harness {how} in {', '.join(step)}: left out")
    raise Failed(f"the harness was begun {RESTARTS + 1} times")


def _ended(child: subprocess.Popen[bytes], steps: Path, silent_s: float) -> str:
    """How the child ended: "" for well."""
    begun = time.time()
    while (code := child.poll()) is None:
        last = steps.stat().st_mtime if steps.exists() else begun
        if time.time() - max(last, begun) > silent_s:
            return f"was silent for {silent_s:.0f} s"
        time.sleep(0.2)
    if code == 0:
        return ""
    return f"was killed by signal {-code}" if code < 0 else f"failed (exit code {code})"
