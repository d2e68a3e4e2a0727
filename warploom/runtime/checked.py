"""What `check` says of launches: on demand, and before an explicit kernel's first on a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from warploom import options
from warploom.errors import CompileError, LaunchError, format_message
from warploom.ir.core import Func
from warploom.runtime.args import CPU, Field
from warploom.runtime.cache import default_cache, digest, own_sources
from warploom.runtime.introspection import Introspection
from warploom.runtime.kernel import Kernel
from warploom.runtime.launch import grid_sizes
from warploom.runtime.mistakes import warn
from warploom.runtime.plan import grid_of
from warploom.runtime.signature import workspaces_of
from warploom.runtime.workspace import asked_for, on_host, with_programs

if TYPE_CHECKING:
    from warploom.check import Case, Place


def launch_of(func: Func, fields: Sequence[Field], grid: Any = None) -> Case | None:
    """A launch as the checker takes it; None where it has no programs.  grid: of a kernel that does not say
    itself how many programs it has.  Arrays that are not on the host come without contents."""
    from warploom.check import Launch

    numbers = [0 if f.array is not None else f.value for f in fields]
    if func.attrs.get("grid") and not func.attrs.get("programs"):
        sizes = grid_of(func, numbers)
    elif grid is None:
        raise LaunchError(
            "grid",
            f"{func.name} is checked for a launch whose grid is not known",
            help="check(*args, grid=(programs,)); or check() for all launches",
        )
    else:
        sizes = grid_sizes(grid)
    given: Sequence[Field]
    given, sizes = with_programs(func, fields, sizes)
    if not func.attrs.get("programs"):
        given = (*fields, *on_host(asked_for(workspaces_of(func), numbers)))[: len(func.params)]
    values = (f.on_host if f.array is None or f.array.device == CPU else f.value for f in given)
    return Launch(tuple(values), sizes, places=_places(given)) if 0 not in sizes else None


def _places(fields: Sequence[Field]) -> tuple[Place | None, ...]:
    from warploom.check import Place

    arrays = (f.array for f in fields)
    return tuple(None if a is None else Place(a.pointer, *a.bytes_range()) for a in arrays)


def launch_of_values(kernel: Introspection, args: Sequence[Any], grid: Any) -> Case | None:
    """The launch of a compiled kernel with these run-time arguments.  Raises LaunchError."""
    return launch_of(kernel.placed, kernel.fields_of(args), grid)


def check_first_launch(kernel: Kernel, fields: Sequence[Field]) -> None:
    """Raises the first problem that `check` finds in a kernel, or in this launch of it; warns where it is not
    proved, which raises CompileError under WARPLOOM_CHECK=strict.  Verdicts are kept on disk, but of what is
    broken."""
    wanted = options.get().check
    if wanted is options.Check.OFF:
        return
    from warploom.check.aliases import shared_memory

    verdicts: dict[Any, str] = vars(kernel).setdefault("verdicts", {})
    numbers = tuple(f.value for f in fields if f.array is None)
    shared = tuple(tuple(g.items()) for g in shared_memory(_places(fields)))
    asked = (numbers, shared) if shared else numbers
    open_points = None if shared else verdicts.get("every launch")
    if open_points is None:
        open_points = verdicts.get(asked)
    if open_points is None:
        judged = _judged_with_shared_memory if shared else _judged
        open_points = judged(kernel, fields, asked, verdicts)
    if not open_points:
        return
    advice = "WARPLOOM_CHECK=strict refuses such kernels, WARPLOOM_CHECK=0 checks none"
    if wanted is options.Check.STRICT:
        raise CompileError("not-proved", open_points, kernel.placed.loc, help=advice)
    if "warned" not in verdicts:
        verdicts["warned"] = ""
        warn(format_message("warning", "not-proved", open_points, None, (), advice))


def _judged(kernel: Kernel, fields: Sequence[Field], numbers: Any, verdicts: dict[Any, str]) -> str:
    """What is open, "" where all is proved: for every launch, or for this one."""
    from warploom.check import check
    from warploom.check.launches import at_launch

    disk, name = default_cache(), digest("check", own_sources(), kernel.key)
    here = digest("check launch", own_sources(), kernel.key, numbers)
    kept, kept_here = disk.load("check", name), disk.load("check", here)
    launch = launch_of(kernel.placed, fields)
    if kept is None:
        report = check(kernel.placed, launch=launch)
        if report.diagnostics:
            raise report.diagnostics[0]
        by_launch = report.of_launch
        left = [u for u in report.unproved if u not in (by_launch or ())]
        is_open = bool(left) or not report.runs
        kept = {
            "not proved": str(report).encode() if is_open else b"",
            "by launch": b"" if by_launch is None else b"yes",
        }
        disk.store("check", name, kept)
        if by_launch is not None:
            kept_here = {"not proved": "\n".join(map(str, by_launch)).encode()}
            disk.store("check", here, kept_here)
    if kept["not proved"] or not kept["by launch"]:
        verdicts["every launch"] = kept["not proved"].decode()
        return verdicts["every launch"]
    if kept_here is None and launch is not None:
        found = at_launch(kernel.placed, launch)
        if found.broken:
            raise found.broken[0]
        kept_here = {"not proved": "\n".join(map(str, found.unproved)).encode()}
        disk.store("check", here, kept_here)
    verdicts[numbers] = "" if kept_here is None else kept_here["not proved"].decode()
    return verdicts[numbers]


def _judged_with_shared_memory(
    kernel: Kernel, fields: Sequence[Field], asked: Any, verdicts: dict[Any, str]
) -> str:
    """What is open where arrays share memory, which nothing that is known of other launches counts for."""
    from warploom.check import check

    disk, here = default_cache(), digest("check launch", own_sources(), kernel.key, asked)
    kept = disk.load("check", here)
    if kept is None:
        report = check(kernel.placed, launch=launch_of(kernel.placed, fields))
        if report.diagnostics:
            raise report.diagnostics[0]
        kept = {"not proved": b"" if report.ok else str(report).encode()}
        disk.store("check", here, kept)
    verdicts[asked] = kept["not proved"].decode()
    return verdicts[asked]
