"""tilus.utils and tilus.testing, without a kernel."""

import threading
import unittest

import pytest

import warploom.language as tl
from warploom.errors import LaunchError
from warploom.tilus import option, utils
from warploom.tilus.testing import requires


def test_numbers() -> None:
    assert (utils.prod([]), utils.prod(iter([2, 3, 5]))) == (1, 30)
    assert [utils.floor_log2(n) for n in (1, 2, 3, 1023, 1024)] == [0, 1, 1, 9, 10]
    assert (utils.idiv(12, 4), utils.nbytes_from_nbits(24), utils.gcd(12, 18)) == (3, 3, 6)
    with pytest.raises(ValueError, match="8 does not divide 12"):
        utils.nbytes_from_nbits(12)


@pytest.mark.parametrize("name", ["float32", "bfloat16", "int64", "uint8", "bool", "float8_e5m2"])
def test_dtypes_by_name(name: str) -> None:
    found = utils.dtype_from_torch(name)
    assert found == utils.dtype_from_torch(f"torch.{name}") == utils.dtype_from_torch(found)
    assert found is not None
    torch = pytest.importorskip("torch")
    assert utils.dtype_to_torch(found) is getattr(torch, name)


def test_dtypes_that_the_other_side_lacks() -> None:
    assert utils.dtype_from_torch(None) is None
    assert utils.dtype_from_torch("float8_e4m3fn") == tl.float8e4nv
    with pytest.raises(LaunchError, match="kernels have no complex64"):
        utils.dtype_from_torch("complex64")


def test_a_call_is_timed_as_often_as_asked() -> None:
    calls: list[None] = []
    times = utils.benchmark_func(lambda: calls.append(None), warmup=2, repeat=3, median=False)
    assert (len(times), len(calls)) == (3, 5) and all(t >= 0 for t in times)
    assert isinstance(utils.benchmark_func(lambda: None), float)
    with pytest.raises(ValueError, match="repeat is 1 or more"):
        utils.benchmark_func(lambda: None, repeat=0)


def test_tests_are_skipped_without_their_gpu() -> None:
    @requires.nvgpu_sm100a
    def needs_another_chip() -> None:
        raise AssertionError("no machine of ours has one")

    with pytest.raises(unittest.SkipTest, match="needs a GPU of sm_100a"):
        needs_another_chip()
    with pytest.raises(AttributeError, match=r"write requires\.nvgpu_sm90"):
        _ = requires.amdgpu_gfx942


def test_jobs_in_parallel_keep_their_order() -> None:
    both = threading.Barrier(2, timeout=10)  # passes where two run at once

    def job(n: int) -> int:
        both.wait()
        return n * n

    assert utils.parallel_map(job, range(6), num_workers=2) == [0, 1, 4, 9, 16, 25]
    results = utils.parallel_imap(lambda n: 6 // n, [2, 0])
    assert next(results) == 3
    with pytest.raises(ZeroDivisionError):
        next(results)


def test_options_are_told_as_they_were_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(option, "_kept", dict(option._kept))
    monkeypatch.setenv("WARPLOOM_DUMP", "")
    monkeypatch.setenv("WARPLOOM_CACHE", "off")
    assert option.get_option("cache_dir") == "off" and not option.get_option("debug.dump_ir")
    option.cache_dir("/somewhere")
    option.debug.dump_ir()
    option.debug.disable_ptxas_opt()
    for n, name in enumerate(("parallel_workers", "bench_warmup", "bench_repeat"), 3):
        getattr(option, name)(n)
        assert option.get_option(name) == n
    assert option.get_option("cache_dir") == "/somewhere" and option.get_option("debug.dump_ir")
    assert option.get_option("debug.disable_ptxas_opt")
    with pytest.raises(LaunchError, match="no option 'depth'"):
        option.get_option("depth")
