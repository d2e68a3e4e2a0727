"""Lines, quotes, and repetitions that become loops."""

from __future__ import annotations

import itertools
from pathlib import Path

from warploom.eject.reroll import reroll
from warploom.eject.text import Block, Line, Node, Renderer, wrapped
from warploom.errors import Loc


def lines(nodes: list[Node], file: str = "") -> list[str]:
    return list(Renderer(file).lines(nodes, "", frozenset()))


def rolled(*nodes: Node) -> list[str]:
    return lines(reroll(nodes, (f"i{n}" for n in itertools.count())))


def chunk(i: int, at: str) -> list[Node]:
    wait = Block(Line("with self.single_thread():"), [Line("self.tma.wait_group(2)")])
    return [Line(f"self.store_shared(out[{i}], acc[:, {64 * i}:{64 * i + 64}])"), wait, Line(at)]


def test_a_repetition_is_a_loop() -> None:
    nodes = [*chunk(0, "copy(col)"), *chunk(1, "copy(col + 64)"), *chunk(2, "copy(col + 128)")]
    assert rolled(Line("before()"), *nodes, Line("after()")) == [
        "before()",
        'for i0 in self.range(3, unroll="all"):',
        "    self.store_shared(out[i0], acc[:, 64 * i0 : 64 * i0 + 64])",
        "    with self.single_thread():",
        "        self.tma.wait_group(2)",
        "    copy(col + 64 * i0)",
        "after()",
    ]


def test_another_step_ends_it() -> None:
    nodes = [*chunk(0, "copy(col)"), *chunk(1, "copy(col + 64)"), *chunk(2, "copy(col + 100)")]
    found = rolled(*nodes)
    assert found[0] == 'for i0 in self.range(2, unroll="all"):'
    assert found[-1] == "copy(col + 100)"


def test_a_product_keeps_its_parentheses() -> None:
    nodes = [Line(f"f(x * {3 + 2 * i}, {7 - i})") for i in range(3) for _ in range(2)]
    found = rolled(*nodes)
    assert found[:2] == [
        'for i0 in self.range(3, unroll="all"):',
        "    f(x * (2 * i0 + 3), 7 - i0)",
    ]


def test_other_names_and_floats_are_no_repetition() -> None:
    texts = ["a = f(0)", "b()", "g(1.0)", "c = f(1)", "b()", "g(2.0)"]
    assert rolled(*map(Line, texts)) == texts


def test_long_lines_are_wrapped() -> None:
    call = f"self.tma.copy({', '.join('argument' + str(i) for i in range(9))}, at=[row, col])"
    assert next(wrapped(call, "    ")) == "    self.tma.copy("
    assert max(map(len, wrapped(call, "    "))) <= 100
    longer = f"f({', '.join('argument' + str(i) for i in range(14))})"
    found = list(wrapped(longer, ""))
    assert found[0] == "f(" and found[1] == "    argument0," and found[-1] == ")"
    index = f"x[{'a' * 60} + {'b' * 60}].y"
    assert list(wrapped(index, "")) == [index]


def test_a_line_is_quoted_once_in_its_block(tmp_path: Path) -> None:
    file = tmp_path / "kernel.py"
    file.write_text("x = load(p)\nsync()\n")
    first, second = (Loc(str(file), n) for n in (1, 2))
    nodes: list[Node] = [
        Line("a()", first),
        Line("sync()", second),  # the same text: no quote
        Block(Line("for i in range(n):", second), [Line("b()", first)]),
        Line("c()", first),
    ]
    assert lines(nodes, str(file)) == [
        "# 1: x = load(p)",
        "a()",
        "sync()",
        "# 2: sync()",
        "for i in range(n):",
        "    b()",
        "c()",
    ]
    assert lines(nodes)[0] == "# kernel.py:1: x = load(p)"
