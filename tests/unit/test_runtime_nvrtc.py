"""NVRTC without a GPU: resources, advisories and refusals of small sources."""

from __future__ import annotations

import pytest

from warploom.errors import CompileError, InternalError
from warploom.runtime.nvrtc import compile_cuda, compiler_version
from warploom.target import SM_90A

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
