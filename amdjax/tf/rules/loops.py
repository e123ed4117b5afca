"""Loops. Those that count have a known number of steps, and so derivatives in both modes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import amdjax
import amdjax.numpy as jnp
from amdjax import lax
from amdjax.core.dims import is_symbolic_dim
from amdjax.core.dims.expression import max_dim, min_dim

from ..errors import TensorFlowError
from ..nodes import Edge, Graph, Node
from ..registry import is_host, rule, sizes, to_device
from .lists import Reserved


@rule("While", "StatelessWhile", mixed=True)
def while_loop(node: Node, *inputs: Any, run: Callable[..., Any]) -> Any:
    """What a step passes on as it is stays around the loop, and is known there if it is so here."""
    test, body = node.graphs["cond"], node.graphs["body"]
    loop = _Loop(_Names(test), _Names(body), list(inputs))
    fixed = loop.fixed()
    carried = [i for i in range(len(inputs)) if i not in fixed]
    given = _written(body, list(inputs), run)

    def whole(state: Sequence[Any]) -> list[Any]:
        values = list(given)
        for i, value in zip(carried, state):
            values[i] = value
        return values

    def step(state: Sequence[Any]) -> tuple[Any, ...]:
        made = run(body, whole(state))
        return tuple(to_device(made[i]) for i in carried)

    first = tuple(to_device(given[i]) for i in carried)
    count = loop.steps(fixed)
    if count is not None:
        return tuple(whole(lax.fori_loop(0, count, lambda _, state: step(state), first)))
    more = lambda state: to_device(run(test, whole(state))[0]).reshape(()) != 0
    return tuple(whole(lax.while_loop(more, step, first)))


def _written(body: Graph, inputs: list[Any], run: Callable[..., Any]) -> list[Any]:
    """Inputs of a loop in which lists that it writes to are arrays already."""
    lists = [i for i, value in enumerate(inputs) if isinstance(value, Reserved)]
    if not lists:
        return inputs

    def after_a_step(arrays: dict[int, Any]) -> tuple[Any, ...]:
        made = run(body, [arrays.get(i, value) for i, value in enumerate(inputs)])
        if any(isinstance(made[i], Reserved) for i in lists):
            raise TensorFlowError("a step of the loop leaves a list unwritten")
        return tuple(to_device(made[i]) for i in lists)

    arrays = {i: v for i, v in enumerate(inputs) if not (i in lists or is_host(v))}
    types = amdjax.eval_shape(after_a_step, arrays)
    written = {i: jnp.zeros(t.shape, t.dtype) for i, t in zip(lists, types)}
    return [written.get(i, value) for i, value in enumerate(inputs)]


class _Names:
    """The nodes of a graph by name, behind those that only pass values on."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.arguments = {name: i for i, name in enumerate(graph.inputs)}
        self._nodes = {node.name: node for node in graph.nodes}

    def behind(self, edge: Edge) -> Edge:
        """The output that identities pass on."""
        name, at = edge
        while name not in self.arguments and self._nodes[name].op in ("Identity", "IdentityN"):
            inputs = self._nodes[name].inputs
            if at >= len(inputs):
                break
            name, at = inputs[at]
        return name, at

    def node(self, edge: Edge) -> Node | None:
        """The node of an output; None for arguments."""
        name, _ = self.behind(edge)
        return None if name in self.arguments else self._nodes[name]

    def argument(self, edge: Edge) -> int | None:
        """Which argument an output is."""
        return self.arguments.get(self.behind(edge)[0])


class _Loop(NamedTuple):
    """A loop's condition, its step, and what it begins with."""

    test: _Names
    body: _Names
    inputs: list[Any]

    def fixed(self) -> frozenset[int]:
        """Arguments that a step passes on as they are."""
        outputs = enumerate(self.body.graph.outputs)
        return frozenset(i for i, edge in outputs if self.body.argument(edge) == i)

    def steps(self, fixed: frozenset[int]) -> Any:
        """How many steps there are, where all conditions are that counters are below limits."""
        pending, counts = [self.test.graph.outputs[0]], []
        while pending:
            node = self.test.node(pending.pop())
            if node is None or len(node.inputs) != 2:
                return None
            if node.op == "LogicalAnd":
                pending += node.inputs
                continue
            counter, limit = self.test.argument(node.inputs[0]), None
            if node.op == "Less" and counter is not None and counter not in fixed:
                limit = self.number(self.test, node.inputs[1], fixed)
                start, step = self.count(self.inputs[counter]), self.increment(counter, fixed)
            if limit is None or start is None or step is None:
                return None
            counts.append(max_dim(-((start - limit) // step), 0))
        return min_dim(*counts)

    def increment(self, counter: int, fixed: frozenset[int]) -> int | None:
        """What a step adds to a counter, a positive number."""
        node = self.body.node(self.body.graph.outputs[counter])
        if node is None or node.op not in ("Add", "AddV2") or len(node.inputs) != 2:
            return None
        for one, other in (node.inputs, node.inputs[::-1]):
            if self.body.argument(one) == counter:
                step = self.number(self.body, other, fixed)
                return step if isinstance(step, int) and step > 0 else None
        return None

    def number(self, names: _Names, edge: Edge, fixed: frozenset[int]) -> Any:
        """The number that an output of the condition or of a step always is, if that is known."""
        argument, node = names.argument(edge), names.node(edge)
        if argument is not None:
            return self.count(self.inputs[argument]) if argument in fixed else None
        return None if node is None or node.constant is None else self.count(node.constant)

    @staticmethod
    def count(value: Any) -> Any:
        """A host array of one integer as a number."""
        if not is_host(value) or value.size != 1 or value.dtype.kind not in "iO":
            return None
        number = sizes(value)[0] if value.dtype.kind == "i" else value.ravel()[0]
        return number if isinstance(number, int) or is_symbolic_dim(number) else None
