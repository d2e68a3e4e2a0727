"""Beside torch, on the CPU: tensors without memory are refused by name, `torch.compile` breaks its graph at a
launch, outputs of no axes are written."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import warploom as wl
import warploom.language as tl
from warploom.errors import LaunchError

torch = pytest.importorskip("torch")
ROOT = Path(__file__).parent.parent.parent


@wl.jit
def add_one(x_ptr: Any, n: Any, BLOCK: tl.constexpr) -> None:
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + at, tl.load(x_ptr + at, mask=at < n) + 1.0, mask=at < n)


@wl.jit
def total(x_ptr: Any, out_ptr: Any, BLOCK: tl.constexpr) -> None:
    tl.store(out_ptr, tl.sum(tl.load(x_ptr + tl.arange(0, BLOCK)), 0))


# ---- tensors without memory


def fake(*sizes: int) -> Any:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        return torch.empty(*sizes)


def released() -> Any:
    t = torch.empty(64)
    t.untyped_storage().resize_(0)
    return t


WITHOUT_MEMORY: dict[str, tuple[Callable[[], Any], str]] = {
    "meta": (
        lambda: torch.empty(64, device="meta"),
        "Tensor on device 'meta', which has no memory",
    ),
    "fake": (
        lambda: fake(64),
        "FakeTensor on device 'cpu', which has no memory.*it is a fake tensor",
    ),
    "sparse": (lambda: torch.zeros(64).to_sparse(), "Tensor on device 'cpu', which has no memory"),
    "released": (released, "its address is 0"),
}


@pytest.mark.parametrize("kind", WITHOUT_MEMORY)
def test_tensors_without_memory(kind: str) -> None:
    """Beside one another they have no false overlap, either: nothing is compiled, nothing warned of."""
    make, text = WITHOUT_MEMORY[kind]
    real = torch.zeros(64)
    uses: list[Callable[[], Any]] = [
        lambda: add_one[(2,)](make(), 64, BLOCK=32),
        lambda: add_one[(2,)](make(), 64, BLOCK=32),  # also where the type was seen before
        lambda: add_one.compile_for(make(), 64, grid=(2,), BLOCK=32),
        lambda: add_one.prepare(make(), 64, grid=(2,), BLOCK=32),
        lambda: total[(1,)](make(), make(), BLOCK=64),
        lambda: total[(1,)](real, make(), BLOCK=64),
        lambda: wl.TensorDescriptor.from_tensor(make(), (32,)),
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for use in uses:
            with pytest.raises(LaunchError, match=text) as caught:
                use()
            assert caught.value.code == "array-memory" and caught.value.help
    assert not add_one._variants and not total._variants


def test_tensors_without_elements_have_no_address_either() -> None:
    add_one[(1,)](torch.empty(0), 0, BLOCK=32)


def test_tensors_of_the_other_sign() -> None:
    """Their address leads to numbers that they don't have."""
    x = torch.complex(torch.zeros(64), torch.ones(64)).conj().imag
    assert x.is_neg() and x[0] == -1
    for use in (
        lambda: total[(1,)](x, torch.zeros([]), BLOCK=64),
        lambda: total.compile_for(x, torch.zeros([]), grid=(1,), BLOCK=64),
        lambda: wl.TensorDescriptor.from_tensor(x, (32,)),
    ):
        with pytest.raises(LaunchError, match="the other sign") as caught:
            use()
        assert caught.value.code == "argument-negated"
    total[(1,)](x.resolve_neg(), out := torch.zeros([]), BLOCK=64)
    assert float(out) == -64


def test_real_tensors_under_a_fake_mode() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    x, out = torch.ones(64), torch.zeros([])
    with FakeTensorMode(allow_non_fake_inputs=True), pytest.raises(LaunchError) as caught:
        total[(1,)](x, out, BLOCK=64)
    assert caught.value.code == "array-memory"


# ---- outputs of no axes


def test_a_result_of_no_axes() -> None:
    out = torch.tensor(float("nan"))
    total[(1,)](torch.arange(64.0), out, BLOCK=64)
    assert float(out) == 63 * 32


# ---- torch.compile

CALLS = {
    "a kernel": "add_one[(2,)](y, 64, BLOCK=32)",
    "a grid function": "add_one[lambda meta: (64 // meta['BLOCK'],)](y, 64, BLOCK=32)",
    "a tuned kernel": "tuned[(2,)](y, 64)",
    "a launcher made before": "launcher(y, 64, BLOCK=32)",
    "a script": "script(y, 64, 1); y += 1",
    "attention": "y += attended(y)",
}
PROGRAM = """
import torch
import warploom as wl
from tests.explicit.test_launch import Scale
from tests.unit.test_torch import add_one
from warploom.kernels.attention import attend
tuned = wl.autotune([wl.Config({"BLOCK": 32})], key=["n"])(wl.jit(add_one.fn))
launcher = add_one[(2,)]
script = Scale()
q, o = (torch.zeros(1, 4, 16, dtype=torch.float16) for _ in range(2))
def attended(y):
    attend(q, q, q + 1, o, None, torch.zeros(2, dtype=torch.int32), programs=1)
    return o.float().reshape(64)
def f(x):
    y = x * 2
    CALL
    return y + 1
compiled = torch.compile(f, backend="eager", fullgraph=FULL)
for n in range(3):
    x = torch.full((64,), float(n))
    try:
        assert torch.equal(compiled(x), x * 2 + 2)
    except torch._dynamo.exc.Unsupported as e:
        print(type(e).__name__, e)
        break
else:
    print("right")
"""


def run(call: str, full: bool) -> str:
    """What a fresh process prints: torch's tracer has not met the package in it."""
    program = PROGRAM.replace("CALL", call).replace("FULL", str(full))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", CALLS)
def test_a_launch_breaks_the_graph(name: str) -> None:
    assert run(CALLS[name], full=False) == "right\n"


@pytest.mark.slow
def test_where_a_whole_graph_is_asked_for_torch_says_that_it_can_not() -> None:
    told = run(CALLS["a kernel"], full=True)
    assert told.startswith("Unsupported") and "a kernel's launch can't be traced" in told


def test_torch_is_not_loaded_for_it() -> None:
    from warploom.runtime import dynamo

    program = "import sys; from warploom.runtime.dynamo import step_aside; step_aside(); print('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n" and dynamo.step_aside._torchdynamo_disable
