"""NVRTC without a GPU: resources, advisories and refusals of small sources."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.sass import disassembled, disassembler
from warploom.codegen.prelude import prelude
from warploom.errors import CompileError, InternalError
from warploom.runtime import nvrtc, nvrtc_process
from warploom.runtime.nvrtc import compile_cuda, compiler_version, library_path, statements
from warploom.runtime.nvrtc_process import Answer, StoppedError, ask, run
from warploom.target import SM_80, SM_90A

COPY = r"""
extern "C" __global__ void __launch_bounds__(128) copy(float* p, int n) {
  __shared__ float s[128];
  s[threadIdx.x] = p[threadIdx.x];
  __syncthreads();
  p[threadIdx.x] = s[(threadIdx.x + n) & 127];
}
extern "C" __global__ void __launch_bounds__(128) indexed(float* p, int n) {
  float a[100];
  for (int i = 0; i < n; i++) a[(i * 7) % 100] = p[i];
  p[0] = a[n];
}
"""

WGMMA = r"""
extern "C" __global__ void k(float* p, unsigned long long a, unsigned long long b) {
  float d0 = 0, d1 = 0, d2 = 0, d3 = 0;
  asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 "
               "{%0,%1,%2,%3}, %4, %5, 1, 1, 1, 0, 0;"
               : "+f"(d0), "+f"(d1), "+f"(d2), "+f"(d3) : "l"(a), "l"(b));
  d0 += 1.0f;
  asm volatile("wgmma.commit_group.sync.aligned;");
  asm volatile("wgmma.wait_group.sync.aligned 0;");
  p[threadIdx.x] = d0 + d1 + d2 + d3;
}
"""


def test_resources_are_those_of_the_named_kernel() -> None:
    copy = compile_cuda(COPY, name="copy", target=SM_90A)
    indexed = compile_cuda(COPY, name="indexed", target=SM_90A)
    assert copy.cubin[:4] == b"\x7fELF" and copy.ptx == ""
    assert (copy.static_shared, copy.stack_bytes, copy.barriers) == (512, 0, 1)
    assert (indexed.static_shared, indexed.stack_bytes, indexed.barriers) == (0, 400, 0)
    assert 0 < copy.registers < 64 and copy.spill_bytes == 0
    assert copy.problems() == () and copy.seconds > 0
    assert copy.compiler == compiler_version()


def test_ptx_on_demand() -> None:
    assert ".entry copy(" in compile_cuda(COPY, name="copy", target=SM_90A, want_ptx=True).ptx


def test_spills_are_counted() -> None:
    body = "\n".join(f"float v{i} = p[{i}];" for i in range(64))
    tail = "\n".join(f"p[{i}] = v{63 - i} * v{i};" for i in range(64))
    source = f'extern "C" __global__ void k(volatile float* p) {{ {body}\n{tail} }}'
    build = compile_cuda(source, name="k", target=SM_90A, options=["--maxrregcount=24"])
    assert build.spill_bytes > 0
    assert build.problems() == (f"{build.spill_bytes} bytes of spills",)


@pytest.mark.parametrize(
    ("source", "code"),
    [
        (WGMMA, "C7517"),  # the accumulator is touched in flight: ptxas inserts a wait
        (
            'extern "C" __global__ void k(int* p)'
            ' { asm volatile("setmaxnreg.dec.sync.aligned.u32 24;"); p[0] = 1; }',
            "C7508",  # no launch bounds: setmaxnreg is dropped
        ),
    ],
)
def test_advisories(source: str, code: str) -> None:
    build = compile_cuda(source, name="k", target=SM_90A)
    assert code in [a.code for a in build.advisories]  # 13.0 adds C7519: a fence that it puts in
    assert any(x.startswith(f"{code}: ") for x in build.problems())


def test_cuda_error_quotes_the_emitted_line() -> None:
    source = 'extern "C" __global__ void k(float* p) {\n  p[0] = q;\n}\n'
    with pytest.raises(
        InternalError, match=r"line 2: identifier \"q\" is undefined\n2 \|   p\[0\]"
    ):
        compile_cuda(source, name="k", target=SM_90A)


def test_ptx_error_quotes_the_ptx_line() -> None:
    source = 'extern "C" __global__ void k() { asm volatile("foo.bar;"); }'
    with pytest.raises(InternalError, match=r"PTX of kernel k, line \d+.*\n\d+ \| \s*foo\.bar;"):
        compile_cuda(source, name="k", target=SM_90A)


def test_missing_kernel_and_bad_option() -> None:
    with pytest.raises(InternalError, match="no kernel 'x'; kernels found: "):
        compile_cuda(COPY, name="x", target=SM_90A)
    with pytest.raises(InternalError, match="--no-such-option"):
        compile_cuda(COPY, name="copy", target=SM_90A, options=["--no-such-option"])


def test_hardware_limits_are_the_users_business() -> None:
    source = COPY.replace("s[128]", "s[80000]")
    with pytest.raises(CompileError, match="shared") as e:
        compile_cuda(source, name="copy", target=SM_90A)
    assert e.value.code == "ptxas-limit"


def test_too_few_registers_for_one_wgmma() -> None:
    accs = ", ".join(f"%{i}" for i in range(128))
    ties = ", ".join(f'"+f"(d[{i}])' for i in range(128))
    source = f"""
extern "C" __global__ void __launch_bounds__(512, 1)
k(float* p, unsigned long long a, unsigned long long b) {{
  float d[128];
  for (int i = 0; i < 128; i++) d[i] = 0;
  asm volatile("wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 "
               "{{{accs}}}, %128, %129, 1, 1, 1, 0, 0;"
               : {ties} : "l"(a), "l"(b));
  asm volatile("wgmma.commit_group.sync.aligned;\\nwgmma.wait_group.sync.aligned 0;");
  for (int i = 0; i < 128; i++) p[threadIdx.x * 128 + i] = d[i];
}}
"""
    with pytest.raises(CompileError, match="C7602"):
        compile_cuda(source, name="k", target=SM_90A)


# ---- a run that takes too long

FLAGS = (f"--gpu-architecture={SM_90A.name}", "--ptxas-options=-v", "--no-cache")


def test_statements_are_counted_with_loops_unrolled() -> None:
    """Only what a pragma unrolls; comments and braces are none."""
    text = """
    // a comment
    #pragma unroll
    for (int i = 0; i < 8; ++i) a[i] = 0;
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
      a[i] = 1;
      #pragma unroll
      for (int j = 0; j < 2; ++j) {
        b[j] = i;
      }
    }
    #pragma unroll 1
    for (int i = 0; i < 100; ++i) a[0] += i;
    #pragma unroll 4
    for (int i = 0; i < 100; i += 5) {
      a[0] += i;
    }
    for (int i = 0; i < 100; ++i) {
      if (i) {
        a[0] = 1;
      } else {
        a[0] = 2;
        a[1] = 3;
      }
    }
    a[0] = 4;"""
    assert statements(text) == 8 + 4 * (1 + 2) + 1 + 4 + 3 + 1


def test_a_process_of_its_own_gives_the_same() -> None:
    theirs = ask(COPY, "copy", FLAGS, True, library_path(), 60.0)
    assert theirs.ok and theirs.seconds > 0
    ours = run(COPY, "copy", FLAGS, True)
    assert (theirs.cubin, theirs.ptx) == (ours.cubin, ours.ptx) and ours.seconds == 0
    assert "Compiling entry function 'copy'" in theirs.log


def test_its_time_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the processor's: the process ends itself.  A user hears how large the kernel is, and what to do."""
    monkeypatch.setattr(nvrtc, "LARGE", 0)
    monkeypatch.setattr(nvrtc, "CALL_SECONDS", 0.01)
    monkeypatch.setattr(nvrtc, "SECOND", 1)
    monkeypatch.setattr(nvrtc_process, "PATIENCE", 6000)  # by the clock, of a busy machine
    source = f"// never asked before: {Path(__file__).name}\n{COPY}"
    with pytest.raises(
        CompileError, match=r"after 0\.01 s of processor time at kernel copy, which has"
    ) as e:
        compile_cuda(source, name="copy", target=SM_90A)
    assert e.value.code == "nvrtc-stopped" and "more warps" in str(e.value)


def test_what_is_stopped_is_compiled_with_fewer_optimizations(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def slow(*asked: Any) -> Answer:
        if nvrtc.FAST not in asked[2]:
            raise StoppedError("NVRTC was stopped")
        return run(*asked[:4])

    monkeypatch.setattr(nvrtc, "_run", slow)
    build = compile_cuda(COPY, name="copy", target=SM_90A)
    assert build.is_stopped and build.cpu_seconds > nvrtc.CALL_SECONDS
    assert build.problems() == (
        "NVRTC: NVRTC was stopped: compiled with --Ofast-compile=mid instead, so it is slower",
    )


def test_a_small_text_that_takes_for_ever_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It runs in a thread; what follows in a process, which can be ended."""
    over = threading.Event()

    def endless(*_: Any) -> Answer:
        while not over.is_set():
            pass
        return Answer(False, "")

    monkeypatch.setattr(nvrtc, "run", endless)
    monkeypatch.setattr(nvrtc, "CALL_SECONDS", 0.2)
    monkeypatch.setattr(nvrtc, "SECOND", 300)
    build = compile_cuda(f"// asked once\n{COPY}", name="copy", target=SM_90A)
    over.set()
    assert build.is_stopped and "not done after 0.2 s of processor time" in build.problems()[0]


LEFT_ALONE = """
import sys
from warploom.runtime import nvrtc
steps = "x = x * x + sinf(x);" * 3000
source = 'extern "C" __global__ void busy(float* p) { float x = *p; %s *p = x; }' % steps
flags = ["--gpu-architecture=sm_90a", "--ptxas-options=-v", "--no-cache"]
try:
    nvrtc._watched(source, "busy", flags, False, float(sys.argv[1]))
except nvrtc.StoppedError as error:
    print(error)
    sys.exit(3)
"""


@pytest.mark.parametrize("seconds", ["0.05", "0.2", "0.4"])
def test_a_process_ends_as_it_says_while_nvrtc_is_at_work(seconds: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LEFT_ALONE, seconds], capture_output=True, text=True, timeout=60
    )
    told = f"NVRTC was not done after {seconds} s of processor time\n"
    assert (done.returncode, done.stdout) == (3, told), done.stderr


@pytest.mark.parametrize(("size", "seconds"), [(19_999, [30.0, 10.0]), (20_000, [30.0])])
def test_two_runs_share_their_time(
    monkeypatch: pytest.MonkeyPatch, size: int, seconds: list[float]
) -> None:
    """The second one is for what takes the first little longer; a text of so many statements gets one."""
    asked = []

    def never(*given: Any) -> Answer:
        asked.append((nvrtc.FAST in given[2], given[4]))
        raise StoppedError("NVRTC was stopped")

    monkeypatch.setattr(nvrtc, "_run", never)
    monkeypatch.setattr(nvrtc, "statements", lambda _: size)
    with pytest.raises(CompileError, match=f"which has {size:,} statements"):
        compile_cuda(COPY, name="copy", target=SM_90A)
    assert [s for _, s in asked] == seconds and [fast for fast, _ in asked][-1]
    monkeypatch.setattr(nvrtc, "_run", lambda *given: run(*given[:4]))
    assert compile_cuda(COPY, name="copy", target=SM_90A).is_stopped == (size == 20_000)


def test_without_a_process_it_runs_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "LARGE", 0)
    monkeypatch.setattr("sys.executable", "/no/such/python")
    assert compile_cuda(COPY, name="copy", target=SM_90A).registers


@pytest.mark.skipif(disassembler() is None, reason="no nvdisasm")
@pytest.mark.parametrize("which", ["evict_first", "evict_last", "evict_normal", "evict_unchanged"])
def test_policies_of_the_l2_are_the_bits_that_ptxas_makes(which: str) -> None:
    """On sm_80 it folds them."""
    made = f'asm("createpolicy.fractional.L2::{which}.b64 %0, 1.0;" : "=l"(*p));'
    source = f'extern "C" __global__ void k(unsigned long long* p) {{ {made} }}'
    code = disassembled(compile_cuda(source, name="k", target=SM_80).cubin)
    text = prelude(f"l2_{which}")["functions"][-1]
    bits = int(text.partition("return ")[2].partition("ull;")[0], 16)
    assert bits & 0xFFFFFFFF == 0 and f"{bits >> 32:#x}" in code
