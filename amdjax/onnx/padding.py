"""Selections padded to a bound, so that a detector is one program with its suppression.

What follows from a padded selection carries how many of its rows there are, the first ones. Rows
are computed like any others where an operator treats them apart; where it mixes them, those that
are padding are made such that they change nothing, or the operator is refused.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from amdjax import numpy as jnp
from amdjax.core import dtypes
from amdjax.export.values import Value

from .errors import OnnxError
from .graph import Graph, Node, walk
from .registry import is_host

_SELECTIONS = ("NonMaxSuppression",)


def with_padded_selections(graph: Graph) -> Graph:
    """A graph whose suppressions give all rows that there may be, and outputs that count them.

    Raises:
      OnnxError: a suppression is in a subgraph.
    """
    nodes, counts = [], []
    for node in graph.nodes:
        if any(inner.op in _SELECTIONS for g in node.graphs for inner in walk(g)):
            raise OnnxError(f"padded: node {node.name!r} ({node.op}) has a suppression inside")
        if node.op in _SELECTIONS and not node.domain:
            count = f"{node.outputs[0]}.count"
            counts.append(Value(count, np.dtype(np.int64), ()))
            node = dataclasses.replace(node, outputs=(node.outputs[0], count))
        nodes.append(node)
    outputs = (*graph.outputs, *counts)
    return dataclasses.replace(graph, nodes=tuple(nodes), outputs=outputs)


def has_padded_selections(graph: Graph) -> bool:
    """Whether a graph is one that `with_padded_selections` made."""
    return any(n.op in _SELECTIONS and len(n.outputs) > 1 for n in graph.nodes)


@dataclasses.dataclass(frozen=True, eq=False)
class Padded:
    """An array of rows that were selected, with padding behind them.

    Attributes:
      value: the array.
      axis: that of the rows.
      count: how many were selected; an array of fewer rows holds the first of these.
    """

    value: Any
    axis: int
    count: Any

    @property
    def shape(self) -> tuple[Any, ...]:
        """Of the array."""
        return tuple(self.value.shape)

    @property
    def dtype(self) -> Any:
        """Of the array."""
        return self.value.dtype

    @property
    def ndim(self) -> int:
        """Of the array."""
        return len(self.shape)

    def filled(self, kind: str) -> Any:
        """The array with the least, the greatest or 0 for padding."""
        rows = jnp.arange(self.shape[self.axis]).reshape(-1, *(1,) * (self.ndim - 1 - self.axis))
        return jnp.where(rows < self.count, self.value, _filling(self.dtype, kind))

    def index(self, at: Any) -> Any:
        """Places among rows, where those that count from the end do so from the last selected."""
        at = jnp.asarray(at)
        return jnp.where(at < 0, at + jnp.asarray(self.count).astype(at.dtype), at)


@dataclasses.dataclass(frozen=True, eq=False)
class Sizes:
    """Sizes of padded arrays, known numbers of which some count rows with their padding.

    Attributes:
      value: the numbers.
      counts: which of them do.
    """

    value: np.ndarray
    counts: np.ndarray


def plain(value: Any) -> Any:
    """The array alone."""
    return value.value if isinstance(value, (Padded, Sizes)) else value


def _filling(dtype: Any, kind: str) -> np.ndarray:
    if kind not in ("least", "greatest"):
        return np.asarray(kind).astype(dtype)
    if dtypes.issubdtype(dtype, np.bool_):
        return np.asarray(kind == "greatest")
    if dtypes.issubdtype(dtype, np.floating):
        return np.asarray(-np.inf if kind == "least" else np.inf).astype(dtype)
    info = np.iinfo(dtype)
    return np.asarray(info.min if kind == "least" else info.max, dtype)


class _Applied(NamedTuple):
    """An operator that is applied to padded arrays.

    Attributes:
      node: the operator.
      inputs: its operands.
      attributes: by name.
      run: its outputs of operands that are plain.
    """

    node: Node
    inputs: list[Any]
    attributes: dict[str, Any]
    run: Callable[[list[Any]], Sequence[Any]]

    def axis(self, default: int, rank: int) -> int:
        """Its attribute `axis`, counted from the front."""
        return int(self.attributes.get("axis", default)) % rank

    def axes(self, at: int) -> list[int] | None:
        """Its axes, an attribute or the operand `at`, which must be known; None where left out."""
        given = self.attributes.get("axes", self.inputs[at] if len(self.inputs) > at else None)
        return None if given is None else [int(a) for a in np.ravel(given)]

    def made(self, *inputs: Any) -> Sequence[Any]:
        """Its outputs of these operands, and of the others as they are."""
        return self.run([plain(x) for x in (*inputs, *self.inputs[len(inputs) :])])

    def rows(self, axis: int, *inputs: Any) -> list[Any]:
        """Its outputs of these operands, whose rows are on an axis."""
        return [Padded(y, axis, self.count) for y in self.made(*inputs)]

    @property
    def count(self) -> Any:
        """How many rows there are."""
        return next(x.count for x in self.inputs if isinstance(x, Padded))


def padded_outputs(
    node: Node, inputs: list[Any], attributes: dict[str, Any],
    run: Callable[[list[Any]], Sequence[Any]],
) -> Sequence[Any]:  # fmt: skip
    """The outputs of an operator, of which some operands are padded.

    Raises:
      OnnxError: it may mix rows with padding.
    """
    applied = _Applied(node, inputs, attributes, run)
    counts = {id(x.count) for x in inputs if isinstance(x, Padded)}
    rule = _of_sizes if not counts else _RULES.get(node.op)
    made = rule(applied) if rule is not None and not node.domain and len(counts) < 2 else None
    if made is None:
        raise OnnxError(
            "it may mix rows that a suppression selects with those that are padding; load the "
            "model without padded=True"
        )
    return made


# Each rule gives the outputs, or None where rows may be mixed.


def _by_element(op: _Applied) -> Any:
    """Operands are aligned at their ends; those that are not padded are one for all rows."""
    ends = {x.axis - x.ndim for x in op.inputs if isinstance(x, Padded)}
    if len(ends) > 1:
        return None
    (end,) = ends
    for x in op.inputs:
        if x is not None and not isinstance(x, Padded):
            shape = np.shape(plain(x))
            if len(shape) >= -end and shape[end] != 1:
                return None
    rank = max(np.ndim(plain(x)) for x in op.inputs if x is not None)
    return op.rows(rank + end)


def _like_first(op: _Applied) -> Any:
    x = op.inputs[0]
    return op.rows(x.axis) if isinstance(x, Padded) else None


def _shape(op: _Applied) -> Any:
    x = op.inputs[0]
    marks = np.arange(x.ndim) == x.axis
    start, end = op.attributes.get("start", 0), op.attributes.get("end")
    return [Sizes(np.asarray(op.made()[0]), marks[slice(start, end)])]


def _of_sizes(op: _Applied) -> Any:
    """What is made of sizes alone, which are known."""
    if not all(x is None or isinstance(x, Sizes) or is_host(x) for x in op.inputs):
        return None
    if op.node.op in ("Cast", "Identity", "Gather", "Slice", "Squeeze", "Unsqueeze", "Concat"):
        marks = [x.counts.astype(np.int64) if isinstance(x, Sizes) else x for x in op.inputs]
        if op.node.op == "Concat":
            marks = [x if isinstance(m, Sizes) else np.zeros_like(x, np.int64)
                     for x, m in zip(marks, op.inputs)]  # fmt: skip
        elif any(isinstance(x, Sizes) for x in op.inputs[1:]):
            return None
        counts = np.asarray(op.run(marks)[0]) != 0
    elif op.node.op in ("Min", "ReduceMin"):
        counts = np.asarray(True)
    else:
        return None
    (made,) = op.made()
    made = np.asarray(made)
    return [Sizes(made, np.broadcast_to(counts, made.shape)) if counts.any() else made]


def _gather(op: _Applied) -> Any:
    data, at = op.inputs
    axis = op.axis(0, np.ndim(plain(data)))
    if not isinstance(data, Padded):
        return op.rows(axis + at.axis)
    if not isinstance(at, Padded):
        if data.axis == axis:
            return None
        return op.rows(data.axis + (np.ndim(plain(at)) - 1 if data.axis > axis else 0))
    return op.rows(axis + at.axis, data, data.index(at.value)) if data.axis == axis else None


def _gather_elements(op: _Applied) -> Any:
    data, at = op.inputs
    axis = op.axis(0, np.ndim(plain(data)))
    if not isinstance(at, Padded):
        return None
    if not isinstance(data, Padded):
        return op.rows(at.axis)
    if data.axis != at.axis:
        return None
    return op.rows(at.axis, data, data.index(at.value) if axis == data.axis else at)


def _gather_nd(op: _Applied) -> Any:
    data, at = op.inputs
    if op.attributes.get("batch_dims", 0) or not isinstance(at, Padded) or at.axis == at.ndim - 1:
        return None
    if not isinstance(data, Padded):
        return op.rows(at.axis)
    depth = at.shape[-1]
    if data.axis >= depth:
        return None
    of_rows = np.arange(depth) == data.axis
    return op.rows(at.axis, data, jnp.where(of_rows, data.index(at.value), at.value))


def _concat(op: _Applied) -> Any:
    if not all(isinstance(x, Padded) for x in op.inputs):
        return None
    axes = {x.axis for x in op.inputs}
    axis = op.inputs[0].axis
    return op.rows(axis) if axes == {axis} and op.axis(0, op.inputs[0].ndim) != axis else None


def _split(op: _Applied) -> Any:
    x = op.inputs[0]
    return op.rows(x.axis) if op.axis(0, x.ndim) != x.axis else None


def _slice(op: _Applied) -> Any:
    """Along other axes, or the first rows."""
    x, starts, ends, *more = op.inputs
    axes = more[0] if more else None
    axes = np.arange(np.size(plain(starts))) if axes is None else np.ravel(axes)
    for i, axis in enumerate(axes):
        if int(axis) % x.ndim != x.axis:
            continue
        step = 1 if len(more) < 2 or more[1] is None else int(np.ravel(more[1])[i])
        end = ends.counts.ravel()[i] if isinstance(ends, Sizes) else False
        end = end or (is_host(ends) and np.ravel(ends)[i] >= 0)
        if isinstance(starts, Sizes) or int(np.ravel(starts)[i]) != 0 or step != 1 or not end:
            return None
    return op.rows(x.axis)


def _squeeze(op: _Applied) -> Any:
    x, axes = op.inputs[0], op.axes(1)
    axes = None if axes is None else [a % x.ndim for a in axes]
    if axes is None or x.axis in axes:
        return None
    return op.rows(x.axis - sum(a < x.axis for a in axes))


def _unsqueeze(op: _Applied) -> Any:
    x, axes = op.inputs[0], op.axes(1) or []
    rank = x.ndim + len(axes)
    kept = [i for i in range(rank) if i not in {a % rank for a in axes}]
    return op.rows(kept[x.axis])


def _transpose(op: _Applied) -> Any:
    x = op.inputs[0]
    order = op.attributes.get("perm", list(range(x.ndim))[::-1])
    return op.rows(list(order).index(x.axis))


def _flatten(op: _Applied) -> Any:
    x = op.inputs[0]
    return op.rows(0) if x.axis == 0 and op.attributes.get("axis", 1) % (x.ndim + 1) == 1 else None


def _reshape(op: _Applied) -> Any:
    """Where axes up to that of the rows stay, of which there are as many as there were."""
    x, said = op.inputs
    marks = said.counts if isinstance(said, Sizes) else np.zeros(np.shape(said), bool)
    if not isinstance(x, Padded) or not is_host(plain(said)) or len(marks) <= x.axis:
        return None
    is_kept = marks[x.axis] or plain(said)[x.axis] in (-1, 0)
    made = op.rows(x.axis)
    return made if is_kept and made[0].shape[: x.axis + 1] == x.shape[: x.axis + 1] else None


def _along(default: int, kind: str = "", since: int = 1) -> Any:
    """Of an operator along one axis, which may be that of the rows where padding can be filled."""

    def rule(op: _Applied) -> Any:
        x = op.inputs[0]
        if op.node.version < since or not isinstance(x, Padded):
            return None
        if op.axis(default, x.ndim) != x.axis:
            return op.rows(x.axis)
        return op.rows(x.axis, x.filled(kind)) if kind else None

    return rule


def _top_k(op: _Applied) -> Any:
    """Those that are padding come last."""
    x = op.inputs[0]
    if not isinstance(x, Padded):
        return None
    if op.axis(-1, x.ndim) != x.axis:
        return op.rows(x.axis)
    return op.rows(x.axis, x.filled("least" if op.attributes.get("largest", 1) else "greatest"))


def _reduced(kind: str) -> Any:
    """Of a reduction that numbers of a kind do not change."""

    def rule(op: _Applied) -> Any:
        x, axes = op.inputs[0], op.axes(1)
        if axes is None and op.attributes.get("noop_with_empty_axes", 0):
            return None
        axes = [a % x.ndim for a in axes or range(x.ndim)]
        return _reduced_over(op, axes, kind)

    return rule


def _arg(kind: str) -> Any:
    def rule(op: _Applied) -> Any:
        if op.attributes.get("select_last_index", 0):
            return None
        return _reduced_over(op, [op.axis(0, op.inputs[0].ndim)], kind)

    return rule


def _reduced_over(op: _Applied, axes: list[int], kind: str) -> Any:
    x = op.inputs[0]
    if x.axis in axes:
        return op.made(x.filled(kind)) if kind else None
    before = 0 if op.attributes.get("keepdims", 1) else sum(a < x.axis for a in axes)
    return op.rows(x.axis - before)


def _matmul(op: _Applied) -> Any:
    x, *rest = op.inputs
    if not isinstance(x, Padded) or any(isinstance(w, Padded) for w in rest) or rest[0].ndim > 2:
        return None
    return op.rows(x.axis) if x.axis < x.ndim - 1 else None


def _gemm(op: _Applied) -> Any:
    bias = op.inputs[2] if len(op.inputs) > 2 else None
    has_rows = bias is not None and np.ndim(plain(bias)) > 1 and np.shape(plain(bias))[0] != 1
    return None if op.attributes.get("transA", 0) or has_rows else _matmul(op)


_RULES: dict[str, Callable[[_Applied], Any]] = {
    **dict.fromkeys(
        ("Abs", "Add", "And", "Ceil", "Clip", "Div", "Equal", "Exp", "Floor", "Greater",
         "GreaterOrEqual", "HardSigmoid", "Identity", "IsInf", "IsNaN", "LeakyRelu", "Less",
         "LessOrEqual", "Log", "Max", "Mean", "Min", "Mod", "Mul", "Neg", "Not", "Or", "Pow",
         "Reciprocal", "Relu", "Round", "Sigmoid", "Sign", "Softplus", "Sqrt", "Sub", "Sum",
         "Tanh", "Where", "Xor"),
        _by_element,
    ),
    "Cast": _like_first, "CastLike": _like_first, "Shape": _shape, "Gather": _gather,
    "GatherElements": _gather_elements, "GatherND": _gather_nd, "Concat": _concat,
    "Split": _split, "Slice": _slice, "Squeeze": _squeeze, "Unsqueeze": _unsqueeze,
    "Transpose": _transpose, "Flatten": _flatten, "Reshape": _reshape, "TopK": _top_k,
    "Softmax": _along(-1, "least", 13), "LogSoftmax": _along(-1, "least", 13),
    "MatMul": _matmul, "Gemm": _gemm, "ArgMax": _arg("least"), "ArgMin": _arg("greatest"),
    "ReduceMax": _reduced("least"), "ReduceMin": _reduced("greatest"),
    "ReduceProd": _reduced("1"), "ReduceMean": _reduced(""),
    **dict.fromkeys(("ReduceSum", "ReduceL1", "ReduceL2", "ReduceSumSquare"), _reduced("0")),
}  # fmt: skip
