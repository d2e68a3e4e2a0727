"""triton._C.libtriton: of Triton's own library, what its tutorials ask for beside kernels, and PyTorch."""

from warploom.triton._C import libtriton

__all__ = ["libtriton"]
