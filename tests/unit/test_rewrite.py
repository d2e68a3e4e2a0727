"""Rewriting, cloning, inlining and the analyses."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings

from tests.unit.random_ir import functions
from warploom.ir import analysis
from warploom.ir.build import const, elect, for_, if_
from warploom.ir.core import Builder, Effect, Func, Level, Op, Value, walk
from warploom.ir.ops import arith, control, tile, tma
from warploom.ir.parser import parse_func
from warploom.ir.printer import print_func
from warploom.ir.rewrite import clone_region, inline, rewrite, substitute
from warploom.ir.types import Scalar, i1, i32
from warploom.ir.verify import verify

few = settings(
    max_examples=30, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
TEXT = """func @f(%n: i32, %p: ptr<i32>) level=TILE {
  %c0 = const() {value=0, dtype=i32} : i32
  %dead = add(%n, %n) : i32
  %sum, %other = for(%c0, %n, %n, %c0, %n) : i32, i32 do (%i: i32, %s: i32, %o: i32) {
    %l = load(%p) : i32
    %next = add(%s, %l) : i32
    %twice = add(%o, %o) : i32
    yield(%next, %twice)
  }
  store(%p, %sum)
  yield()
}
"""


def named(func: Func) -> dict[str, Value]:
    found = {v.hint: v for v in func.params}
    for o in walk(func.body):
        found |= {v.hint: v for v in (*o.results, *(p for r in o.regions for p in r.params))}
    return found


def test_a_rule_that_keeps_everything_changes_nothing() -> None:
    func = parse_func(TEXT)
    assert rewrite(func, lambda o, b: None) is func
    assert rewrite(func.body, lambda o, b: None) is func.body


def test_rewriting_replaces_uses_and_shares_the_rest() -> None:
    func = parse_func(TEXT)

    def rule(o: Op, b: Builder) -> list[Value] | None:
        if o.kind is not arith.add:
            return None
        return [arith.mul(b, *o.operands, hint="m")]

    after = rewrite(func, rule)
    verify(after)
    assert after.body.ops[0] is func.body.ops[0]
    loop = after.body.ops[2]
    load, mul, _, end = loop.regions[0].ops
    assert mul.kind is arith.mul and end.operands[0] is mul.result
    assert load is func.body.ops[2].regions[0].ops[0]
    assert (
        mul.loc == func.body.ops[2].regions[0].ops[1].loc
    )  # what is built takes the op's location
    assert loop.results == func.body.ops[2].results
    assert print_func(func) == TEXT  # the old function is as it was


def test_substitute_reaches_nested_uses() -> None:
    func = parse_func(TEXT)
    v = named(func)
    body = substitute(func.body, {v["n"]: v["c0"]})
    text = print_func(func.with_(body=body))
    assert "for(%c0, %c0, %c0, %c0, %c0)" in text and "add(%c0, %c0)" in text


@few
@given(functions())
def test_clones_have_fresh_values_and_equal_text(func: Func) -> None:
    env: dict[Value, Value] = {}
    copy = func.with_(body=clone_region(func.body, env))
    verify(copy)
    assert print_func(copy) == print_func(func)
    old = {v for o in walk(func.body) for v in o.results} | set(func.params)
    new = {v for o in walk(copy.body) for v in o.results} | set(copy.params)
    assert not old & new and {env[v] for v in old} == new


def test_inline() -> None:
    func = parse_func(TEXT)
    loop = func.body.ops[2]
    b = Builder()
    a = const(b, 1)
    out = inline(b, loop.regions[0], (a, a, a))
    assert [o.kind for o in b.ops] == [arith.const, tile.load, arith.add, arith.add]
    assert out == (b.ops[2].result, b.ops[3].result) and b.ops[2].operands[0] is a


def test_definitions_uses_parents_loops() -> None:
    func = parse_func(TEXT)
    v, body = named(func), func.body
    loop = body.ops[2]
    load, add, _, end = loop.regions[0].ops
    made = analysis.definitions(body)
    assert made[v["next"]] is add and made[v["sum"]] is loop and v["s"] not in made
    uses = analysis.uses(body)
    assert uses[v["next"]] == [end] and uses[v["n"]] == [body.ops[1], loop]
    assert v["dead"] not in uses
    assert analysis.parents(body)[load] is loop and analysis.parents(body)[loop] is None
    assert analysis.loops(body)[load] == (loop,) and analysis.loops(body)[loop] == ()
    assert analysis.free_values(loop.regions[0]) == (v["p"],)


def test_effects() -> None:
    body = parse_func(TEXT).body
    _, add, loop, store, _ = body.ops
    assert analysis.effects(loop) == Effect.READ and not analysis.is_pure(loop)
    assert analysis.is_pure(add) and analysis.effects(store) == Effect.WRITE


def test_slices_follow_single_carried_values() -> None:
    func = parse_func(TEXT)
    v = named(func)
    comes_from = analysis.sources(func.body)
    got = {x.hint for x in analysis.backward_slice([v["sum"]], comes_from)}
    assert got == {"sum", "next", "s", "l", "p", "c0", "n"}  # not o, twice, other
    got = {x.hint for x in analysis.backward_slice([v["other"]], comes_from)}
    assert got == {"other", "twice", "o", "n", "c0"}
    stopped = analysis.backward_slice([v["sum"]], comes_from, lambda x: x is v["next"])
    assert v["l"] not in stopped


def test_slices_through_if_and_while() -> None:
    func = parse_func("""func @f(%x: i32, %y: i32, %q: i1) level=TILE {
      %r, %u = if(%q) : i32, i32 do { yield(%x, %y) } do { yield(%y, %y) }
      %w, %z = while(%r, %y) : i32, i32 do (%a: i32, %b: i32) {
        %go = lt(%a, %a) : i1
        yield(%go, %a, %b)
      } do (%c: i32, %d: i32) { %e = add(%c, %c) : i32  yield(%e, %d) }
      yield()
    }""")
    v, comes_from = named(func), analysis.sources(func.body)

    def names(root: str) -> set[str]:
        return {x.hint for x in analysis.backward_slice([v[root]], comes_from)}

    assert names("r") == {"r", "q", "x", "y"} and names("u") == {"u", "q", "y"}
    assert names("w") == {"w", "a", "c", "e", "go", "r", "q", "x", "y"}
    assert names("z") - names("w") == {"z", "b", "d"}


def test_builders() -> None:
    b = Builder()
    flag = const(b, 1, i1, hint="flag")
    n = const(b, 4)

    def body(inner: Builder, iv: Value, carried: tuple[Value, ...]) -> list[Value]:
        (acc,) = carried
        return list(if_(inner, flag, lambda i: [arith.add(i, acc, iv)], lambda i: [acc]))

    (total,) = for_(b, (n, n, n), [n], body, iv="k", hints=["acc"])
    if_(b, flag, lambda i: control.assume(i, flag))
    control.yield_(b)
    func = Func("f", b.region(), Level.TILE)
    verify(func)
    assert total.type == Scalar(i32) and b.ops[0].attrs["value"] is True
    assert "do (%k: i32, %acc_1: i32)" in print_func(func)
    b = Builder()
    elect(b, lambda i: tma.tma_store_commit(i))
    assert [o.kind.name for o in b.ops[0].regions[0].ops] == ["tma_store_commit", "yield"]


def test_a_copy_of_an_op_has_its_fields_and_no_others() -> None:
    o = Op(control.yield_, id="yield0")
    copy = o.with_(tasks=frozenset({"producer"}))
    assert copy is not o and (copy.id, copy.tasks) == ("yield0", {"producer"})
    assert not o.tasks
    with pytest.raises(TypeError, match="an op has no task"):
        o.with_(task=frozenset({"producer"}))
