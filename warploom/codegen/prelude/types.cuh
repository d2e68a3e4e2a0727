// What the prelude's definitions are made of.

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
