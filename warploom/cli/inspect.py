"""`explain`, `check`, `compile` and `eject`: one kernel, looked at."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from warploom.cli import kernel
from warploom.cli.console import EXIT, UsageError, remark, say, working


def add_commands(commands: Any) -> None:
    explain = commands.add_parser(
        "explain", help="the source line by line: tasks, boxes, buffers, barriers, registers"
    )
    kernel.add_arguments(explain)
    explain.set_defaults(run=run_explain)

    check = commands.add_parser("check", help="look for deadlocks and races; say what was proved")
    kernel.add_arguments(check, is_optional=True)
    check.add_argument(
        "--save", type=Path, metavar="FILE", help="where to keep the first interleaving that fails"
    )
    check.add_argument(
        "--replay", type=Path, metavar="FILE", help="run a kept interleaving again, not a kernel"
    )
    check.set_defaults(run=run_check)

    compile_ = commands.add_parser("compile", help="write one of the forms of a kernel")
    kernel.add_arguments(compile_, archs="; of several each is written to a file of its own")
    compile_.add_argument("--emit", choices=("ir", "cuda", "ptx", "cubin"), default="cuda")
    compile_.add_argument(
        "--level",
        help="with --emit ir: TILE, TASK, CHANNEL, WARP or PLACED (default: all)",
    )
    compile_.add_argument(
        "-o",
        "--out",
        type=Path,
        help="a file (default: standard output); of several targets k.cubin becomes k.sm_80.cubin, …",
    )
    compile_.set_defaults(run=run_compile)

    eject = commands.add_parser("eject", help="the kernel as an explicit script, to own and edit")
    kernel.add_arguments(eject)
    eject.add_argument("-o", "--out", type=Path, help="a file (default: standard output)")
    eject.set_defaults(run=run_eject)


def run_explain(args: argparse.Namespace) -> int:
    with working("compiling"):
        text = kernel.compiled(args).explain()
    say(text)
    return EXIT.ok


def run_check(args: argparse.Namespace) -> int:
    if args.replay is not None:
        return _replay(args.replay)
    if args.kernel is None:
        raise UsageError("name a kernel (path.py:function), or a file with --replay")
    compiled = _compiled(args)
    with working("checking"):
        report = compiled.check(save=args.save)
    say(report)
    return EXIT.ok if report.ok else EXIT.found


def _replay(path: Path) -> int:
    from warploom.check.interleaving import load

    kept = load(path)
    found = kept.rerun()
    if found is None:
        text = f"{kept.func.name}: nothing fails in this order of events (it was {kept.error.code})"
    else:
        text = f"{found.error}\n{found}"
    say(text)
    return EXIT.found if found else EXIT.ok


def run_compile(args: argparse.Namespace) -> int:
    several, out = len(args.archs) > 1, args.out
    if several and out is None:
        raise UsageError("of several targets each gets a file: name it with --out")
    for arch in args.archs:
        compiled = _compiled(args, arch)
        at = out.with_suffix(f".{arch}{out.suffix}") if several else out
        if args.emit == "cubin":
            _write_bytes(compiled.cubin, at)
        else:
            _write_text(_text(compiled, args), at)
        if args.emit in ("ptx", "cubin"):
            remark(f"{arch}: " * several + str(compiled.resources))
    return EXIT.ok


def run_eject(args: argparse.Namespace) -> int:
    _write_text(_compiled(args).eject(), args.out)
    return EXIT.ok


def _compiled(args: argparse.Namespace, arch: str | None = None) -> Any:
    with working("compiling"):
        return kernel.compiled(args, arch)


def _text(compiled: Any, args: argparse.Namespace) -> str:
    if args.emit == "cuda":
        return str(compiled.cuda)
    if args.emit == "ptx":
        return str(compiled.ptx)
    levels: dict[str, str] = compiled.ir
    if args.level is None:
        return "\n".join(levels.values())
    if args.level.upper() not in levels:
        raise UsageError(f"no level {args.level}: this kernel has {', '.join(levels)}")
    return levels[args.level.upper()]


def _write_text(text: str, out: Path | None) -> None:
    if out is None:
        sys.stdout.write(text if text.endswith("\n") else text + "\n")
    else:
        out.write_text(text)


def _write_bytes(data: bytes, out: Path | None) -> None:
    if out is not None:
        out.write_bytes(data)
    elif sys.stdout.isatty():
        raise UsageError("a cubin is no text: name a file with --out")
    else:
        sys.stdout.buffer.write(data)
