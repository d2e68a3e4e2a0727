"""Kernels for the oracle's tests, built op by op (no parser, no frontend)."""

from __future__ import annotations

from warploom.ir.core import Builder, Func, Level, Value
from warploom.ir.ops import arith, control, tile
from warploom.ir.types import DType, Pointer, Scalar, f32, i1, i32


def pointer_gemm(dtype: DType, bm: int, bn: int, bk: int) -> Func:
    """C = A·B, one tile a program, masks on every axis; parameters a, b, c, M, N, K (row-major)."""
    names = ("a", "b", "c", "M", "N", "K")
    params = tuple(
        Value(Pointer(dtype) if i < 3 else Scalar(i32), name) for i, name in enumerate(names)
    )
    a, b_, c, m, n, k = params
    b = Builder()

    def num(value: int) -> Value:
        return arith.const(b, value=value, dtype=i32)

    def grid2(rows: Value, cols: Value, shape: tuple[int, int], stride: Value) -> Value:
        """rows·stride + cols."""
        r = tile.broadcast(b, tile.expand_dims(b, rows, axis=1), shape=shape)
        q = tile.broadcast(b, tile.expand_dims(b, cols, axis=0), shape=shape)
        return arith.add(b, arith.mul(b, r, tile.splat(b, stride, shape=shape)), q)

    def below(x: Value, axis: int, bound: Value, shape: tuple[int, int]) -> Value:
        wide = tile.broadcast(b, tile.expand_dims(b, x, axis=1 - axis), shape=shape)
        return arith.lt(b, wide, tile.splat(b, bound, shape=shape))

    def span(start: Value, size: int) -> Value:
        return arith.add(b, tile.splat(b, start, shape=(size,)), tile.arange(b, start=0, end=size))

    rows = span(arith.mul(b, tile.program_id(b, axis=0), num(bm)), bm)
    cols = span(arith.mul(b, tile.program_id(b, axis=1), num(bn)), bn)
    zero = arith.const(b, value=0.0, dtype=f32)
    acc0 = tile.splat(b, zero, shape=(bm, bn))
    iv, acc = Value(Scalar(i32), "k"), Value(acc0.type, "acc")
    outer, b = b, b.nested()
    ks = span(iv, bk)
    am = arith.and_(b, below(rows, 0, m, (bm, bk)), below(ks, 1, k, (bm, bk)))
    bmask = arith.and_(b, below(ks, 0, k, (bk, bn)), below(cols, 1, n, (bk, bn)))
    at = tile.load(
        b, arith.addptr(b, tile.splat(b, a, shape=(bm, bk)), grid2(rows, ks, (bm, bk), k)), am
    )
    bt = tile.load(
        b, arith.addptr(b, tile.splat(b, b_, shape=(bk, bn)), grid2(ks, cols, (bk, bn), n)), bmask
    )
    control.yield_(b, tile.dot(b, at, bt, acc))
    body = b.region((iv, acc))
    b = outer
    total = control.for_(b, num(0), k, num(bk), acc0, regions=(body,))
    out = arith.cast(b, total, dtype=dtype)
    mask = arith.and_(b, below(rows, 0, m, (bm, bn)), below(cols, 1, n, (bm, bn)))
    tile.store(
        b,
        arith.addptr(b, tile.splat(b, c, shape=(bm, bn)), grid2(rows, cols, (bm, bn), n)),
        out,
        mask,
    )
    control.yield_(b)
    assert mask.type.elem == i1
    return Func("gemm", b.region(params), Level.TILE)
