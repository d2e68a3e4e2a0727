# mypy: ignore-errors
"""Messages name what is wrong and what to write, of scripts and of kernels."""

from typing import Any

import numpy as np
import pytest

import warploom as wl
import warploom.language as tl
from warploom import Script
from warploom.cli import main
from warploom.errors import CompileError, LaunchError
from warploom.language import float32, int32

pytestmark = pytest.mark.usefixtures("without_nvrtc")


def square():
    return np.ones((64, 64), np.float32)


class OfAllThreads(Script):
    """A tile that all threads loaded, used by a group."""

    def __init__(self, use: str, parted: bool):
        super().__init__()
        self.use, self.parted = use, parted

    def __call__(self, x_ptr: ~float32, y_ptr: ~float32):
        self.attrs.blocks = 1
        self.attrs.warps = 8
        g_x = self.global_view(x_ptr, dtype=float32, shape=[64, 64])
        g_y = self.global_view(y_ptr, dtype=float32, shape=[64, 64])
        slot = self.shared_tensor(dtype=float32, shape=[64, 64])
        t = self.load_global(g_x, offsets=[0, 0], shape=[64, 64])
        if self.use == "handed over":
            self.store_shared(slot, t)
        if self.parted:
            self.sync()
        with self.thread_group(0, 128, name="first"):
            if self.use == "handed over":
                mine = self.load_shared(slot)
                self.store_global(g_y, mine + 1.0, offsets=[0, 0])
            if self.use == "stored":
                self.store_global(g_y, t, offsets=[0, 0])
            if self.use == "computed with":
                self.store_global(g_y, t + 1.0, offsets=[0, 0])
            if self.use == "into shared memory":
                self.store_shared(slot, t)
            if self.use == "in a loop":
                for _ in range(4):
                    t = t + 1.0
                self.store_global(g_y, t, offsets=[0, 0])


@pytest.mark.parametrize("parted", [False, True])
@pytest.mark.parametrize("use", ["stored", "computed with", "into shared memory", "in a loop"])
def test_a_tile_of_all_threads_in_a_group(use, parted):
    with pytest.raises(CompileError) as refused:
        OfAllThreads(use, parted)(square(), square())
    error = refused.value
    assert error.code == "group-tile"
    assert error.message == "t lies in the registers of 8 warps, and here run 4 warps"
    assert "hand it over by shared memory" in error.help


def test_what_it_says_to_do_works():
    y = np.zeros((64, 64), np.float32)
    OfAllThreads("handed over", True)(square(), y)
    assert (y == 2).all()


class Instead(Script):
    def __init__(self, name: str):
        super().__init__()
        self.which = name

    def __call__(self, x_ptr: ~float32):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        slot = self.shared_tensor(dtype=float32, shape=[64, 64])
        if self.which == "mma":
            self.mma(slot, slot)
        if self.which == "store_sharde":
            self.store_sharde(slot, 1.0)


@pytest.mark.parametrize(
    ("name", "help"),
    [
        ("mma", "write self.wgmma.mma(a, b, acc)"),
        ("store_sharde", "did you mean store_shared?"),
    ],
)
def test_what_a_script_calls_otherwise(name, help):
    with pytest.raises(CompileError) as refused:
        Instead(name)(square())
    assert refused.value.message == f"self has no {name}" and help in refused.value.help


class Multiplies(Script):
    def __init__(self, depth: int, shared: bool):
        super().__init__()
        self.depth, self.shared = depth, shared

    def __call__(self, x_ptr: ~float32):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        slot = self.shared_tensor(dtype=float32, shape=[64, self.depth])
        a = self.load_shared(slot)
        self.dot(slot if self.shared else a, self.transpose(a, (1, 0)))


@pytest.mark.parametrize(
    ("depth", "shared", "message", "help"),
    [
        (64, True, "dot multiplies register tensors", "self.load_shared"),
        (36, False, "dot of 36 of K: mma.sync takes multiples of 8", "pad"),
    ],
)
def test_dots_that_no_unit_takes(depth, shared, message, help):
    with pytest.raises(CompileError) as refused:
        Multiplies(depth, shared)(square())
    assert message in refused.value.message and help in refused.value.help


class Point:
    def __init__(self, x):
        self.x = x


@wl.jit
def makes_an_object(x, n, B: tl.constexpr):
    tl.store(x + tl.arange(0, B), Point(1.0).x)


def test_what_a_kernel_cannot_call():
    with pytest.raises(CompileError) as refused:
        makes_an_object.compile(["*fp32", "i32"], {"B": 16})
    assert "pass what Point stands for as an argument" in refused.value.help


@wl.jit
def fills(x, target, B: tl.constexpr):
    tl.store(x + tl.arange(0, B), target)


def test_a_parameter_may_be_called_target():
    x = np.zeros(16, np.float32)
    compiled = fills.compile_for(x, target=3.0, B=16, grid=1)
    compiled.simulate(x, 3.0, grid=1)
    assert (x == 3).all()


def test_a_missing_constexpr_on_the_command_line(tmp_path, capsys):
    path = tmp_path / "fill.py"
    path.write_text(
        "import warploom as wl\nimport warploom.language as tl\n\n\n@wl.jit\ndef fills(x, n, B: tl.constexpr):\n"
        "    tl.store(x + tl.arange(0, B), n)\n"
    )
    assert main(["explain", f"{path}:fills", "--signature", "*fp32 fp32"]) != 0
    assert "--constexpr B=…" in capsys.readouterr().err


class Numbered(wl.Script):
    def __call__(self, a: ~float32, n: int32):
        self.attrs.blocks = n
        self.attrs.warps = 1


class LateWarps(wl.Script):
    def __call__(self, a: ~float32, n: int32):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        if n > 3:
            self.attrs.warps = 8


@pytest.mark.parametrize("n", [64.0, 2**31, -(2**31) - 1, float("nan"), float("inf"), 2.5])
def test_a_number_that_its_parameter_does_not_hold(n: Any) -> None:
    """Integral floats are numbers; others were cut to 32 bits, or told from inside."""
    call = Numbered().bind
    if n == 64.0:
        assert call((np.zeros(1, np.float32), n), {}).fields[1].value == 64
        return
    with pytest.raises(LaunchError, match=f"n of Numbered is an i32, got {n!r}"):
        call((np.zeros(1, np.float32), n), {})


def test_a_grid_without_programs_has_no_timeline() -> None:
    with pytest.raises(LaunchError, match=r"the grid \(0, 1, 1\) has no program 0"):
        Numbered().timeline(np.zeros(1, np.float32), 0)


def test_attrs_are_no_matter_of_the_run() -> None:
    with pytest.raises(CompileError, match=r"self\.attrs\.warps under a condition, or in a loop"):
        LateWarps().compile_for(np.zeros(1, np.float32), 5)
