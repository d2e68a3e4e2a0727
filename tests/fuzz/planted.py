"""Planted miscompilations: how strong the fuzzer is.

    python -m tests.fuzz.planted [--limit 2500] [--jobs N] [--only NAME] [--out FILE]

Each plant makes one pass wrong in a way that the verifier may not see.  The random kernels are run until one fails
that is right without the plant; docs/fuzzing.md has the table.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("WARPLOOM_CACHE", "off")

from tests.fuzz.case import Case
from tests.fuzz.draw import draw
from tests.fuzz.judge import judge
from tests.fuzz.runner import Pool, Task
from warploom.ir.core import Builder, Func, Op, Region
from warploom.ir.ops import arith, cluster, control, mbarrier, mma, smem, task, tile
from warploom.ir.types import Scalar, Tile, dtype_of, i1, i32
from warploom.language import linear
from warploom.passes import pipeline
from warploom.passes.pipeline import Pass

Ops = list[Op]
Edit = Callable[[Ops], Ops]  # of one block, its inner blocks done


@dataclass(frozen=True)
class Plant:
    """place: the pass that is made wrong.  says: what it does then.  install: changes the compiler."""

    name: str
    place: str
    says: str
    install: Callable[[], None]


# ---- how passes are made wrong


def edited(func: Func, edit: Edit) -> Func:
    def region(r: Region) -> Region:
        ops = [o.with_(regions=tuple(map(region, o.regions))) if o.regions else o for o in r.ops]
        return Region(r.params, tuple(edit(ops)))

    return func.with_(body=region(func.body))


def after(
    name: str, edit: Edit, task_name: str = "", if_changed: bool = False
) -> Callable[[], None]:
    """Makes pass `name` end with an edit.  task_name: of the tasks whose name begins so, at WARP, alone.
    if_changed: only where the pass did something."""

    def wrong(run: Callable[..., Func], func: Func, *rest: Any) -> Func:
        out = run(func, *rest)
        if if_changed and out is func:
            return out
        return _in_task(out, edit, task_name) if task_name else edited(out, edit)

    def install() -> None:
        pipeline.PIPELINE = tuple(
            replace(row, run=partial(wrong, row.run))
            if isinstance(row, Pass) and row.name == name
            else row
            for row in pipeline.PIPELINE
        )

    return install


def _in_task(func: Func, edit: Edit, name: str) -> Func:
    def tasks(ops: Ops) -> Ops:
        out = []
        for o in ops:
            if o.kind is task.tasks:
                inner = [
                    edited(func.with_(body=r), edit).body if n.startswith(name) else r
                    for n, r in zip(o.attrs["names"], o.regions, strict=True)
                ]
                o = o.with_(regions=tuple(inner))
            out.append(o)
        return out

    return func.with_(body=Region(func.body.params, tuple(tasks(list(func.body.ops)))))


def each(change: Callable[[Op], Op | Ops | None]) -> Edit:
    """Every op by itself: another op, several, or none."""

    def edit(ops: Ops) -> Ops:
        out: Ops = []
        for o in ops:
            new = change(o)
            out += [] if new is None else new if isinstance(new, list) else [new]
        return out

    return edit


def constant(o: Op, value: Any) -> Op:
    """The op's result as a constant."""
    d = i1 if isinstance(value, bool) else i32
    return Op(arith.const, (), {"value": value, "dtype": d}, o.results, (), o.tasks, o.loc, o.id)


def plus(o: Op, at: int, n: int) -> Ops:
    """The op with n added to an integer operand."""
    b = Builder(o.loc, o.tasks)
    old = o.operands[at]
    new = arith.add(b, old, arith.const(b, value=n, dtype=dtype_of(old.type)))
    return [*b.ops, o.with_(operands=(*o.operands[:at], new, *o.operands[at + 1 :]))]


def attrs(o: Op, **changes: Any) -> Op:
    return o.with_(attrs={**o.attrs, **changes})


# ---- the edits


def _extent(o: Op) -> Op | Ops:
    return plus(o, (len(o.operands) + 1) // 2, 1) if o.kind is tile.make_view else o


def _no_mask(o: Op) -> Op:
    return o.with_(operands=o.operands[:2]) if o.kind is tile.store and len(o.operands) == 3 else o


def _le(o: Op) -> Op:
    is_tile = o.kind is arith.le and isinstance(o.result.type, Tile)
    return o.with_(kind=arith.lt) if is_tile and dtype_of(o.operands[0].type).is_int else o


def _first_replica(o: Op) -> Op:
    return constant(o, 0) if o.kind is task.replica_id else o


def _first_cta(o: Op) -> Op:
    return constant(o, 0) if o.kind is cluster.cta_rank else o


def _not_alone(o: Op) -> Op:
    return constant(o, True) if o.kind is arith.eq and o.result.hint == "alone" else o


def _half_joined(o: Op) -> Op:
    if o.kind is tile.slice_tile and o.attrs["offset"][-1]:
        return attrs(o, offset=(*o.attrs["offset"][:-1], 0))
    return o


def _early_release(ops: Ops) -> Ops:
    """A slot is released as soon as it was waited for."""
    releases = {o.operands[0]: o for o in ops if o.kind is task.consumer_release}
    out: Ops = []
    for o in ops:
        if o.kind is task.consumer_wait and o.operands[0] in releases:
            out += [o, releases[o.operands[0]].with_(operands=o.operands[:2])]
        elif o.kind is not task.consumer_release or not any(
            x.kind is task.consumer_wait and x.operands[0] is o.operands[0] for x in ops
        ):
            out.append(o)
    return out


def _shallow(o: Op) -> Op:
    return attrs(o, depth=max(1, o.attrs["depth"] - 1)) if o.kind is task.ring_next else o


def _same_phase(ops: Ops) -> Ops:
    made = {v: o for o in ops for v in o.results}
    out = []
    for o in ops:
        phase = made.get(o.operands[2]) if o.kind is mbarrier.mbarrier_wait else None
        if phase is not None and phase.kind is arith.xor:
            o = o.with_(operands=(*o.operands[:2], phase.operands[0]))
        out.append(o)
    return out


def _fewer_bytes(o: Op) -> Op:
    return attrs(o, bytes=o.attrs["bytes"] // 2) if o.kind is mbarrier.mbarrier_expect else o


def _no_fence(o: Op) -> Op | None:
    return None if o.kind is smem.fence_async else o


def _late_wait(o: Op) -> Op:
    return attrs(o, pending=o.attrs["pending"] + 1) if o.kind is mma.wgmma_wait else o


def _short_count(o: Op) -> Op:
    many = o.kind is mbarrier.mbarrier_alloc and o.attrs["count"] > 1
    return attrs(o, count=o.attrs["count"] - 1) if many else o


def _sum_by_max(o: Op) -> Op:
    return (
        attrs(o, fn="max") if o.kind is tile.reduce and o.attrs["fn"] == "add" and not o.id else o
    )


def _one_less(o: Op) -> Op | Ops:
    return plus(o, 1, -1) if o.kind is control.for_ else o


def _one_more(o: Op) -> Op:
    return o.with_(kind=arith.le) if o.kind is arith.lt and isinstance(o.result.type, Scalar) else o


def _load_again(o: Op) -> Op:
    """What runs ahead is what is there already."""
    if o.kind is arith.select and isinstance(o.result.type, Scalar) and o.result.type.dtype.is_int:
        return o.with_(operands=(o.operands[0], o.operands[2], o.operands[2]))
    return o


def _no_wait(o: Op) -> Op | None:
    return None if o.kind is mbarrier.mbarrier_wait else o


def _remade(func_ops: dict[str, int]) -> Edit:
    """An index that is made a second time begins one too late."""

    def change(o: Op) -> Op:
        if o.kind is tile.arange and o.id:
            func_ops[o.id] = func_ops.get(o.id, 0) + 1
            if func_ops[o.id] > 1:
                return attrs(o, start=o.attrs["start"] + 1, end=o.attrs["end"] + 1)
        return o

    return each(change)


def _overlapping(ops: Ops) -> Ops:
    """The second allocation lies where the first does."""
    allocs = [o for o in ops if o.kind is smem.shared_alloc and o.attrs.get("alias") is None]
    if len(allocs) < 2:
        return ops
    first, second = allocs[:2]
    return [attrs(o, offset=first.attrs["offset"]) if o is second else o for o in ops]


def _forward_scans() -> None:
    scan = linear.scanned
    linear.scanned = lambda x, axis, reverse, fn: scan(x, axis, False, fn)  # type: ignore[assignment]


def _right_ties() -> None:
    found = linear._extreme_with_index
    linear._extreme_with_index = lambda x, axis, keep, fn, left: found(x, axis, keep, fn, False)  # type: ignore[assignment]


PLANTS = (
    Plant("scan", "frontend", "scans in reverse run forwards", _forward_scans),
    Plant("ties", "frontend", "argmax gives the last of equal places", _right_ties),
    Plant("compare", "canonicalize", "<= of integers becomes <", after("canonicalize", each(_le))),
    Plant("extent", "recover_boxes", "a view ends one element too late", after("recover_boxes", each(_extent))),
    Plant("mask", "apply_alignment_hints", "stores lose their masks", after("apply_alignment_hints", each(_no_mask))),
    Plant("cta", "partition_ctas", "every CTA takes the first one's part", after("partition_ctas", each(_first_cta))),
    Plant("split", "partition_data", "every group takes the first one's part", after("partition_data", each(_first_replica))),
    Plant("alone", "partition_data", "what one group should do all do", after("partition_data", each(_not_alone))),
    Plant("joined", "fuse_dots", "both parts of a joined dot are the first", after("fuse_dots", each(_half_joined), if_changed=True)),
    Plant("release", "insert_channels", "slots are released before they are read", after("insert_channels", _early_release)),
    Plant("depth", "partition_code", "the producer's ring is one slot short", after("partition_code", each(_shallow), "producer")),
    Plant("phase", "partition_code", "the producer waits for the wrong phase", after("partition_code", _same_phase, "producer")),
    Plant("bytes", "lower_channels", "barriers expect half of the bytes", after("partition_code", each(_fewer_bytes))),
    Plant("count", "lower_channels", "barriers count one arrival less", after("partition_code", each(_short_count))),
    Plant("fence", "select_instructions", "no fence before the async proxy reads", after("partition_code", each(_no_fence))),
    Plant("wait", "expand_pipeline", "wgmmas are waited for one too late", after("expand_pipeline", each(_late_wait))),
    Plant("sums", "delay_row_reduction", "deferred sums are the largest part", after("delay_row_reduction", each(_sum_by_max), if_changed=True)),
    Plant("tail", "expand_pipeline", "overlapped loops end one iteration early", after("expand_pipeline", each(_one_less), if_changed=True)),
    Plant("dealt", "ping_pong_tiles", "all groups take the first one's tiles", after("ping_pong_tiles", each(_first_replica), if_changed=True)),
    Plant("handed", "specialize_stores", "the storing task does not wait", after("specialize_stores", each(_no_wait), "store", True)),
    Plant("fused", "fuse_tasks", "inline loads run one iteration too far", after("fuse_tasks", each(_one_more), if_changed=True)),
    Plant("ahead", "expand_pipeline", "loads ahead bring this iteration's elements again", after("expand_pipeline", each(_load_again), if_changed=True)),
    Plant("remade", "assign_layouts", "indices made again begin one too late", after("assign_layouts", lambda ops: _remade({})(ops))),
    Plant("overlap", "allocate_shared", "two buffers share their bytes", after("allocate_shared", _overlapping)),
)  # fmt: skip


class _LateError(BaseException):
    """A kernel took too long (no Exception, which `judge` would take for the kernel's)."""


def hunt(plant: Plant, seed: int, folder: Path, limit: int = 60) -> str:
    """How the kernel of a seed fails with the plant installed; "" where it doesn't.  Runs in a process's main
    thread: what takes longer than `limit` seconds (the longest that is right takes 4) hangs."""

    def late(*_: Any) -> None:
        raise _LateError

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(limit)
    try:
        verdict = judge(Case(draw(seed)), folder, orders=1)
    except _LateError:
        return "hang"
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    return verdict.kind if verdict.failed else ""


def search(t: Task, folder: Path, limit: int) -> dict[str, Any]:
    """The record of one plant (a task's number): after how many kernels it was found.  Runs in a fresh process."""
    plant = PLANTS[t[1]]
    record: dict[str, Any] = {
        "what": "plant",
        "seed": t[1],
        "name": plant.name,
        "status": "ok",
        "stop": True,
    }
    start = time.process_time()
    right = {name: getattr(pipeline, name) for name in dir(pipeline) if not name.startswith("__")}
    frontend = linear.scanned, linear._extreme_with_index

    def restore() -> None:
        for name, value in right.items():
            setattr(pipeline, name, value)
        linear.scanned, linear._extreme_with_index = frontend

    for seed in range(limit):
        plant.install()
        said = hunt(plant, seed, folder)
        restore()
        if said and not hunt(plant, seed, folder):  # right without the plant
            seconds = round(time.process_time() - start, 1)
            return record | {
                "code": "found",
                "after": seed + 1,
                "how": said[:120],
                "seconds": seconds,
            }
    return record | {"code": "missed", "after": limit}


def table(records: list[dict[str, Any]]) -> str:
    """In Markdown."""
    found = {r["seed"]: r for r in records if r["what"] == "plant"}
    lines = ["| pass | planted | found after | as |", "|---|---|---:|---|"]
    for i, p in enumerate(PLANTS):
        r = found.get(i)
        if r is not None:
            after_ = f"{r['after']}" if r["code"] == "found" else f"not in {r.get('after', '?')}"
            how = r.get("how", r["code"]).partition(" error")[0].replace("|", "/")
            lines.append(f"| {p.place} | {p.says} | {after_} | {how[:70]} |")
    return "\n".join(lines)


def main() -> None:
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--limit", type=int, default=2500, help="kernels a plant")
    p.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    p.add_argument("--only", action="append", help="the names of plants")
    p.add_argument("--seconds", type=float, default=3600, help="a plant's time limit")
    p.add_argument("--out", type=Path, help="a file for the records as JSON lines")
    o = p.parse_args()
    todo = [i for i, plant in enumerate(PLANTS) if not o.only or plant.name in o.only]
    records: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        pool = Pool(partial(search, folder=Path(folder), limit=o.limit), o.jobs, o.seconds)
        while todo or pool.busy:
            while todo and pool.idle:
                pool.give(("plant", todo.pop(0), ""))
            for record in pool.take(1.0):
                records.append(record)
                print(json.dumps(record), flush=True)
                if o.out:
                    with o.out.open("a") as file:
                        file.write(json.dumps(record) + "\n")
        pool.close()
    print(table(records))
    print(f"{sum(r['code'] == 'found' for r in records)} of {len(records)} found")


if __name__ == "__main__":
    main()
