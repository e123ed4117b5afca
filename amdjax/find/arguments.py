"""Arguments for a problem, and its program in float64."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from amdjax.core import dtypes
from amdjax.core.jaxpr import ClosedJaxpr, Var
from amdjax.core.parse import parse_jaxpr
from amdjax.find.problem import Problem

#: Floating dtypes as programs spell them, in types and in parameters.
_SHORT = re.compile(r"\b(?:f32|f16|bf16|f8_\w+)(?=\[)")
_LONG = re.compile(r"\b(?:float32|float16|bfloat16|float8_\w+)\b")
_BITS = re.compile(r"bitcast_convert_type|reduce_precision|nextafter")
_COMPLEX = re.compile(r"\bc64(?=\[)|\bcomplex64\b")


def random_arguments(problem: Problem) -> list[np.ndarray]:
    """Values as networks have them: normal numbers, indices into the largest axis, bounds."""
    rng = np.random.default_rng(0)
    return [_random(rng, v, problem) for v in problem.closed.jaxpr.invars]


def whole_arguments(problem: Problem) -> list[np.ndarray]:
    """Small whole numbers, whose sums and products are exact in any order."""
    rng = np.random.default_rng(1)
    arrays = []
    for v in problem.closed.jaxpr.invars:
        x = _random(rng, v, problem)
        if _is_inexact(v.aval.dtype):
            x = rng.integers(-2, 3, v.aval.shape).astype(v.aval.dtype)
        arrays.append(x)
    return arrays


def _is_inexact(dtype: Any) -> bool:
    return dtypes.issubdtype(dtype, np.inexact)


def _random(rng: np.random.Generator, v: Var, problem: Problem) -> np.ndarray:
    shape, dtype = v.aval.shape, np.dtype(v.aval.dtype)
    bounded = _bounded(v, problem)
    if bounded is not None:  # groups that end anywhere, the last one at the end
        bounds = np.sort(rng.integers(0, bounded, shape, endpoint=True), axis=-1)
        bounds[..., :1], bounds[..., -1:] = 0, bounded
        return bounds.astype(dtype)
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    if _is_inexact(dtype):
        x = rng.standard_normal(shape)
        if dtype.kind == "c":
            x = x + 1j * rng.standard_normal(shape)
        return x.astype(dtype)
    info = np.iinfo(dtype)
    if dtype.itemsize == 1:
        return rng.integers(info.min, info.max, shape, endpoint=True).astype(dtype)
    longest = max((n for a in problem.closed.in_avals for n in a.shape), default=1)
    return rng.integers(0, min(longest, info.max), shape, endpoint=False).astype(dtype)


def _bounded(v: Var, problem: Problem) -> int | None:
    """The extent that a variable cuts into groups, by where these begin; None for others."""
    for eqn in problem.closed.eqns:
        if eqn.primitive.name == "grouped_dot" and eqn.invars[2] is v:
            (ragged,) = eqn.params["numbers"].lhs_ragged_dimensions
            extent: int = eqn.invars[0].aval.shape[ragged]
            return extent
    return None


def in_float64(problem: Problem) -> ClosedJaxpr | None:
    """The problem's program in float64; None where it has no such, as with bits of float32."""
    text = problem.program
    if not _SHORT.search(text) or _COMPLEX.search(text) or _BITS.search(text):
        return None
    return parse_jaxpr(_LONG.sub("float64", _SHORT.sub("f64", text)))


def as_float64(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Arrays whose floating numbers have 64 bits."""
    return [x.astype(np.float64) if _is_inexact(x.dtype) else x for x in arrays]
