"""corpus/as_triton through the door: `import triton` is served, the host code runs as it stands.  Each kernel is
interpreted and compared with PyTorch, and compiled for sm_90a without a spill, as it was launched."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from corpus import as_triton
from tests.conftest import THOROUGH
from warploom.runtime import serve
from warploom.runtime.jit import JITFunction

pytestmark = pytest.mark.filterwarnings("ignore::warploom.errors.WarploomWarning")
pytest.importorskip("torch")

# Sizes at which the oracle is quick.
SIZES = {
    "vector_add": 3000, "fused_softmax": 9, "matmul": 128, "dropout": 1000, "layer_norm": 5, "attention": 128,
    "attention_backward": 128, "extern_functions": 3000, "grouped_gemm": 512, "persistent_matmul": 256, "block_scaled_matmul": 256,
    "packed_scales": 256, "dependent_launch": 3000, "shared_examples": 128, "shared_accesses": 100, "clustered_matmul": 256,
}  # fmt: skip
# Seconds.
SLOW = ("grouped_gemm", "attention", "attention_backward", "persistent_matmul", "packed_scales")
SPILLS = ("packed_scales",)  # of the tiles of scales, rearranged in registers


@pytest.fixture
def served() -> Iterator[None]:
    """`import triton` is warploom.triton, in this test alone."""
    kept = {n: m for n, m in sys.modules.items() if n.partition(".")[0] in serve.SERVED}
    for name in kept:
        del sys.modules[name]
    serve.serve()
    try:
        yield
    finally:
        serve.stop()
        sys.modules.update(kept)
        for name in [n for n in sys.modules if n.startswith("corpus.as_triton.")]:
            del sys.modules[name]


def test_every_program_is_run() -> None:
    files = {p.stem for p in Path(as_triton.__file__).parent.glob("*.py")} - {"__init__"}
    assert files == set(SIZES)
    for name in files:
        text = (Path(as_triton.__file__).parent / f"{name}.py").read_text()
        assert "warploom" not in text


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.thorough] * (n in SLOW)) for n in SIZES]
)
def test_a_program(name: str, served: None, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: dict[str, Any] = {}
    interpret = JITFunction._interpret

    def also_compiled(self: JITFunction, call: Any, sizes: Any) -> None:
        interpret(self, call, sizes)
        kernel = self._variants_for(call, "sm_90a", sizes=sizes)[-1][1]
        compiled[kernel.key] = kernel

    monkeypatch.setattr(JITFunction, "_interpret", also_compiled)
    importlib.import_module(f"corpus.as_triton.{name}").check("cpu", SIZES[name])
    assert compiled
    assert name in SPILLS or [k.name for k in compiled.values() if k.resources.spill_bytes] == []
    if THOROUGH:
        assert all(k.asm["cubin"] for k in compiled.values())
