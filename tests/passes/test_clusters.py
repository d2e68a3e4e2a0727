"""num_ctas: a cluster divides a program; every level computes what TILE computes, bit for bit on integers."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.passes import kernels, road
from tests.passes.test_gemm_levels import arguments
from tests.passes.test_other_kernels import matrices
from warploom.check import check
from warploom.errors import CompileError
from warploom.ir.core import walk
from warploom.ir.ops import cluster, tma
from warploom.schedule.clusters import choose_cluster, part_axis
from warploom.schedule.model import Knobs
from warploom.target import SM_90A

BF16 = ml_dtypes.bfloat16


def knobs(ctas: int, groups: int = 1, **more: Any) -> Knobs:
    return Knobs(num_ctas=ctas, num_consumer_groups=groups, num_buffers_warp_spec=3, **more)


SPECIALIZED = [(2, 1), (2, 2), (4, 1)]


@pytest.mark.parametrize(("ctas", "groups"), SPECIALIZED)
@pytest.mark.parametrize("k", [0, 20, 192, 448])
@pytest.mark.each(5)
def test_rows_are_divided_and_b_is_multicast(ctas: int, groups: int, k: int) -> None:
    func = road.tile(kernels.gemm(64 * ctas * groups, 64, 64))
    args = arguments(64 * ctas * groups, 64, k)
    schedule, steps = road.check_equal(func, args, 1, knobs(ctas, groups), orders=("late", "early"))
    (ring,) = schedule.channels
    assert ring.multicast[0] is None and ring.multicast[1] is not None
    loads = [o for o in walk(steps[-1][1].body) if o.kind is tma.tma_load]
    assert [bool(o.attrs.get("multicast")) for o in loads] == [False, True]


def test_columns_are_divided_and_a_is_multicast() -> None:
    func = road.tile(kernels.gemm(64, 128, 64))
    schedule, _ = road.check_equal(func, arguments(100, 200, 150), 3, knobs(2))
    assert choose_cluster(func, knobs(2), SM_90A).axis == "N"
    assert schedule.channels[0].multicast[0] is not None
    assert schedule.channels[0].multicast[1] is None


@pytest.mark.parametrize("programs", [1, 2, 5])
def test_several_tiles_a_program_and_odd_sizes(programs: int) -> None:
    func = road.tile(kernels.gemm(128, 64, 64))
    road.check_equal(func, arguments(300, 100, 150), programs, knobs(2))


def test_operands_that_tma_can_not_move_are_loaded_by_every_cta() -> None:
    b = kernels.View("b", "K", "N", "lb", by=4)
    func = road.tile(kernels.gemm(128, 64, 64, b=b))
    schedule, steps = road.check_equal(func, arguments(200, 100, 150, pad=(0, 4)), 2, knobs(2))
    (ring,) = schedule.channels
    assert ring.via == ("tma", "cp_async") and ring.multicast == ()
    assert not any(o.kind is cluster.cluster_wait for o in walk(steps[-1][1].body))


def test_uniform_kernels_load_their_own() -> None:
    func = road.tile(kernels.gemm(128, 64, 64))
    uniform = Knobs(num_ctas=2, num_consumer_groups=0)
    schedule, _ = road.check_equal(func, arguments(200, 100, 150), 2, uniform)
    assert schedule.channels[0].multicast == ()


@pytest.mark.parametrize("k", [0, 64, 200])
def test_two_dots_that_share_a(k: int) -> None:
    road.check_equal(road.tile(kernels.TWO_DOTS), matrices(256, k, 1), 2, knobs(2))


def test_row_sums_are_cut_with_the_rows() -> None:
    """A is read by wgmma and by ordinary loads; B only by wgmma."""
    road.check_equal(road.tile(kernels.ROW_SUMS), matrices(256, 192, 0), 2, knobs(2))


def test_keys_and_values_are_multicast() -> None:
    func = road.tile(kernels.attention())
    rng = np.random.default_rng(3)
    q, v = (road.integers(rng, (n, 64), BF16) for n in (300, 200))
    k = road.integers(rng, (200, 64), BF16)
    c = np.full((300, 64), 7, np.float32)
    schedule, _ = road.check_equal(func, [q, k, v, c, 300, 200, 64, 64], 2, knobs(2))
    divided = {c.name: any(a is not None for a in c.multicast) for c in schedule.channels}
    assert sorted(divided.values()) == [False, True, True]


def test_the_protocol_is_proved() -> None:
    _, steps = road.lower(road.tile(kernels.gemm(128, 64, 64)), knobs(2))
    report = check(steps[-1][1])
    assert report.ok, str(report)


@pytest.mark.parametrize(
    ("text", "ctas", "says"),
    [
        (kernels.gemm(128, 64, 64), 9, "1 to 8 CTAs"),
        (kernels.gemm(64, 4, 64), 2, "along M: wgmma can't take"),
    ],
    ids=["nine", "too small"],
)
def test_what_is_refused(text: str, ctas: int, says: str) -> None:
    with pytest.raises(CompileError) as e:
        choose_cluster(road.tile(text), knobs(ctas), SM_90A)
    assert e.value.code == "num-ctas" and says in e.value.message and e.value.help


def test_parts_of_items() -> None:
    assert part_axis((256, 64), 1, 2, 2) == 0  # rows
    assert part_axis((64, 256), 1, 2, 2) == 0
    assert part_axis((8, 256), 1, 2, 2) == 1  # whole panels
    assert part_axis((8, 64), 1, 2, 2) is None
