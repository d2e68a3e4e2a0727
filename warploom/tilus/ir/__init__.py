"""tilus.ir: what annotations name, and layouts of register tensors, for self.annotate_layout and
self.register_tensor."""

from warploom.layout.modes import RegisterLayout as RegisterLayout
from warploom.tilus.ir import layout as layout
from warploom.tilus.ir import tensor as tensor
