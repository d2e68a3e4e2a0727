"""Launching for real: numbers, streams, graphs, caches of pointers, tuning.  Needs a Hopper GPU and torch."""

from __future__ import annotations

import threading
import types
import warnings
from typing import Any

import pytest

import warploom as wl
import warploom.language as tl
from corpus.described_gemms import gemm_host_descriptors
from warploom.errors import LaunchError, WarploomWarning
from warploom.kernels.gemm import gemm_pointers
from warploom.runtime import worker
from warploom.runtime.launch import driver

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("own_cache")]
torch = pytest.importorskip("torch")

META = {"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "GROUP_M": 16}
SPECIALIZED = {"num_consumer_groups": 2, "num_buffers_warp_spec": 3}


def operands(m: int, n: int, k: int) -> tuple[Any, Any, Any]:
    """Integer-valued bf16 A (m×k), B (k×n, stored n×k), and C of NaN: products are exact."""
    torch.manual_seed(0)
    a = torch.randint(-3, 4, (m, k), device="cuda").to(torch.bfloat16)
    b = torch.randint(-3, 4, (n, k), device="cuda").to(torch.bfloat16).T
    return a, b, torch.full((m, n), torch.nan, device="cuda", dtype=torch.bfloat16)


def exact(a: Any, b: Any) -> Any:
    return (a.float() @ b.float()).to(torch.bfloat16)


def gemm_args(a: Any, b: Any, c: Any) -> tuple[Any, ...]:
    (m, k), n = a.shape, b.shape[1]
    return a, b, c, m, n, k, *a.stride(), *b.stride(), *c.stride()


def run(kernel: Any, a: Any, b: Any, c: Any, programs: int = 8, **more: Any) -> Any:
    return kernel[(programs,)](*gemm_args(a, b, c), **{**META, **SPECIALIZED, **more})


def test_gemm_is_exact_and_clean() -> None:
    a, b, c = operands(512, 768, 320)
    kernel = run(gemm_pointers, a, b, c)
    assert torch.equal(c, exact(a, b))
    assert kernel.schedule.specialized and kernel.resources.problems() == ()


@pytest.mark.parametrize("k", [0, 8, 64, 72])
def test_short_and_empty_k(k: int) -> None:
    a, b, c = operands(256, 256, k)
    run(gemm_pointers, a, b, c)
    assert torch.equal(c, exact(a, b))


def test_repeated_calls_with_new_pointers_and_sizes() -> None:
    kernel = wl.jit(gemm_pointers.fn)
    for m, n, k in [(256, 256, 128), (256, 256, 128), (384, 512, 128), (256, 256, 192)] * 2:
        a, b, c = operands(m, n, k)
        run(kernel, a, b, c)
        assert torch.equal(c, exact(a, b))
    assert len(kernel._variants) == 1


def test_current_stream_orders_launches() -> None:
    a, b, c = operands(512, 512, 512)
    run(gemm_pointers, a, b, c)  # compiled before the race
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(50_000_000)
        a.zero_()
        run(gemm_pointers, a, b, c)
    side.synchronize()
    assert torch.equal(c, torch.zeros_like(c))


def test_graph_capture() -> None:
    a, b, c = operands(512, 512, 512)
    kernel = wl.jit(gemm_pointers.fn)
    graph = torch.cuda.CUDAGraph()
    with pytest.raises(LaunchError, match="captured into a graph"), torch.cuda.graph(graph):
        run(kernel, a, b, c)
    torch.cuda.synchronize()
    run(kernel, a, b, c)
    expected = exact(a, b)
    c2, graph = torch.empty_like(c), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run(kernel, a, b, c2)  # an address that was not seen before
    c2.fill_(torch.nan)
    graph.replay()
    assert torch.equal(c2, expected)
    a.neg_()
    graph.replay()
    assert torch.equal(c2, -expected)


def test_a_thread_that_never_touched_cuda() -> None:
    a, b, c = operands(256, 256, 128)
    prepared = gemm_pointers.prepare(*gemm_args(a, b, c), grid=(1,), **META, **SPECIALIZED)
    thread = threading.Thread(target=prepared)
    thread.start()
    thread.join()
    torch.cuda.synchronize()
    assert torch.equal(c, exact(a, b))


def test_a_thread_that_never_touched_cuda_encodes_its_tensor_maps() -> None:
    """As the threads of torch's autograd, that run a backward pass first of all."""
    a, b, c = operands(256, 320, 192)
    assert gemm_pointers.prepare(*gemm_args(a, b, c), grid=(1,), **META, **SPECIALIZED) is not None
    new = a.clone(), b.T.clone().T, torch.empty_like(c)  # addresses that no map was encoded for
    call = lambda: gemm_pointers.prepare(*gemm_args(*new), grid=(1,), **META, **SPECIALIZED)()  # noqa: E731
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    torch.cuda.synchronize()
    assert torch.equal(new[2], exact(a, b))


def test_a_thread_without_context_makes_no_call_that_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """compute-sanitizer reported such a call: here each one's result is looked at."""
    from cuda.bindings import driver as cu

    a, b, c = operands(256, 256, 128)
    prepared = gemm_pointers.prepare(*gemm_args(a, b, c), grid=(1,), **META, **SPECIALIZED)
    seen: list[tuple[str, int]] = []

    def watched(name: str) -> Any:
        real = getattr(cu, name)

        def call(*args: Any) -> Any:
            found = real(*args)
            seen.append((name, int(found[0])))
            return found

        return call

    module = types.SimpleNamespace(**{n: getattr(cu, n) for n in dir(cu) if not n.startswith("__")})
    for name in ("cuStreamIsCapturing", "cuCtxGetCurrent", "cuCtxSetCurrent"):
        setattr(module, name, watched(name))
    monkeypatch.setattr(driver(), "_cu", module)
    monkeypatch.setattr(prepared, "_launch", watched("cuLaunchKernelEx"))

    def work() -> None:
        assert not int(cu.cuCtxGetCurrent()[1])
        assert not driver().is_capturing(0, 0)
        prepared(0)
        prepared(0)

    failed: list[BaseException] = []
    monkeypatch.setattr(threading, "excepthook", lambda e: failed.append(e.exc_value))
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    torch.cuda.synchronize()
    assert not failed and torch.equal(c, exact(a, b))
    assert [n for n, _ in seen].count("cuLaunchKernelEx") == 2
    assert "cuStreamIsCapturing" in dict(seen) and not any(result for _, result in seen)


def test_torch_compile_breaks_its_graph_at_a_launch() -> None:
    a, b, c = operands(256, 256, 128)

    def product(a: Any) -> Any:
        doubled = a * 2
        run(gemm_pointers, doubled, b, c)
        return c + 1

    traced = torch.compile(product, backend="eager")
    for _ in range(3):
        c.fill_(torch.nan)
        assert torch.equal(traced(a), exact(a * 2, b) + 1)


def test_tensors_without_memory_are_refused() -> None:
    a, b, c = operands(256, 256, 128)
    for bad in (a.to("meta"), torch.empty(256, 128, device="meta")):
        with pytest.raises(LaunchError, match="on device 'meta', which has no memory"):
            run(gemm_pointers, bad, b, c)


def test_overlap_takes_the_uniform_variant() -> None:
    a, b, _ = operands(256, 256, 256)
    on_cpu = a.cpu()
    run(gemm_pointers, on_cpu, b.cpu(), on_cpu, programs=1, BLOCK_N=128)
    # C is A: the second tile of a row multiplies what the first one wrote
    with pytest.warns(WarploomWarning, match="overlap"):
        kernel = run(gemm_pointers, a, b, a, programs=1, BLOCK_N=128)
    assert not kernel.schedule.specialized
    assert torch.equal(a.cpu(), on_cpu)


def test_host_descriptors() -> None:
    a, b, c = operands(256, 512, 256)
    descriptors = (
        wl.TensorDescriptor.from_tensor(a, (128, 64)),
        wl.TensorDescriptor.from_tensor(b.T, (256, 64)),
        wl.TensorDescriptor.from_tensor(c, (128, 256)),
    )
    names = gemm_host_descriptors.arg_names
    sizes = {"M": 256, "N": 512, "K": 256}
    more = {**META, **SPECIALIZED, "TRANS_A": False, "TRANS_B": True}
    rest = {n: v for n, v in {**sizes, **more}.items() if n in names or n in SPECIALIZED}
    for _ in range(2):
        c.fill_(torch.nan)
        gemm_host_descriptors[(2,)](*descriptors, **rest)
        assert torch.equal(c, exact(a, b))


def test_dlpack_arrays() -> None:
    class Exported:
        """Nothing but DLPack."""

        def __init__(self, tensor: Any) -> None:
            self.tensor = tensor

        def __dlpack__(self, **options: Any) -> Any:
            return self.tensor.__dlpack__(**options)

        def __dlpack_device__(self) -> Any:
            return self.tensor.__dlpack_device__()

    a, b, c = operands(256, 256, 128)
    args = gemm_args(a, b, c)
    gemm_pointers[(1,)](*map(Exported, args[:3]), *args[3:], **META, **SPECIALIZED)
    torch.cuda.synchronize()
    assert torch.equal(c, exact(a, b))


def test_mixed_devices_and_bad_grids() -> None:
    a, b, c = operands(256, 256, 128)
    with pytest.raises(LaunchError, match="on the CPU"):
        run(gemm_pointers, a.cpu(), b, c)
    with pytest.raises(LaunchError, match="grid"):
        run(gemm_pointers, a, b, c, programs=-1)
    run(gemm_pointers, a, b, c, programs=0)
    torch.cuda.synchronize()
    assert c.isnan().all()


def test_from_disk_in_the_same_form() -> None:
    a, b, c = operands(256, 256, 128)
    first = run(wl.jit(gemm_pointers.fn), a, b, c)
    c.fill_(torch.nan)
    second = run(wl.jit(gemm_pointers.fn), a, b, c)
    assert second.from_cache and not first.from_cache
    assert second.cubin == first.cubin and torch.equal(c, exact(a, b))


# ---- tuning


@wl.jit
def spin(x_ptr: Any, n: Any, MODE: tl.constexpr) -> None:
    """MODE 0: one store.  1: a long loop.  2: an illegal address.  3: a loop for seconds."""
    if MODE == 0:
        tl.store(x_ptr, n)
    else:
        if MODE == 2:
            tl.store(x_ptr + (1 << 45), n)
        else:
            value = n
            for i in range(n * (1 if MODE == 1 else 1 << 14)):
                value = value * 3 + tl.load(x_ptr + i % 2, volatile=True)
            tl.store(x_ptr, value)


def test_tuning_survives_hangs_and_crashes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "TIME_LIMIT", 3.0)
    x = torch.zeros(2, device="cuda", dtype=torch.int32)
    configs = [wl.Config({"MODE": mode}, num_consumer_groups=0) for mode in (1, 2, 3, 0)]
    kernel = wl.autotune(configs, key=["n"])(spin)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", WarploomWarning)
        kernel[(1,)](x, 20_000)
    torch.cuda.synchronize()
    assert x.tolist() == [20_000, 0]  # tuning touched copies only
    (verdict,) = kernel.verdicts.values()
    assert kernel.configs[verdict.best].kwargs["MODE"] == 0
    assert len(verdict.times) == 2 and "hangs" in " ".join(verdict.skipped.values())


def test_tuning_a_gemm_and_finding_it_on_disk() -> None:
    configs = [wl.Config({**META, "GROUP_M": g}, **SPECIALIZED) for g in (8, 16)]
    a, b, c = operands(1024, 1024, 512)
    for _ in range(2):
        kernel = wl.autotune(configs, key=["M", "N", "K"])(wl.jit(gemm_pointers.fn))
        kernel[(32,)](*gemm_args(a, b, c))
        assert torch.equal(c, exact(a, b))
        (verdict,) = kernel.verdicts.values()
        assert len(verdict.times) == 2 and not verdict.skipped


def test_the_driver_knows_the_device() -> None:
    x = torch.zeros(4, device="cuda")
    assert driver().device_of(x.data_ptr()) == 0
    assert driver().device_name(0) == torch.cuda.get_device_name(0)
    assert driver().architecture(0) == torch.cuda.get_device_capability(0)
    assert not driver().is_capturing(torch.cuda.current_stream().cuda_stream)
