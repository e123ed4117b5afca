"""Optimizers as triples of functions, with JAX's names.

An optimizer is `(init_fun, update_fun, get_params)`. `amdjax.optim` has more of them, in optax's
form; these are for programs that were written for `jax.example_libraries`.

    >>> from amdjax.example_libraries import optimizers
    >>> init, update, get_params = optimizers.sgd(0.5)
    >>> state = update(0, jnp.array([2.0]), init(jnp.array([3.0])))
    >>> get_params(state)
    Array([2.], dtype=float32)
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import amdjax.numpy as jnp
from amdjax.api_util import safe_map as safe_map, safe_zip as safe_zip, unzip2 as unzip2
from amdjax.core.array import Array
from amdjax.core.boundaries import public_surface as _public_surface
from amdjax.core.docs import Family as _Family, Phrases as _Phrases, complete as _complete
from amdjax.core.pytree import tree_flatten, tree_map, tree_unflatten
from amdjax.core.pytree_registry import register_pytree_node

map, zip = safe_map, safe_zip  # for those who import everything from here

Step = int
Schedule = Callable[[Any], Any]


class OptimizerState(NamedTuple):
    """What an optimizer keeps.

    Args:
      packed_state: the leaves of all states.
      tree_def: the tree of the parameters.
      subtree_defs: the tree of each state.
    """

    packed_state: Any
    tree_def: Any
    subtree_defs: Any


register_pytree_node(
    OptimizerState,
    lambda state: ((state.packed_state,), (state.tree_def, state.subtree_defs)),
    lambda trees, children: OptimizerState(children[0], *trees),
)


class Optimizer(NamedTuple):
    """The functions of an optimizer.

    Args:
      init_fn: the first state, of parameters.
      update_fn: the next state, of the step's number, gradients and a state.
      params_fn: the parameters in a state.
    """

    init_fn: Callable[[Any], Any]
    update_fn: Callable[[Any, Any, Any], Any]
    params_fn: Callable[[Any], Any]


def _packed(states: list[Any], tree: Any) -> OptimizerState:
    flat = [tree_flatten(state) for state in states]
    return OptimizerState(tuple(f[0] for f in flat), tree, tuple(f[1] for f in flat))


def _unpacked(state: OptimizerState) -> list[Any]:
    leaves, _, trees = state
    return [tree_unflatten(t, x) for t, x in zip(trees, leaves)]


def optimizer(opt_maker: Callable[..., Any]) -> Callable[..., Optimizer]:
    """Make an optimizer of single arrays one of pytrees.

    Args:
      opt_maker: a function that returns `(init, update, get_params)` for one array: `init(x)` is a
        state, `update(i, g, state)` the next one, `get_params(state)` the array.

    Returns:
      A function with the same arguments whose optimizer takes pytrees.

    Raises:
      TypeError: when its functions are called with a tree of another structure.

        >>> @optimizers.optimizer
        ... def descent(rate):
        ...     return (lambda x: x), (lambda i, g, x: x - rate * g), (lambda x: x)
        >>> init, update, params = descent(0.5)
        >>> params(update(0, {"w": 1.0}, init({"w": 3.0})))
        {'w': 2.5}
    """

    @functools.wraps(opt_maker)
    def make(*args: Any, **kwargs: Any) -> Optimizer:
        init, update, get_params = opt_maker(*args, **kwargs)

        @functools.wraps(init)
        def tree_init(params: Any) -> OptimizerState:
            leaves, tree = tree_flatten(params)
            return _packed([init(x) for x in leaves], tree)

        @functools.wraps(update)
        def tree_update(i: Any, grads: Any, state: OptimizerState) -> OptimizerState:
            leaves, tree = tree_flatten(grads)
            if tree != state.tree_def:
                raise TypeError(
                    "optimizer update function was passed a gradient tree that did not match the"
                    " parameter tree structure with which it was initialized: parameter tree"
                    f" {state.tree_def} and grad tree {tree}."
                )
            states = zip(leaves, _unpacked(state))
            new = _packed([update(i, g, s) for g, s in states], tree)
            for before, after in zip(state.subtree_defs, new.subtree_defs):
                if before != after:
                    raise TypeError(
                        "optimizer update function produced an output structure that did not"
                        f" match its input structure: input {before} and output {after}."
                    )
            return new

        @functools.wraps(get_params)
        def tree_params(state: OptimizerState) -> Any:
            return tree_unflatten(state.tree_def, [get_params(s) for s in _unpacked(state)])

        return Optimizer(tree_init, tree_update, tree_params)

    return make


def _first(state: Any) -> Any:
    return state[0]


@optimizer
def sgd(step_size: Any) -> Any:
    """Gradient descent."""
    rate = make_schedule(step_size)
    return lambda x: x, lambda i, g, x: x - rate(i) * g, lambda x: x


@optimizer
def momentum(step_size: Any, mass: float) -> Any:
    """Gradient descent with momentum.

    Args:
      mass: the share of the velocity that stays.
    """
    rate = make_schedule(step_size)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, velocity = state
        velocity = mass * velocity + g
        return x - rate(i) * velocity, velocity

    return lambda x: (x, jnp.zeros_like(x)), update, _first


@optimizer
def nesterov(step_size: Any, mass: float) -> Any:
    """Gradient descent with Nesterov's momentum.

    Args:
      mass: the share of the velocity that stays.
    """
    rate = make_schedule(step_size)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, velocity = state
        velocity = mass * velocity + g
        return x - rate(i) * (mass * velocity + g), velocity

    return lambda x: (x, jnp.zeros_like(x)), update, _first


@optimizer
def adagrad(step_size: Any, momentum: float = 0.9) -> Any:
    """Adagrad with momentum (Duchi and others, 2011).

    Args:
      momentum: the share of the mean that stays.
    """
    rate = make_schedule(step_size)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, squares, mean = state
        squares = squares + jnp.square(g)
        scaled = g * _inverse_root(squares)
        mean = (1.0 - momentum) * scaled + momentum * mean
        return x - rate(i) * mean, squares, mean

    return lambda x: (x, jnp.zeros_like(x), jnp.zeros_like(x)), update, _first


def _inverse_root(x: Array) -> Array:
    """`1 / √x`, zero at zero."""
    return jnp.where(x > 0, 1.0 / jnp.sqrt(x), 0.0)


@optimizer
def rmsprop(step_size: Any, gamma: float = 0.9, eps: float = 1e-8) -> Any:
    """RMSProp (Hinton, 2012).

    Args:
      gamma: the share of the mean square that stays.
      eps: added to the mean square.
    """
    rate = make_schedule(step_size)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, squares = state
        squares = squares * gamma + jnp.square(g) * (1.0 - gamma)
        return x - rate(i) * g / jnp.sqrt(squares + eps), squares

    return lambda x: (x, jnp.zeros_like(x)), update, _first


@optimizer
def rmsprop_momentum(
    step_size: Any, gamma: float = 0.9, eps: float = 1e-8, momentum: float = 0.9
) -> Any:
    """RMSProp with momentum.

    Args:
      gamma: the share of the mean square that stays.
      eps: added to the mean square.
      momentum: the share of the velocity that stays.
    """
    rate = make_schedule(step_size)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, squares, velocity = state
        squares = squares * gamma + jnp.square(g) * (1.0 - gamma)
        velocity = momentum * velocity + rate(i) * g / jnp.sqrt(squares + eps)
        return x - velocity, squares, velocity

    return lambda x: (x, jnp.zeros_like(x), jnp.zeros_like(x)), update, _first


def _missing(decay: float, i: Any, like: Array) -> Array:
    """What a running mean from zero lacks after `i + 1` steps."""
    return 1 - jnp.asarray(decay, like.dtype) ** (i + 1)


@optimizer
def adam(step_size: Any, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8) -> Any:
    """Adam (Kingma and Ba, 2014).

    Args:
      b2: the share of the mean square that stays.
      eps: added to the root of the mean square.
    """
    rate = make_schedule(step_size)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, mean, squares = state
        mean = (1 - b1) * g + b1 * mean
        squares = (1 - b2) * jnp.square(g) + b2 * squares
        m, v = mean / _missing(b1, i, mean), squares / _missing(b2, i, mean)
        return x - rate(i) * m / (jnp.sqrt(v) + eps), mean, squares

    return lambda x: (x, jnp.zeros_like(x), jnp.zeros_like(x)), update, _first


@optimizer
def adamax(step_size: Any, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8) -> Any:
    """Adam with the largest gradient in place of the mean square (Kingma and Ba, 2014).

    Args:
      b2: the share of the largest that stays.
      eps: added to the largest.
    """
    rate = make_schedule(step_size)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, mean, largest = state
        mean = (1 - b1) * g + b1 * mean
        largest = jnp.maximum(b2 * largest, jnp.abs(g))
        step = rate(i) / _missing(b1, i, mean) * mean / (largest + eps)
        return x - step, mean, largest

    return lambda x: (x, jnp.zeros_like(x), jnp.zeros_like(x)), update, _first


@optimizer
def sm3(step_size: Any, momentum: float = 0.9) -> Any:
    """SM3, which keeps one number for each row of each axis (Anil and others, 2019).

    Args:
      momentum: the share of the mean that stays.
    """
    rate = make_schedule(step_size)

    def init(x: Array) -> Any:
        rows = jnp.atleast_1d(x)
        covers = [jnp.zeros(n, rows.dtype) for n in rows.shape]
        return rows, jnp.zeros_like(rows), covers, x.shape

    def update(i: Any, g: Array, state: Any) -> Any:
        x, mean, covers, shape = state
        g = g.reshape(x.shape)
        along = [v.reshape([-1 if a == axis else 1 for a in range(x.ndim)])
                 for axis, v in enumerate(covers)]  # fmt: skip
        squares = functools.reduce(jnp.minimum, along) + jnp.square(g)
        mean = (1.0 - momentum) * (g * _inverse_root(squares)) + momentum * mean
        others = [tuple(a for a in range(x.ndim) if a != axis) for axis in range(x.ndim)]
        return x - rate(i) * mean, mean, [squares.max(axes) for axes in others], shape

    return init, update, lambda state: state[0].reshape(state[3])


def constant(step_size: Any) -> Schedule:
    """The same step always.

    >>> optimizers.constant(0.1)(5)
    0.1
    """
    return lambda i: step_size


def exponential_decay(step_size: Any, decay_steps: Any, decay_rate: Any) -> Schedule:
    """A step that is multiplied by `decay_rate` in `decay_steps` steps.

    >>> optimizers.exponential_decay(1.0, 10, 0.5)(20)
    0.25
    """
    return lambda i: step_size * decay_rate ** (i / decay_steps)


def inverse_time_decay(
    step_size: Any, decay_steps: Any, decay_rate: Any, staircase: bool = False
) -> Schedule:
    """A step that falls with one over the time; once in `decay_steps` if `staircase`.

    >>> optimizers.inverse_time_decay(1.0, 10, 1.0)(10)
    0.5
    """

    def schedule(i: Any) -> Any:
        if staircase:
            return step_size / (1 + decay_rate * jnp.floor(i / decay_steps))
        return step_size / (1 + decay_rate * i / decay_steps)

    return schedule


def polynomial_decay(
    step_size: Any, decay_steps: Any, final_step_size: Any, power: float = 1.0
) -> Schedule:
    """A step that falls to `final_step_size` in `decay_steps` steps as a power of what is left.

    >>> float(optimizers.polynomial_decay(1.0, 10, 0.0)(5))
    0.5
    """

    def schedule(i: Any) -> Any:
        left = (1 - jnp.minimum(i, decay_steps) / decay_steps) ** power
        return left * (step_size - final_step_size) + final_step_size

    return schedule


def piecewise_constant(boundaries: Any, values: Any) -> Schedule:
    """The value of the piece in which a step lies.

    Args:
      boundaries: the last step of each piece but the last.
      values: those of the pieces, one more.

    Returns:
      A function of the step's number.

    Raises:
      ValueError: the arguments are no sequences of such lengths.

        >>> float(optimizers.piecewise_constant([10], [1.0, 0.5])(20))
        0.5
    """
    boundaries, values = jnp.asarray(boundaries), jnp.asarray(values)
    if not boundaries.ndim == values.ndim == 1:
        raise ValueError("boundaries and values must be sequences")
    if boundaries.shape[0] != values.shape[0] - 1:
        raise ValueError("boundaries length must be one shorter than values length")
    return lambda i: values[jnp.sum(i > boundaries)]


def make_schedule(scalar_or_schedule: Any) -> Schedule:
    """A schedule, from one or from a number.

    Raises:
      TypeError: the argument is neither.

        >>> optimizers.make_schedule(0.1)(5)
        0.1
    """
    if callable(scalar_or_schedule):
        return scalar_or_schedule
    if jnp.ndim(scalar_or_schedule) == 0:
        return constant(scalar_or_schedule)
    raise TypeError(type(scalar_or_schedule))


def l2_norm(tree: Any) -> Array:
    """The root of the sum of all squares.

    Returns:
      A scalar.

        >>> optimizers.l2_norm([jnp.array([3.0]), jnp.array([4.0])])
        Array(5., dtype=float32)
    """
    return jnp.sqrt(sum(jnp.vdot(x, x) for x in tree_flatten(tree)[0]))


def clip_grads(grad_tree: Any, max_norm: Any) -> Any:
    """Gradients, made smaller where their norm is more than `max_norm`.

    Returns:
      A pytree like `grad_tree`.

        >>> optimizers.clip_grads([jnp.array([3.0, 4.0])], 1.0)
        [Array([0.6, 0.8], dtype=float32)]
    """
    norm = l2_norm(grad_tree)
    return tree_map(lambda g: jnp.where(norm < max_norm, g, g * (max_norm / norm)), grad_tree)


class JoinPoint:
    """Marks where the state of a parameter begins in an unpacked state.

    Args:
      subtree: the state, a pytree.
    """

    def __init__(self, subtree: Any) -> None:
        self.subtree = subtree

    def __iter__(self) -> Iterator[Any]:
        """The state, once: so that it can be unpacked."""
        yield self.subtree


def unpack_optimizer_state(opt_state: OptimizerState) -> Any:
    """The state as a tree like the parameters, with a `JoinPoint` for each; to be saved.

    Returns:
      A pytree of `JoinPoint`s.

        >>> init, _, _ = optimizers.momentum(0.1, 0.9)
        >>> tree = optimizers.unpack_optimizer_state(init({"w": 1.0}))
        >>> type(tree["w"]).__name__
        'JoinPoint'
    """
    return tree_unflatten(opt_state.tree_def, [JoinPoint(s) for s in _unpacked(opt_state)])


def pack_optimizer_state(marked_pytree: Any) -> OptimizerState:
    """The state from what `unpack_optimizer_state` returned.

    Returns:
      The state.

    Raises:
      TypeError: a leaf is no `JoinPoint`.

        >>> init, _, _ = optimizers.momentum(0.1, 0.9)
        >>> tree = optimizers.unpack_optimizer_state(init({"w": 1.0}))
        >>> state = optimizers.pack_optimizer_state(tree)
        >>> len(state.packed_state)
        1
    """
    points, tree = tree_flatten(marked_pytree)
    if not all(isinstance(p, JoinPoint) for p in points):
        raise TypeError("pack_optimizer_state: every leaf must be a JoinPoint")
    return _packed([p.subtree for p in points], tree)


_EXAMPLE = """
    Example:
      >>> from amdjax.example_libraries import optimizers
      >>> init, update, params = optimizers.NAME
      >>> state = update(0, jnp.ones(2), init(jnp.ones(2)))
      >>> bool((params(state) < 1).all())
      True
    """
_OPTIMIZERS = {
    "sgd": "0.1", "momentum": "0.1, 0.9", "nesterov": "0.1, 0.9", "adagrad": "0.1",
    "rmsprop": "0.1", "rmsprop_momentum": "0.1", "adam": "0.1", "adamax": "0.1", "sm3": "0.1",
}  # fmt: skip
for _name, _arguments in _OPTIMIZERS.items():
    if globals()[_name].__doc__:
        globals()[_name].__doc__ += "\n" + _EXAMPLE.replace("NAME", f"{_name}({_arguments})")
_FAMILIES = (
    _Family(" ".join(_OPTIMIZERS), "An `Optimizer`."),
    _Family(
        "constant exponential_decay inverse_time_decay make_schedule polynomial_decay",
        "A function of the step's number.",
    ),
)
_PHRASES = _Phrases(
    {
        "step_size": "a number, or a function of the step's number.",
        "b1": "the share of the mean that stays.",
        "decay_steps": "how many steps.",
        "decay_rate": "by how much.",
        "staircase": "whether it falls once in `decay_steps` only.",
        "final_step_size": "the last step.",
        "power": "of what is left.",
        "scalar_or_schedule": "a number, or a function of the step's number.",
        "tree": "a pytree of arrays.",
        "grad_tree": "a pytree of arrays.",
        "max_norm": "the norm that remains.",
        "opt_state": "a state.",
        "marked_pytree": "a tree of `JoinPoint`s.",
    }
)
_complete(globals(), _FAMILIES, _PHRASES)
_public_surface(globals())
