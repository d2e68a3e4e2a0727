"""triton.tools.tensor_descriptor."""

from warploom.runtime.args import TensorDescriptor as TensorDescriptor
