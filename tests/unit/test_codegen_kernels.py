"""Every op kind as a small kernel that NVRTC compiles for sm_90a, without spills or advisories."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.pairwise import diagonals
from tests.unit.codegen_kernels import SIZES, built, emitted, kernel, through, view

INTS = ("i32", "u32", "i64", "u64", "i8", "u8", "i16", "u16")
FLOATS = ("f32", "f16", "bf16", "f64", "f8e4m3", "f8e5m2")
FUNCTIONS = (
    "neg", "abs", "exp", "exp2", "log", "log2", "sqrt", "rsqrt", "rcp", "sin", "cos", "tanh", "erf", "cbrt", "floor",
    "ceil",
)  # fmt: skip
RARE = (
    "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "exp10", "expm1", "log10", "log1p",
    "erfc", "lgamma", "tgamma", "trunc", "rint", "round", "erfinv", "erfcinv", "erfcx", "j0", "j1", "y0", "y1",
    "cyl_bessel_i0", "cyl_bessel_i1",
)  # fmt: skip
UNARY = {*FUNCTIONS, *RARE, "not"}
SMALL = "16x64"  # 8 elements for each of 128 threads
FEW = "16x16"  # 2: functions are inlined for each, in f64 for half a minute where there are 8


def check(text: str) -> str:
    """Compiles; gives the source."""
    b = built(text)
    assert b.problems() == ()
    return emitted(text).source


def chain(kinds: Sequence[str], dtype: str, shape: str = SMALL) -> str:
    """Each op on the result of the one before it and %x; the last one's is %y.  8 elements a thread: what is
    emitted for an element, or for a vector of them, is the same for more."""
    lines, last = [], "x"
    for i, kind in enumerate(kinds):
        name = "y" if i == len(kinds) - 1 else f"v_{kind}"
        operands = f"%{last}" if kind in UNARY else f"%{last}, %x"
        lines.append(f"    %{name} = {kind}({operands}) : tile<{shape}x{dtype}>")
        last = name
    return through("\n".join(lines), dtype=dtype, shape=shape)


@pytest.mark.parametrize("dtype", [*INTS, *FLOATS])
def test_arithmetic(dtype: str) -> None:
    check(chain(["add", "sub", "mul", "minimum", "maximum"], dtype))


@pytest.mark.parametrize("dtype", INTS)
def test_integers(dtype: str) -> None:
    check(chain(["idiv", "rem", "and", "or", "xor", "shl", "shr", "neg", "abs", "not"], dtype))


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "f64"])
def test_functions(dtype: str) -> None:
    b = built(
        chain([*FUNCTIONS, "div", "rem"], dtype, FEW)
    )  # sin and cos have a stack of their own
    assert b.advisories == ()


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_rare_functions(dtype: str) -> None:
    b = built(chain([*RARE, "pow", "atan2"], dtype, FEW))
    assert b.advisories == ()


def test_comparisons_and_select() -> None:
    lines, last = [], "x"
    for kind in ("lt", "le", "gt", "ge", "eq", "ne"):
        lines += [
            f"    %c_{kind} = {kind}(%{last}, %x) : tile<{SMALL}xi1>",
            f"    %n_{kind} = neg(%{last}) : tile<{SMALL}xf32>",
            f"    %{'y' if kind == 'ne' else kind} = select(%c_{kind}, %x, %n_{kind}) : tile<{SMALL}xf32>",
        ]
        last = kind
    check(through("\n".join(lines), shape=SMALL))


@pytest.mark.parametrize("source", ["i32", "u8", "i64", *FLOATS])
def test_casts(source: str) -> None:
    """To every other type, stored each."""
    targets = [to for to in ("i1", "i8", "i32", "u64", *FLOATS) if to != source]
    shape = f"{{shape=({', '.join(SMALL.split('x'))})}}"
    body = [f"    %x = load_box(%a_view, %c0, %c0) {shape} : tile<{SMALL}x{source}>"]
    for to in targets:
        body += [
            f"    %y_{to} = cast(%x) {{dtype={to}}} : tile<{SMALL}x{to}>",
            f"    store_box(%b_{to}_view, %y_{to}, %c0, %c0)",
        ]
    pointers = [f"%a: ptr<{source}>", *(f"%b_{to}: ptr<{to}>" for to in targets)]
    before = SIZES + view("a", source) + "".join(view(f"b_{to}", to) for to in targets)
    check(kernel(", ".join([*pointers, "%M: i32", "%N: i32"]), "\n".join(body), before=before))


@pytest.mark.parametrize(
    ("source", "to"),
    [("f32", "i32"), ("i32", "f32"), ("f16", "i16"), ("i16", "bf16"), ("bf16", "f16"), ("f64", "i64"),
     ("u64", "f64"), ("f8e4m3", "u8"), ("i8", "f8e5m2"), ("u32", "i32")],
)  # fmt: skip
def test_bitcasts(source: str, to: str) -> None:
    check(through(f"    %y = bitcast(%x) {{dtype={to}}} : tile<64x64x{to}>", dtype=source, out=to))


@pytest.mark.parametrize(
    ("shape", "dtype"),
    diagonals(2, ["64x64", "16x16", "7x5", "100x96", "1x256"], ["f32", "f16", "i8", "i64"]),
)
def test_shapes_that_fit_no_layout(shape: str, dtype: str) -> None:
    check(through(f"    %y = neg(%x) : tile<{shape}x{dtype}>", dtype=dtype, shape=shape))


def test_transpose_goes_through_scratch_with_barriers() -> None:
    source = check(
        through(
            """    %t = transpose(%x) {perm=(1, 0)} : tile<64x64xf16>
    %y = add(%x, %t) : tile<64x64xf16>""",
            dtype="f16",
        )
    )
    assert "MAIN_SCRATCH_AT" in source and source.count("__syncthreads();") == 1


def test_reshape() -> None:
    check(
        through(
            """    %flat = reshape(%x) {shape=(4096,)} : tile<4096xf32>
    %y = reshape(%flat) {shape=(32, 128)} : tile<32x128xf32>""",
            to="32x128",
        )
    )


@pytest.mark.parametrize("dtype", ["f32", "bf16", "i32", "f8e4m3", "f64"])
@pytest.mark.parametrize("axis", [0, 1])
def test_reductions(dtype: str, axis: int) -> None:
    rows, wide = ("32", "32x1") if axis else ("64", "1x64")
    lines, last = [], "x"
    for fn in ("add", "mul", "max", "min"):
        lines += [
            f'    %r_{fn} = reduce(%{last}) {{axis={axis}, fn="{fn}"}} : tile<{rows}x{dtype}>',
            f"    %e_{fn} = expand_dims(%r_{fn}) {{axis={axis}}} : tile<{wide}x{dtype}>",
            f"    %w_{fn} = broadcast(%e_{fn}) {{shape=(32, 64)}} : tile<32x64x{dtype}>",
            f"    %{'y' if fn == 'min' else fn} = add(%{last}, %w_{fn}) : tile<32x64x{dtype}>",
        ]
        last = fn
    check(through("\n".join(lines), dtype=dtype, shape="32x64"))


@pytest.mark.parametrize("fn", ["and", "or", "xor"])
def test_bitwise_reduction_of_an_overhanging_tile(fn: str) -> None:
    source = check(
        through(
            f"""    %r = reduce(%x) {{axis=1, fn="{fn}"}} : tile<9xi32>
    %e = expand_dims(%r) {{axis=1}} : tile<9x1xi32>
    %y = broadcast(%e) {{shape=(9, 20)}} : tile<9x20xi32>""",
            dtype="i32",
            shape="9x20",
        )
    )
    assert "__shfl_xor_sync" in source


def test_reduction_to_a_scalar() -> None:
    source = check(
        through(
            """    %flat = reshape(%x) {shape=(4096,)} : tile<4096xf32>
    %s = reduce(%flat) {axis=0, fn="add"} : f32
    %t = splat(%s) {shape=(64, 64)} : tile<64x64xf32>
    %y = add(%x, %t) : tile<64x64xf32>"""
        )
    )
    assert "store_shared32" in source


def test_arange_and_scalars() -> None:
    check(
        through(
            """    %r = arange() {start=3, end=67} : tile<64xi32>
    %e = expand_dims(%r) {axis=0} : tile<1x64xi32>
    %wide = broadcast(%e) {shape=(64, 64)} : tile<64x64xi32>
    %m = splat(%M) {shape=(64, 64)} : tile<64x64xi32>
    %s = mul(%wide, %m) : tile<64x64xi32>
    %y = add(%s, %x) : tile<64x64xi32>""",
            dtype="i32",
        )
    )


POINTERS = """    %r = arange() {{start=0, end=256}} : tile<256xi32>
    %base = splat(%a) {{shape=(256,)}} : tile<256xptr<{0}>>
    %p = addptr(%base, %r) : tile<256xptr<{0}>>
    %n = splat(%M) {{shape=(256,)}} : tile<256xi32>
    %mask = lt(%r, %n) : tile<256xi1>
"""


@pytest.mark.parametrize("dtype", ["f32", "bf16", "u8", "i64", "f64", "f8e5m2", "i1"])
@pytest.mark.parametrize("volatile", ["", "volatile=true"])
def test_loads_and_stores_by_pointers(dtype: str, volatile: str) -> None:
    attrs = f" {{{volatile}}}" if volatile else ""
    check(
        kernel(
            f"%a: ptr<{dtype}>, %M: i32",
            POINTERS.format(dtype)
            + f"""    %v = load(%p, %mask){attrs} : tile<256x{dtype}>
    %w = load(%p, %mask, %v) : tile<256x{dtype}>
    %s = load(%a) : {dtype}
    store(%p, %w, %mask)
    store(%a, %s)""",
        )
    )


@pytest.mark.parametrize(
    ("dtype", "fns"),
    [(d, "add max min and or xor xchg") for d in ("i32", "u32", "i64", "u64")]
    + [("f32", "add max min xchg"), ("f64", "add"), ("f16", "add"), ("bf16", "add")],
)
def test_atomics(dtype: str, fns: str) -> None:
    body = POINTERS.format(dtype) + f"    %s = load(%a) : {dtype}\n"
    for fn in fns.split():
        body += f"""    %v_{fn} = load(%p, %mask) : tile<256x{dtype}>
    %old_{fn} = atomic(%p, %v_{fn}, %mask) {{fn="{fn}"}} : tile<256x{dtype}>
    %unused_{fn} = atomic(%a, %s) {{fn="{fn}"}} : {dtype}
    store(%p, %old_{fn})
"""
    check(kernel(f"%a: ptr<{dtype}>, %M: i32", body))


def test_shared_memory_round_trips() -> None:
    for dtype, shape, swizzle in (("bf16", "64x64", 128), ("f32", "64x32", 128), ("f16", "64x96", 64),
                                  ("u8", "64x32", 32), ("i64", "32x20", 0), ("f8e4m3", "128x128", 128)):  # fmt: skip
        dims = ", ".join(shape.split("x"))
        before = SIZES + view("a", dtype) + view("b", dtype)
        slot = f"shared<[2]{shape}x{dtype}, inner=1, swizzle={swizzle}>"
        one = f"shared<{shape}x{dtype}, inner=1, swizzle={swizzle}>"
        alloc = (
            f'{{name="s", lead=(2,), shape=({dims}), dtype={dtype}, inner=1, swizzle={swizzle}}}'
        )
        check(
            kernel(
                f"%a: ptr<{dtype}>, %b: ptr<{dtype}>, %M: i32, %N: i32",
                f"""    %x = load_box(%a_view, %c0, %c0) {{shape=({dims})}} : tile<{shape}x{dtype}>
    %at = shared_slot(%s, %M) : {one}
    shared_store(%at, %x)
    group_sync() {{scope="replica"}}
    %y = shared_load(%at) : tile<{shape}x{dtype}>
    store_box(%b_view, %y, %c0, %c0)""",
                before=before + f"  %s = shared_alloc() {alloc} : {slot}\n",
            )
        )


def test_control_flow() -> None:
    source = check(
        through(
            """    %limit = cast(%M) {dtype=i32} : i32
    %w, %n = while(%x, %c0) : tile<64x64xf32>, i32 do (%v: tile<64x64xf32>, %i: i32) {
      %go = lt(%i, %limit) : i1
      yield(%go, %v, %i)
    } do (%v2: tile<64x64xf32>, %i2: i32) {
      %d = add(%v2, %v2) : tile<64x64xf32>
      %next = add(%i2, %c1) : i32
      yield(%d, %next)
    }
    %big = gt(%n, %c1) : i1
    %y = if(%big) : tile<64x64xf32> do {
      %m = neg(%w) : tile<64x64xf32>
      yield(%m)
    } do {
      yield(%w)
    }
    assume(%big)
    device_assert(%big) {message="100% \\"sure\\""}
    device_print(%n, %y) {prefix="values "}"""
        )
    )
    # One array for the loop's tile, before, in and after it, and in the arms of the if.
    assert source.count("[32];") == 1


def test_swapped_carries_keep_their_old_values() -> None:
    source = check(
        through(
            """    %z = neg(%x) : tile<64x64xf32>
    %p, %q = for(%c0, %M, %c1, %x, %z) : tile<64x64xf32>, tile<64x64xf32> do (%i: i32, %u: tile<64x64xf32>, %v: tile<64x64xf32>) {
      yield(%v, %u)
    }
    %y = sub(%p, %q) : tile<64x64xf32>"""
        )
    )
    assert "kept" in source


def test_unused_scalars_and_host_values_are_not_emitted() -> None:
    source = check(
        kernel(
            "%a: ptr<f32>, %M: i32, %unused: i32",
            """    %dead = mul(%M, %M) : i32
    %v = load(%a) : f32
    store(%a, %v)""",
        )
    )
    assert "dead" not in source and "unused" not in source and "int M" not in source


@pytest.mark.parametrize(("exchanges", "barriers"), [(False, 2), (True, 5)])
def test_exchanges_take_turns_in_halves_of_the_scratch(exchanges: bool, barriers: int) -> None:
    """One barrier each, behind a loop too; but a loop may come back to where somebody still reads."""

    def across(source: str, fn: str, to: str) -> str:
        return f"""      %{to}0 = reduce(%{source}) {{axis=0, fn="{fn}"}} : tile<64xf32>
      %{to}1 = expand_dims(%{to}0) {{axis=0}} : tile<1x64xf32>
      %{to} = broadcast(%{to}1) {{shape=(64, 64)}} : tile<64x64xf32>
"""

    source = check(
        through(
            f"""{across("x", "max", "g")}
    %p = for(%c0, %M, %c1, %g) : tile<64x64xf32> do (%i: i32, %u: tile<64x64xf32>) {{
{across("u", "add", "w") if exchanges else ""}
      %v = mul({"%w" if exchanges else "%u"}, %x) : tile<64x64xf32>
      yield(%v)
    }}
{across("p", "min", "y")}"""
        )
    )
    assert source.count("__syncthreads();") == barriers


@pytest.mark.parametrize(
    ("at", "asked"),
    [
        ("%c0", False),
        ("%program", False),
        ("%rows", False),
        ("%M", True),
        ("%back", True),
        ("%narrowed", True),  # of 2^31 rows and more the sign is another
        ("%narrow_sum", True),
    ],
)
def test_what_cannot_lie_before_an_array_is_not_tested_for_it(at: str, asked: bool) -> None:
    before = SIZES + "  %program = program_id() {axis=0} : i32\n"
    before += "  %size = const() {value=64, dtype=i32} : i32\n"
    before += "  %rows = mul(%program, %size) : i32\n  %back = sub(%program, %size) : i32\n"
    before += "  %wide = cast(%rows) {dtype=i64} : i64\n  %many = mul(%wide, %wide) : i64\n"
    before += "  %narrowed = cast(%many) {dtype=i32} : i32\n"
    before += "  %byte = const() {value=100, dtype=i8} : i8\n  %bytes = add(%byte, %byte) : i8\n"
    before += "  %narrow_sum = cast(%bytes) {dtype=i32} : i32\n"
    before += view("a", "f32") + view("b", "f32")
    body = f"""    %x = load_box(%a_view, {at}, %c0) {{shape=(64, 64)}} : tile<64x64xf32>
    store_box(%b_view, %x, %c0, %c0)"""
    source = check(kernel("%a: ptr<f32>, %b: ptr<f32>, %M: i32, %N: i32", body, before=before))
    assert ("elements_before(" in source) == asked


def test_what_is_left_of_an_extent_does_not_overflow() -> None:
    """An offset near 2^31 plus the thread's own would be more than an int holds."""
    before = (
        SIZES + "  %program = program_id() {axis=0} : i32\n" + view("a", "f32") + view("b", "f32")
    )
    body = """    %x = load_box(%a_view, %program, %c0) {shape=(64, 64)} : tile<64x64xf32>
    store_box(%b_view, %x, %c0, %c0)"""
    source = check(kernel("%a: ptr<f32>, %b: ptr<f32>, %M: i32, %N: i32", body, before=before))
    assert "const int left = M - program - at0;" in source
