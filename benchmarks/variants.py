"""Forms of the library's products beside each other: what one knob or another brings.

    python -m benchmarks.variants stores --out out/stores.jsonl [--only CASES] [--forms FORMS] [--limit S]
    python -m benchmarks.variants ablation                 # compiles every form; needs no GPU

stores: a task of their own, buffers of staging, staging in the ring's place.
staggered: the gated pair's groups at tiles' ends, with equal rings.
fp8: bands of the 8-bit product, there and back or not, and how its tiles leave; by hand and automatic.
flat: products of 64 rows, bound by memory: slots, clusters, programs that begin apart along K.
short: one wave of tiles, and a short K: bands, slots, ping-pong tiles, clusters.
steps: 8-bit products and gated pairs from uniform warps up, one thing more each.
ablation: attention uniform, specialized, with iterations that overlap, ping-pong, and as the library has it.
tail: attention whose last tiles' keys are shared out, beside tiles that are whole.

Each form of a product stands beside the others of its case in one process, in turn, in bursts
(`benchmarks/measure.py`); the record holds TFLOP/s, slots of the ring, registers and spills.
"""

from __future__ import annotations

import argparse
import importlib
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import warploom as wl
from benchmarks.cases import DUAL, DUAL_FP8, FP8, Attention, Case, Dual, Fp8, Gemm
from benchmarks.data import Gpu, Paper, Source, make_data, strides
from benchmarks.launches import Chain, KernelRun
from benchmarks.measure import TOLERANCE, begun, check
from benchmarks.peers import explicit_fp8, warploom_auto_attention, warploom_dual, warploom_fp8
from benchmarks.peers import warploom as product
from benchmarks.records import Record, write
from corpus.choice_kernels import one_tile
from corpus.flat_kernels import rotated
from warploom.bench import Clock, Run, in_turn
from warploom.kernels.attention import ATTENTION_CONFIGS
from warploom.kernels.gemm import config

BURSTS = 3
TASK, TWO = {"store_task": True}, {"store_buffers": 2}
WHOLE = {"store_whole": True}


def deep(n: int) -> dict[str, Any]:
    return {"num_buffers_warp_spec": n}


# What is asked for beside a tile whose ring has `few` slots as it is, and one more with less staging.
def forms(few: int) -> dict[str, dict[str, Any]]:
    return {
        "as chosen": {},
        "task": TASK,
        "whole": WHOLE,
        "whole, task": WHOLE | TASK,
        "2 buffers, task": TWO | TASK,
        f"{few + 1} slots, 2 buffers": TWO | deep(few + 1),
        f"{few + 1} slots, 2 buffers, task": TWO | TASK | deep(few + 1),
    }


WAYS = {"as chosen": {}, "task": TASK, "whole": WHOLE, "whole, task": WHOLE | TASK}
ONCE = {"as chosen": {}, "2 buffers": TWO, "whole": WHOLE}


@dataclass(frozen=True)
class Work:
    """A case (`output`: of products, the result's dtype) and its forms: names and what makes each.  beside:
    modules of peers, by comma."""

    case: Case
    forms: dict[str, Callable[[Any], Any]]
    output: str = "bf16"
    beside: str = ""

    @property
    def name(self) -> str:
        return self.case.name + f" to {self.output}" * (self.output != "bf16")

    def data(self, source: Source) -> Any:
        data = make_data(self.case, source)
        if self.output != "bf16":
            m, n = self.case.m, self.case.n
            data.c = [source.empty(m, n, dtype=self.output) for _ in data.c]
        return data


def tuned(made: wl.Config) -> Callable[[Any], KernelRun]:
    """The library's product with a config."""
    return lambda data: product.candidates_of(data, [made])[0].make()


def bound(module: Any, made: wl.Config) -> Callable[[Any], KernelRun]:
    """A kernel of the library's as that peer binds it."""
    return lambda data: module.bind(data, made)


def by_hand(**how: Any) -> Callable[[Any], Any]:
    def bind(data: Any) -> Any:
        from warploom.kernels.explicit.fp8_gemm import Fp8Gemm

        return explicit_fp8.bind(data, Fp8Gemm(**how))

    return bind


def once(columns: int, step: int, knobs: dict[str, Any]) -> Callable[[Any], KernelRun]:
    """A program a tile of 128 rows."""

    def bind(data: Any) -> KernelRun:
        m, n, k = data.case.m, data.case.n, data.case.k
        calls = [
            (a, b.T, c, m, n, k, 0, 0, 0) for a, b, c in zip(data.a, data.b, data.c, strict=True)
        ]
        tile = {"BLOCK_M": 128, "BLOCK_N": columns, "BLOCK_K": step}
        grid = (wl.cdiv(m, 128) * wl.cdiv(n, columns), 1)
        return KernelRun(one_tile, calls, grid=grid, num_consumer_groups=2, **tile, **knobs)

    return bind


def stores() -> Iterator[Work]:
    def these(how: str, make: Any, made: wl.Config, asked: Any, *first: Any) -> dict[str, Any]:
        return {f"{how}{k}": make(*first, replace(made, **v)) for k, v in asked.items()}

    wide, square = config(128, 256, 64, 16, 2, 3), config(128, 128, 64, 16, 2, 5)
    narrow_band = config(128, 256, 64, 4, 2, 3)
    ping_pong = config(128, 128, 64, 4, 2, 5, ping_pong=True)
    wide_ping_pong = config(128, 192, 64, 4, 2, 4, ping_pong=True)
    fast = config(128, 256, 128, 16, 2, 3)
    promoted = config(128, 192, 128, 16, 2, 4, PROMOTE=True)
    for shape in ((8192, 8192, 1024), (8192, 8192, 4096), (4096, 4096, 4096)):
        found = these("fast: ", bound, fast, WAYS, warploom_fp8)
        found |= these("promoted: ", bound, promoted, WAYS, warploom_fp8)
        yield Work(Fp8(*shape), found)
    pair = config(128, 128, 64, 16, 2, 4)
    for case in (Dual(4096, 14336, 4096), Dual(8192, 8192, 8192), Dual(512, 4096, 7168)):
        found = these("", bound, pair, {"as chosen": {}, "task": TASK}, warploom_dual)
        few = replace(pair, num_buffers_warp_spec=3)
        found |= these("3 slots: ", bound, few, {"as chosen": {}, "task": TASK}, warploom_dual)
        yield Work(case, found)
    shapes = [(8192, 8192, 512), (4096, 4096, 1024), (2048, 2048, 2048), (8192, 8192, 8192)]
    for shape in shapes:
        found = these("wide: ", tuned, wide if shape[2] > 1024 else narrow_band, forms(3))
        found |= these("ping-pong: ", tuned, ping_pong, WAYS)
        found |= these("ping-pong, 192: ", tuned, wide_ping_pong, {"as chosen": {}, "whole": WHOLE})
        found |= these("square: ", tuned, square, WAYS)
        found |= {f"once: {k}": once(256, 64, v) for k, v in ONCE.items()}
        yield Work(Gemm(*shape), found)
    for shape in shapes[:3]:
        found = these("wide: ", tuned, wide, forms(3))
        found |= these("ping-pong: ", tuned, ping_pong, WAYS)
        found |= these("square: ", tuned, square, WAYS)
        yield Work(Gemm(*shape), found, "fp32")


def staggered() -> Iterator[Work]:
    """The gated pair with equal rings: do groups stagger their epilogues?"""
    pair = config(128, 128, 64, 16, 2, 4)
    found = {
        f"{slots} slots, {name}{', task' * bool(task)}": bound(
            warploom_dual,
            replace(
                pair, num_buffers_warp_spec=slots, stagger_epilogues=name == "staggered", **task
            ),
        )
        for slots in (3, 4)
        for name in ("staggered", "together")
        for task in ({}, TASK)
    }
    for shape in ((4096, 14336, 4096), (8192, 8192, 8192), (512, 4096, 7168)):
        yield Work(Dual(*shape), found)


def fp8() -> Iterator[Work]:
    found: dict[str, Callable[[Any], Any]] = {}
    for band in (8, 16, 32):
        for back in (False, True):
            made = config(128, 256, 128, band, 2, 3, SERPENTINE=back)
            for name, knobs in WAYS.items():
                how = ", back" * back
                form = bound(warploom_fp8, replace(made, **knobs))
                found[f"bands of {band}{how}, {name}"] = form
        if band < 32:
            found[f"by hand, bands of {band}"] = by_hand(band=band)
    for shape in ((8192, 8192, 4096), (8192, 8192, 8192), (4096, 4096, 4096), (16384, 4096, 4096)):
        yield Work(Fp8(*shape), found, beside="scaled_mm")


def apart(step: int, slots: int, apart: int, first: bool) -> Callable[[Any], KernelRun]:
    """64 columns a program, which begin `apart` steps from each other."""

    def bind(data: Any) -> KernelRun:
        m, n, k = data.case.m, data.case.n, data.case.k
        calls = [
            (a, b, c, m, n, k, *strides(a), *strides(b), *strides(c))
            for a, b, c in zip(data.a, data.b, data.c, strict=True)
        ]
        meta = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": step, "APART": apart, "FIRST": first}
        knobs = {"num_consumer_groups": 1, "num_buffers_warp_spec": slots}
        return KernelRun(rotated, calls, grid=(wl.cdiv(n, 64),), **meta, **knobs)

    return bind


def flat() -> Iterator[Work]:
    for layout in ("TN", "NN"):
        forms = {
            f"{columns} columns, {slots} slots of {step}": tuned(
                config(64, columns, step, 8, 1, slots)
            )
            for columns, step, slots in (
                (64, 64, 12),
                (64, 64, 10),
                (64, 64, 13),
                (64, 128, 6),
                (64, 256, 3),
            )
        }
        pairs = [(64, 12), (64, 13), (64, 8), (128, 6)]
        forms |= {
            f"pairs of CTAs, {slots} slots of {step}": tuned(
                replace(config(64, 128, step, 8, 1, slots), num_ctas=2)
            )
            for step, slots in pairs
        }
        if layout == "TN":
            forms["four CTAs of 72 columns, 10 slots of 64"] = tuned(
                replace(config(64, 288, 64, 8, 1, 10), num_ctas=4)
            )
        for step, slots in ((64, 12), (128, 6)):
            for n, first in ((0, False), (0, True), (1, False), (5, False)):
                name = f"{slots} slots of {step}, {n} steps apart{', B first' * first}"
                forms[name] = apart(step, slots, n, first)
        yield Work(Gemm(64, 8192, 8192, layout=layout), forms, beside="cublas")


def short() -> Iterator[Work]:
    forms = {}
    for band in (2, 4, 8):
        ping_pong = config(128, 128, 64, band, 2, 5, ping_pong=True, task=True)
        forms[f"ping-pong, bands of {band}"] = tuned(ping_pong)
    ping_pong = config(128, 128, 64, 4, 2, 5, ping_pong=True, task=True)
    forms["ping-pong, 4 slots"] = tuned(replace(ping_pong, num_buffers_warp_spec=4))
    forms["ping-pong, 6 slots, 1 buffer"] = tuned(
        replace(ping_pong, num_buffers_warp_spec=6, store_buffers=1)
    )
    forms["ping-pong, 6 slots, 1 buffer, no task"] = tuned(
        replace(ping_pong, num_buffers_warp_spec=6, store_buffers=1, store_task=None)
    )
    forms["ping-pong, 3 slots of 128, 1 buffer"] = tuned(
        config(
            128,
            128,
            128,
            4,
            2,
            3,
            ping_pong=True,
            task=True,
        )
    )
    forms["ping-pong, 64x256, 4 slots"] = tuned(config(64, 256, 64, 8, 2, 4, ping_pong=True))
    for band in (2, 4, 8):
        wide = config(128, 256, 64, band, 2, 4, task=True)
        forms[f"wide, 4 slots, bands of {band}"] = tuned(wide)
    forms["pairs of CTAs, 256x256, 3 slots"] = tuned(
        replace(config(256, 256, 64, 4, 2, 3), num_ctas=2)
    )
    forms["pairs of CTAs, 256x256, 4 slots"] = tuned(
        replace(config(256, 256, 64, 4, 2, 4), num_ctas=2)
    )
    forms["pairs of CTAs, 128x512, 4 slots"] = tuned(
        replace(config(128, 512, 64, 4, 2, 4), num_ctas=2)
    )
    yield Work(Gemm(2048, 2048, 2048), forms, beside="cublas")
    forms = {}
    for band in (2, 3, 4, 6, 8):
        forms[f"ping-pong, 192, bands of {band}"] = tuned(
            config(128, 192, 64, band, 2, 4, ping_pong=True)
        )
    forms["ping-pong, 192, 1 buffer"] = tuned(
        config(128, 192, 64, 4, 2, 4, ping_pong=True, buffers=1)
    )
    forms["ping-pong, 192, 5 slots, 1 buffer"] = tuned(
        config(128, 192, 64, 4, 2, 5, ping_pong=True, buffers=1)
    )
    forms["ping-pong, 192, 2 slots of 128"] = tuned(config(128, 192, 128, 4, 2, 2, ping_pong=True))
    for layout in ("TN", "NN"):
        yield Work(Gemm(8192, 8192, 512, layout=layout), dict(forms), beside="cublas")
    for k in (1024, 2048):
        forms = {
            f"ping-pong, 192, bands of {band}, {n or 3} buffers": tuned(
                config(128, 192, 64, band, 2, 4, ping_pong=True, buffers=n)
            )
            for band in (4, 16)
            for n in (None, 1)
        }
        yield Work(Gemm(8192, 8192, k), forms, beside="cublas")


# What each step of the ablation takes away from the library's configurations.
ABLATION: dict[str, dict[str, Any]] = {
    "uniform": {"num_consumer_groups": 0},
    "specialized": {
        "consumer_stages": 1,
        "skip_idle": None,
        "mma_wait_position": None,
        "SPLIT_KV_TAIL": False,
    },
    "+ iterations overlap": {"ping_pong": False, "skip_idle": None, "SPLIT_KV_TAIL": False},
    "+ ping-pong": {"skip_idle": None, "SPLIT_KV_TAIL": False},
    "+ idle iterations skipped": {"SPLIT_KV_TAIL": False},
    "+ split KV tail": {},
}


def attending(**how: Any) -> Callable[[Any], Chain]:
    return lambda data: warploom_auto_attention.bind(data, **how)


def ablation() -> Iterator[Work]:
    """Each configuration's steps, but for those that it shares with one before it."""
    for d, causal in ((64, False), (64, True), (128, False), (128, True)):
        found: dict[str, dict[str, Any]] = {}
        for i, made in enumerate(ATTENTION_CONFIGS[d, causal]):
            for step, knobs in ABLATION.items():
                how = made.all_kwargs | knobs
                if step == "uniform":  # as many warps, one program a multiprocessor
                    how = {k: v for k, v in how.items() if k.isupper()} | knobs
                    how |= {"num_warps": 4 * made.all_kwargs["num_consumer_groups"]}
                    how |= {"num_stages": 2, "SPLIT_KV_TAIL": False}
                how = {k: v for k, v in how.items() if v is not None}
                if how not in found.values():
                    found[f"{i}: {step}"] = how
        for batch in (16, 1):
            case = Attention(batch, 2048 // d, 16384 // batch, d, causal)
            forms = {name: attending(**how) for name, how in found.items()}
            yield Work(case, forms, beside="cudnn_attention")


def tail() -> Iterator[Work]:
    base = {"CAUSAL": False, "BALANCED_PAIRS": False, "num_buffers_warp_spec": 2}
    four = {"num_buffers_warp_spec": 4, "reg_inc_consumer": 112, "reg_dec_producer": 24}

    def form(
        groups: int, columns: int, eighths: int, *ways: str, ctas: int = 1, producer: int = 0
    ) -> Any:
        """(name, form).  ways: "drawn", "parts", "no ping-pong".  producer: its registers a thread."""
        how = base | {"BLOCK_M": 64 * groups * ctas, "BLOCK_N": columns, "num_ctas": ctas}
        how |= {"Q_STAGES": 2 if columns <= 128 else 1, "mma_wait_position": eighths}
        how |= {
            "num_consumer_groups": groups,
            "DYNAMIC": "drawn" in ways,
            "SPLIT_KV_TAIL": "parts" in ways,
        }
        if "no ping-pong" in ways:
            how["ping_pong"] = False
        if producer:
            how |= {"reg_dec_producer": producer, "reg_inc_consumer": (504 - producer) // 2}
        if groups == 4:
            how |= four
        where = f"{64 * groups}x{columns}" + f" in clusters of {ctas}" * (ctas > 1)
        where += f", {(504 - producer) // 2} registers" * (producer > 0)
        return ", ".join((where, f"{eighths}/8", *ways)), attending(**how)

    of_128 = [form(2, 128, 3, *w) for w in ((), ("drawn",), ("no ping-pong",))]
    of_128 += [
        form(2, n, e, "parts", *w)
        for n in (128, 144, 160, 176)
        for e in (2, 3)
        for w in ((), ("no ping-pong",))
    ]
    of_128 += [form(2, 160, e, "parts") for e in (1, 4)]
    of_128 += [
        form(2, n, e, "parts", producer=p)
        for n, e in ((160, 2), (160, 3), (176, 2))
        for p in (40, 56)
    ]
    of_128 += [form(2, 128, 3, *w, ctas=2) for w in ((), ("parts",))]
    of_64 = [form(3, 128, e, *w) for e in (0, 1, 2) for w in ((), ("drawn",), ("parts",))]
    of_64 += [form(4, 64, 0), form(4, 64, 0, "parts")]
    of_64 += [form(3, 128, 1, *w, ctas=2) for w in ((), ("parts",))]
    for d, batch in ((128, 1), (128, 4), (64, 4), (64, 1), (128, 16), (64, 16)):
        case = Attention(batch, 2048 // d, 16384 // batch, d, False)
        forms = dict(of_128 if d == 128 else of_64)
        yield Work(case, forms, beside="triton_attention_ws,fa3")


def steps() -> Iterator[Work]:
    uniform: dict[str, Any] = {"num_consumer_groups": 0, "num_warps": 8, "num_stages": 3}
    uniform["num_buffers_warp_spec"] = None
    for case in FP8:
        band = 8 if case.m > case.n else 16
        fast = config(128, 256, 128, band, 2, 3)
        last = config(128, 256, 128, band, 2, 3, whole=True, task=True, SERPENTINE=True)
        halves = config(128, 256, 128, band, 2, 3, PROMOTE=True)
        wide = config(128, 192, 128, band, 2, 4, PROMOTE=True)
        there_and_back = {"PROMOTE": True, "SERPENTINE": True}
        both = config(128, 192, 128, band, 2, 4, whole=True, task=True, **there_and_back)
        steps = {
            "fast, uniform": replace(fast, **uniform),
            "fast, specialized": fast,
            "fast, + whole tiles": replace(fast, store_whole=True),
            "fast, + a task that stores": replace(fast, store_whole=True, store_task=True),
            "fast, + there and back": last,
            "promoted, uniform": replace(halves, **uniform),
            "promoted, specialized, in halves": halves,
            "promoted, in halves, + a task that stores": replace(halves, store_task=True),
            "promoted, 192 columns": wide,
            "promoted, 192 columns, + a task that stores": replace(wide, store_task=True),
            "promoted, 192 columns, + whole": replace(wide, store_whole=True, store_task=True),
            "promoted, 192 columns, + there and back": both,
        }
        forms = {k: bound(warploom_fp8, v) for k, v in steps.items()}
        yield Work(case, forms, beside="scaled_mm")
    for dual in (*DUAL, *DUAL_FP8):
        band, step = 8 if dual.k == 8192 else 16, 64 if dual.dtype == "bf16" else 128
        pair = config(128, 128, step, band, 2, 4)
        steps = {
            "uniform": replace(pair, **uniform),
            "specialized": replace(pair, stagger_epilogues=False, num_buffers_warp_spec=3),
            "+ a fourth slot": replace(pair, stagger_epilogues=False),
            "+ staggered epilogues": pair,
            "+ a task that stores": replace(pair, store_task=True),
        }
        yield Work(dual, {k: bound(warploom_dual, v) for k, v in steps.items()})


WORKS = {
    "stores": stores,
    "staggered": staggered,
    "flat": flat,
    "short": short,
    "fp8": fp8,
    "ablation": ablation,
    "steps": steps,
    "tail": tail,
}


def described(kernel: Any) -> dict[str, Any]:
    found = kernel.resources
    said = {"registers": found.registers, "spills": found.spill_bytes}
    if kernel.schedule.stores:
        x = kernel.schedule.stores[0]
        said["slots"] = [c.depth for c in kernel.schedule.channels]
        said["store"] = [x.via, list(x.chunk), x.buffers, bool(x.shares), x.by_task]
    return said


def compiled(at: tuple[str, int, str]) -> dict[str, Any] | str:
    """One form of one of the works, in a process of its own: it is in the cache then."""
    kind, number, name = at
    work = list(WORKS[kind]())[number]
    try:
        return described(work.forms[name](work.data(Paper())).compiled())
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:200]}"


def measured(work: Work, known: dict[str, Any], bursts: int) -> list[Record]:
    """A record a form: each that compiles and is right is timed, in turn.  config: what was compiled."""
    clock, data = Clock(), work.data(Gpu())
    reference = data.reference(0)
    found: dict[str, Record] = {}
    live: dict[str, Run] = {}

    def admit(name: str, run: Any, what: Any) -> None:
        record = Record(work.name, name, config=str(what), rel_err=check(data, run, 0, reference))
        found[name] = record
        if record.rel_err < TOLERANCE:
            live[name] = run
        else:
            record.error = "wrong result"

    for name in filter(None, work.beside.split(",")):
        peer = importlib.import_module(f"benchmarks.peers.{name}")
        admit(peer.NAME, peer.candidates(data)[0].make(), "")
    for name, bind in work.forms.items():
        what = known[name]
        if isinstance(what, str) or what["spills"]:
            found[name] = Record(work.name, name, error=str(what))
        else:
            admit(name, bind(data), what)
    for name, spent in in_turn(clock, live, len(data), bursts).items():
        found[name].burst = [work.case.flops / ms / 1e9 for ms in spent]
    return list(found.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("of", choices=WORKS)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", default="", help="cases whose names contain this")
    parser.add_argument("--forms", default="", help="forms whose names contain this")
    parser.add_argument("--bursts", type=int, default=3)
    parser.add_argument("--limit", type=float, default=1e9, help="begin no case after (s)")
    args = parser.parse_args()
    os.environ.setdefault("WARPLOOM_CHECK", "0")  # the library's tests prove its kernels
    start = time.monotonic()
    chosen = [(i, w) for i, w in enumerate(WORKS[args.of]()) if args.only in w.name]
    for _, w in chosen:
        for name in [name for name in w.forms if args.forms not in name]:
            del w.forms[name]
    jobs = [(args.of, i, name) for i, w in chosen for name in w.forms]
    with ProcessPoolExecutor(min(12, os.cpu_count() or 1), get_context("spawn")) as pool:
        known = dict(zip(jobs, pool.map(compiled, jobs), strict=True))
    print(f"compiled in {time.monotonic() - start:.0f} s", flush=True)
    for job, what in known.items() if args.out is None else ():
        print(dict(chosen)[job[1]].name, job[2], what)
    if args.out is None:
        return
    report, run = begun("TFLOP/s")
    for i, work in chosen:
        if time.monotonic() - start > args.limit:
            break
        which = {name: known[args.of, i, name] for name in work.forms}
        records = measured(work, which, args.bursts)
        for record in records:
            record.run = run
        report.records += records
        write(args.out, report)
        print(f"{work.name}  ({time.monotonic() - start:.0f} s)")
        for record in records:
            said = record.error or f"{record.median:7.1f}"
            print(f"   {record.peer:40s} {said}  {record.config}", flush=True)


if __name__ == "__main__":
    main()
