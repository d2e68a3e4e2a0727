"""Triton's host side: a file in Triton's words runs with the import changed."""

from __future__ import annotations

import contextlib
import copy
import time
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import warploom as wl
import warploom.triton as triton
import warploom.triton.language as tl
from warploom.runtime.array import probe_pointer
from warploom.runtime.binding import _tell_unheard
from warploom.triton.report import Report
from warploom.triton.runtime.driver import active
from warploom.triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def add_kernel(x_ptr: Any, y_ptr: Any, out_ptr: Any, n: Any, BLOCK: tl.constexpr) -> None:
    at = tl.program_id(axis=0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    x = tl.load(x_ptr + at, mask=mask)
    y = tl.load(y_ptr + at, mask=mask)
    tl.store(out_ptr + at, x + y, mask=mask)


def arrays(n: int) -> tuple[Any, Any, Any]:
    random = np.random.default_rng(n)
    x, y = (random.standard_normal(n).astype(np.float32) for _ in range(2))
    return x, y, np.full(n, np.nan, np.float32)


def test_a_kernel_of_the_tutorials() -> None:
    x, y, out = arrays(1003)
    grid = lambda meta: (triton.cdiv(1003, meta["BLOCK"]),)  # noqa: E731 - as its users write it
    add_kernel[grid](x, y, out, 1003, BLOCK=256, num_warps=8, num_stages=2, num_ctas=1)
    assert np.array_equal(out, x + y)
    out[:] = np.nan
    add_kernel.run(x, y, out, 1003, BLOCK=128, grid=grid, warmup=False)
    assert np.array_equal(out, x + y)
    assert triton.next_power_of_2(1003) == 1024 and isinstance(add_kernel, triton.JITFunction)
    assert add_kernel.arg_names == ("x_ptr", "y_ptr", "out_ptr", "n", "BLOCK")
    assert add_kernel.fn.__name__ == add_kernel.__name__ == "add_kernel"


def test_warmup_compiles_and_the_variant_launches() -> None:
    x, y, out = arrays(1000)
    kernel = add_kernel.warmup(x, y, out, 1000, BLOCK=256, grid=(4,))
    assert np.isnan(out).all()
    kernel._init_handles()
    assert 0 < kernel.n_regs <= 255 and kernel.n_spills == 0 and kernel.metadata.shared >= 0
    assert (kernel.metadata.num_warps, kernel.metadata.name) == (2, "add_kernel")  # of four asked
    assert kernel.asm["cubin"][:4] == b"\x7fELF" and "tt" not in kernel.asm
    assert "__global__" in kernel.asm["cuda"] and set(kernel.asm) >= {"ptx", "ttir"}
    kernel[(4, 1, 1)](x, y, out, 1000)
    assert np.array_equal(out, x + y)
    out[:] = np.nan
    kernel[(4, 1, 1)](x, y, out, 1000, 256)  # with the constexpr, as Triton takes it
    assert np.array_equal(out, x + y)


def test_compile_from_a_source() -> None:
    pointers = dict.fromkeys(("x_ptr", "y_ptr", "out_ptr"), "*fp32")
    signature = {**pointers, "n": "i32", "BLOCK": "constexpr"}
    attrs = {(0,): [["tt.divisibility", 16]], (3,): [["tt.divisibility", 16]]}
    source = triton.compiler.ASTSource(add_kernel, signature, {(4,): 128}, attrs)
    kernel = triton.compile(
        source, active.get_current_target(), {"num_warps": 2, "sanitize_overflow": True}
    )
    assert kernel.signature == ("*fp32:16", "*fp32", "*fp32", "i32:16")
    assert kernel.constexprs == {"BLOCK": 128} and kernel.plan.threads == 64
    with pytest.raises(triton.CompilationError, match="no kernel can be compiled for"):
        triton.compile(source, triton.backends.GPUTarget("cuda", 70, 32))


# ---- options of jit


def test_options_of_jit() -> None:
    @triton.jit(
        do_not_specialize=["n"],
        do_not_specialize_on_alignment=["m"],
        debug=True,
        noinline=True,
        repr=lambda specialization: "name",
        launch_metadata=lambda grid, kernel, args: {},
        version=3,
    )
    def kernel(x_ptr: Any, n: Any, m: Any) -> None:
        tl.store(x_ptr, n + m)

    x = np.zeros(1, np.int32)
    compiled = kernel.compile_for(x, 16, 16)
    assert compiled.signature[1:] == ("i32", "i32") and compiled.request.knobs.debug
    assert not kernel.compile_for(x, 1, 1, debug=False).request.knobs.debug
    assert kernel.compile_for(x, 1, 1).signature[1:] == ("i32", "i32=1")


def test_annotations_give_numbers_their_dtype() -> None:
    @triton.jit
    def kernel(out_ptr: Any, n: tl.int64, x: fp64, i: i32, k: int) -> None:  # noqa: F821
        tl.store(out_ptr, n * 3)
        tl.store(out_ptr + 1, (x * 4).to(tl.int64) + i + k)

    out = np.zeros(2, np.int64)
    compiled = kernel.compile_for(out, 2**31 - 1, 0.1, 5, 6)
    assert compiled.signature[1:] == ("i64", "fp64", "i32", "i32:2")
    kernel[(1,)](out, 2**31 - 1, 2.0**40 + 0.25, 5, 6)
    assert out.tolist() == [3 * (2**31 - 1), 2**42 + 1 + 11]
    compiled.simulate(out, 2**31 - 1, 2.0**40, 5, 6, grid=(1,))
    assert out.tolist() == [3 * (2**31 - 1), 2**42 + 11]


def test_hooks_around_launches() -> None:
    told: list[Any] = []

    def metadata(grid: Any, kernel: Any, args: dict[str, Any]) -> dict[str, Any]:
        return {"name": f"{kernel.name}_{kernel.num_warps}_{grid}_{args['n']}", "bytes": 12}

    @triton.jit(launch_metadata=metadata)
    def kernel(x_ptr: Any, n: Any) -> None:
        tl.store(x_ptr, n)

    x = np.zeros(1, np.int32)
    runtime = triton.knobs.runtime
    enter, leave = lambda m: told.append(m.get()), lambda m: told.append(int(x[0]))
    kernel.add_pre_run_hook(lambda *args, **kwargs: told.append(args[1:]))
    runtime.launch_enter_hook.add(enter)
    runtime.launch_exit_hook = leave
    try:
        kernel[(2,)](x, 7, num_warps=8)
    finally:
        runtime.launch_enter_hook.remove(enter)
        runtime.launch_exit_hook = None
    name = "kernel_8_(2, 1, 1)_7"
    assert told == [(7,), {"name": name, "function": None, "stream": None, "bytes": 12}, 7]
    kernel.pre_run_hooks.clear()
    kernel[(1,)](x, 8)
    assert len(told) == 3


def test_launches_may_say_what_triton_s_launches_say() -> None:
    x, y, out = arrays(64)
    add_kernel[(1,)](x, y, out, 64, BLOCK=64, launch_pdl=True, launch_cooperative_grid=True)
    assert np.array_equal(out, x + y)
    with pytest.raises(wl.LaunchError, match="no parameter launch_pdx"):
        add_kernel[(1,)](x, y, out, 64, BLOCK=64, launch_pdx=True)


def test_options_without_effect_are_told_once() -> None:
    x, y, out = arrays(64)
    silent = {"extern_libs": {"libdevice": "a.bc"}, "backend_name": "cuda", "ir_override": None,
              "supported_fp8_dtypes": ("fp8e5",), "allowed_dot_input_precisions": ("ieee",)}  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        add_kernel[(1,)](x, y, out, 64, BLOCK=64, instrumentation_mode="", **silent)
    assert np.array_equal(out, x + y)
    _tell_unheard.cache_clear()
    with pytest.warns(wl.WarploomWarning, match="ptx_options") as told:
        for _ in range(2):
            add_kernel[(1,)](x, y, out, 64, BLOCK=64, ptx_options="-O1")
            add_kernel.compile_for(x, y, out, 64, BLOCK=64, ptx_options="-O1", num_warps=2)
    assert len(told) == 1 and "NVRTC" in str(told[0].message)


@triton.jit
def product(a_ptr: Any, b_ptr: Any, c_ptr: Any, N: tl.constexpr, HOW: tl.constexpr) -> None:
    at = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(c_ptr + at, tl.dot(tl.load(a_ptr + at), tl.load(b_ptr + at), input_precision=HOW))


def test_the_precision_of_dots_that_say_none() -> None:
    random = np.random.default_rng(0)
    a, b = (random.standard_normal((16, 16)).astype(np.float32) for _ in range(2))
    exact = a.astype(float) @ b

    def error(**how: Any) -> float:
        c = np.zeros_like(a)
        product[(1,)](a, b, c, 16, **how)
        simulated = np.zeros_like(a)
        made = product.compile_for(a, b, simulated, 16, grid=(1,), **how)
        made.simulate(a, b, simulated, grid=(1,))
        np.testing.assert_allclose(c, simulated, rtol=1e-5, atol=1e-5)
        return float(np.abs(c - exact).max())

    ieee = {"default_dot_input_precision": "ieee"}
    assert error(HOW=None, **ieee) < 1e-5 < 1e-4 < error(HOW="tf32", **ieee)
    assert error(HOW=None) == error(HOW=None, default_dot_input_precision="tf32") > 1e-4
    with pytest.raises(wl.CompileError, match="default_dot_input_precision is"):
        error(HOW=None, default_dot_input_precision="bf16")


class Pointing:
    """What a kernel needs to know of an array, and nothing else."""

    def __init__(self, array: Any) -> None:
        self.array, self.dtype = array, array.dtype

    def data_ptr(self) -> int:
        return int(self.array.ctypes.data)


class Shaped(Pointing):
    device = "cpu"

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.array.shape)

    def stride(self) -> tuple[int, ...]:
        return tuple(n // self.array.itemsize for n in self.array.strides)


@pytest.mark.parametrize("kind", [Pointing, Shaped])
def test_what_has_a_data_ptr_is_an_array(kind: Any) -> None:
    x, y, out = arrays(300)
    given = [kind(a[3:]) for a in (x, y, out)]
    for _ in range(2):
        out[:] = np.nan
        add_kernel[(2,)](*given, 297, BLOCK=256)
        assert np.array_equal(out[3:], (x + y)[3:]) and np.isnan(out[:3]).all()
    out[:] = np.nan
    compiled = add_kernel.compile_for(*given, 297, BLOCK=256)
    compiled.simulate(*given, 297, grid=(2,))
    assert np.array_equal(out[3:], (x + y)[3:])
    assert (
        compiled.signature[0] == add_kernel.compile_for(x[3:], y, out, 297, BLOCK=256).signature[0]
    )


def test_memory_is_known_to_the_end_of_its_array_whoever_holds_it() -> None:
    x = np.zeros(300, np.float32)

    class Elsewhere:
        dtype = x.dtype

        def data_ptr(self) -> int:
            return x.ctypes.data + 4 * 100

    for given in (Pointing(x[100:200]), Elsewhere()):
        assert probe_pointer(given)[1:3] == (x.ctypes.data + 4 * 100, (200,))


@pytest.mark.usefixtures("few_objects")
def test_an_address_of_no_array_is_refused() -> None:
    class Lost(Pointing):
        def data_ptr(self) -> int:
            return 64

    x, y, out = arrays(64)
    with pytest.raises(wl.LaunchError, match="no array is known at its address 0x40"):
        add_kernel[(1,)](Lost(x), y, out, 64, BLOCK=64)


def test_a_report_counts_launches() -> None:
    report = Report()
    report.start()
    x, y, out = arrays(64)
    try:
        for block in (64, 64, 63.5):
            with contextlib.suppress(wl.CompileError):
                add_kernel[(1,)](x, y, out, 64, BLOCK=block)
    finally:
        report.stop()
    line, _, last = report.lines()
    assert "interpreted; 3 launches, 1 refused, " in line
    assert last == "1 kernels met, 0 refused each time; 3 launches, 1 refused"


def test_autotune_and_heuristics() -> None:
    @triton.autotune(
        configs=[triton.Config({"BLOCK": 128}, num_warps=4, num_stages=2)],
        key=["n", "no parameter"],
        restore_value=["out_ptr"],
        use_cuda_graph=True,
        cache_results=True,
        warmup=5,
        rep=10,
    )
    @triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
    @triton.jit
    def kernel(x_ptr: Any, out_ptr: Any, n: Any, EVEN: tl.constexpr, BLOCK: tl.constexpr) -> None:
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + at, mask=at < n)
        tl.store(out_ptr + at, x + EVEN, mask=at < n)

    for n in (256, 300):
        x, _, out = arrays(n)
        kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, out, n)  # noqa: B023
        assert np.array_equal(out, x + (n % 128 == 0))
    assert kernel.best_config.kwargs == {"BLOCK": 128} and kernel.best_config.num_stages == 2
    assert isinstance(kernel, triton.runtime.Autotuner)
    none = triton.autotune(configs=[], key=[])(add_kernel)
    assert [str(c) for c in none.configs] == ["default"]


def test_configs_may_be_changed_and_made_by_a_pruning_function() -> None:
    x, y, out = arrays(100)
    first = triton.Config({"BLOCK": 32}, num_warps=8)
    assert {first: 1}[triton.Config({"BLOCK": 32}, num_warps=8)] == 1

    def prune(configs: Any, named: Any, **kwargs: Any) -> Any:
        changed = copy.deepcopy(configs[0])
        changed.kwargs["BLOCK"] = 128
        changed.num_warps = 2
        return [changed]

    kernel = triton.autotune([first], key=["n"], prune_configs_by={"early_config_prune": prune})
    tuned = kernel(add_kernel)
    tuned[lambda meta: (triton.cdiv(100, meta["BLOCK"]),)](x, y, out, 100)
    assert np.array_equal(out, x + y)
    assert tuned.best_config.all_kwargs() == {"BLOCK": 128, "num_warps": 2}
    assert first.all_kwargs() == {"BLOCK": 32, "num_warps": 8}

    def enlarge(configs: Any, named: Any, **kwargs: Any) -> Any:
        for c in configs:
            c.kwargs["BLOCK"] *= 2
        return configs

    kernel = triton.autotune([first], key=["n"], prune_configs_by={"early_config_prune": enlarge})
    enlarged = kernel(add_kernel)
    enlarged[lambda meta: (triton.cdiv(100, meta["BLOCK"]),)](x, y, out, 100)
    assert enlarged.best_config.all_kwargs()["BLOCK"] == 64


def test_what_users_set_in_the_cache_of_a_tuner_is_launched() -> None:
    """Also for calls that were seen before, as they are on a GPU; what they take out is tuned again."""
    x, y, out = arrays(100)
    configs = [triton.Config({"BLOCK": block}) for block in (32, 64)]
    tuned = triton.autotune(configs, key=["n"])(add_kernel)
    blocks: list[int] = []

    def grid(meta: Any) -> tuple[int]:
        blocks.append(meta["BLOCK"])
        return (triton.cdiv(100, meta["BLOCK"]),)

    tuned[grid](x, y, out, 100)
    (key,) = tuned.cache
    changes: list[tuple[Any, int]] = [
        (lambda: tuned.cache.__setitem__(key, configs[1]), 64),
        (lambda: tuned.cache.update({key: configs[0]}), 32),
        (lambda: setattr(tuned, "cache", {key: configs[1]}), 64),
        (lambda: tuned.cache.clear(), 32),
    ]
    for change, block in changes:
        tuned._seen.add((x, y, out, 100), {}, (None, tuned.cache[key]))
        change()
        blocks.clear()
        out[:] = 0
        tuned[grid](x, y, out, 100)
        assert set(blocks) == {block} and np.array_equal(out, x + y)


def test_a_hook_gives_descriptors_their_block() -> None:
    def block(named: dict[str, Any]) -> None:
        named["x"].block_shape = [named["BLOCK"]]

    @triton.autotune([triton.Config({"BLOCK": 32}, pre_hook=block)], key=[])
    @triton.jit
    def kernel(x: Any, out_ptr: Any, BLOCK: tl.constexpr) -> None:
        at = tl.program_id(0) * BLOCK
        tl.store(out_ptr + at + tl.arange(0, BLOCK), x.load([at]) * 2)

    x, _, out = arrays(64)
    described = TensorDescriptor.from_tensor(x, [1])
    kernel[(2,)](described, out)
    assert np.array_equal(out, 2 * x) and described.block_shape == [32]


# ---- the machine


def test_what_the_driver_tells() -> None:
    target = active.get_current_target()
    has_gpu = active.is_active()
    assert (target.backend, target.warp_size) == (("cuda", 32) if has_gpu else ("cpu", 0))
    assert target.arch >= 80 * has_gpu
    about = triton.runtime.driver.active.utils.get_device_properties(0)
    assert about["multiprocessor_count"] > 0 and about["max_shared_mem"] > 48 << 10
    assert triton.runtime.driver.driver.active is active
    assert active.get_device_capability() == divmod(target.arch, 10)


def test_names_that_libraries_catch_and_ask_for() -> None:
    runtime = triton.runtime
    for name in (
        "Heuristics",
        "InterpreterError",
        "KernelInterface",
        "MockTensor",
        "OutOfResources",
    ):
        assert isinstance(getattr(runtime, name), type)
    assert isinstance(add_kernel, triton.KernelInterface)
    assert issubclass(triton.OutOfResources, triton.TritonError)
    assert issubclass(triton.InterpreterError, triton.TritonError)
    assert triton.set_allocator(lambda size, align, stream: None) is None
    assert triton.must_use_result(add_kernel) is add_kernel
    x = np.ones(4, np.float32)
    assert np.array_equal(triton.reinterpret(x, tl.int32), x.view(np.int32))
    mock = triton.MockTensor("float32")
    signature = add_kernel.warmup(mock, mock, mock, 64, BLOCK=64, grid=(1,)).signature
    assert signature == ("*fp32:16", "*fp32:16", "*fp32:16", "i32:16")


# ---- testing


def test_what_a_device_can_do() -> None:
    testing = triton.testing
    assert testing.get_dram_gbps() >= 0
    half, byte = (testing.get_max_tensorcore_tflops(d, 1_755_000) for d in (tl.float16, tl.int8))
    assert 100 < half < 5000 and byte == 2 * half
    assert testing.do_bench_cudagraph(lambda: time.sleep(0.001), rep=4) >= 1.0
    assert isinstance(testing.perf_report([])(print), testing.Mark)


def test_do_bench() -> None:
    calls: list[int] = []

    def fn() -> None:
        calls.append(1)
        time.sleep(0.001)

    tensor = SimpleNamespace(grad=3)
    ms = triton.testing.do_bench(fn, warmup=2, rep=8, grad_to_none=[tensor])
    assert 1.0 <= ms < 50 and tensor.grad is None and len(calls) >= 8
    median, low, high = triton.testing.do_bench(fn, rep=5, quantiles=[0.5, 0.0, 1.0])
    assert low <= median <= high
    times = triton.testing.do_bench(fn, rep=5, return_mode="all")
    assert isinstance(times, list) and all(t >= 1.0 for t in times)
    with pytest.raises(ValueError, match="return_mode is one of mean"):
        triton.testing.do_bench(fn, return_mode="mode")


def test_quantiles_are_interpolated() -> None:
    quantile = triton.testing._quantile
    assert [quantile([1.0, 2.0, 4.0], q) for q in (0, 0.25, 0.5, 0.75, 1)] == [1, 1.5, 2, 3, 4]
    with pytest.raises(ValueError, match=r"in \[0, 1\]"):
        quantile([1.0], 1.5)


def test_assert_close() -> None:
    x = np.array([1.0, 2.0])
    triton.testing.assert_close(x, x + 0.009)
    triton.testing.assert_close(x, x * 1.1, atol=0, rtol=lambda dtype: 0.2)
    with pytest.raises(AssertionError, match="which"):
        triton.testing.assert_close(x, x + 0.011, err_msg="which")
    with pytest.raises(AssertionError):
        triton.testing.assert_close(1.0, float("nan"))


def test_a_table_of_timings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bench = triton.testing.Benchmark(
        x_names=["M", "N"],
        x_vals=[2, (3, 5)],
        line_arg="how",
        line_vals=["sum", "product"],
        line_names=["Sum", "Product"],
        styles=[("blue", "-"), ("green", "--")],
        ylabel="GB/s",
        plot_name="table",
        args={"by": 10},
    )

    @triton.testing.perf_report(bench)
    def benchmark(M: int, N: int, how: str, by: int, more: int = 0) -> Any:
        value = by * (M + N if how == "sum" else M * N) + more
        return value if how == "sum" else (value, value - 1, value + 1)

    assert benchmark.run(print_data=True, save_path=str(tmp_path / "to"), more=1) is None
    assert benchmark.tables == [[[2, 2, 41, 41], [3, 5, 81, 151]]]
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "table:" and lines[1].split() == [
        "M",
        "N",
        "Sum",
        "(GB/s)",
        "Product",
        "(GB/s)",
    ]
    assert (tmp_path / "to" / "table.csv").read_text().splitlines()[2] == "3,5,81,151"
    assert (tmp_path / "to" / "table.png").stat().st_size > 1000


def test_values_of_the_host_answer_as_triton_s() -> None:
    assert tl.int32.is_int() and tl.int32.is_int and not tl.float16.is_int()
    assert tl.pointer_type(tl.float16, 1) == tl.pointer_type(tl.float16)
    assert tl.pointer_type(tl.float16).is_ptr() and not tl.float16.is_ptr()
    assert str(tl.constexpr(3)) == "constexpr[3]" and repr(tl.constexpr("a")) == "constexpr[a]"
    both = tl.constexpr(3).logical_and(tl.constexpr(0))
    assert isinstance(both, tl.constexpr) and both == 0
    assert tl.constexpr(0).logical_or(tl.constexpr(7)) == 7 and tl.constexpr(0).not_() == 1
    assert [triton.next_power_of_2(n) for n in (-1, 0, 1, 5, 8)] == [0, 0, 1, 8, 8]
