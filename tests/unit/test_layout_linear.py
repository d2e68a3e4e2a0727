"""Layout: the laws of its algebra, on random layouts."""

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.unit.layouts import covers, equivalent, layouts
from warploom.layout import Layout, blocked, wgmma_acc

few = settings(max_examples=examples(40), deadline=None)


def spread(x: Layout, tile: np.ndarray) -> np.ndarray:
    """(warps, 32, registers): what each register holds of a tile; -1 where it overhangs."""
    inside = np.all([c < n for c, n in zip(x.table, x.shape, strict=True)], axis=0)
    clipped = tuple(np.minimum(c, n - 1) for c, n in zip(x.table, x.shape, strict=True))
    return np.where(inside, tile[clipped], -1)


def numbered(shape: tuple[int, ...]) -> np.ndarray:
    return np.arange(np.prod(shape, dtype=int)).reshape(shape)


@few
@given(layouts(exact=True))
def test_exact_layouts_are_bijections(x: Layout) -> None:
    held = spread(x, numbered(x.shape)).reshape(-1)
    assert sorted(held) == list(range(held.size))
    assert not x.is_replicated and not x.overhangs and covers(x)
    assert x.registers * x.threads == held.size


@few
@given(layouts())
def test_every_element_lives_somewhere_and_flags_tell_the_truth(x: Layout) -> None:
    held = spread(x, numbered(x.shape))
    inside = held[held >= 0]
    assert covers(x) and set(inside) == set(range(numbered(x.shape).size))
    assert x.overhangs == bool((held < 0).any())
    assert x.is_replicated == (len(set(inside)) != inside.size)


@few
@given(layouts())
def test_holders_invert_coords(x: Layout) -> None:
    found = x.holders()
    warp, lane, reg = (found[..., i] for i in range(3))
    for axis, c in enumerate(x.coords(reg, lane, warp)):
        assert np.array_equal(c, np.indices(x.shape)[axis])


@few
@given(layouts())
def test_text_round_trips(x: Layout) -> None:
    again = Layout.parse(str(x))
    assert again == x and hash(again) == hash(x) and str(again) == str(x)
    assert again.registers == x.registers


@few
@given(layouts())
def test_equal_means_the_same_map(x: Layout) -> None:
    """The last register bit written as a repeat is the same layout; another step isn't."""
    assume(x.reg)
    axis, step = next((a, n) for a, n in enumerate(x.reg[-1]) if n)
    repeat = (axis, 2, step)
    y = Layout(x.shape, x.reg[:-1], x.lane, x.warp, (repeat, *x.repeats))
    assert y == x and hash(y) == hash(x)
    assert all(np.array_equal(a, b) for a, b in zip(x.table, y.table, strict=True))
    z = Layout(x.shape, x.reg[:-1], x.lane, x.warp, ((axis, 2, step + 1), *x.repeats))
    assert z != x


def test_equality_sees_through_spelling_but_not_through_order() -> None:
    lane, warp = ((0, 2), (0, 4), (1, 0), (2, 0), (4, 0)), ((16, 0), (32, 0))
    a = Layout((64, 32), ((0, 1), (8, 0)), lane, warp, ((1, 4, 8),))
    b = Layout((64, 32), ((0, 1), (8, 0), (0, 8), (0, 16)), lane, warp)
    c = Layout((64, 32), ((0, 1), (8, 0), (0, 16), (0, 8)), lane, warp)
    assert a == b == wgmma_acc((64, 32))
    assert b != c and equivalent(b, c)
    assert b.permutation(c) == tuple(
        i & 3 | (i >> 2 & 1) << 3 | (i >> 3 & 1) << 2 for i in range(16)
    )


def test_a_carry_is_no_exclusive_or() -> None:
    """Register bits 1 and 2 (of step 1) against lane bits of the same value: XOR, so no repeat of 4."""
    lane = ((1,), (2,), (4,), (8,), (16,))
    swizzled = Layout((32,), ((1,), (2,)), lane, ())
    repeated = Layout((32,), (), lane, (), ((0, 4, 1),))
    assert swizzled != repeated
    assert not np.array_equal(swizzled.table[0], repeated.table[0])


@few
@given(layouts(), st.data())
def test_drop_is_the_projection(x: Layout, data: st.DataObject) -> None:
    assume(len(x.shape) > 1)
    axis = data.draw(st.integers(0, len(x.shape) - 1))
    y = x.drop(axis)
    assert y.lane == tuple(v[:axis] + v[axis + 1 :] for v in x.lane)
    # Every thread holds exactly the projections of what it held.
    rest = [c for a, c in enumerate(x.table) if a != axis]
    for w in range(x.warps):
        for lane in (0, 1, 31):
            old = set(zip(*(c[w, lane] for c in rest), strict=True))
            new = set(zip(*(c[w, lane] for c in y.table), strict=True))
            assert old == new


@few
@given(layouts(), st.data())
def test_insert_then_drop_is_nothing(x: Layout, data: st.DataObject) -> None:
    axis = data.draw(st.integers(0, len(x.shape)))
    y = x.insert(axis)
    assert y.shape[axis] == 1 and not y.table[axis].any()
    held = spread(x, numbered(x.shape))
    if y.registers == x.registers:  # registers that only replicate vanish
        assert y.drop(axis) == x
        assert np.array_equal(spread(y, numbered(x.shape).reshape(y.shape)), held)


@few
@given(layouts(), st.data())
def test_permute_transposes(x: Layout, data: st.DataObject) -> None:
    perm = data.draw(st.permutations(range(len(x.shape))))
    tile = numbered(x.shape)
    assert np.array_equal(spread(x.permute(perm), tile.transpose(perm)), spread(x, tile))
    back = tuple(perm.index(i) for i in range(len(perm)))
    assert x.permute(perm).permute(back) == x


@few
@given(layouts(exact=True), st.data())
def test_slices_are_registers(x: Layout, data: st.DataObject) -> None:
    shape, offset = [], []
    for n in x.shape:
        size = data.draw(st.sampled_from([d for d in range(1, n + 1) if n % d == 0]))
        shape.append(size)
        offset.append(size * data.draw(st.integers(0, n // size - 1)))
    found = x.slice(offset, shape)
    tile = numbered(x.shape)
    if found is None:
        # Then some thread holds nothing of the part, or parts of different sizes: no registers are the part.
        # Or they are, in an order that no layout has (0, 128, 64): what a register adds goes down somewhere.
        part = tile[tuple(slice(o, o + n) for o, n in zip(offset, shape, strict=True))]
        mine = np.isin(spread(x, tile), part)
        cut = (mine.any(axis=(0, 1)) != mine.all(axis=(0, 1))).any()
        held = spread(x, tile)[0, 0, mine.all(axis=(0, 1))].astype(np.int64)
        assert cut or (np.diff(held) < 0).any()
        return
    y, registers = found
    assert y.shape == tuple(shape) and y.registers == len(registers)
    part = tile[tuple(slice(o, o + n) for o, n in zip(offset, shape, strict=True))]
    assert np.array_equal(spread(y, part), spread(x, tile)[..., list(registers)])


def test_slice_of_an_accumulator_keeps_its_atom() -> None:
    for offset in range(0, 96, 32):
        found = wgmma_acc((64, 96)).slice((0, offset), (64, 32))
        assert found is not None
        y, registers = found
        assert str(y) == "wgmma_acc(64x32)" and y.reg == ((0, 1), (8, 0))
        assert registers == tuple(range(offset // 2, offset // 2 + 16))
    assert wgmma_acc((64, 96)).slice((0, 4), (64, 8)) is None  # cuts between lanes


@few
@given(layouts(max_rank=2), st.data())
def test_broadcast_repeats_and_unbroadcast_undoes(x: Layout, data: st.DataObject) -> None:
    axis = data.draw(st.integers(0, len(x.shape)))
    n = data.draw(st.sampled_from([2, 3, 8]))
    narrow = x.insert(axis)
    assume(narrow.registers == x.registers)
    shape = (*x.shape[:axis], n, *x.shape[axis:])
    wide = narrow.broadcast(shape)
    tile = np.broadcast_to(np.expand_dims(numbered(x.shape), axis), shape)
    held = spread(wide, tile).reshape(x.warps, 32, n, x.registers)
    assert (held == spread(x, numbered(x.shape))[:, :, None]).all()
    assert wide.unbroadcast(narrow.shape) == narrow


@few
@given(layouts(exact=True, max_rank=2), st.data())
def test_spread_gives_copies_to_different_threads(x: Layout, data: st.DataObject) -> None:
    axis = data.draw(st.integers(0, len(x.shape)))
    n = data.draw(st.sampled_from([2, 3, 8, 24]))
    narrow = x.insert(axis)
    wide = narrow.spread((*x.shape[:axis], n, *x.shape[axis:]))
    assert covers(wide) and not wide.overhangs
    assert wide.unbroadcast(narrow.shape) == narrow
    same = math.prod(1 << f.bit_count() for f in x.copies)
    assert wide.registers == x.registers * n // min(same, n & -n)


@few
@given(layouts(exact=True, max_rank=2), st.data())
def test_product_repeats_the_tile(x: Layout, data: st.DataObject) -> None:
    counts = [data.draw(st.integers(1, 3)) for _ in x.shape]
    big = x.product(counts)
    assert covers(big) and not big.overhangs and not big.is_replicated
    for block in np.ndindex(*counts):
        offset = [b * n for b, n in zip(block, x.shape, strict=True)]
        found = big.slice(offset, x.shape)
        assert found is not None and found[0] == x


@few
@given(layouts(exact=True, max_rank=2), st.lists(st.integers(1, 3), min_size=2, max_size=3))
def test_repeats_of_repeats_are_written_once(x: Layout, times: list[int]) -> None:
    """Along one axis: the same map as one product, and merged the same text."""
    more = x
    for n in times:
        more = more.product([n] + [1] * (len(x.shape) - 1))
    once = x.product([int(np.prod(times))] + [1] * (len(x.shape) - 1))
    assert more == more.merged() == once
    assert str(more.merged()) == str(once.merged())


@few
@given(layouts(exact=True), st.data())
def test_reshape_keeps_elements_where_they_are(x: Layout, data: st.DataObject) -> None:
    size = int(np.prod(x.shape))
    first = data.draw(st.sampled_from([d for d in range(1, size + 1) if size % d == 0]))
    y = x.reshape((first, size // first))
    if y is not None:
        tile = numbered(x.shape)
        assert np.array_equal(spread(y, tile.reshape(y.shape)), spread(x, tile))
        back = y.reshape(x.shape)
        assert back is not None
        assert np.array_equal(spread(back, tile), spread(x, tile))


def test_reshape_splits_and_merges() -> None:
    x = wgmma_acc((64, 96))
    y = x.reshape((64, 12, 8))
    assert y is not None and y.reshape((64, 96)) == x
    flat = blocked((64, 64), 1, 8, 4).reshape((4096,))
    assert flat == blocked((4096,), 0, 8, 4)
    assert x.reshape((64 * 96,)) is None  # warps 1536 apart and columns add up with carries


@few
@given(layouts(), layouts())
def test_permutation_moves_registers_rightly(x: Layout, y: Layout) -> None:
    if x.shape != y.shape or x.threads != y.threads:
        y = Layout(x.shape, tuple(reversed(x.reg)), x.lane, x.warp, x.repeats)
    p = x.permutation(y)
    assert x.permutation(x) is not None
    if p is not None:
        mine, theirs = spread(x, numbered(x.shape)), spread(y, numbered(x.shape))
        moved = mine[..., list(p)]
        assert (moved == theirs)[theirs >= 0].all()


@few
@given(layouts(), st.data())
def test_contiguous_is_adjacent_and_aligned(x: Layout, data: st.DataObject) -> None:
    axis = data.draw(st.integers(0, len(x.shape) - 1))
    v = x.contiguous(axis)
    assert x.registers % v == 0
    c = x.table[axis].reshape(x.warps, 32, -1, v)
    assert (c == c[..., :1] + np.arange(v)).all() and not (c[..., 0] % v).any()
    for a, other in enumerate(x.table):
        o = other.reshape(x.warps, 32, -1, v)
        assert a == axis or (o == o[..., :1]).all()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "layout",
        "tiled(4x4)",
        "layout(4x4, lane=(0,1))",
        "layout(4, reg=(1, lane=(0)(0)(0)(0)(0))",
        "layout(4, lane=(0)(0)(0)(0)(0), rep=(0,4))",
        "wgmma_acc(64x100)",
        "wgmma_acc(60x8)",
        "blocked(4x4)",
    ],
)
def test_bad_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        Layout.parse(text)
