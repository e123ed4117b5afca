"""What quantization costs: signal-to-quantization-noise ratios of products and of the model."""

from __future__ import annotations

import dataclasses
import importlib
import io
import math
import time
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import numpy as np

import amdjax.numpy as jnp
from amdjax.core import dtypes
from amdjax.core.array import Array
from amdjax.core.pytree import tree_leaves
from amdjax.jit.api import jit
from amdjax.quantize.programs import Given, Product, Program, as_call, run
from amdjax.quantize.recipes import Decision
from amdjax.transforms.staging import block_until_ready

__all__ = ["Report", "Row", "sqnr"]


def sqnr(exact: Any, approximate: Any) -> float:
    """The ratio of a signal to the noise that an approximation adds, in decibels.

    Args:
      exact: array of real numbers.
      approximate: array of its shape.

    Returns:
      `10 log10(sum(exact**2) / sum((exact - approximate)**2))`; infinity if they are equal.

        >>> round(sqnr(np.array([1.0, 2.0]), np.array([1.1, 2.0])), 2)
        26.99
    """
    x, y = np.asarray(exact, np.float64), np.asarray(approximate, np.float64)
    return _decibel(float(np.sum(x * x)), float(np.sum((x - y) ** 2)))


def _decibel(signal: float, noise: float) -> float:
    if not noise:
        return math.inf
    return 10 * math.log10(signal / noise) if signal and noise < math.inf else -math.inf


@dataclasses.dataclass(frozen=True)
class Row:
    """What quantization does to a product.

    Args:
      name: of the product.
      operation: what it is.
      recipe: how it is quantized, in words; "" if it is not.
      own: SQNR of its result in dB, all others in float; NaN in loops and branches.
      alone: SQNR of the function's results in dB if it is the only one that is quantized.
      accumulated: SQNR of its result in dB if all are quantized; NaN in loops and branches.
      bytes_before: of its weight.
      bytes_after: of its weight with scales.
    """

    name: str
    operation: str
    recipe: str
    own: float
    alone: float
    accumulated: float
    bytes_before: int
    bytes_after: int


@dataclasses.dataclass(frozen=True)
class Report:
    """What quantization costs and gains; `print` shows it as a table.

    Args:
      rows: one for each product.
      sqnr: of the function's results, in dB.
      error: the largest difference of a result.
      bytes_before: of all parameters.
      bytes_after: of those of the quantized function.
      seconds_before: least time of a call.
      seconds_after: that of the quantized function.

        >>> report = Report((), 40.0, 0.01, 400, 100, 1e-3, 5e-4)
        >>> print(report)
        results: 40.0 dB, largest error 0.01; 400 B -> 100 B (4.0x); 1 ms -> 0.5 ms (2.00x)
    """

    rows: tuple[Row, ...]
    sqnr: float
    error: float
    bytes_before: int
    bytes_after: int
    seconds_before: float
    seconds_after: float

    def worst(self, n: int = 1) -> list[str]:
        """The products that hurt the results most, for `exclude`.

        Args:
          n: how many.

        Returns:
          Their names, the worst first.

        Raises:
          ValueError: `n` is negative.

        Example:
          >>> rows = [Row(x, "dot_general", "int8", 40, db, 40, 4, 1) for x, db in
          ...         (("a", 50.0), ("b", 20.0))]
          >>> Report(tuple(rows), 20.0, 0.1, 8, 2, 1.0, 1.0).worst()
          ['b']
        """
        if n < 0:
            raise ValueError(f"worst: n must not be negative, got {n}.")
        done = [r for r in self.rows if r.recipe]
        return [r.name for r in sorted(done, key=lambda r: r.alone)[:n]]

    def as_dict(self) -> dict[str, Any]:
        """The report as plain data, for JSON.

        Returns:
          A dict of numbers, strings, and a list of rows.

        Example:
          >>> Report((), 40.0, 0.01, 400, 100, 1e-3, 5e-4).as_dict()["sqnr"]
          40.0
        """
        return dataclasses.asdict(self)

    def table(self) -> str:
        """The report as text: a table by rich where it is installed.

        Returns:
          Lines.

        Example:
          >>> Report((), 40.0, 0.01, 400, 100, 1e-3, 5e-4).table().startswith("results: 40.0 dB")
          True
        """
        lines = [_table(self.rows)] if self.rows else []
        return "\n".join([*lines, self._summary()])

    __str__ = table

    def _summary(self) -> str:
        smaller = self.bytes_before / max(self.bytes_after, 1)
        faster = self.seconds_before / max(self.seconds_after, 1e-12)
        return (
            f"results: {self.sqnr:.1f} dB, largest error {self.error:.3g}; "
            f"{_size(self.bytes_before)} -> {_size(self.bytes_after)} ({smaller:.1f}x); "
            f"{self.seconds_before * 1e3:.3g} ms -> {self.seconds_after * 1e3:.3g} ms "
            f"({faster:.2f}x)"
        )


HEADINGS = ("product", "operation", "as", "own dB", "alone dB", "all dB", "bytes", "after")


def _size(count: int) -> str:
    for unit, step in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= step:
            return f"{count / step:.1f} {unit}"
    return f"{count} B"


def _cells(row: Row) -> list[str]:
    ratios = ["-" if math.isnan(x) else f"{x:.1f}" for x in (row.own, row.alone, row.accumulated)]
    sizes = [_size(row.bytes_before), _size(row.bytes_after)]
    return [row.name, row.operation, row.recipe or "-", *ratios, *sizes]


def _table(rows: Iterable[Row]) -> str:
    cells = [_cells(row) for row in rows]
    try:
        table_of = importlib.import_module("rich.table").Table
        console_of = importlib.import_module("rich.console").Console
    except ImportError:
        return _plain([list(HEADINGS), *cells])
    table = table_of(*HEADINGS)
    for row in cells:
        table.add_row(*row)
    text = io.StringIO()
    console_of(file=text, width=140).print(table)
    return text.getvalue().rstrip("\n")


def _plain(cells: list[list[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*cells)]
    lines = ["  ".join(x.ljust(w) for x, w in zip(row, widths)).rstrip() for row in cells]
    return "\n".join(lines)


# Measuring


class Measured(Protocol):
    """What is measured: a function whose products are known, and computed in few bits."""

    params: dict[str, Any]
    decisions: dict[str, Decision]

    def __call__(self, params: Any, *inputs: Any, **named: Any) -> Any:
        """What the quantized function gives."""

    def program(self, args: Any, kwargs: Any) -> Program:
        """The function traced for inputs."""

    def product(self, product: Product, operands: Any, given: Given, notes: Any = None) -> Any:
        """A product in few bits."""


@dataclasses.dataclass
class _Sums:
    """Sums of squares over the data."""

    own: np.ndarray  # signal and noise of each product
    accumulated: np.ndarray
    alone: np.ndarray  # of the results
    result: np.ndarray
    error: float = 0.0


def measure(
    quantized: Measured, f: Callable[..., Any], params: Any, data: Iterable[Any], repeats: int
) -> Report:
    """See `Quantized.report`."""
    names = list(quantized.decisions)
    done = [n for n in names if quantized.decisions[n].recipe is not None]
    own_sums, all_sums, alone = (np.zeros((len(names), 2)) for _ in range(3))
    sums = _Sums(own_sums, all_sums, alone, np.zeros(2))
    compared, masked = _programs(quantized, names)
    calls = [as_call(item) for item in data]
    if not calls:
        raise ValueError("report: data must not be empty.")
    leaves = [jnp.asarray(x) for x in tree_leaves(params)]
    for args, kwargs in calls:
        own, accumulated, result, error = compared(leaves, quantized.params, args, kwargs)
        for name, pair in own.items():
            sums.own[names.index(name)] += np.asarray(pair, np.float64)
        for name, pair in accumulated.items():
            sums.accumulated[names.index(name)] += np.asarray(pair, np.float64)
        sums.result += np.asarray(result, np.float64)
        sums.error = max(sums.error, float(error))
        for name in done:
            chosen = {n: np.bool_(n == name) for n in done}
            pair = masked(leaves, quantized.params, chosen, args, kwargs)
            sums.alone[names.index(name)] += np.asarray(pair, np.float64)
    before = _seconds(jit(f), (params, *calls[0][0]), calls[0][1], repeats)
    after = _seconds(quantized, (quantized.params, *calls[0][0]), calls[0][1], repeats)
    rows = [_row(quantized, name, i, sums) for i, name in enumerate(names)]
    sizes = [sum(x.nbytes for x in tree_leaves(tree)) for tree in (leaves, quantized.params)]
    total = _decibel(*map(float, sums.result))
    return Report(tuple(rows), total, sums.error, sizes[0], sizes[1], before, after)


def _row(quantized: Measured, name: str, i: int, sums: _Sums) -> Row:
    decision = quantized.decisions[name]
    product, recipe = decision.product, decision.recipe
    weight = quantized.params["products"].get(name)
    aval = None if product.weight is None else product.eqn.invars[product.weight].aval
    bytes_before = 0 if aval is None else int(aval.size) * aval.dtype.itemsize
    after = bytes_before if weight is None else sum(x.nbytes for x in tree_leaves(weight))
    said = f"{recipe.dtype} {recipe.mode}" if recipe else ""
    hidden = product.nested or recipe is None
    own, accumulated = (
        math.nan if hidden else _decibel(*pair[i]) for pair in (sums.own, sums.accumulated)
    )
    alone = math.nan if recipe is None else _decibel(*sums.alone[i])
    return Row(name, product.operation, said, own, alone, accumulated, bytes_before, after)


def _squares(exact: Array, approximate: Array) -> Array:
    """The sums of squares of a signal and of its noise."""
    x, y = (a.astype(np.float32) for a in (exact, approximate))
    return jnp.stack([jnp.sum(x * x), jnp.sum((x - y) ** 2)])


def _results(exact: Any, approximate: Any) -> tuple[Array, Array]:
    """Of all floats among results: the sums of squares, and the largest difference."""
    pairs = [(x, y) for x, y in zip(exact, approximate) if dtypes.issubdtype(x.dtype, np.floating)]
    squares = sum((_squares(x, y) for x, y in pairs), jnp.zeros(2, np.float32))
    largest = [jnp.max(jnp.abs(x - y)).astype(np.float32) for x, y in pairs if x.size]
    return squares, jnp.max(jnp.stack([*largest, jnp.float32(0)]))


def _programs(quantized: Measured, names: list[str]) -> tuple[Any, Any]:
    """The function and the quantized one side by side; and with some products quantized."""

    def exactly(product: Product, operands: Any) -> Any:
        return product.eqn.primitive.bind(*operands, **product.eqn.params)

    @jit
    def compared(leaves: Any, params: Any, args: Any, kwargs: Any) -> Any:
        program = quantized.program(args, kwargs)
        values = [*leaves, *tree_leaves((args, kwargs))]
        exact: dict[str, Any] = {}
        own: dict[str, Any] = {}
        accumulated: dict[str, Any] = {}

        def in_float(product: Product, operands: Any, given: Given, notes: Any) -> Any:
            y = exactly(product, operands)
            if not product.nested and quantized.decisions[product.name].recipe is not None:
                rounded = quantized.product(product, operands, given)
                exact[product.name], own[product.name] = y, _squares(y, rounded)
            return y

        def in_few_bits(product: Product, operands: Any, given: Given, notes: Any) -> Any:
            y = quantized.product(product, operands, given)
            if product.name in exact:
                accumulated[product.name] = _squares(exact[product.name], y)
            return y

        stored = Given(params["products"], params["inputs"])
        wanted = run(program.block, values, in_float, stored)
        found = run(program.block, values, in_few_bits, stored)
        return own, accumulated, *_results(wanted, found)

    @jit
    def masked(leaves: Any, params: Any, chosen: Any, args: Any, kwargs: Any) -> Any:
        program = quantized.program(args, kwargs)
        values = [*leaves, *tree_leaves((args, kwargs))]

        def some(product: Product, operands: Any, given: Given, notes: Any) -> Any:
            y = exactly(product, operands)
            if product.name not in chosen:
                return y
            rounded = quantized.product(product, operands, given)
            return jnp.where(chosen[product.name], rounded, y)

        exact = lambda product, operands, given, notes: exactly(product, operands)
        wanted = run(program.block, values, exact)
        found = run(program.block, values, some, Given(params["products"], params["inputs"]))
        return _results(wanted, found)[0]

    return compared, masked


def _seconds(f: Callable[..., Any], args: Any, kwargs: Any, repeats: int) -> float:
    """The least time of a call, compiled before."""
    tree_leaves(f(*args, **kwargs))
    times = []
    for _ in range(max(repeats, 1)):
        start = time.perf_counter()
        block_until_ready(f(*args, **kwargs))
        times.append(time.perf_counter() - start)
    return min(times)
