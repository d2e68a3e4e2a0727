"""Two warp groups that take turns with one staging buffer, by named barriers (ping-pong); wrong in one place
each."""

from warploom import Script
from warploom.language import float16, float32, int32

TURNS = 4


class Turns(Script):
    def __init__(self, bug: str = ""):
        super().__init__()
        self.bug = bug

    def my_turn(self, group):
        index = 1 - group if self.bug == "waits for the other's turn" else group
        if self.bug != "no turns":
            self.named_barrier.sync(TURNS, 256, index=index, n=2)

    def pass_turn(self, group):
        index = group if self.bug == "passes to itself" else 1 - group
        threads = 128 if self.bug == "turn of one group" else 256
        if self.bug not in ("no turns", "never passed"):
            self.named_barrier.arrive(TURNS, threads, index=index, n=2)

    def __call__(self, x_ptr: ~float16, y_ptr: ~float16, rows: int32, columns: int32):
        self.attrs.blocks = 1
        self.attrs.warps = 8
        bug = self.bug
        g_x = self.global_view(x_ptr, dtype=float16, shape=[rows, columns])
        g_y = self.global_view(y_ptr, dtype=float16, shape=[rows, columns])
        staging = self.shared_tensor(dtype=float16, shape=[64, 64])
        with self.thread_group(0, 128, replicas=2, name="writer") as group:
            if bug != "nobody begins":  # noqa: SIM102
                if group == 1:  # group 0 begins
                    self.pass_turn(group)
            for at in range(0, rows, 128):
                x = self.load_global(g_x, offsets=[at + group * 64, 0], shape=[64, 64])
                self.my_turn(group)
                self.store_shared(staging, (x.to(float32) * 2.0).to(float16))
                self.fence.proxy_async()
                self.sync()
                with self.single_thread():
                    self.tma.shared_to_global(staging, g_y, offsets=[at + group * 64, 0])
                    self.tma.commit_group()
                if bug == "passed while the store reads":
                    self.pass_turn(group)
                with self.single_thread():
                    self.tma.wait_group(0, read=True)
                self.sync()
                if bug != "passed while the store reads":
                    self.pass_turn(group)
