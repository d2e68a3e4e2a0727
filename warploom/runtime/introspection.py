"""What others read of a compiled kernel by Triton's names: tutorials, profilers, benchmarks."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from warploom.errors import LaunchError
from warploom.runtime.args import Field
from warploom.runtime.kernel import Kernel
from warploom.runtime.launch import grid_sizes
from warploom.runtime.plan import evaluate
from warploom.runtime.values import completed, fields_for


class Asm(Mapping[str, Any]):
    """The forms of a kernel by their names: "cuda", "ptx", "cubin", and the IR's levels ("tile" …; Triton's
    "ttir" is TILE, its "ttgir" PLACED).  What is not at hand is made when it is read."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def __iter__(self) -> Iterator[str]:
        return iter(("ttir", "ttgir", "cuda", "ptx", "cubin"))

    def __len__(self) -> int:
        return len(tuple(iter(self)))

    def __getitem__(self, name: str) -> Any:
        if name in ("cuda", "ptx", "cubin"):
            return getattr(self._kernel, name)
        return self._kernel.ir[{"ttir": "TILE", "ttgir": "PLACED"}.get(name, name.upper())]


class Introspection(Kernel):
    """A compiled kernel with Triton's names for what it is, and its way to launch it."""

    @property
    def n_regs(self) -> int:
        """Registers of a thread at entry."""
        return self.resources.registers

    @property
    def n_spills(self) -> int:
        """Bytes of registers that ptxas spilled, over 4."""
        return self.resources.spill_bytes // 4

    @property
    def n_max_threads(self) -> int:
        """The most threads that a CTA may have."""
        return 1024

    @property
    def hash(self) -> str:
        return self.key

    @functools.cached_property
    def asm(self) -> Asm:
        return Asm(self)

    @functools.cached_property
    def metadata(self) -> SimpleNamespace:
        """name, shared (bytes a CTA), num_warps (of a CTA), num_stages, num_ctas, target, and the knobs."""
        metadata = {"name": self.name, "shared": self.plan.shared_bytes, "hash": self.key}
        metadata |= {"num_warps": self.plan.threads // 32, "target": self.request.target}
        return SimpleNamespace(**{**vars(self.request.knobs), **metadata})

    def fields_of(self, args: Sequence[Any]) -> list[Field]:
        """`fields_for` of run-time arguments; what is left out at the end has its default.  Raises
        LaunchError `variant-argument`."""
        specs = self.request.specs
        fields = fields_for(self.placed, specs, completed(self.request, args))
        if self.request.launch.short:
            from warploom.runtime.signature import peeled_of

            text = peeled_of(self.lowered, self.request.machine()) or "1"
            if (steps := evaluate(text, [f.launched for f in fields])) != 1:
                raise LaunchError(
                    "variant-argument",
                    f"a loop of {self.name} has {steps} steps, and this variant is for launches of one",
                    help=f"{self.name}.compile_for(…) with these arguments is the variant to take",
                )
        return fields

    def _init_handles(self) -> None:
        """Nothing: resources are known, and code is loaded at the first launch."""

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        """Launches this variant, with the kernel's arguments in order; constexprs may be given and don't
        count.  Host arrays are taken through the oracle."""
        return functools.partial(self._launch, grid)

    def _launch(self, grid: Any, *args: Any) -> None:
        if len(args) > len(self.request.specs):
            from warploom.frontend.source import parameters

            fixed = dict(self.request.constexprs)
            names = [p.name for p in parameters(self.request.fn)]
            args = tuple(a for n, a in zip(names, args, strict=False) if n not in fixed)
        fields = self.fields_of(args)
        device = next((f.array.device for f in fields if f.array is not None), -1)
        if device < 0:
            from warploom.sim.oracle import run

            run(self.lowered.written, [f.on_host for f in fields], grid_sizes(grid))
            return
        self.prepared(device, grid_sizes(grid), tuple(f.launched for f in fields))()
