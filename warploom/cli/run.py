"""`warploom run`: a Python program with `import triton` and `import tilus` served from here."""

from __future__ import annotations

import argparse
import os
import runpy
import sys
import traceback
from pathlib import Path
from typing import Any

from warploom.cli.console import EXIT, UsageError, remark

HERE = str(Path(__file__).parent)


def add_commands(commands: Any) -> None:
    run = commands.add_parser(
        "run",
        help="run a script or module with `import triton` and `import tilus` served from here",
        description="Runs a Python program, in which `import triton` and `import tilus` give warploom's, in "
        "the libraries that it imports too.  Processes that it starts are served likewise "
        "(WARPLOOM_AS_TRITON=1).",
    )
    run.add_argument("-m", dest="module", action="store_true", help="SCRIPT is a module's name")
    run.add_argument(
        "--report", action="store_true", help="at the end: the kernels met, and what became of each"
    )
    run.add_argument(
        "--fallback",
        action="store_true",
        help="kernels that are refused run by the Triton that is installed",
    )
    run.add_argument("script", metavar="SCRIPT")
    run.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARGUMENTS")
    run.set_defaults(run=run_program)


def run_program(args: argparse.Namespace) -> int:
    """The program's exit code; 1 where it raised something, whose traceback is printed."""
    if not args.module and not Path(args.script).exists():
        raise UsageError(f"there is no file {args.script}")
    from warploom.runtime.serve import serve
    from warploom.triton.report import Report

    os.environ["WARPLOOM_AS_TRITON"] = "1"
    serve()
    _lead_children()
    fallback = _fallback() if args.fallback else None
    report = Report(fallback.refused if fallback else None) if args.report else None
    for follower in (fallback, report):
        if follower is not None:
            follower.start()
    saved = sys.argv
    sys.argv = [args.script, *args.arguments]
    try:
        return _run(args.script, args.module)
    finally:
        sys.argv = saved
        sys.stdout.flush()
        if report is not None:
            report.stop()
            for line in report.lines():
                remark(line)
        if fallback is not None:
            fallback.stop()


def _lead_children() -> None:
    """Has processes that the program starts served, too, where warploom is a checkout (a wheel has a hook of
    its own): by PYTHONPATH, and by sys.path, of which PyTorch makes that of Inductor's workers."""
    hook, root = Path(HERE) / "startup", Path(HERE).parents[1]
    if not hook.exists():
        return
    given = os.environ.get("PYTHONPATH")
    paths = given.split(os.pathsep) if given else []
    for entries in paths, sys.path:
        entries[:0] = [str(hook)]
        entries += [str(root)] * (str(root) not in entries)
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)


def _fallback() -> Any:
    from warploom.triton.fallback import Fallback

    try:
        return Fallback()
    except ModuleNotFoundError as error:
        raise UsageError(f"--fallback needs the real Triton: {error}") from None


def _run(script: str, is_module: bool) -> int:
    try:
        if is_module:
            sys.path.insert(0, str(Path.cwd()))
            runpy.run_module(script, run_name="__main__", alter_sys=True)
        else:
            sys.path.insert(0, str(Path(script).resolve().parent))
            runpy.run_path(script, run_name="__main__")
    except SystemExit as stop:
        if isinstance(stop.code, str):
            print(stop.code, file=sys.stderr)
            return 1
        return stop.code or 0
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        own = sum(f.filename.startswith((HERE, "<frozen runpy>")) for f in frames)
        trace = error.__traceback__
        for _ in range(own):
            trace = trace.tb_next if trace is not None else None
        traceback.print_exception(type(error), error, trace)
        return 1
    finally:
        sys.path.pop(0)
    return EXIT.ok
