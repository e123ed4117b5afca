"""Typed keys: their dtype, and the primitives that make keys and draw bits from them.

An array of keys is an array whose dtype names a generator. A generator works on the data of one
key, an array of uint32; what it says is mapped over arrays of keys.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from amdjax import lax
from amdjax.core import dtypes
from amdjax.core.array import Array
from amdjax.core.aval import ShapedArray, get_aval, is_valid_value, physical_aval
from amdjax.core.config import config, threefry_partitionable
from amdjax.core.dtypes import ExtendedDType, register_short_name
from amdjax.core.lowering import Decompose, Relabel
from amdjax.core.primitive import Primitive
from amdjax.lax._rules import (
    batch_elementwise,
    broadcast_together,
    dtype_of,
    jvp_from,
    move_axis,
    shape_of,
)
from amdjax.transforms.vmap import vmap

Shape = Sequence[int]
_UINT32 = np.dtype("uint32")


class PRNGImpl:
    """A random bit generator: how a seed becomes a key, and a key other keys and bits.

    Its functions take and return the data of single keys, uint32 arrays of shape `key_shape`.

    Args:
      key_shape: the shape of the data of one key.
      seed: `seed(number) -> key`, from an integer scalar.
      split: `split(key, shape) -> keys`, as many new keys as `shape` holds.
      random_bits: `random_bits(key, bit_width, shape)`, unsigned integers.
      fold_in: `fold_in(key, number) -> key`, from a uint32 scalar.
      name: the name by which `amdjax.random.key` finds it, if it is registered.
      tag: the name its keys' dtype shows.
    """

    __slots__ = ("fold_in", "key_shape", "name", "random_bits", "seed", "split", "tag")

    def __init__(
        self, key_shape: Shape, seed: Callable[[Any], Any], split: Callable[[Any, Shape], Any],
        random_bits: Callable[[Any, int, Shape], Any], fold_in: Callable[[Any, Any], Any],
        name: str = "<unnamed>", tag: str = "?",
    ):  # fmt: skip
        self.key_shape = tuple(key_shape)
        self.seed, self.split, self.random_bits, self.fold_in = seed, split, random_bits, fold_in
        self.name, self.tag = name, tag

    def _fields(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in self.__slots__)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PRNGImpl) and self._fields() == other._fields()

    def __hash__(self) -> int:
        return hash(self.tag)

    def __repr__(self) -> str:
        return self.tag

    def __reduce__(self) -> Any:
        if prngs.get(self.name) is self:
            return _registered, (self.name,)
        return PRNGImpl, (
            *(self.key_shape, self.seed, self.split, self.random_bits, self.fold_in),
            *(self.name, self.tag),
        )


prngs: dict[str, PRNGImpl] = {}


def _registered(name: str) -> PRNGImpl:
    return prngs[name]


def register_prng(impl: PRNGImpl) -> None:
    """Let a generator be found by its name.

    Raises:
      ValueError: if the name is taken.
    """
    if impl.name in prngs:
        raise ValueError(f"PRNG with name {impl.name} already registered: {impl}")
    prngs[impl.name] = impl
    register_short_name(KeyTy(impl))


class KeyTy(ExtendedDType):
    """The dtype of typed keys, such as `key<fry>`."""

    def __init__(self, impl: PRNGImpl):
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
    def element_shape(self) -> tuple[int, ...]:
        """The shape of the data of one key."""
        return self._impl.key_shape

    @property
    def element_dtype(self) -> np.dtype:
        """The dtype of key data."""
        return _UINT32

    def full(self, shape: tuple[int, ...], fill_value: Any) -> Any:
        """Keys of which all words are one number, or all the same key."""
        shape = (*shape, *self.element_shape)
        if is_key(fill_value):
            data = random_unwrap(fill_value)
            axes = range(len(shape) - len(self.element_shape), len(shape))
            return random_wrap(lax.broadcast_in_dim(data, shape, axes), impl=self._impl)
        return random_wrap(lax.full(shape, fill_value, _UINT32), impl=self._impl)

    def __repr__(self) -> str:
        return self.name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KeyTy) and self._impl == other._impl

    def __hash__(self) -> int:
        return hash((KeyTy, self._impl))


def is_key(x: Any) -> bool:
    """Whether `x` is an array of typed keys."""
    return isinstance(x, Array) and isinstance(x.dtype, KeyTy)


def impl_of(keys: Any) -> PRNGImpl:
    """The generator that keys belong to."""
    return keys.dtype._impl


def _keys_aval(impl: PRNGImpl, shape: Shape) -> ShapedArray:
    return ShapedArray(shape, KeyTy(impl))


def _mapped(fun: Callable[..., Any], rank: int) -> Callable[..., Any]:
    """A function of the data of one key as one of an array of `rank` axes of keys."""
    for _ in range(rank):
        fun = vmap(fun)
    return fun


def key_primitive(name: str) -> Primitive:
    """A primitive that has no derivative."""
    primitive = Primitive(name)
    primitive.jvp = jvp_from(primitive, ())
    return primitive


def of_each(primitive: Primitive) -> None:
    """The primitive does the same to each element of its operand, whose axes come first."""

    @primitive.def_batch
    def batch(axis: Any, args: Any, dims: Any, **params: Any) -> Any:
        return primitive.bind(move_axis(args[0], dims[0], 0), **params), 0


def as_traced() -> dict[str, bool]:
    """Parameters of a primitive that draws bits, for what holds where it is traced.

    Its lowering may run where the setting is another one. JAX's programs show none, so that there
    is none for the default.
    """
    return {} if config.threefry_partitionable else {"partitionable": False}


def drawing(rule: Callable[..., Any]) -> Decompose:
    """The lowering of a primitive that has the parameters of `as_traced`."""

    def lowering(*args: Any, partitionable: bool = True, **params: Any) -> Any:
        with threefry_partitionable(partitionable):
            return rule(*args, **params)

    return Decompose(lowering)


def random_seed(seeds: Any, impl: PRNGImpl) -> Any:
    """Keys from integers; a Python integer may have 64 bits even if arrays have not."""
    if isinstance(seeds, int):
        seeds = np.int64(seeds)
    elif not dtypes.issubdtype(dtype_of(seeds), np.integer):
        raise TypeError(f"PRNG key seed must be an integer; got {seeds!r}")
    if config.random_seed_offset:
        seeds = lax.add(seeds, np.asarray(config.random_seed_offset, dtype_of(seeds)))
    return random_seed_p.bind(seeds, impl=impl)


random_seed_p = key_primitive("random_seed")
random_seed_p.def_abstract_eval(lambda seeds, *, impl: _keys_aval(impl, seeds.shape))
of_each(random_seed_p)
random_seed_p.lowering = Decompose(
    lambda seeds, *, impl: random_wrap(_mapped(impl.seed, seeds.ndim)(seeds), impl=impl)
)


def random_split(keys: Any, shape: Shape) -> Any:
    """As many new keys for each key as `shape` holds, along new last axes."""
    return random_split_p.bind(keys, shape=tuple(shape), **as_traced())


random_split_p = key_primitive("random_split")
random_split_p.def_abstract_eval(
    lambda keys, *, shape, **_: keys.update(shape=(*keys.shape, *shape))
)
of_each(random_split_p)


def _split(keys: Any, *, shape: Shape) -> Any:
    impl = impl_of(keys)
    split = _mapped(lambda key: impl.split(key, shape), keys.ndim)
    return random_wrap(split(random_unwrap(keys)), impl=impl)


random_split_p.lowering = drawing(_split)


def random_fold_in(keys: Any, numbers: Any) -> Any:
    """New keys from keys and numbers."""
    return random_fold_in_p.bind(keys, numbers)


random_fold_in_p = key_primitive("random_fold_in")
random_fold_in_p.def_batch(batch_elementwise(random_fold_in_p))


@random_fold_in_p.def_abstract_eval
def _fold_in_type(keys: Any, numbers: Any) -> ShapedArray:
    shape = broadcast_together("random_fold_in", [keys.shape, numbers.shape])
    return ShapedArray(shape, keys.dtype)


def _fold_in(keys: Any, numbers: Any) -> Any:
    impl = impl_of(keys)
    shapes = [shape_of(keys), shape_of(numbers)]
    whole = broadcast_together("random_fold_in", shapes)
    # Along which axes each operand differs; it is repeated along the others.
    varies = [[d for d, n in enumerate(whole) if s and s[d] == n] for s in shapes]
    keys, numbers = (
        lax.reshape(x, [whole[d] for d in axes]) for x, axes in zip((keys, numbers), varies)
    )
    fold_in: Callable[..., Any] = impl.fold_in
    for d in reversed(range(len(whole))):
        fold_in = vmap(fold_in, in_axes=tuple(0 if d in axes else None for axes in varies))
    return random_wrap(fold_in(random_unwrap(keys), numbers), impl=impl)


random_fold_in_p.lowering = Decompose(_fold_in)


def random_bits(keys: Any, bit_width: int, shape: Shape) -> Any:
    """Unsigned integers of `bit_width` bits, of shape `(*keys.shape, *shape)`."""
    return random_bits_p.bind(keys, bit_width=bit_width, shape=tuple(shape), **as_traced())


random_bits_p = key_primitive("random_bits")
of_each(random_bits_p)


@random_bits_p.def_abstract_eval
def _bits_type(keys: Any, *, bit_width: int, shape: Shape, **_: bool) -> ShapedArray:
    return ShapedArray((*keys.shape, *shape), dtypes.dtype(f"uint{bit_width}"))


def _bits(keys: Any, *, bit_width: int, shape: Shape) -> Any:
    impl = impl_of(keys)
    bits = _mapped(lambda key: impl.random_bits(key, bit_width, shape), keys.ndim)
    return bits(random_unwrap(keys))


random_bits_p.lowering = drawing(_bits)


def random_wrap(data: Any, *, impl: PRNGImpl) -> Any:
    """Keys over their data.

    Raises:
      TypeError: if the data does not fit the generator.
    """
    if not is_valid_value(data):
        raise TypeError(
            "JAX encountered invalid PRNG key data: expected an array of uint32, got "
            f"{type(data).__name__} {data!r}."
        )
    aval, rank = get_aval(data), len(impl.key_shape)
    if aval.ndim < rank or aval.shape[aval.ndim - rank :] != impl.key_shape:
        raise TypeError(
            f"JAX encountered invalid PRNG key data: expected a shape that ends with "
            f"{impl.key_shape}, that of a key of {impl.name}; got shape={aval.shape}"
        )
    if aval.dtype != _UINT32:
        raise TypeError(
            "JAX encountered invalid PRNG key data: expected key_data.dtype = uint32; "
            f"got dtype={aval.dtype}"
        )
    return random_wrap_p.bind(data, impl=impl)


random_wrap_p = key_primitive("random_wrap")
random_wrap_p.lowering = Relabel()
of_each(random_wrap_p)


@random_wrap_p.def_abstract_eval
def _wrap_type(data: Any, *, impl: PRNGImpl) -> ShapedArray:
    return _keys_aval(impl, data.shape[: data.ndim - len(impl.key_shape)])


def random_unwrap(keys: Any) -> Any:
    """The data of keys.

    Raises:
      TypeError: if they are no typed keys.
    """
    if not is_key(keys):
        raise TypeError(
            f"random_unwrap takes key array operand, got keys.dtype={dtypes.dtype(keys)}"
        )
    return random_unwrap_p.bind(keys)


random_unwrap_p = key_primitive("random_unwrap")
random_unwrap_p.lowering = Relabel()
random_unwrap_p.def_abstract_eval(physical_aval)
of_each(random_unwrap_p)

random_clone_p = key_primitive("random_clone")
random_clone_p.lowering = Relabel()
random_clone_p.def_abstract_eval(lambda keys: keys)
of_each(random_clone_p)


class _KeyArrays(type):
    def __instancecheck__(cls, x: Any) -> bool:
        return is_key(x)


class PRNGKeyArray(metaclass=_KeyArrays):
    """What `isinstance` asks of an array of typed keys; made by `amdjax.random.key`."""

    def __new__(cls, impl: PRNGImpl, key_data: Any) -> Any:
        return random_wrap(key_data, impl=impl)


def seed_with_impl(impl: PRNGImpl, seed: Any) -> Any:
    """A key of a generator."""
    return random_seed(seed, impl=impl)
