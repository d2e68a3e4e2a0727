# mypy: ignore-errors
"""Mistakes that several conditions bring about together, or numbers that few inputs have: each is a right
script with one number changed."""

from __future__ import annotations

import textwrap

import pytest

from tests.explicit.test_late_mistakes import TWO_TASKS, verdict
from warploom.check import Verdict

LOAD = "for t in range(m):\n    q.load(g)"
FLAGS = """\
x: int32 = 0
y: int32 = 0
z: int32 = 0
if m > 30:
    x = 1
if n > 1000:
    y = 1
if {} > 100:
    z = 1
"""
OF_NUMBERS, OF_WORDS = FLAGS.replace("{}", "self.load(f_ptr)"), "".join(
    f"{name}: int32 = 0\nif self.load(f_ptr + {i}) == {word}:\n    {name} = 1\n"
    for i, (name, word) in enumerate((("x", 77), ("y", 13), ("z", 5)))
)  # fmt: skip
TAKE = "for t in range(m):\n    q.take(t % 2, (t // 2 % 2) ^ ({}))"
USE = "for t in range(m - {}):\n    q.use()"

# name: (what the consumer does, the mistake, what is right in its place); None: nothing that is proved
RINGS = {
    "a phase by three flags": (OF_NUMBERS + TAKE, "x * y * z", "x * y * z * 0"),
    "a phase by a third of three flags": (
        OF_NUMBERS + TAKE,
        "(x + y + z) // 3",
        "(x + y + z) // 4",
    ),
    "a phase by three words": (OF_WORDS + TAKE, "x * y * z", None),
    "iterations by three flags": (OF_NUMBERS + USE, "x * y * z", "(x + y + z) // 4"),
    "iterations by three words": (OF_WORDS + USE, "x * y * z", None),
    "iterations by a hash": (USE, "(n & 65535) * 7919 % 65521 // 65520", "(n & 127) // 128"),
    "iterations by a hash of a word": (
        USE,
        "(self.load(f_ptr) & 65535) * 7919 % 65521 // 65520",
        "self.load(f_ptr) % 100 // 100",
    ),
    "iterations by the last of many numbers": (
        USE,
        "((n & 1048575) + 1) // 1048576",
        "((n & 127) + 1) // 129",
    ),
    "iterations by two words and a number": (
        f"v = self.load(f_ptr)\nw = self.load(f_ptr + 1)\ne: int32 = 0\n"
        f"if (v < -100) & (w > 1000) & (m > 20):\n    e = {{}}\n{USE.format('e')}",
        "1",
        "0",
    ),
}


def body_of(name: str, number: str) -> str:
    parts = LOAD, RINGS[name][0].replace("{}", number)
    return TWO_TASKS.format(*(textwrap.indent(part, " " * 4) for part in parts))


@pytest.mark.parametrize("name", RINGS)
@pytest.mark.each(2)
def test_a_mistake_of_few_inputs_is_not_proved(name, tmp_path):
    assert verdict(tmp_path, "1", body_of(name, RINGS[name][1])) is not Verdict.PROVED


@pytest.mark.parametrize("name", [name for name, ring in RINGS.items() if ring[2]])
@pytest.mark.each(2)
def test_the_same_without_it_is_proved(name, tmp_path):
    assert verdict(tmp_path, "1", body_of(name, RINGS[name][2])) is Verdict.PROVED
