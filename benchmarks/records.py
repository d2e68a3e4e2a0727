"""What was measured, as lines of JSON: the schema, its reader and its writer.

A line describes a run, or what one implementation did in one case of a run (here broken in two):

    {"schema":1,"run":"6a106069","date":"2026-11-21T15:23:37Z","commit":"004ed69","device":"NVIDIA H200",
     "driver":"580.159.04","versions":{"torch":"2.11.0+cu130", …}}
    {"case":"bf16 TN 8192x8192x8192","peer":"cuBLAS","burst":[794.1,795.0,793.8],"config":"torch.matmul",
     "rel_err":0.00166}

A record without "run" is of the run of the line before it.
`benchmarks/results/` has the current records, a file a family of cases; git has the earlier ones.

    python -m benchmarks.records out/gemm.jsonl --into benchmarks/results/gemm.jsonl

puts a run's records in the place of those of the same case and implementation, without what was only tried.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields
from datetime import datetime
from pathlib import Path
from typing import Any

SCHEMA = 1
RESULTS = Path(__file__).with_name("results")
DIGITS = 6  # of a figure: repetitions differ in the third or fourth, cycles are whole


class RecordError(ValueError):
    """A line that is none of this schema."""


@dataclass(frozen=True)
class Run:
    """A process that measured.  run: its name, the hexadecimal second of its date.  unit: of its records'
    figures.  commit: of the code measured, or what `note` says it is.  missing: why a peer couldn't be
    imported."""

    run: str
    device: str
    date: str = ""  # when it began, in UTC
    commit: str = ""
    driver: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    unit: str = "TFLOP/s"
    note: str = ""
    missing: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Record:
    """What one implementation did in one case.  burst, sustained: a figure a repetition, in the run's unit.
    rel_err: of the norm, against float64.  tried: the figure of each configuration, or why it has none."""

    case: str
    peer: str
    run: str = ""
    burst: list[float] = field(default_factory=list)
    sustained: list[float] = field(default_factory=list)
    config: str = ""
    rel_err: float = math.nan
    error: str = ""
    tried: list[tuple[str, float | str]] = field(default_factory=list)

    @property
    def median(self) -> float:
        """Of the bursts; NaN for an implementation that failed or was not timed."""
        return statistics.median(self.burst) if self.burst and not self.error else math.nan


@dataclass
class Report:
    """Runs by name, and their records."""

    runs: dict[str, Run] = field(default_factory=dict)
    records: list[Record] = field(default_factory=list)

    def by_case(self) -> dict[str, dict[str, Record]]:
        """Records by case and implementation; a later one replaces an earlier one."""
        found: dict[str, dict[str, Record]] = {}
        for record in self.records:
            found.setdefault(record.case, {})[record.peer] = record
        return found

    def merged(self, newer: Report) -> Report:
        """These records, those of the same case and implementation replaced; without runs that are empty."""
        found = {(r.case, r.peer): r for r in [*self.records, *newer.records]}
        runs = {**self.runs, **newer.runs}
        used = {record.run for record in found.values()}
        return Report({n: run for n, run in runs.items() if n in used}, list(found.values()))


def read(*files: Path) -> Report:
    """The records of the files, in order.  Raises RecordError, with file and line, for what is no record."""
    report = Report()
    for file in files:
        last = ""
        for at, text in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            try:
                line = json.loads(text)
                if "case" in line:
                    record = _made(Record, {"run": last, **line})
                    if record.run not in report.runs:
                        raise RecordError(f"run {record.run!r} has no line before")
                    report.records.append(record)
                    last = record.run
                else:
                    if line.pop("schema", None) != SCHEMA:
                        raise RecordError(f"a run of another schema than {SCHEMA}")
                    run = _made(Run, line)
                    report.runs[run.run] = run
                    last = run.run
            except (RecordError, json.JSONDecodeError, TypeError) as error:
                raise RecordError(f"{file}:{at}: {error}") from None
    return report


def current(family: str) -> Report:
    """The committed records of a family: `benchmarks/results/FAMILY.jsonl`."""
    return read(RESULTS / f"{family}.jsonl")


def write(file: Path, report: Report) -> None:
    """Each run before its first record."""
    lines, told, last = [], set(), ""
    for record in report.records:
        if record.run not in told:
            told.add(record.run)
            lines.append({"schema": SCHEMA, **_short(report.runs[record.run])})
            last = record.run
        line = _short(record)
        if line["run"] == last:
            del line["run"]
        lines.append(line)
        last = record.run
    for name in report.runs.keys() - told:  # a run that has measured nothing yet
        lines.append({"schema": SCHEMA, **_short(report.runs[name])})
    texts = [json.dumps(line, ensure_ascii=False, separators=(",", ":")) for line in lines]
    file.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")


def run_of(machine: Mapping[str, str], *, unit: str = "TFLOP/s", **more: Any) -> Run:
    """The run of a process on this machine (`benchmarks.measure.machine`)."""
    known = dict(machine)
    date = known.pop("date")
    return Run(
        run=f"{int(datetime.fromisoformat(date).timestamp()):x}",
        date=date,
        device=known.pop("device"),
        driver=known.pop("driver"),
        versions={name: version for name, version in known.items() if version},
        unit=unit,
        **more,
    )


def _made(kind: type[Any], line: Mapping[str, Any]) -> Any:
    """A run or record from its line.  Raises RecordError."""
    known = {f.name: f for f in fields(kind)}
    if unknown := line.keys() - known.keys():
        raise RecordError(f"{kind.__name__} has no {', '.join(sorted(unknown))}")
    for name, value in line.items():
        default = known[name].default
        factory = known[name].default_factory
        kinds: tuple[type, ...] = (str,)
        if factory is not MISSING:
            kinds = (type(factory()),)
        elif isinstance(default, float):
            kinds = (float, int)
        if not isinstance(value, kinds):
            raise RecordError(f"{name} of a {kind.__name__} is no {kinds[0].__name__}")
    return kind(**line)


def _short(what: Run | Record) -> dict[str, Any]:
    """The line without what is as by default."""
    kept = {}
    for name, value in asdict(what).items():
        if name in ("burst", "sustained"):
            value = [_rounded(x, DIGITS) for x in value]
        elif isinstance(value, float):
            value = "" if math.isnan(value) else _rounded(value, 3)
        if value not in ("", [], {}) and not (name == "unit" and value == "TFLOP/s"):
            kept[name] = value
    return kept


def _rounded(x: float, digits: int) -> float:
    return float(f"{x:.{digits}g}")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Puts a run's records among the current ones")
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--into", type=Path, required=True)
    args = parser.parse_args(argv)
    kept = read(args.into) if args.into.exists() else Report()
    write(args.into, _untried(kept.merged(read(*args.runs))))
    return 0


def _untried(report: Report) -> Report:
    records: Iterable[Record] = (Record(**{**vars(r), "tried": []}) for r in report.records)
    return Report(report.runs, list(records))


if __name__ == "__main__":
    sys.exit(main())
