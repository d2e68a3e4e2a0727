"""Instructions whose text depends on shapes: made here as device functions, one generator each.

Everything of fixed form is in prelude/*.cuh.  Facts: PTX ISA, "wgmma.mma_async", "cp.async.bulk.tensor".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from warploom.errors import InternalError
from warploom.ir.ops.mma import only_k_major
from warploom.ir.types import DType, accumulator, f16

# Names of element types in PTX.
PTX_TYPES = {
    "f16": "f16", "bf16": "bf16", "f8e4m3": "e4m3", "f8e5m2": "e5m2", "f32": "tf32", "i8": "s8", "u8": "u8",
}  # fmt: skip
# Columns of a wgmma that multiplies integers (PTX ISA, "wgmma.mma_async": .shape of the integer type; that
# list ends at 224, ptxas takes 240 and 256, and their results are right on an H200).
INTEGER_N = (8, 16, 24, *range(32, 257, 16))


# What products are summed in: as PTX and C call it, and the constraint of an accumulator.
_SUMS = {
    "f64": ("f64", "double", "+d"),
    "f32": ("f32", "float", "+f"),
    "f16": ("f16", "u32", "+r"),
    "i32": ("s32", "int", "+r"),
}


@dataclass(frozen=True)
class Wgmma:
    """A chain of `steps` wgmma.mma_async m64nNk(32 bytes) on the same accumulators, f32 of floats and
    s32 of integers.  `a_registers`: A from registers.

    It is one asm statement: NVRTC takes its time for every operand of every statement, and the
    accumulators are up to 128 (with a statement a step, attention took half as long again to compile)."""

    n: int
    a: DType
    b: DType
    a_mn_major: bool
    b_mn_major: bool
    a_registers: bool
    steps: int

    @property
    def k(self) -> int:
        """Of one step."""
        return 32 // self.b.bytes

    @property
    def name(self) -> str:
        """The device function's: its operands' majorness as letters, k or m/n, r for registers."""
        a = "r" if self.a_registers else "m" if self.a_mn_major else "k"
        b = "n" if self.b_mn_major else "k"
        types = str(self.a) if self.a == self.b else f"{self.a}_{self.b}"
        chain = f"_x{self.steps}" if self.steps > 1 else ""
        return f"wgmma_m64n{self.n}k{self.k}_{types}_{a}{b}{chain}"

    def definitions(self) -> dict[str, str]:
        """By name: what stands for the accumulators in the text, and the device function
        (float* or int* d, int use_acc, and of each step A, u64 b), d's and A's registers in their
        fragments' order; use_acc is of the first step, the others add.

        Raises InternalError on operands that the instruction can't take."""
        if {self.a.name, self.b.name} - PTX_TYPES.keys() or self.n not in columns(self.b):
            raise InternalError(f"codegen: no wgmma is {self}")
        if only_k_major(self.b) and (self.a_mn_major or self.b_mn_major):
            raise InternalError(f"codegen: wgmma operands of {self.b} are K-major: {self}")
        # Only 16-bit types have immediates for the majorness (a register A none for itself), and only floats
        # for the sign.
        major = [] if only_k_major(self.b) else [int(self.b_mn_major)]
        if major and not self.a_registers:
            major.insert(0, int(self.a_mn_major))
        signs = [1, 1] if self.b.is_float else []
        immediates = "".join(f", {i}" for i in (*signs, *major))
        sums, c_type, tie = _SUMS[accumulator(self.b).name]
        shape = f"m64n{self.n}k{self.k}.{sums}.{PTX_TYPES[self.a.name]}.{PTX_TYPES[self.b.name]}"
        count = self.n // 2
        accumulators = f"ACCUMULATORS_{count}"
        parameters, given, steps = [], [], []
        at = count + 1  # operands are numbered: accumulators, use_acc, then step by step
        for step in range(self.steps):
            if self.a_registers:
                a = [(f"a{step}_{i}", "u32", "r") for i in range(4)]
                a_text = braces(f"%{at + i}" for i in range(4))
            else:
                a, a_text = [(f"a{step}", "u64", "l")], f"%{at}"
            operands = [*a, (f"b{step}", "u64", "l")]
            parameters.append(", ".join(f"{of} {name}" for name, of, _ in operands))
            given.append(", ".join(f'"{constraint}"({name})' for name, _, constraint in operands))
            at += len(operands)
            adds = "1" if step else "p"  # a number as well (PTX ISA, "Predicate Constants")
            steps.append(
                f'"wgmma.mma_async.sync.aligned.{shape} " {accumulators} '
                f'", {a_text}, %{at - 1}, {adds}{immediates};\\n"'
            )
        indent = " " * 15
        ties = rows([f'"{tie}"(d[{i}])' for i in range(count)], 8)
        function = [
            f"DEV void {self.name}({c_type}* d, int use_acc,",
            ",\n".join(f"    {row}" for row in parameters) + ") {",
            f'  asm volatile("{{ .reg .pred p; setp.ne.b32 p, %{count}, 0;\\n"',
            *(f"{indent}{text}" for text in steps),
            f'{indent}"}}"',
            *(f"{indent}{'  ' if i else ': '}{row}" for i, row in enumerate(ties)),
            f'{indent}: "r"(use_acc),',
            ",\n".join(f"{indent}  {row}" for row in given),
            f'{indent}: "memory");',
            "}",
        ]
        listed = " \\\n".join(f'  "{row}"' for row in rows([f"%{i}" for i in range(count)], 16))
        return {
            accumulators: f'#define {accumulators} "{{" \\\n{listed} "}}"',
            self.name: "\n".join(function),
        }


@dataclass(frozen=True)
class Mma:
    """mma.sync m16n8k(32 bytes) on registers in their fragments' order; it sums floats in f32 (f16 also in
    f16, two a register), integers in s32, f64 in f64 (PTX ISA, "Multiply-and-Accumulate Instruction: mma").
    halves: as two of m8n8, whose fragments have every second register of A, and one half of the
    accumulator's."""

    a: DType
    b: DType
    sums: DType
    halves: bool = False

    @property
    def k(self) -> int:
        return 32 // self.b.bytes

    @property
    def name(self) -> str:
        types = str(self.a) if self.a == self.b else f"{self.a}_{self.b}"
        return f"mma_m16n8k{self.k}_{types}{'_in_f16' * (self.sums == f16)}"

    @property
    def registers(self) -> tuple[int, int]:
        """Of A and of B: words, of f64 numbers."""
        return (2, 1) if self.b.bits == 64 else (4, 2)

    def elements(self, axis: int) -> int:
        """Of A (axis 0) or B that a thread holds."""
        return (16, 8)[axis] * self.k // 32

    def definition(self) -> str:
        """The device function (d, const a, const b): d ← a·b + d, of float, int or double d."""
        types = PTX_TYPES | {"f64": "f64"}
        if {self.a.name, self.b.name} - types.keys():
            raise InternalError(f"codegen: no mma.sync is {self}")
        of, constraint = ("double", "d") if self.b.bits == 64 else ("u32", "r")
        sums, c_type, tie = _SUMS[self.sums.name]
        (n_a, n_b), n_d = self.registers, 2 if self.sums == f16 else 4
        rows = 2 if self.halves else 1
        shape = f"m{16 // rows}n8k{self.k}.row.col.{sums}.{types[self.a.name]}.{types[self.b.name]}.{sums}"
        text = ""
        for i in range(rows):
            d, a, b = (
                braces(f"%{at}" for at in span)
                for span in (
                    range(n_d // rows * i, n_d // rows * (i + 1)),
                    range(n_d + i, n_d + n_a, rows),
                    range(n_d + n_a, n_d + n_a + n_b),
                )
            )
            text += f"{' ' if text else ''}mma.sync.aligned.{shape} {d}, {a}, {b}, {d};"
        given = ", ".join(
            f'"{constraint}"({name}[{i}])' for name, n in (("a", n_a), ("b", n_b)) for i in range(n)
        )
        ties = ", ".join(f'"{tie}"(d[{i}])' for i in range(n_d))
        return (
            f"DEV void {self.name}({c_type}* d, const {of}* a, const {of}* b) {{\n"
            f'  asm volatile("{text}"\n'
            f"               : {ties}\n"
            f"               : {given});\n}}"
        )


@dataclass(frozen=True)
class ScaledMma:
    """mma.sync m16n8k(32 bytes) with block scales: of 8-bit floats, or (u8) of e2m1, whose K is 64
    (PTX ISA, "mma", .block_scale; "Block Scaling for mma.sync", Table "Valid combinations")."""

    a: DType
    b: DType
    scale: DType

    k = 32  # bytes
    registers = (4, 2)

    def elements(self, axis: int) -> int:
        """Bytes of A (axis 0) or B that a thread holds."""
        return (16, 8)[axis]

    @property
    def groups(self) -> int:
        """Scales of a row that an instruction takes (.scale_vec)."""
        if self.a.is_float:
            return 1
        return 2 if self.scale.name == "u8" else 4

    @property
    def name(self) -> str:
        kind = "mxf8f6f4" if self.a.is_float else "mxf4nvf4" if self.groups == 4 else "mxf4"
        return f"mma_{kind}_{self.a}_{self.b}" if self.a.is_float else f"mma_{kind}"

    def definition(self) -> str:
        """The device function (d, const a, const b, scales of a, of b): d ← (a·sa)·(b·sb) + d.

        BYTE: the first of the bytes that hold the scales, in words of lanes 4g and 4g + 1 (A), 4g (B)."""
        kind = self.name.split("_")[1]
        types = [PTX_TYPES.get(t.name, "") if t.is_float else "e2m1" for t in (self.a, self.b)]
        stype = "ue8m0" if self.scale.name == "u8" else "ue4m3"
        k = 32 if self.a.is_float else 64
        text = (
            f"mma.sync.aligned.m16n8k{k}.row.col.kind::{kind}.block_scale.scale_vec::{self.groups}X"
            f".f32.{'.'.join(types)}.f32.{stype}"
        )
        d = "{%0, %1, %2, %3}"
        given = ", ".join(f'"r"({name}[{i}])' for name, n in (("a", 4), ("b", 2)) for i in range(n))
        return (
            "template <int BYTE>\n"
            f"DEV void {self.name}(float* d, const u32* a, const u32* b, u32 sa, u32 sb) {{\n"
            f'  asm volatile("{text} "\n'
            f'               "{d}, {{%4, %5, %6, %7}}, {{%8, %9}}, {d}, %10, {{%12, 0}}, %11, {{%12, 0}};"\n'
            '               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])\n'
            f'               : {given}, "r"(sa), "r"(sb), "n"(BYTE));\n}}'
        )


def in_part(
    form: Mma | ScaledMma, both_rows: bool, both_columns: bool, paired: bool
) -> tuple[str, str]:
    """(name, device function) of an instruction that a product fills in part: without the registers of rows
    g + 8, of A and d, or those of columns 2t + 1, of d, that nothing fills; or of one that takes K in pairs:
    A's registers of a row first (layout/fragments.py)."""
    name = f"{form.name}_{16 if both_rows else 8}x{8 if both_columns else 1}{'_paired' * paired}"
    scaled, of = isinstance(form, ScaledMma), "double" if form.b.bits == 64 else "u32"
    sums, columns = "float" if isinstance(form, ScaledMma) else _SUMS[form.sums.name][1], 2
    if sums == "u32":  # both columns in one
        columns = 1
        if not both_columns:
            raise InternalError(f"codegen: {form} of one column")
    own = [
        i for i in range(2 * columns) if (both_rows or i < columns) and (both_columns or i % 2 == 0)
    ]
    words = sorted(range(form.registers[0]), key=lambda i: i % 2 if paired else 0)
    given = [i for i in words if both_rows or i % 2 == 0]
    d, a = (
        ", ".join(f"{x}[{here.index(i)}]" if i in here else "0" for i in range(n))
        for x, here, n in (("d", own, 2 * columns), ("a", given, form.registers[0]))
    )
    back = " ".join(f"d[{at}] = all[{i}];" for at, i in enumerate(own))
    lead, byte = ("template <int BYTE>\n", "<BYTE>") if scaled else ("", "")
    declared, more = (", u32 sa, u32 sb", ", sa, sb") if scaled else ("", "")
    return name, (
        f"{lead}DEV void {name}({sums}* d, const {of}* a, const {of}* b{declared}) {{\n"
        f"  {sums} all[{2 * columns}] = {{{d}}};\n"
        f"  const {of} some[{form.registers[0]}] = {{{a}}};\n"
        f"  {form.name}{byte}(all, some, b{more});\n"
        f"  {back}\n}}"
    )


def columns(operands: DType) -> tuple[int, ...]:
    """How many columns a wgmma of such operands may have, ascending."""
    return tuple(range(8, 257, 8)) if operands.is_float else INTEGER_N


def tma_load(rank: int, multicast: bool = False, hinted: bool = False) -> tuple[str, str]:
    """(name, device function) of a TMA copy global → shared: (dst, map, coordinates innermost first, bar),
    with multicast the mask of CTAs, and where hinted the L2's policy."""
    at, declared, given = _coordinates(rank, first=2)
    name = f"tma_{'multicast' if multicast else 'load'}_{rank}d"
    to, more, parameters, passed = "", "", "", ""
    if multicast:
        to, more = ".multicast::cluster", f", %{rank + 3}"
        parameters, passed = ", u32 mask", ', "h"((unsigned short)mask)'
    if hinted:
        name, to = f"{name}_hinted", f"{to}.L2::cache_hint"
        more = f"{more}, %{rank + 3 + multicast}"
        parameters, passed = f"{parameters}, u64 policy", f'{passed}, "l"(policy)'
    text = (
        f"cp.async.bulk.tensor.{rank}d.shared::cluster.global.mbarrier::complete_tx::bytes{to}"
        f" [%0], [%1, {at}], [%{rank + 2}]{more};"
    )
    return name, (
        f"DEV void {name}(u32 dst, const TensorMap* map, {declared}, u32 bar{parameters}) {{\n"
        f'  asm volatile("{text}"\n'
        f'               :: "r"(dst), "l"(map), {given}, "r"(bar){passed} : "memory");\n}}'
    )


def tma_store(rank: int, reduce: str | None = None, hinted: bool = False) -> tuple[str, str]:
    """(name, device function) of a TMA copy shared → global, or of a reduction: (map, coordinates innermost
    first, src), and where hinted the L2's policy."""
    at, declared, given = _coordinates(rank, first=1)
    name = f"tma_{f'reduce_{reduce}' if reduce else 'store'}_{rank}d"
    copy = f"cp.{'reduce.' if reduce else ''}async.bulk.tensor.{rank}d.global.shared::cta"
    copy += f".{reduce}.tile.bulk_group" if reduce else ".bulk_group"
    more, parameters, passed = "", "", ""
    if hinted:
        name, copy, more = f"{name}_hinted", f"{copy}.L2::cache_hint", f", %{rank + 2}"
        parameters, passed = ", u64 policy", ', "l"(policy)'
    text = f"{copy} [%0, {at}], [%{rank + 1}]{more};"
    return name, (
        f"DEV void {name}(const TensorMap* map, {declared}, u32 src{parameters}) {{\n"
        f'  asm volatile("{text}"\n'
        f'               :: "l"(map), {given}, "r"(src){passed} : "memory");\n}}'
    )


def write_map(rank: int) -> tuple[str, str]:
    """(name, device function) that writes a TMA descriptor in global memory: (map, what to copy, base,
    extents innermost first, strides of all but the first in bytes).  The executing thread then copies by it.

    Extents beyond 32 bits are beyond coordinates, too.  Where one is 0, one element is in bounds: a zero."""
    name, axes = f"write_map_{rank}d", range(rank)
    extents = [f"n{i}" for i in axes]
    strides = [f"s{i}" for i in axes[1:]]
    declared = ", ".join(f"i64 {x}" for x in (*extents, *strides))

    def replace(field: str, value: str, bits: int, axis: str = "") -> str:
        text = f"tensormap.replace.tile.{field}.global.b1024.b{bits} [%0], {axis}%1;"
        kind = "l" if bits == 64 else "r"
        return f'  asm volatile("{text}" :: "l"(map), "{kind}"({value}) : "memory");'

    lines = [
        f"DEV void {name}(TensorMap* map, const TensorMap& like, const void* base, {declared}) {{",
        "  *map = like;",
        f"  if ({' || '.join(f'{x} < 1' for x in extents)}) {{",
        "    u64* zeros = (u64*)(map + 1);",
        "    zeros[0] = zeros[1] = 0;",
        '    asm volatile("fence.proxy.async.global;" ::: "memory");',
        "    base = zeros;",
        f"    {' = '.join(extents)} = 1;",
        *([f"    {' = '.join(strides)} = 16;"] if strides else []),
        "  }",
        replace("global_address", "base", 64),
        *(
            replace("global_dim", f"(u32)min({x}, 0xffffffffll)", 32, f"{i}, ")
            for i, x in enumerate(extents)
        ),
        *(replace("global_stride", x, 64, f"{i}, ") for i, x in enumerate(strides)),
        '  asm volatile("fence.proxy.tensormap::generic.release.gpu;" ::: "memory");',
        '  asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" :: "l"(map) : "memory");',
        "}",
    ]
    return name, "\n".join(lines)


def _coordinates(rank: int, first: int) -> tuple[str, str, str]:
    at = braces([f"%{first + i}" for i in range(rank)])
    declared = ", ".join(f"int c{i}" for i in range(rank))
    return at, declared, ", ".join(f'"r"(c{i})' for i in range(rank))


def braces(items: Iterable[str]) -> str:
    return "{" + ", ".join(items) + "}"


def rows(items: Sequence[str], width: int) -> list[str]:
    """The items joined by commas, `width` a row; every row but the last ends in a comma."""
    parts = [", ".join(items[i : i + width]) for i in range(0, len(items), width)]
    return [p + ("," if i < len(parts) - 1 else "") for i, p in enumerate(parts)]
