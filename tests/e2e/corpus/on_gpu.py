"""Third-party kernels on a GPU:  python -m tests.e2e.corpus.on_gpu OUT.json [PART OF NAME …] [--lanes 14] [--seconds 140]

Lanes are processes that compile, launch and judge one product after the other.  What hangs or takes its
context down costs only its lane, which begins again.  Results are written as they come; what `seconds` did not
reach is listed as not run."""

from __future__ import annotations

import argparse
import json
import multiprocessing as mp
import os
import sys
import time
import warnings
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from corpus.arrays import download, upload
from corpus.case import Case
from tests.e2e.corpus.judging import arrays
from warploom.errors import WarploomWarning

SECONDS = 25  # for one kernel
# More for a lane's first: it makes all cases, imports torch and makes a context, beside all others.
START_SECONDS = 120


def run(case: Case, knobs: dict[str, Any]) -> str:
    """'' where three launches give what the case wants, else what is wrong."""
    import torch

    for _ in range(3):
        args = [upload(a) for a in case.args]
        case.kernel[case.grid](*args, **case.meta, **{**knobs, **case.knobs})
        torch.cuda.synchronize()
        found = [
            download(d, a.dtype) if i in case.wants else None
            for i, (d, a) in enumerate(zip(args, arrays(case.args), strict=True))
        ]
        wrong = case.judge(tuple(found))
        if wrong:
            return wrong
    return ""


def one(case: Case, knobs: dict[str, Any]) -> dict[str, Any]:
    start = time.perf_counter()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always", WarploomWarning)
        try:
            wrong = run(case, knobs)
        except Exception as e:
            wrong = f"{type(e).__name__}: {e}"
    told = [str(w.message).splitlines()[0] for w in seen]
    return {"wrong": wrong, "told": told, "seconds": time.perf_counter() - start}


def work(tasks: Any) -> None:
    """A lane's process: (name, form) in, what came of it out."""
    from corpus import catalog
    from tests.e2e.corpus import judging

    cases = {c.name: c for c in catalog.everything()}
    while True:
        name, form = tasks.recv()
        tasks.send(one(cases[name], judging.FORMS[form]))


class Lane:
    """A process that is begun again when it has died or hangs, or its context may be unusable."""

    def __init__(self, context: Any) -> None:
        self.context, self.process, self.job = context, None, None

    def give(self, job: tuple[str, str]) -> None:
        if self.process is None:
            self.pipe, theirs = self.context.Pipe()
            self.process = self.context.Process(target=work, args=(theirs,), daemon=True)
            self.process.start()
            theirs.close()  # so that a dead process is the end of the pipe
            self.patience = SECONDS + START_SECONDS
        self.job, self.since = job, time.perf_counter()
        self.pipe.send(job)

    def take(self) -> dict[str, Any] | None:
        """What came of the job; None where that is open."""
        assert self.process is not None
        if self.pipe.poll():
            try:
                got: dict[str, Any] = self.pipe.recv()
            except (EOFError, ConnectionError):
                self.process.join(1)
                got = {"wrong": f"the process died ({self.process.exitcode})"}
        elif time.perf_counter() - self.since > self.patience:
            got = {"wrong": f"no answer in {self.patience} s"}
        else:
            return None
        self.job, self.patience = None, SECONDS
        if got["wrong"] and not got["wrong"].startswith(("argument ", "CompileError")):
            self.process.kill()
            self.process = None
        return got


def main() -> None:
    from corpus import catalog
    from tests.e2e.corpus import judging

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--lanes", type=int, default=14)
    parser.add_argument("--seconds", type=float, default=140, help="for the whole run")
    options = parser.parse_args()
    begin = time.perf_counter()
    names = dict.fromkeys(c.name for c in catalog.everything())
    parts = options.names
    todo = [
        (n, f) for n in names for f in judging.FORMS if not parts or any(p in n for p in parts)
    ][::-1]
    found: dict[str, Any] = {" ".join(job): {"wrong": "not run"} for job in todo[::-1]}
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # of each lane
    context = mp.get_context("spawn")
    lanes = [Lane(context) for _ in range(options.lanes)]
    while time.perf_counter() - begin < options.seconds:
        for lane in lanes:
            if lane.job is None and todo:
                lane.give(todo.pop())
        busy = [lane for lane in lanes if lane.job]
        if not busy:
            break
        wait([lane.pipe for lane in busy], timeout=0.5)
        for lane in busy:
            name = " ".join(lane.job)
            if (got := lane.take()) is None:
                continue
            found[name] = got
            if got["wrong"]:
                print(name, got["wrong"][:300], flush=True)
            fresh = options.out.with_suffix(".part")
            fresh.write_text(json.dumps(found, indent=1))
            fresh.replace(options.out)
    for lane in lanes:
        if lane.process is not None:
            lane.process.kill()
    bad = [n for n, g in found.items() if g["wrong"] not in ("", "not run")]
    late = [n for n, g in found.items() if g["wrong"] == "not run"]
    print(f"{len(found) - len(late)} runs, {len(bad)} of them wrong; {len(late)} not run {late}")
    sys.exit(bool(bad or late))


if __name__ == "__main__":
    main()
