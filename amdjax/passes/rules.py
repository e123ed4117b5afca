"""The table of algebraic rewrites."""

from __future__ import annotations

import math
from functools import reduce
from typing import Any

import numpy as np

from amdjax.core.config import config, numpy_dtype_promotion
from amdjax.core.dims import same_shape
from amdjax.core.jaxpr import ClosedJaxpr, Literal
from amdjax.core.promotion import promote_types
from amdjax.passes.axes import alike_axes
from amdjax.passes.simplify import Match, P, Rule, X, op, rewrite
from amdjax.passes.updates import (
    addition_as_choice,
    sum_of_one_choice,
    sum_with_additions,
    update_as_choice,
)

x, y = X("x"), X("y")


def _reshape(m: Match, atom: Any, shape: tuple[int, ...]) -> Any:
    if same_shape(atom.aval.shape, shape):
        return atom
    return m.apply("reshape", atom, new_sizes=tuple(shape), dimensions=None, sharding=None)


def _transpose(m: Match, atom: Any, permutation: tuple[int, ...]) -> Any:
    if permutation == tuple(range(len(permutation))):
        return atom
    return m.apply("transpose", atom, permutation=permutation)


def _compose_transposes(m: Match) -> Any:
    inner, outer = m["inner"], m["outer"]
    return _transpose(m, m["x"], tuple(inner[i] for i in outer))


def _identity_transpose(m: Match) -> Any:
    """Axes of length one may move without moving data."""
    shape, permutation = m["x"].aval.shape, m["outer"]
    moved = [p for p in permutation if shape[p] != 1]
    return _reshape(m, m["x"], m.out.shape) if moved == sorted(moved) else None


def _reshape_between_transposes(m: Match) -> Any:
    """One transpose, or none, of the axes that the shapes around the reshape have in common."""
    shape, inner, outer = m["x"].aval.shape, m["inner"], m["outer"]
    middle = m.eqn.invars[0].aval.shape
    if not all(isinstance(n, int) for n in (*shape, *middle)) or 0 in shape:
        return None
    # Parts of axes of `x` and of the reshape's result, by number, and what size they have.
    parts, of_x, of_middle = list[int](), dict[int, list[int]](), dict[int, list[int]]()
    turned = [shape[axis] for axis in inner]
    for before, after in alike_axes(turned, middle):
        if not before:  # of one element
            continue
        if len(before) > 1 < len(after):
            return None
        one, several = (before, after) if len(before) == 1 else (after, before)
        sizes = middle if several is after else turned
        numbers = [len(parts) + i for i in range(len(several))]
        parts += [sizes[axis] for axis in several]
        apart = {axis: [number] for axis, number in zip(several, numbers, strict=True)}
        whole = dict.fromkeys(one, numbers)
        of_turned, of_new = (whole, apart) if several is after else (apart, whole)
        of_x |= {inner[axis]: found for axis, found in of_turned.items()}
        of_middle |= of_new
    source = [part for axis in range(len(shape)) for part in of_x.get(axis, ())]
    runs = list[list[int]]()  # places in the source of parts that stay side by side
    for place in (source.index(part) for axis in outer for part in of_middle.get(axis, ())):
        if runs and runs[-1][-1] + 1 == place:
            runs[-1].append(place)
        else:
            runs.append([place])
    if len(runs) < 2:
        return _reshape(m, m["x"], m.out.shape)
    starts = sorted(runs)
    moved = _reshape(m, m["x"], tuple(math.prod(parts[source[p]] for p in run) for run in starts))
    return _reshape(m, _transpose(m, moved, tuple(map(starts.index, runs))), m.out.shape)


def _reshape_of_reshape(m: Match) -> Any:
    return _reshape(m, m["x"], m.out.shape)


def _same_shape(m: Match) -> Any:
    return m["x"] if same_shape(m["x"].aval.shape, m.out.shape) else None


_ARITHMETIC = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide}


def _of_numbers(m: Match) -> Any:
    """What NumPy makes of two floats, which is the same; of what is no number, nothing."""
    operands, dtype = (m["x"], m["y"]), m.out.dtype
    if dtype not in (np.float32, np.float64) or m.out.ndim:
        return None
    if not all(isinstance(a, Literal) and a.aval.dtype == dtype for a in operands):
        return None
    with np.errstate(all="ignore"):
        number = _ARITHMETIC[m.eqn.primitive.name](*(dtype.type(a.val) for a in operands))
    if not np.isfinite(number):
        return None
    return Literal(number.item() if m.out.weak_type else number, m.out)


def _no_padding(m: Match) -> Any:
    return None if any(n != 0 for sizes in m["config"] for n in sizes) else m["x"]


def _broadcast_of_broadcast(m: Match) -> Any:
    dims = tuple(m["outer"][d] for d in m["inner"])
    return m.apply(
        "broadcast_in_dim", m["x"], shape=m.out.shape, broadcast_dimensions=dims, sharding=None
    )


def _unit_axes_reduction(m: Match) -> Any:
    """Reducing axes of length one moves nothing."""
    shape, axes = m["x"].aval.shape, m["axes"]
    if all(shape[a] == 1 for a in axes):
        return _reshape(m, m["x"], m.out.shape)
    return None


def _reduction_of_reduction(m: Match) -> Any:
    """One over neighboring axes at once; over others two are faster.

    Narrow floats are rounded in between, and may overflow there, which stays so.
    """
    operand = m.eqn.invars[0]
    if isinstance(operand, Literal) or m.rewriter.uses[operand] > 1:
        return None
    if m.out.dtype.kind not in "biu" and m.out.dtype.itemsize < 4:
        return None
    shape, first = m["x"].aval.shape, m["inner"]
    left = [axis for axis in range(len(shape)) if axis not in first]
    axes = sorted((*first, *(left[axis] for axis in m["axes"])))
    if axes != list(range(axes[0], axes[0] + len(axes))):
        return None
    return m.apply(m.eqn.primitive.name, m["x"], **{**m.eqn.params, "axes": tuple(axes)})


def _same_convert(m: Match) -> Any:
    return m["x"] if m["x"].aval.dtype == m.out.dtype else None


def _widening_round_trip(m: Match) -> Any:
    """Converting to a dtype that holds every value and back changes nothing."""
    start, middle = m["x"].aval.dtype, np.dtype(m["middle"])
    if start != m.out.dtype or not np.can_cast(start, middle, "safe"):
        return None
    if start.kind in "iu" and start.itemsize == 8 and middle.kind in "fc":
        return None  # NumPy calls this safe, but a double holds 53 bits
    return m["x"]


def _window_sum_of_padding(m: Match) -> Any:
    """Windows know of padding and holes, and read only what is between them."""
    params = m.eqn.params
    config = m["config"]
    if any(step != 1 for step in params["base_dilation"]) or any(max(c[:2]) < 0 for c in config):
        return None
    padding = tuple(
        (low + before, high + after)
        for (low, high), (before, after, _) in zip(params["padding"], config)
    )
    holes = tuple(hole + 1 for _, _, hole in config)
    return m.apply(
        "reduce_window_sum", m["x"], **{**params, "padding": padding, "base_dilation": holes}
    )


def _sum_of_negatives(m: Match) -> Any:
    return m.apply("neg", m.apply("reduce_sum", m["x"], **m.eqn.params))


def _square(m: Match) -> Any:
    return m.apply("mul", m["x"], m["x"]) if m["n"] == 2 else m["x"] if m["n"] == 1 else None


def _reciprocal_of_power_of_two(m: Match) -> Any:
    """Division by a power of two is an exact multiplication."""
    value = m.rewriter.constant(m["y"])
    dtype = m.out.dtype
    if not isinstance(m["y"], Literal) or not isinstance(value, float) or dtype.kind != "f":
        return None
    mantissa, exponent = np.frexp(value)
    # Both the number and its inverse must be normal in this dtype.
    if abs(mantissa) != 0.5 or abs(exponent) > (100 if dtype.itemsize > 2 else 14):
        return None
    inverse = 1.0 / value
    literal = Literal(inverse if m["y"].aval.weak_type else dtype.type(inverse), m["y"].aval)
    return m.apply("mul", m["x"], literal)


# Products


def _axes_before(permutation: tuple[int, ...], axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(permutation[a] for a in axes)


def _free(rank: int, *taken: tuple[int, ...]) -> list[int]:
    used = {a for axes in taken for a in axes}
    return [a for a in range(rank) if a not in used]


def _transposed_operand(side: int) -> Any:
    """A product reads its operand in any order, as long as its free axes keep theirs."""

    def replace(m: Match) -> Any:
        permutation = m["permutation"]
        contract, batch = (list(pair) for pair in m["numbers"])
        old_free = _free(len(permutation), contract[side], batch[side])
        contract[side] = _axes_before(permutation, contract[side])
        batch[side] = _axes_before(permutation, batch[side])
        new_free = _free(len(permutation), contract[side], batch[side])
        if new_free != [permutation[a] for a in old_free]:
            return None
        params = {**m.eqn.params, "dimension_numbers": (tuple(contract), tuple(batch))}
        return m.apply("dot_general", m["x"], m["y"], **params)

    return replace


def _transposed_product(m: Match) -> Any:
    """The transpose of a product is the product the other way round, if only it is needed."""
    operand = m.eqn.invars[0]
    if isinstance(operand, Literal) or m.rewriter.uses[operand] > 1:
        return None
    contract, batch = m["numbers"]
    lhs, rhs = m["x"].aval, m["y"].aval
    n_batch = len(batch[0])
    n_left = len(_free(len(lhs.shape), contract[0], batch[0]))
    n_right = len(_free(len(rhs.shape), contract[1], batch[1]))
    swapped = (
        *range(n_batch),
        *range(n_batch + n_left, n_batch + n_left + n_right),
        *range(n_batch, n_batch + n_left),
    )
    if m["permutation"] != swapped:
        return None
    product = m.source(m.eqn.invars[0], "dot_general")
    assert product is not None
    params = {**product.params, "dimension_numbers": (contract[::-1], batch[::-1])}
    return m.apply("dot_general", m["y"], m["x"], **params)


def _one_complex_dtype(m: Match) -> Any:
    """Kernels of products mix real dtypes; if one is complex, all become the common one."""
    params = m.eqn.params
    preferred = params["preferred_element_type"]
    dtypes = {m["x"].aval.dtype, m["y"].aval.dtype}
    if preferred is not None:
        dtypes.add(np.dtype(preferred))
    if len(dtypes) == 1 or all(d.kind != "c" for d in dtypes):
        return None
    with numpy_dtype_promotion("standard"):
        common = reduce(promote_types, dtypes)
    operands = (m.convert(m[name], common) for name in ("x", "y"))
    product = m.apply(m.eqn.primitive.name, *operands, **{**params, "preferred_element_type": None})
    return m.convert(product, m.out.dtype)


COMPLEX_RULES = tuple(
    Rule(f"{name} in one complex dtype", getattr(op, name)(x, y), _one_complex_dtype)
    for name in ("dot_general", "conv_general_dilated")
)


def _one_plus_tanh(m: Match) -> Any:
    """`1 + tanh(x) = 2 / (1 + e**(-2 x))`, which cancels nothing and is one function."""
    (tanh,) = (e for a in m.eqn.invars if (e := m.source(a, "tanh")) is not None)
    if m.rewriter.uses[tanh.outvars[0]] > 1:
        return None
    two = Literal(2.0, m["x"].aval.update(shape=(), weak_type=True))
    return m.apply("mul", m.apply("logistic", m.apply("mul", m["x"], two)), two)


#: Rules that change results by more than their rounding, or less, for `fast_math`.
RELAXED_RULES = tuple(
    Rule(f"{name} in one function", pattern, _one_plus_tanh)
    for name, pattern in (
        ("one plus tanh", op.add(1, op.tanh(x))),
        ("tanh plus one", op.add(op.tanh(x), 1)),
    )
)

RULES: tuple[Rule, ...] = (
    Rule("add zero", op.add(x, 0), x),
    Rule("zero add", op.add(0, x), x),
    Rule("add_any zero", op.add_any(x, 0), x),
    Rule("zero add_any", op.add_any(0, x), x),
    Rule("subtract zero", op.sub(x, 0), x),
    Rule("times one", op.mul(x, 1), x),
    Rule("one times", op.mul(1, x), x),
    Rule("divide by one", op.div(x, 1), x),
    Rule("divide by a power of two", op.div(x, y), _reciprocal_of_power_of_two),
    *(Rule(f"{name} of numbers", getattr(op, name)(x, y), _of_numbers) for name in _ARITHMETIC),
    Rule("negate twice", op.neg(op.neg(x)), x),
    Rule("subtract a negative", op.sub(x, op.neg(y)), lambda m: m.apply("add", m["x"], m["y"])),
    Rule("add a negative", op.add(x, op.neg(y)), lambda m: m.apply("sub", m["x"], m["y"])),
    Rule("not twice", getattr(op, "not")(getattr(op, "not")(x)), x),
    Rule("and itself", getattr(op, "and")(x, x), x),
    Rule("or itself", getattr(op, "or")(x, x), x),
    Rule("max of one", op.max(x, x), x),
    Rule("min of one", op.min(x, x), x),
    Rule("square", op.integer_pow(x, y=P("n")), _square),
    Rule("same choice", op.select_n(y, x, x), x),
    Rule("copy", op.copy(x), x),
    Rule("no derivatives are left", op.stop_gradient(x), x),
    Rule("same dtype", op.convert_element_type(x), _same_convert),
    Rule(
        "widen and back",
        op.convert_element_type(op.convert_element_type(x, new_dtype=P("middle"))),
        _widening_round_trip,
    ),
    Rule("transpose twice",
         op.transpose(op.transpose(x, permutation=P("inner")), permutation=P("outer")),
         _compose_transposes),
    Rule("transposes around a reshape",
         op.transpose(op.reshape(op.transpose(x, permutation=P("inner"))),
                      permutation=P("outer")),
         _reshape_between_transposes),
    Rule("transpose of unit axes", op.transpose(x, permutation=P("outer")), _identity_transpose),
    Rule("reshape to itself", op.reshape(x), _same_shape),
    Rule("reshape twice", op.reshape(op.reshape(x)), _reshape_of_reshape),
    Rule("reshape of squeeze", op.reshape(op.squeeze(x)), _reshape_of_reshape),
    Rule("squeeze is a reshape", op.squeeze(x), _reshape_of_reshape),
    Rule("broadcast to itself", op.broadcast_in_dim(x), _same_shape),
    Rule(
        "broadcast twice",
        op.broadcast_in_dim(
            op.broadcast_in_dim(x, broadcast_dimensions=P("inner")), broadcast_dimensions=P("outer")
        ),
        _broadcast_of_broadcast,
    ),
    *(Rule(f"{name} of unit axes", getattr(op, name)(x, axes=P("axes")), _unit_axes_reduction)
      for name in ("reduce_sum", "reduce_max", "reduce_min", "reduce_prod",
                   "reduce_and", "reduce_or")),
    *(Rule(f"{name} twice", getattr(op, name)(getattr(op, name)(x, axes=P("inner")),
                                              axes=P("axes")), _reduction_of_reduction)
      for name in ("reduce_sum", "reduce_max", "reduce_min", "reduce_prod",
                   "reduce_and", "reduce_or")),
    Rule("update of a constant",
         op.scatter(X("operand"), X("i"), X("updates"),
                    dimension_numbers=P("numbers"), mode=P("mode")),
         update_as_choice),
    Rule("addition to zeros",
         getattr(op, "scatter-add")(X("operand"), X("i"), X("updates"),
                                    dimension_numbers=P("numbers"), mode=P("mode")),
         addition_as_choice),
    *(Rule(f"{name} of additions to zeros", getattr(op, name)(x, y), sum_with_additions)
      for name in ("add", "add_any")),
    Rule("padding to itself", op.pad(x, y, padding_config=P("config")), _no_padding),
    Rule("window sum of padding",
         op.reduce_window_sum(op.pad(x, 0, padding_config=P("config"))), _window_sum_of_padding),
    Rule("sum of negatives", op.reduce_sum(op.neg(x)), _sum_of_negatives),
    Rule("sum of one choice",
         op.reduce_sum(
             op.select_n(
                 op.eq(op.iota(dimension=P("along")),
                       op.broadcast_in_dim(X("i"), broadcast_dimensions=P("dims_i"))),
                 0,
                 op.broadcast_in_dim(x, broadcast_dimensions=P("dims_x"))),
             axes=P("axes")),
         sum_of_one_choice),
    Rule("product of a transpose",
         op.dot_general(op.transpose(x, permutation=P("permutation")), y,
                        dimension_numbers=P("numbers")),
         _transposed_operand(0)),
    Rule("product with a transpose",
         op.dot_general(x, op.transpose(y, permutation=P("permutation")),
                        dimension_numbers=P("numbers")),
         _transposed_operand(1)),
    Rule("transpose of a product",
         op.transpose(op.dot_general(x, y, dimension_numbers=P("numbers")),
                      permutation=P("permutation")),
         _transposed_product),
)  # fmt: skip


def simplify(closed: ClosedJaxpr) -> ClosedJaxpr:
    """Rewrite a program with the rules of this table until none applies."""
    return rewrite(closed, RULES)


def relax_functions(closed: ClosedJaxpr) -> ClosedJaxpr:
    """Write what functions compute by others that take less, where `fast_math` allows it."""
    return rewrite(closed, RELAXED_RULES) if config.fast_math else closed


def use_one_complex_dtype(closed: ClosedJaxpr) -> ClosedJaxpr:
    """Products and convolutions with a complex operand, or result, of operands of one dtype."""
    names = {r.pattern.name for r in COMPLEX_RULES}
    products = (e for e in closed.eqns if e.primitive.name in names)
    if not any(v.aval.dtype.kind == "c" for e in products for v in (*e.invars, *e.outvars)):
        return closed
    return rewrite(closed, COMPLEX_RULES)
