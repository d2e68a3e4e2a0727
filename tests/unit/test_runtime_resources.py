"""Spills and ptxas's remarks: what is tried instead, and what the user is told."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import warploom as wl
import warploom.language as tl
from tests.e2e.gemms import Gemm
from warploom.errors import CompileError, WarploomWarning
from warploom.ir.printer import print_func
from warploom.kernels.gemm import gemm_pointers
from warploom.passes import pipeline
from warploom.runtime import build, nvrtc
from warploom.runtime.build import HOPELESS_SPILLS
from warploom.runtime.compiled import CompiledKernel, is_cached
from warploom.runtime.nvrtc import Advisory, Build
from warploom.runtime.request import HEADROOMS, Request
from warploom.schedule.resources import Headroom

Judge = Callable[[str], int]  # source -> bytes of spills


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("WARPLOOM_CACHE", str(tmp_path))
    yield tmp_path


@pytest.fixture
def ptxas(monkeypatch: pytest.MonkeyPatch) -> Callable[[Judge], list[str]]:
    """Installs a compiler whose spills a function of the source decides; gives the sources that it saw."""

    def install(spills: Judge, cpu_seconds: float = 0.0) -> list[str]:
        seen: list[str] = []

        def compile_text(source: str, plan: Any, *_: Any, want_ptx: bool) -> Build:
            seen.append(source)
            n = spills(source)
            remarks = (Advisory("C7512", "serialized"),) if n > 100 else ()
            return Build(
                plan.name, b"cubin", "", 168, n, n, 0, 2, remarks, 3.0, "none", "", cpu_seconds
            )

        monkeypatch.setattr("warploom.runtime.build.compile_text", compile_text)
        return seen

    return install


def gemm(**knobs: Any) -> tuple[CompiledKernel, list[str]]:
    """A cp.async producer and two groups; with what it warns."""
    case = Gemm(512, 512, 512, blocks=(128, 128, 64))
    signature = [*case.signature[:6], "i32:4", "i32=1", "i32=1", "i32:4", "i32:16", "i32=1"]
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always", WarploomWarning)
        kernel = gemm_pointers.compile(signature, case.meta, num_consumer_groups=2, **knobs)
    return kernel, [str(w.message) for w in seen]


def registers(kernel: CompiledKernel) -> list[int | None]:
    return [t.registers for t in kernel.schedule.tasks]


def test_a_clean_kernel_is_compiled_once(ptxas: Any) -> None:
    seen = ptxas(lambda source: 0)
    kernel, told = gemm()
    assert len(seen) == 1 and not told and kernel.request.headroom == Headroom()


def test_after_a_spill_another_budget_is_tried_and_kept(ptxas: Any) -> None:
    usual = "PRODUCER_REGISTERS = 72"
    seen = ptxas(lambda source: 8 * (usual in source))
    kernel, told = gemm()
    assert usual in seen[0] and usual not in seen[-1] and len(seen) == 2
    few, headroom, *_ = HEADROOMS  # without dots in registers the first changes nothing
    assert few.few_registers and not told and kernel.request.headroom == headroom
    assert registers(kernel) == [200, 104]
    assert any("ptxas spilled" in r.because for r in kernel.schedule.reasons)


def test_from_the_cache_it_is_the_same(ptxas: Any) -> None:
    seen = ptxas(lambda source: 8 * ("PRODUCER_REGISTERS = 72" in source))
    first, _ = gemm()
    count = len(seen)
    asked = replace(first.request, headroom=Headroom())
    assert is_cached(asked)
    again, _ = gemm()
    assert len(seen) == count and again.from_cache
    assert again.cuda == first.cuda and again.schedule == first.schedule


def test_the_least_harm_is_taken_and_told(ptxas: Any) -> None:
    """Spills weigh less than serialised wgmmas; the first of equals wins."""
    seen = ptxas(lambda source: 40 if "PRODUCER_REGISTERS = 104" in source else 400)
    kernel, (told,) = gemm()
    assert len(set(seen)) == len(seen) > 1
    assert registers(kernel) == [200, 104] and kernel.resources.spill_bytes == 40
    assert "warning[resources]" in told and "40 bytes of spills" in told
    assert "producer 104" in told and "gemm.py" in told and "help: take smaller blocks" in told
    assert gemm()[1] == [told]  # from the cache as well


def test_a_hopeless_kernel_is_compiled_twice(ptxas: Any) -> None:
    """The review's kernel spilled 51 kB and was compiled eight times, at 12 s each."""
    seen = ptxas(lambda source: 51_000)
    kernel, (told,) = gemm()
    assert len(seen) == 2 and kernel.resources.builds == 2
    why = "the best of 2 builds; no other schedule was tried, because the first build spills 51,000 bytes"
    assert why in told and why in str(kernel.resources) and why in kernel.explain()
    assert "(none, 6.0 s)" in str(kernel.resources)  # of both
    again, (told_again,) = gemm()
    assert again.from_cache and again.resources == kernel.resources and told_again == told
    assert len(seen) == 2


@wl.jit
def too_large(
    a_ptr: Any, b_ptr: Any, c_ptr: Any, N: Any, K: Any, BM: tl.constexpr, BN: tl.constexpr
) -> None:
    """Six tiles of 128 registers a thread, alive at once."""
    m, n, k = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, 64)
    acc = tl.zeros((BM, BN), tl.float32)
    p, q, r, s, t = acc, acc, acc, acc, acc
    for step in range(tl.cdiv(K, 64)):
        a = tl.load(a_ptr + m[:, None] * K + (step * 64 + k)[None, :])
        b = tl.load(b_ptr + n[None, :] * K + (step * 64 + k)[:, None])
        acc = tl.dot(a, b, acc)
        p += acc * t
        q += tl.exp(p)
        r = r * acc + q
        s = s * r + acc
        t = t + s * q
    tl.store(c_ptr + m[:, None] * N + n[None, :], acc + p + q + r + s + t)


@pytest.mark.slow
def test_ptxas_itself_is_asked_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Build] = []
    real = nvrtc.compile_cuda

    def counted(*args: Any, **more: Any) -> Build:
        seen.append(real(*args, **more))
        return seen[-1]

    monkeypatch.setattr(nvrtc, "compile_cuda", counted)
    signature = ["*bf16:16", "*bf16:16", "*fp32:16", "i32:16", "i32:16"]
    with pytest.warns(WarploomWarning, match="the best of 2 builds; no other schedule was tried"):
        kernel = too_large.compile(signature, {"BM": 128, "BN": 256})
    assert len(seen) == 2 and seen[0].spill_bytes > HOPELESS_SPILLS
    assert seen[0].cpu_seconds > 0 and kernel.resources.spill_bytes == min(
        b.spill_bytes for b in seen
    )


def test_what_will_spill_is_built_with_all_registers(ptxas: Any) -> None:
    """No build that is left to save registers comes first; of a long text a hopeless one is the last."""
    signature = ["*bf16:16", "*bf16:16", "*fp32:16", "i32:16", "i32:16"]
    seen = ptxas(lambda source: HOPELESS_SPILLS + 4)
    with pytest.warns(WarploomWarning, match="no other schedule was tried|spills"):
        kernel = too_large.compile(signature, {"BM": 64, "BN": 256}, num_consumer_groups=0)
    assert "__launch_bounds__(THREADS, 1)" in seen[0] and seen[0] == kernel.cuda
    assert kernel.resources.builds == len(seen) <= 2


def test_the_second_build_of_a_hopeless_kernel_has_the_most_room(ptxas: Any) -> None:
    first: list[str] = []

    def spills(source: str) -> int:
        first[:] = first or [source]
        return HOPELESS_SPILLS + 1 if source == first[0] else 0

    seen = ptxas(spills)
    kernel, told = gemm()
    assert len(seen) == 2 and not told and kernel.resources.stopped == ""
    assert kernel.request.headroom in HEADROOMS[3:] and kernel.resources.builds == 2


def test_spills_that_are_not_hopeless_cost_every_try(ptxas: Any) -> None:
    seen = ptxas(lambda source: HOPELESS_SPILLS)
    kernel, _ = gemm()
    assert len(seen) > 2 and kernel.resources.builds == len(seen)
    assert kernel.resources.stopped == "" and "builds" not in str(kernel.resources)


def test_nvrtc_has_a_budget_of_time(ptxas: Any) -> None:
    """Of the processor's: a machine that does something else beside gets the same kernel."""
    seen = ptxas(lambda source: 8, cpu_seconds=build.NVRTC_SECONDS / 2 + 1)
    kernel, (told,) = gemm()
    assert len(seen) == 2 and "because NVRTC was at work for 62 s" in told
    assert kernel.resources.stopped


def test_after_a_run_that_was_stopped_there_is_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    remark = Advisory(nvrtc.STOPPED, "stopped after 30 s")
    slow = Build("k", b"cubin", "", 168, 8, 8, 0, 2, (remark,), 35.0, "none", "", 35.0)
    seen = []
    monkeypatch.setattr(
        "warploom.runtime.build.compile_text", lambda *_, **__: seen.append(1) or slow
    )
    kernel, (told,) = gemm()
    assert len(seen) == 1 and "NVRTC: stopped after 30 s" in told
    assert kernel.resources.stopped == "a run of NVRTC was stopped"


def test_other_headroom_begins_at_the_choice(ptxas: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes before it does not depend on headroom; what was lowered alike is not lowered again."""
    translated: list[Any] = []
    lowered: list[Any] = []
    translate, assign = Request.translate, pipeline.assign_layouts
    monkeypatch.setattr(Request, "translate", lambda *a: translated.append(1) or translate(*a))
    rows = tuple(
        replace(row, run=lambda f, r: lowered.append(1) or assign(f, r.target))
        if row.name == "assign_layouts"
        else row
        for row in pipeline.PIPELINE
    )
    monkeypatch.setattr(pipeline, "PIPELINE", rows)
    seen = ptxas(lambda source: 400)
    kernel, _ = gemm()
    assert len(translated) == 1 < len(lowered) <= len(HEADROOMS)
    assert kernel.resources.builds == len(seen) == len(lowered)
    again = kernel.request.lower()  # as a later process asks for it
    assert print_func(again.placed) == print_func(kernel.placed)


def test_strict_makes_it_an_error(ptxas: Any) -> None:
    ptxas(lambda source: 400)
    with pytest.raises(CompileError) as caught:
        gemm(strict=True)
    assert caught.value.code == "resources" and caught.value.loc and caught.value.help
    assert "400 bytes of spills" in caught.value.message and "C7512" in caught.value.message


def test_the_limit_of_the_user_stays(ptxas: Any) -> None:
    seen = ptxas(lambda source: 8)
    kernel, (told,) = gemm(reg_dec_producer=80, reg_inc_consumer=208)
    assert registers(kernel) == [208, 80] and len(seen) == 1 and "8 bytes" in told
    _, told_too = gemm(num_stages=2, maxnreg=168)
    assert "raise maxnreg=168" in told_too[-1]


def test_a_debug_build_says_nothing(ptxas: Any) -> None:
    """Its traps serialise wgmmas: that is their price."""
    seen = ptxas(lambda source: 400)
    assert gemm(debug=True)[1] == [] and len(seen) == 1


def test_what_ptxas_refuses_is_tried_with_other_budgets(ptxas: Any) -> None:
    def refuse_first(source: str) -> int:
        if "PRODUCER_REGISTERS = 72" in source:
            raise CompileError("ptxas-limit", "does not fit")
        return 0

    ptxas(refuse_first)
    kernel, told = gemm()
    assert registers(kernel) == [200, 104] and not told

    def refuse(source: str) -> int:
        raise CompileError("ptxas-limit", "does not fit")

    ptxas(refuse)
    with pytest.raises(CompileError, match="does not fit"):
        gemm(num_buffers_warp_spec=2)
