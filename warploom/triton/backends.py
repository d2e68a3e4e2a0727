"""triton.backends: the one backend, by the names that PyTorch's Inductor asks for."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from warploom.schedule.model import Knobs
from warploom.target import DEFAULT, Target, for_device
from warploom.triton.runtime.driver import CPU, Driver, GPUTarget

__all__ = [
    "Backend",
    "BaseBackend",
    "CUDABackend",
    "GPUTarget",
    "backends",
    "compiler",
    "target_for",
]


def target_for(target: GPUTarget) -> Target | None:
    """What kernels for Triton's target are compiled for; None where there is no such target."""
    if target.backend == CPU.backend:
        return DEFAULT
    return for_device(divmod(int(target.arch), 10))


class CUDABackend:
    """What compiles for a target."""

    def __init__(self, target: GPUTarget) -> None:
        self.target = target

    @staticmethod
    def supports_target(target: GPUTarget) -> bool:
        return target.backend in ("cuda", "cpu") and target_for(target) is not None

    def hash(self) -> str:
        """What compiled code depends on beside the compiler's sources: NVRTC and the architecture."""
        from warploom.runtime.cache import compiler_package

        return f"{compiler_package()}-{self.target.arch}"

    def load_dialects(self, context: None) -> None:
        return None

    def get_codegen_implementation(self, options: Any) -> dict[str, Any]:
        return {}

    def get_module_map(self) -> dict[str, Any]:
        return {}

    @staticmethod
    def parse_attr(text: str) -> list[Any]:
        """What `ASTSource` takes for what `native_specialize_impl` says of an argument."""
        return [["tt.divisibility", 16]] if text == "D" else []

    def parse_options(self, options: Mapping[str, Any]) -> SimpleNamespace:
        """Triton's options: the knobs with these values; and the 8-bit floats that kernels take, which are
        converted on every target."""
        known = {f.name: f.default for f in dataclasses.fields(Knobs)}
        return SimpleNamespace(
            **{**known, **options}, supported_fp8_dtypes=("fp8e4nv", "fp8e5"), extern_libs=()
        )


@dataclass(frozen=True)
class Backend:
    compiler: type[CUDABackend]
    driver: type[Driver]


BaseBackend = CUDABackend  # there is one

backends = {"nvidia": Backend(CUDABackend, Driver)}


def min_dot_size(target: GPUTarget) -> Callable[[Any, Any], tuple[int, int, int]]:
    """A function that gives M, N and K, of which tl.dot takes no fewer of two dtypes."""
    return lambda lhs, rhs: (1, 1, 32 if lhs.scalar.primitive_bitwidth == 8 else 16)


__path__: list[str] = []  # a package, for `import triton.backends.compiler`
compiler = nvidia = sys.modules[__name__]
for _name in ("compiler", "nvidia", "nvidia.compiler"):
    sys.modules[f"{__name__}.{_name}"] = compiler
