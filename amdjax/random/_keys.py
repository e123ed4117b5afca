"""Keys: the explicit state of random functions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from amdjax import lax
from amdjax.core import dtypes
from amdjax.core.array import Array
from amdjax.core.aval import get_aval, is_valid_value
from amdjax.core.config import config
from amdjax.core.dtypes import ExtendedDType, register_short_name
from amdjax.core.pytree import register_pytree_node
from amdjax.lax._rules import as_ints
from amdjax.random._compile import compiled
from amdjax.random._generators import GENERATORS, Generator, seed_words

Shape = tuple[int, ...]


class KeyTy(ExtendedDType):
    """The dtype of typed keys, such as `key<fry>`."""

    def __init__(self, impl: Generator):
        self._impl = impl

    @property
    def type(self) -> type:
        """The scalar class, for `issubdtype`."""
        return dtypes.prng_key

    @property
    def name(self) -> str:
        """How the dtype prints."""
        return f"key<{self._impl.tag}>"

    @property
    def itemsize(self) -> int:
        """Bytes of one key."""
        return 4 * self._impl.key_size

    def __repr__(self) -> str:
        return self.name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KeyTy) and self._impl.name == other._impl.name

    def __hash__(self) -> int:
        return hash((KeyTy, self._impl.name))


for _known in GENERATORS.values():
    register_short_name(KeyTy(_known))


class PRNGKeyArray:
    """An array of keys, as `amdjax.random.key` makes them.

    A pytree of one uint32 array with one axis more, so that keys pass through all transforms.
    Indexing, reshaping and iteration see an array of keys.
    """

    __slots__ = ("_base_array", "_impl")
    __array_priority__ = 100
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, impl: Generator, key_data: Any):
        self._impl = impl
        self._base_array = key_data

    @property
    def shape(self) -> Shape:
        """The extents of the array of keys."""
        return tuple(self._base_array.shape[:-1])

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of keys."""
        return math.prod(self.shape)

    @property
    def dtype(self) -> KeyTy:
        """The dtype, which names the generator."""
        return KeyTy(self._impl)

    @property
    def itemsize(self) -> int:
        """Bytes of one key."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all keys."""
        return self.itemsize * self.size

    def _with(self, data: Any) -> PRNGKeyArray:
        return PRNGKeyArray(self._impl, data)

    def _reshaped(self, shape: Sequence[int]) -> PRNGKeyArray:
        return self._with(lax.reshape(self._base_array, (*shape, self._impl.key_size)))

    def reshape(self, *shape: Any, order: str = "C") -> PRNGKeyArray:
        """The same keys in another shape."""
        if len(shape) == 1 and isinstance(shape[0], Sequence):
            shape = tuple(shape[0])
        if -1 in shape:
            known = -math.prod(shape)
            shape = tuple(self.size // known if n == -1 else n for n in shape)
        return self._reshaped(shape)

    def flatten(self, order: str = "C") -> PRNGKeyArray:
        """The same keys along one axis."""
        return self._reshaped((self.size,))

    ravel = flatten

    def squeeze(self, axis: int | Sequence[int] | None = None) -> PRNGKeyArray:
        """The same keys without axes of size one."""
        rank = self.ndim
        if axis is None:
            dropped = {d for d, n in enumerate(self.shape) if n == 1}
        else:
            dropped = {d % rank for d in (axis if isinstance(axis, Sequence) else (axis,))}
        return self._reshaped([n for d, n in enumerate(self.shape) if d not in dropped])

    def transpose(self, *axes: Any) -> PRNGKeyArray:
        """The same keys with axes permuted, reversed by default."""
        if len(axes) == 1 and isinstance(axes[0], Sequence):
            axes = tuple(axes[0])
        order = axes or tuple(reversed(range(self.ndim)))
        return self._with(lax.transpose(self._base_array, (*order, self.ndim)))

    @property
    def T(self) -> PRNGKeyArray:
        """The same keys with axes reversed."""
        return self.transpose()

    def copy(self) -> PRNGKeyArray:
        """The same keys."""
        return self._with(self._base_array)

    def block_until_ready(self) -> PRNGKeyArray:
        """Wait until the keys are computed."""
        self._base_array.block_until_ready()
        return self

    def __getitem__(self, index: Any) -> PRNGKeyArray:
        index = index if isinstance(index, tuple) else (index,)
        if Ellipsis not in [i for i in index if i is Ellipsis]:
            index = (*index, Ellipsis)
        used = sum(1 for i in index if i is not None and i is not Ellipsis)
        if used > self.ndim:
            raise IndexError(f"{used} indices are too many for keys of shape {self.shape}.")
        return self._with(self._base_array[(*index, slice(None))])

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def __iter__(self) -> Iterator[PRNGKeyArray]:
        if not self.shape:
            raise TypeError("iteration over a 0-d key array")
        return (self._with(_row(self._base_array, k)) for k in range(len(self)))

    def _same(self, other: Any) -> Any:
        if not isinstance(other, PRNGKeyArray) or other.dtype != self.dtype:
            raise TypeError(
                f"keys of dtype {self.dtype} compare only with such keys, not {other!r}."
            )
        equal = lax.eq(self._base_array, other._base_array)
        return lax.reduce_and(equal, (self.ndim,))

    def __eq__(self, other: Any) -> Any:
        return self._same(other)

    def __ne__(self, other: Any) -> Any:
        return lax.bitwise_not(self._same(other))

    def __bool__(self) -> bool:
        raise TypeError("key array cannot be converted to boolean.")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        raise TypeError(
            "an array of keys cannot become a NumPy array; amdjax.random.key_data(keys) is the "
            "array of integers beneath."
        )

    def __repr__(self) -> str:
        return f"Array({self.shape}, dtype={self.dtype.name}) overlaying:\n{self._base_array}"


register_pytree_node(
    PRNGKeyArray,
    lambda keys: ((keys._base_array,), keys._impl),
    lambda impl, children: PRNGKeyArray(impl, *children),
)


def _row(data: Any, k: int) -> Any:
    return lax.index_in_dim(data, k, 0, keepdims=False)


def _generator(impl: Any) -> Generator:
    if impl is None:
        impl = config.default_prng_impl
    if isinstance(impl, Generator):
        return impl
    if isinstance(impl, KeyTy):
        return impl._impl
    if not isinstance(impl, str):
        raise TypeError(f"a PRNG implementation is given by name or dtype, got {impl!r}.")
    if impl not in GENERATORS:
        names = ", ".join(repr(name) for name in GENERATORS)
        raise ValueError(f"unrecognized PRNG implementation {impl!r}; choose one of {names}.")
    return GENERATORS[impl]


def _make_key(name: str, seed: Any, impl: Any) -> PRNGKeyArray:
    if isinstance(seed, PRNGKeyArray):
        raise TypeError(f"{name} accepts a scalar seed, but was given a PRNG key.")
    if np.ndim(seed):
        raise TypeError(
            f"{name} accepts a scalar seed, but was given one of shape {np.shape(seed)} != (). "
            "Use amdjax.vmap for batching."
        )
    generator = _generator(impl)
    return PRNGKeyArray(generator, generator.seed(seed_words(seed)))


def key(seed: Any, *, impl: Any = None, dtype: Any = None) -> PRNGKeyArray:
    """A key from a seed.

    Args:
      seed: an integer; without x64 only its low 32 bits count.
      impl: the generator: "threefry2x32" (the default), "rbg" or "unsafe_rbg".
      dtype: the same, as a key dtype.

    Returns:
      A scalar key.

    Raises:
      TypeError: if the seed is no integer scalar.
      ValueError: if there is no such generator.

    Example:
      >>> from amdjax import random
      >>> random.key(0).dtype
      key<fry>
    """
    if impl is not None and dtype is not None:
        raise ValueError("random.key takes impl or dtype, not both.")
    return _make_key("key", seed, dtype if impl is None else impl)


def PRNGKey(seed: Any, *, impl: Any = None) -> Any:
    """A raw key from a seed: what `key` makes, as a plain array.

    Args:
      seed: an integer; without x64 only its low 32 bits count.
      impl: the generator: "threefry2x32" (the default), "rbg" or "unsafe_rbg".

    Returns:
      A uint32 array of shape `(2,)`, or `(4,)` for the other generators.

    Raises:
      TypeError: if the seed is no integer scalar.

    Example:
      >>> from amdjax import random
      >>> random.PRNGKey(7).tolist()
      [0, 7]
    """
    made = _make_key("PRNGKey", seed, impl)
    return made if config.enable_custom_prng else made._base_array


def as_key(name: str, key: Any, batched: bool = False) -> tuple[PRNGKeyArray, bool]:
    """`key` as a typed key, and whether it was a raw one.

    Raises:
      TypeError: if it is neither.
      ValueError: if it is an array of keys and `batched` is false.
    """
    raw = not isinstance(key, PRNGKeyArray)
    typed = _typed(name, key) if raw else key
    if typed.ndim and not batched:
        raise ValueError(
            f"{name} accepts a single key, but was given a key array of shape {typed.shape} != (). "
            "Use amdjax.vmap for batching."
        )
    return typed, raw


def _typed(name: str, key: Any) -> PRNGKeyArray:
    if not isinstance(key, (Array, np.ndarray)):
        raise TypeError(f"{name}: unexpected PRNG key type {type(key)}.")
    generator = _generator(None)
    if key.dtype != np.uint32 or key.shape[-1:] != (generator.key_size,):
        raise TypeError(
            f"{name}: a raw key of {generator.name} is a uint32 array with a last axis of size "
            f"{generator.key_size}, got {key.dtype} of shape {key.shape}."
        )
    return PRNGKeyArray(generator, key)


def _returned(key: PRNGKeyArray, raw: bool) -> Any:
    return key._base_array if raw and not config.enable_custom_prng else key


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

    Example:
      >>> from amdjax import random
      >>> random.split(random.PRNGKey(0)).tolist()
      [[1797259609, 2579123966], [928981903, 3453687069]]
    """
    typed, raw = as_key("split", key)
    shape = as_ints(num if isinstance(num, Sequence) else (num,), "split num")
    return _returned(_split(typed, shape=shape), raw)


@compiled
def _split(key: PRNGKeyArray, *, shape: Shape) -> PRNGKeyArray:
    return key._with(key._impl.split(key._base_array, shape))


def subkeys(key: PRNGKeyArray, num: int = 2) -> list[PRNGKeyArray]:
    """`num` new keys, one by one; for use within samplers."""
    data = key._impl.split(key._base_array, (num,))
    return [key._with(_row(data, k)) for k in range(num)]


def fold_in(key: Any, data: Any) -> Any:
    """A new key from a key and a number.

    Args:
      key: a key, typed or raw.
      data: an integer scalar, taken modulo 2**32.

    Returns:
      A key, typed or raw like `key`.

    Raises:
      TypeError: if `data` is no scalar.

    Example:
      >>> from amdjax import random
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
    return _returned(_fold_in(typed, data), raw)


@compiled
def _fold_in(key: PRNGKeyArray, data: Any) -> PRNGKeyArray:
    number = lax.convert_element_type(data, np.uint32)
    return key._with(key._impl.fold_in(key._base_array, number))


def key_data(keys: Any) -> Any:
    """The integers beneath keys.

    Args:
      keys: an array of keys, typed or raw.

    Returns:
      A uint32 array with one axis more than typed keys have.

    Raises:
      TypeError: if `keys` is no key.

    Example:
      >>> from amdjax import random
      >>> random.key_data(random.key(3)).tolist()
      [0, 3]
    """
    return as_key("key_data", keys, batched=True)[0]._base_array


def wrap_key_data(key_bits_array: Any, *, impl: Any = None, dtype: Any = None) -> PRNGKeyArray:
    """Typed keys over integers.

    Args:
      key_bits_array: a uint32 array, its last axis of the size of one key.
      impl: the generator, by name.
      dtype: the same, as a key dtype.

    Returns:
      An array of keys.

    Raises:
      TypeError: if dtype or shape do not fit the generator.

    Example:
      >>> from amdjax import random
      >>> import numpy as np
      >>> random.wrap_key_data(np.zeros((3, 2), np.uint32)).shape
      (3,)
    """
    if impl is not None and dtype is not None:
        raise ValueError("random.wrap_key_data takes impl or dtype, not both.")
    generator = _generator(dtype if impl is None else impl)
    if not is_valid_value(key_bits_array):
        raise TypeError(f"wrap_key_data takes an array of uint32, got {key_bits_array!r}.")
    aval: Any = get_aval(key_bits_array)
    if aval.dtype != np.uint32 or aval.shape[-1:] != (generator.key_size,):
        raise TypeError(
            f"wrap_key_data takes uint32 with a last axis of size {generator.key_size} for "
            f"{generator.name}, got {aval.dtype} of shape {aval.shape}."
        )
    return PRNGKeyArray(generator, key_bits_array)


def key_impl(keys: Any) -> str:
    """The name of the generator that keys belong to.

    Args:
      keys: an array of keys, typed or raw.

    Returns:
      A name that `key` takes as `impl`.

    Raises:
      TypeError: if `keys` is no key.

    Example:
      >>> from amdjax import random
      >>> random.key_impl(random.key(0))
      'threefry2x32'
    """
    return as_key("key_impl", keys, batched=True)[0]._impl.name


def key_dtype(impl_spec: Any = None) -> KeyTy:
    """The dtype of a generator's typed keys.

    Args:
      impl_spec: the generator's name; `None` for the default one.

    Returns:
      The dtype.

    Raises:
      ValueError: if there is no such generator.

    Example:
      >>> from amdjax import random
      >>> random.key_dtype("rbg")
      key<rbg>
    """
    return KeyTy(_generator(impl_spec))


def clone(key: Any) -> Any:
    """The same key, marked as meant to be used again; the mark means nothing here.

    Args:
      key: a key, typed or raw.

    Returns:
      `key`.

    Raises:
      TypeError: if it is no key.

    Example:
      >>> from amdjax import random
      >>> random.clone(random.PRNGKey(1)).tolist()
      [0, 1]
    """
    as_key("clone", key, batched=True)
    return key
