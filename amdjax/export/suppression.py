"""Boxes by falling score, without those that overlap one before: known ones, and in a program."""

from __future__ import annotations

from typing import Any

import numpy as np

from amdjax import enable_x64, lax, numpy as jnp
from amdjax.core.dims import min_dim

__all__ = ["kept_boxes", "selected_boxes", "softly_selected_boxes"]


def kept_boxes(
    low: np.ndarray, high: np.ndarray, scores: np.ndarray, most: int, overlap: float,
    least: float | None = None,
) -> list[int]:  # fmt: skip
    """Which boxes are kept, as many as there are.

    Args:
      low, high: corners of boxes, `(boxes, 2)`.
      scores: one for each, `(boxes,)`; of equal ones the first comes first.
      most: how many are kept at most.
      overlap: boxes share not more of their union with one that is kept before.
      least: boxes have a higher score than this.
    """
    order = np.argsort(-scores, kind="stable")
    order = order if least is None else order[scores[order] > least]
    area = (high - low).prod(-1)
    kept: list[int] = []
    for i in order:
        if len(kept) >= most:
            break
        common = np.maximum(
            np.minimum(high[kept], high[i]) - np.maximum(low[kept], low[i]), 0
        ).prod(-1)
        union = area[kept] + area[i] - common
        if not ((common > overlap * union) & (union > 0)).any():
            kept.append(int(i))
    return kept


def selected_boxes(
    low: Any, high: Any, scores: Any, most: Any, overlap: Any, least: Any = None
) -> Any:
    """The same in a program, of any number of sets of boxes at once.

    Areas are those of float64, as of boxes that are known, so that the same ones are kept.

    Args:
      low, high: corners of boxes, `(..., boxes, 2)`; leading axes are those of `scores`, or 1.
      scores: `(..., boxes)`.
      most, overlap, least: as in `kept_boxes`.

    Returns:
      Boxes `(..., min(most, boxes))`, of int32, with -1 behind those that are kept.
    """
    low, high, scores = (lax.stop_gradient(jnp.asarray(x)) for x in (low, high, scores))
    count = scores.shape[-1]
    rows = min_dim(most, count)
    kept = jnp.full((*scores.shape[:-1], rows), -1, np.int32)
    if kept.size == 0:
        return kept
    order = jnp.argsort(-scores, axis=-1, stable=True).astype(np.int32)
    there = jnp.ones(order.shape, bool)
    if least is not None:
        there = jnp.take_along_axis(scores, order, -1) > least
    with enable_x64(True):
        corners = [
            jnp.take_along_axis(
                jnp.broadcast_to(x, (*order.shape, 2)), order[..., None], -2
            ).astype(np.float64)
            for x in (low, high)
        ]  # by falling score
        return _suppressed(corners, order, there, kept, overlap)


def softly_selected_boxes(
    low: Any, high: Any, scores: Any, most: Any, overlap: Any, least: Any, sigma: float
) -> tuple[Any, Any]:
    """Boxes by falling score, where those that overlap one before lose some of theirs.

    A score is multiplied by `exp(-o**2 / (2 sigma))` for each box that is selected before, with
    which it shares the part `o` of their union, and by 0 beyond `overlap` (Bodla et al., Soft-NMS,
    ICCV 2017; TensorFlow's `NonMaxSuppressionV5`).

    Args:
      low, high: corners of boxes, `(boxes, 2)`.
      scores: one for each, `(boxes,)`; of equal ones the first comes first.
      most, overlap, least: as in `kept_boxes`.
      sigma: how wide the bell is, above 0.

    Returns:
      Boxes `(min(most, boxes),)`, of int32, with -1 behind those that are selected; their scores as
      they were when selected, and 0.
    """
    low, high, scores = (lax.stop_gradient(jnp.asarray(x)) for x in (low, high, scores))
    rows = min_dim(most, scores.shape[0])
    kept, values = jnp.full((rows,), -1, np.int32), jnp.zeros((rows,), scores.dtype)
    if kept.size == 0:
        return kept, values
    limit = jnp.asarray(-np.inf if least is None else least).astype(np.float32)

    def more(state: Any) -> Any:
        step, left, there, *_ = state
        return (step < rows) & (there & (left > limit)).any()

    def keep(state: Any) -> Any:
        step, left, there, kept, values = state
        best = jnp.argmax(jnp.where(there & (left > limit), left, -np.inf)).astype(np.int32)
        kept, values = kept.at[step].set(best), values.at[step].set(left[best].astype(values.dtype))
        common, union, areas = _common(low, high, low[best], high[best])
        part = jnp.where(areas, common / jnp.where(areas, union, 1), 0)
        weight = jnp.where(part <= overlap, jnp.exp(part * part * np.float32(-0.5 / sigma)), 0)
        there = there & (jnp.arange(there.shape[0]) != best)
        return step + 1, left * weight.astype(np.float32), there, kept, values

    there = jnp.ones(scores.shape, bool)
    state = (np.int32(0), scores.astype(np.float32), there, kept, values)
    return lax.while_loop(more, keep, state)[3:]


def _common(low: Any, high: Any, other_low: Any, other_high: Any) -> tuple[Any, Any, Any]:
    """Areas that boxes share with another, those of their unions, and which have any."""
    inner = jnp.minimum(high, other_high) - jnp.maximum(low, other_low)
    common = jnp.maximum(inner, 0).prod(-1)
    area, other = (high - low).prod(-1), (other_high - other_low).prod(-1)
    return common, area + other - common, (area > 0) & (other > 0)


def _suppressed(corners: Any, order: Any, there: Any, kept: Any, overlap: Any) -> Any:
    low, high = corners
    area = (high - low).prod(-1)
    place = jnp.arange(order.shape[-1], dtype=np.int32)

    def more(state: Any) -> Any:
        step, there, _ = state
        return (step < kept.shape[-1]) & there.any()

    def keep(state: Any) -> Any:
        step, there, kept = state
        first = jnp.argmax(there, -1, keepdims=True).astype(np.int32)
        found = jnp.take_along_axis(there, first, -1)
        at = first[..., None]
        inner = jnp.minimum(high, jnp.take_along_axis(high, at, -2))
        inner = jnp.maximum(inner - jnp.maximum(low, jnp.take_along_axis(low, at, -2)), 0)
        common = inner.prod(-1)
        union = area + jnp.take_along_axis(area, first, -1) - common
        gone = ((common > overlap * union) & (union > 0)) | (place == first)
        box = jnp.where(found, jnp.take_along_axis(order, first, -1), -1)
        kept = lax.dynamic_update_slice_in_dim(kept, box, step, kept.ndim - 1)
        return step + 1, there & ~gone, kept

    return lax.while_loop(more, keep, (np.int32(0), there, kept))[2]
