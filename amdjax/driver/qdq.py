"""Quantized models as ONNX files: with QuantizeLinear and DequantizeLinear before products."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, inliner, numpy_helper, version_converter

from amdjax.core.integers import ceil_div
from amdjax.driver.errors import BadUsage
from amdjax.quantize import Quantized, quantize_array
from amdjax.quantize.recipes import Recipe

#: For operators that are products, the axis of the weight that numbers the channels of the result,
#: and the one that is summed over and cut into groups.
_AXES = {"Conv": (0, 1), "MatMul": (-1, -2), "Gemm": (1, 0)}
#: The opset from which on QuantizeLinear has an axis, knows float8, and 4 bits in blocks.
_OPSETS = {"int8": 13, "float8_e4m3fn": 19, "int4": 21}


def write_qdq(source: Path, path: str, quantized: Quantized) -> None:
    """Write an ONNX model in which what was quantized has its scales.

    Args:
      source: the file that the model was read from, which a reader that checks has read before.
      path: the file to write.
      quantized: what `amdjax.quantize` made of it, static or of weights only.

    Raises:
      BadUsage: a product is none that can be written so, or the opset does not know the format.
    """
    decisions = {n: d for n, d in quantized.decisions.items() if d.recipe is not None}
    formats = [d.recipe.dtype for d in decisions.values() if d.recipe is not None]
    model = _of_opset(source, max((_OPSETS[f] for f in formats), default=0))
    _with_initializers(model, decisions)
    writer = _Writer(model)
    found = _products(model, quantized.decisions)
    for node in list(model.graph.node):
        name = found.get(node.output[0], "")
        decision = decisions.pop(name, None)
        if decision is None or decision.recipe is None:
            writer.nodes.append(node)
            continue
        recipe, shift = decision.recipe, None
        weight = writer.values[node.input[1]]
        if recipe.mode != "weights":
            scales = quantized.params["inputs"].get(next(n for n in decision.inputs if n))
            writer.with_activation(node, scales, recipe.dtype, weight)
            shift = _shift(node, quantized.params["products"][name], scales)
        writer.with_weight(node, weight, recipe)
        writer.nodes.append(node)
        if shift is not None:
            writer.with_shift(node, shift.astype(weight.dtype))
    if decisions:
        name = next(iter(decisions))
        raise BadUsage(
            f"{source}: {name!r} is the weight of no Conv, MatMul or Gemm node, so that QDQ "
            f"cannot be written before it; leave it out: --exclude {name!r}"
        )
    writer.finish()
    try:
        onnx.checker.check_model(model, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as e:
        raise BadUsage(f"{source}: ONNX's checker refuses the model with QDQ: {e}") from e
    onnx.save(model, path)


def _with_initializers(model: Any, names: Collection[str]) -> None:
    """Make those constants initializers that nodes say."""
    graph = model.graph
    for node in list(graph.node):
        if node.op_type == "Constant" and node.output[0] in names:
            tensor = next((a.t for a in node.attribute if a.name == "value"), None)
            if tensor is not None:
                graph.initializer.append(tensor)
                graph.initializer[-1].name = node.output[0]
                graph.node.remove(node)


def _products(model: Any, decisions: Collection[str]) -> dict[str, str]:
    """Names of products, by what their nodes give, if their weight is the second operand.

    Products of one weight are `w`, `w#2`, ... in order. There may be others among them that are
    no nodes of the graph with the weight as an operand; then none of them is known.
    """
    uses: dict[str, list[tuple[str, bool]]] = defaultdict(list)
    weights = {t.name for t in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type in _AXES:
            for i, name in enumerate(node.input[:2]):
                if name in weights:
                    uses[name].append((node.output[0], i == 1))
    found: dict[str, str] = {}
    for weight, nodes in uses.items():
        names = [weight, *(f"{weight}#{i}" for i in range(2, len(nodes) + 1))]
        if all(n in decisions for n in names) and f"{weight}#{len(nodes) + 1}" not in decisions:
            found.update((node, n) for n, (node, is_second) in zip(names, nodes) if is_second)
    return found


def _of_opset(source: Path, least: int) -> Any:
    """A model of an opset at least."""
    model = onnx.load(source)
    if model.functions:  # which the converter loses
        model = inliner.inline_local_functions(model, convert_version=True)
    opset = next(o.version for o in model.opset_import if o.domain in ("", "ai.onnx"))
    if opset >= least:
        return model
    try:
        return version_converter.convert_version(model, least)
    except (RuntimeError, ValueError) as e:
        raise BadUsage(
            f"{source}: QDQ so needs opset {least}, not {opset}, and onnx does not convert it: {e}"
        ) from e


class _Writer:
    """What is added to a model.

    Attributes:
      values: its initializers.
      nodes: the nodes that it will have.
    """

    def __init__(self, model: Any):
        self.graph = model.graph
        self.values = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
        self.nodes: list[Any] = []
        self._known: dict[Any, str] = {}
        self._taken = {*_read(model.graph), *self.values}
        self._taken.update(n for node in model.graph.node for n in node.output)

    def with_activation(
        self, node: Any, scales: Mapping[str, Any], form: str, like: np.ndarray
    ) -> None:
        """Let a node read its first operand, of a type like another's, through a pair."""
        name = node.input[0]
        scale = np.float32(scales["scale"])
        zero = np.asarray(scales.get("zero_point", np.zeros((), scale.dtype))).reshape(())
        key = name, float(scale), float(zero), form
        if key not in self._known:
            base = f"{name}/{node.name or node.output[0]}"
            numbers = (
                self._add(f"{base}/scale", scale),
                self._add(f"{base}/zero", _stored(zero, form)),
            )
            wide = self._cast(name, f"{base}/float", like.dtype, np.float32)
            stored = self._node("QuantizeLinear", (wide, *numbers), f"{base}/quantized")
            pair = self._node("DequantizeLinear", (stored, *numbers), f"{base}/dequantized")
            self._known[key] = self._cast(pair, f"{base}/cast", np.float32, like.dtype)
        node.input[0] = self._known[key]

    def with_weight(self, node: Any, array: np.ndarray, recipe: Recipe) -> None:
        """Let a node read its weight as it is stored in few bits."""
        channels, summed = _AXES[node.op_type]
        if _attribute(node, "transB", 0):
            channels, summed = summed, channels
        group = recipe.group or recipe.form.group
        axis = (summed if group else channels) % array.ndim
        name = node.input[1]
        key = name, axis, recipe
        if key not in self._known:
            q = quantize_array(
                array.astype(np.float32), recipe.dtype, axis=axis, group=group,
                symmetric=recipe.of_weights,
            )  # fmt: skip
            scale: Any = np.asarray(q.scale) if group else np.asarray(q.scale).reshape(-1)
            zero = np.zeros(scale.shape) if q.zero_point is None else np.asarray(q.zero_point)
            names = (
                self._add(f"{name}/quantized", _stored(np.asarray(q.unpacked()), recipe.dtype)),
                self._add(f"{name}/scale", scale),
                self._add(f"{name}/zero", _stored(zero.reshape(scale.shape), recipe.dtype)),
            )
            blocks = {"block_size": ceil_div(array.shape[axis], scale.shape[axis])} if group else {}
            wide = self._node("DequantizeLinear", names, f"{name}/dequantized", axis=axis, **blocks)
            self._known[key] = self._cast(wide, f"{name}/cast", np.float32, array.dtype)
        node.input[1] = self._known[key]

    def with_shift(self, node: Any, shift: np.ndarray) -> None:
        """Let the last node add it: with its bias, or behind it."""
        bias = node.input[2] if len(node.input) > 2 else ""
        name = f"{node.output[0]}/shift"
        if node.op_type == "Conv" and not bias:
            node.input[:] = [*node.input[:2], self._add(name, shift)]
        elif bias in self.values and _attribute(node, "beta", 1) == 1:
            node.input[2] = self._add(name, self.values[bias] + shift)
        elif node.op_type != "Conv":
            out, node.output[0] = node.output[0], self._unique(f"{node.output[0]}/before")
            added = node.output[0], self._add(name, shift)
            self.nodes.append(helper.make_node("Add", added, [out], name=out))

    def finish(self) -> None:
        """Let the graph have the nodes, and no initializer that was read only before."""
        graph, before = self.graph, _read(self.graph)
        del graph.node[:]
        graph.node.extend(self.nodes)
        gone = before - _read(graph)
        for field in (graph.initializer, graph.input):
            kept = [t for t in field if t.name not in gone or t.name not in self.values]
            del field[:]
            field.extend(kept)

    def _cast(self, name: str, to: str, old: Any, new: Any) -> str:
        if old == new:
            return name
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(new))
        return self._node("Cast", (name,), to, to=kind)

    def _add(self, name: str, array: Any) -> str:
        name = self._unique(name)
        self.graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def _node(self, op: str, inputs: tuple[str, ...], output: str, **attributes: Any) -> str:
        output = self._unique(output)
        self.nodes.append(helper.make_node(op, inputs, [output], name=output, **attributes))
        return output

    def _unique(self, name: str) -> str:
        while name in self._taken:
            name += "'"
        self._taken.add(name)
        return name


def _attribute(node: Any, name: str, default: Any) -> Any:
    found = (helper.get_attribute_value(a) for a in node.attribute if a.name == name)
    return next(found, default)


def _read(graph: Any) -> set[str]:
    """Names that a graph or one inside it reads or gives."""
    names = {v.name for v in graph.output}
    for node in graph.node:
        names.update(node.input)
        for a in node.attribute:
            for inner in (*a.graphs, *([a.g] if a.HasField("g") else [])):
                names |= _read(inner)
    return names


def _shift(node: Any, own: Mapping[str, Any], scales: Mapping[str, Any]) -> np.ndarray | None:
    """What is added to results for the sake of their means, where it is one for each channel."""
    if "shift" not in own:
        return None
    steps = np.asarray(own["weight"].scale) * np.float32(scales["scale"])
    shift = np.asarray(own["shift"], np.float32) * steps * np.float32(_attribute(node, "alpha", 1))
    return shift.reshape(-1) if max(shift.shape) == shift.size else None


def _stored(x: np.ndarray, form: str) -> np.ndarray:
    # late: float8 and int4 are no dtypes of NumPy's own
    import ml_dtypes

    return x.astype(np.int8 if form == "int8" else getattr(ml_dtypes, form))
