"""triton.language.extra.libdevice: the functions of CUDA's mathematics by the names of libdevice."""

from warploom.frontend.language.math import *  # noqa: F403
