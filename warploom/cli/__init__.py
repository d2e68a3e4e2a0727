"""The command line: arguments, exit codes, and what becomes of errors.

| code | meaning |
|---|---|
| 0 | done, nothing found |
| 1 | done, and it found something: a failed check, a wrong result, a missed target |
| 2 | the command line is wrong: an unknown option, no such file, no such kernel |
| 3 | the kernel doesn't compile as asked |
| 4 | this machine lacks what the command needs (a GPU, a package) |
| 70 | a bug of warploom |
"""

from __future__ import annotations

import argparse
import sys
import traceback
import warnings
from collections.abc import Sequence
from typing import Any

from warploom import errors
from warploom.cli import bench, cache, demo, doctor, inspect, run
from warploom.cli.console import EXIT, UsageError, remark


def parser() -> argparse.ArgumentParser:
    """All commands; each module adds its own."""
    top = argparse.ArgumentParser(
        prog="warploom",
        description="Tile kernels to warp-specialized GPU kernels: "
        "compiled, simulated, checked and explained.",
        epilog="exit codes: 0 done, 1 something was found wrong, 2 usage, 3 the kernel does not "
        "compile, 4 this machine lacks something, 70 a bug of warploom",
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for module in (demo, inspect, run, bench, cache, doctor):
        module.add_commands(commands)
    return top


def main(argv: Sequence[str] | None = None, commands: argparse.ArgumentParser | None = None) -> int:
    """Runs one command and returns its exit code.  `argv`: without the program's name.  commands: a parser
    whose results have `run`; default: that of `warploom`."""
    try:
        args = (commands or parser()).parse_args(argv)
    except SystemExit as stop:  # argparse has printed what is wrong
        return stop.code if isinstance(stop.code, int) else EXIT.usage
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", errors.WarploomWarning)
            warnings.showwarning = _show_warning
            code: int = args.run(args)
        return code
    except BrokenPipeError:  # the reader of our output went away: head, less
        sys.stderr.close()
        return EXIT.ok
    except KeyboardInterrupt:
        return 130  # 128 + SIGINT, as shells have it
    except Exception as error:
        for kind, code, style, before in _ERRORS:
            if isinstance(error, kind):
                remark(f"{before}{error}", style)
                return code
        traceback.print_exc()  # not foreseen, so ours: the traceback is what we need to know
        return EXIT.bug


_ERRORS = (  # the first row that fits says what becomes of an error: exit code, style, words before it
    (UsageError, EXIT.usage, "red", "warploom: "),
    (errors.CompileError, EXIT.compile, None, ""),
    (errors.LaunchError, EXIT.lacking, None, ""),
    (errors.InternalError, EXIT.bug, "red", "warploom: internal error: "),
    (errors.WarploomError, EXIT.found, None, ""),
    (OSError, EXIT.usage, "red", "warploom: "),  # a file or folder that can't be read or written
)


def _show_warning(message: Warning | str, *where: Any, **further: Any) -> None:
    """A warning as the command line tells it: the line of our code that raised it says nothing.  Our own
    warnings say by themselves what they are."""
    text = str(message) if isinstance(message, errors.WarploomWarning) else f"warning: {message}"
    remark(text, "yellow")
