"""Code generation only spells: every access to global memory and every prefetch in the emitted CUDA is an op of the
PLACED program, and the other way round."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from tests import accesses
from tests.launches import PARTS
from tests.passes import kernels, road
from tests.passes.kernels import View
from warploom.codegen.emit import Emitted, emit
from warploom.codegen.text import Line
from warploom.compile import lower
from warploom.ir.core import Func, walk
from warploom.ir.ops import tile, unaligned
from warploom.schedule.model import Knobs
from warploom.target import SM_90A

pytestmark = pytest.mark.usefixtures("without_nvrtc")

# One kernel in so many without TESTS_ORDERS=all.
SAMPLE = 1 if os.environ.get("TESTS_ORDERS") == "all" else 48


@pytest.mark.slow
@pytest.mark.parametrize("part", PARTS)
def test_every_access_is_an_op_and_every_op_an_access(part: str) -> None:
    count = 0
    for i, launch in enumerate(PARTS[part]()):
        if i % SAMPLE:
            continue
        func, _ = launch.make()
        emitted = emit(func, func.target)
        assert accesses.faults(func, emitted) == [], launch.name
        count += len(accesses.accesses(emitted))
    assert count > 0


# ---- the test itself finds what it is for


def unaligned_gemm() -> tuple[Func, Emitted]:
    odd = View("a", "M", "K", "la", kernels.ODD)
    even = View("b", "K", "N", "lb", kernels.ALIGNED)
    func = lower(road.tile(kernels.gemm(128, 64, 64, odd, even)), Knobs(num_consumer_groups=2), SM_90A).placed  # fmt: skip
    return func, emit(func, SM_90A)


def test_of_unaligned_rows_too() -> None:
    func, emitted = unaligned_gemm()
    assert accesses.faults(func, emitted) == []
    whats = {a.what for a in accesses.accesses(emitted)}
    assert whats == {"load", "store", "prefetch", "TMA load"}


def changed(emitted: Emitted, change: Callable[[Line], Iterator[Line]]) -> Emitted:
    lines = tuple(x for line in emitted.lines for x in change(line))
    return replace(emitted, lines=lines, source="".join(f"{x.text}\n" for x in lines))


def test_an_access_that_no_op_asks_for_is_found() -> None:
    func, emitted = unaligned_gemm()

    def orphaned(line: Line) -> Iterator[Line]:
        yield line._replace(op=None) if "ahead_of(" in line.text else line

    assert all("prefetch for no op" in x for x in accesses.faults(func, changed(emitted, orphaned))[:8])  # fmt: skip

    def of_another(line: Line) -> Iterator[Line]:
        other = next(o for o in walk(func.body) if o.kind is tile.make_view)
        yield line._replace(op=other) if "load_whole(" in line.text else line

    assert any("load for make_view" in x for x in accesses.faults(func, changed(emitted, of_another)))  # fmt: skip


def test_an_op_that_is_not_spelled_is_found() -> None:
    func, emitted = unaligned_gemm()

    def without(line: Line) -> Iterator[Line]:
        if line.op is None or line.op.kind is not unaligned.prefetch_box:
            yield line

    (fault,) = accesses.faults(func, changed(emitted, without))
    assert fault.startswith("no access for prefetch_box")


@pytest.mark.parametrize("text", ["*a = 0;", "x = a[3];", 'asm("ld.weak.b32 %0, [%1];");'])
def test_what_the_text_hides_is_refused(text: str) -> None:
    _, emitted = unaligned_gemm()

    def hidden(line: Line) -> Iterator[Line]:
        yield line
        if "grid_wait();" in line.text and line.depth:
            yield Line(1, f"  {text}")

    with pytest.raises(ValueError, match=r"dereference|not known"):
        accesses.accesses(changed(emitted, hidden))
