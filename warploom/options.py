"""Environment variables: the only reader of `os.environ`.

| variable | value | meaning |
|---|---|---|
| WARPLOOM_DUMP | `<pass>` or `all` | write the IR of what is compiled then after that pass (every pass) |
| WARPLOOM_VERIFY | 0, 1 | verify the IR after every pass (default), or never |
| WARPLOOM_SIM | 0, 1 | a call on NumPy arrays runs the simulator instead of the oracle |
| WARPLOOM_KEEP | `<dir>` | keep IR, CUDA, PTX and cubin there of each kernel that is compiled then |
| WARPLOOM_CACHE | `<dir>` or `off` | where kernels are cached (default: `$XDG_CACHE_HOME/warploom`) |
| WARPLOOM_CACHE_SIZE | `500M`, `2G` … | what the cache may take of the disk (default: 2G) |
| WARPLOOM_TIMELINE | `<file>` | write the timeline of a simulated call there |
| WARPLOOM_CHECK | 0, 1, strict | check explicit kernels before a launch; strict: refuse *not proved* |
| WARPLOOM_TRACEBACK | 0, 1 | a user's mistake is told with the compiler's frames, too |
| WARPLOOM_AS_TRITON | 0, 1 | `import triton` and `import tilus` give warploom's (docs/triton.md) |
| WARPLOOM_MAX_TRIPS | `1000000` … | iterations of a `while` on the CPU (default: 100000); `for`s: 100 times |
"""

from __future__ import annotations

import enum
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from warploom.errors import CompileError

T = TypeVar("T")
D = TypeVar("D")

PREFIX = "WARPLOOM_"
CACHE_SIZE = 2 << 30  # bytes, where nothing is said
MAX_TRIPS = 100_000
FOR_TRIPS = 100  # times as many iterations may the `for`s of a program have in all
_UNITS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}


class Check(enum.Enum):
    """What comes before an explicit kernel's first launch."""

    OFF = "0"
    ON = "1"
    STRICT = "strict"


@dataclass(frozen=True)
class Options:
    """What the environment asks for; see the table in the module's docstring."""

    dump: str | None
    verify: bool
    sim: bool
    keep: Path | None
    cache: Path | None  # None: no cache on disk
    timeline: Path | None
    check: Check = Check.ON
    traceback: bool = False
    cache_size: int = CACHE_SIZE
    as_triton: bool = False
    max_trips: int = MAX_TRIPS


def get(environ: Mapping[str, str] | None = None) -> Options:
    """The options as the environment is now.  An empty variable counts as unset.

    Raises CompileError (code `option`) on a value that is none of those allowed.
    """
    env = os.environ if environ is None else environ
    for name in sorted(n for n in env if n.startswith(PREFIX)):
        if name.removeprefix(PREFIX).lower() not in Options.__dataclass_fields__:
            raise CompileError("option", f"there is no option {name}", help=f"options: {_names()}")

    def read(name: str, parse: Callable[[str], T], default: D) -> T | D:
        text = env.get(PREFIX + name, "").strip()
        try:
            return parse(text) if text else default
        except (ValueError, KeyError) as e:
            raise CompileError("option", f"{PREFIX}{name} can't be {text!r}: {e}") from e

    return Options(
        dump=read("DUMP", str, None),
        verify=read("VERIFY", _flag, True),
        sim=read("SIM", _flag, False),
        keep=read("KEEP", _path, None),
        cache=read("CACHE", lambda text: None if text == "off" else _path(text), _cache(env)),
        timeline=read("TIMELINE", _drawing, None),
        check=read("CHECK", Check, Check.ON),
        traceback=read("TRACEBACK", _flag, False),
        cache_size=read("CACHE_SIZE", _size, CACHE_SIZE),
        as_triton=read("AS_TRITON", _flag, False),
        max_trips=read("MAX_TRIPS", _count, MAX_TRIPS),
    )


def as_triton() -> bool:
    """Whether WARPLOOM_AS_TRITON is 1; other options are not looked at, which are read where they count."""
    return os.environ.get(f"{PREFIX}AS_TRITON", "").strip() == "1"


def write(path: Path, data: bytes, option: str) -> None:
    """Leave what an option asks for in a file, its folder made.  Raises CompileError (code `option`)."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    except OSError as e:
        raise unwritable(path, option, e) from None


def unwritable(path: Path, option: str, error: OSError) -> CompileError:
    """The error where a file that an option asks for can't be written."""
    return CompileError(
        "option",
        f"{PREFIX}{option}: {path} can't be written: {error.strerror or error}",
        help="name a place that can be written, with room in it",
    )


def _names() -> str:
    return ", ".join(PREFIX + name.upper() for name in Options.__dataclass_fields__)


def _flag(text: str) -> bool:
    if text not in ("0", "1"):
        raise ValueError("expected 0 or 1")
    return text == "1"


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise ValueError("expected a whole number from 1 on")
    return int(text)


def _size(text: str) -> int:
    """Bytes of "500M" or "2G"; units are powers of 1024."""
    number, unit = (text[:-1], text[-1:].upper()) if text[-1:].isalpha() else (text, "")
    if not number.isdecimal() or unit not in _UNITS or int(number) == 0:
        raise ValueError("expected a size such as 500M or 2G")
    return int(number) << _UNITS[unit]


def _path(text: str) -> Path:
    return Path(text).expanduser()


def _drawing(text: str) -> Path:
    path = _path(text)
    if path.suffix not in (".svg", ".png", ".json"):
        raise ValueError("expected a file that ends in .svg, .png or .json")
    return path


def _cache(env: Mapping[str, str]) -> Path:
    base = env.get("XDG_CACHE_HOME", "")
    return (Path(base) if base else Path.home() / ".cache") / "warploom"
