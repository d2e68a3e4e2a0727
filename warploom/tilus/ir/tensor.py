"""tilus.ir.tensor: what annotations name."""

from warploom.explicit.handles import GlobalView
from warploom.ir.core import Value

GlobalTensor = GlobalView
RegisterTensor = SharedTensor = Value

__all__ = ["GlobalTensor", "RegisterTensor", "SharedTensor"]
