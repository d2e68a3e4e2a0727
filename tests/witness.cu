// A chain of products whose left operand comes from registers: out = sum over steps and chunks of A·B, with B all
// ones in shared memory.  It is legal: each operand is a copy of its own, which nothing writes while it is read.
// ptxas before 13.3 removes the copies, and the loads of the next iteration write what wgmmas are still reading.
// table: 1024 rows of four words (two bf16 each); thread t of step i takes row (t + 128·chunk + i) % 1024.
typedef unsigned u32;
typedef unsigned long long u64;
#define DEV static __device__ __forceinline__
#define CHUNKS 4

DEV void fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEV void commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N> DEV void wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(N) : "memory"); }

DEV uint4 copy(uint4 d) {
  uint4 a;
  asm volatile("mov.b32 %0, %4; mov.b32 %1, %5; mov.b32 %2, %6; mov.b32 %3, %7;"
               : "=r"(a.x), "=r"(a.y), "=r"(a.z), "=r"(a.w) : "r"(d.x), "r"(d.y), "r"(d.z), "r"(d.w));
  return a;
}

DEV void product(float (&d)[8], uint4 a, u64 b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7}, "
               "{%8, %9, %10, %11}, %12, 1, 1, 1, 0;"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
               : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "l"(b) : "memory");
}

extern "C" __global__ void __launch_bounds__(128) witness(const uint4* table, float* out, int steps) {
  __shared__ uint4 rows[1024];
  __shared__ __align__(1024) u32 ones[4096];
  for (int i = threadIdx.x; i < 1024; i += 128) rows[i] = table[i];
  for (int i = threadIdx.x; i < 4096; i += 128) ones[i] = 0x3f803f80;
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  const u64 b = (u64)((u32)__cvta_generic_to_shared(ones) >> 4) | (u64)8 << 16 | (u64)8 << 32;
  float sum[8] = {};
#pragma unroll 1
  for (int i = 0; i < steps; ++i) {
    uint4 row[CHUNKS];
#pragma unroll
    for (int j = 0; j < CHUNKS; ++j) row[j] = rows[(threadIdx.x + 128 * j + i) & 1023];
#pragma unroll
    for (int j = 0; j < CHUNKS; ++j) {
      const uint4 a = copy(row[j]);
      fence();
      product(sum, a, b);
      commit();
      wait<2>();
    }
  }
  wait<0>();
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    asm volatile("" : "+f"(sum[i]) :: "memory");
    out[threadIdx.x * 8 + i] = sum[i];
  }
}
