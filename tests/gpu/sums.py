"""Asks a GPU for sums by chains of wgmma or mma.sync, on any bits: one kernel for each way to ask, a problem a
CTA.

A problem is D[64, n] = C + Σ over steps of A[step]·B[step]ᵀ, A (steps, 64, 32 bytes), B (steps, n, 32 bytes), all
row-major in global memory.  Every format has 32 bytes of K, and every fragment and core matrix is the same in
bytes, so that formats differ in the instruction's name alone.  (PTX ISA, "wgmma.mma_async", "mma.m16n8k16":
fragments; shared memory without a swizzle in core matrices of 8 rows of 16 bytes.)"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.sim.tensor_core_vectors import dtypes_of
from warploom.runtime.launch import driver
from warploom.runtime.nvrtc import compile_cuda
from warploom.target import SM_90A

_PTX = {"f16": "f16", "bf16": "bf16", "f32": "tf32", "f8e4m3": "e4m3", "f8e5m2": "e5m2"}


@dataclass(frozen=True)
class Way:
    """How to ask.  by: "shared" and "registers" (where wgmma finds A), "mma" (mma.sync).  n: columns of B.
    has_c: scale-d of the first instruction (of wgmma)."""

    by: str
    n: int
    steps: int
    has_c: bool = True

    @property
    def kernel(self) -> str:
        return f"{self.by}_{self.n}_{self.steps}"

    def __str__(self) -> str:
        return f"{self.kernel}{'' if self.has_c else ' without c'}"


_COMMON = """
typedef unsigned int u32;
typedef unsigned long long u64;

__device__ u32 word(const char* base, int row, int byte) { return *(const u32*)(base + 32 * row + byte); }

// Rows of 32 bytes from global memory into core matrices: rows 8r to 8r + 7, bytes 16h to 16h + 15 at 256r + 128h.
__device__ void fill(char* to, const char* from, int rows) {
  for (int i = threadIdx.x; i < 2 * rows; i += 128)
    *(uint4*)(to + 256 * (i / 16) + 128 * (i % 2) + 16 * (i / 2 % 8)) = *(const uint4*)(from + 16 * i);
}

__device__ u64 descriptor(const char* at) {
  const u64 address = __cvta_generic_to_shared(at);
  return (address & 0x3FFFF) >> 4 | (u64)(128 >> 4) << 16 | (u64)(256 >> 4) << 32;
}
"""

_BODY = """
extern "C" __global__ void __launch_bounds__(128) {kernel}(
    const char* a, const char* b, const char* c, char* out, u32 has_c) {{
  a += (u64)blockIdx.x * {steps} * 2048;
  b += (u64)blockIdx.x * {steps} * {b_bytes};
  c += (u64)blockIdx.x * {c_bytes};
  out += (u64)blockIdx.x * {c_bytes};
  const int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16 + lane / 4, at = 4 * (lane % 4);
  u32 d[{registers}];
  for (int j = 0; j < {n} / 8; ++j)
    for (int half = 0; half < 2; ++half)
      for (int i = 0; i < {words}; ++i)
        d[{words} * (2 * j + half) + i] =
            *(const u32*)(c + {size} * ((row + 8 * half) * {n} + 8 * j + 2 * (lane % 4)) + 4 * i);
{chain}
  for (int j = 0; j < {n} / 8; ++j)
    for (int half = 0; half < 2; ++half)
      for (int i = 0; i < {words}; ++i)
        *(u32*)(out + {size} * ((row + 8 * half) * {n} + 8 * j + 2 * (lane % 4)) + 4 * i) =
            d[{words} * (2 * j + half) + i];
}}
"""

_WGMMA = """
  __shared__ __align__(1024) char sa[{steps} * 2048], sb[{steps} * {b_bytes}];
  u32 fragment[{steps}][4];
#pragma unroll
  for (int s = 0; s < {steps}; ++s) {{
    fill(sa + 2048 * s, a + 2048 * s, 64);
    fill(sb + {b_bytes} * s, b + {b_bytes} * s, {n});
    for (int i = 0; i < 4; ++i) fragment[s][i] = word(a + 2048 * s, row + 8 * (i % 2), 16 * (i / 2) + at);
  }}
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
  for (int s = 0; s < {steps}; ++s) {{
    const u32 use = s ? 1 : has_c;
    asm volatile("{{ .reg .pred p; setp.ne.b32 p, %{use}, 0; {instruction} {{{outputs}}}, {operands}, p, 1, 1{tail}; }}"
                 : {constraints} : {given}, "r"(use) : "memory");
  }}
  asm volatile("wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
  for (int s = 0; s < {steps}; ++s)  // registers that are still read belong to nothing else
    for (int i = 0; i < 4; ++i) asm volatile("" ::"r"(fragment[s][i]));
"""

_MMA = """
#pragma unroll
  for (int s = 0; s < {steps}; ++s) {{
    u32 x[4], y[2];
    for (int i = 0; i < 4; ++i) x[i] = word(a + 2048 * s, row + 8 * (i % 2), 16 * (i / 2) + at);
#pragma unroll
    for (int j = 0; j < {n} / 8; ++j) {{
      for (int i = 0; i < 2; ++i) y[i] = word(b + {b_bytes} * s, 8 * j + lane / 4, 16 * i + at);
      asm volatile("{instruction} {{{outputs}}}, {{%{r}, %{r1}, %{r2}, %{r3}}}, {{%{r4}, %{r5}}}, {{{outputs}}};"
                   : {constraints} : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
    }}
  }}
"""


def source(name: str, ways: Sequence[Way]) -> str:
    """CUDA text with a kernel for each way to ask in one format."""
    return _COMMON + "".join(_kernel(name, w) for w in {w.kernel: w for w in ways}.values())


def _kernel(name: str, way: Way) -> str:
    a, b, accumulator = (x.name for x in dtypes_of(name))
    size = 4 if accumulator == "f32" else 2
    words = size // 2  # of a pair of adjacent columns
    facts: dict[str, Any] = {
        "kernel": way.kernel, "n": way.n, "steps": way.steps, "size": size, "words": words,
        "registers": way.n // 4 * words, "b_bytes": 32 * way.n, "c_bytes": 64 * way.n * size,
    }  # fmt: skip
    k = 8 if a == "f32" else 16 if a in ("f16", "bf16") else 32
    chain = (
        _mma(facts, a, b, accumulator, k)
        if way.by == "mma"
        else _wgmma(facts, way, a, b, accumulator, k)
    )
    return _BODY.format(chain=chain, **facts)


def _wgmma(facts: dict[str, Any], way: Way, a: str, b: str, accumulator: str, k: int) -> str:
    n = facts["registers"]
    if way.by == "shared":
        operands, count = f"%{n}, %{n + 1}", 2
        given = f'"l"(descriptor(sa + 2048 * s)), "l"(descriptor(sb + {facts["b_bytes"]} * s))'
    else:
        operands, count = f"{{%{n}, %{n + 1}, %{n + 2}, %{n + 3}}}, %{n + 4}", 5
        words = ", ".join(f'"r"(fragment[s][{i}])' for i in range(4))
        given = f'{words}, "l"(descriptor(sb + {facts["b_bytes"]} * s))'
    tail = ""  # whether A (of shared memory) and B lie along M and N
    if a in ("f16", "bf16"):
        tail = ", 0, 0" if way.by == "shared" else ", 0"
    return _WGMMA.format(
        instruction=f"wgmma.mma_async.sync.aligned.m64n{way.n}k{k}.{accumulator}.{_PTX[a]}.{_PTX[b]}",
        outputs=", ".join(f"%{i}" for i in range(n)),
        constraints=", ".join(f'"+r"(d[{i}])' for i in range(n)),
        operands=operands, given=given, use=n + count, tail=tail, **facts,
    )  # fmt: skip


def _mma(facts: dict[str, Any], a: str, b: str, accumulator: str, k: int) -> str:
    n = 2 * facts["words"]
    return _MMA.format(
        instruction=f"mma.sync.aligned.m16n8k{k}.row.col.{accumulator}.{_PTX[a]}.{_PTX[b]}.{accumulator}",
        outputs=", ".join(f"%{i}" for i in range(n)),
        constraints=", ".join(f'"+r"(d[{n} * j + {i}])' for i in range(n)),
        r=n, r1=n + 1, r2=n + 2, r3=n + 3, r4=n + 4, r5=n + 5, **facts,
    )  # fmt: skip


def compiled(name: str, ways: Sequence[Way]) -> bytes:
    """The cubin of one format's kernels."""
    return compile_cuda(source(name, ways), name=ways[0].kernel, target=SM_90A).cubin


class Module:
    """The kernels of one format in the GPU's current context."""

    def __init__(self, cubin: bytes) -> None:
        from cuda.bindings import driver as cu

        self.cu, self.gpu = cu, driver()
        result, self.module = cu.cuModuleLoadData(cubin)
        self.gpu.check(result, "cuModuleLoadData")

    def ask(self, way: Way, a: Any, b: Any, c: Any) -> Any:
        """D of problems a (p, steps, 64, K), b (p, steps, n, K), c (p, 64, n)."""
        cu, held = self.cu, []
        out = np.full_like(c.view(f"u{c.itemsize}"), 0x5A5A)  # an output that nothing writes shows
        arrays = [np.ascontiguousarray(x) for x in (a, b, c, out)]
        result, function = cu.cuModuleGetFunction(self.module, way.kernel.encode())
        self.gpu.check(result, "cuModuleGetFunction")
        for x in arrays:
            result, pointer = cu.cuMemAlloc(x.nbytes)
            self.gpu.check(result, "cuMemAlloc")
            self.gpu.check(cu.cuMemcpyHtoD(pointer, x.ctypes.data, x.nbytes)[0], "cuMemcpyHtoD")
            held.append(pointer)
        values = (*map(int, held), int(way.has_c))
        kinds = (*[ctypes.c_void_p] * 4, ctypes.c_uint)
        shape = (len(a), 1, 1, 128, 1, 1)
        self.gpu.check(cu.cuLaunchKernel(function, *shape, 0, 0, (values, kinds), 0)[0], way.kernel)
        self.gpu.check(cu.cuCtxSynchronize()[0], way.kernel)
        found = arrays[3]
        self.gpu.check(cu.cuMemcpyDtoH(found.ctypes.data, held[3], found.nbytes)[0], "cuMemcpyDtoH")
        for pointer in held:
            cu.cuMemFree(pointer)
        return found
