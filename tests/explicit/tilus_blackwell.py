"""A kernel for Blackwell in Tilus's style: only its import differs from Tilus."""

import warploom.tilus as tilus
from warploom.tilus import float16, float32, int32, uint32
from warploom.tilus.utils import cdiv


@tilus.autotune("block_m, block_n", [[128, 64], [128, 128]])
@tilus.autotune("stages", [2, 3])
class Matmul(tilus.Script):
    def __init__(self, block_m: int, block_n: int, stages: int):
        super().__init__()
        self.block_m = block_m
        self.block_n = block_n
        self.stages = stages

    def __call__(
        self,
        m_size: int32,
        n_size: int,
        k_size: int,
        a_ptr: ~float16,
        b_ptr: ~float16,
        c_ptr: ~float16,
    ):
        self.attrs.blocks = [cdiv(m_size, self.block_m), cdiv(n_size, self.block_n)]
        self.attrs.warps = 4
        offset_m: int32 = self.block_m * self.blockIdx.x
        g_a = self.global_view(a_ptr, dtype=float16, shape=[m_size, k_size])
        s_a = self.shared_tensor(dtype=float16, shape=[self.stages, self.block_m, 64])
        t_acc = self.tcgen05.alloc(dtype=float32, shape=[self.block_m, self.block_n])
        full = self.mbarrier.alloc(counts=[1] * self.stages)
        with self.thread_group(thread_begin=0, num_threads=32):
            phase: uint32 = 1
            self.mbarrier.wait(full[0], phase=phase)
            self.tma.global_to_shared(src=g_a, dst=s_a[0], offsets=[offset_m, 0], mbarrier=full[0])
        self.tcgen05.dealloc(t_acc)
