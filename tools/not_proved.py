"""What the checker says of the kernels in tests, lessons and library, each at a launch of its own: how many
are not proved, and why.

python tools/not_proved.py [--global] [--jobs N] [--out PAGE] [--log FILE] [PART …]

Without --global the whole check, which takes long: with --log a run that was cut short goes on where it was.
The page is docs/not-proved.md (--out).  Parts: eject, library, scripts, lessons, corpus, tutorials; all
by default.
"""

from __future__ import annotations

import argparse
import collections
import functools
import json
import re
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from tests.launches import PARTS, Launch
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
        "reasons": list(dict.fromkeys(reasons)), "seconds": round(seconds, 2),
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


def judged_by_name(key: tuple[str, str, bool]) -> dict[str, Any]:
    """As a process of the pool does it."""
    warnings.simplefilter("ignore")
    part, name, only_global = key
    return judged(part, launches(part)[name], only_global)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", default=list(PARTS))
    parser.add_argument("--global", dest="only_global", action="store_true")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--log", type=Path)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = []
    if args.log is not None and args.log.exists():
        rows = [json.loads(line) for line in args.log.read_text().splitlines()]
    done = {(row["part"], row["name"]) for row in rows}
    keys = [(part, name, args.only_global) for part in args.parts for name in launches(part)]
    keys = [key for key in keys if key[:2] not in done]
    with ProcessPoolExecutor(args.jobs) as pool:
        for row in pool.map(judged_by_name, keys):
            rows.append(row)
            if args.log is not None:
                with args.log.open("a") as log:
                    log.write(json.dumps(row) + "\n")
            if row["verdict"] in ("not proved", "broken") or row["seconds"] > 10:
                words = row["part"], row["name"], row["verdict"], f"{row['seconds']} s"
                print(*words, *row["reasons"][:3], sep=" | ", flush=True)
    text = page(rows, args.only_global)
    if args.out is not None:
        args.out.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
