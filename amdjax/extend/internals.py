"""What libraries import from JAX's private modules, and where that is here.

Only names that published libraries use. A module that is not listed is not found, which the same
libraries are prepared for.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from amdjax.core.treedef import _kinds as REGISTRY
from amdjax.runtime.devices import devices as all_devices

Entry = tuple[Sequence[str], dict[str, Any]]


def _nothing(*args: Any, **kwargs: Any) -> None:
    """Does nothing."""


def _cpus(devices: Any) -> Any:
    """The CPU beside each of some devices, which are this host's."""
    return tuple(all_devices("cpu")) * len(devices)


INTERNALS: dict[str, Entry] = {
    "jax._src": ([], {}),
    "jax._src.ad_util": (["amdjax.transforms.zero"], {}),
    "jax._src.api": (["amdjax"], {}),
    "jax._src.api_util": (["amdjax.api_util"], {}),
    "jax._src.array": (["amdjax.extend.arrays"], {}),
    "jax._src.callback": (["amdjax"], {}),
    "jax._src.checkify": (["amdjax.experimental.checkify"], {}),
    "jax._src.compiler": ([], {}),
    "jax._src.core": (["amdjax.core", "amdjax.extend.core", "amdjax.extend.core.programs"], {}),
    "jax._src.dispatch": (["amdjax.interpreters.xla"], {"wait_for_tokens": _nothing}),
    "jax._src.distributed": (
        ["amdjax.distributed"],
        {"global_state": SimpleNamespace(client=None, process_id=0, num_processes=1)},
    ),
    "jax._src.dtypes": (
        ["amdjax.dtypes", "amdjax.core.dtypes", "amdjax.core.promotion", "amdjax.errors"],
        {"DType": np.dtype},
    ),
    "jax._src.flatten_util": (["amdjax.flatten_util"], {}),
    "jax._src.interpreters": ([], {}),
    "jax._src.interpreters.ad": (["amdjax.interpreters.ad"], {}),
    "jax._src.interpreters.batching": (["amdjax.interpreters.batching"], {}),
    "jax._src.interpreters.mlir": (["amdjax.interpreters.mlir"], {}),
    "jax._src.interpreters.partial_eval": (["amdjax.interpreters.partial_eval"], {}),
    "jax._src.lax": (["amdjax.lax"], {}),
    "jax._src.lax.lax": (["amdjax.lax"], {}),
    "jax._src.linear_util": (["amdjax.extend.linear_util"], {}),
    "jax._src.numpy": (["amdjax.numpy"], {}),
    "jax._src.random": (["amdjax.random"], {}),
    "jax._src.state": ([], {}),
    "jax._src.state.types": (["amdjax.core.ref"], {}),
    "jax._src.sharding_impls": (["amdjax.sharding"], {}),
    "jax._src.source_info_util": (["amdjax.extend.source_info_util"], {}),
    "jax._src.test_util": (["amdjax.test_util"], {}),
    "jax._src.traceback_util": (["amdjax.extend.tracebacks"], {}),
    "jax._src.tree_util": (["amdjax.tree_util"], {"_registry": REGISTRY}),
    "jax._src.util": (["amdjax.api_util"], {}),
    "jax._src.typing": (["amdjax.typing"], {}),
    "jax.experimental.hijax": (["amdjax.extend.values"], {}),
    "jax.experimental.colocated_python": (
        [],
        {"colocated_cpu_devices": _cpus, "colocated_python": lambda fun: fun},
    ),
    "jax.experimental.colocated_python.func": ([], {}),
    # What one library replaces there, for controllers of many hosts.
    "jax.experimental.colocated_python.serialization": (
        [],
        {
            "DeviceList": tuple,
            "_reduce_device_list": _nothing,
            "_reduce_mesh": _nothing,
            "_reduce_single_device_sharding": _nothing,
        },
    ),
    "jax.extend.ifrt_programs": ([], {"ifrt_programs": None}),
    "jax.experimental.array_serialization": ([], {}),
    "jax.experimental.array_serialization.serialization": (
        [],
        {"GlobalAsyncCheckpointManagerBase": type("GlobalAsyncCheckpointManagerBase", (), {})},
    ),
}
