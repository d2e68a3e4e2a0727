"""What control flow asks of an agent: loops, branches and elect, as translate.py spells them."""

from __future__ import annotations

from typing import Any

from warploom.ir.core import Op
from warploom.sim.agent import Agent
from warploom.sim.report import NeedsData, TripLimit, endless, too_many, trips_of
from warploom.sim.translate import called

MAX_SPINS = 1_000  # that a run without data waits for a word, of another program perhaps


@called
def iterations_of(a: Agent, o: Op, lo: Any, hi: Any, by: Any) -> range:
    """The numbers that a loop counts."""
    first, stop, stride = a.numbers((lo, hi, by))
    trips, engine = trips_of(o, first, stop, stride), a.cta.engine
    if engine.max_trips is not None:
        _limit_trips(o, trips, engine.max_trips)
    a.trips += trips
    if a.trips > engine.max_counted:
        raise too_many(o, trips, engine.max_counted)
    a.cta.report.trips.setdefault(o, set()).add(trips)
    return range(first, stop, stride)


@called
def limit(a: Agent, o: Op, iterations: int, spins: bool) -> None:
    """Raises where that is more than a `while` may run.  spins: it only waits."""
    engine = a.cta.engine
    if engine.max_trips is not None:
        _limit_trips(o, iterations, engine.max_trips)
    most = engine.max_iterations
    if iterations > (min(most, MAX_SPINS) if spins else most):
        raise endless(o, most)


def _limit_trips(o: Op, trips: int, most: int) -> None:
    if trips > most:
        raise TripLimit("trip-limit", f"a loop runs for more than {most} iterations", o.loc)


@called
def is_true(x: Any) -> bool:
    """A condition that control flow needs."""
    if x is None:
        raise NeedsData
    return bool(x)


@called
def begin_elect(a: Agent, o: Op) -> None:
    if a.is_solo:
        raise a.error("elect", "elect inside elect", o)
    a.elect()


@called
def end_elect(a: Agent, o: Op) -> None:
    a.is_solo = False
    if o.attrs.get("synced"):
        a.clock[:] = a.known()
        a.released()
