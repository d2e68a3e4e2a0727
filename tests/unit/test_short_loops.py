"""Texts of many loops: written out, the same instructions, in a fraction of NVRTC's time."""

from __future__ import annotations

import re
from collections import Counter

import pytest

import warploom as wl
import warploom.language as tl
from warploom.codegen import short_loops
from warploom.codegen.emit import emit
from warploom.codegen.short_loops import write_out_short_loops
from warploom.codegen.text import Line
from warploom.runtime.nvrtc import compile_cuda
from warploom.target import SM_90A


@wl.jit
def network(x_ptr, out_ptr, STEPS: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, N)
    x = tl.load(x_ptr + at)
    y = (x * 0.5).to(tl.bfloat16)
    for step in tl.static_range(STEPS):
        pair = tl.reshape(x, (N // 2, 2))
        most = tl.max(pair, 1)[:, None]
        x = tl.where(pair < most, tl.exp2(pair), most - pair).reshape(N)
        y = y * (x.to(tl.bfloat16) + step)
        x, y = x - y, (y + 1).to(tl.bfloat16)
    tl.store(out_ptr + at, x + y)


def text_of(steps: int) -> tuple[str, str]:
    """The emitted source and the kernel's name."""
    compiled = network.compile(("*fp32:16", "*fp32:16"), {"STEPS": steps, "N": 512}, num_warps=2)
    e = emit(compiled.placed, SM_90A)
    return e.source, e.name


def instructions(source: str, name: str) -> Counter[str]:
    """How often PTX has each instruction; of comparisons and their contraries the one as the other."""
    ptx = compile_cuda(source, name=name, target=SM_90A, want_ptx=True).ptx
    names = re.findall(r"(?m)^\s+(?:@%p\d+ )?([a-z][\w.]+)\s[^;]*;", ptx)
    return Counter(re.sub(r"(?<=setp)\.\w+", "", name) for name in names)


def test_what_is_written_out_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    rolled, name = text_of(6)
    monkeypatch.setattr(short_loops, "MANY", 0)
    written, _ = text_of(6)
    body = written[written.index('extern "C"') :]
    assert rolled.count("#pragma unroll") > written.count("#pragma unroll")
    assert "#pragma" not in body and re.search(r"\n +float \w+_0, \w+_1, \w+_2", body)
    was, now = (instructions(x, name) for x in (rolled, written))
    assert was == now and was["ex2.approx.ftz.f32"] == 8 * 6


def test_few_loops_stay() -> None:
    """Of 600 loops NVRTC takes 1.9 s, written out 0.6."""
    assert text_of(2)[0].count("#pragma unroll") > 20
    source, _ = text_of(60)
    assert "#pragma" not in source[source.index('extern "C"') :]


def written(*texts: str) -> list[str]:
    """Lines written out, beside so many loops that they are."""
    many = ["#pragma unroll", "for (int i = 0; i < 99; ++i) z[i] = i;"] * (short_loops.MANY + 1)
    lines = [Line(1, text) for text in (*many, *texts)]
    return [x.text for x in write_out_short_loops(lines)[len(many) :]]


def test_only_elements_that_are_all_named_become_variables() -> None:
    assert written(
        "float a[2];", "float b[2];", "float c1[2];", "int c1_1;",
        "#pragma unroll", "for (int i = 0; i < 2; ++i) {", "a[i] = b[2 * i + 1] + i;", "c1[i] = a[i];", "}",
        "use(b);",
    ) == [
        "float a__0, a__1;", "float b[2];", "float c1__0, c1__1;", "int c1_1;",
        "a__0 = b[1] + 0;", "c1__0 = a__0;", "a__1 = b[3] + 1;", "c1__1 = a__1;",
        "use(b);",
    ]  # fmt: skip


@wl.jit
def named_alike(x_ptr, x3_0, x3_1, STEPS: tl.constexpr):
    at = tl.arange(0, 64)
    x = tl.load(x_ptr + at)
    for step in tl.static_range(STEPS):
        x = tl.exp2(x) - step
    tl.store(x_ptr + at, x)


def test_variables_are_no_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even where a parameter isn't used."""
    monkeypatch.setattr(short_loops, "MANY", 0)
    compiled = named_alike.compile(("*fp32:16", "i32", "i32"), {"STEPS": 3}, num_warps=1)
    e = emit(compiled.placed, SM_90A)
    assert "float x3__0, x3__1;" in e.source and "int x3_0" not in e.source


@pytest.mark.parametrize(
    "loop",
    [
        ("#pragma unroll", "for (int i = 0; i < 65; ++i) a[i] = 0;"),  # long
        ("#pragma unroll 2", "for (int i = 0; i < 2; ++i) a[i] = 0;"),  # not whole
        ("for (int i = 0; i < 2; ++i) a[i] = 0;",),
        ("#pragma unroll", "for (int i = 0; i < 2; ++i) {", "const int x = i;", "a[i] = x;", "}"),
        ("#pragma unroll", "for (int i = 0; i < 2; ++i)", "#pragma unroll",
         "for (int j = 0; j < n; ++j) a[i] = j;"),
    ],
)  # fmt: skip
def test_other_loops_stay(loop: tuple[str, ...]) -> None:
    assert written("int a[65];", *loop) == ["int a[65];", *loop]
