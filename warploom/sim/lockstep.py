"""Runs of one program that take turns, so that what they do at their stops is in the program's order."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextvars import copy_context

Place = tuple[int, ...]  # in the program: those that come first in it compare less
Stop = Callable[[Place], None]
Run = Callable[[Stop], None]


def in_step(runs: Sequence[Run]) -> None:
    """Carries out some runs, one at a time.  Each is given what it calls at a stop, which returns when no
    other one is at an earlier place, or at the same place and earlier in `runs`.  Raises what a run raises,
    which ends the others."""
    if len(runs) == 1:
        runs[0](lambda place: None)
        return
    turns = _Turns(len(runs))
    threads = [
        threading.Thread(target=copy_context().run, args=(turns.take, i, run), daemon=True)
        for i, run in enumerate(runs)
    ]
    for t in threads:
        t.start()
    turns.pass_on()
    for t in threads:
        t.join()
    if turns.error is not None:
        raise turns.error


class _Ended(BaseException):
    """Another run has failed."""


class _Turns:
    """Whose turn it is: exactly one semaphore is up, or one run goes on.  places: where those are that have
    not ended."""

    def __init__(self, count: int) -> None:
        self.mine = [threading.Semaphore(0) for _ in range(count)]
        self.places: dict[int, Place] = dict.fromkeys(range(count), ())
        self.error: BaseException | None = None

    def pass_on(self) -> None:
        if self.places:
            self.mine[min(self.places, key=lambda i: (self.places[i], i))].release()

    def take(self, i: int, run: Run) -> None:
        self.mine[i].acquire()
        try:
            if self.error is None:
                run(lambda place: self._stop(i, place))
        except _Ended:
            pass
        except BaseException as error:  # raised where all of them were begun
            self.error = error
        del self.places[i]
        self.pass_on()

    def _stop(self, i: int, place: Place) -> None:
        self.places[i] = place
        self.pass_on()
        self.mine[i].acquire()
        if self.error is not None:
            raise _Ended
