"""Requests that can't be met: knobs, resources, signatures, arguments, grids.

Each message has advice; those that a line of the kernel is to blame for show it with a caret.
"""

from __future__ import annotations

import linecache
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import warploom as wl
import warploom.language as tl
from tests.errors.kernels import doubled, matmul
from warploom.errors import CompileError, LaunchError, WarploomWarning
from warploom.runtime.args import Array, Field

SIGNATURE = ["*bf16:16", "*bf16:16", "*bf16:16", "i32", "i32:16", "i32:16"]
TILE = {"BM": 128, "BN": 128, "BK": 64}
PACKAGE = Path(wl.__file__).parent
DOT, DEF = "acc = tl.dot(a, b, acc, max", "def matmul("


def compiled(signature: Any = None, constexprs: Any = None, /, **knobs: Any) -> Any:
    """A variant; constexprs on top of TILE."""
    return matmul.compile(signature or SIGNATURE, {**TILE, **(constexprs or {})}, **knobs)


# (id, constexprs, knobs, code, part of the message, part of the advice, line it points at)
REQUESTS: list[tuple[str, dict[str, Any], dict[str, Any], str, str, str, str]] = [
    ("rows", {"BM": 100}, {"matrix_unit": "wgmma"}, "wgmma-m", "dot of 100 rows", "multiple of 64", DOT),
    ("columns", {"BN": 100}, {"matrix_unit": "wgmma"}, "wgmma-n", "dot of 100 columns", "multiple of 8", DOT),
    ("odd_sizes", {"BM": 127, "BN": 125}, {}, "mma-m", "dot of 127 rows", "multiple of 16", DOT),
    ("depth_of_k", {"BK": 8}, {}, "wgmma-k", "dot over K = 8", "multiple of 16", DOT),
    ("wide", {"BM": 1024, "BN": 1024}, {}, "registers", "registers a thread", "groups", DOT),
    ("tile_too_large", {"BK": 4096}, {}, "shared-memory", "1 slot of 2097152 bytes", "lower", DOT),
    ("ring_too_deep", {}, {"num_consumer_groups": 2, "num_buffers_warp_spec": 50}, "shared-memory", "50 slots", "num_buffers_warp_spec", DOT),
    ("no_slot", {}, {"num_consumer_groups": 2, "num_buffers_warp_spec": 0}, "depth", "num_buffers_warp_spec=0", "num_buffers_warp_spec=3", DEF),
    ("no_stage", {}, {"num_consumer_groups": 0, "num_stages": 0}, "depth", "num_stages=0", "num_stages=3", DEF),
    ("registers_not_by_8", {}, {"num_consumer_groups": 2, "reg_inc_consumer": 241}, "registers", "multiples of 8", "reg_inc_consumer=240", DEF),
    ("registers_too_many", {}, {"num_consumer_groups": 2, "reg_inc_consumer": 300}, "registers", "24 to 256", "reg_inc_consumer=256", DEF),
    ("registers_too_few", {}, {"num_consumer_groups": 2, "reg_dec_producer": 16}, "registers", "asks for 16", "reg_dec_producer=24", DEF),
    ("registers_over_pool", {}, {"num_consumer_groups": 2, "reg_inc_consumer": 256}, "registers", "6144 more than the 64512", "lower reg_inc_consumer", DEF),
    ("registers_under_maxnreg", {}, {"num_consumer_groups": 2, "maxnreg": 64, "reg_inc_consumer": 232}, "registers", "launched with (64 each)", "raise maxnreg", DEF),
    ("maxnreg_too_many", {}, {"maxnreg": 1000}, "maxnreg", "1 to 255 registers", "leave maxnreg out", DEF),
    ("warps_of_no_part", {}, {"num_warps": 6, "strict": True}, "num-warps", "num_warps=6 was asked for, but M / 3: ", "for 4 warps", DOT),
    ("no_warp", {}, {"num_warps": 0}, "num-warps", "1 to 32 warps", "num_warps=4", DEF),
    ("warps_too_many", {}, {"num_warps": 64}, "num-warps", "1 to 32 warps", "num_warps=4", DEF),
    ("groups_too_many", {"BM": 512, "BN": 64}, {"num_consumer_groups": 8}, "warps", "36 warps", "lower num_consumer_groups", DEF),
    ("clusters_too_large", {}, {"num_ctas": 16}, "num-ctas", "1 to 8 CTAs", "num_ctas=2", DEF),
    ("clusters_of_three", {"BN": 100}, {"num_ctas": 3}, "num-ctas", "along M", "multiple of 192", ""),
    ("no_split", {}, {"num_consumer_groups": 3, "strict": True}, "no-specialization", "can't be cut into 3", "strict=True", DOT),
    ("strict_without_a_dot", {"BK": 0}, {"num_consumer_groups": 2, "strict": True}, "arange-empty", "arange(0, 0)", "start < end", "k = tl.arange(0, BK)"),
    ("constexpr_of_another_type", {"BM": "128"}, {}, "operand-type", "found '128'", "numbers", "tl.program_id(0)"),
]  # fmt: skip


@pytest.mark.parametrize("case", REQUESTS, ids=lambda c: c[0])
def test_a_request_that_cannot_be_met(case: tuple[Any, ...]) -> None:
    _, constexprs, knobs, code, message, advice, line = case
    with pytest.raises(CompileError) as caught:
        compiled(None, constexprs, **knobs)
    error = caught.value
    assert error.code == code and message in error.message, str(error)
    assert error.help is not None and advice in error.help
    assert error.loc is not None
    assert line in Path(error.loc.file).read_text().splitlines()[error.loc.line - 1]
    assert "^^^" in str(error)


@wl.jit
def doubled_square(x: Any, BLOCK: tl.constexpr) -> None:
    at = tl.arange(0, BLOCK)[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    tl.store(x + at, 2 * tl.load(x + at))


def test_a_tile_that_no_thread_can_hold() -> None:
    signature = ["*fp32:16", "*fp32:16"]
    with pytest.raises(
        CompileError
    ) as caught:  # tiles of two axes are not stored part by part in place
        doubled_square.compile(signature[:1], {"BLOCK": 512}, num_warps=4)
    error = caught.value
    assert error.code == "tile-size" and "2048 elements for each of 128 threads" in error.message
    assert error.help is not None and "num_warps" in error.help
    assert error.loc is not None and "tl.load" in str(error)
    assert doubled.compile(signature, {"BLOCK": 1 << 15}, num_warps=32).resources.problems() == ()


A_ROW = np.ones(64, np.float32)


def test_dots_of_unsupported_types() -> None:
    cases = (("fp64", "dot-acc", "tl.float64"), ("i16", "dot-integer", "both to tl.int8"))
    for dtype, code, advice in cases:
        with pytest.raises(CompileError) as caught:
            compiled([f"*{dtype}:16", f"*{dtype}:16", *SIGNATURE[2:]])
        assert caught.value.code == code and caught.value.loc
        assert caught.value.help is not None and advice in caught.value.help


@wl.jit
def copied(x_ptr: Any, y_ptr: Any, n: Any, BLOCK: tl.constexpr) -> None:
    at = tl.arange(0, BLOCK)
    for start in range(0, n, BLOCK):
        tl.store(y_ptr + start + at, tl.load(x_ptr + start + at))


@pytest.mark.parametrize(
    ("x", "n", "code", "told"),
    [
        (None, 64, "operand-type", "x_ptr is None here"),
        (A_ROW, 64.0, "range-bound", "n is a float"),
    ],
)
def test_arguments_of_another_kind(x: Any, n: Any, code: str, told: str) -> None:
    with pytest.raises(CompileError) as caught:
        copied[(1,)](x, A_ROW, n, BLOCK=64)
    assert caught.value.code == code
    (note,) = (n for n in caught.value.notes if told in n.message)
    assert note.loc is not None and "x_ptr: Any, y_ptr" in linecache.getline(
        note.loc.file, note.loc.line
    )


def test_sums_promoted_within_an_instruction() -> None:
    with pytest.raises(CompileError) as caught:
        compiled(["*fp8e4nv:16", "*fp8e4nv:16", *SIGNATURE[2:]], {"BK": 128, "EACH": 16})
    assert caught.value.code == "dot-promotion" and caught.value.loc
    assert caught.value.help is not None and "acc=32" in caught.value.help
    assert compiled(None, {"EACH": 64}).resources.problems() == ()  # bf16 has nothing to promote


# ---- mistakes in the call of the compiler, which no line of a kernel is to blame for

bf16 = ml_dtypes.bfloat16
A, C = np.ones((128, 64), bf16), np.ones((128, 128), bf16)
ARGUMENTS = (A, A, C, 128, 128, 64)


def launch(*arguments: Any, grid: Any = (1, 1), **further: Any) -> Callable[[], Any]:
    return lambda: matmul[grid](*(arguments or ARGUMENTS), **{**TILE, **further})


def described(*parts: Any) -> Callable[[], Any]:
    return lambda: wl.TensorDescriptor(A, *parts)


def tuned(configs: Any, key: Any = ("M",), **further: Any) -> Callable[[], Any]:
    return lambda: wl.autotune(configs=configs, key=key, **further)(matmul)


CALLS: dict[str, tuple[Callable[[], Any], str, str]] = {
    "unknown_knob": (lambda: compiled(num_consumer_group=2), "knob", "num_consumer_groups?"),
    "knob_of_text": (lambda: compiled(num_stages="3"), "knob", "whole number"),
    "knob_below_zero": (lambda: compiled(num_consumer_groups=-1), "knob", "whole number"),
    "strict_of_number": (lambda: compiled(strict=1), "knob", "True or False"),
    "unknown_target": (lambda: compiled(target="sm_70"), "target", "sm_70"),
    "unit_of_no_target": (lambda: compiled(matrix_unit="imma"), "knob", "'wgmma' or 'mma.sync'"),
    "unit_of_another_target": (lambda: compiled(target="sm_80", matrix_unit="wgmma"), "matrix-unit", "sm_80 multiplies by mma.sync"),
    "signature_too_short": (lambda: compiled(SIGNATURE[:-1]), "signature", "has 5"),
    "signature_in_one_string": (lambda: compiled("*bf16"), "signature", "no list of strings"),
    "signature_of_numbers": (lambda: compiled([1] * 6), "signature", "no list of strings"),
    "signature_dtype": (lambda: compiled(["*foo", *SIGNATURE[1:]]), "signature", "no dtype foo"),
    "signature_entry": (lambda: compiled({**dict(zip(matmul.arg_names, SIGNATURE, strict=False)), "D": "i32"}), "signature", "an entry for D"),
    "signature_by_name": (lambda: compiled({"a_ptr": "*bf16"}), "signature", "lacks b_ptr"),
    "constexprs_of_list": (lambda: matmul.compile(SIGNATURE, [1]), "constexpr-name", "not a dict"),  # type: ignore[arg-type]
    "constexpr_unknown": (lambda: compiled(None, {"BMM": 1}), "constexpr-name", "mean BM?"),
    "constexpr_missing": (lambda: matmul.compile(SIGNATURE, {}), "constexpr-missing", "BM, BN, BK"),
    "schedule_of_number": (lambda: compiled(schedule=3), "schedule", "no Schedule"),
    "jit_of_number": (lambda: wl.jit(3), "not-a-function", "takes a function"),  # type: ignore[call-overload]
    "no_grid": (lambda: matmul(*ARGUMENTS), "no-grid", "without a grid"),
    "grid_of_four": (launch(grid=(1, 1, 1, 1)), "grid", "1 to 3 sizes"),
    "grid_below_zero": (launch(grid=(-1,)), "grid", "none negative"),
    "grid_too_long_in_y": (launch(grid=(1, 65536)), "grid", "65536 CTAs along axis 1"),
    "grid_too_long_in_z": (launch(grid=(1, 1, 70000)), "grid", "a device takes 65535"),
    "grid_too_long": (launch(grid=(2**31,)), "grid", "axis 0"),
    "grid_of_fractions": (launch(grid=(1.5,)), "grid", "1.5"),
    "grid_function_of_nothing": (launch(grid=lambda meta: None), "grid", "None"),
    "argument_missing": (launch(A, A, C), "argument-missing", "lacks M, N, K"),
    "arguments_too_many": (launch(*ARGUMENTS * 3), "argument-count", "got 18"),
    "argument_unknown": (launch(num_warp=4), "argument-name", "num_warps?"),
    "argument_twice": (launch(*ARGUMENTS, 128), "argument-twice", "BM twice"),
    "argument_of_set": (launch({1}, A, C, 1, 1, 1), "argument-type", "a_ptr is a set"),
    "argument_of_complex": (launch(A.astype(complex), A, C, 1, 1, 1), "argument-dtype", "complex"),
    "integer_of_66_bits": (launch(A, A, C, 2**65, 1, 1), "argument-range", "64 bits"),
    "constexpr_of_array": (launch(BM=A), "constexpr-array", "got an array"),
    "grid_function_without_parameter": (launch(grid=lambda: (1,)), "grid", "takes 0 positional"),
    "constexpr_of_set": (launch(BM={1}), "constexpr-hash", "is a set"),
    "prepared_on_the_cpu": (lambda: matmul.prepare(*ARGUMENTS, grid=(1,), **TILE), "no-device", "GPU"),
    "no_config": (tuned([]), "autotune", "at least one"),
    "config_of_dict": (tuned([{"BM": 64}]), "autotune", "no config"),
    "config_unknown_name": (lambda: tuned([wl.Config({**TILE, "BMX": 1})])()[(1,)](*ARGUMENTS), "autotune", "mean BM?"),
    "key_unknown": (tuned([wl.Config({})], ["MM"]), "autotune", "no parameter"),
    "key_of_text": (tuned([wl.Config({})], "M"), "autotune", "list of parameter names"),
    "restored_unknown": (tuned([wl.Config({})], restore_value=["x"]), "autotune", "no parameter"),
    "tuned_without_jit": (lambda: wl.autotune([wl.Config({})], ["M"])(len), "not-a-kernel", "no kernel"),
    "tuned_without_grid": (lambda: tuned([wl.Config({})])()(A), "no-grid", "without a grid"),
    "heuristics_of_list": (lambda: wl.heuristics([64])(matmul), "heuristics", "dict of functions"),  # type: ignore[arg-type]
    "unhashable": (launch(BM=memoryview(bytearray(1))), "constexpr-hash", "memoryview"),
    "order": (lambda: compiled().simulate(A, A, C, 128, 128, 64, grid=1, order="last"), "order", "no order 'last'"),
    "heuristic_of_number": (lambda: wl.heuristics({"BM": 64})(matmul), "heuristics", "not a function"),  # type: ignore[dict-item]
    "descriptor_rank": (described((128,), (64, 1), (64, 64)), "descriptor-rank", "disagree"),
    "descriptor_stride": (described((128, 32), (64, 2), (64, 32)), "descriptor-stride", "not 2"),
    "descriptor_block": (described((128, 64), (64, 1), (0, 64)), "descriptor-size", "block_shape"),
    "descriptor_fraction": (described((128, 6.5), (64, 1), (64, 64)), "descriptor-size", "6.5"),
    "descriptor_number": (described(128, (64, 1), (64, 64)), "descriptor-size", "128"),
    "descriptor_padding": (described((128, 64), (64, 1), (64, 64), "one"), "descriptor-padding", "'one'"),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_a_wrong_call(name: str) -> None:
    call, code, message = CALLS[name]
    with pytest.raises((CompileError, LaunchError)) as caught:
        call()
    error = caught.value
    assert isinstance(error, CompileError | LaunchError)
    assert error.code == code and message in str(error), str(error)
    assert error.help


def test_what_triton_users_also_write() -> None:
    """Constexprs in the signature, sizes that NumPy computed."""
    names = dict(zip(("a_ptr", "b_ptr", "c_ptr", "M", "N", "K"), SIGNATURE, strict=True))
    as_triton = compiled({**names, "BM": "constexpr", "BN": "constexpr", "BK": "constexpr"})
    of_numpy = compiled(None, {"BM": np.int64(128)})
    assert as_triton.cuda == of_numpy.cuda == compiled(num_warps=np.int64(4)).cuda
    c = np.zeros_like(C)
    matmul[(1, 1)](A, A, c, 128, 128, 64, **{**TILE, "BM": np.int32(128)})
    assert (c == 64).all()


@pytest.mark.parametrize("keep", ["0", "1"])
def test_no_frame_of_the_compiler_before_the_message(
    keep: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WARPLOOM_TRACEBACK", keep)
    for call in (launch(BM="128"), lambda: compiled(None, {"BM": 127}), launch(nothing=1)):
        with pytest.raises((CompileError, LaunchError)) as caught:
            call()
        told = "".join(traceback.format_exception(caught.value))
        inside = {f.filename for f in traceback.extract_tb(caught.value.__traceback__)}
        own = {Path(f).name for f in inside if str(PACKAGE) in f}
        assert keep == "1" or own <= {"jit.py", "mistakes.py"}, told
        assert keep == "1" or ("direct cause" not in told and "During handling" not in told)


def test_nor_where_an_option_is_the_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WARPLOOM_TRACEBACK", raising=False)
    monkeypatch.setenv("WARPLOOM_DUMP", "no_such_pass")
    monkeypatch.setenv("WARPLOOM_CACHE", "off")
    with pytest.raises(CompileError, match="WARPLOOM_DUMP names no_such_pass") as caught:
        compiled(None, {"BM": 256})
    inside = {f.filename for f in traceback.extract_tb(caught.value.__traceback__)}
    assert {Path(f).name for f in inside if str(PACKAGE) in f} <= {"jit.py", "mistakes.py"}


def test_what_a_compiled_kernel_is_given_by_mistake() -> None:
    kernel = compiled()
    wrong: dict[str, tuple[Any, ...]] = {
        "3 arguments for the 6 of this variant of matmul": ARGUMENTS[:3],
        "a_ptr of matmul: a set, this variant takes arrays of bf16": ({1}, *ARGUMENTS[1:]),
        "c_ptr of matmul: an array of f32": (*ARGUMENTS[:2], C.astype(np.float32), *ARGUMENTS[3:]),
        "M of matmul: a float, this variant takes i32 numbers": (*ARGUMENTS[:3], 128.5, 128, 64),
        "M of matmul: a NoneType": (*ARGUMENTS[:3], None, 128, 64),
    }
    for words, arguments in wrong.items():
        with pytest.raises(LaunchError) as caught:
            kernel.simulate(*arguments, grid=(1, 1))
        assert words in str(caught.value) and caught.value.help
    with pytest.raises(CompileError) as refused:
        compiled(None, {"BM": 64}, schedule=kernel.schedule)
    assert refused.value.code == "schedule" and DEF in str(refused.value)


def test_arrays_on_the_cpu_and_on_a_gpu() -> None:
    call = matmul.bind(ARGUMENTS, TILE)
    gpu = Field("c_ptr", C, Array("bf16", 4096, (128, 128), (128, 1), 0))
    mixed = type(call)(call.specs, (*call.fields[:2], gpu), call.constexprs, call.knobs)
    with pytest.raises(LaunchError, match=r"a_ptr on the CPU.*c_ptr on device 0") as caught:
        matmul.device_of(mixed)
    assert caught.value.code == "mixed-devices" and caught.value.help


# ---- what is not done as asked


@pytest.mark.parametrize(
    ("constexprs", "knobs", "says", "line"),
    [
        ({"BM": 64, "BN": 32}, {"num_consumer_groups": 2}, "one consumer group instead of 2", DOT),
        ({}, {"num_consumer_groups": 3}, "M split over 2 groups instead of 3", DOT),
        ({"BM": 64, "BN": 32}, {"num_consumer_groups": 0, "num_warps": 8}, "instead of 2", DOT),
        ({}, {"num_consumer_groups": 0, "num_stages": 50}, "stages instead of 50", "a = tl.load"),
    ],
)
def test_a_request_not_met_is_a_warning_with_its_line(
    constexprs: dict[str, int], knobs: dict[str, int], says: str, line: str
) -> None:
    with pytest.warns(WarploomWarning) as caught:
        compiled(None, constexprs, **knobs)
    (text,) = [str(w.message) for w in caught]
    assert caught[0].filename == __file__, "the line of the user's that led to it"
    assert text.startswith("warning[not-as-asked]: matmul: ") and says in text
    assert line in text and "^^^" in text and "\nhelp: " in text


def test_what_tma_cannot_take_goes_another_way_with_the_reason() -> None:
    """Long rows and many rows are split into boxes; strides of odd bytes go by registers.  The schedule (so
    `explain()`) says which limit it was."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", WarploomWarning)
        long = compiled(None, {"BM": 64, "BN": 64, "BK": 512}, num_consumer_groups=2)
        many = compiled(None, {"BM": 64, "BN": 512, "BK": 32}, num_consumer_groups=2)
        odd = compiled(["*bf16:16"] * 3 + ["i32"] * 3, num_consumer_groups=2)

    def filled(kernel: Any) -> dict[str, str]:
        reasons = kernel.schedule.reasons
        return {r.decision: r.because for r in reasons if r.decision.startswith("filled by")}

    assert set(filled(long)) == {"filled by tma"}
    assert set(filled(many)) == {"filled by tma"}
    assert "2 instructions, of 32x256 each" in many.explain()
    assert many.cuda.count("tma_load_2d(") == 1 + 3  # its definition, A, and both halves of B
    assert "multiple of 2 bytes, TMA needs 16" in filled(odd)["filled by registers"]


@pytest.mark.parametrize("groups", [0, 2])
def test_debug_bounds_every_wait(groups: int) -> None:
    plain = compiled(num_consumer_groups=groups)
    debug = compiled(num_consumer_groups=groups, debug=True)
    assert "trap" in debug.cuda and "trap" not in plain.cuda
    arguments = matmul.compile_for(*ARGUMENTS, **TILE, num_consumer_groups=groups, debug=True)
    assert "trap" in arguments.cuda


@wl.jit
def row(x, out):
    i = tl.arange(0, 64)
    tl.store(out + i, tl.load(x + i))


def test_no_warps_for_a_kernel_without_a_dot() -> None:
    """Passes before the choice deal rows out among the warps."""
    x = np.zeros(64, np.float32)
    with pytest.raises(CompileError, match="num_warps=0: a CTA has 1 to 32 warps"):
        row.compile_for(x, x, grid=(1,), num_warps=0)
