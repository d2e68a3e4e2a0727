"""Serves `import triton` in the processes that a program under `warploom run` starts, where warploom is a
checkout, for which Python reads no warploom.pth; after what else is called sitecustomize.

Every Python that such a program starts runs this, of whatever version: it is written for all of them."""

import os
import sys

if sys.version_info >= (3, 5):  # noqa: UP036
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    here = os.path.split(os.path.realpath(__file__))[0]
    others = [entry for entry in sys.path if os.path.realpath(entry) != here]
    spec = PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(module_from_spec(spec))
if sys.version_info >= (3, 11) and os.environ.get("WARPLOOM_AS_TRITON") == "1":
    import warploom  # noqa: F401
