"""Strangers' kernels on a GPU, each in a process of its own:  python -m tests.e2e.strangers.on_gpu OUT.json [PART OF NAME …]

What hangs or takes the context down costs only itself."""

from __future__ import annotations

import json
import multiprocessing as mp
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from tests.e2e.strangers.case import Case
from warploom import TensorDescriptor
from warploom.errors import WarploomWarning

SECONDS = 25  # for one kernel


def upload(x: Any) -> Any:
    """An array (of the same strides) on the GPU; descriptors of one; numbers as they are."""
    import torch

    if isinstance(x, TensorDescriptor):
        return TensorDescriptor.from_tensor(upload(x.base), x.block_shape)
    if not isinstance(x, np.ndarray):
        return x
    types = {
        "bfloat16": torch.bfloat16,
        "float8_e4m3fn": torch.float8_e4m3fn,
        "float8_e5m2": torch.float8_e5m2,
    }
    axes = sorted(range(x.ndim), key=lambda a: -x.strides[a])
    dense = np.ascontiguousarray(x.transpose(axes))
    raw = torch.from_numpy(dense.view(f"u{x.itemsize}") if x.dtype.name in types else dense).cuda()
    if x.dtype.name in types:
        raw = raw.view(types[x.dtype.name])
    back = [axes.index(a) for a in range(x.ndim)]
    return raw.permute(back)


def download(x: Any, dtype: Any) -> Any:
    import torch

    if isinstance(x, TensorDescriptor):
        x = x.base
    x = x.detach().cpu().contiguous()
    if x.dtype in (torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2):
        return x.view({1: torch.uint8, 2: torch.int16}[x.element_size()]).numpy().view(dtype)
    return x.numpy()


def run(case: Case, knobs: dict[str, Any]) -> str:
    """'' where three launches give what the case wants, else what is wrong."""
    import torch

    for _ in range(3):
        args = [upload(a) for a in case.args]
        case.kernel[case.grid](*args, **case.meta, **{**knobs, **case.knobs})
        torch.cuda.synchronize()
        found = [
            download(d, getattr(a, "base", a).dtype) if i in case.wants else None
            for i, (d, a) in enumerate(zip(args, case.args, strict=True))
        ]
        wrong = case.judge(tuple(found))
        if wrong:
            return wrong
    return ""


def one(case: Case, knobs: dict[str, Any]) -> dict[str, Any]:
    start = time.perf_counter()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always", WarploomWarning)
        try:
            wrong = run(case, knobs)
        except Exception as e:
            wrong = f"{type(e).__name__}: {e}"
    told = [str(w.message).splitlines()[0] for w in seen]
    return {"wrong": wrong, "told": told, "seconds": time.perf_counter() - start}


def work(tasks: Any, results: Any) -> None:
    from tests.e2e.strangers import corpus, judging

    cases = {c.name: c for c in corpus.cases()}
    while (got := tasks.recv()) is not None:
        name, form = got
        results.send(one(cases[name], judging.FORMS[form]))


def main() -> None:
    from tests.e2e.strangers import corpus, judging

    out, parts = Path(sys.argv[1]), sys.argv[2:]
    names = list(dict.fromkeys(c.name for c in corpus.cases()))
    jobs = [(n, f) for n in names for f in judging.FORMS if not parts or any(p in n for p in parts)]
    context = mp.get_context("spawn")
    found: dict[str, Any] = {}
    lanes: list[Any] = [None] * 6
    todo = list(reversed(jobs))

    def begin() -> list[Any]:
        mine, theirs = context.Pipe()
        p = context.Process(target=work, args=(theirs, theirs), daemon=True)
        p.start()
        return [p, mine, None, 0.0]

    while todo or any(lane and lane[2] for lane in lanes):
        for i, lane in enumerate(lanes):
            if lane is None:
                if todo:
                    lanes[i] = begin()
                continue
            p, pipe, job, since = lane
            if job is None:
                if todo:
                    lane[2], lane[3] = todo.pop(), time.perf_counter()
                    pipe.send(lane[2])
                continue
            if pipe.poll():
                try:
                    got = pipe.recv()
                except EOFError:
                    got = {"wrong": f"the process died ({p.exitcode})"}
            elif not p.is_alive():
                got = {"wrong": f"the process died ({p.exitcode})"}
            elif time.perf_counter() - since > SECONDS:
                got = {"wrong": f"no answer in {SECONDS} s"}
            else:
                continue
            found[" ".join(job)] = got
            lane[2] = None
            if got["wrong"]:
                print(*job, got["wrong"][:300], flush=True)
                p.kill()  # whatever went wrong may have left the context unusable
                lanes[i] = None
            out.write_text(json.dumps(found, indent=1))
        time.sleep(0.005)
    bad = [n for n, g in found.items() if g["wrong"]]
    print(f"{len(found)} runs, {len(bad)} of them wrong")
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
