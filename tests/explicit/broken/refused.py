"""Scripts that are refused while they are translated."""

from warploom import Script
from warploom.language import float8e4nv, float16, float32, int8, int32


class Base(Script):
    def __init__(self, bug: str = ""):
        super().__init__()
        self.bug = bug


class Groups(Base):
    """Thread groups and registers."""

    def __call__(self, x_ptr: ~float32, n: int32):
        self.attrs.blocks = 1
        bug = self.bug
        self.attrs.warps = 8 if bug == "a group beyond the CTA" else 12
        if bug == "registers over the pool":
            with self.thread_group(0, 128, replicas=2):
                self.setmaxnreg(240)
            with self.thread_group(256, 128):
                self.setmaxnreg(40)
        if bug == "setmaxnreg in a partial group":
            with self.thread_group(0, 256):
                self.setmaxnreg(232)
            with self.single_warp(8):
                self.setmaxnreg(40)
        if bug == "overlapping groups":
            with self.thread_group(0, 256):
                self.sync()
            with self.thread_group(128, 128):
                self.sync()
        if bug == "a group beyond the CTA":
            with self.thread_group(256, 128):
                self.sync()
        if bug == "a register tensor around smaller groups":
            with self.thread_group(0, 256):
                x = self.load(x_ptr + self.arange(0, 256))
                with self.thread_group(0, 128):
                    self.store(x_ptr + self.arange(0, 128), self.arange(0, 128).to(float32))
                self.store(x_ptr + self.arange(0, 256), x)
        if bug == "expect by every thread":
            full = self.mbarrier.alloc(1)
            with self.thread_group(0, 128):
                self.mbarrier.arrive_and_expect_tx(full, 1024)
        if bug == "sync by one thread":
            with self.thread_group(0, 128), self.single_thread():
                self.sync()
        if bug == "a register tensor in one thread":
            with self.thread_group(0, 128):
                x = self.register_tensor(dtype=float32, shape=[64, 64], init=1.0)
                with self.single_thread():
                    x = x + 1.0
        if bug == "used outside its group":
            with self.thread_group(0, 128):
                slot: int32 = 1
            with self.thread_group(128, 128):
                self.printf("slot %d\n", slot)
        if bug == "a misspelt instruction":
            with self.thread_group(0, 128):
                self.mbarrier.arive(1)


class Products(Base):
    """Operands of TMA and wgmma."""

    def __call__(self, x_ptr: ~float16, f_ptr: ~float8e4nv, n: int32):
        self.attrs.blocks = 1
        self.attrs.warps = 8 if self.bug == "wgmma by two warp groups" else 4
        bug = self.bug
        x = self.shared_tensor(dtype=float16, shape=[64, 64])
        acc = self.register_tensor(dtype=float32, shape=[64, 64], init=0.0)
        full = self.mbarrier.alloc(1)
        if bug == "accumulator read in flight":
            self.wgmma.fence()
            self.wgmma.mma(x, x.transpose(), acc)
            self.wgmma.commit_group()
            acc = acc * 2.0
        if bug == "register operand in flight over the loop's end":
            for _ in self.range(0, n):
                a = self.load_shared(x)
                self.wgmma.fence()
                self.wgmma.mma(a, x.transpose(), acc)
                self.wgmma.commit_group()
                self.wgmma.wait_group(1)
            self.wgmma.wait_group(0)
        if bug == "fp8 not K-major":
            f = self.shared_tensor(dtype=float8e4nv, shape=[64, 128])
            g = self.shared_tensor(dtype=float8e4nv, shape=[256, 64])
            self.wgmma.fence()
            self.wgmma.mma(f, g.block([128, 64], at=[1, 0]), acc)
        if bug == "int8 into floats":
            i = self.shared_tensor(dtype=int8, shape=[64, 64])
            self.wgmma.fence()
            self.wgmma.mma(i, i.transpose(), acc)
        if bug == "M of 32":
            small = self.register_tensor(dtype=float32, shape=[32, 64], init=0.0)
            self.wgmma.mma(x.block([32, 64], at=[0, 0]), x.transpose(), small)
        if bug == "wgmma by two warp groups":
            self.wgmma.fence()
        if bug == "stride of 8 bytes":
            g = self.global_view(x_ptr, dtype=float16, shape=[64, 4])
            self.tma.global_to_shared(g, x, [0, 0], full)
        if bug == "view depends on blockIdx":
            g = self.global_view(x_ptr + self.blockIdx.x * 64, dtype=float16, shape=[64, 64])
            self.tma.global_to_shared(g, x, [0, 0], full)
        if bug == "two orders of one tensor":
            rows = self.global_view(x_ptr, dtype=float16, shape=[64, 64])
            columns = self.global_view(x_ptr, dtype=float16, shape=[64, 64], strides=[1, 64])
            self.tma.global_to_shared(rows, x, [0, 0], full)
            self.tma.global_to_shared(columns, x, [0, 0], full)
        if bug == "copy of another shape":
            g = self.global_view(x_ptr, dtype=float16, shape=[64, 64, 64])
            self.tma.global_to_shared(g, x, [0, 0], full)
        if bug == "box of another dtype":
            wide = self.shared_tensor(dtype=float32, shape=[64, 64])
            g = self.global_view(x_ptr, dtype=float16, shape=[64, 64])
            self.tma.global_to_shared(g, wide, [0, 0], full)
        if bug == "K disagrees":
            y = self.shared_tensor(dtype=float16, shape=[64, 32])
            self.wgmma.mma(x, y.transpose(), acc)
        if bug == "K of 8":
            y = self.shared_tensor(dtype=float16, shape=[64, 8])
            self.wgmma.mma(y, y.transpose(), acc)
        if bug == "tile of another shape":
            self.store_shared(x, self.register_tensor(dtype=float16, shape=[64, 32], init=0.0))
        if bug == "N of 12":
            narrow = self.register_tensor(dtype=float32, shape=[64, 12], init=0.0)
            y = self.shared_tensor(dtype=float16, shape=[12, 64])
            self.wgmma.mma(x, y.transpose(), narrow)
        if bug == "shared memory over":
            big = self.shared_tensor(dtype=float16, shape=[16, 128, 128])
            g = self.global_view(x_ptr, dtype=float16, shape=[128, 128])
            self.tma.global_to_shared(g, big[0], [0, 0], full)
        if bug == "slot out of range":
            many = self.shared_tensor(dtype=float16, shape=[2, 64, 64])
            self.load_shared(many[2])
