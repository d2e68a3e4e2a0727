"""The library's attention in each of its configurations."""

from __future__ import annotations

import functools

from warploom.kernels.attention import ATTENTION_CONFIGS, attention_forward
from warploom.runtime.compiled import CompiledKernel

SIGNATURE = ["*bf16:16"] * 4 + ["*fp32:16", "*i32:16", "i32", "i32", "i32", "fp32"]
CONFIGS = [(*key, i) for key, configs in ATTENTION_CONFIGS.items() for i in range(len(configs))]


@functools.cache
def compiled(d: int, causal: bool, index: int) -> CompiledKernel:
    config = ATTENTION_CONFIGS[d, causal][index].all_kwargs
    knobs = {k: v for k, v in config.items() if not k.isupper()}
    meta = {k: v for k, v in config.items() if k.isupper()}
    meta |= {"D": d, "CAUSAL": causal, "GQA_GROUP": 1, "LSE": True}
    signature = [*SIGNATURE, "*fp32:16"] if meta["SPLIT_KV_TAIL"] else SIGNATURE
    found: CompiledKernel = attention_forward.compile(signature=signature, constexprs=meta, **knobs)
    return found
