"""Loading and launching: the only file that calls the CUDA driver on the launch path.

It uses cuda-bindings' driver API rather than cuda-core's `launch`: the parameter block of a prepared
launch is built once and its address handed to the driver each time, where cuda-core converts every
argument at every call; and cuda-core leaves the dynamic shared-memory limit to us.

Kernels are loaded as libraries (cuLibraryLoadData), which belong to no context: a launch takes the
context of its stream, and only the default stream needs the device to be current.  A thread that has no
context yet gets the device's at its first launch there.
"""

from __future__ import annotations

import ctypes
import operator
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from warploom.errors import LaunchError
from warploom.runtime.dtypes import ELEMENTS
from warploom.runtime.plan import (
    Binder,
    BlockLayout,
    LaunchPlan,
    MapKey,
    MapParam,
    make_binder,
    within_limits,
)
from warploom.target import supported

DRIVER_CUDA = (
    13000  # of cuDriverGetVersion: NVRTC 13's code runs on drivers of any CUDA 13, 580 and newer
)
STATIC_SHARED_LIMIT = 48 * 1024  # more must be asked for (CUDA C++ Programming Guide, 9.0 features)
INVALID_CONTEXT = 201  # CUDA_ERROR_INVALID_CONTEXT (CUDA driver API, CUresult)
CAPTURE_IMPLICIT = (
    906  # CUDA_ERROR_STREAM_CAPTURE_IMPLICIT: the default stream, while another captures
)
CONFIGS_KEPT = 256  # launch configurations that a kernel remembers: of each grid and stream
IPC_HANDLE_BYTES = 64  # CU_IPC_HANDLE_SIZE (CUDA driver API)
MAPS_KEPT = 4096  # encoded tensor maps that a kernel, and the driver, remember: 128 bytes each


class CudaDriver:
    """What launching needs of a GPU driver, through cuda.bindings; tests have one of their own.  Raises
    LaunchError where there is no driver or GPU."""

    launch: Callable[..., Any]  # cuLaunchKernelEx: truthy first item of the result on failure

    def __init__(self) -> None:
        try:
            from cuda.bindings import driver
        except ImportError as e:
            raise LaunchError("no-driver", f"cuda-bindings does not import: {e}") from e
        self._cu: Any = driver
        try:
            _refuse_old(driver.cuDriverGetVersion())
            (result,) = driver.cuInit(0)
        except RuntimeError as e:
            raise LaunchError(
                "no-driver",
                f"no CUDA driver was found on this machine: {e}",
                help="pass NumPy arrays or CPU tensors to run the kernel on the CPU",
            ) from e
        self.check(result, "cuInit")
        self.device_count = int(self._call(driver.cuDeviceGetCount))
        self.launch = driver.cuLaunchKernelEx
        self._contexts: dict[int, Any] = {}
        self._templates: dict[tuple[MapParam, tuple[int, ...], tuple[int, ...]], bytes] = {}
        self._success = driver.CUresult.CUDA_SUCCESS

    def _call(self, function: Any, *args: Any) -> Any:
        result, *values = function(*args)
        self.check(result, function.__name__)
        return values[0] if len(values) == 1 else tuple(values)

    def check(self, result: Any, what: str) -> None:
        """Raises LaunchError unless `result` says success."""
        if not result:
            return
        _, name = self._cu.cuGetErrorName(result)
        _, text = self._cu.cuGetErrorString(result)
        found = f"{(name or b'?').decode()}: {(text or b'?').decode()}"
        raise LaunchError("driver", f"{what} failed with {found}", help=_ADVICE.get(int(result)))

    def context(self, device: int) -> Any:
        """The device's primary context, the one that torch and every other library use."""
        if device not in self._contexts:
            handle = self._call(self._cu.cuDeviceGet, device)
            self._contexts[device] = self._call(self._cu.cuDevicePrimaryCtxRetain, handle)
        return self._contexts[device]

    @contextmanager
    def using(self, device: int) -> Iterator[None]:
        """Context manager: the device's primary context is current."""
        self._call(self._cu.cuCtxPushCurrent, self.context(device))
        try:
            yield
        finally:
            self._call(self._cu.cuCtxPopCurrent)

    def is_current(self, device: int) -> bool:
        """Whether the device's primary context is this thread's."""
        return int(self._call(self._cu.cuCtxGetCurrent)) == int(self.context(device))

    def enter(self, device: int) -> None:
        """Make the device's primary context this thread's, for good, where it has none."""
        if not int(self._call(self._cu.cuCtxGetCurrent)):
            self._call(self._cu.cuCtxSetCurrent, self.context(device))

    def load(self, cubin: bytes, name: str) -> Any:
        """A handle that `launch` takes, good for all devices."""
        cu = self._cu
        with self._relaxed():
            library = self._call(cu.cuLibraryLoadData, cubin, [], [], 0, [], [], 0)
            kernel = self._call(cu.cuLibraryGetKernel, library, name.encode())
        return cu.CUfunction(
            int(kernel)
        )  # a CUkernel launches in its place (cuLaunchKernel's notes)

    def prepare(self, function: Any, device: int, shared_bytes: int) -> None:
        """Make `function` ready on a device: loaded there, its shared-memory limit raised."""
        cu = self._cu
        kernel = cu.CUkernel(int(function))
        with self._relaxed(), self.using(device):
            self._call(cu.cuKernelGetFunction, kernel)  # loads now, not at a captured launch
            if shared_bytes > STATIC_SHARED_LIMIT:
                limit = cu.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
                ordinal = self._call(cu.cuDeviceGet, device)
                self._call(cu.cuKernelSetAttribute, limit, shared_bytes, kernel, ordinal)

    @contextmanager
    def _relaxed(self) -> Iterator[None]:
        """Lets this thread load code while a stream of it is being captured."""
        relaxed = self._cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        before = self._call(self._cu.cuThreadExchangeStreamCaptureMode, relaxed)
        try:
            yield
        finally:
            self._call(self._cu.cuThreadExchangeStreamCaptureMode, before)

    def encode(self, m: MapParam, key: MapKey) -> bytes:
        """The 128 bytes of a tensor map.  Raises LaunchError where the driver refuses."""
        cu, (base, dims, strides) = self._cu, key
        template = self._templates.get((m, dims, strides))
        if template is not None:  # only the address is new: a tenth of the cost of encoding
            moved = cu.CUtensorMap()
            ctypes.memmove(moved.getPtr(), template, len(template))
            if not cu.cuTensorMapReplaceAddress(moved, base)[0]:
                return ctypes.string_at(moved.getPtr(), len(template))
        kind = cu.CUtensorMapDataType
        swizzle = getattr(
            cu.CUtensorMapSwizzle,
            f"CU_TENSOR_MAP_SWIZZLE_{m.swizzle}B" if m.swizzle else "CU_TENSOR_MAP_SWIZZLE_NONE",
        )
        result, made = cu.cuTensorMapEncodeTiled(
            getattr(kind, f"CU_TENSOR_MAP_DATA_TYPE_{ELEMENTS[m.dtype].tma}"),
            len(dims),
            base,
            [cu.cuuint64_t(n) for n in dims],
            # Of one dimension there are no strides, but the driver refuses a null pointer to them.
            [cu.cuuint64_t(n) for n in strides or (16,)],
            [cu.cuuint32_t(n) for n in m.box],
            [cu.cuuint32_t(1)] * len(dims),
            cu.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
            swizzle,
            getattr(cu.CUtensorMapL2promotion, f"CU_TENSOR_MAP_L2_PROMOTION_L2_{m.promote}B"),
            cu.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
        if result:
            raise LaunchError(
                "tensor-map",
                f"the driver refuses a TMA descriptor of {m.dtype} at {base:#x}, dims {dims}, "
                f"strides {strides} bytes, box {m.box}, swizzle {m.swizzle}: {result!r}",
                help="base and strides must be multiples of 16 bytes, dims at most 2^32, "
                "strides below 2^40",
            )
        if len(self._templates) >= MAPS_KEPT:
            self._templates.clear()
        encoded = self._templates[m, dims, strides] = ctypes.string_at(made.getPtr(), 128)
        return encoded

    def configure(self, plan: LaunchPlan, grid: tuple[int, int, int], stream: int) -> Any:
        """A launch configuration as `launch` takes it; nobody changes it any more."""
        cu = self._cu
        config = cu.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = (
            n * per for n, per in zip(grid, plan.cluster, strict=True)
        )
        config.blockDimX, config.blockDimY, config.blockDimZ = plan.threads, 1, 1
        config.sharedMemBytes = plan.shared_bytes
        config.hStream = cu.CUstream(stream)
        attributes = []
        if plan.pdl:
            overlap = cu.CUlaunchAttribute()
            overlap.id = (
                cu.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
            )
            overlap.value.programmaticStreamSerializationAllowed = 1
            attributes.append(overlap)
        if plan.cluster != (1, 1, 1):
            shape = cu.CUlaunchAttribute()
            shape.id = cu.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
            sizes = shape.value.clusterDim
            sizes.x, sizes.y, sizes.z = plan.cluster
            shape.value.clusterDim = sizes
            attributes.append(shape)
        if attributes:
            config.attrs, config.numAttrs = attributes, len(attributes)
        return config

    def resident(self, plan: LaunchPlan, function: Any, device: int) -> int:
        """Programs of a prepared kernel that run on the device at the same time."""
        cu = self._cu
        with self.using(device):
            if plan.cluster == (1, 1, 1):
                query = cu.cuOccupancyMaxActiveBlocksPerMultiprocessor
                each = self._call(query, function, plan.threads, plan.shared_bytes)
                many = cu.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
                handle = self._call(cu.cuDeviceGet, device)
                return int(each) * int(self._call(cu.cuDeviceGetAttribute, many, handle))
            config = self.configure(plan, (1, 1, 1), 0)
            return int(self._call(cu.cuOccupancyMaxActiveClusters, function, config))

    def is_capturing(self, stream: int, device: int = 0) -> bool:
        """Whether a stream of the device is being captured into a graph."""
        with self.using(device):  # a default stream is the current device's; a thread may have none
            result, status = self._cu.cuStreamIsCapturing(self._cu.CUstream(stream))
        if int(result) == CAPTURE_IMPLICIT:
            return True
        self.check(result, "cuStreamIsCapturing")
        return bool(status != self._cu.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_NONE)

    def device_of(self, pointer: int) -> int:
        """The ordinal of the device that owns an address."""
        ordinal = self._cu.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
        return int(self._call(self._cu.cuPointerGetAttribute, ordinal, pointer))

    def end_of(self, pointer: int) -> int:
        """The address after the allocation that an address is in."""
        begin, size = self._call(self._cu.cuMemGetAddressRange, pointer)
        return int(begin) + int(size)

    def architecture(self, device: int) -> tuple[int, int]:
        """Compute capability, (major, minor)."""
        major, minor = "COMPUTE_CAPABILITY_MAJOR", "COMPUTE_CAPABILITY_MINOR"
        return self.attribute(device, major), self.attribute(device, minor)

    def attribute(self, device: int, name: str) -> int:
        """What the driver says of a device; name: of a CUdevice_attribute, without its prefix."""
        wanted = getattr(self._cu.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        handle = self._call(self._cu.cuDeviceGet, device)
        return int(self._call(self._cu.cuDeviceGetAttribute, wanted, handle))

    def device_name(self, device: int) -> str:
        handle = self._call(self._cu.cuDeviceGet, device)
        name: bytes = self._call(self._cu.cuDeviceGetName, 100, handle)
        return name.partition(b"\0")[0].decode()

    def copy_out(self, device: int, pointer: int, into: Any) -> None:
        """Fill a writable buffer from device memory, after all work that was given to the device."""
        view = (ctypes.c_char * len(into)).from_buffer(into)
        with self.using(device):
            self._call(self._cu.cuCtxSynchronize)
            self._call(self._cu.cuMemcpyDtoH, ctypes.addressof(view), pointer, len(into))
        del view  # releases the buffer

    def share(self, device: int, pointer: int) -> tuple[bytes, int, int] | None:
        """The allocation that an address lies in as another process can open it (CUDA IPC): handle, the
        address's offset, bytes from there to its end; after all work that was given to the device.  None
        where it can't be shared."""
        cu = self._cu
        with self.using(device):
            self._call(cu.cuCtxSynchronize)
            failed, base, size = cu.cuMemGetAddressRange(pointer)
            if failed:
                return None
            failed, handle = cu.cuIpcGetMemHandle(base)  # refused for mapped memory and pools
        if failed:
            return None
        offset = pointer - int(base)
        return ctypes.string_at(handle.getPtr(), IPC_HANDLE_BYTES), offset, int(size) - offset

    def allocate(self, device: int, size: int, clear: bool = True) -> int:
        """Address of `size` bytes of device memory, zeroed; not so (clear=False) while this thread captures a
        stream."""
        with self._relaxed(), self.using(device):
            pointer = int(self._call(self._cu.cuMemAlloc, max(1, size)))
        if clear:
            self.clear(device, pointer, size)
        return pointer

    def free(self, device: int, pointer: int) -> None:
        with self.using(device):
            self.check(self._cu.cuMemFree(pointer)[0], "cuMemFree")

    def copy_in(self, device: int, pointer: int, data: Any) -> None:
        """Fill device memory from a NumPy array of bytes."""
        with self.using(device):
            (result,) = self._cu.cuMemcpyHtoD(pointer, data.ctypes.data, data.nbytes)
        self.check(result, "cuMemcpyHtoD")

    def clear(self, device: int, pointer: int, size: int) -> None:
        """Zero device memory, in the order of the default stream."""
        with self.using(device):
            self.check(self._cu.cuMemsetD8Async(pointer, 0, size, 0)[0], "cuMemsetD8Async")

    def elapsed(
        self, device: int, launch: Callable[[], None], times: int, stream: int = 0
    ) -> list[float]:
        """Milliseconds of each of so many launches on a stream, by events."""
        cu = self._cu
        with self.using(device):
            events = [self._call(cu.cuEventCreate, 0) for _ in range(2 * times)]
            pairs = list(zip(events[::2], events[1::2], strict=True))
            for start, end in pairs:
                self.check(cu.cuEventRecord(start, stream)[0], "cuEventRecord")
                launch()
                self.check(cu.cuEventRecord(end, stream)[0], "cuEventRecord")
            self.check(cu.cuCtxSynchronize()[0], "cuCtxSynchronize")
            found = [float(self._call(cu.cuEventElapsedTime, *pair)) for pair in pairs]
            for event in events:
                self.check(cu.cuEventDestroy(event)[0], "cuEventDestroy")
        return found


# What to say for a CUresult (CUDA driver API, CUresult).
_ADVICE = {
    209: f"the cubin is for another architecture: warploom compiles for {supported()}",
    700: "an earlier kernel made an illegal access; the process must restart.  "
    "compiled.check() and compiled.simulate() find such accesses on the CPU",
    719: "an earlier kernel failed (a trap of a debug=True build, perhaps); restart the process",
    901: "an operation that a stream capture does not allow",
}


class _Thread(threading.local):
    """What a launch on the default stream needs of its thread, where there is one device: a current context,
    as the CUDA runtime would make one at its first call."""

    has_context = False


thread = _Thread()


def _refuse_old(answer: tuple[Any, int]) -> None:
    """Raises LaunchError where the driver runs no code of this CUDA, by its own account; else its first use
    would fail with a number, or with a function that it lacks."""
    result, version = answer
    if not result and 0 < version < DRIVER_CUDA:
        cuda = f"{version // 1000}.{version % 1000 // 10}"
        raise LaunchError(
            "driver-too-old",
            f"the NVIDIA driver is too old: it is made for CUDA {cuda}, and CUDA 13 needs 580 or newer",
            help="update the driver (https://www.nvidia.com/drivers); on the CPU kernels run without one",
        )


@cache
def driver() -> CudaDriver:
    """The process's driver."""
    return CudaDriver()


def current_stream(device: int) -> int:
    """torch's current stream where torch is in use in this process, else the default stream."""
    getter = stream_getter()
    return getter(device) if getter is not None else 0


def stream_getter() -> Callable[[int], int] | None:
    """What gives torch's current stream on a device; None where torch is not in use."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return None
    raw = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    if raw is not None:  # what torch's own compiler calls; ten times faster than the public road
        getter: Callable[[int], int] = raw
        return getter
    return lambda device: int(torch.cuda.current_stream(device).cuda_stream)


def grid_sizes(grid: Any) -> tuple[int, int, int]:
    """A launch grid with all three axes.  Raises LaunchError on a bad one."""
    sizes = (grid,) if isinstance(grid, int) else grid
    try:
        found = tuple(map(operator.index, sizes))
    except TypeError:
        found = ()
    if not 1 <= len(found) <= 3 or any(n < 0 for n in found):
        raise LaunchError(
            "grid",
            f"a grid has 1 to 3 sizes, none negative, not {grid!r}",
            help="kernel[(programs,)](…), or a function of the meta-parameters that gives a tuple",
        )
    x, y, z = (*found, 1, 1)[:3]
    return within_limits((x, y, z))


class Prepared:
    """One kernel with its arguments in place: call it to launch on a device's current stream."""

    __slots__ = (
        "_configs",
        "_driver",
        "_function",
        "_guarded",
        "_launch",
        "_packer",
        "_plan",
        "_stream_of",
        "address",
        "begin",
        "device",
        "grid",
        "memory",
        "name",
    )

    def __init__(self, kernel: LoadedKernel, device: int, grid: tuple[int, int, int]) -> None:
        self._plan, self.name = kernel.plan, kernel.plan.name
        self.device, self.grid = device, grid
        self._configs = kernel.configs
        self._driver = kernel.driver
        self._launch = kernel.driver.launch
        self._function = kernel.function
        self._guarded = kernel.driver.device_count > 1
        self._stream_of: Callable[[int], int] | None = None
        layout = kernel.layout
        self._packer = layout.packer
        self.memory = layout.memory()
        self.address = ctypes.addressof(self.memory)
        behind = self.address + layout.addresses.size
        self.begin = layout.addresses.size + -behind % 64
        first = self.address + self.begin
        addresses = [first + offset for offset in layout.offsets]
        layout.addresses.pack_into(self.memory, 0, *addresses)

    def fill(self, maps: list[bytes], scalars: tuple[Any, ...]) -> None:
        """Put the parameters in place: encoded tensor maps, then numbers and addresses."""
        self._packer.pack_into(self.memory, self.begin, *maps, *scalars)

    def __call__(self, stream: int | None = None) -> None:
        """Launch on `stream` (a raw handle; the current one where None) with the prepared grid."""
        self.start(self.grid, stream)

    def start(self, grid: Any, stream: int | None = None) -> None:
        """Launch on another grid: 1 to 3 sizes, or one number.  One with a zero launches nothing."""
        if stream is None:
            getter = self._stream_of
            if getter is None:
                getter = self._stream_of = stream_getter()
            stream = 0 if getter is None else getter(self.device)
        try:  # the sum is an int where all sizes are: 2.0, which is equal to 2, is refused
            sizes = grid if type(grid) is tuple else (grid,)
            config = self._configs[sizes, stream] if type(sum(sizes)) is int else None
        except (KeyError, TypeError):
            config = None
        if config is None:
            config = self._configured(grid, stream)
            if config is None:
                return None
        if not stream:  # a default stream belongs to the current device
            if self._guarded:
                if not self._driver.is_current(self.device):
                    return self._on_device(config, grid)
            elif not thread.has_context:
                self._driver.enter(self.device)
                thread.has_context = True
        result = self._launch(config, self._function, self.address, 0)[0]
        if result:
            self.failed(result, config, grid)

    def _configured(self, grid: Any, stream: int) -> Any:
        """The configuration for a grid and a stream, which `start` finds from now on; None where there is
        nothing to launch."""
        sizes = grid_sizes(grid)
        if 0 in sizes:
            return None
        config = self._configs.get((sizes, stream))
        if config is None:
            if len(self._configs) >= CONFIGS_KEPT:
                self._configs.clear()
            limited = within_limits(sizes, self._plan.cluster)
            config = self._driver.configure(self._plan, limited, stream)
            for n in (3, 2, 1):  # as a grid has it that leaves out its last sizes
                if sizes[n:] == (1, 1)[n - 1 :]:
                    self._configs[sizes[:n], stream] = config
        return config

    def failed(self, result: Any, config: Any, grid: Any) -> None:
        """Launches again where somebody took this thread's context away; else raises LaunchError."""
        if int(result) == INVALID_CONTEXT:
            return self._on_device(config, grid)
        self._check(result, grid)

    def _on_device(self, config: Any, grid: Any) -> None:
        with self._driver.using(self.device):
            result = self._launch(config, self._function, self.address, 0)[0]
        self._check(result, grid)

    def _check(self, result: Any, grid: Any) -> None:
        self._driver.check(result, f"launch of {self.name} on grid {grid_sizes(grid)}")


class LoadedKernel:
    """A cubin in a driver, and the encoded tensor maps that its launches used."""

    def __init__(
        self, driver: CudaDriver, cubin: bytes, plan: LaunchPlan, binder: Binder | None = None
    ) -> None:
        self.driver, self.plan = driver, plan
        self.function = driver.load(cubin, plan.name)
        self.layout = BlockLayout.of(plan)
        self._bind = binder or make_binder(plan)
        self._wanted = plan.maps
        self._ready: set[int] = set()
        self.memory: dict[Any, Any] = {}  # of its own, by device and stream (workspace.py)
        self.captured: list[Any] = []  # likewise, of launches in graphs
        self.configs: dict[tuple[Any, int], Any] = {}  # by grid, of 1 to 3 sizes, and stream
        self._maps: dict[tuple[int, MapKey], bytes] = {}
        self._lock = threading.Lock()

    def prepare(self, device: int, grid: tuple[int, int, int], args: tuple[Any, ...]) -> Prepared:
        """A launch of `args` (numbers, and addresses for pointers) on a device.

        Raises LaunchError where a number doesn't fit its parameter or a tensor map is refused.
        """
        return self.prepare_bound(device, grid, *self._bind(args))

    def prepare_bound(
        self,
        device: int,
        grid: tuple[int, int, int],
        scalars: tuple[Any, ...],
        keys: tuple[MapKey, ...],
    ) -> Prepared:
        """As `prepare`, after the binder."""
        if device not in self._ready:
            with self._lock:
                self.driver.prepare(self.function, device, self.plan.shared_bytes)
                self._ready.add(device)
        made = Prepared(self, device, grid)
        self.fill(made, scalars, keys)
        return made

    def fill(self, prepared: Prepared, scalars: tuple[Any, ...], keys: tuple[MapKey, ...]) -> None:
        """Puts other arguments in a launch's place, after the binder."""
        maps = [self.encoded(prepared.device, i, key) for i, key in enumerate(keys)]
        try:
            prepared.fill(maps, scalars)
        except (struct.error, OverflowError, TypeError) as e:
            raise LaunchError(
                "argument-range",
                f"an argument of {self.plan.name} does not fit its parameter: {e}",
            ) from e

    def resident(self, device: int) -> int:
        """Programs (CTAs, or clusters) that run on the device at the same time: the grid of a persistent
        kernel.  The SMs are not all usable by clusters: 132 of an H200 hold 66 of 2 CTAs, but 30 of 4."""
        with self._lock:
            self.driver.prepare(self.function, device, self.plan.shared_bytes)
            self._ready.add(device)
        return self.driver.resident(self.plan, self.function, device)

    def encoded(self, device: int, index: int, key: MapKey) -> bytes:
        """The plan's tensor map of this index.  Raises LaunchError."""
        data = self._maps.get((index, key))
        if data is None:
            if len(self._maps) >= MAPS_KEPT:
                self._maps.clear()
            # Encoding needs a context, which a thread of torch's autograd may not have.
            self.driver.enter(device)
            data = self._maps[index, key] = self.driver.encode(self._wanted[index], key)
        return data
