"""Launch plans and prepared launches, on a driver that only records."""

from __future__ import annotations

import ctypes
import dataclasses
import struct
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.fake_driver import FakeDriver
from warploom.codegen import host
from warploom.codegen.emit import Emitted
from warploom.errors import LaunchError
from warploom.ir.core import Fact
from warploom.ir.parser import parse_func
from warploom.ir.types import ARGUMENT_DTYPES
from warploom.runtime import workspace
from warploom.runtime.args import Spec
from warploom.runtime.dtypes import ELEMENTS
from warploom.runtime.launch import CudaDriver, LoadedKernel
from warploom.runtime.plan import (
    BlockLayout,
    LaunchPlan,
    MapParam,
    ScalarParam,
    Workspace,
    make_binder,
)
from warploom.runtime.signature import facts_of, plan_of, types_of

MAP = MapParam("bf16", "a[0]", ("a[2]", "a[1]"), ("(a[2] * (2))",), (64, 128), 128)
PLAN = LaunchPlan(
    "k",
    threads=384,
    shared_bytes=200_000,
    params=(ScalarParam(1, "i"), MAP, ScalarParam(3, "d"), ScalarParam(0, "Q")),
    cluster=(2, 1, 1),
    disjoint=((0, 3),),
    nonnegative=(1,),
)
ARGS = (1 << 20, -5, 512, 2.5)


def loaded(driver: FakeDriver, plan: LaunchPlan = PLAN) -> LoadedKernel:
    driver.params = len(plan.params)
    return LoadedKernel(driver, b"\x7fELF", plan)


def test_plans_survive_json() -> None:
    assert LaunchPlan.from_json(PLAN.to_json()) == PLAN
    for text in ("{}", "[]", "null", '{"params": [{"kind": "Other"}]}'):
        with pytest.raises(ValueError):
            LaunchPlan.from_json(text)


def test_the_parameter_block_holds_each_parameter_where_it_is_pointed_at() -> None:
    driver = FakeDriver()
    loaded(driver).prepare(0, (7, 2, 3), ARGS)()
    ((function, grid, threads, shared, stream, values),) = driver.launches
    double = struct.unpack("<q", struct.pack("<d", 2.5))[0]
    assert (function, grid, threads, shared, stream) == ("k:4", (14, 2, 3), 384, 200_000, 0)
    assert [values[0] & 0xFFFFFFFF, values[2], values[3]] == [0xFFFFFFFB, double, 1 << 20]
    assert values[1] == 1  # the first tensor map that the driver made
    assert driver.encoded == [(MAP, (1 << 20, (512, -5), (1024,)))]


OF_PROGRAMS = LaunchPlan(
    "k",
    threads=128,
    shared_bytes=0,
    params=(*(ScalarParam(i, "q") for i in range(4)), ScalarParam(4, "Q"), ScalarParam(5, "Q")),
    grid=("a[1] * a[2] * a[3] + 3",),
    workspaces=(Workspace("parts", "f32", "(5)", False), Workspace("tickets", "i32", "(7)", True)),
    programs=True,
)


def test_programs_of_a_last_wave_run_on_a_grid_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With their grid's sizes and memory behind the caller's arguments, which launches on one stream share."""
    driver, stream = FakeDriver(), 0
    monkeypatch.setattr(workspace, "driver", lambda: driver)
    monkeypatch.setattr(workspace, "current_stream", lambda device: stream)
    assert LaunchPlan.from_json(OF_PROGRAMS.to_json()) == OF_PROGRAMS
    kernel = loaded(driver, OF_PROGRAMS)
    launch = workspace.prepared(kernel, 0, (4, 2, 1), (77,))
    launch()
    launch.start((5,))
    launch.start((0, 5))  # nothing to do
    workspace.prepared(kernel, 0, (4, 2, 1), (78,))()
    launch(stream=9)
    stream = 9
    launch()
    found = [(grid[0], of, values) for _, grid, _, _, of, values in driver.launches]
    grids = [(11, 4, 2, 1), (8, 5, 1, 1), (11, 4, 2, 1), (11, 4, 2, 1), (11, 4, 2, 1)]
    assert [(n, *values[1:4]) for n, _, values in found] == grids
    assert [values[0] for *_, values in found] == [77, 77, 78, 77, 77]
    assert [of for _, of, _ in found] == [0, 0, 0, 9, 9]
    memory = [tuple(values[4:]) for *_, values in found]
    assert memory[0] == memory[1] == memory[2] != memory[3] == memory[4]
    assert [driver.memory[p].size for p in memory[0]] == [20, 28]


def test_a_captured_launch_shares_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph may run beside other launches: it gets whole programs, where nobody asked for parts."""
    driver = FakeDriver()
    monkeypatch.setattr(workspace, "driver", lambda: driver)
    kernel, other = loaded(driver, OF_PROGRAMS), loaded(driver)
    chosen = workspace.prepared(
        kernel, 0, (4, 2, 1), (77,), lambda: other.prepare(0, (1, 1, 1), ARGS)
    )
    driver.capturing = True
    chosen(7)
    chosen.start((6,), 7)
    assert [grid for _, grid, *_ in driver.launches] == [
        (8, 2, 1),
        (12, 1, 1),
    ] and not driver.memory
    asked = workspace.prepared(kernel, 0, (4, 2, 1), (77,))
    with pytest.raises(LaunchError, match="can't be made during a capture"):
        asked(7)
    driver.capturing = False
    asked(7)
    driver.capturing = True
    asked(7)
    assert [grid for _, grid, *_ in driver.launches[2:]] == [(11, 1, 1)] * 2


def test_layout_aligns_tensor_maps() -> None:
    layout = BlockLayout.of(PLAN)
    assert layout.offsets == (128, 0, 136, 144) and layout.packer.size == 152


def test_devices_are_made_ready_once_and_maps_encoded_once() -> None:
    driver = FakeDriver()
    kernel = loaded(driver)
    for pointer in (1 << 20, 1 << 21, 1 << 20):
        kernel.prepare(0, (1, 1, 1), (pointer, *ARGS[1:]))()
    kernel.prepare(1, (1, 1, 1), ARGS)
    assert driver.prepared == [(0, 200_000), (1, 200_000)]
    assert driver.entered[:2] == [0, 0]  # for each map that was encoded, before the launch
    assert [key[0] for _, key in driver.encoded] == [1 << 20, 1 << 21]


def test_a_configuration_is_made_once_for_a_grid_however_it_is_written() -> None:
    driver = FakeDriver()
    prepared = loaded(driver).prepare(0, (4, 1, 1), ARGS)
    for grid in ((4,), [4], (4, 1, 1), 4, (np.int64(4),), [4]):
        prepared.start(grid)
    assert len(driver.launches) == 6 and len(driver.configured) == 1
    for grid in (4.0, (4.0,), (4, 1.0), (4, 1, np.float32(1)), ("4",), None):  # equal, but no sizes
        with pytest.raises(LaunchError, match="1 to 3 sizes"):
            prepared.start(grid)


def test_launches_of_a_kernel_share_their_configurations() -> None:
    driver = FakeDriver()
    kernel = loaded(driver)
    for device, grid in ((0, 4), (0, (4,)), (1, (4, 1))):
        kernel.prepare(device, (4, 1, 1), ARGS).start(grid, 7)
    assert len(driver.launches) == 3 and len(driver.configured) == 1


def test_an_empty_grid_launches_nothing() -> None:
    driver = FakeDriver()
    prepared = loaded(driver).prepare(0, (1, 1, 1), ARGS)
    for grid in ((0, 1, 1), (1, 0, 1), (1, 1, 0)):
        prepared.start(grid)
    assert driver.launches == []


@pytest.mark.parametrize("grid", [(1, 65_536, 1), (1, 1, 65_536), (2**30, 1, 1)])
def test_a_grid_over_the_limits_never_reaches_the_driver(grid: tuple[int, int, int]) -> None:
    """The plan's clusters of two CTAs count along axis 0."""
    driver = FakeDriver()
    prepared = loaded(driver).prepare(0, (1, 1, 1), ARGS)
    with pytest.raises(LaunchError, match="CTAs along axis") as caught:
        prepared.start(grid)
    assert caught.value.code == "grid" and caught.value.help
    assert driver.launches == [] and driver.configured == []
    prepared.start((2**30 - 1, 65_535, 65_535))
    assert len(driver.launches) == 1


def test_a_thread_without_context_gets_one() -> None:
    driver = FakeDriver()
    prepared = loaded(driver).prepare(3, (1, 1, 1), ARGS)
    driver.results = [201, 0]
    prepared(0)
    assert len(driver.launches) == 2 and driver.current == [3]


def test_each_thread_enters_once_on_the_default_stream() -> None:
    """And no call is made that a driver has to refuse: compute-sanitizer reports those."""
    driver = FakeDriver()
    prepared = loaded(driver).prepare(0, (1, 1, 1), ARGS)
    driver.entered.clear()  # for its tensor maps

    entered: list[int] = []

    def launches() -> None:
        for stream in (7, 0, 0):
            prepared(stream)
            entered.append(len(driver.entered))

    for _ in range(2):
        thread = threading.Thread(target=launches)
        thread.start()
        thread.join()
    assert entered == [0, 1, 1, 1, 2, 2] and driver.entered == [0, 0]
    assert len(driver.launches) == 6 and driver.current == []


def test_default_streams_of_several_devices_make_the_device_current() -> None:
    driver = FakeDriver(device_count=2)
    prepared = loaded(driver).prepare(1, (1, 1, 1), ARGS)
    prepared(stream=5)
    assert driver.current == []
    prepared(stream=0)
    assert driver.current == [1]
    driver.has_context = 1
    prepared(stream=0)
    assert driver.current == [1]
    assert [launch[4] for launch in driver.launches] == [5, 0, 0]


def test_driver_errors_name_the_launch() -> None:
    driver = FakeDriver()
    prepared = loaded(driver).prepare(0, (1, 1, 1), ARGS)
    driver.results = [701]
    with pytest.raises(LaunchError, match=r"launch of k on grid \(1, 1, 1\): 701"):
        prepared()


@pytest.mark.parametrize("value", [1 << 31, "text"])
def test_numbers_that_do_not_fit_their_parameter(value: object) -> None:
    with pytest.raises(LaunchError, match="does not fit"):
        loaded(FakeDriver()).prepare(0, (1, 1, 1), (ARGS[0], value, *ARGS[2:]))


def test_every_dtype_has_a_way_in() -> None:
    assert {struct.calcsize("<" + e.code) for e in ELEMENTS.values()} <= {1, 2, 4, 8}
    assert set(ELEMENTS) == set(ARGUMENT_DTYPES)


@given(st.integers(-100, 100), st.integers(1, 100))
def test_the_plan_computes_what_the_emitter_says(x: int, y: int) -> None:
    quotient = ("idiv", "i64", ("arg", 1), ("arg", 2))
    remainder = ("rem", "i64", ("arg", 1), ("arg", 2))
    emitted = Emitted(
        "source",
        "k",
        128,
        1024,
        (
            host.TensorMapParam("m", ("arg", 0), (quotient,), (remainder,), (8,), 0, "f32"),
            host.ScalarParam("x", 1, "i32"),
            host.PointerParam("p", 0),
        ),
        (),
    )
    placed = parse_func("func @k(%p: ptr<f32>, %x: i32, %y: i32) level=PLACED { yield() }")
    placed = placed.with_(attrs={"disjoint": ((0, 1),), "nonnegative": (2,)})
    plan = LaunchPlan.from_json(plan_of(emitted, placed).to_json())
    scalars, ((base, dims, strides),) = make_binder(plan)((4096, x, y))
    assert scalars == (x, 4096)
    assert (base, dims, strides) == (4096, (int(x / y),), (x - y * int(x / y),))
    assert (plan.disjoint, plan.nonnegative, plan.shared_bytes) == (((0, 1),), (2,), 1024)


def test_descriptors_have_a_fact_for_each_of_their_parameters() -> None:
    spec = Spec("descriptor", "f16", Fact(16), (64, 32), (8,), "nan")
    assert str(types_of([spec])[0]) == "tensordesc<f16[64, 32]>"
    assert facts_of([spec]) == (Fact(16), Fact(), Fact(), Fact(8), Fact(1, 1))


@pytest.mark.parametrize("pdl", [True, False])
def test_configurations_are_made_once_for_each_grid_and_stream(pdl: bool) -> None:
    driver = FakeDriver()
    prepared = loaded(driver, dataclasses.replace(PLAN, pdl=pdl)).prepare(0, (7, 2, 3), ARGS)
    for stream in (5, 5, 6):
        prepared(stream)
    prepared.start((1, 1, 1), 5)
    prepared(5)
    assert driver.configured == [((7, 2, 3), 5, pdl), ((7, 2, 3), 6, pdl), ((1, 1, 1), 5, pdl)]
    assert [(launch[1], launch[4]) for launch in driver.launches] == [
        *[((14, 2, 3), 5)] * 2, ((14, 2, 3), 6), ((2, 1, 1), 5), ((14, 2, 3), 5)
    ]  # fmt: skip


@pytest.mark.parametrize("pdl", [True, False])
def test_the_driver_gets_the_attributes_of_a_launch(pdl: bool) -> None:
    real: Any = object.__new__(CudaDriver)  # without a driver: configure() only fills structures
    real._cu = pytest.importorskip("cuda.bindings.driver")
    config = real.configure(dataclasses.replace(PLAN, pdl=pdl), (7, 2, 3), 5)
    # CUlaunchConfig: seven u32, the stream, the attributes, how many (CUDA driver API)
    *sizes, stream, attributes, count = struct.unpack(
        "<7I4xQQI", ctypes.string_at(config.getPtr(), 52)
    )
    assert sizes == [14, 2, 3, 384, 1, 1, 200_000] and (stream, count) == (5, int(pdl) + 1)
    # each is 72 bytes: its id, at byte 8 its value
    if pdl:  # id 6 is PROGRAMMATIC_STREAM_SERIALIZATION
        assert struct.unpack("<I4xi", ctypes.string_at(attributes, 12)) == (6, 1)
    shape = ctypes.string_at(attributes + 72 * int(pdl), 20)  # id 4 is CLUSTER_DIMENSION
    assert struct.unpack("<I4x3I", shape) == (4, 2, 1, 1)
