"""Attention forward, O = softmax(Q·Kᵀ·scale)·V, as a Triton-style kernel.

Q and O are (heads, seq, D), K and V (heads / SHARED_BY, seq, D), contiguous; heads counts batch × heads.
CAUSAL: row i sees columns 0 … i.  Any sequence length; LSE: log Σ exp of each row's scores goes to lse
(heads, seq) in float32.

A program takes tiles of BLOCK_M rows, in turn (`num_programs` apart) or drawn from a counter, and walks
along K and V in blocks of BLOCK_N.  Where the last round of tiles would leave programs without work, the
keys of its tiles are shared out (PARTS), and a second kernel joins the parts: `attend` launches both.

Written as one would without thinking of the machine, but for two things: the scale is applied inside the
exponent, where it costs nothing (one fused multiply-add), and only blocks that cross the diagonal or the
end are masked.

The compiler makes of it one task that draws and loads, and groups of 64 rows that compute; inside a group
the next scores and this block's P·V are in flight together, and the groups take turns at issuing them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import warploom as wl
import warploom.language as tl
from warploom.errors import LaunchError

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
def first_block(n: Any, tiles: Any, blocks: Any, PAIRS: tl.constexpr) -> Any:
    """Where the n-th tile's blocks of keys begin, all tiles' blocks one behind the other.  A tile has
    `blocks`; PAIRS: a long tile and the short one behind it have (of an odd number the middle is alone)."""
    if PAIRS:
        pair = n % tiles // 2
        first = n // tiles * (tiles * blocks // 2) + pair * blocks
        return first + tl.where(n % tiles % 2 == 0, 0, tl.maximum(tiles - pair, 0))
    return n * blocks


@wl.jit
def tile_holding(x: Any, tiles: Any, blocks: Any, PAIRS: tl.constexpr) -> Any:
    """The tile that the x-th block is for (see `first_block`)."""
    if PAIRS:
        of_head = tiles * blocks // 2
        pair = x % of_head // blocks
        second = x % of_head % blocks >= tiles - pair
        return x // of_head * tiles + 2 * pair + tl.where(second, 1, 0)
    return x // blocks


@wl.jit
def place_in_order(n: Any, tiles: Any, PAIRS: tl.constexpr) -> Any:
    """Head and row (in tiles) of the n-th tile (see `first_block`)."""
    row = n % tiles
    if PAIRS:
        pair = row // 2
        row = tl.where(row % 2 == 0, tl.maximum(tiles - 1 - pair, 0), pair)  # 0: for TMA
    return n // tiles, row


@wl.jit
def first_tile(turn: Any, tiles: Any, PAIRS: tl.constexpr) -> Any:
    """The tile that a turn of whole tiles begins with: it has one, or a pair."""
    if PAIRS:
        pairs = tl.cdiv(tiles, 2)
        return turn // pairs * tiles + turn % pairs * 2
    return turn


@wl.jit
def tail_of(heads: Any, tiles: Any, blocks: Any, programs: Any, PAIRS: tl.constexpr) -> Any:
    """How programs come out even: each takes as many whole tiles (or pairs) as all can take, and a share of
    the blocks of those that are left.  Turns of whole tiles; the tile where the tail begins; its blocks."""
    turns = (tl.cdiv(tiles, 2) if PAIRS else tiles) * heads // programs * programs
    first = first_tile(turns, tiles, PAIRS)
    begin = first_block(first, tiles, blocks, PAIRS)
    return turns, first, tl.maximum(first_block(heads * tiles, tiles, blocks, PAIRS) - begin, 0)


@wl.jit
def turn_begins(
    t: Any, tiles: Any, blocks: Any, whole: Any, tail: Any, shares: Any, PAIRS: tl.constexpr
) -> Any:
    """The first block of turn t: first come whole tiles, then shares of the tail."""
    at = first_tile(tl.minimum(t, whole), tiles, PAIRS)
    share = tl.maximum(t - whole, 0) * tail // tl.maximum(shares, 1)
    return first_block(at, tiles, blocks, PAIRS) + share


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
    PARTS: tl.constexpr = False,
    parts_ptr: Any = None,
) -> None:
    """O = softmax(Q·Kᵀ · s)·V, and with LSE the logarithm of each row's Σ exp.

    Q and O are (heads, seq, D), K and V (heads / SHARED_BY, seq, D), dense, of 16 bits; lse (heads, seq) f32;
    heads: of all batches together.  CAUSAL: row i sees columns 0 … i.  Grid: `grid_of`.
    Q_STAGES: tiles of Q in shared memory, so that the next one's is there when this one's work ends.
    PARTS: of the tiles left when all programs have had as many, each program takes a share of the blocks of
    keys; a tile that several have a share of is left in parts (f32, `parts_size`) for `join_parts`.
    scale: s times log2(e).  section: see `place_of` and `section_of`.  counter: two zeros (i32),
    which every launch leaves as it found them; launches that may run at the same time need two each."""
    tiles = tl.cdiv(seq, BLOCK_M)
    count = tl.cdiv(tiles, 2) if PAIRS else tiles
    turns = count * heads
    if PARTS:
        tl.static_assert(PAIRS or not CAUSAL, "turns have equally many blocks")
        tl.static_assert(not PAIRS or BLOCK_M == BLOCK_N, "of pairs blocks are counted in tiles")
        blocks = tiles + 1 if PAIRS else tl.cdiv(seq, BLOCK_N)
        whole, tail_tile, tail = tail_of(heads, tiles, blocks, tl.num_programs(0), PAIRS)
        shares = tl.minimum(tail, tl.num_programs(0))
        turns = whole + shares
    t = tl.program_id(0)
    head, tile = place_of(t, 0, heads, tiles, section, CAUSAL, PAIRS)
    while t < turns:
        if PARTS:
            begin = turn_begins(t, tiles, blocks, whole, tail, shares, PAIRS)
            stop = turn_begins(t + 1, tiles, blocks, whole, tail, shares, PAIRS)
            first = tile_holding(begin, tiles, blocks, PAIRS)
            halves = tile_holding(stop - 1, tiles, blocks, PAIRS) + 1 - first
        else:
            # The tile in the middle of an odd number is a pair of its own.
            halves = tl.where(t % count * 2 + 1 == tiles, 1, 2) if PAIRS else 1
        for half in tl.range(0, halves, num_stages=Q_STAGES):
            if PARTS:
                n = first + half
                head, tile = place_in_order(n, tiles, PAIRS)
            elif PAIRS:
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
            start = 0
            if PARTS:
                ahead = first_block(n, tiles, blocks, PAIRS)
                start = tl.maximum(begin - ahead, 0) * BLOCK_N
                part = (start > 0) | ((stop - ahead) * BLOCK_N < end)
                end = tl.minimum((stop - ahead) * BLOCK_N, end)
            q = q_desc.load([row, 0])
            for j in tl.range(start, end, BLOCK_N):
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
            if not PAIRS and not PARTS:
                t = tile_after(t, counter_ptr, DRAWN)
                if CAUSAL or DRAWN:
                    next_head, next_tile = place_of(t, 0, heads, tiles, section, CAUSAL, PAIRS)
                else:
                    next_head, next_tile = place_after(head, tile, tiles)
            if PARTS and part:
                slot = t - whole + n - tail_tile
                into = parts_ptr + slot.to(tl.int64) * (BLOCK_M * (D + 1))
                inside = tl.arange(0, BLOCK_M)
                elements = inside[:, None] * D + tl.arange(0, D)[None, :]
                tl.store(into + elements, acc * (1.0 / total)[:, None])
                tl.store(into + BLOCK_M * D + inside, top * scale + tl.log2(total))
            else:
                if LSE:
                    at = lse_ptr + head.to(tl.int64) * seq + rows
                    tl.store(at, (top * scale + tl.log2(total)) * LN_2, mask=rows < seq)
                o_desc.store([row, 0], (acc * (1.0 / total)[:, None]).to(o_ptr.dtype.element_ty))
            if not PAIRS and not PARTS:
                head, tile = next_head, next_tile
        if PAIRS or PARTS:
            t = tile_after(t, counter_ptr, DRAWN)
    if DRAWN:
        leave(counter_ptr)


@wl.jit
def join_parts(
    parts_ptr: Any,
    o_ptr: Any,
    lse_ptr: Any,
    heads: Any,
    seq: Any,
    programs: Any,
    D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    ROWS: tl.constexpr,
    LSE: tl.constexpr = False,
    PAIRS: tl.constexpr = False,
) -> None:
    """O (and with LSE lse) of the tiles that `attention_forward` has left in parts on a grid of so many
    programs, with the same D, BLOCK_M, BLOCK_N and PAIRS.

    Grid: (tiles of its tail, BLOCK_M / ROWS).  A part is normalised by the sum of its own exponentials, whose
    base-2 logarithm stands behind its rows; parts come in the order of keys."""
    tiles = tl.cdiv(seq, BLOCK_M)
    blocks = tiles + 1 if PAIRS else tl.cdiv(seq, BLOCK_N)
    _, tail_tile, tail = tail_of(heads, tiles, blocks, programs, PAIRS)
    shares = tl.minimum(tail, programs)
    n = tail_tile + tl.program_id(0)
    behind = first_block(tail_tile, tiles, blocks, PAIRS)
    # The last share that begins at the tile's first block or ahead of it, and at its last block or ahead.
    first = ((first_block(n, tiles, blocks, PAIRS) - behind + 1) * shares - 1) // tail
    last = ((first_block(n + 1, tiles, blocks, PAIRS) - behind) * shares - 1) // tail
    inside = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    elements = inside[:, None] * D + tl.arange(0, D)[None, :]
    if last > first:
        top = tl.full([ROWS], float("-inf"), tl.float32)
        total = tl.zeros([ROWS], tl.float32)
        acc = tl.zeros([ROWS, D], tl.float32)
        for i in tl.range(first, last + 1):
            part = parts_ptr + (i + n - tail_tile).to(tl.int64) * (BLOCK_M * (D + 1))
            weight = tl.load(part + BLOCK_M * D + inside)
            higher = tl.maximum(top, weight)
            alpha = tl.exp2(top - higher)
            p = tl.exp2(weight - higher)
            total = total * alpha + p
            acc = acc * alpha[:, None] + tl.load(part + elements) * p[:, None]
            top = higher
        head, tile = place_in_order(n, tiles, PAIRS)
        rows = tile * BLOCK_M + inside
        mine = (head.to(tl.int64) * seq + tile * BLOCK_M) * D
        o = (acc * (1.0 / total)[:, None]).to(o_ptr.dtype.element_ty)
        tl.store(o_ptr + mine + elements, o, mask=(rows < seq)[:, None])
        if LSE:
            log = (top + tl.log2(total)) * LN_2
            tl.store(lse_ptr + head.to(tl.int64) * seq + rows, log, mask=rows < seq)


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
        if meta.get("PARTS") and programs is not None:  # of a tile all can take a share
            tiles = heads * wl.cdiv(seq, meta["BLOCK_M"]) * wl.cdiv(seq, meta["BLOCK_N"])
        return (tiles if programs is None else min(tiles, programs),)

    return grid


def tail_tiles(heads: int, seq: int, programs: int, meta: Mapping[str, Any]) -> int:
    """Tiles that are left when all programs have had as many, in a configuration."""
    tiles: int = wl.cdiv(seq, meta["BLOCK_M"])
    if not meta.get("PAIRS"):
        return tiles * heads % programs
    pairs: int = wl.cdiv(tiles, 2)
    turns = pairs * heads // programs * programs
    whole = turns // pairs * tiles + turns % pairs * 2 if pairs else 0
    return heads * tiles - whole


def parts_pay(heads: int, seq: int, programs: int, meta: Mapping[str, Any]) -> bool:
    """Whether sharing out the last tiles' keys (PARTS) saves a program more blocks than joining the parts
    takes the time of."""
    tiles, blocks = wl.cdiv(seq, meta["BLOCK_M"]), wl.cdiv(seq, meta["BLOCK_N"])
    turns = heads * tiles
    if meta.get("PAIRS"):
        turns, blocks = heads * wl.cdiv(tiles, 2), tiles + 1
    left = turns % programs
    return left > 0 and blocks - left * blocks / programs > JOINING


def room_for_parts(heads: int, seq: int, d: int, programs: int, meta: Mapping[str, Any]) -> int:
    """Elements (f32) that the parts of so many programs take: a share begins one, and so does each tile that
    begins inside a share."""
    rows: int = meta["BLOCK_M"]
    return (programs + tail_tiles(heads, seq, programs, meta)) * rows * (d + 1)


def parts_size(heads: int, seq: int, d: int, programs: int, causal: bool = False) -> int:
    """Elements (f32) of the memory for parts that a call needs, with the configurations that it would try; 0
    where none of them pays."""
    sizes = [
        room_for_parts(heads, seq, d, programs, c.kwargs)
        for c in _configs(d, causal)
        if c.kwargs["PARTS"] and parts_pay(heads, seq, programs, c.kwargs)
    ]
    return max(sizes, default=0)


def launches(
    args: tuple[Any, ...], programs: int | None, parts: Any = None, **meta: Any
) -> list[tuple[Any, tuple[Any, ...], dict[str, Any]]]:
    """What is launched for one configuration: each kernel, its arguments, its keywords (grid among them).

    args: those of `attention_forward` up to scale.  parts: memory for parts, where meta has PARTS.  Raises
    LaunchError where that is too small."""
    heads, seq = args[6:8]
    grid = grid_of(heads, seq, programs)
    if not meta.get("PARTS"):
        return [(attention_forward, args, {"grid": grid, **meta})]
    (count,) = grid(meta)
    asked = room_for_parts(heads, seq, meta["D"], count, meta)
    if parts is None or math.prod(parts.shape) < asked:
        raise LaunchError(
            "attention-parts",
            f"{asked} elements of float32 are needed for parts, got "
            + ("none" if parts is None else str(math.prod(parts.shape))),
            help="allocate parts_size(heads, seq, d, programs, causal) elements",
        )
    found = [(attention_forward, args, {"grid": grid, "parts_ptr": parts, **meta})]
    if left := tail_tiles(heads, seq, count, meta):
        names = ("D", "BLOCK_M", "BLOCK_N", "LSE", "PAIRS")
        of_tile = {k: meta[k] for k in names if k in meta}
        join: dict[str, Any] = {"grid": (left, wl.cdiv(meta["BLOCK_M"], ROWS)), "ROWS": ROWS}
        found.append((join_parts, (parts, args[3], args[4], heads, seq, count), join | of_tile))
    return found


def _config(
    groups: int, q_stages: int, eighths: int, tiles: str = "in turn", block: int = 128, **knobs: Any
) -> wl.Config:
    """tiles: how a program comes by them ("in turn", "drawn", in "pairs" of equal length; in turn or in
    pairs, and the last ones in "parts").  block: rows of K and V at a time."""
    meta = {"BLOCK_M": 64 * groups, "BLOCK_N": block, "Q_STAGES": q_stages}
    meta |= {"PAIRS": "pairs" in tiles, "DRAWN": tiles == "drawn", "PARTS": "parts" in tiles}
    knobs = {"num_buffers_warp_spec": 2, **knobs}
    return wl.Config(meta, num_consumer_groups=groups, wait_eighths=eighths, **knobs)


# Of rows of parts that a program joins; and how many blocks' time that takes, behind the kernel that leaves
# them (some 8 µs on an H200).
ROWS = 16
JOINING = 7

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
    (128, False): [
        _config(2, 2, 2),
        _config(2, 2, 3),
        _config(2, 2, 3, "drawn"),
        _config(2, 1, 2, "parts", 160),
        _config(2, 2, 3, "parts"),
    ],
    (128, True): [
        _config(2, 2, 3, "pairs"),
        _config(2, 2, 3, "drawn"),
        _config(2, 2, 3, "pairs, parts", reg_inc_consumer=232, reg_dec_producer=40),
    ],
    (64, False): [
        _config(3, 2, 1),
        _config(3, 2, 0),
        _config(3, 2, 0, "drawn", sit_out=True),
        _config(4, 2, 0, **_FOUR),
        _config(3, 2, 1, "parts"),
    ],
    (64, True): [
        _config(3, 1, 0, "drawn", sit_out="masked"),
        _config(3, 2, 1, "drawn", sit_out="masked"),
        _config(4, 2, 0, "drawn", sit_out="masked", **_FOUR),
    ],
}


def _configs(d: int, causal: bool) -> list[wl.Config]:
    """Those of ATTENTION_CONFIGS for a head size (above 64: as 128)."""
    return ATTENTION_CONFIGS[128 if d > 64 else 64, causal]


def for_call(configs: list[wl.Config], args: dict[str, Any], **meta: Any) -> list[wl.Config]:
    """Of ATTENTION_CONFIGS those for `D` and `CAUSAL` of a call; in parts only with memory for them."""
    given = {**args, **meta}
    mine = _configs(given["D"], bool(given["CAUSAL"]))
    with_parts = given.get("parts_ptr") is not None
    return [c for c in configs if c in mine and c.kwargs["PARTS"] <= with_parts]


attention = wl.autotune(
    configs=[c for configs in ATTENTION_CONFIGS.values() for c in configs],
    key=["heads", "seq", "D", "CAUSAL"],
    prune_configs_by={"early_config_prune": for_call},
)(attention_forward)
"""`attention_forward`, tuned:
`attention[grid_of(heads, seq, sms)](q, k, v, o, lse, counter, heads, seq, section, scale, D=…, CAUSAL=…)`;
`attend` also joins parts."""


def attend(
    q: Any,
    k: Any,
    v: Any,
    o: Any,
    lse: Any,
    counter: Any,
    parts: Any = None,
    *,
    programs: int,
    causal: bool = False,
    want_lse: bool = False,
    scale: float | None = None,
    config: wl.Config | None = None,
) -> None:
    """O = softmax(Q·Kᵀ·scale)·V, and with want_lse lse, on so many programs (as many as there are
    multiprocessors).

    q and o (heads, seq, d), k and v (heads / n, seq, d), lse (heads, seq) f32, counter: two zeros (i32).
    parts: `parts_size(heads, seq, d, programs, causal)` elements (f32), None where that is 0.  scale: 1/√d
    by default.  config: instead of the one that is fastest (`attention`)."""
    heads, seq, d = q.shape
    shared_by = heads // k.shape[0]
    log2_e = 1 / float(LN_2.value)
    section = section_of(heads, seq, d, shared_by)
    scale = d**-0.5 if scale is None else scale
    args = (q, k, v, o, lse, counter, heads, seq, section, scale * log2_e)
    meta = {"D": d, "CAUSAL": causal, "SHARED_BY": shared_by, "LSE": want_lse}
    if config is None:
        given = meta if parts is None else meta | {"parts_ptr": parts}
        config = attention.choose(grid_of(heads, seq, programs), args, given)
    for kernel, its, how in launches(args, programs, parts, **meta, **config.all_kwargs):
        kernel[how.pop("grid")](*its, **how)
