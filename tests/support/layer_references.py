"""Layers in plain NumPy loops, in float64."""

import itertools

import numpy as np


def pad_space(x, pads, value=0.0):
    """`x` of shape (n, *space, c) with its spatial axes padded."""
    return np.pad(x, [(0, 0), *pads, (0, 0)], constant_values=value)


def windows(x, size, strides, dilation):
    """Every window of (n, *space, c): its place in the result and its content."""
    reach = [(k - 1) * d + 1 for k, d in zip(size, dilation)]
    counts = [(n - r) // s + 1 for n, r, s in zip(x.shape[1:-1], reach, strides)]
    for place in itertools.product(*map(range, counts)):
        cut = tuple(
            slice(p * s, p * s + r, d) for p, s, r, d in zip(place, strides, reach, dilation)
        )
        yield place, x[(slice(None), *cut, slice(None))]


def conv(x, kernel, strides, pads, dilation, groups):
    x, kernel = pad_space(x.astype(np.float64), pads), kernel.astype(np.float64)
    features, inputs = kernel.shape[-1], kernel.shape[-2]
    per_group = features // groups
    out = {}
    for place, window in windows(x, kernel.shape[:-2], strides, dilation):
        pieces = [
            window[..., g * inputs : (g + 1) * inputs].reshape(len(x), -1)
            @ kernel[..., g * per_group : (g + 1) * per_group].reshape(-1, per_group)
            for g in range(groups)
        ]
        out[place] = np.concatenate(pieces, axis=1)
    return stack(out)


def pool(x, size, strides, pads, reduce, value):
    x = pad_space(x.astype(np.float64), pads, value)
    axes = tuple(range(1, x.ndim - 1))
    found = windows(x, size, strides, (1,) * len(size))
    return stack({place: reduce(window, axes) for place, window in found})


def stack(values):
    """A result (n, *counts, c) from its parts (n, c) by place."""
    counts = [max(place[i] for place in values) + 1 for i in range(len(next(iter(values))))]
    first = next(iter(values.values()))
    out = np.empty((first.shape[0], *counts, first.shape[1]))
    for place, value in values.items():
        out[(slice(None), *place, slice(None))] = value
    return out


def channels_first(x):
    return np.moveaxis(x, -1, 1)


def kernel_channels_first(kernel):
    return np.moveaxis(np.moveaxis(kernel, -1, 0), -1, 1)


def local_response(x, size, axes, alpha, beta, k):
    """Windows of `size` along `axes`, zeros beyond the edges; of even ones more lies before."""
    square = np.square(x.astype(np.float64))
    for axis in axes:
        pads = [(size // 2, (size - 1) // 2) if i == axis else (0, 0) for i in range(x.ndim)]
        padded = np.pad(square, pads)
        square = sum(np.take(padded, range(j, j + x.shape[axis]), axis=axis) for j in range(size))
    return x / (k + alpha * square / size ** len(axes)) ** beta


def windows_of(space, window, strides, padding, dilation, ceil_mode):
    """For each place of a pool: the window's positions on each axis, and how many may count.

    Positions outside are left out; the number is of those inside and in the padding.
    """
    rank = len(space)
    each = lambda v: (v,) * rank if isinstance(v, int) else v
    per_axis = []
    pads = [p if isinstance(p, tuple) else (p, p) for p in each(padding)]
    for n, k, s, d, (low, high) in zip(space, each(window), each(strides), each(dilation), pads):
        free = n + low + high - (k - 1) * d - 1
        count = free // s + 1
        if ceil_mode and free % s and count * s < n + low:
            count += 1
        starts = [i * s - low for i in range(count)]
        per_axis.append(
            [
                (
                    [p for p in range(b, b + k * d, d) if 0 <= p < n],
                    len([p for p in range(b, b + k * d, d) if p < n + high]),
                )
                for b in starts
            ]
        )
    return per_axis


def _each_window(windows):
    for place in itertools.product(*(range(len(w)) for w in windows)):
        yield place, [w[i] for w, i in zip(windows, place)]


def max_of_windows(x, windows):
    """The largest elements of `windows_of`, and their row-major positions; the first of equals."""
    space, shape = x.shape[1:-1], (x.shape[0], *map(len, windows), x.shape[-1])
    largest, indices = np.empty(shape, x.dtype), np.empty(shape, np.int64)
    flat = x.reshape(len(x), -1, x.shape[-1])
    for place, parts in _each_window(windows):
        points = list(itertools.product(*(positions for positions, _ in parts)))
        table = np.ravel_multi_index(np.array(points).T, space)
        best = flat[:, table].argmax(1)
        indices[(slice(None), *place)] = table[best]
        largest[(slice(None), *place)] = flat[:, table].max(1)
    return largest, indices


def sums_of_windows(x, windows):
    """Sums of `windows_of`; of how many elements each; and with padding."""
    counts = tuple(map(len, windows))
    total = np.empty((len(x), *counts, x.shape[-1]))
    inside, padded = np.empty(counts), np.empty(counts)
    for place, parts in _each_window(windows):
        part = x.astype(np.float64)[(slice(None), *np.ix_(*(p for p, _ in parts)))]
        total[(slice(None), *place)] = part.sum(tuple(range(1, part.ndim - 1)))
        inside[place] = np.prod([len(p) for p, _ in parts])
        padded[place] = np.prod([n for _, n in parts])
    return total, inside, padded


def cubic(d):
    d = abs(d)
    inner, outer = (1.25 * d - 2.25) * d * d + 1, ((-0.75 * d + 3.75) * d - 6) * d + 3
    return inner if d <= 1 else outer if d < 2 else 0.0


def resampled_axis(x, axis, new, scale, method, align_corners):
    """Samples along an axis at `new` places, those of the outermost beyond the edges."""
    n = x.shape[axis]
    matrix = np.zeros((new, n))
    for o in range(new):
        if method == "area":
            matrix[o, o * n // new : -(-(o + 1) * n // new)] = 1
            matrix[o] /= matrix[o].sum()
            continue
        if method.startswith("nearest"):
            half = 0.5 if method == "nearest_exact" else 0
            matrix[o, min(int((o + half) * scale), n - 1)] = 1
            continue
        at = (o + 0.5) * scale - 0.5
        if align_corners:
            at = o * (n - 1) / max(new - 1, 1)
        elif method == "linear":
            at = max(at, 0)
        for i in range(int(np.floor(at)) - 1, int(np.floor(at)) + 3):
            weight = cubic(at - i) if method == "cubic" else max(0, 1 - abs(at - i))
            matrix[o, np.clip(i, 0, n - 1)] += weight
    return np.moveaxis(np.tensordot(matrix, x.astype(np.float64), (1, axis)), 0, axis)


def grid_sample(x, grid, method, padding_mode, align_corners):
    """Of (n, *space, c) at (n, *size, d), each point by itself."""
    space = x.shape[1:-1]
    out = np.zeros((*grid.shape[:-1], x.shape[-1]))

    def moved(at, n):
        if padding_mode == "reflection":
            low, span = (0, n - 1) if align_corners else (-0.5, n)
            turns, rest = divmod(abs(at - low), span)
            at = low + (span - rest if turns % 2 else rest)
        return at if padding_mode == "zeros" else min(max(at, 0), n - 1)

    def along(at, n):
        at = (at + 1) / 2 * (n - 1) if align_corners else ((at + 1) * n - 1) / 2
        if method == "cubic":
            base = int(np.floor(at))
            found = [(moved(i, n), cubic(at - i)) for i in range(base - 1, base + 3)]
        elif method == "nearest":
            found = [(np.round(moved(at, n)), 1.0)]
        else:
            at = moved(at, n)
            found = [(i, 1 - abs(at - i)) for i in (int(np.floor(at)), int(np.floor(at)) + 1)]
        return [(int(i), w) for i, w in found if 0 <= i <= n - 1]

    for place in np.ndindex(grid.shape[:-1]):
        axes = [along(at, n) for at, n in zip(grid[place][::-1], space)]
        for taps in itertools.product(*axes):
            where = tuple(i for i, _ in taps)
            out[place] += np.prod([w for _, w in taps]) * x[(place[0], *where)]
    return out
