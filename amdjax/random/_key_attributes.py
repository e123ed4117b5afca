"""What arrays of keys have besides arrays' attributes, and what watches that keys are used once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from amdjax.core.array import Array, ConcreteArray
from amdjax.core.array_type import install_methods
from amdjax.core.key_use import set_watch
from amdjax.random._prng import impl_of, is_key, random_unwrap


def _stored_data(keys: Array) -> Any:
    return keys.stored() if isinstance(keys, ConcreteArray) else random_unwrap(keys)


def _below(name: str, read: Callable[[Any], Any]) -> property:
    """An attribute that arrays of keys have, for libraries that reach below them."""

    def get(x: Array) -> Any:
        if not is_key(x):
            raise AttributeError(f"{type(x).__name__!r} object has no attribute {name!r}")
        return read(x)

    return property(get)


def _consumed(keys: Any) -> Any:
    # late: loads where the reuse of keys is watched
    from amdjax.random.key_reuse import is_consumed

    return is_consumed(keys)


def _watched(function: str) -> Callable[..., Any]:
    def watched(*args: Any) -> Any:
        # late: loads where the reuse of keys is watched
        from amdjax.random import key_reuse

        return getattr(key_reuse, function)(*args)

    return watched


install_methods(
    {
        "_impl": _below("_impl", impl_of),
        "_base_array": _below("_base_array", _stored_data),
        "_consumed": _below("_consumed", _consumed),
    }
)
set_watch(_watched("watched_program"), _watched("watched_operation"))
