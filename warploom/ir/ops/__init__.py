"""Every op kind, declared once: signature = schema, docstring = semantics, body = type rule."""

from warploom.ir.ops import arith as arith
from warploom.ir.ops import cluster as cluster
from warploom.ir.ops import combine as combine
from warploom.ir.ops import control as control
from warploom.ir.ops import grid as grid
from warploom.ir.ops import mbarrier as mbarrier
from warploom.ir.ops import mma as mma
from warploom.ir.ops import regs as regs
from warploom.ir.ops import scaled as scaled
from warploom.ir.ops import smem as smem
from warploom.ir.ops import task as task
from warploom.ir.ops import tile as tile
from warploom.ir.ops import tma as tma
from warploom.ir.ops import unaligned as unaligned
