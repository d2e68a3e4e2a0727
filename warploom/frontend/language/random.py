"""Random numbers: Philox 4×32 and 4×64, which are counter-based: equal seeds and offsets give equal numbers,
on every machine, those of Triton.

Salmon, Moraes, Dror and Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011.
"""

from __future__ import annotations

from typing import Any

from warploom.frontend.coerce import Const, Operand, Tensor, calc, current, describe, static_int
from warploom.frontend.language.core import builtin
from warploom.frontend.language.math import cos, log, sin, sqrt, to, umulhi
from warploom.frontend.refuse import refuse
from warploom.ir.core import Value
from warploom.ir.ops import arith
from warploom.ir.types import DType, i32, i64, u32, u64

__all__ = [
    "pair_uniform_to_normal", "philox", "philox_impl", "rand", "rand4x", "randint", "randint4x", "randn",
    "randn4x", "uint_to_uniform_float",
]  # fmt: skip

ROUNDS = 10
Four = tuple[Tensor, Tensor, Tensor, Tensor]

# What a round multiplies by, and what is added to the key after it, by bits of a number.
_FACTORS = {32: (0xD2511F53, 0xCD9E8D57), 64: (0xD2E7470EE14C6C93, 0xCA5A826395121157)}
_STEPS = {32: (0x9E3779B9, 0xBB67AE85), 64: (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)}


def _bits(x: Operand, unsigned: DType) -> Value:
    """An integer's bits as an unsigned one."""
    emitter = current()
    if not isinstance(x, Value):
        return emitter.cast(x, unsigned)
    return x if emitter.number(x) == unsigned else emitter.emit(arith.bitcast, x, dtype=unsigned)


@builtin
def philox_impl(
    c0: Operand, c1: Operand, c2: Operand, c3: Operand, k0: Operand, k1: Operand,
    n_rounds: int = ROUNDS,
) -> Four:  # fmt: skip
    """So many rounds of Philox on four counters with two keys, all u32 or all u64."""
    d = current().number(c0)
    if d not in (u32, u64):
        refuse(
            "random",
            f"philox_impl of {describe(c0)}",
            "cast the counters to tl.uint32 or tl.uint64",
        )
    (a, b), (key_a, key_b) = (
        tuple(Const(x, d) for x in table[d.bits]) for table in (_FACTORS, _STEPS)
    )
    for _ in range(static_int(n_rounds, "the number of rounds")):
        high_b, low_b = umulhi(b, c2), calc("*", b, c2)
        high_a, low_a = umulhi(a, c0), calc("*", a, c0)
        c0 = calc("^", calc("^", high_b, c1), k0)
        c2 = calc("^", calc("^", high_a, c3), k1)
        c1, c3 = low_b, low_a
        k0, k1 = calc("+", k0, key_a), calc("+", k1, key_b)
    return c0, c1, c2, c3


@builtin
def philox(
    seed: Operand, c0: Operand, c1: Operand, c2: Operand, c3: Operand, n_rounds: int = ROUNDS
) -> Four:
    """Four random unsigned integers for each element of the counters, which have 32 or 64 bits."""
    emitter = current()
    wide, bits = emitter.cast(seed, u64), emitter.number(c0).bits
    if not emitter.number(seed).is_int or bits not in (32, 64):
        what = f"philox with seed {describe(seed)} and counter {describe(c0)}"
        refuse("random", what, "give an integer seed, and counters of 32 or 64 bits")
    d = u32 if bits == 32 else u64
    keys: tuple[Any, Any] = wide, Const(0, u64)
    if bits == 32:
        keys = emitter.cast(wide, u32), emitter.cast(calc(">>", wide, 32), u32)
    b0, b1, b2, b3 = (_bits(c, d) for c in (c0, c1, c2, c3))
    return philox_impl(b0, b1, b2, b3, *keys, n_rounds)


@builtin
def randint4x(seed: Operand, offset: Operand, n_rounds: int = ROUNDS) -> Four:
    """Four tiles of random u32 for a seed and a tile of integers."""
    emitter = current()
    if not emitter.number(offset).is_int:
        refuse("random", f"random numbers for {describe(offset)}", "give integer offsets")
    low = emitter.cast(offset, u32)
    zero = emitter.expand_to(emitter.const(0, u32), emitter.shape(low))
    wide = emitter.number(offset).bits > 32
    high = emitter.cast(calc(">>", offset, 32), u32) if wide else zero
    return philox(seed, low, high, zero, zero, n_rounds)


@builtin
def randint(seed: Operand, offset: Operand, n_rounds: int = ROUNDS) -> Tensor:
    """Random u32 for a seed and a tile of integers."""
    return randint4x(seed, offset, n_rounds)[0]


@builtin
def uint_to_uniform_float(x: Operand) -> Tensor:
    """Integers of 32 or 64 random bits as f32 in [0, 1)."""
    emitter = current()
    bits = emitter.number(x).bits
    if not emitter.number(x).is_int or bits not in (32, 64):
        refuse(
            "random", f"uint_to_uniform_float of {describe(x)}", "give integers of 32 or 64 bits"
        )
    signed, scale = (i32, 4.6566127342e-10) if bits == 32 else (i64, 1.0842020432385337e-19)
    v = to(x, signed, bitcast=True)
    folded = emitter.select(calc("<", v, 0), calc("-", calc("-", 0, v), 1), v)
    return calc("*", folded, scale)


@builtin
def rand(seed: Operand, offset: Operand, n_rounds: int = ROUNDS) -> Tensor:
    """Random f32, uniform in [0, 1)."""
    return uint_to_uniform_float(randint(seed, offset, n_rounds))


@builtin
def rand4x(seed: Operand, offsets: Operand, n_rounds: int = ROUNDS) -> Four:
    """Four tiles of random f32, uniform in [0, 1)."""
    a, b, c, d = map(uint_to_uniform_float, randint4x(seed, offsets, n_rounds))
    return a, b, c, d


@builtin
def pair_uniform_to_normal(u1: Operand, u2: Operand) -> tuple[Tensor, Tensor]:
    """Two f32 of the normal distribution for two of the uniform one (Box and Muller)."""
    emitter = current()
    least = emitter.emit(arith.maximum, *emitter.unify(u1, 1.0e-7))
    angle = calc("*", u2, 6.283185307179586)
    radius = sqrt(calc("*", log(least), -2.0))
    return calc("*", radius, cos(angle)), calc("*", radius, sin(angle))


@builtin
def randn(seed: Operand, offset: Operand, n_rounds: int = ROUNDS) -> Tensor:
    """Random f32 of the normal distribution."""
    a, b, _, _ = randint4x(seed, offset, n_rounds)
    return pair_uniform_to_normal(uint_to_uniform_float(a), uint_to_uniform_float(b))[0]


@builtin
def randn4x(seed: Operand, offset: Operand, n_rounds: int = ROUNDS) -> Four:
    """Four tiles of random f32 of the normal distribution."""
    a, b, c, d = rand4x(seed, offset, n_rounds)
    return *pair_uniform_to_normal(a, b), *pair_uniform_to_normal(c, d)
