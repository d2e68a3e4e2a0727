"""Block-scaled products as they are emitted, executed lane by lane as the PTX ISA says: no chip with the
instruction is at hand."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from corpus.microscaling import CASES
from warploom.codegen.ptx import ScaledMma
from warploom.ir.core import Op, walk
from warploom.ir.ops import tile
from warploom.ir.types import dtype_of, f8e4m3, f8e5m2, shape_of, u8
from warploom.sim.scaled import table

CALL = re.compile(
    r"for \(int (\w+) = 0; \w+ < (\d+); \+\+\w+\)\s*#pragma unroll\s*"
    r"for \(int (\w+) = 0; \w+ < (\d+); \+\+\w+\)\s*"
    r"mma_mx\w+<(\d)>\(\w+ \+ ([^,]+), \w+ \+ ([^,]+), \w+ \+ ([^,]+), \w+\[([^]]+)\], \w+\[([^]]+)\]\);"
)
GROUP = {"u8": 32, "f8e4m3": 16}


def lanes(layout: Any, values: Any) -> Any:
    """What every register of every lane of every warp holds of a tile: (warps, 32, registers)."""
    return values[tuple(layout.table)]


def words_of_scales(registers: Any, groups: int) -> Any:
    """Bytes of the words of scales: each row of an instruction begins one."""
    warps, _, count = registers.shape
    rows = registers.reshape(warps, 32, count // groups, groups)
    padded = np.zeros((*rows.shape[:3], -(-groups // 4) * 4), registers.dtype)
    padded[..., :groups] = rows
    return padded.reshape(warps, 32, -1, 4)


def fragment(bytes_: Any, rows: int) -> Any:
    """A (16 rows) or B (8 columns) × 32 bytes of K from (32 lanes, words, 4 bytes)."""
    found = np.zeros((rows, 32), bytes_.dtype)
    for lane in range(32):
        g, t = divmod(lane, 4)
        for w in range(bytes_.shape[1]):
            row, half = (g + 8 * (w % 2), w // 2) if rows == 16 else (g, w)
            found[row, 4 * t + 16 * half : 4 * t + 16 * half + 4] = bytes_[lane, w]
    return found


def elements(bytes_: Any, encoding: str) -> Any:
    if encoding == "u8":
        two = (table("e2m1")[x] for x in (bytes_, bytes_ >> 4))
        return np.stack(tuple(two), -1).reshape(len(bytes_), -1)
    return table(encoding.removeprefix("f8"))[bytes_]


def executed(o: Op, text: str, operands: tuple[Any, ...]) -> Any:
    """The accumulators of every lane after the instructions that the text has for dot o."""
    a, b, acc, sa, sb = (lanes(v.type.layout, x) for v, x in zip(o.operands, operands, strict=True))  # type: ignore[attr-defined]
    left, right, scale = (dtype_of(o.operands[i].type).name for i in (0, 1, 3))
    form = ScaledMma(*(dtype_of(o.operands[i].type) for i in (0, 1, 3)))
    groups = shape_of(o.operands[3].type)[1]
    a, b = (x.reshape(*x.shape[:2], -1, 4) for x in (a, b))
    sa, sb = (words_of_scales(x, groups) for x in (sa, sb))
    read = (lambda x: table("ue8m0")[x]) if scale == "u8" else (lambda x: table("e4m3")[x])
    calls = CALL.findall(text)
    assert calls
    for row, tall, column, wide, byte, *places in calls:
        for i in range(int(tall)):
            for j in range(int(wide)):
                at = [eval(p, {row: i, column: j}) for p in places]
                for w in range(a.shape[0]):
                    x = elements(fragment(a[w, :, at[1] : at[1] + 4], 16), left)
                    y = elements(fragment(b[w, :, at[2] : at[2] + 2], 8), right)
                    by = slice(int(byte), int(byte) + form.groups)
                    s = np.array([sa[w, 4 * (m % 8) + m // 8, at[3], by] for m in range(16)])
                    u = np.array([sb[w, 4 * n, at[4], by] for n in range(8)])
                    x = x * np.repeat(read(s), x.shape[1] // form.groups, axis=1)
                    y = y * np.repeat(read(u), y.shape[1] // form.groups, axis=1)
                    d = x @ y.T
                    for lane in range(32):
                        g, t = divmod(lane, 4)
                        for r in range(4):
                            acc[w, lane, at[0] + r] += d[g + 8 * (r // 2), 2 * t + r % 2]
    return acc


@pytest.mark.usefixtures("without_nvrtc")
@pytest.mark.parametrize(
    "name", ["mxfp8", "mxfp8-short", "mxfp4", "mxfp4-two", "nvfp4", "nvfp4-eight"]
)
def test_instructions_make_the_product(name: str) -> None:
    case = CASES[name]()
    given = {**case.meta, **case.knobs, "num_consumer_groups": 0}
    made = case.kernel.compile_for(*case.args, grid=case.grid, target="sm_120a", **given)
    (o,) = (o for o in walk(made.placed.body) if o.kind is tile.dot)
    rng = np.random.default_rng(1)
    tiles = []
    for i, v in enumerate(o.operands):
        shape = shape_of(v.type)
        low, high = (0, 256) if i < 2 and dtype_of(v.type) == u8 else (40, 72)  # finite
        if i == 2:
            tiles.append(rng.integers(-9, 9, shape).astype(np.float32))
        elif i > 2 and dtype_of(v.type) == u8:
            tiles.append(rng.integers(124, 131, shape).astype(np.uint8))
        else:
            tiles.append(rng.integers(low, high, shape).astype(np.uint8))
    found = executed(o, made.cuda, tuple(tiles))
    a, b, acc, sa, sb = tiles
    left, right, scale = (dtype_of(o.operands[i].type).name for i in (0, 1, 3))
    read = table("ue8m0" if scale == "u8" else "e4m3")
    x, y = elements(a, left), elements(b.T, right)
    x, y = (v * np.repeat(read[s], GROUP[scale], axis=1) for v, s in ((x, sa), (y, sb)))
    want = lanes(o.result.type.layout, acc + x.astype(np.float64) @ y.T)  # type: ignore[attr-defined]
    assert np.allclose(found, want, rtol=1e-5, atol=1e-5 * np.abs(want).max())


def test_kinds_and_scale_vectors() -> None:
    """PTX ISA, "Block Scaling for mma.sync", valid combinations of .kind, types and .scale_vec."""
    for form, text in (
        (ScaledMma(f8e4m3, f8e5m2, u8), "k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.e4m3.e5m2.f32.ue8m0"),
        (ScaledMma(u8, u8, u8), "k64.row.col.kind::mxf4.block_scale.scale_vec::2X.f32.e2m1.e2m1.f32.ue8m0"),
        (ScaledMma(u8, u8, f8e4m3), "k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3"),
    ):  # fmt: skip
        assert f"mma.sync.aligned.m16n8{text} " in form.definition()
