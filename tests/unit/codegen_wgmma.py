"""WARP text of one tile product, in every form that wgmma takes: operands' majorness, swizzles, sources."""

from __future__ import annotations

from dataclasses import dataclass

from tests.unit.codegen_kernels import kernel


@dataclass(frozen=True)
class Product:
    """c[m, n] = a[m, k]·b[k, n] by one warp group.

    a: 'k' or 'm' (major, in shared memory) or 'r' (registers); b: 'k' or 'n'; fill: how shared memory
    gets its bytes: 'tma', 'store' or 'cp_async'.
    """

    m: int
    n: int
    k: int
    dtype: str = "bf16"
    b_dtype: str = ""
    a: str = "k"
    b: str = "k"
    a_swizzle: int = 128
    b_swizzle: int = 128
    fill: str = "tma"

    def __str__(self) -> str:
        return f"{self.m}x{self.n}x{self.k}-{self.dtype}-{self.a}{self.a_swizzle}-{self.b}{self.b_swizzle}-{self.fill}"

    @property
    def text(self) -> str:
        b_dtype = self.b_dtype or self.dtype
        a_inner, b_inner = int(self.a != "m"), int(self.b == "n")
        item = 1 if self.dtype.startswith("f8") else 2
        before, body = _CONSTANTS, ""
        for name, dtype, shape, inner, swizzle in (
            ("a", self.dtype, (self.m, self.k), a_inner, self.a_swizzle),
            ("b", b_dtype, (self.k, self.n), b_inner, self.b_swizzle),
        ):
            rows, cols = shape
            strides = ("%one64", f"%i64_{rows}") if inner == 0 else (f"%i64_{cols}", "%one64")
            dims = f"{rows}x{cols}"
            slot = f"{dims}x{dtype}, inner={inner}, swizzle={swizzle}"
            for n in shape:
                line = f"  %i64_{n} = const() {{value={n}, dtype=i64}} : i64\n"
                before += line if line not in before else ""
            before += (
                f"  %{name}_view = make_view(%{name}, %i64_{rows}, %i64_{cols}, {', '.join(strides)})"
                f" {{divisible=(16, 16, 16)}} : view<2x{dtype}>\n"
                f'  %{name}_smem = shared_alloc() {{name="{name}", lead=(1,), shape={shape}, dtype={dtype},'
                f" inner={inner}, swizzle={swizzle}}} : shared<[1]{slot}>\n"
            )
            body += f"    %{name}_slot = shared_slot(%{name}_smem, %c0) : shared<{slot}>\n"
            if self.fill == "tma":
                before += (
                    f"  %{name}_map = tensor_map(%{name}_view) {{box={shape}, inner={inner},"
                    f" swizzle={swizzle}}} : tensormap<{slot}>\n"
                )
        before += (
            f"  %c_view = make_view(%c, %i64_{self.m}, %i64_{self.n}, %i64_{self.n}, %one64)"
            " {divisible=(16, 8, 1)} : view<2xf32>\n"
            '  %full = mbarrier_alloc() {name="full", n=1, count=1} : mbarriers<1>\n'
        )
        size = item * self.k * (self.m + self.n)
        if self.fill == "tma":
            body += f"""    elect() do {{
      mbarrier_expect(%full, %c0) {{bytes={size}}}
      tma_load(%a_map, %a_slot, %full, %c0, %c0, %c0)
      tma_load(%b_map, %b_slot, %full, %c0, %c0, %c0)
      yield()
    }}
    mbarrier_wait(%full, %c0, %c0)
"""
        elif self.fill == "cp_async":
            before = before.replace("n=1, count=1}", "n=1, count=128}")
            body += """    cp_async(%a_view, %a_slot, %c0, %c0) {bytes=16}
    cp_async(%b_view, %b_slot, %c0, %c0) {bytes=16}
    cp_async_arrive(%full, %c0)
    mbarrier_wait(%full, %c0, %c0)
    fence_async()
    group_sync() {scope="replica"}
"""
        else:
            a, b = f"{self.m}x{self.k}x{self.dtype}", f"{self.k}x{self.n}x{b_dtype}"
            body += f"""    %a_tile = load_box(%a_view, %c0, %c0) {{shape=({self.m}, {self.k})}} : tile<{a}>
    %b_tile = load_box(%b_view, %c0, %c0) {{shape=({self.k}, {self.n})}} : tile<{b}>
    shared_store(%a_slot, %a_tile)
    shared_store(%b_slot, %b_tile)
    fence_async()
    group_sync() {{scope="replica"}}
"""
        operand = "%a_slot"
        if self.a == "r":
            operand = "%a_regs"
            body += f"    %a_regs = shared_load(%a_slot) : tile<{self.m}x{self.k}x{self.dtype}>\n"
        acc = f"tile<{self.m}x{self.n}xf32>"
        body += f"""    %start = no_acc() {{shape=({self.m}, {self.n})}} : inflight<{acc}>
    wgmma_fence()
    %acc = wgmma({operand}, %b_slot, %start, %no) : inflight<{acc}>
    wgmma_commit()
    %sum = wgmma_wait(%acc) {{pending=0}} : {acc}
    store_box(%c_view, %sum, %c0, %c0)"""
        params = f"%a: ptr<{self.dtype}>, %b: ptr<{b_dtype}>, %c: ptr<f32>"
        return kernel(params, body, before=before)


_CONSTANTS = """  %c0 = const() {value=0, dtype=i32} : i32
  %no = const() {value=false, dtype=i1} : i1
  %one64 = const() {value=1, dtype=i64} : i64
"""

PRODUCTS = (
    *(Product(64, n, 64) for n in (8, 16, 24, 64, 96, 112, 176, 192, 256)),
    *(Product(64, 64, 64, dtype=d) for d in ("f16", "bf16")),
    *(Product(64, 64, 128, dtype=d) for d in ("f8e4m3", "f8e5m2")),
    Product(64, 64, 128, dtype="f8e4m3", b_dtype="f8e5m2"),
    *(Product(64, 64, 128, a_swizzle=s, b_swizzle=t) for s in (128, 64, 32) for t in (128, 64, 32)),
    *(
        Product(64, 128, 64, a=a, b=b, a_swizzle=s, b_swizzle=s)
        for a in "km"
        for b in "kn"
        for s in (128, 64, 32)
        if (a, b) != ("k", "k")
    ),
    *(Product(64, 96, 32, b="n", a_swizzle=64, b_swizzle=s) for s in (64, 32)),
    Product(64, 192, 128, a="m", b="n", dtype="f16"),
    *(Product(64, 64, 64, dtype=d, a="r") for d in ("f16", "bf16")),
    *(Product(64, 64, 128, dtype=d, a="r") for d in ("f8e4m3", "f8e5m2")),
    Product(64, 128, 64, a="r", b="n"),
    Product(128, 64, 64),
    Product(128, 64, 64, a="m"),
    Product(128, 64, 64, a="r"),
    Product(64, 320, 64),
    Product(64, 320, 64, b="n"),
    *(
        Product(64, 64, 64, a=a, b=b, fill=fill)
        for a in "km"
        for b in "kn"
        for fill in ("store", "cp_async")
    ),
    Product(64, 64, 128, dtype="f8e4m3", fill="store"),
    Product(64, 64, 128, dtype="f8e4m3", fill="cp_async"),
    Product(64, 64, 64, a_swizzle=64, b_swizzle=32, fill="store"),
    Product(64, 64, 64, a_swizzle=32, b_swizzle=64, fill="cp_async"),
)
