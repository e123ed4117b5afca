"""Keys: the explicit state of random functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from amdjax import lax
from amdjax.core.array import Array
from amdjax.core.config import config
from amdjax.core.tracebacks import warn
from amdjax.lax._rules import as_ints
from amdjax.numpy._util import as_array
from amdjax.random import _generators as _generators  # registers them
from amdjax.random._prng import (
    KeyTy,
    PRNGImpl,
    impl_of,
    is_key,
    prngs,
    random_clone_p,
    random_fold_in,
    random_seed,
    random_split,
    random_unwrap,
    random_wrap,
)

Shape = tuple[int, ...]


class PRNGSpec:
    """A generator that has no registered name; what `key_impl` returns for its keys."""

    __slots__ = ("_impl",)

    def __init__(self, impl: PRNGImpl):
        self._impl = impl

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PRNGSpec) and self._impl == other._impl

    def __hash__(self) -> int:
        return hash(self._impl)

    def __str__(self) -> str:
        return str(self._impl)

    def __repr__(self) -> str:
        return f"PRNGSpec({self._impl.name!r})"


def default_prng_impl() -> PRNGImpl:
    """The generator of keys for which none is named: `config.default_prng_impl`."""
    return prngs[config.default_prng_impl]


def resolve_prng_impl(impl: Any) -> PRNGImpl:
    """A generator given by name, by the dtype of its keys, or as it is; None is the default.

    Raises:
      TypeError: if it is given as something else.
      ValueError: if there is none of that name.
    """
    if impl is None:
        return default_prng_impl()
    if isinstance(impl, PRNGImpl):
        return impl
    if isinstance(impl, (KeyTy, PRNGSpec)):
        return impl._impl
    if not isinstance(impl, str):
        raise TypeError(
            f"unrecognized type {type(impl)} for specifying a PRNG implementation: give its name "
            "or the dtype of its keys."
        )
    if impl not in prngs:
        names = ", ".join(repr(name) for name in prngs)
        raise ValueError(f"unrecognized PRNG implementation {impl!r}; choose one of {names}.")
    return prngs[impl]


def _make_key(name: str, seed: Any, impl: Any) -> Any:
    if is_key(seed):
        raise TypeError(f"{name} accepts a scalar seed, but was given a PRNG key.")
    if np.ndim(seed):
        raise TypeError(
            f"{name} accepts a scalar seed, but was given one of shape {np.shape(seed)} != (). "
            "Use amdjax.vmap for batching."
        )
    return random_seed(seed, resolve_prng_impl(impl))


def key(seed: Any, *, impl: Any = None, dtype: Any = None) -> Any:
    """A key from a seed.

    Args:
      impl: the generator: "threefry2x32" (the default), "threefry4x32", "philox2x32",
        "philox4x32", "rbg" or "unsafe_rbg".
      dtype: the same, as a key dtype.

    Returns:
      A scalar key.

    Raises:
      TypeError: if the seed is no integer scalar.
      ValueError: if there is no such generator.

        >>> random.key(0).dtype
        key<fry>
    """
    if impl is not None and dtype is not None:
        raise ValueError(
            "random.key: Cannot specify both `impl` and `dtype`; either names the PRNG."
        )
    return _make_key("key", seed, dtype if impl is None else impl)


def PRNGKey(seed: Any, *, impl: Any = None) -> Any:
    """A raw key from a seed: what `key` makes, as a plain array.

    Args:
      impl: the generator: "threefry2x32" (the default), "threefry4x32", "philox2x32",
        "philox4x32", "rbg" or "unsafe_rbg".

    Returns:
      A uint32 array of shape `(2,)`, or `(4,)` for the other generators.

    Raises:
      TypeError: if the seed is no integer scalar.

        >>> random.PRNGKey(7).tolist()
        [0, 7]
    """
    return _returned(_make_key("PRNGKey", seed, impl), raw=True)


def as_key(name: str, key: Any, batched: bool = False) -> tuple[Any, bool]:
    """`key` as a typed key, and whether it was a raw one.

    Raises:
      TypeError: if it is neither.
      ValueError: if it is an array of keys and `batched` is false, or raw and these are refused.
    """
    raw = not is_key(key)
    typed = _typed(name, key) if raw else key
    if typed.ndim and not batched:
        raise ValueError(
            f"{name} accepts a single key, but was given a key array of shape {typed.shape} != (). "
            "Use amdjax.vmap for batching."
        )
    return typed, raw


_LEGACY = (
    "Legacy uint32 key array passed as key to jax.random function. Make keys for {name} with "
    'random.key, or set legacy_prng_key="allow" if raw arrays are meant.'
)


def _typed(name: str, key: Any) -> Any:
    if not isinstance(key, (Array, np.ndarray)) and not hasattr(key, "__jax_array__"):
        raise TypeError(f"{name}: unexpected PRNG key type {type(key)}.")
    typed = random_wrap(key, impl=default_prng_impl())
    if config.legacy_prng_key == "error":
        raise ValueError(_LEGACY.format(name=name))
    if config.legacy_prng_key == "warn":
        warn(_LEGACY.format(name=name))
    elif config.enable_custom_prng:
        warn(
            f"Raw arrays as random keys to amdjax.random.{name} are deprecated: taken for one of "
            f"{config.default_prng_impl}.",
            FutureWarning,
        )
    return typed


def _returned(key: Any, raw: bool) -> Any:
    return random_unwrap(key) if raw and not config.enable_custom_prng else key


def split(key: Any, num: int | Sequence[int] = 2) -> Any:
    """New keys from a key, which is then used up.

    Args:
      key: a key, typed or raw.
      num: how many, or the shape of the array of new keys.

    Returns:
      An array of keys, typed or raw like `key`.

    Raises:
      TypeError: `num` is not made of integers.
      ValueError: for an array of keys; use `vmap`.

        >>> random.split(random.PRNGKey(0)).tolist()
        [[1797259609, 2579123966], [928981903, 3453687069]]
    """
    typed, raw = as_key("split", key)
    shape = as_ints(num if isinstance(num, Sequence) else (num,), "split num")
    return _returned(random_split(typed, shape), raw)


def subkeys(key: Any, num: int = 2) -> list[Any]:
    """`num` new keys, or arrays of them, one by one; for use within samplers."""
    keys = random_split(key, (num,))
    return [lax.index_in_dim(keys, k, key.ndim, keepdims=False) for k in range(num)]


def fold_in(key: Any, data: Any) -> Any:
    """A new key from a key and a number.

    Args:
      key: a key, typed or raw.
      data: an integer scalar, taken modulo 2**32.

    Returns:
      A key, typed or raw like `key`.

    Raises:
      TypeError: if `data` is no scalar.

        >>> random.fold_in(random.PRNGKey(0), 1).tolist()
        [928981903, 3453687069]
    """
    typed, raw = as_key("fold_in", key)
    if np.ndim(data):
        raise TypeError(
            f"fold_in accepts a scalar, but was given an array of shape {np.shape(data)} != (). "
            "Use amdjax.vmap for batching."
        )
    if isinstance(data, (int, np.integer)):
        data = np.asarray(data, np.uint32)[()]
    else:
        data = lax.convert_element_type(data, np.uint32)
    return _returned(random_fold_in(typed, data), raw)


def key_data(keys: Any) -> Any:
    """The integers beneath keys.

    Returns:
      A uint32 array with one axis more than typed keys have.

    Raises:
      TypeError: if `keys` is no key.

        >>> random.key_data(random.key(3)).tolist()
        [0, 3]
    """
    return random_unwrap(as_key("key_data", keys, batched=True)[0])


def wrap_key_data(key_bits_array: Any, *, impl: Any = None, dtype: Any = None) -> Any:
    """Typed keys over integers.

    Args:
      key_bits_array: a uint32 array, its last axis of the size of one key.
      impl: the generator, by name.
      dtype: the same, as a key dtype.

    Returns:
      An array of keys.

    Raises:
      ValueError: `impl` and `dtype` are both given.
      TypeError: if dtype or shape do not fit the generator.

        >>> random.wrap_key_data(np.zeros((3, 2), np.uint32)).shape
        (3,)
    """
    if impl is not None and dtype is not None:
        raise ValueError(
            "random.wrap_key_data: Cannot specify both `impl` and `dtype`; either names the PRNG."
        )
    return random_wrap(key_bits_array, impl=resolve_prng_impl(dtype if impl is None else impl))


def key_impl(keys: Any) -> str | PRNGSpec:
    """The name of the generator that keys belong to.

    Returns:
      A name that `key` takes as `impl`.

    Raises:
      TypeError: if `keys` is no key.

        >>> random.key_impl(random.key(0))
        'threefry2x32'
    """
    impl = impl_of(as_key("key_impl", keys, batched=True)[0])
    return impl.name if prngs.get(impl.name) == impl else PRNGSpec(impl)


def key_dtype(impl_spec: Any = None) -> KeyTy:
    """The dtype of a generator's typed keys.

    Args:
      impl_spec: the generator's name; `None` for the default one.

    Returns:
      The dtype.

    Raises:
      ValueError: if there is no such generator.

        >>> random.key_dtype("rbg")
        key<rbg>
    """
    return KeyTy(resolve_prng_impl(impl_spec))


def clone(key: Any) -> Any:
    """The same key, which may be used again though it was used; see `debug_key_reuse`.

    Args:
      key: a key, typed or raw; any other array is returned too.

    Returns:
      `key`.

    Raises:
      TypeError: if it is no array.

        >>> random.clone(random.PRNGKey(1)).tolist()
        [0, 1]
    """
    return random_clone_p.bind(key) if is_key(key) else as_array("clone", key)
