# mypy: ignore-errors
# (annotations of scripts are values: `slot: int32 = 0` declares a variable)
"""O = softmax(Q·Kᵀ·s)·V forward in bf16, every role and barrier placed by hand.

Q and O are (heads, seq, d), K and V (heads / shared_by, seq, d), contiguous; heads counts batch × heads.

A CTA owns tiles of 64 × groups rows of one head, one after another.  One thread loads; each consumer has
64 rows.  Inside a consumer the scores of the next block and this block's P·V are in flight together, and
the softmax runs under P·V; between consumers the turn to issue products passes round (ping-pong), so that
one's softmax runs under the others' products.  O leaves through a buffer in shared memory: the consumer
starts the store itself, or a warp beside the loader does (store_role), so that no consumer waits for it.
"""

from __future__ import annotations

from warploom.explicit.script import Class
from warploom.language import bfloat16, cdiv, float32, int32
from warploom.runtime.script import Script

NEGATIVE = float("-inf")
LN_2 = 0.6931471805599453
ORDER_BARRIERS = 8  # the first of the named barriers that order the consumers' products


class Ring(Class):
    """Blocks on their way from task to task: `depth` slots of `parts` blocks with a barrier pair each.
    writers, readers: how many warps (or loading threads) fill a block, and read it.  slot, phase: where in it
    the task is."""

    def __init__(self, depth, parts, rows, columns, readers, writers=1):
        self.depth = depth
        self.parts = parts
        self.blocks = self.shared_tensor(dtype=bfloat16, shape=[depth * parts, rows, columns])
        self.full = self.mbarrier.alloc([writers] * (depth * parts))
        self.empty = self.mbarrier.alloc([readers] * (depth * parts))
        self.slot: int32 = 0
        self.phase: int32 = 0

    def block(self, part=0):
        return self.blocks[self.slot * self.parts + part]

    def wait(self, part=0):
        self.mbarrier.wait(self.full[self.slot * self.parts + part], self.phase)

    def wait_free(self, part=0):
        self.mbarrier.wait(self.empty[self.slot * self.parts + part], self.phase ^ 1)

    def release(self, part=0):
        """The task's warps have read their part."""
        self.mbarrier.arrive(self.empty[self.slot * self.parts + part], by="warp")
        self.advance()

    def load(self, view, offsets, part=0):
        """Asks for a part of the next slot."""
        at = self.slot * self.parts + part
        self.wait_free(part)
        self.mbarrier.arrive_and_expect_tx(self.full[at], self.blocks[at].nbytes)
        self.tma.global_to_shared(view, self.blocks[at], offsets, self.full[at])

    def put(self, value, part=0):
        """Fills a part of the next slot, for TMA to read."""
        self.store_shared(self.block(part), value)
        self.fence.proxy_async()
        self.mbarrier.arrive(self.full[self.slot * self.parts + part], by="warp")
        self.advance()

    def store(self, view, offsets, part=0):
        """Sends a part out, and releases it when it has been read."""
        self.wait(part)
        self.tma.shared_to_global(self.block(part), view, offsets)
        self.tma.commit_group()
        self.tma.wait_group(0, read=True)
        self.release(part)

    def advance(self):
        self.slot, self.phase = self.ring_next(self.slot, self.phase, self.depth)


class Tiles(Class):
    """Which tile is next.  All CTAs draw from one counter: whoever is done takes the next number.  The loader
    draws, and hands the numbers on to `readers` warps."""

    def __init__(self, counter, readers):
        self.counter = counter
        self.numbers = self.shared_tensor(dtype=int32, shape=[2, 1, 1])
        self.full = self.mbarrier.alloc([1] * 2)
        self.empty = self.mbarrier.alloc([readers] * 2)
        self.slot: int32 = 0
        self.phase: int32 = 0

    def hand_on(self, t):
        self.mbarrier.wait(self.empty[self.slot], self.phase ^ 1)
        self.store_shared(self.numbers[self.slot], t)
        self.mbarrier.arrive(self.full[self.slot])
        self.slot, self.phase = self.ring_next(self.slot, self.phase, 2)

    def take(self):
        self.mbarrier.wait(self.full[self.slot], self.phase)
        t = self.load_shared(self.numbers[self.slot])
        self.assume(t >= 0)
        self.mbarrier.arrive(self.empty[self.slot], by="warp")
        self.slot, self.phase = self.ring_next(self.slot, self.phase, 2)
        return t

    def draw(self):
        drawn = self.atomic_add(self.counter, 1, sem="relaxed")
        self.assume(drawn >= 0)
        return self.gridDim.x + drawn

    def leave(self):
        """The last CTA to leave sets the counter back for the next launch."""
        if self.atomic_add(self.counter + 1, 1, sem="relaxed") == self.gridDim.x - 1:
            self.store(self.counter, 0)
            self.store(self.counter + 1, 0)


class Attention(Script):
    """O = softmax(Q·Kᵀ · s)·V: Q, O (heads, seq, d) bf16, K, V (heads / shared_by, seq, d), all dense.

    causal: row i sees columns 0 … i.  d: head size.  groups: consumers.  block: rows of K and V at a time.
    stages: blocks of K, and of V, in their rings; q_stages: of Q.  pingpong: consumers take turns at issuing
    products.  eighths: of a block's exponentials, those that come before the wait for P·V (fewer than 8).
    programs: CTAs of a launch, one for each SM.  l2_bytes: of K and V that are walked together, so that they
    stay in the L2 cache.  shared_by: heads of Q that share one of K and V.  lse: write log Σ exp of each
    row's scores as well.  store_role: O is stored by a warp for each consumer, beside the loader."""

    def __init__(
        self,
        causal: bool = False,
        d: int = 128,
        groups: int = 2,
        block: int = 128,
        stages: int = 2,
        q_stages: int = 1,
        pingpong: bool = True,
        eighths: int = 2,
        programs: int = 132,
        l2_bytes: int = 32 << 20,
        shared_by: int = 1,
        lse: bool = False,
        store_role: bool = False,
    ) -> None:
        super().__init__()
        self.causal = causal
        self.d = d
        self.groups = groups
        self.rows = 64 * groups
        self.block = block
        self.stages = stages
        self.q_stages = q_stages
        self.pingpong = pingpong
        self.held = block * eighths // 64 * 8
        self.programs = programs
        self.l2_bytes = l2_bytes
        self.shared_by = shared_by
        self.lse = lse
        self.store_role = store_role
        # setmaxnreg moves registers from the loading warp group to the consumers (PTX ISA, setmaxnreg).
        self.budgets = {1: (56, 240), 2: (24, 240), 3: (32, 160)}[groups]
        self.nested = block % self.rows == 0  # only a tile's last block crosses the diagonal

    def tile_at(self, t):
        """Head, first row and number of blocks of tile number t.  Causal tiles differ in length: the longest
        first, in sections of heads whose K and V the L2 cache holds."""
        tiles = cdiv(self.seq, self.rows)
        blocks = cdiv(self.seq, self.block)
        if self.causal:
            fitting = max(1, self.l2_bytes // (4 * self.d) * self.shared_by // self.seq)
            # All equal: a small one at the end would begin long tiles when little else is left.
            section = cdiv(self.heads, cdiv(self.heads, fitting))
            first = t // (section * tiles) * section
            inside = t % (section * tiles)
            width = min(section, self.heads - first)
            row = (tiles - 1 - inside // width) * self.rows
            return first + inside % width, row, min(blocks, cdiv(row + self.rows, self.block))
        return t // tiles, t % tiles * self.rows, blocks

    # ---- a consumer's block of keys

    def order_wait(self, group):
        if self.pingpong:
            self.named_barrier.sync(ORDER_BARRIERS, 256, index=group, n=self.groups)

    def order_arrive(self, group):
        if self.pingpong:
            following = self.where(group == self.groups - 1, 0, group + 1)
            self.named_barrier.arrive(ORDER_BARRIERS, 256, index=following, n=self.groups)

    # ---- softmax

    def masked(self, s, row, j):
        """Scores of columns that a row does not see are -inf."""
        columns = j * self.block + self.arange(0, self.block)
        if self.causal:
            last = self.minimum(row + self.arange(0, 64), self.seq - 1)
            return self.where(columns[None, :] <= last[:, None], s, NEGATIVE)
        return self.where((columns < self.seq)[None, :], s, NEGATIVE)

    def shift_of(self, top, masked):
        """What is subtracted from scaled scores; 0 in rows that have seen nothing yet."""
        if masked:
            return self.where(top == NEGATIVE, 0.0, top * self.scale)
        return top * self.scale

    def exponentials(self, s, shift):
        return self.exp2(self.fma(s, self.scale, -shift[:, None]))

    def add_up(self, total, e):
        """Adds e along its rows to total (64, 4): a column for each of the four lanes that share a row, which
        are added at the end.  One element after the other, so that sums keep pace with exponentials."""
        rows, n = e.shape
        parts = self.reshape(e, (rows, n // 8, 4, 2))
        for i in self.range(0, n // 8, unroll="all"):
            for j in self.range(0, 2, unroll="all"):
                total = total + self.reshape(parts[:, i : i + 1, :, j : j + 1], (rows, 4))
        return total

    # ---- a consumer.  State: the sum of P·V, P of the block before, the rows' maxima and sums.

    def issue_scores(self, group):
        """Starts Q·Kᵀ of the next block."""
        s = self.register_tensor(dtype=float32, shape=[64, self.block])
        self.wgmma.fence()
        self.wgmma.mma(self.q.block(group), self.k.block().transpose(), s, use_acc=False)
        self.wgmma.commit_group()
        return s

    def step(self, state, group, row, j, masked):
        """In flight together: the scores of block j, P·V of the block before.  The softmax of block j runs
        under P·V."""
        o, p, top, total = state
        self.k.wait()
        self.order_wait(group)
        s = self.issue_scores(group)
        self.v.wait()
        self.wgmma.fence()
        self.wgmma.mma(p, self.v.block(), o)
        self.wgmma.commit_group()
        self.order_arrive(group)
        self.wgmma.wait_group(1)
        self.k.release()
        if masked:
            s = self.masked(s, row, j)
        higher = self.maximum(top, self.max(s, dim=1))
        shift = self.shift_of(higher, masked)
        alpha = self.exp2(self.fma(top, self.scale, -shift))
        total = total * alpha[:, None]
        if self.held > 0:
            early = self.exponentials(s[:, 0 : self.held], shift)
            total = self.add_up(total, early)
            self.hold(total)  # or the wait would go up in front of all exponentials
        self.wgmma.wait_group(0)
        self.v.release()
        e = self.exponentials(s[:, self.held : self.block], shift)
        total = self.add_up(total, e)
        if self.held > 0:
            e = self.concat([early, e], dim=1)
        return o * alpha[:, None], e.to(bfloat16), higher, total

    def blocks_of(self, state, group, row, first_row, blocks):
        """All blocks of a tile but its last, which comes first."""
        clear = blocks - 1  # blocks that no mask touches
        if self.causal and not self.nested:
            clear = min(clear, first_row // self.block)
            for i in range(1, blocks - clear):
                state = self.step(state, group, row, blocks - 1 - i, True)
        for i in range(clear):
            state = self.step(state, group, row, clear - 1 - i, False)
        self.q.release(group)
        return state

    def begin(self, group, row, blocks):
        """A tile's last block: its scores alone, masked."""
        self.q.wait(group)
        self.k.wait()
        s = self.issue_scores(group)
        self.wgmma.wait_group(0)
        self.k.release()
        if self.causal or blocks * self.block > self.seq:
            s = self.masked(s, row, blocks - 1)
        top = self.max(s, dim=1)
        e = self.exponentials(s, self.shift_of(top, True))
        total = self.add_up(self.register_tensor(dtype=float32, shape=[64, 4], init=0.0), e)
        o = self.register_tensor(dtype=float32, shape=[64, self.d], init=0.0)
        return o, e.to(bfloat16), top, total

    def end(self, state, group, head, row):
        """The last P·V, alone; O goes out through its buffer."""
        o, p, top, total = state
        self.v.wait()
        self.wgmma.fence()
        self.wgmma.mma(p, self.v.block(), o)
        self.wgmma.commit_group()
        row_total = self.sum(total, dim=1)
        if self.lse:
            lse = self.fma(top, self.scale, self.log2(row_total)) * LN_2
            self.store_global(self.g_lse, lse, [head, row], dims=[1])
        # The tile before has to leave the buffer first.
        if self.store_role:
            self.out.wait_free(group)
        else:
            with self.single_thread():
                self.tma.wait_group(0, read=True)
            self.sync()
        self.wgmma.wait_group(0)
        self.v.release()
        scaled = (o * (1.0 / row_total)[:, None]).to(bfloat16)
        if self.store_role:
            self.out.put(scaled, group)
        else:
            buffer = self.staging[group]
            self.store_shared(buffer, scaled)
            self.fence.proxy_async()
            self.sync()
            with self.single_thread():
                self.tma.shared_to_global(buffer, self.g_o, [head, row, 0])
                self.tma.commit_group()

    # ---- the loader, and what stores

    def load_tile(self, t):
        """Q, K and V of a tile, in the order in which consumers wait for them."""
        head, first_row, blocks = self.tile_at(t)
        kv = head // self.shared_by
        self.k.load(self.g_k, [kv, (blocks - 1) * self.block, 0])
        self.k.advance()
        for i in self.range(0, self.groups, unroll="all"):
            self.q.load(self.g_q, [head, first_row + 64 * i, 0], i)
        self.q.advance()
        for i in range(1, blocks):
            self.k.load(self.g_k, [kv, (blocks - 1 - i) * self.block, 0])
            self.k.advance()
            self.v.load(self.g_v, [kv, (blocks - i) * self.block, 0])
            self.v.advance()
        self.v.load(self.g_v, [kv, 0, 0])
        self.v.advance()

    def load_tiles(self, queue, tiles):
        t: int32 = self.blockIdx.x
        while t < tiles:
            queue.hand_on(t)
            following = queue.draw()  # on its way while the tile is loaded
            self.load_tile(t)
            t = following
        queue.hand_on(t)  # the end
        queue.leave()

    def store_tiles(self, group, queue, tiles):
        t = queue.take()
        while t < tiles:
            head, first_row, _ = self.tile_at(t)
            self.out.store(self.g_o, [head, first_row + 64 * group, 0], group)
            t = queue.take()

    def __call__(
        self,
        q_ptr: ~bfloat16,
        k_ptr: ~bfloat16,
        v_ptr: ~bfloat16,
        o_ptr: ~bfloat16,
        lse_ptr: ~float32,
        counter_ptr: ~int32,
        heads: int32,
        seq: int32,
        scale: float32,
    ):
        """scale: s times log2(e).  lse (heads, seq): written where asked for.  counter: two
        zeros, which every launch leaves as it found them."""
        tiles = cdiv(seq, self.rows) * heads
        self.attrs.blocks = min(self.programs, tiles)
        self.attrs.warps = 4 * self.groups + 4
        self.heads, self.seq, self.scale = heads, seq, scale
        kv_heads = heads // self.shared_by
        self.g_q = self.global_view(q_ptr, dtype=bfloat16, shape=[heads, seq, self.d])
        self.g_k = self.global_view(k_ptr, dtype=bfloat16, shape=[kv_heads, seq, self.d])
        self.g_v = self.global_view(v_ptr, dtype=bfloat16, shape=[kv_heads, seq, self.d])
        self.g_o = self.global_view(o_ptr, dtype=bfloat16, shape=[heads, seq, self.d])
        self.g_lse = self.global_view(lse_ptr, dtype=float32, shape=[heads, seq])
        warps = 4 * self.groups  # of the consumers
        self.q = Ring(self.q_stages, self.groups, 64, self.d, 4)
        self.k = Ring(self.stages, 1, self.block, self.d, warps)
        self.v = Ring(self.stages, 1, self.block, self.d, warps)
        if self.store_role:
            self.out = Ring(1, self.groups, 64, self.d, 1, 4)
        else:
            self.staging = self.shared_tensor(dtype=bfloat16, shape=[self.groups, 64, self.d])
        queue = Tiles(counter_ptr, warps + self.groups * self.store_role)

        with self.thread_group(0, 128, replicas=self.groups, name="consumer") as group:
            self.setmaxnreg(self.budgets[1])
            if group == self.groups - 1:  # group 0 begins
                self.order_arrive(group)
            t = queue.take()
            while t < tiles:
                head, first_row, blocks = self.tile_at(t)
                row = first_row + group * 64
                state = self.begin(group, row, blocks)
                state = self.blocks_of(state, group, row, first_row, blocks)
                self.end(state, group, head, row)
                t = queue.take()
            if not self.store_role:
                with self.single_thread():
                    self.tma.wait_group(0, read=True)

        with self.warp_group(4 * self.groups, 4, name="producer"):
            self.setmaxnreg(self.budgets[0])
            if self.store_role:
                with self.single_warp(0, name="loader"), self.single_thread():
                    self.load_tiles(queue, tiles)
                stores = self.thread_group(32, 32, replicas=self.groups, name="store")
                with stores as group, self.single_thread():
                    self.store_tiles(group, queue, tiles)
            else:
                with self.single_thread():
                    self.load_tiles(queue, tiles)


def configs(d: int, causal: bool, seq: int) -> list[dict[str, int | bool]]:
    """Options of Attention worth timing, the one that is most often the fastest first (an H200;
    docs/log/2026-11-21-explicit-attention.md).  At head size 128 a third consumer would leave too few
    registers for blocks of 128; at 64 three are best, but for short causal heads, where tiles of 192 rows
    waste too much above the diagonal, and where heads are short a store of their own is worth its warps.  Of
    variants that differ in scheduling alone, either may win by some percent."""
    short = causal and seq <= 1024
    store_role = d == 64 and seq <= 1024
    l2_bytes = (16 if short else 32) << 20
    if d == 128:
        rows = [{"eighths": 3}, {"eighths": 3, "pingpong": False}]
    elif short:
        two = {"eighths": 2, "stages": 3, "q_stages": 2}
        rows = [two, {**two, "pingpong": False}]
    else:
        rows = [{"groups": 3, "eighths": n, "q_stages": 2} for n in (2, 0)]
    more = {"store_role": True} if store_role else {}
    return [{**row, **more, "l2_bytes": l2_bytes} for row in rows]
