"""Which values share a C variable: none is overwritten while something still computes with what it held."""

from __future__ import annotations

import re

import pytest

import warploom as wl
import warploom.language as tl


@wl.jit
def halving(p, out):
    n = tl.load(p)
    total = 0
    for i in range(0, n):
        n = n // 2
        total += i + n
    tl.store(out, total)


@wl.jit
def growing(p, out):
    by = tl.load(p)
    total = 0
    for i in range(0, 100, by):
        by = by + 1
        total += i
    tl.store(out, total + by)


@wl.jit
def shrinking_view(p, out, n, rows):
    total = tl.zeros((16, 64), tl.float32)
    for _ in range(n):
        block = tl.make_tensor_descriptor(
            p, shape=[rows, 64], strides=[64, 1], block_shape=[16, 64]
        )
        rows = rows // 2
        total += block.load([0, 0])
    at = tl.arange(0, 16)[:, None] * 64 + tl.arange(0, 64)[None, :]
    tl.store(out + at, total)


@pytest.mark.parametrize(("kernel", "bound"), [(halving, r"i\w* < (\w+)"), (growing, r"\+= (\w+)")])
def test_a_loop_counts_to_what_its_bounds_were_when_it_began(kernel, bound: str) -> None:
    """C evaluates a loop's bound and step in every iteration; what the body makes of them is another variable."""
    cuda = kernel.compile(signature=("*i32:16", "*i32:16")).cuda
    (head,) = re.findall(r"for \(int i\w* = 0; .*\) \{", cuda)
    (name,) = re.findall(bound, head)
    assert re.search(rf"const int {name} = .*load_global32", cuda)


def test_a_view_keeps_the_sizes_that_it_was_made_with() -> None:
    """Bounds are computed where a box is loaded, from what the view was made of."""
    c = shrinking_view.compile(signature=("*fp32:16", "*fp32:16", "i32", "i32"))
    (extent,) = re.findall(r"const i64 (\w+) = \(i64\)(?:rows|\w+);", c.cuda)
    body = c.cuda[c.cuda.index(f"const i64 {extent}") :]
    assert body.index("/ 2;") < body.index(f"elements_left(at0, {extent})")


@wl.jit
def last_index(p, out, n):
    at = tl.load(p)
    for i in range(n):
        at = i
    tl.store(out, at)


@wl.jit
def from_the_index(p, out, n):
    total = tl.load(p)
    for i in range(n):
        x = i
        for _ in range(3):
            x = x * 2 + 1
        total += x
    tl.store(out, total)


@pytest.mark.parametrize("kernel", [last_index, from_the_index])
def test_nothing_else_is_in_the_variable_that_counts(kernel) -> None:
    """C's loop declares it and counts with it: what is carried on, or starts from it, is a copy."""
    c = kernel.compile(signature=("*i32:16", "*i32:16", "i32"))
    assert c.resources.registers > 0
    counters = re.findall(r"for \(int (\w+) =", c.cuda)
    assert counters and not any(re.search(rf"^\s*{i} = ", c.cuda, re.M) for i in counters)


@wl.jit
def branches(p, out, n):
    x = tl.load(p)
    if x < n:
        tl.store(out + 1, x)
        y = n
    else:
        y = 7
    for _ in range(n):
        x, y = x + y, x
    tl.store(out, x + y)


def test_what_both_arms_give_is_declared_in_front_of_them() -> None:
    c = branches.compile(signature=("*i32:16", "*i32:16", "i32"))
    assert c.resources.registers > 0
    assert re.search(r"^ +int y;\n +if \(", c.cuda, re.M)


@wl.jit
def pushed_on(p, out, n):
    a, b, c = tl.load(p), tl.load(p + 1), tl.load(p + 2)
    for _ in range(n):
        a = b
        b, c = c, b
    tl.store(out, a)


@pytest.mark.parametrize("turns", [0, 1, 2, 3])
def test_what_a_loop_only_passes_on_has_a_variable_of_its_own(turns: int) -> None:
    """No turn reads what `a` was, but behind the loop it is what the last one left, or what it was before."""
    cuda = pushed_on.compile(signature=("*i32:16", "*i32:16", "i32"), num_warps=1).cuda
    kernel = cuda[cuda.index("==== main") :]
    before, loop, after = re.split(r"for \(int .*\{|^    \}$", kernel, maxsplit=2, flags=re.M)
    memory = iter((10, 20, 30))
    values = {
        name: next(memory) for name in re.findall(r"int (\w+) = \(int\)load_global32", before)
    }
    for _ in range(turns):
        for name, source in re.findall(r"(\w+) = (\w+);", loop):
            values[name] = values[source]
    found = [values[name] for name in re.findall(r"store_global32\(\w+, \(u32\)(\w+)\)", after)]
    a, b, c = 10, 20, 30
    for _ in range(turns):
        a, b, c = b, c, b
    assert found == [a]


@wl.jit
def rows_in_steps(p, out, rows, halves: tl.constexpr):
    first, end = tl.program_id(0) * 1024, rows.to(tl.int64) * 64
    at = tl.arange(0, 64)
    total = tl.zeros((64,), tl.float32)
    for j in range(16):
        row = first + j * 64 + at
        if halves:
            first = first // 2
        total += tl.load(p + row, mask=row < end, other=0.0)
    tl.store(out + at, total)


@pytest.mark.parametrize("halves", [False, True])
def test_what_is_left_of_an_array_is_limited_outside_of_the_loop(halves: bool) -> None:
    """But not of an offset whose variable holds the next iteration's by then."""
    signature = ("*fp32:16", "*fp32:16", "i32")
    cuda = rows_in_steps.compile(signature=signature, constexprs={"halves": halves}).cuda
    (step,) = re.findall(r"const int (\w+) = \(int\)\(\(u32\)j \* 64\);", cuda)
    assert bool(re.search(rf"elements_left\(\w+, \w+\) - {step} - at0;", cuda)) != halves
