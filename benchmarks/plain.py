"""Kernels as others write them, by warploom and by Triton: the same text, the same options, one process.

    python -m benchmarks.plain --out out/plain.jsonl [--only softmax] [--part 0/4 --check-only]

A file of kernels is run as it is, and as Triton's with its two imports changed.  Each launch is checked
against float64 and timed in bursts, the two in turns (benchmarks/measure.py); products have
cuBLAS beside them.
"""

from __future__ import annotations

import argparse
import ast
import functools
import importlib.util
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from benchmarks.data import input_sets
from benchmarks.measure import begun, lost
from benchmarks.records import Record, write
from corpus import plain_kernels, tutorials
from warploom.bench import Clock

TOLERANCE = 6e-3
IMPORTS = {
    "import warploom as wl": "import triton as wl",
    "import warploom.language as tl": "import triton.language as tl",
}
ANNOTATIONS = (": Any", " -> Any", " -> None")  # which Triton looks up, and refuses
EXACT = 1e-6  # of results that are copies, counts or indices


@dataclass
class Work:
    """Launches of one kernel.  calls: arguments, a tuple for each input set; outputs: positions of what it
    writes; wanted: these in float64, for set 0."""

    name: str
    kernel: Any
    calls: list[tuple[Any, ...]]
    grid: Any
    meta: dict[str, Any]
    outputs: tuple[int, ...]
    wanted: Callable[[], Sequence[Any]]
    bytes: int = 0
    flops: int = 0
    adds: bool = False  # to its outputs: they start at 0
    fresh: tuple[
        int, ...
    ] = ()  # arguments that are set to 0 before each launch, which is timed too
    library: Callable[[int], object] | None = None
    tolerance: float = TOLERANCE
    ours: dict[str, Any] = field(default_factory=dict)  # what is asked of warploom alone
    theirs: Sequence[dict[str, Any]] = ({},)  # what is asked of Triton alone: the fastest counts


@dataclass
class Found:
    """Of one case: microseconds, errors and resources by implementation."""

    case: str
    us: dict[str, list[float]] = field(default_factory=dict)
    resources: dict[str, list[int]] = field(
        default_factory=dict
    )  # registers, spilled bytes, shared
    error: dict[str, str] = field(default_factory=dict)
    rel_err: dict[str, float] = field(default_factory=dict)

    def records(self, run: str = "") -> list[Record]:
        """One an implementation.  Triton's options are its configurations: the fastest counts."""
        names = list(dict.fromkeys([*self.us, *self.error, *self.rel_err]))
        grouped = {name: [name] for name in names if not name.startswith("triton")}
        if theirs := [name for name in names if name.startswith("triton")]:
            grouped["triton"] = sorted(
                theirs, key=lambda n: statistics.median(self.us.get(n, [math.inf]))
            )
        return [
            Record(
                self.case,
                peer,
                run,
                self.us.get(best, []),
                config=best.removeprefix(peer).strip(),
                rel_err=self.rel_err.get(best, math.nan),
                error=self.error.get(best, "").partition("\n")[0],
                tried=[
                    (
                        n.removeprefix(peer).strip(),
                        self.error.get(n) or self.us.get(n, ["not timed"])[0],
                    )
                    for n in others
                ],
            )
            for peer, (best, *others) in grouped.items()
        ]


@functools.cache
def as_triton(file: str) -> Any:
    """The module of a file of kernels, imports changed and annotations left out."""
    text = Path(file).read_text()
    for ours, theirs in IMPORTS.items():
        if ours not in text:
            raise ValueError(f"{file} has no line {ours!r}")
        text = text.replace(ours, theirs)
    for annotation in ANNOTATIONS:
        text = text.replace(annotation, "")
    path = Path(tempfile.mkdtemp("_as_triton"), Path(file).name)
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(f"{path.stem}_as_triton", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def random(*shape: int, dtype: Any = torch.bfloat16) -> Any:
    return torch.randn(*shape, device="cuda").to(dtype)


def empty(*shape: int, dtype: Any = torch.bfloat16) -> Any:
    return torch.empty(*shape, device="cuda", dtype=dtype)


def power(n: int) -> int:
    return 1 << (n - 1).bit_length()


def vectors(n: int, dtype: Any, kernel: Any = None) -> Work:
    kernel = kernel or plain_kernels.add
    size = dtype.itemsize
    calls: list[tuple[Any, ...]] = []
    for _ in range(input_sets(3 * n * size)):
        x, out = random(n, dtype=dtype), empty(n, dtype=dtype)
        if kernel is plain_kernels.add:
            calls.append((x, random(n, dtype=dtype), out, n))
        else:
            keep = (torch.rand(n, device="cuda") > 0.5).to(torch.int32)
            calls.append((x, keep, out, n, 0.5))
    x, y = calls[0][:2]

    def wanted() -> Sequence[Any]:
        if kernel is plain_kernels.add:
            return [x.double() + y.double()]
        return [torch.where(y != 0, x.double() * 2, 0.0)]

    moved = sum(t.nbytes for t in calls[0][:3])
    name = f"{kernel.fn.__name__} {n} {str(dtype)[6:]}"
    return Work(name, kernel, calls, (-(-n // 1024),), {"BLOCK": 1024}, (2,), wanted, moved)


def rowwise(kernel: Any, rows: int, columns: int, warps: int = 4, dtype: Any = None) -> Work:
    dtype = dtype or torch.bfloat16
    calls: list[tuple[Any, ...]] = []
    w, b = random(columns), random(columns)
    name = kernel.fn.__name__
    out_type = {"quantize": torch.int8, "row_argmax": torch.int32, "row_sums": torch.float32}
    for _ in range(input_sets(2 * rows * columns * dtype.itemsize)):
        x = random(rows, columns, dtype=dtype)
        whole = name not in ("row_argmax", "row_sums", "cross_entropy")
        out = empty(*((rows, columns) if whole else (rows,)), dtype=out_type.get(name, dtype))
        if name == "layernorm_rows":
            calls.append((x, w, b, out, columns))
        elif name == "quantize":
            calls.append((x, out, empty(rows, dtype=torch.float32), columns))
        elif name == "cross_entropy":
            label = torch.randint(0, columns, (rows,), device="cuda")
            calls.append((x, label, empty(rows, dtype=torch.float32), columns))
        else:
            calls.append((x, out, columns))
    x = calls[0][0]

    def wanted() -> Sequence[Any]:
        y = x.double()
        match name:
            case "softmax_rows":
                return [y.softmax(1)]
            case "layernorm_rows":
                f = torch.nn.functional
                return [f.layer_norm(y, (columns,), w.double(), b.double())]
            case "quantize":
                scale = x.float().abs().amax(1, keepdim=True) / 127.0
                return [(x.float() / scale + 0.5).floor(), scale[:, 0]]
            case "row_argmax":
                return [y.argmax(1)]
            case "row_sums":
                return [y.sum(1)]
        return [torch.nn.functional.cross_entropy(y, calls[0][1], reduction="none")]

    outputs = {"quantize": (1, 2), "layernorm_rows": (3,), "cross_entropy": (2,)}.get(name, (1,))
    moved = x.nbytes + sum(calls[0][i].nbytes for i in outputs)
    walks = name in ("row_sums", "cross_entropy")
    meta = {"BLOCK": min(power(columns), 4096) if walks else power(columns), "num_warps": warps}
    title = f"{name} {rows}x{columns} warps {warps}"
    exact = EXACT if name == "row_argmax" else TOLERANCE
    return Work(title, kernel, calls, (rows,), meta, outputs, wanted, moved, tolerance=exact)


def norm_tiles(rows: int, columns: int, tile: int) -> Work:
    w = random(columns)
    sets = range(input_sets(4 * rows * columns))
    calls = [(random(rows, columns), w, empty(rows, columns), rows, columns) for _ in sets]

    def wanted() -> Sequence[Any]:
        x = calls[0][0].double()
        return [x * (x.square().mean(1, keepdim=True) + 1e-5).rsqrt() * w.double()]

    meta = {"ROWS": tile, "BLOCK": power(columns)}
    name = f"rms_norm {rows}x{columns} tiles of {tile}"
    moved = 4 * rows * columns
    kernel, grid = plain_kernels.rms_norm, (-(-rows // tile),)
    return Work(name, kernel, calls, grid, meta, (2,), wanted, moved)


def tutorial_softmax(rows: int, columns: int) -> Work:
    sets = range(input_sets(8 * rows * columns))
    f32 = torch.float32
    shape = (rows, columns)
    calls = [
        (empty(*shape, dtype=f32), random(*shape, dtype=f32), columns, columns, rows, columns)
        for _ in sets
    ]
    meta = {"BLOCK_SIZE": power(columns), "STAGES": 4, "num_warps": 8}
    grid = (min(132 * 4, rows),)
    name = f"tutorial softmax {rows}x{columns}"
    wanted = lambda: [calls[0][1].double().softmax(1)]  # noqa: E731
    moved = 8 * rows * columns
    return Work(name, tutorials.softmax, calls, grid, meta, (0,), wanted, moved)


def tutorial_norm(rows: int, columns: int) -> Work:
    half = torch.float16
    w, b = random(columns, dtype=half), random(columns, dtype=half)
    mean, rstd = empty(rows, dtype=torch.float32), empty(rows, dtype=torch.float32)
    calls = []
    for _ in range(input_sets(4 * rows * columns)):
        x, y = random(rows, columns, dtype=half), empty(rows, columns, dtype=half)
        calls.append((x, y, w, b, mean, rstd, columns, columns, 1e-5))
    block = min(65536 // 2, power(columns))
    meta = {"BLOCK_SIZE": block, "num_warps": min(max(block // 256, 1), 8)}

    def wanted() -> Sequence[Any]:
        x = calls[0][0].double()
        return [torch.nn.functional.layer_norm(x, (columns,), w.double(), b.double()), x.mean(1)]

    name, moved = f"tutorial layer norm {rows}x{columns}", 4 * rows * columns
    return Work(name, tutorials.layer_norm, calls, (rows,), meta, (1, 4), wanted, moved)


def tutorial_norm_backward(rows: int, columns: int) -> Work:
    half = torch.float16
    groups = 64
    w = random(columns, dtype=half)
    lock = torch.zeros(groups, device="cuda", dtype=torch.int32)
    dw, db = (torch.zeros(groups * columns, device="cuda") for _ in range(2))
    calls: list[tuple[Any, ...]] = []
    for _ in range(input_sets(6 * rows * columns)):
        x, dy = random(rows, columns, dtype=half), random(rows, columns, dtype=half)
        mean, rstd = x.float().mean(1), 1 / (x.float().var(1, correction=0) + 1e-5).sqrt()
        dx = empty(rows, columns, dtype=half)
        calls.append((dx, dy, dw, db, x, w, mean, rstd, lock, columns, columns))
    block = power(columns)
    meta = {"GROUP_SIZE_M": groups, "BLOCK_SIZE_N": block}
    meta["num_warps"] = min(max(block // 256, 1), 8)

    def wanted() -> Sequence[Any]:
        dy, x, mean, rstd = (calls[0][i].double() for i in (1, 4, 6, 7))
        hat = (x - mean[:, None]) * rstd[:, None]
        wdy = dy * w.double()
        c1, c2 = (hat * wdy).mean(1, keepdim=True), wdy.mean(1, keepdim=True)
        rows_of = (dy * hat).reshape(-1, groups, columns)
        dx = (wdy - (hat * c1 + c2)) * rstd[:, None]
        return [dx, rows_of.sum(0).ravel(), dy.reshape(-1, groups, columns).sum(0).ravel()]

    name, moved = f"tutorial layer norm backward {rows}x{columns}", 6 * rows * columns
    kernel = tutorials.layer_norm_backward
    return Work(name, kernel, calls, (rows,), meta, (0, 2, 3), wanted, moved, adds=True)


def strips(rows: int, columns: int) -> Work:
    f32 = torch.float32
    sets = range(input_sets(4 * rows * columns))
    calls = [
        (random(rows, columns, dtype=f32), empty(columns, dtype=f32), rows, columns) for _ in sets
    ]
    name, moved = f"column_sums {rows}x{columns}", 4 * rows * columns
    wanted = lambda: [calls[0][0].double().sum(0)]  # noqa: E731
    meta, grid = {"ROWS": 32, "BLOCK": 128}, (-(-columns // 128),)
    return Work(name, plain_kernels.column_sums, calls, grid, meta, (1,), wanted, moved)


def atomics(kernel: Any, n: int) -> Work:
    calls = []
    counts = kernel is plain_kernels.histogram
    for _ in range(input_sets(4 * n)):
        x = torch.randint(0, 4096, (n,), device="cuda", dtype=torch.int32) if counts else random(n)
        x = x if counts else x.float().abs()
        out = torch.zeros(4096 if counts else 1, device="cuda", dtype=x.dtype)
        calls.append((x, out, n))

    def wanted() -> Sequence[Any]:
        x = calls[0][0]
        return [torch.bincount(x, minlength=4096) if counts else x.double().sum()[None]]

    grid = (-(-n // 1024),)
    name = f"{kernel.fn.__name__} {n}"
    return Work(name, kernel, calls, grid, {"BLOCK": 1024}, (1,), wanted, 4 * n, adds=True)


def transposed(rows: int, columns: int, dtype: Any) -> Work:
    size = 2 * rows * columns * dtype.itemsize
    calls = [
        (random(rows, columns, dtype=dtype), empty(columns, rows, dtype=dtype), rows, columns)
        for _ in range(input_sets(size))
    ]
    grid, meta = (-(-rows // 64), -(-columns // 64)), {"ROWS": 64, "COLUMNS": 64}
    name = f"transpose {rows}x{columns} {str(dtype)[6:]}"
    wanted = lambda: [calls[0][0].double().t()]  # noqa: E731
    kernel = plain_kernels.transpose
    return Work(name, kernel, calls, grid, meta, (1,), wanted, size, tolerance=EXACT)


def moved_rows(kernel: Any, rows: int, columns: int) -> Work:
    calls: list[tuple[Any, ...]] = []
    gathers = kernel is plain_kernels.gather_rows
    for _ in range(input_sets(4 * rows * columns)):
        index = torch.randperm(rows, device="cuda")
        more = (columns,) if gathers else (rows, columns)
        calls.append((random(rows, columns), index, empty(rows, columns), *more))

    def wanted() -> Sequence[Any]:
        x, index = calls[0][:2]
        return [x[index].double() if gathers else x[torch.argsort(index)].double()]

    grid = (rows, -(-columns // 1024)) if gathers else (-(-rows // 8), -(-columns // 256))
    meta = {"BLOCK": 1024} if gathers else {"ROWS": 8, "BLOCK": 256}
    name, size = f"{kernel.fn.__name__} {rows}x{columns}", 4 * rows * columns
    return Work(name, kernel, calls, grid, meta, (2,), wanted, size, tolerance=EXACT)


def broadcasts(rows: int, columns: int, dtype: Any) -> Work:
    size = 2 * rows * columns * dtype.itemsize
    scale, bias = (random(n, dtype=torch.float32).to(dtype) for n in (columns, rows))
    if dtype == torch.int8:
        scale, bias = (
            torch.randint(-3, 4, (n,), device="cuda", dtype=dtype) for n in (columns, rows)
        )
    calls = []
    for _ in range(input_sets(size)):
        x = random(rows, columns, dtype=dtype)
        calls.append((x, scale, bias, empty(rows, columns, dtype=dtype), rows, columns))

    def wanted() -> Sequence[Any]:
        return [calls[0][0].double() * scale.double() + bias.double()[:, None]]

    grid, meta = (-(-rows // 16), -(-columns // 128)), {"ROWS": 16, "BLOCK": 128}
    name = f"scale_bias {rows}x{columns} {str(dtype)[6:]}"
    return Work(name, plain_kernels.scale_bias, calls, grid, meta, (3,), wanted, size)


def gated(rows: int, columns: int) -> Work:
    size = 6 * rows * columns
    sets = range(input_sets(size))
    calls = [(random(rows, 2 * columns), empty(rows, columns), columns) for _ in sets]

    def wanted() -> Sequence[Any]:
        gate, up = calls[0][0].double().chunk(2, dim=1)
        return [torch.nn.functional.silu(gate) * up]

    grid, meta = (rows, -(-columns // 1024)), {"BLOCK": 1024}
    name = f"silu_mul {rows}x{columns}"
    return Work(name, plain_kernels.silu_mul, calls, grid, meta, (1,), wanted, size)


def rotated(positions: int, heads: int, half: int) -> Work:
    size = 4 * positions * heads * 2 * half
    angle = torch.rand(positions, half, device="cuda")
    rotation = (angle.cos(), angle.sin())
    shape = (positions, heads, 2 * half)
    calls = [(random(*shape), *rotation, empty(*shape), heads) for _ in range(input_sets(size))]

    def wanted() -> Sequence[Any]:
        x = calls[0][0].double()
        cos, sin = (t.double()[:, None] for t in rotation)
        first, second = x[..., :half], x[..., half:]
        return [torch.cat([first * cos - second * sin, second * cos + first * sin], dim=2)]

    meta = {"HALF": half, "HEADS": power(heads)}
    name = f"rotary {positions}x{heads}x{2 * half}"
    return Work(name, plain_kernels.rotary, calls, (positions,), meta, (3,), wanted, size)


def product(m: int, n: int, k: int, tile: tuple[int, int, int], warps: int = 4) -> Work:
    """Tutorial 03, a tile a program; B as K×N."""
    sets = range(input_sets(2 * (m * k + k * n + m * n)))
    tensors = [(random(m, k), random(k, n), empty(m, n)) for _ in sets]
    calls = [(*t, m, n, k, k, 1, n, 1, n, 1) for t in tensors]
    bm, bn, bk = tile
    meta = {"BLOCK_M": bm, "BLOCK_N": bn, "BLOCK_K": bk, "GROUP_M": 8, "ACTIVATION": ""}
    meta |= {"num_warps": warps, "num_stages": 4 if bm * bn < 128 * 256 else 3}
    grid = (-(-m // bm) * -(-n // bn),)
    name = f"tutorial matmul {m}x{n}x{k} tile {bm}x{bn}x{bk} warps {warps}"

    def library(i: int) -> None:
        a, b, c = tensors[i]
        torch.matmul(a, b, out=c)

    def wanted() -> Sequence[Any]:
        return [tensors[0][0].double() @ tensors[0][1].double()]

    work = Work(name, tutorials.matmul, calls, grid, meta, (2,), wanted, flops=2 * m * n * k)
    work.library = library
    return work


def format_product(
    m: int,
    n: int,
    k: int,
    dtype: Any,
    nk: bool,
    tile: tuple[int, int, int],
    warps: int,
    stages: int,
    precision: str = "tf32",
    **ours: Any,
) -> Work:
    """Float32 as tf32, or int8 into int32.  nk: B lies as N×K (K adjacent), else as K×N."""
    sums = torch.int32 if dtype == torch.int8 else torch.float32
    sets = range(input_sets((m * k + k * n) * dtype.itemsize + m * n * 4))

    def matrix(rows: int, columns: int) -> Any:
        if dtype == torch.int8:
            return torch.randint(-127, 128, (rows, columns), device="cuda", dtype=dtype)
        return random(rows, columns, dtype=dtype)

    tensors = [
        (matrix(m, k), matrix(n, k).t() if nk else matrix(k, n), empty(m, n, dtype=sums))
        for _ in sets
    ]
    calls = [(*t, m, n, k, *(s for x in t for s in x.stride())) for t in tensors]
    bm, bn, bk = tile
    meta = {"BLOCK_M": bm, "BLOCK_N": bn, "BLOCK_K": bk, "GROUP_M": 8, "PRECISION": precision}
    meta |= {"num_warps": warps, "num_stages": stages}
    meta["INTEGERS"] = dtype == torch.int8
    grid = (-(-m // bm) * -(-n // bn),)
    kind = "int8" if dtype == torch.int8 else precision
    name = f"{kind} {m}x{n}x{k} B {'NxK' if nk else 'KxN'} tile {bm}x{bn}x{bk} warps {warps}"
    name += f" stages {stages} {ours or ''}"

    def library(i: int) -> None:
        a, b, c = tensors[i]
        torch.backends.cuda.matmul.allow_tf32 = precision != "ieee"
        if dtype == torch.int8:
            torch._int_mm(a, b, out=c)
        else:
            torch.matmul(a, b, out=c)

    def wanted() -> Sequence[Any]:
        return [tensors[0][0].double() @ tensors[0][1].double()]

    work = Work(
        name, plain_kernels.product_of, calls, grid, meta, (2,), wanted, flops=2 * m * n * k
    )
    work.library, work.ours = library, ours
    return work


def persistent_product(m: int, n: int, k: int, specialize: bool) -> Work:
    sets = range(input_sets(2 * (m * k + k * n + m * n)))
    tensors = [(random(m, k), random(n, k), empty(m, n)) for _ in sets]
    calls = [(*t, m, n, k) for t in tensors]
    meta = {"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "GROUP_M": 8, "SUBTILE": False}
    meta |= {"NUM_SMS": 132, "WARP_SPECIALIZE": False, "num_warps": 8, "num_stages": 3}
    grid = (min(132, -(-m // 128) * -(-n // 256)),)
    name = f"tutorial persistent matmul {m}x{n}x{k}" + " specialized" * specialize

    def library(i: int) -> None:
        a, b, c = tensors[i]
        torch.matmul(a, b.t(), out=c)

    def wanted() -> Sequence[Any]:
        return [tensors[0][0].double() @ tensors[0][1].double().t()]

    kernel, flops = tutorials.matmul_persistent, 2 * m * n * k
    work = Work(name, kernel, calls, grid, meta, (2,), wanted, flops=flops)
    work.library = library
    work.ours = {"WARP_SPECIALIZE": specialize}
    return work


def grouped_products(
    sizes: Sequence[tuple[int, int, int]], tile: tuple[int, int, int], aligned: bool = False
) -> Work:
    calls, sums = [], [0, 0, 0]
    starts = []
    for m, n, k in sizes:
        starts.append(list(sums))
        sums = [s + x for s, x in zip(sums, (m * k, k * n, m * n), strict=True)]
    table = torch.tensor(starts, device="cuda", dtype=torch.int32).ravel()
    shapes = torch.tensor(sizes, device="cuda", dtype=torch.int32).ravel()
    for _ in range(input_sets(2 * sum(sums))):
        a, b, c = random(sums[0]), random(sums[1]), empty(sums[2])
        calls.append((a, b, c, table, shapes, len(sizes)))
    bm, bn, bk = tile
    meta = {"BLOCK_M": bm, "BLOCK_N": bn, "BLOCK_K": bk, "NUM_SM": 132, "ALIGNED": aligned}

    def wanted() -> Sequence[Any]:
        a, b = (x.double() for x in calls[0][:2])
        parts = []
        for (m, n, k), (i, j, _) in zip(sizes, starts, strict=True):
            x, y = a[i : i + m * k].reshape(m, k), b[j : j + k * n].reshape(k, n)
            parts.append((x @ y).ravel())
        return [torch.cat(parts)]

    flops = sum(2 * m * n * k for m, n, k in sizes)
    name = (
        f"tutorial grouped {len(sizes)} of {sizes[0][0]} tile {bm}x{bn}x{bk}" + " hinted" * aligned
    )
    kernel = tutorials.grouped_matmul
    return Work(name, kernel, calls, (132,), meta, (2,), wanted, flops=flops)


def heads_of(heads: int, seq: int, d: int, causal: bool, rows: int, columns: int) -> Work:
    sets = range(input_sets(8 * heads * seq * d))
    m = empty(heads, seq, dtype=torch.float32)
    calls = []
    for _ in sets:
        tensors = [random(heads * seq, d) for _ in range(3)]
        calls.append((d**-0.5, m, 1, heads, *tensors, empty(heads * seq, d), seq))
    meta = {"HEAD_DIM": d, "BLOCK_M": rows, "BLOCK_N": columns, "STAGE": 3 if causal else 1}
    meta |= {"WARP_SPECIALIZE": False, "num_warps": rows // 16, "num_stages": 3}

    def wanted() -> Sequence[Any]:
        q, k, v = (t.reshape(1, heads, seq, d).float() for t in calls[0][4:7])
        attend = torch.nn.functional.scaled_dot_product_attention
        return [attend(q, k, v, is_causal=causal).reshape(heads * seq, d)]

    flops = 4 * heads * seq * seq * d // (2 if causal else 1)
    name = (
        f"tutorial attention h{heads} s{seq} d{d} {'causal' if causal else 'full'} {rows}x{columns}"
    )
    grid = (seq // rows, heads)
    work = Work(name, tutorials.attention, calls, grid, meta, (7,), wanted, flops=flops)
    work.ours = {"WARP_SPECIALIZE": True}
    return work


def gelus(n: int, dtype: Any) -> Work:
    sets = range(input_sets(2 * n * dtype.itemsize))
    calls = [(random(n, dtype=dtype), empty(n, dtype=dtype), n) for _ in sets]
    wanted = lambda: [torch.nn.functional.gelu(calls[0][0].double())]  # noqa: E731
    name, moved = f"gelu {n} {str(dtype)[6:]}", 2 * n * dtype.itemsize
    grid, meta = (-(-n // 1024),), {"BLOCK": 1024}
    return Work(name, plain_kernels.gelu, calls, grid, meta, (1,), wanted, moved)


def group_norms(images: int, channels: int, pixels: int, groups: int) -> Work:
    shape, size = (images, channels, pixels), 4 * images * channels * pixels
    w, b = random(channels), random(channels)
    calls = [(random(*shape), w, b, empty(*shape), pixels) for _ in range(input_sets(size))]

    def wanted() -> Sequence[Any]:
        f = torch.nn.functional
        return [f.group_norm(calls[0][0].double(), groups, w.double(), b.double())]

    meta = {"CHANNELS": channels // groups, "GROUPS": groups, "BLOCK": 2048, "num_warps": 8}
    name = f"group_norm {images}x{channels}x{pixels} groups {groups}"
    kernel, grid = plain_kernels.group_norm, (images * groups,)
    return Work(name, kernel, calls, grid, meta, (3,), wanted, size)


def adam_steps(n: int) -> Work:
    f32, size = torch.float32, 4 * n
    calls = []
    for _ in range(input_sets(7 * size)):
        p, g, m = (random(n, dtype=f32) for _ in range(3))
        outs = (empty(n, dtype=f32) for _ in range(3))
        calls.append((p, g, m, random(n, dtype=f32).square(), *outs, n, 1e-3))

    def wanted() -> Sequence[Any]:
        p, g, m, v = (t.double() for t in calls[0][:4])
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        return [p - 1e-3 * m / (v.sqrt() + 1e-8), m, v]

    grid, meta = (-(-n // 1024),), {"BLOCK": 1024}
    kernel = plain_kernels.adam
    return Work(f"adam {n}", kernel, calls, grid, meta, (4, 5, 6), wanted, 7 * size)


def added_norms(rows: int, columns: int, warps: int) -> Work:
    w, size = random(columns), 8 * rows * columns
    calls = []
    for _ in range(input_sets(size)):
        x, residual = random(rows, columns), random(rows, columns)
        calls.append((x, residual, w, empty(rows, columns), empty(rows, columns), columns))

    def wanted() -> Sequence[Any]:
        x = calls[0][0].double() + calls[0][1].double()
        return [x, x * (x.square().mean(1, keepdim=True) + 1e-5).rsqrt() * w.double()]

    meta = {"BLOCK": power(columns), "num_warps": warps}
    name, kernel = f"add_rms_norm {rows}x{columns} warps {warps}", plain_kernels.add_rms_norm
    return Work(name, kernel, calls, (rows,), meta, (3, 4), wanted, size)


def matrix_vectors(rows: int, columns: int) -> Work:
    size = 2 * rows * columns
    calls = []
    for _ in range(input_sets(size)):
        a, x = random(rows, columns), random(columns)
        calls.append((a, x, empty(rows, dtype=torch.float32), rows, columns))
    wanted = lambda: [calls[0][0].double() @ calls[0][1].double()]  # noqa: E731
    meta, grid = {"ROWS": 8, "BLOCK": 512}, (-(-rows // 8),)
    name, kernel = f"matrix_vector {rows}x{columns}", plain_kernels.matrix_vector
    return Work(name, kernel, calls, grid, meta, (2,), wanted, size)


def running(kernel: Any, rows: int, columns: int, block: int, warps: int) -> Work:
    size = 4 * rows * columns
    calls = [
        ((torch.rand(rows, columns, device="cuda") - 0.5).to(torch.bfloat16), empty(rows, columns),
         columns)
        for _ in range(input_sets(size))
    ]  # fmt: skip
    wanted = lambda: [calls[0][0].double().cumsum(1)]  # noqa: E731
    meta = {"BLOCK": block, "num_warps": warps}
    name = f"{kernel.fn.__name__} {rows}x{columns} warps {warps}"
    return Work(name, kernel, calls, (rows,), meta, (1,), wanted, size)


def samples(rows: int, columns: int, warps: int) -> Work:
    calls = []
    for _ in range(input_sets(2 * rows * columns)):
        x, chance = random(rows, columns), torch.rand(rows, device="cuda")
        calls.append((x, chance, empty(rows, dtype=torch.int32), columns, 0.7))

    def wanted() -> Sequence[Any]:
        x, chance = (t.double() for t in calls[0][:2])
        upto = (x / 0.7).softmax(1).cumsum(1)
        return [(upto >= chance[:, None]).int().argmax(1)]

    meta, size = {"BLOCK": power(columns), "num_warps": warps}, 2 * rows * columns
    name, kernel = f"sampled_rows {rows}x{columns} warps {warps}", plain_kernels.sampled_rows
    # of sums in another order the place next to it may come out
    return Work(name, kernel, calls, (rows,), meta, (2,), wanted, size, tolerance=0.05)


def works() -> Iterator[tuple[str, Callable[[], Work]]]:
    """Each case: what `--only` looks at, and what makes it."""
    k = plain_kernels
    f32, bf16, f16, i8 = torch.float32, torch.bfloat16, torch.float16, torch.int8
    todo: list[tuple[Any, ...]] = []
    for n in (1 << 14, 98432, 1 << 20, 1 << 25):
        todo.append((vectors, n, f32 if n == 98432 else bf16))
    todo += [(vectors, 1 << 25, f32), (vectors, 1 << 20, f32, k.dropout)]
    todo += [(vectors, 1 << 25, f32, k.dropout)]
    shapes = [(131072, 256, 4), (131072, 256, 1), (4096, 1024, 4), (32768, 1024, 4)]
    shapes += [(8192, 4096, 8), (2048, 16384, 16), (64, 256, 4), (4096, 781, 4)]
    for rows, columns, warps in shapes:
        todo.append((rowwise, k.softmax_rows, rows, columns, warps))
        if rows != 64:
            todo.append((rowwise, k.layernorm_rows, rows, columns, warps))
    for rows, columns, tile in ((131072, 256, 8), (131072, 128, 32), (16384, 1000, 4)):
        todo.append((norm_tiles, rows, columns, tile))
    for columns in (256, 781, 1024, 4096, 12288):
        todo.append((tutorial_softmax, 4096, columns))
    todo += [(tutorial_norm, 4096, n) for n in (1024, 4096, 8192, 15872)]
    todo += [(tutorial_norm_backward, 4096, n) for n in (1024, 8192)]
    todo += [(strips, 4096, 8192), (strips, 256, 8192)]
    todo += [(rowwise, k.row_sums, 64, 1 << 20, 8), (rowwise, k.row_sums, 8192, 4096, 4)]
    todo += [(rowwise, k.row_argmax, 8192, 4096, 4), (rowwise, k.quantize, 8192, 4096, 4)]
    todo += [(rowwise, k.cross_entropy, 4096, 32000, 8)]
    todo += [(atomics, k.total, 1 << 24), (atomics, k.histogram, 1 << 22)]
    todo += [(transposed, 8192, 8192, d) for d in (bf16, f32, i8)] + [(transposed, 512, 512, bf16)]
    todo += [(moved_rows, fn, 16384, 4096) for fn in (k.gather_rows, k.scatter_rows)]
    todo += [(broadcasts, 8192, 8192, d) for d in (f16, bf16, f32, i8)] + [
        (broadcasts, 256, 1024, f16)
    ]
    todo += [(gated, 4096, 14336), (gated, 64, 14336), (rotated, 8192, 32, 64)]
    todo += [(gelus, 1 << 25, bf16), (gelus, 1 << 25, f32), (adam_steps, 1 << 24)]
    todo += [(group_norms, 16, 512, 4096, 32), (group_norms, 8, 320, 1024, 32)]
    todo += [(added_norms, 8192, 4096, 8), (added_norms, 4096, 1000, 4)]
    todo += [(matrix_vectors, 8192, 8192), (matrix_vectors, 4096, 4096)]
    todo += [
        (running, k.running_sums, 8192, 4096, 4096, 8),
        (running, k.running_sums, 32768, 1024, 1024, 4),
    ]
    todo += [(running, k.long_running_sums, 1024, 65536, 4096, 8)]
    todo += [(samples, 4096, 4096, 8), (samples, 1024, 32000, 16)]
    for size in ((256,) * 3, (512,) * 3, (1024,) * 3):
        todo += [(product, *size, t, 4) for t in ((64, 64, 64), (128, 64, 64), (128, 128, 64))]
    todo += [(product, m, 4096, 4096, (64, 64, 128), 4) for m in (16, 64)]
    todo += [
        (product, 16, 4096, 4096, (16, 64, 128), 4),
        (product, 64, 4096, 4096, (64, 128, 64), 4),
    ]
    todo += [
        (product, 4096, 4096, 4096, (128, 256, 64), 8),
        (product, 8192, 8192, 8192, (128, 256, 64), 8),
    ]
    todo += [(persistent_product, 8192, 8192, n, w) for n in (512, 8192) for w in (False, True)]
    for size in (4096, 8192):
        for nk in (True, False):
            for tile in ((128, 128, 32), (128, 256, 32), *(() if nk else ((256, 128, 32),))):
                todo.append((format_product, size, size, size, f32, nk, tile, 8, 3))
            for tile in ((128, 128, 128), (128, 256, 128), *(() if nk else ((256, 128, 128),))):
                todo.append((format_product, size, size, size, i8, nk, tile, 8, 3))
    for nk in (True, False):
        for ieee, warps in (((128, 128, 16), 8), ((128, 128, 32), 8), ((64, 64, 32), 4)):
            todo.append((format_product, 2048, 2048, 2048, f32, nk, ieee, warps, 3, "ieee"))
    for n in (1024, 4096):
        todo += [(grouped_products, ((n, n, n),) * 4, t) for t in ((128, 128, 32), (64, 64, 32))]
        tiles = ((128, 128, 64), (128, 128, 32), (64, 64, 32))
        todo += [(grouped_products, ((n, n, n),) * 4, t, True) for t in tiles]
    sizes = tuple((1024 >> i,) * 3 for i in range(4))
    todo += [(grouped_products, sizes, (64, 128, 64), aligned) for aligned in (False, True)]
    for seq, d, causal in (
        (1024, 64, True),
        (4096, 64, True),
        (1024, 128, False),
        (4096, 128, True),
    ):
        todo.append((heads_of, 65536 // seq * 128 // d, seq, d, causal, 128, 64))
    for make, *args in todo:
        yield f"{make.__name__} {args}", functools.partial(make, *args)


def errors(work: Work, run: Callable[[int], object]) -> float:
    """The largest relative error of set 0's outputs; what is added to starts at 0, the rest is spoilt."""
    outputs = [work.calls[0][i] for i in work.outputs]
    for out in outputs:
        out.fill_(0 if work.adds else 77)
    run(0)
    worst = 0.0
    for out, wanted in zip(outputs, work.wanted(), strict=False):
        off = (out.double().reshape(-1) - wanted.double().reshape(-1)).norm()
        worst = max(worst, float(off / wanted.double().norm()))
    return worst


def _launch(work: Work, launch: Callable[..., object], meta: dict[str, Any], i: int) -> object:
    for at in work.fresh:
        work.calls[i][at].zero_()
    return launch(*work.calls[i], **meta)


def runs(work: Work) -> dict[str, Callable[[int], object]]:
    """A launch by each implementation."""
    file = sys.modules[work.kernel.fn.__module__].__file__
    assert file is not None
    theirs = getattr(as_triton(file), work.kernel.fn.__name__)
    found: dict[str, Callable[[int], object]] = {}
    asked = [("warploom", work.kernel, work.ours)]
    asked += [(" ".join(["triton", *map(str, x.values())]), theirs, x) for x in work.theirs]
    for name, kernel, more in asked:
        launch = functools.partial(_launch, work, kernel[work.grid], {**work.meta, **more})
        found[name] = launch
    if work.library:
        found["library"] = work.library
    return found


def measure(work: Work, clock: Clock, bursts: int) -> Found:
    record = Found(work.name)
    live: dict[str, tuple[Callable[[int], object], float]] = {}
    sets = len(work.calls)
    for name, run in runs(work).items():
        try:
            record.rel_err[name] = errors(work, run)
            if not record.rel_err[name] < work.tolerance:
                raise ValueError(f"wrong: relative error {record.rel_err[name]:.2g}")
            if name == "warploom":
                compiled = work.kernel.compile_for(
                    *work.calls[0], grid=work.grid, **(work.meta | work.ours)
                )
                r = compiled.resources
                record.resources[name] = [
                    r.registers,
                    r.spill_bytes,
                    r.dynamic_shared + r.static_shared,
                ]
            if bursts:
                live[name] = run, clock.quick_ms(run, sets)
        except Exception as error:
            if lost(error):
                raise
            record.error[name] = f"{type(error).__name__}: {str(error)[:400]}"
    for name in sorted((n for n in live if n.startswith("triton")), key=lambda n: live[n][1])[1:]:
        record.us[name] = [round(live.pop(name)[1] * 1e3, 3)]  # not the fastest: not timed again
    for _ in range(bursts):
        for name, (run, expect) in live.items():
            us = clock.burst_ms(run, sets, expect) * 1e3
            record.us.setdefault(name, []).append(round(us, 3))
    return record


def main(argv: Sequence[str] | None = None) -> int:
    import triton

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--bursts", type=int, default=3)
    parser.add_argument("--limit", type=float, default=math.inf, help="start no case after (s)")
    parser.add_argument("--only", default="", help="cases whose name holds one of these (a|b)")
    parser.add_argument("--part", default="0/1", help="every n-th case from the i-th on: i/n")
    parser.add_argument("--ours", nargs="*", default=(), help="knobs of warploom's: pdl=False …")
    parser.add_argument("--check-only", action="store_true", help="no timing: fills the caches too")
    args = parser.parse_args(argv)
    triton.set_allocator(
        lambda size, align, stream: torch.empty(size, dtype=torch.int8, device="cuda")
    )
    start, clock = time.monotonic(), Clock()
    part, parts = map(int, args.part.split("/"))
    report, run = begun("us")
    for index, (name, make) in enumerate(works()):
        if index % parts != part or time.monotonic() - start > args.limit:
            continue
        if not any(wanted in name for wanted in args.only.split("|")):
            continue
        try:
            work = make()
            work.ours |= {k: ast.literal_eval(v) for k, v in (x.split("=") for x in args.ours)}
            record = measure(work, clock, 0 if args.check_only else args.bursts)
        except Exception as error:
            if lost(error):
                raise
            print(f"{name}: {type(error).__name__}: {error}", flush=True)
            continue
        report.records += record.records(run)
        write(args.out, report)
        us = {name: statistics.median(times) for name, times in record.us.items()}
        ratio = us.get("triton", math.nan) / us.get("warploom", math.nan)
        shown = "  ".join(f"{name} {t:.1f}" for name, t in us.items()) + " us"
        if work.flops or work.bytes:
            rate, unit = (work.flops, "TFLOP/s") if work.flops else (work.bytes, "TB/s")
            shown += f" ({rate / us.get('warploom', math.nan) / 1e6:.3g} {unit})"
        print(
            f"{record.case:58s} {ratio:5.3f}  {shown}  {record.resources or ''} {record.error or ''}"
            f"  at {time.monotonic() - start:.1f} s",
            flush=True,
        )
        del work
        torch.cuda.empty_cache()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
