"""How dtypes promote: the least upper bound in JAX's lattice.

A weakly typed value is one which came from a Python scalar: it takes part in promotion only
with its category (int, float, complex), so ``float16_array * 2.0`` stays float16.

    >>> promote_types("bfloat16", float)
    dtype(bfloat16)
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from amdjax.core.config import config
from amdjax.core.dtypes import (
    NARROWED,
    array_dtypes,
    as_dtype,
    canonicalize_dtype,
    complex_dtypes,
    custom_float_set,
    default_float_dtype,
    dtype,
    float_dtypes,
    int_dtypes,
    is_weakly_typed,
    itemsize_bits,
    narrow_int_set,
    python_scalar_dtypes,
    small_float_dtypes,
    unsigned_dtypes,
)
from amdjax.core.errors import TypePromotionError

# Nodes of the lattice are dtypes and, for weakly typed values, Python's scalar types.
Node = Any


def _lattice(strict: bool, x64: bool) -> dict[Node, list[Node]]:
    """Every node's immediate successors."""
    if strict:
        # Only Python scalars give way; two different dtypes never meet.
        return {
            int: [float, *int_dtypes],
            float: [complex, *float_dtypes],
            complex: list(complex_dtypes),
            **{d: [] for d in array_dtypes},
        }
    edges: dict[Node, list[Node]] = {
        "bool": [int],
        int: ["uint8", "int8", *(d.name for d in narrow_int_set)],
        "uint8": ["int16", "uint16"],
        "uint16": ["int32", "uint32"],
        # uint32 meets the signed types in int64; while those are off, in int32.
        "uint32": ["int64" if x64 else "int32", "uint64"],
        "uint64": [float],
        "int8": ["int16"],
        "int16": ["int32"],
        "int32": ["int64"],
        "int64": [float],
        float: ["bfloat16", "float16", complex, *(d.name for d in small_float_dtypes)],
        "bfloat16": ["float32"],
        "float16": ["float32"],
        "float32": ["float64", "complex64"],
        "float64": ["complex128"],
        complex: ["complex64"],
        "complex64": ["complex128"],
    }
    node = lambda n: np.dtype(n) if isinstance(n, str) else n
    out: dict[Node, list[Node]] = {d: [] for d in array_dtypes}
    out.update({node(n): [node(s) for s in successors] for n, successors in edges.items()})
    return out


def _upper_bounds(strict: bool, x64: bool) -> dict[Node, frozenset[Node]]:
    """Every node's ancestors, itself included."""
    lattice = _lattice(strict, x64)
    bounds: dict[Node, frozenset[Node]] = {}

    def visit(n: Node) -> frozenset[Node]:
        if n not in bounds:
            bounds[n] = frozenset((n,)).union(*(visit(s) for s in lattice[n]))
        return bounds[n]

    for n in lattice:
        visit(n)
    return bounds


@functools.cache
def _bounds(strict: bool, x64: bool) -> dict[Node, frozenset[Node]]:
    return _upper_bounds(strict, x64)


def _least_upper_bound(strict: bool, x64: bool, nodes: frozenset[Node]) -> Node:
    table = _bounds(strict, x64)
    unknown = [n for n in nodes if n not in table]
    if unknown:
        raise ValueError(f"dtype={unknown[0]!s} is not a valid dtype for JAX type promotion.")
    common = frozenset.intersection(*(table[n] for n in nodes))
    if not common:
        raise TypePromotionError(_no_path_message(nodes, strict))
    # A common bound is least when every other common bound is one of its own bounds.
    return next(c for c in common if common <= table[c])


def _no_path_message(nodes: frozenset[Node], strict: bool) -> str:
    names = tuple(sorted(n.__name__ if isinstance(n, type) else n.name for n in nodes))
    start = f"Input dtypes {names} have no available implicit dtype promotion path"
    if strict:
        return (
            f"{start} when jax_numpy_dtype_promotion=strict. Cast explicitly, for example "
            "x.astype('float32'), or set jax_numpy_dtype_promotion=standard."
        )
    bits = {itemsize_bits(n) for n in nodes if n in small_float_dtypes}
    if bits:
        what = f"{min(bits)}-bit floats do not support implicit promotion"
    elif nodes & narrow_int_set:
        what = "integers of fewer than 8 bits do not support implicit promotion"
    else:
        what = "these do not support implicit promotion"
    return f"{start}: {what}. Cast explicitly, e.g. x.astype('float32')."


def _node(dt: np.dtype, weak: bool) -> Node:
    if not weak or dt == np.dtype("bool"):
        return dt
    if dt in custom_float_set:
        return float
    if dt in narrow_int_set:
        return int
    return type(dt.type(0).item())


@functools.lru_cache(4096)
def _promote(
    pairs: tuple[tuple[Any, bool], ...], promotion: str, x64: bool
) -> tuple[np.dtype, bool]:
    dtypes = {d for d, _ in pairs}
    all_weak = all(weak for _, weak in pairs)
    strict = promotion == "strict"
    if len(pairs) == 1:
        out, weak = pairs[0]
    elif len(dtypes) == 1 and not all_weak:
        out, weak = pairs[0][0], False
    else:
        forget_weak = all_weak and not strict
        nodes = frozenset(_node(d, w and not forget_weak) for d, w in pairs)
        bound = _least_upper_bound(strict, x64, nodes)
        # Not `bound in (int, ...)`: NumPy's float64 equals Python's float.
        bound_is_weak = isinstance(bound, type)
        weak = forget_weak or bound_is_weak
        out = python_scalar_dtypes[bound] if bound_is_weak else bound
        if not x64:
            out = NARROWED.get(out, out)
    return out, weak and out != np.dtype("bool")


def promote_avals(*pairs: tuple[Any, bool]) -> tuple[Any, bool]:
    """Promote operands given as ``(dtype, weak_type)`` pairs; memoized.

    Args:
        pairs: one pair for each operand, dtypes canonical.

    Returns:
        ``(dtype, weak_type)`` of the result.

    Raises:
        TypePromotionError: there is no implicit promotion.

        >>> promote_avals((np.dtype("int32"), False), (np.dtype("float32"), True))
        (dtype('float32'), True)
    """
    return _promote(pairs, config.numpy_dtype_promotion, config.enable_x64)


def lattice_result_type(*args: Any) -> tuple[Any, bool]:
    """``(dtype, weak_type)`` of the promotion of values, dtypes and scalar types."""
    return promote_avals(*[_dtype_and_weak_type(arg) for arg in args])


def _dtype_and_weak_type(x: Any) -> tuple[Any, bool]:
    return dtype(x), x is int or x is float or x is complex or is_weakly_typed(x)


def result_type(*args: Any, return_weak_type_flag: bool = False) -> Any:
    """The dtype that an operation on `args` computes in.

    Args:
        args: arrays, scalars, dtypes or scalar types; None means the default float.
        return_weak_type_flag: return ``(dtype, weak_type)`` instead of the dtype alone.

    Raises:
        ValueError: there are no arguments.
        TypePromotionError: there is no implicit promotion.

        >>> result_type(np.int8(1), 2), result_type(1, 2.0)
        (dtype('int8'), dtype('float32'))
    """
    if not args:
        raise ValueError("at least one array or dtype is required")
    out, weak = lattice_result_type(*(default_float_dtype() if a is None else a for a in args))
    if weak:
        unsigned = out in unsigned_dtypes
        out = np.dtype("uint64") if unsigned else python_scalar_dtypes[_node(out, True)]
        out = canonicalize_dtype(out)
    return (out, weak) if return_weak_type_flag else out


def promote_types(a: Any, b: Any) -> np.dtype:
    """The dtype which values of dtypes `a` and `b` are cast to by a binary operation.

    Args:
        a: dtype-like; Python's int, float and complex are weak.
        b: the same.

    Raises:
        TypePromotionError: there is no implicit promotion.

        >>> promote_types("uint8", "int8"), promote_types("float16", float)
        (dtype('int16'), dtype('float16'))
    """
    node = lambda x, name: x if any(x is t for t in (int, float, complex)) else as_dtype(x, name)
    return _promote_types(
        node(a, "a"), node(b, "b"), config.numpy_dtype_promotion == "strict", config.enable_x64
    )


@functools.lru_cache(1024)
def _promote_types(a: Node, b: Node, strict: bool, x64: bool) -> np.dtype:
    bound = _least_upper_bound(strict, x64, frozenset((a, b)))
    return python_scalar_dtypes[bound] if isinstance(bound, type) else bound


def safe_to_cast(input_dtype_or_value: Any, output_dtype_or_value: Any) -> bool:
    """Whether promotion takes the first dtype to the second.

    >>> safe_to_cast("int16", "float32"), safe_to_cast("float32", "int16")
    (True, False)
    """
    source, target = dtype(input_dtype_or_value), dtype(output_dtype_or_value)
    # `target` in place of what was given: Python's types are no weak ones there.
    return source == target or result_type(input_dtype_or_value, target) == target
