"""What `warploom run --report` prints: the kernels that a program met, and what became of each."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from warploom.errors import ReportedError
from warploom.runtime.compiled import CompiledKernel
from warploom.runtime.hooks import AROUND, AROUND_COMPILE
from warploom.runtime.jit import JITFunction


@dataclass
class Met:
    """One kernel.  forms: of its launches, in the order in which they were met.  first: seconds of the first
    launch of each form, which compiles; rest: of all others."""

    place: str
    launches: int = 0
    forms: dict[str, None] = field(default_factory=dict)
    first: float = 0.0
    rest: float = 0.0
    refused: int = 0
    refusals: dict[str, None] = field(default_factory=dict)

    def refuse(self, why: str) -> None:
        self.refused += 1
        self.refusals[why] = None


class Report:
    """Follows the launches of this process from `start` on.  handed: kernels that another Triton runs, and
    why."""

    def __init__(self, handed: Mapping[JITFunction, str] | None = None) -> None:
        self.met: dict[JITFunction, Met] = {}
        self.handed = {} if handed is None else handed

    def start(self) -> None:
        AROUND.append(self.around)
        AROUND_COMPILE.append(self.around_compile)

    def stop(self) -> None:
        AROUND.remove(self.around)
        AROUND_COMPILE.remove(self.around_compile)

    def around_compile(self, source: Any, compile: Callable[[], Any]) -> Any:
        """What compile() gives; a refusal counts, though nothing is launched."""
        try:
            return compile()
        except ReportedError as error:
            self._of(source.fn.live()).refuse(str(error).splitlines()[0])
            raise

    def _of(self, kernel: JITFunction) -> Met:
        code = kernel.fn.__code__
        place = f"{Path(code.co_filename).name}:{code.co_firstlineno}"
        return self.met.setdefault(kernel, Met(place))

    def around(
        self,
        kernel: JITFunction,
        launch: Callable[[], CompiledKernel | None],
        grid: Any,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> CompiledKernel | None:
        met = self._of(kernel)
        met.launches += 1
        start = time.perf_counter()
        try:
            found = launch()
        except ReportedError as error:
            met.refuse(str(error).splitlines()[0])
            raise
        finally:
            if kernel in self.handed:
                met.refuse(self.handed[kernel])
        seconds = time.perf_counter() - start
        form = "by the installed Triton" if kernel in self.handed else _form(found)
        if form in met.forms:
            met.rest += seconds
        else:
            met.forms[form] = None
            met.first += seconds
        return found

    def lines(self) -> Iterator[str]:
        """A line a kernel, its refusals below it, and a line for all of them."""
        everywhere = [m for m in self.met.values() if m.refused and m.refused >= m.launches]
        for kernel, met in self.met.items():
            forms = ", ".join(met.forms) or "refused"
            count = f"{met.launches} launch{'es' if met.launches > 1 else ''}"
            times = f"{met.first:.2f} s at first, {1e3 * met.rest:.1f} ms after"
            count += f", {met.refused} refused" * bool(met.refused)
            yield f"{kernel.fn.__name__} ({met.place}): {forms}; {count}, {times} on the host"
            yield from (f"  {text}" for text in met.refusals)
        launches, refused = (
            sum(getattr(m, what) for m in self.met.values()) for what in ("launches", "refused")
        )
        yield (
            f"{len(self.met)} kernels met, {len(everywhere)} refused each time; "
            f"{launches} launches, {refused} refused"
        )


def _form(kernel: CompiledKernel | None) -> str:
    if kernel is None:
        return "interpreted"
    kind = "specialized" if kernel.schedule.specialized else "uniform"
    met = "overlapping arguments" if kernel.request.overlap else ""
    met = met or ("stores in order, as they may meet" if kernel.request.in_order else "")
    return f"{kind}, {kernel.plan.threads // 32} warps" + (f" ({met})" if met else "")
