"""Attention forward, O = softmax(Q·Kᵀ·scale)·V, as a Triton-style kernel.

Q and O are (heads, seq, D), K and V (heads / GQA_GROUP, seq, D), contiguous; heads counts batch × heads.
CAUSAL: row i sees columns 0 … i.  Any sequence length; LSE: log Σ exp of each row's scores goes to lse
(heads, seq) in float32.

A program takes tiles of BLOCK_M rows, in turn (`num_programs` apart) or drawn from a counter, and walks
along K and V in blocks of BLOCK_N.  Where the last round of tiles would leave programs without work, the
keys of its tiles are shared out (SPLIT_KV_TAIL), and a second kernel joins the parts: `attend` launches both.

Written as one would without thinking of the machine, but for two things: the scale is applied inside the
exponent, where it costs nothing (one fused multiply-add), and only blocks that cross the diagonal or the
end are masked.

The compiler makes of it one task that draws and loads, and groups of 64 rows that compute; inside a group
the next scores and this block's P·V are in flight together, and the groups take turns at issuing them.
"""

from __future__ import annotations

import math
from typing import Any

import warploom as wl
import warploom.language as tl
from warploom.errors import LaunchError
from warploom.kernels.entry import HALVES, Entry, Given
from warploom.runtime.dynamo import step_aside

LN_2 = tl.constexpr(0.6931471805599453)


@wl.jit
def place_of(
    t: Any,
    half: Any,
    heads: Any,
    tiles: Any,
    section: Any,
    CAUSAL: tl.constexpr,
    BALANCED_PAIRS: tl.constexpr,
) -> Any:
    """Head and row (in tiles) of what comes t-th.  Causal tiles differ in length.  BALANCED_PAIRS: t counts
    pairs of a long tile and a short one, which are all equal.  Else the longest come first, in sections of
    heads whose K and V the L2 cache holds."""
    if BALANCED_PAIRS:
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
def tile_after(t: Any, counter_ptr: Any, DYNAMIC: tl.constexpr) -> Any:
    """The tile that a program takes after tile t.  DYNAMIC: whoever is done takes the next one
    that nobody has; the first ones go by the programs' numbers."""
    if DYNAMIC:
        drawn = tl.atomic_add(counter_ptr, 1, sem="relaxed")
        tl.assume(drawn >= 0)  # only the caller knows what the counter holds
        return tl.num_programs(0) + drawn
    return t + tl.num_programs(0)


@wl.jit
def tail_of(count: Any, blocks: Any, programs: Any) -> Any:
    """How programs come out even: each takes as many of `count` tiles as all can take, and a share of the
    blocks of keys of those that are left.  Whole tiles; blocks of the tail; shares (no more than blocks)."""
    tail = count % programs * blocks
    return count // programs * programs, tail, tl.minimum(tail, programs)


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
    GQA_GROUP: tl.constexpr = 1,
    LSE: tl.constexpr = False,
    Q_STAGES: tl.constexpr = 1,
    BALANCED_PAIRS: tl.constexpr = False,
    DYNAMIC: tl.constexpr = False,
    SPLIT_KV_TAIL: tl.constexpr = False,
    parts_ptr: Any = None,
) -> None:
    """O = softmax(Q·Kᵀ · s)·V, and with LSE the logarithm of each row's Σ exp.

    Q and O are (heads, seq, D), K and V (heads / GQA_GROUP, seq, D), dense, of 16 bits; lse (heads, seq) f32;
    heads: of all batches together.  CAUSAL: row i sees columns 0 … i.  Grid: `grid_of`.
    Q_STAGES: tiles of Q in shared memory, so that the next one's is there when this one's work ends.
    SPLIT_KV_TAIL: of the tiles left when all programs have had as many, each program takes a share of the
    blocks of keys; a tile that several have a share of is left in parts (f32, `parts_size`) for `join_parts`.
    scale: s times log2(e).  section: see `place_of` and `section_of`.  counter: two zeros (i32),
    which every launch leaves as it found them; launches that may run at the same time need two each."""
    tiles = tl.cdiv(seq, BLOCK_M)
    count = tl.cdiv(tiles, 2) if BALANCED_PAIRS else tiles
    items = count * heads
    if SPLIT_KV_TAIL:
        tl.static_assert(not CAUSAL, "shares are of tiles of equal length")
        blocks = tl.cdiv(seq, BLOCK_N)
        whole, tail, shares = tail_of(items, blocks, tl.num_programs(0))
        items = whole + shares
    t = tl.program_id(0)
    head, tile = place_of(t, 0, heads, tiles, section, CAUSAL, BALANCED_PAIRS)
    while t < items:
        if SPLIT_KV_TAIL:
            first, begin, stop, halves = t, 0, blocks, 1
            if t >= whole:
                share = t - whole
                begin = share * tail // shares
                stop = (share + 1) * tail // shares - begin // blocks * blocks
                first, begin = whole + begin // blocks, begin % blocks
                halves = tl.cdiv(stop, blocks)
        else:
            # The tile in the middle of an odd number is a pair of its own.
            halves = tl.where(t % count * 2 + 1 == tiles, 1, 2) if BALANCED_PAIRS else 1
        for half in tl.range(0, halves, num_stages=Q_STAGES):
            if SPLIT_KV_TAIL:
                head, tile = place_of(
                    first + half, 0, heads, tiles, section, CAUSAL, BALANCED_PAIRS
                )
            elif BALANCED_PAIRS:
                head, tile = place_of(t, half, heads, tiles, section, CAUSAL, BALANCED_PAIRS)
            row = tile * BLOCK_M
            mine = head.to(tl.int64) * seq * D
            shared = (head // GQA_GROUP).to(tl.int64) * seq * D
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
            if SPLIT_KV_TAIL:
                start = tl.maximum(begin - half * blocks, 0) * BLOCK_N
                end = tl.minimum((stop - half * blocks) * BLOCK_N, seq)
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
            if not BALANCED_PAIRS and not SPLIT_KV_TAIL:
                t = tile_after(t, counter_ptr, DYNAMIC)
                if CAUSAL or DYNAMIC:
                    next_head, next_tile = place_of(
                        t, 0, heads, tiles, section, CAUSAL, BALANCED_PAIRS
                    )
                else:
                    next_head, next_tile = place_after(head, tile, tiles)
            if SPLIT_KV_TAIL and end - start < seq:
                slot = t - whole + first + half - whole
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
            if not BALANCED_PAIRS and not SPLIT_KV_TAIL:
                head, tile = next_head, next_tile
        if BALANCED_PAIRS or SPLIT_KV_TAIL:
            t = tile_after(t, counter_ptr, DYNAMIC)
    if DYNAMIC:
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
) -> None:
    """O (and with LSE lse) of the tiles that `attention_forward` has left in parts on a grid of so many
    programs, with the same D, BLOCK_M and BLOCK_N.

    Grid: (tiles of its tail, BLOCK_M / ROWS).  A part is normalised by the sum of its own exponentials, whose
    base-2 logarithm stands behind its rows; parts come in the order of keys."""
    tiles = tl.cdiv(seq, BLOCK_M)
    blocks = tl.cdiv(seq, BLOCK_N)
    whole, tail, shares = tail_of(tiles * heads, blocks, programs)
    n = tl.program_id(0)  # tile of the tail
    # The last share that begins at its first block or ahead of it, and at its last block or ahead.
    first = ((n * blocks + 1) * shares - 1) // tail
    last = ((n + 1) * blocks * shares - 1) // tail
    inside = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    elements = inside[:, None] * D + tl.arange(0, D)[None, :]
    if last > first:
        top = tl.full([ROWS], float("-inf"), tl.float32)
        total = tl.zeros([ROWS], tl.float32)
        acc = tl.zeros([ROWS, D], tl.float32)
        for i in tl.range(first, last + 1):
            part = parts_ptr + (i + n).to(tl.int64) * (BLOCK_M * (D + 1))
            weight = tl.load(part + BLOCK_M * D + inside)
            higher = tl.maximum(top, weight)
            alpha = tl.exp2(top - higher)
            p = tl.exp2(weight - higher)
            total = total * alpha + p
            acc = acc * alpha[:, None] + tl.load(part + elements) * p[:, None]
            top = higher
        head, tile = (whole + n) // tiles, (whole + n) % tiles
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
        tiles = (wl.cdiv(tiles, 2) if meta.get("BALANCED_PAIRS") else tiles) * heads
        if meta.get("SPLIT_KV_TAIL") and programs is not None:  # of a tile all can take a share
            tiles *= wl.cdiv(seq, meta["BLOCK_N"])
        return (tiles if programs is None else min(tiles, programs),)

    return grid


def tail_tiles(heads: int, seq: int, programs: int, block_m: int) -> int:
    """Tiles that are left when all programs have had as many."""
    tiles: int = wl.cdiv(seq, block_m)
    return tiles * heads % programs


def parts_pay(heads: int, seq: int, programs: int, block_m: int, block_n: int) -> bool:
    """Whether sharing out the last tiles' keys (SPLIT_KV_TAIL) saves a program more blocks than joining the
    parts takes the time of."""
    left, blocks = tail_tiles(heads, seq, programs, block_m), wl.cdiv(seq, block_n)
    return left > 0 and blocks - left * blocks / programs > JOINING


def room_for_parts(heads: int, seq: int, d: int, programs: int, block_m: int) -> int:
    """Elements (f32) that the parts of so many programs take: a share begins one, and so does each tile that
    begins inside a share."""
    return (programs + tail_tiles(heads, seq, programs, block_m)) * block_m * (d + 1)


def parts_size(heads: int, seq: int, d: int, programs: int, causal: bool = False) -> int:
    """Elements (f32) of the memory for parts that a call needs, with the configurations that it would try; 0
    where none of them pays."""
    tiles = [c.kwargs for c in _configs(d, causal) if c.kwargs["SPLIT_KV_TAIL"]]
    sizes = [
        room_for_parts(heads, seq, d, programs, c["BLOCK_M"])
        for c in tiles
        if parts_pay(heads, seq, programs, c["BLOCK_M"], c["BLOCK_N"])
    ]
    return max(sizes, default=0)


def launches(
    args: tuple[Any, ...], programs: int | None, parts: Any = None, **meta: Any
) -> list[tuple[Any, tuple[Any, ...], dict[str, Any]]]:
    """What is launched for one configuration: each kernel, its arguments, its keywords (grid among them).

    args: those of `attention_forward` up to scale.  parts: memory for parts, where meta has SPLIT_KV_TAIL.
    Raises LaunchError where that is too small."""
    heads, seq = args[6:8]
    grid = grid_of(heads, seq, programs)
    if not meta.get("SPLIT_KV_TAIL"):
        return [(attention_forward, args, {"grid": grid, **meta})]
    (count,) = grid(meta)
    asked = room_for_parts(heads, seq, meta["D"], count, meta["BLOCK_M"])
    if parts is None or math.prod(parts.shape) < asked:
        raise LaunchError(
            "attention-parts",
            f"{asked} elements of float32 are needed for parts, got "
            + ("none" if parts is None else str(math.prod(parts.shape))),
            help="allocate parts_size(heads, seq, d, programs, causal) elements",
        )
    found = [(attention_forward, args, {"grid": grid, "parts_ptr": parts, **meta})]
    if left := tail_tiles(heads, seq, count, meta["BLOCK_M"]):
        of_tile = {k: meta[k] for k in ("D", "BLOCK_M", "BLOCK_N", "LSE") if k in meta}
        join: dict[str, Any] = {"grid": (left, wl.cdiv(meta["BLOCK_M"], ROWS)), "ROWS": ROWS}
        found.append((join_parts, (parts, args[3], args[4], heads, seq, count), join | of_tile))
    return found


def _config(
    groups: int, q_stages: int, eighths: int, tiles: str = "in turn", block: int = 128, **knobs: Any
) -> wl.Config:
    """tiles: how a program comes by them ("in turn", "drawn", in "pairs" of equal length; in turn, and the
    last ones in "parts").  block: rows of K and V at a time."""
    meta = {"BLOCK_M": 64 * groups, "BLOCK_N": block, "Q_STAGES": q_stages}
    meta |= {
        "BALANCED_PAIRS": tiles == "pairs",
        "DYNAMIC": tiles == "drawn",
        "SPLIT_KV_TAIL": tiles == "parts",
    }
    knobs = {"num_buffers_warp_spec": 2, **knobs}
    return wl.Config(meta, num_consumer_groups=groups, mma_wait_position=eighths, **knobs)


HEAD_SIZES = range(16, 129, 16)  # what registers and shared memory hold, in the K of a wgmma

# Rows of parts that a program joins; and from how many blocks on that a program is saved parts are worth a
# trial: they have more ends, and the joining takes 4 µs behind the kernel (some three blocks' time).
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
        _config(2, 2, 2, "parts", ping_pong=False),
    ],
    (128, True): [
        _config(2, 2, 3, "pairs"),
        _config(2, 2, 3, "drawn"),
    ],
    (64, False): [
        _config(3, 2, 1),
        _config(3, 2, 0),
        _config(3, 2, 0, "drawn", skip_idle=True),
        _config(4, 2, 0, **_FOUR),
        _config(3, 2, 1, "parts"),
    ],
    (64, True): [
        _config(3, 1, 0, "drawn", skip_idle="masked"),
        _config(3, 2, 1, "drawn", skip_idle="masked"),
        _config(4, 2, 0, "drawn", skip_idle="masked", **_FOUR),
    ],
}


def _in_order_config(rows: int, block: int, warps: int) -> wl.Config:
    """For chips whose products are done in registers, in order."""
    meta = {"BLOCK_M": rows, "BLOCK_N": block, "Q_STAGES": 1}
    meta |= {"BALANCED_PAIRS": False, "DYNAMIC": False, "SPLIT_KV_TAIL": False}
    return wl.Config(meta, num_warps=warps, num_stages=2, num_consumer_groups=0)


# In 99 KB of shared memory and without spills on sm_80 to sm_120a (test_targets.py); not timed there.
ATTENTION_IN_ORDER_CONFIGS = {
    64: [_in_order_config(128, 64, 4), _in_order_config(128, 64, 8), _in_order_config(64, 64, 4)],
    128: [_in_order_config(128, 64, 8), _in_order_config(64, 64, 4), _in_order_config(128, 32, 8)],
}


def _configs(d: int, causal: bool) -> list[wl.Config]:
    """Those for a head size (above 64: as 128)."""
    size = 128 if d > 64 else 64
    return ATTENTION_CONFIGS[size, causal] + ATTENTION_IN_ORDER_CONFIGS[size]


def for_call(configs: list[wl.Config], args: dict[str, Any], **meta: Any) -> list[wl.Config]:
    """Of the configs those for `D` and `CAUSAL` of a call; in parts only with memory for them."""
    given = {**args, **meta}
    mine = _configs(given["D"], bool(given["CAUSAL"]))
    with_parts = given.get("parts_ptr") is not None
    return [c for c in configs if c in mine and c.kwargs["SPLIT_KV_TAIL"] <= with_parts]


def check_attention(given: Given) -> None:
    """Q and O are (heads, seq, D), K and V (heads / GQA_GROUP, seq, D), dense, of one 16-bit dtype, O apart
    from the others; lse (heads, seq) where it is asked for; counter two integers.  Raises LaunchError."""
    named = given.named
    heads, seq, d = given.number("heads"), given.number("seq"), given.number("D", least=1)
    given.number("section", least=1)
    shared_by = given.number("GQA_GROUP", least=1)
    _head_size(given, "D", d)
    if heads % shared_by:
        text = f"a divisor of the {heads} heads of q"
        raise given.refuse("GQA_GROUP", str(shared_by), text, "give each head of k as many of q")
    q = given.dense("q_ptr", (heads, seq, d), HALVES)
    for name in ("k_ptr", "v_ptr"):
        given.dense(name, (heads // shared_by, seq, d), (q.dtype,))
    given.dense("o_ptr", (heads, seq, d), (q.dtype,), written=True)
    given.dense("counter_ptr", (2,), ("i32",), written=True)
    results = ["o_ptr", "counter_ptr"]
    if named["LSE"]:
        given.dense("lse_ptr", (heads, seq), ("f32",), written=True)
        results.append("lse_ptr")
    if named["parts_ptr"] is not None:
        parts = given.array("parts_ptr", ("f32",))
        given.dense("parts_ptr", (math.prod(parts.shape),), ("f32",), written=True)
        results.append("parts_ptr")
    given.apart(*results)


def _head_size(given: Given, name: str, d: int) -> None:
    if d not in HEAD_SIZES:
        sizes = ", ".join(map(str, HEAD_SIZES))
        help = "pad q, k and v with zeros up to one of them, and give the scale"
        raise given.refuse(name, str(d), f"one of {sizes}", help)


attention = Entry(
    "attention",
    attention_forward,
    check_attention,
    configs=[c for configs in ATTENTION_CONFIGS.values() for c in configs],
    key=["heads", "seq", "D", "CAUSAL"],
    prune_configs_by={"early_config_prune": for_call},
    in_order=[c for configs in ATTENTION_IN_ORDER_CONFIGS.values() for c in configs],
    result=("heads", "seq"),
)
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
    by default.  config: instead of the one that is fastest (`attention`).

    Arrays are dense and apart from one another: transposed heads are to be made contiguous.  Raises
    LaunchError on any others."""
    step_aside()
    given = Given("attend", {"q": q, "k": k, "programs": programs, "scale": scale})
    heads, seq, d = given.sizes("q", "heads, seq, d", HALVES)
    heads_kv = given.sizes("k", "heads, seq, d", HALVES)[0]
    programs = given.number("programs", least=1)
    _head_size(given, "d", d)
    if heads % max(1, heads_kv):
        whole = f"as many as q, {heads}, or a divisor of that"
        raise given.refuse(
            "k", f"of {heads_kv} heads", whole, "repeat or leave out heads of k and v"
        )
    shared_by = max(1, heads // max(1, heads_kv))
    log2_e = 1 / float(LN_2.value)
    section = section_of(heads, seq, d, shared_by)
    scale = d**-0.5 if scale is None else given.finite("scale")
    args = (q, k, v, o, lse, counter, heads, seq, section, scale * log2_e)
    meta = {"D": d, "CAUSAL": causal, "GQA_GROUP": shared_by, "LSE": want_lse}
    asked = meta if parts is None else meta | {"parts_ptr": parts}
    attention.look_at(args, asked)
    if not heads * seq:
        return
    if config is None:
        config = attention.choose(grid_of(heads, seq, programs), args, asked)
    for kernel, its, how in launches(args, programs, parts, **meta, **config.all_kwargs):
        kernel[how.pop("grid")](*its, **how)
