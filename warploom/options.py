"""Environment variables: the only reader of `os.environ`.

| variable | value | meaning |
|---|---|---|
| WARPLOOM_DUMP | `<pass>` or `all` | write the IR after that pass (after every pass) |
| WARPLOOM_STOP_AFTER | `<pass>` | end the compilation there |
| WARPLOOM_VERIFY | 0, 1, 2 | verify never; after every pass (default); and compare what each level computes |
| WARPLOOM_SIM | 0, 1 | a call on NumPy arrays runs the simulator instead of the oracle |
| WARPLOOM_KEEP | `<dir>` | keep IR, CUDA, PTX and cubin of each kernel there |
| WARPLOOM_CACHE | `<dir>` or `off` | where kernels are cached (default: `$XDG_CACHE_HOME/warploom`) |
| WARPLOOM_LOG | `debug` … `error` | what is logged (default `warning`) |
| WARPLOOM_TIMELINE | `<file>` | write the timeline of a simulated call there |
| WARPLOOM_CHECK | 0, 1 | check an explicit kernel's protocol before its first launch (default) |
| WARPLOOM_TRACEBACK | 0, 1 | a user's mistake is told with the compiler's frames, too |
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from warploom.errors import CompileError

T = TypeVar("T")
D = TypeVar("D")

PREFIX = "WARPLOOM_"
LOG_LEVELS = ("debug", "info", "warning", "error")


@dataclass(frozen=True)
class Options:
    """What the environment asks for; see the table in the module's docstring."""

    dump: str | None
    stop_after: str | None
    verify: int
    sim: bool
    keep: Path | None
    cache: Path | None  # None: no cache on disk
    log: str
    timeline: Path | None
    check: bool = True
    traceback: bool = False


def get(environ: Mapping[str, str] | None = None) -> Options:
    """The options as the environment is now.  An empty variable counts as unset.

    Raises CompileError (code `option`) on a value that is none of those allowed.
    """
    env = os.environ if environ is None else environ
    for name in sorted(env):
        known = name.removeprefix(PREFIX).lower() in Options.__dataclass_fields__
        if name.startswith(PREFIX) and not known:
            raise CompileError("option", f"there is no option {name}", help=f"options: {_names()}")

    def read(name: str, parse: Callable[[str], T], default: D) -> T | D:
        text = env.get(PREFIX + name, "").strip()
        try:
            return parse(text) if text else default
        except (ValueError, KeyError) as e:
            raise CompileError("option", f"{PREFIX}{name} can't be {text!r}: {e}") from e

    return Options(
        dump=read("DUMP", str, None),
        stop_after=read("STOP_AFTER", str, None),
        verify=read("VERIFY", lambda text: _one_of(("0", "1", "2"), text), 1),
        sim=bool(read("SIM", lambda text: _one_of(("0", "1"), text), 0)),
        keep=read("KEEP", _path, None),
        cache=read("CACHE", lambda text: None if text == "off" else _path(text), _cache(env)),
        log=read("LOG", lambda text: LOG_LEVELS[_one_of(LOG_LEVELS, text.lower())], "warning"),
        timeline=read("TIMELINE", _path, None),
        check=bool(read("CHECK", lambda text: _one_of(("0", "1"), text), 1)),
        traceback=bool(read("TRACEBACK", lambda text: _one_of(("0", "1"), text), 0)),
    )


def _names() -> str:
    return ", ".join(PREFIX + name.upper() for name in Options.__dataclass_fields__)


def _one_of(allowed: tuple[str, ...], text: str) -> int:
    """The index of `text`."""
    if text not in allowed:
        raise ValueError(f"expected one of {', '.join(allowed)}")
    return allowed.index(text)


def _path(text: str) -> Path:
    return Path(text).expanduser()


def _cache(env: Mapping[str, str]) -> Path:
    base = env.get("XDG_CACHE_HOME", "")
    return (Path(base) if base else Path.home() / ".cache") / "warploom"
