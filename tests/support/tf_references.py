"""Convolutions and pooling by NumPy in float64, padded as TensorFlow does."""

import itertools
import math

import numpy as np


def margins(padding, shape, window, strides):
    """TensorFlow's padding: of an odd number, one more at the end."""
    if padding == "VALID":
        return [(0, 0)] * len(shape)
    if padding != "SAME":
        return list(padding)
    found = []
    for n, k, s in zip(shape, window, strides):
        total = max((math.ceil(n / s) - 1) * s + k - n, 0)
        found.append((total // 2, total - total // 2))
    return found


def windows(x, size, strides, dilation, padding, fill):
    """Windows of images with channels last, of shape (n, *space, *window, c)."""
    rank = len(size)
    reach = [(k - 1) * d + 1 for k, d in zip(size, dilation)]
    pads = margins(padding, x.shape[1:-1], reach, strides)
    x = np.pad(x.astype(np.float64), [(0, 0), *pads, (0, 0)], constant_values=fill)
    count = [(n - r) // s + 1 for n, r, s in zip(x.shape[1:-1], reach, strides)]
    found = np.empty((x.shape[0], *count, *size, x.shape[-1]))
    for at in itertools.product(*map(range, count)):
        part = tuple(slice(i * s, i * s + r, d) for i, s, r, d in zip(at, strides, reach, dilation))
        found[(slice(None), *at)] = x[(slice(None), *part)]
    assert found.ndim == 2 + 2 * rank
    return found


def conv(x, kernel, strides, dilation, padding):
    rank = kernel.ndim - 2
    parts = windows(x, kernel.shape[:rank], strides, dilation, padding, 0)
    groups = x.shape[-1] // kernel.shape[-2]
    made = []
    for inputs, weights in zip(np.split(parts, groups, -1), np.split(kernel, groups, -1)):
        made.append(np.tensordot(inputs, weights.astype(np.float64), rank + 1))
    return np.concatenate(made, -1)


def pool(op, x, size, strides, padding):
    fill = -np.inf if "Max" in op else np.nan
    parts = windows(x, size, strides, (1,) * len(size), padding, fill)
    axes = tuple(range(1 + len(size), 1 + 2 * len(size)))
    return parts.max(axes) if "Max" in op else np.nanmean(parts, axes)
