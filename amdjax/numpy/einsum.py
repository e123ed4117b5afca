"""Einstein summation: opt_einsum chooses the order, each step becomes one `dot_general`."""

from __future__ import annotations

import functools
import re
from collections import Counter
from typing import Any

import numpy as np

from amdjax import lax
from amdjax.core import promotion
from amdjax.core.array import Array
from amdjax.core.composite import composite
from amdjax.core.dims import is_symbolic_dim
from amdjax.numpy._util import (
    DTypeLike,
    as_arrays,
    convert,
    is_arraylike,
    refuse_out,
    select,
    user_dtype,
)


def einsum(
    subscripts: Any, /, *operands: Any, out: None = None, optimize: Any = "auto",
    precision: Any = None, preferred_element_type: DTypeLike = None, _dot_general: Any = None,
    out_sharding: Any = None,
) -> Array:  # fmt: skip
    """A sum of products in Einstein's notation.

    Args:
      subscripts: as `"ij,jk->ik"`; or the first operand, in the form `einsum(x, [0, 1], …, [0])`.
      operands: arrays; labels they share are multiplied, labels missing in the output summed.
      optimize: how to choose the order of contractions; "auto", "optimal", "greedy" or False.

    Raises:
      ValueError: a label has different extents, or the subscripts are malformed.

        >>> jnp.einsum("ij,ij->i", jnp.ones((2, 3)), jnp.ones((2, 3)))
        Array([3., 3.], dtype=float32)
    """
    refuse_out("einsum", out)
    text, arrays = _parse(subscripts, operands)
    preferred = None
    if preferred_element_type is not None:
        preferred = user_dtype(preferred_element_type, "einsum")
    arrays = as_arrays("einsum", *arrays)
    dtype, weak = promotion.lattice_result_type(*arrays)
    if preferred is not None:
        weak = False
    path = _contractions(text, tuple(x.shape for x in arrays), _hashable(optimize))
    return _einsum(arrays, path, dtype, weak, precision, preferred)


def _hashable(optimize: Any) -> Any:
    if isinstance(optimize, (list, tuple)):
        return tuple(tuple(step) if not isinstance(step, str) else step for step in optimize)
    return optimize


def _parse(subscripts: Any, operands: tuple[Any, ...]) -> tuple[str, list[Any]]:
    """Both call forms as a full text `"ab,bc->ac"` and the operands."""
    if isinstance(subscripts, str):
        args: tuple[Any, ...] = (subscripts, *operands)
        arrays = list(operands)
    else:
        args = (subscripts, *operands)
        arrays = list(args[: len(args) // 2 * 2 : 2])
    for position, x in enumerate(arrays):
        if not is_arraylike(x):
            raise TypeError(
                f"einsum requires ndarray or scalar arguments, got {type(x)} at position"
                f" {position}."
            )
    if isinstance(subscripts, str) and _is_whole(subscripts, len(arrays)):
        return subscripts, arrays
    # late: it takes long to load, and is not asked about one or two operands
    import opt_einsum

    # opt_einsum reads shapes only, so that traced operands pass.
    # Labels alone are read: symbolic sizes are any.
    blank = [np.zeros((1,) * np.ndim(x)) for x in arrays]
    if isinstance(subscripts, str):
        inputs, output, _ = opt_einsum.parser.parse_einsum_input((subscripts, *blank))
    else:
        mixed: list[Any] = []
        for x, labels in zip(blank, args[1::2]):
            mixed += [x, list(labels)]
        mixed += [list(args[-1])] if len(args) % 2 else []
        inputs, output, _ = opt_einsum.parser.parse_einsum_input(tuple(mixed))
    return f"{inputs}->{output}", arrays


_WHOLE = re.compile(r"[A-Za-z,]+->[A-Za-z]*")


def _is_whole(subscripts: str, count: int) -> bool:
    """Whether subscripts name all axes of `count` operands, and each axis of the result once."""
    inputs, _, output = subscripts.partition("->")
    return (
        _WHOLE.fullmatch(subscripts) is not None
        and inputs.count(",") == count - 1
        and len(set(output)) == len(output)
        and set(output) <= set(inputs)
    )


Step = tuple[tuple[int, ...], str]


def _path_of(optimize: Any, count: int) -> Any:
    """What opt_einsum is to be told: it would contract all operands at once where told False."""
    if isinstance(optimize, bool):
        return "auto" if optimize else [(0, 1)] * (count - 1) or [(0,)]
    return optimize


@functools.lru_cache(1024)
def _contractions(
    text: str, shapes: tuple[tuple[int, ...], ...], optimize: Any
) -> tuple[Step, ...]:
    """The steps: which operands to take from the list, and what to do with them as `"ab,b->a"`."""
    fit = _fit(text, shapes)  # which compares symbolic sizes
    if isinstance(optimize, (str, bool)) and len(shapes) <= 2 and fit:
        inputs, output = text.split("->")
        backwards = ",".join(inputs.split(",")[::-1])
        return ((tuple(range(len(shapes)))[::-1], f"{backwards}->{output}"),)
    # late: see `_parse`
    import opt_einsum

    blank = [np.broadcast_to(np.zeros(()), shape) for shape in _hinted(shapes)]
    if optimize == "auto" and len(shapes) <= 4:
        optimize = "optimal"
    path = _path_of(optimize, len(shapes))
    _, info = opt_einsum.contract_path(text, *blank, optimize=path, einsum_call=True)
    return tuple(
        (tuple(step[0]), step[2] if isinstance(step[2], str) else step[1]) for step in info
    )


def _hinted(shapes: tuple[tuple[int, ...], ...]) -> list[list[int]]:
    """Shapes to choose an order by: symbolic sizes are as if about a hundred, each another."""
    numbers: dict[Any, int] = {}
    hint = lambda n: numbers.setdefault(n, 101 + len(numbers)) if is_symbolic_dim(n) else n
    return [list(map(hint, shape)) for shape in shapes]


def _fit(text: str, shapes: tuple[tuple[int, ...], ...]) -> bool:
    """Whether operands have as many axes as labels, and axes of one label one size, or size 1."""
    terms = text.partition("->")[0].split(",")
    sizes: dict[str, int] = {}
    for term, shape in zip(terms, shapes, strict=True):
        if len(term) != len(shape):
            return False
        for label, size in zip(term, shape, strict=True):
            if size != 1 and sizes.setdefault(label, size) != size:
                return False
    return True


@composite(static_argnames=("path", "dtype", "weak", "precision", "preferred"))
def _einsum(
    arrays: list[Array], path: tuple[Step, ...], dtype: Any, weak: bool, precision: Any,
    preferred: Any,
) -> Array:  # fmt: skip
    operands = [convert(x, x.dtype) for x in arrays]
    for taken, text in path:
        chosen = [operands.pop(i) for i in sorted(taken, reverse=True)]
        # opt_einsum writes the labels in the order in which operands are popped.
        inputs, output = text.split("->")
        labels = inputs.split(",")
        if len(chosen) == 1:
            result = _reduce_one(chosen[0], labels[0], output, dtype)
        elif len(chosen) == 2:
            result = _contract_two(chosen, labels, output, precision, dtype, preferred)
        else:
            raise NotImplementedError(
                "jax.numpy.einsum does not support simultaneous contraction of 3 or more operands"
            )
        operands.append(result)
    return convert(operands[0], dtype if preferred is None else preferred, weak)


def _total(x: Array, axes: tuple[int, ...]) -> Array:
    """The sum over axes; of booleans, whose sum is a logical or, that."""
    return lax.reduce_or(x, axes) if x.dtype == bool else lax.reduce_sum(x, axes)


def _sum_out(x: Array, labels: str, gone: set[str], dtype: Any) -> tuple[Array, str]:
    """Sum over labels that appear nowhere else, in the dtype of the result."""
    axes = tuple(i for i, label in enumerate(labels) if label in gone)
    if not axes:
        return x, labels
    kept = "".join(label for label in labels if label not in gone)
    return _total(convert(x, dtype), axes), kept


def _take_diagonals(x: Array, labels: str) -> tuple[Array, str]:
    """A label that occurs twice keeps only the elements with equal indices."""
    for label, count in Counter(labels).items():
        while count > 1:
            first = labels.index(label)
            second = labels.index(label, first + 1)
            if x.shape[first] != x.shape[second]:
                raise ValueError(f"einsum: label {label!r} has extents {x.shape[first]} and"
                                 f" {x.shape[second]}")  # fmt: skip
            iota = lambda axis: lax.broadcasted_iota(np.dtype("int32"), x.shape, axis)
            equal = lax.eq(iota(first), iota(second))
            x = _total(select(equal, x, np.zeros((), x.dtype)), (second,))
            labels = labels[:second] + labels[second + 1 :]
            count -= 1
    return x, labels


def _reduce_one(x: Array, labels: str, output: str, dtype: Any) -> Array:
    x, labels = _take_diagonals(x, labels)
    x, labels = _sum_out(x, labels, set(labels) - set(output), dtype)
    order = tuple(labels.index(label) for label in output)
    return x if order == tuple(range(len(order))) else lax.transpose(x, order)


def _contract_two(
    operands: list[Array], labels: list[str], output: str, precision: Any, dtype: Any,
    preferred: Any,
) -> Array:  # fmt: skip
    (x, xs), (y, ys) = (_take_diagonals(v, own) for v, own in zip(operands, labels))
    x, xs, y, ys = _drop_stretched(x, xs, y, ys)
    x, xs = _sum_out(x, xs, set(xs) - set(ys) - set(output), dtype)
    y, ys = _sum_out(y, ys, set(ys) - set(xs) - set(output), dtype)
    shared = [label for label in xs if label in ys]
    batch = [label for label in shared if label in output]
    contract = [label for label in shared if label not in output]
    result_labels = [
        *batch,
        *(label for label in xs if label not in shared),
        *(label for label in ys if label not in shared),
    ]
    flipped = [
        *batch,
        *(label for label in ys if label not in shared),
        *(label for label in xs if label not in shared),
    ]
    if flipped == list(output) and result_labels != list(output):
        x, xs, y, ys, result_labels = y, ys, x, xs, flipped
    numbers = (
        (
            tuple(xs.index(label) for label in contract),
            tuple(ys.index(label) for label in contract),
        ),
        (tuple(xs.index(label) for label in batch), tuple(ys.index(label) for label in batch)),
    )
    result = lax.dot_general(
        x, y, numbers, precision=precision,
        preferred_element_type=dtype if preferred is None else preferred,
    )  # fmt: skip
    order = tuple(result_labels.index(label) for label in output)
    return result if order == tuple(range(len(order))) else lax.transpose(result, order)


def _drop_stretched(x: Array, xs: str, y: Array, ys: str) -> Any:
    """Shared axes of which one operand has a single element broadcast: drop them there."""

    def drop(v: Array, own: str, other: Array, others: str) -> tuple[Array, str]:
        gone = tuple(
            i
            for i, label in enumerate(own)
            if label in others and v.shape[i] == 1 and other.shape[others.index(label)] != 1
        )
        kept = "".join(label for i, label in enumerate(own) if i not in gone)
        return (lax.squeeze(v, gone), kept) if gone else (v, own)

    x, xs = drop(x, xs, y, ys)
    y, ys = drop(y, ys, x, xs)
    return x, xs, y, ys


def _shape_of(x: Any) -> tuple[int, ...]:
    if not isinstance(x, (list, tuple)) and not is_arraylike(x):
        raise ValueError(f"einsum_path: an operand must have a shape, got {x!r}")
    return np.shape(x)


def einsum_path(
    subscripts: Any, /, *operands: Any, optimize: Any = "auto"
) -> tuple[list[Any], Any]:
    """The order in which `einsum` would contract, and a report on its cost.

    >>> jnp.einsum_path("ij,jk->ik", jnp.ones((2, 3)), jnp.ones((3, 4)))[0]
    [(0, 1)]
    """
    # late: see `_parse`
    import opt_einsum

    if isinstance(subscripts, str):
        operands = tuple(np.zeros(_shape_of(x)) for x in operands)
    text, arrays = _parse(subscripts, operands)
    blank = [np.broadcast_to(np.zeros(()), np.shape(x)) for x in arrays]
    return opt_einsum.contract_path(text, *blank, optimize=_path_of(optimize, len(blank)))
