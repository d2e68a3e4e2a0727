// Ordered accesses and atomics.

// The generic address that CUDA's atomics take.
template <class T> DEV T* shared_pointer(u32 addr) { return (T*)__cvta_shared_to_generic(addr); }

// What reads for all of its thread's accesses behind it (PTX ISA, "ld").
DEV u32 load_acquire32(const void* p) { u32 v; asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory"); return v; }

DEV u32 load_acquire32_system(const void* p) { u32 v; asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory"); return v; }

DEV u64 load_acquire64(const void* p) { u64 v; asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory"); return v; }

DEV u64 load_acquire64_system(const void* p) { u64 v; asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory"); return v; }

// What others wrote, by the GPU's own scope: a volatile load is one of the whole system.
DEV u32 load_relaxed32(const void* p) { u32 v; asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory"); return v; }

DEV u32 load_relaxed32_system(const void* p) { u32 v; asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory"); return v; }

DEV u64 load_relaxed64(const void* p) { u64 v; asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory"); return v; }

DEV u64 load_relaxed64_system(const void* p) { u64 v; asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory"); return v; }

// What an atomic with an order has before and behind it (PTX ISA, "membar/fence").
DEV void fence_gpu() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }

DEV void fence_system() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }

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

// The old value of a T, which Bits has the width of; NaN operands as in fmax and fmin.
template <class T, class Bits, bool MAX, bool SYSTEM = false> DEV T atomic_extremum(T* p, T x) {
  Bits seen = *(volatile Bits*)p, expected;
  do {
    expected = seen;
    const T now = __builtin_bit_cast(T, expected), next = MAX ? fmax(now, x) : fmin(now, x);
    const Bits wanted = __builtin_bit_cast(Bits, next);
    seen = SYSTEM ? atomicCAS_system((Bits*)p, expected, wanted) : atomicCAS((Bits*)p, expected, wanted);
  } while (seen != expected);
  return __builtin_bit_cast(T, seen);
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
