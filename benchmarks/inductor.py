"""torch.compile with its kernels served from here, and by the installed Triton: right? how fast?

    python -m benchmarks.inductor [--only REGEX] [--seconds 200] [--tuner do_bench] [--out FILE]
        [--mode reduce-overhead] [--dynamic] [--set triton.multi_kernel=1] [--untimed | --alone]
        [--device cpu]

Each compiler has processes of its own: some that compile and check the cases of `inductor_cases.py`, each a
share, and then one that tunes and times alone, with the kernels that they left in the caches: what was tuned
beside others is forgotten, and `taken` says which configurations were taken.  Results are compared with eager
mode in float64, drawn numbers with the other compiler's.  `us` of a kernel: the median of the profiler's
times, with a cold L2 cache, in a CUDA graph, from the end of what ran before it to its end, so that waits
count alike whether a kernel begins behind it or early, and waits itself.  `graph_us`: a whole call as a CUDA
graph.  One JSON object is printed; `summary` has the ratios, Triton's time over ours.  Beside --out lie its
records (`benchmarks.records`).

--tuner says how both compilers' configurations are timed: by `do_bench` of each, which clears 256 MB before a
launch, or by Inductor's own benchmarker (`inductor`, what users have unless they set
TORCHINDUCTOR_USE_EXPERIMENTAL_BENCHMARKER=0).  That one clears as much as the L2 cache has, in 16 us on an
H200; the host takes longer for a launch and its events, so of kernels under 30 us it mostly times the host.

--mode, --dynamic and --set NAME=VALUE (of torch._inductor.config, any number of them) are for every case;
what a case sets itself comes before them.  --untimed only checks; --alone without Triton.  --device cpu
checks by Inductor's Triton backend for CPUs, where this package interprets the kernels after it has compiled
them: small --scale.
"""

from __future__ import annotations

import argparse
import ast
import gc
import hashlib
import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.inductor_cases import CASES, Case, Maker
from benchmarks.measure import begun
from benchmarks.records import Record, write

SHARES = 8  # processes that compile and check at the same time
ROUNDS = 12  # calls that are profiled
WALLS = 7  # as many calls each: other work of the host slows some down
EXCUSED = 2.0  # times eager mode's error in the same dtypes


# ---- in the process of one compiler


def flat(result: Any) -> list[Any]:
    """The tensors of a result."""
    return [t for x in result for t in flat(x)] if isinstance(result, list | tuple) else [result]


def run(case: Case, fn: Any, inputs: Sequence[Any]) -> list[Any]:
    """The outputs of fn(*inputs), and the gradients of the inputs for drawn gradients of the outputs."""
    import torch

    outputs = flat(fn(*inputs))
    wanted = [x for x in inputs if isinstance(x, torch.Tensor) and x.requires_grad]
    if case.forward_only or not wanted:
        return outputs
    given = [y for y in outputs if y.requires_grad]
    if case.seeds is None:
        generator = torch.Generator().manual_seed(1)
        drawn = (torch.randn(y.shape, generator=generator) for y in given)
        case.seeds = [x.to(y.dtype).to(y.device) for x, y in zip(drawn, given, strict=True)]
    seeds = [x.to(y.dtype) for x, y in zip(case.seeds, given, strict=True)]
    return outputs + [
        g for g in torch.autograd.grad(given, wanted, seeds, allow_unused=True) if g is not None
    ]


def difference(found: Any, exact: Any) -> float:
    """The relative error; infinite where shapes, or the places of what isn't finite, differ."""
    found, exact = found.double(), exact.double()
    finite = exact.isfinite()
    if found.shape != exact.shape or not bool((finite == found.isfinite()).all()):
        return math.inf
    off = (found - exact)[finite].norm()
    return float(off / (exact[finite].norm() + 1e-30))


def check(case: Case, compiled: Any, calls: int) -> dict[str, Any]:
    """errors: of each result beside eager mode's in the same dtypes; bits: of drawn results.  calls: how
    often it is called; the last one counts."""
    import torch

    errors = []
    for inputs in [*case.others, case.inputs]:
        for _ in range(calls):
            torch.manual_seed(7)
            torch.compiler.cudagraph_mark_step_begin()
            found = run(case, compiled, inputs)
        if case.random:
            data = b"".join(t.detach().float().cpu().numpy().tobytes() for t in found)
            return {"right": True, "bits": hashlib.sha256(data).hexdigest()[:16]}
        plain = case.plain or case.fn
        exact = run(case, plain, [_doubled(x) for x in inputs])
        eager = run(case, plain, inputs)
        errors += [
            (difference(f, x), difference(e, x))
            for f, e, x in zip(found, eager, exact, strict=True)
        ]
        case.seeds = None  # other inputs have outputs of other shapes
    right = all(off <= EXCUSED * usual + case.tolerance + 1e-6 for off, usual in errors)
    return {"right": right, "errors": [[float(f"{x:.2e}") for x in pair] for pair in errors]}


def _doubled(x: Any) -> Any:
    if not hasattr(x, "dtype") or not x.dtype.is_floating_point:
        return x
    return x.detach().double().requires_grad_(x.requires_grad)


def timed(case: Case, compiled: Any) -> dict[str, Any]:
    """kernels: median microseconds of each by name, and how often a call launches it; us: of all of them;
    wall_us: of a call with the host's part; taken: the kernels' configurations and registers."""
    import torch
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    cold = torch.empty(1 << 28, dtype=torch.int8, device="cuda")
    before_all = {id(x) for x in _tuners()}
    for _ in range(3):
        run(case, compiled, case.inputs)
    walls = []
    for _ in range(WALLS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(ROUNDS):
            run(case, compiled, case.inputs)
        torch.cuda.synchronize()
        walls.append((time.perf_counter() - start) / ROUNDS * 1e6)
    try:
        call = captured(case, compiled, cold).replay
        graph_us = graphed(case, compiled, cold)
    except Exception as error:
        graph_us = None
        print(f"{type(error).__name__}: {error}", file=sys.stderr)

        def call() -> None:
            cold.zero_()
            run(case, compiled, case.inputs)

    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        for _ in range(ROUNDS):
            call()
        torch.cuda.synchronize()
    times: dict[str, list[float]] = {}
    on_device = [e for e in profiled.events() if e.device_type == DeviceType.CUDA]
    before = -math.inf  # when all that was launched earlier had ended
    for event in sorted(on_device, key=lambda e: e.time_range.start):
        ended = event.time_range.end
        if event.name.startswith("triton_"):
            times.setdefault(event.name, []).append(max(0.0, ended - before))
        before = max(before, ended)
    kernels = {
        name: [round(statistics.median(us), 2), len(us) // ROUNDS]
        for name, us in sorted(times.items())
    }
    tuners = [x for x in _tuners() if id(x) not in before_all and len(x.launchers) == 1]
    return {
        "kernels": kernels,
        "taken": {
            x.fn.__name__: [str(x.launchers[0].config), getattr(x.launchers[0], "n_regs", None)]
            for x in tuners
        },
        "graph_us": graph_us,
        "us": round(sum(us * n for us, n in kernels.values()), 2),
        "wall_us": round(statistics.median(walls), 1),
    }


def _tuners() -> list[Any]:
    """Inductor's kernels of this process: each knows the configurations that it chose among."""
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    return [x for x in gc.get_objects() if issubclass(type(x), CachingAutotuner)]


def captured(case: Case, compiled: Any, cold: Any = None) -> Any:
    """A call as a CUDA graph, behind one that clears the L2 cache where `cold` is given."""
    import torch

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(2):
            run(case, compiled, case.inputs)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        if cold is not None:
            cold.zero_()
        run(case, compiled, case.inputs)
    return graph


def graphed(case: Case, compiled: Any, cold: Any) -> float:
    """Median microseconds of a call on the GPU, captured as a CUDA graph: without the host's part, and with
    the overlap of launches, which the profiler counts twice."""
    import torch

    times: list[float] = []
    graph = captured(case, compiled)
    for _ in range(2 * ROUNDS):
        cold.zero_()  # meanwhile the host gets ahead: its part of a launch doesn't count
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) * 1e3)
    return round(statistics.median(times), 2)


def cases(only: str, share: int, shares: int) -> Iterator[tuple[str, Any]]:
    names = [name for name in CASES if re.search(only, name)]
    return ((name, CASES[name]) for name in names[share::shares])


def work(args: argparse.Namespace) -> None:
    """A line of JSON for each case of a share."""
    import torch
    import torch._inductor.config

    torch._inductor.config.autotune_local_cache = False  # each process tunes for itself
    if args.device == "cpu":
        import triton

        torch._inductor.config.cpu_backend = "triton"
        triton.backends.backends["cpu"] = triton.backends.backends[
            "nvidia"
        ]  # users' kernels are traced
    given = torch._inductor.list_mode_options(args.mode) if args.mode else {}
    given = {**given, **dict(map(_setting, args.set))}
    follow = _Refusals(args.compiler == "warploom")
    for name, make in cases(args.only, args.share, args.shares):
        if time.time() > args.until:
            print(json.dumps({"case": name, "left_out": "no time"}), flush=True)
            continue
        print(json.dumps({"case": name, "failed": "its process crashed or was ended"}), flush=True)
        start = time.perf_counter()
        found: dict[str, Any] = {"case": name}
        try:
            torch._dynamo.reset()
            case = make(Maker(args.device, args.scale))
            options = given | (case.options or {})
            if case.ahead:
                compiled = ahead_of_time(case, options)
            else:
                compiled = torch.compile(
                    case.fn, options=options, dynamic=args.dynamic or case.dynamic
                )
            calls = 3 if options.get("triton.cudagraphs") else 1  # the last one replays a graph
            found |= timed(case, compiled) if args.time else check(case, compiled, calls)
        except Exception as error:
            found["failed"] = f"{type(error).__name__}: {str(error)[:3000]}"
        found |= {"seconds": round(time.perf_counter() - start, 2), **follow.taken()}
        print(json.dumps(found), flush=True)


def _setting(text: str) -> tuple[str, Any]:
    """NAME=VALUE; values that are no literals of Python are strings."""
    name, _, value = text.partition("=")
    try:
        return name, ast.literal_eval(value)
    except (SyntaxError, ValueError):
        return name, value


def ahead_of_time(case: Case, options: dict[str, Any]) -> Any:
    """The function as AOTInductor compiles it, loaded again: its kernels are launched by C++."""
    import torch

    class Module(torch.nn.Module):
        def forward(self, *inputs: Any) -> Any:
            return case.fn(*inputs)

    with torch.no_grad():
        exported = torch.export.export(Module(), tuple(case.inputs))
        return torch._inductor.aoti_load_package(
            torch._inductor.aoti_compile_and_package(exported, inductor_configs=options)
        )


class _Refusals:
    """What `triton.compile` was asked for since the last call of `taken`."""

    def __init__(self, is_served: bool) -> None:
        self._met: list[dict[str, Any]] = []
        if is_served:
            from warploom.runtime.hooks import AROUND_COMPILE

            AROUND_COMPILE.append(self._around)

    def _around(self, src: Any, compile: Any) -> Any:
        told: dict[str, Any] = {
            "kernel": src.fn.__name__,
            "constants": {k: str(v) for k, v in src.constants.items()},
        }
        self._met.append(told)
        start = time.perf_counter()
        try:
            made = compile()
        except Exception as error:
            told |= {"refused": f"{type(error).__name__}: {error}"[:1500], "src": src.fn.src[:6000]}
            raise
        told |= {"spills": made.n_spills, "seconds": round(time.perf_counter() - start, 2)}
        return made

    def taken(self) -> dict[str, Any]:
        met, self._met = self._met, []
        found: dict[str, Any] = {
            "compiled": len(met),
            "refused": [m for m in met if "refused" in m],
        }
        found["spilling"] = [m for m in met if m.get("spills")]
        found["compile_s"] = round(sum(m.get("seconds", 0) for m in met), 2)
        return found


# ---- the processes


def process(
    compiler: str, args: argparse.Namespace, folder: Path, threads: int = 1, **how: Any
) -> subprocess.Popen[str]:
    """One that works on a share with a compiler, whose caches are below a folder.  threads: processes in
    which Inductor compiles kernels; 1: in its own."""
    given = {"compiler": compiler, "scale": args.scale, "device": args.device, **how}
    own, here = folder / compiler, Path(__file__).resolve().parents[1]
    own.mkdir(exist_ok=True, parents=True)
    env = os.environ | {
        "TORCHINDUCTOR_CACHE_DIR": str(own / "inductor"),
        "TRITON_CACHE_DIR": str(own / "triton"),
        "WARPLOOM_CACHE": str(own / "warploom"),
        "TORCHINDUCTOR_COMPILE_THREADS": str(threads),
        "TORCHINDUCTOR_USE_EXPERIMENTAL_BENCHMARKER": str(int(args.tuner == "inductor")),
        "PYTHONPATH": os.pathsep.join([str(here), os.environ.get("PYTHONPATH", "")]),
    }
    run = ["-m", "warploom", "run"] if compiler == "warploom" else []
    words = [f"--{name}={value}" for name, value in given.items()]
    words += [f"--only={args.only}", *(f"--set={setting}" for setting in args.set)]
    words += [f"--mode={args.mode}"] * bool(args.mode) + ["--dynamic"] * args.dynamic
    command = [sys.executable, "-X", "faulthandler", *run, "-m", "benchmarks.inductor", *words]
    told = (own / f"stderr-{len(list(own.glob('stderr-*')))}").open("w")
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=told, text=True, env=env, cwd=here
    )


def gather(processes: Sequence[subprocess.Popen[str]], until: float) -> dict[str, dict[str, Any]]:
    """What each case's last line said; processes that take too long are ended."""
    found: dict[str, dict[str, Any]] = {}
    for one in processes:
        try:
            out, _ = one.communicate(timeout=max(1.0, until + 20 - time.time()))
        except subprocess.TimeoutExpired:
            one.kill()
            out, _ = one.communicate()
        for line in out.splitlines():
            if line.startswith("{"):
                told = json.loads(line)
                found[told.pop("case")] = told
    return found


def both(args: argparse.Namespace, folder: Path, begun: float) -> dict[str, Any]:
    """What the processes of both compilers said of each case, and what one said in which Inductor compiled
    in processes of its own."""
    # `gather` gives cases 20 s more.
    until = begun + (args.seconds - 20 if args.untimed else args.seconds * 0.6)
    checking = {
        compiler: [
            process(compiler, args, folder, share=i, shares=SHARES, until=until)
            for i in range(SHARES)
        ]
        for compiler in ("warploom", *["triton"] * (args.device == "cuda" and not args.alone))
    }
    found: dict[str, Any] = {c: gather(processes, until) for c, processes in checking.items()}
    if args.untimed:
        return found
    for i, compiler in enumerate(checking):
        until = begun + args.seconds * (0.75 + 0.15 * i)
        times = gather([process(compiler, args, folder, time=1, until=until)], until)
        for name, told in times.items():
            found[compiler].setdefault(name, {})["timed"] = told
    until = begun + args.seconds
    one = argparse.Namespace(**{**vars(args), "only": "^(gelu|rms_norm)$"})
    found["workers"] = gather([process("warploom", one, folder / "workers", threads=2)], until)
    return found


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default=".", help="a regular expression of cases")
    parser.add_argument("--seconds", type=float, default=200)
    parser.add_argument("--scale", type=float, default=1.0, help="of the sizes")
    parser.add_argument("--tuner", choices=["do_bench", "inductor"], default="do_bench")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--mode", help="of torch.compile")
    parser.add_argument("--dynamic", action="store_true", help="sizes are symbols from the start")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--untimed", action="store_true")
    parser.add_argument("--alone", action="store_true", help="without Triton, and untimed")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--compiler", help=argparse.SUPPRESS)
    parser.add_argument("--share", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--shares", type=int, default=1, help=argparse.SUPPRESS)
    parser.add_argument("--time", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--until", type=float, default=math.inf, help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    args.untimed |= args.alone or args.device == "cpu"
    if args.compiler:
        work(args)
        return 0
    report, run_name = begun("us")
    start = time.time()
    with tempfile.TemporaryDirectory() as name:
        found = both(args, Path(name), start)
        paths = sorted(Path(name).rglob("stderr-*"))
        found["stderr"] = {str(p.relative_to(name)): p.read_text()[-3000:] for p in paths}
    seconds = round(time.time() - start, 1)
    text = json.dumps({"summary": summary(found), "seconds": seconds, **found}, indent=1)
    if args.out:
        args.out.write_text(text)
    if not args.untimed and args.out:
        report.records += records(found, run_name)
        write(args.out.with_suffix(".records.jsonl"), report)
    print(text)
    return 0


def records(found: dict[str, Any], run: str) -> Iterator[Record]:
    """Of each case the microseconds of the kernels that both compilers have, and the least ratio."""
    for case, told in found["warploom"].items():
        mine, peer = (
            each.get("timed", {}).get("kernels", {})
            for each in (told, found["triton"].get(case, {}))
        )
        both = [k for k in mine if k in peer and mine[k][0] > 0]
        if not both:
            continue
        config = f"{len(both)} kernels; least {min(peer[k][0] / mine[k][0] for k in both):.2f}"
        error = "" if told.get("right") else "wrong"
        for name, times in (("warploom", mine), ("Triton", peer)):
            total = sum(times[k][0] * times[k][1] for k in both)
            ours = {"config": config, "error": error} if name == "warploom" else {}
            yield Record(f"torch.compile {case}", name, run, [round(total, 2)], **ours)


def summary(found: dict[str, Any]) -> dict[str, Any]:
    """Cases and kernels that are right, refused, slower."""
    ours, theirs = found["warploom"], found.get("triton", {})
    both = ours.keys() & theirs.keys()
    kernels: dict[str, list[float]] = {}
    for name, told in ours.items():
        mine = told.get("timed", {}).get("kernels", {})
        peer = theirs.get(name, {}).get("timed", {}).get("kernels", {})
        for kernel in set(mine) & set(peer):
            kernels[f"{name}: {kernel}"] = [mine[kernel][0], peer[kernel][0]]
    ratios = {k: round(peer / own, 3) for k, (own, peer) in kernels.items() if own > 0}
    long = {k: r for k, r in ratios.items() if kernels[k][1] >= 10}
    graphs = {
        name: round(theirs[name]["timed"]["graph_us"] / told["timed"]["graph_us"], 3)
        for name, told in ours.items()
        if told.get("timed", {}).get("graph_us")
        and theirs.get(name, {}).get("timed", {}).get("graph_us")
    }
    walls = {
        name: round(theirs[name]["timed"]["wall_us"] / told["timed"]["wall_us"], 3)
        for name, told in ours.items()
        if "wall_us" in told.get("timed", {}) and "wall_us" in theirs.get(name, {}).get("timed", {})
    }
    return {
        "cases": len(ours),
        "right": sum(bool(t.get("right")) for t in ours.values()),
        "wrong": [n for n, t in ours.items() if t.get("right") is False],
        "failed": {n: t["failed"][:200] for n, t in ours.items() if "failed" in t},
        "failed_with_triton": {n: t["failed"][:200] for n, t in theirs.items() if "failed" in t},
        "wrong_with_triton": [n for n, t in theirs.items() if t.get("right") is False],
        "other_bits": [
            n for n in ours if n in both and ours[n].get("bits") != theirs[n].get("bits")
        ],
        "kernels_compiled": sum(t.get("compiled", 0) for t in ours.values()),
        "kernels_refused": sum(len(t.get("refused", ())) for t in ours.values()),
        "kernels_timed": len(ratios),
        "geometric_mean": _mean(ratios.values()),
        "geometric_mean_10us": _mean(long.values()),
        "under_0.9": {
            k: [r, *kernels[k]] for k, r in sorted(long.items(), key=lambda x: x[1]) if r < 0.9
        },
        "graphs": {"geometric_mean": _mean(graphs.values()), **graphs},
        "wall": {"geometric_mean": _mean(walls.values()), **walls},
    }


def _mean(ratios: Any) -> float | None:
    logs = [math.log(r) for r in ratios]
    return round(math.exp(statistics.mean(logs)), 3) if logs else None


if __name__ == "__main__":
    sys.exit(main())
