"""What the compiler of CUDA C++ says of a kernel: the resources of its CTAs, and what it remarks on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Advisory:
    """What ptxas remarks on, by code: `C7508` (setmaxnreg ignored), `C7510` (wgmma serialised)."""

    code: str
    message: str

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


class Remarked:
    """What ptxas has to say against, if anything."""

    spill_bytes: int
    advisories: tuple[Advisory, ...]

    def problems(self) -> tuple[str, ...]:
        """Spills and every advisory: what a kernel of this library must not have."""
        spills = (f"{self.spill_bytes} bytes of spills",) if self.spill_bytes else ()
        return (*spills, *map(str, self.advisories))


@dataclass(frozen=True)
class Resources(Remarked):
    """What one CTA takes; registers are a thread's at entry, sizes are in bytes."""

    threads: int
    registers: int
    spill_bytes: int
    stack_bytes: int
    static_shared: int
    dynamic_shared: int
    barriers: int  # named barriers
    advisories: tuple[Advisory, ...]
    compile_seconds: float  # of NVRTC, all builds together
    compiler: str
    builds: int = 1  # that NVRTC made, of which this is the best
    stopped: str = ""  # why no other schedule was tried, where there would have been more

    def __str__(self) -> str:
        shared = self.static_shared + self.dynamic_shared
        found = (
            f"{self.threads} threads of {self.registers} registers, {shared:,} bytes of shared memory, "
            f"{', '.join(self.problems()) or 'no spill'} ({self.compiler}, {self.compile_seconds:.1f} s)"
        )
        return f"{found}; {self.search()}" if self.stopped else found

    def search(self) -> str:
        """How long the search for a build without spills went on."""
        count = "one build" if self.builds == 1 else f"the best of {self.builds} builds"
        return f"{count}; no other schedule was tried, because {self.stopped}"
