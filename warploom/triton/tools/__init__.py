"""triton.tools."""

from warploom.triton.tools import experimental_descriptor as experimental_descriptor
from warploom.triton.tools import mxfp as mxfp
from warploom.triton.tools import ragged_tma as ragged_tma
from warploom.triton.tools import tensor_descriptor as tensor_descriptor
