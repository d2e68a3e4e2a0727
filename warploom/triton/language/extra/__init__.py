"""triton.language.extra."""

from warploom.triton.language.extra import cuda as cuda
from warploom.triton.language.extra import libdevice as libdevice
