"""The targets, as data: whose figure has to reach what part of whose, on which cases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks import mma_sync
from benchmarks.cases import CASES, FP8, TARGETS, Case
from benchmarks.report import CUBLAS, CUBLAS_GATED, CUDNN, Results

FA3 = "FlashAttention-3"
PRECISE, FAST = "torch._scaled_mm, precise", "torch._scaled_mm, fast"


@dataclass(frozen=True)
class Target:
    """ours ≥ r × the best of the peers: r in geometric mean, and r on each case.  peers: how their names
    begin; (): all that are not warploom's."""

    ours: str
    of: str  # in words
    peers: tuple[str, ...]
    mean: float = 0.0
    each: float = 0.0


@dataclass(frozen=True)
class Named:
    """A case that another module has (`benchmarks.mma_sync`)."""

    name: str


@dataclass(frozen=True)
class Group:
    """The cases of a row.  record: the name of their chart, or records.  ours, by_hand: peers (or ""); peers,
    triton: as Target's."""

    name: str
    record: str
    shapes: Sequence[Case | Named]
    ours: str
    by_hand: str
    peers: tuple[str, ...]
    triton: tuple[str, ...]
    targets: tuple[Target, ...]

    @property
    def title(self) -> str:
        return f"{self.name}, {len(self.shapes)} cases"

    def cases(self, results: Results) -> Results:
        """Those of the results that are the group's."""
        return {case.name: results[case.name] for case in self.shapes if case.name in results}


def _attention(d: int, mean: float, by_hand: tuple[Target, ...]) -> Group:
    ours, explicit, triton = "warploom, automatic", "warploom, explicit", ("Triton",)
    targets: tuple[Target, ...] = (
        Target(ours, "the kernel by hand", (explicit,), each=0.97),
        Target(ours, "the best peer", (), mean),
        Target(ours, "FlashAttention-3", ("FlashAttention-3",), 1),
        Target(ours, "Triton's best", triton, each=1.25),
    )
    cases = CASES[f"attention{d}"]
    name, targets = f"attention d = {d}", targets + by_hand
    return Group(name, "attention", cases, ours, explicit, (), triton, targets)


def _dual(dtype: str, by_hand: tuple[Target, ...] = ()) -> Group:
    ours, triton = "warploom dual", ("Triton dual",)
    targets: tuple[Target, ...] = (
        Target(ours, "the best peer", (), each=0.97),
        Target(ours, "cuBLAS and a pass", (CUBLAS_GATED,), each=1.05),
    )
    record = "dual" if dtype == "bf16" else "dual_fp8"
    name, targets = f"gated pair {dtype}", targets + by_hand
    return Group(name, record, CASES[record], ours, "explicit dual", (), triton, targets)


_FAST_TRITON = ("Triton fp8, persistent", "Triton fp8, pointers")
_PROMOTED = "warploom fp8, promoted"

GROUPS = (
    Group(
        "GEMM bf16 and fp16",
        "gemm",
        TARGETS,
        "warploom",
        "",
        (),
        ("Triton",),
        (
            Target("warploom", "the best peer", (), 1.0, 0.97),
            Target("warploom", CUBLAS, (CUBLAS,), 1.0, 0.95),
            Target("warploom", "Triton's best", ("Triton",), each=1.0),
            Target("warploom", "the uniform kernel", ("warploom, uniform",), each=1.0),
        ),
    ),
    Group(
        "GEMM bf16, 8192³ and 4096³",
        "gemm",
        [case for case in TARGETS if case.dtype == "bf16" and case.m == case.n == case.k > 2048],
        "warploom",
        "explicit",
        (),
        ("Triton",),
        (Target("explicit", "the best peer", (), each=1.0),),
    ),
    _attention(
        128,
        1.0,
        (
            Target("warploom, explicit", FA3, (FA3,), 1.0, 0.98),
            Target("warploom, explicit", CUDNN, (CUDNN,), each=1.0),
        ),
    ),
    _attention(64, 1.02, (Target("warploom, explicit", "the best peer", (), 1.03),)),
    Group(
        "e4m3, fast",
        "fp8",
        FP8,
        "warploom fp8",
        "explicit fp8",
        (FAST, *_FAST_TRITON),
        _FAST_TRITON,
        (
            Target("warploom fp8", FAST, (FAST,), 1.0),
            Target("warploom fp8", "Triton's best", _FAST_TRITON, each=1.0),
            Target("explicit fp8", FAST, (FAST,), 1.0),
        ),
    ),
    Group(
        "e4m3, promoted",
        "fp8",
        FP8,
        _PROMOTED,
        "explicit fp8, promoted",
        (PRECISE, "Triton fp8, promoted"),
        ("Triton fp8, promoted",),
        (
            Target(_PROMOTED, PRECISE, (PRECISE,), 1.0),
            Target(_PROMOTED, "Triton's", ("Triton fp8, promoted",), 1.3),
            Target("explicit fp8, promoted", PRECISE, (PRECISE,), 1.05),
        ),
    ),
    _dual("bf16", (Target("explicit dual", "the best peer", (), 0.0, 0.97),)),
    _dual("e4m3"),
)


def _in_order(name: str, begin: Sequence[str], *targets: Target) -> Group:
    cases = [Named(case) for case in mma_sync.CASES if case.startswith(tuple(begin))]
    return Group(name, "mma_sync", cases, "warploom", "", (), ("triton",), targets)


# Records in microseconds, without charts.
MMA_SYNC = (
    _in_order(
        "dots by mma.sync",
        ("gemm", "attention", "linear"),
        Target("warploom", "Triton's by mma.sync", ("triton",), 1.0, 0.97),
    ),
    _in_order("bf16 GEMM of 16 rows", ("short",), Target("warploom", CUBLAS, (CUBLAS,), each=1.0)),
)
