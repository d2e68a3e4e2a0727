"""How arguments reach the timing process on a GPU: shared by CUDA IPC, else through the pipe, bit for bit."""

from __future__ import annotations

import os
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest

import warploom as wl
import warploom.language as tl
from warploom.runtime.args import fields_of, spec_of
from warploom.runtime.binding import Call
from warploom.runtime.launch import CudaDriver, driver
from warploom.runtime.snapshot import handle_of, snapshot
from warploom.runtime.worker import Worker
from warploom.schedule.model import Knobs

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("own_cache")]
torch = pytest.importorskip("torch")

# The real arguments, but a "timing" is a checksum of what the worker's memory holds, negative where bytes
# came through the pipe.
CHECKSUM = """
import zlib
from warploom.runtime import worker
class Arguments(worker._Arguments):
    def time(self, cubin, plan, grid):
        found = 0
        for base, size in zip(self.bases, self.sizes, strict=True):
            data = bytearray(size)
            self.driver.copy_out(self.device, base, data)
            found = zlib.crc32(data, found)
        return -found if self.wanted else found
worker._Arguments = Arguments
worker.main()
"""


@wl.jit
def gather(x_ptr: Any, index_ptr: Any, out_ptr: Any, n: Any, BLOCK: tl.constexpr) -> None:
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    index = tl.load(index_ptr + at, mask=at < n, other=0)
    tl.store(out_ptr + at, tl.load(x_ptr + index, mask=at < n, other=0.0), mask=at < n)


def call_of(*tensors: Any) -> Call:
    fields = tuple(f for i, t in enumerate(tensors) for f in fields_of(f"x{i}", t))
    return Call(tuple(spec_of(f.value, f.array, f.name) for f in fields), fields, (), Knobs())


def bytes_of(tensor: Any) -> bytes:
    return bytes(tensor.contiguous().view(torch.uint8).cpu().numpy().tobytes())


def checksum_there(*tensors: Any) -> int:
    """What a worker finds in its copies of the tensors; they may not lie in one another's 256 bytes."""
    compiled = gather.compile(["*fp32:16", "*i32:16", "*fp32:16", "i32"], {"BLOCK": 128})
    w = Worker(snapshot(call_of(*tensors), 0, [], []), entry=f"exec({CHECKSUM!r})")
    try:
        return int(w.time(compiled, (1, 1, 1)))
    finally:
        w.close()


def checksum_here(*tensors: Any) -> int:
    found = 0
    for t in sorted(tensors, key=lambda t: t.data_ptr()):
        found = zlib.crc32(bytes_of(t), found)
    return found


def tensors() -> tuple[Any, ...]:
    """One of a large block of its own, two of a small block that the caching allocator shares out."""
    torch.manual_seed(0)
    return (
        torch.randn(8 << 20, device="cuda"),
        torch.randint(0, 1 << 30, (1000,), device="cuda", dtype=torch.int32),
        torch.randn(500, device="cuda", dtype=torch.float32),
    )


def test_torch_tensors_are_shared() -> None:
    given = tensors()
    before = checksum_here(*given)
    for r in snapshot(call_of(*given), 0, [], []).regions:
        found = handle_of(0, r)
        assert found is not None and len(found[0]) == 64 and found[1] >= 0
    assert checksum_there(*given) == before
    assert checksum_here(*given) == before


def test_a_pending_write_is_seen() -> None:
    """What the current stream still does to an argument comes first."""
    (x, *_) = tensors()
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda._sleep(100_000_000)
        x.fill_(7.0)
        assert checksum_there(x) == zlib.crc32(b"\0\0\xe0\x40" * x.numel())


def test_through_the_pipe_where_memory_is_not_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CudaDriver, "share", lambda *_: None)
    given = tensors()
    assert checksum_there(*given) == -checksum_here(*given)


def test_a_handle_that_can_not_be_opened_costs_only_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CudaDriver, "share", lambda *_: (bytes(64), 0, 1 << 40))
    given = tensors()
    assert checksum_there(*given) == -checksum_here(*given)


def test_expandable_segments() -> None:
    """Memory of torch's other allocator, which CUDA IPC refuses: through the pipe, in a process of its own."""
    if os.environ.get("PYTORCH_CUDA_ALLOC_CONF") == "expandable_segments:True":
        given = tensors()
        assert abs(checksum_there(*given)) == checksum_here(*given)
        return
    here = f"{Path(__file__).resolve()}::test_expandable_segments"
    env = {**os.environ, "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n",
        "0",
        "-p",
        "no:cacheprovider",
        "-m",
        "gpu",
        here,
    ]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_tuned_gather_reads_its_whole_index() -> None:
    """128 MB of indices that only ascend, more than a small /dev/shm holds."""
    n = 32 << 20
    x = torch.randn(n, device="cuda")
    index = torch.arange(n, device="cuda", dtype=torch.int32)
    out = torch.full_like(x, torch.nan)
    configs = [wl.Config({"BLOCK": b}) for b in (256, 1024)]
    kernel = wl.autotune(configs, key=["n"])(wl.jit(gather.fn))
    kernel[lambda meta: (wl.cdiv(n, meta["BLOCK"]),)](x, index, out, n)
    assert torch.equal(out, x)
    (verdict,) = kernel.verdicts.values()
    assert len(verdict.times) == 2 and not verdict.skipped and verdict.notes == ()


def test_the_parent_is_told_the_allocation() -> None:
    """Handle of the whole block, and where in it the tensor begins."""
    block = torch.zeros(16 << 20, device="cuda", dtype=torch.uint8)
    first, second = (driver().share(0, block.data_ptr() + at) for at in (0, 4096))
    assert first is not None and second is not None
    assert first[0] == second[0] and second[1] - first[1] == 4096 == first[2] - second[2]
