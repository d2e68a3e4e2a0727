"""Every op kind, declared once: signature = schema, docstring = semantics, body = type rule."""

from warploom.ir.ops import arith, cluster, control, hopper, task, tile

__all__ = ["arith", "cluster", "control", "hopper", "task", "tile"]
