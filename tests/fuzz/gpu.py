"""Launches a case on the GPU and compares with the tree.  Runs in a process of its own: a kernel may hang or fault."""

from __future__ import annotations

import os
import traceback
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from tests.e2e import road
from tests.fuzz.case import Case
from tests.fuzz.draw import draw
from warploom.errors import WarploomError, WarploomWarning
from warploom.runtime import request

TORCH = {
    "float8_e4m3fn": "float8_e4m3fn", "float8_e5m2": "float8_e5m2", "bfloat16": "bfloat16", "float16": "float16",
    "float32": "float32", "float64": "float64", **{n: n for b in (8, 16, 32, 64) for n in (f"int{b}", f"uint{b}")},
}  # fmt: skip


def work(task: tuple[str, int, str], folder: Path) -> dict[str, Any]:
    """The record of one launch.  Where the process can't launch again it says `stop`."""
    _, seed, _ = task
    record: dict[str, Any] = {"what": "gpu", "seed": seed, "status": "ok", "code": ""}
    with Path(os.devnull).open("w") as nowhere:  # what kernels print
        os.dup2(nowhere.fileno(), 1)
    try:
        wrong = launch(Case(draw(seed)), folder)
        if wrong:
            record |= {"status": "wrong", "code": "gpu", "said": "; ".join(wrong)}
    except Exception as e:
        said = "".join(traceback.format_exception(e))[-2000:]
        code = getattr(e, "code", "") if isinstance(e, WarploomError) else ""
        record |= {
            "status": "error",
            "code": f"gpu {type(e).__name__} {code}".strip(),
            "said": said,
        }
        record["stop"] = True
    return record


def launch(case: Case, folder: Path) -> list[str]:
    """What the arrays hold wrongly after a launch."""
    import torch

    # The workers on the CPU compiled one schedule only; so does this process where the cache has nothing.
    request.HEADROOMS = ()
    buffers = {
        name: torch.from_numpy(road.around(a).copy()).cuda() for name, a in case.data.items()
    }
    tensors = {name: _view(torch, buffers[name], a) for name, a in case.data.items()}
    kernel = case.load(folder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", WarploomWarning)
        kernel[case.kernel.grid](*case.arguments(tensors), **case.kernel.knobs)
    torch.cuda.synchronize()
    found = {}
    for name, a in case.data.items():
        found[name] = road.clone(a)
        road.around(found[name])[...] = buffers[name].cpu().numpy()
    return case.differences(found)


def _view(torch: Any, buffer: Any, a: np.ndarray[Any, Any]) -> Any:
    """The array inside of its bytes with guards, as a tensor."""
    item = a.itemsize
    inside = buffer[road.GUARD :]
    inside = inside[: inside.numel() // item * item].view(getattr(torch, TORCH[a.dtype.name]))
    return inside.as_strided(a.shape, [s // item for s in a.strides])
