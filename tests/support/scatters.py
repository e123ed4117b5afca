"""Scatters by their definition, in NumPy."""

import numpy as np

from amdjax import lax

Numbers = lax.ScatterDimensionNumbers
COMBINE = {
    "scatter": lambda x, y: y,
    "scatter_add": np.add,
    "scatter_sub": np.subtract,
    "scatter_mul": np.multiply,
    "scatter_min": np.minimum,
    "scatter_max": np.maximum,
}


def reference(name, operand, indices, updates, numbers, mode):
    """One update after the other."""
    dn, out = Numbers(*numbers), operand.copy()
    left_out = {*dn.inserted_window_dims, *dn.operand_batching_dims}
    window_dims = [d for d in range(operand.ndim) if d not in left_out]
    window = [1] * operand.ndim
    for u, d in zip(dn.update_window_dims, window_dims):
        window[d] = updates.shape[u]
    batch_dims = [u for u in range(updates.ndim) if u not in dn.update_window_dims]
    for at in np.ndindex(indices.shape[:-1]):
        start = [0] * operand.ndim
        for i, d in enumerate(dn.scatter_dims_to_operand_dims):
            limit = operand.shape[d] - window[d]
            start[d] = int(indices[at][i])
            start[d] = min(max(start[d], 0), limit) if mode == "clip" else start[d]
        for i, d in zip(dn.scatter_indices_batching_dims, dn.operand_batching_dims):
            start[d] = at[i]
        if any(s < 0 or s + w > n for s, w, n in zip(start, window, operand.shape)):
            continue
        where = tuple(slice(s, s + w) for s, w in zip(start, window))
        picked = [slice(None)] * updates.ndim
        for u, i in zip(batch_dims, at):
            picked[u] = i
        new = updates[tuple(picked)].reshape(out[where].shape)
        out[where] = COMBINE[name](out[where], new)
    return out


def values(rng, shape, dtype):
    x = np.asarray(rng.integers(1, 4, shape))
    if np.dtype(dtype).kind == "c":
        return np.asarray(x + 1j * rng.integers(1, 4, shape), dtype)
    return x.astype(dtype)
