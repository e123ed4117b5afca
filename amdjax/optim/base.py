"""What an optimizer is, and how optimizers are put together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import amdjax.numpy as jnp
from amdjax.core.array import Array
from amdjax.core.boundaries import api_boundary
from amdjax.core.pytree import all_leaves, tree_leaves, tree_map
from amdjax.nn._arguments import widened
from amdjax.numpy._util import dtype_of, is_arraylike

__all__ = [
    "EmptyState", "GradientTransformation", "GradientTransformationExtraArgs", "apply_updates",
    "chain", "global_norm", "identity", "masked",
]  # fmt: skip

Params = Any
Updates = Any
State = Any


class EmptyState(NamedTuple):
    """State of what remembers nothing."""


class GradientTransformation(NamedTuple):
    """An optimizer, or a part of one.

    Args:
      init: `init(params) -> state`.
      update: `update(grads, state, params=None) -> (updates, state)`; all trees have the form of
        the parameters.
    """

    init: Callable[[Params], State]
    update: Callable[..., tuple[Updates, State]]


class GradientTransformationExtraArgs(GradientTransformation):
    """A transformation whose `update` takes more by name, as the value of the loss.

    `chain` and the wrappers of other transformations hand on to their parts what these take.

    Args:
      init: `init(params) -> state`.
      update: `update(grads, state, params=None, **extra_args) -> (updates, state)`.
    """


def transformation(
    init: Callable[[Params], State],
    update: Callable[..., tuple[Updates, State]],
    *parts: GradientTransformation,
) -> GradientTransformation:
    """A transformation whose tracebacks show the user's frames only.

    Where it is made of `parts`, its update takes further arguments if that of one of them does.
    """
    make: type[GradientTransformation] = GradientTransformation
    if any(isinstance(part, GradientTransformationExtraArgs) for part in parts):
        make = GradientTransformationExtraArgs
    return make(api_boundary(init), api_boundary(update))


def extra_args(part: GradientTransformation, given: dict[str, Any]) -> dict[str, Any]:
    """What to hand on to a part by name: nothing, where it takes nothing."""
    return given if isinstance(part, GradientTransformationExtraArgs) else {}


def check_transformations(name: str, **transformations: Any) -> None:
    """Raise TypeError naming the function and the argument that is no transformation."""
    for argument, value in transformations.items():
        if not isinstance(value, GradientTransformation):
            raise TypeError(f"{name}: {argument} must be a GradientTransformation, got {value!r}.")


def no_state(params: Params) -> EmptyState:
    """The `init` of what remembers nothing."""
    return EmptyState()


def check_params(name: str, params: Params) -> None:
    """Raise ValueError unless `update` was given parameters."""
    if params is None:
        raise ValueError(f"update: params must be given to {name}.")


def identity() -> GradientTransformation:
    """Gradients as they are.

    >>> optim.identity().update({"w": 1.0}, optim.EmptyState())
    ({'w': 1.0}, EmptyState())
    """
    return stateless(lambda grads, params: grads)


def check_number(name: str, argument: str, value: Any) -> None:
    """Raise TypeError naming the function and its argument unless `value` is a number or array."""
    if not is_arraylike(value):
        raise TypeError(f"{name}: {argument} must be a number, got {value!r}.")


def check_not_negative(name: str, **numbers: Any) -> None:
    """Raise an error for what is no number, and for one that is known and negative or NaN."""
    for argument, value in numbers.items():
        check_number(name, argument, value)
        if isinstance(value, (int, float, np.number)) and not value >= 0:
            raise ValueError(f"{name}: {argument} must not be negative, got {value!r}.")


def stateless(fn: Callable[[Updates, Params], Updates]) -> GradientTransformation:
    """`fn(grads, params) -> updates` as a transformation."""

    def update(grads: Updates, state: State, params: Params = None) -> tuple[Updates, State]:
        return fn(grads, params), state

    return transformation(no_state, update)


def chain(*transformations: GradientTransformation) -> GradientTransformation:
    """Transformations one after the other; the state is a tuple of their states.

    Args:
      transformations: in the order in which they see the gradients.

    Raises:
      TypeError: an argument is no transformation.

        >>> clipped = optim.chain(optim.clip_by_global_norm(1.0), optim.sgd(0.5))
        >>> params = jnp.array([3.0, 4.0])
        >>> clipped.update(params, clipped.init(params))[0]
        Array([-0.3, -0.4], dtype=float32)
    """
    for i, t in enumerate(transformations):
        if not isinstance(t, GradientTransformation):
            raise TypeError(f"chain: argument {i} must be a GradientTransformation, got {t!r}.")

    def init(params: Params) -> tuple[State, ...]:
        return tuple(t.init(params) for t in transformations)

    def update(
        grads: Updates, state: tuple[State, ...], params: Params = None, **given: Any
    ) -> tuple[Updates, tuple[State, ...]]:
        if len(state) != len(transformations):
            raise ValueError(
                f"chain: state must be a tuple of {len(transformations)} states as made by init, "
                f"got {len(state)}."
            )
        states = []
        for t, s in zip(transformations, state):
            grads, s = t.update(grads, s, params, **extra_args(t, given))
            states.append(s)
        return grads, tuple(states)

    return transformation(init, update, *transformations)


def masked(
    inner: GradientTransformation, mask: Any | Callable[[Params], Any]
) -> GradientTransformation:
    """Apply a transformation to some of the parameters; gradients of the others pass.

    Args:
      mask: tree of the parameters' form, or of the form of their upper part, with True for the
        parameters that take part; or a function of the parameters that returns one. A module is a
        tree, though it can be called.

        >>> half = optim.masked(optim.scale(0.5), {"a": True, "b": False})
        >>> grads = {"a": 1.0, "b": 1.0}
        >>> half.update(grads, half.init(grads))[0]
        {'a': 0.5, 'b': 1.0}
    """
    check_transformations("masked", inner=inner)

    def chosen(tree: Any, keep: Any) -> Any:
        return tree_map(lambda yes, x: x if yes else None, keep, tree)

    def init(params: Params) -> State:
        keep = tree_of(mask, params)
        for flag in tree_leaves(keep):
            if not is_arraylike(flag) or dtype_of(flag) != np.dtype(bool):
                raise TypeError(f"masked: mask must be a tree of bools, got {flag!r} in it.")
        return inner.init(chosen(params, keep))

    def update(
        grads: Updates, state: State, params: Params = None, **given: Any
    ) -> tuple[Updates, State]:
        keep = tree_of(mask, grads if params is None else params)
        kept = None if params is None else chosen(params, keep)
        given = extra_args(inner, given)
        new, state = inner.update(chosen(grads, keep), state, kept, **given)
        return tree_map(lambda yes, u, g: u if yes else g, keep, new, grads), state

    return transformation(init, update, inner)


def tree_of(tree: Any | Callable[[Params], Any], params: Params) -> Any:
    """A tree, or what a function makes of the parameters.

    Modules can be called as well; but they are containers, where a function is a leaf.
    """
    return tree(params) if callable(tree) and all_leaves([tree]) else tree


def apply_updates(params: Params, updates: Updates) -> Params:
    """Parameters plus updates, in the parameters' dtypes.

    Args:
      params: tree of arrays.
      updates: tree of the same form; None leaves a parameter as it is.

        >>> optim.apply_updates({"w": jnp.ones(2)}, {"w": jnp.array([0.5, -0.5])})
        {'w': Array([1.5, 0.5], dtype=float32)}
    """

    def add(param: Any, update: Any) -> Any:
        if param is None or update is None:
            return param
        return jnp.asarray(param + update).astype(jnp.asarray(param).dtype)

    return tree_map(add, params, updates, is_leaf=lambda x: x is None)


def global_norm(tree: Any) -> Array:
    """The Euclidean norm of all leaves together, at least in float32.

    Args:
      tree: tree of arrays.

        >>> optim.global_norm({"a": jnp.array([3.0]), "b": jnp.array([4.0])})
        Array(5., dtype=float32)
    """
    return jnp.sqrt(squared_norm(tree))


def squared_norm(tree: Any) -> Array:
    """The sum of all squares; float16 could hold neither that of 256 nor that of 0.0001."""
    squares = [jnp.sum(jnp.square(jnp.abs(widened(jnp.asarray(x))))) for x in tree_leaves(tree)]
    return sum(squares, start=jnp.zeros(()))
