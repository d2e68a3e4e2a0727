"""8-bit floats on chips whose cvt has none: the prelude's arithmetic, run on this machine, bit for bit as ml_dtypes
converts, to finite."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import warploom as wl
import warploom.language as tl
from warploom.codegen.prelude import prelude

COMPILER = shutil.which("cc")
pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C compiler")
FORMATS = {"e4m3": (ml_dtypes.float8_e4m3fn, 448.0), "e5m2": (ml_dtypes.float8_e5m2, 57344.0)}
# What the functions are made of that is no C: PTX and CUDA's own.
HOST = """
#include <math.h>
#include <string.h>
#define DEV static inline
typedef unsigned short u16;
typedef unsigned int u32;
DEV float float_of(u32 x) { float r; memcpy(&r, &x, 4); return r; }
DEV u32 float_bits(float x) { u32 r; memcpy(&r, &x, 4); return r; }
DEV u32 __byte_perm(u32 x, u32 y, u32 s) {
  const unsigned long long both = (unsigned long long)y << 32 | x;
  u32 r = 0;
  for (int i = 0; i < 4; i++) r |= (u32)(both >> 8 * (s >> 4 * i & 7) & 255) << 8 * i;
  return r;
}
DEV u32 scaled(u16 x, u16 by) {  // by a power of two that keeps all bits
  const int e = x >> 10 & 31, f = x & 1023;
  const double v = ldexp(e ? 1024 + f : f, (e ? e : 1) - 25) * ldexp(1, (by >> 10) - 15);
  const int up = v ? ilogb(v) : -15, n = up < -14 ? -14 : up;
  return (x & 0x8000) | (up < -14 ? 0 : (u32)(n + 15) << 10) | ((u32)ldexp(v, 10 - n) & 1023);
}
DEV u32 mul_f16x2(u32 x, u32 y) { return scaled(x, y) | scaled(x >> 16, y >> 16) << 16; }
"""
EXPORTED = """
extern "C" void wide_{0}(const u16* x, u32* y, int n) {{ for (int i = 0; i < n; i++) y[i] = {0}_pair(x[i]); }}
extern "C" void narrow_{0}(const float* x, u16* y, int n) {{
  for (int i = 0; i < n; i++) y[i] = (u16)pair_f8{0}(x[2 * i], x[2 * i + 1]);
}}
"""


@pytest.fixture(scope="module")
def functions(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The functions of the prelude as a chip of 8.0 has them."""
    wanted = ("e4m3_pair", "e5m2_pair", "abs_f32", "byte_of", "pair_f8e4m3", "pair_f8e5m2")
    found = prelude(" ".join(wanted))["functions"]
    own = [p for p in found if any(f" {name}(" in p.partition("{")[0] for name in wanted)]
    assert len(own) == len(wanted)
    folder: Path = tmp_path_factory.mktemp("host")
    source = folder / "f.cpp"
    source.write_text("\n".join([HOST, *own, *map(EXPORTED.format, FORMATS)]))
    library = folder / "f.so"
    flags = [
        "-x",
        "c++",
        "-O1",
        "-ffp-contract=off",
        "-shared",
        "-fPIC",
        "-w",
        "-D__CUDA_ARCH__=800",
    ]
    assert COMPILER is not None
    subprocess.run([COMPILER, *flags, str(source), "-o", str(library), "-lm"], check=True)
    return ctypes.CDLL(str(library))


def call(function: Any, x: Any, dtype: Any, n: int) -> Any:
    y = np.zeros(n, dtype)
    function(x.ctypes.data_as(ctypes.c_void_p), y.ctypes.data_as(ctypes.c_void_p), n)
    return y


@pytest.mark.parametrize("name", FORMATS)
def test_all_codes_become_the_f16_that_they_stand_for(functions: Any, name: str) -> None:
    codes = np.arange(256, dtype=np.uint16)
    pairs = np.concatenate([codes | codes[::-1] << 8, codes << 8 | 0x3C, codes | 0x7F00])
    found = call(getattr(functions, f"wide_{name}"), pairs, np.uint32, len(pairs)).view(np.float16)
    wanted = pairs.view(FORMATS[name][0]).astype(np.float16)
    assert np.isnan(wanted).any()
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(wanted))


def numbers(dtype: Any, most: float) -> Any:
    """Every code, what lies halfway between two and next to that, what overflows, and any bits."""
    kept = np.arange(256, dtype=np.uint8).view(dtype).astype(np.float32)
    kept = np.unique(kept[np.isfinite(kept)])
    middle = (kept[1:] + kept[:-1]) / 2
    exact = np.concatenate(
        [kept, middle, [most * 1.0625, most * 2, np.inf, -np.inf, np.nan, -np.nan, -0.0]]
    )
    exact = exact.astype(np.float32)
    near = [np.nextafter(exact, np.float32(s)) for s in (-np.inf, np.inf)]
    bits = np.random.default_rng(0).integers(0, 1 << 32, 20_000, np.uint64).astype(np.uint32)
    around = np.random.default_rng(1).standard_normal(20_000) * np.exp2(np.arange(20_000) % 40 - 20)
    found = np.concatenate([exact, *near, bits.view(np.float32), around.astype(np.float32)])
    return found[: len(found) // 2 * 2].astype(np.float32)


@pytest.mark.parametrize("name", FORMATS)
def test_numbers_round_to_nearest_even_and_to_finite(functions: Any, name: str) -> None:
    dtype, most = FORMATS[name]
    x = numbers(dtype, most)
    found = call(getattr(functions, f"narrow_{name}"), x, np.uint16, len(x) // 2).view(np.uint8)
    with np.errstate(all="ignore"):
        wanted = np.clip(x, -most, most).astype(dtype).view(np.uint8)
    np.testing.assert_array_equal(found, np.where(np.isnan(x), 0x7F, wanted))


@wl.jit
def casts(x_ptr: Any, y_ptr: Any, BLOCK: tl.constexpr) -> None:
    at = tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at).to(y_ptr.dtype.element_ty))


@pytest.mark.parametrize("narrow", ["fp8e4nv", "fp8e5"])
def test_they_compile_for_chips_without_the_instruction(narrow: str) -> None:
    for wide in ("fp32", "fp16", "bf16"):
        for pair in ((narrow, wide), (wide, narrow)):
            made = casts.compile([f"*{x}:16" for x in pair], {"BLOCK": 1024}, target="sm_80")
            assert made.resources.problems() == ()
            assert "e4m3x2" not in made.ptx and "e5m2x2" not in made.ptx
