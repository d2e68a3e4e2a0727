"""A product by hand of operands that are not of 16 bits: float32 as tf32, 8-bit integers into int32."""

from typing import Any

from warploom import Script
from warploom.language import cdiv, int32


def product(left: Any, right: Any, sums: Any, columns: int, step: int, in_registers: bool) -> Any:
    """C = A·Bᵀ, a tile of 64×columns for one warp group, which loads for itself `step` of K at a time; A
    may go through registers."""

    class Product(Script):
        def __call__(self, a_ptr: ~left, b_ptr: ~right, c_ptr: ~sums, m: int32, n: int32, k: int32):
            self.attrs.blocks = [cdiv(m, 64), cdiv(n, columns)]
            self.attrs.warps = 4
            row = self.blockIdx.x * 64
            col = self.blockIdx.y * columns
            g_a = self.global_view(a_ptr, dtype=left, shape=[m, k])
            g_b = self.global_view(b_ptr, dtype=right, shape=[n, k])
            g_c = self.global_view(c_ptr, dtype=sums, shape=[m, n])
            a = self.shared_tensor(dtype=left, shape=[64, step])
            b = self.shared_tensor(dtype=right, shape=[columns, step])
            full = self.mbarrier.alloc([1])
            with self.thread_group(0, 128):
                acc = self.register_tensor(dtype=sums, shape=[64, columns], init=0)
                phase: int32 = 0
                for at in range(0, k, step):
                    with self.single_thread():
                        self.mbarrier.arrive_and_expect_tx(full[0], a.nbytes + b.nbytes)
                        self.tma.global_to_shared(g_a, a, [row, at], full[0])
                        self.tma.global_to_shared(g_b, b, [col, at], full[0])
                    self.mbarrier.wait(full[0], phase)
                    phase = phase ^ 1
                    if in_registers:
                        x = self.load_shared(a)
                        self.wgmma.fence()
                        self.wgmma.mma(x, b.transpose(), acc)
                    else:
                        self.wgmma.fence()
                        self.wgmma.mma(a, b.transpose(), acc)
                    self.wgmma.commit_group()
                    self.wgmma.wait_group(0)
                    self.fence.proxy_async()
                    self.sync()
                self.store_global(g_c, acc, offsets=[row, col])

    return Product()
