"""TILE texts of small kernels, as recover_boxes leaves them: boxes of views, scalar offsets."""

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
        size = {"bf16": 2, "f16": 2, "f32": 4, "f8e4m3": 1, "i8": 1}[self.dtype]
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


def attention(outer: str = "for") -> str:
    """The shape of attention without its exponentials: per tile of q, over tiles of k and v,
    acc = acc · 1/2 + max(q·kᵀ, 0) · v, and the running row maximum is added in the end.

    `outer`: how a program walks over its tiles of q, by 'for' or by 'while'."""
    if outer == "for":
        head, tail = "for(%first, %tiles, %programs) do (%t: i32) {", "    yield()\n  }"
    else:
        head = (
            "while(%first) : i32 do (%u: i32) {\n    %go = lt(%u, %tiles) : i1\n    yield(%go, %u)\n"
            "  } do (%t: i32) {"
        )
        tail = "    %later = add(%t, %programs) : i32\n    yield(%later)\n  }"
        head = f"%ended = {head}"
    return function(
        "attention",
        [
            View("q", "M", "D", "ld"),
            View("k", "D", "N", "ld", transposed=True),
            View("v", "N", "D", "ld"),
            View("c", "M", "D", "ld", dtype="f32"),
        ],
        ("M", "N", "D", "ld"),
        f"""
  %mu = add(%M, %c127) : i32
  %tiles = idiv(%mu, %c128) : i32
  %nu = add(%N, %c63) : i32
  %steps = idiv(%nu, %c64) : i32
  %first = program_id() {{axis=0}} : i32
  %programs = num_programs() {{axis=0}} : i32
  %half = const() {{value=0.5, dtype=f32}} : f32
  {head}
    %row = mul(%t, %c128) : i32
    %qt = load_box(%q_view, %row, %c0) {{shape=(128, 64)}} : tile<128x64xbf16>
    %zeros = splat(%zero) {{shape=(128, 64)}} : tile<128x64xf32>
    %none = splat(%zero) {{shape=(128,)}} : tile<128xf32>
    %halves = splat(%half) {{shape=(128, 64)}} : tile<128x64xf32>
    %sum, %top = for(%c0, %steps, %c1, %zeros, %none) : tile<128x64xf32>, tile<128xf32> do (%j: i32, %acc: tile<128x64xf32>, %m: tile<128xf32>) {{
      %at = mul(%j, %c64) : i32
      %kt = load_box(%k_view, %c0, %at) {{shape=(64, 64)}} : tile<64x64xbf16>
      %s = dot(%qt, %kt, %zeros) : tile<128x64xf32>
      %best = reduce(%s) {{axis=1, fn="max"}} : tile<128xf32>
      %m1 = maximum(%m, %best) : tile<128xf32>
      %p = maximum(%s, %zeros) : tile<128x64xf32>
      %pb = cast(%p) {{dtype=bf16}} : tile<128x64xbf16>
      %vt = load_box(%v_view, %at, %c0) {{shape=(64, 64)}} : tile<64x64xbf16>
      %less = mul(%acc, %halves) : tile<128x64xf32>
      %next = dot(%pb, %vt, %less) : tile<128x64xf32>
      yield(%next, %m1)
    }}
    %column = expand_dims(%top) {{axis=1}} : tile<128x1xf32>
    %same = broadcast(%column) {{shape=(128, 64)}} : tile<128x64xf32>
    %out = add(%sum, %same) : tile<128x64xf32>
    store_box(%c_view, %out, %row, %c0)
{tail}
""",
    )


SCALED = function(
    "scaled",
    [
        View("a", "M", "K", "la"),
        View("b", "K", "N", "lb", dtype="i8"),
        View("c", "M", "N", "lc", dtype="f32"),
    ],
    ("M", "N", "K", "la", "lb", "lc"),
    """
  %p = program_id() {axis=0} : i32
  %row = mul(%p, %c128) : i32
  %ku = add(%K, %c63) : i32
  %steps = idiv(%ku, %c64) : i32
  %two = const() {value=2.0, dtype=f32} : f32
  %twos = splat(%two) {shape=(128, 64)} : tile<128x64xf32>
  %zeros = splat(%zero) {shape=(128, 64)} : tile<128x64xf32>
  %s = for(%c0, %steps, %c1, %zeros) : tile<128x64xf32> do (%k: i32, %acc: tile<128x64xf32>) {
    %at = mul(%k, %c64) : i32
    %x = load_box(%a_view, %row, %at) {shape=(128, 64)} : tile<128x64xbf16>
    %y = load_box(%b_view, %at, %c0) {shape=(64, 64)} : tile<64x64xi8>
    %wide = cast(%x) {dtype=f32} : tile<128x64xf32>
    %more = mul(%wide, %twos) : tile<128x64xf32>
    %xs = cast(%more) {dtype=bf16} : tile<128x64xbf16>
    %ys = cast(%y) {dtype=bf16} : tile<64x64xbf16>
    %s1 = dot(%xs, %ys, %acc) : tile<128x64xf32>
    yield(%s1)
  }
  store_box(%c_view, %s, %row, %c0)
""",
)
"""(2·A)·B with B in 8-bit integers: both operands of the dot are computed in registers."""


GATHERED = """
func @gathered(%a: ptr<bf16>, %rows: ptr<i32>, %b: ptr<bf16>, %c: ptr<f32>, %K: i32) level=TILE {
  %c0 = const() {value=0, dtype=i32} : i32
  %c1 = const() {value=1, dtype=i32} : i32
  %c63 = const() {value=63, dtype=i32} : i32
  %c64 = const() {value=64, dtype=i32} : i32
  %zero = const() {value=0.0, dtype=f32} : f32
  %three = const() {value=3.0, dtype=bf16} : bf16
  %ku = add(%K, %c63) : i32
  %steps = idiv(%ku, %c64) : i32
  %i = arange() {start=0, end=128} : tile<128xi32>
  %rows_at = splat(%rows) {shape=(128,)} : tile<128xptr<i32>>
  %row_ptrs = addptr(%rows_at, %i) : tile<128xptr<i32>>
  %row = load(%row_ptrs) : tile<128xi32>
  %Ks = splat(%K) {shape=(128,)} : tile<128xi32>
  %starts = mul(%row, %Ks) : tile<128xi32>
  %startc = expand_dims(%starts) {axis=1} : tile<128x1xi32>
  %startw = broadcast(%startc) {shape=(128, 64)} : tile<128x64xi32>
  %j = arange() {start=0, end=64} : tile<64xi32>
  %jr = expand_dims(%j) {axis=0} : tile<1x64xi32>
  %jw = broadcast(%jr) {shape=(128, 64)} : tile<128x64xi32>
  %jk = expand_dims(%j) {axis=1} : tile<64x1xi32>
  %jkw = broadcast(%jk) {shape=(64, 64)} : tile<64x64xi32>
  %jn = expand_dims(%j) {axis=0} : tile<1x64xi32>
  %jnw = broadcast(%jn) {shape=(64, 64)} : tile<64x64xi32>
  %limit = splat(%K) {shape=(128, 64)} : tile<128x64xi32>
  %limit_k = splat(%K) {shape=(64, 64)} : tile<64x64xi32>
  %width = splat(%c64) {shape=(64, 64)} : tile<64x64xi32>
  %others = splat(%three) {shape=(128, 64)} : tile<128x64xbf16>
  %a_at = splat(%a) {shape=(128, 64)} : tile<128x64xptr<bf16>>
  %b_at = splat(%b) {shape=(64, 64)} : tile<64x64xptr<bf16>>
  %zeros = splat(%zero) {shape=(128, 64)} : tile<128x64xf32>
  %s = for(%c0, %steps, %c1, %zeros) : tile<128x64xf32> do (%k: i32, %acc: tile<128x64xf32>) {
    %at = mul(%k, %c64) : i32
    %atw = splat(%at) {shape=(128, 64)} : tile<128x64xi32>
    %col = add(%atw, %jw) : tile<128x64xi32>
    %off = add(%startw, %col) : tile<128x64xi32>
    %ap = addptr(%a_at, %off) : tile<128x64xptr<bf16>>
    %am = lt(%col, %limit) : tile<128x64xi1>
    %x = load(%ap, %am, %others) : tile<128x64xbf16>
    %atk = splat(%at) {shape=(64, 64)} : tile<64x64xi32>
    %kk = add(%atk, %jkw) : tile<64x64xi32>
    %line = mul(%kk, %width) : tile<64x64xi32>
    %boff = add(%line, %jnw) : tile<64x64xi32>
    %bp = addptr(%b_at, %boff) : tile<64x64xptr<bf16>>
    %bm = lt(%kk, %limit_k) : tile<64x64xi1>
    %y = load(%bp, %bm) : tile<64x64xbf16>
    %s1 = dot(%x, %y, %acc) : tile<128x64xf32>
    yield(%s1)
  }
  %iw = expand_dims(%i) {axis=1} : tile<128x1xi32>
  %iww = broadcast(%iw) {shape=(128, 64)} : tile<128x64xi32>
  %cw = splat(%c64) {shape=(128, 64)} : tile<128x64xi32>
  %crow = mul(%iww, %cw) : tile<128x64xi32>
  %coff = add(%crow, %jw) : tile<128x64xi32>
  %c_at = splat(%c) {shape=(128, 64)} : tile<128x64xptr<f32>>
  %cp = addptr(%c_at, %coff) : tile<128x64xptr<f32>>
  %old = atomic(%cp, %s) {fn="add"} : tile<128x64xf32>
  yield()
}
"""
"""Rows of A by an index list, masked with 3 instead of 0, all by pointers; the result is added atomically."""
