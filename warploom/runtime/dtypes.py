"""Element types by the names that others have for them, and what a launch needs to know of each.

The IR's own types (ir/types.py) bring ml_dtypes, which a launch from the cache does without.
"""

from __future__ import annotations

from typing import NamedTuple


class Element(NamedTuple):
    """bytes: of one in memory.  code: of `struct`, as it is passed by value (floats of 8 and 16 bits as f32).
    tma: as what TMA moves it (CUDA driver API, cuTensorMapEncodeTiled): only the size and the fill matter.
    signature: its name in signatures, Triton's.  arrays: in NumPy, ml_dtypes and torch."""

    bytes: int
    code: str
    tma: str
    signature: str
    arrays: str


ELEMENTS = {
    "i1": Element(1, "?", "UINT8", "i1", "bool"),
    "i8": Element(1, "b", "UINT8", "i8", "int8"),
    "i16": Element(2, "h", "UINT16", "i16", "int16"),
    "i32": Element(4, "i", "INT32", "i32", "int32"),
    "i64": Element(8, "q", "INT64", "i64", "int64"),
    "u8": Element(1, "B", "UINT8", "u8", "uint8"),
    "u16": Element(2, "H", "UINT16", "u16", "uint16"),
    "u32": Element(4, "I", "UINT32", "u32", "uint32"),
    "u64": Element(8, "Q", "UINT64", "u64", "uint64"),
    "f8e4m3": Element(1, "f", "UINT8", "fp8e4nv", "float8_e4m3fn"),
    "f8e5m2": Element(1, "f", "UINT8", "fp8e5", "float8_e5m2"),
    "f8e4b15": Element(1, "f", "UINT8", "fp8e4b15", "float8e4b15"),
    "f16": Element(2, "f", "FLOAT16", "fp16", "float16"),
    "bf16": Element(2, "f", "BFLOAT16", "bf16", "bfloat16"),
    "f32": Element(4, "f", "FLOAT32", "fp32", "float32"),
    "f64": Element(8, "d", "FLOAT64", "fp64", "float64"),
}
ITEM_BYTES = {name: e.bytes for name, e in ELEMENTS.items()}
# What the IR calls what has any of these names.
DTYPE_NAMES = {x: name for name, e in ELEMENTS.items() for x in (name, e.signature, e.arrays)}
