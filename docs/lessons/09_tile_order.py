"""Lesson 9: the order of tiles.

What changed: the program of lesson 7 (one CTA a tile, no cluster) walks its tiles in *bands* of 16 rows,
column by column inside a band.  Nothing else.

Why: 132 CTAs work on 132 tiles at a time.  Row by row, at 8192 columns (32 tiles), those are some four rows
of tiles: 4 blocks of A and all 32 of B.  In a band they are 16 rows and 8 or 9 columns: 25 blocks
instead of 36, and the band's rows of A stay in the L2 cache while B passes by.  Large products are limited by
power, and bytes from the L2 or from memory cost energy: fewer of them leave more clock for the tensor
cores.  At short K tiles pass quickly and the output is most of the traffic: there it costs 2 %.

This is the library's explicit GEMM, and, up to names, what the automatic door derives from a Triton-style
kernel.

Measured, TFLOP/s on an NVIDIA H200 at M×N×K:
805 at 8192×8192×8192, 782 at 4096×4096×4096, 632 at 8192×8192×512.
"""

from warploom.kernels.explicit.gemm import Gemm

__all__ = ["Gemm"]
