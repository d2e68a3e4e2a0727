"""What a kernel reads and writes, as PyTorch asks for it.

torch.compile has to know which arrays a user's kernel changes.  It has Triton make its first IR of the
kernel and walks that by MLIR's bindings, looking for loads and stores and for what leads to their pointers.
Here `analysis/access.py` knows, so that what is walked has one function, with these accesses and no more.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from warploom.analysis.access import Accesses, only_reads, writes_memory
from warploom.ir.core import Func
from warploom.ir.printer import print_func
from warploom.ir.types import Pointer
from warploom.target import Target

_NUMBERS = itertools.count()


@dataclass(frozen=True)
class Numbered:
    """A value, or a region: what has an id and nothing else."""

    number: int = field(default_factory=lambda: next(_NUMBERS))

    def id(self) -> int:
        return self.number


@dataclass(frozen=True)
class Block(Numbered):
    """The function's body; its arguments are the function's."""

    arguments: tuple[Numbered, ...] = ()
    parent: Numbered = field(default_factory=Numbered)

    def get_num_arguments(self) -> int:
        return len(self.arguments)

    def get_argument(self, i: int) -> Numbered:
        return self.arguments[i]

    def get_parent(self) -> Numbered:
        return self.parent


@dataclass(frozen=True)
class Operation:
    """An op by MLIR's names."""

    name: str
    block: Block | None
    operands: tuple[Numbered, ...] = ()
    results: tuple[Numbered, ...] = ()
    regions: tuple[Numbered, ...] = ()
    symbol: str = ""

    def get_name(self) -> str:
        return self.name

    def get_block(self) -> Block | None:
        return self.block

    def get_num_operands(self) -> int:
        return len(self.operands)

    def get_operand(self, i: int) -> Numbered:
        return self.operands[i]

    def get_num_results(self) -> int:
        return len(self.results)

    def get_result(self, i: int) -> Numbered:
        return self.results[i]

    def get_num_regions(self) -> int:
        return len(self.regions)

    def get_region(self, i: int) -> Numbered:
        return self.regions[i]

    def get_str_attr(self, name: str) -> str:
        return self.symbol


@dataclass(frozen=True)
class Module:
    """The accesses of a kernel at TILE, each an op "tt.load", "tt.store" or, where it does both,
    "tt.atomic_rmw".  is_parameter: of each of the kernel's parameters, whether it is one of the function that
    is walked."""

    func: Func
    target: Target
    is_parameter: tuple[bool, ...]

    def verify(self) -> bool:
        return True

    def walk(self, visit: Callable[[Operation], None]) -> None:
        """From the inside out."""
        values = [Numbered() for _ in self.is_parameter]
        block = Block(arguments=tuple(itertools.compress(values, self.is_parameter)))
        for name, base in self._accesses():
            visit(
                Operation(name, block, (values[base],), () if name == "tt.store" else (Numbered(),))
            )
        visit(Operation("tt.return", block))
        visit(Operation("tt.func", None, regions=(block.parent,), symbol=self.func.name))

    def _accesses(self) -> Iterator[tuple[str, int]]:
        accesses = Accesses(self.func, self.target)
        pointers = [i for i, v in enumerate(self.func.params) if isinstance(v.type, Pointer)]
        for o in accesses.memory_ops:
            base = accesses.base_of(o)
            bases: Iterable[int] = pointers if base is None else [base]
            name = "tt.load" if only_reads(o) else "tt.atomic_rmw" if o.results else "tt.store"
            assert only_reads(o) or writes_memory(o)
            yield from ((name, i) for i in bases)

    def __str__(self) -> str:
        return print_func(self.func)


def module_of(
    kernel: Any, signature: dict[str, str], given: dict[str, Any], target: Target
) -> Module:
    """The accesses of a kernel.  signature: of all arguments by name; given: those that aren't parameters of
    the function, of which constexprs and None are known while compiling."""
    known = {n: v for n, v in given.items() if signature[n] == "constexpr" or v is None}
    taken = {n: kind for n, kind in signature.items() if n not in known}
    request = kernel.live().requested(taken, known, target.name, {})
    func = request.translate()
    is_parameter: list[bool] = []
    for name, spec in zip(taken, request.specs, strict=True):
        # a descriptor is its base, and the extents and strides of each axis
        is_parameter += [name not in given] * (1 + 2 * len(spec.block))
    return Module(func, target, tuple(is_parameter))
