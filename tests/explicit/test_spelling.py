"""Every op kind of WARP has an explicit spelling: these scripts make all of them."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

import warploom.language as tl
from warploom import Script
from warploom.ir.core import KINDS, Level, walk
from warploom.kernels.explicit.attention import Attention
from warploom.kernels.explicit.gemm import Gemm
from warploom.language import float32, int32
from warploom.layout import whole


class Numbers(Script):
    """Arithmetic, control flow, memory by pointers."""

    def __call__(self, x_ptr: ~float32, i_ptr: ~int32, n: int32, a: float32):
        self.attrs.blocks = [n, 2]
        self.attrs.warps = 1
        i = self.blockIdx.x + self.gridDim.y
        self.assume(n > 0)
        self.device_assert(n != 3, "three")
        self.printf("n = %d\n", n)
        self.device_print("n", n, self.globaltimer())
        q, r = self.fast_divmod(i, n * 3 - 1)
        bits = (q & r) | ((q ^ r) << 2) | (q >> 1)
        bits = ~bits if (q <= r) | (q >= 7) else abs(-bits)
        while bits > 100:
            bits = bits // 2
        for j in range(n):
            if j == 2:
                bits = bits + min(j, 5) + max(j, 1)
        v = self.load(x_ptr + self.arange(0, 32))
        w = self.exp(v) + self.exp2(v) + self.log(v) + self.log2(v) + self.sqrt(v) + self.sqrt_rn(v)
        w = (
            w
            + self.rsqrt(v)
            + self.sin(v)
            + self.cos(v)
            + self.tanh(v)
            + self.erf(v)
            + self.cbrt(v)
        )
        w = w + self.tan(v) + self.asin(v) + self.acos(v) + self.atan(v) + self.sinh(v)
        w = w + self.cosh(v) + self.asinh(v) + self.acosh(v) + self.atanh(v) + self.exp10(v)
        w = w + self.expm1(v) + self.log10(v) + self.log1p(v) + self.erfc(v) + self.lgamma(v)
        w = w + self.tgamma(v) + self.trunc(v) + self.rint(v) + self.round(v)
        w = w + self.pow(v, w) + self.atan2(v, w) + self.jn(2, v) + self.yn(2, v)
        w = w + self.erfinv(v) + self.erfcinv(v) + self.erfcx(v) + self.j0(v) + self.j1(v)
        w = w + self.y0(v) + self.y1(v) + self.cyl_bessel_i0(v) + self.cyl_bessel_i1(v)
        w = w + self.rcp(v) + self.floor(v) + self.ceil(v) + self.where(v < a, v / a, a)
        w = self.gather(self.div_rn(w, v), self.arange(0, 32), dim=0)
        block = self.cast(self.broadcast_to(self.unsqueeze(w, 0), (16, 32)), tl.float16)
        w = w + self.sum(self.dot(block, self.reshape(block, (32, 16))), dim=None)
        w = w * self.decode(self.cast(self.arange(96, 128), tl.uint8), "ue8m0")
        square = self.reshape(w, (4, 8))
        square = tl.trans(square)
        row = self.sum(square, dim=1)
        square = self.scan(square + row[:, None], dim=1, fn="add", reverse=True)
        square, row = self.scan_by(square, square, dim=0, combine="add 0 2; add 1 3 -> 4 5")
        square = square + self.reduce_by(row, dim=1, combine="sub 0 1; abs 2 -> 3")[:, None]
        part = square[0:4, :]
        self.annotate_layout(part, whole((4, 4), 1))
        self.store(x_ptr + self.arange(0, 16), self.reshape(part, (16,)))
        self.store(i_ptr, bits + self.bitcast(a, int32) + self.cast(a, int32))
        bits = self.inline_asm("mov.b32 $0, $1;", bits, constraints="=r,r", outputs="i32")
        self.atomic_add(self.int_to_ptr(self.ptr_to_int(i_ptr), int32), bits)


class Machinery(Script):
    """What the kernels of the library don't use."""

    def __call__(self, x_ptr: ~float32, y_ptr: ~float32, n: int32):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        g_x = self.global_view(x_ptr, dtype=float32, shape=[n, 32])
        g_y = self.global_view(y_ptr, dtype=float32, shape=[n, 32])
        x = self.shared_tensor(dtype=float32, shape=[32, 32])
        full = self.mbarrier.alloc(128)
        x_map = self.tma.map_alloc(dtype=float32, shape=[32, 32])
        with self.thread_group(0, 128):
            self.tma.write_map(x_map, g_x)
            self.cp_async.load(g_x, x, offsets=[0, 0])
            self.cp_async.arrive(full)
            self.cp_async.wait_all()
            self.mbarrier.wait(full, 0)
            self.setmaxnreg(240)
            self.sync()
            value = self.load_global(g_x, offsets=[0, 0], shape=[32, 32])
            self.atomic.shared_add(x, value)
            self.sync()
            self.store_shared_scatter(x, dim=1, indices=self.cast(value, int32), values=value)
            self.sync()
            value = self.load_shared(x) + value
            self.store_global(g_y, self.dot(x, x, value), offsets=[0, 0])


class Cluster(Script):
    """Two CTAs that read each other's shared memory."""

    def __call__(self, x_ptr: ~float32, n: int32):
        self.attrs.cluster_blocks = 2
        self.attrs.blocks = [n * 2]
        self.attrs.warps = 4
        g_x = self.global_view(x_ptr, dtype=float32, shape=[n * 64, 32])
        x = self.shared_tensor(dtype=float32, shape=[32, 32])
        at = self.blockIdx.x * 32
        self.store_shared(x, self.load_global(g_x, offsets=[at, 0], shape=[32, 32]))
        self.cluster.sync()
        theirs = self.cluster.map_shared_addr(x, self.cluster.blockRank ^ 1)
        self.store_global(g_x, self.load_shared(theirs), offsets=[at, 0])
        self.cluster.sync()


def kinds(script: Any, args: list[Any]) -> set[str]:
    func = script._lowered(script._request(script.bind(args, {}), "sm_90a")).steps[0][1]
    return {o.kind.name for o in walk(func.body)}


def test_every_kind_is_spelled() -> None:
    x, f, i = (np.zeros(64, d) for d in (ml_dtypes.bfloat16, np.float32, np.int32))
    found = kinds(Gemm(), [x, x, x, 64, 64, 64]) | kinds(
        Attention(), [x, x, x, x, f, i, 1, 64, 0.1]
    )
    found |= kinds(Numbers(), [f, i, 7, 0.5]) | kinds(Machinery(), [f, f, 32])
    found |= kinds(Cluster(), [f, 1])
    wanted = {k.name for k in KINDS.values() if Level.WARP in k.levels}
    assert wanted - found == {
        "agree"
    }  # order_atomics adds it where the result of an atomic is read
