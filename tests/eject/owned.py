"""An ejected kernel as its user has it: a file, imported."""

from __future__ import annotations

import importlib.util
import itertools
import linecache
from pathlib import Path
from typing import Any

from tests.canonical import canonical_text
from warploom import Script
from warploom.eject.spelling import UNSAID
from warploom.ir.core import Builder, Func, Op, Value
from warploom.ir.rewrite import rewrite
from warploom.runtime.compiled import CompiledKernel

_COUNT = itertools.count()


def owned(text: str, folder: Path, grid: Any) -> tuple[Any, list[str]]:
    """(an instance of the script in the text, its SIGNATURE)"""
    path = folder / f"ejected{next(_COUNT)}.py"
    path.write_text(text)
    linecache.checkcache(str(path))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    (made,) = (
        v
        for v in vars(module).values()
        if isinstance(v, type) and issubclass(v, Script) and v is not Script
    )
    return made(grid=grid), module.SIGNATURE


def _said(func: Func) -> Func:
    def rule(o: Op, b: Builder) -> tuple[Value, ...] | None:
        if o.attrs.keys().isdisjoint(UNSAID):
            return None
        b.append(o.with_(attrs={k: v for k, v in o.attrs.items() if k not in UNSAID}))
        return o.results

    return rewrite(func, rule)


def same_program(x: CompiledKernel, y: CompiledKernel) -> None:
    """Both are one program: PLACED, layouts and offsets included, but for names and places of pure ops, and for
    what scripts leave unsaid."""
    left, right = (canonical_text(_said(k.placed)).splitlines() for k in (x, y))
    for a, b in zip(left, right, strict=False):
        assert a == b
    assert len(left) == len(right)
