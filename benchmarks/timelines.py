"""Measured beside predicted: the library's GEMM and the explicit attention, for docs/timeline.md.

python -m benchmarks.timelines --out FOLDER     record on the GPU (needs torch): NAME.npz, records.json
python -m benchmarks.timelines --draw FOLDER --to FILE --figures FOLDER
                                                from records: figures, stalls (no GPU)

`exact`: the last launch with stamps left the same bits as the plain kernel.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.calibrate import PROGRAMS
from warploom.passes.stamp import stamp
from warploom.runtime.measure import Recording, compare, record
from warploom.timeline.compare import Comparison

CASES = {
    "gemm": "gemm 4096x4096x1024",
    "attention": "attention 12x1408x128",
    "gemm_long": "gemm 4096x4096x4096",
}
DRAWN = {"gemm": 22_000.0, "attention": 26_000.0}  # cycles


def run(folder: Path) -> None:
    """Records every case."""
    import torch

    from warploom.runtime.launch import driver

    facts: dict[str, Any] = {"device": driver().device_name(0)}
    for name, program in CASES.items():
        kernel, given, grid = PROGRAMS[program]()
        tensors = [_on_gpu(x) for x in given]
        launch = kernel.loaded().prepare(
            0,
            (*grid, 1, 1)[:3],
            tuple(x.data_ptr() if hasattr(x, "data_ptr") else x for x in tensors),
        )
        launch(0)
        torch.cuda.synchronize()
        plain = [x.clone() for x in tensors if hasattr(x, "data_ptr")]
        found = record(kernel, tensors, grid)
        left = [x for x in tensors if hasattr(x, "data_ptr")]
        exact = all(torch.equal(x, y) for x, y in zip(plain, left, strict=True))
        facts[name] = {
            "exact": exact,
            "plain_ms": found.plain_ms,
            "stamped_ms": found.stamped_ms,
            "stamped sites": len(found.sites),
        }
        print(name, facts[name], flush=True)
        np.savez_compressed(folder / f"{name}.npz", *found.records[0])
        (folder / "records.json").write_text(json.dumps(facts, indent=1) + "\n")


def _on_gpu(x: Any) -> Any:
    import torch

    if not isinstance(x, np.ndarray):
        return x
    if x.dtype.name != "bfloat16":
        return torch.from_numpy(x).cuda()
    return torch.from_numpy(x.view(np.int16)).cuda().view(torch.bfloat16)


def load(folder: Path, name: str) -> tuple[Comparison, dict[str, Any]]:
    """A recorded case with today's prediction, and what was measured beside."""
    facts = json.loads((folder / "records.json").read_text())[name]
    kernel, given, grid = PROGRAMS[CASES[name]]()
    func, sites = stamp(kernel.placed)
    with np.load(folder / f"{name}.npz") as data:
        records = [[data[f"arr_{i}"] for i in range(len(data.files))]]
    found = Recording(func, sites, records, facts["plain_ms"], facts["stamped_ms"])
    return compare(kernel, found, given, grid), facts


def draw(folder: Path, to: Path, figures: Path) -> None:
    """Figures, and the stalls as data."""
    results: dict[str, Any] = {
        "device": json.loads((folder / "records.json").read_text())["device"]
    }
    for name in CASES:
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
        if name in DRAWN:
            found.window(DRAWN[name]).save(figures / f"{name}.svg")
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
