"""The prelude: definitions written by hand, of which a source has those that it uses; what is taken."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path


@cache
def _paragraphs() -> tuple[tuple[str, str, str], ...]:
    """(section, name defined, text) of every definition in prelude.cuh."""
    text = (Path(__file__).parent / "prelude.cuh").read_text()
    out = []
    for paragraph in text.split("\n\n")[1:]:
        paragraph = paragraph.strip("\n")
        code = "\n".join(x for x in paragraph.split("\n") if not x.startswith("//"))
        if code.startswith("typedef"):
            name = re.findall(r"\w+", code)[-1]
        elif code.startswith("struct"):
            name = re.findall(r"(\w+) \{", code)[0]
        elif code.startswith("#define"):
            name = "DEV"
        else:
            name = re.findall(r"(\w+)\(", code.replace("__align__(", ""))[0]
        section = "types" if code.startswith(("typedef", "struct")) else "functions"
        out.append((section, name, paragraph))
    return tuple(out)


def prelude(text: str) -> dict[str, list[str]]:
    """The definitions that `text` uses, transitively, in the prelude's order, by section."""
    found: set[str] = set()
    pending = [text]
    while pending:
        now = pending.pop()
        words = set(re.findall(r"\w+", now))
        for _, name, paragraph in _paragraphs():
            if name in words and name not in found:
                found.add(name)
                pending.append(paragraph)
    sections: dict[str, list[str]] = {"types": [], "functions": []}
    for section, name, paragraph in _paragraphs():
        if name in found:
            sections[section].append(paragraph)
    return sections


# Names that the emitted source has already, beside the prelude's.
_TAKEN = """
group warp_id smem memory i blockIdx threadIdx gridDim blockDim min max abs int float double
char short long unsigned signed bool const if else for while do switch case default return break
continue struct class template typename this new delete true false void auto register volatile
static inline extern goto sizeof union enum operator namespace using public private protected
try catch throw constexpr printf THREADS DEV asm and or not xor
"""
RESERVED = frozenset((*_TAKEN.split(), *(name for _, name, _ in _paragraphs())))
