"""Lesson 7: the store overlaps the next tile; tiles in bands.

What changed: a tile leaves by TMA.  Each consumer writes a chunk of 64×64 to a staging buffer, fences, meets
itself at a sync, and one thread issues the store; nobody waits for it.  Before a buffer is written again,
that thread waits until at most two of its stores have not been read.  And the first product of a tile
overwrites the accumulator (use_acc) instead of starting from zeros.

Tiles are walked in bands of 16 rows, so that what neighbouring CTAs read stays in the L2 cache.

This is the library's explicit GEMM, and, up to names, what the automatic door derives from a Triton-style
kernel.
"""

from warploom.kernels.explicit.gemm import Gemm

__all__ = ["Gemm"]
