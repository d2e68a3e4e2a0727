"""Runs many seeds on all cores: workers with a time limit for each seed, a log that a later run resumes."""

from __future__ import annotations

import collections
import json
import multiprocessing
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

Task = tuple[
    str, int, str
]  # what to do ("kernel", "script", "shrink", …), a seed, the kind of a failure
Record = dict[str, Any]


@dataclass
class _Worker:
    """A process that does one task after the other."""

    process: Any
    pipe: Connection
    task: Task | None = None
    deadline: float = 0.0


class Pool:
    """Workers that run `work(task) -> record`.  Whichever dies or exceeds its limit is replaced."""

    def __init__(
        self, work: Callable[[Task], Record], jobs: int, limit: float, method: str = "fork"
    ) -> None:
        self.work, self.limit = work, limit
        self.context = multiprocessing.get_context(method)
        self.workers = [self._start() for _ in range(jobs)]

    def _start(self) -> _Worker:
        ours, theirs = self.context.Pipe()
        process = self.context.Process(target=_serve, args=(self.work, theirs), daemon=True)
        process.start()
        theirs.close()
        return _Worker(process, ours)

    @property
    def idle(self) -> list[_Worker]:
        return [w for w in self.workers if w.task is None]

    @property
    def busy(self) -> list[_Worker]:
        return [w for w in self.workers if w.task is not None]

    def give(self, task: Task, limit: float | None = None) -> None:
        """Hands a task to an idle worker."""
        worker = self.idle[0]
        worker.task, worker.deadline = task, time.monotonic() + (limit or self.limit)
        worker.pipe.send(task)

    def take(self, timeout: float) -> Iterator[Record]:
        """What is done by now, after at most `timeout` seconds; a worker that hangs or died is a record, too."""
        busy = self.busy
        ready = set(wait([w.pipe for w in busy], timeout)) if busy else set()
        for w in busy:
            assert w.task is not None
            record = None
            if w.pipe in ready:
                try:
                    record = w.pipe.recv()
                except (EOFError, OSError):
                    record = self._lost(w, "died")
            elif time.monotonic() > w.deadline:
                record = self._lost(w, "hangs")
            if record is not None:
                if record.pop("stop", False):  # it can't do anything more
                    self._replace(w)
                w.task = None
                yield record

    def _lost(self, w: _Worker, code: str) -> Record:
        assert w.task is not None
        what, seed, _ = w.task
        said = f"the process {code} at {what} {seed}"
        self._replace(w)
        return {"what": what, "seed": seed, "status": "error", "code": code, "said": said}

    def _replace(self, w: _Worker) -> None:
        self._stop(w)
        fresh = self._start()
        w.process, w.pipe = fresh.process, fresh.pipe

    def _stop(self, w: _Worker) -> None:
        w.process.kill()
        w.process.join()
        w.pipe.close()

    def close(self) -> None:
        for w in self.workers:
            self._stop(w)


def _serve(work: Callable[[Task], Record], pipe: Connection) -> None:
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    while True:
        try:
            task = pipe.recv()
        except EOFError:
            return
        start = time.process_time()
        record = work(task)
        record["seconds"] = round(time.process_time() - start, 3)
        pipe.send(record)


class Log:
    """A file of one JSON record a line.  What it holds already is done."""

    def __init__(self, path: Path) -> None:
        self.records: list[Record] = []
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            for line in path.read_text().splitlines():
                try:
                    self.records.append(json.loads(line))
                except ValueError:  # the line at which a run was stopped
                    continue
        self.file = path.open("a")

    @property
    def done(self) -> set[tuple[str, int]]:
        return {(r["what"], r["seed"]) for r in self.records}

    def add(self, record: Record) -> None:
        self.records.append(record)
        self.file.write(json.dumps(record) + "\n")
        self.file.flush()


def is_failure(record: Record) -> bool:
    return record["status"] in ("wrong", "error", "invalid")


def kind_of(record: Record) -> str:
    return f"{record['status']}:{record['code']}"


@dataclass
class Run:
    """One run of tasks through a pool into a log.  then: further tasks that a record asks for, each for the pool
    `other` (the GPU's process) where there is one."""

    pool: Pool
    log: Log
    seconds: float
    shrinks: int = 2  # of failures of one kind
    other: Pool | None = None
    follow: Callable[[Record], Task | None] | None = None

    def go(self, tasks: Iterable[Task], say: Callable[[str], None] = print) -> None:
        """Until all is done, or the time is over: then what is under way is dropped, and run by the next run."""
        end = time.monotonic() + self.seconds
        done = self.log.done
        todo = collections.deque(t for t in tasks if (t[0], t[1]) not in done)
        later: collections.deque[Task] = collections.deque()  # for the other pool
        if self.follow and self.other:  # what an earlier run had no time for
            asked = filter(None, map(self.follow, self.log.records))
            later.extend(t for t in asked if (t[0], t[1]) not in done)
        extra: collections.deque[Task] = collections.deque()
        kinds: collections.Counter[str] = collections.Counter()
        told = time.monotonic()
        while time.monotonic() < end:
            while self.pool.idle and (extra or (todo and len(later) < 256)):
                task = extra.popleft() if extra else todo.popleft()
                self.pool.give(task, 4 * self.pool.limit if task[0] == "shrink" else None)
            while self.other and self.other.idle and later:
                self.other.give(later.popleft())
            pools = [p for p in (self.pool, self.other) if p and p.busy]
            if not pools:
                break
            for pool in pools:
                for record in pool.take(0.2 / len(pools)):
                    self.log.add(record)
                    if is_failure(record) and record["what"] != "shrink":
                        kind = kind_of(record)
                        kinds[kind] += 1
                        say(f"{record['what']} {record['seed']}: {kind}")
                        if kinds[kind] <= self.shrinks and record["what"] == "kernel":
                            extra.append(("shrink", record["seed"], kind))
                    task = self.follow(record) if self.follow and self.other else None
                    if task and (task[0], task[1]) not in done:
                        later.append(task)
            if time.monotonic() - told > 30:
                told = time.monotonic()
                say(f"{len(self.log.records)} records, {len(todo)} seeds left")
        self.pool.close()
        if self.other:
            self.other.close()


def summary(records: list[Record], all_ops: set[str]) -> Record:
    """What a log holds, in figures."""
    kernels = [r for r in records if r["what"] == "kernel"]
    scripts = [r for r in records if r["what"] == "script"]
    launched = [r for r in records if r["what"] == "gpu"]
    ran = [r for r in kernels if r["status"] in ("ok", "wrong")]
    ops = {o for r in kernels for o in r.get("ops", ())}
    refused = collections.Counter(r["code"] for r in kernels if r["status"] == "refused")
    failed = [r for r in records if is_failure(r) and r["what"] != "shrink"]
    seconds = [r.get("seconds", 0.0) for r in kernels]
    return {
        "kernels": len(kernels),
        "with dots": sum(bool(r.get("dots")) for r in ran),
        "with dots in registers": sum(bool(r.get("in order")) for r in ran),
        "specialized": round(sum(bool(r.get("specialized")) for r in ran) / max(1, len(ran)), 3),
        "ops": f"{len(ops & all_ops)} of {len(all_ops)}",
        "ops missing": sorted(all_ops - ops),
        "refused": dict(refused.most_common()),
        "core seconds a kernel": round(sum(seconds) / max(1, len(seconds)), 2),
        "scripts": len(scripts),
        "script verdicts": dict(collections.Counter(r["code"] for r in scripts).most_common()),
        "on the GPU": len(launched),
        "failures": {
            k: sorted({r["seed"] for r in failed if kind_of(r) == k})[:20]
            for k in sorted({kind_of(r) for r in failed})
        },
        "failed": len(failed),
    }
