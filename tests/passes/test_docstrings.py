"""The sketches of what a pass does, in its docstring, agree with its case (`cases/<pass>.ir`), which is run.

A sketch is an excerpt: the kinds of ops that it shows before (after) the pass are in the case before (after)
it, and what it shows on one side alone the pass adds to, or takes from, the case as well.
"""

from __future__ import annotations

import re
from collections import Counter
from importlib import import_module
from importlib.util import find_spec

import pytest

from tests.passes.ir_cases import cases
from warploom.ir.core import KINDS

CASES = cases()
PACKAGES = ("tile", "task", "warp", "placed")
_LABEL = re.compile(r"\b(before|after)\b[^:()]*(\([^:]*\)[^:]*)?:")


def docstring(name: str) -> str:
    """Of the module or package that is named after the pass."""
    for package in PACKAGES:
        path = f"warploom.passes.{package}.{name}"
        if find_spec(path):
            return import_module(path).__doc__ or ""
    raise AssertionError(f"{name} has no module in warploom/passes")


def sketches(doc: str) -> tuple[str, str]:
    """What follows `before:` and `after:`, one below the other or side by side, up to an empty line."""
    found: dict[str, list[str]] = {"before": [], "after": []}
    open_at: list[
        tuple[str, int]
    ] = []  # the sketches of the lines that come, and the columns they begin at
    for line in doc.splitlines():
        labels = list(_LABEL.finditer(line))
        if labels and not line[: labels[0].start()].strip():
            open_at = [(m[1], m.start() if i else 0) for i, m in enumerate(labels)]
            ends = [m.start() for m in labels[1:]] + [len(line)]
            for m, end in zip(labels, ends, strict=True):
                found[m[1]].append(line[m.end() : end])
        elif not line.strip():
            open_at = []
        else:
            ends = [at for _, at in open_at[1:]] + [len(line)]
            for (side, at), end in zip(open_at, ends, strict=False):
                found[side].append(line[at:end])
    return "\n".join(found["before"]), "\n".join(found["after"])


def kinds(text: str) -> Counter[str]:
    """How often a text of IR, or a sketch of one, names each kind of op."""
    called = re.findall(r"\b([a-z_]+)\(", text) + re.findall(r"^\s*(for|if)\b(?!\()", text, re.M)
    return Counter(name for name in called if name in KINDS)


@pytest.mark.parametrize("name", sorted({case.row.name for case in CASES.values()}))
def test_the_sketch_of_a_pass_agrees_with_its_case(name: str) -> None:
    before, after = (kinds(text) for text in sketches(docstring(name)))
    assert before or after, "the docstring shows nothing: before: …, after: …"
    of_pass = [case for case in CASES.values() if case.row.name == name]
    has, makes = (
        sum((kinds(getattr(case, side)) for case in of_pass), Counter())
        for side in ("before", "after")
    )
    assert not set(before) - set(has), "shown before the pass, but in no case of it"
    assert not set(after) - set(makes), "shown after the pass, but in no case of it"
    for kind in set(before) ^ set(after):
        grows = kind in after
        assert (makes[kind] > has[kind]) == grows and makes[kind] != has[kind], (
            f"{kind} is shown {'after' if grows else 'before'} the pass alone, "
            f"the case has {has[kind]} before and {makes[kind]} after"
        )
