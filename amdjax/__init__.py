"""Array programs, differentiated, vectorized and compiled, in pure Python on LLVM.

JAX's way of programming: pure functions of arrays, transformed by `grad`, `vmap` and `jit`,
compiled by a compiler that can be read. `amdjax.numpy` is the array library, `amdjax.lax` what it
is made of.
"""

from __future__ import annotations

import importlib as _importlib
import sys as _sys
import typing as _typing
from typing import Any as _Any

from amdjax import _docs as _docs, lax as lax, tree as tree, tree_util as tree_util
from amdjax.api import (
    ShapeDtypeStruct as ShapeDtypeStruct,
    block_until_ready as block_until_ready,
    checkpoint as checkpoint,
    closure_convert as closure_convert,
    custom_gradient as custom_gradient,
    custom_jvp as custom_jvp,
    custom_vjp as custom_vjp,
    ensure_compile_time_eval as ensure_compile_time_eval,
    eval_shape as eval_shape,
    grad as grad,
    hessian as hessian,
    io_callback as io_callback,
    jacfwd as jacfwd,
    jacobian as jacobian,
    jacrev as jacrev,
    jvp as jvp,
    linear_transpose as linear_transpose,
    linearize as linearize,
    make_jaxpr as make_jaxpr,
    named_call as named_call,
    named_scope as named_scope,
    pure_callback as pure_callback,
    remat as remat,
    typeof as typeof,
    value_and_grad as value_and_grad,
    vjp as vjp,
    vmap as vmap,
)
from amdjax.core import (
    array_type as _array_type,
    backend as _backend,
    boundaries as _boundaries,
    composite as _composite,
    logs as _logs,
)
from amdjax.core.array import Array as Array
from amdjax.core.config import (
    allow_f16_reductions as allow_f16_reductions,
    array_garbage_collection_guard as array_garbage_collection_guard,
    check_tracer_leaks as check_tracer_leaks,
    checking_leaks as checking_leaks,
    config as config,
    debug_infs as debug_infs,
    debug_key_reuse as debug_key_reuse,
    debug_nans as debug_nans,
    default_device as default_device,
    default_matmul_precision as default_matmul_precision,
    default_prng_impl as default_prng_impl,
    disable_jit as disable_jit,
    enable_checks as enable_checks,
    enable_custom_prng as enable_custom_prng,
    enable_x64 as enable_x64,
    explain_cache_misses as explain_cache_misses,
    legacy_prng_key as legacy_prng_key,
    log_compiles as log_compiles,
    make_user_context as make_user_context,
    no_execution as no_execution,
    no_tracing as no_tracing,
    numpy_dtype_promotion as numpy_dtype_promotion,
    numpy_rank_promotion as numpy_rank_promotion,
    softmax_custom_jvp as softmax_custom_jvp,
    thread_guard as thread_guard,
    threefry_partitionable as threefry_partitionable,
    transfer_guard as transfer_guard,
    transfer_guard_device_to_device as transfer_guard_device_to_device,
    transfer_guard_device_to_host as transfer_guard_device_to_host,
    transfer_guard_host_to_device as transfer_guard_host_to_device,
)
from amdjax.core.docs import complete as _complete
from amdjax.core.dtypes import float0 as float0
from amdjax.core.garbage import live_arrays as live_arrays
from amdjax.core.mesh import set_mesh as set_mesh
from amdjax.core.ref import Ref as Ref
from amdjax.core.sharding import (
    NamedSharding as NamedSharding,
    PartitionSpec as P,  # noqa: F401
    Shard as Shard,
)
from amdjax.core.slices import ds as ds
from amdjax.device import (
    copy_to_host_async as copy_to_host_async,
    device_get as device_get,
    device_put as device_put,
)
from amdjax.jit.api import clear_caches as clear_caches
from amdjax.jit.recompiles import explain_recompiles as explain_recompiles

__version__ = "0.1.0"


# The compiler is loaded when the first array is computed, not by `import amdjax`.
def _load_backend() -> _Any:
    # late: eager operations load the compiler
    from amdjax.jit import backend

    return backend.load()


def _load_methods() -> None:
    _importlib.import_module("amdjax.numpy")


def _load_finder(measures: bool) -> None:
    _importlib.import_module(f"amdjax.find.{'solutions' if measures else 'known'}")


_backend.set_backend(_load_backend)
_backend.set_finder(_load_finder)
_array_type.set_methods_loader(_load_methods)

if _typing.TYPE_CHECKING:
    from amdjax.jit.api import jit as jit
else:
    jit = _sys.modules["amdjax.jit"]  # the folder is the function

_composite.set_jit(jit)
_logs.follow_options()

_LAZY = (
    "ref", "numpy", "nn", "rnn", "random", "scipy", "dtypes", "errors", "typing", "stages", "debug",
    "ops", "optim", "custom_batching", "checkpoint_policies", "flatten_util", "custom_derivatives",
    "ad_checkpoint", "test_util", "image", "dlpack", "doctor", "api_util", "extend", "interpreters",
    "sharding", "experimental", "example_libraries", "monitoring", "profiler", "distributed",
    "ad", "memory", "find", "export", "quantize", "onnx", "tf",
)  # fmt: skip
_ELSEWHERE = {
    **dict.fromkeys(
        ("devices", "local_devices", "device_count", "local_device_count", "default_backend",
         "process_count", "process_index", "process_indices", "host_count", "host_id", "host_ids",
         "Device", "effects_barrier"),
        "runtime.devices",
    ),
    **dict.fromkeys(("pmap", "shard_map", "smap"), "mapping"),
    "print_environment_info": "doctor",
    "fwd_and_bwd": "backward",
    **dict.fromkeys(("make_mesh", "reshard"), "sharding"),
    "load_artifact": "export",
    **dict.fromkeys(("new_ref", "empty_ref", "freeze", "free_ref"), "ref"),
    **dict.fromkeys(
        ("make_array_from_callback", "make_array_from_process_local_data",
         "make_array_from_single_device_arrays"),
        "device",
    ),
}  # fmt: skip


@_boundaries.api_boundary
def __getattr__(name: str) -> _Any:
    """Submodules are imported when first asked for."""
    if name in _LAZY:
        return _importlib.import_module(f"amdjax.{name}")
    if name in _ELSEWHERE:
        return getattr(_importlib.import_module(f"amdjax.{_ELSEWHERE[name]}"), name)
    raise AttributeError(f"module 'amdjax' has no attribute {name!r}")


_complete(globals(), _docs.TRANSFORMS, _docs.TRANSFORM)
_boundaries.public_surface(globals())
