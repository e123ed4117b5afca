"""Quantized models as ONNX files: with QuantizeLinear and DequantizeLinear before products."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from amdjax.driver.errors import BadUsage
from amdjax.quantize import Quantized, quantize_array

#: For operators that are products, the axis of the weight that numbers the channels of the result.
_CHANNELS = {"Conv": 0, "MatMul": -1, "Gemm": 1}
#: The opset from which on QuantizeLinear has an axis, and knows float8.
_OPSETS = {"int8": 13, "float8_e4m3fn": 19}


def write_qdq(source: Path, path: str, quantized: Quantized) -> None:
    """Write an ONNX model in which what was quantized has its scales.

    Args:
      source: the file that the model was read from, which a reader that checks has read before.
      path: the file to write.
      quantized: what `amdjax.quantize` made of it, static.

    Raises:
      BadUsage: a product is none that can be written so, or the opset does not know the format.
    """
    model = onnx.load(source)
    opset = next(o.version for o in model.opset_import if o.domain in ("", "ai.onnx"))
    values = {t.name: t for t in model.graph.initializer}
    decisions = {n: d for n, d in quantized.decisions.items() if d.recipe is not None}
    nodes: list[Any] = []
    known: dict[Any, str] = {}
    done = set()
    for node in model.graph.node:
        weight = node.input[1] if node.op_type in _CHANNELS and len(node.input) > 1 else ""
        decision = decisions.get(weight)
        if decision is not None and decision.recipe is not None and weight in values:
            form = decision.recipe.dtype
            if opset < _OPSETS[form]:
                raise BadUsage(f"{source}: QDQ in {form} needs opset {_OPSETS[form]}, not {opset}")
            scales = quantized.params["inputs"].get(next(n for n in decision.inputs if n))
            _with_activation(model, node, scales, form, nodes, known)
            _with_weight(model, node, values[weight], form, nodes, known)
            done.add(weight)
            shift = _shift(quantized.params["products"][weight], scales)
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
    model: Any, node: Any, weight: Any, form: str, nodes: list[Any], known: Any
) -> None:
    """Let a node read its weight as it is stored in few bits."""
    axis = _CHANNELS[node.op_type]
    if any(a.name == "transB" and a.i for a in node.attribute):
        axis = 0
    key = weight.name, axis
    if key not in known:
        array = numpy_helper.to_array(weight)
        axis %= array.ndim
        q = quantize_array(array.astype(np.float32), form, axis=axis)
        scale: Any = np.asarray(q.scale).reshape(-1)
        names = (
            _add(model, f"{weight.name}/quantized", np.asarray(q.values)),
            _add(model, f"{weight.name}/scale", scale),
            _add(model, f"{weight.name}/zero", _stored(np.zeros(scale.shape), form)),
        )
        known[key] = f"{weight.name}/dequantized"
        nodes.append(_node("DequantizeLinear", names, known[key], axis=axis))
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
    # late: float8 is no dtype of NumPy's own
    import ml_dtypes

    return x.astype(np.int8 if form == "int8" else ml_dtypes.float8_e4m3fn)


def _add(model: Any, name: str, array: Any) -> str:
    model.graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
    return name


def _node(op: str, inputs: tuple[str, ...], output: str, **attributes: Any) -> Any:
    return helper.make_node(op, inputs, [output], name=output, **attributes)
