"""Third-party kernels (corpus/) at real sizes, by warploom and by Triton: the same text.

    python -m benchmarks.corpus --out out/corpus.jsonl --made /tmp/made [--only decode] [--products]

What is like attention is listed here, products in `corpus_products.py`.  Each case is made, compiled and
checked against float64 in a process of its own; what came out right is then timed in one process
(benchmarks/plain.py).  Warploom is asked for nothing; of Triton's options (`THEIRS`) the fastest count.
"""

from __future__ import annotations

import argparse
import importlib
import math
import multiprocessing as mp
import pickle
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import triton

from benchmarks import corpus_products, plain
from benchmarks.data import Gpu, input_sets
from benchmarks.measure import begun
from benchmarks.records import write
from corpus import attention, backward, decoding, fused, serving, states
from corpus.arrays import upload
from corpus.case import F16, F32, Case
from warploom.bench import Clock

SECONDS = 60  # for one case to be made, compiled and checked
THEIRS = [{"num_warps": w, "num_stages": s} for w in (4, 8) for s in (2, 3)]
DEEP = {"num_warps": 8, "num_stages": 4}  # of products
LONG = (4096,) * 32  # keys of the sequences that are decoded

CASES: Mapping[str, Callable[[], Case]] = {
    "attention bias d64": lambda: attention.biased_case(16, 2048, 2048),
    "attention bias f32 d128": lambda: attention.biased_case(16, 2048, 2048, 128, bias=F32),
    "attention alibi d64": lambda: attention.switches_case(16, 2048, 64, alibi=True, block_n=64),
    "attention alibi d128": lambda: attention.switches_case(16, 2048, 128, alibi=True, block_n=64),
    "attention cap d128": lambda: attention.switches_case(16, 2048, 128, cap=20.0, block_n=64),
    "attention sink d64": lambda: attention.switches_case(16, 2048, 64, sink=True),
    "attention window d64": lambda: attention.windowed_case(16, 2048, 64, 512),
    "attention window d128": lambda: attention.windowed_case(16, 2048, 128, 512),
    "attention documents d64": lambda: attention.documents_case(16, 2048, 64, 128, 64),
    "attention stages d64": lambda: attention.stages_case(1, 16, 2048, 64),
    "attention stages d128": lambda: attention.stages_case(1, 16, 2048, 128),
    "attention stages full d64": lambda: attention.stages_case(1, 16, 2048, causal=False),
    "attention heads of 192 and 128": lambda: attention.while_case(16, 2048),
    "serving decode 16": lambda: serving.decode_case(LONG, 16, 128, splits=8),
    "serving decode 16x128": lambda: serving.decode_case(LONG, 16, 128, block_n=128, splits=8),
    "serving decode 8": lambda: serving.decode_case(LONG, 8, 128, splits=8),
    "serving decode 64": lambda: serving.decode_case(LONG, 64, 128, 64, splits=8),
    "serving combine": lambda: serving.combine_case(64, 32, 128, 8),
    "serving paged": lambda: serving.paged_case((2048,) * 4, 8, 2048, 16, 64, 128),
    "serving pages": lambda: serving.pages_case((2048,) * 4, 8, 2048, 64, 64, 128),
    "serving ragged": lambda: serving.ragged_case(
        (2048, 700, 1500, 33, 1024), (2048, 900, 1500, 800, 1024), 16, 4, 128, 128
    ),
    "serving sparse": lambda: serving.sparse_case(16, 2048, 64, 128),
    "serving packed": lambda: serving.packed_case(8, 4, 512, 2048),
    "serving e4m3": lambda: serving.eight_bit_case(16, 2048, 128, block_n=128),
    "serving e4m3, V in rows": lambda: serving.eight_bit_case(16, 2048, 128, transposed=False),
    "decoding pages": lambda: decoding.over_pages_case(LONG[:16], 4, 8, 128, splits=4),
    "decoding pages of 64": lambda: decoding.over_pages_case(LONG[:16], 4, 8, 128, 64, splits=4),
    "decoding window, cap, sink": lambda: decoding.over_pages_case(
        LONG, 4, 8, 64, window=1024, cap=20.0, sink=True
    ),
    "decoding latent": lambda: decoding.latent_case(LONG[:8], 128, splits=4),
    "backward delta": lambda: backward.delta_case(16, 2048, 64),
    "backward dkdv d64": lambda: backward.dkdv_case(16, 2048, 64),
    "backward dkdv d128": lambda: backward.dkdv_case(16, 2048, 128, dtype=F16),
    "backward dkdv d64 32 rows": lambda: backward.dkdv_case(16, 2048, 64, 32, 128),
    "backward dq d64": lambda: backward.dq_case(16, 2048, 64),
    "backward dq d128": lambda: backward.dq_case(16, 2048, 128),
    "backward in two walks d64": lambda: backward.two_walks_case(1, 8, 4096, 64),
    "backward in two walks d128": lambda: backward.two_walks_case(1, 8, 4096, 128),
    "backward at once d64": lambda: backward.at_once_case(16, 2048, 64),
    "states linear": lambda: states.linear_case(64, 2048, 64, 128),
    "states linear 128": lambda: states.linear_case(64, 2048, 128, 128, 128),
    "states decayed": lambda: states.decayed_case(64, 2048, 64, 64),
    "states decayed 128": lambda: states.decayed_case(64, 2048, 128, 64, 128),
    "states of chunks": lambda: states.chunk_state_case(32, 4096, 128, 64),
    "states gated": lambda: states.gated_case(64, 1024),
    "fused chain": lambda: fused.chain_case(16384, 256, 1024),
    "fused mlp": lambda: fused.mlp_case(8192, 64, 512),
    "fused cross entropy": lambda: fused.cross_entropy_case(16384, 4096, 256),
    "fused two passes": lambda: fused.two_passes_case(8192),
    "fused halves": lambda: fused.halves_case(8192),
    "fused rotated": lambda: fused.rotated_case(8192),
}

PRODUCTS = {f"product {name}": make for name, make in corpus_products.cases().items()}
NAMES = [*CASES, *PRODUCTS]
TRITON_S = {"bf16": "bfloat16", "f16": "float16"}


def work(name: str, case: Mapping[str, Any]) -> plain.Work:
    """A case as the arrays and numbers of many launches."""
    arrays = [a for a in case["args"] if isinstance(a, np.ndarray)]
    sets = input_sets(sum(a.nbytes for a in arrays))
    kernel = getattr(importlib.import_module(case["module"]), case["kernel"])
    outputs = tuple(case["wants"])
    adds = any((case["args"][i] == 0).all() for i in outputs)
    return plain.Work(
        name,
        kernel,
        [tuple(map(upload, case["args"])) for _ in range(sets)],
        case["grid"],
        case["meta"],
        outputs,
        lambda: [torch.from_numpy(np.ascontiguousarray(x)).cuda() for x in case["wants"].values()],
        adds=adds,
        tolerance=max(case["off"] / 2, 1e-3),
        theirs=THEIRS,
    )


def product(name: str) -> plain.Work:
    """A case of `corpus_products` as the same."""
    made = PRODUCTS[name](source=Gpu())
    own = {x: getattr(triton.language, TRITON_S[str(made.meta[x])]) for x in made.dtypes}
    return plain.Work(
        name,
        made.kernel,
        made.calls,
        made.grid,
        made.meta,
        tuple(made.wanted),
        lambda: [one(*made.calls[0]) for one in made.wanted.values()],
        flops=made.flops,
        adds=made.adds,
        fresh=made.fresh,
        theirs=[options | own for options in [*THEIRS, DEEP]],
    )


def prepare(name: str, folder: Path) -> None:
    """Makes the case, checks every implementation; leaves in `folder` the case, where making it takes long,
    and what was found."""
    allocate()
    case = None
    if name in CASES:
        made = CASES[name]()
        case = {x: getattr(made, x) for x in ("args", "grid", "meta", "wants", "off")}
        case |= {"module": made.kernel.fn.__module__, "kernel": made.kernel.fn.__name__}
    found = plain.measure(work(name, case) if case else product(name), Clock(), 0)
    path = folder / f"{NAMES.index(name)}.pickle"
    path.with_suffix(".part").write_bytes(pickle.dumps((case, found), protocol=5))
    path.with_suffix(".part").replace(path)


def allocate() -> None:
    """Gives Triton the memory for the descriptors that its kernels make."""
    triton.set_allocator(
        lambda size, align, stream: torch.empty(size, dtype=torch.int8, device="cuda")
    )


def shown(record: plain.Found, us: Mapping[str, float]) -> str:
    theirs = min((t for name, t in us.items() if name != "warploom"), default=math.nan)
    ratio = theirs / us.get("warploom", math.nan)
    times = "  ".join(f"{name} {t:.1f}" for name, t in us.items())
    return f"{record.case:30s} {ratio:5.3f}  {times} us  {record.resources} {record.error or ''}"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--made", type=Path, required=True, help="a folder for what is made")
    parser.add_argument("--products", action="store_true", help="these instead of attention")
    parser.add_argument("--bursts", type=int, default=3, help="0: only what has to be made")
    parser.add_argument("--only", default="", help="cases whose name holds one of these (a|b)")
    parser.add_argument("--part", default="0/1", help="every n-th case from the i-th on: i/n")
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--limit", type=float, default=math.inf, help="time no case after (s)")
    args = parser.parse_args(argv)
    start = time.monotonic()
    args.made.mkdir(exist_ok=True)
    part, parts = map(int, args.part.split("/"))
    asked = list(PRODUCTS if args.products else CASES)[part::parts]
    names = {n: args.made / f"{NAMES.index(n)}.pickle" for n in asked}
    names = {n: path for n, path in names.items() if any(o in n for o in args.only.split("|"))}
    with mp.get_context("spawn").Pool(args.jobs, maxtasksperchild=1) as pool:
        making = {
            n: pool.apply_async(prepare, (n, args.made)) for n in names if not names[n].exists()
        }
        for name, result in making.items():
            try:
                result.get(timeout=SECONDS)
            except Exception as error:
                print(f"{name}: {type(error).__name__}: {error}", flush=True)
    print(f"made and checked at {time.monotonic() - start:.1f} s", flush=True)
    allocate()
    report, run = begun("us")
    for name, path in names.items():
        if not path.exists():
            continue
        case, record = pickle.loads(path.read_bytes())
        if args.bursts and "warploom" in record.rel_err and "warploom" not in record.error:
            if time.monotonic() - start > args.limit:
                break
            made = work(name, case) if case else product(name)
            record = plain.measure(made, Clock(), args.bursts)
            del made
            torch.cuda.empty_cache()
        report.records += record.records(run)
        write(args.out, report)
        us = {n: statistics.median(times) for n, times in record.us.items()}
        print(f"{shown(record, us)}  at {time.monotonic() - start:.1f} s", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
