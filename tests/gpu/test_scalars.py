"""Control flow on numbers, as the GPU runs it: what shares a C variable shows in no simulator.  Random programs
against the oracle, arrays longer than 32 bits count, the clock, and functions of whole numbers."""

from __future__ import annotations

import importlib.util
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import warploom as wl
import warploom.language as tl
from tests.e2e.test_long_arrays import BLOCK, LEFT, LONG, block, row, strided
from tests.e2e.test_regressions import dropped_quotients, quotients, sizes_of_zeros
from tests.triton.test_language import of_orders
from tests.triton.test_modules import timed_product
from warploom.sim import oracle

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")


class Source:
    """A random kernel of loops, branches and assignments; every loop ends."""

    def __init__(self, seed: int) -> None:
        self.random, self.count = random.Random(seed), 0
        known = ["a", "b", "c", "d"]
        head = ["a = tl.load(p)", "b = tl.load(p + 1)", "c = n", "d = tl.load(p + 2)"]
        ends = [f"tl.store(out + {i}, {v})" for i, v in enumerate(known)]
        lines = [*head, *self.block(known, 0), *self.block(known, 0), *ends]
        text = "\n".join(f"    {line}" for line in lines)
        self.text = (
            f"import warploom as wl\nimport warploom.language as tl\n\n\n"
            f"@wl.jit\ndef kernel(p, out, n):\n{text}\n"
        )

    def name(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def number(self, known: list[str], depth: int = 0) -> str:
        pick = self.random.random()
        if depth > 2 or pick < 0.35:
            return self.random.choice(known)
        if pick < 0.5:
            return str(self.random.randint(-5, 9))
        x = self.number(known, depth + 1)
        if pick < 0.85:
            return f"({x} {self.random.choice('+-*')} {self.number(known, depth + 1)})"
        return f"({x} {self.random.choice(['//', '%'])} {self.random.randint(2, 7)})"

    def block(self, known: list[str], depth: int) -> list[str]:
        known = list(known)
        return [x for _ in range(self.random.randint(1, 4)) for x in self.statement(known, depth)]

    def inside(self, known: list[str], depth: int) -> list[str]:
        return [f"    {line}" for line in self.block(known, depth + 1)]

    def statement(self, known: list[str], depth: int) -> list[str]:
        pick = self.random.random()
        if pick < 0.5 or depth > 2:
            if self.random.random() < 0.15:
                x, y = self.random.sample(known, 2)
                return [f"{x}, {y} = {y}, {x}"]
            value = self.number(known)
            to = self.random.choice(known) if self.random.random() < 0.7 else self.name()
            known += [to] * (to not in known)
            return [f"{to} = {value}"]
        x, y = self.number(known, 1), self.number(known, 1)
        if pick < 0.65:
            test = f"if {x} {self.random.choice(['<', '<=', '==', '!='])} {y}:"
            other = ["else:", *self.inside(known, depth)] if self.random.random() < 0.6 else []
            return [test, *self.inside(known, depth), *other]
        index = self.name()
        if pick < 0.88:
            step = self.random.choice(["1", "2", f"({self.random.choice(known)} % 3 + 3)"])
            head = f"for {index} in range({x} % 4, {y} % 9, {step}):"
            return [head, *self.inside([*known, index], depth)]
        turn = f"    {index} -= {self.random.randint(1, 2)}"
        return [f"{index} = {x} % 6", f"while {index} > 0:", *self.inside(known, depth), turn]


def kernel_of(source: Source, path: Path) -> Any:
    path.write_text(source.text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.kernel


@pytest.mark.parametrize("seed", range(40))
def test_random_programs(seed: int, tmp_path: Path, own_cache: None) -> None:
    kernel = kernel_of(Source(seed), tmp_path / f"program{seed}.py")
    given, n = np.array([seed % 7 + 1, seed % 5 - 2, seed % 11], np.int32), seed % 6 + 2
    wanted, found = np.zeros(4, np.int32), torch.zeros(4, dtype=torch.int32, device="cuda")
    compiled = kernel.compile(signature=("*i32:16", "*i32:16", "i32"), num_warps=1)
    oracle.run(compiled.request.translate(), [given.copy(), wanted, n], (1, 1, 1))
    kernel[1,](torch.tensor(given, device="cuda"), found, n, num_warps=1)
    assert found.tolist() == wanted.tolist(), Path(tmp_path / f"program{seed}.py").read_text()


@pytest.mark.parametrize(("kernel", "programs"), [(block, 1), (row, 2), (strided, 1)])
def test_places_behind_two_to_the_31(kernel: Any, programs: int) -> None:
    x = torch.zeros(LONG + LEFT, dtype=torch.int8, device="cuda")
    x[LONG:] = torch.arange(LEFT, device="cuda") % 100
    y = torch.zeros(programs, BLOCK, dtype=torch.int8, device="cuda")
    kernel[programs,](x, y, x.numel(), LONG // BLOCK, BLOCK=BLOCK)
    assert torch.equal(y[-1, :LEFT], x[LONG:] + 1) and not y[:, LEFT:].any()


def test_sizes_of_negative_zeros_have_no_sign() -> None:
    x = torch.arange(-64, 64, device="cuda").float()
    out = torch.zeros(128 + 4, device="cuda", dtype=torch.int32)
    sizes_of_zeros[(4,)](out, x, 1, BLOCK=128)
    found = out.view(torch.float32)
    assert torch.equal(found[:128], torch.where(x > 0, 0.0, x * x))
    assert found[128:].tolist() == [6.0, 6.0, 0.0, 0.0]
    assert bool((out >= 0).all())


def test_quotients_by_zero_are_dropped() -> None:
    args, wanted = quotients()
    moved = [torch.from_numpy(a.copy()).cuda() for a in args[:3]]
    dropped_quotients[1,](*moved, args[3])
    assert moved[0].tolist() == wanted.tolist()


@pytest.mark.parametrize("knobs", [{"num_consumer_groups": 2}, {"num_consumer_groups": 0}])
def test_the_clock_of_the_gpu(knobs: dict[str, int]) -> None:
    """Read where it stands, the same for all threads: else those that wait for a time part in the loop."""
    a, b = (torch.randn(128, 192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    c, t = torch.zeros(128, 128, device="cuda"), torch.zeros(5, device="cuda", dtype=torch.int64)
    timed_product[(1,)](a, b, c, t, 192, 100_000, M=128, **knobs)
    start, end, *between = t.tolist()
    assert start <= between[0] <= between[1] <= between[2] <= end and end - start >= 100_000
    torch.testing.assert_close(c, a.float() @ b.float().T, atol=1e-2, rtol=1e-3)


def test_bessel_functions_on_the_gpu() -> None:
    n = np.array([0, 1, 2, 5, 20, 60, 3, -1], np.int32)
    x = np.array([0.5, 2, 31, 50, 3, 55, -2, 2.0])
    want = np.zeros((4, 8))
    of_orders[(1,)](n, x, want, N=8)
    out = torch.zeros(4, 8, device="cuda", dtype=torch.float64)
    of_orders[(1,)](torch.tensor(n, device="cuda"), torch.tensor(x, device="cuda"), out, N=8)
    np.testing.assert_allclose(out.cpu().numpy(), want, rtol=1e-7, atol=1e-9)


@wl.jit
def running_sums(
    x_ptr: Any, out_ptr: Any, flag_ptr: Any, sum_ptr: Any, n: Any, BLOCK: tl.constexpr
) -> None:
    """Sums up to each element: a program waits for the one before it (decoupled look-back)."""
    pid = tl.program_id(0)
    i = pid * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    before = 0.0
    if pid > 0:
        while tl.atomic_add(flag_ptr + pid - 1, 0) == 0:
            pass
        before = tl.load(sum_ptr + pid - 1, volatile=True)
    tl.store(sum_ptr + pid, before + tl.sum(x, 0))
    tl.debug_barrier()
    tl.atomic_xchg(flag_ptr + pid, 1)
    tl.store(out_ptr + i, tl.cumsum(x, 0) + before, mask=i < n)


def test_floats_that_one_thread_reads() -> None:
    x = torch.randint(-9, 9, (5000,), device="cuda").float()
    out, flags = torch.empty_like(x), torch.zeros(40, dtype=torch.int32, device="cuda")
    running_sums[(40,)](x, out, flags, torch.zeros(40, device="cuda"), 5000, BLOCK=128)
    assert torch.equal(out, x.cumsum(0))


@wl.jit
def old_values(p_ptr: Any, h_ptr: Any, out_ptr: Any, BLOCK: tl.constexpr) -> None:
    added, swapped = tl.atomic_add(p_ptr, 1.5), tl.atomic_xchg(p_ptr + 1, 2.0)
    loaded, half = tl.load(p_ptr + 2, volatile=True), tl.load(h_ptr, volatile=True)
    i = tl.arange(0, BLOCK)
    tl.store(out_ptr + i, i * (added + 10.0 * swapped + 100.0 * loaded + half.to(tl.float32)))


def test_floats_that_atomics_give() -> None:
    p = torch.tensor([0.25, 0.5, 3.0], device="cuda")
    half, out = (
        torch.full((1,), 0.125, dtype=torch.bfloat16, device="cuda"),
        torch.zeros(128, device="cuda"),
    )
    old_values[(1,)](p, half, out, BLOCK=128)
    assert torch.equal(out, torch.arange(128, device="cuda") * (0.25 + 5 + 300 + 0.125))
    assert p.tolist() == [1.75, 2.0, 3.0]
