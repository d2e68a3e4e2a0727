"""One warp group that multiplies an operand in registers by one that it staged itself; wrong in one place
each."""

from warploom import Script
from warploom.language import float16, float32, int32


class Registers(Script):
    def __init__(self, bug: str = ""):
        super().__init__()
        self.bug = bug

    def __call__(self, x_ptr: ~float16, y_ptr: ~float16, z_ptr: ~float16, rows: int32):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        bug = self.bug
        g_x = self.global_view(x_ptr, dtype=float16, shape=[rows, 64])
        g_y = self.global_view(y_ptr, dtype=float16, shape=[rows, 64])
        g_z = self.global_view(z_ptr, dtype=float16, shape=[rows, 64])
        right = self.shared_tensor(dtype=float16, shape=[64, 64])
        for at in range(0, rows, 64):
            left = self.load_global(g_x, offsets=[at, 0], shape=[64, 64])
            self.store_shared(right, self.load_global(g_y, offsets=[at, 0], shape=[64, 64]))
            if bug != "operand in shared memory not fenced":
                self.fence.proxy_async()
            if bug != "one warp's part not awaited":
                self.sync()
            acc = self.register_tensor(dtype=float32, shape=[64, 64], init=0.0)
            self.wgmma.fence()
            if bug == "operand changed after the fence":
                left = left + left
            if bug == "accumulator changed after the fence":
                acc = acc + 1.0
            self.wgmma.mma(left, right.transpose(), acc)
            self.wgmma.commit_group()
            self.wgmma.wait_group(0)
            self.sync()
            self.store_global(g_z, acc.to(float16), offsets=[at, 0])
