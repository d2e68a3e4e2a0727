"""IR text: print and parse are inverse; bad text is refused with line and caret."""

from __future__ import annotations

import math
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from tests.unit.random_ir import functions
from warploom.errors import CompileError, InternalError, Loc
from warploom.ir.core import Builder, Fact, Func, Level, Op, Value, walk
from warploom.ir.ops import arith, control
from warploom.ir.parser import parse_func, parse_type
from warploom.ir.printer import print_attr, print_func, print_op
from warploom.ir.types import (
    Barriers,
    Channel,
    InFlight,
    Pointer,
    Scalar,
    Shared,
    TensorMap,
    Tile,
    View,
    bf16,
    f8e4m3,
    f16,
    f32,
    i32,
)
from warploom.ir.verify import verify
from warploom.layout import wgmma_acc

GOLDEN = Path(__file__).parents[1] / "golden" / "gemm_bf16_tn.warp.ir"

few = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)


def test_golden_round_trips_to_its_own_text() -> None:
    text = GOLDEN.read_text()
    func = parse_func(text, str(GOLDEN))
    verify(func)
    without_comments = "".join(s for s in text.splitlines(True) if not s.startswith("//"))
    assert print_func(func) == without_comments
    assert func.level is Level.WARP and func.attrs == {"warps": 4}
    tma = next(o for o in walk(func.body) if o.kind.name == "tma_load")
    line = text.splitlines()[tma.loc.line - 1]  # type: ignore[union-attr]
    assert line[tma.loc.col - 1 : tma.loc.end_col - 1] == line.strip()  # type: ignore[union-attr]


@few
@given(functions(decorated=True))
def test_random_functions_round_trip(func: Func) -> None:
    text = print_func(func, locs=True)
    again = parse_func(text)
    assert print_func(again) == print_func(func)
    located = print_func(again, locs=True)  # the parser located what had no location
    assert print_func(parse_func(located), locs=True) == located
    for old, new in zip(walk(func.body), walk(again.body), strict=True):
        assert (old.kind, old.attrs, old.tasks, old.id) == (new.kind, new.attrs, new.tasks, new.id)
        assert [v.type for v in old.results] == [v.type for v in new.results]
        assert old.loc == new.loc or old.loc is None


TILE = Tile((64, 96), f32)
TYPES = [
    Scalar(bf16),
    Pointer(f8e4m3),
    TILE,
    Tile((4,), Pointer(f16)),
    Tile((64, 96), f32, wgmma_acc((64, 96))),
    View(3, f16),
    TensorMap((128, 64), bf16, 1, 128),
    Shared((2, 3), (64, 32), bf16, 0, 64, (64, 64)),
    Shared((), (8,), f32, 0, 0, (8,)),
    Barriers(4),
    InFlight(Tile((64, 96), f32, wgmma_acc((64, 96)))),
    Channel((TILE, Tile((4,), Pointer(f16))), 3),
]


@pytest.mark.parametrize("t", TYPES, ids=str)
def test_types_round_trip(t: object) -> None:
    assert parse_type(str(t)) == t


VALUES = [
    *(0, -7, True, False, None, 1.5, -0.0, 1e-05, 1e300, math.inf, -math.inf),
    *("", 'quo"te\n\\ ü', bf16, (), (1,), (1, (2.0, "x"), (None, (True,)))),
    *(Fact(16), Fact(1, -3), wgmma_acc((64, 96)), *TYPES),
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_attribute_values_round_trip(value: object) -> None:
    text = f"func @f() level=TILE {{v={print_attr(value)}}} {{ yield() }}"
    got = parse_func(text).attrs["v"]
    assert got == value and type(got) is type(value)
    assert print_attr(got) == print_attr(value)  # tells -0.0 from 0.0


def test_nan_round_trips() -> None:
    got = parse_func("func @f() level=TILE {v=nan, w=(-inf, nan)} { yield() }").attrs
    assert math.isnan(got["v"]) and got["w"][0] == -math.inf and math.isnan(got["w"][1])


def test_values_without_text_are_refused() -> None:
    with pytest.raises(InternalError, match="attribute can't be \\[1\\]"):
        print_attr([1])


def test_names_are_unique_where_visible() -> None:
    p = Value(Scalar(i32), "x")
    b = Builder()
    x = arith.add(b, p, p, hint="x")
    y = arith.add(b, x, p, hint="x")
    arith.add(b, y, y)
    control.yield_(b)
    text = print_func(Func("f", b.region((p,)), Level.TILE))
    assert text.splitlines()[1:4] == [
        "  %x_1 = add(%x, %x) : i32",
        "  %x_2 = add(%x_1, %x) : i32",
        "  %0 = add(%x_2, %x_2) : i32",
    ]


def test_result_types_may_be_left_out() -> None:
    func = parse_func("func @f(%x: i32) level=TILE { %y = lt(%x, %x) yield() }")
    assert str(func.body.ops[0].result.type) == "i1"


def test_print_op_stands_alone() -> None:
    func = parse_func(GOLDEN.read_text())
    loop = next(o for o in walk(func.body) if o.kind is control.for_)
    assert print_op(loop).startswith("%slot_end, %phase_end = for(%first, %tiles, %programs, %c0,")


def test_out_of_scope_values_print_but_do_not_parse() -> None:
    stray = Value(Scalar(i32), "stray")
    ops = (Op(control.yield_, (stray,)),)
    text = print_func(Func("f", Builder(ops=list(ops)).region(), Level.TILE))
    assert "yield(%?stray)" in text
    with pytest.raises(CompileError):
        parse_func(text)


GOOD = """func @f(%x: i32, %p: ptr<f16>) level=TILE {
  %y = add(%x, %x) {a=1} : i32
  yield()
}
"""
BAD = [
    ("%x: i32, %p", "%x: i32, %x", "%x is defined twice", "1:18"),
    ("level=TILE", "level=TILES", "no level: TILES", "1:38"),
    ("ptr<f16>", "ptr<f17>", "no type: ptr<f17>", "1:22"),
    ("ptr<f16>", "ptr<f16", "bracket is not closed", "1:22"),
    ("%y = add(%x, %x)", "%y = add(%x, %z)", "%z is not defined here", "2:16"),
    ("%y = add", "%y = plus", "no op is called plus", "2:8"),
    ("%y = add", "%y, %z = add", "2 results, but 1 types", "2:30"),
    ("%y = add", "add", "0 results, but 1 types", "2:3"),
    ("{a=1} : i32", "{a=1, a=2} : i32", "attribute a is given twice", "2:26"),
    ("{a=1} : i32", "{a=word} : i32", "no attribute value", "2:23"),
    ("%y = add(%x, %x) {a=1} : i32", "%y = add(%x, %p)", "can't be inferred", "2:8"),
    ("  yield()\n", "", "a region ends in a yield", "3:1"),
    ("yield()", "yield() ?", "unexpected character '?'", "3:11"),
    ("yield()\n}", "yield()\n", "expected an op, found the end of the text", "5:1"),
    ("}\n", "} more", "expected the end of the text", "4:3"),
]


@pytest.mark.parametrize(("old", "new", "says", "at"), BAD, ids=[b[2] for b in BAD])
def test_bad_text(old: str, new: str, says: str, at: str) -> None:
    assert old in GOOD
    with pytest.raises(CompileError, match=says.replace("?", "\\?")) as e:
        parse_func(GOOD.replace(old, new, 1), "<bad>")
    error = e.value
    assert error.code == "ir-syntax" and str(error.loc) == f"<bad>:{at}"
    line, col = map(int, at.split(":"))
    lines = GOOD.replace(old, new, 1).splitlines()
    if line <= len(lines):  # the message quotes the line and points at the column
        shown = str(error).splitlines()
        assert shown[-2].endswith(f"{line} | {lines[line - 1]}")
        assert shown[-1].index("^") - shown[-1].index("|") - 2 == col - 1


def test_parsing_is_fast() -> None:
    body = "".join(
        f'  %v{i} = add(%x, %x) {{name="v", n={i}}} #loop0/add{i} @{{producer}} : i32\n'
        for i in range(1000)
    )
    text = f"func @f(%x: i32) level=TASK {{\n{body}  yield()\n}}\n"
    best = math.inf
    for _ in range(3):
        start = time.process_time()
        parse_func(text)
        best = min(best, time.process_time() - start)
    assert best < 0.25, f"1000 ops took {best:.3f} s"  # 0.04 s on an idle core


def test_locations_chain() -> None:
    text = (
        "func @f(%x: i32) level=TILE {\n"
        '  %y = add(%x, %x) : i32 loc("in.py":3:4-9 from "out.py":1:2-3)\n  yield()\n}\n'
    )
    func = parse_func(text)
    assert func.body.ops[0].loc == Loc("in.py", 3, 4, 9, Loc("out.py", 1, 2, 3))
