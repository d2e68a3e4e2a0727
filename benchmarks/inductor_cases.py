"""What `benchmarks.inductor` compiles: functions of PyTorch's as models have them, and their inputs.

A case is made for a device and a size; sizes below 1 are for CPUs.  torch is imported when a case is made.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Case:
    """fn(*inputs) gives a tensor or a tuple of them; inputs that require gradients get them, unless
    `forward_only`.  random: its result is drawn, so that eager mode has another.  options: of torch.compile.
    tolerance: of the relative error, beside eager mode's own.  seeds: of outputs' gradients, once drawn.
    others: inputs of other sizes, which are checked too, before.  dynamic: their sizes are symbols.
    plain: what gives the same by PyTorch's functions, where fn launches kernels.  ahead: by AOTInductor."""

    fn: Callable[..., Any]
    inputs: list[Any]
    forward_only: bool = False
    random: bool = False
    options: dict[str, Any] | None = None
    tolerance: float = 0.0
    seeds: list[Any] | None = None
    others: list[list[Any]] = field(default_factory=list)
    dynamic: bool | None = None
    plain: Callable[..., Any] | None = None
    ahead: bool = False


class Maker:
    """Draws inputs: with(8, 16) a tensor that wants a gradient, of the dtype chosen."""

    def __init__(self, device: str, scale: float, dtype: str = "bfloat16") -> None:
        import torch
        import torch.nn.functional as F

        self.torch, self.F, self.device, self.scale = torch, F, device, scale
        self.dtype = getattr(torch, dtype)
        self.generator = torch.Generator().manual_seed(0)

    def n(self, n: int) -> int:
        """A size, scaled down to a multiple of 8 where the case is to be small."""
        return n if self.scale >= 1 else max(8, int(n * self.scale) // 8 * 8)

    def __call__(self, *shape: int, grad: bool = True, dtype: Any = None, by: float = 1.0) -> Any:
        drawn = self.torch.randn(shape, generator=self.generator) * by
        made = drawn.to(self.dtype if dtype is None else dtype).to(self.device)
        return made.requires_grad_(grad)

    def integers(self, high: int, *shape: int) -> Any:
        return self.torch.randint(0, high, shape, generator=self.generator).to(self.device)


CASES: dict[str, Callable[[Maker], Case]] = {}


def case(make: Callable[[Maker], Case]) -> Callable[[Maker], Case]:
    CASES[make.__name__] = make
    return make


# ---- activations


def _pointwise(name: str, fn: Callable[[Any, Any], Any], inputs: int = 1) -> None:
    def make(m: Maker) -> Case:
        shape = m.n(4096), m.n(4096) + 8
        return Case(lambda *xs: fn(m.F, *xs), [m(*shape) for _ in range(inputs)])

    CASES[name] = make


_pointwise("gelu", lambda F, x: F.gelu(x))
_pointwise("gelu_tanh", lambda F, x: F.gelu(x, approximate="tanh"))
_pointwise("silu", lambda F, x: F.silu(x))
_pointwise("softplus", lambda F, x: F.softplus(x))
_pointwise("mish", lambda F, x: F.mish(x))
_pointwise("hardswish", lambda F, x: F.hardswish(x))
_pointwise("elu_tanh_sigmoid", lambda F, x: F.elu(x) + x.tanh() * x.sigmoid())
_pointwise("swiglu", lambda F, x, y: F.silu(x) * y, 2)
_pointwise("geglu", lambda F, x, y: F.gelu(x) * y, 2)
_pointwise("relu_squared", lambda F, x: F.relu(x).square())


@case
def transposed_add(m: Maker) -> Case:
    n = m.n(4096)
    return Case(lambda x, y: (x + y.t()).contiguous() * 2, [m(n, n), m(n, n)])


@case
def permuted_copy(m: Maker) -> Case:
    shape = 4, m.n(512), 16, 64
    return Case(lambda x: x.permute(0, 2, 1, 3).contiguous() * 0.5, [m(*shape)])


@case
def rotary_embedding(m: Maker) -> Case:
    length = m.n(2048)

    def rotate(q: Any, cos: Any, sin: Any) -> Any:
        a, b = q.chunk(2, -1)
        return q * cos + m.torch.cat((-b, a), -1) * sin

    return Case(
        rotate, [m(2, 16, length, 64), m(length, 64, grad=False), m(length, 64, grad=False)]
    )


# ---- norms


@case
def layer_norm(m: Maker) -> Case:
    n = m.n(4096)
    return Case(lambda x, w, b: m.F.layer_norm(x, (n,), w, b), [m(m.n(4096), n), m(n), m(n)])


@case
def layer_norm_wide(m: Maker) -> Case:
    n = m.n(16384)
    return Case(lambda x, w, b: m.F.layer_norm(x, (n,), w, b), [m(m.n(1024), n), m(n), m(n)])


@case
def rms_norm(m: Maker) -> Case:
    n = m.n(4096)
    return Case(lambda x, w: m.F.rms_norm(x, (n,), w, 1e-6), [m(m.n(4096), n), m(n)])


@case
def rms_norm_residual(m: Maker) -> Case:
    n = m.n(4096)

    def fn(x: Any, y: Any, w: Any) -> Any:
        h = x + y
        return m.F.rms_norm(h, (n,), w, 1e-6), h

    return Case(fn, [m(m.n(4096), n), m(m.n(4096), n), m(n)])


@case
def group_norm(m: Maker) -> Case:
    c = 64 if m.scale < 1 else 256
    return Case(
        lambda x, w, b: m.F.silu(m.F.group_norm(x, 32, w, b)), [m(8, c, m.n(64), 64), m(c), m(c)]
    )


@case
def batch_norm(m: Maker) -> Case:
    c = 16 if m.scale < 1 else 256
    return Case(
        lambda x, w, b: m.F.relu(m.F.batch_norm(x, None, None, w, b, training=True)),
        [m(8, c, m.n(64), 32), m(c), m(c)],
    )


@case
def instance_norm(m: Maker) -> Case:
    return Case(lambda x: m.F.instance_norm(x), [m(4, 32, m.n(128), 128)])


@case
def l2_normalize(m: Maker) -> Case:
    return Case(lambda x: m.F.normalize(x, dim=-1), [m(m.n(8192), m.n(1024))])


# ---- softmax, losses


@case
def softmax(m: Maker) -> Case:
    return Case(lambda x: m.F.softmax(x, -1), [m(m.n(4096), m.n(4096))])


@case
def log_softmax_wide(m: Maker) -> Case:
    return Case(lambda x: m.F.log_softmax(x.float(), -1), [m(m.n(1024), m.n(32768))])


@case
def softmax_columns(m: Maker) -> Case:
    return Case(lambda x: m.F.softmax(x, 0), [m(m.n(2048), m.n(4096))])


@case
def masked_softmax(m: Maker) -> Case:
    n = m.n(2048)
    causal = m.torch.ones(n, n, dtype=m.torch.bool).tril().to(m.device)
    return Case(
        lambda x, keep: m.F.softmax(x.masked_fill(~keep, -math.inf), -1), [m(8, n, n), causal]
    )


@case
def cross_entropy(m: Maker) -> Case:
    n, v = m.n(2048), m.n(32000)
    target = m.integers(v, n)
    return Case(lambda x, t: m.F.cross_entropy(x.float(), t), [m(n, v), target])


@case
def cross_entropy_smoothed(m: Maker) -> Case:
    n, v = m.n(2048), m.n(32000)
    target = m.integers(v, n)
    return Case(
        lambda x, t: m.F.cross_entropy(x.float(), t, label_smoothing=0.1, ignore_index=3),
        [m(n, v), target],
    )


@case
def losses(m: Maker) -> Case:
    shape = m.n(2048), m.n(2048)

    def fn(x: Any, y: Any) -> Any:
        F = m.F
        return (
            F.mse_loss(x.float(), y.float())
            + F.smooth_l1_loss(x.float(), y.float())
            + F.binary_cross_entropy_with_logits(x.float(), y.sigmoid().float())
            + F.kl_div(F.log_softmax(x.float(), -1), F.softmax(y.float(), -1))
        )

    return Case(fn, [m(*shape), m(*shape, grad=False)])


# ---- reductions


@case
def reductions(m: Maker) -> Case:
    x = m(m.n(2048), m.n(2048), dtype=m.torch.float32)
    return Case(
        lambda x: (x.sum(), x.mean(0), x.amax(-1), x.var(-1), x.std(0), x.logsumexp(-1), x.norm()),
        [x],
    )


@case
def arg_reductions(m: Maker) -> Case:
    x = m(m.n(2048), m.n(2048), dtype=m.torch.float32, grad=False)
    return Case(
        lambda x: (x.argmax(-1), x.argmin(0), x.min(-1).indices, x.any(-1), (x > 3).all(0)),
        [x],
        forward_only=True,
    )


@case
def integer_reductions(m: Maker) -> Case:
    x = m.integers(100, m.n(2048), m.n(2048))
    return Case(
        lambda x: (
            x.sum(-1),
            x.max(0).values,
            (x % 7).prod(-1),
            (x // 3).sum(),
            x.count_nonzero(-1),
        ),
        [x],
        forward_only=True,
    )


@case
def cooperative_reductions(m: Maker) -> Case:
    x = m(16, m.n(1 << 18), dtype=m.torch.float32, grad=False)
    return Case(
        lambda x: (x.sum(-1), x.amax(-1), x.var(-1), x.softmax(-1)),
        [x],
        forward_only=True,
        options={"triton.force_cooperative_reductions": True},
    )


@case
def sum_of_all(m: Maker) -> Case:
    return Case(lambda x: (x.float() * 1.5).sum(), [m(m.n(8192), m.n(8192))])


# ---- scans, sorts


@case
def cumulative_sum(m: Maker) -> Case:
    x = m(m.n(2048), m.n(2048), dtype=m.torch.float32)
    return Case(lambda x: x.cumsum(-1), [x])


@case
def cumulative_sum_long(m: Maker) -> Case:
    x = m(8, m.n(262144), dtype=m.torch.float32, grad=False)
    return Case(lambda x: x.cumsum(-1), [x], forward_only=True, tolerance=1e-5)


@case
def scans(m: Maker) -> Case:
    x = m(m.n(1024), m.n(1024), dtype=m.torch.float32, grad=False)
    return Case(
        lambda x: (x.cummax(-1), (1 + x / 100).cumprod(-1), x.logcumsumexp(-1)),
        [x],
        forward_only=True,
        tolerance=1e-5,
    )


@case
def small_sort(m: Maker) -> Case:
    x = m(m.n(4096), 128, dtype=m.torch.float32, grad=False)
    return Case(
        lambda x: (*m.torch.sort(x, stable=True, dim=-1), x.median(-1).values),
        [x],
        forward_only=True,
    )


# ---- lookups


@case
def embedding(m: Maker) -> Case:
    n, c = m.n(32000), m.n(1024)
    return Case(lambda w, t: m.F.embedding(t, w) * 2.0, [m(n, c), m.integers(n, 8, m.n(512))])


@case
def gather_scatter(m: Maker) -> Case:
    n = m.n(2048)
    at = m.integers(n, n, 64)

    def fn(x: Any, at: Any) -> Any:
        picked = x.gather(1, at)
        return (
            m.torch.zeros_like(x).scatter_add(1, at, picked * 2),
            x[at[:, 0]],
            x.index_select(0, at[:, 1]),
        )

    return Case(fn, [m(n, n, dtype=m.torch.float32), at], tolerance=1e-6)


@case
def bucketize(m: Maker) -> Case:
    edges = m.torch.linspace(-3, 3, 100).to(m.device)
    x = m(m.n(2048), m.n(2048), dtype=m.torch.float32, grad=False)
    return Case(
        lambda x, e: (m.torch.bucketize(x, e), m.torch.searchsorted(e, x)), [x, edges], True
    )


@case
def convolution_epilogue(m: Maker) -> Case:
    x = m(4, 32, m.n(128), 128)
    return Case(
        lambda x: (
            m.F.max_pool2d(x, 2) + m.F.avg_pool2d(x, 2) + m.F.interpolate(x, scale_factor=0.5)
        ),
        [x],
    )


@case
def upsample(m: Maker) -> Case:
    x = m(2, 16, m.n(128), 128, dtype=m.torch.float32)
    return Case(
        lambda x: (
            m.F.interpolate(x, scale_factor=2, mode="bilinear")
            + m.F.pad(m.F.interpolate(x, scale_factor=2), (0, 0, 0, 0))
        ),
        [x],
        tolerance=1e-5,
    )


# ---- random


@case
def dropout(m: Maker) -> Case:
    return Case(lambda x: m.F.dropout(x, 0.25) * 2, [m(m.n(4096), m.n(4096))], random=True)


@case
def drawn(m: Maker) -> Case:
    x = m(m.n(2048), m.n(2048), dtype=m.torch.float32, grad=False)
    return Case(
        lambda x: (
            m.torch.rand_like(x),
            m.torch.randn_like(x),
            m.torch.randint_like(x, 0, 100),
        ),
        [x],
        forward_only=True,
        random=True,
    )


# ---- optimizers, quantization


@case
def adam_step(m: Maker) -> Case:
    shapes = [(m.n(1024), m.n(1024)), (m.n(4096),), (m.n(1024), 64), (7, 9)]
    f32 = m.torch.float32
    sets = [[m(*s, grad=False, dtype=f32) for s in shapes] for _ in range(3)]
    inputs = [t for one in sets for t in one] + [m(*s, grad=False, dtype=f32).abs() for s in shapes]

    def fn(*ts: Any) -> Any:
        t = m.torch
        k = len(shapes)
        p, g, mean, square = (list(ts[i * k : (i + 1) * k]) for i in range(4))
        mean = t._foreach_lerp(mean, g, 0.1)
        square = t._foreach_add(t._foreach_mul(square, 0.999), t._foreach_mul(g, g), alpha=1e-3)
        root = t._foreach_add(t._foreach_sqrt(square), 1e-8)
        step = t._foreach_div(mean, root)
        return (*t._foreach_sub(p, t._foreach_mul(step, 1e-3)), *mean, *square)

    return Case(fn, inputs, forward_only=True, tolerance=1e-6)


@case
def in_place_update(m: Maker) -> Case:
    f32 = m.torch.float32
    p, g = (m(m.n(4096), m.n(1024), grad=False, dtype=f32) for _ in range(2))

    def fn(p: Any, g: Any) -> Any:
        new = p.clone()
        new.mul_(0.9).add_(g, alpha=0.1)
        new[1:] += g[:-1]
        return new

    return Case(fn, [p, g], forward_only=True, tolerance=1e-6)


@case
def quantize_rows(m: Maker) -> Case:
    def fn(x: Any) -> Any:
        scale = x.abs().amax(-1, keepdim=True).float() / 448
        eight = (x.float() / scale).clamp(-448, 448).to(m.torch.float8_e4m3fn)
        return eight.float() * scale, (x.float() / scale / 4).round().to(m.torch.int8).float()

    return Case(fn, [m(m.n(2048), m.n(2048), grad=False)], forward_only=True, tolerance=1e-2)


@case
def double_precision(m: Maker) -> Case:
    x = m(m.n(1024), m.n(1024), dtype=m.torch.float64)
    return Case(lambda x: (x.exp().log1p() + x.sin() * x.erf()).sum(-1), [x], tolerance=1e-12)


@case
def special_functions(m: Maker) -> Case:
    x = m(m.n(1024), m.n(1024), dtype=m.torch.float32, grad=False)

    def fn(x: Any) -> Any:
        t = m.torch
        y = x.abs() + 0.5
        return (
            t.lgamma(y) + t.erfinv(x.tanh() * 0.9) + t.expm1(x / 4) + t.erfc(x) + t.exp2(x),
            t.atan2(x, y) + t.hypot(x, y) + t.fmod(x, 0.3) + t.remainder(x, 0.7) + y.pow(1.7),
            t.copysign(y, x) + t.asinh(x) + t.log1p(y) + t.frac(x) + t.trunc(x) + t.round(x),
            t.signbit(x) + t.ceil(y) + t.rsqrt(y) + t.tan(x / 3) + t.cosh(x) + t.acos(x / 9),
        )

    return Case(fn, [x], forward_only=True, tolerance=3e-6)


@case
def rare_functions(m: Maker) -> Case:
    x = m(m.n(1024), m.n(1024), dtype=m.torch.float32, grad=False)

    def fn(x: Any) -> Any:
        t = m.torch
        y = x.abs() + 0.5
        return (
            t.nextafter(x, y),
            t.frexp(x).mantissa + t.ldexp(x, t.ones_like(x)),
            t.special.i0(x) + t.special.i1(x),
            t.special.bessel_j0(y) + t.special.bessel_y1(y) + t.special.erfcx(y),
        )

    return Case(fn, [x], forward_only=True, tolerance=3e-6)


# ---- products, attention, models


def _tuned(m: Maker) -> dict[str, Any]:
    """Every product by a template: what the tuner times are templates only."""
    return {
        "max_autotune": True,
        "max_autotune_gemm_backends": "TRITON",
        "max_autotune_gemm_search_space": "DEFAULT",
        "triton.cudagraphs": False,
    }


@case
def matmul_template(m: Maker) -> Case:
    n = m.n(4096)
    return Case(
        lambda a, b: m.F.relu(a @ b), [m(n, n), m(n, n)], forward_only=True, options=_tuned(m)
    )


@case
def linear_template(m: Maker) -> Case:
    n = m.n(4096)
    return Case(
        lambda x, w, b: m.F.gelu(m.F.linear(x, w, b)),
        [m(m.n(2048), n), m(n, n, by=0.02), m(n)],
        forward_only=True,
        options=_tuned(m),
    )


@case
def bmm_template(m: Maker) -> Case:
    n = m.n(1024)
    return Case(
        lambda a, b: (a @ b) * 0.5,
        [m(16, n, 64), m(16, 64, n)],
        forward_only=True,
        options=_tuned(m),
    )


@case
def int8_template(m: Maker) -> Case:
    n = m.n(2048)
    a, b = (m.integers(255, n, n).sub(127).to(m.torch.int8) for _ in range(2))
    return Case(
        lambda a, b: m.torch._int_mm(a, b.t()), [a, b], forward_only=True, options=_tuned(m)
    )


def _flex(m: Maker, causal: bool, d: int = 64) -> Case:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    n = m.n(2048) // 128 * 128 or 128
    mask = None
    if causal:
        mask = create_block_mask(lambda b, h, q, k: q >= k, None, None, n, n, device=m.device)

    def score(s: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
        return s + (q - k) * 0.01

    return Case(
        lambda q, k, v: flex_attention(
            q, k, v, score_mod=None if causal else score, block_mask=mask
        ),
        [m(2, 8, n, d) for _ in range(3)],
    )


@case
def flex_attention_causal(m: Maker) -> Case:
    return _flex(m, True)


@case
def flex_attention_biased(m: Maker) -> Case:
    return _flex(m, False, 128)


@case
def transformer_block(m: Maker) -> Case:
    """Llama's: RMS norms, rotary attention, SwiGLU."""
    c, heads, length = m.n(2048), max(1, m.n(2048) // 128), m.n(2048)
    d, hidden = c // heads, m.n(2048) * 4
    angle = m.torch.outer(m.torch.arange(length), 10000.0 ** -(m.torch.arange(0, d, 2) / d))
    cos, sin = (
        f(m.torch.cat((angle, angle), -1)).to(m.dtype).to(m.device)
        for f in (m.torch.cos, m.torch.sin)
    )

    def rotate(q: Any, cos: Any, sin: Any) -> Any:
        a, b = q.chunk(2, -1)
        return q * cos + m.torch.cat((-b, a), -1) * sin

    def block(
        x: Any, cos: Any, sin: Any, n1: Any, n2: Any, wq: Any, wo: Any, w1: Any, w2: Any
    ) -> Any:
        F = m.F
        h = F.rms_norm(x, (c,), n1, 1e-6)
        q, k, v = (
            t.view(2, length, heads, d).transpose(1, 2) for t in F.linear(h, wq).chunk(3, -1)
        )
        o = F.scaled_dot_product_attention(
            rotate(q, cos, sin), rotate(k, cos, sin), v, is_causal=True
        )
        x = x + F.linear(o.transpose(1, 2).reshape(2, length, c), wo)
        gate, up = F.linear(F.rms_norm(x, (c,), n2, 1e-6), w1).chunk(2, -1)
        return x + F.linear(F.silu(gate) * up, w2)

    by = c**-0.5
    weights = [m(3 * c, c, by=by), m(c, c, by=by), m(2 * hidden, c, by=by), m(c, hidden, by=by / 2)]
    return Case(block, [m(2, length, c), cos, sin, m(c), m(c), *weights])


# ---- what else torch.compile can be asked for


@case
def graphs(m: Maker) -> Case:
    """Forward and backward as CUDA graphs, with memory that they share."""
    n = m.n(2048)
    return Case(
        lambda x, w: m.F.softmax(m.F.rms_norm(x, (n,), w, 1e-6), -1).cumsum(-1),
        [m(m.n(1024), n), m(n)],
        options={"triton.cudagraphs": True},
        tolerance=1e-2,
    )


@case
def graphs_of_drawn(m: Maker) -> Case:
    return Case(
        lambda x: m.F.dropout(x, 0.25) * 2,
        [m(m.n(1024), m.n(1024))],
        random=True,
        options={"triton.cudagraphs": True},
    )


@case
def symbolic_sizes(m: Maker) -> Case:
    """Rows and columns, aligned and not; a view that begins anywhere; a size as a number."""
    sizes = [(m.n(1024), m.n(2048)), (m.n(1024) + 1, m.n(2048) - 3), (3, 5)]

    def fn(x: Any, y: Any) -> Any:
        t, n = m.torch, x.shape[1]
        return (
            m.F.layer_norm(x.float(), (n,)) * n,
            t.cat((x, y), 1).softmax(-1),
            (x[1:, 1:].float() + y.t()[1:, 1:].t().float()).sum(0),
            x.reshape(-1)[1:].float().cumsum(0),
            x.view(-1)[::2] + 1,
        )

    drawn = [[m(*size), m(*size)] for size in sizes]
    return Case(fn, drawn[-1], others=drawn[:-1], dynamic=True, tolerance=1e-2)


@case
def symbolic_product(m: Maker) -> Case:
    sizes = [(m.n(1024), 256, 512), (m.n(1024) + 8, 264, 520), (m.n(1000) + 1, 100, 300)]
    drawn = [[m(a, k), m(k, b)] for a, k, b in sizes]
    return Case(
        lambda a, b: m.F.relu(a @ b),
        drawn[-1],
        forward_only=True,
        others=drawn[:-1],
        dynamic=True,
        options=_tuned(m),
    )


def _norms(name: str, **options: Any) -> None:
    """Reductions of rows and columns and a transposed sum, with options of Inductor's."""

    def make(m: Maker) -> Case:
        n = m.n(2048)
        by_name = {key.replace("__", "."): value for key, value in options.items()}

        def fn(x: Any, y: Any, w: Any) -> Any:
            F, h = m.F, x + y.t()
            return F.softmax(F.rms_norm(h, (n,), w, 1e-6), -1), h.float().sum(0), h.float().var(-1)

        return Case(fn, [m(n, n), m(n, n), m(n)], options=by_name, tolerance=1e-2)

    CASES[name] = make


_norms("chosen_kernels", triton__multi_kernel=1)
_norms("looped_reductions", triton__persistent_reductions=False)
_norms("block_pointers", triton__use_block_ptr=True)
_norms("tiles_of_many_axes", triton__prefer_nd_tiling=True, triton__tile_reductions=True)
_norms("descents", coordinate_descent_tuning=True)
_norms("pointwise_tuned", max_autotune_pointwise=True)


@case
def combined_kernels(m: Maker) -> Case:
    shapes = (m.n(1024), m.n(1024)), (m.n(304), 20), (m.n(512), 100)
    return Case(
        lambda x, y, z: (m.F.relu(x), y.sigmoid(), z.float().sum(-1), z.float().softmax(-1)),
        [m(*shape, grad=False) for shape in shapes],
        forward_only=True,
        options={"combo_kernels": True},
    )


@case
def descriptor_product(m: Maker) -> Case:
    """Persistent, with descriptors of the kernel's own."""
    n = m.n(2048)
    return Case(
        lambda a, b: m.F.relu(a @ b),
        [m(n, n), m(n, n)],
        forward_only=True,
        options={**_tuned(m), "triton.enable_persistent_tma_matmul": True},
    )


@case
def convolution_template(m: Maker) -> Case:
    return Case(
        lambda x, w: m.F.relu(m.F.conv2d(x, w, padding=1)),
        [m(8, 64, m.n(64), 64), m(128, 64, 3, 3, by=0.05)],
        forward_only=True,
        options={**_tuned(m), "max_autotune_conv_backends": "TRITON"},
    )


@case
def tuned_in_processes(m: Maker) -> Case:
    n = m.n(1024)
    return Case(
        lambda a, b: a @ b,
        [m(n, n), m(n, n)],
        forward_only=True,
        options={**_tuned(m), "autotune_in_subproc": True},
    )


@case
def flex_decoding(m: Maker) -> Case:
    """One query of eight heads for each head of keys."""
    from torch.nn.attention.flex_attention import flex_attention

    shape = 4, 2, m.n(4096), 64
    return Case(
        lambda q, k, v: flex_attention(q, k, v, enable_gqa=True),
        [m(4, 16, 1, 64, grad=False), m(*shape, grad=False), m(*shape, grad=False)],
        forward_only=True,
    )


# Kernels of users' own stand in the module, where Triton looks up what annotations name.


def _kernels() -> Any:
    """Kernels by the Triton that is served, made once."""
    global tl
    import triton
    import triton.language

    tl = triton.language
    if not _made:
        tuned = triton.autotune(
            [triton.Config({"BLOCK": n}, num_warps=4) for n in (256, 1024)], key=["n"]
        )
        tuned_once = triton.autotune([triton.Config({}, num_warps=4)], key=["n"])
        found = triton.heuristics({"BLOCK": lambda args: 256 if args["n"] > 1 else 16})
        _made.update(scale=triton.jit(scale), tuned=tuned(triton.jit(scale)))
        _made.update(found=tuned_once(found(triton.jit(scale))))
        _made.update(copied=triton.jit(copied))
    return _made


tl: Any = None
_made: dict[str, Any] = {}


def scale(x_ptr, out_ptr, n, by, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, at < n).to(tl.float32)
    tl.store(out_ptr + at, (x * by).to(out_ptr.dtype.element_ty), at < n)


def copied(x, out, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = [tl.program_id(0) * BLOCK, tl.program_id(1) * BLOCK]
    out.store(at, x.load(at) * 2)


@case
def own_kernel(m: Maker) -> Case:
    """A user's kernels among Inductor's: one that is tuned, sizes that are numbers."""
    import triton

    kernels = _kernels()
    n = m.n(1 << 20)

    def fn(x: Any) -> Any:
        y, z = m.F.gelu(x), m.torch.empty_like(x)
        out = m.torch.empty_like(x)
        size = x.numel()
        kernels["scale"][(triton.cdiv(size, 512),)](y, z, size, 1.5, 512, num_warps=8)
        kernels["tuned"][lambda meta: (triton.cdiv(size, meta["BLOCK"]),)](z + 1, out, size, 0.5)
        kernels["found"][(triton.cdiv(size, 256),)](out + 0, out, size, 1.0, num_warps=2)
        return out * 2 + z

    def plain(x: Any) -> Any:
        z = m.F.gelu(x) * 1.5
        return (z + 1) * 0.5 * 2 + z

    return Case(
        fn, [m(n + 8, grad=False)], True, plain=plain, others=[[m(n, grad=False)]], tolerance=1e-2
    )


@case
def own_operator(m: Maker) -> Case:
    """A kernel as an operator (`torch.library.triton_op`), with a gradient, of symbolic sizes."""
    import triton
    from torch.library import triton_op, wrap_triton

    kernel = _kernels()["scale"]
    t = m.torch

    def launch(x: Any, by: Any) -> Any:
        out = t.empty_like(x)
        wrap_triton(kernel)[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), by, 256)
        return out

    launch.__annotations__ = {"x": t.Tensor, "by": float, "return": t.Tensor}
    by_kernel = triton_op("warploom_cases::scale", launch, mutates_args={})
    by_kernel.register_autograd(lambda ctx, g: (by_kernel(g.contiguous(), 3.0), None))
    sizes = m.n(1024), m.n(1024) + 1
    return Case(
        lambda x: by_kernel(x.sin(), 3.0) + 1,
        [m(7, sizes[0])],
        plain=lambda x: x.sin() * 3.0 + 1,
        others=[[m(5, sizes[1])]],
        dynamic=True,
        tolerance=1e-2,
    )


@case
def own_descriptors(m: Maker) -> Case:
    """A kernel that takes descriptors which the compiled function makes."""
    from triton.tools.tensor_descriptor import TensorDescriptor

    kernel = _kernels()["copied"]
    n = m.n(1024) // 64 * 64 or 64

    def fn(x: Any) -> Any:
        y = x + 1
        out = m.torch.empty_like(y)
        given = (TensorDescriptor.from_tensor(t, [64, 64]) for t in (y, out))
        kernel[(n // 64, n // 64)](*given, BLOCK=64)
        return out - 1

    return Case(fn, [m(n, n, grad=False)], True, plain=lambda x: (x + 1) * 2 - 1, tolerance=1e-2)


@case
def ahead_of_time(m: Maker) -> Case:
    """AOTInductor: cubins that C++ launches."""
    n = m.n(2048)

    def fn(x: Any, w: Any, v: Any) -> Any:
        h = m.F.rms_norm(x, (n,), w, 1e-6)
        return m.F.softmax(h, -1), m.F.relu(h @ v), h.float().sum(0)

    inputs = [m(m.n(1024), n, grad=False), m(n, grad=False), m(n, n, grad=False, by=0.02)]
    return Case(fn, inputs, True, tolerance=1e-2, ahead=True)


@case
def ahead_of_time_product(m: Maker) -> Case:
    """The same of a product, and of a user's kernel, wrapped as exporting needs it."""
    import triton
    from torch.library import wrap_triton

    kernel, n = wrap_triton(_kernels()["tuned"]), m.n(1024)

    def fn(x: Any, y: Any) -> Any:
        h = m.F.relu(x @ y)
        out = m.torch.empty_like(h)
        kernel[lambda meta: (triton.cdiv(n * n, meta["BLOCK"]),)](h, out, n * n, 2.0)
        return out + 1

    return Case(
        fn,
        [m(n, n, grad=False), m(n, n, grad=False)],
        True,
        options={"triton.native_matmul": True},
        plain=lambda x, y: m.F.relu(x @ y) * 2 + 1,
        tolerance=1e-2,
        ahead=True,
    )


@case
def launched_by_cpp(m: Maker) -> Case:
    """The same by torch.compile, forward: the backward's kernels PyTorch 2.11 fails to find, whoever's."""
    n = m.n(2048)
    return Case(
        lambda x, w: m.F.softmax(m.F.rms_norm(x, (n,), w, 1e-6), -1),
        [m(m.n(1024), n, grad=False), m(n, grad=False)],
        True,
        options={"cpp_wrapper": True},
        tolerance=1e-2,
    )
