"""Times implementations of one workload side by side, after checking each against float64.

    python -m benchmarks.harness --peers cublas,yardstick --cases core --out results.json

Definitions.  One *repetition* launches an implementation back to back over several input sets (together
larger than the L2), with a CUDA event between launches, and takes the median of the launches.

* **burst**: about 10 ms of launches after 0.12 s of idleness.  Repeats within about 0.5 %.
* **sustained**: about 60 ms of launches after 20 ms of the same: the card is hot and at its power
  limit.  Spreads by 5-10 %, so it is reported beside the burst and decides nothing.

Implementations take turns within each repetition, so that drift hits all alike; the figure of one is
the median over its repetitions.  Inputs are normally distributed; outputs are NaN before a checked run.
A wrong implementation gets no time.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import statistics
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from benchmarks.cases import CASES, Attention, Awkward, Case, Dual, Fp8, Gemm

BURST_MS, IDLE_S = 10.0, 0.12
SUSTAINED_MS, WARM_MS = 60.0, 20.0
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
FINALISTS = 4
TOLERANCE = 6e-3  # of ‖out − ref‖ / ‖ref‖; bf16 rounding alone gives 1.7e-3

Run = Callable[
    [int], object
]  # launches on input set i; writes outputs[i], or returns its own output


@dataclass
class Reference:
    """What an output should be, in float64, and how far an element may be off."""

    value: Any
    bound: Any


@dataclass
class Data:
    """The tensors of one case: `a[i]` is M×K, `b[i]` K×N (a transposed view for TN), `c[i]` M×N."""

    case: Gemm
    a: list[Any]
    b: list[Any]
    c: list[Any]

    def __len__(self) -> int:
        return len(self.a)

    @property
    def outputs(self) -> list[Any]:
        return self.c

    def reference(self, i: int) -> Reference:
        """Bound: rounding of the result, and of a float32 sum of K products of order 1."""
        value = self.a[i].double() @ self.b[i].double()
        eps = torch.finfo(DTYPES[self.case.dtype]).eps
        return Reference(value, value.abs() * eps + 1e-3 * math.sqrt(self.case.k))


@dataclass
class AttentionData:
    """The tensors of one case: q[i], k[i], v[i], o[i] are (batch, heads, seq, d), contiguous."""

    case: Attention
    q: list[Any]
    k: list[Any]
    v: list[Any]
    o: list[Any]

    def __len__(self) -> int:
        return len(self.q)

    @property
    def outputs(self) -> list[Any]:
        return self.o

    def reference(self, i: int) -> Reference:
        """Bound: rounding of the result, and of probabilities p to the dtype: errors of eps/2·p·v, as good as
        independent, so 16 times their deviation, which is at most eps/2·√(Σ p²v²)."""
        q, k, v = (x[i].flatten(0, 1) for x in (self.q, self.k, self.v))
        heads, seq, d = q.shape
        value = torch.empty(heads, seq, d, device="cuda", dtype=torch.float64)
        deviation = torch.empty_like(value)
        step = 2048
        for head in range(heads):
            kh, vh = k[head].double(), v[head].double()
            for row in range(0, seq, step):
                s = q[head, row : row + step].double() @ kh.t() / math.sqrt(d)
                if self.case.causal:
                    s += torch.full_like(s, -math.inf).triu_(row + 1)
                p = torch.softmax(s, 1)
                value[head, row : row + step] = p @ vh
                deviation[head, row : row + step] = (p.square_() @ vh.square()).sqrt_()
        eps = torch.finfo(DTYPES[self.case.dtype]).eps
        shape = self.o[i].shape
        bound = value.abs() * eps + 16 * eps / 2 * deviation
        return Reference(value.view(shape), bound.view(shape))


AnyData = Any  # of a case: Data, AttentionData, or one of products.py


@dataclass
class Candidate:
    """One configuration of a peer; `make` compiles and binds it (and may raise)."""

    label: str
    make: Callable[[], Run]


@dataclass
class Entry:
    """What is known of one peer on one case; becomes one JSON record."""

    case: str
    peer: str
    params: dict[str, Any]
    flops: int
    config: str = ""
    error: str = ""
    rel_err: float = math.nan
    burst: list[float] = field(default_factory=list)  # TFLOP/s, one a repetition
    sustained: list[float] = field(default_factory=list)
    tried: list[tuple[str, float | str]] = field(default_factory=list)


def input_sets(bytes_each: int) -> int:
    """Enough input sets to exceed four times the L2 (at least 2, at most 12)."""
    l2 = torch.cuda.get_device_properties(0).L2_cache_size
    return max(2, min(12, math.ceil(4 * l2 / bytes_each)))


def make_data(case: Case, seed: int = 0) -> Any:
    """Random inputs, several sets, as the case's kind of data."""
    random = torch.Generator(device="cuda").manual_seed(seed)
    if isinstance(case, Dual | Fp8 | Awkward):
        from benchmarks import products

        kinds: dict[str, Any] = {
            "dual": products.DualData,
            "fp8": products.Fp8Data,
            "awkward": products.AwkwardData,
        }
        return kinds[case.kind].make(case, random)
    dtype = DTYPES[case.dtype]

    def normal(*shape: int) -> Any:
        return torch.randn(*shape, device="cuda", generator=random).to(dtype)

    if isinstance(case, Attention):
        shape = (case.batch, case.heads, case.seq, case.d)
        n = range(input_sets(3 * 2 * math.prod(shape)))
        q, k, v = ([normal(*shape) for _ in n] for _ in range(3))
        return AttentionData(case, q, k, v, [torch.empty_like(x) for x in q])
    sets = input_sets(2 * case.k * (case.m + case.n))
    a = [normal(case.m, case.k) for _ in range(sets)]
    if case.layout == "TN":
        b = [normal(case.n, case.k).t() for _ in range(sets)]
    else:
        b = [normal(case.k, case.n) for _ in range(sets)]
    c = [torch.empty(case.m, case.n, device="cuda", dtype=dtype) for _ in range(sets)]
    return Data(case, a, b, c)


def check(data: AnyData, run: Run, i: int, reference: Reference) -> float:
    """The relative error of `run` on set i; NaN for an element unwritten, not finite or far off."""
    data.outputs[i].fill_(math.nan)
    out = run(i)
    if not isinstance(out, torch.Tensor):
        out = data.outputs[i]
    torch.cuda.synchronize()
    error = out.double().sub_(reference.value)
    if not bool((error.abs() <= reference.bound).all()):
        return math.nan
    return float(error.norm() / reference.value.norm())


class Clock:
    """Times launches by CUDA events."""

    def __init__(self) -> None:
        self.events = [torch.cuda.Event(enable_timing=True) for _ in range(513)]

    def median_ms(self, run: Run, sets: int, launches: int, expect_ms: float) -> float:
        """The median time of `launches` back-to-back launches.

        The device first sleeps long enough that the host, should a launch cost it more than the
        kernel runs, stays ahead to the end: otherwise its gaps would be timed.
        """
        launches = min(launches, len(self.events) - 1)
        host = math.inf
        for i in range(2):
            start = time.perf_counter()
            run(i % sets)
            host = min(host, time.perf_counter() - start)
        lag = max(0.0, 1.5 * host + 5e-6 - expect_ms * 1e-3) * launches + 1e-4
        torch.cuda._sleep(int(2e9 * min(lag, 0.05)))
        for i in range(launches):
            self.events[i].record()
            run(i % sets)
        self.events[launches].record()
        torch.cuda.synchronize()
        pairs = zip(self.events[:launches], self.events[1 : launches + 1], strict=True)
        return statistics.median(start.elapsed_time(stop) for start, stop in pairs)

    def quick_ms(self, run: Run, sets: int) -> float:
        """A first estimate, good enough to rank configurations."""
        run(0)
        torch.cuda.synchronize()
        once = self.median_ms(run, sets, 2, 1.0)
        return self.median_ms(run, sets, max(4, min(60, int(12 / once))), once)

    def burst_ms(self, run: Run, sets: int, expect_ms: float) -> float:
        torch.cuda.synchronize()
        time.sleep(IDLE_S)
        return self.median_ms(run, sets, max(4, int(BURST_MS / expect_ms)), expect_ms)

    def sustained_ms(self, run: Run, sets: int, expect_ms: float) -> float:
        self.median_ms(run, sets, max(3, int(WARM_MS / expect_ms)), expect_ms)
        return self.median_ms(run, sets, max(6, int(SUSTAINED_MS / expect_ms)), expect_ms)


def pick(
    candidates: Sequence[Candidate], data: AnyData, reference: Reference, clock: Clock, entry: Entry
) -> Run:
    """The fastest right configuration: all are checked and timed, the best few again in bursts."""
    right: list[tuple[float, Candidate, Run]] = []
    for candidate in candidates:
        try:
            run = candidate.make()
            if not check(data, run, 0, reference) < TOLERANCE:
                entry.tried.append((candidate.label, "wrong"))
                continue
            ms = clock.quick_ms(run, len(data))
        except Exception as error:
            if "CUDA error" in str(error) or "illegal" in str(error):
                raise  # the context is lost: nothing after this can be trusted
            entry.tried.append((candidate.label, f"{type(error).__name__}: {str(error)[:200]}"))
            continue
        right.append((ms, candidate, run))
        entry.tried.append((candidate.label, round(entry.flops / ms / 1e9, 1)))
    if not right:
        raise RuntimeError(f"no configuration ran right: {entry.tried}")
    right.sort(key=lambda r: r[0])
    finalists = right[:FINALISTS]
    if len(finalists) > 1:
        finalists = [
            (min(clock.burst_ms(run, len(data), ms) for _ in range(2)), candidate, run)
            for ms, candidate, run in finalists
        ]
    _, best, run = min(finalists, key=lambda r: r[0])
    entry.config = best.label
    return run


def run_case(
    case: Case, peers: dict[str, Any], bursts: int, sustained: int, clock: Clock
) -> list[Entry]:
    """Checks, tunes and times every peer that takes the case."""
    data = make_data(case)
    reference = [data.reference(i) for i in (0, len(data) - 1)]
    entries, live = [], []
    for name, peer in peers.items():
        if case.kind not in getattr(peer, "KINDS", ("gemm",)):
            continue
        entry = Entry(case.name, name, asdict(case), case.flops)
        try:
            candidates = peer.candidates(data)
            if not candidates:
                continue
            entries.append(entry)
            run = pick(candidates, data, reference[0], clock, entry)
            entry.rel_err = max(
                check(data, run, 0, reference[0]), check(data, run, len(data) - 1, reference[1])
            )
            if not entry.rel_err < TOLERANCE:
                raise RuntimeError(f"wrong result, relative error {entry.rel_err:.2g}")
            live.append((entry, run, clock.quick_ms(run, len(data))))
        except Exception as error:
            entry.error = f"{type(error).__name__}: {str(error)[:500]}"
            traceback.print_exc(limit=3)
            if "CUDA error" in str(error) or "illegal" in str(error):
                raise
    del reference
    torch.cuda.empty_cache()
    for _ in range(bursts):
        for entry, run, ms in live:
            entry.burst.append(case.flops / clock.burst_ms(run, len(data), ms) / 1e9)
    for _ in range(sustained):
        for entry, run, ms in live:
            entry.sustained.append(case.flops / clock.sustained_ms(run, len(data), ms) / 1e9)
    return entries


def machine() -> dict[str, str]:
    """What the figures depend on, beside the code."""

    def version(module: str) -> str:
        try:
            return str(importlib.import_module(module).__version__)
        except (ImportError, AttributeError):
            return ""

    def output(*command: str) -> str:
        try:
            return subprocess.run(
                command, capture_output=True, text=True, check=True
            ).stdout.strip()
        except (OSError, subprocess.CalledProcessError):
            return ""

    return {
        "device": torch.cuda.get_device_name(0),
        "driver": output("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"),
        "python": sys.version.split()[0],
        **{name: version(name) for name in ("torch", "triton", "numpy", "warploom")},
        "cuda-core": version("cuda.core"),
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--peers", required=True, help="modules of benchmarks.peers, by comma")
    parser.add_argument("--cases", default="core", help=f"one of {', '.join(CASES)}, or case names")
    parser.add_argument("--bursts", type=int, default=5)
    parser.add_argument("--sustained", type=int, default=3)
    parser.add_argument("--limit", type=float, default=math.inf, help="start no case after (s)")
    parser.add_argument("--commit", default="", help="the commit measured, where git is absent")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args(argv)

    start = time.monotonic()
    peers: dict[str, Any] = {}
    missing: dict[str, str] = {}
    for name in args.peers.split(","):
        try:
            module = importlib.import_module(f"benchmarks.peers.{name}")
            peers[module.NAME] = module
        except Exception as error:
            missing[name] = f"{type(error).__name__}: {str(error)[:300]}"
            print(f"missing: {name}: {missing[name]}", flush=True)
    if args.cases in CASES:
        cases = CASES[args.cases]
    else:
        known = {case.name: case for group in CASES.values() for case in group}
        cases = [known[name.strip()] for name in args.cases.split(",")]

    commit = args.commit or subprocess.run(
        ["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()  # fmt: skip
    report = {"machine": {**machine(), "commit": commit}, "missing": missing, "results": []}
    clock = Clock()
    for case in cases:
        if time.monotonic() - start > args.limit:
            print(f"skipped, out of time: {case.name}", flush=True)
            continue
        entries = run_case(case, peers, args.bursts, args.sustained, clock)
        report["results"] += [asdict(entry) for entry in entries]
        args.out.write_text(json.dumps(report, indent=1) + "\n")
        torch.cuda.empty_cache()
        print(f"{case.name}  ({time.monotonic() - start:.0f} s)", flush=True)
        for entry in sorted(entries, key=lambda e: -statistics.median(e.burst or [0.0])):
            if entry.error:
                print(f"   {entry.peer:36s} {entry.error[:150]}", flush=True)
                continue
            burst, hot = statistics.median(entry.burst), statistics.median(entry.sustained or [0])
            spread = f"{min(entry.burst):.0f}..{max(entry.burst):.0f}"
            print(
                f"   {entry.peer:36s} burst {burst:6.1f} ({spread})  sustained {hot:6.1f}  "
                f"err {entry.rel_err:.1e}  {entry.config}",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
