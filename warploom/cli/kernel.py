"""Kernels named on the command line: `path.py:function` with its signature, constants and knobs."""

from __future__ import annotations

import argparse
import ast
import dataclasses
import importlib.util
import sys
import traceback
from pathlib import Path
from typing import Any

from warploom.cli.console import UsageError
from warploom.explicit.script import ScriptBase
from warploom.schedule.model import Knobs
from warploom.target import DEFAULT, TARGETS


def add_arguments(
    parser: argparse.ArgumentParser, is_optional: bool = False, archs: str = ""
) -> None:
    """The arguments that say which kernel, for which types, with which constants and knobs.

    archs: what several targets are for, where the command takes them."""
    parser.add_argument(
        "kernel",
        metavar="PATH.py:FUNCTION",
        nargs="?" if is_optional else None,
        help="a function under @wl.jit",
    )
    parser.add_argument(
        "--signature",
        metavar="TYPES",
        default="",
        help="types of the arguments that are no constexprs, in order, by blanks or commas: "
        "'*bf16:16' (pointer, aligned to 16 bytes), 'i32:16' (divisible by 16), 'i32=1'",
    )
    parser.add_argument(
        "--constexpr",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="a constexpr argument; may be given several times",
    )
    parser.add_argument(
        "--arch",
        "--target",
        dest="archs",
        type=_archs if archs else _arch,
        metavar="ARCH" + ",…" * bool(archs),
        default=[DEFAULT.name],
        help=f"of {', '.join(TARGETS)}{archs} (default: {DEFAULT.name})",
    )
    knobs = parser.add_argument_group("knobs", "None: the compiler chooses")
    for knob in dataclasses.fields(Knobs):
        flag, means = "--" + knob.name.replace("_", "-"), knob.metadata["means"]
        text = f"{means} (default: {knob.default})"
        if knob.type == "bool":
            switch = argparse.BooleanOptionalAction
            knobs.add_argument(flag, action=switch, default=None, help=text)
        else:
            is_number = "int" in str(knob.type)
            what = "N" if is_number else "VALUE"
            knobs.add_argument(flag, type=_value, metavar=what, help=text)


def _archs(text: str) -> list[str]:
    """Targets by comma, each once."""
    found = list(dict.fromkeys(text.replace(",", " ").split()))
    if not found or set(found) - set(TARGETS):
        raise argparse.ArgumentTypeError(f"{text!r}: targets are {', '.join(TARGETS)}")
    return found


def _arch(text: str) -> list[str]:
    found = _archs(text)
    if len(found) > 1:
        raise argparse.ArgumentTypeError(f"{text!r}: one target here")
    return found


def _value(text: str) -> int | bool | str:
    """A knob's value: a number, true or false, or a word."""
    return (
        int(text) if text.lstrip("-").isdigit() else {"true": True, "false": False}.get(text, text)
    )


def module_of(name: str) -> tuple[Any, Path, str]:
    """(the module, its file, the function's name) of `path.py:function`.  Raises UsageError where the file is
    not there, or does not load."""
    path_text, colon, attribute = name.rpartition(":")
    path = Path(path_text)
    if not colon or not attribute:
        raise UsageError(f"'{name}' names no kernel: write path.py:function")
    if not path.is_file():
        raise UsageError(f"there is no file {path}")
    module_name = f"_kernels_of_{path.stem}"  # not the bare stem: the file may be called numpy.py
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    sys.path.insert(0, str(path.parent.resolve()))  # as `python path.py` would have it
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise UsageError(f"{path} does not load: {_in_file(error, path)}") from error
    finally:
        sys.path.pop(0)
    return module, path, attribute


def load(name: str) -> Any:
    """The kernel `path.py:function`.  Raises UsageError where there is none."""
    module, path, attribute = module_of(name)
    kernel = getattr(module, attribute, None)
    if isinstance(kernel, type) and hasattr(kernel, "compile_for"):  # a script: its instance
        try:
            return kernel()
        except Exception as error:
            text = f"{attribute} in {path} is made with arguments ({error}); name an instance"
            raise UsageError(text) from error
    if hasattr(kernel, "compile_for"):
        return kernel
    kernels = [key for key, value in vars(module).items() if hasattr(value, "compile_for")]
    known = f"its kernels: {', '.join(kernels)}" if kernels else "it has no kernel"
    wrong = "is not a kernel (@wl.jit)" if kernel is not None else "does not exist"
    raise UsageError(f"{attribute} in {path} {wrong}; {known}")


def _in_file(error: BaseException, path: Path) -> str:
    """The error with the line of the file that it came from, where one did."""
    said = f"{type(error).__name__}: {error}"
    frames = traceback.extract_tb(error.__traceback__)
    lines = [f.lineno for f in frames if Path(f.filename) == path]
    return f"{said} (line {lines[-1]})" if lines else said


def signature(text: str) -> tuple[str, ...]:
    """'*bf16:16, i32' -> ('*bf16:16', 'i32')."""
    return tuple(text.replace(",", " ").split())


def constexprs(entries: list[str]) -> dict[str, Any]:
    """['BLOCK_M=128', 'MODE=fast'] -> {'BLOCK_M': 128, 'MODE': 'fast'}; values are Python literals."""
    result: dict[str, Any] = {}
    for entry in entries:
        name, equals, value = entry.partition("=")
        if not equals or not name.isidentifier():
            raise UsageError(f"--constexpr '{entry}': write NAME=VALUE")
        if name in result:
            raise UsageError(f"--constexpr {name} is given twice")
        try:
            result[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            result[name] = value  # a word stands for itself
    return result


def knobs(args: argparse.Namespace) -> dict[str, Any]:
    """The knobs that were given; the chooser decides on the others."""
    given = {knob.name: getattr(args, knob.name) for knob in dataclasses.fields(Knobs)}
    return {name: value for name, value in given.items() if value is not None}


def compiled(args: argparse.Namespace, arch: str | None = None) -> Any:
    """The kernel that the arguments name, compiled for this target, or the only one that they name."""
    kernel, given = load(args.kernel), knobs(args)
    if given and isinstance(kernel, ScriptBase):
        raise UsageError(
            f"{args.kernel} is a script, which says itself what {', '.join(given)} say"
        )
    return kernel.compile(
        signature=signature(args.signature),
        constexprs=constexprs(args.constexpr),
        target=arch or args.archs[0],
        **given,
    )
