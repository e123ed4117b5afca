"""A generator with hidden state: a key, and a counter that each draw moves on."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from amdjax import numpy as jnp, random
from amdjax.core.aval import is_valid_value
from amdjax.core.boundaries import public_surface as _public_surface
from amdjax.core.context import Context, context
from amdjax.core.ref import is_ref
from amdjax.numpy import refs
from amdjax.random._prng import is_key
from amdjax.tree_util import register_dataclass

__all__ = ["StatefulPRNG", "stateful_rng"]

Size = int | Sequence[int] | None


def _shape(size: Size, *parameters: Any) -> tuple[int, ...]:
    if size is None:
        return np.broadcast_shapes(*map(np.shape, parameters))
    if isinstance(size, (int, np.number)):
        return (operator.index(size),)
    return tuple(map(operator.index, size))


@register_dataclass
@dataclasses.dataclass(frozen=True, slots=True)
class StatefulPRNG:
    """Draws random numbers, each call others; made by `stateful_rng`.

    The state is a reference, so that drawing inside transformed functions counts too. What holds
    for references holds for it: a function cannot return one, `vmap` needs one for each example
    (`split`).

    Args:
      _base_key: the key that all draws come from.
      _counter: reference to the number of draws so far.
    """

    _base_key: Any
    _counter: Any

    def __post_init__(self) -> None:
        # What is neither stands for a leaf while structures are built.
        if is_valid_value(self._base_key) and not is_key(self._base_key):
            raise ValueError(f"Expected base_key to be a typed PRNG key; got {self._base_key}")
        if is_valid_value(self._counter) and not is_ref(self._counter):
            raise ValueError(f"Expected counter to be a scalar integer ref; got {self._counter}")

    def key(self, shape: int | Sequence[int] = ()) -> Any:
        """A new key, or an array of them.

        Args:
          shape: of the array.

        Returns:
          Typed keys of the generator's kind.

        Raises:
          ValueError: of what `split` returns, outside `vmap`.

        Example:
          >>> from amdjax.experimental import random
          >>> rng = random.stateful_rng(0)
          >>> bool(rng.key() == rng.key())
          False
        """
        if self._base_key.shape:
            raise ValueError("cannot operate on split stateful generator: draw inside vmap.")
        key = random.fold_in(self._base_key, refs.get(self._counter))
        refs.addupdate(self._counter, ..., 1)
        shape = _shape(shape)
        return random.split(key, shape) if shape else key

    def random(self, size: Size = None, dtype: Any = float) -> Any:
        """Numbers uniform in [0, 1).

        Args:
          size: the shape of the result.
          dtype: a float dtype.

        Returns:
          An array of shape `size`.
        """
        return random.uniform(self.key(), _shape(size), dtype)

    def uniform(self, low: Any = 0, high: Any = 1, size: Size = None, *, dtype: Any = float) -> Any:
        """Numbers uniform in `[low, high)`.

        Args:
          low: the least value.
          high: the bound above.
          size: the shape of the result; that of the bounds by default.
          dtype: a float dtype.

        Returns:
          An array of shape `size`.
        """
        shape = _shape(size, low, high)
        return random.uniform(self.key(), shape, minval=low, maxval=high, dtype=dtype)

    def normal(self, loc: Any = 0, scale: Any = 1, size: Size = None, *, dtype: Any = float) -> Any:
        """Numbers of a normal distribution.

        Args:
          loc: the mean.
          scale: the standard deviation.
          size: the shape of the result; that of the parameters by default.
          dtype: a float dtype.

        Returns:
          An array of shape `size`.
        """
        drawn = random.normal(self.key(), _shape(size, loc, scale), dtype)
        return (jnp.asarray(loc) + jnp.asarray(scale) * drawn).astype(dtype)

    def integers(self, low: Any, high: Any = None, size: Size = None, *, dtype: Any = int) -> Any:
        """Integers uniform in `[low, high)`; in `[0, low)` if only one bound is given.

        Args:
          low: the least value.
          high: the bound above.
          size: the shape of the result; that of the bounds by default.
          dtype: an integer dtype.

        Returns:
          An integer array of shape `size`.
        """
        if high is None:
            low, high = 0, low
        shape = _shape(size, low, high)
        return random.randint(self.key(), shape, minval=low, maxval=high, dtype=dtype)

    def split(self, num: int | Sequence[int]) -> StatefulPRNG:
        """Independent generators along new axes, for `vmap`.

        Args:
          num: how many, or the shape of the array of them.

        Returns:
          Generators in one, with those axes.

        Example:
          >>> from amdjax.experimental import random
          >>> rng = random.stateful_rng(123)
          >>> amdjax.vmap(lambda rng, x: x + rng.uniform())(rng.split(3), np.zeros(3)).shape
          (3,)
        """
        return StatefulPRNG(self.key(num), refs.new_ref(jnp.zeros(num, int)))

    def spawn(self, n_children: int) -> list[StatefulPRNG]:
        """Independent generators.

        Args:
          n_children: how many.

        Returns:
          A list of them.
        """
        return [StatefulPRNG(key, refs.new_ref(0)) for key in self.key(n_children)]


def stateful_rng(seed: Any = None, *, impl: Any = None) -> StatefulPRNG:
    """A generator with hidden state.

    Args:
      seed: an integer; by default one from the operating system, outside transformed functions.
      impl: the kind of keys; see `amdjax.random.key`.

    Returns:
      The generator.

    Raises:
      TypeError: there is no seed inside a transformed function.

        >>> from amdjax.experimental import random
        >>> rng = random.stateful_rng(42)
        >>> bool(rng.uniform() == rng.uniform())
        False
    """
    if seed is None:
        if context.trace is not Context.base:
            raise TypeError(
                "When used within transformed code, amdjax.experimental.random.stateful_rng() "
                "requires an explicit seed to be set."
            )
        entropy = np.random.SeedSequence().entropy
        assert isinstance(entropy, int)
        seed = np.int64(entropy & np.iinfo(np.int64).max)
    return StatefulPRNG(random.key(seed, impl=impl), refs.new_ref(0))


_public_surface(globals())
