"""One warp group that stages tiles in shared memory and stores them by TMA; wrong in one place each."""

from warploom import Script
from warploom.language import float16, float32, int32


class Store(Script):
    def __init__(self, bug: str = ""):
        super().__init__()
        self.bug = bug

    def __call__(self, x_ptr: ~float16, y_ptr: ~float16, rows: int32, columns: int32):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        bug = self.bug
        g_x = self.global_view(x_ptr, dtype=float16, shape=[rows, columns])
        g_y = self.global_view(y_ptr, dtype=float16, shape=[rows, columns])
        staging = self.shared_tensor(dtype=float16, shape=[64, 64])
        for at in range(0, rows, 64):
            x = self.load_global(g_x, offsets=[at, 0], shape=[64, 64])
            if bug != "buffer reused while read":
                with self.single_thread():
                    self.tma.wait_group(0, read=True)
            self.sync()
            self.store_shared(staging, (x.to(float32) * 2.0).to(float16))
            if bug != "no proxy fence":
                self.fence.proxy_async()
            if bug != "no sync before the store":
                self.sync()
            with self.single_thread():
                self.tma.shared_to_global(staging, g_y, offsets=[at, 0])
                if bug != "store never committed":
                    self.tma.commit_group()
        if bug != "exit while the store reads":
            with self.single_thread():
                self.tma.wait_group(0, read=True)
