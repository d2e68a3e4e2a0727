// Bits, conversions and arithmetic of numbers.

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

// The bits where a format of a larger exponent's bias has them, subnormals too: in f32 times 2^126, in f16 times
// 2^8, and as they are.
DEV float decode_e2m1(u8 x) { return float_of((u32)((int)((u32)x << 28) >> 6) & 0x81c00000u) * 0x1p126f; }

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
