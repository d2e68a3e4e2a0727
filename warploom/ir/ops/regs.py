"""Registers of a thread: how many there are, and what the assembler may not move."""

from __future__ import annotations

from warploom.ir.core import HARDWARE, Effect, Family, Runs, Type, op, require


@op(Family.REGISTERS, levels=HARDWARE, effect=Effect.SYNC)
def hold(*values: Type) -> None:
    """Order in the machine code: what follows stays after the computation of these tiles and numbers.

    The assembler may move a wgmma_wait up past arithmetic that doesn't need it (seen with ptxas 12.8, 13.0
    and NVRTC 13.5), so the place of a wait amid arithmetic that is to hide it is lost.  Emitted as a store
    that never happens and whose predicate depends on the values; elsewhere it means nothing.  Held by
    habits of the assembler, not by its contract: `tests/sass.py` counts what stands before a wait.
    """
    require(len(values) > 0, "hold needs a value")


@op(Family.REGISTERS, levels=HARDWARE, effect=Effect.SYNC, runs=Runs.ALL)
def setmaxnreg(*, registers: int, action: str = "") -> None:
    """From here on each thread of the replica may use so many registers: all of it executes it together.

    Less than it has goes back to the CTA's pool ("dec"); for more ("inc") each warp waits until the pool has
    enough.  The pool is empty at first: all that the CTA was launched with is its warps' own, and what a warp
    has when it ends is nobody's.  Between two of them the warps of a warp group synchronise; otherwise
    setmaxnreg orders nothing.  action: "inc" or "dec" where the source says which it is ("" else).
    (PTX ISA, "setmaxnreg".)
    """
    require(action in ("", "inc", "dec"), f"setmaxnreg is inc or dec, not {action}", "action")
