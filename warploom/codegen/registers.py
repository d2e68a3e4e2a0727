"""Tiles as C: arrays of registers, and tiles as lists of their elements.

A tile in the emitted source is a list of elements, one a register of its layout.  An element is a place
in an array or (a splat) an expression, so that slices, transposes, broadcasts and free conversions are only
other lists and cost nothing.  Every index is a compile-time constant once loops are unrolled.

16- and 8-bit floats are packed in 32-bit words, as matrix instructions and wide memory accesses want
them, and computed with as `float`, or (sums, differences, products of 16-bit ones) a word at a time; every
other dtype has a C type of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from warploom.ir.types import DType, Pointer, f8e4m3, i1, u32

C_TYPES = {
    "i1": "bool", "i8": "signed char", "i16": "short", "i32": "int", "i64": "i64",
    "u8": "u8", "u16": "u16", "u32": "u32", "u64": "u64",
    "f16": "float", "bf16": "float", "f8e4m3": "float", "f8e5m2": "float", "f32": "float", "f64": "double",
}  # fmt: skip
# Of elements in memory.
MEMORY_TYPES = {**C_TYPES, "f16": "u16", "bf16": "u16", "f8e4m3": "u8", "f8e5m2": "u8"}


BYTES = f8e4m3  # stands for any 8-bit element where tiles are only moved: it is packed


def is_packed(elem: DType | Pointer) -> bool:
    """Kept packed in words: floats under 32 bits."""
    return isinstance(elem, DType) and elem.is_float and elem.bits < 32


def per_word(elem: DType | Pointer) -> int:
    """Elements of one array entry."""
    return 32 // elem.bits if isinstance(elem, DType) and is_packed(elem) else 1


def c_type(elem: DType | Pointer) -> str:
    """The C type of a scalar, or of an element being computed with."""
    return f"{MEMORY_TYPES[elem.dtype.name]}*" if isinstance(elem, Pointer) else C_TYPES[elem.name]


@dataclass(frozen=True)
class Array:
    """A declared array (or single variable, where count is 1) of `count` elements."""

    name: str
    elem: DType | Pointer
    count: int

    @property
    def words(self) -> int:
        return -(-self.count // per_word(self.elem))

    @property
    def declaration(self) -> str:
        kind = "u32" if is_packed(self.elem) else c_type(self.elem)
        return f"{kind} {self.name}[{self.words}]"

    @property
    def whole(self) -> Regs:
        return _whole(self)


@dataclass(frozen=True)
class Element:
    """Element `index` of an array, or (array None) the C expression `text`, of the type computed with."""

    array: Array | None
    index: int = 0
    text: str = ""


@dataclass(frozen=True)
class Regs:
    """A tile: one element a register of its layout."""

    elem: DType | Pointer
    elements: tuple[Element, ...]

    @property
    def array(self) -> Array | None:
        """The array that this tile is, where it is exactly one array in order."""
        first = self.elements[0].array
        return first if first is not None and self == first.whole else None

    def pick(self, registers: Sequence[int]) -> Regs:
        return Regs(self.elem, tuple(self.elements[r] for r in registers))


@lru_cache(1024)
def _whole(array: Array) -> Regs:
    """The same one for equal arrays: what is the same object need not be compared."""
    return Regs(array.elem, tuple(Element(array, i) for i in range(array.count)))


def splat(elem: DType | Pointer, text: str, count: int) -> Regs:
    return Regs(elem, (Element(None, 0, text),) * count)


def read(e: Element, elem: DType | Pointer, at: str | None = None) -> str:
    """An element's value in C.  `at`: the word's index as an expression (default: the constant)."""
    if e.array is None:
        return e.text
    n = per_word(elem)
    word = f"{e.array.name}[{e.index // n if at is None else at}]"
    if n == 1 or not isinstance(elem, DType):
        return word
    half = e.index % n
    if n == 2:
        return f"{elem.name}_{'hi' if half else 'lo'}({word})"
    return f"{elem.name}_at<{half}>({word})"


def pointed(pointers: Regs, masks: Regs | None, i: int) -> tuple[str, str]:
    """C for the pointer of the i-th element of an access, and for its mask ("": none)."""
    mask = read(masks.elements[i], masks.elem) if masks else ""
    return read(pointers.elements[i], pointers.elem), mask


def pack(elem: DType | Pointer, values: Sequence[str]) -> str:
    """One array entry from the values of its elements."""
    if not is_packed(elem):
        (value,) = values
        return value
    missing = per_word(elem) - len(values)
    return f"pack_{elem}({', '.join([*values, *['0.0f'] * missing])})"


def word(r: Regs, start: int) -> str:
    """32 bits that hold the elements from `start`, lowest first (dtypes of 1 to 4 bytes)."""
    elem = r.elem
    assert isinstance(elem, DType) and elem.bits <= 32
    n = 32 // elem.bits
    part = r.elements[start : start + n]
    if is_packed(elem):
        first = part[0]
        if first.array is not None and first.index % n + len(part) <= n:
            want = tuple(Element(first.array, first.index + i) for i in range(len(part)))
            if part == want:
                text = f"{first.array.name}[{first.index // n}]"
                shift = first.index % n * elem.bits
                return f"{text} >> {shift}" if shift else text
        return pack(elem, [read(e, elem) for e in part])
    if n == 1:
        value = read(part[0], elem)
        return f"float_bits({value})" if elem.is_float else f"(u32){value}"
    values = [f"(u32){read(e, elem)}" for e in part] + ["0u"] * (n - len(part))
    return f"join{elem.bits}({', '.join(values)})"


def itemsize(elem: DType | Pointer) -> int:
    return 8 if isinstance(elem, Pointer) else elem.bytes


def words_of(r: Regs, start: int, size: int) -> list[str]:
    """The `size` bytes of the elements from `start` as 32-bit words (the last one perhaps in part)."""
    item = itemsize(r.elem)
    if item == 8:
        out = []
        for i in range(size // 8):
            value = read(r.elements[start + i], r.elem)
            is_double = isinstance(r.elem, DType) and r.elem.is_float
            bits = f"(u64)__double_as_longlong({value})" if is_double else f"(u64){value}"
            out += [f"(u32){bits}", f"(u32)({bits} >> 32)"]
        return out
    n = 4 // item
    if size < 4:
        return [word(Regs(r.elem, r.elements[start : start + size // item]), 0)]
    return [word(r, start + n * i) for i in range(size // 4)]


def words(r: Regs) -> Regs:
    """A tile of packed floats as a tile of their words (u32)."""
    n = per_word(r.elem)
    found = []
    for start in range(0, len(r.elements), n):
        first = r.elements[start].array
        at = r.elements[start].index
        whole = tuple(Element(first, at + i) for i in range(len(r.elements[start : start + n])))
        if first is not None and at % n == 0 and r.elements[start : start + n] == whole:
            found.append(Element(Array(first.name, u32, first.words), at // n))
        else:
            found.append(Element(None, 0, word(r, start)))
    return Regs(u32, tuple(found))


def unword(elem: DType, value: str, half: int) -> str:
    """The `half`-th element of a 32-bit word, in the element's C type (not packed dtypes)."""
    if elem.bits == 32:
        if elem.is_float:
            return f"float_of({value})"
        return f"({C_TYPES[elem.name]}){value}"
    shifted = f"({value} >> {elem.bits * half})" if half else value
    if elem == i1:
        return f"(({shifted} & 0xffu) != 0)"
    return f"({C_TYPES[elem.name]}){shifted}"


# ---- loops over elements


@dataclass(frozen=True)
class Step:
    """A place in a loop over a tile's words: element j of the loop body's block."""

    element: Element  # in the first iteration
    stride: int  # array entries further each iteration

    def read(self, elem: DType | Pointer, loop: bool) -> str:
        if not loop or self.element.array is None:
            return read(self.element, elem)
        return read(self.element, elem, affine(self.element.index // per_word(elem), self.stride))


def affine(start: int, stride: int) -> str:
    """C for start + stride·i."""
    if stride == 0:
        return str(start)
    term = "i" if stride == 1 else f"{stride} * i"
    return term if start == 0 else f"{term} + {start}"


def blocks(dst: Array, sources: Sequence[Regs]) -> tuple[int, list[list[Step]], int] | None:
    """How a map over a tile becomes one loop: (elements of its body, for each source its steps, trips).

    The smallest body in which all indices advance evenly; None where there is no loop to gain.
    """
    count = dst.count
    least = max(per_word(t.elem) for t in (dst.whole, *sources))
    body = least
    while body * 2 <= count and body <= 16:
        if count % body == 0:
            steps = [_steps(s, body, count) for s in sources]
            if all(s is not None for s in steps):
                return body, [s for s in steps if s is not None], count // body
        body += least
    return None


def _steps(r: Regs, body: int, count: int) -> list[Step] | None:
    n = per_word(r.elem)
    out = []
    for j in range(body):
        column = r.elements[j:count:body]
        first = column[0]
        if first.array is None:
            if any(e != first for e in column):
                return None
            out.append(Step(first, 0))
            continue
        stride = column[1].index - first.index
        if stride % n or any(
            e.index != first.index + i * stride
            or (e.array is not first.array and e.array != first.array)
            for i, e in enumerate(column)
        ):
            return None
        out.append(Step(first, stride // n))
    return out


def map_lines(
    dst: Array, sources: Sequence[Regs], value: Callable[..., str]
) -> Iterator[tuple[int, str]]:
    """C lines (with extra indentation) of dst[e] = value(sources[0][e], …) for every element e.

    `dst` may be one of the sources' arrays only where that source is it, element for element.
    """
    n = per_word(dst.elem)
    plan = blocks(dst, sources)
    if plan is None:
        for w in range(dst.words):
            part = range(w * n, min((w + 1) * n, dst.count))
            values = [value(*(read(s.elements[e], s.elem) for s in sources)) for e in part]
            yield 0, f"{dst.name}[{w}] = {pack(dst.elem, values)};"
        return
    body, steps, trips = plan
    lines = []
    for w in range(body // n):
        part = range(w * n, (w + 1) * n)
        values = [
            value(*(s[j].read(r.elem, True) for s, r in zip(steps, sources, strict=True)))
            for j in part
        ]
        lines.append(f"{dst.name}[{affine(w, body // n)}] = {pack(dst.elem, values)};")
    yield 0, "#pragma unroll"
    if len(lines) == 1:
        yield 0, f"for (int i = 0; i < {trips}; ++i) {lines[0]}"
        return
    yield 0, f"for (int i = 0; i < {trips}; ++i) {{"
    for line in lines:
        yield 1, line
    yield 0, "}"
