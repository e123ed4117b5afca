"""What a primitive's rules must satisfy, whatever it computes: helpers of the tests in this folder.

A derivative agrees with finite differences; reverse mode agrees with forward mode; batching agrees
with a loop. All in float64, so the tolerances are tight.
"""

from __future__ import annotations

import itertools

import numpy as np

from amdjax import jit, lax
from amdjax.core.config import config, enable_x64
from amdjax.transforms.differentiate import jvp, vjp
from amdjax.transforms.vmap import vmap


def total(x):
    return lax.reduce_sum(x, tuple(range(x.ndim)))


def close(a, b, tol=1e-5):
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=tol, atol=tol)


def tree_leaves(x):
    return list(itertools.chain(*map(tree_leaves, x))) if isinstance(x, (tuple, list)) else [x]


def direction(rng, x):
    """A random tangent of `x`."""
    t = rng.standard_normal(np.shape(x))
    if np.iscomplexobj(x):
        t = t + 1j * rng.standard_normal(np.shape(x))
    return np.asarray(t, np.asarray(x).dtype)


def inner(xs, ys):
    """The real pairing of tangents and cotangents: functions need not be holomorphic."""
    products = [np.asarray(x) * np.asarray(y) for x, y in zip(xs, ys, strict=True)]
    return sum(np.sum(p.real) for p in products)


def check_derivatives(fun, *args, order=2, rtol=1e-5, atol=1e-5, step=1e-6, reverse=True, seed=0):
    """Compare `jvp` with central differences and `vjp` with `jvp`, up to `order`.

    On emulated devices first derivatives only: second ones are the same rules on the same
    operations, of which they need hundreds, and the CPU's tests compute them.
    """
    if getattr(config.default_device, "platform", None) == "emulated":
        order = 1
    with enable_x64(True):
        _check(fun, [np.asarray(a) for a in args], order, rtol, atol, step, reverse, seed)


def _check(fun, args, order, rtol, atol, step, reverse, seed):
    rng = np.random.default_rng(seed)
    tangents = [direction(rng, a) for a in args]
    out, change = jvp(fun, tuple(args), tuple(tangents))
    ahead = fun(*[a + step * t for a, t in zip(args, tangents)])
    behind = fun(*[a - step * t for a, t in zip(args, tangents)])
    for y, dy, y1, y0 in zip(*map(tree_leaves, (out, change, ahead, behind)), strict=True):
        if np.asarray(y).dtype.kind not in "fc":
            continue
        wanted = (np.asarray(y1) - np.asarray(y0)) / (2 * step)
        np.testing.assert_allclose(np.asarray(dy), wanted, rtol=rtol, atol=atol)
    if reverse:
        _check_reverse(fun, args, tangents, change, rng, rtol)
    if order > 1:
        fixed = [direction(rng, a) for a in args]
        derivative = lambda *xs: jvp(fun, xs, tuple(fixed))[1]
        inexact = lambda *xs: [y for y in tree_leaves(derivative(*xs)) if _is_inexact(y)]
        _check(inexact, args, order - 1, 20 * rtol, 20 * atol, step, reverse, seed + 1)


def _is_inexact(y):
    return np.asarray(y).dtype.kind in "fc" if not hasattr(y, "aval") else y.dtype.kind in "fc"


def _check_reverse(fun, args, tangents, change, rng, rtol):
    out, pull = vjp(fun, *args)
    flat = iter([direction(rng, y) for y in tree_leaves(out) if _is_inexact(y)])
    cotangents = _like(out, flat)
    back = pull(cotangents)
    forward = inner(
        [c for c in tree_leaves(cotangents) if _is_inexact(c)],
        [dy for dy in tree_leaves(change) if _is_inexact(dy)],
    )
    # Transposition is linear, not conjugate-linear: no conjugates on either side.
    np.testing.assert_allclose(inner(back, tangents), forward, rtol=max(rtol, 1e-8), atol=1e-8)


def _like(out, flat):
    if isinstance(out, (tuple, list)):
        return type(out)(_like(y, flat) for y in out)
    if _is_inexact(out):
        return next(flat)
    return np.zeros(np.shape(out), [("float0", np.void, 0)])


def check_batching(fun, *args, sizes=3, seed=0, rtol=1e-6, atol=1e-6, axes=(0, -1)):
    """Compare `vmap` over each choice of batched arguments with a loop.

    `args` are single examples; batches are made of permuted copies of them.
    """
    rng = np.random.default_rng(seed)
    args = [np.asarray(a) for a in args]
    batches = [np.stack([_variant(rng, a, k) for k in range(sizes)]) for a in args]
    for mapped in itertools.product((False, True), repeat=len(args)):
        if not any(mapped):
            continue
        for axis in axes:
            in_axes = tuple(axis if m else None for m in mapped)
            given = [np.moveaxis(b, 0, axis) if m else a for a, b, m in zip(args, batches, mapped)]
            found = tree_leaves(vmap(fun, in_axes=in_axes)(*given))
            loop = [
                tree_leaves(fun(*(b[k] if m else a for a, b, m in zip(args, batches, mapped))))
                for k in range(sizes)
            ]
            for y, wanted in zip(found, zip(*loop), strict=True):
                stacked = np.stack([np.asarray(w) for w in wanted])
                np.testing.assert_allclose(np.asarray(y), stacked, rtol=rtol, atol=atol)
    _check_symbolic_batch(fun, batches, loop, rtol, atol)


def _check_symbolic_batch(fun, batches, loop, rtol, atol):
    """Batches of many sizes, from one program; `loop` are results of the members."""
    many = jit(vmap(fun), symbolic="n, ...")
    for n in (5, 17, 1, 2):
        members = np.arange(n) % len(loop)
        found = tree_leaves(many(*(b[members] for b in batches)))
        for y, wanted in zip(found, zip(*loop), strict=True):
            stacked = np.stack([np.asarray(wanted[k]) for k in members])
            np.testing.assert_allclose(np.asarray(y), stacked, rtol=rtol, atol=atol)
    (variants,) = many._programs.variants.values()
    assert variants.reason is None


def _variant(rng, a, k):
    if k == 0:
        return a
    if a.dtype.kind in "iu":
        return rng.permutation(a.reshape(-1)).reshape(a.shape).astype(a.dtype)
    return (a * rng.uniform(0.5, 1.5, a.shape)).astype(a.dtype)
