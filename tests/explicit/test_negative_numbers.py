# mypy: ignore-errors
"""Mistakes that only negative or large numbers, words of memory and arguments, bring about, and launches that
are checked as they are: each is a right script with one number changed."""

from __future__ import annotations

import importlib.util
import textwrap

import ml_dtypes
import numpy as np
import pytest

import warploom.tilus as tilus
from tests.explicit.test_late_mistakes import HEAD, STORES, TWO_TASKS, verdict
from warploom.check import Verdict
from warploom.tilus import float32, int32

WORD = "self.load(f_ptr + 4)"
LOAD = "for t in range(m):\n    q.load(g)"
RELEASE = "for t in range(m):\n    q.wait()\n    if {}:\n        q.release()\n    q.advance()"

# name: (what the producer does, what the consumer does, the mistake, what is right in its place)
RINGS = {
    "a word that only one task takes to mean padding": (
        f"for t in range(m):\n    if {WORD} >= 0:\n        q.load(g)",
        f"for t in range(m):\n    if {WORD} >= {{}}:\n        q.use()",
        "-1",
        "0",
    ),
    "an argument that is very negative": (
        "for t in range(m):\n    if n > 0:\n        q.load(g)",
        "for t in range(m):\n    if n > {}:\n        q.use()",
        "-9",
        "0",
    ),
    "no release where a word is negative": (
        LOAD,
        RELEASE,
        f"{WORD} >= 0",
        f"{WORD} >= -2147483648",
    ),
    "no release where an argument is negative": (LOAD, RELEASE, "n > -9", "n >= -2147483648"),
    "no late release where a word is negative": (
        LOAD,
        RELEASE,
        f"(t < 33) | ({WORD} > -9)",
        f"(t >= 0) | ({WORD} > -9)",
    ),
    "no late release where an argument is large": (
        LOAD,
        RELEASE,
        "(t < 33) | (n < 100000)",
        "(t >= 0) | (n < 100000)",
    ),
    "no release in one iteration": (
        LOAD,
        RELEASE,
        f"(t != 40) | ({WORD} >= 0)",
        f"(t != -1) | ({WORD} >= 0)",
    ),
    "one guard inside another": (
        LOAD,
        "for t in range(m):\n    q.wait()\n    if t < 33:\n        q.release()\n    else:\n"
        "        if {}:\n            q.release()\n    q.advance()",
        f"{WORD} > -9",
        f"{WORD} >= -2147483648",
    ),
    "fewer iterations for a negative word": (
        f"v = {WORD}\ne: int32 = m\nif v < 0:\n    e = m - 1\nfor t in range(e):\n    q.load(g)",
        f"v = {WORD}\ne: int32 = m\nif v < {{}}:\n    e = m - 1\nfor t in range(e):\n    q.use()",
        "-3",
        "0",
    ),
    "a `while` that ends at a word, in one task at 200": (
        f"t: int32 = 0\nwhile t < {WORD}:\n    q.load(g)\n    t = t + 5",
        "t: int32 = 0\nwhile t < {}:\n    q.use()\n    t = t + 5",
        f"min({WORD}, 200)",
        WORD,
    ),
}


def body_of(name: str, which: int) -> str:
    producer, consumer, *numbers = RINGS[name]
    parts = (part.replace("{}", numbers[which]) for part in (producer, consumer))
    return TWO_TASKS.format(*(textwrap.indent(part, " " * 4) for part in parts))


@pytest.mark.parametrize("name", RINGS)
@pytest.mark.each(2)
def test_a_mistake_at_negative_numbers_is_not_proved(name, tmp_path):
    assert verdict(tmp_path, "1", body_of(name, 0)) is not Verdict.PROVED


@pytest.mark.parametrize("name", RINGS)
@pytest.mark.each(2)
def test_the_same_without_it_is_proved(name, tmp_path):
    assert verdict(tmp_path, "1", body_of(name, 1)) is Verdict.PROVED


def late(tmp_path, body, blocks="1"):
    path = tmp_path / "late.py"
    path.write_text(HEAD.replace("BLOCKS", blocks) + textwrap.indent(body, " " * 8))
    spec = importlib.util.spec_from_file_location("late", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Late()


def test_numbers_that_sizes_are_made_of_are_named(tmp_path):
    """Extents and grids; what loops count to may be negative."""
    x, f, out = np.zeros((64, 64), ml_dtypes.bfloat16), np.zeros(64, np.int32), np.zeros(64, "f4")
    body = body_of("an argument that is very negative", 1)
    assert "where not negative" not in str(late(tmp_path, body).check(x, f, out, 7, 5))
    blocks, body, _, right = STORES["a fence between the proxies up to the 20th"]
    script = late(tmp_path, body.replace("{}", right), blocks)
    assert "\n  where not negative: m\n" in str(script.check(x, f, out, 7, 5))


def test_a_launch_is_run_as_it_is(tmp_path):
    """What the search does not find and leaves open: words that are another one each."""
    words = " & ".join(f"(self.load(f_ptr + {i}) == {1000 * i + 7})" for i in range(3))
    guard = f"not ({words} & (t == 20))"
    script = late(tmp_path, TWO_TASKS.format(*(
        textwrap.indent(part, " " * 4) for part in (LOAD, RELEASE.replace("{}", guard))
    )))  # fmt: skip
    x, out = np.zeros((64, 64), ml_dtypes.bfloat16), np.zeros(64, "f4")
    f = np.arange(64, dtype=np.int32) * 1000 + 7
    harmful = script.check(x, f, out, 40, 5)
    assert harmful.verdict is Verdict.BROKEN
    assert "late.py" in str(harmful.diagnostics[0]) and "m=40" in str(harmful)
    assert script.check(x, f, out, 20, 5).verdict is not Verdict.BROKEN
    assert script.check(x, np.zeros(64, np.int32), out, 40, 5).verdict is not Verdict.BROKEN


class Parts(tilus.Script):
    """Each part adds to what the one before it left; the last one copies to what it writes."""

    parts = 3

    def __init__(self, waits):
        super().__init__()
        self.waits = waits

    def __call__(self, p: ~float32, n: int32):
        self.attrs.blocks = [n, 1, self.parts]
        self.attrs.warps = 4
        g = self.global_view(p, dtype=float32, shape=[n, 128])
        counters = self.global_tensor(dtype=int32, shape=[n], requires_clean=True)
        semaphore: ~int32 = ~counters[self.blockIdx.x]
        part = self.register_tensor(dtype=float32, shape=[1, 128], init=1.0)
        s = self.shared_tensor(dtype=float32, shape=[1, 128])
        if self.blockIdx.z > 0:
            self.lock_semaphore(semaphore, value=self.blockIdx.z)
        if self.blockIdx.z == 2:
            self.copy_async(src=g, dst=s, offsets=[self.blockIdx.x, 0])
            self.copy_async_commit_group()
            if self.waits:
                self.copy_async_wait_group(n=0)
                self.sync()
            self.store_shared(s, part)
            self.sync()
        self.store_global(g, part, offsets=[self.blockIdx.x, 0])
        self.sync()
        self.copy_async_wait_group(n=0)
        self.release_semaphore(semaphore, value=(self.blockIdx.z + 1) % self.parts)


def test_a_race_after_a_semaphore():
    p = np.zeros((2, 128), np.float32)
    report = Parts(False).check(p, 2)
    assert [d.code for d in report.diagnostics] == ["race"]
    assert "cp_async" in str(report) and "of program 4" in str(report)
    assert Parts(True).check(p, 2).verdict is not Verdict.BROKEN
