"""`python -m tests.fuzz --kernels N --scripts N`: random kernels and random broken scripts on all cores.

A log (--out) that exists is resumed.  The exit status is 1 where anything failed.  docs/fuzzing.md tells more."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

# Before NumPy and warploom are imported: the workers take all cores already, and have a cache of their own.
os.environ["OPENBLAS_NUM_THREADS"] = "1"


def options() -> argparse.Namespace:
    p = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    p.add_argument("--kernels", type=int, default=200, help="how many seeds of kernels")
    p.add_argument("--scripts", type=int, default=0, help="how many seeds of scripts")
    p.add_argument("--first", type=int, default=0, help="the first seed")
    p.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    p.add_argument("--seconds", type=float, default=1e9, help="stop after so long")
    p.add_argument("--limit", type=float, default=60, help="seconds that one kernel may take")
    p.add_argument("--orders", type=int, default=1, help="orders of the simulator, beside `late`")
    p.add_argument(
        "--gpu", action="store_true", help="compile to cubins, launch and compare as well"
    )
    p.add_argument("--out", type=Path, default=Path("out/fuzz.jsonl"))
    p.add_argument(
        "--reproducers", type=Path, help="write those of a finished log into this folder, and end"
    )
    return p.parse_args()


def main() -> int:
    o = options()
    folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
    os.environ["WARPLOOM_CACHE"] = str(folder / "cache") if o.gpu else "off"
    from tests.fuzz import work
    from tests.fuzz.runner import Log, Pool, Run, summary

    log = Log(o.out)
    if o.reproducers:
        return _unpack(log.records, o.reproducers)
    pool = Pool(partial(work.work, folder=folder, orders=o.orders, nvrtc=o.gpu), o.jobs, o.limit)
    other = None
    if o.gpu:
        from tests.fuzz import gpu

        # Several, since most of a launch's time is spent on the host.
        launchers = max(1, o.jobs // 4)
        other = Pool(partial(gpu.work, folder=folder), launchers, o.limit, "spawn")
    seeds = range(o.first, o.first + max(o.kernels, o.scripts))
    tasks = (
        (what, seed, "")
        for seed in seeds
        for what, n in (("kernel", o.kernels), ("script", o.scripts))
        if seed - o.first < n
    )
    follow = (
        (
            lambda r: (
                ("gpu", r["seed"], "") if r["what"] == "kernel" and r["status"] == "ok" else None
            )
        )
        if o.gpu
        else None
    )
    Run(pool, log, o.seconds, other=other, follow=follow).go(tasks, partial(print, flush=True))
    found = summary(log.records, work.all_ops())
    o.out.with_suffix(".summary.json").write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))
    return 1 if found["failed"] else 0


def _unpack(records: list[dict[str, Any]], folder: Path) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    for r in records:
        if r.get("reproducer"):
            path = folder / f"{r['what']}_{r['seed']}.py"
            path.write_text(r["reproducer"])
            print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
