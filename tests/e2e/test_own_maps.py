# mypy: ignore-errors
"""Tensor maps that the kernel writes: of descriptors that the launch doesn't know, made of values from memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import warploom as wl
import warploom.language as tl
from tests.e2e.test_by_addresses import META, Chain, by_descriptors
from tests.eject.owned import owned
from tests.orders import ORDERS, default_orders
from tests.unit.fake_driver import FakeDriver
from warploom.ir.core import walk
from warploom.ir.ops import tma
from warploom.runtime import launch, workspace
from warploom.sim.report import SimError

SIZES = [(100, 72, 40), (72, 136, 200)]


def made(kernel: Any, args: list[Any], **more: Any) -> Any:
    return kernel.compile_for(*args, grid=(2,), **META | more)


def kinds(compiled: Any) -> list[Any]:
    return [o.kind for o in walk(compiled.lowered.placed.body)]


class Products:
    """Unrelated products, of which any may have no rows, columns or steps."""

    def __init__(self, sizes: list[tuple[int, int, int]]) -> None:
        one = [Chain([size]) for size in sizes]
        self.chains = one
        addresses = np.concatenate([c.addresses for c in one])
        self.args = [addresses, np.array(sizes, np.int32).ravel(), len(sizes)]

    def check(self, what: str) -> None:
        for chain in self.chains:
            np.testing.assert_array_equal(chain.left[1], chain.wanted()[0], what)


@pytest.mark.parametrize("sizes", [SIZES, [(64, 64, 8), (40, 24, 16)]])
def test_boxes_end_where_the_array_does(sizes: list[tuple[int, int, int]]) -> None:
    compiled = made(by_descriptors, Products(sizes).args)
    assert kinds(compiled).count(tma.map_write) == 2 and smem_copies(compiled) == 0
    for order in default_orders(ORDERS):
        products = Products(sizes)
        compiled.simulate(*products.args, grid=(2,), order=order, seed=1)
        products.check(order)


def smem_copies(compiled: Any) -> int:
    return str(compiled.cuda).count("cp_async<")


@wl.jit
def in_the_loop(addresses, out, steps, B: tl.constexpr):
    acc = tl.zeros((B, B), dtype=tl.float32)
    for i in range(steps):
        at = tl.load(addresses + i).to(tl.pointer_type(tl.float16))
        x = tl.make_tensor_descriptor(at, [B, B], [B, 1], [B, B])
        acc = tl.dot(x.load([0, 0]), x.load([0, 0]).T, acc)
    o = tl.load(out).to(tl.pointer_type(tl.float32))
    z = tl.arange(0, B)
    tl.store(o + z[:, None] * B + z[None, :], acc)


def test_a_descriptor_of_each_step_is_not_written() -> None:
    """Copies by the one before would still be on their way."""
    args = [np.zeros(4, np.int64), np.zeros(1, np.int64), 4]
    compiled = in_the_loop.compile_for(*args, grid=(1,), B=64, num_warps=4)
    assert not {tma.map_write, tma.tma_load} & {*kinds(compiled)}
    assert "change while copies are on their way" in compiled.explain()


def test_an_ejected_kernel_is_the_same(tmp_path: Path) -> None:
    compiled = made(by_descriptors, Products(SIZES).args)
    script, signature = owned(compiled.eject(), tmp_path, 2)
    assert script.compile(signature).placed.body.by_kind.keys() >= {tma.map_alloc, tma.map_write}
    products = Products(SIZES)
    script(*products.args)
    products.check("the script")


@pytest.mark.parametrize("target", ["sm_90a", "sm_120a"])
def test_the_assembler_takes_it(target: str) -> None:
    compiled = made(by_descriptors, Products(SIZES).args, target=target)
    assert tma.map_write in kinds(compiled) and compiled.resources.spill_bytes == 0


# ---- scripts, and what the simulator finds in them

OWN = '''
from warploom import Script
from warploom.language import float16, int32, int64


class Own(Script):
    """y = the boxes of x, one after the other, by a tensor map for each."""

    def __call__(self, address: ~int64, y_ptr: ~float16, rows: ~int32, n: int32):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        g_y = self.global_view(y_ptr, dtype=float16, shape=[n * 64, 64])
        slot = self.shared_tensor(dtype=float16, shape=[64, 64])
        x_map = self.tma.map_alloc(dtype=float16, shape=[64, 64], rank={rank}, dims={dims})
        full = self.mbarrier.alloc(1)
        phase: int32 = 0
        for i in range(n):
            at = self.int_to_ptr(self.load(address + i), float16)
            g_x = self.global_view(at, dtype=float16, shape={shape}, strides={strides}, divisible={divisible})
            self.sync()
            {body}
            self.store_global(g_y, self.load_shared(slot), offsets=[i * 64, 0])
            phase = phase ^ 1
'''
USE = """with self.single_thread():
                {write}
                self.mbarrier.arrive_and_expect_tx(full, transaction_bytes=slot.nbytes)
                self.tma.global_to_shared(x_map, slot, {offsets}, full)
            {wait}"""
PLAIN = {
    "rank": 2, "dims": None, "shape": "[self.load(rows + i), 64]", "strides": "[64, 1]",
    "divisible": "(16, 16, 1)", "offsets": "[0, 0]", "write": "self.tma.write_map(x_map, g_x)",
    "wait": "self.mbarrier.wait(full, phase)",
}  # fmt: skip


def own(path: Path, **changed: Any) -> Any:
    given = PLAIN | changed
    given["body"] = USE.format(**given)
    file = path / "own.py"
    file.write_text(OWN.format(**given))
    scope: dict[str, Any] = {}
    exec(compile(file.read_text(), str(file), "exec"), scope)
    return scope["Own"]()


def boxes(rows: list[int], pitch: int = 64) -> tuple[list[Any], Any, Any]:
    owner = np.random.default_rng(1).standard_normal((3, 64 * pitch + 64)).astype(np.float16)
    xs = []
    for line in owner:
        at = -line.ctypes.data % 128 // 2
        xs.append(line[at : at + 64 * pitch].reshape(64, pitch))
    y = np.full((64 * 3, 64), np.nan, np.float16)
    address = np.array([x.ctypes.data for x in xs], np.int64)
    wanted = np.concatenate(
        [np.where(np.arange(64)[:, None] < n, x[:, :64], 0) for x, n in zip(xs, rows, strict=True)]
    )
    return [address, y, np.array(rows, np.int32), 3], wanted, owner


@pytest.mark.parametrize("rows", [[64, 64, 64], [40, 0, -3]])
def test_a_script_says_it(tmp_path: Path, rows: list[int]) -> None:
    args, wanted, _ = boxes(rows)
    own(tmp_path)(*args)
    np.testing.assert_array_equal(args[1], wanted)


def test_axes_of_the_view_that_slots_have_not(tmp_path: Path) -> None:
    args, wanted, _ = boxes([64, 64, 64], pitch=128)
    thin = {"rank": 3, "dims": [0, 2], "shape": "[64, 2, 64]", "strides": "[128, 64, 1]"}
    own(tmp_path, **thin, divisible="(16, 16, 16, 1)", offsets="[0, 0, 0]")(*args)
    np.testing.assert_array_equal(args[1], wanted)


BROKEN = {
    "uninitialised": {"write": ""},
    "race": {"wait": "self.sync()"},
    "tma-stride": {"strides": "[-64, 1]"},
}


@pytest.mark.parametrize("code", BROKEN)
def test_what_the_simulator_finds(tmp_path: Path, code: str) -> None:
    args, _, _ = boxes([64, 64, 64])
    with pytest.raises(SimError) as found:
        own(tmp_path, **BROKEN[code]).simulate(*args, seed=1)
    assert found.value.code == code


class Handed(wl.Script):
    """y = x, by a map that the other group writes."""

    def __call__(self, x_ptr: ~tl.float16, y_ptr: ~tl.float16):
        self.attrs.blocks = 1
        self.attrs.warps = 8
        g_x = self.global_view(x_ptr, dtype=tl.float16, shape=[64, 64])
        g_y = self.global_view(y_ptr, dtype=tl.float16, shape=[64, 64])
        slot = self.shared_tensor(dtype=tl.float16, shape=[64, 64])
        x_map = self.tma.map_alloc(dtype=tl.float16, shape=[64, 64])
        full, written = self.mbarrier.alloc(1), self.mbarrier.alloc(1)
        with self.thread_group(0, 128), self.single_thread():
            self.tma.write_map(x_map, g_x)
            self.mbarrier.arrive(written)
        with self.thread_group(128, 128):
            self.mbarrier.wait(written, 0)
            with self.single_thread():
                self.mbarrier.arrive_and_expect_tx(full, transaction_bytes=slot.nbytes)
                self.tma.global_to_shared(x_map, slot, [0, 0], full)
            self.mbarrier.wait(full, 0)
            self.store_global(g_y, self.load_shared(slot), offsets=[0, 0])


def test_another_thread_needs_a_fence() -> None:
    """That the map is written before is not enough."""
    x = np.zeros((64, 64), np.float16)
    with pytest.raises(SimError) as found:
        Handed().simulate(x, x.copy(), seed=1)
    assert found.value.code == "map-fence"


# ---- launches


class Launches:
    """Of one kernel on a driver that only records."""

    def __init__(self, fake: FakeDriver) -> None:
        compiled = made(by_descriptors, Products(SIZES).args)
        self.fake, plan = fake, compiled.plan
        self.kernel = launch.LoadedKernel(fake, compiled.cubin, plan)  # type: ignore[arg-type]
        self.at = next(i for i, p in enumerate(plan.params) if getattr(p, "arg", 0) == 3 + 3)
        fake.params = len(plan.params)

    def on(self, grid: tuple[int, int, int], stream: int = 7) -> int:
        """Where the maps of a launch are; there is room for all of its CTAs'."""
        workspace.prepared(self.kernel, 0, grid, (4096, 8192, 2)).start(grid, stream)
        address = int(self.fake.launches[-1][-1][self.at])
        assert len(self.fake.memory[address]) >= 2 * 256 * int(np.prod(grid))
        return address


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> Launches:
    fake = FakeDriver()
    monkeypatch.setattr(workspace, "driver", lambda: fake)
    return Launches(fake)


def test_memory_of_a_stream(launches: Launches) -> None:
    first = launches.on((2, 1, 1))
    assert launches.on((2, 1, 1)) == launches.on((1, 1, 1)) == first
    assert launches.on((2, 1, 1), stream=8) != first
    assert launches.on((2, 3, 1)) != first  # which is too small
    like, key = launches.fake.encoded[0]
    assert like.box == (32, 64) and key == (0, (32, 64), (64,))


def test_a_graph_has_memory_of_its_own(launches: Launches) -> None:
    first, launches.fake.capturing = launches.on((2, 1, 1)), True
    captured = [launches.on((2, 1, 1)) for _ in range(2)]
    launches.fake.capturing = False
    assert len({first, *captured}) == 3
    assert launches.on((2, 1, 1)) == first
