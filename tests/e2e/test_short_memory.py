"""Where shared memory has no room for a slot of each load, the widest loads go to registers."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

import warploom as wl
import warploom.language as tl
from warploom.ir.ops import mma, smem, tile
from warploom.ir.types import Shared
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
    assert [r.decision for r in why] == ["not brought by a producer"] * len(why) and 1 <= len(
        why
    ) < 4
    assert made.plan.shared_bytes <= 232448 and made.check().ok
    x, h, out = operands(4)
    made.simulate(x, h, out, grid=(1,), seed=1)
    assert (out == sum(x.astype(np.float32) @ one for one in h)).all()


@wl.jit
def two_states(x_ptr, h_ptr, out_ptr, N: tl.constexpr):
    """As through_states, of two that are loaded first; s, which is needed whole, keeps it in one group."""
    row, n = tl.arange(0, 64), tl.arange(0, N)
    x = tl.load(x_ptr + row[:, None] * N + n[None, :])
    at = n[:, None] * N + n[None, :]
    first = tl.load(h_ptr + at)
    second = tl.load(h_ptr + N * N + at)
    s = tl.dot(x, tl.trans(x))
    acc = tl.dot(x, first.to(tl.bfloat16))
    acc = tl.dot(x, second.to(tl.bfloat16), acc)
    acc = tl.dot(tl.trans(s.to(tl.bfloat16)), x, acc)
    tl.store(out_ptr + row[:, None] * N + n[None, :], acc)


def test_where_slots_keep_other_programs_away_registers_pass_tiles_on() -> None:
    """One after the other: while a product reads the first state, the second one is on its way."""
    x, h, out = operands(2)
    x = np.sign(x.astype(np.float32)).astype(x.dtype)
    made = two_states.compile_for(x, h, out, N=N, grid=(1,), num_warps=4)
    (why,) = (r for r in made.schedule.reasons if r.decision == "wider loads go to registers")
    assert why.because.startswith("with slots for them 1 programs share a multiprocessor")
    assert made.schedule.held_loads == ("load1", "load2")
    assert 2 * made.plan.shared_bytes <= 232448 and not made.resources.spill_bytes
    (main,) = (r for o in made.placed.body.ops for r in o.regions)
    kinds = [o.kind for o in main.ops]
    loads = [i for i, k in enumerate(kinds) if k is tile.load_box]
    products = [i for i, k in enumerate(kinds) if k is mma.wgmma]
    assert loads[0] < kinds.index(smem.shared_store) < loads[1] < products[1]
    made.simulate(x, h, out, grid=(1,), seed=1)
    exact = x.astype(np.float32)
    assert (out == exact @ h[0] + exact @ h[1] + exact @ exact.T @ exact).all()
    assert made.check().ok


@wl.jit
def through_transposed(x_ptr, h_ptr, out_ptr, N: tl.constexpr):
    """out = x · hᵀ of a float32 h."""
    row, n = tl.arange(0, 64), tl.arange(0, N)
    x = tl.load(x_ptr + row[:, None] * N + n[None, :])
    h = tl.load(h_ptr + n[None, :] * N + n[:, None])
    tl.store(out_ptr + row[:, None] * N + n[None, :], tl.dot(x, h.to(tl.bfloat16)))


def test_a_computed_operand_lies_as_it_was_loaded() -> None:
    """A thread holds neighbours along K: it stores them together."""
    x, h, out = operands(1)
    made = through_transposed.compile_for(x, h, out, N=N, grid=(1,), num_warps=4)
    (stored, *_) = made.placed.body.by_kind[smem.shared_store]
    assert stored.operands[0].typed(Shared).inner == 0
    assert "store_shared16(operand" not in made.cuda
    made.simulate(x, h, out, grid=(1,), seed=1)
    assert (out == x.astype(np.float32) @ h[0].T).all()
    assert made.check().ok
