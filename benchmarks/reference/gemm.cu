// The reference of the code generator: C[M,N] = A[M,K] · B[N,K]ᵀ written by hand, as we want it emitted.
// bf16 in and out, rows contiguous, float32 accumulation; sm_90a; no headers, so that NVRTC alone builds it.
//
// A persistent program of three warp groups.  Groups 0 and 1 consume: each owns 64 rows of the
// 128×256 tile.  Group 2 produces: one of its threads fills a ring of three slots by TMA.
//
//              full[slot]                                       empty[slot]
//   producer ─────────────▶ consumers: 4 wgmma on the slot, wait ───────────▶ producer
//                           until only they are in flight, release
//                           the slot BEFORE it ("late release")
//
// After its last k step a consumer rounds its 64×256 sums to bf16, brings them into shared memory by
// stmatrix in chunks of 64×64, and lets TMA store each chunk.  Nothing waits for a store but the chunk
// that needs the same staging buffer one tile later, and the producer is loading the next tile meanwhile.
//
// Launch: 384 threads, kSharedBytes of dynamic shared memory, any grid (one program per SM is best).
// Tensor maps (bf16, 128-byte swizzle, box as rows × columns): A 128×64, B 256×64, C 64×64.

using u32 = unsigned int;
using u64 = unsigned long long;
struct alignas(64) TensorMap { u64 words[16]; };

// ── shape of the program ────────────────────────────────────────────────────────────────────────
constexpr int kTileM = 128, kTileN = 256, kTileK = 64;  // 64 bf16 are 128 bytes: one row of the swizzle
constexpr int kDepth = 3;                               // slots of the ring
constexpr int kGroups = 2;                              // consumer warp groups
constexpr int kRows = kTileM / kGroups;                 // rows of one consumer: 64, as wgmma has it
constexpr int kBand = 16;                               // tile rows that are walked together, for the L2
constexpr int kChunk = 64, kChunks = kTileN / kChunk;   // columns of a store; stores of a tile and group
constexpr int kThreads = 128 * (kGroups + 1);
constexpr int kProducerRegisters = 40, kConsumerRegisters = 232;
static_assert(128 * kProducerRegisters + 256 * kConsumerRegisters <= kThreads * 168, "register pool");

// ── shared memory, in bytes from its (1024-byte aligned) start ──────────────────────────────────
constexpr int kBytesA = kTileM * kTileK * 2, kBytesB = kTileN * kTileK * 2, kBytesC = kRows * kChunk * 2;
constexpr int kAtA = 0;
constexpr int kAtB = kAtA + kDepth * kBytesA;
constexpr int kAtC = kAtB + kDepth * kBytesB;
constexpr int kAtFull = kAtC + kGroups * kChunks * kBytesC;
constexpr int kAtEmpty = kAtFull + 8 * kDepth;
constexpr int kSharedBytes = kAtEmpty + 8 * kDepth;
static_assert(kSharedBytes == 213040, "run.py launches with this many");

#define INLINE __device__ __forceinline__

// ── mbarriers ───────────────────────────────────────────────────────────────────────────────────
INLINE void barrier_init(u32 bar, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(arrivals) : "memory");
}
INLINE void barrier_arrive(u32 bar) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}
INLINE void barrier_arrive_expect(u32 bar, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}
INLINE void barrier_wait(u32 bar, u32 phase) {
  u32 done;
  do {
    asm volatile(
        "{\n .reg .pred p;\n"
        " mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        " selp.u32 %0, 1, 0, p;\n}"
        : "=r"(done) : "r"(bar), "r"(phase) : "memory");
  } while (!done);
}
INLINE void group_sync(int group) { asm volatile("bar.sync %0, 128;" ::"r"(1 + group) : "memory"); }

// ── TMA; coordinates are (column, row), the contiguous one first ────────────────────────────────
INLINE void tma_load(const TensorMap& map, u32 to, u32 bar, int column, int row) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
      ::"r"(to), "l"(&map), "r"(column), "r"(row), "r"(bar) : "memory");
}
INLINE void tma_store(const TensorMap& map, u32 from, int column, int row) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];"
               ::"l"(&map), "r"(column), "r"(row), "r"(from) : "memory");
}
INLINE void tma_store_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
template <int kPending>
INLINE void tma_store_wait_read() { asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory"); }
// Orders this thread's ordinary writes to shared memory before later reads of the copy engine.
INLINE void fence_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// ── registers → shared memory ───────────────────────────────────────────────────────────────────
INLINE u32 to_bf16x2(float low, float high) {
  u32 pair;
  asm volatile("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
// Four 8×8 matrices of 16-bit elements; lane 8i + j gives the address of row j of matrix i.
INLINE void stmatrix_x4(u32 row, u32 m0, u32 m1, u32 m2, u32 m3) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
               ::"r"(row), "r"(m0), "r"(m1), "r"(m2), "r"(m3) : "memory");
}

// ── wgmma ───────────────────────────────────────────────────────────────────────────────────────
INLINE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
INLINE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int kPending>
INLINE void wgmma_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory"); }

// Descriptor of a K-major operand under the 128-byte swizzle: address, distance between groups of
// 8 rows (1024 bytes), both in units of 16 bytes; swizzle mode 1 in bits 62-63.  The leading-dimension
// field has no meaning in this mode.  16 elements further along K are 32 bytes, so + 2.
INLINE u64 k_major(u32 address) { return u64(1) << 62 | u64(1024 / 16) << 32 | u64(1) << 16 | address / 16; }

#define REGS10(t) "%" #t "0,%" #t "1,%" #t "2,%" #t "3,%" #t "4,%" #t "5,%" #t "6,%" #t "7,%" #t "8,%" #t "9,"
#define REGS128 \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9," REGS10(1) REGS10(2) REGS10(3) REGS10(4) REGS10(5) REGS10(6) REGS10(7) \
  REGS10(8) REGS10(9) REGS10(10) REGS10(11) "%120,%121,%122,%123,%124,%125,%126,%127"
#define TIED4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define TIED16(i) TIED4(i), TIED4(i + 4), TIED4(i + 8), TIED4(i + 12)
#define TIED128 TIED16(0), TIED16(16), TIED16(32), TIED16(48), TIED16(64), TIED16(80), TIED16(96), TIED16(112)

// d (64×256 over a warp group) = a · b (+ d unless `fresh`), K = 16.
INLINE void wgmma_64x256x16(float (&d)[128], u64 a, u64 b, bool fresh) {
  asm volatile(
      "{\n .reg .pred add;\n setp.eq.b32 add, %130, 0;\n"
      " wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" REGS128 "}, %128, %129, add, 1, 1, 0, 0;\n}"
      : TIED128 : "l"(a), "l"(b), "r"(int(fresh)));
}

// ── the walk over tiles and slots, the same in every role ───────────────────────────────────────
struct Ring {
  int slot = 0;
  u32 phase = 0;
  INLINE void next() {
    if (++slot == kDepth) slot = 0, phase ^= 1;
  }
};

struct Problem {
  int m_tiles, n_tiles, k_steps;
  INLINE int tiles() const { return m_tiles * n_tiles; }
  // Bands of kBand tile rows; inside a band column after column.
  INLINE void place(int tile, int& row, int& column) const {
    const int band = tile / (kBand * n_tiles), in_band = tile - band * kBand * n_tiles;
    const int rows = min(kBand, m_tiles - band * kBand);
    row = (band * kBand + in_band % rows) * kTileM;
    column = in_band / rows * kTileN;
  }
};

INLINE void produce(const TensorMap& a, const TensorMap& b, u32 shared, const Problem& problem) {
  Ring ring;
  for (int tile = blockIdx.x; tile < problem.tiles(); tile += gridDim.x) {
    int row, column;
    problem.place(tile, row, column);
    for (int k = 0; k < problem.k_steps; ++k, ring.next()) {
      const u32 full = shared + kAtFull + 8 * ring.slot, empty = shared + kAtEmpty + 8 * ring.slot;
      barrier_wait(empty, ring.phase ^ 1);  // passes in the first round: the slots start out free
      barrier_arrive_expect(full, kBytesA + kBytesB);
      tma_load(a, shared + kAtA + ring.slot * kBytesA, full, k * kTileK, row);
      tma_load(b, shared + kAtB + ring.slot * kBytesB, full, k * kTileK, column);
    }
  }
}

INLINE void consume(const TensorMap& c, u32 shared, const Problem& problem, int group) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  const bool one_of_warp = lane == 0, one_of_group = threadIdx.x % 128 == 0;
  // Of the 16 rows of its warp a lane addresses row lane % 16; the swizzle exchanges the 16-byte
  // columns of a row by its number modulo 8.
  const u32 staging = shared + kAtC + group * kChunks * kBytesC;
  const u32 lane_row = (16 * warp + lane % 16) * 128, lane_column = (lane / 16 ^ lane % 8) * 16;
  float sum[kTileN / 2];
  Ring ring;

  for (int tile = blockIdx.x; tile < problem.tiles(); tile += gridDim.x) {
    int row, column, previous = 0;
    problem.place(tile, row, column);

    for (int k = 0; k < problem.k_steps; ++k, ring.next()) {
      barrier_wait(shared + kAtFull + 8 * ring.slot, ring.phase);
      const u64 a = k_major(shared + kAtA + ring.slot * kBytesA + group * kRows * kTileK * 2);
      const u64 b = k_major(shared + kAtB + ring.slot * kBytesB);
      wgmma_fence();
#pragma unroll
      for (int i = 0; i < kTileK / 16; ++i) wgmma_64x256x16(sum, a + 2 * i, b + 2 * i, k == 0 && i == 0);
      wgmma_commit();
      wgmma_wait<1>();
      if (k > 0 && one_of_warp) barrier_arrive(shared + kAtEmpty + 8 * previous);
      previous = ring.slot;
    }
    wgmma_wait<0>();
    if (one_of_warp) barrier_arrive(shared + kAtEmpty + 8 * previous);

#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      const u32 buffer = staging + chunk * kBytesC;
#pragma unroll
      for (int pair = 0; pair < kChunk / 16; ++pair) {  // 16 columns: two blocks of 8, two of 8 rows
        const float* s = &sum[chunk * kChunk / 2 + 8 * pair];
        stmatrix_x4(buffer + lane_row + (lane_column ^ 32 * pair), to_bf16x2(s[0], s[1]), to_bf16x2(s[2], s[3]),
                    to_bf16x2(s[4], s[5]), to_bf16x2(s[6], s[7]));
      }
      fence_async();
      // One barrier says two things: this chunk is written, and (the storing thread came here past
      // its wait) the buffer of the next chunk has been read by its store of one tile ago.
      if (one_of_group) tma_store_wait_read<kChunks - 2>();
      group_sync(group);
      if (one_of_group) {
        tma_store(c, buffer, column + chunk * kChunk, row + group * kRows);
        tma_store_commit();
      }
    }
  }
  if (one_of_group) tma_store_wait_read<0>();  // the stores read this program's shared memory
}

// M, N >= 1 and K >= 1; K a multiple of 8 and N a multiple of 8 (strides of tensor maps are 16 bytes).
extern "C" __global__ void __launch_bounds__(kThreads, 1)
    gemm(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, const __grid_constant__ TensorMap c,
         int M, int N, int K) {
  extern __shared__ __align__(1024) char memory[];
  const u32 shared = static_cast<u32>(__cvta_generic_to_shared(memory));
  const Problem problem{(M + kTileM - 1) / kTileM, (N + kTileN - 1) / kTileN, (K + kTileK - 1) / kTileK};
  // The shuffle tells the compiler that all threads of a warp agree.
  const int group = __shfl_sync(0xffffffff, threadIdx.x / 128, 0);

  if (threadIdx.x == 0) {
    for (int slot = 0; slot < kDepth; ++slot) {
      barrier_init(shared + kAtFull + 8 * slot, 1);             // the producer's arrive-expect, and the bytes
      barrier_init(shared + kAtEmpty + 8 * slot, 4 * kGroups);  // one arrival of each consumer warp
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();

  if (group == kGroups) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kProducerRegisters));
    if (threadIdx.x == 128 * kGroups) produce(a, b, shared, problem);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kConsumerRegisters));
    consume(c, shared, problem, group);
  }
}
