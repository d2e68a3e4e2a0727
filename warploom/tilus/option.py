"""tilus.option: settings of the process, which are environment variables here."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from warploom.errors import LaunchError
from warploom.options import PREFIX, get

# Settings that change nothing here, as they were set last.
_kept: dict[str, Any] = {
    "parallel_workers": os.cpu_count(), "bench_warmup": 5, "bench_repeat": 50,
    "debug.disable_ptxas_opt": False,
}  # fmt: skip


def get_option(name: str) -> Any:
    """What an option is: as it was set here or in the environment, otherwise the default.

    >>> get_option("debug.dump_ir")
    False

    Raises LaunchError (code `option`) on a name that is none."""
    found: dict[str, Any] = {
        "cache_dir": str(get().cache or "off"), "debug.dump_ir": get().dump == "all", **_kept,
    }  # fmt: skip
    if name not in found:
        raise LaunchError(
            "option", f"there is no option {name!r}", help=f"options: {', '.join(found)}"
        )
    return found[name]


def cache_dir(dir_path: str | Path) -> None:
    """Where kernels are cached (WARPLOOM_CACHE)."""
    os.environ[f"{PREFIX}CACHE"] = str(dir_path)


def parallel_workers(n: int) -> None:
    """Nothing: schedules are compiled on as many threads as there are cores."""
    _kept["parallel_workers"] = n


def bench_warmup(n: int) -> None:
    """Nothing: schedules race until one is known to be the fastest."""
    _kept["bench_warmup"] = n


def bench_repeat(n: int) -> None:
    """Nothing: schedules race until one is known to be the fastest."""
    _kept["bench_repeat"] = n


class debug:
    """What is written down while compiling."""

    @staticmethod
    def dump_ir(enable: bool = True) -> None:
        """The IR after each pass (WARPLOOM_DUMP)."""
        os.environ[f"{PREFIX}DUMP"] = "all" if enable else ""

    @staticmethod
    def disable_ptxas_opt(enabled: bool = True) -> None:
        """Nothing: the assembler optimises."""
        _kept["debug.disable_ptxas_opt"] = enabled
