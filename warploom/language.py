"""What Triton-style kernels are written in: `import warploom.language as tl` (frontend/language/)."""

from warploom.frontend.language import *  # noqa: F403
from warploom.frontend.language import NAMES as _NAMES
from warploom.frontend.language import math as math

__all__ = _NAMES
