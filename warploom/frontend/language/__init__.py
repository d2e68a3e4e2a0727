"""What Triton-style kernels are written in: `import warploom.language as tl`.

Names, argument order, promotion and semantics are Triton's; shapes need not be powers of two.  All that is
imported here without an underscore is the language's.
"""

# ruff: noqa: F401, F403, I001

from types import ModuleType as _ModuleType

from warploom.frontend.language.core import (
    async_task as async_task,
    constexpr as constexpr,
    constexpr_function as constexpr_function,
    range as range,
    static_range as static_range,
    tensor as tensor,
)
from warploom.frontend.language.debug import (
    assume as assume,
    debug_barrier as debug_barrier,
    device_assert as device_assert,
    device_print as device_print,
    max_constancy as max_constancy,
    max_contiguous as max_contiguous,
    multiple_of as multiple_of,
    static_assert as static_assert,
    static_print as static_print,
)
from warploom.frontend.language.linear import *
from warploom.frontend.language.math import *
from warploom.frontend.language.math import cast_ as cast
from warploom.frontend.language.memory import (
    advance as advance,
    atomic_add as atomic_add,
    atomic_and as atomic_and,
    atomic_cas as atomic_cas,
    atomic_max as atomic_max,
    atomic_min as atomic_min,
    atomic_or as atomic_or,
    atomic_xchg as atomic_xchg,
    atomic_xor as atomic_xor,
    load as load,
    load_tensor_descriptor as load_tensor_descriptor,
    make_block_ptr as make_block_ptr,
    make_tensor_descriptor as make_tensor_descriptor,
    store as store,
    store_tensor_descriptor as store_tensor_descriptor,
)
from warploom.frontend.language.shape import (
    arange as arange,
    broadcast as broadcast,
    broadcast_to as broadcast_to,
    expand_dims as expand_dims,
    full as full,
    interleave as interleave,
    join as join,
    num_programs as num_programs,
    permute as permute,
    program_id as program_id,
    ravel as ravel,
    reshape as reshape,
    split as split,
    swizzle2d as swizzle2d,
    trans as trans,
    view as view,
    zeros as zeros,
    zeros_like as zeros_like,
)
from warploom.ir import types as _types
from warploom.ir.types import (
    DType as dtype,
    Pointer as pointer_type,
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

NAMES = sorted(
    name
    for name, value in vars().items()
    if not name.startswith("_") and not isinstance(value, _ModuleType)
)
