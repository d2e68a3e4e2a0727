"""A fixed sample of the random kernels and scripts (`make fuzz N=…`: more of them)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.case import Case
from tests.fuzz.draw import IN_ORDER_FROM, ODD_WARPS_FROM, SHARED_FROM, Draw, draw
from tests.fuzz.draw_dots import BATCHES_FROM, IN_ORDER, IN_PLACE_FROM
from tests.fuzz.draw_expr import FUNCTIONS_FROM
from tests.fuzz.judge import judge
from tests.fuzz.ops import IN_TURN, PAIRS
from tests.fuzz.planted import PLANTS, search
from tests.fuzz.runner import is_failure
from tests.fuzz.scripts import FLAGS, SIGNED_FROM, WORDS, Ring, judge_script
from tests.fuzz.shrink import shrink
from tests.fuzz.tree import expressions, parts, statements
from tests.pairwise import every

CHUNK = 10
SEEDS = (
    *range(0, 50),
    *range(SHARED_FROM, SHARED_FROM + 50),
    *range(IN_ORDER_FROM, IN_ORDER_FROM + 50),
    *range(FUNCTIONS_FROM, FUNCTIONS_FROM + 50),
    *range(BATCHES_FROM, BATCHES_FROM + 50),
    *range(IN_PLACE_FROM, IN_PLACE_FROM + 50),
)
SCRIPTS = (*range(0, 6), *range(SIGNED_FROM, SIGNED_FROM + 4))


FEW = [(first, 0) for i, first in enumerate(SEEDS[::CHUNK]) if i % 10 == 1]
MORE = [(first, 2) for i, first in enumerate(SEEDS[::CHUNK]) if i % 5 and i % 10 != 1]


@pytest.mark.parametrize(
    ("first", "orders"),
    [
        *((first, 2) for first in SEEDS[:: 5 * CHUNK]),
        *FEW,
        *(pytest.param(*one, marks=pytest.mark.thorough) for one in MORE),
    ],
)
def test_random_kernels(first: int, orders: int, tmp_path: Path) -> None:
    """The tree in NumPy, the oracle and the simulator agree; nothing fails inside the compiler.  80 seeds
    but in thorough tests, thirty of these in the latest order alone (0.2 s each)."""
    seeds = range(first, first + CHUNK)
    verdicts = {seed: judge(Case(draw(seed)), tmp_path, orders) for seed in seeds}
    failed = {seed: f"{v.kind}: {v.said}" for seed, v in verdicts.items() if v.failed}
    assert not failed


def test_random_scripts(tmp_path: Path) -> None:
    """No ring without a mistake is refused; none that does harm, whatever it is given, is called proved."""
    records = [judge_script(seed, tmp_path) for seed in SCRIPTS]
    assert [r for r in records if is_failure(r)] == []
    assert sum(r["code"].endswith("harmful") for r in records) >= 3


def test_conditions_of_scripts_ask_for_signs() -> None:
    """Alone and up to three at once, with runs of negative arguments and words together; not of earlier
    seeds."""
    rings = [Ring(seed) for seed in range(SIGNED_FROM, SIGNED_FROM + 200)]
    tests = [ring.mistake.test for ring in rings if ring.mistake.what == "guard"]
    assert {sum(map(t.count, "&|")) for t in tests} == {0, 1, 2}
    assert any("self.load(f_ptr) >= 0" in t and "flag > -3" in t for t in tests)
    assert all(
        {(f, w) for *_, f, w in ring.inputs()} >= {(f, w) for f in FLAGS for w in WORDS}
        for ring in rings
    )
    assert (
        min(*FLAGS, *WORDS)
        < 0
        <= min(n for s in range(200) for *_, f, w in Ring(s).inputs() for n in (f, w))
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", every(2, ["extent", "mask", "phase"]))
def test_planted_miscompilations_are_found(name: str, tmp_path: Path) -> None:
    """Of `python -m tests.fuzz.planted`, each within 60 kernels."""
    number = next(i for i, p in enumerate(PLANTS) if p.name == name)
    assert search(("plant", number, ""), tmp_path, limit=60)["code"] == "found"


def test_seeds_are_stable() -> None:
    assert Case(draw(7)).text == Case(draw(7)).text
    assert len({Case(draw(seed)).text for seed in range(20)}) == 20


def test_a_third_of_the_products_is_for_registers() -> None:
    """All formats are drawn, by one warp up to eight."""
    drawn = [Draw(seed) for seed in range(IN_ORDER_FROM, IN_ORDER_FROM + 400)]
    kernels = [d.kernel() for d in drawn]
    dots = [
        [p for s in statements(k.body) for e in expressions(s) for p in parts(e) if p.op == "dot"]
        for k in kernels
    ]
    form = [(k, of) for d, k, of in zip(drawn, kernels, dots, strict=True) if d.in_order]
    assert 0.25 < len(form) / sum(map(bool, dots)) < 0.42
    assert {p.args[0].t.dtype for _, of in form for p in of} == set(IN_ORDER)
    assert {k.knobs["num_warps"] for k, _ in form} == {1, 2, 4, 8}
    assert {p.t.shape[0] for _, of in form for p in of} >= {16, 32, 48, 64}
    assert min(p.t.shape[1] for _, of in form for p in of) == 8


def test_warps_of_no_power_of_two_are_drawn_and_right(tmp_path: Path) -> None:
    seeds = [ODD_WARPS_FROM + i for i in (31, 86, 243, 250)]
    assert {draw(seed).knobs["num_warps"] for seed in seeds} == {3, 5, 6}
    for seed in seeds:
        verdict = judge(Case(draw(seed)), tmp_path, 2)
        assert verdict.kind.startswith("ok"), f"{seed}: {verdict.said}"


def test_loops_are_drawn_to_be_shared_and_pairs_combined() -> None:
    """split_k is asked for where it can apply, and nearly nowhere else; a third of those with dots is in registers."""
    drawn = [Draw(seed) for seed in range(SHARED_FROM, SHARED_FROM + 400)]
    kernels = [d.kernel() for d in drawn]
    split = [d.is_shared for d, k in zip(drawn, kernels, strict=True) if "split_k" in k.knobs]
    assert len(split) >= 40 and sum(split) >= 0.9 * len(split)
    assert sum(d.in_order for d in drawn) >= 60
    found = [
        p for k in kernels for s in statements(k.body) for e in expressions(s) for p in parts(e)
    ]
    for op in ("reduce_pair", "scan_pair"):
        assert {p.attrs["fn"] for p in found if p.op == op} == set(PAIRS) - (
            set(IN_TURN) if op == "reduce_pair" else set()
        )
    assert {"asm", "sqrt_rn"} <= {p.op for p in found}
    assert any(".to(tl.int64).to(tl.pointer_type(" in Case(k).text for k in kernels)


def test_batches_and_scaled_products_are_drawn() -> None:
    kernels = [Draw(seed).kernel() for seed in range(BATCHES_FROM, BATCHES_FROM + 400)]
    found = [
        p for k in kernels for s in statements(k.body) for e in expressions(s) for p in parts(e)
    ]
    batches = [p for p in found if p.op == "dot" and len(p.t.shape) == 3]
    assert {p.t.shape[0] for p in batches} == {1, 2, 3, 4} and len(batches) >= 20
    formats = {p.attrs["formats"] for p in found if p.op == "dot_scaled"}
    assert {f for pair in formats for f in pair} == {"e4m3", "e5m2", "e2m1", "bf16"}


def test_failures_shrink() -> None:
    """What fails wherever a tile is added up becomes a few statements."""
    kernel = next(k for k in map(draw, range(100)) if "tl.sum(" in Case(k).text)
    small = shrink(kernel, lambda k: "tl.sum(" in Case(k).text, seconds=5)
    assert "tl.sum(" in Case(small).text
    assert len(list(statements(small.body))) < 6 < len(list(statements(kernel.body)))
