"""How a call's arguments reach the process that times: shared, or through a pipe; never through a file."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.fake_driver import FakeDriver, GpuArray
from tests.unit.test_runtime_autotune import order
from warploom.runtime import launch, snapshot, worker
from warploom.runtime.args import _PROBES, KEYS, fields_of, spec_of
from warploom.runtime.binding import Call
from warploom.runtime.snapshot import Region, Snapshot, handle_of, kept_bytes
from warploom.runtime.worker import TimingError, Worker
from warploom.schedule.model import Knobs

# A worker whose device memory is a bytearray a region, and whose "timing" is a checksum of what it holds.
# Regions that come with the handle b"open" are 'had' by it; any other handle can't be opened here.
PRETENDED = """
import hashlib, os, sys
from warploom.runtime import worker
class Arguments:
    def __init__(self, device, regions, values, restore, zero):
        if any(handle and handle[0] == b"crash" for _, handle in regions): os._exit(7)
        self.data = [bytearray(size) for size, _ in regions]
        self.wanted = [i for i, (_, h) in enumerate(regions) if not h or h[0] != b"open"]
    def fill(self, kept, pipe):
        for i, n in zip(self.wanted, kept, strict=True):
            data = self.data[i]
            data[:n] = worker._read(pipe, n)
            data[:] = (bytes(data[:n]) * (len(data) // max(1, n) + 1))[:len(data)]
    def is_broken(self): return False
    def time(self, cubin, plan, grid):
        found = hashlib.sha256(b"|".join(self.data)).digest()
        return int.from_bytes(found[:4], "big")
worker._Arguments = Arguments
worker.main()
"""


def checksum(*regions: bytes) -> int:
    import hashlib

    return int.from_bytes(hashlib.sha256(b"|".join(regions)).digest()[:4], "big")


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDriver]:
    fake = FakeDriver()
    monkeypatch.setattr(launch, "driver", lambda: fake)
    yield fake
    for table in (_PROBES, KEYS):
        table.pop(GpuArray, None)  # type: ignore[attr-defined]


def call_of(**values: Any) -> Call:
    fields = tuple(f for name, v in values.items() for f in fields_of(name, v))
    specs = tuple(spec_of(f.value, f.array, f.name) for f in fields)
    return Call(specs, fields, (), Knobs())


def pretended(taken: Snapshot, limit: float = 20.0) -> Worker:
    return Worker(taken, entry=f"exec({PRETENDED!r})", limit=limit)


def held(w: Worker) -> int:
    """The checksum of what the worker's regions hold."""
    try:
        return int(w.time(order("fine"), (1, 1, 1)))
    finally:
        w.close()


def byte(pointer: int) -> bytes:
    """What the pretended driver has at an address."""
    return bytes([pointer % 251])


# ---- what is taken


def test_snapshots_keep_what_is_shared(gpu: FakeDriver) -> None:
    a, b = GpuArray(4096 + 16, (100,)), GpuArray(4096 + 216, (100,))  # overlapping
    c = GpuArray(1 << 20, (8,), "int8")
    taken = snapshot.snapshot(call_of(a=a, b=b, n=7, c=c), 0, restore=[1], zero=[3])
    assert taken.values == ((0, 16), (0, 216), 7, (1, 0))
    assert taken.regions == (
        Region(4096, 616, False, ("a", "b")),
        Region(1 << 20, 8, True, ("c",)),
    )
    assert taken.restore == ((0, 216, 400),) and taken.zero == ((1, 0, 8),)


def test_neighbours_are_copied_one_by_one(gpu: FakeDriver) -> None:
    """They may be of two allocations."""
    a, b = GpuArray(4096, (64,)), GpuArray(4096 + 256, (64,))
    taken = snapshot.snapshot(call_of(a=a, b=b), 0, restore=[1], zero=[])
    assert [r.size for r in taken.regions] == [256, 256] and taken.values == ((0, 0), (1, 0))
    assert taken.restore == ((1, 0, 256),)


def test_integers_stay_whole_and_only_floats_are_cut(
    gpu: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The review's case: beside a large array an index array was cut to its first bytes, too."""
    monkeypatch.setattr(snapshot, "PIPED_BYTES", 64 << 10)
    call = call_of(
        x=GpuArray(1 << 30, (1 << 16,)),
        y=GpuArray(1 << 31, (1 << 15,)),
        index=GpuArray(1 << 20, (1 << 15,), "int32"),
        shares=GpuArray((1 << 20) + (1 << 16), (2,)),  # a float inside the integers' memory
    )
    taken = snapshot.snapshot(call, 0, [], [])
    by_name = dict(zip([r.names for r in taken.regions], kept_bytes(taken.regions), strict=True))
    assert by_name[("index", "shares")] == 1 << 17
    assert by_name[("x",)] == 43_520 and by_name[("y",)] == 21_760  # two thirds, one: of 64 KiB
    assert all(n % snapshot.ALIGNMENT == 0 for n in by_name.values())  # no number is torn
    w = pretended(taken)
    assert held(w)
    assert w.notes == (
        "x: the first 43,520 of 262,144 bytes, repeated",
        "y: the first 21,760 of 131,072 bytes, repeated",
    )


# ---- the two roads


def test_what_can_not_be_shared_goes_through_the_pipe_in_pieces(
    gpu: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    copy_out = gpu.copy_out

    def counted(device: int, pointer: int, into: Any) -> None:
        asked.append(len(into))
        copy_out(device, pointer, into)

    monkeypatch.setattr(gpu, "copy_out", counted)
    monkeypatch.setattr(snapshot, "PIECE", 1 << 18)
    size = (1 << 20) + 4
    taken = snapshot.snapshot(call_of(x=GpuArray(4096, (size // 4,))), 0, [], [])
    expected = b"".join(
        byte(4096 + at) * n
        for at, n in zip(range(0, size, 1 << 18), [1 << 18] * 4 + [4], strict=True)
    )
    assert held(pretended(taken)) == checksum(expected)
    assert asked == [1 << 18] * 4 + [4]


def test_shared_memory_is_not_read_here(gpu: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu.shared[4096] = b"open", 256, 1 << 20
    monkeypatch.setattr(gpu, "copy_out", lambda *_: pytest.fail("read"))
    taken = snapshot.snapshot(call_of(x=GpuArray(4096, (1000,))), 0, [], [])
    assert handle_of(0, taken.regions[0]) == (b"open", 256)
    w = pretended(taken)
    assert held(w) == checksum(bytes(4000)) and w.notes == ()


def test_a_region_beyond_the_allocation_is_not_shared(gpu: FakeDriver) -> None:
    gpu.shared[4096] = b"open", 0, 3999
    assert handle_of(0, Region(4096, 4000)) is None
    assert handle_of(0, Region(8192, 4000)) is None


@pytest.mark.parametrize("handle", [b"unknown here", b"crash"])
def test_a_worker_that_can_not_open_gets_the_bytes(gpu: FakeDriver, handle: bytes) -> None:
    """Whether the driver says no, or the process dies of it."""
    gpu.shared[4096] = handle, 0, 1 << 20
    gpu.shared[8192] = b"open", 0, 1 << 20
    call = call_of(x=GpuArray(4096, (10,)), y=GpuArray(8192, (10,)))
    both = byte(4096) * 40, (byte(8192) * 40 if handle == b"crash" else bytes(40))
    assert held(pretended(snapshot.snapshot(call, 0, [], []))) == checksum(*both)


def test_a_worker_that_stops_reading_is_given_up(
    gpu: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "START_LIMIT", 0.5)
    taken = snapshot.snapshot(call_of(x=GpuArray(4096, (1 << 20,))), 0, [], [])
    deaf = "import time; time.sleep(60)"
    w = Worker(taken, entry=deaf)
    with pytest.raises(TimingError, match=r"no answer in 0\.5 s: it does not start"):
        w.time(order("fine"), (1, 1, 1))
    assert w._process is None


FULL_DISK = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))  # a write to any file fails
from tests.unit import test_runtime_snapshot as t
from warploom.runtime import launch, snapshot
fake = t.FakeDriver()
launch.driver = lambda: fake
taken = snapshot.snapshot(t.call_of(x=t.GpuArray(4096, (1 << 20,))), 0, [], [])
print("same" if t.held(t.pretended(taken)) == t.checksum(t.byte(4096) * (1 << 22)) else "other")
"""


def test_a_full_disk_is_no_obstacle() -> None:
    """4 MB reach the worker in a process that can't write one byte to a file, /dev/shm's among them."""
    root = Path(__file__).parent.parent.parent
    done = subprocess.run(
        [sys.executable, "-B", "-c", FULL_DISK],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "same\n"), done.stderr


def test_many_open_files_are_no_obstacle(gpu: FakeDriver, tmp_path: Path) -> None:
    """File numbers beyond 1024, which select() refuses."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2048:
        pytest.skip("the machine allows fewer files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    files = [(tmp_path / "x").open("w") for _ in range(1100)]
    try:
        taken = snapshot.snapshot(call_of(x=GpuArray(4096, (10,))), 0, [], [])
        assert held(pretended(taken)) == checksum(byte(4096) * 40)
    finally:
        for file in files:
            file.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
