"""What JAX's own tests and test utilities take from its private modules, as amdjax has it."""

from __future__ import annotations

import importlib
import threading
import types
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
from flags import ConfigModule, Remembered, config, state
from lenient import Lenient
from missing import Missing

import amdjax
from amdjax import api_util
from amdjax.as_jax import JAX_VERSION
from amdjax.core import dtypes, promotion, ref as ref_types

VERSION = tuple(map(int, JAX_VERSION.split(".")))


def _sparse(part: str = "") -> Callable[[str], Lenient]:
    def make(name: str) -> Lenient:
        import sparse_internals

        if part:
            return Lenient(name, [getattr(sparse_internals, part)])
        parts = ("bcoo", "bcsr", "coo", "csr", "linalg", "util", "transform")
        modules = {p: Lenient(f"{name}.{p}", [getattr(sparse_internals, p)]) for p in parts}
        return Lenient(name, [importlib.import_module("amdjax.experimental.sparse")], modules)

    return make


def _front(*sources: str, **extra: Any) -> Callable[[str], Lenient]:
    def make(name: str) -> Lenient:
        modules = [importlib.import_module(f"amdjax.{s}" if s else "amdjax") for s in sources]
        return Lenient(name, modules, extra)

    return make


class _Counted:
    """A function that its tests ask for cache statistics, which are not kept here."""

    def __init__(self, f: Any = None):
        self._f = f

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._f(*args, **kwargs)

    cache_clear = staticmethod(lambda: None)
    cache_info = staticmethod(lambda: types.SimpleNamespace(misses=0, hits=0))


class _SignaturesOfKeys:
    """What primitives do to keys, by primitive."""

    def __getitem__(self, primitive: Any) -> Any:
        from amdjax.random.key_reuse import signatures

        return signatures[primitive.name]


def _promote(*args: Any, inexact: bool = False) -> list[Any]:
    to = promotion.result_type(*args)
    if inexact:
        to = dtypes.to_inexact_dtype(to)
    return [amdjax.numpy.asarray(a).astype(to) for a in args]


def _convert(x: Any, dtype: Any = None, weak_type: bool = False, sharding: Any = None) -> Any:
    x = amdjax.numpy.asarray(x)
    dtype = amdjax.dtypes.canonicalize_dtype(dtype or x.dtype)
    if (x.dtype, x.weak_type) == (dtype, weak_type):
        return x
    return amdjax.lax.convert_element_type_p.bind(
        x, new_dtype=dtype, weak_type=weak_type, sharding=None
    )


def _scalar_type(dtype: Any, weak_type: bool) -> Any:
    return type(dtype.type(0).item()) if weak_type and dtype.kind != "b" else dtype


_NAMED = {
    name: getattr(ml_dtypes, name)
    for name in dir(ml_dtypes)
    if name.startswith(("float", "int", "uint", "bfloat"))
    and isinstance(getattr(ml_dtypes, name), type)
}
_SUPPORTED = (
    "bool uint4 uint8 uint16 uint32 uint64 int4 int8 int16 int32 int64 float8_e4m3fn float8_e5m2 "
    "bfloat16 float16 float32 float64 complex64 complex128"
)
_DLPACK = (
    "int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 "
    "complex128 bool bfloat16"
)


def _dtypes(name: str) -> Lenient:
    defaults = {
        "b": lambda: np.dtype(bool),
        "i": dtypes.default_int_dtype,
        "u": dtypes.default_uint_dtype,
        "f": dtypes.default_float_dtype,
        "c": lambda: dtypes.to_complex_dtype(dtypes.default_float_dtype()),
    }
    scalars = {bool: "bool", int: "int64", float: "float64", complex: "complex128"}
    custom = [np.dtype(v) for v in _NAMED.values()]
    extra = {
        **_NAMED,
        "int1": _NAMED.get("int1"),
        "uint1": _NAMED.get("uint1"),
        "default_types": defaults,
        "default_complex_dtype": defaults["c"],
        "python_scalar_types_to_dtypes": {k: np.dtype(v) for k, v in scalars.items()},
        "_dtype_and_weaktype": promotion._dtype_and_weak_type,
        "_jax_type": _scalar_type,
        "_weak_types": [int, float, complex],
        "_jax_types": [np.dtype(n) for n in _SUPPORTED.split()],
        "_intn_dtypes": [v for v in custom if v.name.startswith(("int", "uint"))],
        "_float8_dtypes": [v for v in custom if v.name.startswith("float8")],
    }
    modules = [importlib.import_module(f"amdjax.{m}") for m in _DTYPE_HOMES]
    return Lenient(name, modules, extra)


def _shaped_array_ref(shape: Any, dtype: Any, weak_type: bool = False) -> ref_types.AbstractRef:
    return ref_types.AbstractRef(amdjax.core.ShapedArray(shape, dtype, weak_type))


_DTYPE_HOMES: Sequence[str] = ("dtypes", "core.dtypes", "core.promotion")
_backend = types.SimpleNamespace(
    platform="cpu",
    platform_version="amdjax",
    devices=amdjax.devices,
    device_count=amdjax.device_count,
)

FRONTS: dict[str, Callable[[str], Lenient]] = {
    "jax": _front(
        "",
        config=config,
        __version__=JAX_VERSION,
        __version_info__=VERSION,
        legacy_prng_key=state("legacy_prng_key"),
    ),
    "jax._src": _front(),
    "jax._src.config": ConfigModule,
    "jax._src.api": _front("", "transforms.ops", "transforms.pullback"),
    "jax._src.core": _front(
        *("core.aval", "core.jaxpr", "core.dead_code", "core.trace", "core.jaxpr_trace"),
        *("core.check", "core.errors", "core.boundaries", "core.array", "core.mesh"),
        *("core", "extend.core", "extend.core.programs"),
        reset_trace_state=lambda: True,
        typeof=amdjax.typeof,
        new_ref=amdjax.new_ref,
        freeze=amdjax.freeze,
        no_effects=frozenset(),
    ),
    "jax._src.dtypes": _dtypes,
    "jax._src.mesh": _front("core.mesh", empty_concrete_mesh=amdjax.core.mesh.empty_mesh),
    "jax._src.sharding": _front("sharding", "core.sharding"),
    "jax._src.sharding_impls": _front("sharding", "core.sharding"),
    "jax._src.partition_spec": _front("core.sharding"),
    "jax._src.errors": _front("errors"),
    "jax._src.state.primitives": _front(
        *("ref", "numpy.refs", "numpy.ref_primitives"),
        ref_get=amdjax.ref.get,
        ref_set=amdjax.ref.set,
        ref_swap=amdjax.ref.swap,
        ref_addupdate=amdjax.ref.addupdate,
    ),
    "jax._src.state.types": _front(
        "core.ref",
        # Here effects do not say of which reference they are.
        ReadEffect=lambda ref: ref_types.read_effect,
        WriteEffect=lambda ref: ref_types.write_effect,
        AccumEffect=lambda ref: ref_types.accum_effect,
        shaped_array_ref=_shaped_array_ref,
        TransformedRef=ref_types.RefPart,
    ),
    "jax._src.shard_map": _front("", "mapping"),
    "jax._src.effects": _front("core.effects"),
    "jax._src.lax": _front("lax"),
    "jax._src.lax.lax": _front(
        "lax",
        asarray=amdjax.numpy.asarray,
        _convert_element_type=_convert,
        remaining=lambda original, *removed: [
            i for i in original if not any(i in r for r in removed)
        ],
    ),
    "jax._src.lax.linalg": _front("lax.linalg"),
    "jax._src.lax.parallel": _front("lax"),
    "jax._src.lax.slicing": _front("lax"),
    "jax._src.lax.control_flow": _front("lax"),
    "jax._src.lax.control_flow.common": _front(_dedup_consts=_Counted(), _pad_constvars=_Counted()),
    "jax._src.numpy": _front("numpy"),
    "jax._src.numpy.util": _front(
        "numpy",
        promote_dtypes=_promote,
        promote_dtypes_inexact=lambda *a: _promote(*a, inexact=True),
    ),
    "jax._src.nn": _front("nn"),
    "jax._src.random": _front("random"),
    "jax._src.random.core": _front("random"),
    "jax._src.random.prng": _front("extend.random", "random._prng", "random._keys"),
    "jax._src.checkify": _front("experimental.checkify"),
    "jax._src.ad_checkpoint": _front("ad_checkpoint"),
    "jax._src.custom_derivatives": _front("custom_derivatives"),
    "jax._src.debugging": _front(
        "debug", debug_print=amdjax.debug.print, debug_callback=amdjax.debug.callback
    ),
    "jax._src.debugger": _front("debug"),
    "jax.experimental.sparse": _sparse(),
    **{
        f"jax.experimental.sparse.{part}": _sparse(part)
        for part in ("bcoo", "bcsr", "coo", "csr", "linalg", "util", "transform")
    },
    "jax.experimental.key_reuse._core": _front(
        "random.key_reuse", "experimental.key_reuse", key_reuse_signatures=_SignaturesOfKeys()
    ),
    "jax._src.dispatch": _front(
        xla_primitive_callable=_Counted(),
        runtime_tokens=types.SimpleNamespace(
            clear=lambda: None,
            block_until_ready=lambda: None,
            current_tokens={},
            output_runtime_tokens={},
        ),
    ),
    "jax._src.compilation_cache": _front(_cache=None, is_persistent_cache_enabled=lambda: False),
    "jax._src.array": _front("core.array", ArrayImpl=amdjax.core.array.ConcreteArray),
    "jax._src.dlpack": _front(SUPPORTED_DTYPES_SET=frozenset(map(np.dtype, _DLPACK.split()))),
    "jax._src.cloud_tpu_init": _front(running_in_cloud_tpu_vm=False),
    "jax._src.deprecations": _front(is_accelerated=lambda name: False),
    "jax._src.interpreters.mlir": _front("interpreters.mlir", _platforms_with_donation=["cpu"]),
    "jax._src.lib": _front(
        version=VERSION, version_str=JAX_VERSION, jaxlib_extension_version=10**6
    ),
    "jax._src.lib._jax": _front(
        **{n: (lambda: False) for n in ("is_asan", "is_msan", "is_tsan", "is_sanitized")},
        is_optimized_build=lambda: True,
    ),
    "jax._src.lib.utils": _front(
        safe_map=api_util.safe_map,
        safe_zip=api_util.safe_zip,
        Mutex=threading.Lock,
        foreach=lambda f, *a: api_util.safe_map(f, *a) and None,
        install_failure_signal_handler=lambda: None,
        topological_sort=Missing("jax._src.lib.utils.topological_sort"),
    ),
    "jax._src.xla_bridge": _front(
        get_backend=_Counted(lambda platform=None: _backend),
        devices=amdjax.devices,
        local_devices=amdjax.local_devices,
        device_count=amdjax.device_count,
        num_cpu_devices=Remembered("num_cpu_devices", 1),
        using_pjrt_c_api=lambda *a: False,
        backend_pjrt_c_api_version=lambda *a: None,
        backend_stablehlo_version=lambda *a: None,
    ),
}
