"""What Triton-style kernels are written in: `import warploom.language as tl`.

Names, argument order, promotion and semantics are Triton's; shapes need not be powers of two.
"""

from warploom.ir import types as _types
from warploom.ir.types import DType as dtype
from warploom.ir.types import Pointer as pointer_type
from warploom.language.core import (
    async_task,
    constexpr,
    constexpr_function,
    range,
    static_range,
    tensor,
)
from warploom.language.debug import (
    assume,
    device_assert,
    device_print,
    max_constancy,
    max_contiguous,
    multiple_of,
    static_assert,
    static_print,
)
from warploom.language.linear import (
    argmax,
    argmin,
    dot,
    max,
    min,
    softmax,
    sum,
    xor_sum,
)
from warploom.language.math import (
    abs,
    cdiv,
    ceil,
    clamp,
    cos,
    div_rn,
    erf,
    exp,
    exp2,
    fdiv,
    floor,
    fma,
    log,
    log2,
    maximum,
    minimum,
    rcp,
    rsqrt,
    sigmoid,
    sin,
    sqrt,
    tanh,
    where,
)
from warploom.language.math import cast_ as cast
from warploom.language.memory import (
    advance,
    atomic_add,
    atomic_and,
    atomic_max,
    atomic_min,
    atomic_or,
    atomic_xchg,
    atomic_xor,
    load,
    load_tensor_descriptor,
    make_block_ptr,
    make_tensor_descriptor,
    store,
    store_tensor_descriptor,
)
from warploom.language.shape import (
    arange,
    broadcast,
    broadcast_to,
    expand_dims,
    full,
    num_programs,
    permute,
    program_id,
    ravel,
    reshape,
    trans,
    view,
    zeros,
    zeros_like,
)

int1 = _types.i1
int8 = _types.i8
int16 = _types.i16
int32 = _types.i32
int64 = _types.i64
uint8 = _types.u8
uint16 = _types.u16
uint32 = _types.u32
uint64 = _types.u64
float16 = _types.f16
bfloat16 = _types.bf16
float32 = _types.f32
float64 = _types.f64
float8e4nv = _types.f8e4m3
float8e5 = _types.f8e5m2

__all__ = [
    "abs",
    "advance",
    "arange",
    "argmax",
    "argmin",
    "assume",
    "async_task",
    "atomic_add",
    "atomic_and",
    "atomic_max",
    "atomic_min",
    "atomic_or",
    "atomic_xchg",
    "atomic_xor",
    "bfloat16",
    "broadcast",
    "broadcast_to",
    "cast",
    "cdiv",
    "ceil",
    "clamp",
    "constexpr",
    "constexpr_function",
    "cos",
    "device_assert",
    "device_print",
    "div_rn",
    "dot",
    "dtype",
    "erf",
    "exp",
    "exp2",
    "expand_dims",
    "fdiv",
    "float8e4nv",
    "float8e5",
    "float16",
    "float32",
    "float64",
    "floor",
    "fma",
    "full",
    "int1",
    "int8",
    "int16",
    "int32",
    "int64",
    "load",
    "load_tensor_descriptor",
    "log",
    "log2",
    "make_block_ptr",
    "make_tensor_descriptor",
    "max",
    "max_constancy",
    "max_contiguous",
    "maximum",
    "min",
    "minimum",
    "multiple_of",
    "num_programs",
    "permute",
    "pointer_type",
    "program_id",
    "range",
    "ravel",
    "rcp",
    "reshape",
    "rsqrt",
    "sigmoid",
    "sin",
    "softmax",
    "sqrt",
    "static_assert",
    "static_print",
    "static_range",
    "store",
    "store_tensor_descriptor",
    "sum",
    "tanh",
    "tensor",
    "trans",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "view",
    "where",
    "xor_sum",
    "zeros",
    "zeros_like",
]
