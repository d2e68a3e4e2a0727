"""What the analysis of global memory says of the kernels in the tests and the library: counts, and each
reason.

python tools/global_memory_figures.py [PART …]   (parts: eject, library, scripts, strangers; all by default)
"""

from __future__ import annotations

import collections
import sys
import warnings
from collections.abc import Iterator
from typing import Any

from warploom.check.global_memory import check_global
from warploom.ir.core import Func

Named = Iterator[tuple[str, Func]]


def eject() -> Named:
    """The kernels that ejecting is tested on."""
    from tests.eject.corpus import cases

    for name, case in cases().items():
        yield name, case.compiled().placed


def library() -> Named:
    """The library's products, in every configuration."""
    from tests.e2e.library_products import GEMMS, PRODUCTS

    for product in PRODUCTS + GEMMS:
        constexprs = product.config.kwargs
        knobs = {k: v for k, v in product.config.all_kwargs.items() if k not in constexprs}
        made = product.kernel.compile(signature=product.signature, constexprs=constexprs, **knobs)
        yield str(product), made.placed


def scripts() -> Named:
    """Explicit kernels."""
    from tests.eject.test_round_trip import SCRIPTS, aligned

    for name, script in SCRIPTS.items():
        yield name, script.compile(aligned(script)).placed


def strangers() -> Named:
    """Kernels in the shapes that others write."""
    from corpus import catalog
    from tests.e2e.strangers.judging import FORMS

    for case in catalog.cases():
        how: dict[str, Any] = {**case.meta, **FORMS["auto"], **case.knobs}
        made = case.kernel.compile_for(*case.args, grid=case.grid, **how)
        yield case.name, made.placed


PARTS = {f.__name__: f for f in (eject, library, scripts, strangers)}


def main() -> None:
    warnings.simplefilter("ignore")
    verdicts: collections.Counter[tuple[str, str]] = collections.Counter()
    slowest = (0.0, "")
    for part in sys.argv[1:] or PARTS:
        for name, func in PARTS[part]():
            report = check_global(func)
            verdicts[part, report.verdict] += 1
            slowest = max(slowest, (report.seconds, name))
            for x in report.unproved:
                print(f"{part} {name}: not proved: {x.reason}", flush=True)
            for race in report.broken:
                print(f"{part} {name}: broken: {race.message}", flush=True)
    for (part, verdict), n in sorted(verdicts.items()):
        print(f"{part}: {n} {verdict}")
    print(f"slowest: {slowest[1]}, {slowest[0]:.2f} s")


if __name__ == "__main__":
    main()
