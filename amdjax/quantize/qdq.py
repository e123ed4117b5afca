"""Products between pairs of QuantizeLinear and DequantizeLinear, as products of integers.

Exporters write quantized models in float: each operand of a product is dequantized before it. Here
such operands are found by what makes them, and the product is one of what they are made of.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

import amdjax.numpy as jnp
from amdjax import lax
from amdjax.core import dtypes
from amdjax.core.jaxpr import Jaxpr, JaxprEqn, Literal, Var
from amdjax.core.pytree import tree_leaves, tree_unflatten
from amdjax.core.trace import is_concrete
from amdjax.quantize.formats import FORMATS, QuantizedArray
from amdjax.quantize.products import can_scale, product_of_stored, quantized_product
from amdjax.quantize.programs import DEEPEST, Block, Product, block_of, flat_program, run

__all__ = ["integer_products"]


def integer_products(f: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose products of dequantized operands are products of integers.

    A product is replaced if both operands are `(q - zero_point) * scale` of integers of at most 8
    bits, or of float8, as `dequantize_linear` writes it, whose scales are the same along what is
    summed. Sums are exact then, so that results differ by the rounding of the sums in float. Where
    only one operand is, without a zero point, its stored numbers are multiplied and sums scaled.

    Args:
      f: a function that can be traced.

    Returns:
      A function of the same arguments.

        >>> from amdjax.quantize import dequantize_linear, quantize_linear
        >>> def f(x, w):
        ...     x = dequantize_linear(quantize_linear(x, 0.1, np.int8(0)), jnp.float32(0.1))
        ...     return x @ dequantize_linear(w, jnp.float32(0.5))
        >>> w = jnp.array([[1], [-2]], np.int8)
        >>> integer_products(f)(jnp.array([[1.0, 0.5]]), w)
        Array([[0.]], dtype=float32)
        >>> "preferred_element_type=int32" in str(
        ...     amdjax.make_jaxpr(integer_products(f))(jnp.ones((1, 2)), w))
        True
    """

    @functools.wraps(f)
    def in_integers(*args: Any, **kwargs: Any) -> Any:
        closed, out_tree = flat_program(f, args, kwargs)
        block = block_of(closed)
        found = _matches(block)
        seen: dict[Var, Any] = {}

        def watch(eqn: JaxprEqn, values: list[Any]) -> None:
            seen.update((v, x) for v, x in zip(eqn.invars, values) if v in found.read)

        def handle(product: Product, operands: Any, given: Any, notes: Any) -> Any:
            pair = [found.operands.get(x) for x in product.eqn.invars]
            out = _product(product, pair, operands, seen)
            bound = product.eqn.primitive.bind
            return bound(*operands, **product.eqn.params) if out is None else out

        leaves = [jnp.asarray(x) for x in tree_leaves((args, kwargs))]
        return tree_unflatten(out_tree, run(block, leaves, handle, watch=watch))

    return in_integers


@dataclasses.dataclass(frozen=True)
class Spread:
    """A value that is repeated: `source` along `axes` of an array of some rank."""

    source: Any
    axes: tuple[int, ...]

    def kept(self, seen: dict[Var, Any], ndim: int) -> Any:
        """The value with an axis for each of the array's."""
        value = self.source.val if isinstance(self.source, Literal) else seen[self.source]
        value = jnp.asarray(value)
        shape = [1] * ndim
        for d, size in zip(self.axes, value.shape):
            shape[d] = size
        return value.reshape(shape)


@dataclasses.dataclass(frozen=True)
class Dequantized:
    """An operand that is made of numbers in few bits.

    Attributes:
      numbers: those.
      scale: what a step is worth.
      zero: which number is zero, if that is said.
      orders: transpositions that come after.
    """

    numbers: Var
    scale: Spread
    zero: Spread | None
    orders: tuple[tuple[int, ...], ...] = ()

    def array(self, seen: dict[Var, Any], dtype: str) -> QuantizedArray:
        """The operand as an array in few bits."""
        numbers = seen[self.numbers]
        scale = self.scale.kept(seen, numbers.ndim)
        zero = None if self.zero is None else self.zero.kept(seen, numbers.ndim)
        for order in self.orders:
            numbers, scale = lax.transpose(numbers, order), lax.transpose(scale, order)
            zero = None if zero is None else lax.transpose(zero, order)
        if zero is not None:
            zero = zero.astype(numbers.dtype)
        return QuantizedArray(numbers, scale, zero, numbers.dtype.name, dtype)

    @property
    def sources(self) -> list[Any]:
        """The variables whose values it needs."""
        spreads = [s.source for s in (self.scale, self.zero) if s is not None]
        return [x for x in (self.numbers, *spreads) if isinstance(x, Var)]


@dataclasses.dataclass(frozen=True)
class Matches:
    """What is dequantized in a program, and the variables that are read for it."""

    operands: dict[Any, Dequantized]
    read: set[Var]


def _matches(block: Block) -> Matches:
    operands: dict[Any, Dequantized] = {}
    _match(block, operands)
    return Matches(operands, {v for d in operands.values() for v in d.sources})


def _match(block: Block, operands: dict[Any, Dequantized]) -> None:
    makers = _makers(block.closed.jaxpr)
    constants = dict(zip(block.closed.jaxpr.constvars, block.closed.consts))
    for eqn in block.products:
        for x in eqn.invars:
            found = _dequantized(x, makers)
            if found is not None and found.zero is not None:
                found = _with_whole_zero(found, found.zero.source, makers, constants)
            if found is not None:
                operands[x] = found
    for blocks in block.inner.values():
        for inner in blocks:
            _match(inner, operands)


Makers = dict[Any, JaxprEqn]


def _makers(jaxpr: Jaxpr) -> Makers:
    return {v: eqn for eqn in jaxpr.eqns for v in eqn.outvars}


def _made_by(x: Any, makers: Makers, name: str) -> JaxprEqn | None:
    """The equation that makes a value, if it is one of a primitive."""
    eqn = None if isinstance(x, Literal) else makers.get(x)
    return eqn if eqn is not None and eqn.primitive.name == name else None


def _with_whole_zero(
    found: Dequantized, zero: Any, makers: Makers, constants: dict[Any, Any]
) -> Dequantized | None:
    """The operand if its zero point is surely one of the stored numbers, as the mean that is
    subtracted from an image is not; without it where it is surely 0.
    """
    dtype = np.dtype(found.numbers.aval.dtype)
    while zero.aval.dtype != dtype and (eqn := makers.get(zero)) is not None:
        if eqn.primitive.name not in ("convert_element_type", "broadcast_in_dim", "reshape"):
            return None
        zero = eqn.invars[0]
    value = zero.val if isinstance(zero, Literal) else constants.get(zero)
    if value is None or not is_concrete(value):
        return found if zero.aval.dtype == dtype else None
    number = np.asarray(value, np.float64)
    if not number.any():
        return dataclasses.replace(found, zero=None)
    same = number.astype(dtype).astype(np.float64) == number
    return found if same.all() else None


def _dequantized(x: Any, makers: Makers) -> Dequantized | None:
    orders: list[tuple[int, ...]] = []
    while (eqn := _made_by(x, makers, "transpose")) is not None:
        orders.append(tuple(eqn.params["permutation"]))
        (x,) = eqn.invars
    eqn = _made_by(x, makers, "mul")
    if eqn is None:
        return None
    for numbers, scale in (eqn.invars, eqn.invars[::-1]):
        found = _moved(numbers, makers)
        if found is not None and found[0].aval.shape == x.aval.shape:
            return Dequantized(found[0], _spread(scale, makers), found[1], tuple(orders[::-1]))
    return None


def _moved(x: Any, makers: Makers) -> tuple[Var, Spread | None] | None:
    """The stored numbers and the zero point behind a difference in float."""
    numbers = _converted(x, makers)
    if numbers is not None and _is_stored(numbers):
        return numbers, None
    # The difference is one of integers that is converted, or one of floats.
    eqn = _made_by(x if numbers is None else numbers, makers, "sub")
    if eqn is None:
        return None
    numbers = _converted(eqn.invars[0], makers)
    if numbers is None or not _is_stored(numbers):
        return None
    return numbers, _spread(eqn.invars[1], makers)


def _converted(x: Any, makers: Makers) -> Any:
    eqn = _made_by(x, makers, "convert_element_type")
    return None if eqn is None or isinstance(eqn.invars[0], Literal) else eqn.invars[0]


def _is_stored(x: Any) -> bool:
    dtype = np.dtype(x.aval.dtype)
    form = FORMATS.get(dtype.name)
    return form is not None and form.dtype == dtype and form.bits <= 8


def _spread(x: Any, makers: Makers) -> Spread:
    eqn = _made_by(x, makers, "broadcast_in_dim")
    if eqn is None or len(eqn.invars) != 1:
        return Spread(x, tuple(range(len(x.aval.shape))))
    return Spread(eqn.invars[0], tuple(eqn.params["broadcast_dimensions"]))


def _product(product: Product, pair: list[Any], operands: list[Any], seen: dict[Var, Any]) -> Any:
    """The product of numbers in few bits; None if the operands' scales do not allow it."""
    eqn = product.eqn
    arrays = [d and d.array(seen, str(x.aval.dtype)) for d, x in zip(pair, eqn.invars)]
    usable = [
        q is not None and can_scale(product.operation, eqn.params, q, side)
        for side, q in enumerate(arrays)
    ]
    dtype = np.dtype(eqn.outvars[0].aval.dtype)
    if all(usable) and _can_sum(product, *arrays):
        return quantized_product(product.operation, eqn.params, arrays[0], arrays[1], dtype)
    side = usable.index(True) if usable.count(True) == 1 else None
    if side is None or arrays[side].zero_point is not None:
        return None
    x = jnp.asarray(operands[1 - side])
    return product_of_stored(product.operation, eqn.params, x, arrays[side], side, dtype)


def _can_sum(product: Product, lhs: QuantizedArray, rhs: QuantizedArray) -> bool:
    """Whether sums of the stored numbers give the product."""
    integers = [dtypes.issubdtype(q.values.dtype, np.integer) for q in (lhs, rhs)]
    if integers[0] != integers[1] or (integers[0] and product.depth > DEEPEST):
        return False
    if not integers[0] and (lhs.zero_point is not None or rhs.zero_point is not None):
        return False
    one_zero = lhs.zero_point is None or lhs.zero_point.size == 1
    return product.operation == "dot_general" or one_zero
