"""The workloads, as data.  `kind`: which peers take a case (those that name it in their KINDS)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class Gemm:
    """C[M,N] = A·B, all of one dtype (bf16, fp16).  Layout TN: B is stored N×K (so C = A·Bᵀ of row-major
    arrays); NN: B is stored K×N."""

    m: int
    n: int
    k: int
    dtype: str = "bf16"
    layout: str = "TN"

    kind: ClassVar[str] = "gemm"

    @property
    def name(self) -> str:
        return f"{self.dtype} {self.layout} {self.m}x{self.n}x{self.k}"

    @property
    def flops(self) -> int:
        return 2 * self.m * self.n * self.k


@dataclass(frozen=True)
class Attention:
    """O = softmax(Q·Kᵀ / √d)·V forward; Q, K, V, O are (batch, heads, seq, d), all of one
    16-bit dtype.  causal: row i sees columns 0 … i, and counts as half the operations."""

    batch: int
    heads: int
    seq: int
    d: int
    causal: bool
    dtype: str = "bf16"

    kind: ClassVar[str] = "attention"

    @property
    def name(self) -> str:
        shape = f"B{self.batch} H{self.heads} S{self.seq} D{self.d}"
        return f"{self.dtype} attention {shape} {'causal' if self.causal else 'full'}"

    @property
    def flops(self) -> int:
        return 4 * self.batch * self.heads * self.seq**2 * self.d // (2 if self.causal else 1)


@dataclass(frozen=True)
class Dual:
    """C[M,N] = silu(A·B1ᵀ) · (A·B2ᵀ) from bf16 or e4m3 to bf16; B1 and B2 are stored N×K."""

    m: int
    n: int
    k: int
    dtype: str = "bf16"

    kind: ClassVar[str] = "dual"

    @property
    def name(self) -> str:
        return f"{self.dtype} swiglu {self.m}x{self.n}x{self.k}"

    @property
    def flops(self) -> int:
        return 4 * self.m * self.n * self.k


@dataclass(frozen=True)
class Fp8:
    """C[M,N] = A·Bᵀ from e4m3 to bf16, with a float32 scale for each row of A and of B.  Layout TN: B is
    stored N×K; NN: K×N."""

    m: int
    n: int
    k: int
    layout: str = "TN"

    kind: ClassVar[str] = "fp8"

    @property
    def name(self) -> str:
        return f"e4m3 rowwise {self.layout} {self.m}x{self.n}x{self.k}"

    @property
    def flops(self) -> int:
        return 2 * self.m * self.n * self.k


@dataclass(frozen=True)
class Awkward:
    """C = A·Bᵀ in bf16, mostly with an A that TMA can't load.  gather: an index names the M rows of A, out of
    2M.  From row to row of A there are `pad` elements more than its columns take, from column to column
    `inner` elements.  B lies N×K; with `pad_b` K×N, its rows so many elements longer."""

    m: int
    n: int
    k: int
    gather: bool = False
    pad: int = 0
    inner: int = 1
    pad_b: int | None = None

    kind: ClassVar[str] = "awkward"

    @property
    def name(self) -> str:
        how = ["gathered"] * self.gather + [f"rows +{self.pad}"] * bool(self.pad)
        how += [f"every {self.inner}. column"] * (self.inner > 1)
        how += [f"B by rows +{self.pad_b}"] * (self.pad_b is not None)
        return f"bf16 {', '.join(how) or 'plain'} {self.m}x{self.n}x{self.k}"

    @property
    def flops(self) -> int:
        return 2 * self.m * self.n * self.k


Case = Gemm | Attention | Dual | Fp8 | Awkward

CORE = [
    Gemm(8192, 8192, 8192),
    Gemm(4096, 4096, 4096),
    Gemm(2048, 2048, 2048),
    Gemm(8192, 8192, 512),
]

# The cases of the targets: the shapes that peers were measured on, and a short K.
_TN = [(8192, 8192, 8192), (4096, 4096, 4096), (2048, 2048, 2048), (16384, 4096, 4096)]
_TN += [(4096, 4096, 16384), (64, 8192, 8192), (8192, 8192, 512)]
_NN = [(8192, 8192, 8192), (4096, 4096, 4096), (16384, 4096, 4096), (64, 8192, 8192)]
_NN += [(8192, 8192, 512)]
TARGETS = [Gemm(*shape) for shape in _TN]
TARGETS += [Gemm(*shape, layout="NN") for shape in _NN]
TARGETS += [Gemm(*shape, dtype="fp16") for shape in _TN[:2]]

# Few rows: what a product takes is the time in which its weights are read.
SHORT = [Gemm(16, 8192, 8192), Gemm(16, 14336, 4096), Gemm(32, 8192, 8192), Gemm(16, 4096, 4096)]

ATTENTION = [
    Attention(batch, 2048 // d, 16384 // batch, d, causal)
    for d in (128, 64)
    for causal in (False, True)
    for batch in (16, 4, 1)
]

DUAL = [Dual(4096, 14336, 4096), Dual(8192, 8192, 8192), Dual(512, 4096, 7168)]
DUAL_FP8 = [Dual(case.m, case.n, case.k, "e4m3") for case in DUAL]
_FP8 = [(8192, 8192, 8192), (4096, 4096, 4096), (8192, 8192, 4096), (16384, 4096, 4096)]
FP8 = [Fp8(*shape) for shape in _FP8]
FP8_NN = [Fp8(*shape, layout="NN") for shape in _FP8[:2]]

_SHAPES = [(8192, 8192, 8192), (4096, 4096, 4096), (4096, 4096, 1024)]
AWKWARD = [Awkward(*shape, gather=how) for shape in _SHAPES for how in (False, True)]
AWKWARD += [Awkward(*_SHAPES[1], pad=n) for n in (4, 2, 1)]
AWKWARD += [Awkward(*_SHAPES[1], inner=2), Awkward(4096, 4096, 4095)]
AWKWARD += [Awkward(*_SHAPES[1], pad_b=n) for n in (0, 1)]

CASES: dict[str, Sequence[Case]] = {
    "core": CORE,
    "targets": TARGETS,
    "one": CORE[:1],
    "short": SHORT,
    "depths": [Gemm(8192, 8192, k) for k in (512, 1024, 2048, 4096, 8192)],
    "attention": ATTENTION,
    "attention128": ATTENTION[:6],
    "attention64": ATTENTION[6:],
    "dual": DUAL,
    "dual_fp8": DUAL_FP8,
    "fp8": FP8,
    "fp8_nn": FP8_NN,
    "awkward": AWKWARD,
}

DTYPES = {
    "gemm": ("bf16", "fp16"),
    "fp8": ("e4m3",),
    "attention": ("bf16", "fp16"),
    "dual": ("bf16", "e4m3"),
}

# What `python -m benchmarks KIND` measures unless told otherwise.
USUAL: dict[str, Sequence[Case]] = {"gemm": CORE, "fp8": FP8, "attention": ATTENTION, "dual": DUAL}


def of_shape(kind: str, shape: str, dtype: str | None = None, layout: str = "TN") -> Case:
    """A case by its sizes: M,N,K, of attention BATCH,HEADS,SEQ,D or BATCH,HEADS,SEQ,D,causal.

    Raises ValueError where the sizes or the dtype are not those of the kind."""
    sizes = shape.split(",")
    causal = kind == "attention" and sizes[-1] == "causal"
    if causal:
        sizes.pop()
    wanted = "BATCH,HEADS,SEQ,D" if kind == "attention" else "M,N,K"
    if len(sizes) != len(wanted.split(",")) or not all(s.isdecimal() and int(s) for s in sizes):
        raise ValueError(f"'{shape}' is not {wanted}")
    dtype = dtype or DTYPES[kind][0]
    if dtype not in DTYPES[kind]:
        raise ValueError(f"{kind} is measured in {' and '.join(DTYPES[kind])}, not in {dtype}")
    if kind == "attention":
        b, h, s, d = sizes
        return named(f"{dtype} attention B{b} H{h} S{s} D{d} {'causal' if causal else 'full'}")
    names = {"gemm": f"{dtype} {layout}", "fp8": f"e4m3 rowwise {layout}"}
    names["dual"] = f"{dtype} swiglu"
    return named(f"{names[kind]} {'x'.join(sizes)}")


_NAMES = re.compile(
    r"""(?P<dtype>bf16|fp16)\ (?P<layout>TN|NN)\ (?P<gemm>\d+x\d+x\d+)
    | (?P<type>bf16|fp16)\ attention
      \ B(?P<b>\d+)\ H(?P<h>\d+)\ S(?P<s>\d+)\ D(?P<d>\d+)\ (?P<mask>causal|full)
    | (?P<pair>bf16|e4m3)\ swiglu\ (?P<dual>\d+x\d+x\d+)
    | e4m3\ rowwise\ (?P<order>TN|NN)\ (?P<fp8>\d+x\d+x\d+)""",
    re.VERBOSE,
)


def named(name: str) -> Case:
    """The case of that name, of a list or of any size.  Raises ValueError if there can be none."""
    for cases in CASES.values():
        for case in cases:
            if case.name == name:
                return case
    found = _NAMES.fullmatch(name)
    if found is None:
        raise ValueError(f"'{name}' is no case")
    at = found.groupdict()
    if at["mask"]:
        b, h, s, d = (int(at[axis]) for axis in "bhsd")
        return Attention(b, h, s, d, at["mask"] == "causal", at["type"])
    m, n, k = (int(x) for x in (at["gemm"] or at["dual"] or at["fp8"]).split("x"))
    if at["gemm"]:
        return Gemm(m, n, k, at["dtype"], at["layout"])
    return Dual(m, n, k, at["pair"]) if at["dual"] else Fp8(m, n, k, at["order"])
