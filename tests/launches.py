"""The kernels of tests, lessons and library at launches of theirs: what the checker is measured on.

The kernels that are wrong on purpose, and those that test one message or one spelling, are not among them."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from warploom import Script
from warploom.check import Case
from warploom.ir.core import Func
from warploom.ir.types import Pointer, Scalar
from warploom.runtime.checked import launch_of
from warploom.runtime.compiled import CompiledKernel
from warploom.runtime.values import fields_for

BF16 = ml_dtypes.bfloat16
LESSONS = Path(__file__).resolve().parents[1] / "docs" / "lessons"
Found = tuple[Func, Case | None]


@dataclass(frozen=True)
class Launch:
    """name: of the kernel.  make: compiles it, and gives its function at PLACED with the launch."""

    name: str
    make: Callable[[], Found]


def _of_jit(kernel: Any, args: Any, grid: Any, meta: Mapping[str, Any]) -> Found:
    made: CompiledKernel = kernel.compile_for(*args, grid=grid, **meta)
    sizes = kernel.sizes(grid, args, meta)
    fields = fields_for(made.placed, made.request.specs, args)
    return made.placed, launch_of(made.placed, fields, sizes)


def _of_script(script: Script, *args: Any) -> Found:
    apart = (a.copy() if isinstance(a, np.ndarray) else a for a in args)
    call = script.bind(list(apart), {})
    func = script._lowered(script._request(call, "sm_90a")).placed
    return func, launch_of(func, call.fields)


def _of_signature(made: CompiledKernel, numbers: Mapping[str, Any], grid: int) -> Found:
    """With small arrays, whose contents nothing follows from."""

    def value(v: Any) -> Any:
        if isinstance(v.type, Pointer):
            return np.zeros(16, v.type.dtype.numpy)
        assert isinstance(v.type, Scalar)
        return numbers.get(v.hint, 1 if v.type.dtype.is_int else 1.0)

    return made.placed, Case(tuple(map(value, made.placed.params)), (grid, 1, 1))


def eject() -> Iterator[Launch]:
    """What ejecting is tested on: the kernels of tests/e2e, tutorials among them."""
    from tests.eject.corpus import cases

    for name, case in cases().items():
        yield Launch(name, lambda case=case: _of_jit(case.jit, case.make(), case.grid, case.meta))  # type: ignore[misc]


def library() -> Iterator[Launch]:
    """The library's kernels in every configuration: products and attention."""
    from tests.e2e.library_attention import CONFIGS, compiled
    from tests.e2e.library_products import GEMMS, PRODUCTS, LibraryProduct
    from warploom.kernels.attention import section_of

    m, n, k = 512, 768, 512

    def of(product: LibraryProduct) -> Found:
        constexprs = product.config.kwargs
        knobs = {key: v for key, v in product.config.all_kwargs.items() if key not in constexprs}
        made = product.kernel.compile(signature=product.signature, constexprs=constexprs, **knobs)
        pointers = [
            np.zeros(16, p.type.dtype.numpy)
            for p in made.placed.params
            if isinstance(p.type, Pointer)
        ]
        args = product.arguments(pointers[:-1], pointers[-1], m, n, k)
        return made.placed, Case(tuple(args), (6, 1, 1))

    for product in PRODUCTS + GEMMS:
        yield Launch(str(product), lambda product=product: of(product))  # type: ignore[misc]
    for d, causal, i in CONFIGS:
        numbers = {"heads": 2, "seq": 384, "section": section_of(2, 384, d, 1, 1 << 15)}
        yield Launch(
            f"attention-{d}{'-causal' * causal}-{i}",
            lambda key=(d, causal, i), numbers=numbers: _of_signature(compiled(*key), numbers, 4),  # type: ignore[misc]
        )


def scripts() -> Iterator[Launch]:
    """Explicit kernels of library and tests."""
    from tests.explicit.language import Hinted, Passed, SplitSum, reducer
    from warploom.kernels.explicit.attention import Attention
    from warploom.kernels.explicit.dual_gemm import DualGemm
    from warploom.kernels.explicit.fp8_gemm import Fp8GemmPromoted
    from warploom.kernels.explicit.gemm import Gemm

    x, f, e4m3 = np.zeros(16, BF16), np.zeros(16, np.float32), np.zeros(16, ml_dtypes.float8_e4m3fn)
    sizes, counter = (512, 768, 512), np.zeros(2, np.int32)
    attention = x, x, x, x, f, counter, 2, 384, 0.1
    ready: dict[str, tuple[Script, tuple[Any, ...]]] = {
        **{f"gemm-{d}": (Gemm(block_n=128, stages=d, programs=2), (x, x, x, *sizes)) for d in (2, 3, 4)},
        "gemm": (Gemm(), (x, x, x, *sizes)),
        "gemm-multicast": (Gemm(ctas=2, share="a"), (x, x, x, *sizes)),
        "dual": (DualGemm(), (x, x, x, x, *sizes)),
        "fp8": (Fp8GemmPromoted(), (e4m3, e4m3, f, f, x, *sizes)),
        "attention": (Attention(eighths=3, programs=2), attention),
        "attention-causal": (Attention(causal=True, d=64, groups=3, lse=True, shared_by=4),
                             (x, x, x, x, f, counter, 4, 384, 0.1)),
        "attention-store-role": (Attention(causal=True, store_role=True), attention),
        "passed": (Passed(), (150, f, f)),
        "hinted": (Hinted("evict_first"), (48, f, f)),
        "split-sum": (SplitSum(), (np.zeros((2, 64), np.float32), np.zeros(2, np.float32), 2, 2)),
    }  # fmt: skip
    for fn, name in (("add", "f32"), ("max", "i64")):
        y = np.zeros(16, np.float32 if name == "f32" else np.int64)
        ready[f"reduce-{fn}-{name}"] = reducer(name)(fn), (70, 136, 144, y, y.copy())
    for name, (script, args) in ready.items():
        yield Launch(name, lambda script=script, args=args: _of_script(script, *args))  # type: ignore[misc]


def lessons() -> Iterator[Launch]:
    """The programs of docs/lessons."""
    x = np.zeros(16, BF16)
    for path in sorted(LESSONS.glob("[0-9]*.py")):

        def make(path: Path = path) -> Found:
            spec = importlib.util.spec_from_file_location(f"lesson_{path.stem}", path)
            assert spec is not None and spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            sys.modules[spec.name] = module
            spec.loader.exec_module(module)
            (script,) = (
                v
                for v in vars(module).values()
                if isinstance(v, type) and issubclass(v, Script) and v is not Script
            )
            return _of_script(script(), x, x, x, 512, 768, 512)

        yield Launch(path.stem, make)


def corpus() -> Iterator[Launch]:
    """Kernels in the shapes that others write."""
    from corpus import catalog
    from tests.e2e.corpus.judging import FORMS

    for case in catalog.everything():
        how = {**case.meta, **FORMS["auto"], **case.knobs}
        yield Launch(
            case.name, lambda case=case, how=how: _of_jit(case.kernel, case.args, case.grid, how)
        )  # type: ignore[misc]


def tutorials() -> Iterator[Launch]:
    """Triton's tutorials."""
    from corpus import tutorials as of

    def x(*shape: int, dtype: Any = np.float32) -> Any:
        return np.zeros(shape, dtype)

    b16 = x(200, 160, dtype=BF16), x(160, 136, dtype=BF16)
    args = [*b16, x(200, 136), 200, 136, 160, 160, 1, 136, 1, 136, 1]
    meta = {"BLOCK_M": 128, "BLOCK_N": 64, "BLOCK_K": 64, "GROUP_M": 8, "ACTIVATION": "leaky"}
    for groups in (2, 0):
        how = {**meta, "num_consumer_groups": groups}
        yield Launch(f"matmul-{groups}", lambda how=how: _of_jit(of.matmul, args, 6, how))  # type: ignore[misc]
    persistent = [
        x(300, 192, dtype=BF16),
        x(192, 256, dtype=BF16),
        x(300, 256, dtype=BF16),
        300,
        256,
        192,
    ]
    meta = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP_M": 8, "NUM_SMS": 3}
    for subtile, ws in ((False, True), (True, True), (False, False), (True, False)):
        how = {**meta, "SUBTILE": subtile, "WARP_SPECIALIZE": ws}
        name = f"matmul-persistent{'-subtile' * subtile}{'-ws' * ws}"
        yield Launch(name, lambda how=how: _of_jit(of.matmul_persistent, persistent, 3, how))  # type: ignore[misc]
    sizes = np.array([[128, 128, 64], [256, 64, 128], [128, 192, 64]], np.int32)
    extents = np.array([[m * k, k * n, m * n] for m, n, k in sizes])
    starts = (np.cumsum(extents, axis=0) - extents).astype(np.int32)
    flat = [
        x(int(n), dtype=t) for n, t in zip(extents.sum(0), (BF16, BF16, np.float32), strict=True)
    ]
    grouped = [*flat, starts.ravel(), sizes.ravel(), 3]
    for groups in (1, 0):
        how = {
            "BLOCK_M": 128,
            "BLOCK_N": 64,
            "BLOCK_K": 64,
            "NUM_SM": 2,
            "num_consumer_groups": groups,
        }
        yield Launch(
            f"grouped-{groups}", lambda how=how: _of_jit(of.grouped_matmul, grouped, 2, how)
        )  # type: ignore[misc]
    rows = [x(5, 100), x(5, 100), 100, 100, 5, 100]
    how = {"BLOCK_SIZE": 128, "STAGES": 4}
    yield Launch("softmax", lambda: _of_jit(of.softmax, rows, 2, how))
    half = x(4, 300, dtype=np.float16)
    norm = [half, half.copy(), half[0], x(300), x(4), x(4), 300, 300, 1e-5]
    yield Launch("layer-norm", lambda: _of_jit(of.layer_norm, norm, 4, {"BLOCK_SIZE": 128}))
    back = [
        x(6, 100), x(6, 100), x(200), x(200), x(6, 100), x(100), x(6), x(6), x(4, dtype=np.int32), 100, 100
    ]  # fmt: skip
    backward = {"GROUP_SIZE_M": 2, "BLOCK_SIZE_N": 128}
    yield Launch("layer-norm-backward", lambda: _of_jit(of.layer_norm_backward, back, 6, backward))
    q = [x(512, 64, dtype=BF16) for _ in range(4)]
    attended = [0.125, x(512), 1, 2, *q, 256]
    for stage in (1, 3):
        for ws in (True, False):
            meta = {
                "HEAD_DIM": 64,
                "BLOCK_M": 128,
                "BLOCK_N": 64,
                "STAGE": stage,
                "WARP_SPECIALIZE": ws,
            }
            name = f"attention{'-causal' * (stage == 3)}{'-ws' * ws}"
            yield Launch(name, lambda meta=meta: _of_jit(of.attention, attended, (2, 2), meta))  # type: ignore[misc]


def rows() -> Iterator[Launch]:
    """Kernels without dots: rows, scans, gathers, recurrences, atomics."""
    from corpus import plain_kernels as plain
    from corpus import tutorials as of
    from tests.e2e import test_deduplicate_loads as shared
    from tests.e2e import test_rows as row
    from tests.e2e import test_wide_rows as wide

    def x(*shape: int, dtype: Any = np.float32) -> Any:
        return np.zeros(shape, dtype)

    n, long, i32 = 1000, 60000, np.int32
    half, wide_row = x(4, n, dtype=BF16), x(2, long)
    block, strips = {"BLOCK": 1024}, {"BLOCK": 65536, "num_warps": 4}
    narrow = {"BLOCK": 256, "num_warps": 4}
    launches: list[tuple[Any, list[Any], Any, dict[str, Any]]] = [
        (plain.softmax_rows, [half, half.copy(), n], 4, block),
        (plain.softmax_rows, [wide_row, wide_row.copy(), long], 2, strips),
        (plain.layernorm_rows, [half, half[0], half[0], half.copy(), n], 4, block),
        (plain.layernorm_rows, [wide_row, x(long), x(long), wide_row.copy(), long], 2, strips),
        (plain.quantize, [wide_row, x(2, long, dtype=np.int8), x(2), long], 2, strips),
        (plain.rms_norm, [half, half[0], half.copy(), 4, n], 2, {"ROWS": 2, **block}),
        (plain.silu_mul, [x(4, 2 * n, dtype=BF16), half, n], (4, 1), block),
        (plain.column_sums, [x(64, n), x(n), 64, n], 4, {"ROWS": 16, "BLOCK": 256}),
        (plain.row_sums, [x(4, n), x(4), n], 4, narrow),
        (plain.row_argmax, [x(4, n), x(4, dtype=i32), n], 4, block),
        (plain.total, [x(n), x(1), n], 4, narrow),
        (plain.histogram, [x(n, dtype=i32), x(64, dtype=i32), n], 4, narrow),
        (plain.transpose, [x(64, 96), x(96, 64), 64, 96], (2, 3), {"ROWS": 32, "COLUMNS": 32}),
        (plain.gather_rows, [half, x(4, dtype=i32), half.copy(), n], (4, 1), block),
        (plain.cross_entropy, [x(4, n), x(4, dtype=i32), x(4), n], 4, narrow),
        (plain.scale_bias, [x(64, n), x(n), x(64), x(64, n), 64, n], (4, 4), {"ROWS": 16, "BLOCK": 256}),
        (row.scaled, [x(2, 640), 600, 640], 2, {"B": 256, "SHIFT": 0}),
        (row.decayed, [x(5, 100), x(5, 100, dtype=BF16), x(5, 100), x(5, 100), 5], 2, {"COLUMNS": 100, "B": 64}),
        (row.summed, [x(2, 512), x(2, 512), x(2, 512, dtype=np.int64)], 2, {"B": 512}),
        (row.halved, [x(3, 768, dtype=BF16), x(3, 512, dtype=BF16), 768, 512, 1531], 6, {"COLUMNS": 512, "B": 256}),
        (row.stepped, [x(16, 64), x(16, 16), x(16, 64), 11], 1, {"BT": 16, "COLUMNS": 64, "num_warps": 8}),
        (row.found, [x(256), x(100), x(256, dtype=i32)], 2, {"N": 100, "B": 128}),
        (shared.weighed, [x(512, dtype=i32), x(32, dtype=i32), x(512, dtype=i32), 512, 16, 0], 2, {"BLOCK": 256}),
        (shared.looked_up, [x(4, dtype=i32), x(100, dtype=i32), x(4, 32, dtype=i32), 3], 1, {"ROWS": 4, "BLOCK": 32}),
        (wide.standardized, [x(65536), x(65536), 65536], 1, {"B": 65536, "num_warps": 1}),
        (of.softmax, [wide_row, wide_row.copy(), long, long, 2, long], 2, {"BLOCK_SIZE": 65536, "STAGES": 2}),
    ]  # fmt: skip
    for kernel, args, grid, how in launches:
        name = f"{kernel.__name__}-{how.get('BLOCK', '')}"
        yield Launch(name, lambda one=(kernel, args, grid, how): _of_jit(*one))  # type: ignore[misc]


def further_rows() -> Iterator[Launch]:
    """Kernels without dots of other files: losses, layers, and rows that a block holds."""
    from corpus import layers, losses
    from corpus import plain_kernels as plain
    from corpus import tutorials as of
    from tests.e2e import test_prefetch_loads as ahead

    def x(*shape: int, dtype: Any = np.float32) -> Any:
        return np.zeros(shape, dtype)

    for case in (*losses.cases(), *layers.cases()):
        how = {**case.meta, **case.knobs}
        yield Launch(
            case.name, lambda case=case, how=how: _of_jit(case.kernel, case.args, case.grid, how)
        )  # type: ignore[misc]
    half = x(4, 100, dtype=np.float16)
    norm = [half, half.copy(), half[0], x(100), x(4), x(4), 100, 100, 1e-5]
    yield Launch("layer-norm-short", lambda: _of_jit(of.layer_norm, norm, 4, {"BLOCK_SIZE": 128}))
    entropy = [x(4, 200), x(4, dtype=np.int32), x(4), 200]
    yield Launch(
        "cross-entropy-short", lambda: _of_jit(plain.cross_entropy, entropy, 4, {"BLOCK": 256})
    )
    rows = [x(256, dtype=np.int32), x(256, dtype=np.int32), x(1, dtype=np.int32), 40]
    yield Launch("centred", lambda: _of_jit(ahead.centred_rows, rows, 1, {"BLOCK": 64}))


def epilogues() -> Iterator[Launch]:
    """Products whose tiles end in long or in several ways, or are drawn from a counter."""
    from corpus import chunk_gradients, chunks, dynamic, experts
    from tests.e2e import loops
    from tests.e2e import test_ping_pong_tiles as ping_pong
    from tests.e2e import test_recurrences as states
    from tests.e2e import test_scaled_dots as scaled
    from tests.e2e import test_short_loops as short
    from tests.e2e import test_tile_ends as ends
    from warploom.kernels.split_k import gemm_split_k

    def x(*shape: int, dtype: Any = BF16) -> Any:
        return np.zeros(shape, dtype)

    for case in (*dynamic.cases(), *experts.cases(), *chunks.cases(), *chunk_gradients.cases()):
        how = {**case.meta, **case.knobs}
        yield Launch(
            case.name, lambda case=case, how=how: _of_jit(case.kernel, case.args, case.grid, how)
        )  # type: ignore[misc]
    tile = [x(300, 200), x(272, 200), x(300, 272), 300, 272, 200]
    yield Launch("activated", lambda: _of_jit(ends.activated, tile, 2, ends.TILES))
    for way in ("", "ragged", "scaled", "told"):
        how, args = ping_pong.meta(way), ping_pong.arguments(500, 96)
        yield Launch(
            f"tiles-{way}", lambda how=how, args=args: _of_jit(ping_pong.tiles, args, 2, how)
        )  # type: ignore[misc]
    split = [x(16, 512), x(512, 64), x(16, 64), x(1 << 14, dtype=np.float32), x(4, dtype=np.int32)]
    split += [16, 64, 512, 512, 1, 64, 1, 64, 1]
    blocks = {"BLOCK_M": 16, "BLOCK_N": 64, "BLOCK_K": 128, "SPLIT_K": 4}
    for groups in (1, 0):
        how = {**blocks, "num_consumer_groups": groups}
        yield Launch(f"split-k-{groups}", lambda how=how: _of_jit(gemm_split_k, split, (1, 4), how))  # type: ignore[misc]
    for groups in (1, 0):
        how = {"BT": 64, "K": 64, "V": 64, "num_consumer_groups": groups}
        yield Launch(
            f"recurrence-{groups}",
            lambda how=how: _of_jit(states.recurrence, states._data(250), 1, how),
        )  # type: ignore[misc]
    every = [x(16, 16, dtype=np.uint8), x(16, 16, dtype=np.float32)]
    yield Launch("every-code", lambda: _of_jit(scaled.every, every, 1, {"FORMAT": "e4m3"}))
    blocks = {"BM": 64, "BN": 64, "BK": 64, "num_consumer_groups": 0}
    phases = [x(64, 256), x(256, 64), x(64, 64, dtype=np.float32), 256, 2]
    yield Launch("plain-phases", lambda: _of_jit(loops.plain_phases, phases, 1, blocks))
    chunk = [*short.inputs(100, 192, 128), 100, 192]
    how = {"V": 128, "num_warps": 4, "num_consumer_groups": 0}
    yield Launch("after-a-loop", lambda: _of_jit(short.after_a_loop, chunk, 2, how))


def _of_families(names: tuple[str, ...], most: int, how: Mapping[str, Any]) -> Iterator[Launch]:
    """The first launches of each of these files of the corpus, with these knobs."""
    from corpus import catalog

    seen = dict.fromkeys(names, 0)
    for case in catalog.everything():
        family = Path(case.kernel.fn.__code__.co_filename).stem
        if seen.get(family, most) < most:
            seen[family] += 1
            of = case.kernel, case.args, case.grid, {**case.meta, **case.knobs, **how}
            yield Launch(f"{case.name}-{how}", lambda of=of: _of_jit(*of))  # type: ignore[misc]


def in_order() -> Iterator[Launch]:
    """Dots of others by instructions that read registers, on few warps."""
    from tests.e2e.test_register_pressure import arguments, summed
    from tests.e2e.test_short_memory import operands, two_states

    how = {"matrix_unit": "mma.sync", "num_consumer_groups": 0, "num_warps": 4}
    yield from _of_families(("attention", "serving", "decoding", "states"), 3, how)
    yield Launch("summed", lambda: _of_jit(summed, arguments(), 1, {**how, "num_warps": 1}))
    held = {"N": 128, "num_warps": 4}
    yield Launch("two-states", lambda: _of_jit(two_states, operands(2), 1, held))


def in_clusters() -> Iterator[Launch]:
    """Products of others divided among CTAs, by the rows and columns of their tiles or by K, of all programs
    or of those of the last wave."""
    names = "plain", "batched", "described_gemms", "formats", "several", "around"
    for how in ({"num_ctas": 2}, {"split_k": 2}, {"split_k": "last_wave"}):
        yield from _of_families(names, 3, {**how, "num_consumer_groups": 1})


PARTS = {f.__name__: f for f in (eject, library, scripts, lessons, corpus, tutorials)}
# What the pages of the checker do not count.
FURTHER = {f.__name__: f for f in (rows, further_rows, epilogues, in_order, in_clusters)}
