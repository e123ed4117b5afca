"""Transformations of layers within `apply`: their state and keys pass in and out by themselves."""

from __future__ import annotations

import dataclasses
from typing import Any

from amdjax import lax
from amdjax.core.pytree import tree_leaves
from amdjax.nn import _random as random, _scope
from amdjax.nn._scope import is_training
from amdjax.nn.applying import apply, map_modules
from amdjax.nn.module import Module
from amdjax.nn.trees import partition
from amdjax.transforms import remat as remat_module

__all__ = ["remat", "scan_layers"]


def remat(layer: Any, *args: Any, policy: Any = None, **kwargs: Any) -> Any:
    """Call a layer; what it computes on the way is computed again for gradients, not kept.

    `amdjax.checkpoint` for layers: within `apply`, their state and keys are taken care of.

    Args:
      layer: a module.
      args: what it is called with, pytrees of arrays.
      policy: what may be kept nevertheless, as for `amdjax.checkpoint`.
      kwargs: what it is called with by name.

    Returns:
      What the layer returns.

    Raises:
      TypeError: `layer` is no module.

        >>> layer = nn.Dense(2, 3, key=amdjax.random.key(0))
        >>> nn.remat(layer, jnp.ones((4, 2))).shape
        (4, 3)
    """
    _check_module("remat", layer)

    def run(layer: Any, key: Any, args: Any, kwargs: Any) -> Any:
        y, after = apply(layer, *args, key=key, **kwargs)
        return y, _state(after)

    key = _scope.key_if_any(layer)
    y, after = remat_module.checkpoint(run, policy=policy)(layer, key, args, kwargs)
    _record_state(layer, after)
    return y


def scan_layers(layers: Any, x: Any, *args: Any, unroll: int = 1) -> Any:
    """Call layers of one form one after the other; their program is compiled once.

    Args:
      layers: a module with the parameters and state of all layers, which have a leading axis, as
        `amdjax.vmap` of a function that makes a layer returns it.
      x: what the first layer takes; each gives the next one something of the same form.
      args: what all layers take besides.
      unroll: how many layers are a step of the loop.

    Returns:
      What the last layer returns.

    Raises:
      TypeError: `layers` is no module.
      ValueError: it has no arrays, or their leading axes differ.

        >>> make = lambda key: nn.Dense(3, 3, key=key)
        >>> layers = amdjax.vmap(make)(amdjax.random.split(amdjax.random.key(0), 12))
        >>> nn.scan_layers(layers, jnp.ones((2, 3))).shape
        (2, 3)
    """
    _check_module("scan_layers", layers)
    sizes = {x.shape[0] if getattr(x, "shape", ()) else None for x in tree_leaves(layers)}
    if len(sizes) != 1 or None in sizes:
        raise ValueError(
            f"scan_layers: layers must hold arrays with a leading axis of one size, got {layers!r}."
        )
    count = sizes.pop()
    key = _scope.key_if_any(layers)
    keys = None if key is None else random.split(key, count)

    def body(x: Any, layer_and_key: tuple[Any, Any]) -> tuple[Any, Any]:
        layer, key = layer_and_key
        y, after = apply(layer, x, *args, key=key)
        return y, _state(after)

    y, after = lax.scan(body, x, (layers, keys), length=count, unroll=unroll)
    _record_state(layers, after)
    return y


def _check_module(name: str, layer: Any) -> None:
    if not isinstance(layer, Module):
        raise TypeError(f"{name}: the layer must be a module, got {layer!r}.")


def _state(layer: Any) -> Any:
    """What may have changed in training: parameters would be written anew for nothing."""
    return partition(layer)[1] if is_training() else None


def _record_state(layer: Any, after: Any) -> None:
    """Record what the modules of a layer are after a call in training, in the enclosing `apply`."""
    if after is None:
        return

    def record(_: Any, module: Any, after: Any) -> None:
        state = {
            field.name: getattr(after, field.name)
            for field in dataclasses.fields(module)
            if field.metadata.get("state") and tree_leaves(getattr(module, field.name))
        }
        if state:
            module.record(**state)

    map_modules(record, layer, layer, after)
