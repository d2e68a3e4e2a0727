"""GEMMs of every producer, tile, number of groups, store and dtype: what ptxas makes of them.

    python -m tests.e2e.variants [PART OF]      (`make spills`)

compiles all (or every OF-th, from PART on) and prints those that spill or that ptxas has remarks on, with what
the user is told.  The exit status is 1 where one says nothing.
"""

from __future__ import annotations

import itertools
import os
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.e2e import road
from tests.e2e.gemms import Gemm
from warploom.errors import CompileError, WarploomWarning

TILES = [
    (64, 64),
    (64, 256),
    (128, 128),
    (128, 256),
    (256, 128),
    (192, 160),
    (256, 192),
    (192, 256),
]
PRODUCERS = {"tma": 0, "cp_async": 4, "registers": 1}  # elements that pad a row of A and B
DTYPES = [("f16", "f16"), ("e4m3", "bf16"), ("bf16", "f32")]
ORDERS = ("rc", "rr", "cr", "cc")
ROADS: list[dict[str, Any]] = [
    {"num_consumer_groups": 0, "num_warps": 4, "num_stages": 3},
    {"num_consumer_groups": 0, "num_warps": 8, "num_stages": 3},
    {"num_consumer_groups": 2},
    {"num_consumer_groups": 3},
]

Variant = tuple[Gemm, dict[str, Any]]


def variants() -> list[Variant]:
    """All of them, in a fixed order."""
    return list(_variants())


def _variants() -> Iterator[Variant]:
    everything = itertools.product(TILES, DTYPES, PRODUCERS.values(), (0, 1), ROADS)
    for i, ((bm, bn), (dtype, out), pad, pad_out, knobs) in enumerate(everything):
        bk, pad = (64, pad) if dtype != "e4m3" else (128, pad if pad < 2 else 2 * pad)
        order = "rc" if dtype == "e4m3" else ORDERS[i % len(ORDERS)]
        shape = 2 * bm - 16, 2 * bn - 48, 3 * bk + 32
        case = Gemm(*shape, dtype, out, order, (pad, pad, pad_out), (bm, bn, bk))
        yield case, knobs


def sample(every: int, first: int = 0) -> list[Variant]:
    """Some of them, spread over all combinations."""
    return variants()[first::every]


def name(variant: Variant) -> str:
    case, knobs = variant
    groups = f"{knobs['num_consumer_groups']}-groups-{knobs.get('num_warps', 4)}-warps"
    return f"{case}-{'x'.join(map(str, case.blocks))}-{groups}"


def told(case: Gemm, knobs: dict[str, Any]) -> str:
    """'' where ptxas has nothing to say, else what the user is told of it: the refusal or the warning.

    Raises AssertionError where he is told nothing."""
    args = case.args(*case.arrays(np.random.default_rng(0)))
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always", WarploomWarning)
        try:
            compiled = road.compile_for(case.jit, args, case.programs, {**case.meta, **knobs})
        except CompileError as e:
            assert e.loc is not None and e.help, str(e)
            return str(e)
    found = compiled.resources
    about = [str(w.message) for w in seen if "ptxas reports" in str(w.message)]
    assert bool(found.problems()) == bool(about), f"{found.problems()}, told {about}"
    assert all(p in about[0] for p in found.problems())
    assert about or not found.stack_bytes, f"{found.stack_bytes} bytes of stack"
    return "".join(about)


def main() -> None:
    os.environ["WARPLOOM_CACHE"] = "off"
    part, of = (int(x) for x in sys.argv[1:3]) if len(sys.argv) > 2 else (0, 1)
    silent = 0
    chosen = sample(of, part)
    for variant in chosen:
        try:
            text = told(*variant)
        except AssertionError as e:
            text, silent = f"NOTHING IS SAID: {e}", silent + 1
        if text:
            print(f"{name(variant)}: {text.splitlines()[0]}", flush=True)
    print(f"{len(chosen)} variants, {silent} of them with problems that nobody is told")
    sys.exit(silent > 0)


if __name__ == "__main__":
    main()
