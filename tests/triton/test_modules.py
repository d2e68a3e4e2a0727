"""Triton's host modules beside kernels: profiler, cache, numbers of 4 bits, what backends and drivers tell."""

from __future__ import annotations

import importlib
import json
import time
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import warploom.triton as triton
import warploom.triton.language as tl
import warploom.triton.profiler as proton
from tests.eject.owned import owned
from warploom.errors import CompileError
from warploom.runtime.serve import SERVED, Served
from warploom.triton.profiler import viewer
from warploom.triton.runtime import cache
from warploom.triton.runtime.driver import active

# ---- the profiler


def flops(grid: Any, kernel: Any, args: dict[str, Any]) -> dict[str, Any]:
    return {"name": f"double_{args['n']}", "flops32": 1000 * args["n"], "bytes": 8 * args["n"]}


@triton.jit(launch_metadata=flops)
def double(x_ptr: Any, n: Any, BLOCK: tl.constexpr) -> None:
    at = tl.arange(0, BLOCK)
    tl.store(x_ptr + at, 2 * tl.load(x_ptr + at, mask=at < n), mask=at < n)


def below(node: dict[str, Any], *names: str) -> dict[str, Any]:
    for name in names:
        (node,) = (c for c in node["children"] if c["frame"]["name"] == name)
    return node


def test_a_profile_of_scopes_and_launches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    x = np.ones(64, np.float32)
    session = proton.start("found", hook="triton")
    with proton.scope("outer", {"rows": 3}):
        for _ in range(2):
            double[(1,)](x, 64, BLOCK=64)
        with proton.cpu_timed_scope("library", metrics={"flops16": 1e9}):
            time.sleep(0.002)
    proton.deactivate(session)
    double[(1,)](x, 32, BLOCK=64)
    proton.activate()
    proton.enter_scope("flat")
    proton.enter_state("state")
    double[(1,)](x, 32, BLOCK=64)
    proton.exit_state()
    proton.exit_scope()
    proton.finalize(session)
    double[(1,)](x, 64, BLOCK=64)

    root = json.loads((tmp_path / "found.hatchet").read_text())[0]
    kernel = below(root, "outer", "double_64")
    assert kernel["metrics"] | {"time (ns)": 0} == {
        "flops32": 128000, "bytes": 1024, "time (ns)": 0, "count": 2,
    }  # fmt: skip
    assert below(root, "flat", "state", "double_32")["metrics"]["count"] == 1
    assert below(root, "outer")["metrics"] == {"rows": 3}
    library = below(root, "outer", "library")["metrics"]
    assert library["flops16"] == 1e9 and library["cpu_time (ns)"] >= 2e6 <= library["time (ns)"]

    tree, metrics = proton.viewer.parse(
        ["time/ms", "tflop16/s", "gbyte/s", "other"], "found.hatchet"
    )
    assert metrics == ["time/ms", "tflop16/s", "gbyte/s"]
    own = below(tree, "outer", "library")["metrics"]
    viewer.print_tree(tree, metrics)
    lines = capsys.readouterr().out.splitlines()
    row = next(line for line in lines if line.endswith(" library")).split()
    assert row[2] == "-" and float(row[1]) == pytest.approx(1e9 / own["time (ns)"] / 1e3, abs=1e-3)
    assert tree["metrics"]["count"] == 4  # that of a library's scope, too
    few, _ = viewer.parse(["count"], "found.hatchet", include="double_64")
    assert [c["frame"]["name"] for c in few["children"]] == ["outer"]
    few, _ = viewer.parse(["count"], "found.hatchet", exclude="outer", threshold=0.1)
    assert [c["frame"]["name"] for c in few["children"]] == ["flat"]
    with pytest.raises(ValueError, match="there is no metric 'time/years'"):
        viewer.parse(["time/years"], "found.hatchet")


def test_a_profiled_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    @proton.profile(name="run")
    @proton.scope("inside")
    def work() -> int:
        double[(1,)](np.ones(8, np.float32), 8, BLOCK=8)
        return 3

    assert work() == 3
    root = json.loads((tmp_path / "run.hatchet").read_text())[0]
    assert below(root, "inside", "double")["metrics"]["count"] == 1  # without hook="triton"
    proton.finalize(proton.start())
    assert (tmp_path / f"{proton.DEFAULT_PROFILE_NAME}.hatchet").exists()
    with pytest.raises(ValueError, match="hook is one of"):
        proton.start(hook="hip")
    with pytest.raises(ValueError, match="output_format"):
        proton.finalize(output_format="chrome_trace")


# ---- the cache


def test_files_by_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in ("CACHE", "DUMP", "OVERRIDE"):
        monkeypatch.setenv(f"TRITON_{kind}_DIR", str(tmp_path / kind))
    assert cache.default_cache_dir() == str(tmp_path / "CACHE")
    key = cache.make_so_cache_key("1", {"x": "*fp32"}, {}, {})
    found = cache.get_cache_manager(key)
    assert isinstance(found, cache.CacheManager) and found.get_file("a") is None
    paths = {name: found.put(data, name) for name, data in (("a", b"\0"), ("b", "text"))}
    assert Path(paths["a"]).read_bytes() == b"\0" and found.get_file("b") == paths["b"]
    assert found.get_group("both") is None
    found.put_group("both", paths)
    Path(paths["b"]).unlink()
    assert cache.get_cache_manager(key).get_group("both") == {"a": paths["a"]}
    assert cache.get_cache_manager("ff").get_file("a") is None
    cache.get_dump_manager(key).put(b"1", "a")
    assert cache.get_override_manager(key).get_file("a") is None
    made = sorted(p.parts[-3] for p in tmp_path.rglob("a"))
    assert made == ["CACHE", "DUMP"] and len(cache.triton_key()) > 8
    monkeypatch.delenv("TRITON_DUMP_DIR")
    monkeypatch.delenv("TRITON_OVERRIDE_DIR")
    monkeypatch.setenv("TRITON_HOME", str(tmp_path))
    assert cache.default_dump_dir() == str(tmp_path / ".triton" / "dump")
    assert cache.default_override_dir() == str(tmp_path / ".triton" / "override")


class Told(cache.FileCacheManager):
    """A library's own, as it reads the folder and the lock's path of the class above."""

    def put(self, data: Any, filename: str, binary: bool = True) -> str:
        assert self.lock_path and not self.has_file(filename)
        Path(self._make_path(filename)).write_text("own")
        return self._make_path(filename)


def test_a_library_s_own_manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TRITON_CACHE_MANAGER", f"{__name__}:Told")
    assert Path(cache.get_cache_manager("0a").put(b"x", "file")).read_text() == "own"


# ---- numbers of 4 bits, and their scales


def test_four_bit_floats_round_to_the_nearest_even() -> None:
    torch = pytest.importorskip("torch")
    from warploom.triton.tools.mxfp import MXFP4Tensor

    every = MXFP4Tensor(size=16).random()
    every.data = torch.arange(16, dtype=torch.uint8)
    values = every.to(torch.float32)
    assert values[:8].tolist() == [0, 0.5, 1, 1.5, 2, 3, 4, 6] and (values[8:] == -values[:8]).all()
    assert MXFP4Tensor(data=values).data.tolist() == list(range(16))
    middles = torch.tensor(
        [0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 7, 1e9, float("inf"), -0.25, -0.7]
    )
    wanted = [0, 1, 1, 2, 2, 4, 4, 6, 6, 6, 0, -0.5]
    assert MXFP4Tensor(data=middles).to(torch.float32).tolist() == wanted
    rows = MXFP4Tensor(size=(3, 5)).random()
    assert rows.data.max() < 16
    for dim, shape in ((0, (2, 5)), (1, (3, 3))):
        packed = rows.to_packed_tensor(dim)
        assert tuple(packed.shape) == shape
        assert (rows.unpack_packed_tensor(packed, dim, (3, 5)) == rows.data).all()
    assert int(rows.to_packed_tensor(1)[0, 0]) == int(rows.data[0, 0]) + 16 * int(rows.data[0, 1])
    with pytest.raises(ValueError, match="no axis 2"):
        rows.to_packed_tensor(2)
    with pytest.raises(ValueError, match="float32 alone"):
        rows.to(torch.float16)


def test_scales_are_powers_of_two() -> None:
    torch = pytest.importorskip("torch")
    from warploom.triton.tools.mxfp import MXScaleTensor

    given = torch.tensor(
        [1.0, 0.75, 3.0, 2.0**-130, 2.0**127, 0.0, -1.0, float("nan"), float("inf")]
    )
    scales = MXScaleTensor(data=given)
    assert scales.data.tolist() == [127, 126, 128, 0, 254, 255, 255, 255, 255]
    assert scales.to(torch.float32)[:5].tolist() == [1, 0.5, 2, 2.0**-127, 2.0**127]
    assert scales.to(torch.float32)[5:].isnan().all()
    drawn = MXScaleTensor(size=(64,)).random(low=0.5, high=4).to(torch.float32)
    assert set(drawn.tolist()) <= {0.5, 1, 2, 4} and len(set(drawn.tolist())) > 1
    with pytest.raises(ValueError, match="no power of two"):
        MXScaleTensor(size=1).random(low=4, high=1)
    with pytest.raises(ValueError, match="a tensor, or a size"):
        MXScaleTensor()


def test_cublas_by_way_of_torch() -> None:
    torch = pytest.importorskip("torch")
    from warploom.triton._C.libtriton import nvidia

    a, b, c = torch.randn(8, 4), torch.randn(6, 4), torch.ones(8, 6)
    product, d = torch.empty(8, 6), torch.empty(8, 6)
    library = nvidia.cublas.CublasLt(torch.empty(16, dtype=torch.uint8))
    library.matmul(a, b, product)
    torch.testing.assert_close(product, a @ b.T)
    library.gemm(a, b, c, d, 2.0, 3.0)
    torch.testing.assert_close(d, 2 * (a @ b.T) + 3 * c)
    small = [x.to(torch.float8_e4m3fn) for x in (a, b)]
    library.matmul(*small, product)
    torch.testing.assert_close(product, small[0].float() @ small[1].float().T)


# ---- what libraries look at


def test_timing_by_the_profiler_is_timing() -> None:
    assert triton.profiler is proton
    assert triton.testing.do_bench_proton(lambda: time.sleep(1e-4), rep=1) > 0.05
    assert active.get_benchmarker() is triton.testing.do_bench


def test_the_driver_s_smaller_answers() -> None:
    assert active.map_python_to_cpp_type("*fp32") == "CUdeviceptr"
    assert active.map_python_to_cpp_type("i64") == "int64_t"
    assert active.map_python_to_cpp_type("bf16") == "double"
    if not active.is_active():
        assert active.get_current_device() == active.get_current_stream(0) == 0
    assert triton.runtime.driver.set_active(None) is None
    assert triton.runtime.driver.default is active
    torch = pytest.importorskip("torch")
    assert active.get_device_interface() is torch.cuda
    scratch = active.get_empty_cache_for_benchmark()
    assert scratch.device.type == active.get_active_torch_device().type
    active.clear_cache(scratch[:16])
    assert not scratch[:16].any()
    if active.is_active():
        active.set_current_device(active.get_current_device())


def test_errors_and_backends_by_triton_s_names() -> None:
    runtime, compiler = triton.runtime.errors, triton.compiler.errors
    assert issubclass(runtime.PTXASError, runtime.TritonError)
    assert runtime.AutotunerError is triton.runtime.autotuner.AutotunerError
    for name in ("CompileTimeAssertionFailure", "UnsupportedLanguageConstruct"):
        assert getattr(compiler, name) is triton.CompilationError
    (backend,) = triton.backends.backends.values()
    assert isinstance(backend, triton.backends.Backend)
    assert backend.compiler is triton.backends.compiler.CUDABackend
    assert triton.compiler.LazyDict({"a": 1}).get() == {"a": 1}
    assert triton.compiler.compiler.triton_key() == cache.triton_key()
    kernel = double.warmup(np.ones(8, np.float32), 8, BLOCK=8, grid=(1,))
    assert kernel.asm["ptx"] and double.cache_key


def test_knobs_may_be_set() -> None:
    knobs = triton.knobs
    for group in (
        knobs.amd,
        knobs.autotuning,
        knobs.build,
        knobs.compilation,
        knobs.proton,
        knobs.redis,
    ):
        group.anything = 3
        del group.anything
    assert not knobs.nvidia.disable_ptxas_opt and knobs.nvidia.mock_ptx_version is None
    assert isinstance(knobs.runtime.launch_enter_hook, knobs.HookChain)


def test_names_of_the_language_s_files() -> None:
    cuda = tl.extra.cuda
    for name in ("gdc", "utils"):
        assert importlib.import_module(f"warploom.triton.language.extra.cuda.{name}") is cuda
    core = tl.core
    assert core.CONSTEXPR_0 == 0 and core.get_int_dtype(16, True) is tl.int16

    @core.builtin
    def three() -> Any:
        return tl.full((4,), 3, tl.int32)

    @triton.jit
    def kernel(out_ptr: Any) -> None:
        tl.store(out_ptr + tl.arange(0, 4), three())

    out = np.zeros(4, np.int32)
    kernel[(1,)](out)
    assert out.tolist() == [3] * 4


@tl.core.extern
def approximate(x: Any, name: tl.core.constexpr, _semantic: Any = None) -> Any:
    if name not in ("ex2", "lg2"):
        raise ValueError(f"no {name}")
    asm: tl.constexpr = f"{name}.approx.f32 $0, $1;"
    return tl.core.inline_asm_elementwise(
        asm, "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1, _semantic=_semantic
    )


@tl.core.builtin
def there_and_back(x: Any, *, _semantic: Any) -> Any:
    """As Triton's own builtins are written: they hand on what builds their ops."""
    y = approximate(x.to(tl.core.float32, _semantic=_semantic), "lg2", _semantic=_semantic)
    return approximate(y, "ex2", _semantic=_semantic).to(x.dtype, _semantic=_semantic)


def test_functions_written_as_triton_s_builtins_are() -> None:
    @triton.jit
    def kernel(x_ptr: Any, y_ptr: Any) -> None:
        at = tl.arange(0, 8)
        tl.store(y_ptr + at, there_and_back(tl.load(x_ptr + at)))

    x, y = (2.0 ** np.arange(8)).astype(np.float16), np.zeros(8, np.float16)
    kernel[(1,)](x, y)
    assert np.array_equal(x, y)
    assert kernel.compile_for(x, y, grid=(1,)).cubin

    @triton.jit
    def unknown(x_ptr: Any) -> None:
        tl.store(x_ptr, approximate(tl.load(x_ptr), "sin"))

    with pytest.raises(CompileError, match="raise") as e:
        unknown[(1,)](np.zeros(1, np.float32))
    assert "raise ValueError" in Path(__file__).read_text().splitlines()[e.value.loc.line - 1]


def test_scopes_in_kernels_change_nothing() -> None:
    pl = proton.language
    pl.enable_semantic("triton")
    pl.disable_semantic("triton")

    @triton.jit
    def kernel(x_ptr: Any) -> None:
        pl.enter_scope("all")
        with pl.scope("load"):
            x = tl.load(x_ptr)
            with tl.async_task([0]), pl.scope("more"):
                x += 1
        tl.store(x_ptr, x)
        pl.exit_scope("all")

    x = np.ones(1, np.float32)
    kernel[(1,)](x)
    assert x[0] == 2


def test_an_absent_module_says_why() -> None:
    names = (
        "runtime.build",
        "compiler.code_generator",
        "backends.driver",
        "experimental",
    )
    whys = ("cuda-core", "compiled.ir", "triton.runtime.driver", "docs/explicit.md")
    for name, why in zip(names, whys, strict=True):
        module = type(triton)(f"triton.{name}")
        assert SERVED["triton"] == "warploom.triton"
        with pytest.raises(ModuleNotFoundError, match=why) as e:
            Served().exec_module(module)
        assert f"'triton.{name}'" in str(e.value)


def test_a_missing_name_in_a_kernel_says_what_to_write() -> None:
    @triton.jit
    def kernel(out_ptr: Any) -> None:
        tl.store(out_ptr, tl.str_to_ty)

    with pytest.raises(CompileError, match="str_to_ty") as e:
        kernel[(1,)](np.zeros(1, np.float32))
    assert "not made by hand" in str(e.value.help)


# ---- the machine, in kernels


@triton.jit
def machine(out_ptr: Any) -> None:
    tl.store(out_ptr, tl.extra.cuda.num_warps())
    tl.store(out_ptr + 1, tl.extra.cuda.num_threads())
    tl.store(out_ptr + 2, tl.extra.cuda.smid())
    zeros = tl.zeros((tl.extra.cuda.num_threads(),), tl.int32)  # known while compiling
    tl.store(out_ptr + 3, tl.sum(zeros, 0) + zeros.shape[0])


@pytest.mark.parametrize("warps", [2, 8])
def test_what_a_program_knows_of_the_machine(warps: int) -> None:
    for simulated in (False, True):
        out = np.full(4, -1, np.int32)
        compiled = machine.compile_for(out, grid=(1,), num_warps=warps)
        if simulated:
            compiled.simulate(out, grid=(1,))
        else:
            machine[(1,)](out, num_warps=warps)
        assert out.tolist() == [warps, 32 * warps, 0, 32 * warps]
    assert compiled.cubin and "%%smid" in compiled.cuda


def test_an_approximate_reciprocal() -> None:
    @triton.jit
    def kernel(x_ptr: Any, y_ptr: Any) -> None:
        at = tl.arange(0, 8)
        tl.store(y_ptr + at, tl.extra.libdevice.rcp64h(tl.load(x_ptr + at)))

    x, y = np.linspace(0.1, 70, 8), np.zeros(8)
    assert kernel.compile_for(x, y, grid=(1,)).cubin
    kernel[(1,)](x, y)
    np.testing.assert_allclose(y, 1 / x, rtol=2e-6)
    assert not (y.view(np.int64) & 0xFFFFFFFF).any()


@triton.jit
def timed_product(
    a_ptr: Any, b_ptr: Any, c_ptr: Any, t_ptr: Any, K: Any, deadline: Any, M: tl.constexpr
) -> None:
    start = tl.extra.cuda.globaltimer()
    i, k = tl.arange(0, M), tl.arange(0, 64)
    acc = tl.zeros((M, M), tl.float32)
    for at in range(0, K, 64):
        a = tl.load(a_ptr + i[:, None] * K + (at + k)[None, :])
        b = tl.load(b_ptr + i[None, :] * K + (at + k)[:, None])
        acc = tl.dot(a, b, acc)
        tl.store(t_ptr + 2 + at // 64, tl.extra.cuda.globaltimer())
    waited = tl.extra.cuda.globaltimer()
    while waited < start + deadline:
        waited = tl.extra.cuda.globaltimer()
    tl.store(c_ptr + i[:, None] * M + i[None, :], acc)
    tl.store(t_ptr, start)
    tl.store(t_ptr + 1, waited)


@pytest.mark.parametrize("knobs", [{"num_consumer_groups": 2}, {"num_consumer_groups": 0}])
@pytest.mark.each(2)
def test_the_clock_is_read_where_it_stands_and_all_threads_agree(
    knobs: dict[str, int], tmp_path: Path
) -> None:
    random = np.random.default_rng(3)
    a, b = (random.standard_normal((128, 192)).astype(ml_dtypes.bfloat16) for _ in range(2))
    c, t = np.zeros((128, 128), np.float32), np.zeros(5, np.int64)
    given = (a, b, c, t, 192, 1000)
    compiled = timed_product.compile_for(*given, grid=(1,), M=128, **knobs)
    assert compiled.cubin
    assert compiled.cuda.count("= globaltimer();") == 4  # none merged, none twice
    placed = compiled.ir["PLACED"]
    by_one = [line for line in placed.splitlines() if "globaltimer" in line]
    assert len(by_one) == placed.count("shared_put(") == 4, "each is read by one thread"

    def run(launch: Any) -> None:
        c[:], t[:] = 0, 0
        launch()
        times = [int(t[0]), *map(int, t[2:]), int(t[1])]
        assert times == sorted(times) and len(set(times)) == 5
        assert times[-1] - times[0] >= 1000
        exact = a.astype(float) @ b.astype(float).T
        np.testing.assert_allclose(c, exact, atol=1e-3)

    run(lambda: timed_product[(1,)](*given, M=128))
    run(lambda: compiled.simulate(*given, grid=(1,), seed=1))
    with pytest.raises(CompileError, match="the same number for all CTAs"):
        timed_product.compile_for(*given, grid=(1,), M=128, num_ctas=2)
    script, _ = owned(compiled.eject(), tmp_path, (1,))
    run(lambda: script(*given))


@triton.jit
def waiting(out_ptr: Any, n: Any) -> None:
    end, turns = tl.extra.cuda.globaltimer() + n, 0
    while tl.extra.cuda.globaltimer() < end:
        turns += 1
    tl.store(out_ptr, turns)


def test_nothing_is_proved_of_how_long_the_clock_takes() -> None:
    report = waiting.compile_for(np.zeros(1, np.int64), 1000, grid=(1,)).check()
    assert not report.ok and "depends on an argument and the clock" in str(report)


def test_how_small_operands_of_a_product_may_be() -> None:
    from warploom.triton.backends import nvidia

    least = nvidia.compiler.min_dot_size(active.get_current_target())
    assert least(tl.float16, tl.bfloat16) == (1, 1, 16)
    assert least(tl.float8e5, tl.float8e4nv) == (1, 1, 32)


def test_formats_of_other_chips_have_names() -> None:
    @triton.jit
    def kernel(y_ptr: Any, IS_OTHER: tl.constexpr, OTHER: tl.constexpr) -> None:
        dtype = tl.float8e5b16 if IS_OTHER else tl.float8e5
        y = tl.full((4,), 1.5, dtype)
        tl.static_assert(y.dtype != OTHER and OTHER.is_fp8e4b8() and OTHER.name == "fp8e4b8")
        tl.store(y_ptr + tl.arange(0, 4), y)

    y = np.zeros(4, np.float32)
    kernel[(1,)](y, False, tl.float8e4b8)
    assert (y == 1.5).all() and tl.dtype("fp8e5b16") is tl.float8e5b16
    with pytest.raises(CompileError, match="a format of other chips"):
        kernel[(1,)](y, True, tl.float8e4b8)


def test_dtypes_by_name() -> None:
    assert tl.dtype("fp16") is tl.float16 and tl.dtype("int1") is tl.int1
    assert isinstance(tl.bfloat16, tl.dtype) and not isinstance(3, tl.dtype)
    assert tl.pointer_type(tl.dtype("fp8e5")).element_ty is tl.float8e5
    with pytest.raises(ValueError, match="no dtype 'f16': there are"):
        tl.dtype("f16")


def test_knobs_within_a_scope() -> None:
    from warploom.triton import knobs

    seen: list[Any] = []
    with knobs.runtime.scope(), knobs.compilation.scope():
        knobs.runtime.launch_enter_hook = seen.append
        knobs.compilation.disable_line_info = knobs.runtime.debug = True
        assert list(knobs.runtime.launch_enter_hook) == [seen.append]
    assert not list(knobs.runtime.launch_enter_hook) and not knobs.runtime.debug
    assert not knobs.compilation.disable_line_info and knobs.nvidia.ptxas_options is None
