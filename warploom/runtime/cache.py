"""The disk cache: compiled kernels and tuning results, shared by processes.

An entry is one file that appears by atomic rename and carries a checksum: whoever finds it broken
(a full disk, another version's format) treats it as absent and writes it again.  Two keys lead to a
kernel: the *front* key is made of the kernel's text and its request and finds the launch plan without
running a pass; it names the *back* key, made of emitted source, flags and compiler, which finds the
cubin, so that two requests that emit one source share it.
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
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import warploom
from warploom import options

_MAGIC = b"warploom-entry-1\n"


class DiskCache:
    """Entries by key in a folder; without a folder (`root` None) every read misses.

    Reads and writes never raise for the sake of the file system: a cache that can't be used is no
    reason not to compile.
    """

    def __init__(self, root: Path | None) -> None:
        self.root = root

    def _path(self, kind: str, key: str) -> Path | None:
        return None if self.root is None else self.root / kind / key[:2] / key

    def load(self, kind: str, key: str) -> dict[str, bytes] | None:
        """The named parts of an entry, or None where there is none that is whole."""
        path = self._path(kind, key)
        if path is None:
            return None
        try:
            return _unpack(path.read_bytes())
        except (OSError, ValueError, struct.error):
            return None

    def store(self, kind: str, key: str, parts: Mapping[str, bytes]) -> None:
        """Write an entry; the last writer of a key wins, readers see the old or the new one whole."""
        path = self._path(kind, key)
        if path is None:
            return
        temporary = ""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".writing-")
            with os.fdopen(handle, "wb") as out:
                out.write(_pack(parts))
            Path(temporary).replace(path)
        except OSError:
            with contextlib.suppress(OSError):
                Path(temporary).unlink()


def default_cache() -> DiskCache:
    """The cache in the folder of option WARPLOOM_CACHE."""
    return DiskCache(options.get().cache)


def _pack(parts: Mapping[str, bytes]) -> bytes:
    sizes = json.dumps({name: len(data) for name, data in parts.items()}).encode()
    body = struct.pack("<I", len(sizes)) + sizes + b"".join(parts.values())
    return _MAGIC + hashlib.sha256(body).digest() + body


def _unpack(data: bytes) -> dict[str, bytes]:
    """Inverse of _pack; ValueError or struct.error where the bytes are not whole."""
    start = len(_MAGIC) + 32
    body = data[start:]
    if not data.startswith(_MAGIC) or hashlib.sha256(body).digest() != data[len(_MAGIC) : start]:
        raise ValueError("broken entry")
    (length,) = struct.unpack_from("<I", body)
    parts, at = {}, 4 + length
    for name, size in json.loads(body[4:at]).items():
        parts[name] = body[at : at + size]
        at += size
    return parts


def digest(*parts: Any) -> str:
    """A key from values whose repr is the same in every process."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:40]


@functools.cache
def own_sources() -> str:
    """A hash of warploom's own text: another compiler is another key."""
    root = os.path.dirname(warploom.__file__)  # noqa: PTH120 (os.walk is several times faster)
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
