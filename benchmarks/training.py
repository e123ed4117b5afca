"""Training steps: one functional step each, so that every call does the same work."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from .lib import JaxLike, Torch, leaves, map_leaves
from .workload import Prepared, Workload

# Builds (params, *batch) as NumPy arrays.
Model = Callable[[np.random.Generator, bool], tuple]


def cross_entropy(l: JaxLike, logits: Any, labels: Any) -> Any:
    """Mean negative log-likelihood of integer labels."""
    log_p = l.nn.log_softmax(logits, axis=-1)
    return -l.np.mean(l.np.take_along_axis(log_p, labels[..., None], axis=-1))


def sgd(params: Any, grads: Any) -> Any:
    return params - 0.1 * grads


def adam(l: JaxLike, params: Any, grads: Any, m: Any, v: Any) -> tuple:
    m = 0.9 * m + 0.1 * grads
    v = 0.999 * v + 0.001 * grads * grads
    return params - 1e-3 * m / (l.np.sqrt(v) + 1e-8), m, v


def _sgd_step(l: JaxLike, loss: Callable, params: Any, *batch: Any) -> tuple:
    value, grads = l.value_and_grad(partial(loss, l))(params, *batch)
    return value, l.tree.map(sgd, params, grads)


def _adam_step(l: JaxLike, loss: Callable, params: Any, m: Any, v: Any, *batch: Any) -> tuple:
    value, grads = l.value_and_grad(partial(loss, l))(params, *batch)
    flat, rebuild = l.tree.flatten(params)
    parts = zip(flat, *(l.tree.leaves(tree) for tree in (grads, m, v)), strict=True)
    updated = zip(*(adam(l, *part) for part in parts), strict=True)
    return value, *(l.tree.unflatten(rebuild, list(part)) for part in updated)


def _sgd_torch(t: Any, params: list, grads: list) -> tuple:
    return (t._foreach_sub(params, t._foreach_mul(grads, 0.1)),)


def _adam_torch(t: Any, params: list, grads: list, m: list, v: list) -> tuple:
    m = t._foreach_add(t._foreach_mul(m, 0.9), t._foreach_mul(grads, 0.1))
    squares = t._foreach_mul(t._foreach_mul(grads, grads), 0.001)
    v = t._foreach_add(t._foreach_mul(v, 0.999), squares)
    root = t._foreach_add(t._foreach_sqrt(v), 1e-8)
    return t._foreach_sub(params, t._foreach_mul(t._foreach_div(m, root), 1e-3)), m, v


def _moments(params: Any) -> tuple:
    """First and second moments; not zero, so that the update is well conditioned."""
    zeros = map_leaves(lambda p: np.zeros(p.shape, np.float32), params)
    return zeros, map_leaves(lambda p: np.full(p.shape, 1e-4, np.float32), params)


def _torch_kernel(lib: Torch, x: Any) -> Any:
    """HWIO to OIHW; everything else keeps its layout."""
    if x.ndim != 4:
        return x
    return x.permute(3, 2, 0, 1).contiguous(memory_format=lib.torch.channels_last)


def _jax_kernel(x: Any) -> Any:
    return x.permute(2, 3, 1, 0) if x.ndim == 4 else x


def _batch_to_torch(lib: Torch, x: Any) -> Any:
    return x.permute(0, 3, 1, 2) if x.ndim == 4 else x


def training_step(
    name: str,
    model: Model,
    loss: Callable,
    loss_torch: Callable,
    *,
    optimizer: str = "sgd",
    tolerance: float = 1e-3,
) -> Workload:
    """Loss, gradient and update of one batch.

    Args:
      name: the row's name.
      model: ``(rng, quick) -> (params, *batch)``.
      loss: ``(lib, params, *batch) -> scalar`` in JAX's names.
      loss_torch: ``(torch, params, *batch) -> scalar``.
      optimizer: "sgd" or "adam".
      tolerance: see `Workload`.
    """
    is_adam = optimizer == "adam"

    def prepare(lib: JaxLike) -> Prepared:
        params, *batch = model(np.random.default_rng(0), lib.quick)
        state = (params, *_moments(params)) if is_adam else (params,)
        args = lib.arrays((*state, *batch))
        step = lib.jit(partial(_adam_step if is_adam else _sgd_step, lib, loss))
        return Prepared(lambda: step(*args), lambda result: result[:2])

    def prepare_torch(lib: Torch) -> Prepared:
        params, *batch = model(np.random.default_rng(0), lib.quick)
        state = (params, *_moments(params)) if is_adam else (params,)
        state = map_leaves(partial(_torch_kernel, lib), lib.arrays(state))
        batch = [_batch_to_torch(lib, x) for x in lib.arrays(tuple(batch))]
        params = map_leaves(lambda p: p.requires_grad_(), state[0])
        flat = leaves(params)
        moments = [leaves(part) for part in state[1:]]
        forward = lib.compile(partial(loss_torch, lib.torch))
        update = lib.compile(partial(_adam_torch if is_adam else _sgd_torch, lib.torch))

        def step() -> tuple:
            value = forward(params, *batch)
            grads = lib.torch.autograd.grad(value, flat)
            with lib.torch.no_grad():
                return value, *update(flat, list(grads), *moments)

        return Prepared(step, lambda result: (result[0], [_jax_kernel(p) for p in result[1]]))

    return Workload(name, prepare, prepare_torch, tolerance)
