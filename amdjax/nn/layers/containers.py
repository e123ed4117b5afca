"""Layers made of others or of functions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import amdjax.numpy as jnp
from amdjax.core.array import Array
from amdjax.nn._arguments import check_callable
from amdjax.nn.module import Module, static
from amdjax.numpy._util import ArrayLike

__all__ = ["Flatten", "Lambda", "Sequential"]


class Flatten(Module):
    """All axes but the first as one.

    >>> nn.Flatten()(jnp.ones((2, 3, 4))).shape
    (2, 12)
    """

    def __call__(self, x: ArrayLike) -> Array:
        """Reshape `x` of shape `(n, ...)`; ValueError for a scalar."""
        x = jnp.asarray(x)
        if not x.ndim:
            raise ValueError("Flatten: x must have a first axis, that of examples, got a scalar.")
        return jnp.reshape(x, (x.shape[0], math.prod(x.shape[1:])))


class Lambda(Module):
    """A function of one array as a layer.

    Args:
      fn: the function; it belongs to the network's structure.

        >>> nn.Lambda(nn.relu)(jnp.array([-1.0, 1.0]))
        Array([0., 1.], dtype=float32)
    """

    fn: Callable[[Any], Any] = static()

    def __post_init__(self) -> None:
        check_callable("Lambda", fn=self.fn)

    def __call__(self, x: ArrayLike) -> Any:
        """`fn(x)`."""
        return self.fn(x)


class Sequential(Module):
    """Layers one after the other.

    Args:
      layers: modules, and functions of one array such as `nn.relu`.

    Raises:
      TypeError: a layer cannot be called.

        >>> k1, k2 = amdjax.random.split(amdjax.random.key(0))
        >>> mlp = nn.Sequential([nn.Dense(2, 8, key=k1), nn.relu, nn.Dense(8, 1, key=k2)])
        >>> mlp(jnp.ones((5, 2))).shape
        (5, 1)
    """

    layers: tuple[Any, ...]

    def __init__(self, layers: Iterable[Any]) -> None:
        if not isinstance(layers, Iterable):
            raise TypeError(f"Sequential: layers must be a list of layers, got {layers!r}.")
        layers = tuple(layers)
        for i, layer in enumerate(layers):
            if not callable(layer):
                raise TypeError(f"Sequential: layers[{i}] is not callable: {layer!r}.")
        self.layers = tuple(x if isinstance(x, Module) else Lambda(x) for x in layers)

    def __call__(self, x: Any) -> Any:
        """The last layer's result; of layers that return `(y, state)`, `y` is what goes on.

        Args:
          x: what the first layer takes.

        Returns:
          What the last layer makes of it.
        """
        for layer in self.layers:
            y = layer(x)
            x = y[0] if layer.returns_state else y
        return x

    def __getitem__(self, index: Any) -> Any:
        """A layer, or for a slice a network of some layers."""
        found = self.layers[index]
        return self.replace(layers=found) if isinstance(index, slice) else found

    def __len__(self) -> int:
        return len(self.layers)
