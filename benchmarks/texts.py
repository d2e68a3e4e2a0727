"""The CUDA of the configurations that the records have, a file each: what a change does to them.

    python -m benchmarks.texts out/before         # at the commit before it
    python -m benchmarks.texts out/after          # then: diff -r out/before out/after

Kernels whose text is the same are as fast as they were: only the others have to be measured again.  Needs no
GPU, and no NVRTC where all are in the cache.  Peers that need a library which isn't there are left out.
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType

from benchmarks import peers
from benchmarks.cases import named
from benchmarks.data import Paper, make_data
from benchmarks.harness import with_current_names
from benchmarks.records import RESULTS, Record, read

FAMILIES = ("gemm", "attention", "fp8", "dual")
OURS = ("warploom", "explicit")


def own_peers() -> dict[str, ModuleType]:
    """The peers that are kernels of ours, by the names in records."""
    found = {}
    for module in pkgutil.iter_modules(peers.__path__):
        if module.name.startswith(OURS) and "awkward" not in module.name:
            try:
                peer = importlib.import_module(f"{peers.__name__}.{module.name}")
            except ImportError:
                continue
            found[peer.NAME] = peer
    return found


def _plain(label: str) -> str:
    """A configuration without how many programs it was launched with."""
    return re.sub(r" on \d+.*$", "", with_current_names(label))


def texts(records: Sequence[Record]) -> Iterator[tuple[str, str]]:
    """(name, CUDA) of each record's configuration that its peer still has."""
    ours = own_peers()
    for record in records:
        if record.peer not in ours or record.error:
            continue
        candidates = ours[record.peer].candidates(make_data(named(record.case), Paper()))
        for candidate in candidates:
            if _plain(candidate.label) == _plain(record.config):
                name = re.sub(r"\W+", "_", f"{record.peer} {record.case}")
                yield name, candidate.make().compiled().cuda
                break


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument(
        "--families", nargs="*", default=FAMILIES, help="files of benchmarks/results"
    )
    args = parser.parse_args(argv)
    args.out.mkdir(parents=True, exist_ok=True)
    count = 0
    for family in args.families:
        for name, text in texts(read(RESULTS / f"{family}.jsonl").records):
            (args.out / f"{name}.cu").write_text(text)
            count += 1
    print(f"{count} texts in {args.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
