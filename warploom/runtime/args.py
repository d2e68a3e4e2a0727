"""Arguments of a call: what each is, the facts that specialization draws from it, signature strings.

Nothing here imports torch, or the IR's types (they bring ml_dtypes): a launch from the cache needs
neither.  dtypes are the IR's names (`f16`, `i32`).
"""

from __future__ import annotations

import operator
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from warploom.errors import CompileError, LaunchError, WarploomError
from warploom.ir.core import Fact
from warploom.runtime.array import CPU as CPU
from warploom.runtime.array import Array as Array
from warploom.runtime.array import Bytes, probe_pointer, row_major, view_of
from warploom.runtime.array import span as span
from warploom.runtime.dtypes import DTYPE_NAMES, ELEMENTS, ITEM_BYTES

NOTHING = Fact()  # known of an argument
MAX_DIVISOR = 16  # Fact: alignment in bytes, divisor of an integer

# ---- specializations


@dataclass(frozen=True)
class Spec:
    """One run-time argument's type and facts: what a compiled variant is made for.

    kind: `scalar`, `pointer` or `descriptor`.  block: a descriptor's block shape; its fact is the
    alignment of the base, `strides` the divisors of its strides in elements but the last, which is 1,
    `row` that of its last extent (a TMA store needs rows that end at a multiple of 16 bytes).
    """

    kind: str
    dtype: str
    fact: Fact = NOTHING
    block: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    padding: str = "zero"
    row: int = 1

    def __str__(self) -> str:
        name = ELEMENTS[self.dtype].signature
        star = "*" if self.kind == "pointer" else ""
        if self.fact.value is not None:
            return f"{name}={self.fact.value}"
        facts = f":{self.fact.divisible}" if self.fact.divisible > 1 else ""
        if self.kind == "descriptor":
            strides = ",".join(map(str, self.strides))
            padding = "" if self.padding == "zero" else f",{self.padding}"
            row = f":{self.row}" if self.row > 1 else ""
            block = ",".join(map(str, self.block))
            name = f"desc<{name},[{block}{row}],({strides}){padding}>"
        return f"{star}{name}{facts}"


_ENTRY = re.compile(r"(\*?)(\w+)(?::(\d+)|=(-?\d+))?")
_DESCRIPTOR = re.compile(
    r"desc<(\w+),\[([\d,]+)(?::(\d+))?\],\(([\d,]*)\)(?:,(zero|nan))?>(?::(\d+))?"
)


def parse_spec(text: str) -> Spec:
    """`"*fp16:16"` (a pointer aligned to 16 bytes), `"i32:16"` (divisible), `"i32=1"` (constant),
    `"desc<fp16,[128,64:8],(8)>:16"` (a descriptor: block, divisor of the last extent, divisors of the
    strides but the last).
    Raises CompileError `signature` on anything else."""
    if m := _DESCRIPTOR.fullmatch(text.replace(" ", "")):
        dtype, block, row, strides, padding, divisible = m.groups()
        divisors = tuple(_divisor(n, text) for n in strides.split(",") if n)
        shape = tuple(int(n) for n in block.split(",") if n)
        if len(divisors) != len(shape) - 1:
            raise _bad(text, f"{len(shape)} axes need {len(shape) - 1} stride divisors")
        fact = Fact(_divisor(divisible, text))
        name = _dtype_name(dtype, text)
        ends = _divisor(row, text)
        return Spec("descriptor", name, fact, shape, divisors, padding or "zero", ends)
    m = _ENTRY.fullmatch(text.strip())
    if m is None:
        raise _bad(text, "it is no signature entry")
    star, name, divisible, value = m.groups()
    dtype = _dtype_name(name, text)
    if value is None:
        fact = Fact(_divisor(divisible, text))
    elif star or dtype[0] not in "iu" or dtype == "i1":
        raise _bad(text, "only an integer can be a constant")
    else:
        fact = Fact(divisor(int(value)), int(value))
    if fact.divisible > 1 and not star and dtype[0] not in "iu":
        raise _bad(text, "a float has no divisor")
    return Spec("pointer" if star else "scalar", dtype, fact)


def _dtype_name(name: str, text: str) -> str:
    if name not in DTYPE_NAMES:
        raise _bad(text, f"there is no dtype {name}")
    return DTYPE_NAMES[name]


def _divisor(digits: str | None, text: str) -> int:
    n = int(digits or 1)
    if n not in (1, 2, 4, 8, 16):
        raise _bad(text, f"{n} is no power of two up to {MAX_DIVISOR}")
    return n


def _bad(text: str, why: str) -> CompileError:
    return CompileError(
        "signature",
        f"the signature entry {text!r} can't be read: {why}",
        help='entries look like "*fp16:16" (pointer, 16-byte aligned), "i32:16" (divisible by 16), '
        '"i32=1" (constant), "fp32"',
    )


def divisor(n: int) -> int:
    """The largest power of two up to 16 that divides n; 16 for 0."""
    return min(n & -n, MAX_DIVISOR) if n else MAX_DIVISOR


def int_spec(n: int) -> Spec:
    """i32 where it fits, else i64, else u64; 1 is a constant.  Raises LaunchError beyond 64 bits."""
    if n == 1:
        return _ONE
    if -(1 << 31) <= n < 1 << 31:
        return _I32[divisor(n)]
    if -(1 << 63) <= n < 1 << 63:
        return Spec("scalar", "i64", Fact(divisor(n)))
    if 0 <= n < 1 << 64:
        return Spec("scalar", "u64", Fact(divisor(n)))
    raise LaunchError(
        "argument-range", f"the integer {n} does not fit 64 bits", help="pass it in parts"
    )


_ONE = Spec("scalar", "i32", Fact(1, 1))
_I32 = {d: Spec("scalar", "i32", Fact(d)) for d in (1, 2, 4, 8, 16)}
_F32 = Spec("scalar", "f32")
_BOOL = Spec("scalar", "i1")


# ---- values


@dataclass(frozen=True)
class Mock:
    """Stands for an aligned array of a dtype where a kernel is compiled and not launched."""

    dtype: Any

    @staticmethod
    def of(value: Any) -> Any:
        """A Mock for a dtype of torch; all else itself."""
        kind = type(value)
        is_dtype = kind.__name__ == "dtype" and kind.__module__ == "torch"
        return Mock(value) if is_dtype else value


@dataclass(eq=False)
class TensorDescriptor:
    """A host-side descriptor of a tiled array, as Triton's `TensorDescriptor`.

    base: an array; shape and strides in elements, the last stride 1; block_shape: what one load or
    store moves; padding: what a load gives outside, `zero` or `nan`.  They may be assigned between launches
    (a config's pre_hook gives the block its shape).  Raises LaunchError where they don't fit together.
    """

    base: Any
    shape: Sequence[int]
    strides: Sequence[int]
    block_shape: Sequence[int]
    padding: str = "zero"

    def __post_init__(self) -> None:
        if probe_of(type(self.base), self.base) is None:
            raise LaunchError(
                "argument-type",
                f"the base of a descriptor is a {type(self.base).__name__}, which is no array",
                help="pass the array itself (torch, DLPack, __cuda_array_interface__, NumPy)",
            )
        _check_integers("shape", self.shape, 0)
        _check_integers("strides", self.strides, 0)
        _check_integers("block_shape", self.block_shape, 1)
        rank = len(self.block_shape)
        if not len(self.shape) == len(self.strides) == rank or not 1 <= rank <= 5:
            raise LaunchError(
                "descriptor-rank",
                f"a descriptor has 1 to 5 axes; shape {tuple(self.shape)}, strides "
                f"{tuple(self.strides)} and block_shape {tuple(self.block_shape)} disagree",
                help="give one entry an axis in each of the three",
            )
        if self.strides[-1] != 1:
            raise LaunchError(
                "descriptor-stride",
                f"a descriptor's last stride is 1, not {self.strides[-1]}",
                help="describe the transposed array and transpose the loaded tile",
            )
        if self.padding not in ("zero", "nan"):
            raise LaunchError(
                "descriptor-padding",
                f"padding is 'zero' or 'nan', not {self.padding!r}",
                help="leave it out for zero",
            )

    @staticmethod
    def from_tensor(
        tensor: Any, block_shape: Sequence[int], padding: str = "zero"
    ) -> TensorDescriptor:
        """A descriptor of a whole array."""
        a = inspect(tensor)
        shape, strides = ((), ()) if a is None else (a.shape, a.strides)
        return TensorDescriptor(tensor, shape, strides, tuple(block_shape), padding)


def _check_integers(name: str, sizes: Any, least: int) -> None:
    """Raises LaunchError where a descriptor's sizes are not a sequence of integers from `least` on."""
    try:
        good = all(operator.index(n) >= least for n in sizes)
    except TypeError:
        good = False
    if not good:
        raise LaunchError(
            "descriptor-size",
            f"a descriptor's {name} is {sizes!r}, not a sequence of integers from {least} on",
            help="give one entry for each axis",
        )


def inspect(value: Any) -> Array | None:
    """What an array argument is; None where `value` is no array.

    Torch tensors, `__cuda_array_interface__`, NumPy arrays, whatever offers DLPack, and objects with a
    `data_ptr()` and a `dtype` (their shape, stride() and device count where they have them).  Raises
    LaunchError on arrays without memory (meta and fake tensors, sparse ones) or with other numbers in it than
    they have (torch's negative views), and on dtypes that no kernel takes.
    """
    probe = probe_of(type(value), value)
    if probe is None:
        return None
    try:
        dtype, pointer, shape, strides, device, negated = probe(value)
    except WarploomError:
        raise
    except Exception as e:  # data without an address, or an interface that is not as it should be
        why = str(e).partition("\n")[0]
        why = why if isinstance(e, RuntimeError) else f"its description lacks or mistakes {why}"
        raise _without_memory(value, why) from None
    if not pointer and 0 not in shape:
        raise _without_memory(value, "its address is 0")
    if negated:
        raise LaunchError(
            "argument-negated",
            "a tensor in whose memory its numbers have the other sign, as a conjugate's imaginary part",
            help="pass x.resolve_neg(), a copy",
        )
    name = DTYPE_NAMES.get(str(dtype).removeprefix("torch."))
    if name is None:
        raise LaunchError(
            "argument-dtype",
            f"kernels take no arrays of {dtype}",
            help=f"dtypes: {', '.join(sorted(ITEM_BYTES))}",
        )
    return Array(name, pointer, tuple(shape), tuple(strides), device)


def _without_memory(value: Any, why: str) -> LaunchError:
    kind, place = type(value).__name__, getattr(value, "device", None)
    what = kind if place is None else f"{kind} on device {str(place)!r}"
    return LaunchError(
        "array-memory",
        f"an argument is a {what}, which has no memory that a kernel could read or write: {why}",
        help="launch on real, dense tensors; meta and fake ones only have a shape",
    )


# A probe reads (dtype, pointer, shape, strides, device, whether memory holds the numbers with the other sign)
# of one type's arrays, with as few attribute reads as possible: it is part of the key of every launch.
Probe = Callable[[Any], tuple[Any, int, tuple[int, ...], tuple[int, ...], int, bool]]
_PROBES: dict[type, Probe | None] = {}

# Type -> what a launch depends on of a value of it, hashable; for all other types the value itself.
KEYS: dict[type, Callable[[Any], Any]] = {}


def probe_of(kind: type, value: Any) -> Probe | None:
    """The probe for values of a type (found once); None where they are no arrays."""
    if kind not in _PROBES:
        probe = _PROBES[kind] = _find_probe(kind, value)
        if probe is not None:
            KEYS[kind] = probe
    return _PROBES[kind]


def device_among(values: Iterable[Any]) -> int:
    """The device of the first array among arguments; CPU where none tells it."""
    for value in values:
        base = value.base if isinstance(value, TensorDescriptor) else value
        probe = probe_of(type(base), base)
        if probe is not None:
            try:
                return int(probe(base)[4])
            except RuntimeError:  # a fake tensor: binding says what is wrong
                return CPU
    return CPU


def _descriptor_key(d: TensorDescriptor) -> Any:
    base = d.base
    probe = probe_of(type(base), base)
    assert probe is not None  # TensorDescriptor saw to it
    return probe(base), tuple(d.shape), tuple(d.strides), tuple(d.block_shape), d.padding


KEYS[TensorDescriptor] = _descriptor_key
_PROBES[Mock] = lambda m: (m.dtype, 16, (1,), (1,), CPU, False)


def _find_probe(kind: type, value: Any) -> Probe | None:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        fake = sys.modules.get("torch._subclasses.fake_tensor")
        is_fake = fake is not None and issubclass(kind, fake.FakeTensor)
        return _probe_fake if is_fake else probe_torch
    if kind.__module__.partition(".")[0] == "numpy":
        numpy = sys.modules["numpy"]
        if isinstance(value, numpy.ma.MaskedArray):
            raise LaunchError(
                "argument-masked",
                "a masked array (numpy.ma), whose mask a kernel would not see",
                help="pass x.filled(0), or x.data and a mask of its own",
            )
        return _probe_numpy if hasattr(value, "strides") and hasattr(value, "ctypes") else None
    if hasattr(value, "__cuda_array_interface__"):
        return _probe_interface
    if hasattr(value, "__array_interface__"):
        return _probe_array_interface
    if hasattr(value, "__dlpack_device__"):
        return _probe_dlpack
    return probe_pointer if hasattr(value, "data_ptr") and hasattr(value, "dtype") else None


# The device is -1 on the CPU.  It is text for runtime/seen.py, whose keys would spend as much on a call as on
# these reads.
TORCH_READS = "{0}.dtype, {0}.data_ptr(), {0}.shape, {0}.stride(), {0}.get_device(), {0}.is_neg()"
probe_torch: Probe = eval(f"lambda t: ({TORCH_READS.format('t')})")


def _probe_fake(t: Any) -> Any:
    raise RuntimeError("it is a fake tensor")  # whose data_ptr() would warn, and give 0


def _probe_numpy(a: Any) -> Any:
    size = a.itemsize
    return a.dtype.name, a.ctypes.data, a.shape, tuple(s // size for s in a.strides), CPU, False


def _probe_interface(a: Any) -> Any:
    from warploom.runtime.launch import driver

    d = a.__cuda_array_interface__
    pointer = d["data"][0]
    return *_typed(d), driver().device_of(pointer) if pointer else 0, False


def _probe_array_interface(a: Any) -> Any:
    return *_typed(a.__array_interface__), CPU, False


def _typed(d: Any) -> Any:
    """dtype, pointer, shape and strides of an array interface (NumPy's and CUDA's, version 3)."""
    import numpy as np

    dtype = np.dtype(d["typestr"])
    shape = tuple(d["shape"])
    strides = d.get("strides")
    if strides is None:
        return dtype.name, d["data"][0], shape, row_major(shape)
    return dtype.name, d["data"][0], shape, tuple(s // dtype.itemsize for s in strides)


def _probe_dlpack(a: Any) -> Any:
    from cuda.core.utils import StridedMemoryView

    view = StridedMemoryView.from_dlpack(a, stream_ptr=-1)  # -1: no synchronisation
    shape = tuple(view.shape)
    strides = row_major(shape) if view.strides is None else tuple(view.strides)
    device = view.device_id if view.is_device_accessible else CPU
    return str(view.dtype), view.ptr, shape, strides, device, False


@dataclass(frozen=True, eq=False)
class Field:
    """One parameter of the compiled function: a descriptor argument becomes several.

    value: a number, or the array object.  array: what the array is; None for numbers.
    """

    name: str
    value: Any
    array: Array | None

    @property
    def launched(self) -> Any:
        """What a launch plan computes with: the number, or the address."""
        return self.value if self.array is None else self.array.pointer

    @property
    def bytes(self) -> Bytes | None:
        """Where an array lies; None of a number."""
        return None if self.array is None else self.array.bytes()

    @property
    def on_host(self) -> Any:
        """What the oracle and the simulator take: the number, or a NumPy view."""
        return self.value if self.array is None else as_numpy(self.value)


def fields_of(name: str, value: Any) -> tuple[Field, ...]:
    """The function parameters of one argument: base, extents and strides of a descriptor (the order of
    frontend/signature.py), else the argument itself."""
    if not isinstance(value, TensorDescriptor):
        return (Field(name, value, inspect(value)),)
    base = inspect(value.base)
    assert base is not None  # TensorDescriptor saw to it
    shape, strides = (tuple(map(int, x)) for x in (value.shape, value.strides))
    view = Array(base.dtype, base.pointer, shape, strides, base.device, bounded=True)
    return (
        Field(name, value.base, view),
        *(Field(f"{name}_shape{i}", n, None) for i, n in enumerate(shape)),
        *(Field(f"{name}_stride{i}", n, None) for i, n in enumerate(strides)),
    )


def device_of(fields: Iterable[Field], name: str) -> int:
    """The device of all arrays of a call; CPU where it has none.  Raises LaunchError on a mixture."""
    arrays = {f.name: f.array.device for f in fields if f.array is not None}
    devices = set(arrays.values())
    if len(devices) <= 1:
        return next(iter(devices), CPU)
    places = (f"{n} on {'the CPU' if d == CPU else f'device {d}'}" for n, d in arrays.items())
    raise LaunchError(
        "mixed-devices",
        f"the arrays of {name} are in different places: {', '.join(places)}",
        help="move all of them to one device (tensor.cuda())",
    )


def is_passed(value: Any) -> bool:
    """Whether a tuple's item is an argument: an array or a number.  All else is known while compiling."""
    kind = type(value)
    return (
        kind in (int, float, bool, TensorDescriptor)
        or kind.__module__ == "numpy"
        or probe_of(kind, value) is not None
    )


def spec_of(value: Any, array: Array | None, name: str) -> Spec:
    """The specialization that an argument asks for; `array` is that of its first field.

    Raises LaunchError `argument-type` where a kernel can't take such a value.
    """
    kind = type(value)
    if kind is TensorDescriptor:
        assert array is not None
        divisors = tuple(divisor(int(s)) for s in value.strides[:-1])
        fact = Fact(divisor(array.pointer))
        block, row = tuple(value.block_shape), divisor(int(value.shape[-1]))
        return Spec("descriptor", array.dtype, fact, block, divisors, value.padding, row)
    if array is not None:
        return pointer_spec(array)
    if kind is int:
        return int_spec(value)
    if kind is bool:
        return _BOOL
    if kind is float:
        return _F32
    if kind.__module__.partition(".")[0] == "numpy" and hasattr(value, "item"):
        dtype = DTYPE_NAMES.get(value.dtype.name)
        if dtype is not None:
            is_int = dtype[0] in "iu" and dtype != "i1"
            return Spec("scalar", dtype, Fact(divisor(int(value))) if is_int else Fact())
    raise LaunchError(
        "argument-type",
        f"argument {name} is a {kind.__name__}, which a kernel can't take",
        help="pass arrays (torch, DLPack, __cuda_array_interface__, NumPy, data_ptr()), int, float, bool or "
        "None; compile-time values go to parameters annotated tl.constexpr",
    )


_POINTERS: dict[tuple[str, int], Spec] = {}


def pointer_spec(array: Array) -> Spec:
    key = array.dtype, divisor(array.pointer)
    if key not in _POINTERS:
        _POINTERS[key] = Spec("pointer", key[0], Fact(key[1]))
    return _POINTERS[key]


def _torch_as_numpy(torch: Any, t: Any) -> Any:
    name = str(t.dtype).removeprefix("torch.")
    if name in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):  # NumPy knows them by ml_dtypes
        import ml_dtypes

        bits = torch.int16 if name == "bfloat16" else torch.int8
        return t.view(bits).numpy().view(getattr(ml_dtypes, name))
    return t.numpy()


def as_numpy(value: Any) -> Any:
    """A NumPy view of a CPU array (torch tensors included) that shares its memory."""
    import numpy as np

    if isinstance(value, np.ndarray | np.generic):
        return value
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        try:
            return _torch_as_numpy(torch, value.detach())
        except RuntimeError as e:  # under a mode that makes fake tensors of real ones
            raise _without_memory(value, str(e).partition("\n")[0]) from None
    if hasattr(value, "__array_interface__"):
        return np.asarray(value)
    if probe_of(type(value), value) is probe_pointer:
        array = inspect(value)
        assert array is not None
        return view_of(array)
    return np.from_dlpack(value)
