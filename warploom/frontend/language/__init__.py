"""What Triton-style kernels are written in: `import warploom.language as tl`.

Names, argument order, promotion and semantics are Triton's; shapes need not be powers of two.  All that is
imported here without an underscore is the language's.
"""

# ruff: noqa: F401, F403, I001

from types import ModuleType as _ModuleType

from warploom.frontend.language.core import *
from warploom.frontend.language.debug import *
from warploom.frontend.language.linear import *
from warploom.frontend.language.combine import *
from warploom.frontend.language.random import *
from warploom.frontend.language.math import *
from warploom.frontend.language.math import cast_ as cast
from warploom.frontend.language.memory import *
from warploom.frontend.language.atomics import *
from warploom.frontend.language.microscaling import *
from warploom.frontend.language.shape import *
from warploom.ir import types as _types
from warploom.ir.types import DType as dtype, Pointer as pointer_type

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
float8e4b15 = _types.f8e4b15
float8e4b8 = _types.f8e4b8
float8e5b16 = _types.f8e5b16
float8e5 = _types.f8e5m2

NAMES = sorted(
    name
    for name, value in vars().items()
    if not name.startswith("_") and not isinstance(value, _ModuleType)
)
