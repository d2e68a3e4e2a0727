"""Operators of liger-kernel and flash-linear-attention, forward and backward, and the programs of
corpus/as_triton (--only ^program), their Triton served from here.

    python -m benchmarks.third_party --out out/third_party.jsonl [--only "fla chunk_"]   # without a GPU
    python -m benchmarks.third_party --simulate --out out/simulated.jsonl              # tiny, as compiled
    python -m benchmarks.third_party --gpu --out out/third_party_gpu.jsonl [--limit 200] # beside Triton
    python -m benchmarks.third_party --counters out/ncu --out out/third_party_gpu.jsonl # why some are slower
    python -m benchmarks.third_party --tune 8 --jobs 14 --out out/tuned.jsonl            # makes configs.json
    python -m benchmarks.third_party --show out/third_party.jsonl

Without a GPU each operator runs on the oracle with small inputs, is compared with its reference, and each
kind of launch that it makes is compiled.  With --simulate every kernel runs as it is compiled, on the
simulator, with tiny inputs, and is checked for deadlocks and races.  With a GPU it also runs on inputs of
real size, where each kind of launch is compared with Triton's and timed beside it: the same text, arguments
and configuration, in one process.  Every operator has a process of its own, with a time limit.  Operators
that the output has are left out.  Beside the output lie its records (`benchmarks.records`).
The libraries must be importable: liger-kernel 0.8.5, flash-linear-attention 0.6.0, einops.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import math
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.measure import begun
from benchmarks.records import Record, write
from benchmarks.third_party.counted import (
    LONG,
    SLOW,
    add,
    ratio,
    slow_of,
    under_ncu,
    with_counters,
)

CHOSEN = Path(__file__).with_name("configs.json")


def named() -> dict[str, Any]:
    """All operators, by library and name."""
    from benchmarks.third_party import fla, liger, programs

    found = {f"liger {o.name}": o for o in liger.operators()}
    found |= {f"fla {o.name}": o for o in fla.operators()}
    return found | {f"program {o.name}": o for o in programs.operators()}


def one(name: str, args: argparse.Namespace) -> None:
    """The process of one operator: prints what it found as the last line."""
    from benchmarks.third_party.launches import serve

    faulthandler.dump_traceback_later(0.7 * args.seconds)  # where it is stuck
    serve(pretend=not (args.gpu or args.tune or args.counters))
    if args.simulate:
        from benchmarks.third_party.check import simulate

        for told in simulate(named()[name]):
            say(name, told)
        return
    if args.tune:
        from benchmarks.third_party.beside import tune

        told = tune(named()[name], args.tune)
    elif args.gpu or args.counters:
        from benchmarks.third_party.beside import beside

        slow = [one for f in read(args.out) if f["operator"] == name for one in slow_of(f)]
        told = beside(named()[name], args.bursts, slow if args.counters else None)
    else:
        from benchmarks.third_party.check import check
        from benchmarks.third_party.installed import Triton

        theirs = Triton() if args.triton else None
        told = check(named()[name], not args.no_compile, theirs, args.dry)
    say(name, told)


def say(name: str, told: dict[str, Any]) -> None:
    """To the process that waits for it."""
    print("FOUND " + json.dumps({"operator": name, **told}), flush=True)


class Child:
    """An operator's process."""

    def __init__(self, name: str, args: argparse.Namespace, caches: str) -> None:
        self.name, self._limit = name, args.seconds
        command = [sys.executable, "-m", "benchmarks.third_party", *sys.argv[1:], "--one", name]
        own = {"TRITON_CACHE_DIR": f"{caches}/triton", "WARPLOOM_CACHE": f"{caches}/warploom"}
        self._report = args.counters and args.counters / (re.sub(r"\W+", "_", name) + ".ncu-rep")
        if self._report:
            command = [*under_ncu(self._report), *command]
        pipe = subprocess.PIPE
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the child
        environment = os.environ | (own if caches else {})
        if self._report:  # a folder of its own, or it waits for another's lock
            environment |= {"TMPDIR": tempfile.mkdtemp()}
        self._process = subprocess.Popen(
            command,
            stdin=pipe,
            stdout=pipe,
            stderr=self._log,
            text=True,
            env=environment,
            start_new_session=True,
        )
        self._last: str | None = None  # that was found, should it take too long

    def until(self, word: str) -> bool:
        """Reads on to a line that begins with a word; not where the process ends or takes too long."""
        with ThreadPoolExecutor(1) as pool:
            found = pool.submit(self._lines, word)
            try:
                return found.result(timeout=self._limit)
            except TimeoutError:
                self._end()
                return False

    def _end(self) -> None:
        """With what it has started, which may hold its output open."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def _lines(self, word: str) -> bool:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("FOUND "):
                self._last = line.removeprefix("FOUND ")
            if word and line.startswith(word):
                return True
        return False

    def go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def found(self) -> dict[str, Any]:
        self.until("")
        self._end()
        code = self._process.wait()
        if self._last is not None:
            found: dict[str, Any] = json.loads(self._last)
            if self._report:
                add(found, self._report)
            return found
        self._log.seek(0)
        last = self._log.read().strip()[-1500:]
        return {"operator": self.name, "error": f"the process ended with code {code}: {last}"}


def checks(names: Sequence[str], args: argparse.Namespace, caches: str) -> Iterator[dict[str, Any]]:
    with ThreadPoolExecutor(args.jobs) as pool:
        yield from pool.map(lambda name: Child(name, args, caches).found(), names)


def timings(
    names: Sequence[str], args: argparse.Namespace, caches: str
) -> Iterator[dict[str, Any]]:
    """A batch of operators is prepared at a time, on all cores; then they are timed one after the other."""
    start = time.monotonic()
    for at in range(0, len(names), args.jobs):
        if time.monotonic() - start > args.limit:
            return
        children = [Child(name, args, caches) for name in names[at : at + args.jobs]]
        with ThreadPoolExecutor(len(children)) as pool:
            ready = list(pool.map(lambda child: child.until("READY"), children))
        for child, is_ready in zip(children, ready, strict=True):
            if is_ready:
                child.go()
            yield child.found()
        print(f"at {time.monotonic() - start:.0f} s", flush=True)


def read(path: Path) -> list[dict[str, Any]]:
    """What an output holds; of an operator that was run again the last."""
    lines = path.read_text().splitlines() if path.exists() else []
    found = {f["operator"]: f for f in map(json.loads, lines)}
    return list(found.values())


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out/third_party.jsonl"))
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument(
        "--only", default="", help="operators whose name holds this (an expression)"
    )
    parser.add_argument("--part", default="0/1", help="every n-th operator from the i-th on: i/n")
    parser.add_argument(
        "--tune", type=int, default=0, help="so many configs of each kernel, by Triton"
    )
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=300, help="for one operator's process")
    parser.add_argument("--limit", type=float, default=math.inf, help="begin no batch after (s)")
    parser.add_argument("--bursts", type=int, default=5)
    parser.add_argument(
        "--counters",
        type=Path,
        metavar="FOLDER",
        help="what bounds those of the output that are slower than Triton's; reports go here",
    )
    parser.add_argument("--no-compile", action="store_true", help="only run on the oracle")
    parser.add_argument(
        "--simulate", action="store_true", help="tiny sizes on the simulator; then check()"
    )
    parser.add_argument("--dry", action="store_true", help="real sizes; only compile")
    parser.add_argument(
        "--triton", action="store_true", help="also compile by the installed Triton"
    )
    parser.add_argument("--warm", action="store_true", help="use the caches that are there")
    parser.add_argument("--again", action="store_true", help="also what the output has")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--show", type=Path, help="tables of an output")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.one:
        one(args.one, args)
        return 0
    if args.show:
        print("\n".join(table(read(args.show))))
        return 0
    part, parts = map(int, args.part.split("/"))
    names = [n for n in named() if re.search(args.only, n)][part::parts]
    if args.list:
        print("\n".join(names))
        return 0
    for folder in filter(None, (args.out.parent, args.counters)):
        folder.mkdir(parents=True, exist_ok=True)
    known = {f["operator"]: f for f in read(args.out)}
    if args.counters:
        names = [n for n in names if n in known and slow_of(known[n])]
    elif not args.again:
        names = [n for n in names if n not in known]
    with tempfile.TemporaryDirectory() as folder, args.out.open("a") as out:
        run = timings if (args.gpu or args.counters) and not args.tune else checks
        for found in run(names, args, "" if args.warm else folder):
            if args.counters:
                found = with_counters(known[found["operator"]], found)
            out.write(json.dumps(found) + "\n")
            out.flush()
            print(line(found), flush=True)
    if args.tune:
        tuned = {k: c for f in read(args.out) for k, c in f.get("configs", {}).items()}
        CHOSEN.write_text(json.dumps(dict(sorted(tuned.items())), indent=1) + "\n")
        return 0
    found = read(args.out)
    if args.gpu:
        report, run = begun("us")
        report.records += records(found, run)
        write(args.out.with_suffix(".records.jsonl"), report)
    print("\n".join(summary(found)))
    return 0


# ---- tables


def records(found: Sequence[dict[str, Any]], run: str) -> Iterator[Record]:
    """Of each operator the microseconds of all kinds of its launches together, forward and backward, by
    either compiler; and which kind is slowest beside the other one's."""
    for f in found:
        both = [one for one in f.get("launches", []) if ratio(one)]
        if not both:
            continue
        worst = min(both, key=_slowness)
        kernel = worst["kernel"].rpartition("/")[2]
        least = f"least {ratio(worst):.2f}, {kernel}" if len(both) > 1 else ""
        for peer, name in (("warploom", "us"), ("Triton", "triton_us")):
            total = sum(statistics.median(one[name]) for one in both)
            error = "wrong" if f.get("right") is False else ""
            config = f"{len(both)} kinds of launches; {least}" if peer == "warploom" else ""
            yield Record(f["operator"], peer, run, [round(total, 1)], config=config, error=error)


def _slowness(one: dict[str, Any]) -> float:
    return ratio(one) or math.inf


def line(found: dict[str, Any]) -> str:
    launches = found.get("launches", [])
    compiled = sum("registers" in one for one in launches)
    checked = Counter(one["check"] for one in launches if "check" in one)
    worst = max(found.get("errors", {}).values(), default=math.nan)
    verdict = {True: "right", False: "WRONG", None: "no reference"}[found.get("right")]
    if "error" in found:
        verdict = f"FAILED {found['error'].splitlines()[0][:150] if found['error'] else ''}"
    ratios = [r for one in launches if (r := ratio(one))]
    beside = f"  x{geometric(ratios):.2f} (min {min(ratios):.2f})" if ratios else ""
    said = "".join(f"  {n} {verdict_}" for verdict_, n in checked.items())
    return (
        f"{found['operator']:44s} {verdict} {worst:.1e}  {compiled}/{len(launches)}{beside}{said}"
    )


def geometric(values: Sequence[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, values)))


def summary(found: Sequence[dict[str, Any]]) -> Iterator[str]:
    launches = [one for f in found for one in f.get("launches", [])]
    by_kernel: dict[str, list[dict[str, Any]]] = {}
    for one in launches:
        by_kernel.setdefault(one["kernel"], []).append(one)
    good = [k for k, ones in by_kernel.items() if all("registers" in one for one in ones)]
    yield f"{len(found)} operators: {Counter(f.get('right') for f in found)} right"
    yield f"{sum('error' in f for f in found)} operators failed"
    yield f"{len(by_kernel)} kernels met, {len(good)} compiled in all {len(launches)} kinds of launches"
    reasons = Counter(
        one["compile_refused"].splitlines()[0] for one in launches if "compile_refused" in one
    )
    yield from (f"  refused {n} times: {why}" for why, n in reasons.most_common())
    for one in launches:
        if one.get("spills"):
            yield f"  {one['spills']} bytes spilled: {one['kernel']}"
    if checked := Counter(one["check"] for one in launches if "check" in one):
        yield f"{checked.total()} of {len(launches)} kinds of launches checked: {dict(checked)}"
        again = Counter(
            f"{one['kernel']}: {one['check']}" for one in launches if "check_says" in one
        )
        yield from (f"  {n} times {what}" for what, n in again.items())
    cold = [one for one in launches if "registers" in one and not one.get("cached")]
    if cold:
        slow = sorted(cold, key=lambda one: -one["compile_seconds"])
        mean = geometric([max(one["compile_seconds"], 1e-3) for one in cold])
        yield f"cold compile: geometric mean {mean:.2f} s, {len(cold)} launches; slowest"
        yield from (f"  {one['compile_seconds']:.2f} s {one['kernel']}" for one in slow[:10])
    both = [one for one in cold if "triton_compile_seconds" in one]
    if both:
        relative = [
            max(one["compile_seconds"], 1e-3) / max(one["triton_compile_seconds"], 1e-3)
            for one in both
        ]
        yield f"  of Triton's: {geometric(relative):.2f} in geometric mean"
    ratios = [r for one in launches if (r := ratio(one))]
    if ratios:
        mean, least = geometric(ratios), min(ratios)
        yield f"Triton's time over ours: {mean:.3f}, {len(ratios)} launches, min {least:.2f}"
        long = [one for one in launches if ratio(one) and statistics.median(one["us"]) >= LONG]
        slow = sorted((one for f in found for one in slow_of(f)), key=_slowness)
        yield f"under {SLOW} of those that take {LONG} us: {len(slow)} of {len(long)}"
        yield from (f"  {ratio(one):.2f} {one['kernel']}" for one in slow)


def table(found: Sequence[dict[str, Any]]) -> Iterator[str]:
    for f in found:
        yield line(f)
        for one in f.get("launches", []):
            told = one.get("compile_refused", "").splitlines()[:1] or [
                f"{'rings' if one.get('rings') else ''} {one.get('threads')} threads, "
                f"{one.get('registers')} registers, {one.get('spills')} spilled, "
                f"{one.get('shared')} shared, {one.get('compile_seconds')} s"
            ]
            beside = ""
            if (r := ratio(one)) is not None:
                us, theirs = (statistics.median(one[n]) for n in ("us", "triton_us"))
                beside = f"  {r:.2f}: {us:.1f} us, Triton {theirs:.1f}; off {one.get('off', math.nan):.1e}"
            yield f"    {one['kernel']} {one['grid']}: {told[0]}{beside}"
    yield from summary(found)


if __name__ == "__main__":
    raise SystemExit(main())
