"""`wl.Script` and `wl.Class` as users write them: the methods that kernels call on `self`.

A subclass's `__call__` is the kernel: it is never run by Python but translated (translate.py).  Calling an
instance launches it (runtime/script.py).
"""

from __future__ import annotations

import math
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, cast

from warploom.explicit import narrow
from warploom.explicit.copies import CopyAsync
from warploom.explicit.handles import Enter, GlobalView, NarrowView, ThreadIndex
from warploom.explicit.memory import Scatters, Semaphores
from warploom.explicit.operands import (
    axes_of,
    box_offsets,
    index_of,
    is_register,
    one_thread,
    part_of,
    policy_of,
    program,
    shared_of,
    tile_value,
    whole_group,
)
from warploom.explicit.products import Products
from warploom.explicit.surface import Namespaces
from warploom.explicit.tensors import Tensors, annotate
from warploom.explicit.values import Values, taken, written
from warploom.frontend.coerce import (
    Operand,
    current,
    describe,
    known,
    static_int,
)
from warploom.frontend.follow import is_own
from warploom.frontend.language import atomics, core, debug, memory
from warploom.frontend.language import math as elementwise
from warploom.frontend.language import shape as shapes
from warploom.frontend.language.core import builtin
from warploom.frontend.refuse import one_of, refuse
from warploom.frontend.source import capture
from warploom.ir.core import Value
from warploom.ir.ops import arith, control, regs, smem, task, tile
from warploom.ir.types import DTYPES, Scalar, Shared, Tile, i32


class Instructions(Tensors, Products, CopyAsync, Values, Scatters, Semaphores, Namespaces):
    """What `self` offers in a Script and in a Class."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for base in cls.__mro__:
            for member in vars(base).values():
                if isinstance(member, types.FunctionType) and not is_own(member):
                    capture(member)

    attrs: Any
    blockIdx: Any
    gridDim: Any

    # ---- memory

    @builtin
    def load_global(
        self,
        src: GlobalView,
        offsets: Any,
        shape: Any = None,
        dims: Any = None,
        cache_policy: Any = None,
        out: Any = None,
        layout: Any = None,
    ) -> Any:
        """The box at offsets into registers; out of bounds zeros.  The group loads it together.

        dims: which axes of the view are the tile's, by default the last.  cache_policy: as tma's.  out: the
        tensor that becomes the box, and says its shape; so does layout, as annotate_layout's."""
        whole_group("load_global")
        shape = tuple(layout.shape) if shape is None and layout is not None else shape
        if shape is None and out is not None:
            shape = taken(out)[1].shape
        sizes = shapes.positive_shape(shape, "the shape")
        if isinstance(src, NarrowView):
            return written(_lying(narrow.load(src, offsets, sizes, dims), layout), out)
        at = box_offsets(offsets, src)
        box = _box(src, sizes, dims)
        how = policy_of(cache_policy)
        made = current().emit(tile.load_box, src.view, *at, shape=box, **how)
        return written(_lying(shapes.reshape(made, sizes) if box != sizes else made, layout), out)

    @builtin
    def store_global(
        self,
        dst: GlobalView,
        src: Operand,
        offsets: Any,
        dims: Any = None,
        cache_policy: Any = None,
    ) -> None:
        """Registers to the box at offsets; out of bounds dropped.  dims, cache_policy: as load_global's."""
        whole_group("store_global")
        at = box_offsets(offsets, dst)
        v = tile_value(src, "store_global")
        sizes = current().shape(v)
        if program().is_lone and math.prod(sizes) != 1:
            refuse(
                "one-thread",
                f"{v.type} stored by one thread",
                "store it by all threads: each stores what it holds",
            )
        box = _box(dst, sizes, dims)
        v = shapes.reshape(v, box) if box != sizes else v
        current().emit(tile.store_box, dst.view, v, *at, **policy_of(cache_policy))

    @builtin
    def load_shared(
        self,
        src: Any,
        offsets: Any = None,
        shape: Any = None,
        dims: Any = None,
        out: Any = None,
        layout: Any = None,
    ) -> Any:
        """A slot (or part of one) into registers.  A slot of one element is a number, the same for all.

        offsets, shape, dims: the part at these offsets, one an axis of src; dims: which axes are the
        tensor's, by default the last.  out: the tensor that becomes it.  layout: as annotate_layout's."""
        s = shared_of(src) if offsets is None else part_of(src, offsets, shape, dims)
        if _is_number(s):
            return current().emit(smem.shared_get, s)
        whole_group("load_shared")
        return written(_lying(current().emit(smem.shared_load, s), layout), out)

    @builtin
    def store_shared(self, dst: Any, src: Operand, offsets: Any = None, dims: Any = None) -> None:
        """Registers into a slot (or part of one), by ordinary stores; a number into a slot of one element, by
        one thread.  offsets, dims: as load_shared's."""
        s = shared_of(dst) if offsets is None else part_of(dst, offsets, current().shape(src), dims)
        if _is_number(s) and not is_register(src):
            number = current().cast(src, cast(Shared, s.type).dtype)
            one_thread(lambda: current().emit(smem.shared_put, s, number))
            return
        whole_group("store_shared")
        v = tile_value(src, "store_shared")
        t = cast(Shared, s.type)
        if current().shape(v) != t.shape:
            refuse(
                "store-shape",
                f"store_shared of {v.type} into {t}",
                "store a tile of the slot's shape, or into a part of it: s.block(shape, at)",
            )
        if cast(Tile, v.type).dtype != t.dtype:
            refuse(
                "store-type", f"store_shared of {v.type} into {t}", f"cast it with .to({t.dtype})"
            )
        current().emit(smem.shared_store, s, v)

    load = memory.load
    store = memory.store
    atomic_add = atomics.atomic_add
    atomic_max = atomics.atomic_max
    atomic_min = atomics.atomic_min
    atomic_and = atomics.atomic_and
    atomic_or = atomics.atomic_or
    atomic_xor = atomics.atomic_xor
    atomic_xchg = atomics.atomic_xchg
    atomic_load = atomics.atomic_load
    atomic_cas = atomics.atomic_cas

    # ---- threads

    @builtin
    def thread_group(
        self, thread_begin: Any, num_threads: Any, replicas: Any = 1, name: str = ""
    ) -> Any:
        """`with self.thread_group(begin, n):` runs its block by threads begin … begin + n of the group.

        replicas: the block is run by so many groups of n threads, one after the other in thread order; then
        `with … as i` gives each its number.  name: what reports call the group."""
        begin, n = static_int(thread_begin, "thread_begin"), static_int(num_threads, "num_threads")
        many = static_int(replicas, "replicas")
        warp = program().machine.warp_size
        if n < warp or n % warp or begin % warp or begin < 0 or many < 1:
            refuse(
                "group-warps",
                f"a group of {n} threads from thread {begin}",
                f"groups are whole warps: multiples of {warp}",
            )
        return Enter("group", begin, n, many, name, f"thread_group({begin}, {n})")

    @builtin
    def warp_group(self, warp_begin: Any, num_warps: Any, name: str = "") -> Any:
        """Warps warp_begin … warp_begin + num_warps of the group, as one group: the same as
        `thread_group(32 * warp_begin, 32 * num_warps)`.  4 warps from a multiple of 4 are what PTX calls a
        warpgroup, which wgmma and setmaxnreg take."""
        first, n = static_int(warp_begin, "warp_begin"), static_int(num_warps, "num_warps")
        if first < 0 or n < 1:
            refuse(
                "group-warps",
                f"a group of {n} warps from warp {first}",
                "a group is 1 warp or more, counted from 0",
            )
        warp = program().machine.warp_size
        return Enter("group", warp * first, warp * n, 1, name, f"warp_group({first}, {n})")

    @builtin
    def single_warp(self, warp: Any = 0, name: str = "") -> Any:
        """One warp of the group."""
        first = static_int(warp, "a warp")
        warp = program().machine.warp_size
        return Enter("group", warp * first, warp, 1, name, f"single_warp({first})")

    @builtin
    def single_thread(self, thread: Any = -1) -> Any:
        """One thread of the group, always the same one."""
        return Enter("one", what="single_thread()")

    @builtin
    def get_thread_binding(self) -> ThreadIndex:
        """The number of the thread, for `if self.get_thread_binding() == 0:`, whose block may store tensors
        of one element."""
        return ThreadIndex()

    @builtin
    def sync(self, scope: str = "group") -> None:
        """A barrier of the group: of its replica, or with scope='task' of all its replicas together."""
        whole_group("sync")
        one_of("sync-scope", "scope", scope, "group", "task")
        current().emit(smem.group_sync, scope="task" if scope == "task" else "replica")

    @builtin
    def hold(self, *values: Operand) -> None:
        """Keeps what follows after the computation of these values in the machine code.  The assembler moves
        waits up: a wgmma.wait_group that stands in the middle of a softmax, to hide a product after the
        half before it, ends up before it all, unless it is held after what that half computed."""
        emitter = current()
        held = [tile_value(v, "hold") if is_register(v) else emitter.value(v) for v in values]
        emitter.emit(regs.hold, *held)

    @builtin
    def setmaxnreg(self, nregs: Any, action: Any = None) -> None:
        """The registers that each thread of the group may use from here on, a multiple of 8 from 24 to 256.
        Whole warp groups (128 threads) run it, whose warps synchronise between two of them.  What a thread no
        longer has goes back to the CTA's pool; for more than before each warp waits until the pool has it.
        action: 'dec' or 'inc', where it is to be said; what it can't be is refused."""
        here = whole_group("setmaxnreg")
        n = static_int(nregs, "the number of registers")
        said = "" if action is None else known(action)
        one_of("setmaxnreg", "action", said, "", "dec", "inc")
        machine = program().machine
        whole, size = machine.warp_group, machine.group_threads
        if here.warps is None or here.warps % whole or here.first % whole:
            threads, first = (machine.warp_size * n for n in (here.warps or 0, here.first))
            padded = -(-threads // size) * size
            refuse(
                "setmaxnreg-group",
                f"setmaxnreg in a group of {threads} threads from thread {first}: it takes "
                f"whole warp groups of {size}",
                f"pad the group to {padded} threads from a multiple of {size}, and let single_thread() do "
                "the work",
            )
        if machine.registers.reallocation is None:
            why = f"warps of {machine.name} keep the registers that they were launched with"
            refuse("setmaxnreg", "setmaxnreg", why)
        low, high, unit = machine.registers.reallocation
        if n % unit or not low <= n <= high:
            limits = f"setmaxnreg takes multiples of {unit} from {low} to {high}"
            refuse("setmaxnreg", f"{n} registers", limits)
        current().emit(regs.setmaxnreg, registers=n, action=said)

    @builtin
    def ring_next(self, slot: Operand, phase: Operand, depth: Any) -> Any:
        """(slot, phase) of the next round of a ring: slot + 1, or 0 with the phase flipped after the last."""
        n = static_int(depth, "depth")
        return current().emit(task.ring_next, index_of(slot), index_of(phase), depth=n)

    # ---- loops

    @builtin
    def range(
        self, start: Operand, end: Operand = None, step: Operand = None, unroll: Any = None
    ) -> Any:
        """A loop at run time.  unroll: copies of the body an iteration; 'all' unrolls while compiling, and
        the index is a compile-time number."""
        if unroll == "all":
            return core.static_range(start, end, step)
        return core.range(start, end, step, loop_unroll_factor=unroll)

    # ---- numbers

    @builtin
    def fast_divmod(self, a: Operand, b: Operand) -> Any:
        """(a // b, a % b) of int32 numbers, a ≥ 0 and b ≥ 1, exact for all of them.

        b is known at launch, so that the kernel multiplies by a number which the host computes instead of
        dividing; it is made of kernel arguments and constants."""
        emitter = current()
        if not isinstance(b, Value):  # the compiler does the same for constants
            return emitter.binary("//", a, b), emitter.binary("%", a, b)
        for x in (a, b):
            if isinstance(x, Value) and x.type != Scalar(i32):
                refuse("fast-div", f"fast_divmod of {describe(x)}", "it takes int32 numbers")
        n = emitter.cast(a, i32)
        quotient = emitter.emit(arith.fast_div, n, b)
        return quotient, emitter.binary("-", n, emitter.binary("*", quotient, b))

    @builtin
    def arange(self, start: Any, end: Any) -> Any:
        """[start, end) as an int32 tile."""
        whole_group("arange")
        return shapes.arange(start, end)

    @builtin
    def inline_asm(
        self,
        asm: str,
        *operands: Operand,
        constraints: str,
        outputs: str,
        output: int = 0,
        pack: int = 1,
    ) -> Any:
        """PTX on elements, `pack` at a time, as Triton's inline_asm_elementwise; of its results, whose dtypes
        `outputs` lists ("f32,i32"), number `output`."""
        dtypes = tuple(DTYPES[name] for name in outputs.split(","))
        found = elementwise.inline_asm_elementwise(asm, constraints, operands, dtypes, True, pack)
        return found[output]

    def int_to_ptr(self, x: Operand, dtype: Any) -> Any:
        """The addresses x (int64), as pointers to elements of dtype."""
        return elementwise.int_to_ptr(x, dtype)

    def ptr_to_int(self, x: Operand) -> Any:
        """The addresses of pointers, as int64."""
        return elementwise.ptr_to_int(x)

    def bitcast(self, x: Operand, dtype: Any) -> Any:
        """The same bits as another dtype."""
        return elementwise.to(x, dtype, bitcast=True)

    @builtin
    def decode(self, x: Operand, encoding: str) -> Any:
        """The float32 numbers that bytes stand for in "e4m3", "e5m2", "ue8m0" (powers of two), or, by their
        lowest four bits, "e2m1"."""
        if encoding not in arith.ENCODINGS:
            refuse("decode", f"{encoding!r}", f"encodings are {', '.join(arith.ENCODINGS)}")
        return current().emit(arith.decode, tile_value(x, "decode"), encoding=encoding)

    @builtin
    def printf(self, fstring: str, *values: Operand) -> None:
        """Prints numbers as C's printf: %d %i %u %x %X %o %c for integers, %e %f %g for floats, with flags,
        width and precision.  One thread of the group prints; with register tensors (of one shape) it is
        once an element, in no particular order."""
        if not isinstance(fstring, str):
            refuse(
                "print-format", f"a format is a string, not {describe(fstring)}", "printf('…', …)"
            )
        current().emit(control.printf, *map(_printable, values), format=fstring)

    @builtin
    def print_tensor(self, msg: str, tensor: Any, fmt: str | None = None) -> None:
        """Prints a register tensor, or a shared one.  fmt: of an element, as printf's."""
        x = tensor
        if isinstance(tensor, Value) and isinstance(tensor.type, Shared):
            x = current().emit(smem.shared_load, shared_of(tensor))
        if fmt is None:
            debug.device_print(str(msg), x)
            return
        text = str(msg).replace("%", "%%") + fmt + "\n"
        current().emit(control.printf, _printable(x), format=text)

    assume = debug.assume
    static_assert = debug.static_assert
    device_assert = debug.device_assert
    device_print = debug.device_print
    globaltimer = debug.globaltimer


class Class(Instructions):
    """Base of helper objects written in the language: `__init__` and methods are inlined into the script that
    makes the object, its fields are variables."""


class ScriptBase(Instructions):
    """What a Script is to the translator.  `kernel`: the user's __call__."""

    kernel: ClassVar[Callable[..., None]]
    spaces: ClassVar[tuple[Mapping[str, Sequence[Any]], ...]] = ()
    debug_schedule: ClassVar[Mapping[str, Any] | None] = None

    def __init__(self) -> None:
        pass


def _is_number(s: Value) -> bool:
    """A slot that holds one number of 32 or 64 bits."""
    t = cast(Shared, s.type)
    return (
        not t.lead and math.prod(t.shape) == 1 and t.dtype.bits in ((32,) if t.peer else (32, 64))
    )


def _printable(x: Operand) -> Value:
    return tile_value(x, "printf") if is_register(x) else current().value(x)


def _lying(made: Any, layout: Any) -> Any:
    """A tensor in the layout that is asked for."""
    return made if layout is None else annotate(made, layout, None, None).value


def _box(view: GlobalView, shape: tuple[int, ...], dims: Any) -> tuple[int, ...]:
    """The shape as the view's last axes have it (the box is one element thick in the others), or where dims
    name others the box of the view's rank, with size 1 along what they leave out."""
    rank = len(view.shape)
    axes = axes_of(dims, rank, len(shape))
    if axes is None:
        boxed = f"a box of {len(shape)} axes of a view of {rank}"
        refuse("view-rank", boxed, "name its axes with dims=")
    if axes == tuple(range(rank - len(shape), rank)):
        return shape
    return tuple(shape[axes.index(a)] if a in axes else 1 for a in range(rank))
