"""A kernel is what its translation reads: cases, each with what used to run old code without a word."""

from __future__ import annotations

import collections
import dataclasses
import enum
import functools
import importlib.util
import math
import os
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import warploom as wl
import warploom.language as tl
import warploom.triton as triton
from tests.unit.fake_driver import FakeDriver, GpuArray
from warploom.errors import CompileError
from warploom.frontend.follow import follow
from warploom.frontend.reads import Variants
from warploom.frontend.source import capture, parse_function
from warploom.runtime import autotune, jit, launch
from warploom.runtime import kernel as kernel_module
from warploom.runtime.args import _PROBES, KEYS
from warploom.runtime.nvrtc import Build

X = np.ones(32, np.float32)
HEAD = "import warploom as wl\nimport warploom.language as tl\n"
KERNEL = "@wl.jit\ndef {}(x, o):\n    tl.store(o, tl.load(x) * {})\n"


def result(kernel: Any, **constexprs: Any) -> float:
    """What the oracle computes."""
    out = np.zeros(32, np.float32)
    kernel[(1,)](X, out, **constexprs)
    return float(out[0])


@pytest.fixture
def nothing_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and a compiler that compiles nothing."""
    monkeypatch.setenv("WARPLOOM_CACHE", str(tmp_path / "cache"))

    def build(source: str, plan: Any, *_: Any, **__: Any) -> Build:
        return Build(plan.name, b"", "", 0, 0, 0, 0, 0, (), 0.0, "none", "")

    monkeypatch.setattr("warploom.runtime.build.compile_text", build)
    return tmp_path


@pytest.fixture
def driver(nothing_compiled: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDriver]:
    fake = FakeDriver()
    for module in (launch, jit, kernel_module, autotune):
        monkeypatch.setattr(module, "driver", lambda: fake)
    yield fake
    for table in (_PROBES, KEYS):
        table.pop(GpuArray, None)  # type: ignore[attr-defined]


def imported(path: Path, text: str) -> types.ModuleType:
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# ---- one process

SCALE = 2


@wl.jit
def by_global(x: Any, o: Any) -> None:
    tl.store(o, tl.load(x) * SCALE)


def test_a_global_that_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    for value in (2, 10, 2, 2.5):
        monkeypatch.setitem(globals(), "SCALE", value)
        assert result(by_global) == value


def test_equal_is_not_the_same(nothing_compiled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """2 and 2.0, 0.0 and -0.0, True and 1 make other kernels."""
    codes = []
    for value in (2, 2.0, 0.0, -0.0):
        monkeypatch.setitem(globals(), "SCALE", value)
        kernel = by_global.compile_for(X, X.copy(), grid=(1,))
        assert not kernel.from_cache
        codes.append(kernel.ir["TILE"])
    assert len(set(codes[2:])) == 2


def test_a_name_that_hides_a_builtin(tmp_path: Path) -> None:
    text = HEAD + "@wl.jit\ndef k(x, o):\n    tl.store(o, tl.load(x) * max(2, 3))\n"
    module = imported(tmp_path / "m.py", text)
    assert result(module.k) == 3
    module.max = wl.jit(imported(tmp_path / "n.py", HEAD + "def least(a, b): return a").least)  # type: ignore[attr-defined]
    assert result(module.k) == 2
    del module.max  # type: ignore[attr-defined]
    assert result(module.k) == 3


def test_a_helper_that_is_written_again(tmp_path: Path) -> None:
    text = HEAD + "@wl.jit\ndef h(a): return a * {}\n"
    module = imported(tmp_path / "m.py", text.format(2) + KERNEL.format("k", "h(1)"))
    assert result(module.k) == 2
    module.h = imported(tmp_path / "n.py", text.format(10)).h  # type: ignore[attr-defined]
    assert result(module.k) == 10


def test_a_variable_of_the_function_around() -> None:
    factor = 2

    @wl.jit
    def k(x: Any, o: Any) -> None:
        tl.store(o, tl.load(x) * factor)

    assert result(k) == 2
    factor = 9
    assert result(k) == 9


def test_lists_and_constexprs_change_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "SCALE", sizes := tl.constexpr(2))
    assert result(by_global) == 2
    sizes.value = 3
    assert result(by_global) == 3


PAIR: Any = None


@wl.jit
def by_field(x: Any, o: Any) -> None:
    tl.store(o, tl.load(x) * PAIR.rows)


def test_the_fields_of_a_named_tuple(
    nothing_compiled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of one name that hold the same numbers, in one process and on disk."""
    for fields, wanted in (("rows columns", 2), ("columns rows", 5)):
        monkeypatch.setitem(globals(), "PAIR", collections.namedtuple("Pair", fields)(2, 5))
        assert result(by_field) == wanted
        compiled = wl.jit(by_field.fn).compile_for(X, X.copy(), grid=(1,))
        assert not compiled.from_cache


def test_a_property_in_a_fields_place_is_no_field(monkeypatch: pytest.MonkeyPatch) -> None:
    class Doubled(collections.namedtuple("Pair", "rows columns")):
        rows = property(lambda pair: 2 * pair[0])

    monkeypatch.setitem(globals(), "PAIR", Doubled(2, 5))
    with pytest.raises(CompileError, match="no attribute rows"):
        result(by_field)


ROWS = 2


@triton.aggregate
class Rows:
    count: tl.constexpr

    def __init__(self, times: Any) -> None:
        self.count = tl.constexpr(times.value * ROWS)


@wl.jit
def by_aggregate(x: Any, o: Any) -> None:
    tl.store(o, tl.load(x) * Rows(10).count)


def test_what_the_init_of_an_aggregate_reads(
    nothing_compiled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for rows in (2, 5):
        monkeypatch.setitem(globals(), "ROWS", rows)
        assert result(by_aggregate) == 10 * rows
        compiled = wl.jit(by_aggregate.fn).compile_for(X, X.copy(), grid=(1,))
        assert not compiled.from_cache


@dataclasses.dataclass(frozen=True)
class Tile:
    """What a constexpr may hold."""

    rows: int


@tl.constexpr_function
def rows_of(tile: Any) -> Any:
    return tile.rows


@wl.jit
def by_constexpr(x: Any, o: Any, TILE: tl.constexpr) -> None:
    tl.store(o, tl.load(x) * rows_of(TILE))


@wl.jit
def by_helper(x: Any, o: Any, F: tl.constexpr) -> None:
    tl.store(o, F[0](tl.load(x)))


def test_objects_and_helpers_as_constexprs(nothing_compiled: Path) -> None:
    assert [result(by_constexpr, TILE=Tile(n)) for n in (4, 5, 4)] == [4, 5, 4]
    first = by_constexpr.compile_for(X, X.copy(), TILE=Tile(4), grid=(1,))
    assert not first.from_cache
    assert wl.jit(by_constexpr.fn).compile_for(X, X.copy(), TILE=Tile(4), grid=(1,)).from_cache
    assert not wl.jit(by_constexpr.fn).compile_for(X, X.copy(), TILE=Tile(5), grid=(1,)).from_cache

    def helper(factor: int) -> Any:
        @wl.jit
        def h(a: Any) -> Any:
            return a * factor

        return h

    assert [result(by_helper, F=(helper(n),)) for n in (4, 5)] == [4, 5]


@dataclasses.dataclass(frozen=True)
class Named:
    """Equal where the names are."""

    name: str
    rows: Any = dataclasses.field(compare=False)


Pair = collections.namedtuple("Pair", ["first", "second"])


class Slotted:
    __slots__ = ("rows",)

    def __init__(self, rows: Any) -> None:
        self.rows = rows

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Slotted)

    def __hash__(self) -> int:
        return 1


class Counting(int):
    """Equal by its number."""

    rows: Any


def counting(rows: Any) -> Counting:
    found = Counting(7)
    found.rows = rows
    return found


EQUAL: dict[str, Callable[[Any], Any]] = {
    "a field that is not compared": lambda rows: Named("tile", rows),
    "inside a named tuple": lambda rows: Pair(1, Named("tile", rows)),
    "inside a tuple": lambda rows: (1, Named("tile", rows)),
    "a field of a field": lambda rows: Named("outer", Named("tile", rows)),
    "slots": Slotted,
    "a number with more": counting,
}


@tl.constexpr_function
def inner_rows(tile: Any) -> Any:
    while isinstance(tile, tuple) or hasattr(tile, "rows"):
        tile = tile[1] if isinstance(tile, tuple) else tile.rows
    return tile


@wl.jit
def by_inner_rows(x: Any, o: Any, TILE: tl.constexpr) -> None:
    tl.store(o, tl.load(x) * inner_rows(TILE))


@pytest.mark.parametrize("how", EQUAL)
def test_equal_objects_are_asked_for_what_is_not_compared(how: str, driver: FakeDriver) -> None:
    make, values = EQUAL[how], (4, 5, 5.0, 4, 5)
    assert [result(by_inner_rows, TILE=make(n)) for n in values] == [4, 5, 5, 4, 5]
    kernel = wl.jit(by_inner_rows.fn)
    found = [kernel.compile_for(X, X.copy(), TILE=make(n), grid=(1,)) for n in values]
    assert [k.cuda for k in found[:3]] == [k.cuda for k in (*found[3:], found[2])]
    assert len({k.cuda for k in found}) >= 2
    x, o = GpuArray(1 << 20, (32,)), GpuArray(1 << 21, (32,))
    launched = [kernel[(1,)](x, o, TILE=make(n)) for n in (*values, *values)]
    assert [k.cuda for k in launched] == [k.cuda for k in (*found, *found)]


def test_equal_objects_of_equal_state_are_warm(driver: FakeDriver) -> None:
    x, o = GpuArray(1 << 20, (32,)), GpuArray(1 << 21, (32,))
    kernel = wl.jit(by_inner_rows.fn)
    first = kernel[(1,)](x, o, TILE=Named("tile", 4))
    bound = kernel._run_unseen
    kernel._run_unseen = None
    assert kernel[(1,)](x, o, TILE=Named("tile", 4)) is first
    kernel._run_unseen = bound
    assert kernel[(1,)](x, o, TILE=Named("tile", 6)) is not first


@wl.jit
def by_tuple(x: Any, o: Any, PAIR: tl.constexpr) -> None:
    tl.store(o, tl.load(x).to(tl.int32) // 2 + PAIR[0])


def test_tuples_are_told_apart_item_by_item(driver: FakeDriver) -> None:
    x, o = GpuArray(1 << 20, (32,)), GpuArray(1 << 21, (32,))
    found = [by_tuple[(1,)](x, o, PAIR=p) for p in ((1, 2), (1.0, 2), (True, 2), (1, 2))]
    assert len({id(kernel) for kernel in found}) == 3 and found[0] is found[3]


def test_negative_zero_is_launched_as_such(driver: FakeDriver) -> None:
    def scaled(x: Any, o: Any, factor: Any) -> None:
        tl.store(o, tl.load(x) * factor)

    driver.params, kernel = 3, wl.jit(scaled)
    for zero in (float, np.float32):
        for factor in (zero(0.0), zero(-0.0), zero(0.0)):
            kernel[(1,)](GpuArray(1 << 20, (32,)), GpuArray(1 << 21, (32,)), factor)
    signs = [launch[-1][2] & 0x80000000 for launch in driver.launches]
    assert signs == [0, 0x80000000, 0] * 2


# ---- constexpr functions

COUNT, TABLE, MODULE = 3, {"a": 2}, types.ModuleType("settings")
MODULE.SIZE = 4  # type: ignore[attr-defined]


class Settings:
    SIZE = 5


def doubled(n: int) -> int:
    return 2 * n + COUNT


def test_what_is_followed_and_what_is_called_again() -> None:
    """A launch compares names where code says which, and calls the function again where it doesn't."""
    followed: list[Callable[..., Any]] = [
        lambda n: n + COUNT,
        lambda n: doubled(n) + math.isqrt(n),
        lambda n: MODULE.SIZE + Settings.SIZE,
        lambda n: sum(doubled(i) for i in range(n)),
        lambda n: wl.cdiv(n, COUNT),
        lambda n: max(n, len([n, n])),
        lambda n: functools.partial(doubled, n)(),
    ]
    called_again: list[Callable[..., Any]] = [
        lambda n: TABLE["a"],
        lambda n: globals()["COUNT"],
        lambda n: getattr(MODULE, "SIZE"),  # noqa: B009
        lambda n: vars(Settings)["SIZE"],
        lambda n: os.environ.get("SIZE", n),
        lambda n: Tile(n).rows,
        lambda n: importlib.util.find_spec("math"),
    ]
    assert [f for f in followed if follow(f, (4,)) is None] == []
    assert [f for f in called_again if follow(f, (4,)) is not None] == []
    assert follow(rows_of, (Tile(4),)) is None  # an object's state
    assert follow(followed[0], (doubled,)) is not None


@tl.constexpr_function
def count_of(n: Any) -> Any:
    return doubled(n)


def test_a_warm_launch_calls_nothing_that_is_followed(
    driver: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def counted(x: Any, o: Any) -> None:
        tl.store(o, tl.load(x) * count_of(1))

    kernel = wl.jit(counted)
    x, o = GpuArray(1 << 20, (32,)), GpuArray(1 << 21, (32,))
    first = kernel[(1,)](x, o)
    with monkeypatch.context() as patch:
        patch.setattr(Variants, "find", lambda *_: pytest.fail("a warm launch looks for a variant"))
        assert kernel[(1,)](x, o) is first
    monkeypatch.setitem(globals(), "COUNT", 7)
    other = kernel[(1,)](x, o)
    assert other is not None and first is not None and other.cuda != first.cuda
    monkeypatch.setitem(globals(), "COUNT", 3)
    assert kernel[(1,)](x, o) is first


# ---- another process, which shares the disk cache


def test_no_variant_is_stored_under_what_it_did_not_read(nothing_compiled: Path) -> None:
    """A global changed between two specializations: each is stored with what it read."""
    text = HEAD + "S = 2\n" + KERNEL.format("k", "S").replace("o):", "o, BLOCK: tl.constexpr):")
    module = imported(nothing_compiled / "m.py", text)
    out = X.copy()
    module.k.compile_for(X, out, BLOCK=64, grid=(1,))
    module.S = 10  # type: ignore[attr-defined]
    other = module.k.compile_for(X, out, BLOCK=128, grid=(1,))
    victim = imported(nothing_compiled / "m.py", text).k
    assert victim.compile_for(X, out, BLOCK=64, grid=(1,)).from_cache
    found = victim.compile_for(X, out, BLOCK=128, grid=(1,))
    assert not found.from_cache and found.cuda != other.cuda and "2.0f" in found.cuda


def test_ir_that_can_not_be_made_again_is_an_error(nothing_compiled: Path) -> None:
    text = HEAD + "S = 2\n" + KERNEL.format("k", "S")
    imported(nothing_compiled / "m.py", text).k.compile_for(X, X.copy(), grid=(1,))
    module = imported(nothing_compiled / "m.py", text)
    kernel = module.k.compile_for(X, X.copy(), grid=(1,))
    assert kernel.from_cache
    module.S = 3  # type: ignore[attr-defined]
    with pytest.raises(CompileError, match="what k reads has changed since it was compiled"):
        kernel.explain()


def test_explain_says_what_was_read(nothing_compiled: Path) -> None:
    text = (
        HEAD
        + "S = (1, 2)\n@tl.constexpr_function\ndef f(n): return n + len(T)\nT = [0]\n"
        + "@wl.jit\ndef h(a, b=4): return a * b * S[1]\n"
        + KERNEL.format("k", "h(f(1))")
    )
    kernel = imported(nothing_compiled / "m.py", text).k.compile_for(X, X.copy(), grid=(1,))
    told = kernel.explain().partition("\nread while translating\n")[2]
    for line in (
        "S: (1, 2) (a name in h)",
        "h: the kernel h (a name in k)",
        "b: 4 (a default of h)",
        "f(1): 2 (asked at every launch: it reads what can't be followed)",
    ):
        assert f"  {line}" in told.splitlines()


@pytest.mark.parametrize("change", ["h.fn.__defaults__ = (5,)", "h.fn.__kwdefaults__['c'] = 6"])
def test_other_defaults_of_a_helper_are_seen(nothing_compiled: Path, change: str) -> None:
    text = HEAD + "@wl.jit\ndef h(a, b=4, *, c=1): return a * b * c\n" + KERNEL.format("k", "h(1)")
    module = imported(nothing_compiled / "m.py", text)
    out = X.copy()
    module.k[(1,)](X, out)
    before = out.copy()
    exec(change, vars(module))
    module.k[(1,)](X, out)
    assert not np.array_equal(out, before)


# ---- source


def test_a_file_edited_after_its_import(tmp_path: Path) -> None:
    one, two = KERNEL.format("k", "2.0"), KERNEL.format("q", "3.0")
    module = imported(tmp_path / "m.py", HEAD + one + two)
    (tmp_path / "m.py").write_text("# one line\n# two\n# three\n" + HEAD + one + two)
    assert (result(module.k), result(module.q)) == (2, 3)
    (tmp_path / "m.py").write_text(HEAD + KERNEL.format("k", "5.0"))
    again = imported(tmp_path / "m.py", HEAD + KERNEL.format("k", "7.0"))
    assert (result(module.k), result(again.k)) == (2, 7)


@pytest.mark.parametrize("edit", ["'# a line\\n' + t", "t.replace('2.0', '5.0')", "''"])
def test_a_file_edited_while_it_is_imported(tmp_path: Path, edit: str) -> None:
    """Other text than what Python runs is never translated."""
    path = tmp_path / "m.py"
    rewrite = f"t = open({str(path)!r}).read(); open({str(path)!r}, 'w').write({edit})\n"
    module = imported(path, HEAD + rewrite + KERNEL.format("k", "2.0"))
    with pytest.raises(CompileError) as e:
        result(module.k)
    assert e.value.code in ("source-changed", "no-source")


def test_text_that_fits_by_name_and_parameters_only() -> None:
    def k(x: Any) -> Any:
        return x + 1

    first = k

    def k(x: Any) -> Any:  # type: ignore[no-redef]
        return x + 2

    capture(first)
    assert parse_function(first).digest != parse_function(k).digest


def plain_decorator(f: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(f)
    def wrapper(*args: Any) -> Any:
        return 2 * f(*args)

    return wrapper


def test_a_decorator_below_jit_is_not_dropped() -> None:
    def k(x: Any, o: Any) -> None:
        tl.store(o, tl.load(x))

    with pytest.raises(CompileError, match="a decorator has replaced k by a wrapper") as e:
        wl.jit(plain_decorator(k))
    assert e.value.code == "decorated" and "directly above" in str(e.value)


# ---- scripts


class Reading(wl.Script):
    """out[i] = a number from everywhere that a script can read."""

    step = 10

    def __init__(self) -> None:
        super().__init__()
        self.base = 100

    def more(self, x: int = 1000) -> Any:
        return x + SCALE

    def __call__(self, out: ~tl.int32) -> None:  # type: ignore[valid-type, operator]
        self.attrs.blocks = 1
        self.attrs.warps = 4
        values = self.register_tensor(dtype=tl.int32, shape=[128], init=self.base + self.step)
        self.store_global(
            self.global_view(out, dtype=tl.int32, shape=[128]), values + self.more(), [0]
        )


def test_a_script_is_what_it_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Reading()

    def value() -> int:
        out = np.zeros(128, np.int32)
        script(out)
        return int(out[0])

    assert value() == 1112
    script.base = 200
    assert value() == 1212
    monkeypatch.setitem(globals(), "SCALE", 5)
    assert value() == 1215
    monkeypatch.setattr(Reading, "step", 20)
    assert value() == 1225
    script.step = 30  # hides the class's
    assert value() == 1235

    def less(self: Any, x: int = 500) -> Any:
        return x

    monkeypatch.setattr(Reading, "more", less)
    assert value() == 730
    monkeypatch.setattr(Reading.more, "__code__", (lambda self, x=500: x).__code__)
    with pytest.raises(CompileError):  # a lambda
        value()


class Factor(enum.Enum):
    DOUBLE = 2.0


@wl.jit
def by_member(x: Any, o: Any) -> None:
    tl.store(o, tl.load(x) * Factor.DOUBLE.value)


def test_the_value_of_an_enumeration_s_member(monkeypatch: pytest.MonkeyPatch) -> None:
    assert result(by_member) == 2.0
    monkeypatch.setitem(globals(), "Factor", enum.Enum("Factor", {"DOUBLE": 5.0}))
    assert result(by_member) == 5.0


@wl.jit
def by_name(x: Any, o: Any, KIND: tl.constexpr) -> None:
    tl.store(o, tl.load(x) * len(KIND.name))


def test_the_name_of_an_enumeration_s_member() -> None:
    assert result(by_name, KIND=Factor.DOUBLE) == 6.0
