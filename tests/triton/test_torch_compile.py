"""torch.compile with a user's kernels in the function: Inductor for CPUs, whose kernels are interpreted here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import torch
import triton
import triton.language as tl
from torch._inductor import config
from torch.library import triton_op, wrap_triton
from triton.language.extra.libdevice import rsqrt

config.cpu_backend = "triton"
triton.backends.backends["cpu"] = triton.backends.backends["nvidia"]  # so that Dynamo traces kernels on CPUs


MODE: tl.constexpr = tl.constexpr(1)  # Inductor writes globals of kernels to a file of its own


@triton.constexpr_function
def half(n):
    return n // 2


@triton.jit
def one(x):
    return rsqrt(x * 0 + MODE)


@triton.jit
def scale(x_ptr, out_ptr, n, by, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, half(BLOCK) * 2)
    x = tl.load(x_ptr + at, at < n)
    tl.store(out_ptr + at, x * by * one(x), at < n)


tuned = triton.autotune([triton.Config({"BLOCK": n}) for n in (64, 128)], key=["n"])(scale)
found = triton.autotune([triton.Config({})], key=[])(
    triton.heuristics({"BLOCK": lambda args: 64 if args["n"] > 1 else 16})(scale)
)


@triton_op("tests::scaled", mutates_args={})
def scaled(x: torch.Tensor, by: float) -> torch.Tensor:
    out = torch.empty_like(x)
    wrap_triton(scale)[(triton.cdiv(x.numel(), 64),)](x, out, x.numel(), by, 64)
    return out


scaled.register_autograd(lambda ctx, g: (scaled(g.contiguous(), 3.0), None))


def f(x, w):
    a, b, c = (torch.empty_like(x) for _ in range(3))
    n, warps = x.numel(), triton.next_power_of_2(2)
    scale[(triton.cdiv(n, 64),)](x + 1, a, n, 2.0, 64, num_warps=warps)
    tuned[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](a, b, n, 0.5)
    found[(triton.cdiv(n, 64),)](b, c, n, 3.0)
    return c + scaled(w.sin(), 3.0)


compiled = torch.compile(f, fullgraph=True, dynamic=True)
for n in 100, 257:
    x, w = torch.randn(n), torch.randn(n, requires_grad=True)  # a leaf, which no kernel may change
    y = compiled(x, w)
    y.sum().backward()
    assert torch.allclose(y, (x + 1) * 3 + w.sin() * 3, atol=1e-5), n
    assert torch.allclose(w.grad, w.cos() * 3, atol=1e-5), n
print("right")
"""


def test_users_kernels_are_traced_and_change_what_they_write(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "-m", "warploom", "run", str(script)], capture_output=True, text=True
    )
    assert done.stdout.strip().endswith("right"), done.stderr[-3000:]
    assert "assuming every input is mutated" not in done.stderr
