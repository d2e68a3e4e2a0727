"""Other NVRTCs than the installed one, each in a process of its own.

    python -m tests.compilers install 13.0.88 13.2.86 13.5.37   wheels into .carry/nvrtc/VERSION
    python -m tests.compilers build                             cubins of SOURCES into .carry/cubins/VERSION

Tests that need one skip where it isn't there.  Those with a GPU load the cubins: they need no NVRTC.
"""

from __future__ import annotations

import ctypes
import functools
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
CARRIED = ROOT / ".carry"
WHEELS, CUBINS = CARRIED / "nvrtc", CARRIED / "cubins"
WITNESS = Path(__file__).with_name("witness.cu")
WITNESS_THREADS = 128
FIXED = (13, 3)  # the first ptxas that keeps the witness's operands


@dataclass(frozen=True)
class Source:
    """CUDA text and its kernel.  plan, meta: how to launch it."""

    cuda: str
    name: str
    plan: str = ""
    meta: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Compiled:
    """What a compiler made of a source."""

    cubin: bytes
    registers: int
    problems: tuple[str, ...]  # spills and advisories


def versions(folder: Path = WHEELS) -> list[str]:
    found = (p.name for p in folder.iterdir() if p.is_dir()) if folder.is_dir() else ()
    return sorted(found, key=number)


def number(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def compile_with(version: str, sources: Mapping[str, Source]) -> dict[str, Compiled]:
    """The sources through the NVRTC of .carry/nvrtc/VERSION, by a process that has no other."""
    with tempfile.TemporaryDirectory() as folder:
        given = {k: [s.cuda, s.name] for k, s in sources.items()}
        (Path(folder) / "given.json").write_text(json.dumps(given))
        command = [sys.executable, "-m", "tests.compilers", "worker", str(WHEELS / version), folder]
        subprocess.run(command, check=True, cwd=ROOT)
        return loaded(Path(folder))


def loaded(folder: Path) -> dict[str, Compiled]:
    made = json.loads((folder / "made.json").read_text())
    return {
        k: Compiled((folder / f"{k}.cubin").read_bytes(), m["registers"], tuple(m["problems"]))
        for k, m in made.items()
    }


def worker(wheel: Path, folder: Path) -> None:
    """In a fresh process: loads the wheel's libraries before the bindings look for others."""
    (libraries,) = wheel.glob("nvidia/*/lib")
    (builtins,) = libraries.glob("libnvrtc-builtins.so.*")
    ctypes.CDLL(str(builtins), mode=ctypes.RTLD_GLOBAL)
    ctypes.CDLL(str(libraries / "libnvrtc.so.13"), mode=ctypes.RTLD_GLOBAL)
    from warploom.runtime.nvrtc import compile_cuda, compiler_version
    from warploom.target import SM_90A

    assert compiler_version() == "NVRTC " + ".".join(wheel.name.split(".")[:2])
    made = {}
    for key, (cuda, name) in json.loads((folder / "given.json").read_text()).items():
        built = compile_cuda(cuda, name=name, target=SM_90A)
        (folder / f"{key}.cubin").write_bytes(built.cubin)
        made[key] = {"registers": built.registers, "problems": built.problems()}
    (folder / "made.json").write_text(json.dumps(made))


# ---- what is compiled


def witness() -> Source:
    return Source(WITNESS.read_text(), "witness")


SIGNATURE = ["*bf16:16"] * 4 + ["*fp32:16", "*i32:16", "i32", "i32", "i32", "fp32"]
BY_HAND = ["*bf16:16"] * 4 + ["*fp32:16", "*i32:16", "i32", "i32", "fp32"]
PARTS = "*fp32:16"


@functools.cache
def attention_sources(most: int | None = None) -> dict[str, Source]:
    """The library's attention: both doors, every configuration, or so many at most of each shape."""
    from tests.conftest import no_nvrtc
    from warploom.kernels.attention import ATTENTION_CONFIGS, attention_forward
    from warploom.kernels.explicit.attention import Attention, configs
    from warploom.runtime import build

    real, out = build.compile_text, {}
    build.compile_text = no_nvrtc
    try:
        for (d, causal), options in ATTENTION_CONFIGS.items():
            for i, c in enumerate(options[:most]):
                meta = {**c.all_kwargs, "D": d, "CAUSAL": causal}
                of_kernel = {k: meta.pop(k) for k in list(meta) if k.isupper()}
                more = [PARTS] if of_kernel["SPLIT_KV_TAIL"] else []
                found = attention_forward.compile(SIGNATURE + more, of_kernel, **meta)
                out[f"auto-{d}-{causal}-{i}"] = source_of(found, of_kernel)
            for i, o in enumerate(configs(d, causal, 4096)[:most]):
                found = Attention(d=d, causal=causal, **o).compile(BY_HAND)
                out[f"hand-{d}-{causal}-{i}"] = source_of(found, {"D": d, "CAUSAL": causal, **o})
    finally:
        build.compile_text = real
    return out


def source_of(kernel: Any, meta: dict[str, Any]) -> Source:
    plan = kernel.plan
    return Source(kernel.cuda, plan.name, plan.to_json(), meta)


def build() -> None:
    """Cubins, and how to launch them, for tests/gpu/test_compilers.py."""
    from tests.register_operands import operands_overwritten

    sources = {"witness": witness(), **attention_sources()}
    for version in versions():
        folder, rows = CUBINS / version, []
        folder.mkdir(parents=True, exist_ok=True)
        for key, m in compile_with(version, sources).items():
            (folder / f"{key}.cubin").write_bytes(m.cubin)
            kept = not operands_overwritten(m.cubin)
            rows.append(
                {"key": key, "plan": sources[key].plan, "meta": sources[key].meta, "kept": kept}
            )
        (folder / "made.json").write_text(json.dumps(rows))
        print(f"{version}: {len(rows)} cubins in {folder}")


def main(command: str, *arguments: str) -> None:
    if command == "worker":
        worker(Path(arguments[0]), Path(arguments[1]))
    elif command == "install":
        for version in arguments:
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target"]
            wheel = f"nvidia-cuda-nvrtc=={version}"
            subprocess.run([*pip, str(WHEELS / version), wheel], check=True)
    elif command == "build":
        build()
    else:
        raise SystemExit(__doc__)


if __name__ == "__main__":
    main(*(sys.argv[1:] or ["help"]))
