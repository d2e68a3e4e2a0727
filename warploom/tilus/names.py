"""Every name of Tilus's Python API, and what it is here.

Names are those of its reference ("Python API", "Programming guides") at release 0.2 and of its main branch
in 2026.  A name is the same here, different or missing; why is said beside it.  `tools/door_reference.py`
makes the tables of docs/tilus.md of this; tests/explicit/test_tilus_names.py holds it against the package.
"""

from __future__ import annotations

from warploom.runtime.doors import Module

_BLACKWELL = "Blackwell's: it parses, and stops with an error at its line; use self.wgmma"
_CLC = "Blackwell's cluster launch control: draw tiles from a counter by self.atomic_add"
_ARRAYS = "Tensor empty from_torch full ones rand randint randn view_torch zeros"
_TENSORS = "their memory is torch's, on the GPU where there is one"
_NARROW = "a dtype of global views: self.load_global gives its numbers, as int8, uint8 or float32"
_BITS = "1b 2b 3b 4b 5b 6b 7b"
_FLOATS = (
    "float3_e1m1 float4_e2m1 float5_e2m2 float5_e3m1 float6_e2m3 float6_e3m2 float6_e4m1 float7_e2m4 "
    "float7_e3m3 float7_e4m2 float7_e5m1 f3e1m1 f4e2m1 f5e2m2 f5e3m1 f6e2m3 f6e3m2 f6e4m1 f7e2m4 f7e3m3 "
    "f7e4m2 f7e5m1"
)
_TCGEN05 = "alloc commit copy dealloc load mma relinquish_alloc_permit slice store view wait_load wait_store"
_CHECKED = "a counter that several programs wait for is not proved by `check`, but runs"


def _words(text: str) -> list[str]:
    return text.split()


MODULES = {
    "tilus": Module(
        "Class DataType Dim3 GlobalTensor Pipeline RegisterLayout RegisterTensor Script SharedTensor "
        "autotune bf16 bfloat16 boolean f16 f32 f64 f8e4m3 f8e5m2 float16 float32 float64 float8_e4m3 "
        "float8_e5m2 i16 i32 i64 i8 int16 int32 int64 int8 ir lang logging option target testing u16 u32 "
        "u64 u8 uint16 uint32 uint64 uint8 utils",
        different={
            "InstantiatedScript": "it is Script",
            "SharedLayout": "made by self.cuda.swizzled_shared_layout",
            "get_current_target": "the chip's own facts, another class",
            "void_p": "a view of it has the array's dtype",
            **dict.fromkeys(_words(_ARRAYS), _TENSORS),
            **dict.fromkeys(_words(_FLOATS), _NARROW),
            **{f"{u}int{b}": _NARROW for b in _words(_BITS) for u in ("", "u")},
            **{f"{u}{b[0]}": _NARROW for b in _words(_BITS) for u in ("i", "u")},
        },
        missing={
            "kernels": "Warploom's library is warploom.kernels",
            "tfloat32": "products of float32 are tf32's: write float32",
        },
    ),
    "tilus.utils": Module(
        "benchmark_func cdiv clear_cache dtype_from_torch dtype_to_torch floor_log2 gcd idiv lcm "
        "nbytes_from_nbits prod",
        different={
            "parallel_imap": "by threads: compiling releases the GIL",
            "parallel_map": "by threads: compiling releases the GIL",
        },
    ),
    "tilus.testing": Module(
        "requires",
        missing={"shuffle_sf_to_block_scaled_layout": "a layout of Blackwell's scales"},
    ),
    "tilus.option": Module(
        "debug",
        different={
            "bench_repeat": "nothing: schedules race until one is known to be the fastest",
            "bench_warmup": "nothing: schedules race until one is known to be the fastest",
            "cache_dir": "sets WARPLOOM_CACHE",
            "get_option": "what was set here or in the environment, else Warploom's own default",
            "parallel_workers": "nothing: schedules are compiled on as many threads as there are cores",
        },
    ),
    "tilus.hidet.ir.type": Module("DataType PointerType void_p"),
    "tilus.ir.layout": Module(
        "RegisterLayout auto_local_spatial column_local column_spatial compose concat divide flatten "
        "left_divide local permute reduce register_layout replicated reshape spatial squeeze unsqueeze",
        different={"SharedLayout": "made by self.cuda.swizzled_shared_layout"},
        missing={
            **{
                f"{kind}_{name}": "views and shared tensors say how they lie"
                for kind, name in (
                    ("global", "column_major"),
                    ("global", "compose"),
                    ("global", "row_major"),
                    ("global", "strides"),
                    ("shared", "column_major"),
                    ("shared", "compose"),
                    ("shared", "permute"),
                    ("shared", "row_major"),
                )
            },
        },
    ),
    "self": Module(
        "abs add all annotate_layout any assign assume atomic attrs blockIdx cast clip clc cluster "
        "copy_async_commit_group copy_async_wait_all copy_async_wait_group cos cumprod cumsum "
        "current_num_threads current_thread_begin current_thread_end dot exp exp2 fence flatten "
        "free_shared global_tensor global_view gridDim load_global load_shared log max maximum "
        "mbarrier min printf rand randint randint4x randn range "
        "repeat repeat_interleave round rsqrt scan shared_tensor sin single_thread "
        "single_warp sqrt square squeeze static_assert store_global store_global_scatter store_shared "
        "store_shared_scatter sum sync tcgen05 thread_group tma transpose unsqueeze warp_group wgmma where",
        different={
            "copy_async": "`evict` is accepted and not heard; bounds are always checked",
            "get_thread_binding": "for `if self.get_thread_binding() == 0:` around stores of one element",
            "fast_divmod": "the divisor follows from kernel arguments",
            "lock_semaphore": _CHECKED,
            "print_tensor": "each element in a line of its own",
            "register_tensor": "without `init` zeros, or an accumulator; elements that are assigned one by "
            "one are numbers (one axis, at most 64)",
            "release_semaphore": _CHECKED,
            "reshape_shared": "of a whole shared tensor, whose last axis stays; rows of at most 128 bytes",
            "view": "dtypes of one width: which elements a thread holds is the compiler's",
        },
    ),
    "self.atomic": Module(
        "global_add global_cas global_exch global_max global_min global_scatter_add global_scatter_max "
        "global_scatter_min global_scatter_sub global_sub shared_add shared_cas shared_exch shared_max "
        "shared_min shared_scatter_add shared_scatter_max shared_scatter_min shared_scatter_sub shared_sub",
    ),
    "self.clc": Module("", missing=dict.fromkeys(("query_response", "try_cancel"), _CLC)),
    "self.cluster": Module("blockIdx blockRank clusterDim map_shared_addr sync"),
    "self.fence": Module("proxy_async proxy_async_release"),
    "self.mbarrier": Module(
        "alloc arrive arrive_and_expect_tx arrive_and_expect_tx_multicast arrive_and_expect_tx_remote "
        "consumer_initial_phase producer_initial_phase wait"
    ),
    "self.tcgen05": Module(
        "",
        missing=dict.fromkeys(
            _words(_TCGEN05),
            _BLACKWELL,
        ),
    ),
    "self.tma": Module(
        "commit_group shared_to_global wait_group",
        different={
            "global_to_shared": "the copy does not raise the expected bytes: arrive_and_expect_tx does; "
            "cta_group is 1",
        },
    ),
    "self.wgmma": Module(
        "commit_group fence wait_group",
        different={"mma": "sums in float32 (int32 of integers), not in float16"},
    ),
    "register tensors": Module("dtype item shape squeeze to tolist transpose unsqueeze"),
    "shared tensors": Module("dtype nbytes permute shape transpose"),
    "global tensors": Module("dtype shape"),
}
