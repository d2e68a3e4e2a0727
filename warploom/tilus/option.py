"""tilus.option: settings of the process, which are environment variables here."""

from __future__ import annotations

import os
from pathlib import Path

from warploom.options import PREFIX


def cache_dir(dir_path: str | Path) -> None:
    """Where kernels are cached (WARPLOOM_CACHE)."""
    os.environ[f"{PREFIX}CACHE"] = str(dir_path)


def parallel_workers(n: int) -> None:
    """Nothing: schedules are compiled on as many threads as there are cores."""


def bench_warmup(n: int) -> None:
    """Nothing: schedules race until one is known to be the fastest."""


def bench_repeat(n: int) -> None:
    """Nothing: schedules race until one is known to be the fastest."""


class debug:
    """What is written down while compiling."""

    @staticmethod
    def dump_ir(enable: bool = True) -> None:
        """The IR after each pass (WARPLOOM_DUMP)."""
        os.environ[f"{PREFIX}DUMP"] = "all" if enable else ""

    @staticmethod
    def disable_ptxas_opt(enabled: bool = True) -> None:
        """Nothing: the assembler optimises."""
