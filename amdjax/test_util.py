"""Checking derivatives against finite differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from amdjax.core import dtypes
from amdjax.core.aval import get_aval
from amdjax.core.boundaries import public_surface as _public_surface
from amdjax.core.dtypes import float0
from amdjax.core.pytree import tree_flatten, tree_map, tree_unflatten
from amdjax.transforms.differentiate import jvp, vjp

__all__ = ["check_grads", "check_jvp", "check_vjp"]

_TOLERANCE = {
    "float16": 1e-2,
    "bfloat16": 1e-1,
    "float32": 2e-3,
    "complex64": 2e-3,
    "float64": 1e-6,
    "complex128": 1e-6,
}
_STEP = {"float16": 1e-1, "bfloat16": 3e-1, "float32": 1e-2, "complex64": 1e-2}


def _default(table: dict[str, float], tree: Any, otherwise: float) -> float:
    names = (np.dtype(get_aval(x).dtype).name for x in tree_flatten(tree)[0])
    return max((table.get(n, otherwise) for n in names), default=otherwise)


def _tolerances(
    args: Any, atol: float | None, rtol: float | None, eps: float | None
) -> tuple[float, float, float]:
    """Tolerances and step, where they are not given those for the dtypes."""
    usual = _default(_TOLERANCE, args, 1e-6)
    return (
        usual if atol is None else atol,
        usual if rtol is None else rtol,
        _default(_STEP, args, 1e-5) if eps is None else eps,
    )


def _is_inexact(x: Any) -> bool:
    return bool(dtypes.issubdtype(get_aval(x).dtype, np.inexact))


def _numpy(tree: Any) -> Any:
    return tree_map(np.asarray, tree)


def _wide(x: np.ndarray) -> np.ndarray:
    """In double precision, where differences are taken."""
    return x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)


def _random_like(rng: np.random.Generator, x: Any) -> Any:
    """A direction for `x`, of length one in each component on average."""
    aval: Any = get_aval(x)
    if not _is_inexact(x):
        return np.zeros(aval.shape, float0)
    value = rng.standard_normal(aval.shape)
    if np.dtype(aval.dtype).kind == "c":
        value = value + 1j * rng.standard_normal(aval.shape)
    return np.asarray(value).astype(aval.dtype)


def _moved(x: Any, direction: Any, step: float) -> Any:
    array = np.asarray(x)
    if direction.dtype == float0:
        return array
    return (_wide(array) + step * _wide(direction)).astype(array.dtype)


def numerical_jvp(f: Callable[..., Any], primals: Any, tangents: Any, eps: float) -> Any:
    """The derivative of `f` in a direction, by central differences."""
    leaves, tree = tree_flatten(primals)
    directions = tree_flatten(tangents)[0]

    def at(step: float) -> Any:
        point = [_moved(x, d, step) for x, d in zip(leaves, directions)]
        return _numpy(f(*tree_unflatten(tree, point)))

    def difference(high: np.ndarray, low: np.ndarray) -> np.ndarray:
        if not _is_inexact(high):
            return np.zeros(high.shape, float0)
        return (_wide(high) - _wide(low)) / (2 * eps)

    return tree_map(difference, at(eps), at(-eps))


def _check_close(what: str, got: Any, expected: Any, atol: float, rtol: float) -> None:
    for a, b in zip(tree_flatten(_numpy(got))[0], tree_flatten(expected)[0], strict=True):
        if a.dtype == float0 or b.dtype == float0:
            if a.dtype != b.dtype or a.shape != b.shape:
                raise AssertionError(f"{what}: got {a.dtype}{a.shape}, expected {b.dtype}{b.shape}")
            continue
        np.testing.assert_allclose(_wide(a), b, atol=atol, rtol=rtol, err_msg=what)


def check_jvp(
    f: Callable[..., Any], f_jvp: Callable[..., Any], args: Sequence[Any],
    atol: float | None = None, rtol: float | None = None, eps: float | None = None,
    err_msg: str = "",
) -> None:  # fmt: skip
    """Compare a forward derivative with finite differences in a random direction.

    Args:
      f: a function of pytrees of arrays.
      f_jvp: `f_jvp(primals, tangents) -> (result, tangent)`.
      args: the point.
      atol: absolute tolerance; by default after the dtypes.
      rtol: relative tolerance.
      eps: step of the differences.
      err_msg: put in front of the message.

    Raises:
      AssertionError: they differ.

        >>> from amdjax.test_util import check_jvp
        >>> f = lambda x: x * x
        >>> check_jvp(f, lambda primals, tangents: amdjax.jvp(f, primals, tangents), (2.0,))
    """
    args = tuple(args)
    atol, rtol, eps = _tolerances(args, atol, rtol, eps)
    rng = np.random.default_rng(0)
    tangents = tree_map(partial(_random_like, rng), args)
    value, tangent = f_jvp(args, tangents)
    expected = tree_map(lambda x: _wide(np.asarray(x)), f(*args))
    label = f"{err_msg} jvp".strip()
    _check_close(f"{label}: value", value, expected, atol, rtol)
    _check_close(f"{label}: tangent", tangent, numerical_jvp(f, args, tangents, eps), atol, rtol)


def check_vjp(
    f: Callable[..., Any], f_vjp: Callable[..., Any], args: Sequence[Any],
    atol: float | None = None, rtol: float | None = None, eps: float | None = None,
    err_msg: str = "",
) -> None:  # fmt: skip
    """Compare a reverse derivative with finite differences: <ct, J t> must be <J^T ct, t>.

    Args:
      f: a function of pytrees of arrays.
      f_vjp: `f_vjp(*args) -> (result, pullback)`.
      args: the point.
      atol: absolute tolerance; by default after the dtypes.
      rtol: relative tolerance.
      eps: step of the differences.
      err_msg: put in front of the message.

    Raises:
      AssertionError: they differ.

        >>> from amdjax.test_util import check_vjp
        >>> f = lambda x: x * x
        >>> check_vjp(f, lambda x: amdjax.vjp(f, x), (2.0,))
    """
    args = tuple(args)
    atol, rtol, eps = _tolerances(args, atol, rtol, eps)
    rng = np.random.default_rng(1)
    value, pullback = f_vjp(*args)
    label = f"{err_msg} vjp".strip()
    expected = tree_map(lambda x: _wide(np.asarray(x)), f(*args))
    _check_close(f"{label}: value", value, expected, atol, rtol)
    tangents = tree_map(partial(_random_like, rng), args)
    cotangent = tree_map(partial(_random_like, rng), value)
    pulled = _numpy(pullback(cotangent))
    pushed = numerical_jvp(f, args, tangents, eps)
    # Sums over many elements: what counts is the error relative to the terms.
    left, size = _inner(cotangent, pushed)
    right, other = _inner(pulled, tangents)
    scale = max(size, other, 1.0)
    np.testing.assert_allclose(
        right / scale, left / scale, atol=atol, rtol=rtol, err_msg=f"{label}: cotangent"
    )


def _inner(a: Any, b: Any) -> tuple[float, float]:
    """The real part of the bilinear product of two pytrees, and the size of its terms."""
    total = magnitude = 0.0
    for x, y in zip(tree_flatten(a)[0], tree_flatten(b)[0], strict=True):
        x, y = np.asarray(x), np.asarray(y)
        if x.dtype == float0 or y.dtype == float0:
            continue
        terms = _wide(x) * _wide(y)
        total += float(np.sum(terms).real)
        magnitude += float(np.sqrt(np.sum(np.abs(terms) ** 2)))
    return total, magnitude


def check_grads(
    f: Callable[..., Any], args: Sequence[Any], order: int, modes: Sequence[str] = ("fwd", "rev"),
    atol: float | None = None, rtol: float | None = None, eps: float | None = None,
) -> None:  # fmt: skip
    """Compare derivatives of a function with finite differences, up to a given order.

    Args:
      f: a function of pytrees of arrays.
      args: the point; float64 needs ``jax_enable_x64``.
      order: 1 checks first derivatives, 2 the derivatives of these too, in every combination of
        `modes`.
      modes: "fwd", "rev" or both.
      atol: absolute tolerance; by default after the dtypes.
      rtol: relative tolerance.
      eps: step of the differences.

    Raises:
      ValueError: there is no such mode.
      AssertionError: they differ; the message tells the chain of modes.

        >>> from amdjax.test_util import check_grads
        >>> check_grads(amdjax.lax.sin, (0.5,), order=2)
    """
    modes = (modes,) if isinstance(modes, str) else tuple(modes)
    unknown = set(modes) - {"fwd", "rev"}
    if unknown or not modes:
        raise ValueError(f"modes must be of 'fwd' and 'rev', got {modes}")
    tolerances = {"atol": atol, "rtol": rtol, "eps": eps}

    def check(f: Callable[..., Any], args: tuple[Any, ...], order: int, chain: str) -> None:
        if "fwd" in modes:
            label = f"{chain}fwd"
            check_jvp(f, partial(jvp, f), args, err_msg=label, **tolerances)
            if order > 1:
                tangents = tree_map(partial(_random_like, np.random.default_rng(2)), args)
                check(lambda *xs: jvp(f, xs, tangents), args, order - 1, f"{label} of ")
        if "rev" in modes:
            label = f"{chain}rev"
            check_vjp(f, partial(vjp, f), args, err_msg=label, **tolerances)
            if order > 1:

                def pulled(*xs: Any) -> Any:
                    out, pullback = vjp(f, *xs)
                    ct = tree_map(partial(_random_like, np.random.default_rng(3)), out)
                    return pullback(ct)

                check(pulled, args, order - 1, f"{label} of ")

    check(f, tuple(args), order, "")


_public_surface(globals())
