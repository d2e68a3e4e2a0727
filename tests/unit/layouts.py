"""Random layouts for property tests, and questions that only tests ask of layouts."""

import math

import numpy as np
from hypothesis import strategies as st

from warploom.layout import Layout


@st.composite
def layouts(draw: st.DrawFn, max_rank: int = 3, exact: bool = False) -> Layout:
    """Layouts that hold every element: the bits of each axis dealt out to registers, lanes and warps in
    any order, repeats of any count on top.  Unless `exact`, they may replicate and overhang."""
    rank = draw(st.integers(1, max_rank))
    warp_bits = draw(st.integers(0, 2))
    bits = 5 + warp_bits + draw(st.integers(0, 3))
    axes = draw(st.lists(st.integers(0, rank - 1), min_size=bits, max_size=bits))
    extent = [1] * rank
    vectors = []
    for axis in axes:
        vectors.append(tuple(extent[axis] if a == axis else 0 for a in range(rank)))
        extent[axis] *= 2
    vectors = list(draw(st.permutations(vectors)))
    if not exact and draw(st.booleans()):
        victim = draw(st.integers(0, 4 + warp_bits))  # a lane or warp bit: replication
        lost = vectors[victim]
        vectors[victim] = (0,) * rank
        # What it covered goes to a register, so that every element still lives somewhere.
        vectors.append(lost)
    repeats = []
    for axis in range(rank):
        count = draw(st.sampled_from([1, 1, 2, 3, 5]))
        if count > 1:
            repeats.append((axis, count, extent[axis]))
            extent[axis] *= count
    repeats = list(draw(st.permutations(repeats)))
    shape = tuple(extent)
    if not exact and draw(st.booleans()):
        shape = tuple(draw(st.integers(max(1, n - 3), n)) for n in shape)
    return Layout(
        shape,
        tuple(vectors[5 + warp_bits :]),
        tuple(vectors[:5]),
        tuple(vectors[5 : 5 + warp_bits]),
        tuple(repeats),
    )


def covers(layout: Layout) -> bool:
    """Does every element live somewhere?"""
    inside = np.all([c < n for c, n in zip(layout.table, layout.shape, strict=True)], axis=0)
    flat = sum(c * math.prod(layout.shape[a + 1 :]) for a, c in enumerate(layout.table))
    return len(np.unique(flat[inside])) == math.prod(layout.shape)


def equivalent(x: Layout, y: Layout) -> bool:
    """Does every thread hold the same elements in both (registers in any order)?"""
    return x.shape == y.shape and x.threads == y.threads and x.permutation(y) is not None
