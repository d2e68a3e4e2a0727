"""sim/lockstep.py: runs that take turns."""

from __future__ import annotations

import pytest

from warploom.sim.lockstep import Place, Stop, in_step


def test_what_is_done_at_stops_is_in_the_order_of_places() -> None:
    """Also where a run has stops that others have not."""
    done: list[tuple[Place, int]] = []

    def run(i: int, places: list[Place]) -> None:
        def stops(stop: Stop) -> None:
            for p in places:
                stop(p)
                done.append((p, i))

        runs.append(stops)

    runs: list = []
    run(0, [(0, 1), (0, 2), (1, 1), (1, 2), (2, 1)])
    run(1, [(0, 1), (1, 1), (2, 1)])
    run(2, [])
    in_step(runs)
    assert done == sorted(done) and len(done) == 8


def test_an_error_ends_the_others() -> None:
    done: list[int] = []

    def fails(stop: Stop) -> None:
        stop((1,))
        raise ValueError("here")

    def goes_on(stop: Stop) -> None:
        stop((0,))
        done.append(0)
        stop((2,))
        done.append(2)

    with pytest.raises(ValueError, match="here"):
        in_step([goes_on, fails])
    assert done == [0]
