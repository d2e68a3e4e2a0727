"""Judges the corpus without a GPU:  python -m tests.e2e.corpus [PART OF NAME …] [--nvrtc] [--trace]"""

from __future__ import annotations

import argparse
import os
import signal
import tempfile
import time
import traceback
import warnings
from pathlib import Path

from corpus import catalog
from tests.e2e.corpus import judging
from warploom.errors import WarploomWarning


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--nvrtc", action="store_true", help="compile to cubins as well")
    parser.add_argument("--trace", action="store_true", help="print tracebacks")
    parser.add_argument("--auto", action="store_true", help="only what the chooser makes of it")
    parser.add_argument("--seconds", type=int, default=60, help="what a kernel may take")
    options = parser.parse_args()

    def late(*_: object) -> None:
        raise TimeoutError(f"{options.seconds} s")

    signal.signal(signal.SIGALRM, late)
    if not options.nvrtc:
        from tests.conftest import no_nvrtc
        from warploom.runtime import build

        build.compile_text = no_nvrtc
        os.environ["WARPLOOM_CACHE"] = "off"  # nobody else may find kernels without code
    with tempfile.TemporaryDirectory() as folder:
        for case in catalog.everything():
            if options.names and not any(n in case.name for n in options.names):
                continue
            for form in judging.FORMS if not options.auto else ("auto",):
                start = time.perf_counter()
                signal.alarm(options.seconds)
                try:
                    with warnings.catch_warnings(record=True) as seen:
                        warnings.simplefilter("always", WarploomWarning)
                        said = judging.judge(case, form, Path(folder), nvrtc=options.nvrtc)
                    told = {str(w.message).splitlines()[0] for w in seen}
                    said = "; ".join([said, *told])
                except Exception as e:
                    said = f"FAILED {type(e).__name__}: {str(e)[:600]}"
                    if options.trace:
                        traceback.print_exc()
                print(
                    f"{case.name} {form}: {said} ({time.perf_counter() - start:.1f} s)", flush=True
                )


main()
