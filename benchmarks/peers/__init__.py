"""One module an implementation: `NAME`, `KINDS` (of cases that it takes; default: only "gemm"), and
`candidates(data)` -> its configurations for the case.

An empty list means that the implementation does not take the case.  A configuration's `run(i)` must
compute from the inputs of set i, on the current stream, what `data.reference(i)` does: into
`data.outputs[i]`, or into a tensor of its own, which it returns.

A module imports at its top only what it measures (triton, FlashAttention, …): where that is missing, the
peer is. torch is imported inside functions, so that warploom's own kernels can be had without it.
"""

# What `python -m benchmarks` measures unless told otherwise: modules, ours first.
USUAL: dict[str, tuple[str, ...]] = {
    "gemm": (
        "warploom", "warploom_uniform", "explicit",
        "cublas", "quack_gemm", "gluon", "triton_plain", "triton_tma", "triton_ws",
    ),
    "fp8": (
        "warploom_fp8", "warploom_fp8_promoted", "explicit_fp8", "explicit_fp8_promoted",
        "scaled_mm", "scaled_mm_precise",
        "triton_fp8_plain", "triton_fp8", "triton_fp8_ws", "triton_fp8_promoted",
    ),
    "attention": (
        "warploom_auto_attention", "warploom_attention",
        "fa3", "cudnn_attention",
        "triton_attention", "triton_attention_tma", "triton_attention_persistent",
        "triton_attention_ws",
    ),
    "dual": (
        "warploom_dual", "explicit_dual",
        "torch_dual", "quack_dual", "triton_dual", "triton_dual_ws",
    ),
}  # fmt: skip
