"""What a served package's modules have: its names, and what each is here.

`warploom.triton.names` and `warploom.tilus.names` are made of these; `tools/door_reference.py` writes the
tables of docs/triton.md and docs/tilus.md, tests hold them against the packages.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Module:
    """A module's names.  different, missing: name -> why; all others are the same.  absent: why there is no
    such module, and so none of its names."""

    names: str
    different: dict[str, str] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    absent: str = ""

    @property
    def all(self) -> list[str]:
        return sorted({*self.names.split(), *self.different, *self.missing})

    def status(self, name: str) -> tuple[str, str]:
        """("same", "different" or "missing", why)."""
        if self.absent:
            return "missing", self.absent
        for status, table in (("different", self.different), ("missing", self.missing)):
            if name in table:
                return status, table[name]
        return "same", ""
