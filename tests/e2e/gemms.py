"""GEMM cases as data, for the simulator and for a GPU."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

import warploom as wl
from corpus.described_gemms import gemm_device_descriptors, gemm_host_descriptors
from tests.e2e import road
from warploom.kernels.gemm import gemm_pointers

DTYPES: dict[str, Any] = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f32": np.float32,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
}
ROUNDOFF = {"f16": 2.0**-11, "bf16": 2.0**-8, "f32": 2.0**-24}  # half a unit in the last place

WS = {"num_consumer_groups": 2, "num_buffers_warp_spec": 3}
WS_ONE = {"num_consumer_groups": 1, "num_buffers_warp_spec": 3}
WS_SHALLOW = {"num_consumer_groups": 2, "num_buffers_warp_spec": 1}
UNIFORM = {"num_consumer_groups": 0, "num_warps": 4, "num_stages": 3}
UNIFORM_TWO = {"num_consumer_groups": 0, "num_warps": 8, "num_stages": 3}
UNIFORM_SHALLOW = {"num_consumer_groups": 0, "num_warps": 4, "num_stages": 1}
PING_PONG = {"num_consumer_groups": 2, "num_buffers_warp_spec": 3, "ping_pong": "tiles"}
STORED = {"num_consumer_groups": 2, "num_buffers_warp_spec": 3, "store_task": True}
KNOBS = {
    "two-groups": WS,
    "ping-pong": PING_PONG,
    "store-task": STORED,
    "one-group": WS_ONE,
    "depth-1": WS_SHALLOW,
    "uniform": UNIFORM,
    "uniform-two": UNIFORM_TWO,
    "uniform-depth-1": UNIFORM_SHALLOW,
}

SEED = Path(__file__).parents[3] / "shared/seeds/code/seed000_matmul.py"


@dataclass(frozen=True)
class Gemm:
    """C = A·B.  orders: how A and B are stored, 'r' row-major or 'c' column-major.  pads: elements by
    which the rows of A, B, C as stored are longer than a multiple of 16 bytes."""

    m: int
    n: int
    k: int
    dtype: str = "bf16"
    out: str = "bf16"
    orders: str = "rc"
    pads: tuple[int, int, int] = (0, 0, 0)
    blocks: tuple[int, int, int] = (128, 64, 32)
    kernel: str = "pointers"
    programs: int = 2

    def __str__(self) -> str:
        pads = "" if self.pads == (0, 0, 0) else f"-pads{self.pads}".replace(" ", "")
        return (
            f"{self.kernel}-{self.dtype}-{self.out}-{self.orders}-{self.m}x{self.n}x{self.k}{pads}"
            f"-on{self.programs}"
        )

    @property
    def jit(self) -> Any:
        return {
            "pointers": gemm_pointers,
            "device": gemm_device_descriptors,
            "host": gemm_host_descriptors,
        }[self.kernel]

    def arrays(self, rng: np.random.Generator, integers: bool = True) -> tuple[Any, Any, Any]:
        """A, B and a C of NaN.  Integers are so small that every sum is exact."""

        def draw(shape: tuple[int, int]) -> Any:
            if integers:
                return rng.integers(-2, 3, shape).astype(np.float32)
            return rng.standard_normal(shape, np.float32)

        d = DTYPES[self.dtype]
        a = road.filled(draw((self.m, self.k)), d, self.orders[0], self.pads[0])
        b = road.filled(draw((self.k, self.n)), d, self.orders[1], self.pads[1])
        return a, b, road.array((self.m, self.n), DTYPES[self.out], "r", self.pads[2])

    def args(self, a: Any, b: Any, c: Any) -> list[Any]:
        """The kernel's run-time arguments, from arrays of NumPy or torch."""
        (sa, sb, sc) = map(_strides, (a, b, c))
        sizes = [self.m, self.n, self.k]
        if self.kernel == "pointers":
            return [a, b, c, *sizes, *sa, *sb, *sc]
        ta, tb = (o == "c" for o in self.orders)
        if self.kernel == "device":
            return [a, b, c, *sizes, sa[ta], sb[tb], sc[0]]
        bm, bn, bk = self.blocks
        described = [
            wl.TensorDescriptor.from_tensor(a.T if ta else a, (bk, bm) if ta else (bm, bk)),
            wl.TensorDescriptor.from_tensor(b.T if tb else b, (bn, bk) if tb else (bk, bn)),
            wl.TensorDescriptor.from_tensor(c, (bm, bn)),
        ]
        return [*described, *sizes]

    @property
    def meta(self) -> dict[str, Any]:
        bm, bn, bk = self.blocks
        found: dict[str, Any] = {"BLOCK_M": bm, "BLOCK_N": bn, "BLOCK_K": bk, "GROUP_M": 2}
        if self.kernel != "pointers":
            found |= {"TRANS_A": self.orders[0] == "c", "TRANS_B": self.orders[1] == "c"}
        return found

    @property
    def signature(self) -> list[str]:
        """Of gemm_pointers with everything aligned: what a launch with large sizes specializes on."""
        names = {"e4m3": "fp8e4nv", "e5m2": "fp8e5", "f16": "fp16", "f32": "fp32"}
        inputs, out = names.get(self.dtype, self.dtype), names.get(self.out, self.out)
        strides = []
        for order in (*self.orders, "r"):
            strides += ["i32:16", "i32=1"] if order == "r" else ["i32=1", "i32:16"]
        return [f"*{inputs}:16", f"*{inputs}:16", f"*{out}:16", *["i32:16"] * 3, *strides]

    def with_(self, **changes: Any) -> Gemm:
        return replace(self, **changes)


def _strides(a: Any) -> tuple[int, ...]:
    if isinstance(a, np.ndarray):
        return tuple(s // a.itemsize for s in a.strides)
    found: tuple[int, ...] = tuple(a.stride())
    return found


def exact(a: Any, b: Any, out: str) -> Any:
    """A·B in float64, rounded once."""
    return (a.astype(np.float64) @ b.astype(np.float64)).astype(DTYPES[out])


def assert_close(c: Any, a: Any, b: Any, out: str, accumulate: float = 2.0**-23) -> None:
    """C against float64: by norm, and each element within rounding of the sum and of the result.

    accumulate: relative error of one addition of the hardware (fp8 sums keep fewer bits)."""
    a, b, c = (x.astype(np.float64) for x in (a, b, c))
    right, magnitude = a @ b, np.abs(a) @ np.abs(b)
    error = np.abs(c - right)
    if error.size:
        assert np.linalg.norm(error) <= ROUNDOFF[out] * np.linalg.norm(right) + 1e-30 + (
            accumulate * np.linalg.norm(magnitude)
        )
    steps = max(1.0, a.shape[1] ** 0.5)  # additions whose errors add up at random
    assert np.all(error <= ROUNDOFF[out] * np.abs(right) + 4 * steps * accumulate * magnitude)


def seed_kernel() -> Any:
    """The published kernel, or None where it is absent."""
    if not SEED.exists():
        return None
    spec = importlib.util.spec_from_file_location("seed000", SEED)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.matmul_persistent_ws_kernel


# ---- the cases

_BASE = Gemm(160, 100, 72)

SIXTEEN_BIT = [
    _BASE.with_(dtype=d, out=d, orders=o) for d in ("f16", "bf16") for o in ("rr", "rc", "cr", "cc")
]
EIGHT_BIT = [
    _BASE.with_(dtype=d, out=out, k=k, blocks=(128, 64, 64))
    for d, out, k in [("e4m3", "bf16", 144), ("e5m2", "f16", 200), ("e4m3", "f32", 64)]
]
# Bytes in orders that wgmma does not take: brought by TMA, by cp.async and through registers.
TRANSPOSED = [
    EIGHT_BIT[0].with_(orders=o, pads=p)
    for o in ("rr", "cc", "cr")
    for p in ((0, 0, 0), (4, 8, 1), (1, 4, 1))
]
DESCRIBED = [
    _BASE.with_(kernel=kernel, orders=o, dtype=d, out=d)
    for kernel, o, d in [
        ("host", "rr", "bf16"),
        ("host", "rc", "f16"),
        ("host", "cr", "bf16"),
        ("host", "cc", "f16"),
        ("device", "rr", "f16"),
        ("device", "rc", "bf16"),
        ("device", "cr", "f16"),
        ("device", "cc", "bf16"),
    ]
]
# pads, and what then brings A and B to shared memory
PRODUCERS: list[tuple[Gemm, tuple[str, str]]] = [
    (_BASE.with_(blocks=(64, 512, 32), n=520), ("tma", "tma")),  # boxes of more than 256 rows
    (_BASE.with_(blocks=(384, 64, 32), m=400), ("tma", "tma")),
    (_BASE.with_(pads=(4, 4, 4)), ("cp_async", "cp_async")),
    (_BASE.with_(pads=(2, 2, 2)), ("cp_async", "cp_async")),
    (_BASE.with_(pads=(1, 1, 1)), ("registers", "registers")),
    (_BASE.with_(pads=(0, 1, 0)), ("tma", "registers")),
    (_BASE.with_(pads=(4, 0, 1)), ("cp_async", "tma")),
    (_BASE.with_(pads=(1, 4, 0), orders="cr"), ("registers", "cp_async")),
    (_BASE.with_(pads=(1, 8, 0), orders="rr", dtype="f16", out="f16"), ("registers", "tma")),
    (
        _BASE.with_(pads=(1, 4, 1), dtype="e4m3", blocks=(128, 64, 64)),
        ("registers", "cp_async"),
    ),
]
