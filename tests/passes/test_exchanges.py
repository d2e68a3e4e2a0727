"""Exchanges through scratch: halves in turn, guarded where somebody may still read, and seen by the simulator."""

from collections.abc import Callable

import numpy as np
import pytest

from tests.unit.codegen_kernels import emitted, placed, through
from warploom.codegen.emit import emit
from warploom.errors import InternalError
from warploom.ir.core import Func, Op, Region, walk
from warploom.ir.ops import smem
from warploom.sim.machine import simulate
from warploom.sim.report import Race
from warploom.target import SM_90A


def across(source: str, fn: str, to: str) -> str:
    """A reduction over rows that all warps share, broadcast again."""
    return f"""      %{to}0 = reduce(%{source}) {{axis=0, fn="{fn}"}} : tile<64xf32>
      %{to}1 = expand_dims(%{to}0) {{axis=0}} : tile<1x64xf32>
      %{to} = broadcast(%{to}1) {{shape=(64, 64)}} : tile<64x64xf32>
"""


LOOP = through(
    f"""{across("x", "max", "g")}
    %p = for(%c0, %M, %c1, %g) : tile<64x64xf32> do (%i: i32, %u: tile<64x64xf32>) {{
{across("u", "add", "w")}
      %v = mul(%w, %x) : tile<64x64xf32>
      yield(%v)
    }}
{across("p", "min", "y")}"""
)


def exchanges(func: Func) -> list[tuple[int, bool]]:
    """Of each exchange the first byte of its part, and whether it is guarded."""
    made = {v: o for o in walk(func.body) for v in o.results}
    found = []
    for o in walk(func.body):
        if o.kind is smem.exchange:
            part = made[o.operands[0]]
            size = part.result.type.tile_bytes if part.kind is smem.shared_slice else 0  # type: ignore[attr-defined]
            block = made[part.operands[1]].attrs["value"] if size else 0
            found.append((block * size, o.attrs["guarded"]))
    return found


def changed(func: Func, change: Callable[[Op], Op]) -> Func:
    def region(r: Region) -> Region:
        ops = (o.with_(regions=tuple(map(region, o.regions))) if o.regions else o for o in r.ops)
        return Region(r.params, tuple(map(change, ops)))

    return func.with_(body=region(func.body))


def run(func: Func) -> None:
    m, n = np.full((64, 64), 1e-3, np.float32), np.zeros((64, 64), np.float32)
    simulate(func, [m, n, 3, 64], 1, data=False)


def test_halves_in_turn_and_a_guard_where_a_loop_comes_back() -> None:
    func = placed(LOOP)
    assert exchanges(func) == [(0, False), (0, True), (0, True)]
    run(func)
    twice = through(across("x", "max", "g") + across("g", "add", "y"))
    assert exchanges(placed(twice)) == [(0, False), (1024, False)]
    run(placed(twice))


@pytest.mark.parametrize("spoil", ["no guard", "one half"])
def test_a_missing_guard_is_a_race(spoil: str) -> None:
    """What codegen used to decide alone: nobody but the GPU could tell."""
    if spoil == "no guard":
        func = changed(
            placed(LOOP),
            lambda o: o.with_(attrs={"guarded": False}) if o.kind is smem.exchange else o,
        )
    else:
        func = placed(through(across("x", "max", "g") + across("g", "add", "y")))
        first = next(o.operands for o in walk(func.body) if o.kind is smem.exchange)
        func = changed(func, lambda o: o.with_(operands=first) if o.kind is smem.exchange else o)
    with pytest.raises(Race, match="exchange"):
        run(func)


def test_code_is_emitted_for_planned_exchanges_only() -> None:
    func = placed(LOOP)
    assert emitted(LOOP).source.count("__syncthreads();") == 5

    def without(r: Region) -> Region:
        ops = (o.with_(regions=tuple(map(without, o.regions))) if o.regions else o for o in r.ops)
        return Region(r.params, tuple(o for o in ops if o.kind is not smem.exchange))

    with pytest.raises(InternalError, match="no exchange of 1024 bytes"):
        emit(func.with_(body=without(func.body)), SM_90A)
