"""`cache info` and `cache clear`: what compiled kernels take of the disk, and how to be rid of them."""

from __future__ import annotations

import argparse
import time
from typing import Any

from warploom.cli.console import EXIT, say


def add_commands(commands: Any) -> None:
    cache = commands.add_parser(
        "cache", help="the compiled kernels on disk: what is there, or remove it"
    )
    actions = cache.add_subparsers(dest="action", required=True, metavar="ACTION")
    actions.add_parser("info", help="folder, entries, size").set_defaults(run=info)
    actions.add_parser("clear", help="remove all entries").set_defaults(run=clear)


def info(args: argparse.Namespace) -> int:
    from warploom.runtime.cache import default_cache
    from warploom.runtime.cache_folder import entries

    cache = default_cache()
    if cache.root is None:
        say("nothing is cached on disk (WARPLOOM_CACHE)")
        return EXIT.ok
    found = list(entries(cache.root))
    size = sum(e.size for e in found)
    say(f"folder   {cache.root}")
    say(f"size     {_bytes(size)} of {_bytes(cache.limit)} (WARPLOOM_CACHE_SIZE)")
    for kind in sorted({e.kind for e in found}):
        mine = [e for e in found if e.kind == kind]
        say(f"{kind:8} {len(mine)} entries, {_bytes(sum(e.size for e in mine))}")
    if found:
        days = (time.time() - min(e.used for e in found)) / 86400
        say(f"oldest   last used {days:.1f} days ago")
    return EXIT.ok


def clear(args: argparse.Namespace) -> int:
    from warploom.runtime.cache import default_cache
    from warploom.runtime.cache_folder import clear

    root = default_cache().root
    gone = 0 if root is None else clear(root)
    where = "nothing is cached on disk" if root is None else f"from {root}"
    say(f"{gone} entries removed ({where})")
    return EXIT.ok


def _bytes(n: float) -> str:
    for unit in ("bytes", "KiB", "MiB"):
        if n < 1024:
            return f"{n:.4g} {unit}"
        n /= 1024
    return f"{n:.4g} GiB"
