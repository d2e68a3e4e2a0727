"""The command line: exit codes, what goes to which stream, kernels by name."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from warploom.cli import bench, doctor, kernel, main, parser
from warploom.cli.console import EXIT, UsageError
from warploom.cli.doctor import REQUIRED
from warploom.runtime import nvrtc


def test_no_command_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == EXIT.usage
    assert "COMMAND" in capsys.readouterr().err


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == EXIT.ok
    text = capsys.readouterr().out
    for command in ("demo", "explain", "check", "compile", "eject", "run", "bench", "doctor"):
        assert command in text


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["gemm"], "python -m benchmarks gemm"),
        (["kernels.py:number"], "is no function that launches"),
        (["kernels.py:launch", "--bursts", "0"], "at least one"),
    ],
)
def test_bench_says_what_it_can_not_time(
    given: list[str],
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "kernels.py").write_text("number = 3\ndef launch(): pass\n")
    monkeypatch.chdir(tmp_path)
    assert main(["bench", *given]) == EXIT.usage
    assert says in capsys.readouterr().err.replace("\n", " ")


def test_bench_times_functions_in_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "calls = []\ndef one(): calls.append(1)\ndef two(): calls.append(2)\n"
    (tmp_path / "kernels.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    names = ["kernels.py:one", "kernels.py:two"]
    assert main(["bench", *names]) == EXIT.lacking or bench._has_gpu()

    def timed(
        clock: object, runs: dict[str, Any], sets: int, bursts: int
    ) -> dict[str, list[float]]:
        for run in runs.values():
            run(0)
        return {name: [0.25, 0.5, 0.75][:bursts] for name in runs}

    monkeypatch.setattr(bench, "_has_gpu", lambda: True)
    monkeypatch.setattr(bench, "Clock", object)
    monkeypatch.setattr(bench, "in_turn", timed)
    capsys.readouterr()
    assert main(["bench", *names, "--bursts", "3"]) == EXIT.ok
    lines = capsys.readouterr().out.splitlines()
    assert lines == [f"0.5000 ms  0.2500..0.7500  {name}" for name in names]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("nowhere.py:f", "there is no file"),
        ("nocolon.py", "write path.py:function"),
        ("kernels.py:plain", "is not a kernel"),
        ("kernels.py:absent", "does not exist"),
    ],
)
def test_a_kernel_that_is_not_there_is_a_usage_error(
    name: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "kernels.py").write_text("def plain(): pass\n")
    assert main(["explain", str(tmp_path / name)]) == EXIT.usage
    captured = capsys.readouterr()
    assert says in captured.err.replace("\n", " ") and captured.out == ""


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("def f(:\n", "SyntaxError: invalid syntax"),
        ("x = 1\nimport no_such_module\n", "No module named 'no_such_module' (line 2)"),
        ("raise SystemExit(3)\n", "SystemExit: 3 (line 1)"),
    ],
)
def test_a_file_that_does_not_load_is_a_usage_error(
    text: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broken.py").write_text(text)
    assert main(["explain", f"{tmp_path / 'broken.py'}:f"]) == EXIT.usage
    error = capsys.readouterr().err
    assert "broken.py does not load" in error and says in error and "Traceback" not in error


def test_a_folder_that_cannot_be_made_is_a_usage_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert main(["demo", "--out", str(tmp_path / "file" / "out")]) == EXIT.usage
    assert "Not a directory" in capsys.readouterr().err


def test_what_is_not_foreseen_is_a_bug_of_ours(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken() -> None:
        raise RuntimeError("never thought of")

    monkeypatch.setattr("warploom.cli.doctor.packages", broken)
    assert main(["doctor"]) == EXIT.bug
    assert "never thought of" in capsys.readouterr().err


def test_a_kernel_file_may_be_called_as_a_package_is(tmp_path: Path) -> None:
    (tmp_path / "numpy.py").write_text("x = 1\n")
    with pytest.raises(UsageError, match="it has no kernel"):
        kernel.load(f"{tmp_path / 'numpy.py'}:x")
    import numpy

    assert numpy.zeros(1)[0] == 0


def test_signature_and_constexprs_are_read() -> None:
    assert kernel.signature("*bf16:16, i32:16 i32=1") == ("*bf16:16", "i32:16", "i32=1")
    assert kernel.constexprs(["BLOCK_M=128", "SCALE=0.5", "MODE=fast", "ON=True"]) == {
        "BLOCK_M": 128,
        "SCALE": 0.5,
        "MODE": "fast",
        "ON": True,
    }
    with pytest.raises(UsageError, match="NAME=VALUE"):
        kernel.constexprs(["BLOCK_M"])
    with pytest.raises(UsageError, match="B is given twice"):
        kernel.constexprs(["B=64", "B=32"])


SCRIPTS = """
import warploom as wl
from warploom.language import int32
class Plain(wl.Script):
    def __call__(self, n: int32):
        self.attrs.blocks = 1
        self.attrs.warps = 1
class Made(Plain):
    def __init__(self, block):
        super().__init__()
class Unknown(wl.Script):
    def __call__(self, n: "float99"):
        self.attrs.blocks = 1
"""


@pytest.mark.parametrize(
    ("name", "more", "status", "says"),
    [
        ("Plain", (), EXIT.ok, "Plain"),
        ("Made", (), EXIT.usage, "is made with arguments"),
        ("Plain", ("--num-warps", "8"), EXIT.usage, "is a script, which says itself"),
        ("Unknown", (), EXIT.compile, "the annotation of n, 'float99', has no value"),
    ],
)
def test_scripts_on_the_command_line(
    name: str, more: Sequence[str], status: int, says: str, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    (tmp_path / "scripts.py").write_text(SCRIPTS)
    file = f"{tmp_path / 'scripts.py'}:{name}"
    assert main(["check", file, "--signature", "i32", *more]) == status
    captured = capsys.readouterr()
    assert says in (captured.out + captured.err).replace("\n", " ")


def test_every_knob_is_an_option_and_only_given_ones_count() -> None:
    args = parser().parse_args(
        ["explain", "k.py:f", "--num-consumer-groups", "0", "--strict", "--num-warps", "8"]
    )
    assert kernel.knobs(args) == {"num_consumer_groups": 0, "strict": True, "num_warps": 8}


@pytest.mark.parametrize(("text", "value"), [("false", False), ("true", True), ("tiles", "tiles")])
def test_a_knob_may_be_a_word(text: str, value: object) -> None:
    given = kernel.knobs(parser().parse_args(["explain", "k.py:f", "--ping-pong", text]))
    assert given == {"ping_pong": value} and type(given["ping_pong"]) is type(value)


def test_doctor_finds_what_is_needed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == EXIT.ok
    text = capsys.readouterr().out
    for package in REQUIRED:
        assert package in text
    assert "compiles for sm_90a" in text


def test_doctor_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("warploom.cli.doctor.REQUIRED", (*REQUIRED, "no-such-package"))
    assert main(["doctor"]) == EXIT.lacking
    assert "cannot work here: no-such-package" in capsys.readouterr().out


def test_doctor_names_the_compiler_and_what_is_known_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    first, *faults = doctor.nvrtc()
    assert re.search(r"NVRTC 13\.\d+, compiles .*nvrtc", first.found)
    assert len(faults) == len(nvrtc.known_faults())
    versions = {(13, 0): 2, (13, 2): 1, (13, 3): 0, (13, 5): 0}
    for version, n in versions.items():
        fake = SimpleNamespace(nvrtcVersion=lambda version=version: (0, *version))
        monkeypatch.setattr(nvrtc, "_nvrtc", lambda fake=fake: fake)
        assert len(nvrtc.known_faults()) == n


def test_doctor_names_the_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = tmp_path / "version"
    module.write_text(
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.10  Fri Jan 24\nGCC version: 12\n"
    )
    monkeypatch.setattr(doctor, "MODULE", module)
    old, new = doctor.of_driver(12080), doctor.of_driver(13020)
    assert old.found == "570.86.10, for CUDA 12.8: too old" and "580" in old.missing
    assert new.found == "570.86.10, for CUDA 13.2" and not new.missing


class Chip:
    """cuda.bindings.driver, as a machine with one GPU has it."""

    CUresult = SimpleNamespace(CUDA_SUCCESS=SimpleNamespace(name="CUDA_SUCCESS"))
    CUdevice_attribute = SimpleNamespace(
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR=0,
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR=1,
        CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT=2,
    )

    def __init__(self, name: str, *attributes: int) -> None:
        answers = {
            "cuInit": lambda flags: (),
            "cuDriverGetVersion": lambda: (13000,),
            "cuDeviceGetCount": lambda: (1,),
            "cuDeviceGet": lambda ordinal: (ordinal,),
            "cuDeviceGetName": lambda n, device: (name.encode().ljust(n, b"\0"),),
            "cuDeviceGetAttribute": lambda which, device: (attributes[which],),
        }
        for function, answer in answers.items():
            setattr(
                self, function, lambda *x, answer=answer: (self.CUresult.CUDA_SUCCESS, *answer(*x))
            )


def told_of(
    chip: Chip, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> dict[str, str]:
    """What doctor says where this is the GPU."""
    import cuda.bindings

    monkeypatch.setattr(cuda.bindings, "driver", chip, raising=False)
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", chip)
    assert main(["doctor"]) == EXIT.ok
    lines = capsys.readouterr().out.splitlines()
    return {line[4:22].strip(): line[22:].strip() for line in lines}


def test_doctor_says_what_an_a10_gets(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told = told_of(Chip("NVIDIA A10", 8, 6, 72), monkeypatch, capsys)
    assert told["GPU"] == "NVIDIA A10, compute capability 8.6, 72 SMs"
    assert told["target"] == "sm_86 (A10, A40, RTX A6000, RTX 30)"
    assert told["dots"] == "mma.sync of f16, bf16, tf32, i8, u8, f64; fma of f32"
    assert told["copies"] == "cp.async"
    assert told["descriptors"] == "piece by piece, by cp.async or through registers"
    assert "conversions of f8e4m3 and f8e5m2" in told["in software"]
    assert "compiles for sm_86 in" in told["NVRTC"] and "sm_90a" not in told["NVRTC"]


def test_doctor_says_what_other_chips_get(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told = told_of(Chip("NVIDIA H200", 9, 0, 132), monkeypatch, capsys)
    assert told["descriptors"].startswith("by ") and told["dots"].startswith("wgmma of f16")
    assert "products of f8e4m3 (as f16)" in told["in software"]
    assert "conversions" not in told["in software"]
    told = told_of(Chip("NVIDIA GeForce RTX 5090", 12, 0, 170), monkeypatch, capsys)
    assert "block-scaled f8 and f4" in told["dots"] and "in software" not in told
    old = told_of(Chip("Tesla T4", 7, 5, 40), monkeypatch, capsys)
    assert "warploom compiles for sm_80" in old["GPU"] and "target" not in old


def test_no_colours_in_a_pipe() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "warploom", "doctor"], capture_output=True, text=True, check=True
    )
    assert "\x1b" not in done.stdout and "NVRTC" in done.stdout


SCALE = """import warploom as wl, warploom.language as tl
@wl.jit
def scale(x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)
"""


def test_compile_writes_a_file_for_each_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "kernels.py").write_text(SCALE)
    monkeypatch.chdir(tmp_path)
    asked = ["kernels.py:scale", "--signature", "*fp32:16 i32", "--constexpr", "BLOCK=128"]
    several = ["compile", *asked, "--arch", "sm_80,sm_90a", "--emit", "cubin"]
    assert main([*several, "--out", "scale.cubin"]) == EXIT.ok
    found = {p.name: p.read_bytes() for p in tmp_path.glob("*.cubin")}
    assert set(found) == {"scale.sm_80.cubin", "scale.sm_90a.cubin"}
    assert len(set(found.values())) == 2 and all(b.startswith(b"\x7fELF") for b in found.values())
    assert main(several) == EXIT.usage
    assert "--out" in capsys.readouterr().err
    for wrong in (
        ["compile", *asked, "--arch", "sm_1"],
        ["check", *asked, "--arch", "sm_80,sm_86"],
    ):
        assert main(wrong) == EXIT.usage
        assert "target" in capsys.readouterr().err
