"""Launches of a kernel compiled for a signature, on a driver that only records: what each reads of its
arguments, and which variant it takes."""

from __future__ import annotations

import struct
import threading
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import warploom as wl
import warploom.language as tl
from tests.unit.test_runtime_jit import OUT, GpuArray, X, gpu, scale_kernel
from tests.unit.test_runtime_jit import Gpu as Gpu
from tests.unit.test_runtime_seen import Storage, Tensor
from warploom.errors import LaunchError
from warploom.runtime import fixed
from warploom.runtime.args import _PROBES, KEYS, probe_torch
from warploom.runtime.compiled import CompiledKernel
from warploom.runtime.fixed import FixedLauncher
from warploom.runtime.hooks import ENTER
from warploom.runtime.launch import LoadedKernel, grid_sizes
from warploom.runtime.plan import ComputedParam

__all__ = ["gpu"]  # a fixture


def tensor(at: int, **changed: Any) -> Tensor:
    return Tensor(at, **{"dtype": "torch.float32", "shape": (1000,), "_strides": (1,), **changed})


Launch = Callable[..., Any]


@pytest.fixture
def launcher(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> FixedLauncher:
    for table in (_PROBES, KEYS):
        monkeypatch.setitem(table, Tensor, probe_torch)
    made = wl.jit(scale_kernel)[(1,)](X, OUT, 1000, 2.0, BLOCK=128)
    assert made is not None
    return FixedLauncher(made)


class Jit:
    """A JITFunction as hooks are told of it."""

    def live(self) -> Any:
        return wl.jit(scale_kernel)


@pytest.fixture(params=["kernel[grid]", "run"])
def launch(request: pytest.FixtureRequest, launcher: FixedLauncher) -> Launch:
    """Launches by either road, on a grid of 3 and stream 0."""
    if request.param == "kernel[grid]":
        return lambda *args: launcher((3,), 0, args)
    run = launcher.runner(Jit())
    return lambda *args: run(3, 1, 1, 0, None, None, None, None, None, *args, 128, 0)


def other_plan(launcher: FixedLauncher, **changed: Any) -> FixedLauncher:
    """A launcher of a kernel of another plan."""
    k = launcher.kernel
    plan = replace(k.plan, **changed)
    return FixedLauncher(CompiledKernel(k.request, k.cuda, k.cubin, plan, k.resources))


def only_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on launches have to be like earlier ones."""
    monkeypatch.setattr(fixed, "variants_for", None)


def test_other_addresses_and_floats_are_packed_and_launched(
    gpu: Gpu, launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n, out in enumerate(range(8 << 20, 16 << 20, 1 << 20)):
        launch(tensor(out - 4096), tensor(out), 1000, 0.5 * n)
        _, grid, _, _, stream, (_, address, size, factor) = gpu.driver.launches[-1]
        assert (grid, stream, address, size & 0xFFFFFFFF) == ((3, 1, 1), 0, out, 1000)
        assert struct.unpack("<f", struct.pack("<q", factor)[:4])[0] == 0.5 * n
        assert gpu.driver.encoded[-1][1][0] == out - 4096  # the map of the other argument
        only_known(monkeypatch)
        if n:  # from now on parameters have places
            monkeypatch.setattr(LoadedKernel, "prepare", None)


def test_arrays_of_other_kinds_launch_as_well(gpu: Gpu, launch: Launch) -> None:
    for out in (8 << 20, 9 << 20, 8 << 20):
        launch(X, GpuArray(out, (1000,)), 1000, 2.0)
        assert gpu.driver.launches[-1][-1][1] == out
    with pytest.raises(LaunchError, match="no multiple of 16 bytes"):
        launch(X, GpuArray((8 << 20) + 4, (1000,)), 1000, 2.0)


def test_what_overlaps_takes_its_variant(gpu: Gpu, launch: Launch) -> None:
    first = 1 << 20
    launch(tensor(first), tensor(2 << 20), 1000, 2.0)
    for out, overlaps in (
        (3 << 20, False),
        (first + 4096, False),
        (first + 3984, True),
        (first, True),
    ):
        launch(tensor(first), tensor(out), 1000, 2.0)
        *_, shared, _, values = gpu.driver.launches[-1]
        assert (shared, values[1]) == (2 * overlaps, out)
    assert [r.overlap for r in gpu.requests] == [False, True]


def test_views_of_one_array_are_compared_by_their_own_bytes(
    gpu: Gpu, launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Storage(1 << 20, 1 << 16)
    launch(tensor(1 << 20), tensor(2 << 20), 1000, 2.0)
    view = tensor(1 << 20, _storage=whole)
    with monkeypatch.context() as changed:
        only_known(changed)
        for out in ((1 << 20) + 4000, (1 << 20) + 8000):
            launch(view, tensor(out, _storage=whole), 1000, 2.0)
            assert gpu.driver.launches[-1][-1][1] == out
    launch(view, tensor((1 << 20) + 3984, _storage=whole), 1000, 2.0)
    assert gpu.requests[-1].overlap


def test_only_what_decides_is_read(
    gpu: Gpu, launcher: FixedLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`run` takes the signature's word for dtypes, and reads extents of nothing."""
    run = launcher.runner(Jit())
    read: list[str] = []
    args = tensor(3 << 20), tensor(4 << 20), 1000, 2.0
    run(3, 1, 1, 0, None, None, None, None, None, *args, 128, 0)

    class Read(Tensor):
        def __getattribute__(self, name: str) -> Any:
            if not name.startswith("_"):
                read.append(name)
            return super().__getattribute__(name)

    only_known(monkeypatch)
    for place in (5, 6):
        args = (
            Read(place << 20, dtype="torch.float32"), Read(place << 21, dtype="torch.float32"), 1000, 2.0
        )  # fmt: skip
        read.clear()
        run(3, 1, 1, 0, None, None, None, None, None, *args, 128, 0)
        assert sorted(read) == sorted(["data_ptr", "get_device", "untyped_storage"] * 2)
    read.clear()
    launcher((3,), 0, args)
    assert {*read} == {"data_ptr", "get_device", "untyped_storage", "dtype", "is_neg"}


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"_is_neg": True}, "other sign"),
        ({"dtype": "torch.float16"}, "an array of f16"),
        ({"pointer": 0}, "no memory"),
        ({"pointer": (7 << 20) + 4}, "no multiple of 16 bytes"),
        ({"_device": -1}, "different places"),
        ({"_device": 1}, "different places"),
    ],
)
@pytest.mark.parametrize("at", [0, 1])
def test_arrays_that_it_is_not_made_for_are_refused(
    gpu: Gpu, launcher: FixedLauncher, changed: dict[str, Any], why: str, at: int
) -> None:
    """At first, and among others that are fine."""
    wrong = [tensor(3 << 20), tensor(5 << 20), 1000, 2.0]
    wrong[at] = tensor(
        changed.get("pointer", 7 << 20), **{k: v for k, v in changed.items() if k != "pointer"}
    )
    with pytest.raises(LaunchError, match=why):
        launcher((1,), 0, wrong)
    for place in (3 << 20, 5 << 20):
        launcher((1,), 0, (tensor(place), tensor(9 << 20), 1000, 2.0))
    launched = len(gpu.driver.launches)
    with pytest.raises(LaunchError, match=why):
        launcher((1,), 0, wrong)
    assert len(gpu.driver.launches) == launched


@pytest.mark.parametrize(
    ("n", "factor", "why"),
    [
        (1000.0, 2.0, "does not fit|a float"),
        (1001, 2.0, "multiples of 8"),
        ("1000", 2.0, "a str"),
        (1 << 40, 2.0, "no i32"),
        (1000, "2", "does not fit|a str"),
        (1000, None, "does not fit|NoneType"),
    ],
)
def test_numbers_that_it_is_not_made_for_are_refused(
    gpu: Gpu, launch: Launch, n: Any, factor: Any, why: str
) -> None:
    for _ in range(3):
        with pytest.raises(LaunchError, match=why):
            launch(tensor(3 << 20), tensor(5 << 20), n, factor)
        launch(tensor(3 << 20), tensor(5 << 20), 1000, 2.0)
    assert [launched[-1][2] & 0xFFFFFFFF for launched in gpu.driver.launches[1:]] == [1000] * 3


def test_integers_that_decide_take_their_variant(gpu: Gpu, launch: Launch) -> None:
    for place, n in enumerate((1000, -8, 1000, -8), 3):
        launch(tensor(place << 20), tensor(place << 21), n, 2.0)
        assert gpu.driver.launches[-1][-1][2] & 0xFFFFFFFF == n & 0xFFFFFFFF
    assert [r.structured for r in gpu.requests] == [True, False]
    assert [key[0] for _, key in gpu.driver.encoded] == [1 << 20, 3 << 20, 5 << 20]


def test_a_variant_that_asks_for_more_than_the_kernel(gpu: Gpu, launcher: FixedLauncher) -> None:
    """One of few steps loads ahead of its stores, which the kernel itself doesn't."""
    launcher = other_plan(launcher, disjoint=(), short=("a[2] // 8", 200))
    for out, overlaps in ((3 << 20, False), (5 << 20, False), ((1 << 20) + 3984, True)):
        launcher((3,), 0, (tensor(1 << 20), tensor(out), 1000, 2.0))
        assert gpu.driver.launches[-1][3] == 2 * overlaps
    assert [(r.launch.short, r.overlap) for r in gpu.requests[1:]] == [(True, False), (True, True)]


def test_no_more_kinds_of_launches_are_kept_than_a_few(
    gpu: Gpu, launcher: FixedLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fixed, "CALLS_KEPT", 4)
    for n in range(8, 80, 8):
        launcher((3,), 0, (tensor(3 << 20), tensor(5 << 20), n, 2.0))
        assert len(launcher._known) <= 4
        assert gpu.driver.launches[-1][-1][2] & 0xFFFFFFFF == n


class Fake(Tensor):
    """A tensor without memory that gives 0 for its address."""

    def data_ptr(self) -> int:
        return 0


def test_fake_tensors_are_refused_by_either_road(
    gpu: Gpu, launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(_PROBES, Fake, probe_torch)
    for _ in range(2):
        with pytest.raises(LaunchError, match="its address is 0"):
            launch(Fake(dtype="torch.float32"), tensor(5 << 20), 1000, 2.0)
        launch(tensor(3 << 20), tensor(5 << 20), 1000, 2.0)


def test_arrays_without_elements_are_at_address_0(
    gpu: Gpu, launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(_PROBES, Fake, probe_torch)
    out = Fake(0, dtype="torch.float32", shape=(0,), _strides=(1,), _storage=Storage(0, 0))
    for n in range(3):
        launch(tensor(3 << 20), out, 1000, 2.0)
        assert len(gpu.driver.launches) == n + 2 and gpu.driver.launches[-1][-1][1] == 0
        only_known(monkeypatch)


def doubled(x: Any, out: Any, BLOCK: tl.constexpr) -> None:
    out.store([tl.program_id(0) * BLOCK, 0], x.load([tl.program_id(0) * BLOCK, 0]) * 2)


@pytest.mark.parametrize("road", ["kernel[grid]", "run"])
def test_descriptors_are_bound_once(gpu: Gpu, monkeypatch: pytest.MonkeyPatch, road: str) -> None:
    """New ones of the same memory are the same."""
    for table in (_PROBES, KEYS):
        monkeypatch.setitem(table, Tensor, probe_torch)

    def both() -> list[Any]:
        bases = (tensor(at << 20, shape=(64, 64), _strides=(64, 1)) for at in (3, 5))
        return [wl.TensorDescriptor(b, [64, 64], [64, 1], [32, 64]) for b in bases]

    made = wl.jit(doubled)[(2,)](*both(), BLOCK=32)
    assert made is not None
    launcher = FixedLauncher(made)
    run = launcher.runner(Jit())
    for _ in range(3):
        if road == "run":
            run(2, 1, 1, 0, None, None, None, None, None, *both(), 32)
        else:
            launcher((2,), 0, both())
        only_known(monkeypatch)
    assert len(gpu.driver.launches) == 4


def test_a_launch_during_a_launch_has_parameters_of_its_own(
    gpu: Gpu, launcher: FixedLauncher
) -> None:
    """As one from another thread."""
    driver_launch, inside = gpu.driver.launch, []

    def another_inside(*how: Any) -> Any:
        while inside:
            launcher((3,), 0, inside.pop())
        return driver_launch(*how)

    gpu.driver.launch = another_inside  # type: ignore[method-assign]
    usual = tensor(1 << 20), tensor(8 << 20), 1000, 0.0
    for _ in range(3):
        launcher((3,), 0, usual)
    inside.append((tensor(1 << 20), tensor(9 << 20), 1000, -0.0))
    launcher((3,), 0, usual)
    launcher((3,), 0, usual)
    found = [values[1:] for *_, values in gpu.driver.launches[-3:]]
    assert [x[0] for x in found] == [9 << 20, 8 << 20, 8 << 20]
    assert [struct.pack("<q", x[2])[3] >> 7 for x in found] == [1, 0, 0]


def test_devices_have_launches_of_their_own(gpu: Gpu, launch: Launch) -> None:
    """On a default stream, which is the current device's."""
    gpu.driver.device_count = 2
    for device in (0, 1, 0, 1):
        gpu.driver.current.clear()
        launch(*(tensor(at << 20, _device=device) for at in (3, 5)), 1000, 2.0)
        assert gpu.driver.current == [device]
    gpu.driver.has_context = 1
    gpu.driver.current.clear()
    launch(*(tensor(at << 20, _device=1) for at in (7, 9)), 1000, 2.0)
    assert gpu.driver.current == []
    assert {device for device, _ in gpu.driver.prepared} == {0, 1}


def test_errors_of_the_driver_and_contexts_that_are_gone(gpu: Gpu, launch: Launch) -> None:
    args = tensor(3 << 20), tensor(5 << 20), 1000, 2.0
    for _ in range(3):
        launch(*args)
    gpu.driver.results = [701]
    with pytest.raises(LaunchError, match=r"launch of scale on grid \(3, 1, 1\): 701"):
        launch(*args)
    gpu.driver.results = [201, 0]  # no context any more
    launch(*args)
    assert gpu.driver.current[-1:] == [0]


def test_a_thread_without_a_context_gets_one(gpu: Gpu, launch: Launch) -> None:
    args = tensor(3 << 20), tensor(5 << 20), 1000, 2.0
    for _ in range(2):
        launch(*args)
    gpu.driver.entered.clear()
    thread = threading.Thread(target=launch, args=args)
    thread.start()
    thread.join()
    assert 0 in gpu.driver.entered and len(gpu.driver.launches) == 4


def test_hooks_are_told_of_known_launches(gpu: Gpu, launcher: FixedLauncher) -> None:
    run, told = launcher.runner(Jit()), []
    args = (
        3,
        1,
        1,
        0,
        None,
        None,
        None,
        None,
        None,
        tensor(3 << 20),
        tensor(5 << 20),
        1000,
        2.0,
        128,
        0,
    )
    run(*args)
    hook: Any = told.append
    ENTER.add(hook)
    try:
        run(*args)
    finally:
        ENTER.remove(hook)
    run(*args)
    assert [data.get()["name"] for data in told] == ["scale_kernel"]
    assert len(gpu.driver.launches) == 4


def test_an_empty_grid_launches_nothing(gpu: Gpu, launcher: FixedLauncher) -> None:
    for _ in range(2):
        launcher((0,), 0, (tensor(3 << 20), tensor(5 << 20), 1000, 2.0))
    assert len(gpu.driver.launches) == 1


def test_numbers_that_the_host_computes(gpu: Gpu, launcher: FixedLauncher) -> None:
    params = list(launcher.kernel.plan.params)
    params[2] = ComputedParam("_quotient(a[2], 8) - a[2]", "i")
    launcher = other_plan(launcher, params=tuple(params))
    for place in (3, 5, 7):
        launcher((3,), 0, (tensor(place << 20), tensor(place << 21), 1000, 2.0))
        assert gpu.driver.launches[-1][-1][2] & 0xFFFFFFFF == (125 - 1000) & 0xFFFFFFFF


def drawn(place: int, offset: int = 0, extents: Any = ((1000,), (1,)), **changed: Any) -> Tensor:
    shape, strides = extents
    return tensor((place << 20) + offset, shape=shape, _strides=strides, **changed)


WHOLE = Storage(1 << 20, 1 << 26)
ARRAY: dict[str, Any] = {
    "offset": st.sampled_from([4, 16, 3984, 4000]),
    "extents": st.sampled_from([((10, 100), (200, 1)), ((10, 100), (100, 1)), ((0,), (1,))]),
    "_storage": st.just(WHOLE),
    "_device": st.just(1),
    # What a runner is never given: Dynamo guards it.
    "dtype": st.just("torch.float16"),
    "_is_neg": st.just(True),
}
# What differs from a usual launch: little, so that most are like others.
CHANGES: dict[str, Any] = {
    "n": st.sampled_from([1008, 8, 1, True, -8, 0, 1 << 40, 1000.0, "1000"]),
    "factor": st.sampled_from([0.0, -0.0, 1, True, 1e300, "2"]),
    "grid": st.sampled_from([(2, 2), (0,), (1, 2, 3), 4]),
    "stream": st.just(7),
    "behind": st.sampled_from([0, 16, 3984, 4000, -3984]),  # bytes, of y to x
    **{f"{a} {what}": values for a in "xy" for what, values in ARRAY.items()},
}
CHANGE = st.sampled_from(sorted(CHANGES)).flatmap(
    lambda name: st.tuples(st.just(name), CHANGES[name])
)
LAUNCHES = st.lists(st.lists(CHANGE, max_size=2).map(dict), min_size=2, max_size=12)


@settings(deadline=None, max_examples=200)
@given(
    LAUNCHES,
    st.sampled_from(["usual", "short", "in place", "free"]),
    st.booleans(),
    st.sampled_from([1, 2]),
)
def test_launchers_that_remember_launch_what_new_ones_do(
    launches: list[Any], how: str, runs: bool, devices: int
) -> None:
    def made(remember: bool) -> list[Any]:
        with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for table in (_PROBES, KEYS):
                patch.setitem(table, Tensor, probe_torch)
            one = next(gpu.__wrapped__(patch))  # type: ignore[attr-defined]
            one.driver.device_count = devices
            one.plan = {
                "usual": one.plan,
                "short": replace(one.plan, short=("(a[2] // 8)", 100)),
                "in place": replace(one.plan, rings=False, in_place=((1, 0),)),
                "free": replace(one.plan, disjoint=(), rings=False),
            }[how]
            variant = wl.jit(scale_kernel)[(1,)](X, OUT, 1000, 2.0, BLOCK=128)
            assert variant is not None
            kept, found = FixedLauncher(variant), []
            run = kept.runner(Jit())
            for i, c in enumerate([{}, *launches]):
                if not remember:
                    kept = FixedLauncher(variant)
                    run = kept.runner(Jit())
                x, y = (
                    {name: c[key] for name in ARRAY if (key := f"{a} {name}") in c} for a in "xy"
                )
                if runs:
                    x, y = (
                        {k: v for k, v in z.items() if k not in ("dtype", "_is_neg")}
                        for z in (x, y)
                    )
                x, y = {"place": 30 + i, **x}, {"place": 50 + i, **y}
                if "behind" in c:
                    y |= {"place": 30 + i, "offset": c["behind"]}
                arrays = drawn(**x), drawn(**y)
                args = *arrays, c.get("n", 1000), c.get("factor", 2.0)
                grid, stream = c.get("grid", (3,)), c.get("stream", 0)
                one.driver.current.clear()
                before = len(one.driver.launches)
                try:
                    if runs:
                        run(*grid_sizes(grid), stream, None, None, None, None, None, *args, 128, 0)
                    else:
                        kept(grid, stream, args)
                except LaunchError:
                    found.append("refused")
                for *launch, (first, *others) in one.driver.launches[before:]:
                    key = one.driver.encoded[first - 1][1] if first < 1 << 20 else first
                    found.append((launch, key, others, [*one.driver.current]))
            return found

    assert made(True) == made(False)
