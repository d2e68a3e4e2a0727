"""triton.language.extra.cuda."""

import sys

from warploom.frontend.language.core import builtin
from warploom.triton.language.extra import libdevice

__all__ = ["gdc_launch_dependents", "gdc_wait", "libdevice"]

sys.modules[f"{__name__}.libdevice"] = libdevice


@builtin
def gdc_wait() -> None:
    """Nothing: a kernel waits for the one before it where it first reads (the knob `pdl`)."""


@builtin
def gdc_launch_dependents() -> None:
    """Nothing: when the next kernel may start is the compiler's to say (the knob `pdl`)."""
