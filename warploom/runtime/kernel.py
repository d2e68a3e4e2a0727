"""One compiled variant of a kernel: its code, how it is launched, and what it was made from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from warploom.codegen.resources import Resources
from warploom.errors import CompileError
from warploom.frontend.reads import Reads
from warploom.ir.core import Func
from warploom.runtime.build import ptx_of
from warploom.runtime.launch import LoadedKernel, Prepared, driver
from warploom.runtime.plan import (
    Binder,
    LaunchPlan,
    make_binder,
    make_meeting,
    make_short_test,
    make_split_k,
)
from warploom.runtime.request import Request
from warploom.schedule.model import Schedule
from warploom.schedule.resources import Headroom

if TYPE_CHECKING:
    from warploom.compile import Lowered
    from warploom.runtime.workspace import OwnMemoryLaunch


class Kernel:
    """What was compiled, and how it is launched; `CompiledKernel`, which users have, says what each is."""

    def __init__(
        self,
        request: Request,
        cuda: str,
        cubin: bytes,
        plan: LaunchPlan,
        resources: Resources,
        warnings: tuple[str, ...] = (),
        lowered: Lowered | None = None,
        reads: Reads | None = None,
    ) -> None:
        self.request = request
        self.cuda = cuda
        self.cubin = cubin
        self.plan = plan
        self.resources = resources
        self.warnings = warnings
        self.reads = Reads() if reads is None else reads
        self._lowered = lowered
        self._loaded: LoadedKernel | None = None
        self.starts: dict[int, Callable[..., None]] = {}  # by device (fixed.starter)

    def __repr__(self) -> str:
        signature = ", ".join(self.signature)
        return f"<{type(self).__name__} {self.name}({signature}) for {self.request.target}>"

    @property
    def name(self) -> str:
        return self.request.name

    @property
    def signature(self) -> tuple[str, ...]:
        """As `kernel.compile(signature=…)` takes it."""
        return tuple(map(str, self.request.specs))

    @property
    def constexprs(self) -> dict[str, Any]:
        return dict(self.request.constexprs)

    @property
    def key(self) -> str:
        """The kernel's identity, in any process: its request and what its translation read."""
        return self.request.with_headroom(Headroom()).key_with(self.reads)

    @property
    def from_cache(self) -> bool:
        """Whether no pass has run for it in this process."""
        return self._lowered is None

    @property
    def lowered(self) -> Lowered:
        """The kernel after every pass.  Raises CompileError `outdated` where the kernel is from the cache
        and a translation now would read something else."""
        if self._lowered is None:
            lowered = self.request.lower()
            if lowered.reads is not None and lowered.reads.text != self.reads.text:
                raise CompileError(
                    "outdated",
                    f"what {self.name} reads has changed since it was compiled, so that its IR can't be made "
                    "again",
                    lowered.source.loc,
                    help="compile it again",
                )
            self._lowered = lowered
        return self._lowered

    @property
    def ir(self) -> dict[str, str]:
        """Level name (`TILE` … `PLACED`) to IR text."""
        return self.lowered.levels

    @property
    def schedule(self) -> Schedule:
        return self.lowered.schedule

    @property
    def placed(self) -> Func:
        """The function that the CUDA text was emitted from."""
        return self.lowered.placed

    @cached_property
    def ptx(self) -> str:
        return ptx_of(self.cuda, self.plan, self.request, self.schedule.ctas_per_sm)

    @cached_property
    def binder(self) -> Binder:
        """Arguments to kernel parameters, as the launch plan says."""
        return make_binder(self.plan)

    @cached_property
    def is_short(self) -> Callable[[Sequence[Any]], bool]:
        """Whether a launch with these arguments takes the variant `for_short`."""
        return make_short_test(self.plan)

    @cached_property
    def meeting(self) -> Callable[[Sequence[Any]], tuple[int, int, int] | None]:
        """Which strides in a launch with these arguments are too small for this variant."""
        return make_meeting(self.plan.spaced)

    @cached_property
    def split_k(self) -> Callable[[Sequence[Any], int], Any]:
        """How CTAs share the steps of programs (`Launch.split_k`), of a launch with these arguments and so
        many programs: where they do, it takes a variant `for_split_k`."""
        return make_split_k(self.plan)

    def prepared(
        self,
        device: int,
        grid: tuple[int, int, int],
        values: tuple[Any, ...],
        captured: Kernel | None = None,
    ) -> Prepared | OwnMemoryLaunch:
        """A launch of so many programs with these arguments.  captured: the kernel that runs instead where
        the stream is being captured (OwnMemoryLaunch)."""
        from warploom.runtime.workspace import prepared

        def instead() -> Prepared:
            assert captured is not None
            return captured.loaded().prepare(device, grid, values)

        return prepared(self.loaded(), device, grid, values, instead if captured else None)

    def loaded(self) -> LoadedKernel:
        """The kernel in the process's driver.  Raises LaunchError where there is no GPU."""
        if self._loaded is None:
            self._loaded = LoadedKernel(driver(), self.cubin, self.plan, self.binder)
        return self._loaded
