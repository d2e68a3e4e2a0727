"""Shared memory in regions: what an access takes is some of them, whole."""

from __future__ import annotations

import random

import numpy as np
import pytest

from warploom.sim.order import Partition

GRANULES = 40


def leaves(partition: Partition, region: int, later: int) -> list[int]:
    """What became of a region: itself, and the parts that accesses divided from it since `later`."""
    found = [region]
    for i in range(later, len(partition.origins)):
        found += [i] if partition.origins[i] in found else []
    return found


@pytest.mark.parametrize("seed", range(20))
def test_regions_cover_what_accesses_take(seed: int) -> None:
    rng = random.Random(seed)
    partition = Partition(GRANULES)
    taken = []
    for _ in range(12):
        granules = np.array(sorted(rng.sample(range(GRANULES), rng.randrange(1, GRANULES))))
        regions = partition.regions(granules)
        taken.append((granules, regions, len(partition.origins)))
    # Asked again, an access takes what became of its regions, and accesses share one where they share bytes.
    now = []
    for granules, regions, later in taken:
        again = partition.regions(granules)
        assert sorted(again) == sorted(i for r in regions for i in leaves(partition, r, later))
        now.append(set(again))
    assert len(partition.origins) == taken[-1][2]
    for one, (granules, _, _) in zip(now, taken, strict=True):
        for other, (others, _, _) in zip(now, taken, strict=True):
            assert bool(one & other) == bool(np.intersect1d(granules, others).size)
            assert (one <= other) == bool(np.isin(granules, others).all())
