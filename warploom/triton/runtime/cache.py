"""triton.runtime.cache: folders of files by key, which libraries keep things in or subclass.

What kernels compile to is kept elsewhere (WARPLOOM_CACHE): nothing here is asked for it.
"""

from __future__ import annotations

import base64
import hashlib
import importlib
import json
import os
import tempfile
from abc import ABC, abstractmethod
from pathlib import Path

from warploom.runtime.cache import own_sources
from warploom.triton import knobs

__all__ = [
    "CacheManager",
    "FileCacheManager",
    "default_cache_dir",
    "default_dump_dir",
    "default_override_dir",
    "get_cache_manager",
    "get_dump_manager",
    "get_override_manager",
    "make_so_cache_key",
    "triton_key",
]


def _default(kind: str, folder: str) -> str:
    home = Path(os.environ.get("TRITON_HOME", Path.home()))
    return os.environ.get(f"TRITON_{kind}_DIR", str(home / ".triton" / folder))


def default_cache_dir() -> str:
    """TRITON_CACHE_DIR, or .triton/cache of TRITON_HOME or the home folder."""
    return str(knobs.cache.dir or _default("CACHE", "cache"))


def default_dump_dir() -> str:
    """TRITON_DUMP_DIR, or .triton/dump."""
    return _default("DUMP", "dump")


def default_override_dir() -> str:
    """TRITON_OVERRIDE_DIR, or .triton/override."""
    return _default("OVERRIDE", "override")


class CacheManager(ABC):
    """Files of one key; groups of them by one name."""

    def __init__(self, key: str, override: bool = False, dump: bool = False) -> None:
        self.key = key

    @abstractmethod
    def get_file(self, filename: str) -> str | None: ...

    @abstractmethod
    def put(self, data: bytes | str, filename: str, binary: bool = True) -> str: ...

    @abstractmethod
    def get_group(self, filename: str) -> dict[str, str] | None: ...

    @abstractmethod
    def put_group(self, filename: str, group: dict[str, str]) -> str: ...


class FileCacheManager(CacheManager):
    """In a folder: of the cache, or of what is dumped or taken instead.  A file is written whole."""

    def __init__(self, key: str, override: bool = False, dump: bool = False) -> None:
        super().__init__(key)
        kinds = {(False, True): default_dump_dir, (True, False): default_override_dir}
        self.cache_dir = str(Path(kinds.get((override, dump), default_cache_dir)(), key))
        self.lock_path = str(Path(self.cache_dir, "lock"))
        if not override:
            Path(self.cache_dir).mkdir(parents=True, exist_ok=True)

    def _make_path(self, filename: str) -> str:
        return str(Path(self.cache_dir, filename))

    def has_file(self, filename: str) -> bool:
        return Path(self._make_path(filename)).exists()

    def get_file(self, filename: str) -> str | None:
        """The file's path; None where there is none."""
        return self._make_path(filename) if self.has_file(filename) else None

    def put(self, data: bytes | str, filename: str, binary: bool = True) -> str:
        """Writes a file; gives its path."""
        given = data if isinstance(data, bytes) else str(data).encode()
        with tempfile.NamedTemporaryFile(dir=self.cache_dir, delete=False) as file:
            file.write(given)
        return str(Path(file.name).replace(self._make_path(filename)))

    def get_group(self, filename: str) -> dict[str, str] | None:
        """The files that a group has, and still are: name → path; None where there is no such group."""
        path = self.get_file(f"__grp__{filename}")
        if path is None:
            return None
        names: dict[str, str] = json.loads(Path(path).read_text())["child_paths"]
        return {name: at for name, at in names.items() if Path(at).exists()}

    def put_group(self, filename: str, group: dict[str, str]) -> str:
        """Writes down a group of files: name → path."""
        return self.put(json.dumps({"child_paths": group}), f"__grp__{filename}", binary=False)


def _folder(key: str) -> str:
    """A key as a folder's name, in which case doesn't tell."""
    return base64.b32encode(bytes.fromhex(key)).decode().rstrip("=")


def get_cache_manager(key: str) -> CacheManager:
    """The cache of a key (hexadecimal), by the class "module:Class" of TRITON_CACHE_MANAGER, if it is set."""
    chosen = os.environ.get("TRITON_CACHE_MANAGER")
    if chosen is None:
        return FileCacheManager(_folder(key))
    module, _, name = chosen.partition(":")
    made: CacheManager = getattr(importlib.import_module(module), name)(_folder(key))
    return made


def get_override_manager(key: str) -> CacheManager:
    return FileCacheManager(_folder(key), override=True)


def get_dump_manager(key: str) -> CacheManager:
    return FileCacheManager(_folder(key), dump=True)


def triton_key() -> str:
    """What compiled code depends on of the compiler: its sources."""
    return str(own_sources())


def make_so_cache_key(version_hash: str, signature: object, constants: object, ids: object) -> str:
    """A key of these four."""
    return hashlib.sha256(f"{version_hash}-{signature}-{constants}-{ids}".encode()).hexdigest()
