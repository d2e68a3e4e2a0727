"""docs/mutants.md: what the checker says of the mutants."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

Record = dict[str, Any]
HEAD = """# Mutants

The checker is tested on programs of the library that are made wrong. `make mutants` judges a seeded sample of their mutants and writes this page; `python -m tests.mutants --all` judges them all.

- *Changed*: each wait, arrival, expectation, fence, commit, `setmaxnreg` and release of a program is removed, duplicated, or swapped with what comes after it; each phase, count, byte count, number of pending groups and depth is changed by one.
- *Under a condition*: each of these events, each TMA load and each step of a ring's cursor comes only if a condition holds, or once more where it fails; a loop of one task has one trip less where it fails; or all tasks leave out an iteration, the last iteration, or everything. The condition fails at a late iteration (`late`), in a block (`block`), for an argument (`argument`), for a word of memory (`data`) XX

*Harmful* is judged apart from the checker, in data runs at inputs where the condition fails, in adversarial and random orders of events: the mutant hangs, gives a wrong result, or the simulated machine stops it. What no data run shows, but an interleaving of the checker's that fails when it is run again, counts as harmful as well (*shown by the checker*). A harmful mutant that is *proved* is a bug of the checker.
"""
COLUMNS = ["mutants", "harmful", "broken", "not proved", "**proved**", "shown by the checker"]
COLUMNS += ["harmless", "proved", "not proved", "broken", "share proved"]


def page(records: Sequence[Record], of: Mapping[str, int], commit: str) -> str:
    """The page.  of: how many mutants each program has, by "program/kind".  commit: of the checker."""
    told = [r for r in records if "verdict" in r]
    changed = [r for r in told if r["what"].endswith("/changed")]
    conditional = [r for r in told if r not in changed]
    flipped = [r for r in conditional if r["flipped"] or r["family"] == "always"]
    lines = [HEAD, *_sizes(records, told, conditional, flipped, of, commit)]
    lines += ["## Under a condition", ""]
    lines += _counted("the condition is of", flipped, lambda r: str(r["family"]))
    lines += _counted("change", flipped, lambda r: str(r["change"]))
    lines += _counted("program", flipped, _program)
    lines += ["## Changed", "", *_counted("program", changed, _program)]
    lines += _open([*changed, *flipped])
    lines += _line_by_line(changed)
    return "\n".join(lines)


def _sizes(
    records: Sequence[Record],
    told: Sequence[Record],
    conditional: Sequence[Record],
    flipped: Sequence[Record],
    of: Mapping[str, int],
    commit: str,
) -> list[str]:
    """What of all mutants was judged."""
    seconds = sorted(r["check seconds"] for r in told) or [0.0]
    middle, worst = seconds[len(seconds) // 2], seconds[-1]
    lost = sum(r["status"] == "error" for r in records)
    lines = [
        f"Judged at {commit}: {len(told)} of {sum(of.values())} mutants, drawn by a seed. `check` took {middle} s of the processor "
        f"in the median, {worst} s at most; {lost} mutants took longer than the limit, and are not counted. Of "
        f"{len(conditional) - len(flipped)} mutants the condition fails in none of the data runs: nothing is known of "
        "their harm, and they are not counted.",
        "",
    ]
    return lines


def _program(r: Record) -> str:
    return str(r["what"].rpartition("/")[0])


def is_harmful(r: Record) -> bool:
    return bool(r["harm"]) or bool(r["replays"])


def _counted(title: str, records: Sequence[Record], key: Callable[[Record], str]) -> list[str]:
    """A row for each value of the key, and one for all."""
    groups: dict[str, list[Record]] = {}
    for r in records:
        groups.setdefault(key(r), []).append(r)
    rows = [(name, *_figures(found)) for name, found in groups.items()]
    if len(rows) > 1:
        rows.append(("all", *_figures(records)))
    return table([title, *COLUMNS], rows)


def _figures(records: Sequence[Record]) -> tuple[object, ...]:
    harmful = Counter(r["verdict"] for r in records if is_harmful(r))
    shown = sum(not r["harm"] for r in records if is_harmful(r))
    harmless = Counter(r["verdict"] for r in records if not is_harmful(r))
    n = harmless.total()
    share = f"{100 * harmless['proved'] / n:.1f} %" if n else "–"
    names = ("broken", "not proved", "proved")
    return (
        len(records),
        harmful.total(),
        *(harmful[v] for v in names),
        shown,
        n,
        *(harmless[v] for v in reversed(names)),
        share,
    )


def _open(records: Sequence[Record]) -> list[str]:
    """The harmless mutants that are not proved, with the reasons."""
    rows = [r for r in records if not is_harmful(r) and r["verdict"] != "proved"]
    lines = ["## Harmless, but not proved", ""]
    found = [(_program(r), _at(r), r["mutant"], r["verdict"], _cell(r["code"])) for r in rows]
    return lines + table(["program", "line", "mutant", "`check`", "why"], found)


def _line_by_line(changed: Sequence[Record]) -> list[str]:
    rows = [r for r in changed if _program(r) == "gemm"]
    lines = ["## The hand-written GEMM, line by line", ""]
    found = [
        (_at(r), r["mutant"], r["harm"] or "as the original", r["verdict"], _cell(r["code"]))
        for r in rows
    ]
    return lines + table(["line", "mutant", "data runs", "`check`", "what it finds"], found)


def _at(r: Record) -> str:
    return str(r["at"].partition(":")[2])


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """A table in Markdown."""
    lines = [f"| {' | '.join(head)} |", f"| {' | '.join('---' for _ in head)} |"]
    return [*lines, *(f"| {' | '.join(map(str, r))} |" for r in rows), ""]
