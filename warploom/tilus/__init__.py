"""Tilus's names: a Tilus file runs when `import tilus` becomes `import warploom.tilus as tilus`.

`warploom run script.py` serves `import tilus` from here, in scripts and in the libraries that they import,
without a change to any file (runtime/serve.py).  docs/tilus.md says of each name what it is here.
"""

from warploom.explicit.handles import Dim3 as Dim3
from warploom.explicit.layouts import SharedLayout as SharedLayout
from warploom.explicit.narrow import NARROW
from warploom.explicit.script import Class as Class
from warploom.language import bfloat16 as bfloat16
from warploom.language import float8e4nv as float8e4nv
from warploom.language import float8e5 as float8e5
from warploom.language import float16 as float16
from warploom.language import float32 as float32
from warploom.language import float64 as float64
from warploom.language import int1
from warploom.language import int8 as int8
from warploom.language import int16 as int16
from warploom.language import int32 as int32
from warploom.language import int64 as int64
from warploom.language import uint8 as uint8
from warploom.language import uint16 as uint16
from warploom.language import uint32 as uint32
from warploom.language import uint64 as uint64
from warploom.layout.modes import RegisterLayout as RegisterLayout
from warploom.runtime.script import Script as Script
from warploom.runtime.script import autotune as autotune
from warploom.runtime.script import void_p as void_p
from warploom.tilus import ir as ir
from warploom.tilus import lang as lang
from warploom.tilus import logging as logging
from warploom.tilus import option as option
from warploom.tilus import target as target
from warploom.tilus import testing as testing
from warploom.tilus import utils as utils
from warploom.tilus.ir.tensor import GlobalTensor as GlobalTensor
from warploom.tilus.ir.tensor import RegisterTensor as RegisterTensor
from warploom.tilus.ir.tensor import SharedTensor as SharedTensor
from warploom.tilus.pipeline import Pipeline as Pipeline
from warploom.tilus.target import get_current_target as get_current_target
from warploom.tilus.tensor import Tensor as Tensor
from warploom.tilus.tensor import empty as empty
from warploom.tilus.tensor import from_torch as from_torch
from warploom.tilus.tensor import full as full
from warploom.tilus.tensor import ones as ones
from warploom.tilus.tensor import rand as rand
from warploom.tilus.tensor import randint as randint
from warploom.tilus.tensor import randn as randn
from warploom.tilus.tensor import view_torch as view_torch
from warploom.tilus.tensor import zeros as zeros

InstantiatedScript = Script
DataType = type(float32)
bf16, f16, f32, f64 = bfloat16, float16, float32, float64
i8, i16, i32, i64 = int8, int16, int32, int64
u8, u16, u32, u64 = uint8, uint16, uint32, uint64
float8_e4m3 = f8e4m3 = float8e4nv
float8_e5m2 = f8e5m2 = float8e5
boolean = int1
for _name, _dtype in NARROW.items():  # int4b, float6_e3m2, …, and i4, f6e3m2
    _short = _name.removesuffix("b").replace("int", "i").replace("ui", "u")
    globals().update({_name: _dtype, _short.replace("float", "f").replace("_", ""): _dtype})

__version__ = "0.2.1"  # whose language and host side this is
