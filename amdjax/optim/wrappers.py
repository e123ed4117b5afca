"""Transformations around others: groups of parameters, several steps for one, bad gradients."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

import amdjax.numpy as jnp
from amdjax import lax
from amdjax.core import dtypes
from amdjax.core.array import Array
from amdjax.core.pytree import all_leaves, tree_leaves, tree_map
from amdjax.numpy._util import dtype_of, is_arraylike
from amdjax.optim.base import (
    GradientTransformation,
    Params,
    State,
    Updates,
    check_transformations,
    extra_args,
    masked,
    squared_norm,
    transformation,
    tree_of,
)
from amdjax.optim.moments import cast_like, count_of_updates, incremented, zeros_like
from amdjax.transforms.staging import eval_shape

__all__ = [
    "ApplyIfFiniteState", "InjectHyperparamsState", "MultiSteps", "MultiStepsState",
    "PartitionState", "apply_if_finite", "inject_hyperparams", "multi_transform", "partition",
    "skip_large_updates", "skip_not_finite",
]  # fmt: skip


class PartitionState(NamedTuple):
    """State of `partition`.

    Args:
      inner_states: the state of each transformation, by its label.
    """

    inner_states: Mapping[Hashable, State]


class ApplyIfFiniteState(NamedTuple):
    """State of `apply_if_finite`.

    Args:
      notfinite_count: how many gradients in a row were not finite, int32.
      last_finite: whether the last was.
      total_notfinite: how many were not in all, int32.
    """

    notfinite_count: Array
    last_finite: Array
    total_notfinite: Array
    inner_state: State


class MultiStepsState(NamedTuple):
    """State of `MultiSteps`.

    Args:
      mini_step: how many gradients were added since the last update, int32.
      gradient_step: number of updates, int32.
      inner_opt_state: that of the inner transformation.
      acc_grads: mean or sum of the gradients so far, a tree of the parameters' form.
      skip_state: what the function said that decides which gradients are left out.
    """

    mini_step: Array
    gradient_step: Array
    inner_opt_state: State
    acc_grads: Updates
    skip_state: Any = ()


class InjectHyperparamsState(NamedTuple):
    """State of what `inject_hyperparams` makes.

    Args:
      hyperparams: values by name, which may be replaced between updates.
    """

    count: Array  # type: ignore[assignment]  # hides tuple.count, as in optax
    hyperparams: dict[str, Array]
    inner_state: State


def partition(
    transforms: Mapping[Hashable, GradientTransformation],
    param_labels: Any | Callable[[Params], Any],
) -> GradientTransformation:
    """A transformation for each group of parameters.

    Args:
      transforms: transformations by label.
      param_labels: tree of labels, in the parameters' form or that of their upper part, or a
        function of the parameters that returns one.

    Raises:
      TypeError: what is in `transforms` is no transformation.
      ValueError: at its `init`, for a label without transformation.

        >>> groups = {"fast": optim.sgd(1.0), "slow": optim.sgd(0.1)}
        >>> optimizer = optim.partition(groups, {"a": "fast", "b": "slow"})
        >>> params = {"a": jnp.ones(1), "b": jnp.ones(1)}
        >>> optimizer.update(params, optimizer.init(params))[0]
        {'a': Array([-1.], dtype=float32), 'b': Array([-0.1], dtype=float32)}
    """
    if not isinstance(transforms, Mapping):
        raise TypeError(f"partition: transforms must be a mapping, got {transforms!r}.")
    check_transformations("partition", **{f"transforms[{k!r}]": t for k, t in transforms.items()})

    def groups(params: Params) -> dict[Hashable, GradientTransformation]:
        labels = tree_of(param_labels, params)
        if unknown := set(tree_leaves(labels)) - transforms.keys():
            raise ValueError(
                f"partition: transforms has no {sorted(map(str, unknown))}, which are labels of "
                f"parameters; it has {sorted(map(str, transforms))}."
            )
        of = lambda group: tree_map(lambda label: label == group, labels)
        return {group: masked(t, of(group)) for group, t in transforms.items()}

    def init(params: Params) -> PartitionState:
        return PartitionState({k: t.init(params) for k, t in groups(params).items()})

    def update(
        grads: Updates, state: PartitionState, params: Params = None, **given: Any
    ) -> tuple[Updates, PartitionState]:
        states = {}
        for k, t in groups(grads if params is None else params).items():
            more = extra_args(t, given)
            grads, states[k] = t.update(grads, state.inner_states[k], params, **more)
        return grads, PartitionState(states)

    return transformation(init, update, *transforms.values())


multi_transform = partition


def _not_finite(tree: Any) -> Array:
    """How many numbers are infinite or NaN."""
    counts = [jnp.sum(~jnp.isfinite(x), dtype=np.int32) for x in tree_leaves(tree)]
    return sum(counts, start=count_of_updates())


def apply_if_finite(
    inner: GradientTransformation, max_consecutive_errors: int
) -> GradientTransformation:
    """Leave parameters and state as they are where a gradient is infinite or NaN.

    Args:
      max_consecutive_errors: after how many such gradients in a row the next is applied all the
        same.

    Raises:
      TypeError: `inner` is no transformation.

        >>> optimizer = optim.apply_if_finite(optim.sgd(0.1), 3)
        >>> state = optimizer.init(jnp.ones(1))
        >>> optimizer.update(jnp.array([jnp.nan]), state)[0]
        Array([0.], dtype=float32)
    """
    check_transformations("apply_if_finite", inner=inner)

    def init(params: Params) -> ApplyIfFiniteState:
        zero = count_of_updates()
        return ApplyIfFiniteState(zero, jnp.ones((), bool), zero, inner.init(params))

    def update(
        grads: Updates, state: ApplyIfFiniteState, params: Params = None, **given: Any
    ) -> tuple[Updates, ApplyIfFiniteState]:
        finite = _not_finite(grads) == 0
        in_a_row = jnp.where(finite, 0, incremented(state.notfinite_count))
        total = jnp.where(finite, state.total_notfinite, incremented(state.total_notfinite))
        run = functools.partial(inner.update, **extra_args(inner, given))
        updates, inner_state = lax.cond(
            finite | (in_a_row > max_consecutive_errors),
            lambda: run(grads, state.inner_state, params),
            lambda: _unchanged(run, grads, state.inner_state, params),
        )
        return updates, ApplyIfFiniteState(in_a_row, finite, total, inner_state)

    return transformation(init, update, inner)


def _unchanged(run: Callable[..., Any], grads: Updates, state: State, params: Params) -> Any:
    """No update, in the dtypes of one, and the state as it was."""
    like, _ = eval_shape(run, grads, state, params)
    return tree_map(lambda x: jnp.zeros(x.shape, x.dtype), like), state


def skip_not_finite(
    updates: Updates, gradient_step: Any, params: Params
) -> tuple[Array, dict[str, Array]]:
    """For `MultiSteps`: leave out gradients that are infinite or NaN.

    Returns:
      Whether to leave them out, and a dictionary with that and how many numbers are not finite.

        >>> bool(optim.skip_not_finite({"w": jnp.array([1.0, jnp.inf])}, 0, None)[0])
        True
    """
    count = _not_finite(updates)
    return count > 0, {"should_skip": count > 0, "num_not_finite": count}


def skip_large_updates(
    updates: Updates, gradient_step: Any, params: Params, max_squared_norm: float
) -> tuple[Array, dict[str, Array]]:
    """For `MultiSteps`: leave out gradients that are too large, infinite or NaN.

    Args:
      max_squared_norm: bound of the squared norm; to be given by `functools.partial`.

    Returns:
      Whether to leave them out, and a dictionary with that and the squared norm.

        >>> bool(optim.skip_large_updates({"w": jnp.array([3.0, 4.0])}, 0, None, 24.0)[0])
        True
    """
    norm = squared_norm(updates)
    large = ~(norm < max_squared_norm)
    return large, {"should_skip": large, "norm_squared": norm}


class MultiSteps:
    """One update for several gradients, as for a batch too large to be had at once.

    Its `init` and `update` are those of a transformation; updates in between are zero and leave the
    state of the inner transformation alone.

    Args:
      opt: the transformation that gets the mean.
      every_k_schedule: how many gradients make an update, or a function of the number of updates.
      use_grad_mean: whether it gets the mean of them, or their sum.
      should_skip_update_fn: `should_skip(grads, gradient_step, params) -> (skip, info)`, which
        gradients to leave out, as `skip_not_finite`; None means none.
      accumulator_dtype: dtype in which gradients are added.

    Raises:
      TypeError: `opt` is no transformation.
      ValueError: `every_k_schedule` is no positive integer or function.

        >>> optimizer = optim.MultiSteps(optim.sgd(1.0), 2)
        >>> state = optimizer.init(jnp.ones(1))
        >>> first, state = optimizer.update(jnp.array([1.0]), state)
        >>> first, optimizer.update(jnp.array([3.0]), state)[0]
        (Array([0.], dtype=float32), Array([-2.], dtype=float32))
    """

    def __init__(
        self,
        opt: GradientTransformation,
        every_k_schedule: int | Callable[[Array], Any],
        use_grad_mean: bool = True,
        should_skip_update_fn: Callable[..., tuple[Array, Any]] | None = None,
        accumulator_dtype: Any = jnp.float32,
    ) -> None:
        check_transformations("MultiSteps", opt=opt)
        every = every_k_schedule
        if not callable(every) and not (isinstance(every, int) and every > 0):
            raise ValueError(
                f"MultiSteps: every_k_schedule must be a positive integer or a function, got "
                f"{every!r}."
            )
        self._opt, self._mean, self._dtype = opt, use_grad_mean, accumulator_dtype
        self._every = every if callable(every) else lambda step: every
        nothing = lambda *args: (jnp.zeros((), bool), ())
        self._should_skip = should_skip_update_fn or nothing

    @property
    def inner_opt(self) -> GradientTransformation:
        """The inner transformation."""
        return self._opt

    def init(self, params: Params) -> MultiStepsState:
        """The state at the start.

        Args:
          params: tree of arrays.

        Returns:
          A `MultiStepsState`.
        """
        zero = count_of_updates()
        _, info = self._should_skip(zeros_like(params), zero, params)
        sums = zeros_like(params, self._dtype)
        return MultiStepsState(zero, zero, self._opt.init(params), sums, info)

    def update(
        self, updates: Updates, state: MultiStepsState, params: Params = None, **given: Any
    ) -> tuple[Updates, MultiStepsState]:
        """Add a gradient, and make an update of all if it was the last of its kind.

        Args:
          updates: the gradients.
          state: from `init`, or the last `update`.
          params: the parameters.
          given: what the inner transformation takes by name.

        Returns:
          The updates, zero but for every k-th call, and the next state.
        """
        skip, info = self._should_skip(updates, state.gradient_step, params)
        add = lambda g, acc: acc + ((g - acc) / (state.mini_step + 1) if self._mean else g)
        sums = cast_like(tree_map(add, updates, state.acc_grads), state.acc_grads)
        run = functools.partial(self._opt.update, **extra_args(self._opt, given))
        last = state.mini_step >= self._every(state.gradient_step) - 1

        def wait(acc: Updates, step: Array) -> tuple[Updates, MultiStepsState]:
            none, inner = _unchanged(run, updates, state.inner_opt_state, params)
            return none, MultiStepsState(step, state.gradient_step, inner, acc, info)

        def emit() -> tuple[Updates, MultiStepsState]:
            grads = tree_map(lambda a, g: a.astype(dtype_of(g)), sums, updates)
            final, inner = run(grads, state.inner_opt_state, params)
            inner = cast_like(inner, state.inner_opt_state)
            count = incremented(state.gradient_step)
            zero = tree_map(jnp.zeros_like, sums)
            return final, MultiStepsState(count_of_updates(), count, inner, zero, info)

        return lax.switch(
            jnp.where(skip, 0, jnp.where(last, 2, 1)),
            [
                lambda: wait(state.acc_grads, state.mini_step),
                lambda: wait(sums, incremented(state.mini_step)),
                emit,
            ],
        )

    def has_updated(self, state: MultiStepsState) -> Array:
        """Whether the last call made an update.

        Args:
          state: what `update` returned.

        Returns:
          A boolean scalar.
        """
        return (state.mini_step == 0) & (state.gradient_step > 0)

    def gradient_transformation(self) -> GradientTransformation:
        """Its `init` and `update`, for `chain` and the like.

        Returns:
          A `GradientTransformation`.
        """
        return transformation(self.init, self.update, self._opt)


def inject_hyperparams(
    inner_factory: Callable[..., GradientTransformation],
    static_args: str | Iterable[str] = (),
    hyperparam_dtype: Any = None,
) -> Callable[..., GradientTransformation]:
    """Keep the numbers an optimizer is made with in its state, where they can be read and changed.

    Args:
      inner_factory: what makes the optimizer, such as `adam`.
      static_args: names of its arguments that stay out of the state.
      hyperparam_dtype: dtype of the numbers; None means the widest of the parameters.

    Returns:
      A function with the arguments of `inner_factory`. Numbers among them, and what functions of
      the number of updates give, are in `state.hyperparams`.

    Raises:
      ValueError: `inner_factory` has no such argument.

        >>> optimizer = optim.inject_hyperparams(optim.sgd)(learning_rate=1.0)
        >>> state = optimizer.init(jnp.ones(1))
        >>> state.hyperparams["learning_rate"] = jnp.float32(0.5)
        >>> optimizer.update(jnp.array([4.0]), state, jnp.ones(1))[0]
        Array([-2.], dtype=float32)
    """
    signature = inspect.signature(inner_factory)
    names = {static_args} if isinstance(static_args, str) else set(static_args)
    if unknown := names - signature.parameters.keys():
        raise ValueError(
            f"inject_hyperparams: static_args names {sorted(unknown)}, which are no arguments of "
            f"{getattr(inner_factory, '__name__', inner_factory)}."
        )

    @functools.wraps(inner_factory)
    def make(*args: Any, **kwargs: Any) -> GradientTransformation:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        given = bound.arguments
        schedules: dict[str, Any] = {}
        numbers: dict[str, Any] = {}
        rest: dict[str, Any] = {}
        for name, value in given.items():
            if name in names or isinstance(value, bool):
                rest[name] = value
            elif callable(value) and all_leaves([value]) and not isinstance(value, type):
                schedules[name] = value
            else:
                (numbers if is_arraylike(value) else rest)[name] = value

        def values(count: Array, known: Mapping[str, Any], params: Params) -> dict[str, Array]:
            scheduled = {name: fn(count) for name, fn in schedules.items()}
            dtype = hyperparam_dtype or _widest(params)
            return {name: _as_float(v, dtype) for name, v in {**known, **scheduled}.items()}

        def init(params: Params) -> InjectHyperparamsState:
            count = count_of_updates()
            now = values(count, numbers, params)
            return InjectHyperparamsState(count, now, inner_factory(**rest, **now).init(params))

        def update(
            grads: Updates, state: InjectHyperparamsState, params: Params = None, **more: Any
        ) -> tuple[Updates, InjectHyperparamsState]:
            now = values(state.count, state.hyperparams, grads if params is None else params)
            inner = inner_factory(**rest, **now)
            more = extra_args(inner, more)
            grads, inner_state = inner.update(grads, state.inner_state, params, **more)
            return grads, InjectHyperparamsState(incremented(state.count), now, inner_state)

        return transformation(init, update)

    return make


def _widest(params: Params) -> Any:
    leaves = [dtype_of(x) for x in tree_leaves(params)]
    floating = [d for d in leaves if dtypes.issubdtype(d, np.floating)]
    return jnp.result_type(*floating) if floating else dtypes.default_float_dtype()


def _as_float(value: Any, dtype: Any) -> Array:
    """Numbers of Python in a dtype of parameters; arrays, and integers, as they are."""
    array = jnp.asarray(value)
    known = isinstance(value, Array) and not value.weak_type
    floating = dtypes.issubdtype(array.dtype, np.floating)
    return array.astype(dtype) if floating and not known else array
