"""From a graph with a library of functions to one list of nodes, those that its outputs need.

Functions are written out where they are called. Nodes are looked up from the outputs backward, so
that what nothing needs (training, saving) is not read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from .errors import TensorFlowError
from .frames import EXITS, MERGES, Loop, branches_of, loops_of
from .nodes import Edge, Graph, Node
from .tensors import Reader

#: Calls within calls.
MAX_DEPTH = 64
#: Nodes with functions written out.
MAX_NODES = 200_000

#: Operators that call the function named by the attribute `f`.
_CALLS = ("PartitionedCall", "StatefulPartitionedCall", "TPUPartitionedCall")
#: Operators of control flow: attributes that name functions.
_BRANCHES = {
    "If": ("then_branch", "else_branch"), "StatelessIf": ("then_branch", "else_branch"),
    "While": ("cond", "body"), "StatelessWhile": ("cond", "body"),
}  # fmt: skip
#: What a node has as the given value of an argument.
ARGUMENT = "_Arg"
#: Operators that are inputs of a graph.
INPUTS = (ARGUMENT, "Placeholder", "PlaceholderWithDefault", "PlaceholderV2")
#: Names of outputs of operators that have several, which functions refer to by name.
_OUTPUTS = {
    **dict.fromkeys(
        ("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"),
        ("y", "batch_mean", "batch_variance", "reserve_space_1", "reserve_space_2",
         "reserve_space_3"),
    ),
    **dict.fromkeys(("TopK", "TopKV2"), ("values", "indices")),
    **dict.fromkeys(("Switch", "RefSwitch"), ("output_false", "output_true")),
    **dict.fromkeys(("Merge", "RefMerge"), ("output", "value_index")),
    **dict.fromkeys(("Unique", "UniqueV2"), ("y", "idx")),
    **dict.fromkeys(("TensorArray", "TensorArrayV3"), ("handle", "flow")),
    "NonMaxSuppressionV4": ("selected_indices", "valid_outputs"),
    "NonMaxSuppressionV5": ("selected_indices", "selected_scores", "valid_outputs"),
    "CombinedNonMaxSuppression": (
        "nmsed_boxes", "nmsed_scores", "nmsed_classes", "valid_detections"
    ),
    "MaxPoolWithArgmax": ("output", "argmax"), "Moments": ("mean", "variance"),
    "SparseSoftmaxCrossEntropyWithLogits": ("loss", "backprop"),
    "SoftmaxCrossEntropyWithLogits": ("loss", "backprop"),
}  # fmt: skip


@dataclass
class _Scope:
    """The body of a graph, of one call of a function, of a loop or a branch."""

    prefix: str
    nodes: Mapping[str, Any]
    arguments: Mapping[str, Edge | None]  # by name; None for those that are given at run time
    attributes: Mapping[str, Any] = field(default_factory=dict)
    active: tuple[str, ...] = ()  # functions and control flow that are being written out
    given: Mapping[str, int] = field(default_factory=dict)  # which output an argument stands for
    made: dict[str, Loop] = field(default_factory=dict)  # loops by names that they get


def index_nodes(nodes: Any, what: str) -> dict[str, Any]:
    """Messages of nodes by name."""
    found: dict[str, Any] = {}
    for node in nodes:
        if not node.name or not node.op:
            raise TensorFlowError(f"{what}: a node has no name or no operator")
        if node.name in found:
            raise TensorFlowError(f"{what}: there are two nodes {node.name!r}")
        found[node.name] = node
    return found


class Inliner:
    """Writes out the functions of a graph.

    Args:
      graph: a message.
      held: bytes of constants of the graph, by their names, which have none in the message.
    """

    def __init__(self, graph: Any, held: Mapping[str, np.ndarray] = MappingProxyType({})) -> None:
        self._held = held
        self._main = index_nodes(graph.node, "graph")
        self._library: dict[str, Any] = {}
        for function in graph.library.function:
            if function.signature.name in self._library:
                raise TensorFlowError(
                    f"library: there are two functions {function.signature.name!r}"
                )
            self._library[function.signature.name] = function
        self._bodies: dict[str, dict[str, Any]] = {}
        self._places: dict[str, tuple[_Scope, str]] = {}  # of nodes by their whole names
        self._constants: dict[int, np.ndarray] = {}  # by the address of messages, which bodies keep
        self._reader = Reader()
        self._count = 0
        self._restores = False
        self._loops: dict[int, Mapping[str, Loop]] = {}  # of nodes, by their address
        self._waited: list[str] = []  # nodes that the last one waits for, where that is followed

    def graph(self, outputs: Sequence[str], fed: Sequence[str] = ()) -> Graph:
        """The nodes that some outputs need.

        Args:
          outputs: names as `node` or `node:1`.
          fed: names of nodes that are given whatever they are.
        """
        scope = _Scope("", self._main, dict.fromkeys(fed))
        return self._collected([self._edge(scope, name) for name in outputs])

    def restoring(self, name: str) -> Graph:
        """The nodes that run with one, those that it only waits for among them."""
        self._restores = True
        return self.graph([name])

    def _collected(self, outputs: Sequence[Edge]) -> Graph:
        """The graph of the nodes that some outputs need."""
        made: dict[str, Node] = {}
        pending = [name for name, _ in outputs]
        while pending:
            name = pending.pop()
            if name in made:
                continue
            self._count += 1
            if self._count > MAX_NODES:
                raise TensorFlowError(f"more than {MAX_NODES} nodes with functions written out")
            made[name] = self._node(*self._places[name])
            pending += [below for below, _ in made[name].inputs]
            pending += self._waited
            self._waited.clear()
        nodes = _sorted(made, list(made) if self._restores else [name for name, _ in outputs])
        inputs = tuple(n.name for n in nodes if n.op in INPUTS)
        return Graph(nodes, inputs, tuple(outputs), tuple(_last_uses(nodes, outputs)))

    def _node(self, scope: _Scope, local: str) -> Node:
        name = scope.prefix + local
        if local in scope.arguments:
            edge = scope.arguments[local]
            if edge is not None:
                return Node(name, "Identity", (edge,))
            message = scope.nodes.get(local)
            return Node(name, ARGUMENT, (), {} if message is None else dict(message.attr))
        if local in scope.made:
            return self._loop(scope, local)
        message = scope.nodes[local]
        if message.op in EXITS:
            return self._exit(scope, local)
        if message.op in MERGES:
            return self._conditional(scope, local)
        inputs = tuple(self._edge(scope, i, name) for i in message.input if not i.startswith("^"))
        self._wait(scope, message, name)
        attributes = _with_arguments(message.attr, scope.attributes)
        node = Node(name, message.op, inputs, attributes)
        called = attributes["f"] if message.op in _CALLS and "f" in attributes else None
        if called is not None or message.op in self._library:
            function = called.func.name if called is not None else message.op
            given = called.func.attr if called is not None else attributes
            inner = self._enter(node, scope, function, given, inputs)
            if self._restores:
                assigned = [n for n, m in inner.nodes.items() if m.op == "AssignVariableOp"]
                self._waited += [self._edge(inner, n)[0] for n in assigned]
            return Node(name, "IdentityN", tuple(self._results(inner, function)))
        if message.op == "Const":
            if id(message) not in self._constants:
                held = self._held.get(local) if scope.nodes is self._main else None
                self._constants[id(message)] = self._constant(node, held)
            return Node(name, "Const", (), attributes, self._constants[id(message)])
        graphs = {part: self._branch(node, scope, part) for part in _BRANCHES.get(message.op, ())}
        return Node(name, message.op, inputs, attributes, None, graphs)

    def _wait(self, scope: _Scope, message: Any, name: str) -> None:
        """Follow what a node waits for where variables are restored; elsewhere none may be set."""
        for text in message.input:
            if not text.startswith("^"):
                continue
            before = text[1:]
            if self._restores:
                self._waited.append(self._edge(scope, before, name)[0])
            elif before in scope.nodes and scope.nodes[before].op.startswith("Assign"):
                raise TensorFlowError(
                    f"node {name!r} ({message.op}): it reads what {before!r} "
                    f"({scope.nodes[before].op}) assigns; graphs that change variables are not read"
                )

    def _constant(self, node: Node, held: np.ndarray | None) -> np.ndarray:
        value = node.message("value", "tensor")
        if value is None:
            raise node.error("the attribute 'value' is missing, which is a tensor")
        return self._reader.array(value, f"node {node.name!r} (Const)", held)

    def _enter(
        self, node: Node, scope: _Scope, function: str, given: Any, inputs: Sequence[Edge | None]
    ) -> _Scope:  # fmt: skip
        """The scope of a call."""
        if function not in self._library:
            raise node.error(f"the library has no function {function!r}")
        if function in scope.active:
            raise node.error(f"the function {function!r} calls itself")
        self._check_depth(node, scope)
        found = self._library[function]
        if function not in self._bodies:
            self._bodies[function] = index_nodes(found.node_def, f"function {function!r}")
        names = [arg.name for arg in found.signature.input_arg]
        if len(names) != len(inputs):
            raise node.error(f"{function!r} takes {len(names)} inputs, got {len(inputs)}")
        return _Scope(
            f"{node.name}//", self._bodies[function], dict(zip(names, inputs)),
            {**found.attr, **given}, (*scope.active, function),
        )  # fmt: skip

    @staticmethod
    def _check_depth(node: Node, scope: _Scope) -> None:
        if len(scope.active) >= MAX_DEPTH:
            raise node.error(f"functions call each other more than {MAX_DEPTH} deep")

    def _loops_of(self, scope: _Scope) -> Mapping[str, Loop]:
        """The loops made of frames, by the nodes by which values leave them."""
        if id(scope.nodes) not in self._loops:
            self._loops[id(scope.nodes)] = loops_of(scope.nodes)
        return self._loops[id(scope.nodes)]

    def _exit(self, scope: _Scope, local: str) -> Node:
        """What leaves a loop, as an output of the loop."""
        name = scope.prefix + local
        loop = self._loops_of(scope).get(local)
        if loop is None:
            raise Node(name, scope.nodes[local].op).error("it leaves no loop")
        made = f"{loop.name}/while"
        scope.made[made] = loop
        self._places[scope.prefix + made] = scope, made
        return Node(name, "Identity", ((scope.prefix + made, loop.exits[local]),))

    def _loop(self, scope: _Scope, local: str) -> Node:
        """A loop made of frames, as one of functions."""
        loop, name = scope.made[local], scope.prefix + local
        every = [*loop.enters, *loop.constants]
        inputs = tuple(self._edge(scope, scope.nodes[e].input[0], name) for e in every)
        test = [*loop.merges, *loop.constants]
        step = [*loop.taken, *loop.constants]
        of_step = {t: 1 for t, m in zip(loop.taken, loop.merges) if t != m}
        node = Node(name, "While", inputs)
        graphs = {
            "cond": self._part(node, scope, "cond", test, {}, [loop.condition]),
            "body": self._part(
                node, scope, "body", step, of_step, [*loop.nexts, *loop.constants]
            ),
        }  # fmt: skip
        return Node(name, "While", inputs, {}, None, graphs)

    def _conditional(self, scope: _Scope, local: str) -> Node:
        """Branches that meet in a Merge, as those of functions."""
        name = scope.prefix + local
        loops = self._loops_of(scope)
        found = branches_of(local, scope.nodes, scope.arguments, loops)
        switched = [scope.nodes[s].input for s in found.switches]
        inputs = [self._edge(scope, i[0], name) for i in switched]
        predicate = self._edge(scope, found.predicate, name)
        node, graphs = Node(name, "If"), {}
        for side, part in enumerate(("else_branch", "then_branch")):
            given = dict.fromkeys(found.switches, side)
            graph = self._part(node, scope, part, found.switches, given, [found.edges[side]])
            place = np.asarray(found.places[side], np.int32)
            index = Node(f"{name}/{part}//index", "Const", (), {}, place)
            outputs = (*graph.outputs, (index.name, 0))
            graphs[part] = Graph(
                (*graph.nodes, index), graph.inputs, outputs, (*graph.dies, ())
            )  # fmt: skip
        return Node(name, "If", (predicate, *inputs), {}, None, graphs)

    def _part(
        self, node: Node, scope: _Scope, part: str, arguments: Sequence[str],
        given: Mapping[str, int], outputs: Sequence[str],
    ) -> Graph:  # fmt: skip
        """The graph of a loop's or a branch's nodes, between those that are given and outputs."""
        self._check_depth(node, scope)
        inner = _Scope(
            f"{node.name}/{part}//", scope.nodes, dict.fromkeys(arguments), scope.attributes,
            (*scope.active, node.name), given,
        )  # fmt: skip
        names = tuple(self._edge(inner, f"{a}:{given.get(a, 0)}")[0] for a in arguments)
        graph = self._collected([self._edge(inner, text, node.name) for text in outputs])
        return Graph(graph.nodes, names, graph.outputs, graph.dies)

    def _results(self, scope: _Scope, function: str) -> Iterator[Edge]:
        found = self._library[function]
        for arg in found.signature.output_arg:
            if arg.name not in found.ret:
                raise TensorFlowError(f"function {function!r}: nothing is returned as {arg.name!r}")
            yield self._edge(scope, found.ret[arg.name], f"function {function!r}")

    def _branch(self, node: Node, scope: _Scope, part: str) -> Graph:
        """The graph of a function that control flow calls."""
        called = node.message(part, "func")
        if called is None:
            raise node.error(f"the attribute {part!r} is missing, which is a function")
        count = len(node.inputs) - (node.op in ("If", "StatelessIf"))
        named = Node(f"{node.name}/{part}", node.op)
        inner = self._enter(named, scope, called.name, called.attr, (None,) * count)
        names = tuple(self._edge(inner, name)[0] for name in inner.arguments)
        graph = self._collected(list(self._results(inner, called.name)))
        return Graph(graph.nodes, names, graph.outputs, graph.dies)

    def _edge(self, scope: _Scope, text: str, reader: str = "outputs") -> Edge:
        """What an input of a node in a scope refers to."""
        name, *rest = text.split(":")
        if name not in scope.arguments and name not in scope.nodes:
            raise TensorFlowError(f"{reader}: there is no node {name!r}")
        index = rest[-1] if rest else "0"
        if len(rest) > 2 or not (index.isascii() and index.isdigit() and len(index) < 7):
            raise TensorFlowError(f"{reader}: {text!r} is no output of a node")
        at = int(index)
        if len(rest) == 2 and name in scope.nodes:
            at += self._offset(scope.nodes[name].op, rest[0])
        at -= scope.given.get(name, 0)
        if at < 0:
            raise TensorFlowError(f"{reader}: {text!r} is what the other branch takes")
        full = scope.prefix + name
        if self._places.setdefault(full, (scope, name))[0] is not scope:
            raise TensorFlowError(f"{reader}: two nodes are called {full!r}")
        return full, at

    def _offset(self, op: str, output: str) -> int:
        """The number of an output that is named."""
        names = _OUTPUTS.get(op, ())
        if op in self._library:
            names = tuple(arg.name for arg in self._library[op].signature.output_arg)
        return names.index(output) if output in names else 0


def _with_arguments(attributes: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes of a node, of which some are those of the call it is in."""
    found: dict[str, Any] = {}
    for name, value in attributes.items():
        if value.WhichOneof("value") == "placeholder":
            if value.placeholder not in given:
                continue
            value = given[value.placeholder]
        found[name] = value
    return found


def _sorted(nodes: Mapping[str, Node], outputs: Sequence[str]) -> tuple[Node, ...]:
    """Nodes in the order of their inputs."""
    order: list[Node] = []
    state: dict[str, bool] = {}  # False while its inputs are looked at
    for output in outputs:
        stack = [(output, iter(nodes[output].inputs))]
        if output in state:
            continue
        state[output] = False
        while stack:
            name, inputs = stack[-1]
            for below, _ in inputs:
                if below not in state:
                    state[below] = False
                    stack.append((below, iter(nodes[below].inputs)))
                    break
                if not state[below]:
                    raise nodes[below].error("it depends on itself")
            else:
                state[name] = True
                order.append(nodes[name])
                stack.pop()
    return tuple(order)


def _last_uses(nodes: Sequence[Node], outputs: Sequence[Edge]) -> Iterator[tuple[str, ...]]:
    """For each node, those whose values nothing reads after it."""
    live = {name for name, _ in outputs}
    dying: list[tuple[str, ...]] = []
    for node in reversed(nodes):
        last = {name for name, _ in node.inputs} | {node.name}
        dying.append(tuple(sorted(last - live)))
        live |= last
    return reversed(dying)
