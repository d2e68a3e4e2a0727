"""The cache's folder: whether it may be trusted, and how it stays small.

Code is loaded from it, so whoever can write there can run what he likes on the user's GPU.  A folder is
trusted where nobody but the user and root can put a file in it or another folder in its place; else the
user's own folder among the temporary files is used.
"""

from __future__ import annotations

import contextlib
import functools
import os
import stat
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from warploom.runtime.mistakes import warn

ENTRY_MODE, FOLDER_MODE = 0o600, 0o700
# A link is not followed, and a pipe in a file's place not waited for.
PLAINLY = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
UNFINISHED = ".writing-"  # what the name of a file begins with until it is whole
ABANDONED = 3600.0  # seconds after which nobody is still writing such a file
KEPT = 0.75  # of the limit: so much is left when the oldest entries are evicted
BETWEEN_SWEEPS = 1 / 16  # of the limit: so much is stored before somebody looks at the whole folder
OVERFLOW_USER = 65534  # whom owners outside of a user namespace, its root among them, appear as
UNIT = 1 << 16  # bytes that one byte of the tally stands for
TALLY, LOCK = "written", "lock"


# ---- trust


@functools.cache
def trusted_folder(wanted: Path) -> Path | None:
    """The folder to use for the cache, made where it is not there: the wanted one, or with a warning one that
    only the user can write, or None where there is none either.  A process asks once a folder."""
    real = Path(os.path.realpath(wanted))
    with contextlib.suppress(OSError):
        real.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
    reason = distrust(real)
    if not reason:
        return real
    private = _private_folder()
    instead = f"the cache is {private}" if private else "nothing is cached on disk"
    help = "take the write permission from others (chmod go-w), or set WARPLOOM_CACHE to a folder of your own"
    warn(f"the cache folder {wanted} is not used, because {reason}; {instead}\nhelp: {help}")
    return private


def _private_folder() -> Path | None:
    """A folder of the user's own among the temporary files."""
    if not hasattr(os, "getuid"):
        return None
    folder = Path(os.path.realpath(tempfile.gettempdir())) / f"warploom-{os.getuid()}"
    with contextlib.suppress(OSError):
        folder.mkdir(FOLDER_MODE)
    return None if folder.is_symlink() or distrust(folder) else folder


def distrust(folder: Path) -> str:
    """Why somebody else could put files into an absolute folder without links, or another one in its place;
    "" where nobody can.  A folder that can't be looked at is nobody's: reading it will fail, too."""
    if not hasattr(os, "getuid"):  # no owners and modes to look at
        return ""
    for at in (folder, *folder.parents):
        try:
            found = at.lstat()
        except OSError:
            continue
        trusted = {os.getuid(), 0} | ({OVERFLOW_USER} if at != folder else set())
        if found.st_uid not in trusted:
            return f"{at} belongs to {_user(found.st_uid)}"
        # In a sticky folder only owners can remove or rename what is there, but all can add files.
        sticky = found.st_mode & stat.S_ISVTX and at != folder
        if not sticky and _open_to_others(found):
            return f"others can write in {at} (mode {stat.S_IMODE(found.st_mode):o})"
    return ""


def _open_to_others(found: os.stat_result) -> bool:
    if found.st_mode & stat.S_IWOTH:
        return True
    return bool(found.st_mode & stat.S_IWGRP) and not _is_own_group(found.st_gid)


def _is_own_group(group: int) -> bool:
    """Is it a group that has one member, this user (a "user private group")?"""
    import grp
    import pwd

    try:
        entry, user = grp.getgrgid(group), pwd.getpwuid(os.getuid())
    except KeyError:
        return False
    alone = not set(entry.gr_mem) - {user.pw_name}
    return alone and entry.gr_name == user.pw_name and user.pw_gid == group


def _user(number: int) -> str:
    import pwd

    try:
        return f"user {pwd.getpwuid(number).pw_name}"
    except KeyError:
        return f"user {number}"


def is_own_file(found: os.stat_result) -> bool:
    """Is it a plain file that only this user, or root, has written?"""
    if not hasattr(os, "getuid"):
        return True
    owned = found.st_uid in (os.getuid(), 0)
    return stat.S_ISREG(found.st_mode) and owned and not _open_to_others(found)


# ---- size


@dataclass(frozen=True)
class Entry:
    """A file of the cache.  used: when it was last read or written, in seconds; size: what it takes of the
    disk, in bytes."""

    path: Path
    used: float
    size: int

    @property
    def kind(self) -> str:
        return self.path.parts[-3]


def entries(root: Path) -> Iterator[Entry]:
    """All entries, whole or not: KIND/KE/KEY."""
    for folder in _folders(root):
        for sub in _folders(folder):
            for file in _scan(sub):
                if file.name.startswith(Path(sub).name) and (found := _entry(file)):
                    yield found


def abandoned(root: Path, age: float = ABANDONED) -> Iterator[Path]:
    """What writers that ended before their time have left."""
    now = time.time()
    for folder in _folders(root):
        for sub in _folders(folder):
            for file in _scan(sub):
                found = _entry(file) if file.name.startswith(UNFINISHED) else None
                if found is not None and now - found.used >= age:
                    yield found.path


def _scan(folder: Path | str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return list(found)
    except OSError:
        return []


def _folders(folder: Path | str) -> list[str]:
    return [x.path for x in _scan(folder) if x.is_dir(follow_symlinks=False)]


def _entry(file: os.DirEntry[str]) -> Entry | None:
    try:
        found = file.stat(follow_symlinks=False)
    except OSError:  # another process was faster
        return None
    return Entry(Path(file.path), found.st_mtime, -(-found.st_size // 4096) * 4096)


def note_written(root: Path, size: int, limit: int) -> None:
    """Counts what was stored, for all processes together, and sweeps when it has become much: a byte at the
    tally's end for each UNIT, which the system appends whole whoever else does."""
    with contextlib.suppress(OSError):
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | PLAINLY
        tally = os.open(root / TALLY, flags, ENTRY_MODE)
        try:
            os.write(tally, b"." * -(-size // UNIT))
            much = os.fstat(tally).st_size * UNIT > limit * BETWEEN_SWEEPS
        finally:
            os.close(tally)
        if much:
            sweep(root, limit)


def sweep(root: Path, limit: int) -> int:
    """Evicts the entries that were used longest ago, until the others take KEPT of the limit, if all take
    more than it; removes abandoned files.  Returns how many entries went.  One process at a time does it;
    readers and writers need not know: an evicted entry is absent, and an open file stays readable."""
    with _alone(root) as mine:
        if not mine:
            return 0
        with contextlib.suppress(OSError):
            os.close(os.open(root / TALLY, os.O_WRONLY | os.O_TRUNC | PLAINLY))
        for path in abandoned(root):
            _remove(path)
        found = sorted(entries(root), key=lambda e: e.used)
        total, gone = sum(e.size for e in found), 0
        if total <= limit:
            return 0
        for e in found:
            if total <= limit * KEPT:
                break
            gone += _remove(e.path)
            total -= e.size
        return gone


def _remove(path: Path) -> bool:
    try:
        path.unlink()
    except OSError:
        return False
    return True


@contextlib.contextmanager
def _alone(root: Path) -> Iterator[bool]:
    """Whether nobody else is sweeping; if so nobody else does meanwhile."""
    try:
        import fcntl
    except ImportError:  # no such locks here: two sweeps at a time do no harm
        yield True
        return
    try:
        lock = os.open(root / LOCK, os.O_RDWR | os.O_CREAT | PLAINLY, ENTRY_MODE)
    except OSError:
        yield False
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        yield False
    else:
        yield True
    finally:
        os.close(lock)


def clear(root: Path) -> int:
    """Removes all entries and what unfinished writers have left; returns how many entries."""
    for path in abandoned(root, age=0.0):
        _remove(path)
    gone = sum(_remove(e.path) for e in entries(root))
    with contextlib.suppress(OSError):
        os.truncate(root / TALLY, 0)
    return gone
