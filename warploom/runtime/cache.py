"""The disk cache: compiled kernels and tuning results, shared by processes.

An entry is one file that appears by atomic rename, names its own key and carries a checksum: whoever finds it
broken (a full disk, another version's format, a file under another's name) treats it as absent and writes it
again.  Two keys lead to a kernel: the *front* key is made of the kernel's text, its request and what its
translation read (entries of kind `reads` say what that may be) and finds the launch plan without running a
pass; it names the *back* key, made of emitted source, flags and compiler, which finds the cubin, so that two
requests that emit one source share it.

runtime/cache_folder.py says which folders are trusted, and evicts what was not used for long.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import struct
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from warploom import options
from warploom.runtime.cache_folder import (
    FOLDER_MODE,
    PLAINLY,
    UNFINISHED,
    is_own_file,
    note_written,
    trusted_folder,
)
from warploom.runtime.mistakes import warn

_MAGIC = b"warploom-entry-2\n"
USED_AGAIN = (
    3600.0  # seconds after which a read entry is marked as used: not each reader writes to the disk
)


class DiskCache:
    """Entries by key in a folder; without a folder (`root` None) every read misses.

    limit: bytes that all entries together may take, more or less; the ones used longest ago give way.
    Reads and writes never raise for the sake of the file system: a cache that can't be used is no
    reason not to compile.
    """

    def __init__(self, root: Path | None, limit: int = options.CACHE_SIZE) -> None:
        self.root, self.limit = root, limit

    def load(self, kind: str, key: str) -> dict[str, bytes] | None:
        """The named parts of an entry, or None where there is none that is whole and of this key."""
        if self.root is None:
            return None
        try:
            return _unpack(_read(_path(self.root, kind, key)), kind, key)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, struct.error):
            return None

    def store(self, kind: str, key: str, parts: Mapping[str, bytes]) -> None:
        """Write an entry; the last writer of a key wins, readers see the old or the new one whole.

        Warns once a process where the folder takes no entries."""
        if self.root is None:
            return
        path, temporary, data = _path(self.root, kind, key), "", _pack(kind, key, parts)
        try:
            path.parent.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=UNFINISHED)
            with os.fdopen(handle, "wb") as out:
                out.write(data)
            Path(temporary).replace(path)
        except OSError as error:
            with contextlib.suppress(OSError):
                Path(temporary).unlink()
            _warn_unwritable(self.root, error.strerror or str(error))
            return
        note_written(self.root, len(data), self.limit)


def default_cache() -> DiskCache:
    """The cache in the folder of option WARPLOOM_CACHE, or in another one where that can't be trusted."""
    asked = options.get()
    return DiskCache(asked.cache and trusted_folder(asked.cache), asked.cache_size)


def _path(root: Path, kind: str, key: str) -> Path:
    return root / kind / key[:2] / key


def _read(path: Path) -> bytes:
    """The file's bytes.  OSError where it isn't there, or isn't this user's own."""
    handle = os.open(path, os.O_RDONLY | PLAINLY)
    with os.fdopen(handle, "rb") as file:
        found = os.fstat(handle)
        if not is_own_file(found):
            raise PermissionError(f"{path} is not this user's")
        if time.time() - found.st_mtime > USED_AGAIN:
            with contextlib.suppress(OSError):
                os.utime(path)
        return file.read()


@functools.cache
def _warn_unwritable(root: Path, reason: str) -> None:
    warn(
        f"the cache in {root} can't be written ({reason}): what is compiled now is compiled again by the "
        "next process\nhelp: make room or set WARPLOOM_CACHE to another folder, or to off"
    )


def _pack(kind: str, key: str, parts: Mapping[str, bytes]) -> bytes:
    sizes = {name: len(data) for name, data in parts.items()}
    head = json.dumps({"kind": kind, "key": key, "sizes": sizes}).encode()
    body = struct.pack("<I", len(head)) + head + b"".join(parts.values())
    return _MAGIC + hashlib.sha256(body).digest() + body


def _unpack(data: bytes, kind: str, key: str) -> dict[str, bytes]:
    """Inverse of _pack; one of several errors where the bytes are not whole, or another entry's."""
    start = len(_MAGIC) + 32
    body = data[start:]
    if not data.startswith(_MAGIC) or hashlib.sha256(body).digest() != data[len(_MAGIC) : start]:
        raise ValueError("broken entry")
    (length,) = struct.unpack_from("<I", body)
    parts, at = {}, 4 + length
    head = json.loads(body[4:at])
    if (head["kind"], head["key"]) != (kind, key):
        raise ValueError("another key's entry")
    for name, size in head["sizes"].items():
        parts[name] = body[at : at + size]
        at += size
    return parts


def digest(*parts: Any) -> str:
    """A key from values whose repr is the same in every process."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:40]


@functools.cache
def own_sources() -> str:
    """A hash of warploom's own text: another compiler is another key."""
    root = os.path.dirname(os.path.dirname(__file__))  # noqa: PTH120 (os.walk is several times faster)
    found = hashlib.sha256()
    for folder, folders, files in os.walk(root):
        folders.sort()
        for name in sorted(files):
            if name.endswith((".py", ".cuh")):
                path = f"{folder}/{name}"
                found.update(path.removeprefix(root).encode())
                with open(path, "rb") as file:  # noqa: PTH123
                    found.update(file.read())
    return found.hexdigest()[:40]


@functools.cache
def compiler_package() -> str:
    """The NVRTC wheel's version, without loading NVRTC: what a front key holds of the compiler.

    Read off the name of the wheel's metadata folder; importlib.metadata alone takes 20 ms to import.
    """
    for entry in sys.path:
        for found in Path(entry or ".").glob("nvidia_cuda_nvrtc-*.dist-info"):
            return found.name
    from warploom.runtime.nvrtc import compiler_version  # a toolkit's NVRTC: ask it

    return compiler_version()
