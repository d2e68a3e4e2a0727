"""canonical_text: equal for programs that differ in names and placing only, different otherwise."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from tests.canonical import canonical_text
from tests.unit.random_ir import functions
from warploom.ir.core import Func
from warploom.ir.parser import parse_func
from warploom.passes.tile.canonicalize import canonicalize, number_ops
from warploom.target import SM_90A

GOLDEN = (Path(__file__).parents[1] / "golden" / "gemm_bf16_tn.warp.ir").read_text()


def text_of(source: str) -> str:
    return canonical_text(parse_func(source))


def test_it_is_a_fixed_point() -> None:
    once = text_of(GOLDEN)
    assert text_of(once) == once and "%a_smem" not in once and '"full"' not in once


def test_canonicalize_and_ids_do_not_matter() -> None:
    func = number_ops(canonicalize(parse_func(GOLDEN), SM_90A))
    assert canonical_text(func) == text_of(GOLDEN)


@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(functions())
def test_canonicalize_does_not_matter_to_random_functions(func: Func) -> None:
    assert canonical_text(canonicalize(func, SM_90A)) == canonical_text(func)


SAME = {
    "names": [(r"%(\w+)", r"%other_\1"), ('name="full"', 'name="filled"'), ("@gemm", "@mm")],
    "operand order": [(r"mul\(%m_tiles, %n_tiles\)", "mul(%n_tiles, %m_tiles)"),
                      (r"gt\(%k, %c0\)", "lt(%c0, %k)")],
    "a constant of its own": [(r"( *)%half = mul\(%group, %c64\)",
                               r"\1%mine = const() {value=64, dtype=i32} : i32\n\1%half = mul(%mine, %group)")],
    "order of carries": [
        (r"%acc_k, %slot_k, %phase_k, %last = for\(%c0, %k_steps, %c1, %acc_init, %slot_t, %phase_t, %c0\) "
         r": (\S+), i32, i32, i32 do \(%k: i32, %acc: \S+, %slot: i32, %phase: i32, %previous: i32\)",
         r"%slot_k, %last, %phase_k, %acc_k = for(%c0, %k_steps, %c1, %slot_t, %c0, %phase_t, %acc_init) "
         r": i32, i32, i32, \1 do (%k: i32, %slot: i32, %previous: i32, %phase: i32, %acc: \1)"),
        (r"yield\(%acc_next, %slot_next, %phase_next, %slot\)",
         "yield(%slot_next, %slot, %phase_next, %acc_next)"),
    ],
    "a dead op": [(r"( *)wgmma_fence\(\)", r"\1%dead = add(%k, %k) : i32\n\1wgmma_fence()")],
    "order of pure ops": [(r"( *%a_map = .*\n)( *%b_map = .*\n)", r"\2\1")],
}  # fmt: skip

DIFFERENT = {
    "a number": [("value=63", "value=62")],
    "a missing op": [(r" *wgmma_fence\(\)\n", "")],
    "order of effects": [(r"( *)wgmma_commit\(\)\n *wgmma_wait\(\) \{pending=1\}",
                          r"\1wgmma_wait() {pending=1}\n\1wgmma_commit()")],
    "another barrier": [(r"mbarrier_arrive\(%empty, %previous\)", "mbarrier_arrive(%full, %previous)")],
    "another slot": [(r"mbarrier_arrive\(%empty, %previous\)", "mbarrier_arrive(%empty, %slot)")],
    "a swapped operand": [(r"sub\(%m_tiles, %done_rows\)", "sub(%done_rows, %m_tiles)")],
    "an attribute": [("pending=1", "pending=0")],
    "another task's replicas": [(r"replicas=\(2, 1\)", "replicas=(1, 1)")],
}  # fmt: skip


def edited(edits: list[tuple[str, str]]) -> str:
    text = GOLDEN
    for pattern, by in edits:
        text, n = re.subn(pattern, by, text)
        assert n, pattern
    return text


@pytest.mark.parametrize("name", SAME)
def test_same_program(name: str) -> None:
    assert text_of(edited(SAME[name])) == text_of(GOLDEN)


CONTROL = """
func @f(%p: ptr<i32>, %x: i32, %y: i32, %q: i1) level=TILE {
  %a, %b = while(%x, %y) : i32, i32 do (%i: i32, %j: i32) {
    %c = lt(%i, %y)
    yield(%c, %i, %j)
  } do (%i: i32, %j: i32) {
    store(%p, %j)
    %k = add(%i, %j)
    yield(%k, %i)
  }
  %s, %t = if(%q) : i32, i32 do { yield(%a, %b) } do { yield(%b, %x) }
  store(%p, %s)
  store(%p, %t)
  yield()
}
"""


def test_the_order_of_what_while_carries_and_if_gives() -> None:
    other = CONTROL
    for old, new in (
        ("%a, %b = while(%x, %y)", "%b, %a = while(%y, %x)"),
        ("(%i: i32, %j: i32)", "(%j: i32, %i: i32)"),
        ("yield(%c, %i, %j)", "yield(%c, %j, %i)"),
        ("yield(%k, %i)", "yield(%i, %k)"),
        ("%s, %t = if", "%t, %s = if"),
        ("yield(%a, %b)", "yield(%b, %a)"),
        ("yield(%b, %x)", "yield(%x, %b)"),
    ):
        assert old in other
        other = other.replace(old, new)
    assert canonical_text(parse_func(other)) == canonical_text(parse_func(CONTROL))
    swapped = CONTROL.replace("yield(%b, %x)", "yield(%x, %b)")
    assert canonical_text(parse_func(swapped)) != canonical_text(parse_func(CONTROL))


@pytest.mark.parametrize("name", DIFFERENT)
def test_different_program(name: str) -> None:
    assert text_of(edited(DIFFERENT[name])) != text_of(GOLDEN)
