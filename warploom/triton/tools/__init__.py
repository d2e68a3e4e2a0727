"""triton.tools."""

from warploom.triton.tools import tensor_descriptor as tensor_descriptor
