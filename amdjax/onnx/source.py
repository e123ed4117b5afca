"""A model as Python source: a line for each node, with functions of amdjax where there are such.

Names and texts of a file are not trusted: names become identifiers of letters, digits
and underscores that no other name of the source has, and all else is written by `ascii`.
"""

from __future__ import annotations

import builtins
import contextlib
import itertools
import keyword
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

import amdjax
from amdjax.core.dims import SymbolicScope, symbolic_shape
from amdjax.export.values import Value

from .errors import NotTraceable, OnnxError
from .evaluation import Evaluation, to_device
from .graph import Function, Graph, Node, Program, Reference
from .registry import find_rule, is_host
from .source_templates import TEMPLATES, Operand

#: Arrays of more numbers are written as their bytes.
_WRITTEN = 64
#: Nodes of a scope that are worth a function.
_LEAST = 3
_RESERVED = frozenset(
    ("np", "jnp", "lax", "nn", "amdjax", "params", "model", "load_params", "operator", "Path",
     "Subgraph", "PARAMS", "to_device", "ml_dtypes", "special", "self")
)  # fmt: skip

_HEAD = '''\
"""A model that was read from an ONNX file, as a function of its parameters and inputs."""

import ml_dtypes
import numpy as np

import amdjax
import amdjax.numpy as jnp
from amdjax import lax, nn
from amdjax.onnx.evaluation import to_device
from amdjax.onnx.single import Subgraph, operator
from amdjax.scipy import special
'''

_LOAD = '''
def load_params(path):
    """The parameters of a file that Model.to_python wrote."""
    with amdjax.enable_x64(True):
        like = {n: amdjax.ShapeDtypeStruct(s, np.dtype(d)) for n, (s, d) in PARAMS.items()}
        return nn.load(path, like)
'''


class Source:
    """The source of a model.

    Args:
      program: the graph, without its parameters.
      params: the parameters.
      inputs: what is said of the inputs that must be given.
      optional: names of inputs with defaults.
      custom: operators of the user, which have no source.
    """

    def __init__(
        self, program: Program, params: Mapping[str, np.ndarray], inputs: Sequence[Value],
        optional: Iterable[str], custom: Mapping[Any, Any],
    ) -> None:  # fmt: skip
        self.program, self.params = program, params
        self.inputs, self.optional = inputs, sorted(optional)
        self.names = _Names()
        self.operators: dict[tuple[Any, ...], str] = {}  # their names
        self.functions = {key: self.names.fresh(key[1]) for key in program.functions}
        self.known: dict[str, Operand] = {}
        if all(n in params for n in self.optional):  # else sizes may be given by inputs
            self.known = _recorded(program, params, inputs, custom)
        self.folded = _folded(program.graph, self.known)
        self.custom = custom

    def text(self) -> str:
        """The source."""
        graph = self.program.graph
        values: dict[str, str] = {n: f"params[{n!a}]" for n in self.params}
        values.update((n, _array(v)) for n, v in graph.constants.items() if n not in values)
        values.update((n, _array(v)) for n, v in self.folded.items())
        given = [v.name for v in self.inputs]
        for name in (*given, *self.optional):
            values[name] = self.names.fresh(name)
        defaults = {n: values[n] for n in self.optional}
        nodes = [n for n in graph.nodes if not all(o in self.folded for o in n.outputs if o)]
        before: list[str] = []
        wanted = {v.name for v in graph.outputs}
        body = self._block(nodes, values, wanted, 0, before)
        head = ["params", *(values[n] for n in given), *(f"{n}=None" for n in defaults.values())]
        lines = [f"def model({', '.join(head)}):", '    """The outputs by name."""']
        lines.append("    params = {name: to_device(value) for name, value in params.items()}")
        lines += [f"    {values[n]} = to_device({values[n]})" for n in given]
        for name, own in defaults.items():
            value = self._default(name)
            lines.append(f"    {own} = {value} if {own} is None else to_device({own})")
        lines += [f"    {line}" for line in body]
        outputs = ", ".join(f"{v.name!a}: to_device({values[v.name]})" for v in graph.outputs)
        lines.append(f"    return {{{outputs}}}")
        written = [_joined(self._function(key, f)) for key, f in self.program.functions.items()]
        described = [
            f"    {n!a}: ({tuple(v.shape)!r}, {v.dtype.name!r})," for n, v in self.params.items()
        ]
        parts = [
            _HEAD, *(f"{name} = {made}" for made, name in self._operators()),
            "\n#: Shapes and dtypes of the parameters.", "PARAMS = {", *described, "}\n", _LOAD,
            *written, *before, _joined(lines),
        ]  # fmt: skip
        return "\n".join(parts) + "\n"

    def _default(self, name: str) -> str:
        if name in self.params:
            return f"params[{name!a}]"
        return _array(self.program.graph.constants[name])

    def _operators(self) -> Iterator[tuple[str, str]]:
        for (op, version, domain, opset), name in self.operators.items():
            more = f", {domain!a}" if domain else ""
            more += f", opset={opset}" if opset else ""
            yield f"operator({op!a}, {version}{more})", name

    # Blocks of nodes

    def _block(
        self, nodes: Sequence[Node], values: dict[str, str], wanted: set[str], depth: int,
        before: list[str],
    ) -> list[str]:  # fmt: skip
        """Lines of nodes; those of a scope are a function, written before."""
        runs = [list(run) for _, run in itertools.groupby(nodes, lambda n: _scope(n)[: depth + 1])]
        if len(runs) == 1 and nodes and len(_scope(nodes[0])) > depth:
            return self._block(nodes, values, wanted, depth + 1, before)
        lines: list[str] = []
        for i, run in enumerate(runs):
            if len(run) < _LEAST or len(_scope(run[0])) <= depth or len(runs) == 1:
                for node in run:
                    lines += self.node(node, values, self.known)
                continue
            read_later = wanted.union(*(n.reads for later in runs[i + 1 :] for n in later))
            lines.append(self._scope_function(run, values, read_later, depth, before))
        return lines

    def _scope_function(
        self, run: Sequence[Node], values: dict[str, str], wanted: set[str], depth: int,
        before: list[str],
    ) -> str:  # fmt: skip
        name = self.names.fresh(_scope(run[0])[depth])
        made = [o for n in run for o in n.outputs if o]
        read = dict.fromkeys(i for n in run for i in (*n.inputs, *sorted(n.reads)) if i)
        taken = [i for i in read if i not in made and values[i].isidentifier()]
        given = [o for o in made if o in wanted]
        lines = self._block(run, values, set(given), depth + 1, before)
        head = ", ".join(["params", *(values[i] for i in taken)])
        results = ", ".join(values[o] for o in given)
        text = [f"def {name}({head}):", *(f"    {x}" for x in lines), f"    return {results}"]
        before.append(_joined(text))
        return f"{results} = {name}({head})" if results else f"{name}({head})"

    def _function(self, key: Any, function: Function) -> list[str]:
        """A function of the model."""
        values = {i: self.names.fresh(i) for i in function.inputs}
        attributes = {a: self.names.attribute(a) for a in function.attributes}
        head = [f"{v}=None" for v in values.values()]
        head += ["*"] * bool(attributes)
        for name, own in attributes.items():
            value = function.attributes[name]
            head.append(f"{own}=None" if value is None else f"{own}={self._plain(value)}")
        lines = [f"def {self.functions[key]}({', '.join(head)}):"]
        lines += [f"    {x}" for x in self._body(function.graph, values, attributes)]
        return lines

    def _body(
        self, graph: Graph, values: dict[str, str], attributes: Mapping[str, str]
    ) -> list[str]:
        """Lines of a graph without what was recorded, and what it returns."""
        values.update((n, _array(v)) for n, v in graph.constants.items())
        lines: list[str] = []
        for node in graph.nodes:
            lines += self.node(node, values, {}, attributes)
        results = "".join(f"{values.get(v.name, 'None')}, " for v in graph.outputs)
        return [*lines, f"return ({results.rstrip()})"]

    def node(
        self, node: Node, values: dict[str, str], known: Mapping[str, Operand],
        attributes: Mapping[str, str] | None = None,
    ) -> list[str]:  # fmt: skip
        """The lines of a node; its outputs get names."""
        if (node.domain, node.op) in self.custom:
            raise OnnxError(f"node {node.name!r}: {node.op} is a function that was given to load")
        lines: list[str] = []
        operands = [values[i] if i else "None" for i in node.inputs]
        function = self.functions.get((node.domain, node.op, node.overload))
        made = None
        if function is None and node.domain == "" and node.op in TEMPLATES:
            of = [known.get(i) for i in node.inputs]
            plain = not any(isinstance(v, Reference) for v in node.attributes.values())
            made = TEMPLATES[node.op](node, of, operands) if plain else None
        if made is None:
            arguments = list(operands)
            for name, value in node.attributes.items():
                text = self._attribute(value, values, lines, attributes or {})
                if text is not None:
                    own = self.names.attribute(name) if function else name
                    arguments.append(_keyword(own, text))
            several = len(node.outputs) > 1
            if several and function is None:
                arguments.append(f"_outputs={len(node.outputs)}")
            made = f"{function or self._operator(node)}({', '.join(arguments)})"
            if several or function is not None:
                names = [self._name(o, node, values) for o in node.outputs]
                star = ", *_" if function is not None else ","
                return [*lines, f"{', '.join(names)}{star} = {made}"]
        return [*lines, f"{self._name(node.outputs[0], node, values)} = {made}"]

    def _operator(self, node: Node) -> str:
        ruled = find_rule(node.domain, node.op, node.opset) is not None
        key = node.op, node.version, node.domain, 0 if ruled else node.opset
        if key not in self.operators:
            self.operators[key] = self.names.fresh(node.op, keep_case=True)
        return self.operators[key]

    def _name(self, output: str, node: Node, values: dict[str, str]) -> str:
        if not output:
            return "_"
        values[output] = self.names.fresh(output)
        return values[output]

    def _attribute(
        self, value: Any, values: dict[str, str], lines: list[str], attributes: Mapping[str, str]
    ) -> str | None:
        """An attribute as source; subgraphs are functions in the lines before."""
        if isinstance(value, Reference):
            return attributes.get(value.name)
        if isinstance(value, Graph):
            return self._subgraph(value, values, lines, attributes)
        if isinstance(value, list) and any(isinstance(v, Graph) for v in value):
            parts = [self._subgraph(v, values, lines, attributes) for v in value]
            return f"[{', '.join(parts)}]"
        if isinstance(value, Value):
            return None
        return self._plain(value)

    def _subgraph(
        self, graph: Graph, values: dict[str, str], lines: list[str], attributes: Mapping[str, str]
    ) -> str:
        name = self.names.fresh(graph.name or "body")
        inner = dict(values)
        inner.update((v.name, self.names.fresh(v.name)) for v in graph.inputs)
        head = ", ".join(inner[v.name] for v in graph.inputs)
        lines.append(f"def {name}({head}):")
        lines += [f"    {x}" for x in self._body(graph, inner, attributes)]
        described = [
            (v.dtype and np.dtype(v.dtype).name, _known_shape(v.shape)) for v in graph.outputs
        ]
        return f"Subgraph({name}, {described!r})"

    def _plain(self, value: Any) -> str:
        """An attribute without graphs as source."""
        if isinstance(value, np.ndarray):
            return _array(value)
        if isinstance(value, (list, tuple)):
            return f"[{', '.join(self._plain(v) for v in value)}]"
        if isinstance(value, (bool, int, str, bytes)) or value is None:
            return ascii(value)
        if isinstance(value, float):
            return _number(value)
        raise OnnxError(f"to_python: an attribute of type {type(value).__name__} has no source")


# Texts


class _Names:
    """Identifiers, each given once."""

    def __init__(self) -> None:
        self.given: set[str] = set()
        self.count: dict[str, int] = {}

    def fresh(self, name: str, keep_case: bool = False) -> str:
        """An identifier that says what a name of the file says."""
        parts = [p for p in re.split(r"[/.:]+", name) if p]
        base = identifier(parts[-1] if parts else "")
        base = re.sub(r"_output_\d+$", "", base)
        base = base if keep_case else base.lower()
        if not base or not base[0].isalpha():
            base = f"v_{base}".rstrip("_")
        while True:
            i = self.count[base] = self.count.get(base, -1) + 1
            made = f"{base}_{i}" if i else base
            if made not in self.given and not _is_taken(made):
                self.given.add(made)
                return made

    def attribute(self, name: str) -> str:
        """The parameter of a function for its attribute."""
        return f"attribute_{identifier(name)}_{name.encode().hex()[:16]}"


def identifier(text: str) -> str:
    """Letters, digits and underscores of a text."""
    return re.sub(r"[^A-Za-z0-9]+", "_", text)[:40].strip("_")


def _is_taken(name: str) -> bool:
    return keyword.iskeyword(name) or name in _RESERVED or hasattr(builtins, name)


def _joined(lines: Sequence[str]) -> str:
    return "\n" + "\n".join(lines) + "\n"


def _keyword(name: str, text: str) -> str:
    if name == "_outputs":
        raise OnnxError("to_python: no operator has an attribute '_outputs'")
    if name.isascii() and name.isidentifier() and not keyword.iskeyword(name):
        return f"{name}={text}"
    return f"**{{{name!a}: {text}}}"


def _number(value: float) -> str:
    return repr(value) if np.isfinite(value) else f"float({str(value)!r})"


def _array(value: Any) -> str:
    """An array as source."""
    value = np.asarray(value)
    name, shape = value.dtype.name, tuple(value.shape)
    if value.dtype == object:
        if not all(isinstance(v, (str, bytes)) for v in value.ravel()):
            raise OnnxError("to_python: an array of objects has no source")
        return f"np.array({value.ravel().tolist()!a}, object).reshape({shape!r})"
    if value.size <= _WRITTEN and value.dtype.kind in "biuf":
        if not shape:
            return f"np.{_scalar_type(name)}({_items(value.tolist())})"
        if value.size:
            return f"np.array({_items(value.tolist())}, np.{_scalar_type(name)})"
    dtype = f"np.{_scalar_type(name)}" if value.dtype.kind in "biufc" else f"ml_dtypes.{name}"
    data = np.ascontiguousarray(value).tobytes().hex()
    return f'np.frombuffer(bytes.fromhex("{data}"), {dtype}).reshape({shape!r})'


def _scalar_type(name: str) -> str:
    return "bool_" if name == "bool" else name


def _items(values: Any) -> str:
    if isinstance(values, list):
        return f"[{', '.join(map(_items, values))}]"
    return _number(values) if isinstance(values, float) else repr(values)


def _known_shape(shape: Any) -> Any:
    return None if shape is None else tuple(n if isinstance(n, int) else None for n in shape)


def _scope(node: Node) -> list[str]:
    """The modules that a node is in, as exporters write them into its name."""
    return [p for p in node.name.split("/") if p][:-1] if node.name.startswith("/") else []


# What is known of values


class _Recorder(Evaluation):
    """An evaluation that tells what each node of the main graph made."""

    def __init__(self, program: Program, custom: Mapping[Any, Any]) -> None:
        super().__init__(program, custom)
        self.seen: dict[str, Any] = {}
        self.own = {id(node) for node in program.graph.nodes}

    def node(self, node: Node, values: Any, bound: Mapping[str, Any]) -> Sequence[Any]:
        made = super().node(node, values, bound)
        if id(node) in self.own:
            self.seen.update((o, _operand(v)) for o, v in zip(node.outputs, made))
        return made


def _operand(value: Any) -> Operand:
    if is_host(value):
        return Operand(value if isinstance(value, np.ndarray) else None, None, None)
    if isinstance(value, list):
        return Operand(None, None, None)
    return Operand(None, np.dtype(value.dtype), tuple(value.shape))


def _recorded(
    program: Program, params: Mapping[str, Any], inputs: Sequence[Value], custom: Mapping[Any, Any]
) -> dict[str, Operand]:
    """What is known of values as the model is traced for sizes that are open where it says so.

    Nothing is known of what comes after a node that cannot be traced.
    """
    recorder = _Recorder(program, custom)
    graph = program.graph
    recorder.seen.update((n, _operand(v)) for n, v in graph.constants.items())

    def run(given: Mapping[str, Any]) -> list[Any]:
        values = {n: to_device(v) for n, v in given.items()}
        recorder.seen.update((n, _operand(v)) for n, v in values.items())
        recorder.run(graph, values)
        return []

    failures = (NotTraceable, OnnxError, ValueError, TypeError, NotImplementedError)
    with contextlib.suppress(*failures), amdjax.enable_x64(True):
        given = {n: amdjax.ShapeDtypeStruct(v.shape, v.dtype) for n, v in params.items()}
        scope, count = SymbolicScope(), itertools.count()
        for value in inputs:
            if value.kind != "tensor" or value.shape is None or value.dtype is None:
                return recorder.seen
            text = ", ".join(_dimension(n, count) for n in value.shape)
            shape = symbolic_shape(text, scope=scope) if text else ()
            given[value.name] = amdjax.ShapeDtypeStruct(shape, value.dtype)
        amdjax.eval_shape(run, given)
    return recorder.seen


def _dimension(said: Any, count: Iterator[int]) -> str:
    if isinstance(said, int):
        return str(said)
    return f"d_{said.encode().hex()}" if said else f"u_{next(count)}"


def _folded(graph: Graph, known: Mapping[str, Operand]) -> dict[str, np.ndarray]:
    """Values that are known whatever the sizes of inputs are."""
    fixed = {n: v for n, v in graph.constants.items() if n in known}
    found: dict[str, np.ndarray] = {}
    for node in graph.nodes:
        if list(node.graphs):
            continue
        made = [known[o].host if o in known else None for o in node.outputs if o]
        of_fixed = all(i in fixed or i in found for i in node.inputs if i)
        operand = known.get(node.inputs[0]) if node.inputs else None
        of_shape = node.op in ("Shape", "Size") and operand is not None and operand.is_sized
        small = all(m is not None and m.dtype != object and m.size <= _WRITTEN for m in made)
        if (of_fixed or of_shape) and small and made:
            found.update((o, m) for o, m in zip(filter(None, node.outputs), made) if m is not None)
    return found
