"""The garbage collector stands still while kernels compile, and goes on after the last of them."""

from __future__ import annotations

import gc
import os
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import warploom as wl
import warploom.language as tl
from warploom.compile import Lowered
from warploom.ir.collector import paused_collector
from warploom.runtime.request import Request


@pytest.fixture(autouse=True)
def enabled() -> Iterator[None]:
    was_enabled = gc.isenabled()
    gc.enable()
    yield
    if not was_enabled:
        gc.disable()


def test_it_goes_on_when_the_last_pause_ends() -> None:
    with paused_collector():
        assert not gc.isenabled()
        inner = paused_collector()
        started = threading.Thread(target=inner.__enter__)
        started.start()
        started.join()
    assert not gc.isenabled()  # another thread compiles
    inner.__exit__(None, None, None)
    assert gc.isenabled()


def test_what_the_user_turned_off_stays_off() -> None:
    gc.disable()
    with pytest.raises(ValueError, match="refused"), paused_collector():
        raise ValueError("refused")
    assert not gc.isenabled()


@pytest.mark.skipif(sys.platform == "win32", reason="no process forks")
@pytest.mark.parametrize("is_own", [False, True])
def test_the_child_of_a_fork_has_no_pauses_of_other_threads(is_own: bool) -> None:
    forking, ended = threading.Event(), threading.Event()

    def compiles() -> None:
        with paused_collector():
            forking.set()
            ended.wait()

    thread = threading.Thread(target=compiles)
    thread.start()
    forking.wait()
    with ExitStack() as pauses, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a process with threads forks
        if is_own:
            pauses.enter_context(paused_collector())
        if not (child := os.fork()):
            is_right = gc.isenabled() is not is_own
            pauses.close()
            os._exit(0 if is_right and gc.isenabled() else 1)
    ended.set()
    thread.join()
    assert os.waitpid(child, 0)[1] == 0
    assert gc.isenabled()


@wl.jit
def doubled(x_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(x_ptr + at, 2 * tl.load(x_ptr + at))


def test_a_compilation_pauses_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen: list[bool] = []
    lower = Request.lower

    def looked(request: Request) -> Lowered:
        seen.append(gc.isenabled())
        return lower(request)

    monkeypatch.setattr(Request, "lower", looked)
    monkeypatch.setenv("WARPLOOM_CACHE", str(tmp_path))
    doubled.compile(("*fp32:16",), {"N": 192})
    assert seen == [False] and gc.isenabled()
