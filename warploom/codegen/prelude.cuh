// Thin wrappers of PTX.  Each paragraph is one definition; codegen takes those that a kernel uses.
// Facts: PTX ISA, the sections named after each instruction.

typedef unsigned char u8;

typedef unsigned short u16;

typedef unsigned int u32;

typedef unsigned long long u64;

typedef long long i64;

struct __align__(64) TensorMap { u64 opaque[16]; };

struct __align__(8) Vec2 { u32 w[2]; };

struct __align__(16) Vec4 { u32 w[4]; };

extern "C" __device__ int printf(const char*, ...);

#define DEV __device__ __forceinline__

// One lane of a converged warp, always the same one.
DEV bool elect_one() {
#if __CUDA_ARCH__ >= 900
  u32 p;
  asm volatile("{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p; }" : "=r"(p));
  return p;
#else
  return threadIdx.x % 32 == 0;
#endif
}

template <int N> DEV void registers_dec() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" :: "n"(N)); }

template <int N> DEV void registers_inc() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" :: "n"(N)); }

// Programmatic dependent launch.  Before grid_wait returns, the grids that this one was launched behind are
// complete and their writes visible; grid_release lets the next grid start (and wait) once all CTAs have called
// it or ended.  Both do nothing in a launch without the attribute.
//
// Where programs are short their ends and releases queue up (measured: benchmarks/launch_rate.py), so only the
// last LAST of a grid release: those before them end by themselves.
DEV void grid_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

template <int LAST> DEV void grid_release() {
  const u64 behind = ((u64)(gridDim.z - blockIdx.z - 1) * gridDim.y + gridDim.y - blockIdx.y - 1) * gridDim.x;
  if (behind + gridDim.x - blockIdx.x <= LAST) asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

DEV void prefetch_map(const TensorMap* map) { asm volatile("prefetch.tensormap [%0];" :: "l"(map) : "memory"); }

DEV void mbarrier_init(u32 bar, u32 arrivals) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(bar), "r"(arrivals) : "memory"); }

DEV void mbarrier_init_fence() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

DEV void mbarrier_expect(u32 bar, u32 bytes) { asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(bar), "r"(bytes) : "memory"); }

DEV void mbarrier_arrive(u32 bar) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(bar) : "memory"); }

// Nothing that this thread did by ordinary accesses is released.
DEV void mbarrier_expect_relaxed(u32 bar, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.relaxed.cta.shared::cta.b64 _, [%0], %1;" :: "r"(bar), "r"(bytes) : "memory");
}

DEV void mbarrier_expect_peer_relaxed(u32 bar, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.relaxed.cluster.shared::cluster.b64 _, [%0], %1;" :: "r"(bar), "r"(bytes) : "memory");
}

DEV void mbarrier_arrive_relaxed(u32 bar) { asm volatile("mbarrier.arrive.relaxed.cta.shared::cta.b64 _, [%0];" :: "r"(bar) : "memory"); }

// At a barrier of another CTA of the cluster, by its address in the cluster's window.
DEV void mbarrier_arrive_peer(u32 bar) { asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" :: "r"(bar) : "memory"); }

DEV void mbarrier_arrive_peer_relaxed(u32 bar) { asm volatile("mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [%0];" :: "r"(bar) : "memory"); }

// As n arrivals.
DEV void mbarrier_arrive_many(u32 bar, u32 n) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], %1;" :: "r"(bar), "r"(n) : "memory"); }

DEV void mbarrier_arrive_relaxed_many(u32 bar, u32 n) {
  asm volatile("mbarrier.arrive.relaxed.cta.shared::cta.b64 _, [%0], %1;" :: "r"(bar), "r"(n) : "memory");
}

DEV void mbarrier_arrive_peer_many(u32 bar, u32 n) {
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0], %1;" :: "r"(bar), "r"(n) : "memory");
}

DEV void mbarrier_arrive_peer_relaxed_many(u32 bar, u32 n) {
  asm volatile("mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [%0], %1;" :: "r"(bar), "r"(n) : "memory");
}

DEV void mbarrier_expect_peer(u32 bar, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64 _, [%0], %1;" :: "r"(bar), "r"(bytes) : "memory");
}

DEV bool mbarrier_try_wait(u32 bar, u32 parity) {
  u32 p;
#if __CUDA_ARCH__ >= 900
  asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }" : "=r"(p) : "r"(bar), "r"(parity) : "memory");
#else
  asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }" : "=r"(p) : "r"(bar), "r"(parity) : "memory");
#endif
  return p;
}

DEV void mbarrier_wait(u32 bar, u32 parity) { while (!mbarrier_try_wait(bar, parity)) {} }

// Acquires what other CTAs of the cluster have released, too.
DEV bool mbarrier_try_wait_cluster(u32 bar, u32 parity) {
  u32 p;
  asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }" : "=r"(p) : "r"(bar), "r"(parity) : "memory");
  return p;
}

DEV void mbarrier_wait_cluster(u32 bar, u32 parity) { while (!mbarrier_try_wait_cluster(bar, parity)) {} }

// Orders no ordinary accesses after the phase; asynchronous operations come after it all the same.
DEV bool mbarrier_try_wait_relaxed(u32 bar, u32 parity) {
  u32 p;
  asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.relaxed.cta.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }" : "=r"(p) : "r"(bar), "r"(parity) : "memory");
  return p;
}

DEV void mbarrier_wait_relaxed(u32 bar, u32 parity) { while (!mbarrier_try_wait_relaxed(bar, parity)) {} }

DEV bool mbarrier_try_wait_cluster_relaxed(u32 bar, u32 parity) {
  u32 p;
  asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.relaxed.cluster.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }" : "=r"(p) : "r"(bar), "r"(parity) : "memory");
  return p;
}

DEV void mbarrier_wait_cluster_relaxed(u32 bar, u32 parity) { while (!mbarrier_try_wait_cluster_relaxed(bar, parity)) {} }

// This CTA's place in its cluster.
DEV int cta_rank() { int r; asm("mov.u32 %0, %cluster_ctarank;" : "=r"(r)); return r; }

DEV int cta_id_x() { int r; asm("mov.u32 %0, %cluster_ctaid.x;" : "=r"(r)); return r; }

DEV int cta_id_y() { int r; asm("mov.u32 %0, %cluster_ctaid.y;" : "=r"(r)); return r; }

DEV int cta_id_z() { int r; asm("mov.u32 %0, %cluster_ctaid.z;" : "=r"(r)); return r; }

// The address, in the cluster's window, of the same place in another CTA's shared memory.
DEV u32 peer_address(u32 addr, u32 rank) { u32 r; asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(r) : "r"(addr), "r"(rank)); return r; }

// The barrier of all threads of the cluster.
DEV void cluster_arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }

DEV void cluster_arrive_relaxed() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }

DEV void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

DEV u64 nanoseconds() { u64 t; asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t)); return t; }

// Debug builds: two seconds, then a message and a trap instead of a hang.
DEV void mbarrier_wait_bounded(u32 bar, u32 parity, const char* name, int index, const char* task) {
  const u64 start = nanoseconds();
  while (!mbarrier_try_wait(bar, parity)) {
    if (nanoseconds() - start > 2000000000ull) {
      printf("warploom: program (%d, %d, %d), task %s, thread %d: waited 2 s for phase %d of barrier %s[%d]\n",
             blockIdx.x, blockIdx.y, blockIdx.z, task, threadIdx.x, parity, name, index);
      __trap();
    }
  }
}

DEV i64 globaltimer() {
  i64 now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now) :: "memory");
  return now;
}

// Measured builds: what happened, and the SM's clock, at byte `at` of the buffer; then down to the record before.
// A thread whose `at` is a multiple of SIZE writes nothing: it doesn't record, or its records are full.
template <int SIZE> DEV void stamp(u32* stamps, u32& at, u32 what) {
  asm volatile("{ .reg .pred p; .reg .u32 now, left; .reg .u64 to; mov.u32 now, %%clock; and.b32 left, %0, %3; setp.ne.u32 p, left, 0; cvt.u64.u32 to, %0; add.u64 to, to, %1; @p st.global.v2.u32 [to], {%2, now}; @p sub.u32 %0, %0, 8; }" : "+r"(at) : "l"(stamps), "r"(what), "n"(SIZE - 1) : "memory");
}

DEV void fence_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

DEV void fence_async_global() { asm volatile("fence.proxy.async.global;" ::: "memory"); }

DEV void fence_async_cluster() { asm volatile("fence.proxy.async.shared::cluster;" ::: "memory"); }

DEV void named_sync(int id, int threads) { asm volatile("bar.sync %0, %1;" :: "r"(id), "r"(threads) : "memory"); }

DEV void named_arrive(int id, int threads) { asm volatile("bar.arrive %0, %1;" :: "r"(id), "r"(threads) : "memory"); }

DEV void tma_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

template <int N> DEV void tma_wait_read() { asm volatile("cp.async.bulk.wait_group.read %0;" :: "n"(N) : "memory"); }

template <int N> DEV void tma_wait() { asm volatile("cp.async.bulk.wait_group %0;" :: "n"(N) : "memory"); }

// `valid` bytes are copied, the rest of N is zero-filled.
template <int N> DEV void cp_async(u32 dst, const void* src, int valid) {
  if constexpr (N == 16) asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" :: "r"(dst), "l"(src), "r"(valid) : "memory");
  else asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" :: "r"(dst), "l"(src), "n"(N), "r"(valid) : "memory");
}

// Zeros where not `on`: the source is not read then (operand ignore-src).
template <int N> DEV void cp_async_if(u32 dst, const void* src, bool on) {
  if constexpr (N == 16) asm volatile("{ .reg .pred p; setp.eq.u32 p, %2, 0; cp.async.cg.shared.global [%0], [%1], 16, p; }" :: "r"(dst), "l"(src), "r"((u32)on) : "memory");
  else asm volatile("{ .reg .pred p; setp.eq.u32 p, %3, 0; cp.async.ca.shared.global [%0], [%1], %2, p; }" :: "r"(dst), "l"(src), "n"(N), "r"((u32)on) : "memory");
}

DEV void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

template <int N> DEV void cp_async_wait() { asm volatile("cp.async.wait_group %0;" :: "n"(N) : "memory"); }

DEV void cp_async_arrive(u32 bar) { asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" :: "r"(bar) : "memory"); }

DEV void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

DEV void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

template <int N> DEV void wgmma_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(N) : "memory"); }

// The assembler may move a wgmma wait up past arithmetic that does not need it.  A store that never happens (no grid
// is empty), under a predicate that depends on x, stays behind x, and the wait behind the store.
DEV void hold(u32 x) {
  asm volatile("{ .reg .pred p; .reg .u32 z; mov.u32 z, %nctaid.z; setp.eq.u32 p, z, 0; setp.eq.and.u32 p, %0, 0, p; @p st.shared.u32 [%1], %0; }" :: "r"(x), "r"(0) : "memory");
}

// The values stand in these registers here: the compiler doesn't know that wgmma_wait wrote them, and must not
// compute them before.
template <int N> DEV void pin(float (&d)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+f"(d[i]) :: "memory");
}

template <int N> DEV void pin(int (&d)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+r"(d[i]) :: "memory");
}

template <int N> DEV void pin(u32 (&d)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+r"(d[i]) :: "memory");
}

// A wgmma has read these registers up to here: nothing else may be put there before.  ptxas before 13.3 forgets them
// where they are copies (Triton #9433, #11781), unless something reads them: stores that never happen, as no grid is
// empty.  It is told so by a value of the data's, or it makes branches of them.
template <int N> DEV void keep(const u32* a) {
#if __CUDACC_VER_MAJOR__ == 13 && __CUDACC_VER_MINOR__ < 3
  u32 never;
  asm volatile("{ .reg .pred p; .reg .u32 z; mov.u32 z, %%nctaid.z; setp.eq.u32 p, z, 0; setp.eq.and.u32 p, %1, 0, p; selp.u32 %0, 1, 0, p; }" : "=r"(never) : "r"(a[0]) : "memory");
#pragma unroll
  for (int i = 0; i < N; i += 4)
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %4, 0; @p st.shared.v4.u32 [%4], {%0, %1, %2, %3}; }" :: "r"(a[i]), "r"(a[i + 1]), "r"(a[i + 2]), "r"(a[i + 3]), "r"(never) : "memory");
#endif
}

// The number, of which the compiler knows nothing.
DEV int opaque(int x) {
  asm volatile("" : "+r"(x));
  return x;
}

// Matrix descriptor: start, leading and stride byte offsets in 16-byte units; SWIZZLE 1, 2, 3: 128, 64, 32 bytes.
template <int LEADING, int STRIDE, int SWIZZLE> DEV u64 wgmma_desc(u32 addr) {
  return (u64)(addr >> 4) | (u64)(LEADING >> 4) << 16 | (u64)(STRIDE >> 4) << 32 | (u64)SWIZZLE << 62;
}

DEV void stmatrix1(u32 addr, u32 a) {
  asm volatile("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%0], {%1};" :: "r"(addr), "r"(a) : "memory");
}

DEV void stmatrix2(u32 addr, u32 a, u32 b) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" :: "r"(addr), "r"(a), "r"(b) : "memory");
}

DEV void stmatrix4(u32 addr, u32 a, u32 b, u32 c, u32 d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" :: "r"(addr), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}

DEV void stmatrix1_trans(u32 addr, u32 a) {
  asm volatile("stmatrix.sync.aligned.m8n8.x1.trans.shared.b16 [%0], {%1};" :: "r"(addr), "r"(a) : "memory");
}

DEV void stmatrix2_trans(u32 addr, u32 a, u32 b) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" :: "r"(addr), "r"(a), "r"(b) : "memory");
}

DEV void stmatrix4_trans(u32 addr, u32 a, u32 b, u32 c, u32 d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" :: "r"(addr), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}

DEV void ldmatrix1(u32 addr, u32& a) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(a) : "r"(addr) : "memory");
}

DEV void ldmatrix2(u32 addr, u32& a, u32& b) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];" : "=r"(a), "=r"(b) : "r"(addr) : "memory");
}

DEV void ldmatrix4(u32 addr, u32& a, u32& b, u32& c, u32& d) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "r"(addr) : "memory");
}

DEV void ldmatrix1_trans(u32 addr, u32& a) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];" : "=r"(a) : "r"(addr) : "memory");
}

DEV void ldmatrix2_trans(u32 addr, u32& a, u32& b) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];" : "=r"(a), "=r"(b) : "r"(addr) : "memory");
}

DEV void ldmatrix4_trans(u32 addr, u32& a, u32& b, u32& c, u32& d) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "r"(addr) : "memory");
}

DEV void store_shared8(u32 addr, u32 a) { asm volatile("st.shared.u8 [%0], %1;" :: "r"(addr), "r"(a) : "memory"); }

DEV void store_shared16(u32 addr, u32 a) { asm volatile("st.shared.u16 [%0], %1;" :: "r"(addr), "h"((u16)a) : "memory"); }

DEV void store_shared32(u32 addr, u32 a) { asm volatile("st.shared.u32 [%0], %1;" :: "r"(addr), "r"(a) : "memory"); }

DEV void store_shared64(u32 addr, u32 a, u32 b) { asm volatile("st.shared.v2.u32 [%0], {%1, %2};" :: "r"(addr), "r"(a), "r"(b) : "memory"); }

DEV void store_shared128(u32 addr, u32 a, u32 b, u32 c, u32 d) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" :: "r"(addr), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}

DEV u32 load_shared8(u32 addr) { u32 a; asm volatile("ld.shared.u8 %0, [%1];" : "=r"(a) : "r"(addr) : "memory"); return a; }

DEV u32 load_shared16(u32 addr) { u16 a; asm volatile("ld.shared.u16 %0, [%1];" : "=h"(a) : "r"(addr) : "memory"); return a; }

DEV u32 load_shared32(u32 addr) { u32 a; asm volatile("ld.shared.u32 %0, [%1];" : "=r"(a) : "r"(addr) : "memory"); return a; }

DEV Vec2 load_shared64(u32 addr) {
  Vec2 v;
  asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(v.w[0]), "=r"(v.w[1]) : "r"(addr) : "memory");
  return v;
}

DEV Vec4 load_shared128(u32 addr) {
  Vec4 v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.w[0]), "=r"(v.w[1]), "=r"(v.w[2]), "=r"(v.w[3]) : "r"(addr) : "memory");
  return v;
}

// N floats that are adjacent, 1, 2 or 4.
template <int N> DEV void load_floats(float* x, u32 addr) {
  if constexpr (N == 4) {
    const Vec4 v = load_shared128(addr);
    for (int i = 0; i < 4; ++i) x[i] = __uint_as_float(v.w[i]);
  } else if constexpr (N == 2) {
    const Vec2 v = load_shared64(addr);
    for (int i = 0; i < 2; ++i) x[i] = __uint_as_float(v.w[i]);
  } else {
    *x = __uint_as_float(load_shared32(addr));
  }
}

// The same in another CTA of the cluster.
DEV void store_peer8(u32 addr, u32 a) { asm volatile("st.shared::cluster.u8 [%0], %1;" :: "r"(addr), "r"(a) : "memory"); }

DEV void store_peer16(u32 addr, u32 a) { asm volatile("st.shared::cluster.u16 [%0], %1;" :: "r"(addr), "h"((u16)a) : "memory"); }

DEV void store_peer32(u32 addr, u32 a) { asm volatile("st.shared::cluster.u32 [%0], %1;" :: "r"(addr), "r"(a) : "memory"); }

DEV void store_peer64(u32 addr, u32 a, u32 b) { asm volatile("st.shared::cluster.v2.u32 [%0], {%1, %2};" :: "r"(addr), "r"(a), "r"(b) : "memory"); }

DEV void store_peer128(u32 addr, u32 a, u32 b, u32 c, u32 d) {
  asm volatile("st.shared::cluster.v4.u32 [%0], {%1, %2, %3, %4};" :: "r"(addr), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}

DEV u32 load_peer8(u32 addr) { u32 a; asm volatile("ld.shared::cluster.u8 %0, [%1];" : "=r"(a) : "r"(addr) : "memory"); return a; }

DEV u32 load_peer16(u32 addr) { u16 a; asm volatile("ld.shared::cluster.u16 %0, [%1];" : "=h"(a) : "r"(addr) : "memory"); return a; }

DEV u32 load_peer32(u32 addr) { u32 a; asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(a) : "r"(addr) : "memory"); return a; }

DEV Vec2 load_peer64(u32 addr) {
  Vec2 v;
  asm volatile("ld.shared::cluster.v2.u32 {%0, %1}, [%2];" : "=r"(v.w[0]), "=r"(v.w[1]) : "r"(addr) : "memory");
  return v;
}

DEV Vec4 load_peer128(u32 addr) {
  Vec4 v;
  asm volatile("ld.shared::cluster.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.w[0]), "=r"(v.w[1]), "=r"(v.w[2]), "=r"(v.w[3]) : "r"(addr) : "memory");
  return v;
}

// Global memory in one access of 1 to 16 bytes; p is aligned to the size.
DEV u32 load_global8(const void* p) { u32 a; asm volatile("ld.global.u8 %0, [%1];" : "=r"(a) : "l"(p) : "memory"); return a; }

DEV u32 load_global16(const void* p) { u16 a; asm volatile("ld.global.u16 %0, [%1];" : "=h"(a) : "l"(p) : "memory"); return a; }

DEV u32 load_global32(const void* p) { u32 a; asm volatile("ld.global.u32 %0, [%1];" : "=r"(a) : "l"(p) : "memory"); return a; }

DEV Vec2 load_global64(const void* p) {
  Vec2 v;
  asm volatile("ld.global.v2.u32 {%0, %1}, [%2];" : "=r"(v.w[0]), "=r"(v.w[1]) : "l"(p) : "memory");
  return v;
}

DEV Vec4 load_global128(const void* p) {
  Vec4 v;
  asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.w[0]), "=r"(v.w[1]), "=r"(v.w[2]), "=r"(v.w[3]) : "l"(p) : "memory");
  return v;
}

// The same where `on`, else v.  An instruction under a predicate, no branch: loads that follow each other are all on
// their way before the first one's value is waited for.
DEV u32 load_global8_if(bool on, const void* p, u32 v) {
  asm volatile("{ .reg .pred on; setp.ne.u32 on, %2, 0; @on ld.global.u8 %0, [%1]; }" : "+r"(v) : "l"(p), "r"((u32)on) : "memory");
  return v;
}

DEV u32 load_global16_if(bool on, const void* p, u32 v) {
  asm volatile("{ .reg .pred on; setp.ne.u32 on, %2, 0; @on ld.global.u16 %0, [%1]; }" : "+r"(v) : "l"(p), "r"((u32)on) : "memory");
  return v;
}

DEV u32 load_global32_if(bool on, const void* p, u32 v) {
  asm volatile("{ .reg .pred on; setp.ne.u32 on, %2, 0; @on ld.global.u32 %0, [%1]; }" : "+r"(v) : "l"(p), "r"((u32)on) : "memory");
  return v;
}

DEV Vec2 load_global64_if(bool on, const void* p, Vec2 v) {
  asm volatile("{ .reg .pred on; setp.ne.u32 on, %3, 0; @on ld.global.v2.u32 {%0, %1}, [%2]; }" : "+r"(v.w[0]), "+r"(v.w[1]) : "l"(p), "r"((u32)on) : "memory");
  return v;
}

DEV Vec4 load_global128_if(bool on, const void* p, Vec4 v) {
  asm volatile("{ .reg .pred on; setp.ne.u32 on, %5, 0; @on ld.global.v4.u32 {%0, %1, %2, %3}, [%4]; }" : "+r"(v.w[0]), "+r"(v.w[1]), "+r"(v.w[2]), "+r"(v.w[3]) : "l"(p), "r"((u32)on) : "memory");
  return v;
}

DEV u32 load_global8_volatile(const void* p) { u32 a; asm volatile("ld.volatile.global.u8 %0, [%1];" : "=r"(a) : "l"(p) : "memory"); return a; }

DEV u32 load_global16_volatile(const void* p) { u16 a; asm volatile("ld.volatile.global.u16 %0, [%1];" : "=h"(a) : "l"(p) : "memory"); return a; }

DEV u32 load_global32_volatile(const void* p) { u32 a; asm volatile("ld.volatile.global.u32 %0, [%1];" : "=r"(a) : "l"(p) : "memory"); return a; }

DEV Vec2 load_global64_volatile(const void* p) {
  Vec2 v;
  asm volatile("ld.volatile.global.v2.u32 {%0, %1}, [%2];" : "=r"(v.w[0]), "=r"(v.w[1]) : "l"(p) : "memory");
  return v;
}

DEV i64 long_of(Vec2 v) { return (i64)((u64)v.w[1] << 32 | v.w[0]); }

DEV double double_of(Vec2 v) { return __longlong_as_double(long_of(v)); }

// What the L2 is to give up first; the same for all bytes of an access.
DEV u64 l2_evict_first() { u64 p; asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(p)); return p; }

DEV u64 l2_evict_last() { u64 p; asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(p)); return p; }

DEV u64 l2_evict_normal() { u64 p; asm("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(p)); return p; }

DEV u64 l2_evict_unchanged() { u64 p; asm("createpolicy.fractional.L2::evict_unchanged.b64 %0, 1.0;" : "=l"(p)); return p; }

// Accesses to global memory under such a policy.
DEV u32 load_global8_hinted(const void* p, u64 policy) { u32 a; asm volatile("ld.global.L2::cache_hint.u8 %0, [%1], %2;" : "=r"(a) : "l"(p), "l"(policy) : "memory"); return a; }

DEV u32 load_global16_hinted(const void* p, u64 policy) { u16 a; asm volatile("ld.global.L2::cache_hint.u16 %0, [%1], %2;" : "=h"(a) : "l"(p), "l"(policy) : "memory"); return a; }

DEV u32 load_global32_hinted(const void* p, u64 policy) { u32 a; asm volatile("ld.global.L2::cache_hint.u32 %0, [%1], %2;" : "=r"(a) : "l"(p), "l"(policy) : "memory"); return a; }

DEV Vec2 load_global64_hinted(const void* p, u64 policy) {
  Vec2 v;
  asm volatile("ld.global.L2::cache_hint.v2.u32 {%0, %1}, [%2], %3;" : "=r"(v.w[0]), "=r"(v.w[1]) : "l"(p), "l"(policy) : "memory");
  return v;
}

DEV Vec4 load_global128_hinted(const void* p, u64 policy) {
  Vec4 v;
  asm volatile("ld.global.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;" : "=r"(v.w[0]), "=r"(v.w[1]), "=r"(v.w[2]), "=r"(v.w[3]) : "l"(p), "l"(policy) : "memory");
  return v;
}

DEV u32 load_global8_if_hinted(bool on, const void* p, u32 v, u64 policy) {
  asm volatile("{ .reg .pred on; setp.ne.u32 on, %2, 0; @on ld.global.L2::cache_hint.u8 %0, [%1], %3; }" : "+r"(v) : "l"(p), "r"((u32)on), "l"(policy) : "memory");
  return v;
}

DEV u32 load_global16_if_hinted(bool on, const void* p, u32 v, u64 policy) {
  asm volatile("{ .reg .pred on; setp.ne.u32 on, %2, 0; @on ld.global.L2::cache_hint.u16 %0, [%1], %3; }" : "+r"(v) : "l"(p), "r"((u32)on), "l"(policy) : "memory");
  return v;
}

DEV u32 load_global32_if_hinted(bool on, const void* p, u32 v, u64 policy) {
  asm volatile("{ .reg .pred on; setp.ne.u32 on, %2, 0; @on ld.global.L2::cache_hint.u32 %0, [%1], %3; }" : "+r"(v) : "l"(p), "r"((u32)on), "l"(policy) : "memory");
  return v;
}

DEV Vec2 load_global64_if_hinted(bool on, const void* p, Vec2 v, u64 policy) {
  asm volatile("{ .reg .pred on; setp.ne.u32 on, %3, 0; @on ld.global.L2::cache_hint.v2.u32 {%0, %1}, [%2], %4; }" : "+r"(v.w[0]), "+r"(v.w[1]) : "l"(p), "r"((u32)on), "l"(policy) : "memory");
  return v;
}

DEV Vec4 load_global128_if_hinted(bool on, const void* p, Vec4 v, u64 policy) {
  asm volatile("{ .reg .pred on; setp.ne.u32 on, %5, 0; @on ld.global.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %6; }" : "+r"(v.w[0]), "+r"(v.w[1]), "+r"(v.w[2]), "+r"(v.w[3]) : "l"(p), "r"((u32)on), "l"(policy) : "memory");
  return v;
}

DEV void store_global8_hinted(void* p, u32 a, u64 policy) { asm volatile("st.global.L2::cache_hint.u8 [%0], %1, %2;" :: "l"(p), "r"(a), "l"(policy) : "memory"); }

DEV void store_global16_hinted(void* p, u32 a, u64 policy) { asm volatile("st.global.L2::cache_hint.u16 [%0], %1, %2;" :: "l"(p), "h"((u16)a), "l"(policy) : "memory"); }

DEV void store_global32_hinted(void* p, u32 a, u64 policy) { asm volatile("st.global.L2::cache_hint.u32 [%0], %1, %2;" :: "l"(p), "r"(a), "l"(policy) : "memory"); }

DEV void store_global64_hinted(void* p, u32 a, u32 b, u64 policy) { asm volatile("st.global.L2::cache_hint.v2.u32 [%0], {%1, %2}, %3;" :: "l"(p), "r"(a), "r"(b), "l"(policy) : "memory"); }

DEV void store_global128_hinted(void* p, u32 a, u32 b, u32 c, u32 d, u64 policy) {
  asm volatile("st.global.L2::cache_hint.v4.u32 [%0], {%1, %2, %3, %4}, %5;" :: "l"(p), "r"(a), "r"(b), "r"(c), "r"(d), "l"(policy) : "memory");
}

// Bits and floats.  By an instruction: where the compiler sees that an accumulator is only ever made of bits, or
// that only its bits are used, it carries them as bits, and converts them where wgmmas are still in flight
// (ptxas then serialises these: C7514).
DEV float float_of(u32 x) { float r; asm("mov.b32 %0, %1;" : "=f"(r) : "r"(x)); return r; }

DEV u32 float_bits(float x) { u32 r; asm("mov.b32 %0, %1;" : "=r"(r) : "f"(x)); return r; }

// Bounds: is index i inside an extent of n?
DEV bool inside(i64 i, i64 n) { return (u64)i < (u64)n; }

// Of the elements from index i on in an extent of n: those before the extent, those before its end (up to 2^30).
DEV int elements_before(i64 i) { return (int)min(max(-i, 0ll), 1ll << 30); }

DEV int elements_left(i64 i, i64 n) { return (int)min(max(n - i, 0ll), 1ll << 30); }

// How many of the N elements from element d on are among elements `before` … `left` - 1.
template <int N> DEV int valid(int d, int before, int left) { return d < before ? 0 : min(max(left - d, 0), N); }

// The first `valid` elements of SIZE bytes in one access where that is all of them, else one by one; zeros behind.
template <int SIZE> DEV u32 load_item(const void* p, int i) {
  if constexpr (SIZE == 1) return load_global8((const u8*)p + i);
  else if constexpr (SIZE == 2) return load_global16((const u16*)p + i);
  else return load_global32((const u32*)p + i);
}

template <int SIZE, int WORDS> DEV void load_items(u32* w, const void* p, int valid) {
#pragma unroll
  for (int i = 0; i < 4 * WORDS / SIZE; ++i)
    if (i < valid) w[i * SIZE / 4] |= load_item<SIZE>(p, i) << 8 * (i * SIZE % 4);
}

template <int SIZE> DEV u32 load_part16(const void* p, int valid) {
  u32 w = 0;
  if (valid == 2 / SIZE) return load_global16(p);
  if (valid > 0) w = load_global8(p);
  return w;
}

template <int SIZE> DEV u32 load_part32(const void* p, int valid) {
  u32 w = 0;
  if (valid == 4 / SIZE) return load_global32(p);
  load_items<SIZE, 1>(&w, p, valid);
  return w;
}

template <int SIZE> DEV Vec2 load_part64(const void* p, int valid) {
  Vec2 v = {};
  if (valid == 8 / SIZE) return load_global64(p);
  if constexpr (SIZE < 8) load_items<SIZE, 2>(v.w, p, valid);
  return v;
}

template <int SIZE> DEV Vec4 load_part128(const void* p, int valid) {
  Vec4 v = {};
  if (valid == 16 / SIZE) return load_global128(p);
  if constexpr (SIZE < 8) {
    load_items<SIZE, 4>(v.w, p, valid);
  } else if (valid > 0) {
    const Vec2 first = load_global64(p);
    v.w[0] = first.w[0];
    v.w[1] = first.w[1];
  }
  return v;
}

// A whole unit of 16 bytes, zeros where not `on`.
DEV void load_unit(u32* w, const void* p, bool on) {
  asm volatile("{ .reg .pred p; setp.ne.u32 p, %5, 0; mov.b32 %0, 0; mov.b32 %1, 0; mov.b32 %2, 0; mov.b32 %3, 0; @p ld.global.L2::256B.v4.u32 {%0, %1, %2, %3}, [%4]; }"
               : "=&r"(w[0]), "=&r"(w[1]), "=&r"(w[2]), "=&r"(w[3]) : "l"(p), "r"((u32)on) : "memory");
}

// The two units of 16 bytes in which 16 bytes lie that begin `at` bytes behind the first one's start; of those
// exist `none` to `bytes` - 1.
struct Units { u32 w[8]; int at, none, bytes; };

DEV int in_unit(const void* p) { return (int)((u64)p & 15); }

// Without branches, so that many are on their way at a time.
DEV Units load_units(const void* p, int at, int bytes, int none = 0) {
  Units u;
  u.at = at, u.none = none, u.bytes = bytes;
  const char* first = (const char*)p - at;
  load_unit(u.w, first, bytes > none && at + none < 16);
  load_unit(u.w + 4, first + 16, bytes > none && at + bytes > 16);
  return u;
}

// Where a word lies among words of which lanes hold vectors of four, so that lanes that move one of each, at any
// place of the vectors, meet in no bank.
DEV u32 spread(u32 at) { return at ^ (at >> 5 & 3); }

// 0, but the assembler doesn't know (no grid is empty): what is added to it comes behind the load of `last`.
// Else it computes with what one load brought before it issues the next, to save registers.
DEV int behind(u32 last) {
  u32 nothing;
  asm volatile("{ .reg .pred p; .reg .u32 z; mov.u32 z, %nctaid.z; setp.eq.u32 p, z, 0; selp.u32 %0, %1, 0, p; }" : "=r"(nothing) : "r"(last));
  return (int)nothing;
}

DEV u32 first_bytes(int n) { return n >= 4 ? ~0u : n <= 0 ? 0u : (1u << 8 * n) - 1; }

DEV void load_unit(u32* w, const void* p) {
  asm volatile("ld.global.L2::256B.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3]) : "l"(p) : "memory");
}

// The first unit and the one `second` bytes further on; all of both are in the array.
DEV void load_whole(u32* units, const void* first, int second) {
  load_unit(units, first);
  load_unit(units + 4, (const char*)first + second);
}

// Does the unit at p end a sector of 32 bytes?  Then the one behind it begins another.
DEV bool ends_sector(const void* p) { return (u64)p & 16; }

// Has the L2 bring the sector that begins behind the unit at p.
DEV void ahead_of(const void* p, bool on) {
  asm volatile("{ .reg .pred p; setp.ne.u32 p, %1, 0; @p prefetch.global.L2 [%0 + 16]; }" :: "l"(p), "r"((u32)on) : "memory");
}

// The 16 bytes that begin `at` bytes behind the first unit's start, a multiple of ALIGN.
template <int ALIGN> DEV Vec4 cut(const u32* units, int at) {
  u32 w[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) w[i] = units[i];
#pragma unroll
  for (int i = 0; i < 6; ++i) w[i] = at & 8 ? w[i + 2] : w[i];
  if constexpr (ALIGN < 8)
#pragma unroll
    for (int i = 0; i < 5; ++i) w[i] = at & 4 ? w[i + 1] : w[i];
  Vec4 v;
#pragma unroll
  for (int i = 0; i < 4; ++i) v.w[i] = ALIGN < 4 ? __byte_perm(w[i], w[i + 1], 0x3210 + 0x1111 * (at & 3)) : w[i];
  return v;
}

// The same with zeros for bytes that don't exist.
template <int ALIGN> DEV Vec4 shifted(const Units& u, int later) {
  Vec4 v = cut<ALIGN>(u.w, u.at + later);
#pragma unroll
  for (int i = 0; i < 4; ++i) v.w[i] &= first_bytes(u.bytes - 4 * i) & ~first_bytes(u.none - 4 * i);
  return v;
}

DEV void store_global8(void* p, u32 a) { asm volatile("st.global.u8 [%0], %1;" :: "l"(p), "r"(a) : "memory"); }

DEV void store_global16(void* p, u32 a) { asm volatile("st.global.u16 [%0], %1;" :: "l"(p), "h"((u16)a) : "memory"); }

DEV void store_global32(void* p, u32 a) { asm volatile("st.global.u32 [%0], %1;" :: "l"(p), "r"(a) : "memory"); }

DEV void store_global64(void* p, u32 a, u32 b) { asm volatile("st.global.v2.u32 [%0], {%1, %2};" :: "l"(p), "r"(a), "r"(b) : "memory"); }

DEV void store_global128(void* p, u32 a, u32 b, u32 c, u32 d) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" :: "l"(p), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}

template <int SIZE> DEV void store_item(void* p, int i, u32 a) {
  if constexpr (SIZE == 1) store_global8((u8*)p + i, a);
  else if constexpr (SIZE == 2) store_global16((u16*)p + i, a);
  else store_global32((u32*)p + i, a);
}

template <int SIZE, int WORDS> DEV void store_items(void* p, int valid, const u32* w) {
#pragma unroll
  for (int i = 0; i < 4 * WORDS / SIZE; ++i)
    if (i < valid) store_item<SIZE>(p, i, w[i * SIZE / 4] >> 8 * (i * SIZE % 4));
}

template <int SIZE> DEV void store_part16(void* p, int valid, u32 a) {
  if (valid == 2 / SIZE) store_global16(p, a);
  else if (valid > 0) store_global8(p, a);
}

template <int SIZE> DEV void store_part32(void* p, int valid, u32 a) {
  if (valid == 4 / SIZE) store_global32(p, a);
  else store_items<SIZE, 1>(p, valid, &a);
}

template <int SIZE> DEV void store_part64(void* p, int valid, u32 a, u32 b) {
  const u32 w[2] = {a, b};
  if (valid == 8 / SIZE) store_global64(p, a, b);
  else if constexpr (SIZE < 8) store_items<SIZE, 2>(p, valid, w);
}

template <int SIZE> DEV void store_part128(void* p, int valid, u32 a, u32 b, u32 c, u32 d) {
  const u32 w[4] = {a, b, c, d};
  if (valid == 16 / SIZE) store_global128(p, a, b, c, d);
  else if constexpr (SIZE < 8) store_items<SIZE, 4>(p, valid, w);
  else if (valid > 0) store_global64(p, a, b);
}

// 16- and 8-bit floats live packed in 32-bit words and are computed with as float.
DEV float bf16_lo(u32 x) { return float_of(x << 16); }

DEV float bf16_hi(u32 x) { return float_of(x & 0xffff0000u); }

// Shifts by any number of bits; what PTX clamps C leaves undefined (PTX ISA, "shl", "shr").
DEV u32 shl_u32(u32 x, u32 n) { u32 r; asm("shl.b32 %0, %1, %2;" : "=r"(r) : "r"(x), "r"(n)); return r; }

DEV u32 shr_u32(u32 x, u32 n) { u32 r; asm("shr.u32 %0, %1, %2;" : "=r"(r) : "r"(x), "r"(n)); return r; }

DEV int shr_s32(int x, u32 n) { int r; asm("shr.s32 %0, %1, %2;" : "=r"(r) : "r"(x), "r"(n)); return r; }

DEV u64 shl_u64(u64 x, u64 n) { u64 r; asm("shl.b64 %0, %1, %2;" : "=l"(r) : "l"(x), "r"((u32)min(n, 64ull))); return r; }

DEV u64 shr_u64(u64 x, u64 n) { u64 r; asm("shr.u64 %0, %1, %2;" : "=l"(r) : "l"(x), "r"((u32)min(n, 64ull))); return r; }

DEV i64 shr_s64(i64 x, u64 n) { i64 r; asm("shr.s64 %0, %1, %2;" : "=l"(r) : "l"(x), "r"((u32)min(n, 64ull))); return r; }

// Cut, and odd where something was cut off: rounding it once more, to fewer bits, gives what rounding x gives.
DEV float to_odd(double x) { const float r = __double2float_rz(x); return r == x ? r : __int_as_float(__float_as_int(r) | 1); }

DEV u32 pack_bf16(float lo, float hi) { u32 r; asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo)); return r; }

DEV float round_bf16(float x) { return bf16_lo(pack_bf16(x, 0.0f)); }

DEV float f16_bits(u16 x) { float r; asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(x)); return r; }

DEV float f16_lo(u32 x) { return f16_bits((u16)x); }

DEV float f16_hi(u32 x) { return f16_bits((u16)(x >> 16)); }

DEV u32 pack_f16(float lo, float hi) { u32 r; asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo)); return r; }

DEV float round_f16(float x) { return f16_lo(pack_f16(x, 0.0f)); }

DEV u32 mul_f16x2(u32 x, u32 y) { u32 r; asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(x), "r"(y)); return r; }

// Chips before 8.9 have no cvt of 8-bit floats.  As an f16's bits e4m3 is 2^8 too small, and its NaN is a number:
// where exponent and fraction are all ones, a carry of them becomes a NaN.
DEV u32 e4m3_pair(u16 x) {
#if __CUDA_ARCH__ >= 890
  u32 r;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(r) : "h"(x));
  return r;
#else
  const u32 wide = __byte_perm(x, 0, 0x1404), bits = (wide & 0x7f007f00u) >> 1;
  const u32 nan = (bits + 0x00800080u) & 0x40004000u;
  return mul_f16x2(bits | (wide & 0x80008000u), 0x5c005c00u) | ((nan << 1) - (nan >> 14));
#endif
}

// e5m2 is the upper half of an f16.
DEV u32 e5m2_pair(u16 x) {
#if __CUDA_ARCH__ >= 890
  u32 r;
  asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(r) : "h"(x));
  return r;
#else
  return __byte_perm(x, 0, 0x1404);
#endif
}

template <int I> DEV float f8e4m3_at(u32 x) { const u32 p = e4m3_pair((u16)(x >> 16 * (I / 2))); return I % 2 ? f16_hi(p) : f16_lo(p); }

template <int I> DEV float f8e5m2_at(u32 x) { const u32 p = e5m2_pair((u16)(x >> 16 * (I / 2))); return I % 2 ? f16_hi(p) : f16_lo(p); }

DEV u32 add_f16x2(u32 x, u32 y) { u32 r; asm("add.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(x), "r"(y)); return r; }

DEV u32 sub_f16x2(u32 x, u32 y) { u32 r; asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(x), "r"(y)); return r; }

// Chips before 9.0 have fma alone (PTX ISA, "add", "mul" of half precision): x · 1 + y, y · -1 + x and x · y - 0 round as these do.
DEV u32 add_bf16x2(u32 x, u32 y) {
  u32 r;
#if __CUDA_ARCH__ >= 900
  asm("add.rn.bf16x2 %0, %1, %2;" : "=r"(r) : "r"(x), "r"(y));
#else
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(x), "r"(0x3f803f80u), "r"(y));
#endif
  return r;
}

DEV u32 sub_bf16x2(u32 x, u32 y) {
  u32 r;
#if __CUDA_ARCH__ >= 900
  asm("sub.rn.bf16x2 %0, %1, %2;" : "=r"(r) : "r"(x), "r"(y));
#else
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(y), "r"(0xbf80bf80u), "r"(x));
#endif
  return r;
}

DEV u32 mul_bf16x2(u32 x, u32 y) {
  u32 r;
#if __CUDA_ARCH__ >= 900
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(r) : "r"(x), "r"(y));
#else
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(x), "r"(y), "r"(0x80008000u));
#endif
  return r;
}

// Two of four signed bytes.  f16: behind 0x64 a byte counts from 1024 on, x + 128 as the byte x ^ 0x80.
template <int HALF> DEV u32 i8_f16x2(u32 four) { return sub_f16x2(__byte_perm(four ^ 0x80808080u, 0x64646464u, HALF ? 0x4342 : 0x4140), 0x64806480u); }

// bf16: behind 0x43 seven bits count from 128 on, and the sign alone is 128 or 256.
template <int HALF> DEV u32 i8_bf16x2(u32 four) {
  const u32 x = __byte_perm(four, 0x43434343u, HALF ? 0x4342 : 0x4140);
  return sub_bf16x2(x & 0xff7fff7fu, x & 0xff80ff80u);
}

template <int HALF> DEV u32 f8e4m3_f16x2(u32 four) { return e4m3_pair((u16)(four >> 16 * HALF)); }

template <int HALF> DEV u32 f8e5m2_f16x2(u32 four) { return e5m2_pair((u16)(four >> 16 * HALF)); }

// Not fabsf: for chips before Blackwell ptxas 13.5 takes the abs.f32 of a choice between -0.0 and what isn't negative
// for the choice itself, and the sign stays.
DEV float abs_f32(float x) { return float_of(float_bits(x) & 0x7fffffffu); }

// To nearest even and to finite, a sign, an exponent with this bias and M bits of fraction.  A sum with a number
// whose last bit is the smallest subnormal rounds to these.
template <int M, int BIAS> DEV u32 byte_of(float x, float most) {
  const float y = fminf(abs_f32(x), most), grid = float_of((u32)(151 - BIAS - M) << 23);
  const u32 u = float_bits(y), normal = (u + (1u << (22 - M)) - 1 + (u >> (23 - M) & 1)) >> (23 - M);
  const u32 code = u < (u32)(128 - BIAS) << 23 ? float_bits(y + grid) - float_bits(grid) : normal - ((127u - BIAS) << M);
  return x != x ? 127u : code | (float_bits(x) >> 24 & 128u);
}

DEV u32 pair_f8e4m3(float lo, float hi) {
#if __CUDA_ARCH__ >= 890
  u16 r;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(r) : "f"(hi), "f"(lo));
  return r;
#else
  return byte_of<3, 7>(lo, 448.0f) | byte_of<3, 7>(hi, 448.0f) << 8;
#endif
}

DEV u32 pair_f8e5m2(float lo, float hi) {
#if __CUDA_ARCH__ >= 890
  u16 r;
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(r) : "f"(hi), "f"(lo));
  return r;
#else
  return byte_of<2, 15>(lo, 57344.0f) | byte_of<2, 15>(hi, 57344.0f) << 8;
#endif
}

DEV u32 pack_f8e4m3(float a, float b, float c, float d) { return pair_f8e4m3(a, b) | pair_f8e4m3(c, d) << 16; }

DEV u32 pack_f8e5m2(float a, float b, float c, float d) { return pair_f8e5m2(a, b) | pair_f8e5m2(c, d) << 16; }

DEV float round_f8e4m3(float x) { return f8e4m3_at<0>(pair_f8e4m3(x, 0.0f)); }

DEV float round_f8e5m2(float x) { return f8e5m2_at<0>(pair_f8e5m2(x, 0.0f)); }

// The bits in an f16 of a smaller exponent's bias: times 2^14, 2^8, and as they are.
DEV float decode_e2m1(u8 x) { return f16_bits((u16)((x & 7) << 9 | (x & 8) << 12)) * 16384.0f; }

DEV float decode_e4m3(u8 x) { return (x & 127) == 127 ? float_of(0x7fffffffu) : f16_bits((u16)((x & 127) << 7 | (x & 128) << 8)) * 256.0f; }

DEV float decode_e5m2(u8 x) { return f16_bits((u16)(x << 8)); }

// Of 0 the exponent is one below a normal number's.
DEV float decode_ue8m0(u8 x) { return float_of(x == 255 ? 0x7fffffffu : x == 0 ? 0x00400000u : (u32)x << 23); }

DEV u32 join16(u32 lo, u32 hi) { return (lo & 0xffffu) | hi << 16; }

// With + the compiler sees where the four are those of one word, with | it permutes bytes.
DEV u32 join8(u32 a, u32 b, u32 c, u32 d) { return (a & 0xffu) + ((b & 0xffu) << 8) + ((c & 0xffu) << 16) + (d << 24); }

DEV float exp2_approx(float x) { float r; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x)); return r; }

DEV float sqrt_approx(float x) { float r; asm("sqrt.approx.f32 %0, %1;" : "=f"(r) : "f"(x)); return r; }

// A divisor of integers: C leaves a division by 0 undefined, and NVRTC takes it that there is none.
template <typename T> DEV T nonzero(T y) { return y ? y : (T)1; }

DEV float div_full(float x, float y) { float r; asm("div.full.f32 %0, %1, %2;" : "=f"(r) : "f"(x), "f"(y)); return r; }

DEV float rcp_approx(float x) { float r; asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x)); return r; }

// n / d of a number that is not negative, by what the host made of d: m·n >> (31 + shift) with m in the low half.
DEV int fast_div(int n, u64 by) { return (int)(__umulhi(2u * (u32)n, (u32)by) >> (u32)(by >> 32)); }

DEV i64 load_long(u32 addr) { return long_of(load_shared64(addr)); }

DEV double load_double(u32 addr) { return __longlong_as_double(load_long(addr)); }

// The generic address that CUDA's atomics take.
template <class T> DEV T* shared_pointer(u32 addr) { return (T*)__cvta_shared_to_generic(addr); }

// What reads for all of its thread's accesses behind it (PTX ISA, "ld").
DEV u32 load_acquire32(const void* p) { u32 v; asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory"); return v; }

DEV u64 load_acquire64(const void* p) { u64 v; asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory"); return v; }

// What an atomic with an order has before and behind it (PTX ISA, "membar/fence").
DEV void fence_gpu() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }

// Adds to adjacent f32, each by itself, where `on`; p is aligned to all.  (PTX ISA, "red": vectors from sm_90 on.)
DEV void red_add_f32x2(bool on, float* p, float a, float b) {
#if __CUDA_ARCH__ >= 900
  asm volatile("{ .reg .pred on; setp.ne.u32 on, %3, 0; @on red.global.add.v2.f32 [%0], {%1, %2}; }" :: "l"(p), "f"(a), "f"(b), "r"((u32)on) : "memory");
#else
  if (on) { atomicAdd(p, a); atomicAdd(p + 1, b); }
#endif
}

DEV void red_add_f32x4(bool on, float* p, float a, float b, float c, float d) {
#if __CUDA_ARCH__ >= 900
  asm volatile("{ .reg .pred on; setp.ne.u32 on, %5, 0; @on red.global.add.v4.f32 [%0], {%1, %2, %3, %4}; }" :: "l"(p), "f"(a), "f"(b), "f"(c), "f"(d), "r"((u32)on) : "memory");
#else
  if (on) { atomicAdd(p, a); atomicAdd(p + 1, b); atomicAdd(p + 2, c); atomicAdd(p + 3, d); }
#endif
}

// The old value; NaN operands as in fmaxf and fminf.
template <bool MAX> DEV float atomic_f32(float* p, float x) {
  int seen = *(volatile int*)p, expected;
  do {
    expected = seen;
    const float now = __int_as_float(expected), next = MAX ? fmaxf(now, x) : fminf(now, x);
    seen = atomicCAS((int*)p, expected, __float_as_int(next));
  } while (seen != expected);
  return __int_as_float(seen);
}

DEV float atomic_add_f16(u16* p, float x) {
  u16 old;
  asm volatile("atom.global.add.noftz.f16 %0, [%1], %2;" : "=h"(old) : "l"(p), "h"((u16)pack_f16(x, 0.0f)) : "memory");
  return f16_bits(old);
}

DEV u16 atomic_cas_u16(u16* p, u16 expected, u16 next) {
  u16 old;
  asm volatile("atom.global.cas.b16 %0, [%1], %2, %3;" : "=h"(old) : "l"(p), "h"(expected), "h"(next) : "memory");
  return old;
}

DEV float atomic_add_bf16(u16* p, float x) {
#if __CUDA_ARCH__ >= 900
  u16 old;
  asm volatile("atom.global.add.noftz.bf16 %0, [%1], %2;" : "=h"(old) : "l"(p), "h"((u16)pack_bf16(x, 0.0f)) : "memory");
#else
  u16 old = *(volatile u16*)p, expected;
  do {
    expected = old;
    const u16 next = (u16)pack_bf16(bf16_lo(expected) + x, 0.0f);
    old = atomic_cas_u16(p, expected, next);
  } while (old != expected);
#endif
  return bf16_lo(old);
}

// Adds to adjacent 16-bit floats, each by itself, where `on`; p is aligned to all.  (PTX ISA, "red": vectors and
// bf16 from sm_90 on.)
DEV void red_add_f16x2(bool on, u16* p, u32 a) {
#if __CUDA_ARCH__ >= 900
  asm volatile("{ .reg .pred on; setp.ne.u32 on, %2, 0; @on red.global.add.noftz.f16x2 [%0], %1; }" :: "l"(p), "r"(a), "r"((u32)on) : "memory");
#else
  if (on) { atomic_add_f16(p, f16_lo(a)); atomic_add_f16(p + 1, f16_hi(a)); }
#endif
}

DEV void red_add_f16x4(bool on, u16* p, u32 a, u32 b) {
#if __CUDA_ARCH__ >= 900
  asm volatile("{ .reg .pred on; setp.ne.u32 on, %3, 0; @on red.global.add.noftz.v2.f16x2 [%0], {%1, %2}; }" :: "l"(p), "r"(a), "r"(b), "r"((u32)on) : "memory");
#else
  red_add_f16x2(on, p, a); red_add_f16x2(on, p + 2, b);
#endif
}

DEV void red_add_f16x8(bool on, u16* p, u32 a, u32 b, u32 c, u32 d) {
#if __CUDA_ARCH__ >= 900
  asm volatile("{ .reg .pred on; setp.ne.u32 on, %5, 0; @on red.global.add.noftz.v4.f16x2 [%0], {%1, %2, %3, %4}; }" :: "l"(p), "r"(a), "r"(b), "r"(c), "r"(d), "r"((u32)on) : "memory");
#else
  red_add_f16x4(on, p, a, b); red_add_f16x4(on, p + 4, c, d);
#endif
}

DEV void red_add_bf16x2(bool on, u16* p, u32 a) {
#if __CUDA_ARCH__ >= 900
  asm volatile("{ .reg .pred on; setp.ne.u32 on, %2, 0; @on red.global.add.noftz.bf16x2 [%0], %1; }" :: "l"(p), "r"(a), "r"((u32)on) : "memory");
#else
  if (on) { atomic_add_bf16(p, bf16_lo(a)); atomic_add_bf16(p + 1, bf16_hi(a)); }
#endif
}

DEV void red_add_bf16x4(bool on, u16* p, u32 a, u32 b) {
#if __CUDA_ARCH__ >= 900
  asm volatile("{ .reg .pred on; setp.ne.u32 on, %3, 0; @on red.global.add.noftz.v2.bf16x2 [%0], {%1, %2}; }" :: "l"(p), "r"(a), "r"(b), "r"((u32)on) : "memory");
#else
  red_add_bf16x2(on, p, a); red_add_bf16x2(on, p + 2, b);
#endif
}

DEV void red_add_bf16x8(bool on, u16* p, u32 a, u32 b, u32 c, u32 d) {
#if __CUDA_ARCH__ >= 900
  asm volatile("{ .reg .pred on; setp.ne.u32 on, %5, 0; @on red.global.add.noftz.v4.bf16x2 [%0], {%1, %2, %3, %4}; }" :: "l"(p), "r"(a), "r"(b), "r"(c), "r"(d), "r"((u32)on) : "memory");
#else
  red_add_bf16x4(on, p, a, b); red_add_bf16x4(on, p + 4, c, d);
#endif
}
