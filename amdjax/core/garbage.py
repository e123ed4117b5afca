"""Arrays and the garbage collector: which are alive, and a guard on those it has to free.

An array in a reference cycle holds its memory until the collector runs, which knows nothing of
memory pools and devices.
"""

from __future__ import annotations

import functools
import gc
import os
import sys
import weakref
from typing import Any

from amdjax.core.array import ConcreteArray
from amdjax.core.backend import get_backend
from amdjax.core.config import config

_watched: list[weakref.ref[ConcreteArray]] = []
_freed: list[Any] = []


def live_arrays(platform: str | None = None) -> list[ConcreteArray]:
    """The arrays that exist.

    Args:
      platform: those on the devices of this platform; of the default one if omitted.

    Returns:
      Arrays that were neither deleted nor donated, in no particular order.

    Raises:
      ValueError: there are no devices of that platform.

        >>> x = amdjax.numpy.ones(3)
        >>> any(y is x for y in amdjax.live_arrays())
        True
    """
    backend = get_backend()
    devices = backend.devices()
    default = backend.default_placement()
    wanted = platform or (default.device if default is not None else devices[0]).platform
    if wanted not in {d.platform for d in devices}:
        raise ValueError(f"live_arrays: there are no devices of the platform {wanted!r}")
    arrays = (x for x in gc.get_objects() if isinstance(x, ConcreteArray))
    # What results of known calls are copied from has no buffer.
    alive = [x for x in arrays if getattr(x, "buffer", None) is not None]
    return [x for x in alive if _device(x, devices[0]).platform == wanted]


def _device(x: ConcreteArray, host: Any) -> Any:
    placement = getattr(x, "placement", None)
    return host if placement is None else placement.device


def _note(shape: str, _: Any) -> None:
    _freed.append(shape)


def _on_collection(phase: str, info: dict[str, int]) -> None:
    """Called by the collector when it begins and when it ends."""
    level = config.array_garbage_collection_guard
    if level == "allow":
        return
    if phase == "start":
        # What counting references frees is gone already, so these fire only for the collector.
        for x in gc.get_objects():
            if isinstance(x, ConcreteArray):
                note = functools.partial(_note, x.aval.str_short())
                _watched.append(weakref.ref(x, note))
        return
    found = list(_freed)
    _watched.clear()
    _freed.clear()
    for shape in found:
        print(
            f"`jax.Array` was deleted by the Python garbage collector: {shape} was part of a "
            "reference cycle, or referred to by one. Break the cycle, so that memory is freed as "
            "soon as it is not used.",
            file=sys.stderr,
        )
    if found and level == "fatal":
        os.abort()


def _watch() -> None:
    gc.callbacks.append(_on_collection)


if config.array_garbage_collection_guard != "allow":
    _watch()
else:
    config.on_use("array_garbage_collection_guard", _watch)
