"""triton.language: the names of `warploom.language`, and those that Triton has beside them."""

# ruff: noqa: F401, F403
import sys as _sys
from builtins import slice as slice
from builtins import tuple as tuple
from typing import Any

from warploom.frontend.aggregates import replaced as aggregate_replace
from warploom.frontend.language.core import Constexpr
from warploom.frontend.language.core import Descriptor as tensor_descriptor
from warploom.frontend.language.core import aggregate as _aggregate
from warploom.frontend.language.core import builtin as _builtin
from warploom.frontend.language.memory import (
    make_tensor_descriptor as _experimental_make_tensor_descriptor,
)
from warploom.ir.types import DTYPES, NAMED_DTYPES, TRITON_NAMES, DType, Pointer, i32
from warploom.language import *
from warploom.language import constexpr, constexpr_function, int1
from warploom.triton.language import extra as extra
from warploom.triton.language import math as math
from warploom.triton.language import target_info as target_info
from warploom.triton.language.experimental import (
    _experimental_descriptor_load as _experimental_descriptor_load,
)
from warploom.triton.language.experimental import (
    _experimental_descriptor_store as _experimental_descriptor_store,
)

TRITON_MAX_TENSOR_NUMEL = 1 << 20
CONSTEXPR_0 = constexpr(0)
N_ROUNDS_DEFAULT = constexpr(10)
pi32_t = Pointer(i32)


class _ByName(type):
    def __call__(cls, name: str) -> Any:
        found = next((n for n, theirs in TRITON_NAMES.items() if theirs == name), None)
        if found is None:
            raise ValueError(f"no dtype {name!r}: there are {', '.join(TRITON_NAMES.values())}")
        return NAMED_DTYPES[found]

    def __instancecheck__(cls, x: Any) -> bool:
        return isinstance(x, DType)


class dtype(metaclass=_ByName):
    """dtype("fp16") is tl.float16, which is an instance of it."""


class const:
    """In annotations: a pointer that is only read from.  It changes nothing."""


class void:
    """In annotations: what a kernel returns."""


@constexpr_function
def _log2(i: int) -> int:
    """The exponent of a power of two; of others what is left below."""
    return i.bit_length() - 1


@constexpr_function
def _is_power_of_two(i: int) -> bool:
    return (i & (i - 1)) == 0 and i != 0


@constexpr_function
def get_int_dtype(bitwidth: int, signed: bool) -> DType:
    """The integer dtype of so many bits."""
    found = DTYPES[f"{'i' if signed else 'u'}{bitwidth}"]
    return int1 if bitwidth == 1 else found


_get_int_dtype = get_int_dtype


def builtin(fn: Any) -> Any:
    """Decorator: a function of kernels, which is inlined as helpers are.  The `_semantic` that Triton gives
    it is None."""
    fn.__kwdefaults__ = dict.fromkeys(("_semantic", "_builder")) | (fn.__kwdefaults__ or {})
    fn.__warploom_fn__ = fn
    return fn


extern = builtin


@_builtin
def _unwrap_if_constexpr(o: Any) -> Any:
    """What a constexpr holds; other values are themselves."""
    return o.value if isinstance(o, Constexpr) else o


# Triton's files, by which some import their names: all of them are in this one.
core = standard = random = semantic = _sys.modules[__name__]
for _name in ("core", "standard", "random", "semantic"):
    _sys.modules[f"{__name__}.{_name}"] = core
