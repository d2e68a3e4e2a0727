"""TILE texts of small kernels, as structure_access leaves them: boxes of views, scalar offsets."""

from __future__ import annotations

from dataclasses import dataclass

# ALIGNED: strides and bases that TMA takes.  ODD: nothing is known but that elements are whole.
ALIGNED, ODD, EIGHT = 16, 1, 4


@dataclass(frozen=True)
class View:
    """A row-major matrix parameter `name` with sizes and a row stride in elements, known to be a
    multiple of `stride_by` (the base then is aligned to as many bytes times the element's)."""

    name: str
    rows: str
    columns: str
    stride: str
    by: int = ALIGNED
    dtype: str = "bf16"
    transposed: bool = (
        False  # the view's axes are (columns, rows): the parameter is stored transposed
    )

    def text(self) -> str:
        size = {"bf16": 2, "f16": 2, "f32": 4, "f8e4m3": 1}[self.dtype]
        base = min(16, self.by * size)
        if self.transposed:
            sizes, strides = f"%{self.rows}64, %{self.columns}64", f"%one, %{self.stride}64"
            divisible = (base, 1, self.by)
        else:
            sizes, strides = f"%{self.rows}64, %{self.columns}64", f"%{self.stride}64, %one"
            divisible = (base, self.by, 1)
        return (
            f"  %{self.name}_view = make_view(%{self.name}, {sizes}, {strides}) "
            f"{{divisible={divisible}}} : view<2x{self.dtype}>"
        )


def function(name: str, views: list[View], scalars: tuple[str, ...], body: str) -> str:
    """A function with the views' pointers and i32 scalars as parameters; %c0, %c1, …: constants named
    c<number> that the body uses are declared."""
    params = [f"%{v.name}: ptr<{v.dtype}>" for v in views] + [f"%{s}: i32" for s in scalars]
    numbers = sorted({int(w[2:].rstrip("),:")) for w in _words(body) if _is_constant(w)} | {0, 1})
    lines = [f"func @{name}({', '.join(params)}) level=TILE {{"]
    lines += [f"  %c{n} = const() {{value={n}, dtype=i32}} : i32" for n in numbers]
    lines.append("  %one = const() {value=1, dtype=i64} : i64")
    lines.append("  %zero = const() {value=0.0, dtype=f32} : f32")
    lines += [f"  %{s}64 = cast(%{s}) {{dtype=i64}} : i64" for s in scalars]
    lines += [v.text() for v in views]
    return "\n".join([*lines, body.strip("\n"), "  yield()", "}"]) + "\n"


def _words(body: str) -> list[str]:
    return body.replace("(", " ").replace(",", " ").replace(")", " ").split()


def _is_constant(word: str) -> bool:
    return word.startswith("%c") and word[2:].isdigit()


def gemm(
    bm: int,
    bn: int,
    bk: int,
    a: View | None = None,
    b: View | None = None,
    c: View | None = None,
    persistent: bool = True,
) -> str:
    """C = A·B in tiles, row-major unless views say otherwise; scalars M, N, K, la, lb, lc."""
    a = a or View("a", "M", "K", "la")
    b = b or View("b", "K", "N", "lb")
    c = c or View("c", "M", "N", "lc")
    d, e = a.dtype, c.dtype
    cast = f"%out = cast(%sum) {{dtype={e}}} : tile<{bm}x{bn}x{e}>" if e != "f32" else ""
    out = "%out" if cast else "%sum"
    inner = f"""
    %tm = idiv(%t, %nt) : i32
    %tn = rem(%t, %nt) : i32
    %row = mul(%tm, %c{bm}) : i32
    %col = mul(%tn, %c{bn}) : i32
    %zeros = splat(%zero) {{shape=({bm}, {bn})}} : tile<{bm}x{bn}xf32>
    %sum = for(%c0, %steps, %c1, %zeros) : tile<{bm}x{bn}xf32> do (%k: i32, %acc: tile<{bm}x{bn}xf32>) {{
      %at = mul(%k, %c{bk}) : i32
      %x = load_box(%a_view, %row, %at) {{shape=({bm}, {bk})}} : tile<{bm}x{bk}x{d}>
      %y = load_box(%b_view, %at, %col) {{shape=({bk}, {bn})}} : tile<{bk}x{bn}x{d}>
      %next = dot(%x, %y, %acc) : tile<{bm}x{bn}xf32>
      yield(%next)
    }}
    {cast}
    store_box(%c_view, {out}, %row, %col)
"""
    loop = f"""
  %mu = add(%M, %c{bm - 1}) : i32
  %mt = idiv(%mu, %c{bm}) : i32
  %nu = add(%N, %c{bn - 1}) : i32
  %nt = idiv(%nu, %c{bn}) : i32
  %tiles = mul(%mt, %nt) : i32
  %ku = add(%K, %c{bk - 1}) : i32
  %steps = idiv(%ku, %c{bk}) : i32
  %first = program_id() {{axis=0}} : i32
"""
    if persistent:
        loop += f"""
  %programs = num_programs() {{axis=0}} : i32
  for(%first, %tiles, %programs) do (%t: i32) {{{inner}    yield()
  }}
"""
    else:
        loop += inner.replace("%t,", "%first,")
    return function("gemm", [a, b, c], ("M", "N", "K", "la", "lb", "lc"), loop)


TWO_DOTS = function(
    "gated",
    [
        View("a", "M", "K", "la"),
        View("b", "K", "N", "lb"),
        View("g", "K", "N", "lb"),
        View("c", "M", "N", "lc", dtype="f32"),
    ],
    ("M", "N", "K", "la", "lb", "lc"),
    """
  %p = program_id() {axis=0} : i32
  %row = mul(%p, %c128) : i32
  %ku = add(%K, %c63) : i32
  %steps = idiv(%ku, %c64) : i32
  %zeros = splat(%zero) {shape=(128, 64)} : tile<128x64xf32>
  %s, %r = for(%c0, %steps, %c1, %zeros, %zeros) : tile<128x64xf32>, tile<128x64xf32> do (%k: i32, %acc: tile<128x64xf32>, %gate: tile<128x64xf32>) {
    %at = mul(%k, %c64) : i32
    %x = load_box(%a_view, %row, %at) {shape=(128, 64)} : tile<128x64xbf16>
    %y = load_box(%b_view, %at, %c0) {shape=(64, 64)} : tile<64x64xbf16>
    %z = load_box(%g_view, %at, %c0) {shape=(64, 64)} : tile<64x64xbf16>
    %s1 = dot(%x, %y, %acc) : tile<128x64xf32>
    %r1 = dot(%x, %z, %gate) : tile<128x64xf32>
    yield(%s1, %r1)
  }
  %out = mul(%s, %r) : tile<128x64xf32>
  store_box(%c_view, %out, %row, %c0)
""",
)
"""(A·B)·(A·G) elementwise: two dots that share A, both accumulators carried."""


def guarded(load_inside: bool) -> str:
    """C = Σ over every other k step: a dot under an `if`, its loads inside or outside of it."""
    loads = """
      %x = load_box(%a_view, %row, %at) {shape=(64, 64)} : tile<64x64xbf16>
      %y = load_box(%b_view, %at, %c0) {shape=(64, 64)} : tile<64x64xbf16>
"""
    outside, inside = ("", loads) if load_inside else (loads, "")
    return function(
        "guarded",
        [
            View("a", "M", "K", "la"),
            View("b", "K", "N", "lb"),
            View("c", "M", "N", "lc", dtype="f32"),
        ],
        ("M", "N", "K", "la", "lb", "lc"),
        f"""
  %p = program_id() {{axis=0}} : i32
  %row = mul(%p, %c64) : i32
  %ku = add(%K, %c63) : i32
  %steps = idiv(%ku, %c64) : i32
  %zeros = splat(%zero) {{shape=(64, 64)}} : tile<64x64xf32>
  %sum = for(%c0, %steps, %c1, %zeros) : tile<64x64xf32> do (%k: i32, %acc: tile<64x64xf32>) {{
    %at = mul(%k, %c64) : i32
    %odd = rem(%k, %c2) : i32
    %even = eq(%odd, %c0) : i1
{outside}
    %next = if(%even) : tile<64x64xf32> do {{
{inside}
      %d = dot(%x, %y, %acc) : tile<64x64xf32>
      yield(%d)
    }} do {{
      yield(%acc)
    }}
    yield(%next)
  }}
  store_box(%c_view, %sum, %row, %c0)
""",
    )


ROW_SUMS = function(
    "row_sums",
    [
        View("a", "M", "K", "la"),
        View("b", "K", "N", "lb"),
        View("c", "M", "N", "lc", dtype="f32"),
    ],
    ("M", "N", "K", "la", "lb", "lc"),
    """
  %p = program_id() {axis=0} : i32
  %row = mul(%p, %c128) : i32
  %ku = add(%K, %c63) : i32
  %steps = idiv(%ku, %c64) : i32
  %zeros = splat(%zero) {shape=(128, 64)} : tile<128x64xf32>
  %none = splat(%zero) {shape=(128,)} : tile<128xf32>
  %s, %r = for(%c0, %steps, %c1, %zeros, %none) : tile<128x64xf32>, tile<128xf32> do (%k: i32, %acc: tile<128x64xf32>, %sums: tile<128xf32>) {
    %at = mul(%k, %c64) : i32
    %x = load_box(%a_view, %row, %at) {shape=(128, 64)} : tile<128x64xbf16>
    %y = load_box(%b_view, %at, %c0) {shape=(64, 64)} : tile<64x64xbf16>
    %s1 = dot(%x, %y, %acc) : tile<128x64xf32>
    %wide = cast(%x) {dtype=f32} : tile<128x64xf32>
    %part = reduce(%wide) {axis=1, fn="add"} : tile<128xf32>
    %r1 = add(%sums, %part) : tile<128xf32>
    yield(%s1, %r1)
  }
  %column = expand_dims(%r) {axis=1} : tile<128x1xf32>
  %same = broadcast(%column) {shape=(128, 64)} : tile<128x64xf32>
  %out = add(%s, %same) : tile<128x64xf32>
  store_box(%c_view, %out, %row, %c0)
""",
)
"""A·B plus A's row sums: a load that a dot and elementwise code use."""
