"""Dots by mma.sync, warploom's beside Triton's under DISABLE_MMA_V3=1: the same text and tiles, both tuned.

    python -m benchmarks.mma_sync --out out/mma_sync.jsonl [--only gemm] [--bursts 3] [--limit 200]
    python -m benchmarks.mma_sync --dry-run                 # what warploom makes of each, without a GPU
    python -m benchmarks.mma_sync --only "short|linear"     # few rows, beside cuBLAS; linear attention
    python -m benchmarks.mma_sync --only "few tiles" --out out/few_tiles.jsonl   # short grids: CTAs share K

Each of a case's tiles runs with every number of warps and stages listed for it, by both; warploom also in
the forms `OURS`.  All are checked against float64; the fastest few are timed in turns (warploom/bench.py).
Every configuration is compiled in a process of its own first, which fills both caches.
"""

from __future__ import annotations

import argparse
import itertools
import math
import multiprocessing as mp
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.corpus_products import Launches, sets, strided
from benchmarks.data import Gpu, Paper, Source, float64
from corpus import attention, plain, plain_kernels, states
from warploom.errors import CompileError

if TYPE_CHECKING:
    from benchmarks.plain import Work
    from benchmarks.records import Record
    from benchmarks.report import Results

FORCED = {"matrix_unit": "mma.sync"}
OURS: Sequence[Mapping[str, Any]] = (
    {},
    {"num_consumer_groups": 0},
    {"num_consumer_groups": 2},
    {"num_consumer_groups": 1, "ctas_per_sm": 2},
)
OURS_OF_CHUNKS: Sequence[Mapping[str, Any]] = (
    {},
    {"num_consumer_groups": 0},
    {"num_consumer_groups": 0, "store_buffers": 0},
)
ASKED: Sequence[Mapping[str, Any]] = ({}, *({"split_k": n} for n in (1, 2, 4, 8)))
FINALISTS = 3  # of each implementation
SECONDS = 90  # for a case to be compiled and checked
Config = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """make: the launches, whose grid is a function of the configuration.  configs: what is tried; ours: in
    which forms by warploom."""

    make: Callable[[Source], Launches]
    configs: Sequence[Config]
    ours: Sequence[Mapping[str, Any]] = OURS
    short: bool = (
        False  # few rows or tiles: warploom is not told the unit, and cuBLAS does it as well
    )

    def forms(self) -> Iterator[Config]:
        """What warploom tries.  Eight warps are two consumer groups, one warp is none."""
        for config, more in itertools.product(self.configs, self.ours):
            if self.short:
                yield {**config, **more}
                continue
            groups = more.get("num_consumer_groups", 0)
            if config["num_warps"] == 4 or not groups:
                yield {**config, **FORCED, **more}


def tiles(sizes: Sequence[tuple[int, ...]], names: str, *more: tuple[int, int]) -> list[Config]:
    """Each tile with each (num_warps, num_stages)."""
    return [
        {**dict(zip(names.split(), size, strict=True)), "num_warps": warps, "num_stages": stages}
        for size, (warps, stages) in itertools.product(sizes, more)
    ]


def gemm(m: int, n: int, k: int, dtype: str, orders: str, source: Source) -> Launches:
    """C = A·B: of int8 in int32, of fp32 by tf32."""
    wide = {"int8": "int32", "fp32": "fp32"}.get(dtype)
    kernel, meta = plain.matmul_hinted, {"EVEN_K": True, "GROUP_M": 8}
    if wide:
        integers = dtype == "int8"
        kernel = plain_kernels.product_of
        meta = {"INTEGERS": integers, "GROUP_M": 8, "PRECISION": "tf32"}
    made = strided(kernel, m, n, k, (1, 1, 1), dtype, orders, out=wide or "", source=source, **meta)
    for name in ("BLOCK_M", "BLOCK_N", "BLOCK_K"):
        del made.meta[name]
    made.grid = lambda meta: (-(-m // meta["BLOCK_M"]) * -(-n // meta["BLOCK_N"]),)
    return made


def attend(heads: int, seq: int, d: int, causal: bool, source: Source) -> Launches:
    """Attention forward of one batch, fp16."""
    shape, scale = (1, heads, seq, d), d**-0.5

    def call() -> tuple[Any, ...]:
        q, k, v = (source.normal(*shape, dtype="fp16") for _ in range(3))
        sums, out = source.empty(heads * seq, dtype="fp32"), source.empty(*shape, dtype="fp16")
        return (q, k, v, scale, sums, out, 1, heads, seq, heads * seq * d, seq * d, d)

    def wanted(q: Any, k: Any, v: Any, *_: Any) -> Any:
        out = []
        for one, its, value in zip(*(x[0].unbind(0) for x in (q, k, v)), strict=True):
            s = float64(one) @ float64(its).T * scale
            if causal:
                s.masked_fill_(s.new_ones(seq, seq).triu_(1).bool(), -math.inf)
            out.append(s.softmax(1) @ float64(value))
        return _stack(out)

    meta = {"D": d, "STAGE": 3 if causal else 1}
    flops = 4 * heads * seq * seq * d // (2 if causal else 1)
    return Launches(
        attention.by_stages,
        sets(source, call),
        lambda meta: (seq // meta["BLOCK_M"], heads),
        meta,
        {5: wanted},
        flops,
    )


def linear(heads: int, seq: int, d: int, chunk: int, source: Source) -> Launches:
    """Linear attention, chunk by chunk: four dots with so many rows or columns, or so deep."""

    def call() -> tuple[Any, ...]:
        q, k, v = (source.normal(heads, seq, d, deviation=0.3) for _ in range(3))
        return (q, k, v, source.empty(heads, seq, d), seq)

    def wanted(q: Any, k: Any, v: Any, *_: Any) -> Any:
        parts = zip(*(x.unbind(0) for x in (q, k, v)), strict=True)
        return _stack([(float64(a) @ float64(b).T).tril() @ float64(c) for a, b, c in parts])

    flops = 2 * heads * seq * (2 * chunk * d + 2 * d * d)
    return Launches(
        states.linear,
        sets(source, call),
        lambda meta: (d // meta["BLOCK_V"], heads),
        {"DK": d, "DV": d, "CHUNK": chunk},
        {3: wanted},
        flops,
    )


def _stack(found: list[Any]) -> Any:
    import torch

    return torch.stack(found)


SHAPES = ((4096, 4096, 4096), (8192, 8192, 1024))
SHORT = ((16, 8192, 8192), (16, 14336, 4096))
FEW_ROWS = [(16, 32, 256), (16, 64, 128), (16, 64, 256), (16, 128, 64), (16, 128, 128)]
FEW_TILES = {
    (16, 1024, 8192): FEW_ROWS[1:],
    (16, 4096, 14336): FEW_ROWS[1:],
    (64, 2048, 8192): [(64, 64, 64), (64, 64, 128), (64, 128, 64)],
    (256, 256, 16384): [(64, 64, 64), (64, 64, 128), (64, 128, 64)],
    (512, 512, 8192): [(64, 64, 128), (64, 128, 64), (128, 64, 64), (128, 128, 64)],
}
LARGE = [(128, 256), (256, 128), (128, 128)]
WALKS = [(64, 64), (128, 64), (128, 32)]


def cases() -> dict[str, Case]:
    """By name."""
    found = {}
    blocks = "BLOCK_M BLOCK_N BLOCK_K"
    for (m, n, k), (dtype, deep) in itertools.product(
        SHAPES, (("bf16", 64), ("fp16", 64), ("fp32", 32), ("int8", 128))
    ):
        wide = [(*tile, deep) for tile in LARGE[:2]]
        square = [(*LARGE[2], deep), (*LARGE[2], deep // 2)]
        configs = tiles(wide, blocks, (8, 3)) + tiles(square, blocks, (4, 3), (4, 4), (8, 3))
        named = {"fp32": "tf32"}.get(dtype, dtype)
        orders = ("rc", "rr") if (dtype, m) == ("bf16", 4096) else ("rc",)
        for order in orders:
            name = f"gemm {named} {order} {m}x{n}x{k}"
            found[name] = Case(partial(gemm, m, n, k, dtype, order), configs)
    for m, n, k in SHORT:
        configs = tiles(FEW_ROWS, blocks, (4, 3))
        found[f"short gemm {m}x{n}x{k}"] = Case(
            partial(gemm, m, n, k, "bf16", "rc"), configs, ({},), short=True
        )
    for (m, n, k), sizes in FEW_TILES.items():
        configs = tiles(sizes, blocks, (4, 3))
        found[f"few tiles {m}x{n}x{k}"] = Case(
            partial(gemm, m, n, k, "bf16", "rc"), configs, ASKED, short=True
        )
    for d, causal in itertools.product((64, 128), (False, True)):
        configs = tiles(WALKS, "BLOCK_M BLOCK_N", (4, 2), (4, 3), (8, 3))
        name = f"attention d{d} {'causal' if causal else 'full'}"
        found[name] = Case(partial(attend, 32, 4096, d, causal), configs)
    for chunk in (16, 32):
        configs = tiles([(32,), (64,)], "BLOCK_V", *itertools.product((1, 2, 4), (1, 2, 3)))
        make = partial(linear, 1024, 2048, 64, chunk)
        found[f"linear attention {chunk}"] = Case(make, configs, OURS_OF_CHUNKS)
    return found


CASES = cases()


def rates(found: Results) -> Results:
    """The same with this module's records, which are in microseconds, in TFLOP/s."""

    def rate(case: str, record: Record) -> Record:
        flops = CASES[case].make(Paper()).flops
        return replace(record, burst=[flops / us / 1e6 for us in record.burst])

    return {
        case: {p: rate(case, r) if case in CASES else r for p, r in records.items()}
        for case, records in found.items()
    }


def label(config: Config) -> str:
    return ", ".join(f"{k}={v}" for k, v in config.items() if k not in FORCED)


# ---- without a GPU


def show(name: str) -> None:
    """What warploom makes of each configuration of a case."""
    case = CASES[name]
    made = case.make(Paper())
    for config in case.forms():
        try:
            compiled = made.kernel.compile_for(
                *made.calls[0], grid=made.grid, **made.meta, **config
            )
            r = compiled.resources
            told = f"{r.registers} registers, {r.spill_bytes} spilled, {r.dynamic_shared} shared"
            told += ", specialized" * compiled.schedule.specialized
        except CompileError as error:
            told = str(error).splitlines()[0]
        print(f"{name:34s} {label(config):70s} {told}", flush=True)


# ---- with one


def work(name: str, made: Launches) -> Work:
    """The case as `benchmarks.plain` checks it."""
    from benchmarks.plain import Work

    wanted = lambda: [one(*made.calls[0]) for one in made.wanted.values()]  # noqa: E731
    outputs = tuple(made.wanted)
    return Work(name, made.kernel, made.calls, made.grid, made.meta, outputs, wanted, 0, made.flops)


def trials(case: Case, given: Work) -> dict[tuple[str, str], Callable[[int], object]]:
    """A launch for each implementation and configuration."""
    from benchmarks.plain import runs

    found = {}
    for peer, configs in (("warploom", list(case.forms())), ("triton", case.configs)):
        for config in configs:
            its = replace(given, meta={**given.meta, **config}, theirs=({},))
            found[peer, label(config)] = runs(its)[peer]
    if case.short:
        found["cuBLAS", "torch.matmul"] = partial(_by_cublas, given)
    return found


def _by_cublas(given: Work, i: int) -> object:
    import torch

    a, b, c, *_ = given.calls[i]
    return torch.matmul(a, b, out=c)


def prepare(name: str, part: int, parts: int) -> None:
    """Compiles every n-th configuration of a case, by launching it once."""
    case = CASES[name]
    given = work(name, case.make(_One()))
    for run in list(trials(case, given).values())[part::parts]:
        try:
            run(0)
        except Exception as error:  # told where it is timed
            print(f"{name}: {type(error).__name__}", flush=True)


class _One(Gpu):
    """One input set."""

    def sets(self, bytes_each: int) -> int:
        return 1


def measure(name: str, bursts: int, run_name: str) -> Iterator[Any]:
    """The records of a case."""
    from benchmarks import plain
    from benchmarks.measure import lost
    from benchmarks.records import Record
    from warploom.bench import Clock

    case, clock = CASES[name], Clock()
    given = work(name, case.make(Gpu()))
    answer = given.wanted()
    given.wanted = lambda: answer
    count = len(given.calls)
    peers = ("warploom", "triton", *("cuBLAS",) * case.short)
    records = {peer: Record(name, peer, run_name) for peer in peers}
    right: dict[str, list[tuple[float, str, Callable[[int], object]]]] = {p: [] for p in records}
    errors: dict[tuple[str, str], float] = {}
    for (peer, told), run in trials(case, given).items():
        try:
            errors[peer, told] = off = plain.errors(given, run)
            if not off < plain.TOLERANCE:
                raise ValueError(f"wrong: relative error {off:.2g}")
            ms = clock.quick_ms(run, count)
        except Exception as error:
            if lost(error):
                raise
            records[peer].tried.append((told, f"{type(error).__name__}: {str(error)[:200]}"))
            continue
        right[peer].append((ms, told, run))
        records[peer].tried.append((told, round(ms * 1e3, 2)))
    final = {
        (peer, told): (run, ms)
        for peer, found in right.items()
        for ms, told, run in sorted(found, key=lambda x: x[0])[:FINALISTS]
    }
    times: dict[tuple[str, str], list[float]] = {at: [] for at in final}
    for _ in range(bursts):
        for at, (run, ms) in final.items():
            times[at].append(round(clock.burst_ms(run, count, ms) * 1e3, 3))
    for peer, record in records.items():
        mine = {told: ts for (p, told), ts in times.items() if p == peer}
        if not mine:
            record.error = "no configuration ran right"
        else:
            record.config = min(mine, key=lambda told: statistics.median(mine[told]))
            record.burst = mine[record.config]
            record.rel_err = errors[peer, record.config]
        yield record


def shown(records: Sequence[Any], flops: int) -> str:
    """A line of what came out."""
    us = {r.peer: r.median for r in records}
    ratio = us.get("triton", math.nan) / us.get("warploom", math.nan)
    each = "  ".join(
        f"{r.peer} {r.median:.1f} us ({flops / r.median / 1e6:.0f} TFLOP/s; {r.config or r.error})"
        for r in records
    )
    return f"{records[0].case:34s} {ratio:5.3f}  {each}"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out/mma_sync.jsonl"))
    parser.add_argument("--only", default="", help="cases whose name holds one of these (a|b)")
    parser.add_argument("--bursts", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=12, help="processes that compile")
    parser.add_argument("--limit", type=float, default=math.inf, help="time no case after (s)")
    parser.add_argument("--dry-run", action="store_true", help="only compile warploom's kernels")
    args = parser.parse_args(argv)
    start = time.monotonic()
    names = [name for name in CASES if any(part in name for part in args.only.split("|"))]
    if args.dry_run:
        for name in names:
            show(name)
        return 0
    os.environ["DISABLE_MMA_V3"] = "1"  # read by Triton when it compiles
    from benchmarks.measure import begun
    from benchmarks.records import write

    parts = 3
    with mp.get_context("spawn").Pool(args.jobs) as pool:
        todo = [(name, i, parts) for name in names for i in range(parts)]
        making = [pool.apply_async(prepare, at) for at in todo]
        for at, result in zip(todo, making, strict=True):
            try:
                result.get(timeout=SECONDS)
            except Exception as error:
                print(f"{at}: {type(error).__name__}: {error}", flush=True)
    print(f"compiled at {time.monotonic() - start:.1f} s", flush=True)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    report, run = begun("us")
    ratios = []
    for name in names:
        if time.monotonic() - start > args.limit:
            break
        records = list(measure(name, args.bursts, run))
        report.records += records
        write(args.out, report)
        us = {r.peer: r.median for r in records}
        ratios.append(us["triton"] / us["warploom"])
        flops = CASES[name].make(Paper()).flops
        print(f"{shown(records, flops)}  at {time.monotonic() - start:.1f} s", flush=True)
    known = [r for r in ratios if not math.isnan(r)]
    if known:
        mean = statistics.geometric_mean(known)
        print(f"geometric mean {mean:.3f}, least {min(known):.3f}, of {len(known)} cases")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
