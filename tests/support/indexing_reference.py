"""Gather and scatter written out as loops over index vectors, and a generator of cases."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st


class Case(NamedTuple):
    shape: tuple
    indices: np.ndarray
    sizes: tuple
    offset_dims: tuple
    collapsed: tuple
    index_map: tuple
    batching: tuple
    indices_batching: tuple

    @property
    def result_shape(self):
        within = [n for d, n in enumerate(self.sizes) if d not in self.collapsed + self.batching]
        lead = list(self.indices.shape[:-1])
        rank = len(within) + len(lead)
        return tuple((within if d in self.offset_dims else lead).pop(0) for d in range(rank))


@st.composite
def cases(draw, in_bounds=False, unique=False):
    """Dimension numbers, shapes and indices that fit together."""
    rank = draw(st.integers(1, 3))
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=rank, max_size=rank)))
    roles = [draw(st.sampled_from(["window", "collapsed", "batching"])) for _ in shape]
    if unique:
        roles = [r if r != "window" else "collapsed" for r in roles]
    batching = tuple(d for d, r in enumerate(roles) if r == "batching")
    collapsed = tuple(d for d, r in enumerate(roles) if r == "collapsed")
    windows = tuple(d for d, r in enumerate(roles) if r == "window")
    sizes = tuple(draw(st.integers(0, n)) if d in windows else 1 for d, n in enumerate(shape))
    free = [d for d in range(rank) if d not in batching]
    chosen = draw(st.sets(st.sampled_from(free))) if free else set()
    # A collapsed dimension that no index positions would stay at zero; that is allowed too.
    index_map = tuple(draw(st.permutations(sorted(chosen))))
    lead_rank = len(batching) + draw(st.integers(0, 2))
    spots = draw(st.permutations(range(lead_rank)))[: len(batching)]
    lead = [draw(st.integers(1, 3)) for _ in range(lead_rank)]
    for d, spot in zip(batching, spots):
        lead[spot] = shape[d]
    result_rank = lead_rank + len(windows)
    offset_dims = tuple(sorted(draw(st.permutations(range(result_rank)))[: len(windows)]))
    seed = draw(st.integers(0, 2**16))
    indices = _indices(shape, sizes, index_map, tuple(lead), in_bounds, seed)
    return Case(shape, indices, sizes, offset_dims, collapsed, index_map, batching, tuple(spots))


def _indices(shape, sizes, index_map, lead, in_bounds, seed):
    rng = np.random.default_rng(seed)
    out = np.empty((*lead, len(index_map)), np.int32)
    for k, d in enumerate(index_map):
        room = shape[d] - sizes[d]
        low, high = (0, room + 1) if in_bounds else (-2, room + 3)
        out[..., k] = rng.integers(low, high, lead)
    return out


def positions(case, mode):
    """For each index vector, the slice of the operand it names, or None if it is dropped."""
    for lead in np.ndindex(*case.indices.shape[:-1]):
        start = [0] * len(case.shape)
        for d, spot in zip(case.batching, case.indices_batching):
            start[d] = lead[spot]
        outside = False
        for k, d in enumerate(case.index_map):
            room = case.shape[d] - case.sizes[d]
            value = int(case.indices[(*lead, k)])
            outside |= not 0 <= value <= room
            start[d] = min(max(value, 0), room)
        keep = mode == "clip" or not outside
        yield lead, tuple(slice(s, s + n) for s, n in zip(start, case.sizes)) if keep else None


def _by_lead(case, x):
    """A result-shaped array with the dimensions within a slice last."""
    count = len(case.offset_dims)
    return np.moveaxis(x, case.offset_dims, range(x.ndim - count, x.ndim))


def gather_reference(x, case, mode, fill):
    out = np.full(case.result_shape, fill, x.dtype)
    view = _by_lead(case, out)
    for lead, where in positions(case, mode):
        if where is not None:
            view[lead] = x[where].reshape(view[lead].shape)
    return out


def scatter_reference(x, updates, case, mode, combine):
    out = x.copy()
    view = _by_lead(case, updates)
    for lead, where in positions(case, mode):
        if where is not None:
            out[where] = combine(out[where], view[lead].reshape(out[where].shape))
    return out
