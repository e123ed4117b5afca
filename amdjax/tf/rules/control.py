"""Constants, inputs, what passes values on, and control flow."""

from __future__ import annotations

from typing import Any

import numpy as np

from amdjax import lax

from ..evaluation import DEAD
from ..nodes import Node
from ..registry import is_host, rule, to_device
from ..tensors import shape_of


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


@rule(
    "Merge", "RefMerge", "Enter", "RefEnter", "Exit", "RefExit", "NextIteration",
    "RefNextIteration", "LoopCond", mixed=True,
)  # fmt: skip
def part(node: Node, *inputs: Any) -> Any:
    """What loops made of frames and branches consist of, which become others as graphs are read."""
    raise node.error("it stands alone, in no loop and behind no branches")


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
    arrays = {i: value for i, value in enumerate(inputs) if not is_host(value)}

    def branch(graph: Any) -> Any:
        def computed(arrays: dict[int, Any]) -> tuple[Any, ...]:
            given = [arrays.get(i, value) for i, value in enumerate(inputs)]
            return tuple(map(to_device, run(graph, given)))

        return computed

    condition = to_device(cond).reshape(()) != 0
    return tuple(lax.cond(condition, branch(chosen), branch(other), arrays))
