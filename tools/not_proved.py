"""What the checker says of the kernels in tests, lessons and library, each at a launch of its own: how many
are not proved, and why.

python tools/not_proved.py [--global] [--jobs N] [--seconds S] [--out PAGE] [--log FILE] [PART …]

Without --global the whole check, which takes long: with --log a run that was cut short goes on where it was.
The page is docs/not-proved.md (--out).  Parts: eject, library, scripts, lessons, corpus, tutorials; all
by default.
"""

from __future__ import annotations

import argparse
import collections
import datetime
import functools
import itertools
import math
import re
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

from tests.fuzz.runner import Log, Pool, Record, Task
from tests.launches import PARTS, Launch
from tests.mutants.__main__ import commit
from warploom.check import check
from warploom.check.launches import add_global_memory, at_launch
from warploom.check.report import CheckReport


def judged(part: str, launch: Launch, only_global: bool) -> dict[str, Any]:
    """A row of the log."""
    func, case = launch.make()
    start = time.process_time()
    if only_global:
        report = CheckReport(func.name)
        assert case is not None
        add_global_memory(report, func, None, launch=case)
        verdict = at_launch(func, case).verdict
    else:
        report = check(func, launch=case)
        verdict = report.verdict.value
    seconds = time.process_time() - start
    reasons = [e.message for e in report.diagnostics] or [u.reason for u in report.unproved]
    if verdict == "not proved" and not reasons:
        reasons = ["no input was found that runs it"]
    reasons = [re.sub(r"\S*/([\w.]+:\d+)", r"\1", reason) for reason in reasons]
    scope = "proved" if report.of_launch is None else "proved at the launch"
    return {
        "part": part, "name": launch.name, "verdict": scope if verdict == "proved" else verdict,
        "reasons": list(dict.fromkeys(reasons)), "check seconds": round(seconds, 2),
    }  # fmt: skip


def page(rows: list[dict[str, Any]], only_global: bool) -> str:
    """The table, then each kernel that is not proved."""
    verdicts = ("proved", "proved at the launch", "not proved", "broken")
    counts = collections.Counter((row["part"], row["verdict"]) for row in rows)
    what = "global memory within a launch" if only_global else "all that it looks at"
    lines = [
        "# What is not proved",
        "",
        f"What the checker says of {what}, for the kernels in tests, lessons and library, each at a",
        "launch of its own (`tests/launches.py`); made by `python tools/not_proved.py`.  *Proved* is for all",
        "launches that keep the conditions which the report prints; *at the launch* for the one asked about.",
        f"Of {datetime.date.today()}, at {commit()}.",
        "",
        "| part | kernels | " + " | ".join(verdicts) + " |",
        "| --- |" + " ---: |" * (1 + len(verdicts)),
    ]
    parts = list(dict.fromkeys(row["part"] for row in rows))
    for part in parts:
        each = [counts[part, verdict] for verdict in verdicts]
        lines.append(f"| {part} | {sum(each)} | {' | '.join(map(str, each))} |")
    every = [sum(counts[part, verdict] for part in parts) for verdict in verdicts]
    lines.append(f"| all | {len(rows)} | {' | '.join(map(str, every))} |")
    share = 100 * every[2] / max(len(rows), 1)
    lines += ["", f"Not proved: {every[2]} of {len(rows)}, {share:.1f} %.", ""]
    for row in rows:
        if row["verdict"] in ("not proved", "broken"):
            lines.append(f"- **{row['part']} {row['name']}**, {row['verdict']}:")
            lines += [f"  - {shortened(reason)}" for reason in row["reasons"]]
    return "\n".join(lines) + "\n"


def shortened(reason: str, most: int = 220) -> str:
    return reason if len(reason) <= most else reason[: most - 1] + "…"


@functools.cache
def launches(part: str) -> dict[str, Launch]:
    return {launch.name: launch for launch in PARTS[part]()}


def judged_by_name(task: Task) -> Record:
    """As a process of the pool does it."""
    warnings.simplefilter("ignore")
    what, _, scope = task
    part, _, name = what.partition("/")
    return {"what": what, "seed": 0, **judged(part, launches(part)[name], scope == "global")}


def as_row(record: Record) -> dict[str, Any]:
    """Of the log; a kernel whose check took too long, or ended its process, has one, too."""
    if "verdict" in record:
        return record
    part, _, name = record["what"].partition("/")
    code = {"hangs": "the check took longer than the limit"}.get(record["code"], record["said"])
    return {
        "part": part,
        "name": name,
        "verdict": "not proved",
        "reasons": [code],
        "check seconds": 0.0,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", default=list(PARTS))
    parser.add_argument("--global", dest="only_global", action="store_true")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=math.inf, help="stop after so long")
    parser.add_argument("--limit", type=float, default=300, help="seconds that one check may take")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--log", type=Path)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        log, end = Log(args.log or Path(folder) / "log"), time.monotonic() + args.seconds
        done, scope = {r["what"] for r in log.records}, "global" if args.only_global else ""
        every = [f"{part}/{name}" for part in args.parts for name in launches(part)]
        todo = iter([what for what in every if what not in done])
        pool = Pool(judged_by_name, args.jobs, args.limit)
        for what in itertools.islice(todo, args.jobs):
            pool.give((what, 0, scope))
        while pool.busy and time.monotonic() < end:
            for record in pool.take(0.2):
                log.add(record)
                row = as_row(record)
                if row["verdict"] in ("not proved", "broken") or row["check seconds"] > 10:
                    words = row["part"], row["name"], row["verdict"], f"{row['check seconds']} s"
                    print(*words, *row["reasons"][:3], sep=" | ", flush=True)
                for what in itertools.islice(todo, 1):
                    pool.give((what, 0, scope))
        pool.close()
        place = {what: i for i, what in enumerate(every)}
        found = [r for r in log.records if r["what"] in place]
        rows = [as_row(r) for r in sorted(found, key=lambda r: place[r["what"]])]
    text = page(rows, args.only_global)
    if args.out is not None:
        args.out.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
