"""tilus.hidet.ir.type: what annotations name."""

from warploom.ir.types import DType as DataType
from warploom.ir.types import Pointer as PointerType
from warploom.runtime.script import void_p as void_p

__all__ = ["DataType", "PointerType", "void_p"]
