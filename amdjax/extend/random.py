"""What generators are made of, for libraries that bring their own."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from amdjax.core.boundaries import public_surface as _public_surface
from amdjax.lax import threefry2x32_p
from amdjax.random._generators import threefry_2x32
from amdjax.random._keys import PRNGSpec, resolve_prng_impl
from amdjax.random._prng import PRNGImpl, prngs, random_seed as _random_seed

__all__ = [
    "define_prng_impl", "random_seed", "rbg_prng_impl", "seed_with_impl", "threefry2x32_p",
    "threefry_2x32", "threefry_prng_impl", "unsafe_rbg_prng_impl",
]  # fmt: skip

threefry_prng_impl = prngs["threefry2x32"]
rbg_prng_impl = prngs["rbg"]
unsafe_rbg_prng_impl = prngs["unsafe_rbg"]


def define_prng_impl(
    *, key_shape: Sequence[int], seed: Callable[[Any], Any], split: Callable[[Any, Any], Any],
    random_bits: Callable[[Any, int, Any], Any], fold_in: Callable[[Any, Any], Any],
    name: str = "<unnamed>", tag: str = "?",
) -> Hashable:  # fmt: skip
    """A generator of one's own.

    Args:
      key_shape: the shape of the data of a key, which is uint32.
      seed: `seed(number) -> key`, from an integer scalar.
      split: `split(key, shape) -> keys`, of shape `(*shape, *key_shape)`.
      random_bits: `random_bits(key, bit_width, shape)`, unsigned integers.
      fold_in: `fold_in(key, number) -> key`, from a uint32 scalar.
      name: what it is called.
      tag: what the dtype of its keys shows, as in `key<tag>`.

    Returns:
      What `amdjax.random.key` takes as `impl`.

        >>> impl = threefry_prng_impl
        >>> own = define_prng_impl(key_shape=(2,), seed=impl.seed, split=impl.split,
        ...     random_bits=impl.random_bits, fold_in=impl.fold_in, name="own", tag="own")
        >>> amdjax.random.key(0, impl=own).dtype
        key<own>
    """
    return PRNGSpec(PRNGImpl(key_shape, seed, split, random_bits, fold_in, name, tag))


def seed_with_impl(impl: Any, seed: Any) -> Any:
    """A key of a generator.

    Args:
      impl: the generator.
      seed: an integer.

    Returns:
      A scalar key.

        >>> seed_with_impl("threefry2x32", 0).dtype
        key<fry>
    """
    return _random_seed(seed, resolve_prng_impl(impl))


def random_seed(seed: Any, impl: Any) -> Any:
    """Keys of a generator, one for each seed.

    Args:
      seed: an integer array.
      impl: the generator.

    Returns:
      An array of keys of the shape of `seed`.

        >>> random_seed(jnp.arange(3), "threefry2x32").shape
        (3,)
    """
    return _random_seed(seed, resolve_prng_impl(impl))


_public_surface(globals())
