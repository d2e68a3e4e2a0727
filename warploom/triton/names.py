"""Every name of the Python API of Triton 3.6 to 3.9, and what it is here.

Names are those of the reference (triton-lang.org, "Python API") and of its packages' `__all__`.  A name is
the same here, different or missing; why is said beside it, and kernels are told of what is missing by the
frontend's own table.  `tools/door_reference.py` makes the tables of docs/triton.md of this;
tests/triton/test_names.py holds it against the packages.
"""

from __future__ import annotations

from warploom.frontend.vocabulary import NOT_YET
from warploom.runtime.doors import Module

_NO_ORDER = "results of `can_reorder=True` keep their order"

_OWN = "an inner part of Triton's compiler"
_OF_TORCH = "only as far as torch.compile asks for what a kernel writes"
_WRAPPER = "of tl.float8e4b15 only: of all else `reinterpret` gives a tensor, or a NumPy array"
_TYPES = "types are not made by hand"
_CHECKED = "shapes are checked where they are given"
_EXTERN = "write the function in the language, or by tl.inline_asm_elementwise"
_FOLDER = "the cache is a folder (WARPLOOM_CACHE)"
_ONE_DRIVER = "there is one backend: triton.backends.compiler, triton.runtime.driver"
_ENV = "options are environment variables: docs/knobs.md"


def _all(names: str, why: str) -> dict[str, str]:
    return dict.fromkeys(names.split(), why)


MODULES = {
    "triton": Module(
        "Config JITFunction KernelInterface MockTensor aggregate autotune cdiv constexpr_function "
        "heuristics jit language must_use_result next_power_of_2 profiler reinterpret runtime testing tools",
        different={
            "CompilationError": "any refusal of a kernel, with its line and advice",
            "InterpreterError": "a bug of warploom's",
            "OutOfResources": "any refusal of a launch; a kernel without room for it is a CompilationError",
            "TritonError": "the base of all errors",
            "compile": "takes an ASTSource, and no file of IR",
            "TensorWrapper": _WRAPPER,
            "set_allocator": "only for what --fallback hands on: descriptors take no memory of the host's",
        },
        missing={
            "AsyncCompileMode": "compile with threads of your own: compiling releases the GIL",
            "FutureKernel": "compile with threads of your own: compiling releases the GIL",
        },
    ),
    "triton.language": Module(
        "TRITON_MAX_TENSOR_NUMEL abs add advance arange argmax argmin associative_scan assume atomic_add "
        "atomic_and atomic_cas atomic_max atomic_min atomic_or atomic_xchg atomic_xor bfloat16 "
        "bitonic_merge broadcast broadcast_to cast cdiv ceil clamp constexpr cos cumprod cumsum "
        "device_print div_rn erf exp exp2 expand_dims extra fdiv flip float16 float32 float64 "
        "float8e4nv float8e5 floor fma full gather histogram int1 int16 int32 int64 int8 interleave join "
        "load load_tensor_descriptor log log2 make_block_ptr make_tensor_descriptor math max "
        "maximum min minimum mul multiple_of num_programs pair_uniform_to_normal permute "
        "philox philox_impl pointer_type program_id rand rand4x randint randint4x randn randn4x "
        "ravel reduce reduce_or reshape rsqrt sigmoid sin softmax sort split sqrt sqrt_rn "
        "static_assert static_print static_range store store_tensor_descriptor sub sum swizzle2d tensor "
        "tensor_descriptor topk trans tuple uint16 uint32 uint64 uint8 uint_to_uniform_float umulhi view "
        "where xor_sum zeros zeros_like PropagateNan block_type condition const constexpr_type dot "
        "dot_scaled inline_asm_elementwise pi32_t slice target_info "
        "void squeeze unsqueeze to_tensor aggregate_replace expect_zero atomic_load atomic_poll atomic_store",
        different={
            "cat": f"{_NO_ORDER}; tiles of any sizes, along any axis (`dim=`)",
            **_all(
                "float8e4b8 float8e5b16", "formats of other chips, to be named and compared with"
            ),
            "float8e4b15": "`.to(tl.bfloat16)` gives bfloat16; 'rtz' rounds towards zero",
            "atomic_poll": "`timeout_ns` counts reads, as 500 ns each",
            "dtype": "on the host `.name` and `str()` are Warploom's (f16), in kernels `.name` is fp16",
            "condition": "`disable_licm` is never honoured",
            "const": "in annotations, where it changes nothing",
            "void": "in annotations, where it changes nothing",
            "debug_barrier": "nothing: a kernel's own order holds for all of its accesses",
            "device_assert": "runs in debug builds (the knob `debug`), and on the CPU",
            "inline_asm_elementwise": "`is_pure=False` changes nothing; the CPU knows the usual instructions",
            "map_elementwise": "the function is inlined on whole tiles: both arms of its ifs are computed",
            "max_constancy": "nothing: constancy is derived from the index arithmetic",
            "max_contiguous": "nothing: contiguity is derived from the index arithmetic",
            "range": "hints that can't be followed are warnings; `warp_specialize=False` forbids tasks",
        },
        missing=NOT_YET,
    ),
    "triton.language.target_info": Module(
        "cuda_capability_geq is_cuda is_hip is_hip_cdna3 is_hip_cdna4 is_hip_gfx1250",
        different={"current_target": "on the CPU, too, what kernels are compiled for: an H100"},
    ),
    "triton.language.math": Module(
        "abs ceil cos div_rn erf exp exp2 fdiv floor fma log log2 rsqrt sin sqrt sqrt_rn umulhi"
    ),
    "triton.language.extra.libdevice": Module(
        "abs acos acosh add_rd add_rn add_ru add_rz asin asinh atan atan2 atanh brev byte_perm cbrt "
        "ceil clz copysign cos cosh cospi cyl_bessel_i0 cyl_bessel_i1 div_rd div_rn div_ru div_rz "
        "double2float_rd double2float_rn double2float_ru double2float_rz double2hiint double2int_rd "
        "double2int_rn double2int_ru double2int_rz double2ll_rd double2ll_rn double2ll_ru "
        "double2ll_rz double2loint double2uint_rd double2uint_rn double2uint_ru double2uint_rz "
        "double2ull_rd double2ull_rn double2ull_ru double2ull_rz double_as_longlong erf erfc erfcinv "
        "erfcx erfinv exp exp10 exp2 expm1 fast_cosf fast_dividef fast_exp10f fast_expf fast_log10f "
        "fast_log2f fast_logf fast_powf fast_sinf fast_tanf fast_tanhf fdim ffs finitef float2int_rd "
        "float2int_rn float2int_ru float2int_rz float2ll_rd float2ll_rn float2ll_ru float2ll_rz "
        "float2uint_rd float2uint_rn float2uint_ru float2uint_rz float2ull_rd float2ull_rn "
        "float2ull_ru float2ull_rz float_as_int float_as_uint floor fma fma_rd fma_rn fma_ru fma_rz "
        "fmod hadd hiloint2double hypot ilogb int2double_rn int2float_rd int2float_rn int2float_ru "
        "int2float_rz int_as_float isfinited isinf isnan j0 j1 ldexp lgamma ll2double_rd ll2double_rn "
        "ll2double_ru ll2double_rz ll2float_rd ll2float_rn ll2float_ru ll2float_rz llrint llround log "
        "log10 log1p log2 logb longlong_as_double mul24 mul_rd mul_rn mul_ru mul_rz mulhi nearbyint "
        "nextafter norm3d norm4d normcdf normcdfinv popc pow rcbrt rcp_rd rcp_rn rcp_ru rcp_rz "
        "remainder rhadd rhypot rint rnorm3d rnorm4d round rsqrt rsqrt_rn sad saturatef scalbn "
        "signbit sin sinh sinpi sqrt sqrt_rd sqrt_rn sqrt_ru sqrt_rz sub_rd sub_rn sub_ru sub_rz tan "
        "tanh tgamma trunc uint2double_rn uint2float_rd uint2float_rn uint2float_ru uint2float_rz "
        "uint_as_float ull2double_rd ull2double_rn ull2double_ru ull2double_rz ull2float_rd "
        "ull2float_rn ull2float_ru ull2float_rz y0 y1 jn yn rcp64h",
    ),
    "triton.language.extra.cuda": Module(
        "convert_custom_float8_sm70 convert_custom_float8_sm80 libdevice num_threads num_warps",
        different={
            "gdc_launch_dependents": "nothing: launches overlap by the knob `pdl`",
            "gdc_wait": "nothing: a kernel waits for the one before it where it first reads",
            "globaltimer": "read by one thread for the whole program; on the CPU the host's clock",
            "smid": "0 on the CPU",
        },
    ),
    "triton.testing": Module(
        "Benchmark Mark assert_close do_bench perf_report",
        different={
            "do_bench_proton": "as do_bench: a launch costs the host less than a kernel takes",
            "do_bench_cudagraph": "as do_bench: a launch costs the host less than a kernel takes",
            "get_dram_gbps": "0 without a GPU",
            "get_max_tensorcore_tflops": "by the target's cost table",
        },
        missing={
            "cuda_memcheck": "kernels are checked on the CPU: `compiled.check()`",
            "get_max_simd_tflops": "no peak is kept",
            "nvsmi": "ask nvidia-smi",
            "set_gpu_clock": "set clocks with nvidia-smi",
        },
    ),
    "triton.runtime": Module(
        "Autotuner Config Heuristics JITFunction KernelInterface MockTensor autotune cache driver heuristics "
        "reinterpret",
        different={
            "InterpreterError": "a bug of warploom's",
            "OutOfResources": "any refusal of a launch",
            "TensorWrapper": _WRAPPER,
        },
        missing={
            "RedisRemoteCacheBackend": _FOLDER,
            "RemoteCacheBackend": _FOLDER,
        },
    ),
    "triton.tools.tensor_descriptor": Module(
        "TensorDescriptor", missing={"validate_block_shape": _CHECKED}
    ),
    "triton.tools.mxfp": Module("MXFP4Tensor MXScaleTensor"),
    "triton.language.core": Module(
        "CONSTEXPR_0 get_int_dtype item",
        different=_all(
            "builtin extern", "inlined as a helper is: `_semantic` is None, and has no builder"
        ),
        missing={
            **_all(
                "base_type base_value slice_type tensor_descriptor_base tensor_descriptor_base_type",
                _TYPES,
            ),
            **_all(
                "JITCallable T TRITON_BUILTIN is_builtin must_use_result builtin_max builtin_min",
                _OWN,
            ),
            **_all("binary_op_type_legalization check_bit_width get_primitive_bitwidth", _OWN),
            **_all("is_negative_zero validate_block_shape", _CHECKED),
            **_all("dispatch extern_elementwise", _EXTERN),
        },
    ),
    "triton.language.standard": Module("", missing=_all("sort_impl", "write tl.sort or tl.topk")),
    "triton.language.random": Module("N_ROUNDS_DEFAULT"),
    "triton.language.semantic": Module(
        "", missing=_all("IncompatibleTypeErrorImpl TensorTy TritonSemantic", _OWN)
    ),
    "triton.runtime.jit": Module(
        "ConstexprFunction JITFunction KernelInterface MockTensor constexpr_function jit reinterpret",
        different={
            **_all("mangle_type native_specialize_impl", _OF_TORCH),
            "TensorWrapper": _WRAPPER,
        },
        missing={
            **_all("BoundConstexprFunction DependenciesFinder JITCallable", _OWN),
            **_all("JitFunctionInfo KernelParam BaseBackend T GLUON_MODULE TRITON_MODULE", _OWN),
            **_all(
                "compute_cache_key convert_to_tuple_if_list create_function_from_signature", _OWN
            ),
            **_all(
                "find_paths_if get_cache_invalidating_env_vars get_cache_key get_full_name", _OWN
            ),
            **_all("get_iterable_path get_jit_fn_file_line is_namedtuple", _OWN),
            **_all("serialize_specialization_data", _OWN),
            **_all("type_canonicalisation_dict", _OWN),
        },
    ),
    "triton.JITFunction": Module(
        "arg_names cache_key params run src warmup",
        missing={
            "device_caches": "variants are kept by the cache on disk; `kernel.cache_key` names the source",
            "preload": "a kernel that was compiled before is in the cache on disk (WARPLOOM_CACHE)",
            "create_binder": _OWN,
        },
    ),
    "triton.runtime.autotuner": Module(
        "Autotuner AutotunerError Config Heuristics OutOfResources PTXASError autotune heuristics",
        missing=_all("get_cache_invalidating_env_vars", _OWN),
    ),
    "triton.runtime.driver": Module(
        "active default set_active", missing=_all("DriverBase DriverConfig", "there is one driver")
    ),
    "triton.runtime.driver.active": Module(
        "clear_cache get_active_torch_device get_benchmarker get_current_device get_current_stream "
        "get_current_target get_device_capability get_device_interface get_empty_cache_for_benchmark "
        "is_active map_python_to_cpp_type set_current_device utils",
        missing={
            "assemble_tensormap_to_arg": "a descriptor is an argument as it is",
            "launcher_cls": "a kernel launches itself: `kernel[grid](…)`, or `compiled.run`",
        },
    ),
    "triton.runtime.errors": Module(
        "",
        different={
            "AutotunerError": "the base of all errors",
            "InterpreterError": "a bug of warploom's",
            "OutOfResources": "any refusal of a launch",
            "PTXASError": "any refusal of a kernel",
            "TritonError": "the base of all errors",
        },
    ),
    "triton.runtime.cache": Module(
        "CacheManager FileCacheManager default_cache_dir default_dump_dir default_override_dir "
        "get_dump_manager get_override_manager triton_key",
        different={
            "get_cache_manager": "what kernels compile to is kept elsewhere (WARPLOOM_CACHE)",
            "make_so_cache_key": "takes no further arguments",
        },
        missing={
            **_all("RedisRemoteCacheBackend RemoteCacheBackend RemoteCacheManager", _FOLDER),
            "get_cache_key": _OWN,
        },
    ),
    "triton.runtime.build": Module(
        "compile_module_from_src platform_key",
        absent="no C is compiled: launches go through cuda-core",
    ),
    "triton.runtime._allocation": Module(
        "Allocator Buffer NullAllocator set_allocator set_profile_allocator",
        absent="kernels take no memory of the host's; `triton.set_allocator` is there",
    ),
    "triton.runtime.interpreter": Module(
        "ASTTransformer BlockPointerHandle ExtraFunctions FunctionRewriter GridExecutor InterpretedFunction "
        "InterpreterBuilder InterpreterError InterpreterOptions ReduceOps ReduceScanOpInterface ScanOps "
        "TensorDescHandle TensorHandle interpreter_builder interpreter_semantic",
        absent="kernels are interpreted where their arrays lie on the CPU",
    ),
    "triton.compiler": Module(
        "ASTSource CompilationError CompiledKernel LazyDict make_backend",
        different={"compile": "takes an ASTSource, and no file of IR"},
        missing={"IRSource": "compile takes an ASTSource", "get_cache_key": _OWN},
    ),
    "triton.compiler.compiler": Module(
        "triton_key",
        missing={
            **_all("AsmDict BaseBackend CompileTimer Language filter_traceback", _OWN),
            **_all("arg_type_pattern convert_type_repr parse prototype_pattern", _OWN),
            **_all("ptx_arg_type_pattern ptx_prototype_pattern", _OWN),
            **_all(
                "get_cache_manager get_dump_manager get_override_manager",
                "triton.runtime.cache has it",
            ),
            "get_sass": "`asm` has the cubin, which nvdisasm reads",
            "max_shared_mem": "`driver.active.utils.get_device_properties` has it",
        },
    ),
    "triton.compiler.errors": Module(
        "",
        different={
            "CompilationError": "any refusal of a kernel, with its line and advice",
            "CompileTimeAssertionFailure": "any refusal of a kernel, with its line and advice",
            "UnsupportedLanguageConstruct": "any refusal of a kernel, with its line and advice",
        },
    ),
    "triton.compiler.code_generator": Module(
        "ASTFunction BoundJITMethod CodeGenerator ContainsReturnChecker ast_to_ttir "
        "check_identifier_legality enter_sub_region "
        "flatten_values_to_ir mangle_fn unflatten_ir_values",
        absent="kernels are translated to another IR; `compiled.ir` has its text",
    ),
    "triton.backends": Module(
        "Backend BaseBackend backends", missing=_all("DriverBase", "there is one backend")
    ),
    "triton.backends.compiler": Module(
        "BaseBackend CUDABackend GPUTarget", missing=_all("Language", "there is one backend")
    ),
    "triton.backends.driver": Module("Benchmarker DriverBase GPUDriver", absent=_ONE_DRIVER),
    "triton.backends.nvidia": Module("compiler", missing={"driver": _ONE_DRIVER}),
    "triton.backends.nvidia.compiler": Module("min_dot_size"),
    "triton.backends.amd": Module(
        "compiler driver", absent="kernels are compiled for NVIDIA's chips"
    ),
    "triton.knobs": Module(
        "HookChain runtime",
        different={
            **_all("amd build compilation nvidia proton redis", "may be set, and changes nothing"),
            **_all("autotuning language", "may be set, and changes nothing; knobs of launches do"),
            "cache": "`dir` is the folder of triton.runtime.cache",
        },
        missing={
            **_all(
                "env env_base env_bool env_class env_int env_nvidia_tool env_opt_bool env_opt_str",
                _ENV,
            ),
            **_all(
                "env_str env_str_callable_default getenv getenv_bool setenv toenv propagate_env",
                _ENV,
            ),
            **_all(
                "base_knobs refresh_knobs NvidiaTool knobs_type amd_knobs autotuning_knobs", _ENV
            ),
            **_all("build_knobs cache_knobs compilation_knobs language_knobs nvidia_knobs", _ENV),
            **_all("proton_knobs redis_knobs runtime_knobs", _ENV),
            **_all("BuildImpl CompilationListener CompileTimes InitHandleHook JITHook", _OWN),
            **_all("JITHookCompileInfo LaunchHook PipelineStagesHook Env GetType SetType", _OWN),
            **_all("ClassType F", _OWN),
        },
    ),
    "triton.knobs.nvidia": Module(
        "disable_ptxas_opt mock_ptx_version",
        missing=_all(
            "cuobjdump nvdisasm ptxas ptxas_blackwell", "NVRTC makes machine code by itself"
        ),
    ),
    "triton.profiler": Module(
        "DEFAULT_PROFILE_NAME activate cpu_timed_scope deactivate enter_scope exit_scope profile scope "
        "language viewer",
        different={
            "finalize": "writes a .hatchet file alone",
            "start": "sees what is launched from here; `backend` and `mode` change nothing",
            **_all("state enter_state exit_state", "a scope like others"),
        },
        missing=_all("context flags hooks mode specs", "a session has no such settings"),
    ),
    "triton.profiler.language": Module(
        "",
        different={
            **_all(
                "enter_scope exit_scope scope", "nothing: `compiled.timeline` tells what is when"
            ),
            **_all(
                "disable_semantic enable_semantic", "nothing: scopes are accepted in all kernels"
            ),
        },
        missing={"record": _OWN},
    ),
    "triton.profiler.viewer": Module("parse print_tree"),
    "triton._C.libtriton": Module(
        "nvidia",
        different={"ir": _OF_TORCH},
        missing={
            **_all("amd getenv getenv_bool llvm passes linear_layout interpreter", _OWN),
            **_all("get_cache_invalidating_env_vars native_specialize_impl", _OWN),
        },
    ),
    "triton.experimental": Module(
        "gluon", absent="scripts say warps and barriers: docs/explicit.md"
    ),
    "triton.tools.ragged_tma": Module(
        "atomic_add_ragged load_ragged store_ragged",
        different={"create_ragged_descriptor": "has the axes of the array, and no more"},
        missing={"to_ragged_indices": "give load_ragged and its like the coordinates in the batch"},
    ),
    "triton.tools.compile": Module(
        "CompileArgs compile_kernel main", absent="`warploom compile` does it"
    ),
    "triton.tools.link": Module(
        "HeaderParser KernelLinkerMeta LinkerError gen_signature gen_signature_with_full_args main "
        "make_algo_decls make_default_algo_kernel make_func_pointers make_get_num_algos_decl "
        "make_get_num_algos_def make_global_decl make_kernel_hints_dispatcher make_kernel_load_def "
        "make_kernel_meta_const_dispatcher",
        absent="`warploom compile` gives a cubin to load",
    ),
    "triton.tools.disasm": Module(
        "extract get_sass parseCtrl path_to_cuobjdump processSassLines",
        absent="`asm` has the cubin, which nvdisasm reads",
    ),
    "triton.language.extra.hip": Module(
        "libdevice memrealtime", absent="kernels are compiled for NVIDIA's chips"
    ),
}
