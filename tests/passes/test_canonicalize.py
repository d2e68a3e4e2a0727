"""canonicalize: what each rule does, and that it keeps the meaning of random functions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.unit.random_ir import OUT_SIZE, functions
from warploom.ir.core import Func, walk
from warploom.ir.parser import parse_func
from warploom.ir.printer import print_func
from warploom.ir.verify import verify
from warploom.passes.tile.canonicalize import canonicalize, number_ops
from warploom.sim.oracle import run
from warploom.target import SM_90A

PARAMS = "%x: i32, %y: i32, %q: i1, %f: f32, %p: ptr<i32>, %g: ptr<f32>"


def canonical(func: Func) -> Func:
    verify(func)
    after = canonicalize(func, SM_90A)
    verify(after)
    assert canonicalize(after, SM_90A) is after
    assert print_func(parse_func(print_func(after))) == print_func(after)
    return after


def lines(text: str, params: str = PARAMS, level: str = "TILE") -> list[str]:
    func = canonical(parse_func(f"func @f({params}) level={level} {{\n{text}\nyield()\n}}"))
    return [s.strip() for s in print_func(func).splitlines()[1:-2]]


@settings(
    max_examples=examples(60),
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(functions(), st.integers(-3, 3), st.integers(-3, 3))
def test_meaning_is_kept(func: Func, x: int, y: int) -> None:
    after = canonical(func)
    assert len(list(walk(after.body))) <= len(list(walk(func.body)))
    outs = []
    for f in (func, after):
        out = np.zeros(OUT_SIZE, np.int64)
        with np.errstate(all="ignore"):
            run(f, [out, x, y], 1)
        outs.append(out)
    np.testing.assert_array_equal(*outs)


# (body that ends in a use, what remains of it)
KEEP = "store(%p, %r)"
CASES = {
    "fold": ("%a = const() {value=6, dtype=i32}\n%r = mul(%a, %a)",
             ["%r = const() {value=36, dtype=i32} : i32", KEEP]),
    "add 0": ("%a = const() {value=0, dtype=i32}\n%r = add(%a, %x)", ["store(%p, %x)"]),
    "constants to the right": ("%a = const() {value=2, dtype=i32}\n%r = mul(%a, %x)",
             ["%a = const() {value=2, dtype=i32} : i32", "%r = mul(%x, %a) : i32", KEEP]),
    "reassociate": ("%a = const() {value=5, dtype=i32}\n%b = const() {value=3, dtype=i32}\n"
             "%s = add(%x, %a)\n%r = sub(%s, %b)",
             ["%0 = const() {value=2, dtype=i32} : i32", "%1 = add(%x, %0) : i32", "store(%p, %1)"]),
    "x - x": ("%r = sub(%x, %x)", ["%0 = const() {value=0, dtype=i32} : i32", "store(%p, %0)"]),
    "x - x/24·24": ("%n = const() {value=24, dtype=i32}\n%d = idiv(%x, %n)\n%m = mul(%d, %n)\n"
             "%r = sub(%x, %m)", ["%n = const() {value=24, dtype=i32} : i32", "%r = rem(%x, %n) : i32", KEEP]),
    "what is left of a multiple": ("%a = const() {value=64, dtype=i32}\n%n = const() {value=32, dtype=i32}\n"
             "%w = mul(%x, %a)\n%d = idiv(%w, %n)\n%m = mul(%d, %n)\n%s = sub(%w, %m)\n%r = add(%m, %s)",
             ["%a = const() {value=64, dtype=i32} : i32", "%w = mul(%x, %a) : i32", "store(%p, %w)"]),
    "24 may not divide what wraps": ("%n = const() {value=24, dtype=i32}\n%w = mul(%x, %n)\n%r = rem(%w, %n)",
             ["%n = const() {value=24, dtype=i32} : i32", "%w = mul(%x, %n) : i32", "%r = rem(%w, %n) : i32",
              KEEP]),
    "widening there and back": ("%w = cast(%x) {dtype=i64}\n%r = cast(%w) {dtype=i32}",
             ["store(%p, %x)"]),
    "not of a comparison": ("%c = lt(%x, %y)\n%n = not(%c)\n%r = cast(%n) {dtype=i32}",
             ["%n = ge(%x, %y) : i1", "%r = cast(%n) {dtype=i32} : i32", KEEP]),
    "equal ops merge": ("%a = add(%x, %y)\n%b = add(%y, %x)\n%r = mul(%a, %b)",
             ["%a = add(%x, %y) : i32", "%r = mul(%a, %a) : i32", KEEP]),
    "constant if": ("%c = const() {value=true, dtype=i1}\n%r = if(%c) : i32 do {\n%s = add(%x, %y)\n"
             "yield(%s)\n} do {\nstore(%p, %y)\nyield(%y)\n}",
             ["%s = add(%x, %y) : i32", "store(%p, %s)"]),
    "arms that agree": ("%r = if(%q) : i32 do {\nyield(%x)\n} do {\nyield(%x)\n}", ["store(%p, %x)"]),
    "zero trips": ("%a = const() {value=3, dtype=i32}\n%r = for(%a, %a, %a, %x) : i32 do (%i: i32, %c: i32) {\n"
             "store(%p, %c)\n%n = add(%c, %i)\nyield(%n)\n}", ["store(%p, %x)"]),
    "invariant carry": ("%r = for(%x, %y, %y, %x) : i32 do (%i: i32, %c: i32) {\nstore(%p, %c)\nyield(%c)\n}",
             ["for(%x, %y, %y) do (%i: i32) {", "store(%p, %x)", "yield()", "}", "store(%p, %x)"]),
    "dead carry": ("%d, %r = for(%x, %y, %y, %x, %x) : i32, i32 do (%i: i32, %u: i32, %c: i32) {\n"
             "%v = add(%u, %i)\n%n = add(%c, %i)\nyield(%v, %n)\n}",
             ["%r = for(%x, %y, %y, %x) : i32 do (%i: i32, %c: i32) {", "%n = add(%c, %i) : i32",
              "yield(%n)", "}", KEEP]),
    "carries of a while": (
             "%r, %s, %d = while(%x, %y, %x) : i32, i32, i32 do (%a: i32, %b: i32, %u: i32) {\n"
             "%c = lt(%a, %b)\nyield(%c, %a, %b, %u)\n} do (%a: i32, %b: i32, %u: i32) {\n"
             "%n = add(%a, %b)\n%v = add(%u, %a)\nyield(%n, %b, %v)\n}",
             ["%r = while(%x) : i32 do (%a: i32) {", "%c = lt(%a, %y) : i1", "yield(%c, %a)",
              "} do (%a: i32) {", "%n = add(%a, %y) : i32", "yield(%n)", "}", KEEP]),
    "a while that counts": (
             "%r = while(%x) : i32 do (%a: i32) {\n%c = lt(%a, %y)\nyield(%c, %a)\n} do (%a: i32) {\n"
             "%s = num_programs() {axis=0}\n%n = add(%a, %s)\nyield(%n)\n}",
             ["%0 = num_programs() {axis=0} : i32", "%r = for(%x, %y, %0, %x) : i32 do (%a: i32, %a_1: i32) {",
              "%n = add(%a, %0) : i32", "yield(%n)", "}", KEEP]),
    "a while that counts in halves": (
             "%h = const() {value=0.5, dtype=f32}\n%z = const() {value=-9.0, dtype=f32}\n"
             "%r, %w = while(%x, %z) : i32, f32 do (%i: i32, %a: f32) {\n%c = lt(%a, %h)\nyield(%c, %i, %a)\n"
             "} do (%i: i32, %a: f32) {\n%m = mul(%i, %y)\n%n = add(%a, %h)\nyield(%m, %n)\n}",
             ["%h = const() {value=0.5, dtype=f32} : f32", "%z = const() {value=-9.0, dtype=f32} : f32",
              "%r, %w = while(%x, %z) : i32, f32 do (%i: i32, %a: f32) {", "%c = lt(%a, %h) : i1",
              "yield(%c, %i, %a)", "} do (%i: i32, %a: f32) {", "%m = mul(%i, %y) : i32",
              "%n = add(%a, %h) : f32", "yield(%m, %n)", "}", KEEP]),
    "hoist": ("%r = for(%x, %y, %y, %x) : i32 do (%i: i32, %c: i32) {\n%k = mul(%x, %y)\n"
             "%n = add(%c, %k)\nyield(%n)\n}",
             ["%k = mul(%x, %y) : i32", "%r = for(%x, %y, %y, %x) : i32 do (%i: i32, %c: i32) {",
              "%n = add(%c, %k) : i32", "yield(%n)", "}", KEEP]),
    "dead load": ("%l = load(%p)\n%r = add(%x, %y)", ["%r = add(%x, %y) : i32", KEEP]),
    "volatile stays": ("%l = load(%p) {volatile=true}\n%r = add(%x, %y)",
             ["%l = load(%p) {volatile=true} : i32", "%r = add(%x, %y) : i32", KEEP]),
    "splats": ("%a = splat(%x) {shape=(4,)}\n%b = splat(%y) {shape=(4,)}\n%c = add(%a, %b)\n"
             "%r = reduce(%c) {axis=0, fn=\"add\"}",
             ["%c = add(%x, %y) : i32", "%c_1 = splat(%c) {shape=(4,)} : tile<4xi32>",
              '%r = reduce(%c_1) {axis=0, fn="add"} : i32', KEEP]),
    "reduced splats": ("%a = splat(%x) {shape=(4,)}\n%m = reduce(%a) {axis=0, fn=\"max\"}\n"
             "%z = const() {value=0, dtype=i32}\n%b = splat(%z) {shape=(4,)}\n"
             "%s = reduce(%b) {axis=0, fn=\"add\"}\n%n = add(%m, %s)\n%r = add(%n, %y)",
             ["%r = add(%x, %y) : i32", KEEP]),
    "mask that holds": ("%c = const() {value=true, dtype=i1}\n%r = load(%p, %c, %x)",
             ["%r = load(%p) : i32", KEEP]),
    "other is zero": ("%z = const() {value=0, dtype=i32}\n%r = load(%p, %q, %z)",
             ["%r = load(%p, %q) : i32", KEEP]),
    "a load's mask selects": (
             "%z = const() {value=-inf, dtype=f32}\n%d = const() {value=-inf, dtype=f64}\n%c = lt(%x, %y)\n"
             "%m = and(%q, %c)\n%l = load(%g, %m, %z)\n%w = cast(%l) {dtype=f64}\n%v = select(%c, %w, %d)\n"
             "%h = gt(%v, %d)\n%r = cast(%h) {dtype=i32}",
             ["%z = const() {value=-inf, dtype=f32} : f32", "%d = const() {value=-inf, dtype=f64} : f64",
              "%c = lt(%x, %y) : i1", "%m = and(%q, %c) : i1", "%l = load(%g, %m, %z) : f32",
              "%w = cast(%l) {dtype=f64} : f64", "%h = gt(%w, %d) : i1", "%r = cast(%h) {dtype=i32} : i32", KEEP]),
    "masked off it is zero": ("%z = const() {value=0, dtype=i32}\n%l = load(%p, %q)\n%r = select(%q, %l, %z)",
             ["%l = load(%p, %q) : i32", "store(%p, %l)"]),
    "another number where a load is masked off": (
             "%z = const() {value=-0.0, dtype=f32}\n%l = load(%g, %q)\n%v = select(%q, %l, %z)\nstore(%g, %v)\n"
             "%r = add(%x, %y)",
             ["%z = const() {value=-0.0, dtype=f32} : f32", "%l = load(%g, %q) : f32",
              "%v = select(%q, %l, %z) : f32", "store(%g, %v)", "%r = add(%x, %y) : i32", KEEP]),
    "another mask than a load's": (
             "%z = const() {value=0, dtype=i32}\n%c = lt(%x, %y)\n%m = and(%q, %c)\n%l = load(%p, %c)\n"
             "%r = select(%m, %l, %z)",
             ["%z = const() {value=0, dtype=i32} : i32", "%c = lt(%x, %y) : i1", "%m = and(%q, %c) : i1",
              "%l = load(%p, %c) : i32", "%r = select(%m, %l, %z) : i32", KEEP]),
    "store that never happens": ("%c = const() {value=false, dtype=i1}\n%r = add(%x, %y)\n"
             "store(%p, %x, %c)", ["%r = add(%x, %y) : i32", KEEP]),
    "atomics that change nothing": (
             "%z = const() {value=0, dtype=i32}\n%a = atomic(%p, %z) {fn=\"add\", sem=\"acquire\"}\n"
             "%b = atomic(%p, %z, %q) {fn=\"or\", sem=\"relaxed\"}\n%c = atomic(%p, %z) {fn=\"add\", sem=\"release\"}\n"
             "%d = atomic(%p, %z) {fn=\"and\", sem=\"relaxed\"}\n%e = add(%a, %b)\n%h = add(%c, %d)\n%r = add(%e, %h)",
             ["%z = const() {value=0, dtype=i32} : i32", '%a = atomic(%p, %z) {fn="load", sem="acquire"} : i32',
              '%b = atomic(%p, %z, %q) {fn="load", sem="relaxed"} : i32', '%c = atomic(%p, %z) {fn="add", sem="release"} : i32',
              '%d = atomic(%p, %z) {fn="and", sem="relaxed"} : i32', "%e = add(%a, %b) : i32", "%h = add(%c, %d) : i32",
              "%r = add(%e, %h) : i32", KEEP]),
    "float x + 0 stays": ("%z = const() {value=0.0, dtype=f32}\n%s = add(%f, %z)\nstore(%g, %s)\n"
             "%r = add(%x, %y)", ["%z = const() {value=0.0, dtype=f32} : f32", "%s = add(%f, %z) : f32",
             "store(%g, %s)", "%r = add(%x, %y) : i32", KEEP]),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_rules(name: str) -> None:
    text, want = CASES[name]
    assert lines(f"{text}\n{KEEP}") == want


def test_facts_become_constants() -> None:
    text = """func @f(%p: ptr<i32>, %s: i32) level=TILE {facts=(fact<16>, fact<1, 1>)} {
      %a = mul(%s, %s)
      store(%p, %a)
      yield()
    }"""
    after = print_func(canonical(parse_func(text)))
    assert "const() {value=1, dtype=i32}" in after and "mul" not in after


def test_accumulators_are_not_merged() -> None:
    kept = lines(
        'tasks() {names=("a",), warps=(4,), replicas=(1,), registers=(none,)} do {\n'
        "%a = no_acc() {shape=(64, 8)}\n%b = no_acc() {shape=(64, 8)}\n"
        "%c, %d = wgmma_wait(%a, %b) {pending=0} : tile<64x8xf32>, tile<64x8xf32>\nyield()\n}",
        level="WARP",
    )
    assert sum("no_acc" in s for s in kept) == 2


def test_ids() -> None:
    text = f"""func @f({PARAMS}) level=TILE {{
      %l = load(%p)
      for(%x, %y, %l) do (%i: i32) {{
        for(%x, %y, %l) do (%j: i32) {{ store(%p, %i) yield() }}
        for(%x, %y, %l) do (%k: i32) {{
          if(%q) do {{ store(%p, %k) store(%p, %i) yield() }} do {{ store(%p, %x) yield() }}
          yield()
        }}
        yield()
      }}
      yield()
    }}"""
    func = number_ops(parse_func(text))
    assert [o.id for o in walk(func.body) if o.id] == [
        "load0", "loop0", "loop0.0", "loop0.0/store0", "loop0.1", "loop0.1.if0",
        "loop0.1.if0.then/store0", "loop0.1.if0.then/store1", "loop0.1.if0.else/store0",
    ]  # fmt: skip
    ids = [o.id for o in walk(func.body)]
    assert ids == [o.id for o in walk(number_ops(func).body)]
    assert [o.id for o in walk(canonical(func).body)] == ids


VIEWS = "%v: view<3xf32>, %p: ptr<f32>, %z: i32, %m: i32, %k: i32, %e: i64, %s: i64, %c: i64"
UNITS = {
    "a reshaped box": (
        "%a = load_box(%v, %z, %m, %k) {shape=(1, 8, 4)}\n%r = reshape(%a) {shape=(8, 4)}",
        ["%a = load_box(%v, %z, %m, %k) {shape=(8, 4)} : tile<8x4xf32>"], "%a"),
    "a sum over one element": (
        "%a = load_box(%v, %z, %m, %k) {shape=(1, 8, 4)}\n%r = reduce(%a) {axis=0, fn=\"add\"}",
        ["%a = load_box(%v, %z, %m, %k) {shape=(8, 4)} : tile<8x4xf32>"], "%a"),
    "transposed and cast first": (
        "%a = load_box(%v, %z, %m, %k) {shape=(1, 4, 8)}\n%t = transpose(%a) {perm=(0, 2, 1)}\n"
        "%b = add(%t, %t)\n%r = reshape(%b) {shape=(8, 4)}",
        ["%a = load_box(%v, %z, %m, %k) {shape=(4, 8)} : tile<4x8xf32>",
         "%t = transpose(%a) {perm=(1, 0)} : tile<8x4xf32>",
         "%b = add(%t, %t) : tile<8x4xf32>"], "%b"),
    "an axis in the middle": (
        "%w = make_view(%p, %e, %e, %c, %s, %c, %e) {divisible=(16, 1, 2, 4)}\n"
        "%a = load_box(%w, %m, %z, %k) {shape=(8, 1, 4)}\n%r = reshape(%a) {shape=(8, 4)}",
        ["%w = make_view(%p, %e, %e, %c, %c, %s, %e) {divisible=(16, 2, 1, 4)} : view<3xf32>",
         "%a = load_box(%w, %z, %m, %k) {shape=(8, 4)} : tile<8x4xf32>"], "%a"),
    "two axes stay": (
        "%a = load_box(%v, %z, %m, %k) {shape=(1, 1, 4)}\n%b = broadcast(%a) {shape=(8, 1, 4)}\n"
        "%r = reshape(%b) {shape=(8, 4)}",
        ["%a = load_box(%v, %z, %m, %k) {shape=(1, 4)} : tile<1x4xf32>",
         "%a_1 = reshape(%a) {shape=(1, 1, 4)} : tile<1x1x4xf32>",
         "%b = broadcast(%a_1) {shape=(8, 1, 4)} : tile<8x1x4xf32>",
         "%r = reshape(%b) {shape=(8, 4)} : tile<8x4xf32>"], "%r"),
}  # fmt: skip


@pytest.mark.parametrize("name", UNITS)
def test_axes_of_size_one(name: str) -> None:
    text, want, result = UNITS[name]
    text += (
        "\n%o = expand_dims(%r) {axis=0}\n%n = neg(%o)\nstore_box(%v, %n, %z, %m, %k)"
        "\n%q = expand_dims(%r) {axis=0}\nstore_box(%v, %q, %z, %k, %m)"
    )
    n = ["%n = neg(" + result + ") : tile<8x4xf32>", "store_box(%v, %n, %z, %m, %k)"]
    assert lines(text, VIEWS) == [*want, *n, f"store_box(%v, {result}, %z, %k, %m)"]
