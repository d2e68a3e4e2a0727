// Elected lanes, dependent grids, mbarriers, clusters, stamps, fences, named barriers.

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
// last LAST of a grid release: those before them end by themselves.  Which are the last is counted modulo 2^32:
// where a larger grid is launched, a few more release.  AXES: those that programs are told apart by; along others,
// which mostly have one, all count as the last.  A branch there would keep ptxas from ordering what is around.
DEV void grid_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

template <int LAST, int AXES = 3> DEV void grid_release(bool asks = true) {
  u32 left = 1;
  if (AXES > 2) left = gridDim.z - blockIdx.z;
  if (AXES > 1) left = left * gridDim.y - blockIdx.y;
  if (AXES > 0) left = left * gridDim.x - blockIdx.x;
  asm volatile("{ .reg .pred on; setp.ne.u32 on, %0, 0; @on griddepcontrol.launch_dependents; }" :: "r"((u32)(asks & (left <= LAST))) : "memory");
}

// A descriptor that the kernel writes, `at` so many bytes in what each CTA has for them.
DEV TensorMap* own_map(u8* maps, int bytes, int at) {
  u64 cta = blockIdx.x + (u64)gridDim.x * (blockIdx.y + (u64)gridDim.y * blockIdx.z);
  return (TensorMap*)(maps + bytes * cta + at);
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
