"""tilus.testing: tests that need a GPU."""

from __future__ import annotations

import unittest
from collections.abc import Callable
from typing import Any

from warploom.errors import LaunchError
from warploom.runtime.jit import target_of


class Requires:
    """`@requires.nvgpu_sm90`: the test is skipped where there is no such GPU, or a later one; names that end
    in a letter (`nvgpu_sm90a`) ask for this very one."""

    def __getattr__(self, name: str) -> Callable[[Any], Any]:
        chip = name.removeprefix("nvgpu_sm")
        if chip == name or not chip.rstrip("af").isdigit():
            raise AttributeError(f"requires has no {name}: write requires.nvgpu_sm90 or the like")
        wanted = int(chip.rstrip("af"))
        has = _capability()
        fits = has >= wanted if chip.isdigit() else has == wanted
        return unittest.skipUnless(fits, f"needs a GPU of sm_{chip}")


def _capability() -> int:
    try:
        name = target_of(0).name
    except LaunchError:
        return 0
    return int(name.removeprefix("sm_").rstrip("af"))


requires = Requires()
