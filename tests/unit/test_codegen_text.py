"""Names and texts of the user's in the emitted source: whatever Python takes, C is given what it takes."""

from __future__ import annotations

import re

import numpy as np
import pytest

import warploom as wl
import warploom.language as tl
from tests.unit.codegen_kernels import emitted, kernel
from tests.unit.host_functions import compile_expressions
from warploom.codegen.formula import displaced
from warploom.codegen.prelude import _paragraphs
from warploom.codegen.text import Text, is_used
from warploom.runtime.nvrtc import compile_cuda
from warploom.target import SM_90A


@wl.jit
def sqrt(LAST_WAVE, out, größe):  # a function of CUDA's, and a constant of the frame's
    friend = tl.load(LAST_WAVE)
    explicit = friend * 2.0
    exp2 = tl.exp2(explicit)
    nullptr = exp2 + tl.exp2(friend)
    mutable = 0
    while mutable < größe:
        mutable += 1
        nullptr = nullptr + friend
    tl.store(out, nullptr)


def test_names_that_cplusplus_or_cuda_has_are_given_others() -> None:
    c = sqrt.compile(signature=("*fp64:16", "*fp64:16", "i32"))
    assert c.resources.registers > 0  # NVRTC has taken it
    assert "sqrt_kernel(double* LAST_WAVE, double* out, int gr__e)" in c.cuda
    assert "constexpr int LAST_WAVE_2 =" in c.cuda
    for word in ("friend", "explicit", "exp2", "nullptr", "mutable"):
        assert re.search(rf"\b{word}_?2 = ", c.cuda)


def test_names_are_the_first_free_ones_of_the_open_blocks() -> None:
    text = Text()
    assert [text.name(x) for x in ("x", "x", "a1", "a1", "x_2")] == ["x", "x2", "a1", "a1_2", "x_2"]
    outer = text.scopes[-1]
    with text.block("if (true)"):
        assert [text.name("x"), text.name_in(outer, "x"), text.name("x")] == ["x3", "x4", "x5"]
    assert [text.name(x) for x in ("x", "x", "a1")] == ["x3", "x5", "a1_3"]


@pytest.mark.parametrize("name", ["max", "main", "double", "hold", "norm"])
def test_a_kernel_may_have_the_name_of_anything(name: str) -> None:
    e = emitted(kernel("%p: ptr<i32>, %x: i32", "    store(%p, %x)").replace("@probe", f"@{name}"))
    assert e.name == f"{name}_kernel"
    compile_cuda(e.source, name=e.name, target=SM_90A)


@wl.jit
def prints(p, out):
    at = tl.arange(0, 24)
    x = tl.load(p + at)
    tl.device_print('100 % of "a"\nrow', x)
    tl.device_assert(tl.load(p) > 0, 'two\n"lines" of 100 %')
    tl.store(out + at, x)


def test_texts_are_quoted_and_an_element_is_printed_once() -> None:
    """24 elements in 2 warps: one holds them all, the other the same again, and a quarter of the lanes nothing."""
    c = prints.compile(signature=("*i32:16", "*i32:16"), debug=True)
    assert c.resources.registers > 0
    (line,) = (x.strip() for x in c.cuda.splitlines() if "100 %% of" in x)
    test = re.escape("if ((warp & 1) == 0 && at0 < 24) printf(")
    assert re.match(test, line) and r'100 %% of \"a\"\nrowx[%d]: %d\n"' in line
    assert r"two\n\"lines\" of 100 %%\n" in c.cuda


def test_the_host_negates_conditions() -> None:
    """`not` of a boolean is no complement of bits, of which every number but -1 has some."""
    flag = ("gt", "i32", ("arg", 0), ("const", 3))
    chosen = ("select", "i1", ("not", "i1", flag), ("const", 5), ("const", 7))
    compute = compile_expressions([chosen])
    assert compute((3,)) == (5,) and compute((4,)) == (7,)


@wl.jit
def unaligned_rows(a, b, out, m, k, stride):
    rows = tl.arange(0, 128)[:, None]
    columns = tl.arange(0, 64)[None, :]
    total = tl.zeros((128, 64), tl.float32)
    for piece in range(0, k, 64):
        at = piece + tl.arange(0, 64)
        inside = (rows < m) & (at[None, :] < k)
        x = tl.load(a + rows * stride + at[None, :], mask=inside, other=0.0)
        y = tl.load(b + at[:, None] * 64 + columns, mask=at[:, None] < k, other=0.0)
        total = tl.dot(x, y, total)
    tl.store(out + rows * 64 + columns, total)


def test_what_the_next_turn_reads_is_asked_for_whatever_the_loop_calls_its_index() -> None:
    c = unaligned_rows.compile(
        signature=("*bf16:16", "*bf16:16", "*fp32:16", "i32", "i32", "i32"), num_consumer_groups=1
    )
    kernel = c.cuda[c.cuda.index('extern "C" __global__') :]
    assert kernel.count("ahead_of(") == kernel.count("load_units(") > 0


def test_a_name_is_used_where_it_stands_by_itself() -> None:
    assert is_used("n", "n") and is_used("n", "x + n;") and is_used("n", "xn(n)")
    assert not any(is_used("n", text) for text in ("", "m", "nn", "n2 + _n", "án"))


def test_the_prelude_defines_what_it_uses_before() -> None:
    known: set[str] = set()
    functions = [x for x in _paragraphs() if x[0] == "functions"]
    names = {name for _, name, _ in functions}
    for _, name, text in functions:
        code = "\n".join(line.partition("//")[0] for line in text.split("\n"))
        used = names & set(re.findall(r"(\w+)[(<]", code)) - {name}
        assert used <= known, f"{name} uses {used - known}, defined behind it"
        known.add(name)


@pytest.mark.parametrize(
    ("rows", "flip", "shared", "apart"),
    [
        (8, 32, "(at ^ 32)", "(at ^ 32)"),
        (8, 2080, "(at ^ 32) + 2048", "(at ^ 2080)"),
        (16, 2080, "(at ^ 2080)", "(at ^ 2080)"),  # some lanes have that bit
        (16, 4128, "(at ^ 32) + 4096", "(at ^ 4128)"),
    ],
)
def test_accesses_share_what_swizzles_flip(rows: int, flip: int, shared: str, apart: str) -> None:
    lane = np.arange(32)
    first = lane % 8 * 144 ^ lane % rows // 8 * 2048
    for text, together in ((shared, True), (apart, False)):
        assert displaced("at", first, first ^ flip, together) == text
        assert (eval(text, {"at": first}) == first ^ flip).all()
