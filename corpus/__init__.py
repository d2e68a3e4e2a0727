"""Kernels as people write them for other compilers, none for this one: Triton's tutorials, products, attention,
serving, states, rows.  Each with arguments and a float64 reference where it is a `Case`.

Tests and benchmarks take their kernels from here; it imports neither.
"""
