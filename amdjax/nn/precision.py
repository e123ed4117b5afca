"""Mixed precision: dtypes to keep, compute and return in, and the scaling of losses."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

import amdjax.numpy as jnp
from amdjax.core import dtypes
from amdjax.core.array import Array
from amdjax.core.pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten
from amdjax.nn._arguments import check_integer, check_number
from amdjax.nn.module import Module, in_state, state, static
from amdjax.numpy._util import ArrayLike, as_array, dtype_of

__all__ = ["DynamicLossScale", "Policy", "all_finite"]

T = TypeVar("T")


def _is_floating(x: Any) -> bool:
    """Whether something is an array of floats; Python's numbers adapt to arrays by themselves."""
    return hasattr(x, "dtype") and dtypes.issubdtype(dtype_of(x), np.floating)


@dataclasses.dataclass(frozen=True)
class Policy:
    """In which dtypes a network keeps its parameters, computes and returns.

    As in Micikevicius et al. (2018). Only real floating-point arrays are cast; `state` fields, such
    as running statistics, stay as they are.

    Args:
      param_dtype: of parameters, which an optimizer changes.
      compute_dtype: of parameters and arguments within a call.
      output_dtype: of results.

        >>> policy = nn.Policy(compute_dtype=jnp.bfloat16)
        >>> layer = nn.Dense(2, 3, key=amdjax.random.key(0))
        >>> y, _ = nn.apply(layer, jnp.ones((4, 2)), policy=policy)
        >>> y.dtype, policy.cast_to_compute(layer)
        (dtype('float32'), Dense(kernel=bfloat16[2,3], bias=bfloat16[3]))
    """

    param_dtype: Any = np.float32
    compute_dtype: Any = np.float32
    output_dtype: Any = np.float32

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            dtype = np.dtype(getattr(self, field.name))
            if not dtypes.issubdtype(dtype, np.floating):
                raise TypeError(f"Policy: {field.name} must be a floating dtype, got {dtype}.")
            object.__setattr__(self, field.name, dtype)

    def cast_to_param(self, tree: T) -> T:
        """A tree with floats in `param_dtype`.

        Args:
          tree: a network, or another pytree.

        Returns:
          A tree of the same form.
        """
        return _cast(tree, self.param_dtype)

    def cast_to_compute(self, tree: T) -> T:
        """As `cast_to_param`, in `compute_dtype`."""
        return _cast(tree, self.compute_dtype)

    def cast_to_output(self, tree: T) -> T:
        """As `cast_to_param`, in `output_dtype`."""
        return _cast(tree, self.output_dtype)


def _cast(tree: T, dtype: Any) -> T:
    leaves, structure = tree_flatten(tree)
    of_state = in_state(tree)
    cast = [
        jnp.asarray(x, dtype) if _is_floating(x) and not kept else x
        for x, kept in zip(leaves, of_state)
    ]
    return tree_unflatten(structure, cast)


def all_finite(tree: Any) -> Array:
    """Whether no number of a tree is infinite or NaN.

    Args:
      tree: a pytree of arrays, such as gradients.

    Returns:
      A bool array of rank 0.

    Raises:
      TypeError: a leaf is neither an array nor a number.

        >>> nn.all_finite({"a": jnp.ones(3), "b": jnp.array([1.0, jnp.inf])})
        Array(False, dtype=bool)
    """
    finite = jnp.asarray(True)
    for leaf in tree_leaves(tree):
        x = as_array("all_finite", leaf)
        if dtypes.issubdtype(x.dtype, np.inexact):
            finite = finite & jnp.all(jnp.isfinite(x))
    return finite


class DynamicLossScale(Module):
    """A factor of the loss that keeps 16-bit gradients from vanishing (Micikevicius et al., 2018).

    It grows after `period` steps with finite gradients and shrinks after each with others, whose
    update is to be left out.

    Args:
      value: the factor at the start.
      period: after how many finite steps it grows.
      factor: by how much it grows and shrinks.
      minimum: below which it does not shrink.

    Raises:
      ValueError: a number is too small.

        >>> scale = nn.DynamicLossScale(8.0)
        >>> scaled = amdjax.grad(lambda x: scale.scale(x**2))(3.0)
        >>> grads = scale.unscale(scaled)
        >>> scale = scale.adjust(nn.all_finite(grads))
        >>> float(scaled), float(grads), float(scale.value)
        (48.0, 6.0, 8.0)
    """

    value: Array = state()
    finite_steps: Array = state()
    period: int = static()
    factor: float = static()
    minimum: float = static()

    def __init__(
        self, value: float = 2.0**15, *, period: int = 2000, factor: float = 2.0,
        minimum: float = 1.0,
    ) -> None:  # fmt: skip
        for argument, number in {"value": value, "factor": factor, "minimum": minimum}.items():
            check_number("DynamicLossScale", argument, number)
        check_integer("DynamicLossScale", "period", period)
        if not (value > 0 and minimum > 0 and factor > 1 and period >= 1):
            raise ValueError(
                "DynamicLossScale: value and minimum must be positive, factor above 1 and period "
                f"at least 1, got {value=}, {minimum=}, {factor=}, {period=}."
            )
        self.value, self.finite_steps = jnp.float32(value), jnp.int32(0)
        self.period, self.factor, self.minimum = period, factor, minimum

    def scale(self, tree: T) -> T:
        """The real and complex floats of a tree times the factor.

        Args:
          tree: mostly a loss.

        Returns:
          A tree of the same form and dtypes.
        """
        return self._times(tree, lambda x: x * self.value)

    def unscale(self, tree: T) -> T:
        """The real and complex floats of a tree divided by the factor.

        Args:
          tree: mostly gradients, of parameters in 32 bits.

        Returns:
          A tree of the same form and dtypes.
        """
        return self._times(tree, lambda x: x / self.value)

    def _times(self, tree: T, f: Callable[[Any], Any]) -> T:
        def of_float(x: Any) -> Any:
            if isinstance(x, (float, complex)) and not hasattr(x, "dtype"):
                return f(x)
            if not hasattr(x, "dtype") or not dtypes.issubdtype(dtype_of(x), np.inexact):
                return x
            # In the factor's float32: 16-bit floats may not hold the factor.
            return f(x).astype(dtype_of(x))

        return tree_map(of_float, tree)

    def adjust(self, grads_finite: ArrayLike) -> DynamicLossScale:
        """The scale of the next step.

        Args:
          grads_finite: whether this step's gradients were finite, as `all_finite` says.

        Returns:
          A scale, grown, shrunk or as it is.
        """
        grown = self.value * self.factor
        due = (self.finite_steps >= self.period - 1) & jnp.isfinite(grown)
        finite = jnp.where(due, grown, self.value)
        shrunk = jnp.maximum(self.value / self.factor, self.minimum)
        steps = jnp.where(
            jnp.asarray(grads_finite), (self.finite_steps + 1) % self.period, jnp.int32(0)
        )
        return self.replace(
            value=jnp.where(jnp.asarray(grads_finite), finite, shrunk).astype(jnp.float32),
            finite_steps=steps,
        )
