"""Connectionist temporal classification: losses of label sequences without known alignment."""

from __future__ import annotations

from typing import Any

import numpy as np

import amdjax.numpy as jnp
from amdjax import lax
from amdjax.core import dtypes
from amdjax.core.array import Array
from amdjax.core.boundaries import public_surface as _public_surface
from amdjax.core.composite import composite
from amdjax.nn._arguments import check_integer
from amdjax.nn.functions import log_softmax
from amdjax.nn.losses._reduction import REDUCTIONS, promote_reals
from amdjax.numpy._util import ArrayLike, as_array, convert
from amdjax.transforms import custom_jvp

__all__ = ["ctc_loss"]

# The logarithm of no probability at all: finite, so that differences and slopes of it are.
_NEVER = -1e30


def ctc_loss(
    logits: ArrayLike, lengths: ArrayLike, labels: ArrayLike, label_lengths: ArrayLike, *,
    blank: int = 0, time_major: bool = True, zero_infinity: bool = False, reduction: str = "mean",
) -> Array:  # fmt: skip
    """The negative log-likelihood of label sequences over all alignments (Graves et al., 2006).

    An alignment names a class at each time; without repetitions, then without blanks, it is the
    label sequence. Probabilities are added as logarithms, forwards in time for the loss, backwards
    for its gradient.

    Args:
      logits: of shape `(time, batch, classes)`; `(batch, time, classes)` unless `time_major`. They
        are normalized by `log_softmax`, which leaves log-probabilities as they are.
      lengths: how many times of each sequence count, integers of shape `(batch,)`.
      labels: class numbers, integers of shape `(batch, longest)`.
      label_lengths: how many labels of each sequence count, integers of shape `(batch,)`.
      blank: the class that stands for no label.
      time_major: whether time is the first axis rather than the second.
      zero_infinity: whether sequences that no alignment fits, as they are too short for their
        labels, cost 0. Otherwise they cost infinity; their gradient is 0 in either case.
      reduction: "mean" of the losses per label, "sum" or "none".

    Returns:
      A scalar, or the losses of shape `(batch,)` if `reduction` is "none"; NaN for sequences with
      a label that is no class or a length beyond the last time.

    Raises:
      TypeError: lengths or labels are no integers.
      ValueError: the shapes do not fit, `blank` is no class, or there is no such `reduction`.

        >>> logits = jnp.zeros((3, 1, 2))  # 1 of 8 alignments has no label, and 1 has it twice
        >>> nn.ctc_loss(logits, jnp.array([3]), jnp.array([[1]]), jnp.array([1]))
        Array(0.2876..., dtype=float32)
    """
    name = "ctc_loss"
    (x,) = promote_reals(name, logits)
    if x.ndim != 3:
        form = "(time, batch, classes)" if time_major else "(batch, time, classes)"
        raise ValueError(f"{name}: logits must have shape {form}, got {x.shape}.")
    if not time_major:
        x = jnp.swapaxes(x, 0, 1)
    batch, classes = x.shape[1:]
    labels = as_array(name, labels)
    if labels.ndim != 2 or labels.shape[0] != batch:
        raise ValueError(f"{name}: labels must have shape ({batch}, longest), got {labels.shape}.")
    check_integer(name, "blank", blank)
    if not 0 <= blank < classes:
        raise ValueError(f"{name}: blank must be one of {classes} classes, got {blank!r}.")
    if reduction not in REDUCTIONS:
        raise ValueError(f"{name}: reduction must be one of {REDUCTIONS}, got {reduction!r}.")
    lengths, label_lengths = as_array(name, lengths), as_array(name, label_lengths)
    integers = {"lengths": lengths, "labels": labels, "label_lengths": label_lengths}
    for argument, value in integers.items():
        if not dtypes.issubdtype(value.dtype, np.integer):
            raise TypeError(f"{name}: {argument} must be integers, got {value.dtype}.")
        if argument != "labels" and value.shape != (batch,):
            raise ValueError(f"{name}: {argument} must have shape ({batch},), got {value.shape}.")
    lengths, labels, counts = (convert(value, np.int32) for value in integers.values())
    return _ctc_loss(x, lengths, labels, counts, blank, bool(zero_infinity), reduction)


@composite(static_argnames=("blank", "zero_infinity", "reduction"))
def _ctc_loss(
    logits: Array, lengths: Array, labels: Array, label_lengths: Array, blank: int,
    zero_infinity: bool, reduction: str,
) -> Array:  # fmt: skip
    classes = logits.shape[2]
    counts = lax.broadcasted_iota(np.dtype(np.int32), labels.shape, 1) < label_lengths[:, None]
    # A negative number must not count from the end; too large ones give NaN when read.
    labels = jnp.where(counts, jnp.where(labels < 0, classes, labels), blank)
    wide = convert(logits, jnp.promote_types(logits.dtype, np.float32))
    losses = _likelihoods(wide, lengths, *_states(labels, blank), label_lengths)
    impossible = losses > -0.1 * _NEVER
    losses = jnp.where(impossible, 0.0 if zero_infinity else np.inf, losses)
    losses = jnp.where(lengths > logits.shape[0], np.nan, losses)
    losses = convert(losses, logits.dtype)
    if reduction == "mean":
        return jnp.mean(losses / jnp.maximum(label_lengths, 1))
    return jnp.sum(losses) if reduction == "sum" else losses


def _states(labels: Array, blank: int) -> tuple[Array, Array]:
    """Classes of the 2n + 1 states of an alignment, and which may follow the one before the last.

    States are the labels with blanks around them; a blank between two labels may be left out if
    they differ.
    """
    batch, n = labels.shape
    between = jnp.full((batch, n + 1), blank, labels.dtype)
    pairs = jnp.stack([between[:, :n], labels], 2).reshape(batch, 2 * n)
    states = jnp.concatenate([pairs, between[:, n:]], 1)
    is_label = lax.broadcasted_iota(np.dtype(np.int32), states.shape, 1) % 2 == 1
    return states, is_label & (states != _shifted(states, 2, blank))


def _shifted(x: Array, by: int, fill: Any) -> Array:
    """`x` moved along the last axis by some states."""
    edge = (by, -by, 0)
    return lax.pad(x, jnp.asarray(fill, x.dtype), ((0, 0, 0), edge))


def _logsumexp(*terms: Array) -> Array:
    largest = lax.stop_gradient(jnp.maximum(terms[0], jnp.maximum(*terms[1:])))
    return largest + jnp.log(sum(jnp.exp(t - largest) for t in terms))


def _forward(
    log_p: Array, lengths: Array, skips: Array, label_lengths: Array
) -> tuple[Array, Array]:
    """Minus the log-likelihoods, and those of all states at all times, `(time, batch, states)`."""
    start = jnp.full(skips.shape, _NEVER, log_p.dtype).at[:, 0].set(0)

    def step(before: Array, inputs: tuple[Array, Array]) -> tuple[Array, Array]:
        t, here = inputs
        skip = jnp.where(skips, _shifted(before, 2, _NEVER), _NEVER)
        now = here + _logsumexp(before, _shifted(before, 1, _NEVER), skip)
        now = jnp.where((t < lengths)[:, None], now, before)
        return now, now

    end, forward = lax.scan(step, start, (jnp.arange(log_p.shape[0]), log_p))
    last = jnp.where(_is_last(skips.shape, label_lengths), end, _NEVER)
    return -jnp.logaddexp.reduce(last, axis=1), forward


def _is_last(shape: tuple[int, ...], label_lengths: Array) -> Array:
    """Whether an alignment may end in a state: in the last label, or the blank behind it."""
    from_end = 2 * label_lengths[:, None] - lax.broadcasted_iota(np.dtype(np.int32), shape, 1)
    return (from_end == 0) | (from_end == 1)


def _occupancy(
    log_p: Array, forward: Array, losses: Array, lengths: Array, skips: Array, label_lengths: Array
) -> Array:
    """How probable each state is at each time, given the labels: `(time, batch, states)`."""
    end = jnp.where(_is_last(skips.shape, label_lengths), 0.0, _NEVER).astype(log_p.dtype)
    possible = losses < -0.1 * _NEVER
    skipped = jnp.flip(_shifted(jnp.flip(skips, 1), 2, False), 1)

    def back(x: Array, by: int) -> Array:
        return lax.pad(x, jnp.asarray(_NEVER, x.dtype), ((0, 0, 0), (-by, by, 0)))

    def step(after: Array, inputs: tuple[Array, ...]) -> tuple[Array, Array]:
        t, here, alpha = inputs
        counts = (t < lengths)[:, None]
        used = jnp.exp(jnp.minimum(alpha + after + losses[:, None], 0))
        used = jnp.where(counts & possible[:, None], used, 0)
        on = here + after
        skip = jnp.where(skipped, back(on, 2), _NEVER)
        return jnp.where(counts, _logsumexp(on, back(on, 1), skip), after), used

    times = jnp.arange(log_p.shape[0])
    return lax.scan(step, end, (times, log_p, forward), reverse=True)[1]


@custom_jvp
def _likelihoods(
    logits: Array, lengths: Array, states: Array, skips: Array, label_lengths: Array
) -> Array:
    log_p = jnp.take_along_axis(log_softmax(logits), states[None], 2)
    return _forward(log_p, lengths, skips, label_lengths)[0]


def _likelihoods_jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
    """The slope in a logit is its probability less that which the labels leave to its class."""
    logits, lengths, states, skips, label_lengths = primals
    log_softmaxes = log_softmax(logits)
    log_p = jnp.take_along_axis(log_softmaxes, states[None], 2)
    losses, forward = _forward(log_p, lengths, skips, label_lengths)
    used = _occupancy(log_p, forward, losses, lengths, skips, label_lengths)
    rows = lax.broadcasted_iota(np.dtype(np.int32), states.shape, 0)
    by_class = jnp.zeros_like(logits).at[:, rows, states].add(used)
    counts = jnp.arange(logits.shape[0])[:, None] < lengths
    counts &= losses < -0.1 * _NEVER
    slope = jnp.where(counts[..., None], jnp.exp(log_softmaxes) - by_class, 0)
    return losses, jnp.sum(slope * tangents[0], (0, 2))


_likelihoods.defjvp(_likelihoods_jvp)

_public_surface(globals())
