"""The code generator's parts, and the target GEMM as a whole."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tests.e2e.gemms import UNIFORM, Gemm
from tests.pairwise import every
from tests.unit.codegen_kernels import built, emitted, kernel, placed
from tests.unit.codegen_wgmma import PRODUCTS, Product
from tests.unit.host_functions import compile_expressions
from warploom.codegen import host
from warploom.codegen.emit import emit
from warploom.codegen.formula import thread_formula
from warploom.codegen.lower import LOWER
from warploom.codegen.lower_tma import instruction_box
from warploom.errors import InternalError
from warploom.ir.core import KINDS, Level
from warploom.ir.ops import arith, control, mma, task
from warploom.ir.parser import parse_func
from warploom.ir.types import TensorMap, bf16
from warploom.layout.shared import Geometry, byte_offset
from warploom.passes.placed.allocate_shared import allocate_shared
from warploom.target import SM_90A

GEMM = (Path(__file__).parents[1] / "golden" / "gemm_bf16_tn.warp.ir").read_text()


def test_lower_covers_exactly_the_kinds_of_placed() -> None:
    legal = {k for k in KINDS.values() if Level.PLACED in k.levels}
    structure = {control.yield_, task.tasks}  # the region's walk and the kernel's frame
    assert set(LOWER) == legal - structure


# ---- the GEMM


def test_gemm_compiles_without_spills_or_advisories() -> None:
    b = built(GEMM)
    assert b.problems() == () and b.stack_bytes == 0
    assert b.registers == 168  # 65536 / 384, all of them


def test_gemm_is_one_if_else_over_uniform_warp_groups() -> None:
    e = emitted(GEMM)
    body = e.source[e.source.index('extern "C"') :]
    assert e.threads == 384 and e.shared_bytes == 213040
    assert body.splitlines()[2].startswith(
        "  const int group = __shfl_sync(~0u, threadIdx.x / 128, 0);"
    )
    assert re.findall(r"^  (?:if|\} else).*==== (\w+)", body, re.M) == ["consumer", "producer"]
    assert "#include" not in e.source
    # One array of accumulators from the first wgmma to the conversion, and no loop that copies it.
    assert body.count("[128];") == 1
    assert "warp == 0 && elect_one()" in body and "named_sync(1 + replica, 128);" in body


def test_gemm_takes_tensor_maps_before_scalars_and_no_pointers() -> None:
    e = emitted(GEMM)
    assert [p.name for p in e.params] == ["a_map", "b_map", "c_map", "M", "N", "K"]
    a, b, c = (p for p in e.params if isinstance(p, host.TensorMapParam))
    assert (a.box, b.box, c.box) == ((64, 128), (64, 256), (64, 64))
    values = compile_expressions([b.base, *b.extents, *b.strides])
    assert values((1 << 40, 2 << 40, 3 << 40, 100, 200, 64)) == (2 << 40, 64, 200, 128)


def test_lines_map_to_the_users() -> None:
    e = emitted(GEMM)
    source = e.source.splitlines()
    assert len(e.lines) == len(source)
    assert [line.text for line in e.lines] == source
    (wait,) = (x for x in e.lines if "wgmma_wait<1>()" in x.text and x.loc)
    assert wait.loc and GEMM.splitlines()[wait.loc.line - 1].strip() == "wgmma_wait() {pending=1}"
    assert wait.op and wait.op.kind is mma.wgmma_wait


def test_debug_builds_bound_every_wait() -> None:
    func = placed(GEMM)
    e = emit(func.with_(attrs={**func.attrs, "debug": True}), SM_90A)
    body = e.source[e.source.index('extern "C"') :]
    assert "mbarrier_wait(" not in body
    assert 'mbarrier_wait_bounded(full + 8 * slot, phase, "full", slot, "consumer");' in body


def test_a_uniform_kernel_elects_who_copies_boxes() -> None:
    """Thread 0 stores: who waits for its groups, elsewhere, is the same."""
    case = Gemm(256, 128, 96)
    made = case.jit.compile(case.signature, constexprs=case.meta, **UNIFORM)
    guarded = [x.partition(") {\n") for x in made.cuda.partition("==== main")[2].split(" if (")]

    def guards(name: str) -> set[str]:
        return {guard for guard, _, body in guarded if f" {name}(" in body}

    assert guards("tma_load_2d") == {"warp == 0 && elect_one()"}
    assert guards("tma_store_2d") == guards("tma_commit") == {"leader"}


def test_other_levels_are_refused() -> None:
    with pytest.raises(InternalError, match="not PLACED"):
        emit(parse_func(GEMM), SM_90A)


# ---- accumulators in flight


def test_a_copy_of_an_accumulator_in_flight_is_an_internal_error() -> None:
    """Two chains that start from one unfinished accumulator."""
    text = Product(64, 64, 64).text
    line = "    %acc = wgmma("
    again = (
        text[text.index(line) :]
        .split("\n")[0]
        .replace("%acc =", "%other =")
        .replace("%start", "%acc")
    )
    third = again.replace("%other =", "%third =")
    text = text.replace("    wgmma_commit()", f"{again}\n{third}\n    wgmma_commit()")
    text = text.replace("wgmma_wait(%acc)", "wgmma_wait(%third)").replace(
        "    store_box", "    %o = wgmma_wait(%other) {pending=0} : tile<64x64xf32>\n    store_box"
    )
    text = text.replace(
        "store_box(%c_view, %sum",
        "%both = add(%sum, %o) : tile<64x64xf32>\n    store_box(%c_view, %both",
    )
    with pytest.raises(InternalError, match="in flight"):
        emitted(text)


# ---- wgmma's descriptors, against the canonical layouts of the PTX ISA


@pytest.mark.parametrize("p", every(3, PRODUCTS), ids=str)
def test_product_compiles(p: Product) -> None:
    assert built(p.text).problems() == ()


@pytest.mark.parametrize("p", PRODUCTS, ids=str)
@pytest.mark.each(2)
def test_descriptors_address_every_element(p: Product) -> None:
    """PTX ISA, wgmma, "Strides": where the hardware reads element (mn, k) of each instruction."""
    source = emitted(p.text).source
    body = source[source.index('extern "C"') :]
    item = 1 if p.dtype.startswith("f8") else 2
    made = {
        name: (int(leading), int(stride), {1: 128, 2: 64, 3: 32}[int(mode)])
        for name, leading, stride, mode in re.findall(
            r"const u64 (\w+) = wgmma_desc<(\d+), (\d+), (\d)>", body
        )
    }
    chains = re.findall(r"wgmma_m64n(\d+)k(\d+)\w*\(\w+(?: \+ (\d+))?, ([01]),\s+([^;]*)\);", body)
    calls = [
        (*call, operands, "1" if i else use)
        for *call, use, steps in chains
        for i, operands in enumerate(steps.split(",\n"))
    ]
    seen_a, seen_b = set(), set()
    for width, step, first, operands, use in calls:
        n, k_step = int(width), int(step)
        operand = re.findall(r"(\w+_desc)(?: \+ (\d+))?", operands)
        accumulators = int(first or 0)
        m_at, n_at = accumulators * 2 // p.n * 64, accumulators * 2 % p.n
        roles = [("a", 64, m_at), ("b", n, n_at)][-len(operand) :]
        for (role, size, mn_at), (name, offset) in zip(roles, operand, strict=True):
            leading, stride, swizzle = made[name]
            is_mn_major = p.a == "m" if role == "a" else p.b == "n"
            shape = (p.m, p.k) if role == "a" else (p.k, p.n)
            geometry = Geometry(
                shape, item, int(is_mn_major) if role == "b" else int(not is_mn_major), swizzle
            )
            start = int(offset or 0) * 16
            mn, kk = np.meshgrid(np.arange(size), np.arange(k_step), indexing="ij")
            if is_mn_major:
                panel = swizzle // item
                at = (
                    start
                    + mn // panel * leading
                    + mn % panel * item
                    + kk // 8 * stride
                    + kk % 8 * swizzle
                )
            else:
                at = start + mn // 8 * stride + mn % 8 * swizzle + kk * item
            reads = geometry.permute(at)
            seen = seen_a if role == "a" else seen_b
            # The K step is the one whose first element the descriptor starts at.
            ks = [
                k0
                for k0 in range(0, p.k, k_step)
                if np.array_equal(
                    reads,
                    byte_offset(
                        geometry, (mn_at + mn, k0 + kk) if role == "a" else (k0 + kk, mn_at + mn)
                    ),
                )
            ]
            assert len(ks) == 1, (role, name, offset)
            seen.add((mn_at, ks[0]))
            assert use == ("0" if ks[0] == 0 else "1")
    steps = range(0, p.k, 32 // item)
    assert len(calls) == len(chains) * len(steps)
    assert seen_b >= {(n_at, k) for n_at in range(0, p.n, 256) for k in steps}
    if p.a != "r":
        assert seen_a == {(m_at, k) for m_at in range(0, p.m, 64) for k in steps}


@pytest.mark.parametrize("p", PRODUCTS, ids=str)
@pytest.mark.each(2)
def test_a_chain_is_one_statement_that_takes_each_operand_once(p: Product) -> None:
    source = emitted(p.text).source
    found = re.findall(r"DEV void wgmma_m64n(\d+)k(\d+)\w*\((.*?)\n}", source, re.DOTALL)
    assert found
    for width, step, text in found:
        count, steps = int(width) // 2, p.k // int(step)
        assert text.count("asm volatile") == 1
        chain = re.findall(rf'wgmma\S* " ACCUMULATORS_{count} ", (.*?%\d+), (p|1)\b', text)
        assert [adds for _, adds in chain] == ["p", *["1"] * (steps - 1)]
        inputs = [int(n) for operands, _ in chain for n in re.findall(r"%(\d+)", operands)]
        words = 5 if p.a == "r" else 2
        assert inputs == [*range(count + 1, count + 1 + words * steps)]
        bound = re.findall(r'"(\+f|r|l)"\((.*?)\)[,\n ]', text[text.index('"+f"') :])
        named = re.findall(r"(?:u32|u64) (\w+)", text)
        assert [name for _, name in bound] == [
            *(f"d[{i}]" for i in range(count)),
            "use_acc",
            *named,
        ]
        accumulators = re.search(rf"#define ACCUMULATORS_{count} .*?}}", source, re.DOTALL)
        assert accumulators is not None
        listed = [int(n) for n in re.findall(r"%(\d+)", accumulators.group())]
        assert listed == [*range(count)]


# ---- TMA boxes


@pytest.mark.parametrize(
    ("box", "inner", "swizzle", "expected"),
    [
        ((128, 64), 1, 128, (128, 64)),
        ((128, 128), 1, 128, (128, 64)),
        ((64, 256), 0, 128, (64, 256)),
        ((320, 64), 1, 128, (160, 64)),
        ((64, 512), 0, 32, (16, 256)),
        ((2, 300, 64), 1, 0, (1, 150, 1)),
        ((4, 64, 64), 2, 128, (4, 64, 64)),
        ((4, 512, 64), 2, 128, (1, 256, 64)),
    ],
)
def test_one_copy_moves_a_contiguous_part(
    box: tuple[int, ...], inner: int, swizzle: int, expected: tuple[int, ...]
) -> None:
    t = TensorMap(box, bf16, inner, swizzle)
    found, order = instruction_box(t)
    assert found == expected and order[0] == inner
    # TMA writes the box in its own order, innermost first, without gaps.
    g = Geometry(box, 2, inner, swizzle)
    coords = np.meshgrid(*(np.arange(found[a]) for a in reversed(order)), indexing="ij")
    by_axis = [coords[len(order) - 1 - order.index(a)] for a in range(len(box))]
    offsets = g.permute(byte_offset(g, by_axis)).reshape(-1)
    assert np.array_equal(offsets, np.arange(offsets.size) * 2)


# ---- host expressions


def test_host_expressions_wrap_and_divide_as_c() -> None:
    a, b = ("arg", 0), ("arg", 1)
    cases = {
        ("add", "i32", a, b): -(1 << 31),
        ("idiv", "i32", ("neg", "i32", a), ("const", 2)): -((1 << 31) - 1) // 2 + 1,
        ("rem", "i32", ("neg", "i32", a), ("const", 4)): -3,
        ("mul", "i64", ("cast", "i32", a, "i64"), ("const", 4)): 4 * ((1 << 31) - 1),
        ("cast", "i64", ("const", 1 << 32), "i32"): 0,
        ("cast", "i32", ("const", -1), "u32"): (1 << 32) - 1,
        ("select", "i1", ("lt", "i32", a, b), a, b): 1,
        ("minimum", "i32", a, b): 1,
    }
    found = compile_expressions(list(cases))(((1 << 31) - 1, 1))
    assert found == tuple(cases.values())


def test_the_host_computes_what_it_is_said_to() -> None:
    assert host.PYTHON.keys() == arith.HOST - {arith.const, arith.addptr}


def test_a_launch_survives_a_division_whose_guard_is_false() -> None:
    cases = [(kind, "i32", ("arg", 0), ("arg", 1)) for kind in ("idiv", "rem")]
    assert compile_expressions(cases)((7, 0)) == (0, 7)


def test_a_tensor_map_of_a_loaded_size_is_refused() -> None:
    text = kernel(
        "%a: ptr<bf16>, %sizes: ptr<i64>",
        """    elect() do {
      tma_store_wait() {pending=0}
      tma_store(%map, %slot, %c0, %c0)
      yield()
    }""",
        before="""  %c0 = const() {value=0, dtype=i32} : i32
  %one = const() {value=1, dtype=i64} : i64
  %n = load(%sizes) : i64
  %view = make_view(%a, %n, %n, %n, %one) : view<2xbf16>
  %map = tensor_map(%view) {box=(64, 64), inner=1, swizzle=128} : tensormap<64x64xbf16, inner=1, swizzle=128>
  %slot = shared_alloc() {name="s", lead=(), shape=(64, 64), dtype=bf16, inner=1, swizzle=128} : shared<64x64xbf16, inner=1, swizzle=128>
""",
    )
    func = allocate_shared(parse_func(text), None, SM_90A)  # the verifier would say so first
    with pytest.raises(InternalError, match="it comes from load"):
        emit(func, SM_90A)


# ---- formulas of threads


@pytest.mark.parametrize("warps", [1, 2, 4])
def test_formulas_compute_their_tables(warps: int) -> None:
    rng = np.random.default_rng(warps)
    lane, warp = np.arange(32)[None, :], np.arange(warps)[:, None]
    for trial in range(50):
        weights = rng.integers(0, 300, 5 + warps.bit_length() - 1)
        table = np.full((warps, 32), int(rng.integers(0, 64)), np.int64)
        bits = [(lane >> b) & 1 for b in range(5)] + [
            (warp >> b) & 1 for b in range(warps.bit_length() - 1)
        ]
        for bit, w in zip(bits, weights, strict=True):
            table = table ^ bit * int(w) if trial % 2 else table + bit * int(w)
        text, reads = thread_formula(table)
        value = eval(text.replace("/", "//"), {"lane": lane, "warp": warp})
        assert np.array_equal(np.broadcast_to(value, table.shape), table)
        assert reads <= {"lane", "warp"}


@pytest.mark.parametrize("swizzle", [32, 64, 128])
def test_a_swizzle_below_a_sum_has_a_formula(swizzle: int) -> None:
    """Panels of 56 rows: their distance is no power of two, and rows are swizzled within."""
    geometry = Geometry((2 * swizzle, 56), 1, 0, swizzle)
    lane, warp = np.arange(32)[None, :], np.arange(4)[:, None]
    row, unit = (
        lane // 4 + 8 * (warp % 2),
        (lane % 4 + 4 * (warp // 2)) * (2 * swizzle // 128) % (swizzle // 8),
    )
    table = byte_offset(geometry, (16 * unit, row))
    text, reads = thread_formula(table)
    value = eval(text.replace("/", "//"), {"lane": lane, "warp": warp})
    assert np.array_equal(np.broadcast_to(value, table.shape), table)
    assert reads == {"lane", "warp"}


@pytest.mark.parametrize("warps", [1, 2, 4, 16])
@pytest.mark.parametrize("some", [False, True], ids=["everywhere", "in places"])
def test_what_is_no_linear_function_is_looked_up(warps: int, some: bool) -> None:
    """Rows of 48 elements, squares, and numbers at random: any table has a formula."""
    draw = np.random.default_rng(warps)
    lane, warp = np.arange(32)[None, :], np.arange(warps)[:, None]
    thread = 32 * warp + lane
    for table in (
        thread // 12 * 192 + thread % 12 * 16,
        thread // 12 * 192 + (thread % 12 ^ thread // 12 % 8) * 16,
        np.broadcast_to(lane * lane % 31, thread.shape),
        draw.integers(-40, 1 << 18, thread.shape),
    ):
        needed = draw.integers(0, 2, table.shape) > 0 if some else np.ones(table.shape, np.bool_)
        text, reads = thread_formula(table, needed)
        text = re.sub(r"(?<=[0-9a-f])u", "", text.replace("(int)", "")).replace("/", "//")
        value = np.broadcast_to(eval(text, {"lane": lane, "warp": warp}), table.shape)
        assert np.array_equal(value[needed], table[needed])
        assert reads == {name for name in ("lane", "warp") if name in text}


# ---- programmatic dependent launch

TOUCH = re.compile(
    r"\b(?:tma_load|tma_store|load_global|store_global|load_part|store_part|cp_async<|atomic)"
)
LOAD_FIRST = kernel(
    "%x: ptr<i32>, %n: i32",
    "    %more = mul(%twice, %first) : i32\n    store(%x, %more)",
    before="  %twice = add(%n, %n) : i32\n  %first = load(%x) : i32",
)


@pytest.mark.parametrize("text", [GEMM, LOAD_FIRST], ids=["gemm", "load before the tasks"])
def test_every_thread_waits_for_earlier_grids_before_it_touches_global_memory(text: str) -> None:
    source = emitted(text).source
    body = source[source.index('extern "C"') :].splitlines()
    at = body.index("  grid_wait();")  # no branch around it
    touched = [i for i, line in enumerate(body) if TOUCH.search(line)]
    assert touched and min(touched) > at
    released = [i for i, line in enumerate(body) if "grid_release<LAST_WAVE" in line]
    assert released == [at + 1]
    # a program of threads' own accesses lets the next grid in by one warp, and looks at one axis
    asked = "grid_release<LAST_WAVE, 1>(threadIdx.x < 32);"
    assert body[at + 1].strip() == ("grid_release<LAST_WAVE>();" if text == GEMM else asked)
    assert not any("return" in line for line in body[:at])


@pytest.mark.parametrize("size", [(7, 1, 1), (3, 4, 2), (1, 2, 5), (2**31 - 1, 65535, 2)])
def test_the_last_programs_of_a_grid_are_counted_from_its_end(size: tuple[int, int, int]) -> None:
    prelude = (Path(host.__file__).parent / "prelude" / "barriers.cuh").read_text()
    steps = re.findall(r"if \(AXES > (\d)\) left = (.*);", prelude)
    assert [int(axis) for axis, _ in steps] == [2, 1, 0]
    x, y, z = size

    def left(i: int, axes: int = 3) -> int:
        at = SimpleNamespace(x=i % x, y=i // x % y, z=i // x // y)
        known = {"gridDim": SimpleNamespace(x=x, y=y, z=z), "blockIdx": at, "left": 1}
        for axis, formula in steps:
            known["left"] = eval(formula, known) if axes > int(axis) else known["left"]
        return int(known["left"]) % 2**32

    programs = x * y * z
    for i in range(max(0, programs - 1000), programs):
        assert left(i) == programs - i
        assert left(i, 1) == x - i % x and left(i, 2) == x * y - i % (x * y)


def test_the_start_that_needs_no_data_comes_before_the_wait() -> None:
    source = emitted(GEMM).source
    body = source[source.index('extern "C"') :]
    order = ["prefetch_map(&a_map);", "prefetch_map(&b_map);", "mbarrier_init(", "__syncthreads();",
             "grid_wait();", "==== consumer"]  # fmt: skip
    places = [body.index(text) for text in order]
    assert places == sorted(places)
    assert emitted(LOAD_FIRST).source.count("__syncthreads();") == 0
