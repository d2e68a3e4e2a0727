# mypy: ignore-errors
"""What Tilus's documentation says of a name is what it means here, where a script would run either way."""

import numpy as np
import pytest

from warploom import Script
from warploom.errors import CompileError
from warploom.ir.core import walk
from warploom.ir.ops import task, tma
from warploom.language import float32, int32


class Writes(Script):
    """y = x by TMA, then z = y + 1 by the thread block that stored y; with `read` only shared memory is free
    again when it goes on, and z stays."""

    def __init__(self, read: bool):
        super().__init__()
        self.read = read

    def __call__(self, x_ptr: ~float32, y_ptr: ~float32, z_ptr: ~float32, rows: int32):
        self.attrs.blocks = 4
        self.attrs.warps = 4
        g_x = self.global_view(x_ptr, dtype=float32, shape=[rows, 32])
        g_y = self.global_view(y_ptr, dtype=float32, shape=[rows, 32])
        g_z = self.global_view(z_ptr, dtype=float32, shape=[rows, 32])
        staging = self.shared_tensor(dtype=float32, shape=[64, 32])
        row = self.blockIdx.x * 64
        self.store_shared(staging, self.load_global(g_x, offsets=[row, 0], shape=[64, 32]))
        self.fence.proxy_async()
        self.sync()
        with self.single_thread():
            self.tma.shared_to_global(staging, g_y, offsets=[row, 0])
            self.tma.commit_group()
            if self.read:
                self.tma.wait_group(0, read=True)
            else:
                self.tma.wait_group(0)
        if not self.read:
            self.sync()
            y = self.load_global(g_y, offsets=[row, 0], shape=[64, 32])
            self.store_global(g_z, y + 1.0, offsets=[row, 0])


def waits(kernel):
    return [o.attrs["read"] for o in walk(kernel.placed.body) if o.kind is tma.tma_store_wait]


@pytest.mark.usefixtures("without_nvrtc")
def test_wait_group_waits_for_the_writes():
    compiled = Writes(False).compile(["*fp32:16"] * 3 + ["i32"])
    assert waits(compiled) == [False]
    assert (
        "tma_wait<0>();" in compiled.cuda and "tma_wait_read<" not in compiled.cuda.split("main")[0]
    )
    assert "self.tma.wait_group(0)\n" in compiled.eject()


@pytest.mark.usefixtures("without_nvrtc")
def test_the_wait_for_reads_is_asked_for():
    compiled = Writes(True).compile(["*fp32:16"] * 3 + ["i32"])
    assert waits(compiled) == [True]
    assert "tma_wait_read<0>();" in compiled.cuda
    assert "self.tma.wait_group(0, read=True)\n" in compiled.eject()


def test_what_was_stored_can_be_read_back():
    x = np.random.default_rng(0).standard_normal((256, 32)).astype(np.float32)
    y, z = np.zeros_like(x), np.zeros_like(x)
    Writes(False)(x, y, z, 256)
    assert np.array_equal(y, x) and np.array_equal(z, x + 1)


class Groups(Script):
    """Each group writes its number to its threads' elements."""

    def __init__(self, second: tuple[int, int]):
        super().__init__()
        self.second = second

    def __call__(self, y_ptr: ~int32):
        self.attrs.blocks = 1
        self.attrs.warps = 8
        g_y = self.global_view(y_ptr, dtype=int32, shape=[2, 32])
        with self.warp_group(0, 2, name="first"):
            ones = self.register_tensor(dtype=int32, shape=[1, 32], init=1)
            self.store_global(g_y, ones, offsets=[0, 0])
        with self.warp_group(self.second[0], self.second[1], name="second"):
            twos = self.register_tensor(dtype=int32, shape=[1, 32], init=2)
            self.store_global(g_y, twos, offsets=[1, 0])


@pytest.mark.usefixtures("without_nvrtc")
@pytest.mark.parametrize("second", [(2, 6), (4, 4), (7, 1)])
def test_warp_group_counts_warps(second):
    compiled = Groups(second).compile(["*i32:16"])
    (groups,) = (o for o in walk(compiled.placed.body) if o.kind is task.tasks)
    found = {n: i for i, n in enumerate(groups.attrs["names"])}
    assert [groups.attrs["warps"][found[n]] for n in ("first", "second")] == [2, second[1]]
    assert sum(groups.attrs["warps"][: found["second"]]) == second[0]
    assert set(groups.attrs["replicas"]) == {1}
    y = np.zeros((2, 32), np.int32)
    Groups(second)(y)
    assert y.tolist() == [[1] * 32, [2] * 32]


@pytest.mark.parametrize(
    ("second", "code", "text"),
    [
        ((4, 8), "group-threads", "warp_group(4, 8) ends at thread 384"),
        ((-1, 2), "group-warps", "a group of 2 warps from warp -1"),
        ((2, 0), "group-warps", "a group of 0 warps from warp 2"),
    ],
)
def test_groups_that_are_none(second, code, text):
    with pytest.raises(CompileError) as refused:
        Groups(second).compile(["*i32:16"])
    assert refused.value.code == code and text in str(refused.value)
