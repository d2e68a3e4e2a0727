"""place_warp_syncs: which arrivals wait for their warp's lanes, and that a missing __syncwarp is found."""

import numpy as np
import pytest

from tests.passes import road
from warploom.ir.core import Func, Op, Region, walk
from warploom.ir.ops import mbarrier
from warploom.ir.parser import parse_func
from warploom.sim.machine import simulate
from warploom.sim.report import Race


def text(consumer: str, again: str = "shared_store(%s, %v)") -> str:
    return f"""func @k(%x: ptr<f32>) level=WARP {{warps=4}} {{
  %s = shared_alloc() {{name="s", lead=(), shape=(64, 64), dtype=f32, inner=1, swizzle=0}}
  %own = shared_alloc() {{name="own", lead=(), shape=(64, 64), dtype=f32, inner=1, swizzle=0}}
  %full = mbarrier_alloc() {{name="full", n=1, count=4}}
  %empty = mbarrier_alloc() {{name="empty", n=1, count=4}}
  %zero = const() {{value=0, dtype=i32}}
  %one = const() {{value=1.0, dtype=f32}}
  tasks() {{names=("producer", "consumer"), warps=(4, 4), replicas=(1, 1), registers=(none, none)}} do {{
    %v = splat(%one) {{shape=(64, 64)}}
    shared_store(%s, %v)
    mbarrier_arrive(%full, %zero)
    mbarrier_wait(%empty, %zero, %zero)
    {again}
    yield()
  }} do {{
    mbarrier_wait(%full, %zero, %zero)
{consumer}
    mbarrier_arrive(%empty, %zero)
    yield()
  }}
  yield()
}}"""


READS = "    %y = shared_load(%s)"
OWN = """    %w = splat(%one) {shape=(64, 64)}
    shared_store(%own, %w)"""


def placed(source: str) -> Func:
    return road.placed(parse_func(source))


def synced(func: Func) -> list[bool]:
    arrivals = (o for o in walk(func.body) if o.kind is mbarrier.mbarrier_arrive)
    return [o.attrs.get("synced", True) for o in arrivals]


def run(func: Func) -> None:
    simulate(func, [np.zeros(1, np.float32)], 1)


@pytest.mark.parametrize(("source", "wanted"), [(text(READS), True), (text(OWN, ""), False)])
def test_arrivals_release_what_others_depend_on(source: str, wanted: bool) -> None:
    func = placed(source)
    assert synced(func) == [wanted, wanted]
    run(func)


@pytest.mark.parametrize("which", [0, 1])
def test_a_missing_warp_sync_is_a_race(which: int) -> None:
    """A write that is not released, and a read after which the slot is written again."""
    func = placed(text(READS))
    spoilt = [o for o in walk(func.body) if o.kind is mbarrier.mbarrier_arrive][which]

    def region(r: Region) -> Region:
        def op(o: Op) -> Op:
            if o is spoilt:
                return o.with_(attrs={**o.attrs, "synced": False})
            return o.with_(regions=tuple(map(region, o.regions))) if o.regions else o

        return Region(r.params, tuple(map(op, r.ops)))

    with pytest.raises(Race):
        run(func.with_(body=region(func.body)))


def test_a_task_that_hands_on_to_itself_releases_too() -> None:
    """One uniform task, whose products read what its other warps wrote."""
    source = """func @k(%x: ptr<f32>) level=WARP {warps=4} {
  %a = shared_alloc() {name="a", lead=(), shape=(64, 64), dtype=bf16, inner=1, swizzle=128}
  %full = mbarrier_alloc() {name="full", n=1, count=4}
  %zero = const() {value=0, dtype=i32}
  %yes = const() {value=true, dtype=i1}
  %one = const() {value=1.0, dtype=bf16}
  tasks() {names=("main",), warps=(4,), replicas=(1,), registers=(none,)} do {
    %v = splat(%one) {shape=(64, 64)}
    shared_store(%a, %v)
    fence_async()
    mbarrier_arrive(%full, %zero)
    mbarrier_wait(%full, %zero, %zero)
    %b = shared_transpose(%a) {perm=(1, 0)}
    %start = no_acc() {shape=(64, 64), dtype=f32}
    wgmma_fence()
    %acc = wgmma(%a, %b, %start, %yes)
    wgmma_commit()
    %y = wgmma_wait(%acc) {pending=0}
    yield()
  }
  yield()
}"""
    assert synced(placed(source)) == [True]


def test_a_task_that_reads_what_its_other_warps_wrote_releases_too() -> None:
    """One uniform task without copies of engines."""
    source = """func @k(%x: ptr<f32>) level=WARP {warps=4} {
  %s = shared_alloc() {name="s", lead=(), shape=(64, 64), dtype=f32, inner=1, swizzle=0}
  %full = mbarrier_alloc() {name="full", n=1, count=4}
  %zero = const() {value=0, dtype=i32}
  %one = const() {value=1.0, dtype=f32}
  tasks() {names=("main",), warps=(4,), replicas=(1,), registers=(none,)} do {
    %v = splat(%one) {shape=(64, 64)}
    shared_store(%s, %v)
    mbarrier_arrive(%full, %zero)
    mbarrier_wait(%full, %zero, %zero)
    %y = shared_load(%s)
    yield()
  }
  yield()
}"""
    func = placed(source)
    assert synced(func) == [True]
    run(func)
