"""triton.language.extra.cuda."""

import sys

from warploom.triton.language.extra import libdevice as libdevice

sys.modules[f"{__name__}.libdevice"] = libdevice
