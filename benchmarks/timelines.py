"""Measured beside predicted: kernels of the library, for docs/timeline.md.

python -m benchmarks.timelines --out FOLDER     record on the GPU (needs torch): NAME.npz, records.json
python -m benchmarks.timelines --draw FOLDER    from records, without a GPU: figures, stalls as data, and
                                                what docs/timeline.md has of them

`exact`: the last launch with stamps left the same bits as the plain kernel.
"""

from __future__ import annotations

import argparse
import importlib
import json
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cases import Attention, Case, Dual, Fp8, Gemm
from benchmarks.data import E4M3_MAX, NUMPY, Paper, make_data
from benchmarks.measure import machine
from benchmarks.records import Record, Report, run_of, write
from warploom.passes.placed.instrument import instrument
from warploom.runtime.measure import Recording, compare, record
from warploom.timeline.compare import Comparison


@dataclass(frozen=True)
class Traced:
    """A peer's first configuration on a case; what the page calls it; how many cycles of it are drawn (0:
    none)."""

    title: str
    peer: str
    case: Case
    drawn: float = 0.0

    def launch(self) -> tuple[Any, tuple[Any, ...], tuple[int, int, int]]:
        """(kernel, arguments on the host, grid)."""
        peer = importlib.import_module(f"benchmarks.peers.{self.peer}")
        run = peer.candidates(make_data(self.case, Drawn()))[0].make()
        return run.compiled(), run.calls[0], run.grid


_SEQ = Attention(1, 12, 1408, 128, False)
TRACED = {
    "gemm": Traced("GEMM 4096×4096×1024", "warploom", Gemm(4096, 4096, 1024), 22_000),
    "gemm_long": Traced("GEMM 4096×4096×4096", "warploom", Gemm(4096, 4096, 4096)),
    "cluster": Traced(
        "GEMM 4096×4096×1024 in clusters of two", "warploom_cluster", Gemm(4096, 4096, 1024), 12_000
    ),
    "attention": Traced("attention by hand, 12×1408×128", "warploom_attention", _SEQ, 12_000),
    "auto_attention": Traced("attention, 12×1408×128", "warploom_auto_attention", _SEQ, 12_000),
    "dual": Traced("gated pair 4096×2048×1024", "warploom_dual", Dual(4096, 2048, 1024), 18_000),
    "dual_fp8": Traced(
        "gated pair in e4m3, 4096×2048×2048", "warploom_dual", Dual(4096, 2048, 2048, "e4m3")
    ),
    "fp8": Traced("e4m3, 4096×4096×2048", "warploom_fp8", Fp8(4096, 4096, 2048), 16_000),
    "fp8_promoted": Traced(
        "e4m3, promoted, 4096×4096×2048", "warploom_fp8_promoted", Fp8(4096, 4096, 2048), 16_000
    ),
}
DATA, FIGURES = Path("benchmarks/results/timelines.jsonl"), Path("docs/figures")
PAGE = Path("docs/timeline.md")
BEGIN, END = "<!-- what python -m benchmarks.timelines --draw writes -->\n", "<!-- so far -->\n"
WORTH = 0.03  # of the time: stalls that the page tells


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


def load(folder: Path, name: str) -> Comparison:
    """A recorded case with today's prediction."""
    facts = json.loads((folder / "records.json").read_text())[name]
    kernel, given, grid = TRACED[name].launch()
    func, sites = instrument(kernel.placed)
    with np.load(folder / f"{name}.npz") as data:
        ctas = 1 + max(int(key.partition(".")[0]) for key in data.files)
        agents = len(data.files) // ctas
        records = [[data[f"{c}.{i}"] for i in range(agents)] for c in range(ctas)]
    found = Recording(func, sites, records, facts["plain_ms"], facts["stamped_ms"])
    return compare(kernel, found, given, grid)


def draw(folder: Path, to: Path = DATA, figures: Path = FIGURES, page: Path = PAGE) -> None:
    """Figures, the cycles as records, and the page's part of both."""
    device = json.loads((folder / "records.json").read_text())["device"]
    run = run_of({**machine(), "device": device}, unit="cycles")
    report = Report({run.run: run})
    rows, sections = [], []
    for name, traced in TRACED.items():
        found = load(folder, name)
        predicted, measured = found.predicted.cycles, found.measured.cycles
        stalls = waits(found)
        cycles = {"predicted": predicted, "measured": measured}
        report.records += [Record(name, peer, run.run, [round(n)]) for peer, n in cycles.items()]
        print(f"{name}: {found}\n")
        rows.append(
            f"| {traced.title} | {predicted:,.0f} | {measured:,.0f} | {predicted / measured - 1:+.0%} "
            f"| {1e3 * found.plain_ms:.1f} µs | {1e3 * found.stamped_ms:.1f} µs ({found.overhead:+.1%}) |"
        )
        if traced.drawn:
            file = figures / f"timeline_{name}.svg"
            found.window(traced.drawn).save(file)
            sections.append(section(traced.title, file.name, stalls, measured))
    write(to, report)
    head = [
        f"| program 0, {device} | predicted cycles | measured | | a launch | with stamps |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    begin, _, rest = page.read_text().partition(BEGIN)
    _, _, end = rest.partition(END)
    written = "\n".join([*head, *rows, "", *sections])
    page.write_text(f"{begin}{BEGIN}{written}\n{END}{end}")


def waits(found: Comparison) -> list[dict[str, Any]]:
    """Cycles stalled, by agent and what for (the slots of a ring together), the longest measured first."""
    both = [Counter[tuple[str, str]](), Counter[tuple[str, str]]()]
    for total, timeline in zip(both, (found.predicted, found.measured), strict=True):
        for (barrier, agent), cycles in timeline.stalls().items():
            total[re.sub(r"(_\d+)?\[\d+\]", "", barrier), agent] += cycles
    keys = sorted({*both[0], *both[1]}, key=lambda key: (-both[1][key], -both[0][key], key))
    return [
        {"for": key[0], "agent": key[1], "predicted": both[0][key], "measured": both[1][key]}
        for key in keys
    ]


def section(title: str, file: str, stalls: list[dict[str, Any]], cycles: float) -> str:
    """A figure and the stalls that count."""
    lines = [
        f"### {title[0].upper()}{title[1:]}",
        "",
        f"![{title}, predicted and measured](figures/{file})",
        "",
        "| waits for | agent | predicted | measured | of its time |",
        "|---|---|---:|---:|---:|",
    ]
    for stall in stalls:
        p, m = stall["predicted"], stall["measured"]
        if max(p, m) >= WORTH * cycles:
            lines.append(
                f"| {stall['for']} | {stall['agent']} | {p:,.0f} | {m:,.0f} | {m / cycles:.0%} |"
            )
    return "\n".join([*lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--out", type=Path)
    what.add_argument("--draw", type=Path)
    parser.add_argument("--to", type=Path, default=DATA)
    parser.add_argument("--figures", type=Path, default=FIGURES)
    parser.add_argument("--page", type=Path, default=PAGE)
    args = parser.parse_args()
    if args.out is not None:
        args.out.mkdir(parents=True, exist_ok=True)
        run(args.out)
    else:
        draw(args.draw, args.to, args.figures, args.page)


if __name__ == "__main__":
    main()
