"""triton.testing: timing, comparing, and tables of timings.

On a GPU times are CUDA events'; elsewhere the clock's, of kernels that are interpreted: they compare nothing.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from warploom.triton.runtime.driver import active

__all__ = [
    "Benchmark",
    "Mark",
    "assert_close",
    "do_bench",
    "do_bench_cudagraph",
    "do_bench_proton",
    "get_dram_gbps",
    "get_max_tensorcore_tflops",
    "perf_report",
]


# ---- timing


def do_bench(
    fn: Callable[[], object],
    warmup: float = 25,
    rep: float = 100,
    grad_to_none: Iterable[Any] | None = None,
    quantiles: Sequence[float] | None = None,
    return_mode: str = "mean",
) -> Any:
    """Milliseconds of fn(), which is called for about `warmup` and then `rep` of them, clearing the L2 cache
    before each call included.

    return_mode: "mean", "median", "min", "max", or "all" for the list; quantiles (0 … 1) come instead.
    grad_to_none: tensors whose .grad is dropped before each call.  Raises ValueError on another mode.
    """
    if return_mode not in _SUMMARIES:
        raise ValueError(f"return_mode is one of {', '.join(_SUMMARIES)}, not {return_mode!r}")
    for x in grad_to_none or ():
        x.grad = None
    timed = _timed_on_gpu if active.is_active() else _timed_on_host
    timed(fn, 1, ())
    start = time.perf_counter()
    timed(fn, 5, ())
    estimate = max(1e-6, (time.perf_counter() - start) / 5 * 1e3)
    timed(fn, max(1, int(warmup / estimate)), ())
    times = timed(fn, max(1, int(rep / estimate)), tuple(grad_to_none or ()))
    return _summarize_statistics(times, quantiles, return_mode)


def do_bench_cudagraph(
    fn: Callable[[], object],
    rep: float = 20,
    grad_to_none: Iterable[Any] | None = None,
    quantiles: Sequence[float] | None = None,
    return_mode: str = "mean",
) -> Any:
    """As do_bench: a launch here costs the host less than a kernel takes, so that a graph hides nothing."""
    return do_bench(fn, rep / 4, rep, grad_to_none, quantiles, return_mode)


do_bench_proton = do_bench_cudagraph


def _timed_on_gpu(fn: Callable[[], object], times: int, grads: Sequence[Any]) -> list[float]:
    events = active.get_device_interface()
    cache = active.get_empty_cache_for_benchmark()
    pairs = [[events.Event(enable_timing=True) for _ in range(2)] for _ in range(times)]
    for start, stop in pairs:
        for x in grads:
            x.grad = None
        active.clear_cache(cache)
        start.record()
        fn()
        stop.record()
    events.synchronize()
    return [start.elapsed_time(stop) for start, stop in pairs]


def _timed_on_host(fn: Callable[[], object], times: int, grads: Sequence[Any]) -> list[float]:
    found = []
    for _ in range(times):
        for x in grads:
            x.grad = None
        start = time.perf_counter()
        fn()
        found.append(1e3 * (time.perf_counter() - start))
    return found


_SUMMARIES: dict[str, Callable[[list[float]], Any]] = {
    "mean": statistics.mean,
    "median": statistics.median,
    "min": min,
    "max": max,
    "all": list,
}


def _summarize_statistics(times: list[float], quantiles: Sequence[float] | None, mode: str) -> Any:
    if quantiles is None:
        return _SUMMARIES[mode](times)
    found = [_quantile(sorted(times), q) for q in quantiles]
    return found[0] if len(found) == 1 else found


def _quantile(ordered: Sequence[float], q: float) -> float:
    """By linear interpolation.  Raises ValueError outside of [0, 1]."""
    if not 0 <= q <= 1:
        raise ValueError(f"a quantile is in [0, 1], not {q}")
    at = q * (len(ordered) - 1)
    low, share = ordered[math.floor(at)], at - math.floor(at)
    return low + share * (ordered[math.ceil(at)] - low)


# ---- comparing


def assert_close(x: Any, y: Any, atol: Any = None, rtol: Any = None, err_msg: str = "") -> None:
    """Raises AssertionError where |x - y| > atol + rtol·|y| somewhere.  atol (1e-2 where not given) and rtol
    (0) are numbers, or functions of x's and y's dtypes; tensors of torch, arrays and numbers are taken."""
    import numpy as np

    atol, rtol = (1e-2 if atol is None else atol), (0.0 if rtol is None else rtol)
    atol = atol(x.dtype) if callable(atol) else atol
    rtol = rtol(y.dtype) if callable(rtol) else rtol
    a, b = (_as_array(v) for v in (x, y))
    np.testing.assert_allclose(a, b, rtol=rtol, atol=atol, equal_nan=True, err_msg=err_msg)


def _as_array(x: Any) -> Any:
    import numpy as np

    if hasattr(x, "detach"):  # torch's; NumPy has no bfloat16
        x = x.detach().cpu()
        x = (x.float() if x.is_floating_point() and x.element_size() < 4 else x).numpy()
    found = np.asarray(x)
    return found.astype(np.float32) if found.dtype.kind == "V" else found


# ---- tables


@dataclass
class Benchmark:
    """A table, and a plot: a row for each of x_vals (a value for all x_names, or one for each of them), a
    column for each of line_vals, which line_arg takes; args go to every call."""

    x_names: Sequence[str]
    x_vals: Sequence[Any]
    line_arg: str
    line_vals: Sequence[Any]
    line_names: Sequence[str]
    plot_name: str
    args: Mapping[str, Any]
    xlabel: str = ""
    ylabel: str = ""
    x_log: bool = False
    y_log: bool = False
    styles: Sequence[tuple[str, str]] | None = None


@dataclass
class Mark:
    """A function under perf_report; `run` calls it for each cell: a number, or (number, least, most)."""

    fn: Callable[..., Any]
    benchmarks: Any
    tables: list[list[list[Any]]] = field(default_factory=list)

    def run(
        self,
        show_plots: bool = False,
        print_data: bool = False,
        save_path: str = "",
        return_df: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Fills the tables; prints them, leaves <save_path>/<plot_name>.csv and .png, shows the plots, and
        gives them as DataFrames (which takes pandas), as asked for."""
        alone = isinstance(self.benchmarks, Benchmark)
        benches: Sequence[Benchmark] = [self.benchmarks] if alone else self.benchmarks
        self.tables = [self._table(bench, kwargs) for bench in benches]
        for bench, rows in zip(benches, self.tables, strict=True):
            header = _header(bench)
            if print_data:
                print(f"{bench.plot_name}:", *_aligned([header, *rows]), sep="\n")
            if save_path:
                Path(save_path).mkdir(parents=True, exist_ok=True)
                lines = [",".join(map(str, row)) for row in [header, *rows]]
                Path(save_path, f"{bench.plot_name}.csv").write_text("\n".join(lines) + "\n")
            if bench.plot_name and (show_plots or save_path):
                _plot(bench, rows, save_path, show_plots)
        if not return_df:
            return None
        import pandas

        pairs = zip(benches, self.tables, strict=True)
        frames = [pandas.DataFrame(rows, columns=_header(bench)) for bench, rows in pairs]
        return frames[0] if alone else frames

    def _table(self, bench: Benchmark, more: Mapping[str, Any]) -> list[list[Any]]:
        rows = []
        for x in bench.x_vals:
            values = list(x) if isinstance(x, list | tuple) else [x] * len(bench.x_names)
            if len(values) != len(bench.x_names):
                raise ValueError(f"{len(bench.x_names)} values are wanted, not {x!r}")
            named = dict(zip(bench.x_names, values, strict=True))
            found = (
                self.fn(**named, **{bench.line_arg: line}, **bench.args, **more)
                for line in bench.line_vals
            )
            rows.append([*values, *(y[0] if isinstance(y, list | tuple) else y for y in found)])
        return rows


def _header(bench: Benchmark) -> list[Any]:
    unit = f" ({bench.ylabel})" if bench.ylabel else ""
    return [*bench.x_names, *(f"{name}{unit}" for name in bench.line_names)]


def _aligned(rows: Sequence[Sequence[Any]]) -> Iterator[str]:
    texts = [[f"{v:.6f}" if isinstance(v, float) else str(v) for v in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    for row in texts:
        yield "  ".join(text.rjust(n) for text, n in zip(row, widths, strict=True))


def _plot(bench: Benchmark, rows: Sequence[Sequence[Any]], folder: str, show: bool) -> None:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots()
    x, first = [row[0] for row in rows], len(bench.x_names)
    for i, name in enumerate(bench.line_names):
        colour, style = bench.styles[i] if bench.styles else (None, None)
        axes.plot(x, [row[first + i] for row in rows], label=name, color=colour, linestyle=style)
    axes.legend()
    axes.set_xlabel(bench.xlabel or bench.x_names[0])
    axes.set_ylabel(bench.ylabel)
    axes.set_xscale("log" if bench.x_log else "linear")
    axes.set_yscale("log" if bench.y_log else "linear")
    if folder:
        figure.savefig(Path(folder, f"{bench.plot_name}.png"))
    if show:
        pyplot.show()
    pyplot.close(figure)


def perf_report(
    benchmarks: Benchmark | Sequence[Benchmark],
) -> Callable[[Callable[..., Any]], Mark]:
    """Decorator: a function whose `run` fills the tables of one Benchmark, or of several."""
    return lambda fn: Mark(fn, benchmarks)


# ---- what the device can do


def get_dram_gbps(device: int | None = None) -> float:
    """GB/s that the device's memory moves at most, by its clock and width; 0 without a GPU."""
    about = active.get_device_properties(active.get_current_device() if device is None else device)
    # two transfers a clock
    return about.get("mem_clock_rate", 0) * 1e3 * about.get("mem_bus_width", 0) / 8 * 2 / 1e9


def get_max_tensorcore_tflops(dtype: Any, clock_rate: float, device: int | None = None) -> float:
    """TFLOP/s of the device's tensor cores at a clock (kHz), by the target's cost table.  dtype: of the
    operands, this language's or torch's."""
    from warploom.runtime.dtypes import DTYPE_NAMES, ITEM_BYTES
    from warploom.target import DEFAULT

    target = active.target(active.get_current_device() if device is None else device) or DEFAULT
    about = active.get_device_properties(0 if device is None else device)
    name = str(dtype).removeprefix("torch.")
    macs = target.cost.tensor_macs_16bit * 2 / ITEM_BYTES[DTYPE_NAMES.get(name, name)]
    return 2 * macs * about["multiprocessor_count"] * clock_rate * 1e3 / 1e12
