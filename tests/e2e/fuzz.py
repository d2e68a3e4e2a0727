"""Random Triton-style kernels as source text: what the compiler makes of them must compute what they say.

    python -m tests.e2e.fuzz FIRST LAST [--nvrtc]

draws the kernels of seeds FIRST … LAST - 1 and runs each through `judge`.  A kernel is a sum over tiles of
A and B (perhaps in a persistent loop, under a guard, with several dots, operands computed in registers,
carried scalars and tiles, reductions, …), or a chain of two dots as in attention.  Data are small
integers, so every order of summation gives the same bits.
"""

from __future__ import annotations

import argparse
import importlib.util
import random
import tempfile
import time
import traceback
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tests.e2e import road
from tests.e2e.gemms import DTYPES
from warploom.errors import CompileError, WarploomWarning

PARAMS = (
    "a_ptr, b_ptr, g_ptr, c_ptr, d_ptr, bias_ptr, res_ptr, M, N, K, "
    "sam, sak, sbk, sbn, scm, scn, sgn, flag"
)
HEADER = "import warploom as wl\nimport warploom.language as tl\n\n\n@wl.jit\ndef kernel(\n    "


@dataclass
class Case:
    """One kernel with its arguments.  `text` is the whole module."""

    seed: int
    text: str
    meta: dict[str, Any]
    knobs: dict[str, Any]
    args: list[Any]
    grid: tuple[int, ...]

    def kernel(self, folder: Path) -> Any:
        path = folder / f"fuzz{self.seed}.py"
        path.write_text(self.text)
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.kernel


@dataclass
class _Source:
    """Lines under construction."""

    lines: list[str] = field(default_factory=list)
    depth: int = 1

    def __call__(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)


def draw(seed: int) -> Case:
    """The kernel of a seed."""
    return _Draw(seed).case()


class _Draw:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        r = self.r = random.Random(seed)
        self.s = _Source()
        self.dtype = r.choice(["bf16", "bf16", "f16", "f16", "e4m3", "e5m2"])
        self.fp8 = self.dtype in ("e4m3", "e5m2")
        self.bm = r.choice([64, 64, 128, 128, 192, 256])
        self.bn = r.choice([16, 32, 48, 64, 64, 96, 112, 128])
        self.bk = r.choice([32, 64, 96] if self.fp8 else [16, 32, 32, 48, 64])
        self.out = r.choice([self.dtype, "f32", "bf16", "f16"])
        self.depth = r.choice([1, 2, 2, 3, 4])
        self.chain = r.random() < 0.25
        if self.chain and self.bn % (32 if self.fp8 else 16):
            self.bn = 64
        if self.bm == 256 and self.bn > 64:
            self.bn = 64

    def maybe(self, p: float) -> bool:
        return self.r.random() < p

    # ---- arguments

    def case(self) -> Case:
        r = self.r
        tiles = [0, 1, 1, 2, 3, self.depth - 1, self.depth, self.depth + 1, 2 * self.depth + 1]
        self.steps = max(0, r.choice(tiles))
        tail = self.maybe(0.6)
        self.m = max(1, self.bm * r.choice([1, 1, 2]) - (r.randrange(1, 40) if tail else 0))
        n_tiles = r.choice([1, 1, 2])
        self.n = max(1, self.bn * n_tiles - (r.randrange(1, 15) if tail else 0))
        self.k = max(0, self.bk * self.steps - (r.randrange(1, 15) if tail and self.steps else 0))
        self.orders = "rc" if self.fp8 and self.maybe(0.7) else r.choice(["rr", "rc", "cr", "cc"])
        if self.chain:
            self.chained()
        else:
            self.product()
        rng = np.random.default_rng(self.seed)

        def ints(*shape: int) -> Any:
            return rng.integers(-2, 3, shape).astype(np.float32)

        pads = [r.choice([0, 0, 0, 4, 1, 2]) for _ in range(3)]
        d, out = DTYPES[self.dtype], DTYPES[self.out]
        k, n = (self.n, self.k) if self.chain else (self.k, self.n)
        a = road.filled(
            ints(self.m, max(1, k if not self.chain else self.bk)), d, self.orders[0], pads[0]
        )
        if self.chain:  # A: M x BK, B: N x BK (keys), G: N x BD (values)
            b = road.filled(ints(self.n, self.bk), d, self.orders[1], pads[1])
            g = road.filled(ints(self.n, self.bd), d, "r", pads[1])
            columns = self.bd
        else:
            b = road.filled(ints(max(1, k), n), d, self.orders[1], pads[1])
            g = road.filled(ints(max(1, k), n), d, self.orders[1], pads[1])
            columns = self.n
        c = road.array((self.m, columns), out, r.choice("rrc"), pads[2])
        dd = road.array((max(self.m, columns) + 512,), np.float32)
        bias = road.filled(ints(max(self.m, columns)), np.float32)
        res = road.filled(ints(c.size), DTYPES[r.choice(["f32", "bf16", "f16"])])
        strides = [s // x.itemsize for x in (a, b, c) for s in x.strides]
        sgn = g.strides[0] // g.itemsize
        args = [a, b, g, c, dd, bias, res, self.m, self.n, self.k, *strides, sgn, r.randrange(4)]
        knobs: dict[str, Any] = {"num_consumer_groups": r.choice([0, 0, 1, 1, 2, 2, 2, 3])}
        knobs["num_warps"] = r.choice([4, 4, 4, 8])
        if knobs["num_consumer_groups"]:
            knobs["num_buffers_warp_spec"] = self.depth
        else:
            knobs["num_stages"] = self.depth
        meta = {"BM": self.bm, "BN": self.bn, "BK": self.bk, "BD": getattr(self, "bd", 64)}
        programs = r.choice([1, 2, 3]) if self.persistent else max(1, self.tiles())
        text = HEADER + PARAMS + ",\n    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, "
        text += "BD: tl.constexpr,\n):\n" + "\n".join(self.s.lines) + "\n"
        return Case(self.seed, text, meta, knobs, args, (programs,))

    def tiles(self) -> int:
        rows = -(-self.m // self.bm)
        return rows if self.chain else rows * -(-self.n // self.bn)

    # ---- parts of kernels

    def open_tiles(self, count: str) -> None:
        s = self.s
        self.persistent = self.maybe(0.45)
        if self.persistent:
            s(f"for tile in tl.range(tl.program_id(0), {count}, tl.num_programs(0)):")
            s.depth += 1
        else:
            s("tile = tl.program_id(0)")
            if self.maybe(0.15):
                s(f"if tile < {count}:")
                s.depth += 1
        if self.maybe(0.08):
            s("if flag != 2:" if self.maybe(0.5) else "if (tile + flag) % 2 == 0:")
            s.depth += 1

    def elementwise(self, name: str, rows: str, columns: str) -> str:
        """An expression in registers on an operand, of the same dtype."""
        r = self.r
        forms = [
            f"({name} * 2)",
            f"tl.where({rows}[:, None] % 3 == 0, {name}, -{name})",
            f"({name}.to(tl.float32) + {columns}[None, :] % 2).to({name}.dtype)",
            f"tl.maximum({name}, 0.0).to({name}.dtype)",
            f"({name}.to(tl.float32) - 1.0).to({name}.dtype)",
            f"({name}.to(tl.float32) * tl.sum({name}.to(tl.float32), 1)[:, None]).to({name}.dtype)",
        ]
        if self.fp8:
            forms = [f for f in forms if "float32" in f or ("where" in f and "-" not in f)]
        return r.choice(forms)

    # ---- sums over K

    def product(self) -> None:
        r, s = self.r, self.s
        s("tn = tl.cdiv(N, BN)")
        s("tm = tl.cdiv(M, BM)")
        two = self.maybe(0.3)
        shared_a = self.maybe(0.5)
        way = {x: r.choice(["ptr", "ptr", "desc", "block"]) for x in "ab"}
        modulo = self.maybe(0.15)
        for x, rows, columns, o in (("a", "M", "K", 0), ("b", "K", "N", 1)):
            if way[x] == "desc":
                if self.orders[o] == "r":
                    shape = "[BM, BK]" if x == "a" else "[BK, BN]"
                    s(f"{x}_desc = tl.make_tensor_descriptor({x}_ptr, [{rows}, {columns}], "
                      f"[{'sam' if x == 'a' else 'sbk'}, 1], {shape})")  # fmt: skip
                else:
                    shape = "[BK, BM]" if x == "a" else "[BN, BK]"
                    s(f"{x}_desc = tl.make_tensor_descriptor({x}_ptr, [{columns}, {rows}], "
                      f"[{'sak' if x == 'a' else 'sbn'}, 1], {shape})")  # fmt: skip
        self.open_tiles("tm * tn")
        s("pid_m = tile // tn")
        s("pid_n = tile % tn")
        s("rm = pid_m * BM + tl.arange(0, BM)")
        s("rn = pid_n * BN + tl.arange(0, BN)")
        s("rk = tl.arange(0, BK)")
        if modulo:
            s("rma = rm % M")
            s("rnb = rn % N")
        am, bn = ("rma", "rnb") if modulo else ("rm", "rn")
        advance = self.maybe(0.6)
        if way["a"] == "ptr":
            s(f"a_ptrs = a_ptr + {am}[:, None] * sam + rk[None, :] * sak")
        s(f"b_ptrs = b_ptr + rk[:, None] * sbk + {bn}[None, :] * sbn")
        s(f"g_ptrs = g_ptr + rk[:, None] * sbk + {bn}[None, :] * sbn")
        if way["a"] == "block":
            s(
                "a_block = tl.make_block_ptr(a_ptr, (M, K), (sam, sak), (pid_m * BM, 0), (BM, BK), (1, 0))"
            )
        if way["b"] == "block":
            s(
                "b_block = tl.make_block_ptr(b_ptr, (K, N), (sbk, sbn), (0, pid_n * BN), (BK, BN), (1, 0))"
            )
        start = r.choice(["zero", "zero", "zero", "bias", "res", "one"])
        if start == "bias":
            s(
                "acc = tl.zeros((BM, BN), tl.float32) + tl.load(bias_ptr + rn, mask=rn < N, other=0.0)[None, :]"
            )
        elif start == "one":
            s("acc = tl.full((BM, BN), 1.0, tl.float32)")
        elif start == "res":
            s(
                "res0 = tl.load(res_ptr + rm[:, None] * N + rn[None, :], mask=(rm[:, None] < M) & (rn[None, :] < N), other=0.0)"
            )
            s("acc = res0.to(tl.float32)")
        else:
            s("acc = tl.zeros((BM, BN), dtype=tl.float32)")
        if two:
            s("acc2 = tl.zeros((BM, BN), dtype=tl.float32)")
        rowsum, count, inside = self.maybe(0.2), self.maybe(0.2), self.maybe(0.12)
        colsum = self.maybe(0.12)
        late_a = self.maybe(0.08)
        if rowsum:
            s("row = tl.zeros((BM,), tl.float32)")
        if colsum:
            s("col = tl.zeros((BN,), tl.float32)")
        if count:
            s("count = 0")
        if inside:
            s("peak = tl.zeros((BM,), tl.float32)")
        nest = self.maybe(0.15)
        steps = "tl.cdiv(K, BK)"
        if nest:
            s("for outer in range(0, 2):")
            s.depth += 1
            if self.maybe(0.5):
                s("acc = acc * 2.0")
            if way["a"] == "ptr":
                s(f"a_ptrs = a_ptr + {am}[:, None] * sam + rk[None, :] * sak")
            s(f"b_ptrs = b_ptr + rk[:, None] * sbk + {bn}[None, :] * sbn")
            s(f"g_ptrs = g_ptr + rk[:, None] * sbk + {bn}[None, :] * sbn")
            if way["a"] == "block":
                s(
                    "a_block = tl.make_block_ptr(a_ptr, (M, K), (sam, sak), (pid_m * BM, 0), (BM, BK), (1, 0))"
                )
            if way["b"] == "block":
                s(
                    "b_block = tl.make_block_ptr(b_ptr, (K, N), (sbk, sbn), (0, pid_n * BN), (BK, BN), (1, 0))"
                )
        lo = (
            r.choice(["0", "0", "0", "flag // 2", "outer"])
            if nest
            else r.choice(["0", "0", "0", "1"])
        )
        if way["a"] == "block" or way["b"] == "block" or advance:
            lo = "0"
        by_step = lo == "0" and not advance and self.maybe(0.4)
        if by_step:
            s("for kk in range(0, K, BK):")
        else:
            s(f"for k in range({lo}, {steps}):")
        s.depth += 1
        s("kk = kk" if by_step else "kk = k * BK")
        if by_step:
            s("k = kk // BK")
        guard = self.maybe(0.15)
        if guard and self.maybe(0.4):
            s("if (k + flag) % 2 == 0:")
            s.depth += 1
            guarded = s.depth
        else:
            guarded = 0
        if way["a"] == "desc":
            s(
                "a = a_desc.load([pid_m * BM, kk])"
                if self.orders[0] == "r"
                else "a = a_desc.load([kk, pid_m * BM]).T"
            )
        elif way["a"] == "block":
            s('a = tl.load(a_block, boundary_check=(0, 1), padding_option="zero")')
        else:
            at = "a_ptrs" if advance else "a_ptrs + kk * sak"
            mask = "(rk[None, :] < K - kk)" + ("" if modulo else " & (rm[:, None] < M)")
            s(f"a = tl.load({at}, mask={mask}, other={r.choice(['0.0', '0.0', '1.0'])})")
        if way["b"] == "desc":
            s(
                "b = b_desc.load([kk, pid_n * BN])"
                if self.orders[1] == "r"
                else "b = b_desc.load([pid_n * BN, kk]).T"
            )
        elif way["b"] == "block":
            s('b = tl.load(b_block, boundary_check=(0, 1), padding_option="zero")')
        else:
            at = "b_ptrs" if advance else "b_ptrs + kk * sbk"
            mask = "(rk[:, None] < K - kk)" + ("" if modulo else " & (rn[None, :] < N)")
            s(f"b = tl.load({at}, mask={mask}, other=0.0)")
        if two:
            at = "g_ptrs" if advance else "g_ptrs + kk * sbk"
            mask = "(rk[:, None] < K - kk)" + ("" if modulo else " & (rn[None, :] < N)")
            s(f"g = tl.load({at}, mask={mask}, other=0.0)")
        left, right = "a", "b"
        if self.maybe(0.2):
            s(f"a2 = {self.elementwise('a', 'rm', 'rk')}")
            left = "a2"
        if self.maybe(0.12):
            s(f"b2 = {self.elementwise('b', 'rk', 'rn')}")
            right = "b2"
        if rowsum:
            s("row += tl.sum(a.to(tl.float32), 1)")
        if colsum:
            s("col += tl.sum(b.to(tl.float32), 0)")
        if guard and not guarded:
            s(r.choice(["if k % 2 == 0:", "if flag > 1:", "if k != flag:"]))
            s.depth += 1
        imprecise = ", max_num_imprecise_acc=32" if self.fp8 and self.maybe(0.3) else ""
        form = r.choice([0, 0, 1, 2])
        if form == 0:
            s(f"acc += tl.dot({left}, {right}{imprecise})")
        elif form == 1:
            s(f"acc = tl.dot({left}, {right}, acc{imprecise})")
        else:
            s(
                f"acc = tl.dot({left}, {right}, acc{imprecise})"
                + (" * 1.0" if self.maybe(0.3) else "")
            )
        if two:
            if shared_a:
                s(f"acc2 = tl.dot({left}, g, acc2)")
            elif self.maybe(0.5):
                s("acc2 += tl.dot(a, g)")
            else:
                s("acc = tl.dot(a, g, acc)")
        if guard and not guarded:
            s.depth -= 1
        if inside:
            s(
                r.choice(
                    [
                        "peak = tl.maximum(peak, tl.max(acc, 1))",
                        "acc = acc - tl.max(acc, 1)[:, None]",
                    ]
                )
            )
        if count:
            s("count += k + 1")
        if late_a:
            s("acc += tl.sum(a.to(tl.float32), 1)[:, None]")
        if guarded:
            s.depth = guarded - 1
        if advance:
            if way["a"] == "ptr":
                s("a_ptrs += BK * sak")
            s("b_ptrs += BK * sbk")
            s("g_ptrs += BK * sbk")
        if way["a"] == "block":
            s("a_block = tl.advance(a_block, (0, BK))")
        if way["b"] == "block":
            s("b_block = tl.advance(b_block, (BK, 0))")
        s.depth -= 1
        if nest:
            if self.maybe(0.3):
                s("acc = tl.where(acc > 50.0, 0.0, acc)")
            s.depth -= 1
        self.epilogue(two, rowsum, colsum, count, inside, "rn", "N", "pid_n * BN")

    def epilogue(self, two: bool, rowsum: bool, colsum: bool, count: bool, inside: bool,
                 cols: str, width: str, col0: str) -> None:  # fmt: skip
        r, s = self.r, self.s
        s("mask = (rm[:, None] < M) & (" + f"{cols}[None, :] < {width})")
        if two:
            s(
                r.choice(
                    ["acc = acc * acc2", "acc = acc + acc2", "acc = tl.where(acc > 0, acc, acc2)"]
                )
            )
        if rowsum:
            s("acc += row[:, None]")
        if colsum:
            s("acc += col[None, :]")
        if count:
            s("acc += count")
        if inside:
            s("acc += peak[:, None]")
        for form in r.sample(
            [
                f"acc += tl.load(bias_ptr + {cols}, mask={cols} < {width}, other=0.0)[None, :]",
                "acc += tl.load(bias_ptr + rm, mask=rm < M, other=0.0)[:, None]",
                f"acc += tl.load(res_ptr + rm[:, None] * {width} + {cols}[None, :], mask=mask, other=0.0).to(tl.float32)",
                "acc = acc * 2 - 1",
                "acc = tl.where(mask, acc, 0.0)",
                "acc = tl.maximum(acc, -acc)",
                "if flag > 1:\n" + "    " * (s.depth + 1) + "acc = acc + 1.0",
            ],
            r.choice([0, 0, 1, 1, 2]),
        ):
            s(form)
        if self.maybe(0.12):
            s("tl.store(d_ptr + rm, tl.sum(tl.where(mask, acc, 0.0), 1), mask=rm < M)")
        elif self.maybe(0.12):
            s("total = tl.sum(tl.where(mask, acc, 0.0), 0)")
            s(f"tl.atomic_add(d_ptr + {cols}, total, mask={cols} < {width})")
        elif self.maybe(0.08):
            s("top = tl.max(tl.max(tl.where(mask, acc, 0.0), 1), 0)")
            s("acc = acc + top")
        if self.maybe(0.08):
            s("tl.store(d_ptr + tile, tl.sum(tl.sum(tl.where(mask, acc, 0.0), 1), 0))")
        way = r.choice(["ptr", "ptr", "ptr", "trans", "if", "block"])
        if way == "block":
            s(f"c_block = tl.make_block_ptr(c_ptr, (M, {width}), (scm, scn), (pid_m * BM, {col0}), "
              f"(BM, {'BN' if width == 'N' else 'BD'}), (1, 0))")  # fmt: skip
            s("tl.store(c_block, acc.to(c_ptr.dtype.element_ty), boundary_check=(0, 1))")
        elif way == "trans":
            s(f"ct = c_ptr + {cols}[:, None] * scn + rm[None, :] * scm")
            s(
                f"tl.store(ct, tl.trans(acc).to(c_ptr.dtype.element_ty), mask=({cols}[:, None] < {width}) & (rm[None, :] < M))"
            )
        else:
            if way == "if":
                s("if tile % 2 == 0 or flag == 0:")
                s.depth += 1
            s(f"cp = c_ptr + rm[:, None] * scm + {cols}[None, :] * scn")
            s("tl.store(cp, acc.to(c_ptr.dtype.element_ty), mask=mask)")

    # ---- chains: softmax-free attention

    def chained(self) -> None:
        r, s = self.r, self.s
        self.bd = r.choice([32, 64, 64, 96])
        self.steps = r.choice([0, 1, 1, 2, 3, self.depth + 1])
        self.n = max(0, self.bn * self.steps - r.choice([0, 0, 3, 17]))
        self.n = max(1, self.n)
        s("tm = tl.cdiv(M, BM)")
        self.open_tiles("tm")
        s("pid_m = tile")
        s("rm = pid_m * BM + tl.arange(0, BM)")
        s("rk = tl.arange(0, BK)")
        s("rd = tl.arange(0, BD)")
        s(
            "q = tl.load(a_ptr + rm[:, None] * sam + rk[None, :] * sak, mask=rm[:, None] < M, other=0.0)"
        )
        if self.maybe(0.2):
            s(f"q = {self.elementwise('q', 'rm', 'rk')}")
        s("acc = tl.zeros((BM, BD), tl.float32)")
        s("peak = tl.zeros((BM,), tl.float32)")
        s("den = tl.zeros((BM,), tl.float32)")
        s("for n in range(0, N, BN):")
        s.depth += 1
        s("rn = n + tl.arange(0, BN)")
        if self.maybe(0.5):
            s(
                "kt = tl.load(b_ptr + rn[None, :] * sbk + rk[:, None] * sbn, mask=rn[None, :] < N, other=0.0)"
            )
        else:
            s(
                "kt = tl.trans(tl.load(b_ptr + rn[:, None] * sbk + rk[None, :] * sbn, mask=rn[:, None] < N, other=0.0))"
            )
        s("p = tl.dot(q, kt)")
        if self.maybe(0.5):
            s("new = tl.maximum(peak, tl.max(p, 1))")
            s("p = tl.where(p > new[:, None] - 4.0, 1.0, 0.0)")
            s(
                "acc = acc * tl.where(new > peak, 2.0, 1.0)[:, None]"
                if self.maybe(0.5)
                else "acc = acc - new[:, None]"
            )
            s("peak = new")
        else:
            s(
                r.choice(
                    [
                        "p = p * 2",
                        "p = tl.maximum(p, 0.0)",
                        "p = tl.where(rn[None, :] < rm[:, None], p, 0.0)",
                    ]
                )
            )
        if self.maybe(0.5):
            s("den += tl.sum(p, 1)")
        s("v = tl.load(g_ptr + rn[:, None] * sgn + rd[None, :], mask=rn[:, None] < N, other=0.0)")
        s("acc = tl.dot(p.to(v.dtype), v, acc)")
        s.depth -= 1
        s("acc += den[:, None]")
        self.epilogue(False, False, False, False, self.maybe(0.5), "rd", "BD", "0")


def judge(
    case: Case, folder: Path, nvrtc: bool = False, orders: tuple[str, ...] = road.ORDERS
) -> str:
    """'' where the kernel computes the same everywhere; the refusal where it has a clean one, or what the
    user is told of spills.

    Raises whatever shows a bug: a difference, an InternalError, a simulator's report, an error without
    a location."""
    kernel = case.kernel(folder)
    meta = {**case.meta, **case.knobs}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", WarploomWarning)
        try:
            compiled = road.compile_for(kernel, case.args, case.grid, meta)
        except CompileError as e:
            assert e.loc is not None, f"no location: {e}"
            return f"{e.code}: {e.message}"
    expected = road.expected_of(compiled, case.args, case.grid)
    for order in orders:
        road.same(
            expected, road.simulated(compiled, case.args, case.grid, order), f"PLACED, {order}"
        )
    for name, at_level in road._runs(compiled):
        copies = [road.clone(a) for a in case.args]
        at_level(road._on_host(copies), road._grid(case.grid))
        road.same(expected, copies, name)
    if nvrtc:
        problems = "; ".join(compiled.resources.problems())
        told = any("warning[resources]" in w for w in compiled.warnings)
        assert told or not problems, problems
        return problems and f"told: {problems}"
    return ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("first", type=int)
    parser.add_argument("last", type=int)
    parser.add_argument("--nvrtc", action="store_true", help="compile to cubins as well")
    parser.add_argument("--trace", action="store_true", help="print tracebacks")
    options = parser.parse_args()
    if not options.nvrtc:
        from warploom.runtime import compiled as c
        from warploom.runtime.nvrtc import Build

        c._compile_text = lambda source, plan, request, limit, want_ptx: Build(
            plan.name, b"", "", 0, 0, 0, 0, 0, (), 0.0, "none", ""
        )
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(options.first, options.last):
            case = draw(seed)
            start = time.perf_counter()
            try:
                said = judge(case, Path(folder), options.nvrtc) or "ok"
            except Exception as e:
                said = f"FAILED {type(e).__name__}: {str(e)[:300]}"
                if options.trace:
                    traceback.print_exc()
            print(f"{seed}: {said} ({time.perf_counter() - start:.1f} s)", flush=True)


if __name__ == "__main__":
    main()
