"""Small kernels as WARP text, taken to CUDA: the inputs of the code generator's tests."""

from __future__ import annotations

from functools import lru_cache

from tests.passes import road
from warploom.analysis.occupancy import open_occupancy
from warploom.codegen.emit import Emitted, emit
from warploom.ir.core import Func
from warploom.ir.parser import parse_func
from warploom.ir.verify import verify
from warploom.runtime.build import best_occupancy
from warploom.runtime.nvrtc import Build, compile_cuda
from warploom.target import SM_90A


def kernel(params: str, body: str, *, warps: int = 4, before: str = "", attrs: str = "") -> str:
    """A uniform kernel: one task `main` of `warps` warps that runs `body`; `before` stands above it."""
    return f"""func @probe({params}) level=WARP {{warps={warps}{attrs}}} {{
{before}
  tasks() {{names=("main",), warps=({warps},), replicas=(1,), registers=(none,)}} do {{
{body}
    yield()
  }}
  yield()
}}
"""


def placed(text: str) -> Func:
    """WARP text at PLACED."""
    func = parse_func(text)
    verify(func)
    return road.placed(func)


def emitted(text: str) -> Emitted:
    return emit(placed(text), SM_90A)


@lru_cache(maxsize=256)
def built(text: str) -> Build:
    """Compiled by NVRTC (an InternalError with the log where it refuses)."""
    func = placed(text)

    def compiled(func: Func) -> Build:
        e = emit(func, SM_90A)
        return compile_cuda(e.source, name=e.name, target=SM_90A)

    def again(ctas: int) -> Build:
        return compiled(func.with_(attrs={**func.attrs, "ctas_per_sm": ctas}))

    first, asked = compiled(func), open_occupancy(func, SM_90A)
    return best_occupancy(first, asked, SM_90A, again)[1] if asked else first


# ---- pieces of text


def view(
    name: str, dtype: str, rows: str = "%M64", cols: str = "%N64", stride: str = "%N64"
) -> str:
    """A row-major view `%{name}_view` of `%{name}` and the i64 scalars that it needs."""
    return (
        f"  %{name}_view = make_view(%{name}, {rows}, {cols}, {stride}, %one64)"
        f" {{divisible=(16, 16, 1)}} : view<2x{dtype}>\n"
    )


SIZES = """  %M64 = cast(%M) {dtype=i64} : i64
  %N64 = cast(%N) {dtype=i64} : i64
  %one64 = const() {value=1, dtype=i64} : i64
  %c0 = const() {value=0, dtype=i32} : i32
  %c1 = const() {value=1, dtype=i32} : i32
"""


def through(ops: str, *, dtype: str = "f32", out: str | None = None, shape: str = "64x64",
            to: str | None = None, warps: int = 4) -> str:  # fmt: skip
    """Loads the box %x (`shape`, `dtype`) from a, runs `ops`, stores the tile %y (`to`, `out`) to b."""
    out, to = out or dtype, to or shape
    dims = ", ".join(shape.split("x"))
    load = f"    %x = load_box(%a_view, %c0, %c0) {{shape=({dims})}} : tile<{shape}x{dtype}>\n"
    store = "    store_box(%b_view, %y, %c0, %c0)"
    before = SIZES + view("a", dtype) + view("b", out)
    params = f"%a: ptr<{dtype}>, %b: ptr<{out}>, %M: i32, %N: i32"
    return kernel(params, load + ops + "\n" + store, before=before, warps=warps)
