"""Single features of the explicit language: what they compute, the code they become, what is refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import warploom.tilus as tilus
from tests.eject.owned import owned, same_program
from tests.explicit.language import (
    COMBINE,
    DIVISORS,
    DTYPES,
    PRINTED,
    PRINTED_LINES,
    REDUCED,
    Annotated,
    Divided,
    Elementwise,
    Handed,
    Hinted,
    Lent,
    Nested,
    Passed,
    Printed,
    Reread,
    SplitSum,
    dividends,
    elementwise,
    reached,
    reducer,
    values,
)
from tests.pairwise import diagonals
from warploom.errors import CompileError, LaunchError
from warploom.explicit.script import Instructions
from warploom.explicit.surface import NAMESPACES
from warploom.explicit.tensors import Tensors
from warploom.ir.ops.tile import CACHE_POLICIES
from warploom.runtime.plan import LaunchPlan, divider
from warploom.sim.report import ProtocolError, Race
from warploom.tilus import float32, int32

RNG = np.random.default_rng(7)


def refused(script: Any, *args: Any) -> CompileError:
    with pytest.raises(CompileError) as e:
        script.check(*args)
    assert e.value.loc is not None and e.value.help
    return e.value


# ---- TMA's reductions and the L2's hints


@pytest.mark.parametrize(("reduced", "n"), diagonals(2, REDUCED, [136, 133]))
@pytest.mark.each(2)
def test_tma_combines_into_memory(reduced: tuple[str, str], n: int) -> None:
    fn, name = reduced
    m, ld = 70, 144  # boxes reach over both ends
    x, y = (values(name, RNG, (m, ld)) for _ in range(2))
    wanted = y.copy()
    wanted[:, : reached(n, name)] = COMBINE[fn](y, x)[:, : reached(n, name)]
    kernel = reducer(name)(fn)
    assert kernel.check(m, n, ld, x, y).ok
    kernel(m, n, ld, x, y)
    assert np.array_equal(y, wanted)


@pytest.mark.parametrize(("fn", "name"), [("add", "bf16"), ("max", "i64"), ("inc", "u32")])
def test_reductions_compile(fn: str, name: str) -> None:
    text = {"i64": "i64", "u32": "u32"}.get(name, name)
    built = reducer(name)(fn).compile(["i32", "i32", "i32:16", f"*{text}:16", f"*{text}:16"])
    assert f"cp.reduce.async.bulk.tensor.2d.global.shared::cta.{fn}.tile" in built.cuda
    assert ".L2::cache_hint" in built.cuda and "l2_evict_" in built.cuda
    assert built.resources.problems() == ()


@pytest.mark.parametrize(("fn", "name"), [("add", "i64"), ("max", "f32"), ("mean", "f32")])
def test_a_reduction_that_tma_lacks(fn: str, name: str) -> None:
    x = values(name, RNG, (32, 64))
    e = refused(reducer(name)(fn), 32, 64, 64, x, x)
    assert e.code == "tma-reduce"


@pytest.mark.parametrize("policy", CACHE_POLICIES)
def test_hints_change_no_result(policy: str) -> None:
    n = 48
    x, y = RNG.normal(size=(n, 32)).astype(np.float32), np.zeros((4, n, 32), np.float32)
    kernel = Hinted(policy)
    assert kernel.check(n, x, y).ok
    kernel(n, x, y)
    assert np.array_equal(y, np.stack([x] * 4))


def test_hints_reach_the_instructions() -> None:
    built = Hinted("evict_first").compile(["i32:16", "*fp32:16", "*fp32:16"])
    for text in (
        "tma_load_2d_hinted(",
        "tma_store_3d_hinted(",
        "load_global128_if_hinted(",
        "store_global128_hinted(",
        "l2_evict_last()",
    ):
        assert text in built.cuda
    assert built.resources.problems() == ()


def test_a_policy_that_does_not_exist() -> None:
    x = np.zeros((64, 32), np.float32)
    assert refused(Hinted("evict_never"), 64, x, x).code == "cache-policy"


# ---- relaxed waits and arrivals


def passed(**how: Any) -> tuple[Any, list[Any]]:
    n = 150
    x = RNG.normal(size=(n, 32)).astype(np.float32)
    return Passed(**how), [n, x, np.zeros_like(x)]


def test_relaxed_order_is_enough_for_asynchronous_operations() -> None:
    kernel, args = passed(by_tma=True, waits="relaxed", arrivals="relaxed", acquires="relaxed")
    assert kernel.check(*args).ok
    kernel(*args)
    assert np.array_equal(args[2], args[1])


def test_acquire_and_release_order_ordinary_accesses() -> None:
    kernel, args = passed()
    assert kernel.check(*args).ok
    kernel(*args)
    assert np.array_equal(args[2], args[1])


@pytest.mark.parametrize(
    ("how", "later"),
    [
        ({"waits": "relaxed"}, "self.load_shared("),
        ({"arrivals": "relaxed"}, "self.tma.global_to_shared("),
        ({"acquires": "relaxed"}, "self.tma.global_to_shared("),
    ],
)
def test_relaxed_order_does_not_cover_ordinary_accesses(how: Any, later: str) -> None:
    kernel, args = passed(**how)
    report = kernel.check(*args)
    assert not report.ok
    (race, *_) = report.diagnostics
    assert race.code == "race" and race.loc is not None
    lines = Path(race.loc.file).read_text().splitlines()
    assert later in lines[race.loc.line - 1]
    if "waits" in how:
        assert "relaxed" in str(race.help) and "acquire" in str(race.help)
    with pytest.raises(Race):
        kernel.simulate(*args)


def test_relaxed_order_in_ptx() -> None:
    kernel, _ = passed(by_tma=True, waits="relaxed", arrivals="relaxed", acquires="relaxed")
    cuda = kernel.compile(["i32:16", "*fp32:16", "*fp32:16"]).cuda
    assert "mbarrier.try_wait.parity.relaxed.cta" in cuda
    assert "mbarrier.arrive.relaxed.cta" in cuda
    assert "mbarrier.arrive.expect_tx.relaxed.cta" in cuda


@pytest.mark.parametrize("how", [{"waits": "release"}, {"arrivals": "acquire"}])
def test_an_order_that_does_not_exist(how: Any) -> None:
    kernel, args = passed(**how)
    assert refused(kernel, *args).code == "sem"


# ---- printf


def test_printf_prints_as_c_does(capfd: pytest.CaptureFixture[str]) -> None:
    Printed()(*PRINTED)
    assert capfd.readouterr().out.splitlines() == PRINTED_LINES


def test_printf_compiles() -> None:
    built = Printed().compile(["i32", "fp32", "*fp32:16"])
    assert 'printf("n = %5lld|%-4lld|%llx, x = %.3f 100%%\\n", (i64)(n)' in built.cuda
    assert "(u64)(u32)" in built.cuda and '\\"%+.2e\\"' in built.cuda


@pytest.mark.parametrize(
    ("form", "found"),
    [
        ("%d\n", "a f32"),
        ("%f %f\n", "prints 2 values, there are 1"),
        ("none\n", "prints 0 values"),
        ("%s\n", "no directive at '%s"),
        ("50%", "no directive at '%'"),
    ],
)
def test_printf_formats_are_checked(form: str, found: str) -> None:
    class Wrong(tilus.Script):
        def __call__(self, x: float32):
            self.attrs.blocks = 1
            self.attrs.warps = 1
            self.printf(form, x)

    e = refused(Wrong(), 1.0)
    assert e.code == "print-format" and found in str(e)


# ---- division by what is known at launch


@pytest.mark.parametrize(("d", "e"), DIVISORS)
def test_fast_divmod_in_the_simulator(d: int, e: int) -> None:
    x = dividends(RNG, d, d * e + 1)
    y = np.zeros((len(x), 4), np.int32)
    assert Divided().check(len(x), d, e, x, y).ok
    Divided()(len(x), d, e, x, y)
    wide = x.astype(np.int64)
    wanted = np.stack([wide // d, wide % d, wide // (d * e + 1), wide % (d * e + 1)], axis=1)
    assert np.array_equal(y, wanted)


@given(st.integers(0, 2**31 - 1), st.integers(1, 2**31 - 1))
def test_what_the_host_makes_of_a_divisor_divides_exactly(n: int, d: int) -> None:
    for x in (n, n // d * d, max(0, n // d * d - 1), 2**31 - 1):
        by = divider(d)
        multiplier, shift = by & 2**32 - 1, by >> 32
        assert multiplier < 2**32 and shift < 32
        assert ((2 * x % 2**32) * multiplier >> 32) >> shift == x // d  # as the kernel computes it


def test_fast_divmod_multiplies() -> None:
    built = Divided().compile(["i32", "i32", "i32", "*i32:16", "*i32:16"])
    assert built.cuda.count("u64 by_") >= 2 and "fast_div(" in built.cuda
    kernel = built.cuda[built.cuda.index("---- the kernel") :]
    assert " / " not in kernel and " % " not in kernel
    codes = [p.code for p in built.plan.params if type(p).__name__ == "ComputedParam"]
    assert codes == ["Q", "Q"]
    assert LaunchPlan.from_json(built.plan.to_json()) == built.plan


@pytest.mark.parametrize("d", [0, -3, 2**31])
def test_divisors_that_the_host_refuses(d: int) -> None:
    with pytest.raises(LaunchError) as e:
        divider(d)
    assert e.value.code == "divisor"


def test_fast_divmod_takes_what_the_simulator_can_prove() -> None:
    x, y = np.array([-5], np.int32), np.zeros((1, 4), np.int32)
    with pytest.raises(ProtocolError) as e:
        Divided()(1, 3, 1, x, y)
    assert e.value.code == "fast-div"


def test_a_divisor_that_only_the_kernel_knows() -> None:
    class Wrong(tilus.Script):
        def __call__(self, n: int32, x_ptr: ~int32):
            self.attrs.blocks = [n]
            self.attrs.warps = 1
            q, r = self.fast_divmod(n, self.blockIdx.x + 1)
            self.store(x_ptr, q + r)

    e = refused(Wrong(), 4, np.zeros(1, np.int32))
    assert e.code == "fast-div" and "//" in str(e.help)


# ---- groups in groups, loops and ifs


@pytest.mark.parametrize("n", [32, 64, 100, 333])
def test_groups_in_groups(n: int) -> None:
    x = RNG.normal(size=(n, 32)).astype(np.float32)
    y = np.zeros_like(x)
    kernel = Nested()
    assert kernel.check(n, x, y).ok
    kernel(n, x, y)
    assert np.array_equal(y, x * np.float32(2) + np.float32(1))


def test_a_divided_group_has_a_task_for_each_range_of_warps() -> None:
    built = Nested().compile(["i32", "*fp32:16", "*fp32:16"])
    tasks = built.ir["PLACED"].split("tasks() ")[1].splitlines()[0]
    assert "warps=(1, 1, 2, 2, 1, 1)" in tasks and '"loader"' in tasks
    assert "named_sync(15, 160);" in built.cuda
    assert built.resources.problems() == ()


@pytest.mark.parametrize("turns", [0, 1, 5])
def test_groups_in_loops_and_ifs(turns: int) -> None:
    x = RNG.normal(size=64 * max(turns, 1)).astype(np.float32)
    y = np.zeros_like(x)
    kernel = Handed()
    assert kernel.check(turns, x, y).ok
    kernel(turns, x, y)
    signs = np.where(np.arange(turns) % 2 == 0, 1, -1).astype(np.float32)
    assert np.array_equal(y[: 64 * turns], x[: 64 * turns] * np.repeat(signs, 64))
    assert "__syncthreads()" in kernel.compile(["i32", "*fp32:16", "*fp32:16"]).cuda


def test_a_missing_sync_of_groups_in_a_loop_is_a_race() -> None:
    class Wrong(tilus.Script):
        def __call__(self, turns: int32, x_ptr: ~float32):
            self.attrs.blocks = 1
            self.attrs.warps = 4
            s = self.shared_tensor(dtype=float32, shape=[64])
            for i in range(turns):
                with self.thread_group(0, 64):
                    self.store_shared(s, self.load(x_ptr + i * 64 + self.arange(0, 64)))
                self.sync()
                with self.thread_group(64, 64):
                    self.store(x_ptr + i * 64 + self.arange(0, 64), self.load_shared(s))

    report = Wrong().check(3, np.zeros(192, np.float32))
    assert [d.code for d in report.diagnostics] == ["race"]


def test_a_single_warp_of_a_group_is_32_threads() -> None:
    class Arrive(tilus.Script):
        def __init__(self, arrivals: int) -> None:
            super().__init__()
            self.arrivals = arrivals

        def __call__(self, x_ptr: ~float32):
            self.attrs.blocks = 1
            self.attrs.warps = 4
            done = self.mbarrier.alloc(self.arrivals)
            with self.thread_group(0, 128):
                with self.single_warp(2):
                    self.mbarrier.arrive(done)
                with self.single_warp(1):
                    self.mbarrier.wait(done, 0)

    x = np.zeros(1, np.float32)
    assert Arrive(32).check(x).ok
    assert not Arrive(33).check(x).ok
    assert not Arrive(1).check(x).ok


def budgeted(inner: int, at_parent: bool) -> type[tilus.Script]:
    class Budgeted(tilus.Script):
        def __call__(self, x_ptr: ~float32):
            self.attrs.blocks = 1
            self.attrs.warps = 12
            with self.thread_group(0, 256):
                if at_parent:
                    self.setmaxnreg(40)
                with self.thread_group(0, inner):
                    if not at_parent:
                        self.setmaxnreg(40)
                    self.sync()

    return Budgeted


def test_setmaxnreg_in_divided_groups() -> None:
    built = budgeted(128, True)().compile(["*fp32:16"])
    assert built.cuda.count("registers_dec<") == 2
    built = budgeted(128, False)().compile(["*fp32:16"])
    assert built.cuda.count("registers_dec<") == 1
    e = refused(budgeted(64, False)(), np.zeros(1, np.float32))
    assert e.code == "setmaxnreg-group" and "single_thread" in str(e.help)


def test_warps_of_a_group_take_its_budget_before_they_part() -> None:
    """setmaxnreg is one instruction of all four warps (PTX ISA, setmaxnreg: .aligned)."""
    x = np.zeros(1, np.float32)
    built = budgeted(64, True)().compile(["*fp32:16"])
    assert built.cuda.count("registers_dec<") == 1
    before, after = built.cuda.split("registers_dec<GROUP")
    assert "warp_id < 2" in after and "warp_id < 2" not in before
    assert budgeted(64, True)().check(x).ok


def test_setmaxnreg_anywhere(tmp_path: Path) -> None:
    built = Lent().compile(["*fp32:16", "i32"])
    text = built.cuda
    for change in ("dec<232", "inc<248", "dec<240", "inc<256", "dec<248", "dec<200"):
        assert f"registers_{change}>();" in text, text
    assert built.resources.spill_bytes == 0 and not built.resources.advisories
    x = np.arange(128, dtype=np.float32)
    report = Lent().check(x, 3)
    assert report.ok, str(report)
    Lent()(x, 3)
    assert np.array_equal(x, np.arange(7, 135))
    again, signature = owned(built.eject(), tmp_path, 1)
    same_program(again.compile(signature), built)


def test_what_tma_reads_after_ordinary_stores() -> None:
    x = RNG.normal(size=(3, 32, 64)).astype(np.float32)
    y, wanted = np.zeros((3, 64, 32), np.float32), x * 2 + 1
    kernel = Reread()
    assert kernel.check(x, y, 3).ok
    built = kernel.compile(["*fp32:16", "*fp32:16", "i32"])
    assert "fence_async_global();" in built.cuda and "fence.proxy.async.global" in built.cuda
    kernel(x, y, 3)
    assert np.array_equal(x, wanted) and np.array_equal(y, wanted.transpose(0, 2, 1))


def test_a_fence_of_no_memory() -> None:
    class Wrong(tilus.Script):
        def __call__(self, x_ptr: ~float32):
            self.attrs.blocks = 1
            self.attrs.warps = 4
            self.fence.proxy_async(space="local")

    assert refused(Wrong(), np.zeros(1, np.float32)).code == "fence-space"


def test_cp_async_has_no_policy() -> None:
    class Wrong(tilus.Script):
        def __call__(self, x_ptr: ~float32):
            self.attrs.blocks = 1
            self.attrs.warps = 4
            x = self.global_view(x_ptr, dtype=float32, shape=[32, 32])
            s = self.shared_tensor(dtype=float32, shape=[32, 32])
            self.cp_async.load(x, s, [0, 0], cache_policy="evict_first")

    e = refused(Wrong(), np.zeros(1024, np.float32))
    assert e.code == "cache-policy" and "illegal instruction" in str(e) and "tma" in str(e.help)


# ---- memory of the kernel's own


@pytest.mark.parametrize(("rows", "parts"), [(1, 1), (3, 4), (5, 2)])
def test_memory_that_no_caller_passes(rows: int, parts: int) -> None:
    x = RNG.integers(-4, 5, (rows, parts * 128)).astype(np.float32)
    y, kernel = np.zeros(rows, np.float32), SplitSum()
    for _ in range(2):
        kernel(x, y, rows, parts)
        assert np.array_equal(y, x.sum(axis=1))
    plan = kernel.compile_for(x, y, rows, parts).plan
    assert LaunchPlan.from_json(plan.to_json()) == plan
    assert [(w.dtype, w.clean) for w in plan.workspaces] == [
        ("f32", True),
        ("i32", True),
        ("bf16", False),
    ]


@pytest.mark.parametrize("forgets", ["the count", "the sum"])
def test_memory_that_is_left_dirty(forgets: str) -> None:
    x = np.ones((2, 256), np.float32)
    with pytest.raises(LaunchError) as e:
        SplitSum(forgets)(x, np.zeros(2, np.float32), 2, 2)
    assert e.value.code == "workspace-clean" and e.value.help


def test_the_size_of_memory_is_the_hosts() -> None:
    class Wrong(tilus.Script):
        def __call__(self, x_ptr: ~float32, n: int32):
            self.attrs.blocks = n
            self.attrs.warps = 1
            t = self.global_tensor(float32, [self.blockIdx.x + 1], requires_clean=False)
            self.store(t.pointer, 0.0)

    assert refused(Wrong(), np.zeros(1, np.float32), 4).code == "global-tensor"


# ---- layouts that a line gives


ROWS = "blocked(64x64, inner=1, vector=4, warps=4)"


def test_an_annotation_steers_what_computes_the_value() -> None:
    fragment = "wgmma_acc(64x64)"
    x = RNG.normal(size=(64, 64)).astype(DTYPES["bf16"][1])
    y = np.zeros_like(x)
    kernel = Annotated(fragment)
    kernel(x, y)
    assert np.array_equal(y, x * DTYPES["bf16"][1](2))
    placed = kernel.compile_for(x, y).ir["PLACED"]
    (product,) = (line for line in placed.splitlines() if " = mul(" in line)
    assert fragment in product  # computed there, not converted afterwards


@pytest.mark.parametrize(
    ("conflict", "product"),
    [("operand", "mma(y, s"), ("accumulator", "mma(s, s"), ("shared", "mma(s, s")],
)
def test_a_layout_that_an_instruction_cannot_take_names_both_lines(
    conflict: str, product: str
) -> None:
    x = np.zeros((64, 64), DTYPES["bf16"][1])
    with pytest.raises(CompileError) as e:
        Annotated(ROWS, conflict).check(x, x)
    assert e.value.code == "layout-conflict" and e.value.loc is not None
    lines = Path(e.value.loc.file).read_text().splitlines()
    assert product in lines[e.value.loc.line - 1]
    (note,) = e.value.notes
    assert note.loc is not None
    assert "annotate_layout" in lines[note.loc.line - 1]


# ---- the whole surface

# What Tilus's scripts are written in, but for Blackwell's instructions.
NAMES = [
    "abs",
    "all",
    "annotate_layout",
    "any",
    "assume",
    "atomic_add",
    "atomic_max",
    "atomic_min",
    "attrs",
    "blockIdx",
    "cast",
    "ceil",
    "clip",
    "clc",
    "cluster",
    "cos",
    "exp",
    "exp2",
    "fast_divmod",
    "fence",
    "floor",
    "global_view",
    "gridDim",
    "load_global",
    "load_shared",
    "log",
    "max",
    "maximum",
    "mbarrier",
    "min",
    "minimum",
    "print_tensor",
    "printf",
    "range",
    "register_tensor",
    "reshape",
    "rsqrt",
    "shared_tensor",
    "sin",
    "single_thread",
    "single_warp",
    "sqrt",
    "square",
    "squeeze",
    "static_assert",
    "store_global",
    "store_shared",
    "sum",
    "sync",
    "tcgen05",
    "thread_group",
    "tma",
    "transpose",
    "unsqueeze",
    "warp_group",
    "wgmma",
    "where",
]
OF_NAMESPACES = {
    "mbarrier": "alloc arrive arrive_and_expect_tx arrive_and_expect_tx_multicast arrive_and_expect_tx_remote "
    "producer_initial_phase consumer_initial_phase wait",
    "tma": "global_to_shared shared_to_global commit_group wait_group",
    "fence": "proxy_async proxy_async_release mbarrier_init",
    "wgmma": "fence mma commit_group wait_group",
    "cluster": "sync blockRank map_shared_addr",
}


def test_every_name_is_there() -> None:
    offered = {*dir(Instructions), *Instructions.__annotations__, *NAMESPACES}
    assert set(NAMES) <= offered
    for space, names in OF_NAMESPACES.items():
        assert set(names.split()) <= set(dir(NAMESPACES[space]))


@pytest.mark.parametrize("n", [0, 3])
def test_elementwise_names_and_loops(n: int) -> None:
    x = RNG.integers(-3, 4, (32, 8)).astype(np.float32)
    y = np.zeros((12, 32), np.float32)
    kernel = Elementwise()
    kernel(n, x, y)
    assert np.array_equal(y, elementwise(x, n).astype(np.float32))
    assert kernel.compile_for(n, x, y).resources.problems() == ()


def test_the_reference_of_scripts_is_current() -> None:
    root = Path(__file__).parents[2]
    command = [sys.executable, str(root / "tools" / "explicit_reference.py"), "--check"]
    env = {"PYTHONPATH": "."}
    result = subprocess.run(command, capture_output=True, text=True, cwd=root, env=env)
    assert result.returncode == 0, result.stdout + result.stderr


def test_every_function_is_documented() -> None:
    for cls in (Instructions, Tensors, *NAMESPACES.values()):
        for name, fn in vars(cls).items():
            if callable(fn) and not name.startswith("_") and not isinstance(fn, type):
                assert (fn.__doc__ or "").strip(), f"{cls.__name__}.{name} has no docstring"
