"""A of a wgmma in registers: what a loop may leave in flight."""
# mypy: ignore-errors

from __future__ import annotations

import numpy as np
import pytest

from warploom import Script
from warploom.errors import CompileError
from warploom.language import bfloat16, float32, int32

CODE = "register-operand"


class Chain(Script):
    """acc += A·B, `steps` times.  made: where A is made; pending: groups that the loop's wait leaves."""

    def __init__(self, made: str, pending: int):
        super().__init__()
        self.made = made
        self.pending = pending

    def issue(self, a, acc, first):
        self.wgmma.fence()
        self.wgmma.mma(a, self.b.transpose(), acc, use_acc=not first)
        self.wgmma.commit_group()

    def __call__(self, c_ptr: ~float32, steps: int32):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        self.b = self.shared_tensor(dtype=bfloat16, shape=[64, 64])
        acc = self.register_tensor(dtype=float32, shape=[64, 64])
        other = self.register_tensor(dtype=float32, shape=[64, 64])
        a = self.load_shared(self.b)
        self.issue(a, acc, True)
        self.wgmma.wait_group(0)
        self.issue(a, other, True)
        self.wgmma.wait_group(0)
        for _ in self.range(0, steps):
            if self.made == "inside":
                a = self.load_shared(self.b)
            if self.made == "carried":
                following = self.load_shared(self.b)
            self.issue(a, acc, False)
            if self.made == "two groups":
                a = self.load_shared(self.b)
                self.issue(a, other, False)
            if self.made == "carried":
                a = following
            self.wgmma.wait_group(self.pending)
        self.wgmma.wait_group(0)
        g = self.global_view(c_ptr, dtype=float32, shape=[64, 64])
        self.store_global(g, acc + other, offsets=[0, 0])


def lowered(script):
    args = [np.zeros((64, 64), np.float32), 8]
    return script._lowered(script._request(script.bind(args, {}), "sm_90a"))


@pytest.mark.parametrize(
    ("made", "pending"),
    [("outside", 1), ("outside", 0), ("inside", 0), ("carried", 0), ("two groups", 0)],
)
def test_what_is_waited_for_in_time_compiles(made: str, pending: int) -> None:
    assert lowered(Chain(made, pending)).placed is not None


@pytest.mark.parametrize(
    ("made", "pending"), [("inside", 1), ("carried", 1), ("two groups", 1), ("inside", 2)]
)
def test_what_the_next_iteration_overwrites_is_refused(made: str, pending: int) -> None:
    with pytest.raises(CompileError) as e:
        lowered(Chain(made, pending))
    assert e.value.code == CODE
