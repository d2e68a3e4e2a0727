"""Operators of liger-kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from benchmarks.third_party import references as plain
from benchmarks.third_party.operators import Operator, Source, Tensors, late

F = torch.nn.functional


def apply(name: str, *order: str, **fixed: Any) -> Callable[..., Any]:
    """An autograd function of the library with its inputs in order; `fixed` after them."""

    def call(**inputs: Any) -> Any:
        given = [inputs[n] for n in order or inputs]
        return late("liger_kernel.ops", f"{name}.apply")(*given, *fixed.values())

    return call


def rows(*names: str, width: int = 0) -> Callable[[Source], Tensors]:
    return lambda s: {n: s.normal(s.sizes.rows, width or s.sizes.columns) for n in names}


def vectors(*names: str) -> Callable[[Source], Tensors]:
    return lambda s: {n: s.normal(s.sizes.columns) for n in names}


def both(*parts: Callable[[Source], Tensors]) -> Callable[[Source], Tensors]:
    def made(s: Source) -> Tensors:
        return {n: x for part in parts for n, x in part(s).items()}

    return made


def logits(*names: str, log: bool = False, shares: bool = False) -> Callable[[Source], Tensors]:
    """Rows over the vocabulary."""

    def made(s: Source) -> Tensors:
        found = {n: s.normal(s.sizes.rows // 2, s.sizes.words) for n in names}
        if log or shares:
            softmax = F.log_softmax if log else F.softmax
            found = {n: softmax(x.float(), -1) for n, x in found.items()}
        return found

    return made


def labels(s: Source) -> Tensors:
    return {"target": s.integers(s.sizes.rows // 2, below=s.sizes.words)}


def projections(*names: str) -> Callable[[Source], Tensors]:
    """Hidden rows and the weight of their projection to the vocabulary, of each name."""

    def made(s: Source) -> Tensors:
        z, found = s.sizes, {}
        for n in names:
            found[f"{n}x"] = s.normal(z.rows // 2, z.columns // 4)
            found[f"{n}weight"] = s.normal(z.words, z.columns // 4, scale=0.05)
        return found

    return made


def norms() -> Iterator[Operator]:
    weights = both(rows("x"), vectors("w"))
    for mode, offset in (("llama", 0.0), ("gemma", 1.0)):
        yield Operator(
            f"rms_norm {mode}",
            weights,
            apply("LigerRMSNormFunction", eps=1e-6, offset=offset, mode=mode, in_place=False),
            lambda x, w, offset=offset: plain.rms(x, w, offset=offset),
        )
    yield Operator(
        "fused_add_rms_norm",
        both(rows("x", "r"), vectors("w")),
        apply("LigerFusedAddRMSNormFunction", eps=1e-6, offset=0.0, mode="llama", in_place=False),
        lambda x, r, w: (plain.rms(x + r, w), x + r),
    )
    yield Operator(
        "modulated_rms_norm",
        both(rows("x"), vectors("w"), rows("scale", "shift")),
        apply("LigerModulatedRMSNormFunction", eps=1e-6, offset=0.0, mode="llama", in_place=False),
        lambda x, w, scale, shift: plain.rms(x, w) * (1 + scale) + shift,
    )
    yield Operator(
        "layer_norm",
        both(rows("x"), vectors("w", "b")),
        apply("LigerLayerNormFunction", eps=1e-6),
        lambda x, w, b: F.layer_norm(x, x.shape[-1:], w, b, 1e-6),
    )
    yield Operator(
        "group_norm",
        grouped,
        lambda x, w, b: apply("LigerGroupNormFunction", channels=x.shape[1], groups=4, eps=1e-6)(
            x=x, w=w, b=b
        ),
        lambda x, w, b: F.group_norm(x, 4, w, b, 1e-6),
    )
    yield Operator(
        "poly_norm",
        both(rows("x"), lambda s: {"w": s.normal(3), "b": s.normal()}),
        apply("LigerPolyNormFunction", eps=1e-6, in_place=False),
        polynomial,
    )
    yield Operator(
        "dyt",
        both(rows("x"), lambda s: {"alpha": s.normal(1)}, vectors("gamma", "beta")),
        apply("LigerDyTFunction"),
        lambda x, alpha, gamma, beta: (alpha * x).tanh() * gamma + beta,
        exact=True,
    )
    yield Operator("softmax", rows("x"), apply("LigerSoftmaxFunction"), lambda x: x.softmax(-1))
    call = apply("LigerSparsemaxFunction", dim=-1)
    yield Operator("sparsemax", rows("x"), call, sparsemax, exact=True)


def grouped(s: Source) -> Tensors:
    z = s.sizes
    w, b = s.normal(32), s.normal(32)
    return {"x": s.normal(z.batch, 32, z.rows // 4, z.columns // 16), "w": w, "b": b}


def polynomial(x: Any, w: Any, b: Any) -> Any:
    """The norms of x³, x² and x, weighed."""
    powers = (x**3, x**2, x)
    return b + sum(w[i] * plain.rms(p, 1.0) for i, p in enumerate(powers))


def sparsemax(x: Any) -> Any:
    """The nearest point of the simplex."""
    sorted_, at = x.sort(-1, descending=True)[0], torch.arange(1, x.shape[-1] + 1, device=x.device)
    sums = sorted_.cumsum(-1)
    count = (1 + at * sorted_ > sums).sum(-1, keepdim=True)
    threshold = (sums.gather(-1, count - 1) - 1) / count
    return (x - threshold).clamp(min=0)


def activations() -> Iterator[Operator]:
    pair = rows("a", "b")
    silu, gelu = lambda a, b: F.silu(a) * b, lambda a, b: F.gelu(a, approximate="tanh") * b
    wide = {"columns": 11008}
    yield Operator("swiglu", pair, apply("LigerSiLUMulFunction"), silu, sizes=wide)
    yield Operator("geglu", pair, apply("LigerGELUMulFunction"), gelu, sizes=wide)
    squared = lambda x: F.relu(x).square()  # noqa: E731
    yield Operator(
        "relu_squared", rows("x"), apply("LigerReLUSquaredFunction"), squared, sizes=wide
    )
    yield Operator(
        "fused_gate_up",
        lambda s: {"y": s.normal(s.sizes.rows, 2 * s.sizes.columns)},
        apply("LigerFusedGateUpSiLUMulFunction"),
        lambda y: F.silu(y.chunk(2, -1)[0]) * y.chunk(2, -1)[1],
    )
    yield Operator(
        "mlp",
        mlp_inputs,
        apply("LigerMLPFunction"),
        lambda x, gate, up, down: (F.silu(x @ gate.T) * (x @ up.T)) @ down.T,
    )
    yield Operator(
        "fused_moe",
        experts,
        apply("LigerFusedMoEFunction"),
        mixture,
        fixed=frozenset({"weights"}),
    )


def mlp_inputs(s: Source) -> Tensors:
    z = s.sizes
    wide, narrow = z.heads * 128, z.heads * 64
    found = {"x": s.normal(z.batch, z.time // 4 * 4, narrow)}
    found["gate"], found["up"] = (
        s.normal(wide, narrow, scale=0.1),
        s.normal(wide, narrow, scale=0.1),
    )
    return found | {"down": s.normal(narrow, wide, scale=0.1)}


def experts(s: Source) -> Tensors:
    z = s.sizes
    tokens, width = z.rows, z.heads * 64
    index = torch.stack([torch.randperm(8)[:2] for _ in range(tokens)]).to(s.device, torch.int32)
    return {
        "x": s.normal(tokens, width),
        "gate_up": s.normal(8, 2 * width, width, scale=0.1),
        "down": s.normal(8, width, width, scale=0.1),
        "index": index,
        "weights": s.uniform(tokens, 2, dtype=torch.float32),
    }


def mixture(x: Any, gate_up: Any, down: Any, index: Any, weights: Any) -> Any:
    out = torch.zeros_like(x)
    for e in range(gate_up.shape[0]):
        for slot in range(index.shape[1]):
            its = (index[:, slot] == e).nonzero()[:, 0]
            gate, up = (x[its] @ gate_up[e].T).chunk(2, -1)
            y = (F.silu(gate) * up) @ down[e].T
            out = out.index_add(0, its, y * weights[its, slot, None])
    return out


def losses() -> Iterator[Operator]:
    both_logits = both(logits("x"), labels)
    cross = apply(
        "LigerCrossEntropyFunction",
        "x",
        "target",
        weight=None,
        ignore=-100,
        square=0.0,
        smoothing=0.1,
        reduction="mean",
        cap=None,
    )
    smooth = lambda x, target: F.cross_entropy(x, target, label_smoothing=0.1)  # noqa: E731
    yield Operator("cross_entropy", both_logits, lambda **given: cross(**given)[0], smooth)
    linear = apply("LigerFusedLinearCrossEntropyFunction", "x", "weight", "target")
    yield Operator(
        "fused_linear_cross_entropy",
        both(projections(""), labels),
        lambda **given: linear(**given)[0],
        lambda x, weight, target: F.cross_entropy(x @ weight.T, target),
    )
    yield Operator(
        "vocab_parallel_cross_entropy",
        lambda s: {n: x[:, None] for n, x in both_logits(s).items()},
        apply(
            "LigerVocabParallelCEFunction",
            "x",
            "target",
            group=None,
            ignore=-100,
            smoothing=0.0,
            formula="standard",
            mode="standard",
        ),
        lambda x, target: F.cross_entropy(x[:, 0], target[:, 0], reduction="none"),
    )
    pair = both(logits("x", log=True), logits("y", shares=True))
    taught = frozenset({"y", "teacher_x", "teacher_weight"})
    yield Operator(
        "kl_div",
        pair,
        apply("LigerKLDivLossFunction", reduction="batchmean"),
        lambda x, y: F.kl_div(x, y, reduction="batchmean"),
        fixed=taught,
    )
    yield Operator(
        "jsd", logits("x", "y", log=True), apply("LigerJSDFunction"), jensen, fixed=taught
    )
    yield Operator(
        "tvd",
        logits("x", "y", shares=True),
        apply("LigerTVDLossFunction"),
        lambda x, y: 0.5 * (x - y).abs().sum() / x.shape[0],
        fixed=taught,
    )
    yield Operator(
        "fused_linear_jsd",
        projections("", "teacher_"),
        apply("LigerFusedLinearJSDFunction"),
        lambda x, weight, teacher_x, teacher_weight: jensen(
            (x @ weight.T).log_softmax(-1), (teacher_x @ teacher_weight.T).log_softmax(-1)
        ),
        fixed=taught,
    )
    yield Operator("grpo_loss", policy, grpo, policy_loss)


def jensen(x: Any, y: Any) -> Any:
    """The Jensen-Shannon divergence of log-probabilities, per row."""
    p, q = x.exp(), y.exp()
    middle = ((p + q) / 2).log()
    return ((p * (x - middle)).sum() + (q * (y - middle)).sum()) / 2 / x.shape[0]


def policy(s: Source) -> Tensors:
    z = s.sizes
    steps = z.rows // 4
    return {
        "x": s.normal(2, steps + 1, z.words),
        "ids": s.integers(2, steps, below=z.words),
        "gain": s.normal(2, dtype=torch.float32),
    }


def grpo(x: Any, ids: Any, gain: Any) -> Any:
    call = late("liger_kernel.ops", "GrpoLossFunction.apply")
    return call(x, None, None, ids, gain.detach(), None, 0.9, 0.0, 0.2, 0.2, False)[0]


def policy_loss(x: Any, ids: Any, gain: Any) -> Any:
    """Without an old policy every ratio is 1, but has the gradient of its logarithm."""
    log = (x[:, :-1] / 0.9).log_softmax(-1).gather(-1, ids[..., None])[..., 0]
    ratio = (log - log.detach()).exp()
    return -(ratio * gain.detach()[:, None]).mean()


def positions() -> Iterator[Operator]:
    yield Operator("rope", rope_inputs, apply("LigerRopeFunction"), rope, fixed=ANGLES)
    yield Operator(
        "qwen2vl_mrope",
        mrope_inputs,
        lambda q, k, cos, sin: apply("LigerQwen2VLMRopeFunction", sections=[16, 8, 8])(
            q=q, k=k, cos=cos, sin=sin
        ),
        lambda q, k, cos, sin: rope(q, k, sectioned(cos), sectioned(sin)),
        fixed=ANGLES,
        sizes={"keys": 64},
    )
    yield Operator(
        "embedding",
        lambda s: {
            "table": s.normal(s.sizes.words, s.sizes.columns // 4),
            "at": s.integers(s.sizes.rows, below=s.sizes.words),
        },
        apply("LigerEmbeddingFunction"),
        lambda table, at: table[at],
    )
    yield Operator(
        "attn_res",
        lambda s: {
            "x": s.normal(8, s.sizes.rows, s.sizes.columns),
            "query": s.normal(s.sizes.columns, scale=0.05),
            "w": s.normal(s.sizes.columns),
        },
        apply("LigerAttnResFunction", eps=1e-6),
        depth_attention,
    )
    yield Operator(
        "multi_token_attention",
        lambda s: {
            "scores": s.normal(s.sizes.batch, 4, s.sizes.rows // 8, s.sizes.rows // 8),
            "weight": s.normal(4, 4, 3, 3, scale=0.2),
        },
        apply("LigerMultiTokenAttentionFunction", bias=None, stride=1, padding=1),
        multi_token,
    )
    yield Operator(
        "fused_neighborhood_attention",
        lambda s: {
            n: s.normal(s.sizes.batch, s.sizes.heads, s.sizes.rows // 4, 64)
            for n in ("query", "key", "value")
        },
        apply("LigerFusedNeighborhoodAttentionFunction", kernel_size=7),
        neighborhood,
    )
    yield Operator(
        "mhc_pre",
        lambda s: {
            "x": s.normal(s.sizes.rows, 4, s.sizes.columns),
            "h": s.normal(s.sizes.rows, 4, dtype=torch.float32),
        },
        apply("LigerMHCPreFunction"),
        lambda x, h: torch.einsum("tnc,tn->tc", x, h),
    )
    yield Operator(
        "mhc_post_res",
        lambda s: {
            "x": s.normal(s.sizes.rows, 4, s.sizes.columns),
            "f": s.normal(s.sizes.rows, s.sizes.columns),
            "post": s.normal(s.sizes.rows, 4, dtype=torch.float32),
            "res": s.normal(s.sizes.rows, 4, 4, dtype=torch.float32),
        },
        apply("LigerMHCPostResFunction"),
        lambda x, f, post, res: torch.einsum("tmc,tnm->tnc", x, res) + post[..., None] * f[:, None],
    )
    yield Operator("mhc_coeffs", hyper, coefficients, plain.hyper_coefficients)


ANGLES = frozenset({"cos", "sin"})


def rope_inputs(s: Source) -> Tensors:
    z = s.sizes
    rotations = s.normal(1, z.time, z.keys // 2).float()
    angles = torch.cat([rotations, rotations], -1)
    q, k = (s.normal(z.batch, z.heads, z.time, z.keys) for _ in range(2))
    return {"q": q, "k": k, "cos": angles.cos().to(s.dtype), "sin": angles.sin().to(s.dtype)}


def rope(q: Any, k: Any, cos: Any, sin: Any) -> Any:
    half = q.shape[-1] // 2
    cos, sin = cos[:, None, :, :half], sin[:, None, :, :half]
    return plain.rotate(q, cos, sin), plain.rotate(k, cos, sin)


def mrope_inputs(s: Source) -> Tensors:
    z = s.sizes
    rotations = s.normal(3, z.batch, z.time, 32).float()
    angles = torch.cat([rotations, rotations], -1)
    q, k = (s.normal(z.batch, z.heads, z.time, 64) for _ in range(2))
    return {"q": q, "k": k, "cos": angles.cos().to(s.dtype), "sin": angles.sin().to(s.dtype)}


def sectioned(x: Any) -> Any:
    """Of three kinds of positions, each for its section of the angles."""
    parts = x[..., :32].split([16, 8, 8], -1)
    return torch.cat([part[i] for i, part in enumerate(parts)], -1)


def depth_attention(x: Any, query: Any, w: Any) -> Any:
    shares = torch.einsum("ntd,d->nt", plain.rms(x, w), query).softmax(0)
    return torch.einsum("ntd,nt->td", x, shares)


def multi_token(scores: Any, weight: Any) -> Any:
    size = scores.shape[-1]
    later = torch.ones(size, size, device=scores.device, dtype=torch.bool).triu(1)
    shares = scores.masked_fill(later, float("-inf")).softmax(-1)
    return F.conv2d(shares, weight, padding=1).masked_fill(later, 0.0)


def neighborhood(query: Any, key: Any, value: Any) -> Any:
    """Each position sees the three before it, itself, and the three after."""
    at = torch.arange(query.shape[2], device=query.device)
    far = (at[:, None] - at[None]).abs() > 3
    scores = query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5
    return scores.masked_fill(far, float("-inf")).softmax(-1) @ value


def hyper(s: Source) -> Tensors:
    z = s.sizes
    width = 4 * z.columns
    return {
        "x": s.normal(z.rows, 4, z.columns),
        "phi": s.normal(width, 24, scale=0.02),
        "b": s.normal(24, dtype=torch.float32),
        **{f"alpha_{n}": s.uniform(1, dtype=torch.float32) for n in ("pre", "post", "res")},
    }


def coefficients(**inputs: Any) -> Any:
    scalars = {n: x.reshape(()) for n, x in inputs.items() if n.startswith("alpha")}
    given = {**inputs, **scalars}.values()
    call = late("liger_kernel.ops", "LigerMHCCoeffsFunction.apply")
    return call(*given, False, 20, 1e-6, 0.0, 1e-6, 2.0)


def operators() -> Iterator[Operator]:
    yield from norms()
    yield from activations()
    yield from losses()
    yield from positions()
