"""A table of what a network's layers are, give and cost."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

from amdjax.core.context import context
from amdjax.core.jaxpr import JaxprEqn
from amdjax.core.lowering import Control, Decompose, Element, Pointwise, Reduce, Shaped
from amdjax.core.pytree import tree_flatten, tree_unflatten
from amdjax.nn.applying import apply, map_modules, places
from amdjax.nn.module import Module, build, text
from amdjax.nn.trees import count_parameters
from amdjax.transforms.staging import eval_shape, make_jaxpr

__all__ = ["Summary", "SummaryRow", "summary"]


@dataclasses.dataclass(frozen=True)
class SummaryRow:
    """One call of a layer.

    Args:
      path: from the network to the layer; "" is the network itself.
      kind: the layer's class.
      output: dtypes and shapes of its result.
      parameters: how many trained numbers it has, with the layers within it.
      flops: operations on elements, with those of the layers that it calls.
    """

    path: str
    kind: str
    output: str
    parameters: int
    flops: int


@dataclasses.dataclass(frozen=True)
class Summary:
    """What `summary` found; printed, a table.

    Args:
      rows: a row for each call of a layer, in the order of calls.
      parameters: trained numbers of the whole network, also of layers that are not called.
      flops: operations on elements of the whole call.
    """

    rows: tuple[SummaryRow, ...]
    parameters: int
    flops: int

    def __str__(self) -> str:
        head = ("layer", "class", "output", "parameters", "FLOPs")
        body = [
            (r.path or "(network)", r.kind, r.output, f"{r.parameters:,}", f"{r.flops:,}")
            for r in self.rows
        ]
        total = ("total", "", "", f"{self.parameters:,}", f"{self.flops:,}")
        widths = [max(map(len, column)) for column in zip(head, *body, total)]
        rule = "-" * (sum(widths) + 2 * (len(widths) - 1))
        lines = [_line(row, widths) for row in (head, *body, total)]
        return "\n".join([lines[0], rule, *lines[1:-1], rule, lines[-1]])


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    """Cells in columns, numbers to the right."""
    cells = [
        f"{cell:>{width}}" if i > 2 else f"{cell:<{width}}"
        for i, (cell, width) in enumerate(zip(row, widths))
    ]
    return "  ".join(cells).rstrip()


def summary(model: Any, *args: Any, **kwargs: Any) -> Summary:
    """What the layers of a network are, give and cost in one call, which is traced, not computed.

    Args:
      args: what `apply` takes; in place of arrays also things with a shape and a dtype, such as
        `ShapeDtypeStruct`.
      kwargs: what `apply` takes by name, as `key`, `train`, `method`.

    Returns:
      A `Summary` with `rows`, `parameters` and `flops`. Layers inside of `scan` and other functions
      that take modules as arguments have no rows of their own; what they cost is counted.

        >>> net = nn.Sequential([nn.Dense(3, 4, key=amdjax.random.key(0)), nn.relu])
        >>> print(nn.summary(net, jnp.ones((8, 3))))
        layer       class       output        parameters  FLOPs
        -------------------------------------------------------
        (network)   Sequential  float32[8,4]          16    256
        .layers[0]  Dense       float32[8,4]          16    224
        .layers[1]  Lambda      float32[8,4]           0     32
        -------------------------------------------------------
        total                                         16    256
    """
    calls: list[Any] = []
    watched = map_modules(lambda module: _watched(module, calls), model)
    where = places(watched)
    leaves, tree = tree_flatten((args, kwargs))
    traced = [hasattr(x, "shape") and hasattr(x, "dtype") for x in leaves]

    def run(arrays: list[Any]) -> None:
        given = iter(arrays)
        args, kwargs = tree_unflatten(
            tree, [next(given) if yes else x for x, yes in zip(leaves, traced)]
        )
        apply(watched, *args, **kwargs)
        totals.append(program_flops(context.trace.eqns))

    totals: list[float] = []
    eval_shape(run, [x for x, yes in zip(leaves, traced) if yes])
    rows = tuple(
        SummaryRow(where[id(module)][0], type(module).__name__, output, parameters, round(flops))
        for module, output, parameters, flops in calls
        if id(module) in where
    )
    return Summary(rows, count_parameters(model), round(totals[0]))


def _watched(module: Module, calls: list[Any]) -> Module:
    """A module that tells of its calls."""
    cls: Any = type(module)
    return build(_watching(cls), {**module.__dict__, "_calls": calls})


@functools.cache
def _watching(cls: Any) -> Any:
    """A class of modules whose calls add themselves to `_calls`, while they have it."""

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        calls = self.__dict__.get("_calls")
        if calls is None:  # taken apart and put together on the way into a transformed function
            return cls.__call__(self, *args, **kwargs)
        place, trace = len(calls), context.trace
        calls.append(None)
        before = len(trace.eqns)
        y = cls.__call__(self, *args, **kwargs)
        flops = program_flops(trace.eqns[before:])
        calls[place] = (self, text(y), count_parameters(self), flops)
        return y

    body = {"__call__": call, "__qualname__": cls.__qualname__, "__module__": cls.__module__}
    return type(cls.__name__, (cls,), body)


def program_flops(eqns: Sequence[JaxprEqn]) -> float:
    """Operations on elements, from the rules by which primitives say how they are computed.

    A multiplication with an addition counts as two, what only moves elements as none; loops of
    unknown length count as one turn, branches as the most expensive of them.
    """
    return sum(map(_flops, eqns))


def _flops(eqn: JaxprEqn) -> float:
    rule = eqn.primitive.lowering
    size = float(math.prod(eqn.outvars[0].aval.shape)) if eqn.outvars else 0.0
    if isinstance(rule, Control):
        return _CONTROL[rule.name](eqn, rule)
    if isinstance(rule, Shaped):
        return size * rule.flops(eqn)
    if isinstance(rule, Reduce):
        return float(math.prod(eqn.invars[0].aval.shape))
    if isinstance(rule, Pointwise):
        return size
    if isinstance(rule, Element) and rule.reads_many:
        return size * (rule.cost(eqn.params) if callable(rule.cost) else rule.cost)
    if isinstance(rule, Decompose):
        run = functools.partial(rule.fn, **eqn.params)
        return program_flops(make_jaxpr(run)(*[v.aval for v in eqn.invars]).eqns)
    return 0.0


_CONTROL: dict[str, Callable[[JaxprEqn, Any], float]] = {
    "call": lambda eqn, rule: _body(eqn.params[rule.jaxpr_param]),
    "scan": lambda eqn, rule: eqn.params["length"] * _body(eqn.params["jaxpr"]),
    "while": lambda eqn, rule: _body(eqn.params["cond_jaxpr"]) + _body(eqn.params["body_jaxpr"]),
    "cond": lambda eqn, rule: max(map(_body, eqn.params["branches"])),
}


def _body(jaxpr: Any) -> float:
    return program_flops(jaxpr.eqns)
