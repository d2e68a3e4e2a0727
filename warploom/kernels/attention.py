"""Attention forward, O = softmax(Q·Kᵀ·scale)·V, as a Triton-style kernel.

Q and O are (heads, seq, D), K and V (heads / SHARED_BY, seq, D), contiguous; heads counts batch × heads.
CAUSAL: row i sees columns 0 … i.  Any sequence length; LSE: log Σ exp of each row's scores goes to lse
(heads, seq) in float32.

A program takes tiles of BLOCK_M rows, in turn (`num_programs` apart) or drawn from a counter, and walks
along K and V in blocks of BLOCK_N.  Written as one would without thinking of the machine, but for two
things: the scale is applied inside the exponent, where it costs nothing (one fused multiply-add), and only
blocks that cross the diagonal or the end are masked.

The compiler makes of it one task that draws and loads, and groups of 64 rows that compute; inside a group
the next scores and this block's P·V are in flight together, and the groups take turns at issuing them.
"""

from __future__ import annotations

from typing import Any

import warploom as wl
import warploom.language as tl

LN_2 = tl.constexpr(0.6931471805599453)


@wl.jit
def place_of(
    t: Any,
    half: Any,
    heads: Any,
    tiles: Any,
    section: Any,
    CAUSAL: tl.constexpr,
    PAIRS: tl.constexpr,
) -> Any:
    """Head and row (in tiles) of what comes t-th.  Causal tiles differ in length.  PAIRS: t counts pairs of a
    long tile and a short one, which are all equal.  Else the longest come first, in sections of heads whose K
    and V the L2 cache holds."""
    if PAIRS:
        pairs = tl.cdiv(tiles, 2)
        short = t % pairs
        return t // pairs, tl.where(half == 0, tiles - 1 - short, short)
    if CAUSAL:
        first = t // (section * tiles) * section
        inside = t % (section * tiles)
        width = tl.maximum(tl.minimum(section, heads - first), 1)  # 1: behind the last tile
        return first + inside % width, tiles - 1 - inside // width
    return t // tiles, t % tiles


@wl.jit
def place_after(head: Any, tile: Any, tiles: Any) -> Any:
    """Head and row (in tiles) of the tile `num_programs` behind one of equal length: the divisions, which are
    the same for all, are not each tile's."""
    tile += tl.num_programs(0) % tiles
    ends = tile >= tiles
    head += tl.num_programs(0) // tiles + tl.where(ends, 1, 0)
    return head, tl.where(ends, tile - tiles, tile)


@wl.jit
def tile_after(t: Any, counter_ptr: Any, DRAWN: tl.constexpr) -> Any:
    """The tile that a program takes after tile t.  DRAWN: whoever is done takes the next one that nobody has;
    the first ones go by the programs' numbers."""
    if DRAWN:
        drawn = tl.atomic_add(counter_ptr, 1, sem="relaxed")
        tl.assume(drawn >= 0)  # TMA takes no addresses before an array
        return tl.num_programs(0) + drawn
    return t + tl.num_programs(0)


@wl.jit
def leave(counter_ptr: Any) -> None:
    """The last program to leave sets the counter back for the next launch: nobody draws any more."""
    if tl.atomic_add(counter_ptr + 1, 1, sem="relaxed") == tl.num_programs(0) - 1:
        tl.store(counter_ptr, 0)
        tl.store(counter_ptr + 1, 0)


@wl.jit
def attention_forward(
    q_ptr: Any,
    k_ptr: Any,
    v_ptr: Any,
    o_ptr: Any,
    lse_ptr: Any,
    counter_ptr: Any,
    heads: Any,
    seq: Any,
    section: Any,
    scale: Any,
    D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    CAUSAL: tl.constexpr,
    SHARED_BY: tl.constexpr = 1,
    LSE: tl.constexpr = False,
    Q_STAGES: tl.constexpr = 1,
    PAIRS: tl.constexpr = False,
    DRAWN: tl.constexpr = False,
) -> None:
    """O = softmax(Q·Kᵀ · s)·V, and with LSE the logarithm of each row's Σ exp.

    Q and O are (heads, seq, D), K and V (heads / SHARED_BY, seq, D), dense, of 16 bits; lse (heads, seq) f32;
    heads: of all batches together.  CAUSAL: row i sees columns 0 … i.  Grid: `grid_of`.
    Q_STAGES: tiles of Q in shared memory, so that the next one's is there when this one's work ends.
    scale: s times log2(e).  section: see `place_of` and `section_of`.  counter: two zeros (i32),
    which every launch leaves as it found them; launches that may run at the same time need two each."""
    tiles = tl.cdiv(seq, BLOCK_M)
    count = tl.cdiv(tiles, 2) if PAIRS else tiles
    t = tl.program_id(0)
    head, tile = place_of(t, 0, heads, tiles, section, CAUSAL, PAIRS)
    while t < count * heads:
        # The tile in the middle of an odd number is a pair of its own.
        halves = tl.where(t % count * 2 + 1 == tiles, 1, 2) if PAIRS else 1
        for half in tl.range(0, halves, num_stages=Q_STAGES):
            if PAIRS:
                head, tile = place_of(t, half, heads, tiles, section, CAUSAL, PAIRS)
            row = tile * BLOCK_M
            mine = head.to(tl.int64) * seq * D
            shared = (head // SHARED_BY).to(tl.int64) * seq * D
            q_desc = tl.make_tensor_descriptor(q_ptr + mine, [seq, D], [D, 1], [BLOCK_M, D])
            k_desc = tl.make_tensor_descriptor(k_ptr + shared, [seq, D], [D, 1], [BLOCK_N, D])
            v_desc = tl.make_tensor_descriptor(v_ptr + shared, [seq, D], [D, 1], [BLOCK_N, D])
            o_desc = tl.make_tensor_descriptor(o_ptr + mine, [seq, D], [D, 1], [BLOCK_M, D])
            rows = row + tl.arange(0, BLOCK_M)
            last = tl.minimum(rows, seq - 1)  # column that a row sees
            top = tl.full([BLOCK_M], float("-inf"), tl.float32)
            total = tl.zeros([BLOCK_M], tl.float32)
            acc = tl.zeros([BLOCK_M, D], tl.float32)
            end = tl.minimum(row + BLOCK_M, seq) if CAUSAL else seq
            clear = (
                tl.minimum(row, seq) if CAUSAL else seq
            )  # columns before it are masked for no row
            q = q_desc.load([row, 0])
            for j in tl.range(0, end, BLOCK_N):
                k = k_desc.load([j, 0])
                s = tl.dot(q, k.T)
                if j + BLOCK_N > clear:
                    columns = j + tl.arange(0, BLOCK_N)
                    if CAUSAL:
                        s = tl.where(columns[None, :] <= last[:, None], s, float("-inf"))
                    else:
                        s = tl.where((columns < seq)[None, :], s, float("-inf"))
                higher = tl.maximum(top, tl.max(s, 1))
                shift = higher * scale
                p = tl.exp2(s * scale - shift[:, None])
                alpha = tl.exp2(top * scale - shift)
                total = total * alpha + tl.sum(p, 1)
                acc = acc * alpha[:, None]
                v = v_desc.load([j, 0])
                acc = tl.dot(p.to(v.dtype), v, acc)
                top = higher
            if not PAIRS:
                t = tile_after(t, counter_ptr, DRAWN)
                if CAUSAL or DRAWN:
                    next_head, next_tile = place_of(t, 0, heads, tiles, section, CAUSAL, PAIRS)
                else:
                    next_head, next_tile = place_after(head, tile, tiles)
            if LSE:
                at = lse_ptr + head.to(tl.int64) * seq + rows
                tl.store(at, (top * scale + tl.log2(total)) * LN_2, mask=rows < seq)
            o_desc.store([row, 0], (acc * (1.0 / total)[:, None]).to(o_ptr.dtype.element_ty))
            if not PAIRS:
                head, tile = next_head, next_tile
        if PAIRS:
            t = tile_after(t, counter_ptr, DRAWN)
    if DRAWN:
        leave(counter_ptr)


def section_of(heads: int, seq: int, d: int, shared_by: int = 1, l2_bytes: int = 0) -> int:
    """Heads whose K and V (bf16) are walked together: as many as `l2_bytes` hold (0: what is fastest on
    an H200), in equal sections (a small one at the end would begin long tiles when little is left)."""
    l2_bytes = l2_bytes or (16 if seq <= 1024 else 32) << 20
    fitting = max(1, l2_bytes // (4 * d) * shared_by // max(1, seq))
    return wl.cdiv(heads, wl.cdiv(heads, fitting)) if heads else 1


def grid_of(heads: int, seq: int, programs: int | None = None) -> Any:
    """A grid function for `attention_forward`: a program a tile, or at most so many programs."""

    def grid(meta: dict[str, Any]) -> tuple[int]:
        tiles = wl.cdiv(seq, meta["BLOCK_M"])
        tiles = (wl.cdiv(tiles, 2) if meta.get("PAIRS") else tiles) * heads
        return (tiles if programs is None else min(tiles, programs),)

    return grid


def _config(
    groups: int, q_stages: int, eighths: int, tiles: str = "in turn", block: int = 128, **knobs: Any
) -> wl.Config:
    """tiles: how a program comes by them ("in turn", "drawn", in "pairs" of equal length).  block: rows of K
    and V at a time."""
    meta = {"BLOCK_M": 64 * groups, "BLOCK_N": block, "Q_STAGES": q_stages}
    meta |= {"PAIRS": tiles == "pairs", "DRAWN": tiles == "drawn"}
    knobs = {"num_buffers_warp_spec": 2, **knobs}
    return wl.Config(meta, num_consumer_groups=groups, wait_eighths=eighths, **knobs)


# Groups of 64 rows, tiles of Q in shared memory, where the wait for P·V stands, and the order of tiles, by
# head size and causality: what was fastest somewhere among the shapes of docs/performance.md, on an H200,
# with a program a multiprocessor.  Of the wait's places some win by what the assembler makes of the build.
# Four groups: 112 registers a thread hold blocks of 64, and 256 rows divide what 192 don't.
# Groups that sit out what is of no use to their rows bring 9 % at S = 1024 causal, 6 % at 4096.
_FOUR: dict[str, Any] = {
    "block": 64,
    "num_buffers_warp_spec": 4,
    "reg_inc_consumer": 112,
    "reg_dec_producer": 24,
}
ATTENTION_CONFIGS = {
    (128, False): [_config(2, 2, 2), _config(2, 2, 3), _config(2, 2, 3, "drawn")],
    (128, True): [_config(2, 2, 3, "pairs"), _config(2, 2, 3, "drawn")],
    (64, False): [
        _config(3, 2, 1),
        _config(3, 2, 0),
        _config(3, 2, 0, "drawn", sit_out=True),
        _config(4, 2, 0, **_FOUR),
    ],
    (64, True): [
        _config(3, 1, 0, "drawn", sit_out="masked"),
        _config(3, 2, 1, "drawn", sit_out="masked"),
        _config(4, 2, 0, "drawn", sit_out="masked", **_FOUR),
    ],
}


def for_head(configs: list[wl.Config], args: dict[str, Any], **meta: Any) -> list[wl.Config]:
    """Of ATTENTION_CONFIGS those for the head size `D` (above 64: as 128) and for `CAUSAL` of a call."""
    given = {**args, **meta}
    mine = ATTENTION_CONFIGS[128 if given["D"] > 64 else 64, bool(given["CAUSAL"])]
    return [c for c in configs if c in mine]


attention = wl.autotune(
    configs=[c for configs in ATTENTION_CONFIGS.values() for c in configs],
    key=["heads", "seq", "D", "CAUSAL"],
    prune_configs_by={"early_config_prune": for_head},
)(attention_forward)
"""`attention_forward`, tuned:
`attention[grid_of(heads, seq, sms)](q, k, v, o, lse, counter, heads, seq, section, scale, D=…, CAUSAL=…)`."""
