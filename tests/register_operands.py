"""Machine code of a cubin: whether register operands of wgmma stay as they are until they have been read.

HGMMA and its kin (IGMMA, QGMMA) read A from registers after they were issued, until a WARPGROUP.DEPBAR covers
their group.  The assembler gives the registers to something else before that where it has a fault (ptxas
before 13.3), or where the source asked for it.  nvdisasm says which registers an instruction writes
(--print-life-ranges).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tests.sass import disassembled

_LINE = re.compile(r"\s*/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;")
_LABEL = re.compile(r"\s*(\.L_x_\d+):")
_TARGET = re.compile(r"\.L_x_\d+")
_GUARD = re.compile(r"@!?U?P\w+\s+")
_PRODUCT = re.compile(r"[HIQ]GMMA\b")
_WITH_A = re.compile(r"[HIQ]GMMA\S* R\d+, R(\d+)\S*, gdesc")
_WAIT = re.compile(r"WARPGROUP\.DEPBAR\.LE gsb0, (0x[0-9a-f]+)")
_ROOM = re.compile(r"BSSY\S* (B\d+), `\((\.L_x_\d+)\)")
_COLUMNS = re.compile(r"// \|\s+# ([\d ]+)\|")
A_REGISTERS = 4  # of an instruction: 64 rows of 32 bytes among 128 threads
OLDEST = 8  # groups that are told apart: no wait leaves more

# Registers as bits of a number: read by wgmmas of no group yet, of the latest group, of the one before, …
_State = tuple[int, ...]


@dataclass(frozen=True)
class Overwritten:
    """An instruction that writes registers which a wgmma may still be reading."""

    address: str
    instruction: str
    registers: tuple[int, ...]

    def __str__(self) -> str:
        names = ", ".join(f"R{r}" for r in self.registers)
        return (
            f"{self.address}: {self.instruction} writes {names}, which a wgmma may still be reading"
        )


@dataclass(frozen=True)
class _Instruction:
    address: str
    text: str  # without its guard
    guarded: bool
    writes: int


def operands_overwritten(cubin: bytes) -> tuple[Overwritten, ...]:
    """What a cubin's kernel overwrites too early, on any path; empty: every register operand is kept until
    its wait.  Raises FileNotFoundError without nvdisasm."""
    return tuple(_overwritten(disassembled(cubin, "-plr").splitlines()))


def register_products(cubin: bytes) -> int:
    """Instructions with A in registers."""
    return len(re.findall(_WITH_A, disassembled(cubin)))


def _overwritten(lines: list[str]) -> Iterator[Overwritten]:
    code, labels = _parsed(lines)
    following = _following(code, labels)
    none: _State = (0,) * (OLDEST + 2)
    states: dict[int, _State] = {0: none}
    work = [0]
    while work:
        at = work.pop()
        after = _after(code[at].text, states[at])
        for to in following[at]:
            joined = tuple(x | y for x, y in zip(states.get(to, none), after, strict=True))
            if to not in states or joined != states[to]:
                states[to] = joined
                work.append(to)
    for at in sorted(states):
        lost = code[at].writes & _union(states[at])
        if lost:
            numbers = tuple(r for r in range(lost.bit_length()) if lost >> r & 1)
            yield Overwritten(code[at].address, code[at].text, numbers)


def _after(text: str, state: _State) -> _State:
    """What is being read behind an instruction."""
    if wait := _WAIT.match(text):
        left = int(wait[1], 16) + 1
        return (*state[:left], *(0 for _ in state[left:]))
    if not _PRODUCT.match(text):
        return state
    young, *groups = state
    if a := _WITH_A.match(text):
        young |= ((1 << A_REGISTERS) - 1) << int(a[1])
    if "gsb0" not in text:
        return (young, *groups)
    *groups, old, oldest = groups  # the instruction closes its group
    return (0, young, *groups, old | oldest)


def _union(state: _State) -> int:
    out = 0
    for registers in state:
        out |= registers
    return out


def _parsed(lines: list[str]) -> tuple[list[_Instruction], dict[str, int]]:
    code: list[_Instruction] = []
    labels: dict[str, int] = {}
    columns: dict[int, int] = {}  # of the listing -> register
    for line in lines:
        if not columns and (header := _COLUMNS.search(line)):
            first = header.start(1)
            for number in re.finditer(r"\d+", header[1]):
                span = range(first + number.start(), first + number.end())
                columns.update(dict.fromkeys(span, int(number[0])))
        elif label := _LABEL.match(line):
            labels[label[1]] = len(code)
        elif found := _LINE.match(line):
            marks = (r for c, r in columns.items() if line[c : c + 1] in ("^", "x"))
            text = _GUARD.sub("", found[2], count=1) if found[2].startswith("@") else found[2]
            writes = sum(1 << r for r in set(marks))
            code.append(_Instruction(found[1], text, text != found[2], writes))
    return code, labels


def _following(code: list[_Instruction], labels: dict[str, int]) -> list[list[int]]:
    """Where each instruction may lead.  A call comes back as if nothing had been waited for in it."""
    rooms: dict[str, list[int]] = {}  # where threads meet again
    for i in code:
        if room := _ROOM.match(i.text):
            rooms.setdefault(room[1], []).append(labels[room[2]])
    out = []
    for at, i in enumerate(code):
        opcode = i.text.split(" ")[0]
        targets = [labels[x] for x in _TARGET.findall(i.text) if x in labels]
        ends = False
        if opcode.startswith("BSYNC"):
            targets = rooms.get(i.text.split()[1], [])
        elif opcode.startswith(("BRA", "JMP")):
            ends = not i.guarded and bool(re.match(r"\S+ `\(", i.text))
        elif opcode.startswith(("EXIT", "RET")):
            ends = not i.guarded
        elif not opcode.startswith(("CALL", "BRX")):
            targets = []
        out.append([x for x in (*targets, *([] if ends else [at + 1])) if x < len(code)])
    return out
