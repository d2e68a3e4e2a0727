"""Warploom's attention from Triton-style source, in its configurations."""

from __future__ import annotations

import math
from typing import Any

from benchmarks.data import AttentionData, multiprocessors, zeros
from benchmarks.launches import Chain, KernelRun
from benchmarks.measure import Candidate

NAME = "warploom, automatic"
KINDS = ("attention",)


def bind(data: AttentionData, persistent: bool = True, **meta: Any) -> Chain:
    """One variant; meta: meta-parameters and knobs.  persistent: a program a multiprocessor; else a tile."""
    from warploom.kernels.attention import launches, room_for_parts, section_of

    case = data.case
    heads = case.batch * case.heads
    scale = case.d**-0.5 * math.log2(math.e)
    lse = zeros(data.q[0], 1)
    counter = zeros(data.q[0], 2, dtype="int32")
    section = section_of(heads, case.seq, case.d)
    programs = multiprocessors() // meta.get("num_ctas", 1) if persistent else None
    parts = None
    if meta.get("SPLIT_KV_TAIL"):
        room = room_for_parts(heads, case.seq, case.d, multiprocessors(), meta["BLOCK_M"])
        parts = zeros(data.q[0], room)
    meta = {"D": case.d, "CAUSAL": case.causal, **meta}
    sets = [
        launches((*qkvo, lse, counter, heads, case.seq, section, scale), programs, parts, **meta)
        for qkvo in data.by_head
    ]
    return Chain(
        KernelRun(steps[0][0], [args for _, args, _ in steps], **steps[0][2])
        for steps in zip(*sets, strict=True)
    )


def candidates(data: AttentionData) -> list[Candidate]:
    from warploom.kernels.attention import ATTENTION_CONFIGS, parts_pay

    case = data.case
    heads = case.batch * case.heads
    found = []
    for c in ATTENTION_CONFIGS[case.d, case.causal]:
        options = c.all_kwargs
        tile = options["BLOCK_M"], options["BLOCK_N"]
        if options["SPLIT_KV_TAIL"] and not parts_pay(heads, case.seq, multiprocessors(), *tile):
            continue
        label = ", ".join(f"{k}={v}" for k, v in options.items())
        found.append(Candidate(label, lambda options=options: bind(data, **options)))  # type: ignore[misc]
    return found
