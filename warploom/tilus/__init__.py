"""Tilus's names: a Tilus file runs when `import tilus` becomes `import warploom.tilus as tilus`."""

from warploom.explicit.script import Class as Class
from warploom.ir.core import Value
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
from warploom.runtime.script import Script as Script
from warploom.runtime.script import autotune as autotune
from warploom.tilus import utils as utils

float8_e4m3 = float8e4nv
float8_e5m2 = float8e5
boolean = int1
RegisterTensor = SharedTensor = Value
