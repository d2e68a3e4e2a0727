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
