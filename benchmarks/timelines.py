"""Measured beside predicted: kernels of the library, for docs/timeline.md.

python -m benchmarks.timelines --out FOLDER     record on the GPU (needs torch): NAME.npz, records.json
python -m benchmarks.timelines --draw FOLDER --to FILE --figures FOLDER
                                                from records: figures, stalls (no GPU)

`exact`: the last launch with stamps left the same bits as the plain kernel.
"""

from __future__ import annotations

import argparse
import importlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from warploom.bench.cases import Attention, Case, Dual, Fp8, Gemm
from warploom.bench.data import E4M3_MAX, NUMPY, Paper, make_data
from warploom.passes.stamp import stamp
from warploom.runtime.measure import Recording, compare, record
from warploom.timeline.compare import Comparison


@dataclass(frozen=True)
class Traced:
    """A peer's first configuration on a case; how many cycles of it are drawn (0: none)."""

    peer: str
    case: Case
    drawn: float = 0.0

    def launch(self) -> tuple[Any, tuple[Any, ...], tuple[int, int, int]]:
        """(kernel, arguments on the host, grid)."""
        peer = importlib.import_module(f"benchmarks.peers.{self.peer}")
        run = peer.candidates(make_data(self.case, Drawn()))[0].make()
        return run.compiled(), run.calls[0], run.grid


TRACED = {
    "gemm": Traced("warploom", Gemm(4096, 4096, 1024), 22_000),
    "gemm_long": Traced("warploom", Gemm(4096, 4096, 4096)),
    "cluster": Traced("warploom_cluster", Gemm(4096, 4096, 1024), 14_000),
    "attention": Traced("warploom_attention", Attention(1, 12, 1408, 128, False), 12_000),
    "auto_attention": Traced("warploom_auto_attention", Attention(1, 12, 1408, 128, False), 12_000),
    "dual": Traced("warploom_dual", Dual(4096, 2048, 1024), 18_000),
    "fp8_promoted": Traced("warploom_fp8_promoted", Fp8(4096, 4096, 2048), 16_000),
}


class Drawn(Paper):
    """Arrays on the host, normally distributed."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(0)

    def normal(self, *shape: int, dtype: str = "bf16", deviation: float = 1.0) -> Any:
        numbers = self.random.standard_normal(shape, np.float32)
        return (numbers * np.float32(deviation)).astype(NUMPY[dtype])

    def quantized(self, rows: int, columns: int) -> tuple[Any, Any]:
        x = self.random.standard_normal((rows, columns), np.float32)
        scale = np.abs(x).max(1) / np.float32(E4M3_MAX)
        return (x / scale[:, None]).astype(NUMPY["e4m3"]), scale


def run(folder: Path) -> None:
    """Records every case."""
    import torch

    from warploom.runtime.launch import driver

    facts: dict[str, Any] = {"device": driver().device_name(0)}
    for name, traced in TRACED.items():
        kernel, given, grid = traced.launch()
        tensors = [_on_gpu(x) for x in given]
        launch = kernel.loaded().prepare(
            0,
            grid,
            tuple(x.data_ptr() if hasattr(x, "data_ptr") else x for x in tensors),
        )
        launch(0)
        torch.cuda.synchronize()
        arrays = [x for x in tensors if hasattr(x, "data_ptr")]
        plain = [_bits(x) for x in arrays]
        found = record(kernel, tensors, grid)
        exact = all(torch.equal(x, _bits(y)) for x, y in zip(plain, arrays, strict=True))
        facts[name] = {
            "exact": exact,
            "plain_ms": found.plain_ms,
            "stamped_ms": found.stamped_ms,
            "stamped sites": len(found.sites),
        }
        print(name, facts[name], flush=True)
        np.savez_compressed(
            folder / f"{name}.npz",
            **{f"{c}.{i}": r for c, cta in enumerate(found.records) for i, r in enumerate(cta)},
        )
        (folder / "records.json").write_text(json.dumps(facts, indent=1) + "\n")


def _on_gpu(x: Any) -> Any:
    import torch

    if not isinstance(x, np.ndarray):
        return x
    if x.ndim == 2 and not x.flags.c_contiguous:
        return _on_gpu(x.T).T
    views = {
        "bfloat16": (np.int16, torch.bfloat16),
        "float8_e4m3fn": (np.uint8, torch.float8_e4m3fn),
    }
    bits, dtype = views.get(x.dtype.name, (x.dtype, None))
    tensor = torch.from_numpy(x.view(bits)).cuda()
    return tensor if dtype is None else tensor.view(dtype)


def _bits(x: Any) -> Any:
    """A copy of a tensor as bytes."""
    import torch

    return x.contiguous().view(torch.uint8).clone()


def load(folder: Path, name: str) -> tuple[Comparison, dict[str, Any]]:
    """A recorded case with today's prediction, and what was measured beside."""
    facts = json.loads((folder / "records.json").read_text())[name]
    kernel, given, grid = TRACED[name].launch()
    func, sites = stamp(kernel.placed)
    with np.load(folder / f"{name}.npz") as data:
        ctas = 1 + max(int(key.partition(".")[0]) for key in data.files)
        agents = len(data.files) // ctas
        records = [[data[f"{c}.{i}"] for i in range(agents)] for c in range(ctas)]
    found = Recording(func, sites, records, facts["plain_ms"], facts["stamped_ms"])
    return compare(kernel, found, given, grid), facts


def draw(folder: Path, to: Path, figures: Path) -> None:
    """Figures, and the stalls as data."""
    results: dict[str, Any] = {
        "device": json.loads((folder / "records.json").read_text())["device"]
    }
    for name, traced in TRACED.items():
        found, facts = load(folder, name)
        measured, predicted = found.measured.stalls(), found.predicted.stalls()
        results[name] = {
            **facts,
            "cycles": {"predicted": found.predicted.cycles, "measured": found.measured.cycles},
            "stalls": [
                {"for": b, "agent": a, "predicted": predicted.get((b, a), 0.0), "measured": m}
                for (b, a), m in sorted(measured.items(), key=lambda item: -item[1])
            ],
        }
        print(f"{name}: {found}\n")
        if traced.drawn:
            found.window(traced.drawn).save(figures / f"timeline_{name}.svg")
    to.write_text(json.dumps(results, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--out", type=Path)
    what.add_argument("--draw", type=Path)
    parser.add_argument("--to", type=Path, default=Path("benchmarks/results/timelines.json"))
    parser.add_argument("--figures", type=Path, default=Path("docs/figures"))
    args = parser.parse_args()
    if args.out is not None:
        args.out.mkdir(parents=True, exist_ok=True)
        run(args.out)
    else:
        draw(args.draw, args.to, args.figures)


if __name__ == "__main__":
    main()
