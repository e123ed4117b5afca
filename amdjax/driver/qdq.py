"""Quantized models as ONNX files: with QuantizeLinear and DequantizeLinear before products."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper, version_converter

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
    values = {t.name: t for t in model.graph.initializer}
    nodes: list[Any] = []
    known: dict[Any, str] = {}
    done = set()
    for node in model.graph.node:
        weight = node.input[1] if node.op_type in _AXES and len(node.input) > 1 else ""
        decision = decisions.get(weight)
        if decision is not None and decision.recipe is not None and weight in values:
            recipe, shift = decision.recipe, None
            if recipe.mode != "weights":
                scales = quantized.params["inputs"].get(next(n for n in decision.inputs if n))
                _with_activation(model, node, scales, recipe.dtype, nodes, known)
                shift = _shift(quantized.params["products"][weight], scales)
            _with_weight(model, node, values[weight], recipe, nodes, known)
            done.add(weight)
            nodes.append(node)
            if shift is not None:
                _with_shift(model, node, values, shift, nodes)
            continue
        nodes.append(node)
    if missing := [n for n in decisions if n not in done]:
        raise BadUsage(
            f"{source}: {missing[0]!r} is the weight of no Conv, MatMul or Gemm node, so that QDQ "
            f"cannot be written before it; leave it out: --exclude {missing[0]!r}"
        )
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    read = {n for node in model.graph.node for n in node.input}
    kept = [t for t in model.graph.initializer if t.name in read]
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)
    try:
        onnx.checker.check_model(model)
    except onnx.checker.ValidationError as e:
        raise BadUsage(f"{source}: ONNX's checker refuses the model with QDQ: {e}") from e
    onnx.save(model, path)


def _of_opset(source: Path, least: int) -> Any:
    """A model of an opset at least."""
    model = onnx.load(source)
    opset = next(o.version for o in model.opset_import if o.domain in ("", "ai.onnx"))
    if opset >= least:
        return model
    try:
        return version_converter.convert_version(model, least)
    except (RuntimeError, ValueError) as e:
        raise BadUsage(
            f"{source}: QDQ so needs opset {least}, not {opset}, and onnx does not convert it: {e}"
        ) from e


def _with_activation(
    model: Any, node: Any, scales: Mapping[str, Any], form: str, nodes: list[Any], known: Any
) -> None:
    """Let a node read its first operand through a pair."""
    name = node.input[0]
    scale = np.float32(scales["scale"])
    zero = np.asarray(scales.get("zero_point", np.zeros((), scale.dtype))).reshape(())
    key = name, float(scale), float(zero)
    if key not in known:
        base = f"{name}/{node.name or node.output[0]}"
        numbers = (
            _add(model, f"{base}/scale", scale),
            _add(model, f"{base}/zero", _stored(zero, form)),
        )
        pair = f"{base}/quantized", f"{base}/dequantized"
        nodes.append(_node("QuantizeLinear", (name, *numbers), pair[0]))
        nodes.append(_node("DequantizeLinear", (pair[0], *numbers), pair[1]))
        known[key] = pair[1]
    node.input[0] = known[key]


def _with_weight(
    model: Any, node: Any, weight: Any, recipe: Recipe, nodes: list[Any], known: Any
) -> None:
    """Let a node read its weight as it is stored in few bits."""
    channels, summed = _AXES[node.op_type]
    if any(a.name == "transB" and a.i for a in node.attribute):
        channels, summed = summed, channels
    group = recipe.group or recipe.form.group
    key = weight.name, summed if group else channels
    if key not in known:
        array = numpy_helper.to_array(weight)
        axis = key[1] % array.ndim
        q = quantize_array(
            array.astype(np.float32), recipe.dtype, axis=axis, group=group,
            symmetric=recipe.of_weights,
        )  # fmt: skip
        scale: Any = np.asarray(q.scale) if group else np.asarray(q.scale).reshape(-1)
        zero = np.zeros(scale.shape) if q.zero_point is None else np.asarray(q.zero_point)
        names = (
            _add(
                model, f"{weight.name}/quantized", _stored(np.asarray(q.unpacked()), recipe.dtype)
            ),
            _add(model, f"{weight.name}/scale", scale),
            _add(model, f"{weight.name}/zero", _stored(zero.reshape(scale.shape), recipe.dtype)),
        )
        blocks = {"block_size": ceil_div(array.shape[axis], scale.shape[axis])} if group else {}
        known[key] = f"{weight.name}/dequantized"
        nodes.append(_node("DequantizeLinear", names, known[key], axis=axis, **blocks))
    node.input[1] = known[key]


def _shift(own: Mapping[str, Any], scales: Mapping[str, Any]) -> np.ndarray | None:
    """What is added to results for the sake of their means, where it is one for each channel."""
    if "shift" not in own:
        return None
    steps = np.asarray(own["weight"].scale) * np.float32(scales["scale"])
    shift = np.asarray(own["shift"], np.float32) * steps
    return shift.reshape(-1) if max(shift.shape) == shift.size else None


def _with_shift(
    model: Any, node: Any, values: Mapping[str, Any], shift: np.ndarray, nodes: list[Any]
) -> None:
    """Let a node add it: with its bias, or behind it."""
    bias = node.input[2] if len(node.input) > 2 else ""
    scaled = any(a.name == "beta" and a.f != 1 for a in node.attribute)
    name = f"{node.output[0]}/shift"
    if node.op_type == "Conv" and not bias:
        node.input[:] = [*node.input[:2], _add(model, name, shift)]
    elif bias in values and not scaled:
        both = numpy_helper.to_array(values[bias]).astype(np.float32) + shift
        node.input[2] = _add(model, name, both)
    elif node.op_type != "Conv":
        out, node.output[0] = node.output[0], f"{node.output[0]}/before"
        nodes.append(_node("Add", (node.output[0], _add(model, name, shift)), out))


def _stored(x: np.ndarray, form: str) -> np.ndarray:
    # late: float8 and int4 are no dtypes of NumPy's own
    import ml_dtypes

    return x.astype(np.int8 if form == "int8" else getattr(ml_dtypes, form))


def _add(model: Any, name: str, array: Any) -> str:
    model.graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
    return name


def _node(op: str, inputs: tuple[str, ...], output: str, **attributes: Any) -> Any:
    return helper.make_node(op, inputs, [output], name=output, **attributes)
