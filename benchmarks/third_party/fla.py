"""Operators of flash-linear-attention."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

from benchmarks.third_party import references as plain
from benchmarks.third_party.operators import REAL, Operator, Source, Tensors, late

F = torch.nn.functional


def naive(family: str, name: str, **fixed: Any) -> Callable[..., Any]:
    """The library's own reference: the first of what it gives."""
    return first(late(f"fla.ops.{family}.naive", name, **fixed))


def first(call: Callable[..., Any]) -> Callable[..., Any]:
    def called(**inputs: Any) -> Any:
        found = call(**inputs)
        return found[0] if isinstance(found, tuple) else found

    return called


def ordered(call: Callable[..., Any]) -> Callable[..., Any]:
    """A function that takes no keywords."""
    return lambda **inputs: call(*inputs.values())


def with_flash(call: Callable[..., Any], *modules: str) -> Callable[..., Any]:
    """A function of modules that take flash-attn's: where that isn't installed torch's stands for it."""

    def called(**inputs: Any) -> Any:
        for module in map(importlib.import_module, modules):
            if module.flash_attn_func is None:
                module.flash_attn_func = plain.flash_attention
        return call(**inputs)

    return called


def qkv(s: Source) -> Tensors:
    z = s.sizes
    return {"q": s.head(z.keys), "k": s.head(z.keys), "v": s.head(z.values)}


def unit_qkv(s: Source) -> Tensors:
    z = s.sizes
    return {"q": s.unit(z.keys), "k": s.unit(z.keys), "v": s.head(z.values)}


def with_(base: Callable[[Source], Tensors], **more: Callable[[Source], Any]) -> Any:
    return lambda s: base(s) | {name: make(s) for name, make in more.items()}


def gate(s: Source) -> Any:
    return s.gate()


def gates(s: Source) -> Any:
    return s.gate(s.sizes.keys, 0.5)


def share(s: Source) -> Any:
    return s.share()


def op(name: str) -> Callable[..., Any]:
    return late("fla.ops", name)


def linear() -> Iterator[Operator]:
    """Linear attention, with and without decay."""
    for form in ("chunk", "fused_chunk", "fused_recurrent"):
        call = late("fla.ops", f"{form}_linear_attn", normalize=False)
        yield Operator(f"{form}_linear_attn", qkv, call, plain.linear)
    for form in ("chunk", "fused_chunk", "fused_recurrent", "parallel"):
        yield Operator(f"{form}_retention", qkv, op(f"{form}_retention"), plain.retention)
        inputs = with_(qkv, g=gate)
        yield Operator(f"{form}_simple_gla", inputs, op(f"{form}_simple_gla"), plain.decayed)
    yield Operator("chunk_gla", with_(qkv, g=gates), op("chunk_gla"), plain.decayed)
    recurrent = op("fused_recurrent_gla")
    yield Operator("fused_recurrent_gla", with_(qkv, gk=gates), recurrent, plain.decayed)
    for form in ("chunk", "fused_recurrent"):
        call = late("fla.ops", f"{form}_lightning_attn", layer_idx=0, num_layers=4)
        yield Operator(f"{form}_lightning_attn", qkv, call, plain.lightning)
        yield Operator(f"{form}_rwkv6", rwkv6_inputs, op(f"{form}_rwkv6"), plain.rwkv6)
        yield Operator(
            f"{form}_gsa",
            with_(qkv, s=lambda s: s.head(64), g=lambda s: s.gate(64, 0.1)),
            op(f"{form}_gsa"),
            naive("gsa", "naive_recurrent_gsa"),
        )
        call = late(f"fla.ops.hgrn.{form}", f"{form}_hgrn")
        yield Operator(f"{form}_hgrn", hgrn_inputs, call, plain.hgrn)
    inputs = with_(qkv, s=lambda s: s.head(64))
    yield Operator("chunk_abc", inputs, op("chunk_abc"), abc_reference)
    call = first(late("fla.ops.lightnet.chunk", "chunk_lightnet"))
    yield Operator("chunk_lightnet", qkv, call, plain.lightnet)
    yield Operator(
        "chunk_log_linear_attn",
        with_(qkv, g=gate, level_scales=lambda s: s.share(12)),
        op("chunk_log_linear_attn"),
        naive("log_linear_attn", "naive_log_linear_attn"),
        backward=False,
        small={"keys": 64, "values": 64},  # states are cut into blocks of 64
    )


def rwkv6_inputs(s: Source) -> Tensors:
    z = s.sizes
    found = {"r": s.head(z.keys), "k": s.head(z.keys), "v": s.head(z.values)}
    return found | {"w": s.gate(z.keys), "u": s.normal(z.heads, z.keys)}


def hgrn_inputs(s: Source) -> Tensors:
    z = s.sizes
    width = z.heads * z.keys
    gate = F.logsigmoid(s.normal(z.batch, z.time, width).float()).to(s.dtype)
    return {"x": s.normal(z.batch, z.time, width), "g": gate}


def abc_reference(**inputs: Any) -> Any:
    transposed = {n: x.transpose(1, 2) for n, x in inputs.items()}
    return naive("abc", "naive_recurrent_abc")(**transposed).transpose(1, 2)


def deltas() -> Iterator[Operator]:
    """The delta rule and its kin."""
    for form in ("chunk", "fused_recurrent"):
        yield Operator(
            f"{form}_delta_rule", with_(unit_qkv, beta=share), op(f"{form}_delta_rule"), plain.delta
        )
        inputs = with_(unit_qkv, g=gate, beta=share)
        call = op(f"{form}_gated_delta_rule")
        yield Operator(f"{form}_gated_delta_rule", inputs, call, plain.delta)
        inputs = with_(unit_qkv, g=gates, beta=share)
        yield Operator(f"{form}_kda", inputs, op(f"{form}_kda"), plain.delta)
        inputs = with_(comba_inputs, g=gate, beta=share)
        yield Operator(f"{form}_comba", inputs, op(f"{form}_comba"), plain.comba)
        low_rank = plain.diagonal_plus_low_rank
        for kind, more in (("dplr", {"gk": gates}), ("iplr", {})):
            call = op(f"{form}_{kind}_delta_rule")
            inputs = with_(low_rank_inputs, **more)
            back = kind == "dplr"  # the other has no gradients
            yield Operator(f"{form}_{kind}_delta_rule", inputs, call, low_rank, backward=back)
        call = late("fla.ops", f"{form}_rwkv7", scale=1.0)
        yield Operator(f"{form}_rwkv7", rwkv7_inputs, call, plain.rwkv7)
        yield Operator(
            f"{form}_gdn2",
            with_(
                unit_qkv,
                g=gates,
                b=lambda s: s.share(s.sizes.keys),
                w=lambda s: s.share(s.sizes.values),
            ),
            late(f"fla.ops.gdn2.{form}", f"{form}_gdn2"),
            naive("gdn2", "naive_recurrent_gdn2"),
            backward=form == "chunk",
        )
        inputs = with_(unit_qkv, v=lambda s: s.unit(s.sizes.values), gv=gates, beta=share)
        call = late(f"fla.ops.gated_oja_rule.{form}", f"{form}_gated_oja_rule")
        back = form == "chunk"
        yield Operator(f"{form}_gated_oja_rule", inputs, call, plain.oja, backward=back)
        for kind, decay in (("gated_delta_rule", gate), ("kda", gates)):
            inputs = with_(unit_qkv, g=decay, g_atk=gate, beta=share, beta_atk=share)
            call = op(f"{form}_precond_{kind}")
            name = f"{form}_precond_{kind}"
            yield Operator(name, inputs, call, plain.preconditioned, backward=back)
    yield Operator(
        "chunk_gated_delta_product",
        product_inputs,
        late(
            "fla.ops.gated_delta_product.chunk",
            "chunk_gated_delta_product",
            num_householder=2,
            scale=REAL.keys**-0.5,
        ),
        naive(
            "gated_delta_product",
            "naive_recurrent_gated_delta_product",
            num_householder=2,
            scale=REAL.keys**-0.5,
        ),
    )
    yield Operator(
        "chunk_momentum_delta_rule",
        with_(unit_qkv, log_alpha=gate, log_mu=gate, beta=share, eta=share),
        op("chunk_momentum_delta_rule"),
        plain.momentum,
        tolerance=0.12,  # chunks in torch, 0.07 off in float32: Triton only normalizes
    )
    yield Operator(
        "chunk_mesa_net",
        with_(unit_qkv, g=gate, beta=share, lamb=mesa_diagonal),
        op("chunk_mesa_net"),
        plain.mesa,
    )
    for form in ("chunk", "fused_chunk"):
        yield Operator(
            f"{form}_ttt_linear",
            ttt_inputs,
            late(f"fla.ops.ttt.{form}", f"{form}_ttt_linear"),
            naive("ttt", "chunk_ttt_linear_ref"),
            sizes={"keys": 64, "values": 64},
        )


def comba_inputs(s: Source) -> Tensors:
    found = unit_qkv(s)
    return found | {"p": found["k"] * 0.5}


def low_rank_inputs(s: Source) -> Tensors:
    unit = s.unit(s.sizes.keys)
    return qkv(s) | {
        "a": -unit,
        "b": (unit.float() * s.head().float().sigmoid()[..., None]).to(s.dtype),
    }


def rwkv7_inputs(s: Source) -> Tensors:
    found = low_rank_inputs(s)
    decay = -0.6065306597126334 * s.head(s.sizes.keys).float().sigmoid()
    names = {"r": "q", "k": "k", "v": "v", "a": "a", "b": "b"}
    return {n: found[at] for n, at in names.items()} | {"w": decay}


def product_inputs(s: Source) -> Tensors:
    z = s.sizes
    long = (z.batch, 2 * z.time, z.heads)
    k = F.normalize(s.normal(*long, z.keys).float(), dim=-1).to(s.dtype)
    found = {"q": s.unit(z.keys), "k": k, "v": s.normal(*long, z.values)}
    return found | {"g": s.gate(), "beta": s.normal(*long).float().sigmoid().to(s.dtype)}


def mesa_diagonal(s: Source) -> Any:
    return s.uniform(s.sizes.heads, s.sizes.keys, low=0.25, high=1.0, dtype=torch.float32)


def ttt_inputs(s: Source) -> Tensors:
    z = s.sizes
    found = {"q": s.unit(z.keys), "k": s.unit(z.keys), "v": s.unit(z.keys)}
    w, b = s.normal(z.heads, z.keys, scale=0.1), s.normal(z.heads, z.keys, scale=0.1)
    return found | {"w": w + 1, "b": b, "eta": s.head(1, 0.01).abs()}


def attentions() -> Iterator[Operator]:
    """Attention with keys that are not summed up."""
    yield Operator("parallel_attn", qkv, op("parallel_attn"), plain.attention)
    forgets = naive("forgetting_attn", "naive_forgetting_attn")
    inputs = with_(qkv, g=gate)
    yield Operator("parallel_forgetting_attn", inputs, op("parallel_forgetting_attn"), forgets)
    inputs = with_(qkv, r=lambda s: s.head(s.sizes.keys, 0.1))
    parallax = naive("parallax", "naive_parallax")
    yield Operator("parallel_parallax", inputs, op("parallel_parallax"), parallax)
    breaking = naive("stickbreaking_attn", "naive_stickbreaking_attn")
    call = op("parallel_stickbreaking_attn")
    yield Operator(  # its gradients are sums of bf16 that cancel: 0.03 off where there is one block
        "parallel_stickbreaking_attn", qkv, call, breaking, tolerance=0.04
    )
    yield Operator(
        "parallel_path_attn",
        with_(
            qkv, w=lambda s: s.unit(s.sizes.keys).float(), beta=lambda s: share(s).float(), g=gate
        ),
        op("parallel_path_attn"),
        lambda q, k, v, w, beta, g: naive("path_attn", "naive_path_attn")(
            q=q, k=k, v=v, w=w, beta=beta, g=g, scale=q.shape[-1] ** -0.5
        ),
        sizes={"keys": 64, "values": 64},
    )
    deltaformer = "fla.ops.deltaformer.parallel"
    yield Operator(
        "deltaformer_attn",
        with_(qkv, beta=share),
        with_flash(late(deltaformer, "deltaformer_attn"), deltaformer),
        naive("deltaformer", "naive_deltaformer_attn"),
        sizes={"batch": 1, "time": 2048},
        small={"time": 128},  # its kernels read whole chunks
    )
    wide = {"batch": 1}
    for form in ("parallel", "fused_chunk"):
        call = late("fla.ops", f"{form}_based")
        narrow = heads_first(naive("based", "naive_parallel_based"))
        yield Operator(f"{form}_based", narrow_inputs, call, narrow, sizes=wide)
    call = late("fla.ops.rebased.parallel", "parallel_rebased")
    yield Operator("parallel_rebased", narrow_inputs, call, plain.rebased, sizes=wide)
    blocks = {"block_size": 32, "block_counts": 4, "window_size": 32}
    sparse = "fla.ops.nsa"
    yield Operator(
        "parallel_nsa",
        nsa_inputs,
        with_flash(late("fla.ops", "parallel_nsa", **blocks), f"{sparse}.parallel"),
        with_flash(naive("nsa", "naive_nsa", **blocks), f"{sparse}.naive"),
        sizes={"batch": 1, "heads": 4},
    )
    walls = naive("wall_attn", "naive_wall_attn", scale=0.125)
    call = late("fla.ops", "parallel_wall_attn", scale=0.125)
    inputs = with_(qkv, g=gates)
    yield Operator("parallel_wall_attn", inputs, call, walls, sizes={"keys": 64, "values": 64})


def heads_first(reference: Callable[..., Any]) -> Callable[..., Any]:
    """A reference of [batch, heads, time, width] for [batch, time, heads, width]."""
    return lambda **given: reference(**{n: x.transpose(1, 2) for n, x in given.items()}).transpose(
        1, 2
    )


def narrow_inputs(s: Source) -> Tensors:
    return {"q": s.head(16), "k": s.head(16), "v": s.head(s.sizes.values)}


def nsa_inputs(s: Source) -> Tensors:
    """Sixteen queries' heads a head of keys."""
    z = s.sizes
    heads = 16 * z.heads
    q = s.normal(z.batch, z.time, heads, z.keys)
    found = {"q": q, "k": s.head(z.keys), "v": s.head(z.values)}
    for name in ("g_cmp", "g_slc", "g_swa"):
        found[name] = s.normal(z.batch, z.time, heads).float().sigmoid().to(s.dtype)
    blocks = torch.arange(z.time, device=s.device) // 32
    picked = torch.stack([(blocks - n).clamp(min=0) for n in range(4)], -1)
    found["block_indices"] = picked.expand(z.batch, z.heads, -1, -1).transpose(1, 2).contiguous()
    return found


def utilities() -> Iterator[Operator]:
    module = "fla.ops.utils"
    for reverse in (False, True):
        name = "_reverse" if reverse else ""
        sums = late(f"{module}.cumsum", "chunk_local_cumsum", chunk_size=64, reverse=reverse)
        for what, inputs in (("scalar", gate), ("vector", gates)):
            yield Operator(
                f"chunk_local_cumsum_{what}{name}",
                lambda s, inputs=inputs: {"g": inputs(s)},
                sums,
                lambda g, reverse=reverse: plain.chunk_sums(g, 64, reverse),
                backward=False,
            )
            yield Operator(
                f"chunk_global_cumsum_{what}{name}",
                lambda s, inputs=inputs: {"s": inputs(s)},
                late(f"{module}.cumsum", "chunk_global_cumsum", reverse=reverse),
                lambda s, reverse=reverse: plain.chunk_sums(s, s.shape[1], reverse),
                backward=False,
            )
    rows = lambda s: {"x": s.normal(s.sizes.rows, s.sizes.columns)}  # noqa: E731
    call = late(f"{module}.softmax", "softmax_fwd")
    yield Operator("softmax_fwd", rows, call, lambda x: x.softmax(-1), backward=False)
    call = late(f"{module}.logsumexp", "logsumexp_fwd")
    yield Operator("logsumexp_fwd", rows, call, lambda x: x.logsumexp(-1), backward=False)
    pools = lambda s: {"x": s.head(s.sizes.values)}  # noqa: E731
    call = late(f"{module}.pooling", "mean_pooling", chunk_size=32)
    yield Operator("mean_pooling", pools, call, pooled)
    call = late(f"{module}.solve_tril", "solve_tril")
    yield Operator("solve_tril", triangles, call, inverted, backward=False)
    call = late(f"{module}.matmul", "matmul")
    yield Operator("matmul", product, call, lambda a, b: a @ b, backward=False)
    call = late(f"{module}.sinkhorn.ops", "sinkhorn")
    logits = lambda s: {"logits": s.normal(s.sizes.rows, 4, 4, dtype=torch.float32)}  # noqa: E731
    balanced = late(f"{module}.sinkhorn.naive", "naive_sinkhorn")
    yield Operator("sinkhorn", logits, call, balanced)


def pooled(x: Any) -> Any:
    return torch.stack([part.mean(1) for part in x.split(32, 1)], 1)


def triangles(s: Source) -> Tensors:
    z = s.sizes
    time = z.time // 64 * 64
    a = s.normal(z.batch, time, z.heads, 64, dtype=torch.float32, scale=0.1)
    row = torch.arange(time, device=s.device) % 64
    below = torch.arange(64, device=s.device)[None] < row[:, None]
    return {"A": a * below[None, :, None]}


def inverted(A: Any) -> Any:
    chunks = A.unflatten(1, (-1, 64)).transpose(2, 3)
    eye = torch.eye(64, device=A.device, dtype=A.dtype)
    return torch.linalg.inv(chunks + eye).transpose(2, 3).flatten(1, 2)


def product(s: Source) -> Tensors:
    n = s.sizes.columns
    return {"a": s.normal(s.sizes.rows, n), "b": s.normal(n, n)}


def modules() -> Iterator[Operator]:
    """Norms, activations, convolutions and losses."""
    shape = lambda s: (s.sizes.batch, s.sizes.rows // s.sizes.batch, s.sizes.columns)  # noqa: E731
    norm = "fla.modules.norm"

    def rows(*names: str) -> Callable[[Source], Tensors]:
        return lambda s: {n: s.normal(*shape(s)) for n in names}

    def weights(*names: str) -> Any:
        return {n: lambda s: s.normal(s.sizes.columns) for n in names}

    inputs = with_(rows("x"), **weights("weight", "bias"))
    normed = lambda x, weight, bias: F.layer_norm(x, x.shape[-1:], weight, bias, 1e-5)  # noqa: E731
    yield Operator("layer_norm", inputs, late(f"{norm}.layernorm", "layer_norm"), normed)
    yield Operator(
        "rms_norm",
        inputs,
        late(f"{norm}.layernorm", "rms_norm"),
        lambda x, weight, bias: plain.rms(x, weight, 1e-5) + bias,
    )
    inputs = with_(rows("x", "g"), **weights("weight", "bias"))
    yield Operator(
        "layer_norm_gated",
        inputs,
        late(f"{norm}.fused_norm_gate", "layer_norm_gated"),
        lambda x, g, weight, bias: F.layer_norm(x, x.shape[-1:], weight, bias, 1e-6) * F.silu(g),
    )
    yield Operator(
        "rms_norm_gated",
        inputs,
        late(f"{norm}.fused_norm_gate", "rms_norm_gated"),
        lambda x, g, weight, bias: (plain.rms(x, weight) + bias) * F.silu(g),
    )
    inputs = with_(rows("x", "z"), **weights("weight", "bias"))
    yield Operator(
        "layernorm_fn",
        inputs,
        late(f"{norm}.layernorm_gated", "layernorm_fn"),
        lambda x, z, weight, bias: F.layer_norm(x, x.shape[-1:], weight, bias, 1e-6) * F.silu(z),
    )
    yield Operator(
        "l2norm",
        lambda s: {"x": s.head(s.sizes.keys)},
        late(f"{norm}.l2norm", "l2norm"),
        lambda x: x * (x.square().sum(-1, keepdim=True) + 1e-6).rsqrt(),
    )
    functions = {
        "sigmoid": torch.sigmoid,
        "swish": F.silu,
        "logsigmoid": F.logsigmoid,
    }
    for name, function in functions.items():
        call = late("fla.modules.activations", name)
        yield Operator(name, rows("x"), ordered(call), ordered(function))
    call = ordered(late("fla.modules.activations", "swiglu"))
    yield Operator("swiglu", rows("x", "y"), call, lambda x, y: F.silu(x) * y)
    yield Operator(
        "causal_conv1d",
        with_(
            rows("x"),
            weight=lambda s: s.normal(s.sizes.columns, 4),
            bias=lambda s: s.normal(s.sizes.columns),
        ),
        late("fla.modules.causal_conv1d.ops", "causal_conv1d", activation="silu"),
        plain.short_convolution,
    )
    call = late("fla.modules.token_shift", "token_shift")
    yield Operator(
        "token_shift", rows("x"), call, late("fla.modules.token_shift", "token_shift_ref")
    )
    yield Operator(
        "rotary_embedding",
        lambda s: {"x": s.head(s.sizes.keys)} | angles(s),
        late("fla.modules.rotary.ops", "rotary_embedding"),
        lambda x, cos, sin: plain.rotate(x, cos[:, None], sin[:, None]),
        fixed=frozenset({"cos", "sin"}),
    )
    yield Operator(
        "cross_entropy_loss",
        lambda s: {
            "logits": s.normal(s.sizes.rows // 2, s.sizes.words),
            "target": s.integers(s.sizes.rows // 2, below=s.sizes.words),
        },
        lambda **given: late("fla.modules.fused_cross_entropy.ops", "cross_entropy_loss")(**given)[
            0
        ],
        lambda logits, target: F.cross_entropy(logits, target, reduction="none"),
    )
    yield Operator(
        "fused_linear_cross_entropy_loss",
        lambda s: projected(s) | {"target": s.integers(s.sizes.rows // 2, below=s.sizes.words)},
        late("fla.modules.fused_linear_cross_entropy.ops", "fused_linear_cross_entropy_loss"),
        lambda x, weight, target: F.cross_entropy(x @ weight.T, target),
    )
    yield Operator(
        "fused_kl_div_loss",
        lambda s: projected(s) | {f"target_{n}": x for n, x in projected(s).items()},
        late("fla.modules.fused_kl_div.ops", "fused_kl_div_loss"),
        divergence,
        fixed=frozenset({"target_x", "target_weight"}),
    )


def angles(s: Source) -> Tensors:
    shape = (s.sizes.time, s.sizes.keys // 2)
    return {"cos": s.normal(*shape).cos(), "sin": s.normal(*shape).sin()}


def projected(s: Source) -> Tensors:
    z = s.sizes
    weight = s.normal(z.words, z.columns // 4, scale=0.05)
    return {"x": s.normal(z.rows // 2, z.columns // 4), "weight": weight}


def divergence(x: Any, weight: Any, target_x: Any, target_weight: Any) -> Any:
    ours, theirs = (x @ weight.T).log_softmax(-1), (target_x @ target_weight.T).softmax(-1)
    return F.kl_div(ours, theirs, reduction="batchmean")


def operators() -> Iterator[Operator]:
    yield from linear()
    yield from deltas()
    yield from attentions()
    yield from utilities()
    yield from modules()
