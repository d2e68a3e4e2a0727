"""What all tests share."""

from __future__ import annotations

import gc
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from tests.examples import examples
from tests.kept import evict, keep_bytecode, restore_bytecode
from tests.pairwise import part

if TYPE_CHECKING:
    from warploom.runtime.nvrtc import Build

# Before NumPy is imported: the suite's workers take all cores already, and tiles are too small to be worth
# several threads each, which wait for one another busily.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# `make test-all`: all orders of events, and the tests that are marked thorough.
THOROUGH = os.environ.get("TESTS_ORDERS") == "all"

# Who works on the compiler wants to see where in it a kernel was refused.
os.environ.setdefault("WARPLOOM_TRACEBACK", "1")

# No test reads or writes the user's cache; those of the cache have one of their own.
os.environ["WARPLOOM_CACHE"] = "off"


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(
        config, "workerinput"
    ):  # once, before the workers, and before the package is imported
        restore_bytecode()
    from tests import nvrtc_cache

    gc.disable()  # a third of collection went to garbage collections, of trees that are needed to the end

    nvrtc_cache.install()
    with suppress(ModuleNotFoundError):  # which the tests on a GPU do without
        from hypothesis import settings

        # Of tests that say nothing else; a busy machine misses the usual deadline of 0.2 s an example.
        settings.register_profile("suite", max_examples=examples(100), deadline=None)
        settings.load_profile("suite")
    if sys.dont_write_bytecode and not hasattr(config, "workerinput"):
        # Workers, and the fifty processes that tests start, compile the package once, out of the tree.
        folder = tempfile.mkdtemp()
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
        os.environ["PYTHONPYCACHEPREFIX"] = folder
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def pytest_sessionfinish(session: pytest.Session) -> None:
    gc.freeze()  # pytest collects garbage twice before it ends, which took each worker some seconds
    if not hasattr(session.config, "workerinput"):  # once, after the workers
        keep_bytecode()
        evict()


def no_nvrtc(source: str, plan: Any, *_: Any, want_ptx: bool) -> Build:
    """In the place of runtime/build.py's compile_text: a build without code."""
    from warploom.runtime.nvrtc import Build

    return Build(plan.name, b"", "", 0, 0, 0, 0, 0, (), 0.0, "none", "")


@pytest.fixture
def without_nvrtc(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything up to CUDA text and launch plan is made; most tests need no cubin."""
    monkeypatch.setattr("warploom.runtime.build.compile_text", no_nvrtc)


@pytest.fixture
def few_objects() -> None:
    """Who looks at all objects of the process (sim/addresses.py) sees none that earlier tests left."""
    gc.freeze()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without those that `make test-all` and `make release-check` keep for themselves; the slow ones first, so
    that no worker ends with one while the others have nothing left."""
    if not THOROUGH and not any("::" in arg for arg in config.args):  # who names a test gets it
        kept = set(some([i for i in items if not i.get_closest_marker("thorough")]))
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = [item for item in items if item in kept]
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


def some(items: list[pytest.Item]) -> Iterator[pytest.Item]:
    """Of a test that says each(n) a part of its rows."""
    rows: dict[str, list[pytest.Item]] = {}
    for item in items:
        rows.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for same in rows.values():
        if mark := same[0].get_closest_marker("each"):
            values = [item.callspec.indices.items() for item in same]  # type: ignore[attr-defined]
            yield from (same[i] for i in part(mark.args[0], values))
        else:
            yield from same


def pytest_collection_finish() -> None:
    """A tenth of the suite's time went to garbage collections, which looked through all modules and what tests
    keep, and found little: what is there now is never looked at again, and collections are rare."""
    gc.enable()
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)


@pytest.fixture(autouse=True)
def _own_environment() -> Iterator[None]:
    """What a command line sets for its process it does not set for the next test."""
    before = dict(os.environ._data)  # type: ignore[attr-defined]  # as bytes: a hundredth of the time
    yield
    if os.environ._data != before:  # type: ignore[attr-defined]
        os.environ.clear()
        os.environb.update(before)
