"""The graph of a model as plain data, to be drawn."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import amdjax
from amdjax.core.jaxpr import Literal, Var
from amdjax.core.pytree import tree_leaves
from amdjax.driver.compiling import traced, types, weights
from amdjax.driver.inputs import shapes
from amdjax.driver.programs import node_of
from amdjax.driver.reading import Subject


class Box(NamedTuple):
    """A node.

    Args:
      op: what it computes; "input" or "output" for what the model takes and gives.
      name: its name.
      reads, makes: names of values.
      kind: by which it has a color; see `KINDS`.
      details: lines below the operator: weights.
    """

    op: str
    name: str
    reads: tuple[str, ...]
    makes: tuple[str, ...]
    kind: str
    details: tuple[str, ...] = ()


class Drawn(NamedTuple):
    """A graph: its nodes, in order, and types of values as text."""

    name: str
    boxes: tuple[Box, ...]
    types: Mapping[str, str]


#: Kinds of operators, by parts of their names, the first that fits.
KINDS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("quantization", ("quantize", "fakequant")),
    ("convolution", ("conv",)),
    ("product", ("matmul", "gemm", "dot_general", "einsum", "attention")),
    ("normalization", ("norm", "lrn")),
    ("pooling", ("pool", "window")),
    ("recurrent", ("lstm", "gru", "rnn", "scan", "while", "loop", "cond", "if")),
    ("reduction", ("reduce", "softmax", "mean", "argm", "topk", "top_k", "sum")),
    ("activation", ("relu", "sigmoid", "tanh", "gelu", "elu", "swish", "mish", "erf", "clip",
                    "logistic", "softplus")),
    ("movement", ("reshape", "transpose", "flatten", "squeeze", "concat", "slice", "split", "pad",
                  "gather", "scatter", "expand", "broadcast", "tile", "cast", "convert", "shape",
                  "identity", "resize", "where")),
)  # fmt: skip


def kind_of(op: str) -> str:
    """The kind of an operator."""
    word = op.lower()
    return next((kind for kind, parts in KINDS if any(p in word for p in parts)), "arithmetic")


def graph_of(subject: Subject, options: argparse.Namespace) -> Drawn:
    """The nodes of a model; of what is no graph, the operations of its program."""
    if subject.kind == "onnx":
        return _onnx(subject, options)
    if subject.kind == "tf":
        return _tf(subject, options)
    return _program(subject, options)


def _ends(subject: Subject) -> tuple[list[Box], list[Box]]:
    inputs = [Box("input", v.name, (), (v.name,), "end") for v in subject.inputs]
    outputs = [Box("output", v.name, (v.name,), (), "end") for v in subject.outputs]
    return inputs, outputs


def _weight(name: str, value: Any) -> str:
    return f"{name} {'×'.join(map(str, value.shape)) or value.dtype}"


class _Kept(dict[str, Any]):
    """Values of which none is given up."""

    def pop(self, *args: Any) -> Any:
        return None


def _onnx(subject: Subject, options: argparse.Namespace) -> Drawn:
    model, graph = subject.model, subject.model.program.graph
    found: dict[str, str] = {}

    def evaluate(params: Any, inputs: Any) -> Any:
        values = _Kept({**params, **inputs})
        made = model._evaluation.run(graph, values)
        found.update((n, _type(v)) for n, v in values.items() if hasattr(v, "shape"))
        return [x for x in made if hasattr(x, "aval")]

    given = types(subject, shapes(subject, options))
    with amdjax.enable_x64(True):
        amdjax.eval_shape(evaluate, weights(subject), given)
    known = {**graph.constants, **subject.params}
    first, last = _ends(subject)
    boxes = [
        Box(
            n.op, n.name, tuple(x for x in n.inputs if x and x not in known), n.outputs,
            kind_of(n.op), tuple(_weight(x, known[x]) for x in n.inputs if x in known),
        )
        for n in graph.nodes
    ]  # fmt: skip
    return Drawn(subject.name, (*first, *boxes, *last), found)


def _tf(subject: Subject, options: argparse.Namespace) -> Drawn:
    graph = subject.model.graph
    made: dict[str, str] = {}
    for eqn in traced(subject, options).jaxpr.eqns:  # the last of a node makes its result
        if eqn.outvars and (name := node_of(eqn)):
            made[name.partition("/vmap")[0]] = _type(eqn.outvars[0].aval)
    known = {n.name: n.constant for n in graph.nodes if n.constant is not None}
    first = [Box("input", v.name, (), (v.name,), "end") for v in subject.inputs]
    inputs = set(subject.model._nodes.values()) if hasattr(subject.model, "_nodes") else set()
    inputs |= {v.name for v in subject.inputs}
    boxes = [
        Box(
            n.op, n.name, tuple(x for x, _ in n.inputs if x not in known), (n.name,),
            kind_of(n.op), tuple(_weight(x, known[x]) for x, _ in n.inputs if x in known),
        )
        for n in graph.nodes if n.name not in known and n.name not in inputs
    ]  # fmt: skip
    last = [
        Box("output", v.name, (edge[0],), (), "end")
        for v, edge in zip(subject.outputs, graph.outputs)
    ]
    return Drawn(subject.name, (*first, *boxes, *last), made)


def _program(subject: Subject, options: argparse.Namespace) -> Drawn:
    program = traced(subject, options)
    jaxpr = program.jaxpr.jaxpr
    names: dict[Var, str] = {}

    def name(v: Any) -> str:
        return names.setdefault(v, f"v{len(names)}")

    given = list(jaxpr.invars)[len(tree_leaves(weights(subject))) :]
    first = [Box("input", v.name, (), (name(x),), "end") for v, x in zip(subject.inputs, given)]
    known = set(given)
    boxes = []
    for eqn in jaxpr.eqns:
        read = [x for x in eqn.invars if not isinstance(x, Literal) and x in known]
        known.update(eqn.outvars)
        op = eqn.primitive.name
        boxes.append(Box(op, node_of(eqn), _names(read, name), _names(eqn.outvars, name),
                         kind_of(op)))  # fmt: skip
    outputs = [v for v in jaxpr.outvars if isinstance(v, Var)]
    last = [Box("output", o.name, (name(v),), (), "end") for o, v in zip(subject.outputs, outputs)]
    made = {n: _type(v.aval) for v, n in names.items()}
    return Drawn(subject.name, (*first, *boxes, *last), made)


def _names(values: Iterable[Any], name: Any) -> tuple[str, ...]:
    return tuple(map(name, values))


def _type(x: Any) -> str:
    sizes = "×".join(map(str, x.shape))
    kind = str(x.dtype)
    return sizes + ("" if kind == "float32" else f" {kind}") if sizes else kind
