// Copies to and from shared memory, wgmma and its descriptors, fragments, accesses to shared memory.

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
