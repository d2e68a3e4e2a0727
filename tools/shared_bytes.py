"""What sharing bytes by liveness saves: for each kernel in tests, lessons and library its shared memory if
every allocation had bytes of its own, and as it is.

python -m tools.shared_bytes [--all] [PART …]

Parts: those of tests/launches.py, and "one-tile": the gated pair and attention without a loop over tiles.
--all: those that save nothing, too.  Nothing is compiled by NVRTC.
"""

from __future__ import annotations

import argparse
import os
import warnings
from collections.abc import Callable, Iterator

from tests.e2e import one_tile
from tests.launches import PARTS
from warploom.ir.core import Func
from warploom.ir.ops import smem
from warploom.ir.verify_placed import allocated_bytes
from warploom.runtime import nvrtc

ONE_TILE: dict[str, Callable[[], Func]] = {
    "dual 128x128x64, 4 slots": lambda: one_tile.dual(4).placed,
    "attention d=128": lambda: one_tile.attention(128, False).placed,
    "attention d=128, 2 slots": lambda: one_tile.attention(128, False, depth=2).placed,
    "attention d=128 causal": lambda: one_tile.attention(128, True).placed,
    "attention d=64, 192 rows, causal": lambda: one_tile.attention(64, True, 192).placed,
}


def kernels(part: str) -> Iterator[tuple[str, Callable[[], Func]]]:
    """Name and function at PLACED of each kernel of a part."""
    if part == "one-tile":
        yield from ONE_TILE.items()
        return
    for launch in PARTS[part]():
        yield launch.name, lambda launch=launch: launch.make()[0]  # type: ignore[misc]


def saved(func: Func) -> int:
    """Bytes that allocations would take beside what they take together."""
    heads = [
        o for o in func.body.ops if o.kind is smem.shared_alloc and o.attrs.get("alias") is None
    ]
    sizes = [allocated_bytes(o, func.target) for o in heads]
    ends = [o.attrs["offset"] + n for o, n in zip(heads, sizes, strict=True)]
    return sum(sizes) - max(ends, default=0)


def shared(func: Func) -> str:
    """Who lies where: `c in a` for each allocation that has others' bytes."""
    found = (
        f"{o.attrs['name']} in {', '.join(o.attrs['reuses'])}"
        for o in func.body.ops
        if o.attrs.get("reuses")
    )
    return "; ".join(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", default=[*PARTS, "one-tile"])
    parser.add_argument("--all", action="store_true")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    os.environ["WARPLOOM_CACHE"] = "off"
    nvrtc.compile_cuda = lambda source, *, name, target, options=(), want_ptx=False: nvrtc.Build(  # type: ignore[assignment]
        name, b"", "", 128, 0, 0, 0, 2, (), 0.0, "NVRTC 13.5", ""
    )
    for part in args.parts:
        count = changed = total = 0
        for name, make in kernels(part):
            func = make()
            n, now = saved(func), int(func.attrs["shared_bytes"])
            count, changed, total = count + 1, changed + (n > 0), total + n
            if n or args.all:
                print(f"{part} {name}: {now + n:,} -> {now:,} bytes  {shared(func)}")
        print(f"{part}: {changed} of {count} kernels, {total:,} bytes")


if __name__ == "__main__":
    main()
