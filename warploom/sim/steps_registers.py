"""What an agent does for a setmaxnreg; what it takes from and gives to: registers.py."""

from __future__ import annotations

from warploom.ir.core import Op
from warploom.ir.ops import regs
from warploom.sim.agent import Agent, Block, Steps
from warploom.sim.barriers import Transition
from warploom.sim.outline import step
from warploom.sim.report import Exchange


@step(regs.setmaxnreg)
def _setmaxnreg(a: Agent, o: Op) -> Steps:
    """What an agent does for a setmaxnreg: gives back at once, or takes warp by warp, and waits."""
    pool, registers, said = a.cta.pool, o.attrs["registers"], o.attrs.get("action", "")
    held = [pool.held[w] for w in a.warps_of_cta]
    if a.is_solo:
        raise a.error("setmaxnreg-group", "one thread can't change its warp group's registers", o)
    if (said == "dec" and min(held) < registers) or (said == "inc" and max(held) > registers):
        raise a.error("setmaxnreg-action", f"{said} to {registers} of {held[0]} registers", o)
    if a.cta.is_tracked:
        _enter(a, o)
        a.log(o, f"{registers} registers")
    if a.cta.is_bound:
        yield None  # others may come first
    has_waited = False
    for i, w in enumerate(a.warps_of_cta):
        asks = a.cta.target.warp_size * (registers - held[i])
        if a.cta.is_bound and asks > pool.free:
            has_waited = True
            yield from a.wait_until(_block(a, o, asks, (len(held) - i) * asks))
        pool.free -= asks
        pool.held[w] = registers
        pool.time = max(pool.time, a.time) if asks < 0 else pool.time
    if has_waited and pool.time > a.time:
        a.stall(pool.time, o, "registers")
    if a.cta.touched is not None:
        a.cta.touched.append(Transition("registers", "setmaxnreg", registers, False, a.party(o)))


def _block(a: Agent, o: Op, one: int, all_: int) -> Block:
    pool = a.cta.pool
    return Block(
        lambda: pool.free >= one,
        o,
        f"setmaxnreg to {o.attrs['registers']} registers a thread",
        lambda: (
            f"it asks for {all_} more, the pool has {pool.free} of {pool.size}; {pool.holders(a.label)}"
        ),
        lambda: "nobody gives registers back: whoever could waits, too, or has ended",
        "setmaxnreg",
    )


def _enter(a: Agent, o: Op) -> None:
    """Keeps the exchanges of an agent's warps; each must know those before of its warp group to be over.
    Raises ProtocolError."""
    pool, own, new = a.cta.pool, a.cta.numbers.warps, list[Exchange]()
    for i, w in enumerate(a.warps_of_cta):
        known = a.clock[i, own.start : own.stop].copy()
        size = a.cta.target.warp_group
        group = w - w % size
        for other, theirs in enumerate(pool.exchanges[group : group + size], group):
            before = theirs[: len(pool.exchanges[w])][-1:]  # the one before this
            if other != w and before and known[other] < before[0].epoch:
                raise a.error(
                    "setmaxnreg-sync",
                    "another warp of the warp group may still be at its setmaxnreg before this one",
                    o,
                    "all warps of a warp group synchronise between two of them: self.sync()",
                )
        epoch, registers = int(a.positions[i]), o.attrs["registers"]
        new.append(Exchange(a.who, a.label, o, w, pool.held[w], registers, known, epoch))
    for e in new:
        pool.exchanges[e.warp].append(e)
