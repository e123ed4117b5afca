"""From protobuf messages to graphs, with limits on what a file may ask for.

The `onnx` package parses the bytes; its checker is not run: it takes forever for functions that
call each other ten deep, and does not know that the standard has 28 opsets. What is checked is
checked here, before anything is allocated whose size a file claims.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from amdjax.export.encoded import split_tensors
from amdjax.export.file_map import mapped
from amdjax.export.values import Value, refuse_pointer

from .errors import OnnxError, UnsupportedOperator
from .graph import Function, Graph, Node, Program, Reference, walk
from .registry import find_rule
from .standard import has_body, onnx_package, schema_of, version_of

#: Subgraphs within subgraphs, and functions that call functions.
MAX_DEPTH = 64
#: Nodes of a model with its functions written out.
MAX_NODES = 1_000_000
#: Newest versions of domains whose rules are here.
OPSETS = {"": 28, "ai.onnx.ml": 5, "com.microsoft": 1}

_STANDARD = ("", "ai.onnx")


class Parsed(NamedTuple):
    """A model as it was read.

    Attributes:
      proto: its message.
      folder: of its file, beside which external data may lie; None: nowhere.
      raw: bytes of the graph's initializers by their numbers, which have none in the message.
    """

    proto: Any
    folder: Path | None = None
    raw: Mapping[int, np.ndarray] = MappingProxyType({})


def parse(model: Any) -> Parsed:
    """The message of a model.

    Args:
      model: a path, the bytes of a file, or a `ModelProto`.
    """
    onnx = onnx_package()
    if isinstance(model, onnx.ModelProto):
        return Parsed(model)
    folder = None
    if isinstance(model, (str, Path)):
        path = Path(model)
        if path.is_dir():
            raise FileNotFoundError(f"model: {str(path)!r} is a folder, not a file")
        if not path.is_file():
            raise FileNotFoundError(f"model: there is no file {str(path)!r}")
        folder, model = path.resolve().parent, mapped(path)
    if not isinstance(model, (bytes, bytearray, memoryview, mmap.mmap)):
        raise TypeError(f"model must be a path, bytes or a ModelProto, got {type(model).__name__}")
    proto = onnx.ModelProto()
    with memoryview(model).cast("B") as data:
        try:
            refuse_pointer(bytes(data[:64]))
        except ValueError as e:
            raise OnnxError(str(e)) from None
        message, raw = split_tensors(data)
    try:
        proto.ParseFromString(message)
    except Exception as e:  # of protobuf, whose classes differ by implementation
        raise OnnxError(f"model: these bytes are no ONNX model ({e})") from None
    _check_text(proto)
    return Parsed(proto, folder, raw)


def _check_text(message: Any) -> None:
    """That names are text: protobuf leaves bytes that are none as they are."""
    for field, value in message.ListFields():
        repeated = hasattr(value, "append") or hasattr(value, "add")
        for part in value if repeated else (value,):
            if field.message_type is not None:
                _check_text(part)
            elif field.type == field.TYPE_STRING and isinstance(part, bytes):
                raise OnnxError(f"model: {field.full_name} holds bytes that are no text: {part!r}")
            elif field.type != field.TYPE_STRING:
                break  # numbers


def read_program(parsed: Parsed, custom: Mapping[Any, Any]) -> Program:
    """The program of a message.

    Args:
      parsed: the message.
      custom: operators that the user defines, by domain and name.
    """
    proto = parsed.proto
    if not proto.HasField("graph"):
        raise OnnxError("model: it has no graph; is it an ONNX model?")
    opsets = _opsets(proto.opset_import)
    reader = _Reader(opsets, parsed.folder, custom, {_key(f) for f in proto.functions})
    functions = {_key(f): reader.function(f) for f in proto.functions}
    for made in functions.values():  # bodies of operators leave out what is not asked for
        held = {*made.inputs, *(name for node in made.graph.nodes for name in node.outputs)}
        _check_made(made.graph.name, [v.name for v in made.graph.outputs], held)
    _limit_calls(functions, reader)
    graph = reader.graph(proto.graph, outer=frozenset(), depth=0, raw=parsed.raw)
    _limit_nodes(graph, functions)
    reader.refuse_unknown()
    metadata = {p.key: p.value for p in proto.metadata_props}
    for name in ("producer_name", "producer_version", "domain", "doc_string"):
        if text := getattr(proto, name):
            metadata.setdefault(name, text)
    return Program(graph, functions, opsets, metadata)


def _opsets(imports: Any) -> dict[str, int]:
    opsets = {("" if i.domain in _STANDARD else i.domain): int(i.version) for i in imports}
    if not opsets:
        raise OnnxError("model: it imports no opset")
    for domain, version in opsets.items():
        newest = OPSETS.get(domain)
        if version < 1 or (newest is not None and version > newest):
            raise OnnxError(
                f"model: it uses opset {version} of {domain or 'ai.onnx'}; 1 to {newest} are known"
            )
    return opsets


def _key(proto: Any) -> tuple[str, str, str]:
    domain = "" if proto.domain in _STANDARD else proto.domain
    return domain, getattr(proto, "op_type", "") or proto.name, proto.overload


class _Reader:
    """Reads graphs of one model."""

    def __init__(
        self, opsets: Mapping[str, int], folder: Path | None, custom: Mapping[Any, Any],
        functions: set[tuple[str, str, str]],
    ) -> None:  # fmt: skip
        self.opsets = opsets
        self.folder = folder
        self.custom = custom
        self.functions = functions
        self.unknown: dict[str, str] = {}  # operators without a rule, and a node of each

    # Graphs

    def function(self, proto: Any) -> Function:
        name = f"function {proto.name!r}"
        before = self.opsets
        self.opsets = {**before, **_opsets(proto.opset_import)} if proto.opset_import else before
        attributes: dict[str, Any] = dict.fromkeys(proto.attribute)
        for a in proto.attribute_proto:
            attributes[a.name] = self.attribute(a, name, frozenset(), 0)
        inputs = tuple(proto.input)
        nodes = self.nodes(proto.node, frozenset(inputs), name, 0, _distinct(name, inputs))
        self.opsets = before
        values = tuple(map(Value, proto.output))
        return Function(
            inputs, attributes, Graph(name, tuple(map(Value, inputs)), values, {}, nodes)
        )

    def graph(
        self, proto: Any, outer: frozenset[str], depth: int,
        raw: Mapping[int, np.ndarray] = MappingProxyType({}),
    ) -> Graph:  # fmt: skip
        name = proto.name or "graph"
        if depth > MAX_DEPTH:
            raise OnnxError(f"graph {name!r}: subgraphs lie more than {MAX_DEPTH} deep")
        constants = {
            t.name: read_tensor(t, self.folder, raw=raw.get(i))
            for i, t in enumerate(proto.initializer)
        }
        for sparse in proto.sparse_initializer:
            constants[sparse.values.name] = read_sparse(sparse, self.folder)
        inputs, where = tuple(map(self.value, proto.input)), f"graph {name!r}"
        held = [t.name for t in proto.initializer] + [
            t.values.name for t in proto.sparse_initializer
        ]
        own = _distinct(where, [v.name for v in inputs]) | _distinct(where, held)
        nodes = self.nodes(proto.node, outer | own, where, depth, own)
        outputs = tuple(map(self.value, proto.output))
        made = outer | own | {o for n in nodes for o in n.outputs}
        _check_made(where, [v.name for v in outputs], made)
        return Graph(name, inputs, outputs, constants, nodes)

    def nodes(
        self, protos: Sequence[Any], known: frozenset[str], where: str, depth: int,
        given: frozenset[str],
    ) -> tuple[Node, ...]:  # fmt: skip
        seen, own, found = set(known), set(given), []
        for number, proto in enumerate(protos):
            name = proto.name or f"{proto.op_type}_{number}"
            node = self.node(proto, name, frozenset(seen) if _has_graphs(proto) else None, depth)
            for i in node.inputs:
                if i and i not in seen:
                    raise OnnxError(
                        f"{where}, node {name!r} ({node.op}): nothing before it computes its "
                        f"input {i!r}"
                    )
            for o in filter(None, node.outputs):
                if o in own:
                    raise OnnxError(f"{where}, node {name!r} ({node.op}): {o!r} is computed twice")
                own.add(o)
            seen |= own
            found.append(node)
        return tuple(found)

    def node(self, proto: Any, name: str, seen: frozenset[str] | None, depth: int) -> Node:
        domain, op, overload = key = _key(proto)
        label = f"node {name!r} ({op})"
        attributes = {
            a.name: self.attribute(a, label, seen or frozenset(), depth) for a in proto.attribute
        }
        opset = 0
        if key not in self.functions and (domain, op) not in self.custom:
            if domain not in self.opsets:
                raise OnnxError(f"{label}: the model imports no opset of {domain or 'ai.onnx'!r}")
            opset = self.opsets[domain]
            self.note_unknown(domain, op, opset, label)
        inputs, outputs = tuple(proto.input), tuple(proto.output)
        return Node(op, domain, overload, opset, name, inputs, outputs, attributes)

    def note_unknown(self, domain: str, op: str, opset: int, label: str) -> None:
        """Note an operator that no rule and no definition covers."""
        if find_rule(domain, op, opset) is not None:
            return
        schema = schema_of(domain, op, opset)
        if schema is None or not has_body(schema):
            named = f"{domain}.{op}" if domain else op
            version = version_of(domain, op, opset)
            self.unknown.setdefault(f"{named} of version {version}", label)

    def refuse_unknown(self) -> None:
        if self.unknown:
            listed = "; ".join(f"{op}, {label}" for op, label in sorted(self.unknown.items()))
            raise UnsupportedOperator(
                f"model: there are no rules for {listed}. Give them as "
                "custom_ops={('domain', 'Name'): function}"
            )

    # Attributes and types

    def attribute(self, proto: Any, where: str, seen: frozenset[str], depth: int) -> Any:
        if proto.ref_attr_name:
            return Reference(proto.ref_attr_name)
        kind = proto.AttributeType.Name(proto.type)
        where = f"{where}, attribute {proto.name!r}"
        one = {
            "FLOAT": lambda: proto.f,
            "INT": lambda: proto.i,
            "STRING": lambda: _text(proto.s),
            "TENSOR": lambda: read_tensor(proto.t, self.folder, where),
            "SPARSE_TENSOR": lambda: read_sparse(proto.sparse_tensor, self.folder, where),
            "GRAPH": lambda: self.graph(proto.g, seen, depth + 1),
            "TYPE_PROTO": lambda: self._type("", proto.tp),
            "FLOATS": lambda: list(proto.floats),
            "INTS": lambda: list(proto.ints),
            "STRINGS": lambda: [_text(s) for s in proto.strings],
            "TENSORS": lambda: [read_tensor(t, self.folder, where) for t in proto.tensors],
            "GRAPHS": lambda: [self.graph(g, seen, depth + 1) for g in proto.graphs],
            "TYPE_PROTOS": lambda: [self._type("", t) for t in proto.type_protos],
        }
        if kind not in one:
            raise OnnxError(f"{where}: its type {kind} is not read")
        return one[kind]()

    def value(self, proto: Any) -> Value:
        return self._type(proto.name, proto.type)

    def _type(self, name: str, proto: Any) -> Value:
        kind = ""
        for _ in range(MAX_DEPTH):
            which = proto.WhichOneof("value")
            if which == "sequence_type":
                kind, proto = kind + "sequence(", proto.sequence_type.elem_type
            elif which == "optional_type":
                kind, proto = kind + "optional(", proto.optional_type.elem_type
            else:
                break
        kind += "tensor" if which in ("tensor_type", None) else str(which).removesuffix("_type")
        kind += ")" * kind.count("(")
        if which != "tensor_type":
            return Value(name, kind=kind)
        tensor = proto.tensor_type
        dtype = dtype_of(tensor.elem_type) if tensor.elem_type else None
        if not tensor.HasField("shape"):
            return Value(name, dtype, None, kind)
        return Value(name, dtype, tuple(map(_dimension, tensor.shape.dim)), kind)


def _distinct(where: str, names: Sequence[str]) -> frozenset[str]:
    """Names that are given, each once."""
    found: set[str] = set()
    for name in names:
        if name in found:
            raise OnnxError(f"{where}: {name!r} is given twice")
        found.add(name)
    return frozenset(found)


def _check_made(where: str, outputs: Sequence[str], made: Collection[str]) -> None:
    for name in outputs:
        if name not in made:
            raise OnnxError(f"{where}: nothing computes its output {name!r}")


def _dimension(proto: Any) -> int | str | None:
    if proto.HasField("dim_value"):
        return int(proto.dim_value)
    return str(proto.dim_param) if proto.dim_param else None


def _has_graphs(proto: Any) -> bool:
    return any(a.HasField("g") or a.graphs for a in proto.attribute)


def _text(value: bytes) -> str:
    return value.decode("utf-8", "surrogateescape")


# Limits


def _limit_calls(functions: Mapping[Any, Function], reader: _Reader) -> None:
    """Refuse functions that call themselves, and too deep calls."""
    depths: dict[Any, int] = {}

    def depth(key: Any, above: tuple[Any, ...]) -> int:
        if key in above:
            raise OnnxError(f"function {key[1]!r} calls itself")
        if len(above) > MAX_DEPTH:
            raise OnnxError(f"functions call each other more than {MAX_DEPTH} deep: {key[1]!r}")
        if key not in depths:
            called = {(n.domain, n.op, n.overload) for n in walk(functions[key].graph)}
            inner = [depth(c, (*above, key)) for c in called if c in functions]
            depths[key] = 1 + max(inner, default=0)
        return depths[key]

    for key in functions:
        depth(key, ())


def _limit_nodes(graph: Graph, functions: Mapping[Any, Function]) -> None:
    """Refuse a model that has too many nodes where functions are written out."""
    counts: dict[Any, int] = {}

    def count(graph: Graph) -> int:
        total = 0
        for node in walk(graph):
            key = (node.domain, node.op, node.overload)
            if key in functions:
                if key not in counts:
                    counts[key] = count(functions[key].graph)
                total += counts[key]
            else:
                total += 1
        return total

    found = count(graph)
    if found > MAX_NODES:
        raise OnnxError(f"model: it has {found} nodes with its functions, more than {MAX_NODES}")


# Tensors


def dtype_of(number: int) -> np.dtype:
    """The dtype that a tensor's `data_type` names."""
    helper = onnx_package().helper
    try:
        return np.dtype(helper.tensor_dtype_to_np_dtype(number))
    except (KeyError, ValueError, TypeError):
        raise OnnxError(f"{number} names no dtype of ONNX") from None


def read_tensor(
    proto: Any, folder: Path | None, where: str = "", raw: np.ndarray | None = None
) -> np.ndarray:
    """The values of a tensor: a view of the message's bytes, or of a file that is mapped.

    Args:
      proto: a `TensorProto`.
      folder: of the file, beside which external data may lie; None: nowhere.
      where: what errors call it.
      raw: the bytes of its `raw_data`, which it has not itself.
    """
    where = where or f"tensor {proto.name!r}"
    dtype, shape = dtype_of(proto.data_type), tuple(proto.dims)
    if any(n < 0 for n in shape):
        raise OnnxError(f"{where}: its shape {shape} has negative sizes")
    count = math.prod(shape)
    onnx = onnx_package()
    if proto.data_location == onnx.TensorProto.EXTERNAL:
        return _external(proto, folder, where, dtype, shape)
    if raw is not None and not dtype.hasobject:
        _check_bytes(where, dtype, count, raw.size)
        return _of_bytes(proto, raw, where, dtype, shape)
    _check_count(proto, where, dtype, count)
    try:
        array = onnx.numpy_helper.to_array(proto)
    except Exception as e:  # whatever it meets in damaged data
        raise OnnxError(f"{where}: its values cannot be read ({e})") from None
    if array.dtype.hasobject:
        array = np.array([_string(s) for s in array.ravel()], object).reshape(shape)
    return array


def _string(value: Any) -> str:
    return _text(value) if isinstance(value, bytes) else str(value)


def _bits(dtype: np.dtype) -> int:
    """Of an element as it is packed in a file."""
    for kind in () if dtype.kind == "c" else (ml_dtypes.iinfo, ml_dtypes.finfo):
        try:
            return int(kind(dtype).bits)
        except (ValueError, TypeError, KeyError):
            continue
    return dtype.itemsize * 8


def _check_count(proto: Any, where: str, dtype: np.dtype, count: int) -> None:
    """That as many values are there as the shape says, before any are made."""
    if proto.HasField("raw_data"):
        _check_bytes(where, dtype, count, len(proto.raw_data))
        return
    fields = (
        proto.float_data, proto.int32_data, proto.string_data, proto.int64_data,
        proto.double_data, proto.uint64_data,
    )  # fmt: skip
    have = max(map(len, fields))
    packed = max(8 // _bits(dtype), 1) if not dtype.hasobject else 1
    wide = 2 if dtype.kind == "c" else 1
    if have not in (-(-count // packed) * wide, count * wide):
        raise OnnxError(f"{where}: its shape takes {count} values, {have} are there")


def _check_bytes(where: str, dtype: np.dtype, count: int, have: int) -> None:
    need = -(-count * _bits(dtype) // 8)
    if need != have:
        raise OnnxError(f"{where}: its shape takes {need} bytes, {have} are there")


def read_sparse(proto: Any, folder: Path | None, where: str = "") -> np.ndarray:
    """A sparse tensor, written out."""
    where = where or f"sparse tensor {proto.values.name!r}"
    values = read_tensor(proto.values, folder, where)
    indices = read_tensor(proto.indices, folder, where)
    shape = tuple(proto.dims)
    if math.prod(shape) > max(1 << 24, 64 * values.size) or min(shape, default=0) < 0:
        raise OnnxError(f"{where}: shape {shape} is too large to be written out")
    dense = np.zeros(math.prod(shape), values.dtype)
    flat = indices if indices.ndim == 1 else indices @ _strides(shape)
    if flat.size != values.size or (flat.size and not 0 <= flat.min() <= flat.max() < dense.size):
        raise OnnxError(f"{where}: its indices do not fit its shape {shape}")
    dense[flat] = values
    return dense.reshape(shape)


def _strides(shape: tuple[int, ...]) -> np.ndarray:
    return np.cumprod([1, *shape[:0:-1]], dtype=np.int64)[::-1]


def _external(
    proto: Any, folder: Path | None, where: str, dtype: np.dtype, shape: tuple[int, ...]
) -> np.ndarray:
    """Values in a file beside the model, mapped into memory."""
    said = {e.key: e.value for e in proto.external_data}
    location = said.get("location", "")
    if folder is None:
        raise OnnxError(
            f"{where}: its values are in the file {location!r}; only a model that is loaded by its "
            "path has files beside it"
        )
    try:
        path = (folder / location).resolve()
    except ValueError as e:  # no name that a file has
        raise OnnxError(f"{where}: {location!r} names no file: {e}") from None
    if not location or Path(location).is_absolute() or not path.is_relative_to(folder):
        raise OnnxError(f"{where}: {location!r} does not lie in the folder of the model")
    if not path.is_file():
        raise OnnxError(f"{where}: there is no file {location!r} beside the model")
    need = -(-math.prod(shape) * _bits(dtype) // 8)
    try:
        offset = int(said.get("offset", 0))
        length = int(said.get("length", need))
    except ValueError:
        raise OnnxError(f"{where}: offset and length must be numbers") from None
    if offset < 0 or length != need or offset + need > path.stat().st_size:
        raise OnnxError(
            f"{where}: {need} bytes from {offset} on are asked of {location!r}, which has "
            f"{path.stat().st_size} (length {length})"
        )
    if need == 0:
        return np.zeros(shape, dtype)
    raw = np.ndarray(need, np.uint8, mapped(path), offset)
    return _of_bytes(proto, raw, where, dtype, shape)


def _of_bytes(
    proto: Any, raw: np.ndarray, where: str, dtype: np.dtype, shape: tuple[int, ...]
) -> np.ndarray:
    """A tensor whose values are such bytes: a view, unless elements have less than a byte."""
    if _bits(dtype) >= 8:
        return raw.view(dtype).reshape(shape)
    tensor = onnx_package().TensorProto()
    tensor.dims.extend(proto.dims)
    tensor.data_type = proto.data_type
    tensor.raw_data = raw.tobytes()
    return read_tensor(tensor, None, where)


# Operators that the standard defines by others


def read_body(node: Node, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Function:
    """The body that the standard gives for an operator, with the defaults of its attributes.

    Args:
      node: the node that applies it.
      inputs: values that it is given, of whose dtypes some bodies depend.
      attributes: those of the node, as values.
    """
    schema = schema_of(node.domain, node.op, node.opset)
    if schema is None or not has_body(schema):
        raise UnsupportedOperator(f"{node.op} of version {node.version} has no rule")
    if schema.has_function:
        return _body_of(node.domain, node.op, node.opset)
    made = schema.get_context_dependent_function_with_opset_version
    version = _newest(schema.context_dependent_function_opset_versions, node.opset)
    types = [_type_of(value).SerializeToString() for value in inputs]
    message = _message_of(node, attributes).SerializeToString()
    return _body(schema, made(version, message, types), node.opset)


@cache
def _body_of(domain: str, op: str, opset: int) -> Function:
    """The body of an operator, which is the same for all its nodes."""
    schema = schema_of(domain, op, opset)
    version = _newest(schema.function_opset_versions, opset)
    return _body(schema, schema.get_function_with_opset_version(version), opset)


def _newest(known: Sequence[int], opset: int) -> int:
    """The newest version that an opset has; where it has none, the newest of all."""
    return max([v for v in known if v <= opset] or known)


def _body(schema: Any, data: bytes, opset: int) -> Function:
    """The function of a message, with the defaults of an operator's attributes."""
    body = onnx_package().FunctionProto()
    body.ParseFromString(data)
    reader = _Reader(_opsets(body.opset_import) or {"": opset}, None, {}, set())
    function = reader.function(body)
    reader.refuse_unknown()
    defaults = {
        name: reader.attribute(a.default_value, name, frozenset(), 0)
        for name, a in schema.attributes.items()
        if a.default_value.name
    }
    return replace(function, attributes={**function.attributes, **defaults})


def _type_of(value: Any) -> Any:
    onnx = onnx_package()
    if value is None:
        return onnx.TypeProto()
    if isinstance(value, list):
        return onnx.helper.make_sequence_type_proto(_type_of(value[0] if value else np.zeros(0)))
    kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(value.dtype))
    return onnx.helper.make_tensor_type_proto(kind, [int(n) for n in value.shape])


def _message_of(node: Node, attributes: Mapping[str, Any]) -> Any:
    """A node as a message, without its subgraphs."""
    onnx = onnx_package()
    message = onnx.NodeProto(op_type=node.op, domain=node.domain, name=node.name)
    message.input.extend(node.inputs)
    message.output.extend(node.outputs)
    for name, value in attributes.items():
        if not isinstance(value, Graph):
            message.attribute.append(onnx.helper.make_attribute(name, value))
    return message
