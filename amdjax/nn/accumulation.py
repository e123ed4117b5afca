"""Gradients of batches that are too large to be computed at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import amdjax.numpy as jnp
from amdjax import lax
from amdjax.core import dtypes
from amdjax.core.pytree import keystr, tree_flatten_with_path, tree_map
from amdjax.nn._arguments import is_integer
from amdjax.numpy._util import dtype_of
from amdjax.transforms.differentiate import value_and_grad
from amdjax.transforms.staging import eval_shape

__all__ = ["accumulate_gradients"]


def accumulate_gradients(
    loss_fn: Callable[[Any, Any, Any], tuple[Any, Any]], microbatches: int
) -> Callable[[Any, Any, Any], tuple[tuple[Any, Any], Any]]:
    """Value and gradient of a mean loss, a part of the batch after the other in one `scan`.

    It takes the memory of a part. The results are those of the whole batch, up to rounding, where
    the loss is a mean over examples and examples do not see each other.

    Args:
      loss_fn: `loss_fn(params, state, batch) -> (loss, state)`; what a part leaves as its state,
        such as running statistics and a key, the next one gets.
      microbatches: how many parts a batch is cut into.

    Returns:
      A function of the same arguments that returns `((loss, state), grads)`: means over the parts,
      and the state after the last. Gradients in 16 bits are summed in float32.

    Raises:
      ValueError: `microbatches` is no positive integer; when called, it does not divide the first
        axes of `batch`, or that holds no arrays.

        >>> loss = lambda w, state, x: (jnp.mean((x - w) ** 2), state)
        >>> run = nn.accumulate_gradients(loss, 2)
        >>> (value, _), grad = run(jnp.float32(1), None, jnp.array([1.0, 2.0, 3.0, 4.0]))
        >>> float(value), float(grad)
        (3.5, -3.0)
    """
    if not is_integer(microbatches) or microbatches < 1:
        raise ValueError(
            f"accumulate_gradients: microbatches must be a positive integer, got {microbatches!r}."
        )
    value_and_gradient = value_and_grad(loss_fn, has_aux=True)

    def accumulated(params: Any, state: Any, batch: Any) -> tuple[tuple[Any, Any], Any]:
        parts = _parts(batch, microbatches)
        first = tree_map(lambda x: x[0], parts)
        (loss, _), grads = eval_shape(value_and_gradient, params, state, first)
        zeros = tree_map(lambda x: jnp.zeros(x.shape, _sum_dtype(x)), (loss, grads))

        def body(carry: Any, part: Any) -> tuple[Any, None]:
            state, sums = carry
            (loss, state), grads = value_and_gradient(params, state, part)
            return (state, tree_map(lambda s, x: s + x.astype(s.dtype), sums, (loss, grads))), None

        (state, sums), _ = lax.scan(body, (state, zeros), parts)
        mean = lambda s, x: (s / microbatches).astype(x.dtype)
        loss, grads = tree_map(mean, sums, (loss, grads))
        return (loss, state), grads

    return accumulated


def _parts(batch: Any, count: int) -> Any:
    """A batch with a leading axis of parts."""
    leaves = tree_flatten_with_path(batch)[0]
    if not leaves:
        raise ValueError(f"accumulate_gradients: batch must hold arrays, got {batch!r}.")
    for path, x in leaves:
        shape = np.shape(x)
        if not shape or shape[0] % count:
            raise ValueError(
                f"accumulate_gradients: microbatches must divide the first axis of batch"
                f"{keystr(path)}, of shape {shape}, got {count}."
            )
    return tree_map(lambda x: jnp.reshape(x, (count, x.shape[0] // count, *x.shape[1:])), batch)


def _sum_dtype(x: Any) -> Any:
    dtype = dtype_of(x)
    return jnp.promote_types(dtype, jnp.float32) if dtypes.finfo(dtype).bits < 32 else dtype
