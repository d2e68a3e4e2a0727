"""`doctor`: what was found on this machine, what is missing, and what that means."""

from __future__ import annotations

import argparse
import importlib.metadata
import platform
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warploom.cli.console import EXIT, say, working

if TYPE_CHECKING:
    from warploom.target import MatrixUnit, Target

# The kernel module's own account (Linux).
MODULE = Path("/proc/driver/nvidia/version")
LOADED_DRIVER = re.compile(r"NVRM version:.*?\b(\d{3,}\.\d+(?:\.\d+)?)\b")

REQUIRED = ("numpy", "ml_dtypes", "cuda-bindings", "cuda-core", "nvidia-cuda-nvrtc", "rich")
OPTIONAL = {
    "matplotlib": "timelines as pictures",
    "torch": "launches on its tensors; the benchmarks",
    "triton": "the benchmarks",
    "cupy": "launches on its arrays",
    "jax": "launches on its arrays",
}


@dataclass(frozen=True)
class Finding:
    """One line of the report.  `missing` says what does not work without it; `needed`: nothing does.
    target: what kernels for a GPU are compiled for."""

    subject: str
    found: str
    missing: str = ""
    needed: bool = False
    target: Target | None = None


def add_commands(commands: Any) -> None:
    doctor = commands.add_parser("doctor", help="what this machine has, and what is missing")
    doctor.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    with working("looking around"):
        devices = gpus()
        targets = list(dict.fromkeys(f.target for f in devices if f.target))
        findings = [*packages(), *nvrtc(targets), *devices]
    for f in findings:
        mark, style = ("ok", "green") if not f.missing else ("--", "red" if f.needed else "yellow")
        say(mark, style, end="  ")
        without = f"  (without it: {f.missing})" if f.missing else ""
        say(f"{f.subject:18} {f.found}{without}")
    lacking = [f.subject for f in findings if f.missing and f.needed]
    if lacking:
        say(f"warploom cannot work here: {', '.join(lacking)}", "red")
        return EXIT.lacking
    if any(f.subject == "GPU" and f.missing for f in findings):
        say("No GPU: kernels compile, and run in the simulator.")
    return EXIT.ok


def packages() -> list[Finding]:
    """Python, warploom, and the packages it needs or can use."""

    def version(name: str) -> str:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            return ""

    own = version("warploom") or "not installed (run from its folder)"
    found = [Finding("Python", platform.python_version()), Finding("warploom", own)]
    for name in REQUIRED:
        found.append(Finding(name, version(name), "" if version(name) else "everything", True))
    for name, purpose in OPTIONAL.items():
        found.append(Finding(name, version(name), "" if version(name) else purpose))
    return found


def nvrtc(targets: Sequence[Target] = ()) -> list[Finding]:
    """The compiler, tried on an empty kernel for each of these targets (the default where there are none):
    where it is from, and what is known to go wrong with it."""
    from warploom.errors import WarploomError
    from warploom.runtime.nvrtc import (
        compile_cuda,
        compiler_version,
        known_faults,
        library_path,
    )
    from warploom.target import DEFAULT

    source = 'extern "C" __global__ void nothing() {}'
    tried = []
    try:
        for target in targets or (DEFAULT,):
            build = compile_cuda(source, name="nothing", target=target)
            tried.append(f"compiles for {target.name} in {build.seconds:.2f} s")
        says = f"{compiler_version()}, {', '.join(tried)}; {library_path()}"
    except (WarploomError, ImportError, RuntimeError, OSError) as error:
        return [Finding("NVRTC", f"does not work: {error}", "no kernel compiles", True)]
    return [Finding("NVRTC", says), *(Finding("known of it", fault) for fault in known_faults())]


def of_driver(version: int) -> Finding:
    """version: what cuDriverGetVersion says."""
    from warploom.runtime.launch import DRIVER_CUDA

    says = f"for CUDA {version // 1000}.{version % 1000 // 10}"
    if loaded := LOADED_DRIVER.search(MODULE.read_text() if MODULE.exists() else ""):
        says = f"{loaded[1]}, {says}"
    if version < DRIVER_CUDA:
        return Finding("NVIDIA driver", f"{says}: too old", "launches; CUDA 13 needs 580 or newer")
    return Finding("NVIDIA driver", says)


def gpus() -> list[Finding]:
    """The driver and each GPU, by the driver's own account."""
    from warploom.target import for_device, supported

    without = "kernels run in the simulator alone"
    try:
        from cuda.bindings import driver
    except ImportError as error:
        return [Finding("GPU", f"cuda-bindings does not import: {error}", without)]

    def ask(function: Any, *args: Any) -> Any:
        status, *values = function(*args)
        if status != driver.CUresult.CUDA_SUCCESS:
            raise RuntimeError(f"{function.__name__}: {status.name}")
        return values[0] if values else None

    try:
        ask(driver.cuInit, 0)
        version = ask(driver.cuDriverGetVersion)
        found = [of_driver(version)]
        attribute = driver.CUdevice_attribute
        for ordinal in range(ask(driver.cuDeviceGetCount)):
            device = ask(driver.cuDeviceGet, ordinal)
            name = ask(driver.cuDeviceGetName, 128, device).split(b"\0")[0].decode()
            major, minor, sms = (
                ask(driver.cuDeviceGetAttribute, a, device)
                for a in (
                    attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                    attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
                    attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
                )
            )
            target = for_device((major, minor))
            missing = "" if target else f"{without} (warploom compiles for {supported()})"
            says = f"{name}, compute capability {major}.{minor}, {sms} SMs"
            found.append(Finding("GPU", says, missing, target=target))
            found += what_it_gets(target) if target else ()
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        return [Finding("GPU", f"no CUDA driver that answers: {reason}", without)]
    if len(found) == 1:
        found.append(Finding("GPU", "none", without))
    return found


def what_it_gets(target: Target) -> Iterator[Finding]:
    """By which instructions kernels for a target multiply and copy, and what is done without one."""
    yield Finding("  target", f"{target.name} ({', '.join(target.chips)})")
    units = (f"{u.instruction} of {', '.join(_operands(u))}" for u in target.matrix_units)
    yield Finding("  dots", "; ".join(units))
    yield Finding("  copies", ", ".join(e.instruction for e in target.copy_engines) or "by threads")
    boxes, pieces = target.copy_engine("boxes"), target.copy_engine("pieces")
    by = f"piece by piece, by {pieces.instruction}" if pieces else "piece by piece"
    yield Finding(
        "  descriptors", f"by {boxes.instruction}" if boxes else f"{by} or through registers"
    )
    if without := ", ".join(_emulated(target)):
        yield Finding("  in software", without)


def _operands(unit: MatrixUnit) -> dict[str, None]:
    """The dtypes that a unit multiplies, as messages call them."""
    found = {
        "tf32" if x == "f32" and not p.ieee else x: None
        for p in unit.products
        if not p.scale
        for x in (p.a, p.b)
    }
    return found | ({"block-scaled f8 and f4": None} if any(p.scale for p in unit.products) else {})


def _emulated(target: Target) -> Iterator[str]:
    """What a target does by several instructions, or none of its own."""
    from warploom.ir.types import DTYPES

    for u in target.matrix_units:
        through = {p.a: p.arithmetic.through for p in u.products if p.arithmetic}
        if found := [f"{a} (as {by})" for a, by in through.items() if by]:
            yield f"products of {' and '.join(found)} by {u.instruction}"
    slow = [n for n, t in DTYPES.items() if t.is_8bit_float and n not in target.converts]
    if slow:
        yield f"conversions of {' and '.join(slow)}"
    if not any(p.scale for u in target.matrix_units for p in u.products):
        yield "tl.dot_scaled (decoded to 16 bits)"
