# mypy: ignore-errors
"""A product for Ampere in the shape of Tilus's last step there: groups of cp.async, products in registers, and
K divided among programs that add to C one after the other, by semaphores.  Nothing here but `import tilus`.
"""

import tilus
from tilus import float16, float32, int32
from tilus.utils import cdiv


@tilus.autotune("num_stages", [3, 4, 5])
@tilus.autotune("block_m, block_n, block_k", [[64, 64, 32], [128, 64, 32], [128, 128, 32]])
@tilus.autotune("num_warps", [4, 8])
@tilus.autotune("split_k_factor", [1, 2, 4])
class SplitK(tilus.Script):
    """C (m, n) = A (m, k) · B (k, n), float16; each part of K loads what the parts before it left in C."""

    def __init__(self, num_stages, block_m, block_n, block_k, num_warps, split_k_factor):
        super().__init__()
        self.num_stages = num_stages
        self.block_m, self.block_n, self.block_k = block_m, block_n, block_k
        self.num_warps = num_warps
        self.split_k_factor = split_k_factor

    def __call__(
        self, m: int32, n: int32, k: int32, a_ptr: ~float16, b_ptr: ~float16, c_ptr: ~float16
    ):
        self.attrs.blocks = [cdiv(m, self.block_m), cdiv(n, self.block_n), self.split_k_factor]
        self.attrs.warps = self.num_warps
        num_stages, block_k = self.num_stages, self.block_k
        part = cdiv(cdiv(k, self.split_k_factor), block_k) * block_k
        begin = part * self.blockIdx.z
        end = min(begin + part, k)
        row: int32 = self.block_m * self.blockIdx.x
        column: int32 = self.block_n * self.blockIdx.y
        g_a = self.global_view(a_ptr, dtype=float16, shape=[m, k])
        g_b = self.global_view(b_ptr, dtype=float16, shape=[k, n])
        g_c = self.global_view(c_ptr, dtype=float16, shape=[m, n])
        s_a = self.shared_tensor(dtype=float16, shape=[num_stages, self.block_m, block_k])
        s_b = self.shared_tensor(dtype=float16, shape=[num_stages, block_k, self.block_n])
        acc = self.register_tensor(dtype=float32, shape=[self.block_m, self.block_n], init=0.0)

        for stage in self.range(num_stages - 1, unroll="all"):
            offset = begin + stage * block_k
            if offset < end:
                self.copy_async(src=g_a, dst=s_a[stage], offsets=[row, offset])
                self.copy_async(src=g_b, dst=s_b[stage], offsets=[offset, column])
            self.copy_async_commit_group()
        self.copy_async_wait_group(n=num_stages - 2)
        self.sync()

        stage: int32 = 0
        ahead: int32 = num_stages - 1
        for offset in self.range(begin, end, block_k, unroll=num_stages):
            a = self.load_shared(s_a[stage])
            b = self.load_shared(s_b[stage])
            self.dot(a, b, acc, out=acc)
            later = offset + (num_stages - 1) * block_k
            if later < end:
                self.copy_async(src=g_a, dst=s_a[ahead], offsets=[row, later])
                self.copy_async(src=g_b, dst=s_b[ahead], offsets=[later, column])
            self.copy_async_commit_group()
            stage = (stage + 1) % num_stages
            ahead = (ahead + 1) % num_stages
            self.copy_async_wait_group(n=num_stages - 2)
            self.sync()
        self.copy_async_wait_all()
        self.sync()
        self.free_shared(s_a)
        self.free_shared(s_b)

        s_c = self.shared_tensor(dtype=float16, shape=[self.block_m, self.block_n])
        self.store_shared(s_c, self.cast(acc, dtype=float16))
        self.sync()
        r_c = self.load_shared(s_c)
        self.free_shared(s_c)

        if self.split_k_factor == 1:
            self.store_global(g_c, r_c, offsets=[row, column])
        else:
            semaphores = self.global_tensor(
                dtype=int32,
                shape=[cdiv(m, self.block_m), cdiv(n, self.block_n)],
                requires_clean=True,
            )
            semaphore: ~int32 = ~semaphores[self.blockIdx.x, self.blockIdx.y]
            if self.blockIdx.z > 0:
                self.lock_semaphore(semaphore, value=self.blockIdx.z)
                before = self.load_global(
                    g_c, offsets=[row, column], shape=[self.block_m, self.block_n]
                )
                self.add(r_c, before, out=r_c)
            self.store_global(g_c, r_c, offsets=[row, column])
            self.sync()
            self.release_semaphore(semaphore, value=(self.blockIdx.z + 1) % self.split_k_factor)
