"""The verifier accepts the hand-written program and refuses each way of breaking it, naming the rule."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from warploom.errors import InternalError
from warploom.ir.core import Builder, Func, Level, Op, Region, Value
from warploom.ir.ops import arith, control
from warploom.ir.parser import parse_func
from warploom.ir.types import Scalar, i32, i64
from warploom.ir.verify import INVARIANTS, OF_AN_OP, verify

GOLDEN = (Path(__file__).parents[1] / "golden" / "gemm_bf16_tn.warp.ir").read_text()

WAIT = "        mbarrier_wait(%full, %slot, %phase)\n"
BROKEN = [
    # (replaced, by, what the message says)
    ("%tiles = mul(%m_tiles, %n_tiles) : i32", "%tiles = mul(%m_tiles, %n_tiles) : i64", "mul gives i32"),
    ("%tiles = mul(%m_tiles, %n_tiles)", "%tiles = mul(%m_tiles, %one)", "mul needs equal types"),
    ("program_id() {axis=0}", "program_id() {axe=0}", "do not fit program_id"),
    ("program_id() {axis=0}", "program_id() {axis=3}", "axes 0, 1 and 2"),
    ("mbarrier_wait(%full, %slot, %phase)", "mbarrier_wait(%full)", "do not fit mbarrier_wait"),
    ("tma_load(%a_map, %a_slot,", "tma_load(%a_smem, %a_slot,", "tma_load's m is a TensorMap, not shared<"),
    ("mbarrier_wait(%full, %slot, %phase)", "producer_commit(%full, %slot)", "producer_commit is legal at CHANNEL only"),
    (WAIT, WAIT + "        yield()\n", "a yield stands at the end"),
    ("    %group = replica_id() : i32", "    %group = replica_id() : i32\n tasks() {names=(\"x\",), "
     "warps=(4,), replicas=(1,), registers=(none,)} do { yield() }", "`tasks` are the last ops"),
    ("    yield()\n  }\n  yield()\n}", "    yield()\n  }\n  %q = replica_id() : i32\n  yield()\n}",
     "the last ops before the yield are `tasks`"),
    ("  tasks()", "  fence_async()\n  tasks()", "before `tasks` nothing is written"),
    ("  tasks()", "  %z = arange() {start=0, end=4} : tile<4xi32>\n  tasks()", "no tiles"),
    (WAIT, WAIT + '  %late = mbarrier_alloc() {name="late", n=1, count=1} : mbarriers<1>\n',
     "mbarrier_alloc stands before `tasks`"),
    ("%M64 = cast(%M) {dtype=i64}", "%pid = program_id() {axis=0} : i32\n %M64 = cast(%pid) {dtype=i64}",
     "the host encodes the map, but it depends on program_id"),
    ('name="empty"', 'name="full"', "full names two allocations"),
    ("        wgmma_fence()\n", "        wgmma_fence()\n        tma_store_commit()\n", "inside elect"),
    ("        tma_store_commit()\n", "        tma_store_commit()\n        wgmma_fence()\n", "outside elect"),
    ("        tma_store_commit()\n", "        tma_store_commit()\n  shared_store(%staging0, %chunk0)\n",
     "no tile"),
    ("wgmma_wait(%acc_k) {pending=0} : tile<64x256xf32>\n",
     "wgmma_wait(%acc_k) {pending=0} : tile<64x256xf32>\n device_print(%acc_k) {prefix=\"\"}\n",
     "%acc_k is in flight"),
    ("%acc_next = wgmma(%a,", "%held = shared_load(%a) : tile<64x64xbf16>\n %acc_next = wgmma(%held,",
     "makes its register operand again while it may be read"),
    ("replicas=(2, 1)", "replicas=(8, 1)", "36 warps are more than 32"),
    ("warps=(4, 4), replicas", "warps=(8, 4), replicas", "a replica with wgmma is one warp group"),
    ("registers=(232, 40)", "registers=(230, 40)", "multiples of 8"),
    ("registers=(232, 40)", "registers=(240, 40)", "ask for 66560 registers, the launch has 64512"),
    ("warps=(4, 4), replicas=(2, 1), registers=(232, 40)",
     "warps=(4, 1), replicas=(2, 1), registers=(232, 40)", "whole warp groups"),
    ("%staging3 = shared_slot(%c_smem, %group, %c3)", "%staging3 = shared_slot(%c_smem, %group, %c192)",
     "the index is outside shared<[2][4]"),
    ("mbarrier_wait(%full, %slot, %phase)", "mbarrier_wait(%full, %c16, %phase)", "outside mbarriers<3>"),
    ("level=WARP {", "level=WARP {ctas_per_sm=2, ", "ask for 64512 registers, the launch has 30720"),
    ("level=WARP {", "level=WARP {ctas_per_sm=6, ", "6 CTAs of this size don't fit"),
    ("level=WARP {", "level=WARP {cluster=(3, 3, 1), ", "a cluster has three sizes and 1 to 8 CTAs"),
    ("    %group = replica_id() : i32", "    %group = replica_id() : i32\n    %p = peer(%full, %c16)",
     "16 is outside a cluster of 1 CTAs"),
    ("level=WARP", "level=PLACED", "has no layout"),
]  # fmt: skip


def test_the_golden_program_is_valid() -> None:
    verify(parse_func(GOLDEN))


@pytest.mark.parametrize(("old", "new", "says"), BROKEN, ids=[b[2] for b in BROKEN])
def test_broken_programs_are_refused(old: str, new: str, says: str) -> None:
    assert old in GOLDEN
    func = parse_func(GOLDEN.replace(old, new, 1), "<broken>")
    with pytest.raises(InternalError, match=re.escape(says)) as e:
        verify(func)
    text = str(e.value)
    assert text.startswith("invalid IR in @gemm at level")
    if "  op: " in text:  # everything but "there is no tasks op" names op and location
        assert re.search(r"\n  op: .*\n  at: <broken>:\d+:\d+\n  rule: ", text)


def test_structure() -> None:
    x, y = Value(Scalar(i32), "x"), Value(Scalar(i32), "y")
    add = Op(arith.add, (x, x), {}, (y,))
    end = Op(control.yield_)

    def func(*ops: Op, params: tuple[Value, ...] = (x,)) -> Func:
        return Func("f", Builder(ops=list(ops)).region(params), Level.TILE)

    verify(func(add, end))
    for bad, says in [
        (func(end, add), "a region ends in a yield"),
        (func(), "a region ends in a yield"),
        (func(add, add, end), "%y: i32 is defined twice"),
        (func(add, end, params=(x, x)), "%x: i32 is defined twice"),
        (func(add, end, params=()), "%x: i32 is used outside its scope"),
        (func(Op(control.yield_, (x,))), "a function yields nothing"),
    ]:
        with pytest.raises(InternalError, match=re.escape(says)):
            verify(bad)


def test_values_of_a_region_are_not_seen_outside() -> None:
    text = """func @f(%x: i32) level=TILE {
      %r = for(%x, %x, %x, %x) : i32 do (%i: i32, %c: i32) {
        %n = add(%c, %i) : i32
        yield(%n)
      }
      %z = add(%r, %r) : i32
      yield()
    }"""
    func = parse_func(text)
    verify(func)
    loop, add, end = func.body.ops
    inner = loop.regions[0].ops[0].result
    with pytest.raises(InternalError, match="%n: i32 is used outside its scope"):
        verify(
            func.with_(
                body=Builder(ops=[loop, add.with_(operands=(inner, inner)), end]).region(
                    func.params
                )
            )
        )


SPLIT = """func @f(%x: i32) level=CHANNEL {
  %a = add(%x, %x) @{p, c} : i32
  %b = add(%a, %a) @{p} : i32
  %d = add(%a, %a) @{c} : i32
  %r = for(%x, %x, %x, %b) @{p, c} : i32 do (%i: i32, %k: i32) {
    %n = add(%k, %b) @{p} : i32
    yield(%n)
  }
  yield()
}"""


def test_values_cross_by_channels() -> None:
    verify(parse_func(SPLIT))
    with pytest.raises(InternalError, match="%b is not computed in c: values cross by channels"):
        verify(parse_func(SPLIT.replace("add(%a, %a) @{c}", "add(%a, %b) @{c}")))
    with pytest.raises(InternalError, match="every op says which tasks run it"):
        verify(parse_func(SPLIT.replace(" @{c}", "")))


PLACED = """func @f(%x: i32, %q: ptr<i32>) level=PLACED {
  %a = shared_alloc() {name="a", lead=(2,), shape=(8, 64), dtype=bf16, inner=1, swizzle=128, offset=0} : shared<[2]8x64xbf16, inner=1, swizzle=128>
  %b = shared_alloc() {name="b", lead=(), shape=(8, 64), dtype=bf16, inner=1, swizzle=0, offset=1024, alias="a"} : shared<8x64xbf16, inner=1, swizzle=0>
  %m = mbarrier_alloc() {name="m", n=2, count=1, offset=2048} : mbarriers<2>
  %w = shared_alloc() {name="w", lead=(), shape=(1,), dtype=i32, inner=0, swizzle=0, offset=2176} : shared<1xi32, inner=0, swizzle=0>
  grid_wait()
  grid_release() {last=8}
  tasks() {names=("p", "c"), warps=(4, 4), replicas=(1, 2), registers=(none, none)} do {
    yield()
  } do {
    group_sync() {scope="replica", id=1}
    yield()
  }
  yield()
}"""
P_ENDS = "    yield()\n  } do {"
MISPLACED = [
    ("offset=2048", "offset=2044", "offset 2044 is not aligned to 8 bytes"),
    ("offset=2048", "offset=2040", "m overlaps a and neither reuses the other"),
    ("count=1, offset=2048", "count=1", "an allocation has an offset"),
    ("offset=0}", "offset=512}", "offset 512 is not aligned to 1024 bytes"),
    (', alias="a"', "", "b overlaps a and neither reuses the other"),
    ('alias="a"', 'alias="q"', "b is an alias of q, which is no other allocation"),
    ('alias="a"', 'alias="b"', "b is an alias of b, which is no other allocation"),
    ("offset=2048", "offset=232440", "m ends at byte 232456 of 232448"),
    ("replicas=(1, 2)", "replicas=(1, 20)", "84 warps"),
    ("id=1", "id=15", "barrier 16 is none of the 16"),
    (", id=1", "", "4 warps meet at barriers with an id"),
    ("id=1", "id=0", "barrier 0 is that of other threads"),
    (P_ENDS, "    named_barrier() {id=2, threads=128, arrive=false}\n" + P_ENDS, "barrier 2 is that of other threads"),
    ("  grid_wait()\n", "  %l = load(%q) : i32\n  grid_wait()\n", "before the grid has waited"),
    ("  grid_wait()\n", "  grid_wait()\n  grid_wait()\n", "waits once, before its tasks"),
    (P_ENDS, "    %o = atomic(%q, %x) {fn=\"add\", sem=\"acq_rel\"} : i32\n" + P_ENDS, "nobody reads what it met"),
    (P_ENDS, "    %o = atomic(%q, %x) {fn=\"add\", sem=\"acquire\"} : i32\n    store(%q, %o)\n" + P_ENDS,
     "one number's order"),
    ("    group_sync()", "    %p = peer(%w, %x) : shared<1xi32, inner=0, swizzle=0, peer>\n    elect() do {\n shared_put(%p, %x)\n yield()\n }\n    fence_async()\n"
     "    group_sync()", "it is the cluster's"),
]  # fmt: skip


def test_placed_memory() -> None:
    verify(parse_func(PLACED))


@pytest.mark.parametrize(("old", "new", "says"), MISPLACED, ids=[b[2] for b in MISPLACED])
def test_misplaced_memory(old: str, new: str, says: str) -> None:
    assert old in PLACED
    with pytest.raises(InternalError, match=re.escape(says)):
        verify(parse_func(PLACED.replace(old, new, 1)))


def test_every_invariant_can_fail() -> None:
    """Each rule of the table is broken by some case above."""
    rules = {rule.__name__ for _, rule in (*INVARIANTS, *OF_AN_OP)}
    hit: set[str] = set()
    texts = [GOLDEN.replace(o, n, 1) for o, n, _ in BROKEN]
    texts += [PLACED.replace(o, n, 1) for o, n, _ in MISPLACED]
    texts += [SPLIT.replace(" @{c}", ""), SPLIT.replace("add(%a, %a) @{c}", "add(%a, %b) @{c}")]
    for text in texts:
        func = parse_func(text)
        ops = [
            (o, rule)
            for levels, rule in OF_AN_OP
            if func.level in levels
            for o in func.body.all_ops
        ]
        hit |= {rule.__name__ for o, rule in ops if next(rule(o, func.level), None) is not None}
        for levels, rule in INVARIANTS:
            if func.level in levels:
                try:
                    broken = next(rule(func, _target()), None)
                except (IndexError, KeyError, ValueError, AttributeError):
                    break  # an earlier rule, or the structure, refused it
                if broken is not None:
                    hit.add(rule.__name__)
    assert hit == rules


def test_what_is_kept_of_an_op_is_asked_again() -> None:
    """An op that the verifier agreed with is refused when a copy, or another level, makes it wrong."""
    func = parse_func(GOLDEN)
    verify(func)
    add = next(o for o in func.body.ops if o.kind is arith.mul)
    wide = Value(Scalar(i64), "wide")
    changed = {
        "mul needs equal types": {"operands": (wide, add.operands[1])},
        "mul gives i32": {"results": (Value(Scalar(i64), "out"),)},
        "do not fit mul": {"attrs": {"odd": 1}},
    }
    assert add.typed and add.with_(loc=None).typed
    for says, change in changed.items():
        bad = add.with_(**change)
        assert not bad.typed
        ops = tuple(bad if o is add else o for o in func.body.ops)
        body = Region((*func.body.params, wide), ops)
        with pytest.raises(InternalError, match=re.escape(says)):
            verify(func.with_(body=body))
    with pytest.raises(InternalError, match=r"every op says which tasks run it|is legal at"):
        verify(func.with_(level=Level.CHANNEL))


def _target():  # type: ignore[no-untyped-def]
    from warploom.target import SM_90A

    return SM_90A
