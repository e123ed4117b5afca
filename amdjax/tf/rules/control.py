"""Constants, inputs, what passes values on, and control flow."""

from __future__ import annotations

from typing import Any

import numpy as np

import amdjax
import amdjax.numpy as jnp
from amdjax import lax

from ..errors import TensorFlowError
from ..evaluation import DEAD
from ..nodes import Node
from ..registry import is_host, rule, to_device
from ..tensors import shape_of
from .lists import Reserved


@rule("Const")
def const(node: Node) -> Any:
    if node.constant is None or node.constant.dtype == object:
        raise node.error("texts are not computed with")
    return node.constant


@rule("PlaceholderWithDefault")
def placeholder_with_default(node: Node, input: Any) -> Any:
    return input


@rule(
    "Identity", "Snapshot", "PreventGradient", "CheckNumerics", "ReadVariableOp", "EnsureShape",
    "RefIdentity",
)  # fmt: skip
def identity(node: Node, input: Any) -> Any:
    if node.op == "EnsureShape":
        _ensure_shape(node, input)
    return input


def _ensure_shape(node: Node, x: Any) -> None:
    said = node.message("shape", "shape")
    shape = None if said is None else shape_of(said, str(node.error("shape")))
    if shape is None:
        return
    known = [(n, m) for n, m in zip(shape, x.shape) if n is not None and isinstance(m, int)]
    if len(shape) != x.ndim or any(n != m for n, m in known):
        raise node.error(f"input has shape {x.shape}, expected {shape}")


@rule("IdentityN", mixed=True)
def identity_n(node: Node, *input: Any) -> Any:
    return input


@rule("StopGradient")
def stop_gradient(node: Node, input: Any) -> Any:
    return input if is_host(input) else lax.stop_gradient(input)


@rule("NoOp", "Assert", mixed=True)
def nothing(node: Node, *inputs: Any) -> Any:
    return ()


@rule("Switch", "RefSwitch", numbers=("pred",))
def switch(node: Node, data: Any, pred: Any) -> Any:
    taken = _truth(node, pred)
    return (DEAD, data) if taken else (data, DEAD)


@rule("Merge", "RefMerge", mixed=True)
def merge(node: Node, *inputs: Any) -> Any:
    there = [i for i, value in enumerate(inputs) if value is not DEAD]
    if len(there) != 1:
        raise node.error("which of its inputs is there must be known as the graph is traced")
    return inputs[there[0]], np.asarray(there[0], np.int32)


def _truth(node: Node, value: np.ndarray) -> bool:
    if value.size != 1:
        raise node.error(f"the predicate must be one value, got shape {value.shape}")
    return bool(value.ravel()[0])


@rule("If", "StatelessIf", mixed=True)
def if_else(node: Node, cond: Any, *inputs: Any, run: Any) -> Any:
    """A branch where the condition is known, else both as branches of one program."""
    chosen, other = node.graphs["then_branch"], node.graphs["else_branch"]
    if is_host(cond):
        return tuple(run(chosen if _truth(node, cond) else other, inputs))
    made = lax.cond(
        cond.reshape(()) != 0,
        lambda *given: tuple(map(to_device, run(chosen, given))),
        lambda *given: tuple(map(to_device, run(other, given))),
        *map(to_device, inputs),
    )
    return tuple(made)


@rule("While", "StatelessWhile", only_device=True)
def while_loop(node: Node, *inputs: Any, run: Any) -> Any:
    test, body = node.graphs["cond"], node.graphs["body"]
    inputs = _written(body, tuple(map(to_device, inputs)), run)
    made = lax.while_loop(
        lambda state: to_device(run(test, state)[0]).reshape(()) != 0,
        lambda state: tuple(map(to_device, run(body, state))),
        inputs,
    )
    return tuple(made)


def _written(body: Any, inputs: tuple[Any, ...], run: Any) -> tuple[Any, ...]:
    """Inputs of a loop in which lists that it writes to are arrays already."""
    lists = [i for i, value in enumerate(inputs) if isinstance(value, Reserved)]
    if not lists:
        return inputs

    def after_a_step(*arrays: Any) -> tuple[Any, ...]:
        rest = iter(arrays)
        given = [v if isinstance(v, Reserved) else next(rest) for v in inputs]
        made = run(body, given)
        if any(isinstance(made[i], Reserved) for i in lists):
            raise TensorFlowError("a step of the loop leaves a list unwritten")
        return tuple(to_device(made[i]) for i in lists)

    types = amdjax.eval_shape(after_a_step, *(v for v in inputs if not isinstance(v, Reserved)))
    arrays = {i: jnp.zeros(t.shape, t.dtype) for i, t in zip(lists, types)}
    return tuple(arrays.get(i, value) for i, value in enumerate(inputs))
