"""Functions whose products are computed in few bits."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

import amdjax.numpy as jnp
from amdjax.core.array import Array
from amdjax.core.config import config
from amdjax.core.dead_code import dce_jaxpr
from amdjax.core.jaxpr import ClosedJaxpr, eval_jaxpr
from amdjax.core.jaxpr_trace import trace_to_jaxpr
from amdjax.core.pytree import tree_leaves, tree_map, tree_structure, tree_unflatten
from amdjax.jit.api import jit
from amdjax.quantize.calibration import Observer, observers, with_progress
from amdjax.quantize.formats import (
    FORMATS,
    QuantizedArray,
    check_finite,
    format_of,
    quantize_array,
    scale_of,
    stored,
)
from amdjax.quantize.products import (
    bind,
    contracted_axes,
    group_axis,
    mean_axes,
    product_of_means,
    product_of_stored,
    quantized_product,
    weight_sums,
)
from amdjax.quantize.programs import (
    Given,
    Product,
    Program,
    as_call,
    avals_of,
    run,
    trace_program,
    weights_of,
)
from amdjax.quantize.recipes import Decision, Recipe, Rules, decide
from amdjax.quantize.report import Report, measure
from amdjax.transforms.vmap import vmap

__all__ = ["Quantized", "quantize"]


class Quantized:
    """A function whose products are computed in few bits; `quantize` makes it.

    Called as the function is, with `params` of its own in place of the function's.

    Args:
      f: the function.
      structure: the types of its parameters.
      decisions: for each product by name whether and how it is quantized.

    Attributes:
      params: a dict: `products`, for each quantized product its weight; `inputs`, scales of
        activations; `params`, the leaves of the function's parameters that are read besides.
    """

    def __init__(
        self, f: Callable[..., Any], structure: Any, decisions: dict[str, Decision]
    ) -> None:
        self._f, self._structure = f, structure
        self.decisions = decisions
        self.params: dict[str, Any] = {}
        self.means: dict[str, Means] = {}
        self._programs: dict[Any, Program] = {}
        self._compiled = jit(self._run)

    def __call__(self, params: Any, *inputs: Any, **named: Any) -> Any:
        """What the function gives, compiled."""
        if not isinstance(params, dict) or params.keys() != {"products", "inputs", "params"}:
            raise TypeError(
                "Quantized: params must be those of the quantized function, as its attribute "
                "`params` has them; `prepare` makes them of the function's own."
            )
        return self._compiled(params, *inputs, **named)

    def prepare(self, params: Any, inputs: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Parameters of the quantized function from those of the function.

        Args:
          params: a pytree as `quantize` was given, such as after more training.
          inputs: the scales of activations, by default as calibrated.

        Returns:
          What to call the quantized function with.

        Raises:
          TypeError: `params` differs in structure.
          ValueError: a weight is infinite or NaN.

        Example:
          >>> f = lambda w, x: x @ w
          >>> w, x = jnp.eye(2), jnp.array([[1.0, 2.0]])
          >>> q = quantize(f, w, mode="weights", inputs=x)
          >>> q(q.prepare(2 * w), x)
          Array([[2., 4.]], dtype=float32)
        """
        if tree_structure(params) != tree_structure(self._structure):
            raise TypeError("Quantized.prepare: params must have the structure of the function's.")
        program, _ = self._first
        leaves = [jnp.asarray(x) for x in tree_leaves(params)]
        padding = [None] * (len(program.block.closed.jaxpr.invars) - len(leaves))
        weighed = {
            d.product.name for d in self.decisions.values()
            if d.recipe is not None and d.product.weight is not None
        }  # fmt: skip
        weights = weights_of(program.block, [*leaves, *padding], weighed)
        scales = self.params["inputs"] if inputs is None else dict(inputs)
        products = {
            name: _prepared(self.decisions[name], value, scales, self.means.get(name))
            for name, value in weights.items()
        }
        by_name = dict(zip(program.leaves, leaves))
        everything = {"products": products, "inputs": scales, "params": by_name}
        _, read = self._traced(program, everything, self._first[1])
        kept = {name: by_name[name] for name in by_name if name in read}
        return {**everything, "params": kept}

    def report(self, params: Any, data: Iterable[Any], *, repeats: int = 3) -> Report:
        """What quantization costs and gains, product by product.

        Args:
          params: those of the function, not quantized.
          data: inputs as for calibration.
          repeats: how often time is taken.

        Returns:
          A `Report`, which prints as a table.

        Raises:
          ValueError: there is no data.

        Example:
          >>> f = lambda p, x: jnp.tanh(x @ p["a"]) @ p["b"]
          >>> p = {"a": jnp.eye(4), "b": jnp.ones((4, 2))}
          >>> x = jnp.linspace(-1, 1, 8).reshape(2, 4)
          >>> report = quantize(f, p, [x]).report(p, [x])
          >>> [row.name for row in report.rows], report.sqnr > 30
          (['a', 'b'], True)
        """
        return measure(self, self._f, params, data, repeats)

    def __repr__(self) -> str:
        done = sum(d.recipe is not None for d in self.decisions.values())
        return f"Quantized({done} of {len(self.decisions)} products)"

    # How it is computed

    _first: tuple[Program, Any]

    def program(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Program:
        """The function traced for inputs of given types."""
        avals, tree = avals_of((args, kwargs))
        key = (tuple(avals), tree, config.trace_key())
        if key not in self._programs:
            self._programs[key] = trace_program(self._f, self._structure, args, kwargs)
        return self._programs[key]

    def _run(self, params: Any, *args: Any, **kwargs: Any) -> Any:
        program = self.program(args, kwargs)
        closed, read = self._traced(program, params, (args, kwargs))
        for name in read:
            if name not in params["params"]:
                raise ValueError(
                    f"Quantized: inputs of these shapes read parameter {name!r} in another way "
                    "than those that it was quantized for. Quantize it for these."
                )
        leaves = tree_leaves((params["products"], params["inputs"], (args, kwargs)))
        own = [params["params"][name] for name in read]
        outs = eval_jaxpr(closed.jaxpr, closed.consts, *own, *leaves)
        return tree_unflatten(program.out_tree, outs)

    def _traced(self, program: Program, params: Any, inputs: Any) -> tuple[ClosedJaxpr, list[str]]:
        """The program with its products replaced, and which leaves of parameters it reads."""
        given, structure = avals_of((params["products"], params["inputs"], inputs))
        block = program.block
        count = len(program.leaves)

        def flat(*values: Any) -> list[Any]:
            products, scales, given_inputs = tree_unflatten(structure, values[count:])
            _check_weights(program, self.decisions, products)
            inputs = tree_leaves(given_inputs)
            return run(block, [*values[:count], *inputs], self.product, Given(products, scales))

        closed = trace_to_jaxpr(flat, [*block.closed.in_avals[:count], *given])
        keep = [False] * count + [True] * len(given)
        jaxpr, used = dce_jaxpr(closed.jaxpr, [True] * len(closed.out_avals), keep)
        read = [name for name, u in zip(program.leaves, used) if u]
        return ClosedJaxpr(jaxpr, closed.consts), read

    def product(self, product: Product, operands: Any, given: Given, notes: Any = None) -> Any:
        """The result of a product as decided."""
        decision = self.decisions.get(product.name)
        if decision is None or decision.recipe is None:
            return product.eqn.primitive.bind(*operands, **product.eqn.params)
        own = given.products.get(product.name) or {}
        return _computed(product, decision, operands, own, given.inputs)


def _check_weights(program: Program, decisions: Any, products: Mapping[str, Any]) -> None:
    for product in program.products:
        own = products.get(product.name)
        decision = decisions.get(product.name)
        wanted = decision is not None and decision.recipe is not None and product.weight is not None
        if wanted and own is None:
            raise ValueError(f"Quantized: params lack the weight of product {product.name!r}.")
        if own is None or product.weight is None:
            continue
        shape = tuple(own["weight"].shape)[len(product.rows) :]
        if shape != product.shapes[product.weight]:
            raise ValueError(
                f"Quantized: the weight of {product.name!r} has shape {shape}, but inputs of these "
                f"shapes need {product.shapes[product.weight]}."
            )


class Means(NamedTuple):
    """Of what a product reads besides its weight: means over calibration data.

    Attributes:
      exact: as it is.
      rounded: as its scale lets it be.
    """

    exact: Array
    rounded: Array


def _prepared(
    decision: Decision, weight: Array, scales: Mapping[str, Any], means: Means | None
) -> dict[str, Any]:
    """A weight in few bits, with what else its product needs."""
    product, recipe = decision.product, decision.recipe
    assert recipe is not None and product.weight is not None
    check_finite(f"quantize: the weight of {product.name!r}", weight)
    name = decision.inputs[1 - product.weight]
    scale = scales[name]["scale"] if means is not None and name is not None else None
    fn = lambda w, scale, means: _prepared_step(product, recipe, w, scale, means)
    for _ in product.rows:
        fn = vmap(fn)
    return fn(weight, scale, means)


def _prepared_step(
    product: Product, recipe: Recipe, weight: Array, scale: Array | None, means: Means | None
) -> dict[str, Any]:
    form, side = recipe.form, product.weight
    assert side is not None
    operation, params = product.operation, product.eqn.params
    if not form.is_scaled:
        return {"weight": weight.astype(form.dtype)}
    group = recipe.group or form.group
    if group:
        axis: Any = group_axis(operation, params, side)
    else:
        summed = contracted_axes(operation, params, side)
        axis = tuple(d for d in range(weight.ndim) if d not in summed)
        axis = axis if recipe.per_channel and axis else None
    q = quantize_array(weight, form, axis=axis, group=group, symmetric=recipe.of_weights)
    made: dict[str, Any] = {"weight": q}
    if recipe.mode != "weights" and not recipe.of_inputs:
        made["sums"] = weight_sums(operation, params, q, side)
    if means is not None and scale is not None:
        made["shift"] = _shift(product, weight.astype(np.float32), q, scale, means)
    return made


def _shift(product: Product, weight: Array, q: QuantizedArray, scale: Array, means: Means) -> Array:
    """What rounding takes from the mean of a result, in steps of its sums.

    The biased error of quantized networks and its correction: Nagel et al., Data-Free Quantization
    Through Weight Equalization and Bias Correction, 2019, with means from calibration data.
    """
    operation, params, side = product.operation, product.eqn.params, product.weight
    assert side is not None
    of = lambda means, w: product_of_means(operation, params, means, w, side)
    error = of(means.exact, weight) - of(means.rounded, q.dequantize().astype(np.float32))
    found = error / (q.scale.astype(np.float32) * scale)
    return jnp.round(found).astype(np.int32) if FORMATS[q.format].is_integer else found


def _computed(product: Product, decision: Decision, operands: Any, own: Any, scales: Any) -> Array:
    recipe, eqn = decision.recipe, product.eqn
    assert recipe is not None
    operation, params, form = product.operation, eqn.params, recipe.form
    dtype, side = np.dtype(eqn.outvars[0].aval.dtype), product.weight
    if not form.is_scaled:
        lhs, rhs = [
            own["weight"] if i == side else jnp.asarray(x).astype(form.dtype)
            for i, x in enumerate(operands)
        ]
        return bind(operation, params, lhs, rhs, np.float32).astype(dtype)
    if recipe.mode == "weights":
        assert side is not None
        x = jnp.asarray(operands[1 - side])
        return product_of_stored(operation, params, x, own["weight"], side, dtype)
    both = [
        own["weight"] if i == side else _activation(product, recipe, i, x, name, scales)
        for i, (x, name) in enumerate(zip(operands, decision.inputs))
    ]
    return quantized_product(
        operation, params, both[0], both[1], dtype, own.get("sums"), 1 if side is None else side,
        own.get("shift"),
    )  # fmt: skip


def _activation(
    product: Product, recipe: Recipe, side: int, x: Any, name: str | None, scales: Any
) -> QuantizedArray:
    """An activation in few bits, by calibrated scales or by its own."""
    x, form = jnp.asarray(x), recipe.form
    wide = x if x.dtype == np.float64 else x.astype(np.float32)
    if name is not None:
        scale, zero = scales[name]["scale"], scales[name].get("zero_point")
        ones = (1,) * x.ndim
        inverse = (1 / scale).reshape(ones)
        scale, zero = scale.reshape(ones), None if zero is None else zero.reshape(ones)
    else:
        summed: tuple[int, ...] = tuple(range(x.ndim))  # of a convolution one scale
        if product.operation == "dot_general":
            summed = contracted_axes(product.operation, product.eqn.params, side)
        low, high = (f(wide, summed, keepdims=True) for f in (jnp.min, jnp.max))
        scale, zero = scale_of(low, high, form, recipe.of_inputs)
        scale = scale.astype(np.float32)
        inverse = 1 / scale
    return stored(wide, scale, zero, form, recipe.of_inputs, str(x.dtype), inverse)


def _calls(data: Any, argument: str) -> Iterable[Any]:
    if isinstance(data, (Array, np.ndarray)) or not isinstance(data, Iterable):
        raise TypeError(
            f"quantize: {argument} must be an iterable of inputs, such as a list of batches, got "
            f"{type(data).__name__}."
        )
    return data


def quantize(
    f: Callable[..., Any], params: Any, calibration_data: Iterable[Any] | None = None, *,
    mode: str = "static", dtype: Any = "int8", per_channel: bool = True,
    symmetric: bool | None = None, group: int | None = None, calibration: Any = "minmax",
    bias_correction: bool = True, rules: Rules = None, exclude: Iterable[str] = (),
    inputs: Any = None, progress: bool | None = None,
) -> Quantized:  # fmt: skip
    """A function with the products of its parameters in few bits.

    Matrix products and convolutions one of whose operands follows from `params` alone are
    replaced, in bodies of loops and branches too. What is between them stays as it is.

    Args:
      f: `f(params, *inputs)`, a function that can be traced.
      params: its parameters, a pytree of arrays.
      calibration_data: an iterable of inputs: each a tuple of them, a dict of those with names, or
        a single one.
      mode: "static": activations have scales from calibration, and products are of integers (or of
        float8); "dynamic": scales are those of each call, one for each row of a matrix product;
        "weights": weights are stored in few bits and converted where they are used. Products in
        branches and loops other than `scan` are dynamic where others are static. For float16 and
        bfloat16, which need no scales, all modes are one: operands are rounded, sums are float32.
      dtype: a format of `FORMATS`: int8 and float8 for all modes, those of 4 and 16 bits for
        "weights".
      per_channel: whether each channel of a weight's result has a scale.
      symmetric: whether zeros are stored as 0; by default for weights but not for activations.
      group: how many neighbors of a weight, along what is summed, share a scale; about as many
        where it does not divide what is summed.
      calibration: "minmax", "percentile", "entropy", "mse", or a function that makes an observer.
      bias_correction: whether what rounding takes from the means of results, as calibration data
        has them, is added again to products with calibrated scales. It costs one more look at the
        data, and no time afterwards.
      rules: what to do with single products: a function of a `Product`, or a dict by names,
        patterns of names (`blocks/*`) or operations. Either says False (leave it), a dtype, a
        `Recipe`, None (the usual) or True (also where no operand is a weight).
      exclude: names or patterns of products to leave, as `report.worst(n)` gives them.
      inputs: example inputs, arrays or their `ShapeDtypeStruct`s, a tuple as above; where there is
        no calibration data.
      progress: whether calibration shows a bar; by default on terminals, where tqdm is installed.

    Returns:
      The quantized function with its parameters.

    Raises:
      TypeError: `calibration_data` is no iterable of inputs.
      ValueError: an unknown mode, dtype or calibration; no data; NaN in the data or in weights;
        names of no product.

        >>> f = lambda params, x: jnp.tanh(x @ params["w"])
        >>> params = {"w": jnp.array([[0.5, -1.0], [0.25, 2.0]])}
        >>> x = jnp.array([[1.0, 2.0], [-0.5, 0.1]])
        >>> q = quantize(f, params, [x])
        >>> q.params["products"]["w"]["weight"].values.dtype
        dtype('int8')
        >>> bool(jnp.abs(q(q.params, x) - f(params, x)).max() < 0.02)
        True
    """
    form = format_of("quantize", dtype)
    recipe = Recipe(mode, form.name, per_channel, symmetric, group)
    make = observers(calibration)
    data: Iterable[Any] | None = None
    if calibration_data is not None:
        data = _calls(calibration_data, "calibration_data")
        data = list(data) if isinstance(data, Iterator) and bias_correction else data
        items = iter(data)
        first = next(items, None)
        if first is None:
            raise ValueError("quantize: calibration_data must not be empty.")
        data = itertools.chain([first], items) if items is data else data
        example = as_call(first)
    elif inputs is not None:
        example = as_call(inputs)
    else:
        raise ValueError(
            f"quantize: calibration_data must be given for mode={mode!r}, or inputs for what needs "
            "no calibration."
        )
    structure = tree_map(lambda x: avals_of(x)[0][0], params)
    quantized = Quantized(f, structure, {})
    program = quantized.program(*example)
    quantized._first = program, example
    quantized.decisions = decide(program, recipe, rules, exclude)
    scales: dict[str, Any] = {}
    if any(any(d.inputs) for d in quantized.decisions.values()):
        if data is None:
            raise ValueError(f"quantize: calibration_data must be given for mode={mode!r}.")
        calibration_of = _Calibration(quantized, params)
        scales = calibration_of.scales(with_progress(data, "calibrating", progress), make)
        if bias_correction:
            again = with_progress(data, "means", progress)
            quantized.means = calibration_of.means(again, scales)
    quantized.params = quantized.prepare(params, scales)
    return quantized


# Calibration


class _Calibration:
    """What data makes of the values that products read.

    Args:
      quantized: the function, whose decisions are made.
      params: its parameters.
    """

    def __init__(self, quantized: Quantized, params: Any) -> None:
        self.quantized, self._leaves = quantized, tree_leaves(params)
        decisions = [d for d in quantized.decisions.values() if d.recipe is not None]
        #: Of each name of a scale the first product that reads the value, and which operand it is.
        self.readers: dict[str, tuple[Decision, int]] = {}
        for d in decisions:
            for side, name in enumerate(d.inputs):
                if name is not None:
                    self.readers.setdefault(name, (d, side))
        self._activations = jit(self._run)

    def _run(self, leaves: Any, args: Any, kwargs: Any) -> dict[str, Any]:
        program, found = self.quantized.program(args, kwargs), dict[str, Any]()

        def handle(product: Product, operands: Any, given: Given, notes: Any) -> Any:
            names = self.quantized.decisions[product.name].inputs
            if notes is not None:
                notes.update((n, x) for n, x in zip(names, operands) if n is not None)
            return product.eqn.primitive.bind(*operands, **product.eqn.params)

        run(program.block, [*leaves, *tree_leaves((args, kwargs))], handle, notes=found)
        return found

    def _values(self, data: Iterable[Any]) -> Iterator[tuple[str, np.ndarray]]:
        """Of each item of data the values by name: what is read in a loop has its steps first."""
        for i, item in enumerate(data):
            for name, x in self._activations(self._leaves, *as_call(item)).items():
                if not bool(jnp.isfinite(x).all()):
                    raise ValueError(
                        f"quantize: calibration_data must be finite: item {i} makes NaN or "
                        f"infinity in what product {name!r} reads."
                    )
                yield name, np.asarray(x)

    def _rows(self, name: str, x: np.ndarray) -> np.ndarray:
        """A value with the steps first that have scales of their own, then all others."""
        decision, side = self.readers[name]
        rows, ndim = decision.product.rows, len(decision.product.shapes[side])
        x = np.moveaxis(x, rows, range(len(rows)))
        return x.reshape(*x.shape[: len(rows)], -1, *x.shape[x.ndim - ndim :])

    def scales(self, data: Iterable[Any], make: Callable[[Any, bool], Observer]) -> dict[str, Any]:
        """The scales of activations."""
        seen: dict[str, dict[Any, Observer]] = {name: {} for name in self.readers}
        for name, x in self._values(data):
            x, recipe = self._rows(name, x), self.readers[name][0].recipe
            assert recipe is not None
            for at in np.ndindex(x.shape[: len(self.readers[name][0].product.rows)]):
                if at not in seen[name]:
                    seen[name][at] = make(recipe.form, recipe.of_inputs)
                seen[name][at].update(x[at])
        return {name: self._scale(name, found) for name, found in seen.items()}

    def _scale(self, name: str, seen: Mapping[Any, Observer]) -> dict[str, Any]:
        """A scale, or one for each row."""
        recipe, last = self.readers[name][0].recipe, max(seen)
        assert recipe is not None
        low, high = zip(*(observer.range() for _, observer in sorted(seen.items())))
        shape = tuple(n + 1 for n in last)
        low, high = (jnp.asarray(np.stack(x)).reshape(shape) for x in (low, high))
        scale, zero = scale_of(low, high, recipe.form, recipe.of_inputs)
        return {"scale": scale} if zero is None else {"scale": scale, "zero_point": zero}

    def means(self, data: Iterable[Any], scales: Mapping[str, Any]) -> dict[str, Means]:
        """Means of what products with a weight read, by name of the product."""
        weighed = [
            (d, name)
            for d in self.quantized.decisions.values()
            if d.recipe is not None and d.product.weight is not None
            if (name := d.inputs[1 - d.product.weight]) is not None
        ]
        sums: dict[str, list[Any]] = {d.product.name: [0.0, 0.0, 0] for d, _ in weighed}
        for name, x in self._values(data):
            x = self._rows(name, x).astype(np.float32)
            rounded = _rounded(x, scales[name], self.readers[name][0].recipe)
            for d in (d for d, own in weighed if own == name):
                means = [_mean(d.product, value) for value in (x, rounded)]
                count = x.size // means[0].size
                found = sums[d.product.name]
                parts = *(count * mean for mean in means), count
                sums[d.product.name] = [a + b for a, b in zip(found, parts)]
        return {
            name: Means(*(jnp.asarray(np.asarray(x / count, np.float32)) for x in found))
            for name, (*found, count) in sums.items() if count
        }  # fmt: skip


def _rounded(x: np.ndarray, scale: Mapping[str, Any], recipe: Recipe | None) -> np.ndarray:
    """What is stored of an activation, as the numbers that it stands for."""
    assert recipe is not None
    form, ndim = recipe.form, x.ndim
    of_each = lambda s: np.asarray(s, np.float32).reshape(*s.shape, *(1,) * (ndim - s.ndim))
    step, zero = of_each(scale["scale"]), scale.get("zero_point")
    if not form.is_integer:
        return (
            np.clip(x / step, form.lowest, form.highest).astype(form.dtype).astype(x.dtype) * step
        )
    start = np.float32(0) if zero is None else of_each(zero.astype(np.float32))
    lowest = -form.highest if recipe.of_inputs and form.lowest < 0 else form.lowest
    return (np.clip(np.round(x / step) + start, lowest, form.highest) - start) * step


def _mean(product: Product, x: np.ndarray) -> np.ndarray:
    """The mean that `product_of_means` takes, of an operand behind rows and samples of it."""
    assert product.weight is not None
    rows = len(product.rows)
    ndim = x.ndim - rows - 1
    axes = mean_axes(product.operation, product.eqn.params, 1 - product.weight, ndim)
    x = x.mean(rows, dtype=np.float64)
    return x.mean(tuple(rows + d for d in axes), keepdims=True, dtype=np.float64)
