"""triton._C.libtriton: of Triton's own library, what its tutorials ask for beside kernels."""
