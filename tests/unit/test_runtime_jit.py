"""Calls: on host arrays, on a driver that only records, and what is wrong with some."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import warploom as wl
import warploom.language as tl
from tests.unit.fake_driver import FakeDriver, GpuArray
from warploom.errors import CompileError, LaunchError, WarploomWarning
from warploom.runtime import autotune, jit, launch, variants
from warploom.runtime import kernel as kernel_module
from warploom.runtime.args import _PROBES, KEYS
from warploom.runtime.compiled import CompiledKernel, Request, Resources
from warploom.runtime.fixed import FixedLauncher
from warploom.runtime.launch import grid_sizes
from warploom.runtime.plan import LaunchPlan, MapParam, ScalarParam


def scale_kernel(
    x_ptr: Any, out_ptr: Any, n: Any, factor: Any, BLOCK: tl.constexpr, SHIFT: tl.constexpr = 0
) -> None:
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    x = tl.load(x_ptr + offsets, mask=inside)
    tl.store(out_ptr + offsets, x * factor + SHIFT, mask=inside)


def arrays(n: int) -> tuple[Any, Any]:
    x = np.random.default_rng(0).standard_normal(n).astype(np.float32)
    return x, np.full_like(x, np.nan)


# ---- on the CPU


def test_a_call_on_numpy_arrays_runs_the_oracle() -> None:
    kernel = wl.jit(scale_kernel)
    x, out = arrays(1000)
    seen: list[dict[str, Any]] = []

    def grid(meta: dict[str, Any]) -> tuple[int]:
        seen.append(meta)
        return (wl.cdiv(meta["n"], meta["BLOCK"]),)

    assert kernel[grid](x, out, 1000, 2.0, BLOCK=128, SHIFT=3) is None
    np.testing.assert_array_equal(out, x * np.float32(2) + np.float32(3))
    assert seen[0]["SHIFT"] == 3 and seen[0]["x_ptr"] is x
    kernel[(8,)](x, out, n=1, factor=0.0, BLOCK=128)  # one element, SHIFT by default
    assert out[0] == 0 and out[1] == x[1] * np.float32(2) + np.float32(3)


def test_grid_zero_touches_nothing() -> None:
    x, out = arrays(4)
    wl.jit(scale_kernel)[(0,)](x, out, 4, 2.0, BLOCK=128)
    assert np.isnan(out).all()


def test_heuristics_and_autotune_on_the_cpu() -> None:
    configs = [wl.Config({"BLOCK": 64}, num_warps=8), wl.Config({"BLOCK": 32})]
    kernel = wl.autotune(configs, key=["n"])(
        wl.heuristics({"SHIFT": lambda args: args["n"] + args["BLOCK"]})(wl.jit(scale_kernel))
    )
    x, out = arrays(100)
    kernel[lambda meta: (wl.cdiv(meta["n"], meta["BLOCK"]),)](x, out, 100, 1.0)
    np.testing.assert_array_equal(out, x + np.float32(164))
    assert kernel.verdicts[(100, np.dtype("float32"), np.dtype("float32"), "")].best == 0


# ---- on a GPU that only records


class Gpu:
    """The fake driver, and the requests that were 'compiled'."""

    def __init__(self) -> None:
        self.driver = FakeDriver()
        self.driver.params = 4
        self.requests: list[Request] = []
        self.plan = LaunchPlan(
            "scale",
            128,
            0,
            (
                MapParam("f32", "a[0]", ("a[2]",), (), (64,), 0),
                ScalarParam(1, "Q"),
                ScalarParam(2, "i"),
                ScalarParam(3, "f"),
            ),
            disjoint=((1, 0),),
            nonnegative=(2,),
            rings=True,
        )

    def compile(self, request: Request) -> CompiledKernel:
        self.requests.append(request)
        plan = self.plan
        if not request.structured or request.specs[0].fact.divisible == 1:
            plan = replace(plan, params=(ScalarParam(0, "Q"), *plan.params[1:]), nonnegative=())
        if request.knobs.num_consumer_groups == 0:
            plan = replace(plan, disjoint=(), in_place=())
        if request.one_array:
            plan = replace(plan, disjoint=(), in_place=(), one_array=request.one_array)
        plan = replace(plan, shared_bytes=bool(request.one_array) + 2 * request.overlap)
        resources = Resources(128, 32, 0, 0, 0, 0, 0, (), 0.0, "none")
        return CompiledKernel(request, "", b"\x7fELF", plan, resources)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gpu]:
    fake = Gpu()
    for module in (launch, jit, kernel_module, autotune):
        monkeypatch.setattr(module, "driver", lambda: fake.driver)
    monkeypatch.setattr(variants, "compile_request", fake.compile)
    monkeypatch.setattr(jit, "is_cached", lambda request: False)
    yield fake
    for table in (_PROBES, KEYS):
        table.pop(GpuArray, None)  # type: ignore[attr-defined]


X, OUT = GpuArray(1 << 20, (1000,)), GpuArray(1 << 21, (1000,))


def test_equal_calls_compile_and_prepare_once(gpu: Gpu) -> None:
    kernel = wl.jit(scale_kernel)
    first = kernel[(8,)](X, OUT, 1000, 2.0, BLOCK=128)
    prepared = list(gpu.driver.encoded)
    assert kernel[(9, 2)](X, OUT, 1000, 2.0, BLOCK=128) is first
    assert kernel[lambda meta: (meta["BLOCK"],)](X, OUT, 1000, 2.0, BLOCK=128) is first
    assert len(gpu.requests) == 1 and gpu.driver.encoded == prepared
    assert [launch[1] for launch in gpu.driver.launches] == [(8, 1, 1), (9, 2, 1), (128, 1, 1)]
    assert [str(s) for s in gpu.requests[0].specs] == ["*fp32:16", "*fp32:16", "i32:8", "fp32"]
    assert gpu.requests[0].constexprs == (("BLOCK", 128), ("SHIFT", 0))


@pytest.mark.parametrize(
    ("changed", "variants"),
    [
        ({"n": 1008}, 2),  # divisible by 16
        ({"n": 1016}, 1),  # by 8, as 1000 is
        ({"n": 1}, 2),
        ({"n": True}, 2),
        ({"x_ptr": GpuArray((1 << 20) + 4, (1000,))}, 2),  # alignment
        ({"x_ptr": GpuArray((1 << 20) + 256, (1000,))}, 1),
        ({"x_ptr": GpuArray(1 << 20, (1000,), "float16")}, 2),
        ({"factor": 3.0}, 1),
        ({"BLOCK": 64}, 2),
        ({"num_warps": 8}, 2),
        ({"factor": None}, 2),
    ],
)
def test_what_makes_another_variant(gpu: Gpu, changed: dict[str, Any], variants: int) -> None:
    kernel = wl.jit(scale_kernel)
    call = {"x_ptr": X, "out_ptr": OUT, "n": 1000, "factor": 2.0, "BLOCK": 128}
    kernel[(1,)](**call)
    if changed.get("factor", 0) is None:  # its parameter is gone
        gpu.plan = replace(gpu.plan, params=gpu.plan.params[:3])
        gpu.driver.params = 3
    kernel[(1,)](**{**call, **changed})
    assert len(gpu.requests) == variants
    assert len(gpu.driver.launches) == 2
    assert gpu.driver.launches[0][-1] != gpu.driver.launches[1][-1] or variants == 2


def test_constexprs_that_have_no_key_as_they_are_given(gpu: Gpu) -> None:
    kernel = wl.jit(scale_kernel)
    for _ in range(2):
        kernel[(1,)](X, OUT, 1000, 2.0, BLOCK=128, SHIFT=[1, 2])
        kernel[(1,)](X, OUT, 1000, 2.0, 128, [1, 2])
    assert len(gpu.requests) == 1 and gpu.requests[0].constexprs[-1] == ("SHIFT", (1, 2))


def test_wrapped_constexprs_are_what_they_hold(gpu: Gpu) -> None:
    """However often a kernel has run with an equal one."""
    kernel = wl.jit(scale_kernel)
    for value in (1, True, 1.0, 1):
        for out in range(3 << 20, 6 << 20, 1 << 20):
            y = GpuArray(out, (1000,))
            ran = kernel[(1,)](X, y, 1000, 2.0, tl.constexpr(128), SHIFT=tl.constexpr(value))
            assert ran is not None and repr(ran.constexprs) == f"{{'BLOCK': 128, 'SHIFT': {value}}}"
    assert len(gpu.requests) == 3


def test_do_not_specialize(gpu: Gpu) -> None:
    kernel = wl.jit(do_not_specialize=["n"])(scale_kernel)
    for n in (1, 16, 1000):
        kernel[(1,)](X, OUT, n, 2.0, BLOCK=128)
    assert [str(s) for s in gpu.requests[0].specs[2:]] == ["i32", "fp32"]
    assert len(gpu.requests) == 1


def test_overlapping_arguments_take_the_uniform_variant(gpu: Gpu) -> None:
    kernel = wl.jit(scale_kernel)
    with pytest.warns(WarploomWarning, match="out_ptr and x_ptr overlap"):
        kernel[(1,)](X, GpuArray((1 << 20) + 3984, (1000,)), 1000, 2.0, BLOCK=128)
    last = gpu.requests[-1]
    assert (last.knobs.num_consumer_groups, last.knobs.num_stages, last.overlap) == (0, 3, True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kernel[(1,)](X, GpuArray((1 << 20) + 4000, (1000,)), 1000, 2.0, BLOCK=128)  # side by side


def test_overlaps_that_cost_no_ring_are_not_told(gpu: Gpu) -> None:
    gpu.plan = replace(gpu.plan, rings=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        wl.jit(scale_kernel)[(1,)](X, X, 1000, 2.0, BLOCK=128)
    assert gpu.requests[-1].overlap


def test_rows_that_replace_themselves_are_one_array(gpu: Gpu) -> None:
    """On every road, each time by the addresses of the launch: never where arrays lie apart, or in part on
    each other."""
    gpu.plan = replace(gpu.plan, rings=False, in_place=((1, 0),))
    kernel, n = wl.jit(scale_kernel), (1000,)
    first = 1 << 20
    for out, what in (
        (1 << 21, (False, ())), (first, (False, ((1, 0),))), (3 << 20, (False, ())),
        (first, (False, ((1, 0),))), (first + 16, (True, ())), (5 << 20, (False, ())),
    ):  # fmt: skip
        for _ in range(2):
            ran = kernel[n](GpuArray(first, n), GpuArray(out, n), 1000, 2.0, BLOCK=128)
            assert ran is not None and (ran.request.overlap, ran.request.one_array) == what, out
    assert [r.one_array for r in gpu.requests] == [(), ((1, 0),), ()]
    for start in (first, 1 << 21):  # of that variant itself, and of the usual one
        ran = kernel[n](GpuArray(first, n), GpuArray(start, n), 1000, 2.0, BLOCK=128)
        assert ran is not None
        launcher = FixedLauncher(ran)
        for out in (first, 6 << 20, first, 7 << 20, first + 16, first, 7 << 20, first + 16):
            launcher((3,), 0, (GpuArray(first, n), GpuArray(out, n), 1000, 2.0))
            _, _, _, shared_bytes, _, (_, address, *_) = gpu.driver.launches[-1]
            assert address == out
            assert shared_bytes == {first: 1, first + 16: 2}.get(out, 0), "which variant it was"


def test_few_steps_take_a_variant_of_their_own(gpu: Gpu) -> None:
    """On the first road, and on that of new addresses."""
    gpu.plan = replace(gpu.plan, short=("a[2] // 8", 100))
    kernel = wl.jit(scale_kernel)
    for n, short in ((1000, False), (504, True), (1000, False), (504, True)):
        x = GpuArray((1 << 22) + 4096 * len(gpu.driver.launches), (n,))
        found = kernel[(1,)](x, OUT, n, 2.0, BLOCK=128)
        assert found is not None and found.request.launch.short == short
    assert [r.launch.short for r in gpu.requests] == [False, True]


def test_bools_may_decide_how_many_steps_there_are(gpu: Gpu) -> None:
    gpu.plan = replace(gpu.plan, short=("(1000 if a[2] else 1)", 100), nonnegative=())
    kernel = wl.jit(scale_kernel)
    for place, n in enumerate((True, True, False, False, True), 3):
        found = kernel[(1,)](GpuArray(place << 20, (8,)), OUT, n, 2.0, BLOCK=128)
        assert found is not None and found.request.launch.short == (not n)


def test_a_first_call_of_few_steps(gpu: Gpu) -> None:
    gpu.plan = replace(gpu.plan, short=("a[2] // 8", 100))
    kernel = wl.jit(scale_kernel)
    for at, n, short in ((0, 504, True), (4096, 504, True), (8192, 1000, False)):
        found = kernel[(1,)](GpuArray((1 << 22) + at, (n,)), OUT, n, 2.0, BLOCK=128)
        assert found is not None and found.request.launch.short == short
    assert len(gpu.requests) == 2


def test_grids_make_variants_only_where_it_matters(gpu: Gpu) -> None:
    for matters, count in ((False, 1), (True, 2)):
        gpu.plan, gpu.requests = replace(gpu.plan, by_waves=matters), []
        kernel = wl.jit(scale_kernel)
        for i, grid in enumerate((1, 100, 132, 1000, 2000)):
            x = GpuArray((1 << 22) + 4096 * i, (1000,))
            found = kernel[(grid,)](x, OUT, 1000, 2.0, BLOCK=128)
            waves = 1 if grid <= 132 else 4
            assert found is not None and found.request.launch.waves == (waves if matters else 1)
        assert len(gpu.requests) == count


def test_axes_make_variants_only_where_they_matter(gpu: Gpu) -> None:
    for matters, count in ((False, 1), (True, 3)):
        gpu.plan, gpu.requests = replace(gpu.plan, by_axes=matters), []
        kernel = wl.jit(scale_kernel)
        for i, grid in enumerate(((8, 1), (8, 4), (1000, 1), (1, 4), (2000, 7))):
            x = GpuArray((1 << 22) + 4096 * i, (1000,))
            found = kernel[grid](x, OUT, 1000, 2.0, BLOCK=128)
            axes = (grid[0] > 1) + 2 * (grid[1] > 1)
            assert found is not None and found.request.launch.axes == (axes if matters else 1)
        assert len(gpu.requests) == count


def test_empty_extents_and_negative_sizes_never_reach_the_encoder(gpu: Gpu) -> None:
    kernel = wl.jit(scale_kernel)
    kernel[(1,)](X, OUT, 0, 2.0, BLOCK=128)
    assert [s.fact.divisible for s in gpu.requests[-1].specs] == [1, 1, 16, 1]
    kernel[(1,)](X, OUT, -8, 2.0, BLOCK=128)
    assert not gpu.requests[-1].structured
    gpu.plan = replace(gpu.plan, nonnegative=())  # the kernel itself would take a negative size
    wl.jit(scale_kernel)[(1,)](X, OUT, -16, 2.0, BLOCK=256)
    assert [s.fact.divisible for s in gpu.requests[-1].specs] == [1, 1, 16, 1]
    assert gpu.driver.encoded == [] and len(gpu.driver.launches) == 3


def test_capture(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = wl.jit(scale_kernel)
    kernel[(1,)](X, OUT, 1000, 2.0, BLOCK=128)
    gpu.driver.capturing = True
    kernel[(1,)](X, OUT, 1000, 2.0, BLOCK=128)
    kernel[(1,)](OUT, X, 1000, 2.0, BLOCK=128)  # other pointers, the same variant
    with pytest.raises(LaunchError, match="captured into a graph"):
        kernel[(1,)](X, OUT, 1000, 2.0, BLOCK=64)
    monkeypatch.setattr(jit, "is_cached", lambda request: True)
    kernel[(1,)](X, OUT, 1000, 2.0, BLOCK=64)  # on disk: no compilation needed
    assert len(gpu.driver.launches) == 4


def test_prepared_launches(gpu: Gpu) -> None:
    prepared = wl.jit(scale_kernel).prepare(X, OUT, 1000, 2.0, grid=(3,), BLOCK=128)
    prepared()
    prepared(stream=7)
    assert [launch[1::3] for launch in gpu.driver.launches] == [((3, 1, 1), 0), ((3, 1, 1), 7)]


def test_torch_stream_and_device(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    class Torch:
        """As much of torch as a launch asks for."""

        class Tensor:
            pass

        class cuda:
            is_initialized = staticmethod(lambda: True)

        class _C:
            _cuda_getCurrentRawStream = staticmethod(lambda device: 40 + device)

    monkeypatch.setitem(sys.modules, "torch", Torch)  # type: ignore[arg-type]
    gpu.driver.owner = lambda pointer: 1
    wl.jit(scale_kernel)[(1,)](X, OUT, 1000, 2.0, BLOCK=128)
    assert gpu.driver.launches[0][4] == 41 and gpu.driver.prepared == [(1, 0)]


def test_other_addresses_find_the_variant_again(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = wl.jit(scale_kernel)

    def launch(x: int, out: int, n: int = 1000) -> list[int]:
        kernel[(3,)](GpuArray(x, (1000,)), GpuArray(out, (1000,)), n, 2.0, BLOCK=128)
        values: list[int] = gpu.driver.launches[-1][-1]
        return values

    launch(1 << 20, 2 << 20)  # compiled
    launch(1 << 20, 3 << 20)  # found among variants
    with monkeypatch.context() as changed:
        changed.setattr(jit, "variants_for", None)
        assert launch(1 << 20, 5 << 20)[1] == 5 << 20
        assert launch(1 << 20, (1 << 20) + 4000)[1] == (1 << 20) + 4000
    assert len(gpu.requests) == 1
    with pytest.warns(WarploomWarning, match="overlap in memory"):
        launch(1 << 20, (1 << 20) + 3984)
    assert [r.overlap for r in gpu.requests] == [False, True]
    launch(1 << 20, 6 << 20)
    launch(1 << 20, 7 << 20, -5)
    assert not gpu.requests[-1].structured


# ---- mistakes

HOST_X, HOST_OUT = arrays(16)
GOOD = {"x_ptr": X, "out_ptr": OUT, "n": 1000, "factor": 2.0, "BLOCK": 128}


@pytest.mark.parametrize(
    ("changed", "code", "text"),
    [
        ({"out_ptr": HOST_OUT}, "mixed-devices", "x_ptr on device 0, out_ptr on the CPU"),
        ({"n": "1000"}, "argument-type", "argument n is a str"),
        ({"n": 1 << 70}, "argument-range", "64 bits"),
        ({"BLOK": 64}, "argument-name", "did you mean BLOCK"),
        ({"num_warp": 4}, "argument-name", "did you mean num_warps"),
        ({"BLOCK": HOST_X}, "constexpr-array", "is a tl.constexpr, got an array"),
        ({"BLOCK": {}}, "constexpr-hash", "can't be part of a key"),
    ],
)
def test_wrong_arguments(gpu: Gpu, changed: dict[str, Any], code: str, text: str) -> None:
    with pytest.raises(LaunchError, match=text) as e:
        wl.jit(scale_kernel)[(1,)](**{**GOOD, **changed})
    assert e.value.code == code


def test_wrong_calls(gpu: Gpu) -> None:
    kernel = wl.jit(scale_kernel)
    for call, code in (
        (lambda: kernel(X, OUT, 1000, 2.0), "no-grid"),
        (lambda: kernel[(1,)](X, OUT), "argument-missing"),
        (lambda: kernel[(1,)](X, OUT, 1, 2.0, 128, 0, 9), "argument-count"),
        (lambda: kernel[(1,)](X, OUT, 1, 2.0, 128, BLOCK=128), "argument-twice"),
        (lambda: kernel[(1, 1, 1, 1)](**GOOD), "grid"),
        (lambda: kernel[(-1,)](**GOOD), "grid"),
        (lambda: kernel["many"](**GOOD), "grid"),
    ):
        with pytest.raises(LaunchError) as e:
            call()
        assert e.value.code == code
    with pytest.raises(CompileError, match="num_warps is a whole number, not 4"):
        kernel[(1,)](**GOOD, num_warps=4.0)
    assert grid_sizes(5) == (5, 1, 1)


def test_arguments_too_many_of_a_known_call(gpu: Gpu) -> None:
    kernel = wl.jit(scale_kernel)
    for place in (3, 5, 7):
        kernel[(1,)](X, GpuArray(place << 20, (1000,)), 1000, 2.0, 128, 0)
        with pytest.raises(LaunchError, match="takes 6 arguments"):
            kernel[(1,)](X, GpuArray((place + 1) << 20, (1000,)), 1000, 2.0, 128, 0, 9)
    assert len(gpu.driver.launches) == 3


def test_another_architecture(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu.driver, "architecture", lambda device: (7, 5))
    with pytest.raises(LaunchError, match=r"compute capability 7\.5"):
        wl.jit(scale_kernel)[(1,)](**GOOD)


@pytest.mark.parametrize(
    ("signature", "constexprs", "more", "code"),
    [
        (["*fp32:16"], {"BLOCK": 128}, {}, "signature"),
        ({"x_ptr": "*fp32"}, {"BLOCK": 128}, {}, "signature"),
        (["*fp32", "*fp32", "i32", "half"], {"BLOCK": 128}, {}, "signature"),
        (["*fp32", "*fp32", "i32", "fp32"], {}, {}, "constexpr-missing"),
        (["*fp32", "*fp32", "i32", "fp32"], {"BLOCK": 1, "N": 2}, {}, "constexpr-name"),
        (["*fp32", "*fp32", "i32", "fp32"], {"BLOCK": 128}, {"num_warp": 4}, "knob"),
        (["*fp32", "*fp32", "i32", "fp32"], {"BLOCK": 128}, {"strict": 1}, "knob"),
        (["*fp32", "*fp32", "i32", "fp32"], {"BLOCK": 128}, {"target": "sm_70"}, "target"),
    ],
)
def test_wrong_compilations(signature: Any, constexprs: Any, more: Any, code: str) -> None:
    with pytest.raises(CompileError) as e:
        wl.jit(scale_kernel).compile(signature, constexprs, **more)
    assert e.value.code == code


def test_what_is_none_unless_given_may_be_left_out() -> None:
    def count(out_ptr: Any, first_ptr: Any = None, WIDE: tl.constexpr = False) -> None:
        tl.store(out_ptr, 1 if first_ptr is None else tl.load(first_ptr))

    kernel = wl.jit(count)
    for types in (["*i32"], {"out_ptr": "*i32"}):
        assert "load" not in kernel.compile(types).ir["TILE"]
    for types in (["*i32", "*i32"], {"out_ptr": "*i32", "first_ptr": "*i32"}):
        assert "load" in kernel.compile(types).ir["TILE"]


def test_a_machine_without_a_gpu_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(flags: int) -> Any:
        raise RuntimeError("Failed to dlopen libcuda.so.1")

    from cuda.bindings import driver

    monkeypatch.setattr(driver, "cuInit", missing)
    with pytest.raises(LaunchError, match="no CUDA driver") as e:
        launch.CudaDriver()
    assert "NumPy" in str(e.value)


def test_a_driver_before_cuda_13_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    from cuda.bindings import driver

    success = driver.CUresult.CUDA_SUCCESS
    monkeypatch.setattr(driver, "cuDriverGetVersion", lambda: (success, 12080))
    with pytest.raises(LaunchError, match=r"made for CUDA 12\.8, and CUDA 13 needs 580") as e:
        launch.CudaDriver()
    assert e.value.code == "driver-too-old"


# ---- the roads agree

POINTERS = st.sampled_from([1 << 20, (1 << 20) + 4, (1 << 20) + 128, 1 << 21, (1 << 21) + 64])
CALLS = st.lists(
    st.tuples(
        POINTERS,
        POINTERS,
        st.sampled_from([0, 1, -8, 16, 24, 1000, 1 << 20, True]),
        st.sampled_from([2.0, 3.5, 2, 1, True]),
        st.sampled_from([64, 128]),
        st.sampled_from([{}, {"SHIFT": 1}, {"SHIFT": True}, {"num_warps": 8}]),
        st.sampled_from([4, 40]),
    ),
    min_size=1,
    max_size=12,
)


@settings(deadline=None)
@given(CALLS)
def test_a_kernel_that_remembers_launches_what_a_new_one_does(calls: list[Any]) -> None:
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore", WarploomWarning)
        gpu = Gpu()
        for module in (launch, jit, kernel_module, autotune):
            patch.setattr(module, "driver", lambda: gpu.driver)
        patch.setattr(variants, "compile_request", gpu.compile)
        patch.setattr(
            FakeDriver, "encode", lambda self, m, key: repr(key).encode().ljust(128)[:128]
        )
        remembering = wl.jit(scale_kernel)
        for x, out, n, factor, block, more, size in calls:
            args = (GpuArray(x, (size,)), GpuArray(out, (size,)), n, factor, block)
            ran = remembering[(3,)](*args, **more)
            expected = wl.jit(scale_kernel)[(3,)](*args, **more)
            assert ran is not None and expected is not None
            assert ran.request == expected.request
            assert repr(ran.request.constexprs) == repr(expected.request.constexprs)
            mine, fresh = gpu.driver.launches[-2:]
            assert mine == fresh
    for table in (_PROBES, KEYS):
        table.pop(GpuArray, None)  # type: ignore[attr-defined]
