"""From files to models: frozen graphs, and signatures of SavedModels."""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from amdjax.export.encoded import split_constants
from amdjax.export.file_map import mapped
from amdjax.export.values import Value, checked_dims, refuse_pointer

from .checkpoint import read_variables
from .errors import TensorFlowError, UnsupportedOperator
from .evaluation import every_node
from .frames import EXITS
from .inlining import ARGUMENT, INPUTS, Inliner
from .messages import is_text, parse
from .model import Model, declared, named, with_dims
from .nodes import Graph, Node
from .registry import find_rule
from .tensors import dtype_of, shape_of

#: Operators that no output of a graph is, though nothing reads them.
_NO_OUTPUTS = (
    "NoOp", "Const", "Assert", "Placeholder", "SaveV2", "MergeV2Checkpoints", "VarHandleOp",
    "VariableV2", "RestoreV2", "Assign", "AssignVariableOp", "MergeSummary",
)  # fmt: skip
_VARIABLES = ("VarHandleOp", "VariableV2", "Variable", "VarIsInitializedOp")


def load(
    model: str | os.PathLike[str] | bytes, *, outputs: Sequence[str] | None = None,
    dims: Mapping[str, Any] | None = None, layout: str | None = None,
    signature: str | None = None,
) -> Model:  # fmt: skip
    """Read a graph of TensorFlow.

    Args:
      model: the path of a frozen graph (`.pb`, or `.pbtxt` as text), of a SavedModel's folder or
        its `saved_model.pb`, or the bytes of one of these files. Variables are read only beside a
        file that is named by its path.
      outputs: names of the nodes to compute, as `"probabilities"` or `"node:1"`. None: the outputs
        of the signature; of a frozen graph, nodes that no other node reads.
      dims: sizes or names for dimensions that the file leaves open, by the names that
        `Model.inputs` gives them; or by the name of an input its whole shape, as the file lays it
        out.
      layout: `"NHWC"` or `"NCHW"`, how images are given and returned: where the graph has the other
        one, inputs and outputs of four axes are transposed. None: as the graph has them.
      signature: which one of a SavedModel. None: "serving_default".

    Returns:
      The model.

    Raises:
      TensorFlowError: the file is damaged or inconsistent, or a name in `outputs`, `dims` or
        `signature` is not in it; the message names the node.
      UnsupportedOperator: it has operators without a rule; all are named.
      FileNotFoundError: there is no such file.
      TypeError: `model` is neither a path nor bytes.
      ValueError: `layout` has no such name.

    Source:
      TensorFlow's operators, https://www.tensorflow.org/api_docs/python/tf/raw_ops.

    Example:
      >>> from amdjax.tf.messages import messages
      >>> m = messages()
      >>> x = m.Node(name="x", op="Placeholder", attr={"dtype": m.AttrValue(type=1)})
      >>> y = m.Node(name="y", op="Relu", input=["x"])
      >>> model = load(m.Graph(node=[x, y]).SerializeToString())
      >>> print(model(x=np.float32([-1, 2]))["y"])
      [0. 2.]
    """
    if layout not in (None, "NHWC", "NCHW"):
        raise ValueError(f"load: layout must be 'NHWC' or 'NCHW', got {layout!r}")
    data, folder = _bytes(model)
    head = bytes(data[:64])
    try:
        refuse_pointer(head)
        dims = checked_dims(dims, "a positive integer, a name or a shape of such")
    except ValueError as e:
        raise TensorFlowError(str(e)) from None
    if isinstance(outputs, str):
        raise TypeError(f"load: outputs must be a list of names, got {outputs!r}")
    # A SavedModel begins with its version, a graph with a message.
    is_saved = head.lstrip().startswith((b"saved_model", b"meta_graphs"))
    if head[:1] == b"\x08" or is_saved:
        return _saved_model(
            bytes(data), folder, outputs, dims, layout, signature or "serving_default"
        )
    if signature is not None:
        raise TensorFlowError(f"load: a frozen graph has no signature {signature!r}, nor any other")
    held: dict[str, np.ndarray] = {}
    if not is_text(head):
        with memoryview(data).cast("B") as view:
            data, held = split_constants(view)
    graph = parse("Graph", bytes(data), "model")
    if not graph.node:
        raise TensorFlowError("model: the file holds no nodes")
    inliner = Inliner(graph, held)
    names = _ends(graph) if outputs is None else list(outputs)
    found = inliner.graph(names)
    places = {node.name: i for i, node in enumerate(graph.node)}
    nodes = {node.name: node for node in found.nodes}
    entries = sorted(found.inputs, key=lambda name: places.get(name, len(places)))
    inputs = [declared(nodes[name]) for name in entries]
    if any(node.op in _VARIABLES for node in every_node(found)):
        raise TensorFlowError(
            "model: the graph has variables, whose values are in no graph; load the SavedModel's "
            "folder, or freeze the graph"
        )
    metadata = {"kind": "frozen graph", **_version(graph)}
    return _checked(found, inputs, entries, names, {}, metadata, layout, dims)


def _bytes(model: Any) -> tuple[bytes | mmap.mmap, Path | None]:
    """The bytes of a file, and the folder that it is in."""
    if isinstance(model, (bytes, bytearray, memoryview)):
        return bytes(model), None
    if not isinstance(model, (str, os.PathLike)):
        raise TypeError(f"load: model must be a path or bytes, got {type(model).__name__}")
    path = Path(model)
    if path.is_dir():
        names = ("saved_model.pb", "saved_model.pbtxt")
        path = next((path / n for n in names if (path / n).is_file()), path / names[0])
    if not path.is_file():
        raise FileNotFoundError(f"load: there is no file {str(path)!r}")
    return mapped(path), path.resolve().parent


def _ends(graph: Any) -> list[str]:
    """Names of the nodes that no node reads."""
    names = {name.split(":")[0] for node in graph.node for name in node.input}
    waited = {name[1:] for name in names if name.startswith("^")}
    unread = [n for n in graph.node if n.name not in names and n.op not in _NO_OUTPUTS]
    # Variables of a loop that nothing reads behind it are none where something else is.
    ends = [n.name for n in unread if n.op not in EXITS] or [n.name for n in unread]
    if not ends:
        raise TensorFlowError("model: no node is clearly an output; name its outputs=")
    return [name for name in ends if name not in waited] or ends


def _version(graph: Any) -> dict[str, str]:
    return {"producer": str(graph.versions.producer)} if graph.versions.producer else {}


def _saved_model(
    data: bytes, folder: Path | None, outputs: Sequence[str] | None, dims: Mapping[str, Any],
    layout: str | None, signature: str,
) -> Model:  # fmt: skip
    saved = parse("SavedModel", data, "model")
    graphs = [g for g in saved.meta_graphs if "serve" in g.meta_info_def.tags]
    if not graphs:
        tags = [list(g.meta_info_def.tags) for g in saved.meta_graphs]
        raise TensorFlowError(f"model: no graph of the SavedModel is for serving; tags are {tags}")
    meta = graphs[0]
    if signature not in meta.signature_def:
        known = ", ".join(sorted(meta.signature_def)) or "none"
        raise TensorFlowError(
            f"model: the SavedModel has no signature {signature!r}; there are {known}"
        )
    chosen = meta.signature_def[signature]
    inliner = Inliner(meta.graph_def)
    fed = {name: info.name.split(":")[0] for name, info in sorted(chosen.inputs.items())}
    ends = {name: info.name for name, info in sorted(chosen.outputs.items())}
    ends = ends if outputs is None else {name: name for name in outputs}
    if not ends:
        raise TensorFlowError(f"model: the signature {signature!r} has no outputs; name outputs=")
    found = inliner.graph(list(ends.values()), list(fed.values()))
    inputs = [
        named(name, dtype_of(info.dtype, what), shape_of(info.tensor_shape, what))
        for name, info in sorted(chosen.inputs.items())
        for what in (f"input {name!r}",)
    ]
    metadata = {
        "kind": "SavedModel", "signature": signature, "tags": ", ".join(meta.meta_info_def.tags),
        "tensorflow_version": meta.meta_info_def.tensorflow_version, **_version(meta.graph_def),
    }  # fmt: skip
    variables = _variables(found, meta, folder)
    return _checked(
        found, inputs, list(fed.values()), list(ends), variables, metadata, layout, dims
    )


def _variables(found: Graph, meta: Any, folder: Path | None) -> dict[str, tuple[str, np.ndarray]]:
    """For each node that is a variable its name and value."""
    nodes = [node for node in every_node(found) if node.op in _VARIABLES]
    if not nodes:
        return {}
    if folder is None:
        raise TensorFlowError(
            f"model: values of {len(nodes)} variables are in other files of the SavedModel; load "
            "its folder, or freeze the graph"
        )
    restored = _restored(meta)
    if unknown := [node.name for node in nodes if node.name not in restored]:
        raise TensorFlowError(
            f"model: nothing says where values of {', '.join(unknown[:5])} are; freeze the graph"
        )
    keys = {node.name: restored[node.name] for node in nodes}
    values = read_variables(folder / "variables", sorted(set(keys.values())))
    return {node.name: (_name(node), values[keys[node.name]]) for node in nodes}


def _name(node: Node) -> str:
    """The name of a variable."""
    return node.text("shared_name", "") or node.name


def _restored(meta: Any) -> dict[str, str]:
    """For each node that is a variable its key in the checkpoint.

    The part of the graph that restores variables says so: it assigns to each of them an output of
    `RestoreV2`, which is given the keys.
    """
    restore = meta.saver_def.restore_op_name
    if not restore:
        return {}
    found: dict[str, str] = {}
    graph = Inliner(meta.graph_def).restoring(restore)
    nodes = {node.name: node for node in graph.nodes}
    for node in graph.nodes:
        if node.op not in ("AssignVariableOp", "Assign") or len(node.inputs) < 2:
            continue
        (variable, _), (source, at) = node.inputs[:2]
        variable = _behind(nodes, variable, 0)[0]
        source, at = _behind(nodes, source, at)
        if nodes[source].op == "RestoreV2" and len(nodes[source].inputs) == 3:
            keys = nodes[nodes[source].inputs[1][0]].constant
            if keys is None or keys.dtype != object or at >= keys.size:
                raise nodes[source].error("its tensor_names must be a constant of texts")
            found[variable] = keys.ravel()[at].decode("utf-8", "replace")
    return found


def _behind(nodes: Mapping[str, Node], name: str, at: int) -> tuple[str, int]:
    """The output that identities pass on."""
    while nodes[name].op in ("Identity", "IdentityN") and at < len(nodes[name].inputs):
        name, at = nodes[name].inputs[at]
    return name, at


def _checked(
    graph: Graph, inputs: Sequence[Value], entries: Sequence[str], outputs: Sequence[str],
    variables: Mapping[str, tuple[str, np.ndarray]], metadata: Mapping[str, str],
    layout: str | None, dims: Mapping[str, Any],
) -> Model:  # fmt: skip
    """The model of a graph whose operators have rules."""
    lacking: dict[str, str] = {}
    for node in every_node(graph):
        is_given = node.op in (*INPUTS, *_VARIABLES) or node.name in entries
        if not is_given and find_rule(node.op) is None:
            lacking.setdefault(node.op, node.name)
    if lacking:
        told = ", ".join(f"{op} (node {name!r})" for op, name in sorted(lacking.items()))
        raise UnsupportedOperator(f"model: no rule for {told}")
    short = [name.removesuffix(":0") for name in outputs]
    if len(set(short)) != len(short):
        raise TensorFlowError("outputs: a name is there twice")
    if ARGUMENT in {node.op for node in graph.nodes if node.name not in entries}:
        raise TensorFlowError("model: an argument of a function has no value")
    return Model(graph, with_dims(inputs, dims), entries, short, variables, metadata, layout)
