"""tilus.hidet.ir."""

from warploom.tilus.hidet.ir import dtypes as dtypes
from warploom.tilus.hidet.ir import type as type
from warploom.tilus.hidet.ir.type import DataType as DataType
