"""What `self` makes: views of global memory, shared tensors, register tensors, and how they lie."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from warploom.analysis.access import alignments, tma_fault
from warploom.analysis.facts import Facts
from warploom.analysis.scalar_rules import anything
from warploom.explicit.elements import numbers
from warploom.explicit.handles import Changed, GlobalView, NarrowView
from warploom.explicit.layouts import SharedLayout
from warploom.explicit.narrow import Narrow
from warploom.explicit.operands import known_int, program, shared_of, tile_value, whole_group
from warploom.explicit.program import SETTLED, Program, SharedChoice, Workspace, shared_shape
from warploom.frontend.coerce import (
    Operand,
    current,
    describe,
    known,
    static_dtype,
    static_int,
    static_ints,
)
from warploom.frontend.language import shape as shapes
from warploom.frontend.language.core import builtin
from warploom.frontend.refuse import refuse
from warploom.ir.core import Value
from warploom.ir.ops import mma, smem, tile
from warploom.ir.types import DType, InFlight, Pointer, Shared, Tile, f32, i32, i64, u8
from warploom.layout import Layout
from warploom.layout.modes import RegisterLayout


class Tensors:
    """Tensors of a Script and of a Class."""

    @builtin
    def global_view(
        self, ptr: Operand, dtype: Any, shape: Any, strides: Any = None, divisible: Any = None
    ) -> Any:
        """A pointer's memory as an array: extents and strides in elements (row-major without strides).

        divisible: the script's promise of what divides the base (bytes) and each stride (elements), powers of
        two up to 16, where it knows more than follows from the arguments."""
        emitter = current()
        d = u8 if isinstance(dtype, Narrow) else static_dtype(dtype, "dtype")
        if not isinstance(ptr, Value) or not isinstance(ptr.type, Pointer):
            refuse(
                "not-a-pointer",
                f"a view needs a pointer, found {describe(ptr)}",
                "declare it as ~float16",
            )
        if ptr.type.dtype != d:
            refuse(
                "dtype-mismatch",
                f"a view of {d} of a pointer to {ptr.type.dtype}",
                "make them agree",
            )
        extents = shape if isinstance(shape, tuple) else (shape,)
        if not 1 <= len(extents) <= 5:
            refuse("view-rank", f"a view of {len(extents)} axes", "views have 1 to 5 axes")
        steps = _row_major(extents) if strides is None else strides
        if not isinstance(steps, tuple) or len(steps) != len(extents):
            refuse("view-strides", "one stride for each axis", "give as many strides as sizes")
        if isinstance(dtype, Narrow):
            return NarrowView(ptr, ptr, dtype, extents, steps, None, "its elements are no bytes")
        sizes = [emitter.cast(x, i64) for x in (*extents, *steps)]
        if divisible is None:
            base, *known_divisors = _divisors(ptr, sizes[len(extents) :])
        else:
            base, *known_divisors = _promised(divisible, 1 + len(steps))
        view = emitter.emit(
            tile.make_view,
            ptr,
            *sizes,
            divisible=(base, *known_divisors),
            hint=f"{ptr.hint.removesuffix('_ptr')}_view",
        )
        units = [a for a, s in enumerate(steps) if known_int(s) == 1]
        fault: str | None = "no axis has a stride of exactly one element"
        if units:
            fault = tma_fault(base, known_divisors, 0, units[-1], d)
        return GlobalView(
            view,
            ptr,
            d,
            extents,
            steps,
            units[-1] if units else None,
            fault or "",
        )

    @builtin
    def global_tensor(
        self, dtype: Any, shape: Any, layout: Any = None, requires_clean: Any = False
    ) -> Any:
        """Global memory of the launch, row-major, the same for all its CTAs: workspace that no caller passes.
        shape: numbers, and what follows from arguments of the kernel.

        requires_clean: it holds zeros when the kernel begins, and the kernel leaves zeros; without it the
        contents are anybody's.  Launches on one stream use one memory after each other."""
        if layout is not None:
            refuse(
                "global-tensor", "a global_tensor with a layout", "it is row-major: leave it out"
            )
        p, emitter, d = program(), current(), static_dtype(dtype, "dtype")
        extents = shape if isinstance(shape, tuple) else (shape,)
        name = p.unique(p.target or "workspace")
        pointer = Value(Pointer(d), name)
        p.facts[pointer] = 16
        elements = _row_major((1, *extents))[0]
        clean = bool(known(requires_clean))
        p.state.workspaces.append(Workspace(pointer, elements, clean, emitter.loc))
        return Tensors.global_view(self, pointer, dtype, shape)

    @builtin
    def shared_tensor(
        self, dtype: Any, shape: Any = None, alias: Any = None, layout: Any = None
    ) -> Any:
        """Shared memory.  Of more than two axes the leading ones number slots; `s[slot]` is one of them.

        alias: a shared tensor whose bytes this one reuses; without it those of one that was freed, where it
        fits, or of any that is over when this one is written, where the script's own barriers say so.
        How a slot lies in memory follows from the accesses; self.annotate_layout overrides it.  layout: a
        self.cuda.swizzled_shared_layout, which says the shape."""
        p, emitter = program(), current()
        shape = layout.shape if shape is None and isinstance(layout, SharedLayout) else shape
        sizes = shapes.positive_shape(shape, "the shape")
        d = static_dtype(dtype, "dtype")
        site = p.state.count
        p.state.count += 1
        choice = p.choices.get(site, SharedChoice())
        lead, box, inner, swizzle = shared_shape(sizes, d, choice)
        attrs: dict[str, Any] = {"lead": lead, "shape": box, "dtype": d}
        attrs |= {"inner": inner, "swizzle": swizzle}
        reused = _allocation_of(alias) if alias is not None else _freed_for(p, attrs)
        if reused is not None:
            attrs["alias"] = reused
        name = p.target or "shared"
        value = p.declare(smem.shared_alloc, (), emitter.loc, name, name=p.unique(name), **attrs)
        p.state.sites[value] = site
        return value

    @builtin
    def free_shared(self, tensor: Any) -> None:
        """The last use of a shared tensor: a shared_tensor that is made later may have its bytes.  Between
        the last accesses and the first ones of the other stands a self.sync()."""
        p, name = program(), _allocation_of(tensor)
        if p.state.sites[tensor] in p.state.freed:
            shared_of(tensor)  # refuses it
        p.state.freed[p.state.sites[tensor]] = current().loc
        p.state.reusable[name] = math.prod(tensor.type.lead) * tensor.type.slot_bytes

    @builtin
    def reshape_shared(self, tensor: Any, shape: Any) -> Any:
        """The elements of a whole shared tensor, in row-major order, under another shape, of which again all
        but the last two axes number slots.  Both have the same last axis, whose elements are adjacent."""
        p, emitter = program(), current()
        name, sizes = _allocation_of(tensor), shapes.positive_shape(shape, "the shape")
        t = tensor.type
        site = p.state.count
        p.state.count += 1
        choice = p.choices.get(site, SharedChoice())
        if choice.swizzle is not None:
            because, where = choice.why["swizzle"]
            p.choose(p.state.sites[tensor], "swizzle", choice.swizzle, because, where)
        lead, box, inner, swizzle = shared_shape(sizes, t.dtype, replace(choice, swizzle=t.swizzle))
        attrs = {"lead": lead, "shape": box, "dtype": t.dtype, "inner": inner, "swizzle": swizzle}
        made = p.declare(
            smem.shared_alloc, (), emitter.loc, name, name=p.unique(name), alias=name, **attrs
        )
        p.state.sites[made] = site
        if fault := _reshaped_fault(t, made.typed(Shared)):
            advice = "name a part of a slot, s[slot].block(shape, at=[…]), or self.reshape what is loaded"
            refuse("reshape-shared", f"reshape_shared of {t} to {sizes}: {fault}", advice)
        return made

    @builtin
    def register_tensor(
        self, dtype: Any, shape: Any = None, init: Any = None, layout: Any = None
    ) -> Any:
        """A tile in the group's registers, filled with init: a number, or a function of an element's indices
        (`init=lambda i, j: i >= j`), which are int32 tensors.  layout: as annotate_layout's, it says the
        shape as well.  Without init it has no contents, as what `out=` names; one of float32 or int32 and of
        two axes may also be an accumulator whose first mma has use_acc=False."""
        d = static_dtype(dtype, "dtype")
        shape = tuple(layout.shape) if shape is None and layout is not None else shape
        sizes = shapes.positive_shape(shape, "the shape")
        p = program()
        whole_group("register_tensor")
        if (p.target, sizes, d) in p.elementwise:
            return numbers(0 if init is None else init, sizes, d)
        if init is not None:
            made = _filled(init, sizes, d) if callable(init) else shapes.full(sizes, init, d)
            return made if layout is None else annotate(made, layout, None, None).value
        if d not in (f32, i32) or len(sizes) != 2:
            return shapes.full(sizes, 0, d)
        v = current().emit(mma.no_acc, shape=sizes, dtype=d, hint=p.target)
        p.state.flight[v] = SETTLED
        return v

    @builtin
    def annotate_layout(
        self, tensor: Any, layout: Any = None, *, inner: Any = None, swizzle: Any = None
    ) -> Any:
        """Fixes how a tensor lies.  A register tensor: `layout`, a warploom.layout.Layout or its text, such
        as "wgmma_acc(64x256)", one of tilus.ir.layout (`spatial(8, 4).local(1, 2)`), or the la, lb or lc of
        self.cuda.resolve_dot_config, whose products then lie so.  A shared tensor: `inner`, the axis of a
        slot that is adjacent in memory, and `swizzle` (0, 32, 64 or 128 bytes)."""
        return annotate(tensor, layout, inner, swizzle)


def _reshaped_fault(a: Shared, b: Shared) -> str:
    """Why elements in row-major order are not the same bytes of both, or ""."""
    if math.prod((*a.lead, *a.shape)) != math.prod((*b.lead, *b.shape)):
        return "it has another number of elements"
    if (a.inner, b.inner) != (len(a.shape) - 1, len(b.shape) - 1) or a.shape[-1] != b.shape[-1]:
        return "the last axis is to stay, its elements adjacent"
    if a.swizzle and a.shape[-1] * a.dtype.bytes > a.swizzle and a.shape != b.shape:
        return f"rows of more than {a.swizzle} bytes lie in panels, one after the other"
    if any(t.lead and t.slot_bytes != t.tile_bytes for t in (a, b)):
        return "its slots, or those of the other shape, are padded"
    return ""


def _row_major(extents: tuple[Any, ...]) -> tuple[Any, ...]:
    emitter = current()
    steps: list[Any] = [1]
    for n in reversed(extents[1:]):
        steps.insert(0, n if known_int(steps[0]) == 1 else emitter.binary("*", n, steps[0]))
    return tuple(steps)


def _divisors(base: Value, strides: Sequence[Value]) -> tuple[int, ...]:
    """What is known to divide a view's base and each stride."""
    made = {v: o for o in current().builder.ops for v in o.results}
    given = {v: anything(v.type)._replace(divisor=n) for v, n in program().facts.items()}
    return alignments(Facts(made.get, given), base, strides)


def _promised(divisible: Any, n: int) -> tuple[int, ...]:
    """The divisors that a script promises."""
    given = static_ints(divisible, "a divisor")
    if len(given) != n or any(d not in (1, 2, 4, 8, 16) for d in given):
        refuse(
            "view-divisible",
            f"divisible={given}",
            f"give {n} powers of two up to 16: of the base in bytes, of each stride in elements",
        )
    return given


def _filled(init: Callable[..., Any], sizes: tuple[int, ...], dtype: DType) -> Value:
    """A tile of a function of the indices."""
    grid = []
    for axis, n in enumerate(sizes):
        others = tuple(a for a in range(len(sizes)) if a != axis)
        index = shapes.arange(0, n)
        grid.append(shapes.expand_dims(index, others) if others else index)
    return current().expand_to(current().cast(init(*grid), dtype), sizes)


def _freed_for(p: Program, attrs: Mapping[str, Any]) -> str | None:
    """The smallest freed allocation that holds a shared tensor of these attributes; it is free no more."""
    (t,) = smem.shared_alloc.infer((), {"name": "", **attrs})
    assert isinstance(t, Shared)
    size = math.prod(t.lead) * t.slot_bytes
    fits = {name: n for name, n in p.state.reusable.items() if n >= size}
    name = min(fits, key=fits.__getitem__, default=None)
    p.state.reusable.pop(name or "", None)
    return name


def _allocation_of(s: Any) -> str:
    for d in program().state.declarations:
        if d.value is s and d.kind is smem.shared_alloc:
            return str(d.attrs["name"])
    refuse("not-shared", f"alias of {describe(s)}", "name a whole shared_tensor")


# ---- layouts


def annotate(x: Any, layout: Any, inner: Any, swizzle: Any) -> Any:
    """See Instructions.annotate_layout."""
    p, emitter = program(), current()
    if isinstance(x, Value) and isinstance(x.type, Shared):
        site = p.site(x)
        if site is None or x.type.shape != x.type.box:
            refuse(
                "annotate",
                "a part of a shared tensor",
                "annotate the tensor that shared_tensor gave",
            )
        if layout is not None and not isinstance(layout, SharedLayout):
            refuse("annotate", "a register layout of a shared tensor", "give inner= and swizzle=")
        if inner is not None:
            n = shapes.axis_of(inner, len(x.type.shape))
            p.choose_inner(x, n, "annotate_layout", emitter.loc)
        if swizzle is not None:
            p.choose(
                site, "swizzle", static_int(swizzle, "swizzle"), "annotate_layout", emitter.loc
            )
        return x
    if isinstance(x, Value) and isinstance(x.type, InFlight):
        refuse(
            "annotate",
            "an accumulator's layout is the tensor core's",
            "annotate it after wait_group",
        )
    v = tile_value(x, "annotate_layout")
    if isinstance(layout, str | RegisterLayout):
        try:
            layout = Layout.parse(layout) if isinstance(layout, str) else layout.bits()
        except ValueError as e:
            refuse("annotate", str(e), 'write it as explain() does, as in "wgmma_acc(64x256)"')
    if layout is None or tuple(layout.shape) != cast(Tile, v.type).shape:
        refuse("annotate", f"no layout of {v.type}", "pass a warploom.layout.Layout of its shape")
    made = emitter.emit(tile.convert_layout, v, layout=layout, hint=v.hint)
    return Changed(((v, made),), made)
