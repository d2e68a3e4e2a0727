"""triton.language.math: elementwise functions, and those of libdevice, which were its in Triton 2."""

# ruff: noqa: F403, I001
from warploom.triton.language.extra.libdevice import *
from warploom.frontend.language.math import *
