"""triton.profiler (Proton): how long the launches of a program took, under the scopes that it names.

    session = start("matmul", hook="triton")
    with scope("first"):
        kernel[grid](…)
    finalize(session)  # matmul.hatchet, which `triton.profiler.viewer` reads

The hooks of launches tell what is launched from here; times on a GPU are CUDA events'.  A scope in which
nothing is launched from here (a library's product) has a time of its own.
"""

from __future__ import annotations

import functools
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from warploom.runtime.hooks import ENTER, EXIT
from warploom.triton.profiler import language, viewer
from warploom.triton.runtime.driver import active as _driver

__all__ = [
    "DEFAULT_PROFILE_NAME",
    "activate",
    "cpu_timed_scope",
    "deactivate",
    "enter_scope",
    "enter_state",
    "exit_scope",
    "exit_state",
    "finalize",
    "language",
    "profile",
    "scope",
    "start",
    "state",
    "viewer",
]

DEFAULT_PROFILE_NAME = "proton"
Metrics = Mapping[str, float]


def _now() -> Any:
    """A point in time: of the GPU's stream, where there is one."""
    if not _driver.is_active():
        return time.perf_counter_ns()
    event = _driver.get_device_interface().Event(enable_timing=True)
    event.record()
    return event


def _between(start: Any, stop: Any) -> float:
    """Nanoseconds."""
    if isinstance(start, int):
        return float(stop - start)
    stop.synchronize()
    return 1e6 * float(start.elapsed_time(stop))


@dataclass
class _Node:
    """A scope, or the launches of a kernel in one."""

    name: str
    metrics: dict[str, float] = field(default_factory=dict)
    children: dict[str, _Node] = field(default_factory=dict)
    spans: list[tuple[Any, Any]] = field(default_factory=list)

    def child(self, name: str) -> _Node:
        return self.children.setdefault(name, _Node(name))

    def add(self, metrics: Metrics) -> None:
        for name, value in metrics.items():
            self.metrics[name] = self.metrics.get(name, 0) + value

    def record(self) -> dict[str, Any]:
        """As JSON has it; metrics are a node's own, without those below."""
        own = dict(self.metrics)
        if self.spans and not self.children:
            own["time (ns)"] = sum(_between(*span) for span in self.spans)
            own["count"] = len(self.spans)
        return {
            "frame": {"name": self.name, "type": "function"},
            "metrics": own,
            "children": [child.record() for child in self.children.values()],
        }


@dataclass
class _Session:
    """path: scopes that are open.  counts: are launches called and counted by their launch_metadata?"""

    name: str
    counts: bool
    is_active: bool = True
    root: _Node = field(default_factory=lambda: _Node("ROOT"))
    path: list[tuple[_Node, Any]] = field(default_factory=list)

    def open(self, name: str, metrics: Metrics | None = None) -> _Node:
        node = (self.path[-1][0] if self.path else self.root).child(name)
        node.add(metrics or {})
        self.path.append((node, _now()))
        return node

    def close(self, metrics: Metrics | None = None) -> None:
        if self.path:  # it may have begun in the scope
            node, begin = self.path.pop()
            node.add(metrics or {})
            node.spans.append((begin, _now()))


_sessions: dict[int, _Session] = {}
_numbers = iter(range(sys.maxsize))


def _active() -> Iterator[_Session]:
    return (s for s in _sessions.values() if s.is_active)


def _entered(launch: Any) -> None:
    for s in _active():
        data = launch.get() if s.counts else launch.data
        counted = {k: v for k, v in data.items() if k == "bytes" or k.startswith("flops")}
        s.open(data["name"], counted)


def _exited(launch: Any) -> None:
    for s in _active():
        s.close()


def start(
    name: str | None = None,
    *,
    context: str | None = "shadow",
    data: str | None = "tree",
    backend: str | None = None,
    mode: Any = None,
    hook: str | None = None,
) -> int:
    """Begins a session; gives its number.  hook="triton": launches have the names, `flops…` and `bytes` of
    their kernel's launch_metadata.  Raises ValueError on another context, data or hook than Proton has."""
    for what, given, known in (
        ("context", context, (None, "shadow", "python")),
        ("data", data, (None, "tree", "trace")),
        ("hook", hook, (None, "triton")),
    ):
        if given not in known:
            raise ValueError(f"{what} is one of {', '.join(map(repr, known))}, not {given!r}")
    ENTER.add(_entered)
    EXIT.add(_exited)
    number = next(_numbers)
    _sessions[number] = _Session(name or DEFAULT_PROFILE_NAME, hook == "triton")
    return number


def _chosen(session: int | None) -> list[int]:
    return list(_sessions) if session is None else [session] if session in _sessions else []


def activate(session: int | None = None) -> None:
    """Goes on with a session; None: with all."""
    for n in _chosen(session):
        _sessions[n].is_active = True


def deactivate(session: int | None = None) -> None:
    """Pauses a session; None: all."""
    for n in _chosen(session):
        _sessions[n].is_active = False


def finalize(session: int | None = None, output_format: str | None = "") -> None:
    """Ends a session (None: all), and writes <name>.hatchet.  Raises ValueError on another output_format."""
    if output_format not in (None, "", "hatchet"):
        raise ValueError(f"output_format is 'hatchet', not {output_format!r}")
    for n in _chosen(session):
        found = _sessions.pop(n)
        Path(f"{found.name}.hatchet").write_text(json.dumps([found.root.record(), {}]))
    if not _sessions:
        ENTER.remove(_entered)
        EXIT.remove(_exited)


class scope:
    """Names what is launched inside: a context manager, or a decorator.  metrics: numbers of it by name."""

    def __init__(self, name: str, metrics: Metrics | None = None) -> None:
        self.name, self.metrics = name, metrics

    def __enter__(self) -> scope:
        enter_scope(self.name, metrics=self.metrics)
        return self

    def __exit__(self, *_: object) -> None:
        exit_scope()

    def __call__(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(fn)
        def inside(*args: Any, **kwargs: Any) -> Any:
            with self:
                return fn(*args, **kwargs)

        return inside


class cpu_timed_scope(scope):
    """A scope that has the host's time, as "cpu_time (ns)"."""

    def __enter__(self) -> scope:
        super().__enter__()
        self.begin = time.perf_counter_ns()
        return self

    def __exit__(self, *_: object) -> None:
        exit_scope(metrics={"cpu_time (ns)": time.perf_counter_ns() - self.begin})


state = scope


def enter_scope(name: str, *, metrics: Metrics | None = None) -> None:
    """Opens a scope in all active sessions."""
    for s in _active():
        s.open(name, metrics)


def exit_scope(name: str | None = None, *, metrics: Metrics | None = None) -> None:
    """Closes the scope that was opened last."""
    for s in _active():
        s.close(metrics)


enter_state, exit_state = enter_scope, exit_scope


def profile(
    func: Callable[..., Any] | None = None, *, name: str | None = None, **how: Any
) -> Callable[..., Any]:
    """A decorator: each call is a session, as of `start`, which is written when it ends."""
    if func is None:
        return functools.partial(profile, name=name, **how)

    @functools.wraps(func)
    def profiled(*args: Any, **kwargs: Any) -> Any:
        session = start(name, **how)
        try:
            return func(*args, **kwargs)
        finally:
            finalize(session)

    return profiled
