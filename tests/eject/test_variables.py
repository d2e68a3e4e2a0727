"""SSA values become variables again: loops that exchange them, arms, values that live on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.eject.owned import owned, same_program
from warploom import Script
from warploom.eject import eject
from warploom.errors import CompileError
from warploom.ir.parser import parse_func
from warploom.language import float32, int32, int64
from warploom.runtime.compiled import CompiledKernel

pytestmark = pytest.mark.usefixtures("without_nvrtc")


class Fibonacci(Script):
    """Two variables that change places."""

    def __call__(self, out_ptr: ~int32, n: int32):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        a: int32 = 0
        b: int32 = 1
        first = self.load(out_ptr)
        for _ in range(n):
            old = a
            a = b
            b = old + b
        self.store(out_ptr + 1, a + first)
        self.store(out_ptr + 2, b)


class Rotation(Script):
    """Three in a ring, and one that keeps where another started."""

    def __call__(self, out_ptr: ~int32, n: int32):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        a = self.load(out_ptr)
        b = self.load(out_ptr + 1)
        c = self.load(out_ptr + 2)
        start = a
        while n > a - b:
            for i in range(2):
                t = a
                a = b + i
                b = c
                c = t
            n = n - 1
        self.store(out_ptr, a * 100 + b * 10 + c)
        self.store(out_ptr + 1, start)


class Arms(Script):
    """What ifs leave, with and without an else; numbers that are no i32."""

    def __call__(self, out_ptr: ~int32, n: int32):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        x = self.load(out_ptr)
        y = self.load(out_ptr + 1)
        wide: int64 = 5
        for i in range(n):
            if x > y:
                x = x - y
                wide = wide * 3
            else:
                if i == 1:
                    y = y - x
                else:
                    z = x
                    x = y
                    y = z
        self.store(out_ptr, x)
        self.store(out_ptr + 1, y)
        self.store(out_ptr + 2, self.cast(wide % 1000, int32))


class Tiles(Script):
    """Masks, broadcasts of both axes, constants of several dtypes, a tile that a loop changes."""

    def __call__(self, out_ptr: ~int32, n: int32):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        rows = self.arange(0, 16)
        columns = self.arange(0, 8)
        at = rows[:, None] * 8 + columns[None, :]
        x = self.load(out_ptr + at, mask=at < n, other=7)
        total = self.cast(x, float32)
        keep = total
        for i in range(3):
            total = self.maximum(total * 0.5, i.to(float32)) + self.where(x > 3, 1.5, -0.25)
        picked = self.where((rows < 9)[:, None] & (columns > 1)[None, :], total, keep)
        mixed = picked + self.where(n > 4, total, keep)
        bits = (self.cast(mixed, int32) & 255 | 4) ^ (x << 1)
        most = self.max(bits, dim=1)
        self.store(out_ptr + at, bits + most[:, None] - self.reduce(x, dim=0, fn="xor")[None, :])


def again(script: Any, args: Callable[[], list[Any]], folder: Path) -> str:
    """Both forms are one program and compute the same; gives the text."""
    compiled: CompiledKernel = script.compile_for(*args())
    text = compiled.eject()
    ejected, signature = owned(text, folder, 1)
    same_program(compiled, ejected.compile(signature))
    first, second = args(), args()
    script(*first)
    ejected(*second)
    np.testing.assert_array_equal(first[0], second[0])
    assert not np.array_equal(first[0], args()[0])
    return text


@pytest.mark.parametrize("script", [Fibonacci(), Rotation(), Arms(), Tiles()])
@pytest.mark.parametrize("n", [1, 6, 70])
@pytest.mark.each(2)
def test_variables(script: Any, n: int, tmp_path: Path) -> None:
    n = min(n, 6) if not isinstance(script, Tiles) else n
    start = (np.arange(128) * 7 % 23).astype(np.int32)
    again(script, lambda: [start.copy(), n], tmp_path)


def test_an_exchange_is_one_assignment(tmp_path: Path) -> None:
    text = again(Arms(), lambda: [np.array([21, 34, 0], np.int32), 6], tmp_path)
    assert "x, y = y, x" in text


ACCUMULATOR = """
func @f(%out: ptr<f32>) level=WARP {facts=(fact<16>,), warps=4} {
  %zero = const() {value=0, dtype=i32} : i32
  %on = const() {value=true, dtype=i1} : i1
  %one = const() {value=1.0, dtype=f32} : f32
  %s = shared_alloc() {name="s", lead=(), shape=(64, 64), dtype=f16, inner=1, swizzle=128}
  tasks() {names=("main",), warps=(4,), replicas=(1,), registers=(none,)} do {
    %x = shared_load(%s) : tile<64x64xf16>
    %start = cast(%x) {dtype=f32}
    %acc = in_flight(%start)
    wgmma_fence()
    %b = shared_slot(%s)
    %next = wgmma(%b, %b, %acc, %on)
    wgmma_commit()
    %sum = wgmma_wait(%next) {pending=0} : tile<64x64xf32>
    %both = add(%sum, %start)
    %low = cast(%both) {dtype=f16}
    shared_store(%s, %low)
    yield()
  }
  yield()
}
"""


def test_an_accumulator_s_old_contents() -> None:
    """No variable can hold both: said so, with what to do."""
    with pytest.raises(CompileError, match="old contents are still needed") as e:
        eject(parse_func(ACCUMULATOR), {}, [])
    assert e.value.code == "eject"
    eject(parse_func(ACCUMULATOR.replace("add(%sum, %start)", "add(%sum, %sum)")), {}, [])
