"""Tilus's names: a Tilus file runs when `import tilus` becomes `import warploom.tilus as tilus`."""

from warploom.explicit.script import Class
from warploom.ir.core import Value as RegisterTensor
from warploom.ir.core import Value as SharedTensor
from warploom.language import (
    bfloat16,
    float8e4nv,
    float8e5,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)
from warploom.language import int1 as boolean
from warploom.runtime.script import Script, autotune
from warploom.tilus import utils

float8_e4m3 = float8e4nv
float8_e5m2 = float8e5

__all__ = [
    "Class",
    "RegisterTensor",
    "Script",
    "SharedTensor",
    "autotune",
    "bfloat16",
    "boolean",
    "float8_e4m3",
    "float8_e5m2",
    "float16",
    "float32",
    "float64",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "utils",
]
