"""What PyTorch's Inductor asks of a Triton: here without PyTorch, as its launchers and workers do it."""

from __future__ import annotations

import pickle
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import warploom.triton as triton
import warploom.triton.language as tl
from warploom.runtime.compiled import compile_request
from warploom.runtime.hooks import AROUND_COMPILE, ENTER
from warploom.runtime.variants import for_foreign
from warploom.triton.compiler import ASTSource, CompiledKernel, make_backend
from warploom.triton.report import Report

H100 = triton.backends.compiler.GPUTarget("cuda", 90, 32)
OPTIONS = {"num_warps": 4, "num_stages": 1, "debug": True, "launch_pdl": False}
KERNEL = """
import warploom.triton as triton
import warploom.triton.language as tl

@triton.jit
def scale(in_ptr0, out_ptr0, xnumel, XBLOCK: tl.constexpr):
    x = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)
    tl.device_assert((x < xnumel) | (x >= xnumel), "index")
    tl.store(out_ptr0 + x, tl.load(in_ptr0 + x, x < xnumel) * 2, x < xnumel)
"""


@pytest.fixture
def scale(tmp_path: Path) -> Any:
    """A kernel whose module nobody can import by its name, as those that Inductor writes."""
    path = tmp_path / "kernel.py"
    path.write_text(KERNEL)
    space: dict[str, Any] = {"__name__": "written_by_inductor", "__file__": str(path)}
    exec(compile(KERNEL, str(path), "exec"), space)
    return space["scale"]


def compiled(kernel: Any) -> CompiledKernel:
    signature = {"in_ptr0": "*fp32", "out_ptr0": "*fp32", "xnumel": "i32", "XBLOCK": "constexpr"}
    attrs = {(0,): [["tt.divisibility", 16]], (1,): [["tt.divisibility", 16]]}
    source = ASTSource(kernel, signature, {"XBLOCK": 64}, attrs)
    return triton.compile(source, target=H100, options=OPTIONS)


def launch(kernel: Any, *args: Any) -> None:
    kernel._init_handles()
    kernel.run(2, 1, 1, 0, kernel.function, kernel.packed_metadata, None, None, None, *args)


def doubled(kernel: Any) -> bool:
    x = np.arange(100, dtype=np.float32)
    out = np.zeros_like(x)
    launch(kernel, x, out, 100, 64)
    return bool((out == 2 * x).all())


def test_a_compiled_kernel_launches_as_inductor_launches_it(scale: Any) -> None:
    kernel = compiled(scale)
    assert doubled(kernel)
    assert isinstance(kernel, triton.compiler.CompiledKernel) and not hasattr(kernel, "shared")
    assert (kernel.metadata.num_warps, kernel.metadata.num_ctas) == (2, 1)  # of four asked
    assert kernel.metadata.shared == 0 and kernel.n_spills == 0 and kernel.n_regs <= 64
    assert kernel.src.fn.constexprs == [3] and kernel.launch_metadata((1, 1, 1), 0) is None
    assert bytes.fromhex(kernel.hash) and "ptx" in kernel.asm


def test_hooks_are_told_of_launches_by_either_road(scale: Any) -> None:
    kernel, told = compiled(scale), []
    x = np.arange(100, dtype=np.float32)
    hook: Any = told.append
    ENTER.add(hook)
    try:
        launch(kernel, x, np.zeros_like(x), 100, 64)
        kernel[(2,)](x, np.zeros_like(x), 100)
    finally:
        ENTER.remove(hook)
    kernel[(2,)](x, np.zeros_like(x), 100)
    assert [data.get()["name"] for data in told] == ["scale", "scale"]


def test_device_asserts_run_and_nothing_else_is_a_debug_build(scale: Any) -> None:
    kernel = compiled(scale)
    assert kernel.request.knobs.debug == "asserts"
    text = triton.compile(ASTSource(scale, kernel.src.signature, {"XBLOCK": 64}), H100).cuda
    assert "__trap" in kernel.cuda and "__trap" not in text
    eight = triton.compile(ASTSource(scale, kernel.src.signature, {"XBLOCK": 1024}), H100, OPTIONS)
    assert eight.cuda.count("__trap") == 1, "one branch, whatever elements a thread has"
    assert " || " in eight.cuda and "(bool)" not in eight.cuda  # of predicates no bytes


def taken(kernel: Any) -> list[int]:
    """The arguments that a kernel's parameters are, in order."""
    return [p.arg for p in kernel.plan.params]


def decided(kernel: Any) -> bool:
    """Whether arguments decide which variant a launch takes."""
    p = kernel.plan
    return bool(p.disjoint or p.nonnegative or p.positive or p.spaced or p.short or p.one_array)


def test_a_cubin_is_given_away_with_all_arguments_in_order() -> None:
    """Used or not, and for whatever arrays come: who asks for it launches it himself."""
    aligned = {(i,): [["tt.divisibility", 16]] for i in range(2)}
    names = dict.fromkeys(("x_ptr", "o_ptr"), "*bf16") | dict.fromkeys(("n", "BLOCK"), "constexpr")
    source = ASTSource(normalized, names, {"n": 16384, "BLOCK": 2048}, aligned)
    ahead = triton.compile(source, H100, {"num_warps": 16})
    unused = triton.compile(ASTSource(first_of_two, {"x_ptr": "*i32", "y_ptr": "*i32"}), H100)
    assert ahead.plan.disjoint and taken(unused) == [1]
    for kernel in ahead, unused:
        other = compile_request(for_foreign(kernel.compiled.request))
        assert kernel.asm["cubin"] == other.cubin != kernel.compiled.cubin
        assert taken(other) == [0, 1] and not decided(other) and other.name == kernel.name
        assert other.plan.threads == 32 * kernel.metadata.num_warps
        assert other.plan.shared_bytes <= kernel.metadata.shared


def test_a_cubin_that_takes_more_than_is_said_is_refused() -> None:
    """Tasks have other warps than the uniform variant; descriptors are made for a launch."""
    tiles = triton.compile(
        ASTSource(product, PRODUCT, {"N": 4096}), H100, {"num_consumer_groups": 2}
    )
    boxes = {"x": "tensordesc<fp16[64, 64]>", "out": "tensordesc<fp16[64, 64]>"}
    for kernel in tiles, triton.compile(ASTSource(copied, boxes), H100):
        assert kernel.asm["cuda"] and kernel.compiled.cubin
        with pytest.raises(triton.CompilationError, match="can't be launched by others"):
            kernel.asm["cubin"]


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Inductor's settings, as they are while it compiles for C++."""
    config = SimpleNamespace(triton=SimpleNamespace(store_cubin=True))
    monkeypatch.setitem(sys.modules, "torch._inductor.config", config)
    return config


def test_what_inductor_keeps_is_timed_as_it_is_kept(kept: Any) -> None:
    """Its cubin is that of the kernel that it launches, with the warps that it was asked for."""
    kernel = triton.compile(ASTSource(product, PRODUCT, {"N": 4096}), H100, {"num_warps": 8})
    assert kernel.asm["cubin"] == kernel.compiled.cubin and taken(kernel) == [0, 1, 2]
    assert not decided(kernel) and kernel.metadata.num_warps == 8
    assert kernel.metadata.shared == kernel.plan.shared_bytes


def test_what_a_worker_compiled_is_compiled_again_to_be_kept(scale: Any, kept: Any) -> None:
    kept.triton.store_cubin = False
    again = CompiledKernel.__new__(CompiledKernel)
    again.__dict__.update(pickle.loads(pickle.dumps(compiled(scale).__dict__)))
    kept.triton.store_cubin = True
    assert doubled(again) and again.foreign and again.metadata.hash == again.compiled.hash


def test_a_kernel_for_others_takes_arrays_that_overlap(kept: Any) -> None:
    aligned = {(i,): [["tt.divisibility", 16]] for i in range(2)}
    names = dict.fromkeys(("x_ptr", "o_ptr"), "*bf16") | dict.fromkeys(("n", "BLOCK"), "constexpr")
    source = ASTSource(normalized, names, {"n": 4096, "BLOCK": 512}, aligned)
    kernel = triton.compile(source, H100, {"num_warps": 4})
    x = np.random.default_rng(0).integers(-4, 5, (2, 4096)).astype(ml_dtypes.bfloat16)
    expected = (x - x.astype(np.float32).mean(1, keepdims=True)).astype(x.dtype)
    kernel.compiled.simulate(x, x, grid=(2,), seed=1)
    assert (x == expected).all()


@triton.jit
def first_of_two(x_ptr: Any, y_ptr: Any) -> None:
    tl.store(y_ptr, 1)


PRODUCT = {**dict.fromkeys(("a_ptr", "b_ptr", "c_ptr"), "*bf16:16"), "N": "constexpr"}


@triton.jit
def product(a_ptr: Any, b_ptr: Any, c_ptr: Any, N: tl.constexpr) -> None:
    m, n = tl.program_id(0) * 128 + tl.arange(0, 128), tl.program_id(1) * 128 + tl.arange(0, 128)
    acc = tl.zeros((128, 128), dtype=tl.float32)
    for k in range(0, N, 64):
        at = k + tl.arange(0, 64)
        a = tl.load(a_ptr + m[:, None] * N + at[None, :])
        b = tl.load(b_ptr + at[:, None] * N + n[None, :])
        acc += tl.dot(a, b)
    tl.store(c_ptr + m[:, None] * N + n[None, :], acc.to(tl.bfloat16))


@triton.jit
def copied(x: Any, out: Any) -> None:
    at = [tl.program_id(0) * 64, tl.program_id(1) * 64]
    out.store(at, x.load(at) + 1)


def test_descriptors_by_triton_s_signature() -> None:
    """Inductor says what a user's kernel takes: a block's shape, nothing of the array."""
    boxes = {"x": "tensordesc<fp16[64, 64]>", "out": "tensordesc<fp16[64, 64]>"}
    kernel = triton.compile(ASTSource(copied, boxes), H100)
    x = np.arange(128 * 128).reshape(128, 128).astype(np.float16) % 100
    out = np.zeros_like(x)
    make = triton.tools.tensor_descriptor.TensorDescriptor.from_tensor
    kernel._init_handles()
    kernel.run(2, 2, 1, 0, None, None, None, None, None, *(make(t, [64, 64]) for t in (x, out)))
    assert (out == x + 1).all()


@triton.jit
def written_by_turns(x_ptr: Any, y_ptr: Any, z_ptr: Any, n: Any, BLOCK: tl.constexpr) -> None:
    at = tl.arange(0, BLOCK)
    for _ in range(n):
        tl.atomic_add(y_ptr + at, tl.load(x_ptr + at))
        if n > 7:
            tl.store(z_ptr + at, 1)


def accesses_of(kernel: Any, signature: dict[str, str], given: dict[str, Any]) -> list[Any]:
    """(op, the function's parameter), as PyTorch finds them by MLIR's bindings."""
    backend = make_backend(H100)
    context = triton._C.libtriton.ir.context()
    triton._C.libtriton.ir.load_dialects(context)
    backend.load_dialects(context)
    source = ASTSource(kernel, signature, given, {})
    module = source.make_ir(
        H100, backend.parse_options({}), backend.get_codegen_implementation(None), {}, context
    )
    assert module.verify() and kernel.__name__ in str(module)
    found: list[Any] = []
    names: list[str] = []

    def visit(op: Any) -> None:
        if op.get_num_operands():
            block = op.get_block()
            params = [block.get_argument(i).id() for i in range(block.get_num_arguments())]
            at = op.get_operand(0).id()
            found.append((op.get_name(), params.index(at) if at in params else None))
            assert op.get_num_results() == (op.get_name() != "tt.store")
        elif op.get_num_regions():
            names.append(op.get_str_attr("sym_name"))
            assert op.get_region(0).id() == block_of[0].get_parent().id() and op.get_block() is None
        else:
            block_of.append(op.get_block())

    block_of: list[Any] = []
    module.walk(visit)
    assert names == [kernel.__name__]
    return found


def test_what_a_kernel_writes_is_known_to_torch() -> None:
    """Whatever its numbers are: PyTorch gives 2 for all that it doesn't know."""
    types = {"x_ptr": "*fp32", "y_ptr": "*fp32", "z_ptr": "*i32", "n": "i32", "BLOCK": "constexpr"}
    expected = [("tt.load", 0), ("tt.atomic_rmw", 1), ("tt.store", 2)]
    assert accesses_of(written_by_turns, types, {"n": 2, "BLOCK": 16}) == expected
    assert accesses_of(written_by_turns, types, {"BLOCK": 16}) == expected
    boxes = dict.fromkeys(("x", "out"), "desc<fp16,[64,64],(8)>:16")
    assert accesses_of(copied, boxes, {}) == [("tt.load", 0), ("tt.store", 5)]


@triton.jit
def through_an_address(x_ptr: Any, y_ptr: Any) -> None:
    there = tl.load(y_ptr).to(tl.pointer_type(tl.float32))
    tl.store(there, 1.0)


def test_what_is_written_at_an_address_from_memory_may_be_any_array() -> None:
    types = {"x_ptr": "*fp32", "y_ptr": "*i64"}
    found = accesses_of(through_an_address, types, {})
    assert found == [("tt.load", 1), ("tt.store", 0), ("tt.store", 1)]


def test_torch_asks_for_an_argument_s_type() -> None:
    jit, x = triton.runtime.jit, np.zeros((64, 64), np.float16)
    box = triton.tools.tensor_descriptor.TensorDescriptor.from_tensor(x, [32, 16])
    assert [jit.mangle_type(a) for a in (x, 2, 2.0, None)] == ["*fp16", "i32", "fp32", "constexpr"]
    assert jit.mangle_type(box).startswith("desc<fp16,[32,16")
    for arg in x, 48:
        assert jit.native_specialize_impl(None, arg, False, True, True) == (
            jit.mangle_type(arg),
            None,
        )
    param = written_by_turns.params[4]
    assert param.is_constexpr and not (param.is_const or param.do_not_specialize)


def test_paths_of_items() -> None:
    from warploom.triton._utils import find_paths_if, get_iterable_path

    items = [None, "D", ("x", [3, "D"])]
    paths = find_paths_if(items, lambda path, x: isinstance(x, str))
    assert paths == [(1,), (2, 0), (2, 1, 1)]
    assert [get_iterable_path(items, p) for p in paths] == ["D", "x", "D"]


@triton.constexpr_function
def half(n: Any) -> Any:
    return n // 2


def test_torch_copies_the_text_of_what_runs_while_compiling() -> None:
    assert isinstance(half, triton.runtime.jit.ConstexprFunction) and half(9) == 4
    assert half.src == "def half(n: Any) -> Any:\n    return n // 2\n" and half.fn(9) == 4
    assert not isinstance(tl, triton.runtime.jit.ConstexprFunction)


def test_torch_reads_how_a_kernel_is_tuned() -> None:
    tuned = triton.autotune([triton.Config({})], key=[], use_cuda_graph=True)(first_of_two)
    assert (tuned.use_cuda_graph, tuned.configs_top_k, tuned.num_warmups) == (True, 1.0, None)
    given = {"perf_model": None, "early_config_prune": None, "configs_top_k": 1.0}
    assert triton.autotune([triton.Config({})], [], given)(first_of_two).perf_model is None


def test_a_kernel_comes_out_of_another_process(scale: Any) -> None:
    """Pickled without what it was compiled to, as Inductor's workers pickle `__dict__`."""
    kernel = compiled(scale)
    state = {**kernel.__dict__, "run": None, "function": None, "module": None}
    again = CompiledKernel.__new__(CompiledKernel)
    again.__dict__.update(pickle.loads(pickle.dumps(state)))
    assert again.src.fn.fn is None and again.src.fn.arg_names == scale.arg_names
    assert (again.n_regs, again.hash) == (kernel.n_regs, kernel.hash)
    assert doubled(again)


def test_a_kernel_whose_file_is_gone_is_refused(scale: Any) -> None:
    kernel = compiled(scale)
    again = pickle.loads(pickle.dumps(kernel.src.fn))
    Path(scale.fn.__code__.co_filename).unlink()
    with pytest.raises(triton.OutOfResources, match="its file can't be read"):
        again.live()


def test_arguments_that_a_kernel_is_not_made_for_are_refused(scale: Any) -> None:
    kernel = compiled(scale)
    x = np.zeros(101, np.float32)
    with pytest.raises(triton.OutOfResources, match="no multiple of 16 bytes"):
        launch(kernel, x[1:], x, 100, 64)


def test_who_compiles_is_told_of(scale: Any) -> None:
    met: list[str] = []

    def around(source: ASTSource, compile: Any) -> Any:
        met.append(source.name)
        return compile()

    AROUND_COMPILE.append(around)
    try:
        compiled(scale)
    finally:
        AROUND_COMPILE.remove(around)
    assert met == ["scale"]


def test_a_refusal_is_reported_though_nothing_is_launched(scale: Any) -> None:
    report = Report()
    report.start()
    try:
        source = ASTSource(
            scale, {"in_ptr0": "*fp32", "out_ptr0": "i32", "xnumel": "i32"}, {"XBLOCK": 64}
        )
        with pytest.raises(triton.CompilationError):
            triton.compile(source, target=H100)
    finally:
        report.stop()
    assert list(report.lines())[-1] == "1 kernels met, 1 refused each time; 0 launches, 1 refused"


def test_the_backend_is_found_by_its_target() -> None:
    (backend,) = triton.backends.backends.values()
    assert backend.compiler is type(make_backend(H100))
    assert isinstance(triton.runtime.driver.active, backend.driver)
    assert isinstance(make_backend(H100), triton.backends.BaseBackend)
    options = make_backend(H100).parse_options({"num_warps": 8})
    assert options.num_warps == 8 and "fp8e4nv" in options.supported_fp8_dtypes
    assert (
        make_backend(H100).hash() != make_backend(triton.backends.GPUTarget("cuda", 80, 32)).hash()
    )
    cpu = triton.backends.GPUTarget("cpu", "", 32)  # type: ignore[arg-type]  # as Inductor says it
    assert triton.backends.target_for(cpu) is triton.backends.target_for(H100)
    with pytest.raises(RuntimeError, match="no kernel can be compiled"):
        make_backend(triton.backends.GPUTarget("hip", 90, 64))


def test_libraries_derive_their_own_tuners() -> None:
    class Tuner(triton.KernelInterface):
        def run(self, *args: Any, grid: Any, warmup: bool) -> Any:
            return args, grid, warmup

    assert Tuner()[(3,)](1) == ((1,), (3,), False)
    assert Tuner().warmup(1, grid=(3,)) == ((1,), (3,), True)
    assert isinstance(triton.jit(lambda_kernel), triton.KernelInterface)


def lambda_kernel(x_ptr: Any) -> None:
    tl.store(x_ptr, 1)


@triton.jit
def plus(a: Any, b: Any) -> Any:
    return a + b


@triton.jit
def largest_of_both(a: Any, b: Any) -> Any:
    return tl.where(a > b, a, b)


@triton.jit
def tuples_of_one(x_ptr: Any, sums_ptr: Any, out_ptr: Any, N: tl.constexpr) -> None:
    at = tl.arange(0, N)
    x = tl.load(x_ptr + at)
    (sums,) = tl.associative_scan((x,), 0, plus)
    (so_far,) = tl.associative_scan((x,), 0, largest_of_both)
    (total,) = tl.reduce((x,), 0, plus)
    (largest,) = tl.reduce((x,), 0, largest_of_both)
    tl.store(sums_ptr + at, sums + so_far)
    tl.store(out_ptr, total)
    tl.store(out_ptr + 1, largest)


def test_scans_and_reductions_of_a_tuple_of_one_give_one() -> None:
    x = np.arange(8, dtype=np.float32)[::-1].copy()
    sums, out = np.zeros_like(x), np.zeros(2, np.float32)
    tuples_of_one[(1,)](x, sums, out, 8)
    assert (sums == np.cumsum(x) + 7).all() and (out == [28, 7]).all()


def next_power(n: Any) -> Any:
    return tl.constexpr(triton.next_power_of_2(n.value))


def only_with(mask: Any, value: Any) -> Any:
    return tl.constexpr(None) if isinstance(mask, tl.constexpr) and mask.value is None else value


next_power.__triton_builtin__ = only_with.__triton_builtin__ = True  # type: ignore[attr-defined]


@triton.jit
def calls_builtins_of_others(x_ptr: Any, N: tl.constexpr) -> None:
    BLOCK: tl.constexpr = next_power(N)
    at = tl.arange(0, BLOCK)
    mask = at < N
    kind: tl.constexpr = tl.core._unwrap_if_constexpr(tl.float32)
    x = tl.load(x_ptr + at, mask, other=only_with(mask, 3.0))
    tl.store(x_ptr + at, x + tl.sum(x).to(kind), at < N + 1)


def test_functions_that_another_library_marks_as_builtins() -> None:
    x = np.ones(8, np.float32)
    calls_builtins_of_others[(1,)](x, 5)
    assert (x == [15, 15, 15, 15, 15, 17, 1, 1]).all()


@triton.jit
def partial_sums(x_ptr: Any, ws_ptr: Any, n: Any, BLOCK: tl.constexpr) -> None:
    """As a reduction that several programs share: through a workspace of bytes, behind a barrier of the grid."""
    total = tl.full([BLOCK], 0.0, tl.float32)
    for at in tl.range(0, n, BLOCK):
        total += tl.load(x_ptr + at + tl.arange(0, BLOCK))
    sums = (ws_ptr + 128).to(tl.pointer_type(tl.float32))
    flags = ws_ptr.to(tl.pointer_type(tl.uint32))
    tl.store(sums + tl.program_id(0), tl.sum(total, 0))
    tl.debug_barrier()
    tl.atomic_add(flags, 1, sem="release")
    while tl.atomic_add(flags, 0, sem="acquire") != tl.num_programs(0):
        pass


def test_a_workspace_of_bytes_is_an_array_of_its_own() -> None:
    """Its address goes through a number: loads of other arrays need no barrier all the same, and who waits
    for the others only reads."""
    signature = {"x_ptr": "*fp32:16", "ws_ptr": "*u8:16", "n": "i32"}
    made = partial_sums.compile(signature, {"BLOCK": 512})
    loop = made.cuda.partition("for (int at")[2].partition("\n    }\n")[0]
    assert "load_global" in loop and "__syncthreads" not in loop
    assert made.cuda.count("atomicAdd(") == made.cuda.count("  fence_gpu();") == 1
    assert "= (u32)load_acquire32(" in made.cuda


@triton.jit
def looked_back(x_ptr: Any, ws_ptr: Any) -> None:
    """As a split scan waits for the program before it."""
    flag = tl.full([], 0, tl.int32)
    while flag == 0:
        flag = tl.atomic_add(ws_ptr + tl.program_id(0), 0, sem="relaxed")
    tl.store(x_ptr + tl.program_id(0), flag)


def test_who_waits_reads_in_the_scope_of_the_gpu() -> None:
    """A volatile load is one of the whole system."""
    made = looked_back.compile({"x_ptr": "*i32", "ws_ptr": "*i32"})
    assert "load_relaxed32(" in made.cuda and "volatile*" not in made.cuda


@triton.jit
def normalized(x_ptr: Any, o_ptr: Any, n: tl.constexpr, BLOCK: tl.constexpr) -> None:
    """As the rows of a layer norm that are read twice."""
    x_ptr, o_ptr = x_ptr + tl.program_id(0) * n, o_ptr + tl.program_id(0) * n
    total = tl.full([BLOCK], 0.0, tl.float32)
    for at in tl.range(0, n, BLOCK):
        total += tl.load(x_ptr + at + tl.arange(0, BLOCK)).to(tl.float32)
    mean = tl.sum(total, 0) / n
    for at in tl.range(0, n, BLOCK):
        x = tl.load(x_ptr + at + tl.arange(0, BLOCK)).to(tl.float32)
        tl.store(o_ptr + at + tl.arange(0, BLOCK), x - mean)


def test_loads_are_on_their_way_though_a_launch_says_one_stage() -> None:
    """Inductor's reductions do.  What only adds up is unrolled; what stores loads an iteration ahead, and
    is written out."""
    signature = {"x_ptr": "*bf16:16", "o_ptr": "*bf16:16"}
    made = normalized.compile(signature, {"n": 16384, "BLOCK": 2048}, num_warps=16, num_stages=1)
    assert len(re.findall(r"#pragma unroll 8\n(?: *//.*\n)? *for \(int at = 0;", made.cuda)) == 2
    assert made.schedule.pipelines and made.plan.disjoint
    x = np.random.default_rng(0).integers(-4, 5, (2, 16384)).astype(ml_dtypes.bfloat16)
    out = np.zeros_like(x)
    normalized[(2,)](x, out, 16384, BLOCK=2048)
    assert (out == (x - x.astype(np.float32).mean(1, keepdims=True)).astype(out.dtype)).all()


@triton.jit
def neighbours(x: Any, span: tl.constexpr) -> Any:
    """Of each element of a row of 128 the pair that it is in, those that lie so far apart: as Inductor's sorts
    find them, by sums in which a factor is 0."""
    pairs: tl.constexpr = [x.numel // (2 * span), 2, span]
    parts = tl.reshape(x, pairs)
    second = tl.arange(0, 2)[None, :, None].to(x.dtype)
    low = tl.broadcast_to(tl.sum(parts * (1 - second), 1).to(x.dtype)[:, None, :], pairs)
    high = tl.broadcast_to(tl.sum(parts * second, 1).to(x.dtype)[:, None, :], pairs)
    return tl.reshape(low, x.shape), tl.reshape(high, x.shape)


@triton.jit
def sorted_by_sums(x_ptr: Any, o_ptr: Any, places_ptr: Any, ROWS: tl.constexpr) -> None:
    """Odd-even merges of each row of 128, with where its elements were."""
    at = tl.arange(0, ROWS)[:, None] * 128 + tl.arange(0, 128)[None, :]
    x = tl.load(x_ptr + at)
    places = tl.broadcast_to(tl.arange(0, 128)[None, :].to(tl.int16), [ROWS, 128])
    column = tl.arange(0, 128)[None, :]
    for k in tl.static_range(1, 8):
        for j in tl.static_range(k):
            span: tl.constexpr = 2 ** (k - 1 - j)
            bits = x.to(tl.int32, bitcast=True)
            low, high = neighbours(bits, span)
            first, last = neighbours(places, span)
            falls = ((column >> k) & 1) == 1
            swaps = (low.to(tl.float32, bitcast=True) > high.to(tl.float32, bitcast=True)) != falls
            x = (bits ^ tl.where(swaps, low ^ high, 0)).to(tl.float32, bitcast=True)
            places = places ^ tl.where(swaps, first ^ last, 0).to(tl.int16)
    tl.store(o_ptr + at, x)
    tl.store(places_ptr + at, places.to(tl.int64))


def test_sorts_by_sums_stay_inside_warps() -> None:
    """Masks of two elements, and places that nothing was loaded for, lie as what they are combined with; and
    lanes exchange less where a thread holds four adjacent elements, whatever is stored."""
    x = np.random.default_rng(0).permutation(8 * 128).astype(np.float32).reshape(8, 128)
    out, places = np.zeros_like(x), np.zeros(x.shape, np.int64)
    made = sorted_by_sums.compile_for(x, out, places, ROWS=8, grid=(1,), num_warps=8)
    assert made.plan.shared_bytes == 0 and "exchange(" not in made.ir["PLACED"]
    assert {"4"} == set(re.findall(r"blocked\(8x128, inner=1, vector=(\d)", made.ir["PLACED"]))
    made.simulate(x, out, places, grid=(1,), seed=1)
    assert (out == np.sort(x)).all() and (places == np.argsort(x)).all()


def test_a_worker_takes_the_function_away_before_it_pickles(scale: Any) -> None:
    kernel = compiled(scale)
    fn, scale.fn = scale.fn, None
    again = pickle.loads(pickle.dumps(kernel.src.fn))
    assert again.src.startswith("def scale(") and again.params[3].is_constexpr
    assert again.live().fn.__name__ == fn.__name__
