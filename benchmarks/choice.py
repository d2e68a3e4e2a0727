"""Is the chooser right?  Kernels whose specialization is left to it, beside both forms asked for by name.

    python -m benchmarks.choice --out out/forms.jsonl [--only gemm]

Each case is one kernel with one tile and one launch.  Its variants take turns (bursts, as in harness.py):
`chosen` (no knob), `specialized` with each number of consumer groups that makes sense, and `uniform`
(num_consumer_groups=0).  A record holds all times, what was chosen, what was predicted and why.
Kernels without a dot have one form; they stand beside the time that their bytes take.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from benchmarks.data import input_sets
from benchmarks.measure import begun, lost
from benchmarks.records import Record, write
from corpus.choice_kernels import known_k, one_tile
from corpus.plain_kernels import add, layernorm_rows, softmax_rows
from warploom.bench import Clock, Run, in_turn
from warploom.kernels.attention import attention_forward, section_of
from warploom.kernels.gemm import gemm_pointers

BURSTS = 3


@dataclass(frozen=True)
class Call:
    kernel: Any
    args: tuple[Any, ...]
    more: dict[str, Any]

    def prepare(self) -> Any:
        return self.kernel.prepare(*self.args, **self.more)

    def compiled(self) -> Any:
        return self.kernel.compile_for(*self.args, **self.more)


@dataclass
class Work:
    """One case: `launch(i, knobs)` is a call on input set i; `right(i)` says whether its output is."""

    name: str
    launch: Callable[[int, dict[str, Any]], Call]
    right: Callable[[int], bool]
    sets: int
    groups: tuple[int, ...]  # consumer groups when specialized; none: it has no dot
    warps: int = 4
    bytes: int = 0
    sharing: dict[int, int] = field(
        default_factory=dict
    )  # slots with which so many programs share an SM


@dataclass
class Found:
    """Of one launch: milliseconds by form, and what was chosen."""

    case: str
    chosen: str = ""
    why: list[str] = field(default_factory=list)
    ms: dict[str, list[float]] = field(default_factory=dict)
    resources: dict[str, list[int]] = field(default_factory=dict)
    error: dict[str, str] = field(default_factory=dict)
    floor_ms: float = 0.0

    def records(self, run: str) -> list[Record]:
        """One a form; `chosen` says which form that is."""
        return [
            Record(
                self.case,
                form,
                run,
                self.ms.get(form, []),
                config=self.chosen if form == "chosen" else "",
                error=self.error.get(form, ""),
            )
            for form in dict.fromkeys([*self.ms, *self.error])
        ]


def _close(out: Any, wanted: Any) -> bool:
    error = (out.double() - wanted.double()).norm() / wanted.double().norm()
    return bool(error < 6e-3)


def _random(*shape: int) -> Any:
    return torch.randn(*shape, device="cuda").to(torch.bfloat16)


def products(
    kernel: Any,
    m: int,
    n: int,
    k: int,
    tile: tuple[int, int, int],
    batch: int = 1,
    warps: int = 4,
    persistent: bool = False,
) -> Work:
    sets = range(input_sets(2 * batch * (m * k + n * k)))
    a, b = ([_random(batch, rows, k) for _ in sets] for rows in (m, n))
    c = [torch.empty(batch, m, n, device="cuda", dtype=torch.bfloat16) for _ in sets]
    bm, bn, bk = tile
    tiles = -(-m // bm) * -(-n // bn)
    blocks = {"BLOCK_M": bm, "BLOCK_N": bn, "BLOCK_K": bk}

    def launch(i: int, knobs: dict[str, Any]) -> Call:
        if persistent:
            strides = (k, 1, 1, k, n, 1)
            meta = {**blocks, "GROUP_M": 8}
            grid = (min(tiles, torch.cuda.get_device_properties(0).multi_processor_count),)
            x, y, z = a[i][0], b[i][0].t(), c[i][0]
            return Call(kernel, (x, y, z, m, n, k, *strides), {**meta, "grid": grid, **knobs})
        sizes = (m, n, k, m * k, n * k, m * n)
        more = {**blocks, "grid": (tiles, batch), **knobs}
        return Call(kernel, (a[i], b[i], c[i], *sizes), more)

    def right(i: int) -> bool:
        return _close(c[i], a[i] @ b[i].transpose(1, 2))

    name = f"{kernel.__name__} {batch}x{m}x{n}x{k} tile {bm}x{bn}x{bk} warps {warps}"
    groups = (2,) if bm > 64 else (1, 2)
    sharing = {}
    if bm == 64 and not persistent:
        slot, staging = 2 * bk * (bm + bn), 2 * bm * bn + 2048
        fit = {n: ((228 * 1024) // n - 1024 - staging) // slot for n in (2, 3)}
        sharing = {n: min(8, slots) for n, slots in fit.items() if slots > 1}
    return Work(name, launch, right, len(sets), groups, warps, sharing=sharing)


def short_attention(heads: int, seq: int, d: int, causal: bool, rows: int) -> Work:
    sets = range(input_sets(6 * heads * seq * d))
    q, k, v = ([_random(heads, seq, d) for _ in sets] for _ in range(3))
    out = [torch.empty_like(x) for x in q]
    lse = torch.empty(heads, seq, device="cuda")
    counter = torch.zeros(2, device="cuda", dtype=torch.int32)
    scale = d**-0.5 * 1.4426950408889634

    def launch(i: int, knobs: dict[str, Any]) -> Call:
        section = section_of(heads, seq, d)
        args = (q[i], k[i], v[i], out[i], lse, counter, heads, seq, section, scale)
        meta = {"D": d, "BLOCK_M": rows, "BLOCK_N": 64 if d > 64 else 128, "CAUSAL": causal}
        grid = (-(-seq // rows) * heads,)
        return Call(attention_forward, args, {**meta, "grid": grid, **knobs})

    def right(i: int) -> bool:
        whole = torch.nn.functional.scaled_dot_product_attention(
            *(x[i][None] for x in (q, k, v)), is_causal=causal
        )
        return _close(out[i], whole[0])

    name = f"attention h{heads} s{seq} d{d} {'causal' if causal else 'full'} rows {rows}"
    return Work(name, launch, right, len(sets), (rows // 64,))


def rowwise(kernel: Any, rows: int, columns: int, block: int, warps: int) -> Work:
    sets = range(input_sets(2 * rows * columns))
    x = [_random(rows, columns) for _ in sets]
    out = [torch.empty_like(t) for t in x]
    w, b = _random(columns), _random(columns)
    norm = kernel is layernorm_rows

    def launch(i: int, knobs: dict[str, Any]) -> Call:
        more = (w, b) if norm else ()
        meta = {"BLOCK": block, "grid": (rows,), "num_warps": warps, **knobs}
        return Call(kernel, (x[i], *more, out[i], columns), meta)

    def right(i: int) -> bool:
        functional = torch.nn.functional
        whole = functional.layer_norm(x[i], (columns,), w, b) if norm else x[i].softmax(1)
        return _close(out[i], whole)

    name = f"{kernel.__name__} {rows}x{columns} warps {warps}"
    return Work(name, launch, right, len(sets), (), warps, 4 * rows * columns)


def vectors(n: int) -> Work:
    sets = range(input_sets(4 * n))
    x, y = ([_random(n) for _ in sets] for _ in range(2))
    out = [torch.empty_like(t) for t in x]

    def launch(i: int, knobs: dict[str, Any]) -> Call:
        return Call(
            add, (x[i], y[i], out[i], n), {"BLOCK": 1024, "grid": (-(-n // 1024),), **knobs}
        )

    return Work(f"add {n}", launch, lambda i: _close(out[i], x[i] + y[i]), len(sets), (), 4, 6 * n)


def held_out() -> Iterator[Callable[[], Work]]:
    """Cases that the cost table was not fitted to."""
    for k in (64, 192, 768, 3072):
        yield lambda k=k: products(one_tile, 3072, 3072, k, (128, 64, 64))  # type: ignore[misc]
        yield lambda k=k: products(one_tile, 1536, 4096, k, (64, 256, 64))  # type: ignore[misc]
    for k in (32, 96, 640):
        yield lambda k=k: products(one_tile, 640, 640, k, (64, 64, 32), batch=24)  # type: ignore[misc]
        yield lambda k=k: products(known_k, 2560, 2560, k, (128, 128, 32), warps=8)  # type: ignore[misc]
    for k in (128, 2048):
        yield lambda k=k: products(gemm_pointers, 4096, 4096, k, (128, 128, 64), persistent=True)  # type: ignore[misc]
        yield lambda k=k: products(gemm_pointers, 2048, 2048, k, (64, 64, 64), persistent=True)  # type: ignore[misc]
        yield lambda k=k: products(one_tile, 192, 16384, k, (64, 128, 64))  # type: ignore[misc]
    for seq in (192, 1024):
        yield lambda seq=seq: short_attention(49152 // seq, seq, 64, True, 64)  # type: ignore[misc]
        yield lambda seq=seq: short_attention(49152 // seq, seq, 128, False, 128)  # type: ignore[misc]


def fitted() -> Iterator[Callable[[], Work]]:
    for k in (64, 128, 256, 512, 1024, 4096):
        yield lambda k=k: products(one_tile, 2048, 2048, k, (128, 128, 64))  # type: ignore[misc]
    for k in (64, 128, 256, 1024, 8192):
        yield lambda k=k: products(gemm_pointers, 8192, 8192, k, (128, 256, 64), persistent=True)  # type: ignore[misc]
    for m, n, k in ((512, 512, 512), (1024, 1024, 64), (1024, 1024, 1024), (4096, 4096, 128)):
        yield lambda m=m, n=n, k=k: products(one_tile, m, n, k, (128, 128, 64))  # type: ignore[misc]
        yield lambda m=m, n=n, k=k: products(one_tile, m, n, k, (64, 64, 64))  # type: ignore[misc]
    for k in (64, 256, 1024, 8192):
        yield lambda k=k: products(one_tile, 4096, 4096, k, (64, 128, 64))  # type: ignore[misc]
        yield lambda k=k: products(one_tile, 4096, 4096, k, (128, 256, 64), warps=8)  # type: ignore[misc]
        yield lambda k=k: products(one_tile, 64, 8192, k, (64, 64, 64))  # type: ignore[misc]
    for k in (64, 128, 256):
        yield lambda k=k: products(known_k, 4096, 4096, k, (128, 128, 64))  # type: ignore[misc]
        yield lambda k=k: products(one_tile, 128, 128, k, (128, 128, 64), batch=512)  # type: ignore[misc]
        yield lambda k=k: products(one_tile, 128, 128, k, (64, 64, 64), batch=512)  # type: ignore[misc]
    for seq in (64, 128, 256, 512, 2048):
        yield lambda seq=seq: short_attention(16384 // seq * 4, seq, 64, False, 128)  # type: ignore[misc]
    for seq in (128, 512):
        yield lambda seq=seq: short_attention(16384 // seq * 4, seq, 128, True, 128)  # type: ignore[misc]
        yield lambda seq=seq: short_attention(16384 // seq * 4, seq, 64, False, 64)  # type: ignore[misc]
    for columns, warps in ((256, 4), (1024, 4), (4096, 8), (16384, 16)):
        block = columns
        yield lambda c=columns, b=block, w=warps: rowwise(softmax_rows, (1 << 25) // c, c, b, w)  # type: ignore[misc]
        yield lambda c=columns, b=block, w=warps: rowwise(layernorm_rows, (1 << 25) // c, c, b, w)  # type: ignore[misc]
    yield lambda: vectors(1 << 25)
    yield lambda: vectors(1 << 20)


def measure(work: Work, clock: Clock, bursts: int) -> Found:
    record = Found(work.name)
    forms: dict[str, dict[str, Any]] = {"chosen": {"num_warps": work.warps}}
    if work.groups:
        for n in work.groups:
            forms[f"specialized, {n}"] = {"num_consumer_groups": n}
        for n, slots in work.sharing.items():
            knobs = {"num_consumer_groups": 1, "num_buffers_warp_spec": slots}
            forms[f"specialized, {n} programs at once"] = knobs
        forms["uniform"] = {"num_consumer_groups": 0, "num_warps": work.warps}
    else:
        forms["chosen"] = {}
    live: dict[str, Run] = {}
    for form, knobs in forms.items():
        try:
            calls = [work.launch(i, knobs) for i in range(work.sets)]
            launches = [call.prepare() for call in calls]

            def run(i: int, launches: list[Any] = launches) -> Any:
                return launches[i]()

            run(0)
            torch.cuda.synchronize()
            if not work.right(0):
                raise ValueError("wrong result")
            compiled = calls[0].compiled()
            r = compiled.resources
            record.resources[form] = [r.threads, r.registers, r.dynamic_shared + r.static_shared]
            if form == "chosen":
                record.chosen = "specialized" if compiled.schedule.specialized else "uniform"
                reasons = compiled.schedule.reasons
                record.why = [x.because for x in reasons if "predicted" in x.because]
            live[form] = run
        except Exception as error:
            if lost(error):
                raise
            record.error[form] = f"{type(error).__name__}: {str(error)[:300]}"
    record.ms = in_turn(clock, live, work.sets, bursts)
    record.floor_ms = work.bytes / 4.28e12 * 1e3
    return record


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--bursts", type=int, default=BURSTS)
    parser.add_argument("--limit", type=float, default=math.inf, help="start no case after (s)")
    parser.add_argument("--only", default="", help="cases whose name holds one of these (a|b)")
    parser.add_argument("--held-out", action="store_true", help="cases that nothing was fitted to")
    args = parser.parse_args(argv)
    start, clock = time.monotonic(), Clock()
    report, run = begun("ms")
    for make in held_out() if args.held_out else fitted():
        if time.monotonic() - start > args.limit:
            break
        work = make()
        if not any(wanted in work.name for wanted in args.only.split("|")):
            continue
        record = measure(work, clock, args.bursts)
        report.records += record.records(run)
        write(args.out, report)
        times = {form: statistics.median(ms) * 1e3 for form, ms in record.ms.items()}
        best = min(times.values(), default=math.nan)
        shown = "  ".join(f"{form} {us:.1f}" for form, us in times.items())
        ratio = times.get("chosen", math.nan) / best
        print(
            f"{record.case:58s} {record.chosen:12s} {ratio:5.3f}  {shown} us  {record.error or ''}",
            flush=True,
        )
        del work
        torch.cuda.empty_cache()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
