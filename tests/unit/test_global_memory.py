"""Races on global memory within a launch: proved absent, found with a witness, or named as open."""

from __future__ import annotations

import itertools
import random
import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import warploom as wl
import warploom.language as tl
from tests.e2e.library_attention import compiled as attention_of
from tests.eject.test_round_trip import aligned as aligned_signature
from tests.examples import examples
from tests.mutants.programs import program
from warploom import Script
from warploom.check import Case, Verdict, check
from warploom.check.global_memory import GlobalMemory, check_global
from warploom.check.launches import at_launch
from warploom.check.samples import Sample
from warploom.check.terms import Terms
from warploom.ir.core import Func
from warploom.ir.parser import parse_func
from warploom.ir.poly import Poly
from warploom.language import float32, int32

pytestmark = pytest.mark.usefixtures("without_nvrtc")


def of(kernel: Any, *signature: str, **constexprs: Any) -> GlobalMemory:
    return check_global(kernel.compile(signature=list(signature), constexprs=constexprs).placed)


def of_script(script: Script) -> GlobalMemory:
    return check_global(script.compile(aligned_signature(script)).placed)


# ---- Triton-style kernels


@wl.jit
def copy_rows(
    x: Any, y: Any, M: Any, N: Any, sx: Any, sy: Any, BM: tl.constexpr, BN: tl.constexpr
) -> None:
    m = tl.program_id(0) * BM + tl.arange(0, BM)[:, None]
    n = tl.program_id(1) * BN + tl.arange(0, BN)[None, :]
    inside = (m < M) & (n < N)
    tl.store(y + m * sy + n, tl.load(x + m * sx + n, mask=inside), mask=inside)


ROWS = ("*fp32:16", "*fp32:16", "i32", "i32", "i32", "i32")


def test_a_stride_is_a_condition_that_is_printed() -> None:
    found = of(copy_rows, *ROWS, BM=16, BN=32)
    assert found.verdict == "proved"
    assert list(found.conditions) == ["sy ≥ N (y)"]


@wl.jit
def overlapping(x: Any, y: Any, n: Any, BLOCK: tl.constexpr, STEP: tl.constexpr) -> None:
    at = tl.program_id(0) * STEP + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)), mask=at < n)


@pytest.mark.parametrize("step", [64, 65, 63, 1, 0])
def test_blocks_overlap_where_the_step_is_shorter(step: int) -> None:
    found = of(overlapping, "*fp32:16", "*fp32:16", "i32", BLOCK=64, STEP=step)
    assert found.verdict == ("proved" if step >= 64 else "broken")
    for race in found.broken:
        assert race.code == "global-race" and race.loc is not None
        assert "program_id(0) = " in str(race) and "of y" in str(race)


@wl.jit
def one_place(y: Any, KIND: tl.constexpr) -> None:
    if KIND == "same":
        tl.store(y, 1.0)
    elif KIND == "own":
        tl.store(y, tl.program_id(0).to(tl.float32))
    else:
        tl.atomic_add(y, tl.program_id(0).to(tl.float32))


def test_four_programs_and_one_place() -> None:
    """The same value is no race, nor is an atomic; different values are."""
    assert of(one_place, "*fp32:16", KIND="same").verdict == "proved"
    assert of(one_place, "*fp32:16", KIND="atomic").verdict == "proved"
    found = of(one_place, "*fp32:16", KIND="own")
    assert found.verdict == "broken" and "element 0 of y" in found.broken[0].message


@wl.jit
def reads_what_atomics_leave(
    y: Any, o: Any, SEM: tl.constexpr, VOLATILE: tl.constexpr, OWN: tl.constexpr
) -> None:
    p, i = tl.program_id(0), tl.arange(0, 64)
    at = y + i + 64 * p if OWN else y + i
    tl.atomic_add(at, 1.0, sem=SEM)
    tl.store(o + p * 64 + i, tl.load(at, volatile=VOLATILE))


def test_a_load_of_what_another_program_adds_to() -> None:
    """A race, unless an ordered atomic or a volatile load may synchronise them: then not proved."""
    args, how = ("*fp32:16", "*fp32:16"), {"SEM": "relaxed", "VOLATILE": False, "OWN": False}
    report = of(reads_what_atomics_leave, *args, **how)
    assert report.verdict == "broken"
    assert "reads what another one writes without synchronisation" in str(report.broken[0])
    assert of(reads_what_atomics_leave, *args, **how | {"SEM": "acq_rel"}).verdict == "not proved"
    assert of(reads_what_atomics_leave, *args, **how | {"VOLATILE": True}).verdict == "not proved"
    assert of(reads_what_atomics_leave, *args, **how | {"OWN": True}).verdict == "proved"


@wl.jit
def chain(x: Any) -> None:
    p = tl.program_id(0)
    tl.store(x + p + 1, tl.load(x + p) + 1.0)


@wl.jit
def in_place(x: Any, n: Any, BLOCK: tl.constexpr) -> None:
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at, mask=at < n) + 1.0, mask=at < n)


def test_a_chain_of_programs_reads_what_others_write() -> None:
    found = of(chain, "*fp32:16")
    assert found.verdict == "broken" and "reads what another one writes" in found.broken[0].message
    assert of(in_place, "*fp32:16", "i32", BLOCK=128).verdict == "proved"


@wl.jit
def by_shorter_numbers(y: Any, KIND: tl.constexpr) -> None:
    p = tl.program_id(0)
    if KIND == "masked":
        at = 8 + ((p * 4 - 7) // 3 & 3)
    elif KIND == "shifted":
        at = 8 + ((p * 4 - 7) // 3 >> 1)
    else:
        at = 128 + (p * 64).to(tl.int8).to(tl.int32)
    tl.store(y + at, p.to(tl.float32))


@pytest.mark.parametrize(("kind", "programs"), [("masked", 5), ("shifted", 2), ("cast", 5)])
def test_numbers_that_bits_are_taken_of(kind: str, programs: int) -> None:
    """-1 & 3 is 3 (and no remainder), -2 >> 1 is rounded down, and 256 is 0 in 8 bits: two programs meet."""
    kernel = by_shorter_numbers.compile(signature=["*fp32:16"], constexprs={"KIND": kind})
    assert check_global(kernel.placed).verdict != "proved"
    launch = Case((np.zeros(256, np.float32),), (programs, 1, 1))
    assert at_launch(kernel.placed, launch).verdict == "broken"


@wl.jit
def scatter(x: Any, index: Any, y: Any, BLOCK: tl.constexpr) -> None:
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + tl.load(index + at), tl.load(x + at))


@wl.jit
def spinning(x: Any, flag: Any) -> None:
    p = tl.program_id(0)
    while tl.atomic_cas(flag, p, p, sem="acquire") != p:
        pass
    tl.store(x, tl.load(x) + p)
    tl.atomic_xchg(flag, p + 1, sem="release")


def test_what_is_not_affine_is_named() -> None:
    found = of(scatter, "*fp32:16", "*i32:16", "*fp32:16", BLOCK=64)
    assert found.verdict == "not proved"
    assert "the store at" in found.unproved[0].reason and "depends on" in found.unproved[0].reason
    assert found.unproved[0].loc is not None
    locked = of(spinning, "*i32:16", "*i32:16")
    assert locked.verdict != "proved"
    assert any("atomic at" in u.reason for u in locked.unproved)


@wl.jit
def persistent(
    y: Any, M: Any, N: Any, B: tl.constexpr, GROUP: tl.constexpr, BACK: tl.constexpr
) -> None:
    """Tiles in groups of rows, every second group backwards."""
    tiles_m, tiles_n = tl.cdiv(M, B), tl.cdiv(N, B)
    for tile in tl.range(tl.program_id(0), tiles_m * tiles_n, tl.num_programs(0)):
        group = tile // (GROUP * tiles_n)
        rows = tl.minimum(tiles_m - group * GROUP, GROUP)
        pid_m = group * GROUP + (tile % (GROUP * tiles_n)) % rows
        pid_n = (tile % (GROUP * tiles_n)) // rows
        if BACK:
            pid_n = tl.maximum(pid_n + (group % 2) * (tiles_n - 1 - 2 * pid_n), 0)
        m = pid_m * B + tl.arange(0, B)[:, None]
        n = pid_n * B + tl.arange(0, B)[None, :]
        tl.store(y + m * N + n, (m * n).to(tl.float32), mask=(m < M) & (n < N))


@wl.jit
def wrong_order(y: Any, M: Any, N: Any, B: tl.constexpr) -> None:
    """Rows and columns that do not tell the tile: tile // tiles_m and tile % tiles_n."""
    tiles_m, tiles_n = tl.cdiv(M, B), tl.cdiv(N, B)
    for tile in tl.range(tl.program_id(0), tiles_m * tiles_n, tl.num_programs(0)):
        m = tile // tiles_m * B + tl.arange(0, B)[:, None]
        n = tile % tiles_n * B + tl.arange(0, B)[None, :]
        tl.store(y + m * N + n, (tile + m * n).to(tl.float32), mask=(m < M) & (n < N))


@pytest.mark.parametrize("group", [1, 2, 3, 8])
@pytest.mark.parametrize("back", [False, True])
@pytest.mark.each(2)
def test_tile_orders_are_bijections(group: int, back: bool) -> None:
    found = of(persistent, "*fp32:16", "i32", "i32", B=32, GROUP=group, BACK=back)
    assert found.verdict == "proved", found.unproved


def test_an_order_that_visits_a_tile_twice_is_broken() -> None:
    assert of(wrong_order, "*fp32:16", "i32", "i32", B=32).verdict == "broken"


@wl.jit
def drawn(y: Any, counter: Any, tiles: Any, B: tl.constexpr) -> None:
    """Whoever is done draws the next tile."""
    tile = tl.program_id(0)
    while tile < tiles:
        tl.store(y + tile * B + tl.arange(0, B), tl.arange(0, B).to(tl.float32) + tile)
        tile = tl.atomic_add(counter, 1) + tl.num_programs(0)


@wl.jit
def drawn_wrong(y: Any, counter: Any, tiles: Any, B: tl.constexpr) -> None:
    """The numbers drawn begin at 0, where the programs' own do as well."""
    tile = tl.program_id(0)
    while tile < tiles:
        tl.store(y + tile * B + tl.arange(0, B), tl.arange(0, B).to(tl.float32) + tl.program_id(0))
        tile = tl.atomic_add(counter, 1)


@wl.jit
def drawn_again(y: Any, counter: Any, tiles: Any, B: tl.constexpr) -> None:
    """Somebody sets the counter back while the others draw."""
    tile = tl.program_id(0)
    while tile < tiles:
        tl.store(y + tile * B + tl.arange(0, B), tl.arange(0, B).to(tl.float32) + tl.program_id(0))
        tile = tl.atomic_add(counter, 1) + tl.num_programs(0)
    tl.atomic_xchg(counter, 0)


def test_numbers_drawn_from_a_counter() -> None:
    found = of(drawn, "*fp32:16", "*i32:16", "i32", B=64)
    assert found.verdict == "proved"
    assert "counter holds no negative number at first" in found.conditions
    assert of(drawn_again, "*fp32:16", "*i32:16", "i32", B=64).verdict != "proved"
    assert of(drawn_wrong, "*fp32:16", "*i32:16", "i32", B=64).verdict == "not proved"


# ---- explicit kernels


class Groups(Script):
    """Two groups of a program, with words of their own or not."""

    def __init__(self, own: bool) -> None:
        super().__init__()
        self.own = own

    def __call__(self, y_ptr: ~float32, n: int32):  # type: ignore[no-untyped-def]
        self.attrs.blocks = 4
        self.attrs.warps = 8
        with self.thread_group(0, 128, name="first"):
            at = self.blockIdx.x * 256 + self.arange(0, 128)
            self.store(y_ptr + at, self.cast(at, float32))
        with self.thread_group(128, 128, name="second"):
            at = self.blockIdx.x * 256 + self.arange(0, 128) + (128 if self.own else 0)
            self.store(y_ptr + at, self.cast(at + 1, float32))


def test_two_groups_and_one_place() -> None:
    assert of_script(Groups(own=True)).verdict == "proved"
    assert of_script(Groups(own=False)).verdict == "not proved"  # barriers may order them
    report = Groups(own=False).check(np.zeros(1024, np.float32), 1)
    assert report.verdict is Verdict.BROKEN and "write one word: element" in str(report)


class ThroughMemory(Script):
    """Stores a tile by ordinary stores, and reads it again by TMA."""

    def __init__(self, fence: bool) -> None:
        super().__init__()
        self.fenced = fence

    def __call__(self, y_ptr: ~float32, out_ptr: ~float32, n: int32):  # type: ignore[no-untyped-def]
        self.attrs.blocks = 2
        self.attrs.warps = 4
        view = self.global_view(y_ptr, dtype=float32, shape=[n, 32])
        out = self.global_view(out_ptr, dtype=float32, shape=[n, 32])
        buffer = self.shared_tensor(dtype=float32, shape=[64, 32])
        full = self.mbarrier.alloc([1])
        row = self.blockIdx.x * 64
        value = self.register_tensor(dtype=float32, shape=[64, 32], init=1.0)
        self.store_global(view, value, offsets=[row, 0])
        if self.fenced:
            self.fence.proxy_async("global")
        self.sync()
        with self.single_thread():
            self.mbarrier.arrive_and_expect_tx(full[0], buffer.nbytes)
            self.tma.global_to_shared(view, buffer, offsets=[row, 0], mbarrier=full[0])
        self.mbarrier.wait(full[0], 0)
        self.store_global(out, self.load_shared(buffer), offsets=[row, 0])


def test_a_copy_after_an_ordinary_store_needs_the_fence() -> None:
    found = of_script(ThroughMemory(fence=False))
    assert [r.code for r in found.broken] == ["proxy-fence"]
    assert 'proxy_async("global")' in str(found.broken[0].help)
    assert of_script(ThroughMemory(fence=True)).verdict == "proved"


def test_the_report_of_check_has_it() -> None:
    func = ThroughMemory(fence=False).compile(aligned_signature(ThroughMemory(fence=False))).placed
    report = check(func)
    assert report.verdict is Verdict.BROKEN
    assert "proxy-fence" in [e.code for e in report.diagnostics]
    func = Groups(own=True).compile(aligned_signature(Groups(own=True))).placed
    report = check(func)
    assert report.ok and "global memory" in str(report)


# ---- against all executions, one by one

HEADER = """func @random(%p: ptr<i32>, %n: i32) level=WARP {warps=4} {
  %pid = program_id() {axis=0} : i32
  %all = num_programs() {axis=0} : i32
  tasks() {names=("main",), warps=(4,), replicas=(1,), registers=(none,)} do {
"""


class Random:
    """An index expression as text of IR, and as a function of (program, trip, coordinate)."""

    def __init__(self, draw: Any) -> None:
        self.draw, self.lines, self.count = draw, [], 0
        self.size = draw(st.sampled_from([1, 2, 4, 8]))
        self.step = draw(st.sampled_from(["%all", "%one"]))

    def number(self, n: int) -> tuple[str, Any]:
        self.count += 1
        name = f"%k{self.count}"
        self.lines.append(f"{name} = const() {{value={n}, dtype=i32}} : i32")
        return name, lambda *_: n

    def scalar(self, depth: int) -> tuple[str, Any]:
        kind = self.draw(st.integers(0, 9 if depth else 2))
        if kind == 0:
            return "%pid", lambda p, t, g, n: p
        if kind == 1:
            return "%t", lambda p, t, g, n: t
        if kind == 2:
            return self.number(self.draw(st.integers(0, 9)))
        if kind == 9:
            return "%n", lambda p, t, g, n: n
        (x, f), (y, h) = self.scalar(depth - 1), self.scalar(depth - 1)
        if kind in (5, 6, 7):
            y, h = self.number(self.draw(st.integers(1, 8)))
        name, fn = {
            3: ("add", lambda a, b: a + b), 4: ("sub", lambda a, b: a - b),
            5: ("mul", lambda a, b: a * b),
            6: ("idiv", lambda a, b: (abs(a) // b) * (1 if a >= 0 else -1)),
            7: ("rem", lambda a, b: (abs(a) % b) * (1 if a >= 0 else -1)),
            8: ("minimum", min),
        }[kind]  # fmt: skip
        self.count += 1
        out = f"%v{self.count}"
        self.lines.append(f"{out} = {name}({x}, {y}) : i32")
        return out, lambda *at: fn(f(*at), h(*at))


@st.composite
def stores(draw: Any) -> tuple[Func, Any, int, str]:
    """A loop over tiles that stores the program's number: the function, the place, its size."""
    r = Random(draw)
    at, place = r.scalar(3)
    k, _ = r.number(draw(st.sampled_from([1, 2, 3, 4, 8])))
    factor = int(r.lines[-1].split("value=")[1].split(",")[0])
    body = "\n".join(r.lines)
    n = r.size
    text = f"""{HEADER}    %one = const() {{value=1, dtype=i32}} : i32
    for(%pid, %n, {r.step}) do (%t: i32) {{
      {body}
      %far = mul({at}, {k}) : i32
      %places = splat(%far) {{shape=({n},)}} : tile<{n}xi32>
      %range = arange() {{start=0, end={n}}} : tile<{n}xi32>
      %at = add(%places, %range) : tile<{n}xi32>
      %base = splat(%p) {{shape=({n},)}} : tile<{n}xptr<i32>>
      %to = addptr(%base, %at) : tile<{n}xptr<i32>>
      %value = splat(%pid) {{shape=({n},)}} : tile<{n}xi32>
      store(%to, %value)
      yield()
    }}
    yield()
  }}
  yield()
}}
"""
    return parse_func(text), lambda *x: place(*x) * factor, n, r.step


@settings(max_examples=examples(150), deadline=None)
@given(stores())
def test_never_proved_where_two_programs_meet(case: tuple[Func, Any, int, str]) -> None:
    func, place, size, step = case
    report = check_global(func)
    if report.verdict == "not proved":
        return
    met = False
    for programs, n in itertools.product((1, 2, 3, 5), (0, 1, 2, 5, 9, 13)):
        if report.conditions and not _keep(report, programs, n):
            continue
        owner: dict[int, int] = {}
        for p in range(programs):
            for t in range(p, n, programs if step == "%all" else 1):
                for i in range(size):
                    word = place(p, t, programs, n) + i
                    met |= owner.setdefault(word, p) != p
    assert not (met and report.verdict == "proved"), str(func)


def _keep(report: GlobalMemory, programs: int, n: int) -> bool:
    """Do these numbers keep the conditions?  (They are sentences such as `n ≥ 4`, or `8 ≥ num_programs(0)`.)"""
    for text in report.conditions:
        if "≥" not in text:
            return False
        left, right = text.split(" (")[0] if "num_programs" not in text else text, ""
        left, right = (left.split(" (p)")[0]).split("≥")
        names = {"n": n, "num_programs": lambda axis: programs}
        clean = [x.replace("·", "*") for x in (left, right)]
        if not eval(clean[0], names) >= eval(clean[1], names):
            return False
    return True


@settings(max_examples=examples(60), deadline=None)
@given(stores())
def test_a_launch_is_decided_word_by_word(case: tuple[Func, Any, int, str]) -> None:
    func, place, size, step = case
    for programs, n in ((1, 5), (2, 9), (5, 13)):
        owner: dict[int, int] = {}
        met = False
        for p in range(programs):
            for t in range(p, n, programs if step == "%all" else 1):
                for i in range(size):
                    word = place(p, t, programs, n) + i
                    met |= owner.setdefault(word, p) != p
        report = check_global(func, Case((np.zeros(0, np.int32), n), (programs, 1, 1)))
        assert report.verdict == ("broken" if met else "proved"), str(report)


@wl.jit
def back_and_forth(y: Any, M: Any, N: Any, BLOCK: tl.constexpr) -> None:
    """Rows of tiles walked to the right and back, the walk a number that each turn carries on."""
    columns = tl.cdiv(N, BLOCK)
    row, column = tl.program_id(0) // columns, tl.program_id(0) % columns
    for _ in range(tl.program_id(0), M * columns, tl.num_programs(0)):
        place = tl.where(row % 2 == 0, column, columns - 1 - column) * BLOCK + tl.arange(0, BLOCK)
        tl.store(y + row * N + place, tl.program_id(0) + 0 * place, mask=place < N)
        column += tl.num_programs(0)
        row, column = row + column // columns, column % columns


def test_what_a_loop_carries_is_followed_in_a_launch() -> None:
    func = back_and_forth.compile(
        signature=["*i32:16", "i32", "i32"], constexprs={"BLOCK": 32}
    ).placed
    assert check_global(func).verdict == "not proved"
    found = check_global(func, Case((np.zeros(500, np.int32), 5, 100), (3, 1, 1)))
    assert found.verdict == "proved"
    report = check(func)
    assert report.ok and any(", at M=" in claim for claim in report.claims), str(report)


# ---- one launch, followed by a run


@wl.jit
def scattered(x: Any, index: Any, y: Any, B: tl.constexpr) -> None:
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + tl.load(index + at), tl.load(x + at) + tl.program_id(0))


def test_a_scatter_is_decided_by_what_the_index_holds() -> None:
    x, y = np.zeros(128, np.float32), np.zeros(128, np.float32)
    index = np.random.default_rng(0).permutation(128).astype(np.int32)
    compiled = scattered.compile_for(x, index, y, grid=(4,), B=32)
    report = compiled.check(x, index, y, grid=(4,))
    assert report.ok and any("with what index hold" in c for c in report.claims), str(report)
    assert compiled.check().verdict is Verdict.NOT_PROVED
    index[100] = index[3]
    report = compiled.check(x, index, y, grid=(4,))
    assert report.verdict is Verdict.BROKEN
    assert f"element {index[3]} of y" in str(report), str(report)


@wl.jit
def rows_of_groups(y: Any, ends: Any, E: tl.constexpr, B: tl.constexpr, STEP: tl.constexpr) -> None:
    """Tiles of groups whose ends are in memory, walked by a while in a for."""
    tile, begin, before = tl.program_id(0), 0, 0
    for e in range(E):
        end = tl.load(ends + e)
        tiles = tl.cdiv(end - begin, B)
        while tile < before + tiles:
            at = begin + (tile - before) * STEP + tl.arange(0, B)
            tl.store(y + at, tl.program_id(0) + 0 * at, mask=at < end)
            tile += tl.num_programs(0)
        before += tiles
        begin = end


@pytest.mark.parametrize("step", [16, 8])
def test_what_a_while_carries_is_followed(step: int) -> None:
    y, ends = np.zeros(100, np.int32), np.array([30, 37, 100], np.int32)
    meta = {"E": 3, "B": 16, "STEP": step}
    compiled = rows_of_groups.compile_for(y, ends, grid=(3,), **meta)
    found = at_launch(compiled.placed, Case((y, ends), (3,)))
    assert found.verdict == ("proved" if step == 16 else "broken"), found.unproved


@wl.jit
def own_counter(x: Any) -> None:
    tl.store(x, tl.load(x) + 1)


def test_programs_that_never_ask_who_they_are() -> None:
    x = np.zeros(4, np.int32)
    func = own_counter.compile_for(x, grid=(1,)).placed
    assert at_launch(func, Case((x,), (1,))).verdict == "proved"
    assert at_launch(func, Case((x,), (4,))).verdict == "broken"


class HandsOn(Script):
    """One group stores what another one reads, with a barrier between them or not."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.of_kind = kind

    def __call__(self, x_ptr: ~float32, y_ptr: ~float32, n: int32):  # type: ignore[no-untyped-def]
        self.attrs.blocks = [n]
        self.attrs.warps = 8
        done = self.mbarrier.alloc([128])
        row = self.blockIdx.x * 128
        with self.thread_group(0, 128, name="first"):
            if self.of_kind == "early":
                self.mbarrier.arrive(done[0])
            self.store(x_ptr + row + self.arange(0, 128), self.arange(0, 128).to(float32))
            if self.of_kind != "early":
                self.mbarrier.arrive(done[0])
        with self.thread_group(128, 128, name="second"):
            if self.of_kind != "none":
                self.mbarrier.wait(done[0], 0)
            at = row + 127 - self.arange(0, 128)
            self.store(y_ptr + row + self.arange(0, 128), self.load(x_ptr + at))


@pytest.mark.parametrize("kind", ["ordered", "early", "none"])
def test_groups_that_a_barrier_orders(kind: str) -> None:
    script = HandsOn(kind)
    x, y = np.zeros(512, np.float32), np.zeros(512, np.float32)
    report = script.check(x, y, 4)
    if kind == "ordered":
        assert report.ok and "at n=4 on grid 4" in str(report), str(report)
    else:
        assert report.verdict is Verdict.BROKEN, str(report)
        assert "reads what another group writes" in str(report)
    func = script.compile(aligned_signature(script)).placed
    assert check(func).ok == (kind == "ordered")


def test_a_launch_that_breaks_a_condition_is_broken() -> None:
    x, y = np.zeros((64, 64), np.float32), np.zeros((64, 64), np.float32)
    compiled = copy_rows.compile_for(x, y, 64, 48, 64, 64, grid=(4, 2), BM=16, BN=32)
    good, bad = ((x, y, 64, 48, 64, stride) for stride in (64, 40))
    assert at_launch(compiled.placed, Case(good, (4, 2))).verdict == "proved"
    assert at_launch(compiled.placed, Case(bad, (4, 2))).verdict == "broken"


@wl.jit
def differences(y: Any, n: Any) -> None:
    """What a loop carries is of the turn before: t·t - before is another number in each turn."""
    before = 0
    for t in range(1, n):
        tl.store(y + tl.program_id(0) + t * t - before, tl.program_id(0), mask=before > 0)
        before = t * t


def test_what_a_loop_carries_is_of_an_earlier_turn() -> None:
    compiled = differences.compile(signature=["*i32:16", "i32"])
    assert check_global(compiled.placed).verdict != "proved"
    assert at_launch(compiled.placed, Case((np.zeros(99, np.int32), 5), (4,))).verdict == "broken"


@pytest.mark.parametrize("config", [(128, False, 2), (128, True, 1)])
def test_attention_whose_tiles_are_drawn(config: tuple[int, bool, int]) -> None:
    """Head and tile are carried together: both are the first ones, or both of the number drawn."""
    func = attention_of(*config).placed
    x, numbers = np.zeros(16, ml_dtypes.bfloat16), (2, 384, 1, 0.1)
    case = Case((x, x, x, x, np.zeros(16, np.float32), np.zeros(2, np.int32), *numbers), (4,))
    found = at_launch(func, case)
    assert found.verdict == "proved", found.unproved


@wl.jit
def in_splits(
    y: Any, HEADS: tl.constexpr, G: tl.constexpr, BLOCK: tl.constexpr, SPLITS: tl.constexpr
) -> None:
    """Each program writes one split of a head's G rows."""
    g = tl.arange(0, BLOCK)
    row = (tl.program_id(0) * HEADS + tl.program_id(1)) * G + g
    at = row * SPLITS + tl.program_id(2)
    tl.store(y + at, tl.program_id(2) + 0 * g, mask=g < G)


@wl.jit
def in_heads(y: Any, HEAD: tl.constexpr, STEP: tl.constexpr) -> None:
    """64 rows of a head's HEAD a program."""
    at = tl.program_id(1) * HEAD + tl.program_id(0) * STEP + tl.arange(0, 64)
    tl.store(y + at, tl.program_id(0) + 0 * at)


@wl.jit
def sum_of_splits(y: Any, BLOCK: tl.constexpr) -> None:
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.program_id(1) + 0 * at)


@wl.jit
def all_alike(y: Any, BLOCK: tl.constexpr) -> None:
    at = tl.arange(0, BLOCK)
    tl.store(y + at, tl.program_id(0) + 0 * at)


def test_a_grid_that_is_not_known_is_no_witness_where_the_text_has_room_for_one_program() -> None:
    """With one split its number has no place of its own: what the launch does decides."""
    func = in_splits.compile(["*i32:16"], {"HEADS": 2, "G": 8, "BLOCK": 16, "SPLITS": 1}).placed
    found = check_global(func)
    assert found.verdict == "not proved"
    assert "keep apart where 1 ≥ num_programs(2); 2 ≥ num_programs(1)," in str(found.unproved[0])
    y = np.zeros(4 * 2 * 8, np.int32)
    assert at_launch(func, Case((y,), (4, 2, 1))).verdict == "proved"
    assert at_launch(func, Case((y,), (2, 2, 2))).verdict == "broken"
    assert of(in_heads, "*i32:16", HEAD=64, STEP=64).verdict == "not proved"
    several = of(in_splits, "*i32:16", HEADS=2, G=8, BLOCK=16, SPLITS=3)
    assert several.verdict == "proved"
    assert {"3 ≥ num_programs(2)", "2 ≥ num_programs(1)"} <= set(several.conditions)


@pytest.mark.parametrize(("head", "step"), [(128, 1), (128, 32), (64, 32), (96, 32)])
def test_steps_that_are_too_short_stay_broken_whatever_the_grid(head: int, step: int) -> None:
    """A head has room for two blocks, or the step of a block is no row's."""
    assert of(in_heads, "*i32:16", HEAD=head, STEP=step).verdict == "broken"
    assert of(in_heads, "*i32:16", HEAD=128, STEP=64).verdict == "proved"


def test_programs_along_an_axis_that_no_place_follows() -> None:
    """A launch with one program along it is right; who asks about all is told."""
    func = sum_of_splits.compile(["*i32:16"], {"BLOCK": 64}).placed
    found = check_global(func)
    assert found.verdict == "not proved"
    (open_,) = found.unproved
    assert "they keep apart on grids of one program along axis 1" in open_.reason
    assert "touch one word (element " in open_.reason
    y = np.zeros(256, np.int32)
    assert at_launch(func, Case((y,), (4, 1, 1))).verdict == "proved"
    assert at_launch(func, Case((y,), (4, 2, 1))).verdict == "broken"
    assert of(all_alike, "*i32:16", BLOCK=64).verdict == "broken"  # along its one axis


def test_no_condition_that_no_launch_keeps() -> None:
    func = attention_of(64, True, 0).placed
    assert not any("section ≥ section" in c for c in check_global(func).conditions)


@wl.jit
def last_adds_up(
    x: Any, parts: Any, y: Any, counts: Any, N: tl.constexpr, LAST: tl.constexpr, SEM: tl.constexpr,
    LATE: tl.constexpr,
) -> None:  # fmt: skip
    """N programs a row store a part each; who comes last adds them up."""
    row, part = tl.program_id(0), tl.program_id(1)
    at = tl.arange(0, 32)
    mine = tl.load(x + (row * N + part) * 32 + at)
    if not LATE:
        tl.store(parts + (row * N + part) * 32 + at, mine)
    tl.debug_barrier()
    came = tl.atomic_add(counts + row, 1, sem=SEM)
    if LATE:
        tl.store(parts + (row * N + part) * 32 + at, mine)
    if came == LAST:
        total = mine * 0
        for i in range(N):
            total += tl.load(parts + (row * N + i) * 32 + at)
        tl.store(y + row * 32 + at, total)


LAST_ADDS_UP = {
    "right": ({}, 0, "proved"),
    "one too early": ({"LAST": 1}, 0, "not proved"),
    "never": ({"LAST": 3}, 0, "not proved"),
    "relaxed": ({"SEM": "relaxed"}, 0, "not proved"),
    "stores behind": ({"LATE": True}, 0, "not proved"),
    "begins at one": ({}, 1, "not proved"),
}


@pytest.mark.parametrize("name", LAST_ADDS_UP)
@pytest.mark.each(2)
def test_who_comes_last_by_a_counter(name: str) -> None:
    changed, begin, verdict = LAST_ADDS_UP[name]
    args = [np.zeros(n, np.float32) for n in (192, 192, 64)] + [np.full(2, begin, np.int32)]
    meta = {"N": 3, "LAST": 2, "SEM": "acq_rel", "LATE": False, **changed}
    func = last_adds_up.compile_for(*args, grid=(2, 3), **meta).placed
    found = at_launch(func, Case(tuple(args), (2, 3)))
    assert found.verdict == verdict, (found.unproved, found.broken)


def test_arithmetic_by_ranges_is_that_of_the_numbers() -> None:
    """Quotients, remainders, minima and comparisons that ranges decide come to what the numbers do."""
    rng, decided = random.Random(3), 0
    for _ in range(400):
        terms = Terms()
        leaves = [
            terms.atom("coordinate", (Poly.const(rng.choice((2, 5, 64))),), i) for i in range(2)
        ]
        leaves += [
            terms.atom("program", (Poly.const(rng.choice((1, 7))),), 0),
            terms.atom("argument", (), "n"),
        ]
        sample, found = Sample(rng.randrange(1000)), list(leaves)
        for _ in range(6):
            x, y = rng.choice(found), rng.choice(found)
            n, kind = (
                rng.choice((1, 3, 5, 64, 128)),
                rng.choice(("div", "rem", "min", "max", "sum")),
            )
            a, b = sample(x), sample(y)
            before = len(terms._atoms)
            match kind:
                case "div":
                    p, value = terms.div(x, Poly.const(n)), (abs(a) // n) * (1 if a >= 0 else -1)
                case "rem":
                    p, value = terms.rem(x, Poly.const(n)), (abs(a) % n) * (1 if a >= 0 else -1)
                case "min" | "max":
                    p, value = terms.least(kind, x, y), (min if kind == "min" else max)(a, b)
                case _:
                    c = rng.choice((-5, -1, 1, 64))
                    p, value = x * Poly.const(n) + y * Poly.const(c), a * n + b * c
            decided += kind != "sum" and len(terms._atoms) == before
            low, high = terms.range_of(p)
            assert sample(p) == value
            assert low <= value <= high
            found.append(p)
    assert decided > 100


@pytest.mark.parametrize("name", ["attention, causal", "attention, four groups"])
@pytest.mark.each(2)
def test_ragged_tiles_from_a_counter_keep_apart_in_a_launch(name: str) -> None:
    """The last heads are fewer than a section, and the next tile is carried beside its number."""
    p = program(name)
    for case in p.far:
        found = check_global(p.func, case, has_contents=True)
        assert found.verdict == "proved", found.unproved
        assert "counter_ptr holds no negative number at first" in found.conditions


@wl.jit
def at_place(x: Any, y: Any, n: Any, HOW: tl.constexpr) -> None:
    """One block a program, at a place that is a function of its number."""
    p = tl.program_id(0)
    if HOW == "xor":
        place = p ^ n
    elif HOW == "xor, one":
        place = p ^ 1
    elif HOW == "gray":
        place = p ^ (p >> 1)
    elif HOW == "abs":
        place = tl.abs(p)
    elif HOW == "fold":
        place = tl.abs(p - n)
    elif HOW == "or":
        place = p | n
    elif HOW == "shift":
        place = p >> n
    elif HOW == "left":
        place = p << n
    elif HOW == "divide":
        place = p - p // (p * p)  # 0 divides nothing
    elif HOW == "cast":
        place = (p * n).to(tl.int8).to(tl.int32)
    elif HOW == "float":
        place = tl.sqrt(p.to(tl.float32)).to(tl.int32)
    else:
        place = tl.minimum(p, n)
    i = tl.arange(0, 64)
    tl.store(y + place * 64 + i, tl.load(x + p * 64 + i))


PLACES = [
    *(
        (how, by, False)
        for how in ("xor", "xor, one", "gray", "abs", "left", "divide")
        for by in (1, 16)
    ),
    *((how, by, None) for how in ("cast", "float") for by in (1, 16)),
    *((how, by, by == 1) for how in ("fold", "or", "minimum") for by in (1, 16)),
    ("shift", 16, True),
]


@pytest.mark.parametrize(("how", "divisor", "meet"), PLACES)
@pytest.mark.each(2)
def test_numbers_that_are_named_meet(how: str, divisor: int, meet: bool | None) -> None:
    """Broken, without a launch, are only places of which two are one, with numbers that show it and that the
    variant takes; one to one, or of a function that the checker doesn't compute (None), never."""
    kernel = at_place.compile(["*fp32:16", "*fp32:16", f"i32:{divisor}"], {"HOW": how})
    found = check_global(kernel.placed)
    assert (found.verdict == "broken") == bool(meet), (found.broken, found.unproved)
    for race in found.broken:
        told = dict(re.findall(r"([\w()]+) = (\d+)", race.message.rpartition("where")[2]))
        grid, n = int(told["num_programs(0)"]), int(told.get("n", 0))
        assert n % divisor == 0, race.message
        arrays = (np.zeros(64 * grid, np.float32), np.zeros(1 << 19, np.float32))
        at = at_launch(kernel.placed, Case((*arrays, np.int32(n)), (grid, 1, 1)))
        assert at.verdict == "broken", (race.message, at.unproved)
