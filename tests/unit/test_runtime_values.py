"""Values that contradict the variant which is to run on them, arrays without axes, options that are no numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import warploom as wl
import warploom.language as tl
from warploom.errors import LaunchError
from warploom.runtime.values import fields_for

pytestmark = pytest.mark.usefixtures("without_nvrtc")


@wl.jit
def add(x: Any, out: Any, n: Any, scale: Any, BLOCK: tl.constexpr) -> None:
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n, other=0.0) * scale, mask=at < n)


@wl.jit
def boxes(x: Any, out: Any, BLOCK: tl.constexpr) -> None:
    row = tl.program_id(0) * BLOCK
    tl.store(out + row + tl.arange(0, BLOCK), tl.sum(x.load([row, 0]), axis=1))


@wl.jit
def total(x: Any, out: Any, n: Any, BLOCK: tl.constexpr) -> None:
    at = tl.arange(0, BLOCK)
    tl.store(out, tl.sum(tl.load(x + at, mask=at < n, other=0.0)))


def floats(n: int, offset: int = 0) -> Any:
    """So many, at an address that is 4 · offset more than a multiple of 64."""
    owner = np.zeros(n + 32, np.float32)
    at = -owner.ctypes.data % 64 // 4 + offset
    return owner[at : at + n]


def variant(*entries: str) -> Any:
    return add.compile(list(entries), {"BLOCK": 64})


VARIANTS: dict[str, tuple[Any, Any, str]] = {
    "too large": (("*fp32", "*fp32", "i32", "fp32"), {"n": 2**32 + 3}, "4294967299 is no i32"),
    "another number": (("*fp32", "*fp32", "i32=1", "fp32"), {"n": 2}, "2, and this variant is compiled for 1"),
    "no multiple": (("*fp32", "*fp32", "i32:16", "fp32"), {"n": 24}, "multiples of 16"),
    "not aligned": (("*fp32:16", "*fp32", "i32", "fp32"), {"x": floats(64, 1)}, "multiple of 16 bytes"),
    "another dtype": (
        ("*fp32", "*fp32", "i32", "fp32"), {"x": np.zeros(64)}, "an array of f64, this variant takes arrays of f32",
    ),
    "a number for an array": (("*fp32", "*fp32", "i32", "fp32"), {"x": 3}, "a int, this variant takes arrays of f32"),
    "an array for a number": (
        ("*fp32", "*fp32", "i32", "fp32"), {"n": floats(1)}, "an array, this variant takes i32 numbers",
    ),
    "a float for an integer": (("*fp32", "*fp32", "i32", "fp32"), {"n": 3.5}, "a float, this variant takes i32"),
    "text for a float": (("*fp32", "*fp32", "i32", "fp32"), {"scale": "x"}, "a str, this variant takes f32"),
    "negative": (("*fp32", "*fp32", "u32", "fp32"), {"n": -1}, "-1 is no u32"),
}  # fmt: skip


@pytest.mark.parametrize("name", VARIANTS)
def test_a_value_that_contradicts_the_variant(name: str) -> None:
    entries, changed, text = VARIANTS[name]
    values = {"x": floats(64), "out": floats(64), "n": 64, "scale": 2.0} | changed
    with pytest.raises(LaunchError) as refused:
        variant(*entries).simulate(*values.values(), grid=1)
    (which,) = changed
    assert refused.value.code == "variant-argument"
    assert f"{which} of add: " in refused.value.message and text in refused.value.message
    assert "add.compile_for(…)" in str(refused.value)


def test_what_fits_runs() -> None:
    x, out = floats(64), floats(64)
    x[:] = np.arange(64)
    variant("*fp32:16", "*fp32", "i32:16", "fp32").simulate(x, out, np.int64(64), 2, grid=1)
    assert np.array_equal(out, 2 * x)


def test_too_many_and_too_few() -> None:
    for args in ((floats(64), floats(64), 64), (floats(64), floats(64), 64, 2.0, 64)):
        with pytest.raises(
            LaunchError, match="arguments for the 4 of this variant of add: x, out, n, scale"
        ):
            variant("*fp32", "*fp32", "i32", "fp32").simulate(*args, grid=1)


def test_a_size_that_is_negative() -> None:
    """Where boxes stand on sizes of 0 or more; a launch of others takes another variant."""
    compiled = variant("*fp32", "*fp32", "i32", "fp32")
    placed = compiled.placed.with_(attrs={**compiled.placed.attrs, "nonnegative": (2,)})
    args = floats(64), floats(64), -16, 2.0
    with pytest.raises(LaunchError, match="n is -16, and this variant takes it for no less than 0"):
        fields_for(placed, compiled.request.specs, args)


def test_descriptors() -> None:
    x, out = np.zeros((64, 64), np.float32), floats(64)
    first = wl.TensorDescriptor.from_tensor(x, [32, 64])
    compiled = boxes.compile_for(first, out, BLOCK=32, grid=2)
    compiled.simulate(first, out, grid=2)
    for other, text in (
        (wl.TensorDescriptor.from_tensor(x, [16, 64]), "blocks of 16x64"),
        (wl.TensorDescriptor(x, [64, 64], [64, 1], [32, 64], "nan"), "padding nan"),
        (wl.TensorDescriptor(x, [64, 62], [62, 1], [32, 64]), "strides (62, 1)"),
        (wl.TensorDescriptor.from_tensor(x.astype(np.float16), [32, 64]), "a descriptor of f16"),
        (x, "a ndarray, this variant takes descriptors of f32"),
    ):
        with pytest.raises(LaunchError) as refused:
            compiled.simulate(other, out, grid=2)
        assert text in refused.value.message


def test_masked_arrays_are_refused() -> None:
    masked = np.ma.masked_array(floats(64), mask=np.arange(64) % 2 == 0)
    with pytest.raises(LaunchError, match="whose mask a kernel would not see"):
        add[(1,)](masked, floats(64), 64, 2.0, BLOCK=64)
    with pytest.raises(LaunchError, match="whose mask a kernel would not see"):
        variant("*fp32", "*fp32", "i32", "fp32").simulate(masked, floats(64), 64, 2.0, grid=1)


def test_outputs_without_axes_are_written() -> None:
    x = np.arange(4, dtype=np.float32) + 1
    out = np.array(-7.0, np.float32)
    total[(1,)](x, out, 4, BLOCK=4)
    assert out == 10
    out = np.array(-7.0, np.float32)
    total.compile_for(x, out, 4, BLOCK=4, grid=1).simulate(x, out, 4, grid=1)
    assert out == 10


def test_tensors_without_axes_are_written() -> None:
    torch = pytest.importorskip("torch")
    out = torch.full([], -7.0)
    total[(1,)](torch.arange(4.0) + 1, out, 4, BLOCK=4)
    assert out.item() == 10


@pytest.mark.parametrize("seed", ["a", 1.5, True, [1]])
def test_a_seed_is_an_integer(seed: Any) -> None:
    with pytest.raises(LaunchError, match="is not an integer"):
        variant("*fp32", "*fp32", "i32", "fp32").simulate(
            floats(64), floats(64), 64, 2.0, grid=1, seed=seed
        )


@pytest.mark.parametrize("states", ["x", -1, 2.5])
def test_max_states_is_a_count(states: Any) -> None:
    with pytest.raises(LaunchError, match=r"max_states=.* is not an integer from 0 on"):
        variant("*fp32", "*fp32", "i32", "fp32").check(max_states=states)


@wl.jit
def added(x: Any, out: Any, n: Any = 24, by: Any = 2.0, BLOCK: tl.constexpr = 64) -> None:
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n, other=0.0) + by, mask=at < n)


def test_what_is_left_out_has_its_default() -> None:
    x, out = floats(64), floats(64)
    compiled = added.compile_for(x, out, grid=(1,))
    for ask in (compiled.simulate, compiled.timeline, compiled.check):
        ask(x, out, grid=(1,))
    assert (out[:24] == 2).all() and (out[24:] == 0).all()
    compiled.simulate(x, out, 24, 3.0, grid=(1,))
    assert out[0] == 3
    compiled[(1,)](x, out, 24)
    assert out[0] == 2
    with pytest.raises(LaunchError, match="1 arguments for the 4 of this variant"):
        compiled.simulate(x, grid=(1,))
    with pytest.raises(
        LaunchError, match=r"n of added: 24, and this variant is compiled for .* 16"
    ):
        added.compile_for(x, out, 16, grid=(1,)).simulate(x, out, grid=(1,))


@wl.jit
def named_as_options(target: Any, grid: Any, signature: Any, seed: tl.constexpr) -> None:
    tl.store(target, grid + signature * seed)


def test_parameters_that_are_called_as_options_are() -> None:
    """A parameter's name is the kernel's own, whatever compile and simulate take by that name."""
    out = np.zeros(1, np.int32)
    named_as_options[(1,)](out, 3, 4, 5)
    assert out[0] == 23
    named_as_options[(1,)](target=out, grid=1, signature=2, seed=3)
    assert out[0] == 7
    compiled = named_as_options.compile_for(out, 3, 4, 5, grid=1)
    compiled.simulate(out, 3, 4, grid=1)
    assert out[0] == 23
