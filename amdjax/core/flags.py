"""The table of flags: names, defaults, what values each takes, and JAX's names for them."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from amdjax.core.errors import did_you_mean

_TRUE = frozenset(("1", "true", "t", "yes", "y", "on"))
_FALSE = frozenset(("0", "false", "f", "no", "n", "off", ""))
MISSING: Any = object()

_PRECISIONS = (
    "default",
    "high",
    "highest",
    "bfloat16",
    "tensorfloat32",
    "float32",
    "bfloat16_3x",
    "ANY_F8_ANY_F8_F32",
    "ANY_F8_ANY_F8_F32_FAST_ACCUM",
    "ANY_F8_ANY_F8_ANY",
    "ANY_F8_ANY_F8_ANY_FAST_ACCUM",
    "F16_F16_F16",
    "F16_F16_F32",
    "BF16_BF16_BF16",
    "BF16_BF16_F32",
    "BF16_BF16_F32_X3",
    "BF16_BF16_F32_X6",
    "BF16_BF16_F32_X9",
    "TF32_TF32_F32",
    "TF32_TF32_F32_X3",
    "F32_F32_F32",
    "F64_F64_F64",
)
_GUARDS = ("allow", "log", "disallow", "log_explicit", "disallow_explicit")


class Flag(NamedTuple):
    """One configuration option: its name, how its value is checked, what it influences."""

    name: str
    kind: type
    default: Any
    help: str
    choices: tuple[Any, ...] | None = None
    optional: bool = False
    # A traced flag changes what tracing produces, hence belongs to every trace cache's key.
    traced: bool = False
    # Value taken by the context manager when it is called without an argument.
    context_default: Any = MISSING
    # Whether anything here reads it.
    effect: bool = True
    # The least number that it takes.
    minimum: int | None = None

    @property
    def env(self) -> str:
        """Name of the environment variable which sets this flag."""
        return f"AMDJAX_{self.name.upper()}"


def _flag_bool(name: str, default: bool, help: str, traced: bool = False) -> Flag:
    return Flag(name, bool, default, help, traced=traced, context_default=True)


def _flag_int(name: str, default: int | None, help: str, traced: bool = False) -> Flag:
    return Flag(name, int, default, help, optional=default is None, traced=traced)


def _flag_text(name: str, help: str) -> Flag:
    return Flag(name, str, None, help, optional=True)


def _flag_enum(
    name: str, default: str | None, choices: tuple[str, ...], help: str, traced: bool = False,
) -> Flag:  # fmt: skip
    return Flag(name, str, default, help, choices, default is None, traced)


_FLAGS = (
    _flag_bool("enable_x64", False, "Keep 64-bit dtypes instead of narrowing to 32.", True),
    _flag_enum(
        "explicit_x64_dtypes",
        "warn",
        ("warn", "error", "allow"),
        "What an explicitly requested 64-bit dtype does while enable_x64 is off.",
        True,
    ),
    _flag_enum(
        "numpy_dtype_promotion",
        "standard",
        ("standard", "strict"),
        "Implicit dtype promotion: the full lattice, or Python scalars only.",
        True,
    ),
    _flag_enum(
        "numpy_rank_promotion",
        "allow",
        ("allow", "warn", "raise"),
        "What broadcasting operands of different rank does.",
        True,
    ),
    _flag_enum(
        "default_matmul_precision",
        None,
        _PRECISIONS,
        "Precision of dots and convolutions which do not ask for one.",
        True,
    ),
    _flag_enum(
        "default_prng_impl",
        "threefry2x32",
        ("threefry2x32", "threefry4x32", "rbg", "unsafe_rbg", "philox2x32", "philox4x32"),
        "Random bit generator used by random.key().",
        True,
    ),
    _flag_bool("threefry_partitionable", True, "Threefry bits are independent of the split.", True),
    _flag_bool("enable_custom_prng", False, "Raw key arrays are typed key arrays.", True),
    _flag_enum(
        "legacy_prng_key",
        "allow",
        ("allow", "warn", "error"),
        "What a raw uint32 array does where a key is wanted.",
        True,
    ),
    _flag_bool("high_dynamic_range_gumbel", False, "Gumbel samples use more bits.", True),
    _flag_bool("softmax_custom_jvp", True, "nn.softmax has its own derivative.", True),
    _flag_bool("allow_f16_reductions", True, "16-bit sums may stay in 16 bits.", True),
    _flag_int("random_seed_offset", 0, "Added to every seed given to random.key().", True),
    _flag_bool("deterministic", False, "GPUs scatter sums in order, not as they come.", True),
    _flag_bool("disable_jit", False, "Run jitted functions as plain Python.", True),
    _flag_bool("debug_nans", False, "Raise FloatingPointError when a result has a NaN.", True),
    _flag_bool("debug_infs", False, "Raise FloatingPointError when a result has an inf.", True),
    _flag_bool("debug_key_reuse", False, "Raise when a PRNG key is used twice.", True),
    _flag_bool("check", False, "Check the jaxpr after every compiler pass.", True),
    _flag_bool(
        "disable_bwd_checks",
        False,
        "Let backward rules return cotangents of other shapes than the arguments'.",
        True,
    ),
    _flag_bool("check_tracer_leaks", False, "Raise when a trace leaves live tracers.", True),
    _flag_bool("check_static_indices", False, "Bounds-check static indices.", True),
    _flag_bool(
        "fast_math",
        False,
        "Let kernels contract products and sums, divide by reciprocals and use shorter functions.",
        True,
    ),
    _flag_bool(
        "offload_copy",
        False,
        "Programs for GPUs take arguments from the host's memory, and copy them as they are used.",
        True,
    ),
    Flag(
        "disabled_passes",
        tuple,
        (),
        "Names of compiler passes that are left out, separated by commas; docs/passes.md has them.",
        traced=True,
    ),
    Flag(
        "memory_limit",
        int,
        None,
        "Bytes of intermediates above which programs compute values again rather than keep them.",
        optional=True,
        traced=True,
        minimum=0,
    ),
    Flag(
        "constants_limit",
        int,
        None,
        "Bytes that a program keeps of what it computes of its constants; None: all, 0: nothing.",
        optional=True,
        traced=True,
        minimum=0,
    ),
    _flag_bool("log_compiles", False, "Log every trace and compile."),
    Flag(
        "logging_level",
        str,
        "NOTSET",
        "The least level of what the log tells on the error output.",
        ("NOTSET", "DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"),
        optional=True,
    ),
    Flag(
        "debug_log_modules",
        str,
        "",
        "Loggers that tell everything on the error output, separated by commas.",
        optional=True,
    ),
    _flag_enum(
        "dynamic",
        "off",
        ("off", "auto"),
        "Whether sizes in which calls of a jitted function differ become symbolic.",
    ),
    _flag_bool("explain_cache_misses", False, "Log why a function was traced again."),
    _flag_bool("no_tracing", False, "Raise where jit would trace a function."),
    # Traced, so that what is kept for other calls is not found under it.
    _flag_bool("no_execution", False, "Raise instead of running programs.", True),
    _flag_bool("thread_guard", False, "Programs of several processes run in one thread only."),
    _flag_enum(
        "array_garbage_collection_guard",
        "allow",
        ("allow", "log", "fatal"),
        "What the garbage collector does on finding an array, which holds memory until then.",
    ),
    _flag_enum(
        "traceback",
        "filtered",
        ("filtered", "noted", "full"),
        "Whether tracebacks show frames inside amdjax; noted: left out, which a note says.",
    ),
    Flag("num_threads", int, None, "CPU threads; None means one per core.", None, True, minimum=1),
    _flag_text("platforms", "Comma-separated backends in order of preference."),
    _flag_text("emulate", "Comma-separated GPU targets to emulate, such as gfx942."),
    _flag_bool("sync", False, "Wait for each kernel on a device, so that errors name it."),
    Flag("default_device", object, None, "Device of new arrays.", None, True, True),
    _flag_bool("enable_compilation_cache", True, "Use the on-disk kernel cache."),
    Flag(
        "exec_time_optimization_effort",
        float,
        0.0,
        "Below 0, kernels of a CPU that multiply no matrices are compiled quickly, and run slower.",
        traced=True,
        minimum=-1,
    ),
    _flag_bool("keep_plans", True, "Keep plans of programs beside their kernels."),
    _flag_bool("native_calls", True, "Repeat calls without Python: only check, run and wrap."),
    _flag_text("cache_dir", "Folder of the on-disk kernel cache."),
    _flag_int("cache_max_bytes", 2**30, "Size at which the kernel cache evicts; -1: never."),
    # Traced, since other choices are other programs.
    _flag_enum(
        "find_mode",
        "fast",
        ("off", "fast", "normal", "hybrid", "dynamic_hybrid"),
        "Whether programs are compiled by measured choices, and what is measured for it.",
        True,
    ),
    _flag_enum(
        "find_enforce",
        "none",
        ("none", "db_update", "search", "search_db_update", "db_clean"),
        "Measure, or forget, whatever find_mode says.",
        True,
    ),
    Flag("db_path", str, None, "File of measured choices; off: none.", None, True, True),
    _flag_text("dump", "Folder which receives every stage of every compile."),
    _flag_enum("transfer_guard", None, _GUARDS, "Guard on all implicit transfers."),
    _flag_enum("transfer_guard_host_to_device", None, _GUARDS, "Guard on host to device."),
    _flag_enum("transfer_guard_device_to_device", None, _GUARDS, "Guard between devices."),
    _flag_enum("transfer_guard_device_to_host", None, _GUARDS, "Guard on device to host."),
)

# JAX's options that nothing here reads: their defaults, and their names. They take what JAX's take
# and give it back, so that programs that set them run.
_WITHOUT_EFFECT: tuple[tuple[Any, str], ...] = (
    (
        False,
        """
        bcoo_cusparse_lowering check_vma compilation_cache_check_contents
        compilation_cache_expect_pgle compilation_cache_include_metadata_in_key custom_vjp3
        debug_leaked_clients_on_clear_backends disable_most_optimizations
        disable_vmap_shmap_error disallow_mesh_context_manager distributed_debug
        eager_constant_folding enable_pgle enable_recoverability
        experimental_unsafe_xla_runtime_errors export_ignore_forward_compatibility
        force_dcn_cross_host_transfers jax2tf_associative_scan_reductions
        log_checkpoint_residuals mosaic_allow_hlo pallas_enable_debug_checks
        pallas_poison_buffers pallas_verbose_errors
        ragged_dot_use_gpu_pallas_triton_lowering raise_persistent_cache_errors refs_to_pins
        remat3 remove_custom_partitioning_ptr_from_cache_key
        remove_size_one_mesh_axis_from_type scan3 share_binary_between_hosts
        threefry_gpu_kernel_lowering use_emit_pipeline_primitive
        use_simplified_jaxpr_constants
        """,
    ),
    (
        True,
        """
        auto_pcast check_proxy_envs compiler_enable_remat_pass cpu_enable_async_dispatch
        enable_preemption_service include_debug_info_in_dumps
        include_full_tracebacks_in_locations jax2tf_default_native_serialization
        mutable_array_checks pallas_use_mosaic_gpu pprint_use_color
        ragged_dot_use_ragged_dot_instruction sort_devices_by_process_index
        use_direct_linearize use_shardy_partitioner
        """,
    ),
    (
        "",
        """
        backend_target cross_host_transfer_socket_address cross_host_transport_addresses
        dump_ir_to mock_gpu_topology xla_backend
        """,
    ),
    (
        0,
        """
        captured_constants_report_frames mock_num_gpu_processes
        persistent_cache_min_entry_size_bytes serialization_version xla_profile_version
        """,
    ),
    (
        None,
        """
        cross_host_transfer_timeout_seconds cross_host_transfer_transfer_size
        hlo_source_file_canonicalization_regex pjrt_client_create_options source_url_schema
        """,
    ),
    (
        "all",
        """
        cuda_visible_devices oneapi_visible_devices rocm_visible_devices
        """,
    ),
    (
        "ignore",
        """
        error_checking_behavior_divide error_checking_behavior_nan
        error_checking_behavior_oob
        """,
    ),
    (10, "compiler_detailed_logging_min_ops"),
    (10, "export_calling_convention_version"),
    (5, "cpu_get_global_topology_timeout_minutes"),
    (5, "tracer_error_num_traceback_frames"),
    (0.0, "memory_fitting_effort"),
    (2000000000, "captured_constants_warn_bytes"),
    ("gloo", "cpu_collectives_implementation"),
    (2, "cpu_get_local_topology_timeout_minutes"),
    ("stablehlo", "dump_ir_modes"),
    (32, "embedded_constants_max_bytes"),
    ("O2", "memory_fitting_level"),
    (-1, "num_cpu_devices"),
    ("UNKNOWN", "optimization_level"),
    ("xla_gpu_per_fusion_autotune_cache_dir", "persistent_cache_enable_xla_caches"),
    (1.0, "persistent_cache_min_compile_time_secs"),
    (90, "pgle_aggregation_percentile"),
    (3, "pgle_profiling_runs"),
    ("off", "send_traceback_to_runtime"),
    (1200000, "share_binary_between_hosts_timeout_ms"),
    (100, "traceback_in_locations_limit"),
    ("auto", "use_magma"),
)  # fmt: skip

# Of these, the ones whose other values would change what a program does, and what does it here.
_FIXED = {
    "num_cpu_devices": ((-1, None, 1), "the CPU is one device"),
    "error_checking_behavior_nan": (("ignore",), "debug_nans and checkify find NaNs"),
    "error_checking_behavior_divide": (("ignore",), "checkify finds divisions by zero"),
    "error_checking_behavior_oob": (("ignore",), "checkify finds indices out of bounds"),
    "rocm_visible_devices": (("all",), "HIP_VISIBLE_DEVICES says which GPUs a process sees"),
    "cuda_visible_devices": (("all",), "CUDA_VISIBLE_DEVICES says which GPUs a process sees"),
}

FLAGS: dict[str, Flag] = {flag.name: flag for flag in _FLAGS} | {
    name: Flag(name, type(default), default, "An option of JAX's, without effect.", effect=False)
    for default, names in _WITHOUT_EFFECT
    for name in names.split()
}

# JAX spells these differently; the value goes through the mapping when there is one.
ALIASES: dict[str, tuple[str, dict[Any, Any]]] = {
    "x64_enabled": ("enable_x64", {}),
    "enable_checks": ("check", {}),
    "compilation_cache_dir": ("cache_dir", {}),
    "compilation_cache_max_size": ("cache_max_bytes", {}),
    "num_cpu_threads": ("num_threads", {}),
    "platform_name": ("platforms", {}),
    "traceback_filtering": (
        "traceback",
        {
            "off": "full",
            "auto": "noted",
            "tracebackhide": "filtered",
            "remove_frames": "filtered",
            "quiet_remove_frames": "noted",
        },
    ),
}


def spellings() -> dict[str, tuple[str, ...]]:
    """Names under which each flag can be read."""
    bare = {name: [name] for name in FLAGS}
    for alias, (name, _) in ALIASES.items():
        bare[name].append(alias)
    return {name: tuple(s for b in names for s in (b, f"jax_{b}")) for name, names in bare.items()}


def is_flag(name: str) -> bool:
    """Whether a flag has this name, which stands without JAX's prefix."""
    return name in FLAGS or name in ALIASES


def resolved(name: str) -> tuple[str, dict[Any, Any]]:
    """The flag meant by `name` and the translation of its values."""
    bare = name.removeprefix("amdjax_").removeprefix("jax_")
    if is_flag(bare):
        return ALIASES.get(bare, (bare, {}))
    hint = did_you_mean(bare, [*FLAGS, *ALIASES])
    raise AttributeError(f"Unrecognized config option: {name}.{hint}")


def parsed(flag: Flag, text: str, variable: str) -> Any:
    """The value of a flag written as `text` in an environment variable."""
    if flag.kind is bool:
        word = text.strip().lower()
        if word in _TRUE or word in _FALSE:
            return word in _TRUE
        raise ValueError(f"{variable}={text!r} is not a boolean: use one of 0, 1, true, false.")
    if flag.optional and text == "":
        return None
    if flag.kind is int:
        try:
            number = int(text)
        except ValueError:
            raise ValueError(f"{variable}={text!r} is not an integer.") from None
        return checked(flag, number, variable)
    return checked(flag, text, variable)


def _names(value: Any, name: str) -> tuple[str, ...]:
    """Names in order, each once, of a text that commas divide or of a collection."""
    names = value.split(",") if isinstance(value, str) else value
    if not isinstance(names, (list, tuple, set, frozenset)) or not all(
        isinstance(n, str) for n in names
    ):
        raise ValueError(f"config option {name} takes names, got {value!r}.")
    return tuple(sorted({n.strip() for n in names} - {""}))


def checked(flag: Flag, value: Any, name: str) -> Any:
    """`value` in the flag's own type, or an error which names the flag."""
    if not flag.effect:
        return _kept(flag, value, name)
    if value is None and flag.optional:
        return value
    if flag.kind is tuple:
        return _names(value, name)
    if flag.kind is object:
        # Devices belong to a higher floor; this is what tells them.
        if value is None or isinstance(value, str) or hasattr(value, "device_kind"):
            return value
        raise ValueError(
            f"config option {name} takes a device or a platform's name, got {value!r}."
        )
    if flag.kind is bool:
        if isinstance(value, (bool, int)):
            return bool(value)
        raise ValueError(f"config option {name} takes a bool, got {value!r}.")
    if flag.choices is not None and value not in flag.choices:
        # An enum member such as lax.Precision.HIGHEST is accepted under its name.
        given, value = value, getattr(value, "name", value)
        value = value if value in flag.choices else str(value).lower()
        if value not in flag.choices:
            allowed = (None, *flag.choices) if flag.optional else flag.choices
            raise ValueError(f"config option {name} takes one of {list(allowed)}, got {given!r}.")
    if flag.kind is str and not isinstance(value, str):
        value = os.fspath(value) if isinstance(value, os.PathLike) else value
        if not isinstance(value, str):
            raise ValueError(f"config option {name} takes a str, got {value!r}.")
    if flag.kind is int and (isinstance(value, bool) or not isinstance(value, int)):
        raise ValueError(f"config option {name} takes an int, got {value!r}.")
    if flag.minimum is not None and value < flag.minimum:
        raise ValueError(f"config option {name} takes {flag.minimum} or more, got {value!r}.")
    return value


def _kept(flag: Flag, value: Any, name: str) -> Any:
    """`value` of a flag without effect, if it is one that JAX takes and that can do without."""
    if flag.kind is bool and not isinstance(value, (bool, int)):
        raise ValueError(f"config option {name} takes a bool, got {value!r}.")
    allowed, advice = _FIXED.get(flag.name, ((value,), ""))
    if value not in allowed:
        raise NotImplementedError(
            f"config option {name} is {flag.default!r} here, got {value!r}: {advice}"
        )
    return value


def from_environment() -> dict[str, Any]:
    """Values of all flags: those of their environment variables, or their defaults."""
    values = {}
    for flag in FLAGS.values():
        text = os.environ.get(flag.env) if flag.effect else None
        values[flag.name] = flag.default if text is None else parsed(flag, text, flag.env)
    return values
