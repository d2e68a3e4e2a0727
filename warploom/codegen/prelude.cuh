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
  u32 p;
  asm volatile("{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p; }" : "=r"(p));
  return p;
}

template <int N> DEV void registers_dec() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" :: "n"(N)); }

template <int N> DEV void registers_inc() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" :: "n"(N)); }

DEV void mbarrier_init(u32 bar, u32 arrivals) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(bar), "r"(arrivals) : "memory"); }

DEV void mbarrier_init_fence() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

DEV void mbarrier_expect(u32 bar, u32 bytes) { asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(bar), "r"(bytes) : "memory"); }

DEV void mbarrier_arrive(u32 bar) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(bar) : "memory"); }

DEV bool mbarrier_try_wait(u32 bar, u32 parity) {
  u32 p;
  asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }" : "=r"(p) : "r"(bar), "r"(parity) : "memory");
  return p;
}

DEV void mbarrier_wait(u32 bar, u32 parity) { while (!mbarrier_try_wait(bar, parity)) {} }

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

DEV void fence_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

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

DEV void cp_async_arrive(u32 bar) { asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" :: "r"(bar) : "memory"); }

DEV void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

DEV void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

template <int N> DEV void wgmma_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(N) : "memory"); }

// Nothing that reads d may move above this point: the compiler doesn't know that wgmma_wait wrote d.
template <int N> DEV void wgmma_result(float (&d)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+f"(d[i]) :: "memory");
}

// Matrix descriptor: start, leading and stride byte offsets in 16-byte units; SWIZZLE 1, 2, 3: 128, 64, 32 bytes.
template <int LEADING, int STRIDE, int SWIZZLE> DEV u64 wgmma_desc(u32 addr) {
  return (u64)(addr >> 4) | (u64)(LEADING >> 4) << 16 | (u64)(STRIDE >> 4) << 32 | (u64)SWIZZLE << 62;
}

DEV void stmatrix4(u32 addr, u32 a, u32 b, u32 c, u32 d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" :: "r"(addr), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}

DEV void stmatrix4_trans(u32 addr, u32 a, u32 b, u32 c, u32 d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" :: "r"(addr), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
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

// Global memory in one access of 1 to 16 bytes; p is aligned to the size.
DEV u32 load_global8(const void* p) { return *(const volatile u8*)p; }

DEV u32 load_global16(const void* p) { return *(const volatile u16*)p; }

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

DEV void store_global8(void* p, u32 a) { *(volatile u8*)p = (u8)a; }

DEV void store_global16(void* p, u32 a) { *(volatile u16*)p = (u16)a; }

DEV void store_global32(void* p, u32 a) { asm volatile("st.global.u32 [%0], %1;" :: "l"(p), "r"(a) : "memory"); }

DEV void store_global64(void* p, u32 a, u32 b) { asm volatile("st.global.v2.u32 [%0], {%1, %2};" :: "l"(p), "r"(a), "r"(b) : "memory"); }

DEV void store_global128(void* p, u32 a, u32 b, u32 c, u32 d) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" :: "l"(p), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}

// 16- and 8-bit floats live packed in 32-bit words and are computed with as float.
DEV float bf16_lo(u32 x) { return __uint_as_float(x << 16); }

DEV float bf16_hi(u32 x) { return __uint_as_float(x & 0xffff0000u); }

DEV u32 pack_bf16(float lo, float hi) { u32 r; asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo)); return r; }

DEV float round_bf16(float x) { return bf16_lo(pack_bf16(x, 0.0f)); }

DEV float f16_bits(u16 x) { float r; asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(x)); return r; }

DEV float f16_lo(u32 x) { return f16_bits((u16)x); }

DEV float f16_hi(u32 x) { return f16_bits((u16)(x >> 16)); }

DEV u32 pack_f16(float lo, float hi) { u32 r; asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo)); return r; }

DEV float round_f16(float x) { return f16_lo(pack_f16(x, 0.0f)); }

DEV u32 e4m3_pair(u16 x) { u32 r; asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(r) : "h"(x)); return r; }

DEV u32 e5m2_pair(u16 x) { u32 r; asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(r) : "h"(x)); return r; }

template <int I> DEV float f8e4m3_at(u32 x) { const u32 p = e4m3_pair((u16)(x >> 16 * (I / 2))); return I % 2 ? f16_hi(p) : f16_lo(p); }

template <int I> DEV float f8e5m2_at(u32 x) { const u32 p = e5m2_pair((u16)(x >> 16 * (I / 2))); return I % 2 ? f16_hi(p) : f16_lo(p); }

DEV u32 pair_f8e4m3(float lo, float hi) { u16 r; asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(r) : "f"(hi), "f"(lo)); return r; }

DEV u32 pair_f8e5m2(float lo, float hi) { u16 r; asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(r) : "f"(hi), "f"(lo)); return r; }

DEV u32 pack_f8e4m3(float a, float b, float c, float d) { return pair_f8e4m3(a, b) | pair_f8e4m3(c, d) << 16; }

DEV u32 pack_f8e5m2(float a, float b, float c, float d) { return pair_f8e5m2(a, b) | pair_f8e5m2(c, d) << 16; }

DEV float round_f8e4m3(float x) { return f8e4m3_at<0>(pair_f8e4m3(x, 0.0f)); }

DEV float round_f8e5m2(float x) { return f8e5m2_at<0>(pair_f8e5m2(x, 0.0f)); }

DEV u32 join16(u32 lo, u32 hi) { return (lo & 0xffffu) | hi << 16; }

DEV u32 join8(u32 a, u32 b, u32 c, u32 d) { return (a & 0xffu) | (b & 0xffu) << 8 | (c & 0xffu) << 16 | d << 24; }

DEV float exp2_approx(float x) { float r; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x)); return r; }
