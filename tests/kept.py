"""What is kept between runs of the suite, in the user's cache folder, outside of the clone, so that a fresh clone finds
it: NVRTC's answers (nvrtc_cache.py), and the bytecode of the tree, which two workers compile for ten seconds each (most
of it pytest's, of tests with their assertions rewritten).

A file each, by the hash of what it was made of, which appears by rename; TESTS_NVRTC_CACHE names another folder, or is
`off`.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import struct
import sys
from contextlib import suppress
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LARGEST = 512 << 20  # bytes that are kept after a run; a run of the whole suite leaves a tenth


def folder() -> Path | None:
    """Where all that is kept; None where nothing is."""
    named = os.environ.get("TESTS_NVRTC_CACHE")
    if named:
        return None if named == "off" else Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "warploom-tests"


def write(file: Path, data: bytes) -> None:
    """All of it or, where nothing can be written, nothing: that slows a run, no more."""
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        partial = file.with_suffix(f".{os.getpid()}")
        partial.write_bytes(data)
        partial.replace(file)


def restore_bytecode() -> None:
    """What Python and pytest would compile now is there already, where these sources were run before."""
    for _, compiled, kept in _bytecode():
        if kept.exists() and not compiled.exists():
            write(compiled, kept.read_bytes())
            os.utime(kept)


def keep_bytecode() -> None:
    """As it is valid for each file with these contents, whenever it was written (PEP 552), which pytest's is."""
    for source, compiled, kept in _bytecode():
        if compiled.exists() and not kept.exists():
            stat, data = source.stat(), compiled.read_bytes()
            magic = importlib.util.MAGIC_NUMBER
            of_time = struct.pack("<LLL", 0, int(stat.st_mtime) & 0xFFFFFFFF, stat.st_size)
            of_hash = struct.pack("<L", 3) + importlib.util.source_hash(source.read_bytes())
            settled = compiled.stat().st_mtime > stat.st_mtime + 2  # not edited in the same second
            if settled and data.startswith((magic + of_time, magic + of_hash)):
                write(kept, magic + of_hash + data[16:])


def _bytecode() -> list[tuple[Path, Path, Path]]:
    """Of each file of the tree: the source, where its bytecode lies, and where that is kept."""
    kept = folder()
    if kept is None or sys.dont_write_bytecode or sys.pycache_prefix:
        return []
    tail = f".{sys.implementation.cache_tag}-pytest-{pytest.__version__}.pyc"
    found = []
    for part in ("warploom", "corpus", "benchmarks", "tools", "tests"):
        for source in (ROOT / part).rglob("*.py"):
            compiled = Path(importlib.util.cache_from_source(str(source)))
            if part == "tests" and source.name.startswith(("test_", "conftest")):
                compiled = compiled.with_name(source.stem + tail)
            question = compiled.name.removeprefix(source.stem).encode() + source.read_bytes()
            name = hashlib.sha256(question).hexdigest()
            found.append((source, compiled, kept / f"{name}.z"))
    return found


def evict(largest: int = LARGEST) -> None:
    """Delete what was used longest ago, until `largest` bytes are left."""
    kept = folder()
    if kept is None or not kept.is_dir():
        return
    files = []
    for f in kept.glob("*.z"):  # what is on its way has another name
        with suppress(FileNotFoundError):  # another run evicts as well
            files.append((f.stat(), f))
    files.sort(key=lambda x: -x[0].st_mtime)
    total = 0
    for stat, file in files:
        total += stat.st_size
        if total > largest:
            file.unlink(missing_ok=True)
