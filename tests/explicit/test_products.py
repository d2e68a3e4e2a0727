"""The explicit products (gated pair, 8-bit with scales): they compute, are proved, and compile clean."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np
import pytest

from tests import sass
from tests.explicit.products import BF16, PRODUCTS, SHAPES, Product
from tests.pairwise import every
from warploom.check import check

needs_nvdisasm = pytest.mark.skipif(sass.disassembler() is None, reason="no nvdisasm")
each = pytest.mark.parametrize("product", PRODUCTS, ids=lambda p: p.name)


@functools.cache
def compiled(name: str) -> Any:
    (product,) = (p for p in PRODUCTS if p.name == name)
    return product.make().compile(list(product.signature))


@each
@pytest.mark.each(2)
def test_it_compiles_without_spills(product: Product) -> None:
    found = compiled(product.name).resources
    assert found.problems() == ()
    assert found.threads == 384 and found.registers == 168


@pytest.mark.parametrize("product", every(2, PRODUCTS), ids=lambda p: p.name)
@pytest.mark.each(2)
def test_the_protocol_is_proved(product: Product) -> None:
    report = check(compiled(product.name).placed)
    assert report.ok, str(report)
    assert not report.not_recurring


@pytest.mark.parametrize("product", every(2, PRODUCTS), ids=lambda p: p.name)
@needs_nvdisasm
@pytest.mark.each(2)
def test_no_move_stands_between_products(product: Product) -> None:
    opcode = "QGMMA" if "*fp8e4nv:16" in product.signature else "HGMMA"
    (loop,) = sass.loops(compiled(product.name).cubin, opcode)
    at = [i for i, x in enumerate(loop.body) if x.startswith(opcode)]
    waits = [i for i, x in enumerate(loop.body) if x.startswith("WARPGROUP.DEPBAR")]
    for first, last in itertools.pairwise(at):
        if not any(first < i < last for i in waits):
            between = loop.body[first:last]
            assert not any(x.startswith(("MOV", "IMAD.MOV", "LD", "ST")) for x in between), between
    if (
        "promoted" in product.name
    ):  # added behind their waits, before the next product or the branch
        assert loop.before_waits("FADD")[0] == 0
        assert loop.count("FADD") == (96 if "192" in product.name else 128)


@each
@pytest.mark.parametrize(("m", "n", "k"), SHAPES)
@pytest.mark.each(3)
def test_exact_data_comes_out_bit_equal(product: Product, m: int, n: int, k: int) -> None:
    inputs = product.exact(np.random.default_rng(m + n + k), m, n, k)
    c = np.full((m, n), np.nan, BF16)
    product.make(programs=2)(*inputs, c, m, n, k)
    wanted = product.wanted(*inputs).astype(np.float32).astype(BF16)
    assert np.array_equal(c.astype(np.float32), wanted.astype(np.float32))


@each
@pytest.mark.each(2)
def test_random_data_comes_out_close(product: Product) -> None:
    m, n, k = 80, 144, 336
    inputs = product.random(np.random.default_rng(7), m, n, k)
    c = np.full((m, n), np.nan, BF16)
    product.make(programs=1)(*inputs, c, m, n, k)
    wanted = product.wanted(*inputs)
    assert np.all(abs(c.astype(np.float64) - wanted) <= abs(wanted) * 2**-8 + 1e-3)
