"""Which range of an activation is kept: observers that see what calibration data makes of it."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from amdjax.quantize.formats import Format, format_of

__all__ = ["MSE", "Entropy", "MinMax", "Observer", "Percentile"]

BINS = 2048  # of magnitudes; a histogram has as many for either sign
LEVELS = 128  # that the magnitudes of a byte have
CANDIDATES = 100  # of ranges that are tried

Range = tuple[np.ndarray, np.ndarray]


class Observer:
    """Sees arrays, and says which range of numbers is to be kept.

    A subclass has `_see` and `range`.

    Args:
      axis: the axis of channels, each with a range of its own; None for one range.
    """

    def __init__(self, axis: int | None = None) -> None:
        self.axis = axis
        self.seen = False

    def update(self, x: Any) -> None:
        """Look at an array.

        Args:
          x: array of floats.

        Raises:
          ValueError: it holds NaN or an infinity, or `axis` is out of range.

        Example:
          >>> observer = MinMax()
          >>> observer.update(np.array([1.0, -2.0]))
          >>> [float(x) for x in observer.range()]
          [-2.0, 1.0]
        """
        x = np.asarray(x, np.float32)
        if not np.isfinite(x).all():
            raise ValueError(f"{type(self).__name__}: x must be finite, got NaN or infinity.")
        if self.axis is None:
            rows = x.reshape(1, -1)
        elif -x.ndim <= self.axis < x.ndim:
            rows = np.moveaxis(x, self.axis, 0).reshape(x.shape[self.axis], -1)
        else:
            raise ValueError(
                f"{type(self).__name__}: axis {self.axis} is out of range for shape {x.shape}."
            )
        if rows.size:
            self._see(rows)
            self.seen = True

    def range(self) -> Range:
        """The least and the largest number to keep.

        Returns:
          Two arrays of float32, of rank 0 or with one entry for each channel.

        Raises:
          ValueError: nothing was seen.
        """
        if not self.seen:
            raise ValueError(f"{type(self).__name__}: no numbers were seen.")
        low, high = (np.asarray(x, np.float32) for x in self._range())
        return (low.reshape(()), high.reshape(())) if self.axis is None else (low, high)

    def _see(self, rows: np.ndarray) -> None:
        raise NotImplementedError

    def _range(self) -> Range:
        raise NotImplementedError


class MinMax(Observer):
    """Keeps all that was seen.

    Args:
      axis: see `Observer`.

        >>> observer = MinMax(axis=0)
        >>> observer.update(np.array([[1.0, 2.0], [-3.0, 0.0]]))
        >>> observer.range()[1].tolist()
        [2.0, 0.0]
    """

    low: np.ndarray
    high: np.ndarray

    def _see(self, rows: np.ndarray) -> None:
        low, high = rows.min(1), rows.max(1)
        if self.seen:
            low, high = np.minimum(low, self.low), np.maximum(high, self.high)
        self.low, self.high = low, high

    def _range(self) -> Range:
        return self.low, self.high


class Histogram(Observer):
    """Counts numbers in bins of equal width, twice as wide whenever a number is beyond them all.

    Args:
      axis: see `Observer`.

    Attributes:
      zeros_count: whether zeros are counted, which have a number of their own in every range.
    """

    zeros_count = True

    def _see(self, rows: np.ndarray) -> None:
        largest = np.abs(rows).max(1)
        if not self.seen:
            self.limit = np.where(largest > 0, largest, 1).astype(np.float64)
            self.counts = np.zeros((len(rows), 2 * BINS), np.int64)
            self.extremes = MinMax(0)
        self.extremes.update(rows)
        for channel, most in enumerate(largest):
            while most > self.limit[channel]:
                self._widen(channel)
        places = np.floor((rows / self.limit[:, None] + 1) * BINS).astype(np.int64)
        places = np.clip(places, 0, 2 * BINS - 1) + np.arange(len(rows))[:, None] * 2 * BINS
        counted = places.ravel() if self.zeros_count else places[rows != 0]
        found = np.bincount(counted, minlength=self.counts.size)
        self.counts += found.reshape(self.counts.shape)

    def _widen(self, channel: int) -> None:
        pairs = self.counts[channel].reshape(-1, 2).sum(1)
        self.counts[channel] = 0
        self.counts[channel, BINS // 2 : BINS // 2 + BINS] = pairs
        self.limit[channel] *= 2

    def _range(self) -> Range:
        low, high = self.extremes.range()
        kept = np.array([self._limit(c, w / BINS) for c, w in zip(self.counts, self.limit)])
        return np.maximum(low, -kept), np.minimum(high, kept)

    def _limit(self, counts: np.ndarray, width: float) -> float:
        """The largest magnitude to keep, from the counts of a channel."""
        raise NotImplementedError


def _magnitudes(counts: np.ndarray) -> np.ndarray:
    return counts[BINS:] + counts[BINS - 1 :: -1]


class Percentile(Histogram):
    """Keeps a share of the numbers, those nearest to zero.

    Args:
      percent: which share.
      axis: see `Observer`.

    Raises:
      ValueError: `percent` is not above 0 and at most 100.

        >>> observer = Percentile(99.0)
        >>> observer.update(np.append(np.linspace(-1, 1, 1000), 50.0))
        >>> bool(observer.range()[1] < 1.1)
        True
    """

    def __init__(self, percent: float = 99.99, axis: int | None = None) -> None:
        super().__init__(axis)
        if not 0 < percent <= 100:
            raise ValueError(f"Percentile: percent must be above 0 and at most 100, got {percent}.")
        self.percent = percent

    def _limit(self, counts: np.ndarray, width: float) -> float:
        share = np.cumsum(_magnitudes(counts)) / counts.sum()
        return width * (1 + float(np.searchsorted(share, self.percent / 100 - 1e-12)))


class Entropy(Histogram):
    """Keeps the range whose numbers, once rounded, are distributed most like all that was seen.

    The Kullback-Leibler divergence from the distribution of magnitudes, of which those beyond the
    range count as its largest, is least (Migacz, 8-bit inference with TensorRT, 2017).

    Args:
      axis: see `Observer`.

        >>> observer = Entropy()
        >>> observer.update(np.append(np.linspace(-1, 1, 1000) ** 9, 100.0))
        >>> bool(observer.range()[1] < 50)
        True
    """

    zeros_count = False  # after a ReLU there are more than of all others together

    def _limit(self, counts: np.ndarray, width: float) -> float:
        magnitudes = _magnitudes(counts).astype(np.float64)
        if not counts.any():
            return width * BINS
        tried = range(LEVELS, BINS + 1, BINS // LEVELS)
        return width * min(tried, key=lambda n: _divergence(magnitudes, n))


def _divergence(magnitudes: np.ndarray, kept: int) -> float:
    """From the first bins, the others counted in the last of them, to those bins at few levels."""
    inside = magnitudes[:kept]
    p = inside.copy()
    p[-1] += magnitudes[kept:].sum()
    level = np.arange(kept) * LEVELS // kept
    filled = inside > 0
    sums = np.bincount(level, inside, LEVELS)
    sizes = np.maximum(np.bincount(level, filled, LEVELS), 1)
    q = np.where(filled, (sums / sizes)[level], 0)
    if not q.sum():
        return float("inf")
    p, q = p / p.sum(), q / q.sum()
    # What is clipped into a bin that was empty has no counterpart: it costs as much as the least.
    q = np.where((p > 0) & (q == 0), 1e-9, q)
    here = p > 0
    return float(np.sum(p[here] * np.log(p[here] / q[here])))


class MSE(Histogram):
    """Keeps the range with the least mean squared error of rounding and clipping.

    Args:
      dtype: what is rounded to.
      symmetric: whether zero is stored as 0.
      axis: see `Observer`.

    Raises:
      ValueError: an unknown dtype.

        >>> observer = MSE("int8")
        >>> observer.update(np.append(np.linspace(-1, 1, 100000), 50.0))
        >>> bool(observer.range()[1] < 50)
        True
    """

    def __init__(
        self, dtype: Any = "int8", symmetric: bool = False, axis: int | None = None
    ) -> None:
        super().__init__(axis)
        self.form, self.symmetric = format_of("MSE", dtype), symmetric

    def _limit(self, counts: np.ndarray, width: float) -> float:
        filled = np.flatnonzero(counts)
        centers = (filled - BINS + 0.5) * width
        largest = float(np.abs(centers).max() + width / 2)
        limits = largest * np.arange(1, CANDIDATES + 1) / CANDIDATES
        errors = [self._error(centers, counts[filled], float(t)) for t in limits]
        return float(limits[int(np.argmin(errors))])

    def _error(self, x: np.ndarray, counts: np.ndarray, limit: float) -> float:
        low, high = max(x.min(), -limit), min(x.max(), limit)
        form = self.form
        if self.symmetric or not form.is_integer:
            scale, low = max(-low, high) / form.highest, -limit
        else:
            low, high = min(low, 0.0), max(high, 0.0)
            scale = (high - low) / (form.highest - form.lowest)
        rounded = np.clip(x, low, high if high > 0 else limit) / scale
        rounded = np.round(rounded) if form.is_integer else rounded.astype(form.dtype)
        return float(np.sum(counts * (rounded.astype(np.float64) * scale - x) ** 2))


_METHODS: dict[str, Callable[[Format, bool], Observer]] = {
    "minmax": lambda form, symmetric: MinMax(),
    "percentile": lambda form, symmetric: Percentile(),
    "entropy": lambda form, symmetric: Entropy(),
    "mse": lambda form, symmetric: MSE(form, symmetric),
}


def observers(method: Any) -> Callable[[Format, bool], Observer]:
    """What makes the observer of a format.

    Args:
      method: "minmax", "percentile", "entropy" or "mse", or a function that makes an observer.

    Raises:
      ValueError: there is no such method.
    """
    if callable(method):
        return lambda form, symmetric: method()
    if method not in _METHODS:
        raise ValueError(
            f"quantize: calibration must be one of {', '.join(_METHODS)} or a function that makes "
            f"an observer, got {method!r}."
        )
    return _METHODS[method]


@functools.cache
def _tqdm() -> Any:
    try:
        return importlib.import_module("tqdm").tqdm
    except ImportError:
        return None


def with_progress(items: Iterable[Any], what: str, show: bool | None) -> Iterator[Any]:
    """The items, with a bar on a terminal where tqdm is installed."""
    shown = sys.stderr.isatty() if show is None else show
    bar = _tqdm() if shown else None
    return iter(items) if bar is None else iter(bar(items, desc=what))
