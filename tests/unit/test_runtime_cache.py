"""The disk cache: whole entries or none, whatever happens to the files and whoever else is there."""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warploom.cli import main
from warploom.errors import WarploomWarning
from warploom.runtime import cache as cache_module
from warploom.runtime import cache_folder
from warploom.runtime.cache import (
    USED_AGAIN,
    DiskCache,
    _pack,
    _unpack,
    default_cache,
    digest,
    own_sources,
)
from warploom.runtime.cache_folder import (
    ABANDONED,
    LOCK,
    TALLY,
    UNFINISHED,
    distrust,
    entries,
    sweep,
    trusted_folder,
)

PARTS = {"cubin": b"\x7fELF" + bytes(range(256)), "plan": b"{}", "empty": b""}
needs_posix = pytest.mark.skipif(not hasattr(os, "getuid"), reason="no owners and modes")
needs_root = pytest.mark.skipif(
    not hasattr(os, "getuid") or os.getuid() != 0, reason="only root gives files away"
)


@pytest.fixture(autouse=True)
def a_process_of_its_own() -> Iterator[None]:
    """Each test warns and looks at folders as a fresh process does."""
    trusted_folder.cache_clear()
    cache_module._warn_unwritable.cache_clear()
    yield
    trusted_folder.cache_clear()


def only_file(root: Path) -> Path:
    (found,) = entries(root)
    return found.path


# ---- entries


def test_entries_by_kind_and_key(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path)
    cache.store("front", "aa11", PARTS)
    assert cache.load("front", "aa11") == PARTS
    assert cache.load("back", "aa11") is None and cache.load("front", "aa12") is None


def test_no_folder_no_cache() -> None:
    cache = DiskCache(None)
    cache.store("front", "aa11", PARTS)
    assert cache.load("front", "aa11") is None


@given(st.dictionaries(st.text(), st.binary()), st.text(), st.text())
def test_packing_is_exact(parts: dict[str, bytes], kind: str, key: str) -> None:
    assert _unpack(_pack(kind, key, parts), kind, key) == parts
    with pytest.raises(ValueError, match="another key"):
        _unpack(_pack(kind, key, parts), kind, key + "1")


def damaged(data: bytes, damage: str) -> bytes:
    match damage:
        case "cut":
            return data[:-1]
        case "flip":
            return bytes(b ^ (i == len(data) // 2) for i, b in enumerate(data))
        case "empty":
            return b""
        case "an older format":
            return data.replace(b"entry-2", b"entry-1")
    return b"something else"


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "an older format", "foreign"])
def test_broken_entries_are_absent_and_written_again(tmp_path: Path, damage: str) -> None:
    cache = DiskCache(tmp_path)
    cache.store("front", "aa11", PARTS)
    path = only_file(tmp_path)
    path.write_bytes(damaged(path.read_bytes(), damage))
    assert cache.load("front", "aa11") is None
    cache.store("front", "aa11", PARTS)
    assert cache.load("front", "aa11") == PARTS


@pytest.mark.parametrize("to", [("front", "aa22"), ("back", "aa11")])
def test_an_entry_under_anothers_name_is_absent(tmp_path: Path, to: tuple[str, str]) -> None:
    cache = DiskCache(tmp_path)
    cache.store("front", "aa11", PARTS)
    cache.store(*to, {"cubin": b"mine"})
    (first,) = tmp_path.glob("front/aa/aa11")
    first.replace(tmp_path / to[0] / to[1][:2] / to[1])
    assert cache.load(*to) is None


@pytest.mark.skipif(not hasattr(os, "O_NOFOLLOW"), reason="no O_NOFOLLOW")
def test_links_are_not_followed(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path)
    cache.store("front", "aa11", PARTS)
    path = only_file(tmp_path)
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert cache.load("front", "aa11") is None


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes")
def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path)
    cache.store("front", "aa11", PARTS)
    path = only_file(tmp_path)
    path.unlink()
    os.mkfifo(path)
    found: list[object] = []
    reader = threading.Thread(target=lambda: found.append(cache.load("front", "aa11")), daemon=True)
    reader.start()
    reader.join(10)
    assert found == [None]
    cache.store("front", "aa11", PARTS)
    assert cache.load("front", "aa11") == PARTS


@pytest.mark.skipif(not hasattr(os, "O_NOFOLLOW"), reason="links are followed")
@pytest.mark.parametrize("name", [TALLY, LOCK])
def test_a_link_in_a_file_s_place_is_not_followed(tmp_path: Path, name: str) -> None:
    """What is counted there, and emptied by a sweep, would be another file's bytes."""
    root, other = tmp_path / "cache", tmp_path / "other"
    other.write_text("of the user")
    cache = DiskCache(root)
    cache.store("front", "aa11", PARTS)
    (root / name).unlink(missing_ok=True)
    (root / name).symlink_to(other)
    cache.store("front", "bb22", PARTS)
    sweep(root, 1)
    assert other.read_text() == "of the user"
    cache.store("front", "cc33", PARTS)
    assert cache.load("front", "cc33") == PARTS


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes")
@pytest.mark.parametrize("name", [TALLY, LOCK])
def test_a_pipe_in_a_file_s_place_is_not_waited_for(tmp_path: Path, name: str) -> None:
    cache = DiskCache(tmp_path)
    cache.store("front", "aa11", PARTS)
    (tmp_path / name).unlink(missing_ok=True)
    os.mkfifo(tmp_path / name)

    def use() -> None:
        cache.store("front", "bb22", PARTS)
        sweep(tmp_path, 1 << 30)

    writer = threading.Thread(target=use, daemon=True)
    writer.start()
    writer.join(10)
    assert not writer.is_alive() and cache.load("front", "bb22") == PARTS


# ---- many processes

WRITER = """
import sys
from pathlib import Path
from warploom.runtime.cache import DiskCache
cache, me = DiskCache(Path(sys.argv[1]), 1 << 20), sys.argv[2]
for i in range(60):
    parts = {"who": me.encode(), "data": me.encode() * 20000}
    cache.store("front", "aa11", parts)
    found = cache.load("front", "aa11")
    assert found is None or set(found["data"]) == set(found["who"]), "a torn entry"
    cache.store("front", f"{me}b{i}", parts)
"""


def start(code: str, *arguments: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", code, *map(str, arguments)])


def test_eight_writers_never_show_a_torn_entry(tmp_path: Path) -> None:
    """They write one key and their own, and evict each other's entries."""
    writers = [start(WRITER, tmp_path, me) for me in "abcdefgh"]
    assert [w.wait(300) for w in writers] == [0] * 8
    left = [p for p in tmp_path.rglob("*") if p.name.startswith(UNFINISHED)]
    assert left == []
    assert sum(e.size for e in entries(tmp_path)) < 2 << 20  # the limit, and a sweep's distance


KILLED = """
import os, sys
from pathlib import Path
from warploom.runtime.cache import DiskCache
real = os.fdopen
class Slow:
    def __init__(self, *a): self.file = real(*a)
    def __enter__(self): return self
    def __exit__(self, *a): pass
    def write(self, data):
        self.file.write(data[:100]); self.file.flush(); print("half", flush=True)
        import time; time.sleep(600)
os.fdopen = Slow
DiskCache(Path(sys.argv[1])).store("front", "aa11", {"cubin": b"x" * 100000})
"""


def test_a_killed_writer_leaves_no_entry_and_its_file_goes(tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None and writer.stdout.readline() == b"half\n"
        writer.send_signal(signal.SIGKILL)
    (half,) = tmp_path.rglob(f"{UNFINISHED}*")
    cache = DiskCache(tmp_path, limit=1)
    assert cache.load("front", "aa11") is None and list(entries(tmp_path)) == []
    cache.store("front", "aa12", PARTS)
    assert half.exists()  # somebody may still be writing it
    long_ago = time.time() - ABANDONED - 1
    os.utime(half, (long_ago, long_ago))
    cache.store("front", "aa12", PARTS)
    assert not half.exists()


# ---- a disk that takes nothing


def full(*_: Any, **__: Any) -> Any:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("at", ["tempfile.mkstemp", "os.fdopen"])
def test_a_full_disk_is_one_warning(tmp_path: Path, at: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(f"warploom.runtime.cache.{at}", full)
    cache = DiskCache(tmp_path)
    with pytest.warns(WarploomWarning, match="No space left") as told:
        cache.store("front", "aa11", PARTS)
        cache.store("front", "aa12", PARTS)
    assert len(told) == 1 and cache.load("front", "aa11") is None
    assert list(tmp_path.rglob(f"{UNFINISHED}*")) == []


def test_a_file_in_the_folders_place_is_a_warning(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    cache = DiskCache(blocked)
    with pytest.warns(WarploomWarning, match="can't be written"):
        cache.store("front", "aa11", PARTS)
    assert cache.load("front", "aa11") is None


# ---- whose folder it is


@pytest.fixture
def private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the cache goes when the folder asked for is refused."""
    temporary = tmp_path / "temporary"
    temporary.mkdir(0o700)
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    return temporary / f"warploom-{os.getuid()}"


def asked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> DiskCache:
    monkeypatch.setenv("WARPLOOM_CACHE", str(folder))
    return default_cache()


@needs_posix
def test_a_folder_of_ones_own_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cache = asked(tmp_path / "new" / "cache", monkeypatch)
    assert cache.root == (tmp_path / "new" / "cache").resolve()
    assert stat.S_IMODE(cache.root.stat().st_mode) == 0o700


@needs_posix
@pytest.mark.parametrize("where", ["itself", "above", "sticky itself"])
def test_a_folder_that_others_can_write_is_refused(
    where: str, tmp_path: Path, private: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "above" / "cache"
    folder.mkdir(parents=True)
    planted = DiskCache(folder)
    planted.store("front", "aa11", {"cubin": b"planted"})
    (folder.parent if where == "above" else folder).chmod(0o1777 if "sticky" in where else 0o777)
    with pytest.warns(WarploomWarning, match="others can write in") as told:
        cache = asked(folder, monkeypatch)
        assert asked(folder, monkeypatch).root == cache.root
    assert len(told) == 1 and "chmod go-w" in str(told[0].message)
    assert cache.root == private and stat.S_IMODE(private.stat().st_mode) == 0o700
    assert cache.load("front", "aa11") is None
    cache.store("front", "aa11", PARTS)
    assert cache.load("front", "aa11") == PARTS


@needs_posix
def test_a_sticky_folder_above_is_safe(tmp_path: Path) -> None:
    folder = tmp_path / "shared" / "cache"
    folder.mkdir(parents=True, mode=0o700)
    folder.parent.chmod(0o1777)
    assert distrust(folder.resolve()) == ""


@needs_root
@pytest.mark.parametrize("whose", ["itself", "above"])
def test_a_folder_of_another_user_is_refused(
    whose: str, tmp_path: Path, private: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "above" / "cache"
    folder.mkdir(parents=True)
    os.chown(folder if whose == "itself" else folder.parent, 12345, -1)
    with pytest.warns(WarploomWarning, match="belongs to user 12345"):
        assert asked(folder, monkeypatch).root == private


@needs_root
def test_an_entry_of_another_user_is_absent(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path)
    cache.store("front", "aa11", PARTS)
    os.chown(only_file(tmp_path), 12345, -1)
    assert cache.load("front", "aa11") is None


@needs_root
def test_where_the_private_folder_is_anothers_nothing_is_cached(
    tmp_path: Path, private: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "cache"
    folder.mkdir()
    folder.chmod(0o777)
    private.mkdir()
    os.chown(private, 12345, -1)
    with pytest.warns(WarploomWarning, match="nothing is cached on disk"):
        assert asked(folder, monkeypatch).root is None


@needs_posix
def test_a_link_to_ones_own_folder_is_followed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "real").mkdir(0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert asked(tmp_path / "link", monkeypatch).root == (tmp_path / "real").resolve()


@needs_posix
def test_a_group_of_ones_own_may_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "cache"
    folder.mkdir()
    folder.chmod(0o770)
    for own in (True, False):
        monkeypatch.setattr(cache_folder, "_is_own_group", lambda group, own=own: own)
        assert (distrust(folder.resolve()) == "") == own


# ---- size


def stored(cache: DiskCache, keys: str, size: int = 40_000) -> None:
    for key in keys.split():
        cache.store("back", key, {"cubin": b"x" * size})


def ages(root: Path, hours: dict[str, float]) -> None:
    for e in entries(root):
        if e.path.name in hours:
            used = time.time() - 3600 * hours[e.path.name]
            os.utime(e.path, (used, used))


def test_what_was_used_longest_ago_gives_way(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, limit=200_000)
    stored(cache, "aa1 bb2 cc3 dd4")
    ages(tmp_path, {"aa1": 9, "bb2": 8, "cc3": 7, "dd4": 6})
    assert cache.load("back", "aa1") is not None  # used again
    stored(cache, "ee5")
    here = {e.path.name for e in entries(tmp_path)}
    assert here == {"aa1", "dd4", "ee5"}
    assert cache.load("back", "bb2") is None and cache.load("back", "aa1") is not None


def test_reading_does_not_always_write(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path)
    stored(cache, "aa1")
    for hours, is_marked in ((0.5, False), (USED_AGAIN / 3600 + 0.1, True)):
        ages(tmp_path, {"aa1": hours})
        before = only_file(tmp_path).stat().st_mtime
        cache.load("back", "aa1")
        assert (only_file(tmp_path).stat().st_mtime > before) == is_marked


def test_nobody_looks_at_the_folder_before_much_was_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    swept: list[Path] = []
    monkeypatch.setattr(cache_folder, "sweep", lambda root, limit: swept.append(root))
    cache = DiskCache(tmp_path, limit=64 << 20)
    stored(cache, " ".join(f"aa{i}" for i in range(64)))  # a byte of the tally each
    assert swept == [] and (tmp_path / TALLY).stat().st_size == 64
    stored(cache, "bb1")
    assert swept == [tmp_path]


def test_what_is_no_entry_stays(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, limit=1)
    foreign = tmp_path / "back" / "aa" / "notes.txt"
    stored(cache, "aa1")
    foreign.write_text("mine")
    stored(cache, "aa2 aa3")
    cache_folder.clear(tmp_path)
    assert foreign.read_text() == "mine" and list(entries(tmp_path)) == []


def test_the_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WARPLOOM_CACHE", str(tmp_path))
    monkeypatch.setenv("WARPLOOM_CACHE_SIZE", "3M")
    stored(default_cache(), "aa1 bb2")
    assert main(["cache", "info"]) == 0
    text = capsys.readouterr().out
    assert str(tmp_path) in text and "80 KiB of 3 MiB" in text and "back     2 entries" in text
    assert main(["cache", "clear"]) == 0
    assert "2 entries removed" in capsys.readouterr().out
    assert list(entries(tmp_path)) == []
    monkeypatch.setenv("WARPLOOM_CACHE", "off")
    assert main(["cache", "info"]) == main(["cache", "clear"]) == 0
    assert "nothing is cached" in capsys.readouterr().out


# ---- keys


def test_keys_tell_values_apart() -> None:
    assert digest(1, "a") == digest(1, "a")
    assert len({digest(x) for x in (1, "1", 1.0, (1,), True, None)}) == 6
    assert len(own_sources()) == 40
