"""Runs that take turns: each goes on to its next stop when all others have come to theirs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextvars import copy_context

Run = Callable[[Callable[[], None]], None]


def in_step(runs: Sequence[Run]) -> None:
    """Carries out some runs, one at a time.  Each is given what it calls at a stop: the others then go on to
    their next ones, in their order, before it does.  Raises what a run raises, which ends the others."""
    if len(runs) == 1:
        runs[0](lambda: None)
        return
    turns = _Turns(len(runs))
    threads = [
        threading.Thread(target=copy_context().run, args=(turns.take, i, run), daemon=True)
        for i, run in enumerate(runs)
    ]
    for t in threads:
        t.start()
    turns.begin()
    for t in threads:
        t.join()
    if turns.error is not None:
        raise turns.error


class _Ended(BaseException):
    """Another run has failed."""


class _Turns:
    """Whose turn it is: exactly one semaphore is up, or one run goes on."""

    def __init__(self, count: int) -> None:
        self.mine = [threading.Semaphore(0) for _ in range(count)]
        self.going = list(range(count))
        self.error: BaseException | None = None

    def begin(self) -> None:
        self.mine[0].release()

    def take(self, i: int, run: Run) -> None:
        self._wait(i)
        try:
            if self.error is None:
                run(lambda: self._stop(i))
        except _Ended:
            pass
        except BaseException as error:  # raised where all of them were begun
            self.error = error
        after = self._after(i)
        self.going.remove(i)
        if after != i:
            self.mine[after].release()

    def _stop(self, i: int) -> None:
        after = self._after(i)
        if after != i:
            self.mine[after].release()
            self._wait(i)
        if self.error is not None:
            raise _Ended

    def _wait(self, i: int) -> None:
        self.mine[i].acquire()

    def _after(self, i: int) -> int:
        """Whose turn comes after run i's: the next one's that still goes on."""
        return self.going[(self.going.index(i) + 1) % len(self.going)]
