"""Convolutions and the gradients of their kernels by definition, in NumPy."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np


class Seen(NamedTuple):
    """What a tap of a group's kernel sees.

    Args:
      features: of the result, those of the group.
      tap: the place in the kernel.
      elements: of the input: images, features of the group, positions.
    """

    features: slice
    tap: tuple[int, ...]
    elements: np.ndarray


def positions(
    x: np.ndarray, w: np.ndarray, strides: Sequence[int], padding: Sequence[tuple[int, int]],
    dilation: Sequence[int], window_dilation: Sequence[int],
) -> list[int]:  # fmt: skip
    """How many positions there are along each spatial axis."""
    return [
        max((max((n - 1) * spread + 1, 0) + lo + hi - (taps - 1) * apart - 1) // step + 1, 0)
        for n, taps, step, (lo, hi), spread, apart in zip(
            x.shape[2:], w.shape[2:], strides, padding, dilation, window_dilation, strict=True
        )
    ]


def _seen(
    x: np.ndarray, w: np.ndarray, strides: Sequence[int], padding: Sequence[tuple[int, int]],
    dilation: Sequence[int], window_dilation: Sequence[int], groups: int, batch_groups: int,
) -> Iterator[Seen]:  # fmt: skip
    size = positions(x, w, strides, padding, dilation, window_dilation)
    for d, (lo, hi) in enumerate(padding):
        n, axis = x.shape[2 + d], 2 + d
        spread = np.zeros(
            (*x.shape[:axis], max((n - 1) * dilation[d] + 1, 0), *x.shape[axis + 1 :]), x.dtype
        )
        if n:
            spread[(slice(None),) * axis + (slice(None, None, dilation[d]),)] = x
        width = [(0, 0)] * x.ndim
        width[axis] = (max(lo, 0), max(hi, 0))
        x = np.pad(spread, width)
        start, stop = max(-lo, 0), x.shape[axis] - max(-hi, 0)
        x = x[(slice(None),) * axis + (slice(start, max(stop, start)),)]
    if not math.prod(size):
        return
    images, features = x.shape[0] // batch_groups, w.shape[0] // (groups * batch_groups)
    for g in range(groups * batch_groups):
        part = (
            x[:, g * w.shape[1] : (g + 1) * w.shape[1]]
            if batch_groups == 1
            else x[g * images : (g + 1) * images]
        )
        for tap in np.ndindex(*w.shape[2:]):
            window = tuple(
                slice(
                    t * window_dilation[d],
                    t * window_dilation[d] + (size[d] - 1) * strides[d] + 1,
                    strides[d],
                )
                for d, t in enumerate(tap)
            )
            seen = part[(slice(None), slice(None), *window)]
            yield Seen(slice(g * features, (g + 1) * features), tap, seen)


def plain_conv(
    x: np.ndarray, w: np.ndarray, strides: Sequence[int], padding: Sequence[tuple[int, int]],
    dilation: Sequence[int], window_dilation: Sequence[int], groups: int, batch_groups: int,
) -> np.ndarray:  # fmt: skip
    """A convolution; axes are batch, feature, spatial…, of kernels output feature in front."""
    options = strides, padding, dilation, window_dilation
    size = positions(x, w, *options)
    out = np.zeros((len(x) // batch_groups, len(w), *size), np.result_type(x, w))
    for features, tap, seen in _seen(x, w, *options, groups, batch_groups):
        kernel = w[(features, slice(None), *tap)]
        out[:, features] += np.einsum("nc...,oc->no...", seen, kernel)
    return out


def plain_kernel_gradient(
    x: np.ndarray, w: np.ndarray, ct: np.ndarray, strides: Sequence[int],
    padding: Sequence[tuple[int, int]], dilation: Sequence[int], window_dilation: Sequence[int],
    groups: int, batch_groups: int,
) -> np.ndarray:  # fmt: skip
    """The gradient of the sum of `ct * plain_conv(x, w, …)` by `w`."""
    out = np.zeros(w.shape, np.result_type(x, ct))
    options = strides, padding, dilation, window_dilation, groups, batch_groups
    for features, tap, seen in _seen(x, w, *options):
        axes = "xyz"[: len(tap)]
        sums = np.einsum(f"nc{axes},no{axes}->oc", seen, ct[:, features])
        out[(features, slice(None), *tap)] = sums
    return out
