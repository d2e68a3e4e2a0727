"""WARP → PLACED: a layout for every tile, an offset for every byte of shared memory."""
