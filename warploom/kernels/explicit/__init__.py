"""Kernels written by hand in the explicit language."""
