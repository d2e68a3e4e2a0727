"""Compiling without a GPU, through the disk cache."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import warploom as wl
import warploom.language as tl
from warploom.compile import DUMPED
from warploom.errors import CompileError, LaunchError, WarploomWarning
from warploom.runtime import build
from warploom.runtime.cache import DiskCache
from warploom.runtime.compiled import CompiledKernel, compile_request, is_cached
from warploom.runtime.plan import LaunchPlan, ScalarParam
from warploom.runtime.request import Request
from warploom.runtime.variants import for_overlap
from warploom.schedule.model import Reason

SIGNATURE = ["*fp32:16", "*fp32:16", "i32", "fp32"]


@wl.jit
def scale(x_ptr: Any, out_ptr: Any, n: Any, factor: Any, BLOCK: tl.constexpr) -> None:
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    tl.store(out_ptr + offsets, x * factor, mask=offsets < n)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("WARPLOOM_CACHE", str(tmp_path))
    yield tmp_path


def compile_scale(**more: Any) -> CompiledKernel:
    return wl.jit(scale.fn).compile(SIGNATURE, {"BLOCK": 256}, **{"num_consumer_groups": 0, **more})


def test_what_a_compiled_kernel_holds(folder: Path) -> None:
    kernel = compile_scale()
    assert kernel.cubin[:4] == b"\x7fELF" and kernel.plan.name in kernel.cuda
    assert ".entry" in kernel.ptx
    assert {"TILE", "WARP", "PLACED"} <= set(kernel.ir) and not kernel.schedule.specialized
    assert kernel.resources.registers > 0 and kernel.resources.problems() == ()
    assert kernel.resources.threads == kernel.plan.threads == 64  # of 16 bytes each
    assert kernel.signature == tuple(SIGNATURE) and kernel.constexprs == {"BLOCK": 256}
    assert [p.code for p in kernel.plan.params if isinstance(p, ScalarParam)] == list("QQif")
    assert "class Scale(Script):" in kernel.eject()


def test_from_the_cache_without_a_pass(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = compile_scale()
    assert not first.from_cache and is_cached(first.request)

    def no_pass(self: Request) -> Any:
        raise AssertionError("a pass ran")

    with monkeypatch.context() as patch:
        patch.setattr(Request, "lower", no_pass)
        again = compile_scale()
    assert again.from_cache
    for name in ("cuda", "cubin", "plan", "resources", "warnings"):
        assert getattr(again, name) == getattr(first, name)
    assert again.ir["TILE"] == first.ir["TILE"]  # made again on demand


def test_what_is_part_of_the_key(folder: Path) -> None:
    request = compile_scale().request
    others = (
        replace(request, specs=(*request.specs[:3], replace(request.specs[3], dtype="f64"))),
        replace(request, constexprs=(("BLOCK", 128),)),
        replace(request, constexprs=(("BLOCK", 256.0),)),
        replace(request, knobs=replace(request.knobs, num_warps=8)),
        replace(request, structured=False),
        replace(request, overlap=True),
        replace(request, foreign=True),
    )
    keys = {r.prefix for r in (request, *others)}
    assert len(keys) == 1 + len(others)
    assert replace(request).prefix == request.prefix


def test_the_variant_for_overlap_keeps_the_order() -> None:
    from warploom.kernels.gemm import gemm_pointers
    from warploom.sim.machine import simulate
    from warploom.sim.oracle import run

    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, (128, 128)).astype(np.float16) for _ in range(2))
    args = (a, b, a, 128, 128, 128, 128, 1, 128, 1, 128, 1)
    meta = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64, "GROUP_M": 1}
    apart = (a, b, a.copy(), *args[3:])
    request = gemm_pointers.compile_for(*apart, grid=(1,), **meta).request
    assert request.lower().schedule.channels
    lowered = for_overlap(request).lower()
    assert not lowered.schedule.specialized
    # Loads run ahead within the loop over K, which stores nothing, and not from tile to tile.
    assert [loop for loop, _ in lowered.schedule.prefetched] == ["loop0.0"]
    assert not lowered.placed.attrs["disjoint"]
    # C is A: the second tile of a row multiplies what the first one wrote
    expected = a.copy()
    run(lowered.tile, [expected, b, expected, *args[3:]], (1,))
    assert not np.array_equal(expected, a)
    for order in ("late", "early", "reverse", "seeded"):
        found = a.copy()
        simulate(lowered.placed, [found, b, found, *args[3:]], (1,), order=order)
        assert np.array_equal(expected, found), order


@pytest.mark.parametrize("kind", ["front", "back"])
def test_damaged_entries_are_compiled_again(folder: Path, kind: str) -> None:
    first = compile_scale()
    for path in (folder / kind).rglob("*"):
        if path.is_file():
            path.write_bytes(path.read_bytes()[:-7])
    again = compile_scale()
    assert not again.from_cache and again.cubin == first.cubin
    assert compile_scale().from_cache


def test_entries_of_another_shape_are_no_entries(folder: Path) -> None:
    kernel = compile_scale()
    DiskCache(folder).store("front", kernel.key, {"head": b"[]", "plan": b"{}"})
    assert not is_cached(kernel.request)
    assert not compile_scale().from_cache
    DiskCache(folder).store("reads", kernel.request.prefix, {"records": b'{"a": [1]}'})
    assert not compile_scale().from_cache


def test_the_cache_can_be_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARPLOOM_CACHE", "off")
    assert not compile_scale().from_cache and not compile_scale().from_cache


def test_warnings_are_told_also_from_the_cache(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = compile_scale().request
    told = replace(request, constexprs=(("BLOCK", 512),))
    lower = Request.lower

    def grumbling(self: Request) -> Any:
        lowered = lower(self)
        reason = Reason("kernel", "uniform warps", "there is nothing to specialize", warn=True)
        schedule = replace(lowered.schedule, reasons=(*lowered.schedule.reasons, reason))
        return replace(lowered, schedule=schedule)

    monkeypatch.setattr(Request, "lower", grumbling)
    for _ in range(2):
        with pytest.warns(WarploomWarning, match="uniform warps, because there is nothing"):
            kernel = compile_request(told)
    assert kernel.from_cache


def test_keep_leaves_every_form(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "kept"
    monkeypatch.setenv("WARPLOOM_KEEP", str(kept))
    compile_scale()
    suffixes = {p.name.partition(".")[2] for p in kept.iterdir()}
    assert {"cu", "ptx", "cubin", "placed.ir", "tile.ir", "schedule.json"} <= suffixes


def test_keep_works_on_kernels_from_the_cache(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = [tmp_path / name for name in ("fresh", "cached")]
    for into in kept:
        monkeypatch.setenv("WARPLOOM_KEEP", str(into))
        compile_scale()
    fresh, cached = ({p.name: p.read_bytes() for p in into.iterdir()} for into in kept)
    assert fresh == cached and len(fresh) > 5


def test_dump_works_on_kernels_from_the_cache(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compile_scale()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WARPLOOM_DUMP", "all")
    kernel = compile_scale()
    dumped = sorted(p.name for p in (tmp_path / "out" / "scale").iterdir())
    assert dumped[0] == "00_frontend.ir" and dumped[-1].endswith("_place_warp_syncs.ir")
    monkeypatch.setenv("WARPLOOM_DUMP", "assign_layouts")
    monkeypatch.setenv("WARPLOOM_KEEP", str(tmp_path / "kept"))
    compile_scale()
    assert [p.name[3:] for p in (tmp_path / "kept" / "scale").iterdir()] == ["assign_layouts.ir"]
    assert {name for name, _ in kernel.lowered.steps} <= set(DUMPED)


@pytest.mark.parametrize("cached", [False, True])
def test_an_unknown_pass_is_an_error(
    folder: Path, cached: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if cached:
        compile_scale()
    monkeypatch.setenv("WARPLOOM_DUMP", "fuse_task")
    with pytest.raises(
        CompileError, match=r"WARPLOOM_DUMP names fuse_task, which is no pass\n.*fuse_tasks"
    ):
        compile_scale()


@pytest.mark.parametrize("name", ["KEEP", "DUMP"])
def test_what_can_not_be_written_is_told(
    folder: Path, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("WARPLOOM_KEEP", str(tmp_path / "file"))
    if name == "DUMP":
        monkeypatch.setenv("WARPLOOM_DUMP", "all")
    with pytest.raises(
        CompileError, match=f"WARPLOOM_{name}: .*file.* can't be written: "
    ) as caught:
        compile_scale()
    assert caught.value.code == "option" and caught.value.help


def test_a_timeline_that_can_not_be_written_is_told(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("WARPLOOM_SIM", "1")
    x = np.ones(256, np.float32)
    for path, told in (("file/t.json", "can't be written"), ("t.txt", r"\.svg, \.png or \.json")):
        monkeypatch.setenv("WARPLOOM_TIMELINE", str(tmp_path / path))
        with pytest.raises(CompileError, match=f"WARPLOOM_TIMELINE.*{told}"):
            wl.jit(scale.fn)[(1,)](x, x.copy(), 256, 2.0, BLOCK=256)


def test_simulate_is_the_oracle(folder: Path) -> None:
    x = np.random.default_rng(1).standard_normal(1000).astype(np.float32)
    out, expected = np.full_like(x, np.nan), np.full_like(x, np.nan)
    compile_scale().simulate(x, out, 1000, 0.5, grid=(4,))
    scale[(4,)](x, expected, 1000, 0.5, BLOCK=256)
    np.testing.assert_array_equal(out, expected)


def test_compile_for_is_the_variant_of_a_launch(folder: Path) -> None:
    x = np.zeros(64, np.float32)
    kernel = scale.compile_for(x, x.copy(), 48, 2.0, grid=(1,), BLOCK=64, num_consumer_groups=0)
    assert kernel.signature[2:] == ("i32:16", "fp32")
    assert kernel.request.knobs.num_consumer_groups == 0


def test_maxnreg_limits_kernels_with_launch_bounds() -> None:
    request = Request(scale.fn, (), (), wl.Knobs())
    loads = "".join(f"float v{i} = p[{i}];" for i in range(64))
    stores = "".join(f"p[{i}] = v{63 - i} * v{i};" for i in range(64))
    source = 'extern "C" __global__ void __launch_bounds__(128, 1) k(volatile float* p)'
    source = f"{source} {{ {loads} {stores} }}"
    plan = LaunchPlan("k", 128, 0, ())
    assert build.compile_text(source, plan, request, None, want_ptx=False).registers > 40
    assert build.compile_text(source, plan, request, 40, want_ptx=False).registers <= 40


def test_importing_warploom_loads_no_cuda_no_torch_and_no_compiler() -> None:
    code = (
        "import sys, warploom; bad = {'torch', 'cuda', 'cuda.bindings', 'matplotlib', 'numpy', 'ml_dtypes', "
        "'warploom.ir.ops', 'warploom.compile'} & set(sys.modules); assert not bad, bad"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_public_names_and_small_helpers() -> None:
    assert all(hasattr(wl, name) for name in wl.__all__)
    assert [wl.cdiv(n, 4) for n in (0, 1, 4, 5)] == [0, 1, 1, 2]
    assert [wl.next_power_of_2(n) for n in (-3, 0, 1, 2, 3, 1000)] == [0, 0, 1, 2, 4, 1024]


@pytest.mark.parametrize("program", [2, -1, "x", 0.5])
def test_a_timeline_of_no_program(folder: Path, program: Any) -> None:
    x = np.ones(512, np.float32)
    with pytest.raises(LaunchError, match="program"):
        compile_scale().timeline(x, x.copy(), 512, 2.0, grid=(2,), program=program)
