"""Writes short loops out in texts that have many, with a variable for each element.

NVRTC unrolls every loop by itself and looks at the whole kernel each time, so its optimizer's time grows with
the number of loops times the kernel's size; then it finds out which arrays it can keep in registers, which
are as many.  A sorting network of 28 steps on tiles of 2 elements a thread has 900 loops: 1.1 s, written out
0.1, and as many instructions; of 16 elements 5.5 s, written out 2.9, with variables 1.7.  Where loops are few
their number takes no time, and the loops are what one can read.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence

from warploom.codegen.text import Line

MANY = 200  # loops of a kernel; library attention has 160 at most
LONGEST = 64  # statements that one loop becomes

_HEAD = re.compile(r"for \(int (\w+) = 0; \w+ < (\d+); \+\+\w+\) ?(.+)")
_ASSIGNMENT = re.compile(r"\w+\[[^\]]*\] = .*;")
_ARRAY = re.compile(r"(\w+) (\w+)\[(\d+)\];")
_NAME = re.compile(r"[A-Za-z_]\w*")
_INDEXED = re.compile(r"\b([A-Za-z_]\w*)\[(\d+)\]")


def write_out_short_loops(lines: Sequence[Line], taken: Collection[str] = ()) -> list[Line]:
    """The lines of a kernel, with short loops over elements as a statement for each where there are many.
    taken: names that variables can't have, those of parameters that no line uses among them."""
    if sum(x.text == "#pragma unroll" for x in lines) <= MANY:
        return list(lines)
    found: list[Line] = []
    at = 0
    while at < len(lines):
        written, at = _written(lines, at) or ([lines[at]], at + 1)
        found += written
    return _with_variables(found, taken)


def _written(lines: Sequence[Line], at: int) -> tuple[list[Line], int] | None:
    """What the loop whose pragma stands here becomes, and where it ends; None: it stays."""
    if lines[at].text != "#pragma unroll" or not (head := _HEAD.fullmatch(lines[at + 1].text)):
        return None
    name, trips, inline = head[1], int(head[2]), head[3]
    if inline == "{":
        end = next(i for i in range(at + 2, len(lines)) if lines[i].text == "}")
        body, after = lines[at + 2 : end], end + 1
    else:
        body, after = [lines[at + 1]._replace(text=inline)], at + 2
    if trips * len(body) > LONGEST or not all(_ASSIGNMENT.fullmatch(x.text) for x in body):
        return None
    depth = lines[at].depth
    return [
        x._replace(depth=depth, text=_at(x.text, name, i)) for i in range(trips) for x in body
    ], after


def _at(text: str, name: str, i: int) -> str:
    """A statement of the loop's body for one value of its variable."""

    def index(m: re.Match[str]) -> str:
        return f"[{int(m[1] or 1) * i + int(m[2] or 0)}]"

    text = re.sub(rf"\[(?:(\d+) \* )?{name}(?: \+ (\d+))?\]", index, text)
    return re.sub(rf"\b{name}\b", str(i), text)


def _with_variables(lines: Sequence[Line], taken: Collection[str]) -> list[Line]:
    """With variables instead of the arrays whose elements are all named one by one."""
    sizes = {m[2]: int(m[3]) for x in lines if (m := _ARRAY.fullmatch(x.text))}
    named, indexed = Counter[str](), Counter[str]()
    for x in lines:
        named.update(_NAME.findall(x.text))
        indexed.update(n for n, _ in _INDEXED.findall(x.text))
    joint, used = "_", {*named, *taken}
    while any(f"{a}{joint}{i}" in used for a, n in sizes.items() for i in range(n)):
        joint += "_"
    arrays = {a for a in sizes if named[a] == indexed[a]}

    def element(m: re.Match[str]) -> str:
        return f"{m[1]}{joint}{m[2]}" if m[1] in arrays else m[0]

    found = []
    for x in lines:
        m = _ARRAY.fullmatch(x.text)
        if m and m[2] in arrays:
            text = f"{m[1]} {', '.join(f'{m[2]}{joint}{i}' for i in range(int(m[3])))};"
        else:
            text = _INDEXED.sub(element, x.text)
        found.append(x._replace(text=text))
    return found
