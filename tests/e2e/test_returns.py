"""Early returns mean what they mean in Python: random control flow, run as a kernel and as plain Python."""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import warploom as wl
import warploom.language as tl

PROGRAMS, SLOTS, INPUTS, SIZE = 6, 24, 8, 4


class Writer:
    """A random kernel as text.  It keeps books of the names that are assigned on every path that goes on: i…
    are numbers, t… tiles, p… and q… pointers to numbers and to tiles."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lines: list[str] = []
        self.depth = 0
        self.helpers: list[tuple[str, bool]] = []  # name, whether it gives a number
        self.stores = 0

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    @contextmanager
    def under(self, head: str) -> Iterator[None]:
        self.line(head)
        self.depth += 1
        yield
        self.depth -= 1

    def text(self) -> str:
        head = "import warploom as wl\nimport warploom.language as tl\n\n"
        for i in range(self.random.randrange(3)):
            gives = self.random.random() < 0.6
            self.function(f"helper{i}(out, c, b, i0, S0: tl.constexpr, S1: tl.constexpr)", gives)
            self.helpers.append((f"helper{i}", gives))
        self.function("kernel(out, c, n, S0: tl.constexpr, S1: tl.constexpr)", None)
        return head + "\n".join(self.lines) + "\n"

    def function(self, signature: str, gives: bool | None) -> None:
        self.line("@wl.jit")
        with self.under(f"def {signature}:"):
            if gives is None:
                self.line("b = tl.program_id(0)")
                self.line("i0 = b + 1")
            names = self.block({"i0"}, self.random.randint(3, 6), 0, bool(gives), False)
            if gives and names is not None:
                self.line(f"return {self.number(names)}")

    def number(self, names: set[str]) -> str:
        known = sorted(n for n in names if n[0] == "i")
        x = self.random.choice(known)
        return self.random.choice([x, f"({x} * 3 + b) % 1009", f"{x} + {self.random.randrange(9)}"])

    def condition(self, names: set[str]) -> str:
        at = self.random.randrange(INPUTS)
        return self.random.choice(
            [
                f"tl.load(c + b * {INPUTS} + {at}) > 1", f"tl.load(c + {at}) > b", "b == 2", "S0",
                "not S1", f"{self.number(names)} % 3 == 0",
            ]
        )  # fmt: skip

    def block(
        self, names: set[str], n: int, deep: int, gives: bool, in_loop: bool
    ) -> set[str] | None:
        """n statements; the names known on all paths that go on, None where none does."""
        for _ in range(n):
            kind = self.random.choices(
                ["assign", "store", "if", "return", "static", "loop", "call"],
                [4, 3, 5 if deep < 3 else 0, 0.3 + deep * (not in_loop), 1, 1, 2],
            )[0]
            match kind:
                case "assign":
                    names = self.assign(names)
                case "store":
                    self.store(names)
                case "return" if not in_loop:
                    self.line(f"return {self.number(names)}" if gives else "return")
                    return None
                case "call" if self.helpers:
                    name, number = self.random.choice(self.helpers)
                    call = f"{name}(out, c, b, {self.number(names)}, S0, S1)"
                    self.line(f"i1 = {call}" if number else call)
                    names = names | {"i1"} if number else names
                case "if":
                    after = self.branch(names, deep, gives, in_loop)
                    if after is None:
                        return None
                    names = after
                case "static" if deep < 2:
                    with self.under(f"for s{deep} in tl.static_range(3):"):
                        self.store(names)
                        self.block(names, 2, deep + 1, gives, in_loop)
                        self.line(f"i0 = i0 + s{deep}")
                case "loop" if deep < 2:
                    turns = f"tl.load(c + {self.random.randrange(INPUTS)})"
                    with self.under(f"for k{deep} in range({turns}):"):
                        self.block(names, 2, deep + 1, gives, True)
                        self.line(f"i0 = i0 + k{deep}")
        return names

    def branch(self, names: set[str], deep: int, gives: bool, in_loop: bool) -> set[str] | None:
        with self.under(f"if {self.condition(names)}:"):
            self.line("i0 = i0 + 1")
            then = self.block(names, self.random.randint(1, 3), deep + 1, gives, in_loop)
        other: set[str] | None = names
        if self.random.random() < 0.5:
            with self.under("else:"):
                self.line("i0 = i0 + 2")
                other = self.block(names, self.random.randint(1, 3), deep + 1, gives, in_loop)
        if then is None or other is None:
            return then if other is None else other
        return then & other

    def assign(self, names: set[str]) -> set[str]:
        kind = self.random.choice("iitpq")
        name = kind + str(self.random.randrange(3))
        if kind == "i":
            self.line(f"{name} = {self.number(names)}")
        elif kind == "t":
            self.line(f"{name} = tl.arange(0, {SIZE}) + {self.number(names)}")
        elif kind == "p":
            self.line(f"{name} = out + b * {SLOTS * SIZE} + {self.random.randrange(SLOTS)}")
        else:
            at = self.random.randrange(SLOTS) * SIZE
            self.line(f"{name} = out + (b * {SLOTS * SIZE} + {at} + tl.arange(0, {SIZE}))")
        return names | {name}

    def store(self, names: set[str]) -> None:
        slot, self.stores = self.stores % SLOTS, self.stores + 1
        pointers = [n for n in names if n[0] == "p"]
        tiles = [n for n in names if n[0] == "q"]
        known = sorted(n for n in names if n[0] == "t")
        if tiles and known and self.random.random() < 0.7:
            self.line(f"tl.store({sorted(tiles)[0]}, {known[0]})")
        elif pointers and self.random.random() < 0.5:
            self.line(f"tl.store({sorted(pointers)[0]}, {self.number(names)})")
        else:
            self.line(f"tl.store(out + b * {SLOTS * SIZE} + {slot}, {self.number(names)})")


class Pointer:
    """A pointer of plain Python."""

    def __init__(self, array: Any, at: Any = 0) -> None:
        self.array, self.at = array, at

    def __add__(self, offset: Any) -> Pointer:
        return Pointer(self.array, self.at + offset)


def plainly(text: str, out: Any, c: Any, n: int, s0: bool, s1: bool) -> None:
    """The same text, run by Python."""

    def load(p: Pointer) -> Any:
        return p.array[p.at]

    def store(p: Pointer, x: Any) -> None:
        p.array[p.at] = x

    for b in range(PROGRAMS):
        language = SimpleNamespace(
            load=load, store=store, constexpr=None, arange=np.arange, static_range=range,
            program_id=lambda axis, b=b: b,
        )  # fmt: skip
        names: dict[str, Any] = {"tl": language, "wl": SimpleNamespace(jit=lambda f: f)}
        code = text.replace("import warploom as wl\nimport warploom.language as tl\n", "")
        exec(compile(code, "<reference>", "exec"), names)
        names["kernel"](Pointer(out), Pointer(c), n, s0, s1)


def loaded(text: str, path: Path) -> Any:
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.kernel


def arrays(seed: int) -> tuple[Any, Any]:
    c = np.random.default_rng(seed).integers(0, 4, PROGRAMS * INPUTS).astype(np.int32)
    return np.full(PROGRAMS * SLOTS * SIZE, -1, np.int32), c


@pytest.mark.parametrize(
    "seed",
    [pytest.param(seed, marks=pytest.mark.thorough if seed % 5 else ()) for seed in range(150)],
)
@pytest.mark.each(3)
def test_random_control_flow(seed: int, tmp_path: Path) -> None:
    text = Writer(seed).text()
    kernel = loaded(text, tmp_path / f"returns{seed}.py")
    for s0, s1 in ((False, True), (True, False)):
        out, c = arrays(seed)
        wanted = out.copy()
        plainly(text, wanted, c, 5, s0, s1)
        kernel[(PROGRAMS,)](out, c, 5, s0, s1)
        np.testing.assert_array_equal(out, wanted, err_msg=text)


@pytest.mark.usefixtures("without_nvrtc")
@pytest.mark.parametrize("seed", range(0, 150, 15))
@pytest.mark.each(3)
def test_compiled_too(seed: int, tmp_path: Path) -> None:
    text = Writer(seed).text()
    kernel = loaded(text, tmp_path / f"compiled{seed}.py")
    out, c = arrays(seed)
    wanted = out.copy()
    plainly(text, wanted, c, 5, True, False)
    compiled = kernel.compile_for(out, c, 5, True, False, grid=(PROGRAMS,))
    compiled.simulate(out, c, 5, grid=(PROGRAMS,), seed=seed)
    np.testing.assert_array_equal(out, wanted, err_msg=text)


def test_most_of_them_return_where_it_is_hard() -> None:
    """In an `if` in an `if`, in a helper, with statements behind it."""
    texts = [Writer(seed).text() for seed in range(150)]
    assert sum("            return" in t for t in texts) > 50
    assert sum(t.count("return") > 2 for t in texts) > 50


@wl.jit
def under_a_static_if(mask: Any, x: Any, out: Any) -> None:
    b = tl.program_id(0)
    if mask is not None:  # noqa: SIM102 (the point of it)
        if tl.load(mask + b) == 0:
            return
    tl.store(out + b, tl.load(x + b))


@wl.jit
def in_an_arm(x: Any, out: Any, SIDE: tl.constexpr, n: Any) -> None:
    b = tl.program_id(0)
    if SIDE == "left":
        if b < n:
            return
        i = b - n
    else:
        i = b
    tl.store(out + b, tl.load(x + i))


@wl.jit
def clipped(x: Any, low: Any, high: Any) -> Any:
    if x > low:
        if x > high:
            return high
        if low < 0.0:
            return x * 2.0
    else:
        return 0
    return x


@wl.jit
def clips(x: Any, out: Any, low: Any, high: Any) -> None:
    b = tl.program_id(0)
    tl.store(out + b, clipped(tl.load(x + b), low, high))


def test_under_a_static_if() -> None:
    x = np.arange(4, dtype=np.float32) + 1
    out = np.zeros(4, np.float32)
    under_a_static_if[(4,)](np.array([1, 1, 0, 1], np.int32), x, out)
    assert out.tolist() == [1, 2, 0, 4]
    under_a_static_if[(4,)](None, x, out)
    assert out.tolist() == [1, 2, 3, 4]


def test_in_an_arm_of_a_static_if() -> None:
    x = np.arange(4, dtype=np.float32) + 1
    out = np.zeros(4, np.float32)
    in_an_arm[(4,)](x, out, "left", 1)
    assert out.tolist() == [0, 1, 2, 3]
    in_an_arm[(4,)](x, out, "right", 1)
    assert out.tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize(("low", "wanted"), [(0.5, [0, 1, 2, 2.5]), (-0.5, [0, 2, 4, 2.5])])
def test_a_helper_with_values_of_several_kinds(low: float, wanted: list[float]) -> None:
    x = np.array([-1, 1, 2, 3], np.float32)
    out = np.zeros(4, np.float32)
    clips[(4,)](x, out, low, 2.5)
    assert out.tolist() == wanted
