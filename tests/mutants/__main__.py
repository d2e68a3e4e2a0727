"""`python -m tests.mutants`: the checker against mutants of the library's programs; writes docs/mutants.md.

Without --all it judges a seeded sample.  A log that exists is resumed: what today's checker has judged of
today's programs is not judged again.  The exit status is 1 where a harmful mutant is proved.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import itertools
import math
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

# Before NumPy is imported: the workers take all cores already.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("WARPLOOM_CACHE", "off")

from tests.fuzz.runner import Log, Pool, Record, Task
from tests.mutants.judge import Judged, judged
from tests.mutants.page import page
from tests.mutants.programs import PROGRAMS, ROOT, program
from warploom.errors import InternalError
from warploom.ir.printer import print_func
from warploom.ir.verify import verify

SAMPLE = {"changed": 16, "conditional": 44, "signed": 28}  # mutants of each program
SLOW = "attention"  # programs of which a quarter of that is judged


def options(argv: Sequence[str] | None) -> argparse.Namespace:
    p = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    p.add_argument("--only", nargs="*", choices=PROGRAMS, default=list(PROGRAMS), metavar="PROGRAM")
    p.add_argument("--all", action="store_true", help="every mutant, not a sample")
    p.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    p.add_argument("--seconds", type=float, default=math.inf, help="stop after so long")
    p.add_argument("--limit", type=float, default=150, help="seconds that one mutant may take")
    p.add_argument("--out", type=Path, default=ROOT / "out" / "mutants.jsonl", help="the log")
    p.add_argument("--page", type=Path, default=ROOT / "docs" / "mutants.md")
    return p.parse_args(argv)


@functools.cache
def checker() -> str:
    """A name for what judges: changes with the text of the checker, of the machine and of the mutants, but
    for lines of comment; the same for every Python."""
    text = hashlib.sha256()
    for folder in ("warploom/check", "warploom/sim", "tests/mutants"):
        for file in sorted((ROOT / folder).glob("*.py")):
            if file.name not in ("page.py", "__main__.py"):
                text.update(re.sub(r"(?m)^ *#.*\n", "", file.read_text(encoding="utf-8")).encode())
    return text.hexdigest()[:12]


@functools.cache
def by(name: str) -> str:
    """Who judged a program's mutants: the checker, and which text of the program."""
    text = hashlib.sha256(print_func(program(name).func).encode()).hexdigest()
    return f"{checker()}/{text[:12]}"


def tasks(names: Sequence[str], everything: bool) -> Iterator[Task]:
    """The mutants in turn, so that as large a part of each program is judged where time ends: the program
    and the kind of mutants, and the number."""
    turns: list[tuple[float, str, int]] = []
    for name, (kind, most) in itertools.product(names, SAMPLE.items()):
        count = len(getattr(program(name), kind))
        if not everything:
            most = most // 4 if name.startswith(SLOW) else most
        n = count if everything else min(count, most)
        numbers = random.Random(f"{name}/{kind}").sample(range(count), n)
        turns += [(i / n, f"{name}/{kind}", number) for i, number in enumerate(numbers)]
    for _, what, number in sorted(turns):
        yield what, number, ""


def work(task: Task) -> Record:
    """Judges one mutant.  One that no program can be, as the verifier says, has no verdict."""
    what, number, _ = task
    name, _, kind = what.rpartition("/")
    p = program(name)
    try:
        verify(getattr(p, kind)[number].func)
    except InternalError:
        return {"what": what, "seed": number, "by": by(name), "status": "ok", "code": "invalid"}
    trials = p.trials if kind == "changed" else [*p.trials, *p.far_trials]
    found = judged(getattr(p, kind)[number], trials, seeds=2, launch=p.far[-1])
    return {"what": what, "seed": number, "by": by(name), **as_data(found)}


def as_data(found: Judged) -> dict[str, Any]:
    mutant, loc = found.mutant, found.mutant.loc
    return {
        "status": "wrong" if found.is_missed else "ok",
        "code": found.code.replace(f"{ROOT}/", ""),
        "at": f"{Path(loc.file).name}:{loc.line}" if loc else "",
        "change": mutant.change,
        "op": mutant.kind.name,
        "mutant": mutant.what,
        "family": mutant.family,
        "harm": found.harm.how,
        "flipped": found.harm.flipped,
        "verdict": found.verdict.value,
        "replays": found.replays,
        "check seconds": round(found.seconds, 1),
    }


def main(argv: Sequence[str] | None = None) -> int:
    o = options(argv)
    log, end = Log(o.out), time.monotonic() + o.seconds
    done = {(r["what"], r["seed"]) for r in log.records if is_current(r)}
    todo = [t for t in tasks(o.only, o.all) if (t[0], t[1]) not in done]
    for name in {what.rpartition("/")[0] for what, _, _ in todo}:
        _ = program(name).trials, program(name).far_trials  # before the fork, once for all workers
    pool = Pool(work, min(o.jobs, max(1, len(todo))), o.limit)
    rest = iter(todo)
    for task in itertools.islice(rest, len(pool.workers)):
        pool.give(task)
    while pool.busy and time.monotonic() < end:
        for record in pool.take(0.2):
            record.setdefault("by", by(record["what"].rpartition("/")[0]))
            log.add(record)
            if record["status"] != "ok":
                say = record.get("mutant") or record["said"]
                sys.stdout.write(f"{record['what']} {record['seed']}: {say}\n")
                sys.stdout.flush()
            for task in itertools.islice(rest, 1):
                pool.give(task)
    pool.close()
    return finish(log, o.page)


def finish(log: Log, file: Path) -> int:
    """Writes the page; 1 where a harmful mutant is proved."""
    last = {(r["what"], r["seed"]): r for r in log.records if is_current(r)}
    records = [last[key] for key in sorted(last)]
    names = [n for n in PROGRAMS if any(r["what"].startswith(f"{n}/") for r in records)]
    counts = {f"{n}/{kind}": len(getattr(program(n), kind)) for n in names for kind in SAMPLE}
    file.write_text(page(records, counts, commit()), encoding="utf-8")
    return int(any(r["status"] == "wrong" for r in records))


def commit() -> str:
    """Of the working tree, for the page."""
    git = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    try:
        found = subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()
    except FileNotFoundError:
        found = ""
    return found or "an unknown commit"


def is_current(record: Record) -> bool:
    name = record["what"].rpartition("/")[0]
    return name in PROGRAMS and record.get("by") == by(name)


if __name__ == "__main__":
    raise SystemExit(main())
