"""What operators should give, in plain torch."""

from __future__ import annotations

from typing import Any

import torch


def recurrence(
    q: Any,
    k: Any,
    v: Any,
    decay: Any = None,
    erase: Any = None,
    write: Any = None,
    bonus: Any = None,
    scale: float | None = None,
    erase_first: bool = False,
) -> Any:
    """Linear attention as a recurrence over time; q, k: [batch, time, heads, K], v: [.., V].

    The state [K, V] of a head is multiplied by exp(decay) (its rows where decay has them), gets
    write ⊗ (erase · state) and k ⊗ v added, and gives q · state.  erase_first: `erase` meets the state
    before it decays.  bonus [heads, K]: a step's own k ⊗ v counts by it in its output, and enters the state
    after that."""
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    state = q.new_zeros(*q.shape[:1], *q.shape[2:], v.shape[-1])
    found = []
    for t in range(q.shape[1]):
        before = state
        if decay is not None:
            now = decay[:, t].to(q.dtype)
            now = now[..., None] if now.dim() == 2 else now
            state = state * now.exp()[..., None]
        added = k[:, t, :, :, None] * v[:, t, :, None, :]
        if erase is not None:
            kept = before if erase_first else state
            seen = torch.einsum("bhk,bhkv->bhv", erase[:, t], kept)
            added = added + write[:, t, :, :, None] * seen[..., None, :]
        if bonus is not None:
            shown = before + bonus[None, :, :, None] * added
            state = state + added
        else:
            shown = state = state + added
        found.append(torch.einsum("bhk,bhkv->bhv", q[:, t] * scale, shown))
    return torch.stack(found, 1)


def linear(q: Any, k: Any, v: Any) -> Any:
    return recurrence(q, k, v)


def decayed(q: Any, k: Any, v: Any, g: Any = None, gk: Any = None) -> Any:
    return recurrence(q, k, v, g if gk is None else gk)


def retention(q: Any, k: Any, v: Any) -> Any:
    """Head h decays by 1 - 2^(-5 - h)."""
    heads = torch.arange(q.shape[2], device=q.device, dtype=q.dtype)
    gamma = (1 - 2.0 ** (-5 - heads)).log()
    return recurrence(q, k, v, gamma.expand(q.shape[:3]))


def lightning(q: Any, k: Any, v: Any) -> Any:
    """The first of four layers."""
    heads = torch.arange(q.shape[2], device=q.device, dtype=q.dtype)
    return recurrence(q, k, v, (-8 / q.shape[2] * heads).expand(q.shape[:3]))


def rwkv6(r: Any, k: Any, v: Any, w: Any, u: Any) -> Any:
    return recurrence(r, k, v, w, bonus=u)


def delta(q: Any, k: Any, v: Any, beta: Any, g: Any = None) -> Any:
    """The delta rule: what the state gives for k is replaced by v, as far as beta says."""
    ours = beta[..., None]
    return recurrence(q, k, v * ours, g, k, -k * ours)


def comba(q: Any, k: Any, v: Any, p: Any, beta: Any, g: Any) -> Any:
    """As the delta rule, but for what the state gave for p before it decayed."""
    ours = beta[..., None]
    return recurrence(q, k, v * ours, g, p, -k * ours, erase_first=True)


def diagonal_plus_low_rank(q: Any, k: Any, v: Any, a: Any, b: Any, gk: Any = None) -> Any:
    return recurrence(q, k, v, gk, a, b, erase_first=True)


def rwkv7(r: Any, w: Any, k: Any, v: Any, a: Any, b: Any) -> Any:
    return recurrence(r, k, v, w, a, b, scale=1.0, erase_first=True)


def preconditioned(
    q: Any, k: Any, v: Any, g: Any, g_atk: Any, beta: Any, beta_atk: Any, base: float = 1.5
) -> Any:
    """The delta rule that writes along a preconditioned k: of rows of norm 1, the decayed sum of squares of
    each channel of k says by which power of `base`, between -1 and 1, the channel is scaled."""
    q, k = (torch.nn.functional.normalize(x, dim=-1) for x in (q, k))
    squares, powers = torch.zeros_like(k[:, 0]), []
    for t in range(k.shape[1]):
        squares = g_atk[:, t, :, None].exp() * squares
        squares = squares + beta_atk[:, t, :, None] * k[:, t].square()
        off = (squares + 1e-6).log() + 0.2
        powers.append(-off / (1 + off.abs()))
    written = k * base ** torch.stack(powers, 1) * beta[..., None]
    return recurrence(q, written, v, g, k, -written)


def oja(q: Any, k: Any, v: Any, gv: Any, beta: Any) -> Any:
    """As the delta rule, but what the state gives for v is replaced by k, and its columns decay."""
    state = q.new_zeros(*q.shape[:1], *q.shape[2:], v.shape[-1])
    found = []
    for t in range(q.shape[1]):
        state = state * gv[:, t, :, None].to(q.dtype).exp()
        seen = torch.einsum("bhkv,bhv->bhk", state, v[:, t])
        added = beta[:, t, :, None] * (k[:, t] - seen)
        state = state + added[..., None] * v[:, t, :, None, :]
        found.append(torch.einsum("bhk,bhkv->bhv", q[:, t] * q.shape[-1] ** -0.5, state))
    return torch.stack(found, 1)


def momentum(q: Any, k: Any, v: Any, log_alpha: Any, log_mu: Any, beta: Any, eta: Any) -> Any:
    """The delta rule with a second state, the momentum, which collects what the first should change by."""
    q, k = (torch.nn.functional.normalize(x, dim=-1) for x in (q, k))
    state = moving = q.new_zeros(*q.shape[:1], *q.shape[2:], v.shape[-1])
    found = []
    for t in range(q.shape[1]):
        alpha, mu, fast, slow = (
            x[:, t, :, None, None] for x in (log_alpha.exp(), log_mu.exp(), beta, eta)
        )
        seen = torch.einsum("bhk,bhkv->bhv", k[:, t], alpha * state)
        moving = mu * moving + slow * k[:, t, :, :, None] * (seen - v[:, t])[..., None, :]
        state = alpha * state - fast * moving
        found.append(torch.einsum("bhk,bhkv->bhv", q[:, t] * q.shape[-1] ** -0.5, state))
    return torch.stack(found, 1)


def mesa(q: Any, k: Any, v: Any, g: Any, beta: Any, lamb: Any) -> Any:
    """Regression of v on k, decayed, with lamb as its regularization: solved at each step."""
    width = q.shape[-1]
    both = q.new_zeros(*q.shape[:1], *q.shape[2:], width + v.shape[-1])
    regular, found = torch.diag_embed(lamb).to(q.dtype), []
    for t in range(q.shape[1]):
        added = torch.cat([k[:, t], v[:, t]], -1)[..., None, :] * k[:, t, :, :, None]
        both = both * g[:, t, :, None, None].exp() + added * beta[:, t, :, None, None]
        solved = torch.linalg.solve(both[..., :width] + regular, q[:, t])
        found.append(torch.einsum("bhk,bhkv->bhv", solved, both[..., width:]))
    return torch.stack(found, 1)


def lightnet(q: Any, k: Any, v: Any) -> Any:
    """Linear attention whose keys are a softmax over the steps so far, of each channel."""
    sums = k.logcumsumexp(1)
    before = torch.cat([sums[:, :1], sums[:, :-1]], 1)
    return recurrence(q, (k - sums).exp(), v, before - sums)


def rebased(q: Any, k: Any, v: Any) -> Any:
    """Attention by the squares of the scores."""
    scores = torch.einsum("bthk,bshk->bhts", q, k) * q.shape[-1] ** -0.5
    shares = scores.square().tril()
    shares = shares / (shares.sum(-1, keepdim=True) + 1e-5)
    return torch.einsum("bhts,bshv->bthv", shares, v)


def attention(q: Any, k: Any, v: Any) -> Any:
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)


def hgrn(x: Any, g: Any) -> Any:
    """state = exp(g) · state + x, of each channel."""
    state, found = torch.zeros_like(x[:, 0]), []
    for t in range(x.shape[1]):
        state = g[:, t].exp() * state + x[:, t]
        found.append(state)
    return torch.stack(found, 1)


def chunk_sums(g: Any, chunk: int, reverse: bool = False) -> Any:
    """Sums along time up to each step, from the begin of its chunk."""
    parts = g.split(chunk, 1)
    if reverse:
        return torch.cat([p.flip(1).cumsum(1).flip(1) for p in parts], 1)
    return torch.cat([p.cumsum(1) for p in parts], 1)


def rms(x: Any, w: Any, eps: float = 1e-6, offset: float = 0.0) -> Any:
    return x * (x.square().mean(-1, keepdim=True) + eps).rsqrt() * (w + offset)


def hyper_coefficients(x: Any, phi: Any, b: Any, **alpha: Any) -> Any:
    """Of each token's four streams: the shares that go into a layer, those that its output gets, and the
    doubly stochastic matrix that mixes them, by twenty steps of Sinkhorn's."""
    rows, eps = x.flatten(1), 1e-6
    mix = rows @ phi * (rows.square().mean(-1, keepdim=True) + eps).rsqrt()
    parts = zip(mix.split([4, 4, 16], -1), b.split([4, 4, 16]), strict=True)
    pre, post, res = (m * a + c for a, (m, c) in zip(alpha.values(), parts, strict=True))
    mixing = res.unflatten(-1, (4, 4)).softmax(-1) + eps
    for step in range(20):
        if step:
            mixing = mixing / (mixing.sum(-1, keepdim=True) + eps)
        mixing = mixing / (mixing.sum(-2, keepdim=True) + eps)
    return pre.sigmoid(), 2 * post.sigmoid(), mixing


def flash_attention(
    q: Any, k: Any, v: Any, causal: bool = True, window_size: tuple[int, int] = (-1, -1)
) -> Any:
    """What flash-attn's function of that kind gives, of [batch, time, heads, width]: causal, and with as many
    earlier keys as the window says."""
    assert causal
    group = q.shape[2] // k.shape[2]
    q, k, v = (x.transpose(1, 2) for x in (q, *(x.repeat_interleave(group, 2) for x in (k, v))))
    at = torch.arange(q.shape[2], device=q.device)
    back = at[:, None] - at
    seen = (back >= 0) & ((back <= window_size[0]) | (window_size[0] < 0))
    found = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=seen)
    return found.transpose(1, 2)


def rotate(x: Any, cos: Any, sin: Any) -> Any:
    """Rotary embedding; the halves of a row are its real and imaginary parts."""
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def short_convolution(x: Any, weight: Any, bias: Any) -> Any:
    """Causal, along time, of each channel, then SiLU; x: [batch, time, channels]."""
    taps = weight.shape[1]
    padded = torch.nn.functional.pad(x.transpose(1, 2), (taps - 1, 0))
    y = torch.nn.functional.conv1d(padded, weight[:, None], bias, groups=x.shape[2])
    return torch.nn.functional.silu(y).transpose(1, 2)
