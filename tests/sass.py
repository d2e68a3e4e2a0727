"""Machine code of a cubin: what the assembler made of a main loop.

The assembler reorders without saying so, and some orders cost speed: a wgmma wait moved up in front of the
arithmetic that was to hide it, a move between two products.  Only the machine code shows it.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cuda import pathfinder

_LINE = re.compile(r"\s*/\*[0-9a-f]{4,}\*/\s+(.*?)\s*;")
_LABEL = re.compile(r"\s*(\.L_x_\d+):")
_TARGET = re.compile(r"\.L_x_\d+")
_GUARD = re.compile(r"^@!?U?P\w+\s+")


def disassembler() -> Path | None:
    """nvdisasm, from a CUDA toolkit, its wheel (nvidia-cuda-nvdisasm) or Triton's package; None without."""
    found = pathfinder.find_nvidia_binary_utility("nvdisasm")
    if found is not None:
        return Path(found)
    triton = importlib.util.find_spec("triton")
    if triton is None or triton.origin is None:
        return None
    bundled = Path(triton.origin).parent / "backends" / "nvidia" / "bin" / "nvdisasm"
    return bundled if bundled.is_file() else None


@dataclass(frozen=True)
class Loop:
    """An innermost loop: its instructions without guards, as text."""

    body: tuple[str, ...]

    def count(self, opcode: str) -> int:
        """Instructions whose opcode starts so: "HGMMA", "MUFU.EX2"."""
        return sum(x.startswith(opcode) for x in self.body)

    def before_waits(self, opcode: str) -> tuple[int, ...]:
        """How many of an opcode stand before the first wgmma wait (WARPGROUP.DEPBAR), between it and the
        second, … and after the last."""
        counts = [0]
        for x in self.body:
            if x.startswith("WARPGROUP.DEPBAR"):
                counts.append(0)
            elif x.startswith(opcode):
                counts[-1] += 1
        return tuple(counts)


def loops(cubin: bytes, having: str = "HGMMA") -> tuple[Loop, ...]:
    """The innermost of the loops that contain an opcode, in the order of the code.  Raises FileNotFoundError
    without nvdisasm."""
    found = _loops(disassembled(cubin).splitlines())
    return _innermost([x for x in found if Loop(x[2]).count(having)])


def disassembled(cubin: bytes, *options: str) -> str:
    """nvdisasm's listing of a cubin's code.  Raises FileNotFoundError without nvdisasm."""
    tool = disassembler()
    if tool is None:
        raise FileNotFoundError("nvdisasm: pip install nvidia-cuda-nvdisasm")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        command = [str(tool), "-c", *options, str(path)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _loops(lines: Sequence[str]) -> list[tuple[int, int, tuple[str, ...]]]:
    """(start, end, instructions) of every branch back.  Code that the assembler has moved behind the kernel's
    end and that branches back from there (retries of mbarrier waits) makes no loop."""
    code: list[str] = []
    labels: dict[str, int] = {}
    found: list[tuple[int, int, tuple[str, ...]]] = []
    for line in lines:
        label, instruction = _LABEL.match(line), _LINE.match(line)
        if label:
            labels[label[1]] = len(code)
        elif instruction:
            code.append(_GUARD.sub("", instruction[1]))
            target = _TARGET.search(code[-1])
            if code[-1].startswith("BRA") and target and target[0] in labels:
                body = tuple(code[labels[target[0]] :])
                if not any(x.startswith("EXIT") for x in body):
                    found.append((labels[target[0]], len(code), body))
    return found


def _innermost(found: Sequence[tuple[int, int, tuple[str, ...]]]) -> tuple[Loop, ...]:
    inner = [
        x for x in found if not any(y is not x and x[0] <= y[0] and y[1] <= x[1] for y in found)
    ]
    return tuple(Loop(body) for _, _, body in sorted(inner))
