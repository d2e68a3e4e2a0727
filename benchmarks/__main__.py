"""The library's kernels beside whatever else is installed, on the present GPU:

python -m benchmarks gemm                 or fp8, attention, dual; --list and --dry-run need no GPU
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rich.markup import escape
from rich.table import Table

import warploom.cli
from benchmarks.cases import CASES, DTYPES, USUAL, Case, named, of_shape
from benchmarks.chart import burst, draw, is_ours
from benchmarks.data import Paper, has_gpu, make_data
from benchmarks.harness import load_peers
from benchmarks.peers import USUAL as USUAL_PEERS
from benchmarks.records import Record, read
from benchmarks.watch import Failed, watch
from warploom.cli.console import EXIT, UsageError, remark, say, stderr, stdout, working
from warploom.errors import CompileError

WHAT = {
    "gemm": "matrix products beside cuBLAS, Triton, Gluon and quack",
    "fp8": "row-wise scaled e4m3 products beside torch's and Triton's",
    "attention": "attention forward beside FlashAttention-3, cuDNN and Triton",
    "dual": "silu(A·B1ᵀ)·(A·B2ᵀ) beside cuBLAS with a second pass, Triton and quack",
}


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Times the library's kernels beside their peers."
    )
    kinds = top.add_subparsers(dest="kind", required=True, metavar="WHAT")
    for kind, what in WHAT.items():
        one = kinds.add_parser(kind, help=what, description=what)
        sizes = "BATCH,HEADS,SEQ,D[,causal]" if kind == "attention" else "M,N,K"
        lists = [name for name, cases in CASES.items() if cases[0].kind == kind]
        one.add_argument("--shape", action="append", metavar=sizes, help="a case; may be repeated")
        one.add_argument("--dtype", choices=DTYPES[kind], help="of the shapes")
        if kind in ("gemm", "fp8"):
            one.add_argument("--layout", choices=("TN", "NN"), default="TN", help="of the shapes")
        one.add_argument(
            "--cases", help=f"instead of shapes: {', '.join(lists)}, or names by comma"
        )
        one.add_argument("--peers", help=f"by comma (default: {','.join(USUAL_PEERS[kind])})")
        one.add_argument("--bursts", type=int, default=5, help="repetitions of 10 ms (default: 5)")
        one.add_argument("--sustained", type=int, default=0, help="of 60 ms, hot (default: none)")
        one.add_argument(
            "--out",
            type=Path,
            default=Path(f"out/{kind}.jsonl"),
            help="results (default: %(default)s)",
        )
        one.add_argument("--chart", type=Path, help=".svg or .png (default: beside the results)")
        how = one.add_mutually_exclusive_group()
        how.add_argument(
            "--list", action="store_true", help="show the cases and peers; no GPU needed"
        )
        how.add_argument(
            "--dry-run", action="store_true", help="only compile warploom's kernels; no GPU needed"
        )
        one.set_defaults(run=run)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit code, as `warploom` has them."""
    return warploom.cli.main(argv, parser())


def run(args: argparse.Namespace) -> int:
    cases = cases_of(args)
    peers = args.peers.split(",") if args.peers else list(USUAL_PEERS[args.kind])
    if args.list:
        return show(cases, peers)
    if args.dry_run:
        return compile_only(cases, peers)
    if not has_gpu():
        what = "a GPU" if importlib.util.find_spec("torch") else "torch and a GPU"
        stderr().print(
            f"benchmarks need {what}, and find none.  Without: --list shows cases and peers, --dry-run "
            "compiles the kernels.",
            soft_wrap=True,
        )
        return EXIT.lacking
    args.out.parent.mkdir(parents=True, exist_ok=True)
    given = ["--peers", ",".join(peers), "--cases", ",".join(case.name for case in cases)]
    given += ["--bursts", str(args.bursts), "--sustained", str(args.sustained)]
    try:
        watch(given, args.out, say=lambda text: remark(text, "yellow"))
    except Failed as error:
        remark(f"bench: {error}", "red")
        return EXIT.found
    report = read(args.out)
    chart = args.chart or args.out.with_suffix(".svg")
    *_, last = report.runs.values()
    draw(report.records, f"{last.device}, {last.date[:10]}", chart)
    stdout().print(table(report.records))
    for name, why in last.missing.items():
        say(f"not measured: {name}: {why}")
    say(f"{args.out}, {chart}")
    wrong = [r for r in report.records if r.error and is_ours(r.peer)]
    return EXIT.found if wrong else EXIT.ok


def cases_of(args: argparse.Namespace) -> Sequence[Case]:
    """The cases that the arguments ask for.  Raises UsageError."""
    try:
        if args.shape:
            layout = getattr(args, "layout", "TN")
            return [of_shape(args.kind, shape, args.dtype, layout) for shape in args.shape]
        if args.cases is None:
            return USUAL[args.kind]
        cases = CASES.get(args.cases) or [named(name.strip()) for name in args.cases.split(",")]
    except ValueError as error:
        raise UsageError(str(error)) from None
    if others := [case.name for case in cases if case.kind != args.kind]:
        raise UsageError(f"'{others[0]}' is no case of {args.kind}")
    return cases


def show(cases: Sequence[Case], names: Sequence[str]) -> int:
    """What would be measured, and what of it is here."""
    rows = [(case.name, f"{case.flops / 1e12:.3f}") for case in cases]
    listed = []
    for name in names:
        peers, missing = load_peers([name])
        listed.append((name, *peers, *(escape(f"missing: {why}") for why in missing.values())))
    stdout().print(_table(("case", "TFLOP"), rows), "", _table(("peer", ""), listed), sep="\n")
    return EXIT.ok


def compile_only(cases: Sequence[Case], names: Sequence[str]) -> int:
    """Compiles what warploom would launch; peers of others are left out."""
    peers, _ = load_peers(names)
    failed = False
    for case in cases:
        data = make_data(case, Paper())
        rows: list[tuple[str, ...]] = []
        for name, peer in peers.items():
            if not is_ours(name) or case.kind not in getattr(peer, "KINDS", ("gemm",)):
                continue
            for candidate in peer.candidates(data):
                start = time.perf_counter()
                try:
                    with working(f"{case.name}: {name}, {candidate.label}"):
                        used = candidate.make().compiled().resources
                except CompileError as error:
                    failed = True
                    told = f"{candidate.label}: {str(error).splitlines()[0]}"
                    rows.append((name, "-", "", "", "", escape(told)))
                    continue
                shared = used.static_shared + used.dynamic_shared
                seconds = f"{time.perf_counter() - start:.1f}"
                numbers = (used.registers, used.spill_bytes, shared, seconds)
                rows.append((name, *map(str, numbers), escape(candidate.label)))
        columns = ("kernel", "registers", "spills", "shared", "seconds", "configuration")
        stdout().print(case.name, _table(columns, rows), "", sep="\n")
    return EXIT.found if failed else EXIT.ok


def table(records: Sequence[Record]) -> Table:
    """The records of a report by case, the fastest first, with its ratio to the best that is not ours."""
    rows: list[tuple[str, ...]] = []
    for case in dict.fromkeys(record.case for record in records):
        rows.append((f"[underline]{case}[/underline]",))
        mine = sorted((r for r in records if r.case == case), key=burst, reverse=True)
        best = max((burst(r) for r in mine if not is_ours(r.peer)), default=0.0)
        for record in mine:
            name = f"[bold]{record.peer}[/bold]" if is_ours(record.peer) else record.peer
            if not (figure := burst(record)):
                rows.append((name, "-", "", "", escape(record.error.partition("\n")[0])))
                continue
            spread = f"{min(record.burst):.0f}..{max(record.burst):.0f}"
            ratio = f"{figure / best:.3f}" if best else ""
            rows.append((name, f"{figure:.0f}", spread, ratio, escape(record.config)))
    return _table(("", "TFLOP/s", "spread", "of the best peer", "configuration"), rows)


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Names to the left, numbers to the right; only the last column is cut where the terminal ends."""
    found = Table(box=None, pad_edge=False, expand=True)
    for i, column in enumerate(columns):
        if i + 1 == len(columns):
            found.add_column(column, no_wrap=True, overflow="ellipsis", ratio=1)
        else:
            found.add_column(column, no_wrap=True, justify="right" if i else "left")
    for row in rows:
        found.add_row(*row)
    return found


if __name__ == "__main__":
    sys.exit(main())
