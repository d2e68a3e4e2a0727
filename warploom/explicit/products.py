"""self.wgmma: the products of the tensor core."""

from __future__ import annotations

from typing import Any, NoReturn

from warploom.errors import CompileError, Note
from warploom.explicit.handles import Changed
from warploom.explicit.operands import program, shared_of, tile_value, whole_group
from warploom.explicit.program import SETTLED, UNCOMMITTED, Program
from warploom.frontend.coerce import (
    Operand,
    current,
    describe,
    is_literal,
    static_dtype,
    static_int,
)
from warploom.frontend.language.core import builtin
from warploom.frontend.language.shape import full
from warploom.frontend.refuse import refuse
from warploom.ir.build import is_zero
from warploom.ir.core import Op, Value
from warploom.ir.ops import mma, tile
from warploom.ir.types import DType, InFlight, Shared, Tile, accumulators, f16, f32, i1
from warploom.layout.shared import swizzle_for


class Products:
    """Products in registers."""

    @builtin
    def dot(
        self,
        a: Operand,
        b: Operand,
        acc: Operand = None,
        a_scale: Operand = None,
        b_scale: Operand = None,
        unit: str | None = None,
        acc_dtype: Any = None,
        out: Any = None,
    ) -> Any:
        """a (m, k) · b (k, n) + acc (m, n), or of three axes each that of every batch, all in registers, by a
        matrix unit that a warp waits for (mma.sync): k a multiple of 32 bytes; any m and n, which fill
        instructions of 16 rows and 8 columns in part where they are no multiples.  With a and b in shared
        memory, of float32, by fma: of any sizes, with all bits.  Without acc the product alone.
        acc_dtype: what the sum has (float32 of floats, of float16 also float16, rounded after each
        instruction; int32 of integers), by default what acc has.  out: the tensor that becomes the result.

        With both scales, where the unit takes them: a_scale (m, k/32), b_scale (n, k/32) of uint8 (ue8m0);
        bytes of a and b are two e2m1 each along K then, k twice as many, and scales may be (m, k/16),
        (n, k/16) of float8e4nv."""
        total = acc_dtype if acc_dtype is None else static_dtype(acc_dtype, "acc_dtype")
        done = in_registers(a, b, acc, (a_scale, b_scale), unit, total)
        return done if out is None else Changed(((tile_value(out, "dot's out"), done),), done)


class Wgmma:
    """self.wgmma: the tensor core's asynchronous products, issued by one warp group."""

    @builtin
    def fence(self) -> None:
        """Orders earlier register accesses before the following mma."""
        _warp_group("wgmma.fence")
        current().emit(mma.wgmma_fence)

    @builtin
    def mma(
        self, a: Any, b: Any, d: Any, use_acc: Operand = True, enable_input_d: Operand = None
    ) -> Changed:
        """Issues d ← a·b + d; where use_acc (enable_input_d) is false d ← a·b.  a: (m, k) in shared memory or
        registers; b: (k, n) in shared memory; d: (m, n) in registers, float32 (int32 for products of 8-bit
        integers), not to be touched before the wait_group that covers it.  An a in registers that a loop
        makes is waited for in the same iteration.  float32 operands count as tf32: their lowest 13 bits are
        ignored."""
        _warp_group("wgmma.mma")
        p, emitter = program(), current()
        right = shared_of(b)
        left = shared_of(a) if isinstance(a, Value) and isinstance(a.type, Shared) else None
        if left is None:
            left = tile_value(a, "wgmma's a")
        if not isinstance(d, Value) or not isinstance(d.type, Tile | InFlight):
            refuse(
                "wgmma-acc",
                f"wgmma accumulates in registers, found {describe(d)}",
                "pass a register_tensor",
            )
        acc = d
        use = use_acc if enable_input_d is None else enable_input_d
        if isinstance(d.type, Tile):
            if _is_zero(d):  # which is not to be written to registers first
                acc = emitter.emit(mma.no_acc, shape=d.type.shape, dtype=d.type.dtype, hint=d.hint)
                use = False
            else:
                acc = emitter.emit(mma.in_flight, d, hint=d.hint)
            _before_fence(emitter.builder.ops, d)
        flag = emitter.truth(use) if not is_literal(use) else emitter.const(bool(use), i1)
        for s, k_axis in ((left, 1), (right, 0)):
            if (
                isinstance(s.type, Shared)
                and mma.only_k_major(s.type.dtype)
                and s.type.inner != k_axis
            ):
                _k_major(s, k_axis)
            if isinstance(s.type, Shared) and s.type.swizzle == 0:
                _no_swizzle(p, s)
        out = emitter.emit(mma.wgmma, left, right, acc, flag, hint=d.hint)
        p.state.flight[out] = UNCOMMITTED
        return Changed(((d, out),))

    @builtin
    def commit_group(self) -> None:
        """Closes the group of products issued so far."""
        _warp_group("wgmma.commit_group")
        flight = program().state.flight
        for v, age in flight.items():
            if age != SETTLED:
                flight[v] = age + 1
        current().emit(mma.wgmma_commit)

    @builtin
    def wait_group(self, n: Any = 0) -> Any:
        """Until at most n of the latest groups are going on.  The accumulators of the others are register
        tensors again."""
        _warp_group("wgmma.wait_group")
        return Wait(static_int(n, "n"))


def in_registers(
    a: Any, b: Any, acc: Any, scales: tuple[Any, ...], unit: str | None, total: DType | None
) -> Value:
    """self.dot: a product by the unit of this instruction, or the first that does it in order, summed in
    total."""
    emitter = current()
    places = [isinstance(x, Value) and isinstance(x.type, Shared) for x in (a, b)]
    if all(places) and {x.type.dtype for x in (a, b)} == {f32} and unit in (None, "fma"):
        if acc is None:
            acc = full((*a.type.shape[:-1], b.type.shape[-1]), 0, f32)
        return emitter.emit(mma.fma, shared_of(a), shared_of(b), tile_value(acc, "dot"))
    for x, lies_there in zip((a, b), places, strict=True):
        if lies_there:
            refuse(
                "dot-operand",
                f"dot multiplies register tensors, found {describe(x)}",
                "take self.load_shared of it (of float32 leave both there, for fma), or write "
                "self.wgmma.mma(a, b, acc), between self.wgmma.fence() and commit_group()",
            )
    left, right = tile_value(a, "dot"), tile_value(b, "dot")
    shapes = emitter.shape(left), emitter.shape(right)
    of = emitter.number(left), emitter.number(right)
    scaled_by = [tile_value(x, "dot") for x in scales if x is not None]
    allowed = (f32,) if scaled_by else accumulators(of[0])
    given = allowed[0] if acc is None else emitter.number(tile_value(acc, "dot"))
    total = total or given
    if total not in allowed or (acc is not None and total != given):
        what = f"a sum in {total}, of products that sum in {' or '.join(map(str, allowed))}"
        refuse("dot-dtype", what if acc is None else f"{what}, into {describe(acc)}", "cast it")
    if acc is None and len(shapes[0]) == len(shapes[1]) in (2, 3):
        acc = full((*shapes[0][:-1], shapes[1][-1]), 0, total)
    units = [u for u in program().machine.matrix_units if not u.is_async]
    left_type, right_type, sums = (d.name for d in (*of, total))
    scale = emitter.number(scaled_by[0]).name if scaled_by else ""
    units = [u for u in units if u.product(left_type, right_type, sums, scale)]
    found = next((u for u in units if unit in (None, u.instruction)), None)
    if found is None:
        refuse(
            "dot-dtype",
            f"no {unit or 'matrix unit'} multiplies {of[0]} by {of[1]}"
            f"{f' with scales of {scale}' if scaled_by else ''} in registers",
            f"instructions for these: {', '.join(u.instruction for u in units) or 'none'}",
        )
    done: Value = emitter.emit(tile.dot, left, right, acc, *scaled_by, unit=found.instruction)
    if total == f16 and shapes[1][-1] % 2:
        why = f"dot of {shapes[1][-1]} columns in float16: two of them share a register"
        refuse("dot-shape", why, "pad the tensors, or sum in float32")
    k, step = shapes[0][-1], found.k_step(of[0].bits)
    if k % step:
        refuse(
            "dot-shape",
            f"dot of {k} of K: {found.instruction} takes multiples of {step}",
            "pad the tensors, or take others",
        )
    return done


def _no_swizzle(p: Program, s: Value) -> NoReturn:
    """wgmma on shared memory that lies unswizzled: as a line asked, or as its rows are too short."""
    site = p.site(s)
    choice = p.choices.get(site) if site is not None else None
    if choice is not None and "swizzle" in choice.why:
        raise CompileError(
            "layout-conflict",
            f"wgmma reads swizzled shared memory, {s.type} is not",
            current().loc,
            (Note("its swizzle is fixed here", choice.why["swizzle"][1]),),
            "leave the swizzle out, or annotate 32, 64 or 128 bytes",
        )
    t = s.typed(Shared)
    if site is not None and t.shape == t.box and (choice is None or "inner" not in choice.why):
        other = 1 - t.inner
        if swizzle_for(t.box[other] * t.dtype.bytes, t.box[t.inner]):
            because = f"wgmma reads swizzled rows, those along axis {t.inner} are too short"
            p.choose_inner(s, other, because, current().loc)
    refuse(
        "wgmma-swizzle",
        f"wgmma reads swizzled shared memory, {s.type} has rows of too few bytes",
        "make its inner axis a multiple of 32 bytes",
    )


class Wait:
    """A wait_group, which the translator finishes: it knows the variables."""

    def __init__(self, pending: int) -> None:
        self.pending = pending


def _is_zero(d: Value) -> bool:
    """Is a register tensor made of the constant zero, as far as this code goes?"""
    p, emitter = program(), current()
    ops = [
        *(p.top.ops if p.top else ()),
        *(o for b in p.around for o in b.ops),
        *emitter.builder.ops,
    ]
    makers = {v: o for o in ops for v in o.results}
    return is_zero(d, makers.get)


def _before_fence(ops: list[Op], d: Value) -> None:
    """Moves the in_flight just appended before the last fence where `d` was there already: it is no
    instruction, so the fence covers the accumulator."""
    for i in range(len(ops) - 2, -1, -1):
        if d in ops[i].results:
            return
        if ops[i].kind is mma.wgmma_fence:
            ops.insert(i, ops.pop())
            return


def _k_major(s: Value, k_axis: int) -> None:
    """Operands that are not of 16 bits lie along K (PTX ISA, wgmma.mma_async): the shared tensor does, where
    it may."""
    p, t = program(), s.typed(Shared)
    site = p.site(s)
    if site is not None and t.shape == t.box:
        p.choose_inner(s, k_axis, f"products of {t.dtype} read along K", current().loc)


def _warp_group(what: str) -> None:
    here = whole_group(what)
    machine = program().machine
    n, threads = machine.warp_group, machine.group_threads
    if here.warps != n or here.first % n:
        refuse(
            "wgmma-group",
            f"{what} is run by one warp group of {threads} threads, here run {here}",
            f"put it under `with self.warp_group(warp_begin, {n}):`, warp_begin a multiple of {n}; several "
            f"groups that run the same code are `with self.thread_group(begin, {threads}, replicas=n):`",
        )
