"""Written attention arranged as operands and results of the attention primitives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from amdjax.core.jaxpr import Var
from amdjax.core.primitive import Primitive
from amdjax.passes.attention.axes import Axis, Layout, extent, flat, whole
from amdjax.passes.attention.groups import Group, Groups, by_group, combined, groups_of, placed
from amdjax.passes.attention.logits import Distance, Logits, Placed, scaled
from amdjax.passes.attention.program import Atom, Program
from amdjax.passes.attention.weights import (
    SLOPES,
    WEIGHTS,
    Polynomial,
    Product,
    Weights,
    closeness,
    factor_of,
    same_value,
)
from amdjax.transforms import ops

#: Greater than what attention gives as the greatest logit of no keys, less than any other.
LEAST = -1e38


@dataclass
class Call:
    """What attention takes and gives in place of what was written.

    Args:
      forward: a function of `forward_operands`, which returns result, greatest logits and sums,
        then what replaces `forward_results`.
      backward: a function of `backward_operands` and the first three of those, which returns what
        replaces `backward_results`.
    """

    forward: Callable[..., list[Any]]
    forward_operands: list[Atom]
    forward_results: list[Var]
    backward: Callable[..., list[Any]]
    backward_operands: list[Atom]
    backward_results: list[Var]


def arranged(
    program: Program, logits: Logits, weights: Weights, layout: Layout, keys: Group
) -> Call | None:
    """The call of an attention, None where its axes do not fit.

    Keys and values that are repeated for several heads are read as they were before, unless their
    gradient is wanted of each.
    """
    is_differentiated = bool(weights.gradients) or not all(
        _is_forward(p, keys) for p in weights.products
    )
    for through in (True, False)[is_differentiated:]:

        def root(x: Placed, through: bool = through) -> Placed:
            return Placed(*program.root(x.atom, x.layout, through_broadcasts=through))

        assert weights.values is not None
        operands = [root(logits.query), root(logits.key), root(weights.values)]
        if not is_differentiated:
            logits = _with_factors(program, logits, operands, root)
        groups = groups_of(logits, operands, flat(layout), whole(keys))
        if groups is not None:
            return _Arrangement(program, logits, weights, layout, groups, operands).call()
    return None


def _with_factors(
    program: Program, logits: Logits, operands: list[Placed], root: Callable[[Placed], Placed]
) -> Logits:
    """Logits whose scale has what queries and keys are multiplied by, which are read before that.

    Exporters write a part of the scale to either, behind the transposition of heads.
    """
    for i in (0, 1):
        while (eqn := program.maker(operands[i].atom, "mul", "div")) is not None:
            found = scaled(program, eqn)
            if found is None or found[0].aval.shape != eqn.outvars[0].aval.shape:
                break
            operands[i] = root(Placed(found[0], operands[i].layout))
            logits = replace(logits, scale=logits.scale * found[1])
    return logits


def _is_forward(product: Product, keys: Group) -> bool:
    return product.summed == set(whole(keys)) and not any(
        m[1] or m[3] for m in product.known.polynomial
    )


@dataclass(frozen=True)
class Replaced:
    """A value that a result of attention replaces.

    Args:
      which: the result, of those of the forward or of the backward primitive.
      factor: of the result.
      to: the value.
    """

    which: int
    factor: float
    to: Placed


def _along(groups: Sequence[Group], x: Replaced, names: dict[Axis, Axis] | None) -> Replaced | None:
    """What is replaced, if it has the axes of the result; `names` are those of its own."""
    if names is None:
        return None
    to = x.to.renamed(names)
    return replace(x, to=to) if set(to.axes) == {a for g in groups for a in whole(g)} else None


def _filled(x: Any, where: Any, places: tuple[int, ...], number: float = np.nan) -> Any:
    """`x` with a number where a condition holds, which has the dimensions `places`."""
    where = ops.broadcast_in_dim(where, x.aval.shape, places)
    return ops.select(where, ops.full(x.aval.shape, number, x.aval.dtype), x)


class _Arrangement:
    """Builds the call for axes that were divided."""

    def __init__(
        self, program: Program, logits: Logits, weights: Weights, layout: Layout, groups: Groups,
        operands: Sequence[Placed],
    ):  # fmt: skip
        self.layout = layout
        self.program, self.weights, self.groups = program, weights, groups
        self.operands = list(operands)
        self.scale = logits.scale
        self.narrowest = min(logits.narrowest, weights.narrowest)
        precisions = weights.precisions | {logits.precision}
        #: Of all products; where they differ float32, which is as good as any.
        self.precision = next(iter(precisions)) if len(precisions) == 1 else None
        self.biases, self.distances = logits.biases, [d for d, _ in logits.distances]
        self.conditions = list(logits.conditions)
        if not all(self._is_of_positions(d) for d in self.distances):
            self.conditions += [c for _, c in logits.distances]
            self.distances = []
        # Where a row may have no key at all, minus infinity makes it NaN.
        self.may_lack_keys = not self._always_has_keys()
        self.is_infinite = logits.fill == -np.inf and (bool(self.biases) or self.may_lack_keys)

    def _is_of_positions(self, distance: Distance) -> bool:
        return {(distance.first,), (distance.second,)} == {
            whole(self.groups.queries), whole(self.groups.keys)
        }  # fmt: skip

    @property
    def window(self) -> tuple[int | None, int | None]:
        """How many keys before and behind the place of a query take part; None: all."""
        (query,) = whole(self.groups.queries) if self.distances else (None,)
        left = [-d.least for d in self.distances if d.first is not query]
        right = [-d.least for d in self.distances if d.first is query]
        return min(left, default=None), min(right, default=None)

    def _always_has_keys(self) -> bool:
        """Whether each query has a key that takes part."""
        if self.conditions or not self.distances:
            return not self.conditions
        left, right = self.window
        queries, keys = extent(self.groups.queries), extent(self.groups.keys)
        if right is not None and (right < 0 or (left is not None and -left > right)):
            return False
        return left is None or queries - left <= keys

    def _is_kernels_choice(self) -> bool:
        """Whether kernels make of queries without keys what is written.

        They give them equal weights, and logits no gradient.
        """
        has_slopes = any(x.which != 2 for x in self.replaced_backward)
        return not self.weights.is_zeroed and (not has_slopes or self.weights.is_chosen_fully)

    def call(self) -> Call | None:
        """The call; None where dtypes or results do not fit."""
        replaced = self._replaced()
        if replaced is None:
            return None
        self.replaced_forward, self.replaced_backward = replaced
        if self.weights.is_nan_zeroed and self.replaced_backward:
            return None  # gradients choose by what is NaN as well
        if self.may_lack_keys and not self._is_kernels_choice():
            return None
        if not self._choose_dtype():
            return None
        shared = [x.atom for x in self.operands]
        shared += [x.atom for _, x in self.biases] + [c.value.atom for c in self.conditions]
        backward = [*shared]
        if self.replaced_backward:
            assert self.cotangent is not None
            backward.append(self.cotangent.atom)
        return Call(
            self._forward, shared, [x.to.atom for x in self.replaced_forward],
            self._backward, backward, [x.to.atom for x in self.replaced_backward],
        )  # fmt: skip

    # What becomes of weights

    def _replaced(self) -> tuple[list[Replaced], list[Replaced]] | None:
        """What is replaced, forward and backward; None where some is not what attention has."""
        self.cotangent = self.weights.cotangent
        forward, backward = list[Replaced](), list[Replaced]()
        for p in self.weights.products:
            found = self._of_product(p)
            if found is None:
                return None
            (forward if _is_forward(p, self.groups.keys) else backward).append(found)
        for polynomial, to in self.weights.gradients:
            found = self._of_bias(polynomial, to)
            if found is None:
                return None
            backward.append(found)
        return None if backward and self.cotangent is None else (forward, backward)

    def _of_product(self, p: Product) -> Replaced | None:
        g = self.groups
        over_keys = p.summed == set(whole(g.keys))
        over_queries = p.summed == {*whole(g.queries), *whole(g.shared)}
        weight = factor_of(p.known.polynomial, WEIGHTS, self.weights.close)
        slope = factor_of(p.known.polynomial, SLOPES, self.weights.close)
        if weight is not None and over_keys:
            return _along(g.out, Replaced(0, weight, p.result), {})
        if weight is not None and over_queries:
            self.cotangent = self.cotangent or self._as_result(p.other)
            if self.cotangent is None:
                return None
            names = same_value(self.program, p.other, self.cotangent, flat(self.layout))
            return _along(g.value, Replaced(2, weight, p.result), names)
        if slope is None or not (over_keys or over_queries):
            return None
        which, groups = (0, g.query) if over_keys else (1, g.key)
        names = same_value(self.program, p.other, self.operands[1 - which], flat(self.layout))
        return _along(groups, Replaced(which, slope / self.scale, p.result), names)

    def _as_result(self, cotangent: Placed) -> Placed | None:
        """A cotangent that only gradients of values read, whose features are in its own order."""
        own = [a for a in cotangent.axes if a not in flat(self.layout)]
        features = whole(self.groups.value_features)
        if [a.size for a in own] != [a.size for a in features]:
            return None
        return cotangent.renamed(dict(zip(own, features, strict=True)))

    def _of_bias(self, polynomial: Polynomial, to: Placed) -> Replaced | None:
        slope = factor_of(polynomial, SLOPES, self.weights.close)
        if slope is None or len(self.biases) != 1 or self.is_infinite:
            return None
        return _along(self._bias_groups, Replaced(3, slope, to), {})

    @property
    def _bias_groups(self) -> tuple[Group, ...]:
        """Those of the only bias, without those along which it is broadcast."""
        axes = set(self.biases[0][1].axes)
        return tuple(whole(g) if axes & set(whole(g)) else () for g in self.groups.pairs)

    def _choose_dtype(self) -> bool:
        """The dtype of operands: one that holds theirs, and results."""
        results = [x.to.atom.aval.dtype for x in self.replaced_forward]
        found = {x.atom.aval.dtype for x in self.operands} | set(results)
        names = {d.name for d in found}
        if not names <= {"bfloat16", "float16", "float32", "float64"}:
            return False
        fewest = min(d.itemsize for d in found)
        if len(names) > 1:
            found = {np.dtype(np.float64 if "float64" in names else np.float32)}
        (self.dtype,) = found
        if self.narrowest < fewest:  # asked for by a conversion
            return False
        self.wide = np.dtype(np.float64 if self.dtype == np.float64 else np.float32)
        return True

    # The functions

    def _inputs(self, xs: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
        """Operands of attention, and its parameters."""
        g, count = self.groups, len(self.biases)
        places = zip(self.operands, (g.query, g.key, g.value), strict=True)
        args = [
            ops.convert(by_group(x, p.layout, axes), self.dtype)
            for x, (p, axes) in zip(xs, places, strict=False)
        ]
        biases = [
            self._scaled(by_group(x, p.layout, g.pairs), factor)
            for x, (factor, p) in zip(xs[3:], self.biases, strict=False)
        ]
        masks = []
        for x, c in zip(xs[3 + count :], self.conditions, strict=False):
            x = by_group(x, c.value.layout, g.pairs)
            masks.append(x if c.is_kept else Primitive.by_name["not"].bind(x))
        bias, mask = combined(biases, "add"), combined(masks, "and")
        if bias is not None and self.is_infinite:
            bias = self._above_masked(bias)
        optional = {"bias": bias, "mask": mask}
        given = tuple(name for name, x in optional.items() if x is not None)
        left, right = self.window
        most = extent(g.queries) + extent(g.keys)
        window = None
        if left is not None or right not in (None, 0):
            window = (most if left is None else left, most if right is None else right)
        params = {
            "given": given, "scale": self.scale, "is_causal": right == 0 and window is None,
            "window": window, "rate": 0.0,
        }  # fmt: skip
        if self.precision is not None and self.dtype == np.float32:
            params["precision"] = self.precision
        return [*args, *(optional[name] for name in given)], params

    def _above_masked(self, bias: Any) -> Any:
        """A bias, infinite or great enough that what is masked is less."""
        bias = ops.convert(bias, self.wide)
        infinite, least = (ops.full(bias.aval.shape, x, self.wide) for x in (-np.inf, LEAST / 10))
        is_infinite = Primitive.by_name["eq"].bind(bias, infinite)
        return ops.select(is_infinite, bias, Primitive.by_name["max"].bind(bias, least))

    def _lacks_keys(self, maximum: Any) -> Any:
        """Which queries have no key, of their greatest logits."""
        least = ops.full(maximum.aval.shape, LEAST, maximum.aval.dtype)
        return Primitive.by_name["le"].bind(maximum, least)

    def _has_no_weights(self, maximum: Any, total: Any) -> Any:
        """Which queries have NaN for weights, as they are written."""
        zero = ops.full(total.aval.shape, 0, total.aval.dtype)
        empty = Primitive.by_name["not"].bind(Primitive.by_name["gt"].bind(total, zero))
        if self.is_infinite:
            empty = Primitive.by_name["or"].bind(empty, self._lacks_keys(maximum))
        return empty

    def _of_lacking_queries(self, d_value: Any, maximum: Any) -> Any:
        """The gradient of values, NaN where one of their queries has NaN for weights."""
        b, heads, queries = maximum.aval.shape
        group = extent(self.groups.shared)
        lacking = ops.reshape(self._lacks_keys(maximum), (b, heads // group, group, queries))
        return _filled(d_value, Primitive.by_name["reduce_or"].bind(lacking, axes=(2, 3)), (0, 2))

    def _scaled(self, x: Any, factor: float) -> Any:
        if abs(factor - 1) <= closeness(self.wide):
            return x
        x = ops.convert(x, self.wide)
        return ops.mul(x, ops.full(x.aval.shape, factor, x.aval.dtype))

    def _forward(self, *xs: Any) -> list[Any]:
        args, params = self._inputs(xs)
        outs = Primitive.by_name["attention"].bind(*args, **params)
        found, maximum, total = outs
        if self.is_infinite:
            found = _filled(found, ops.transpose(self._lacks_keys(maximum), (0, 2, 1)), (0, 1, 2))
        if self.weights.is_nan_zeroed:
            empty = ops.transpose(self._has_no_weights(maximum, total), (0, 2, 1))
            found = _filled(found, empty, (0, 1, 2), 0.0)
        results = [
            placed(self._scaled(found, x.factor), self.groups.out, x.to)
            for x in self.replaced_forward
        ]
        return [*outs, *results]

    def _backward(self, *xs: Any) -> list[Any]:
        *xs, ct, out, maximum, total = xs  # type: ignore[assignment]
        args, params = self._inputs(xs)
        g = self.groups
        assert self.cotangent is not None
        ct = ops.convert(by_group(ct, self.cotangent.layout, g.out), self.dtype)
        ct = ops.broadcast_in_dim(ct, tuple(map(extent, g.out)), (0, 1, 2, 3))
        delta = ops.reduce_sum(
            ops.mul(ops.convert(ct, self.wide), ops.convert(out, self.wide)), (3,)
        )
        delta = ops.transpose(delta, (0, 2, 1))
        wants_bias = any(x.which == 3 for x in self.replaced_backward)
        found = Primitive.by_name["attention_gradient"].bind(
            *args, maximum, total, delta, ct, bias_gradient=wants_bias, **params
        )
        if self.is_infinite:
            found[2] = self._of_lacking_queries(found[2], maximum)
        groups = g.query, g.key, g.value, self._bias_groups if wants_bias else ()
        return [
            placed(self._scaled(found[x.which], x.factor), groups[x.which], x.to)
            for x in self.replaced_backward
        ]
