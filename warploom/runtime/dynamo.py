"""`torch.compile` around a launch.

Dynamo, its tracer, would follow a launch into this package, where there is nothing for it to trace: what a
kernel does to a tensor shows nowhere in Python.  It is told to leave these files alone, as it leaves those of
NumPy: a launch breaks the graph, runs as it is, and with fullgraph=True torch says that it can't.
"""

from __future__ import annotations

import pkgutil
import sys

_known: list[bool] = []  # not empty: torch was told


def step_aside() -> None:
    """Tell torch's tracer, where this process has loaded it, to skip this package.  What users call with
    tensors does this first; after that Dynamo sees none of it.

    Dynamo itself breaks the graph here, by the attribute that `torch.compiler.disable` sets."""
    if not _known and "torch._dynamo" in sys.modules:
        _known.append(True)
        from torch._dynamo import trace_rules

        # All but what stands in the package itself: hosts call cdiv between launches.
        package = __name__.partition(".")[0]
        for module in pkgutil.iter_modules(sys.modules[package].__path__, f"{package}."):
            trace_rules.add(module.name)


step_aside._torchdynamo_disable = True  # type: ignore[attr-defined]
step_aside._torchdynamo_disable_msg = "a kernel's launch can't be traced"  # type: ignore[attr-defined]
