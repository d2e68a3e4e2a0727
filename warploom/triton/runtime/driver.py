"""triton.runtime.driver: what hosts ask of the GPU.

Without a GPU arrays are interpreted on the CPU, and that is what the target says; sizes are those of the
default target, which `warmup` and `compile` compile for.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

from warploom.errors import LaunchError
from warploom.runtime.jit import target_of
from warploom.runtime.launch import current_stream
from warploom.runtime.launch import driver as cuda_driver
from warploom.target import DEFAULT, Target

__all__ = ["Driver", "active", "default", "driver", "set_active"]


class GPUTarget(NamedTuple):
    """backend "cuda", the compute capability (90) and the size of a warp; without a GPU "cpu", 0 and 0."""

    backend: str
    arch: int
    warp_size: int

    @staticmethod
    def of(name: str) -> GPUTarget:
        """Of a target called so, as "sm_90a"."""
        return GPUTarget("cuda", int("".join(c for c in name if c.isdigit())), 32)


CPU = GPUTarget("cpu", 0, 0)


class Driver:
    """The active driver, and its `utils`."""

    @property
    def utils(self) -> Driver:
        return self

    @staticmethod
    def is_active() -> bool:
        """Whether there is a GPU that kernels are compiled for."""
        return Driver.target() is not None

    @staticmethod
    def target(device: int = 0) -> Target | None:
        try:
            return target_of(device)
        except LaunchError:
            return None

    def get_current_target(self) -> GPUTarget:
        target = self.target(self.get_current_device())
        return CPU if target is None else GPUTarget.of(target.name)

    def get_current_device(self) -> int:
        """torch's current CUDA device; 0 without one."""
        torch = sys.modules.get("torch")
        return torch.cuda.current_device() if torch and torch.cuda.is_available() else 0

    def set_current_device(self, device: int) -> None:
        import torch

        torch.cuda.set_device(device)

    def get_current_stream(self, device: int) -> int:
        return current_stream(device) if self.is_active() else 0

    def get_device_capability(self, device: int = 0) -> tuple[int, int]:
        if self.target(device) is not None:
            return cuda_driver().architecture(device)
        return 0, 0

    def get_active_torch_device(self) -> Any:
        """The device that arrays should lie on; the CPU where there is no GPU."""
        import torch

        return (
            torch.device("cuda", self.get_current_device())
            if self.is_active()
            else torch.device("cpu")
        )

    def get_device_interface(self) -> Any:
        import torch

        return torch.cuda

    def get_empty_cache_for_benchmark(self) -> Any:
        """An array as large as the L2 cache, twice over; clear_cache writes it."""
        import torch

        return torch.empty(256 << 18, dtype=torch.int32, device=self.get_active_torch_device())

    def get_benchmarker(self) -> Any:
        """What times a function: `triton.testing.do_bench`."""
        return sys.modules["warploom.triton.testing"].do_bench

    def map_python_to_cpp_type(self, ty: str) -> str:
        """C's type of an argument, by its entry in a signature ("*fp32", "i64").
        Raises KeyError on others."""
        return "CUdeviceptr" if ty.startswith("*") else _CPP_TYPES[ty]

    def clear_cache(self, cache: Any) -> None:
        cache.zero_()

    def get_device_properties(self, device: int = 0) -> dict[str, int]:
        """By Triton's names: max_shared_mem (bytes a CTA), max_num_regs (of a multiprocessor),
        multiprocessor_count, warpSize; of a GPU also sm_clock_rate and mem_clock_rate (kHz) and
        mem_bus_width (bits)."""
        target = self.target(device)
        known = target or DEFAULT
        found = {
            "max_shared_mem": known.shared_bytes,
            "max_num_regs": known.registers.per_sm,
            "multiprocessor_count": known.multiprocessors,
            "warpSize": known.warp_size,
        }
        if target is not None:
            ask = cuda_driver().attribute
            found |= {name: ask(device, attribute) for name, attribute in _ATTRIBUTES.items()}
        return found


# CUDA driver API, CUdevice_attribute
_ATTRIBUTES = {
    "multiprocessor_count": "MULTIPROCESSOR_COUNT",
    "sm_clock_rate": "CLOCK_RATE",
    "mem_clock_rate": "MEMORY_CLOCK_RATE",
    "mem_bus_width": "GLOBAL_MEMORY_BUS_WIDTH",
}

_CPP_TYPES = {
    "i1": "int8_t",
    **{f"i{n}": f"int{n}_t" for n in (8, 16, 32, 64)},
    **{f"u{n}": f"uint{n}_t" for n in (1, 8, 16, 32, 64)},
    **dict.fromkeys(("fp16", "bf16", "fp32", "f32", "fp64"), "double"),
    "nvTmaDesc": "CUtensorMap",
}

active = Driver()
default = active
driver = sys.modules[__name__]


def set_active(other: Any) -> None:
    """Nothing: there is one driver."""
