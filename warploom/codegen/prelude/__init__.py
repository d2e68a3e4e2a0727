"""The prelude: definitions written by hand, of which a source has those that it uses; what is taken.

Thin wrappers of PTX for the most part, by mechanism (the `.cuh` files).  Each paragraph is one definition,
but for the first of a file, which says what follows.  Facts: PTX ISA, the sections named after each
instruction.
"""

from __future__ import annotations

import re
from functools import cache
from itertools import chain
from pathlib import Path

from warploom.ir.analysis import closure

# What a definition uses stands before it.
_FILES = ("types", "barriers", "shared", "global", "numbers", "atomics")


@cache
def _paragraphs() -> tuple[tuple[str, str, str], ...]:
    """(section, name defined, text) of every definition."""
    texts = ((Path(__file__).parent / f"{file}.cuh").read_text() for file in _FILES)
    out = []
    for paragraph in chain.from_iterable(text.split("\n\n")[1:] for text in texts):
        paragraph = paragraph.strip("\n")
        code = "\n".join(x for x in paragraph.split("\n") if not x.startswith("//"))
        if code.startswith("typedef"):
            name = re.findall(r"\w+", code)[-1]
        elif code.startswith("struct"):
            name = re.findall(r"(\w+) \{", code)[0]
        elif code.startswith("#define"):
            name = "DEV"
        else:
            name = re.findall(r"(\w+)\(", code.replace("__align__(", ""))[0]
        section = "types" if code.startswith(("typedef", "struct")) else "functions"
        out.append((section, name, paragraph))
    return tuple(out)


@cache
def _uses() -> dict[str, frozenset[str]]:
    """Name of a definition -> all that its text uses, transitively, itself among them."""
    direct: dict[str, set[str]] = {}
    for _, name, text in _paragraphs():
        direct.setdefault(name, set()).update(_words(text))
    return {
        name: frozenset(closure([name], lambda n: direct.keys() & direct[n])) for name in direct
    }


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text))


def prelude(text: str) -> dict[str, list[str]]:
    """The definitions that `text` uses, transitively, in the prelude's order, by section."""
    uses = _uses()
    found = set().union(*(uses[name] for name in uses.keys() & _words(text)))
    sections: dict[str, list[str]] = {"types": [], "functions": []}
    for section, name, paragraph in _paragraphs():
        if name in found:
            sections[section].append(paragraph)
    return sections


# Names that the emitted source has already, beside the prelude's: C++'s words, CUDA's, the frame's, and those
# of a task's own variables, which would hide a variable of the program.
_TAKEN = """
alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t char8_t class
compl concept const const_cast consteval constexpr constinit continue co_await co_return co_yield decltype
default delete do double dynamic_cast else enum explicit export extern false float for friend goto if inline
int long mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected public register
reinterpret_cast requires return short signed sizeof static static_assert static_cast struct switch template
this thread_local throw true try typedef typeid typename union unsigned using virtual void volatile wchar_t
while xor xor_eq
blockDim blockIdx gridDim threadIdx abs min max printf
atomicAdd atomicMax atomicMin atomicAnd atomicOr atomicXor atomicExch atomicCAS
group warp_id smem memory i DEV THREADS
lane warp thread leader replica stamp_at
"""
# CUDA's functions on numbers, each for double and, with an f after it, for float (CUDA math API).
_MATH = """
acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh cospi cyl_bessel_i0 cyl_bessel_i1 erf erfc
erfcinv erfcx erfinv exp exp10 exp2 expm1 fabs fdim fdivide floor fma fmax fmin fmod frexp hypot ilogb j0 j1
jn ldexp lgamma llrint llround log log10 log1p log2 logb lrint lround modf nan nearbyint nextafter norm norm3d
norm4d normcdf normcdfinv pow rcbrt remainder remquo rhypot rint rnorm rnorm3d rnorm4d round rsqrt scalbln
scalbn sin sincos sincospi sinh sinpi sqrt tan tanh tgamma trunc y0 y1 yn
"""
RESERVED = frozenset(
    (
        *_TAKEN.split(),
        *(name + suffix for name in _MATH.split() for suffix in ("", "f")),
        *(name for _, name, _ in _paragraphs()),
    )
)
# What is at file scope beside that: a variable may hide it, a kernel can't have its name.
_FILE_SCOPE = """
main assert malloc free clock clock64 labs llabs umin umax llmin llmax ullmin ullmax
warpSize dim3 size_t ptrdiff_t nullptr_t std
"""
FILE_SCOPE = RESERVED | frozenset(_FILE_SCOPE.split())
