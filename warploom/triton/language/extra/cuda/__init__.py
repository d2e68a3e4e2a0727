"""triton.language.extra.cuda."""

import sys

from warploom.frontend.coerce import Operand, Tensor
from warploom.frontend.language.core import Constexpr, builtin
from warploom.frontend.language.debug import globaltimer
from warploom.frontend.language.math import inline_asm_elementwise, to
from warploom.frontend.targeted import KNOBS
from warploom.ir.types import DType, i32
from warploom.triton.language.extra import libdevice

__all__ = [
    "convert_custom_float8_sm70",
    "convert_custom_float8_sm80",
    "gdc_launch_dependents",
    "gdc_wait",
    "globaltimer",
    "libdevice",
    "num_threads",
    "num_warps",
    "smid",
]

sys.modules[f"{__name__}.libdevice"] = libdevice
for _name in ("gdc", "utils"):  # Triton's files, by which some import their names
    sys.modules[f"{__name__}.{_name}"] = sys.modules[__name__]


@builtin
def gdc_wait() -> None:
    """Nothing: a kernel waits for the one before it where it first reads (the knob `pdl`)."""


@builtin
def gdc_launch_dependents() -> None:
    """Nothing: when the next kernel may start is the compiler's to say (the knob `pdl`)."""


@builtin
def smid() -> Tensor:
    """The number of the multiprocessor that runs the program, an int32; 0 on the CPU."""
    return inline_asm_elementwise("mov.u32 $0, %smid;", "=r", (), i32, True, 1)


@builtin
def num_warps() -> Constexpr:
    """The knob `num_warps` of the launch, known while compiling."""
    return Constexpr(KNOBS.get().num_warps)


@builtin
def num_threads() -> Constexpr:
    """32 for each of `num_warps`."""
    return Constexpr(32 * KNOBS.get().num_warps)


@builtin
def convert_custom_float8_sm80(
    arg: Operand, dst_ty: DType, fp_downcast_rounding: str | None = None
) -> Tensor:
    """A conversion to or from tl.float8e4b15: arg.to(dst_ty)."""
    return to(arg, dst_ty, fp_downcast_rounding)


convert_custom_float8_sm70 = convert_custom_float8_sm80
