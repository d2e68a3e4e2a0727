"""Calls at new addresses, on a driver that only records: the same launches as if each were bound."""

from __future__ import annotations

import itertools
import struct
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import warploom as wl
import warploom.language as tl
from tests.unit.test_runtime_fixed import drawn, tensor
from tests.unit.test_runtime_jit import Gpu, gpu, scale_kernel
from tests.unit.test_runtime_seen import Storage, Tensor
from warploom.errors import LaunchError, WarploomWarning
from warploom.runtime import alike, compiled, jit, variants
from warploom.runtime.alike import AlikeCalls
from warploom.runtime.args import _PROBES, KEYS, probe_torch
from warploom.runtime.launch import LoadedKernel

__all__ = ["gpu"]  # a fixture


@pytest.fixture(autouse=True)
def tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    for table in (_PROBES, KEYS):
        monkeypatch.setitem(table, Tensor, probe_torch)


def at(place: int, **changed: Any) -> Tensor:
    return tensor(place << 20, **changed)


def warm(kernel: Any, **named: Any) -> None:
    """So that other addresses are known."""
    for place in (1, 3):
        kernel[(3,)](at(place), at(place + 1), 1000, 2.0, BLOCK=128, **named)


def only_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit.JITFunction, "_run_unseen", None)
    monkeypatch.setattr(LoadedKernel, "prepare_bound", None)


def test_other_addresses_and_floats_bind_and_prepare_nothing(
    gpu: Gpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = wl.jit(scale_kernel)
    warm(kernel)
    kernel[(3,)](at(5), at(6), 1000, 2.0, BLOCK=128)  # its parameters' place
    only_alike(monkeypatch)
    for place, factor in ((7, 3.0), (9, 0.0), (11, -0.0), (7, 3.0)):
        for grid in ((3,), (3, 1), (3, 1, 1), lambda meta: (meta["n"] // 333,)):
            ran = kernel[grid](at(place), at(place + 1), 1000, factor, BLOCK=128)
            assert ran is not None and ran.request == gpu.requests[0]
            _, sizes, _, _, stream, (_, address, n, packed) = gpu.driver.launches[-1]
            assert (sizes, stream, address) == ((3, 1, 1), 0, (place + 1) << 20)
            assert n & 0xFFFFFFFF == 1000
            assert struct.pack("<f", factor) == struct.pack("<q", packed)[:4]
            assert gpu.driver.encoded[-1][1][0] == place << 20 or place == 7
    assert len(gpu.requests) == 1


NOBODY = type("Nobody", (AlikeCalls,), {"__bool__": lambda self: False, "add": lambda *_: None})

ARRAYS: dict[str, Any] = {
    "offset": st.sampled_from([0, 4, 16, 4000, 3984]),
    "dtype": st.just("torch.float16"),
    "extents": st.sampled_from([((10, 100), (200, 1)), ((10, 100), (100, 1)), ((1000,), (2,))]),
    "_storage": st.just(Storage(1 << 20, 1 << 26)),
    "place": st.integers(1, 4),
}
# What differs from a usual call, most of which differ in addresses alone.
CHANGES = st.fixed_dictionaries(
    {"x": st.integers(20, 40), "y": st.integers(41, 60)},
    optional={
        "x_as": st.fixed_dictionaries({}, optional=ARRAYS),
        "y_as": st.fixed_dictionaries({}, optional=ARRAYS),
        "n": st.sampled_from([1008, 1001, 8, 1, True, -8, 0, 1 << 40]),
        "factor": st.sampled_from([0.0, -0.0, 1, True]),
        "named": st.sampled_from(
            [{"SHIFT": 0}, {"SHIFT": False}, {"SHIFT": 1.0}, {"num_warps": 8}]
        ),
        "BLOCK": st.just(64),
        "grid": st.sampled_from([(3, 1), 3, (2, 2), (0,), [3], (4,)]),
    },
)


@settings(deadline=None, max_examples=150)
@given(
    st.lists(CHANGES, min_size=1, max_size=12),
    st.sampled_from(["usual", "short", "in place", "free"]),
)
def test_calls_launch_what_they_would_if_each_were_bound(calls: list[Any], how: str) -> None:
    def launched(make: Callable[[], Any]) -> list[Any]:
        with pytest.MonkeyPatch.context() as patch, pytest.warns():
            warnings.warn("some overlap", stacklevel=1)
            fake = gpu.__wrapped__(patch)  # type: ignore[attr-defined]
            one = next(fake)
            one.plan = {
                "usual": one.plan,
                "short": replace(one.plan, short=("a[2] // 8", 100)),
                "in place": replace(one.plan, rings=False, in_place=((1, 0),)),
                "free": replace(one.plan, disjoint=(), rings=False),
            }[how]
            kernel, found = wl.jit(scale_kernel), []
            kernel.alike = make()
            warm(kernel)
            for c in calls:
                x, y = (drawn(**{"place": c[a], **c.get(f"{a}_as", {})}) for a in "xy")
                named = {"BLOCK": c.get("BLOCK", 128), **c.get("named", {})}
                try:
                    ran = kernel[c.get("grid", (3,))](
                        x, y, c.get("n", 1000), c.get("factor", 2.0), **named
                    )
                except LaunchError as error:
                    found.append(str(error).splitlines()[0])
                    continue
                if ran is None:
                    found.append(None)
                    continue
                *launch, values = one.driver.launches[-1]
                map_of = one.driver.encoded[values[0] - 1][1] if values[0] < 1 << 20 else values[0]
                found.append((launch, map_of, values[1:], ran.request))
            return found

    assert launched(AlikeCalls) == launched(NOBODY)


@pytest.mark.parametrize(
    "changed",
    [{"_is_neg": True}, {"pointer": 0}, {"_device": -1}, {"_device": 1}],
)
def test_what_is_refused_is_refused_among_known_calls(gpu: Gpu, changed: dict[str, Any]) -> None:
    kernel = wl.jit(scale_kernel)
    warm(kernel)
    pointer = changed.pop("pointer", 7 << 20)
    for _ in range(2):
        launched = len(gpu.driver.launches)
        with pytest.raises(LaunchError):
            kernel[(3,)](tensor(pointer, **changed), at(9), 1000, 2.0, BLOCK=128)
        assert len(gpu.driver.launches) == launched
        kernel[(3,)](at(11), at(13), 1000, 2.0, BLOCK=128)
    for grid in ((2.0,), (3, 1, 1, 1), (), (-1,), (3.0, 1), ("3",), (None, 1)):
        with pytest.raises(LaunchError, match="a grid has 1 to 3 sizes"):
            kernel[grid](at(11), at(13), 1000, 2.0, BLOCK=128)
    with pytest.raises(LaunchError, match="take one dict of meta-parameters"):
        kernel[lambda: (3,)](at(11), at(13), 1000, 2.0, BLOCK=128)


def test_what_overlaps_takes_its_variant(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """Views of one storage by their own bytes."""
    kernel, whole = wl.jit(scale_kernel), Storage(1 << 20, 1 << 16)
    warm(kernel)
    with pytest.warns(WarploomWarning, match="overlap in memory"):
        kernel[(3,)](at(5), tensor((5 << 20) + 3984), 1000, 2.0, BLOCK=128)
    assert gpu.driver.launches[-1][3] == 2
    kernel[(3,)](at(5), at(7), 1000, 2.0, BLOCK=128)  # its parameters' place
    only_alike(monkeypatch)
    for apart in (4000, 8000):
        out = tensor((1 << 20) + apart, _storage=whole)
        kernel[(3,)](at(1, _storage=whole), out, 1000, 2.0, BLOCK=128)
        assert gpu.driver.launches[-1][-1][1] == (1 << 20) + apart


SHIFT_BY: Any = 3


def reading_a_global(x_ptr: Any, out_ptr: Any, n: Any, factor: Any, BLOCK: tl.constexpr) -> None:
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at) * factor + SHIFT_BY + n)


def test_what_a_translation_read_is_looked_at_each_time(
    gpu: Gpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compile(request: Any) -> Any:
        made, reads = gpu.compile(request), request.reader()
        request.translate(reads)
        return compiled.CompiledKernel(
            request, "", made.cubin, made.plan, made.resources, reads=reads
        )

    monkeypatch.setattr(variants, "compile_request", compile)
    kernel = wl.jit(reading_a_global)
    warm(kernel)
    assert kernel.alike and len(gpu.requests) == 1
    kernel[(3,)](at(5), at(6), 1000, 2.0, BLOCK=128)
    assert len(gpu.requests) == 1
    monkeypatch.setattr(f"{__name__}.SHIFT_BY", 4)
    kernel[(3,)](at(7), at(8), 1000, 2.0, BLOCK=128)
    assert len(gpu.requests) == 2


def test_streams_and_devices(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alike, "stream_getter", lambda: lambda device: 40 + device)
    kernel = wl.jit(scale_kernel)
    warm(kernel)
    for place, device in enumerate((0, 1, 1, 1, 0), 5):
        kernel[(3,)](at(place, _device=device), at(20, _device=device), 1000, 2.0, BLOCK=128)
    assert [launch[4] for launch in gpu.driver.launches[-2:]] == [41, 40]
    assert {device for device, _ in gpu.driver.prepared} == {0, 1}


def test_few_kinds_of_calls_are_kept(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alike, "CALLS_KEPT", 4)
    kernel = wl.jit(scale_kernel)
    for n in range(8, 88, 8):
        for place in (1, 3, 5):
            kernel[(3,)](at(place), at(place + 1), n, 2.0, BLOCK=128)
            assert gpu.driver.launches[-1][-1][2] & 0xFFFFFFFF == n
            assert all(len(road.known) <= 4 for road in kernel.alike._roads)
    every = {"SHIFT": 1, "num_warps": 8, "num_stages": 2}
    for names in itertools.product((0, 1), repeat=3):
        named = {name: every[name] for name, taken in zip(every, names, strict=True) if taken}
        for factor in (2.0, 1, True):
            for place in (1, 3, 5):
                kernel[(3,)](at(place), at(place + 1), 8, factor, BLOCK=128, **named)
    assert len(kernel.alike._roads) == alike.TYPES_KEPT


def test_alignment_and_dtypes_take_their_variants(gpu: Gpu) -> None:
    kernel = wl.jit(scale_kernel)
    warm(kernel)
    for changed, spec in (({}, "*fp32:16"), ({"dtype": "torch.float16"}, "*fp16:16")):
        for offset, place in ((0, 5), (4, 7), (16, 9), (4, 11)):
            ran = kernel[(3,)](
                tensor((place << 20) + offset, **changed), at(20), 1000, 2.0, BLOCK=128
            )
            assert ran is not None
            assert str(ran.request.specs[0]) == (f"{spec[:-2]}4" if offset == 4 else spec)


def test_a_variant_that_asks_for_more_than_another(
    gpu: Gpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only launches of few steps need arrays apart."""
    compile = gpu.compile

    def by_steps(request: Any) -> Any:
        gpu.plan = replace(
            gpu.plan,
            short=("a[2] // 8", 100),
            disjoint=((1, 0),) if request.launch.short else (),
            rings=False,
        )
        return compile(request)

    monkeypatch.setattr(variants, "compile_request", by_steps)
    kernel = wl.jit(scale_kernel)
    for n in (1000, 504, 1000, 504):
        for place in (1, 3, 5):
            kernel[(3,)](at(place), at(place + 1), n, 2.0, BLOCK=128)
            ran = kernel[(3,)](at(place), tensor((place << 20) + 2000), n, 2.0, BLOCK=128)
            assert ran is not None and ran.request.overlap == (n == 504)


class Fake(Tensor):
    """A tensor without memory that gives 0 for its address."""

    def data_ptr(self) -> int:
        return self._pointer


def test_fake_tensors_are_refused(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    for table in (_PROBES, KEYS):
        monkeypatch.setitem(table, Fake, probe_torch)
    kernel = wl.jit(scale_kernel)
    for place in (1, 3, 0, 5, 0):
        x = Fake(place << 20, dtype="torch.float32", shape=(1000,), _strides=(1,))
        if place:
            kernel[(3,)](x, at(7), 1000, 2.0, BLOCK=128)
        else:
            with pytest.raises(LaunchError, match="its address is 0"):
                kernel[(3,)](x, at(7), 1000, 2.0, BLOCK=128)
    assert len(gpu.driver.launches) == 3


def test_arrays_without_elements_are_at_address_0(
    gpu: Gpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    for table in (_PROBES, KEYS):
        monkeypatch.setitem(table, Fake, probe_torch)
    out = Fake(0, dtype="torch.float32", shape=(0,), _strides=(1,), _storage=Storage(0, 0))
    kernel = wl.jit(scale_kernel)
    for place in (1, 3, 5, 7):
        kernel[(3,)](at(place), out, 1000, 2.0, BLOCK=128)
        assert gpu.driver.launches[-1][-1][1] == 0
        monkeypatch.setattr(type(kernel), "bind", None)  # nor is it bound again
    assert len(gpu.driver.launches) == 4


def test_tensors_without_a_storage_are_launched_all_the_same(
    gpu: Gpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    def storage(_: Any) -> Storage:
        raise NotImplementedError("Cannot access storage")

    monkeypatch.setattr(Tensor, "untyped_storage", storage)
    kernel = wl.jit(scale_kernel)
    for place in (1, 3, 5):
        kernel[(3,)](at(place), at(7), 1000, 2.0, BLOCK=128)
    assert len(gpu.driver.launches) == 3 and not kernel.alike
