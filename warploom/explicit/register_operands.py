"""Register operands of wgmma that a script's loop would overwrite while they are read."""

from __future__ import annotations

from warploom.errors import CompileError, Note
from warploom.ir.core import Func
from warploom.ir.in_flight import overwritten_operands


def check_register_operands(func: Func) -> None:
    """Raises CompileError (code `register-operand`) at the first wgmma whose A in registers the loop's next
    iteration would make while the wgmma may still be reading it."""
    for wgmma, loop in overwritten_operands(func):
        name = wgmma.operands[0].hint or "A"
        raise CompileError(
            "register-operand",
            f"this mma may still be reading {name} from registers when the loop's next iteration writes "
            "them: no wait in the loop covers it",
            wgmma.loc,
            (Note(f"the loop that makes {name}", loop.loc),),
            "wait for it in the same iteration (self.wgmma.wait_group(0)), or keep A in shared memory",
        )
