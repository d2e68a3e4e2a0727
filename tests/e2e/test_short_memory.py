"""Where shared memory has no room for a slot of each load, the widest loads go to registers."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

import warploom as wl
import warploom.language as tl
from warploom.runtime.jit import JITFunction

N = 128


@wl.jit
def through_states(x_ptr, h_ptr, out_ptr, COUNT: tl.constexpr, N: tl.constexpr):
    """out = Σ x · h[i], whose states are float32: 64 KB each."""
    row, n = tl.arange(0, 64), tl.arange(0, N)
    x = tl.load(x_ptr + row[:, None] * N + n[None, :])
    acc = tl.zeros((64, N), tl.float32)
    for i in tl.static_range(COUNT):
        h = tl.load(h_ptr + i * N * N + n[:, None] * N + n[None, :])
        acc = tl.dot(x, h.to(tl.bfloat16), acc)
    tl.store(out_ptr + row[:, None] * N + n[None, :], acc)


def operands(count: int) -> tuple[Any, ...]:
    random = np.random.default_rng(0)
    x = random.integers(-2, 3, (64, N)).astype(ml_dtypes.bfloat16)
    h = random.integers(-2, 3, (count, N, N)).astype(np.float32)
    return x, h, np.zeros((64, N), np.float32)


def compiled(kernel: JITFunction, count: int) -> Any:
    return kernel.compile_for(*operands(count), COUNT=count, N=N, grid=(1,), num_warps=4)


def test_the_widest_loads_go_to_registers() -> None:
    made = compiled(through_states, 4)
    why = [
        r for r in made.schedule.reasons if r.because == "shared memory has no room for its slot"
    ]
    assert [r.decision for r in why] == ["not moved ahead"] * len(why) and 1 <= len(why) < 4
    assert made.plan.shared_bytes <= 232448 and made.check().ok
    x, h, out = operands(4)
    made.simulate(x, h, out, grid=(1,), seed=1)
    assert (out == sum(x.astype(np.float32) @ one for one in h)).all()


def test_while_there_is_room_all_have_slots() -> None:
    made = compiled(through_states, 2)
    assert not any("no room" in r.because for r in made.schedule.reasons)
