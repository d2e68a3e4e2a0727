"""The disk cache: whole entries or none, whatever happens to the files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warploom.runtime.cache import DiskCache, _pack, _unpack, digest, own_sources

PARTS = {"cubin": b"\x7fELF" + bytes(range(256)), "plan": b"{}", "empty": b""}


def only_file(root: Path) -> Path:
    (path,) = [p for p in root.rglob("*") if p.is_file()]
    return path


def test_entries_by_kind_and_key(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path)
    cache.store("front", "aa11", PARTS)
    assert cache.load("front", "aa11") == PARTS
    assert cache.load("back", "aa11") is None and cache.load("front", "aa12") is None


def test_no_folder_no_cache(tmp_path: Path) -> None:
    cache = DiskCache(None)
    cache.store("front", "aa11", PARTS)
    assert cache.load("front", "aa11") is None


@given(st.dictionaries(st.text(), st.binary()))
def test_packing_is_exact(parts: dict[str, bytes]) -> None:
    assert _unpack(_pack(parts)) == parts


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "other"])
def test_broken_entries_are_absent_and_written_again(tmp_path: Path, damage: str) -> None:
    cache = DiskCache(tmp_path)
    cache.store("front", "aa11", PARTS)
    path = only_file(tmp_path)
    data = bytearray(path.read_bytes())
    if damage == "cut":
        data = data[:-1]
    elif damage == "flip":
        data[len(data) // 2] ^= 1
    else:
        data = bytearray(b"" if damage == "empty" else b"something else")
    path.write_bytes(data)
    assert cache.load("front", "aa11") is None
    cache.store("front", "aa11", PARTS)
    assert cache.load("front", "aa11") == PARTS


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    cache = DiskCache(blocked)
    cache.store("front", "aa11", PARTS)
    assert cache.load("front", "aa11") is None


WRITER = """
import sys
from pathlib import Path
from warploom.runtime.cache import DiskCache
cache, me = DiskCache(Path(sys.argv[1])), sys.argv[2]
for i in range(300):
    parts = {"who": me.encode(), "data": me.encode() * 20000}
    cache.store("front", "aa11", parts)
    found = cache.load("front", "aa11")
    assert found is not None and set(found["data"]) == set(found["who"]), "a torn entry"
"""


def test_concurrent_writers_never_show_a_torn_entry(tmp_path: Path) -> None:
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path), me]) for me in "abc"]
    assert [w.wait(60) for w in writers] == [0, 0, 0]
    assert only_file(tmp_path).name == "aa11"  # nothing half written is left behind


def test_keys_tell_values_apart() -> None:
    assert digest(1, "a") == digest(1, "a")
    assert len({digest(x) for x in (1, "1", 1.0, (1,), True, None)}) == 6
    assert len(own_sources()) == 40
