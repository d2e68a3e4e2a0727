"""`import triton` and `import tilus` served from here, in this process: also to libraries that do it.

    from warploom.runtime.serve import serve
    serve()
    import triton  # is warploom.triton

A finder before all others answers for both names and what is below them: `triton.X` becomes the module
`warploom.triton.X`, one object under two names.  Call it before anything else imports Triton.
"""

from __future__ import annotations

import builtins
import importlib
import sys
from collections.abc import Iterator, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.metadata import Distribution, DistributionFinder
from os import PathLike
from pathlib import Path
from types import ModuleType

SERVED = {"triton": "warploom.triton", "tilus": "warploom.tilus"}


class Served(MetaPathFinder, Loader):
    """Finds modules below the served names, and loads ours in their place."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] not in SERVED:
            return None
        return ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        """Puts our module where Python expects the one that it made.  Raises ModuleNotFoundError by the name
        that was asked for."""
        name = module.__name__
        root, dot, rest = name.partition(".")
        own = f"{SERVED[root]}{dot}{rest}"
        try:
            sys.modules[name] = found = importlib.import_module(own)
            _named(found, name)
        except ModuleNotFoundError as error:
            if error.name != own:
                raise
            table = importlib.import_module(f"{SERVED[root]}.names").MODULES.get(name)
            why = f"; {table.absent}" if table is not None and table.absent else ""
            text = f"No module named {name!r} (warploom serves {root}: docs/{root}.md{why})"
            raise ModuleNotFoundError(text, name=name) from None

    def find_distributions(self, context: DistributionFinder.Context) -> Iterator[Distribution]:
        """Who asks which version is installed (`importlib.metadata.version`) is told of the one served."""
        if context.name in SERVED:
            yield Release(context.name)


def _named(module: ModuleType, name: str) -> None:
    """Says of the language's functions that they are of the served module.  PyTorch writes a user's kernel to
    a file of its own, and imports what is Triton's by that."""
    if not name.startswith("triton.language"):
        return
    for key, value in vars(module).items():
        of_language = hasattr(value, "__warploom_builtin__") and value.__name__ == key
        if of_language and value.__module__.startswith("warploom"):
            value.__module__ = name


class Release(Distribution):
    """The metadata of a served package."""

    def __init__(self, root: str) -> None:
        self.root = root

    def read_text(self, filename: str) -> str | None:
        version = importlib.import_module(SERVED[self.root]).__version__
        text = f"Metadata-Version: 2.1\nName: {self.root}\nVersion: {version}\n"
        return text if filename == "METADATA" else None

    def locate_file(self, path: str | PathLike[str]) -> Path:
        return Path(__file__).parents[2] / path


_FINDER = Served()


def serve() -> None:
    """Serve both names from now on.  Raises RuntimeError where another Triton or Tilus is loaded already."""
    for root, own in SERVED.items():
        loaded = sys.modules.get(root)
        if loaded is not None and loaded.__name__ != own:
            raise RuntimeError(
                f"{root} is loaded already, from {loaded.__file__}: serve it before anything imports it"
            )
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)
    # PyTorch writes annotations of a user's kernel by module and name, and imports only triton there.
    vars(builtins)["warploom"] = sys.modules["warploom"]


def stop() -> None:
    """Give the names back: who imports them now gets what is installed."""
    if _FINDER in sys.meta_path:
        sys.meta_path.remove(_FINDER)
        vars(builtins).pop("warploom", None)
    for name in [m for m in sys.modules if m.partition(".")[0] in SERVED]:
        del sys.modules[name]
