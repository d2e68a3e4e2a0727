"""triton.language: the names of `warploom.language`, and those that Triton has beside them."""

# ruff: noqa: F401, F403
import sys as _sys
from builtins import tuple as tuple

from warploom.frontend.language.core import Descriptor as tensor_descriptor
from warploom.language import *
from warploom.language import constexpr
from warploom.triton.language import extra as extra
from warploom.triton.language import math as math

TRITON_MAX_TENSOR_NUMEL = 1 << 20
CONSTEXPR_0 = constexpr(0)

# Triton's files, by which some import their names: all of them are in this one.
core = standard = random = semantic = _sys.modules[__name__]
for _name in ("core", "standard", "random", "semantic"):
    _sys.modules[f"{__name__}.{_name}"] = core
