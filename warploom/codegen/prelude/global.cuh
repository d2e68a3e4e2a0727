// Accesses to global memory, bounds, rows that begin anywhere.

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

// What the L2 is to give up first; the same for all bytes of an access.  The bits that createpolicy.fractional
// makes of 1.0 on every chip; from sm_90 on ptxas computes them by five instructions, before the first load.
DEV u64 l2_evict_first() { return 0x12f0000000000000ull; }

DEV u64 l2_evict_last() { return 0x14f0000000000000ull; }

DEV u64 l2_evict_normal() { return 0x16f0000000000000ull; }

DEV u64 l2_evict_unchanged() { return 0x10f0000000000000ull; }

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
