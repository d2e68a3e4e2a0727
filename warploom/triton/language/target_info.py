"""triton.language.target_info: what a kernel is compiled for.  On the CPU that is an H100 (sm_90a)."""

from __future__ import annotations

from warploom.frontend.language.core import constexpr_function
from warploom.frontend.targeted import TARGET
from warploom.triton.runtime.driver import GPUTarget

__all__ = ["cuda_capability_geq", "current_target", "is_cuda", "is_hip"]


@constexpr_function
def current_target() -> GPUTarget:
    """Its `backend` ("cuda"), `arch` (90) and `warp_size`."""
    return GPUTarget.of(TARGET.get())


@constexpr_function
def is_cuda() -> bool:
    return True


@constexpr_function
def is_hip() -> bool:
    return False


is_hip_cdna3 = is_hip_cdna4 = is_hip_gfx1250 = is_hip


@constexpr_function
def cuda_capability_geq(major: int, minor: int = 0) -> bool:
    """Whether the compute capability is (major, minor) or later."""
    return GPUTarget.of(TARGET.get()).arch >= 10 * major + minor
