"""Attention that is written out, as equations of attention: softmax of products, times values.

Written out it makes an array of all pairs of queries and keys, several times. What is found here
goes through kernels that keep pairs in registers, forward and backward, if the machine has them. It
is found by its dataflow: by axes (`axes.py`), by what logits are computed of (`logits.py`) and by
what becomes of their exponentials (`weights.py`). Where anything else reads logits or weights, or a
value of theirs, nothing changes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from amdjax.core.config import config, disable_jit, enable_x64
from amdjax.core.jaxpr import ClosedJaxpr, JaxprEqn, Literal, Var
from amdjax.core.jaxpr_trace import trace_to_jaxpr
from amdjax.core.source_info import written_at
from amdjax.passes.attention.axes import (
    STRUCTURAL,
    Layout,
    before,
    flat,
    fresh,
    of_operand,
    settled,
)
from amdjax.passes.attention.call import Call, arranged
from amdjax.passes.attention.logits import find_logits
from amdjax.passes.attention.program import Program, is_float
from amdjax.passes.attention.weights import Weights, find_weights, same_value
from amdjax.passes.cleanup import eliminate_common_subexpressions, eliminate_dead_code
from amdjax.passes.rules import simplify

HasKernels = Callable[[JaxprEqn], bool]


def recognize_attention(closed: ClosedJaxpr, has_kernels: HasKernels) -> ClosedJaxpr:
    """Attention that is written out, forward and backward, in kernels where there are any.

    Args:
      closed: a flat program, simplified.
      has_kernels: whether the machine has kernels for an equation.
    """
    names = [e.primitive.name for e in closed.eqns]
    if "exp" not in names or names.count("dot_general") < 2:
        return closed
    program = Program(eliminate_dead_code(closed))
    edit = _Edit(program, has_kernels)
    for eqn in program.eqns:
        if eqn.primitive.name == "exp" and (found := _found(program, eqn)) is not None:
            edit.replace(found)
    if not edit.names:
        return closed
    return eliminate_common_subexpressions(eliminate_dead_code(simplify(edit.result())))


@dataclass
class _Found:
    """An attention and what replaces its values."""

    call: Call
    weights: Weights
    source: Any


def _found(program: Program, eqn: JaxprEqn) -> _Found | None:
    """The attention that exponentials belong to."""
    exponentials = eqn.outvars[0]
    axes = _summed_axes(program, exponentials)
    if axes is None or not is_float(exponentials.aval.dtype) or not exponentials.aval.size:
        return None
    layout = fresh(exponentials.aval.shape)
    keys = tuple(axis for d in axes for axis in layout[d])
    weights = find_weights(program, exponentials, layout, keys) if keys else None
    if weights is None or weights.values is None or not weights.products:
        return None
    logits, least_shift = _unshifted(program, eqn, axes, layout)
    found = find_logits(program, logits, layout, set(keys))
    if found is None or not _is_chosen_alike(program, found, weights, layout):
        return None
    if found.fill is not None and least_shift - found.fill > _UNDERFLOW:
        found.fill = -np.inf  # a row of nothing else is 0 / 0 as well
    call = arranged(program, found, weights, layout, keys)
    return None if call is None else _Found(call, weights, eqn.source)


def _summed_axes(program: Program, exponentials: Var) -> tuple[int, ...] | None:
    """The dimensions that exponentials are summed over."""
    for place in program.readers[exponentials]:
        eqn = program.eqns[place]
        if eqn.primitive.name == "reduce_sum":
            return tuple(eqn.params["axes"])
        if eqn.primitive.name == "convert_element_type":
            return _summed_axes(program, eqn.outvars[0])
    return None


#: What is less by this than what is subtracted has no exponential, in float64 neither.
_UNDERFLOW = 1e3


def _unshifted(
    program: Program, exp: JaxprEqn, axes: tuple[int, ...], layout: Layout
) -> tuple[Any, float]:
    """Logits before the greatest of their row is subtracted, and the least that is subtracted."""
    logits, least = exp.invars[0], -np.inf
    eqn = program.maker(logits, "sub")
    if eqn is None:
        return logits, 0.0
    shifted, greatest = eqn.invars
    rows = tuple(x for d, x in enumerate(layout) if d not in axes)
    place: Layout | None = of_operand(layout, greatest.aval.shape)
    while place is not None and (step := program.maker(greatest)) is not None:
        name = step.primitive.name
        if name == "reduce_max" and step.invars[0] is shifted:
            of_rows = set(step.params["axes"]) == set(axes) and settled(place) == settled(rows)
            return (shifted, least) if of_rows else (logits, 0.0)
        numbers = {x: program.number(x) for x in step.invars}
        rest = [x for x, number in numbers.items() if number is None]
        if len(rest) != 1 or name not in (*STRUCTURAL, "max", "stop_gradient"):
            break
        (greatest,) = rest
        least = max(least, *(x for x in numbers.values() if x is not None), -np.inf)
        shape = greatest.aval.shape
        place = before(step, place) if name in STRUCTURAL else of_operand(place, shape)
    return logits, 0.0


def _is_chosen_alike(program: Program, logits: Any, weights: Weights, layout: Any) -> bool:
    """Whether gradients are zero only where pairs take no part; if all there, weights tell so."""
    pairs = flat(layout)

    def is_covered(these: Any, those: Any) -> bool:
        return all(
            any(kept is is_kept and same_value(program, x, y, pairs) is not None
                for y, is_kept in those)
            for x, kept in these
        )  # fmt: skip

    weights.is_chosen_fully = is_covered(logits.choices, weights.choices)
    return is_covered(weights.choices, logits.choices)


class _Edit:
    """A program with new equations at their places, and new names of what they replace."""

    def __init__(self, program: Program, has_kernels: HasKernels):
        self.program, self.has_kernels = program, has_kernels
        self.inserted: dict[int, list[JaxprEqn]] = defaultdict(list)
        self.names: dict[Var, Any] = {}

    def replace(self, found: _Found) -> None:
        """Put equations for an attention in, if there are kernels for all of them."""
        call, program = found.call, self.program
        forward, outs = self._traced(call.forward, call.forward_operands, found.source)
        place = max(map(program.defined, call.forward_operands))
        results, inserted = (
            dict(zip(call.forward_results, outs[3:], strict=True)),
            [(place, forward)],
        )
        if any(place > program.defined(v) for v in results):
            return
        if call.backward_results:
            operands = [*call.backward_operands, *outs[:3]]
            backward, outs = self._traced(call.backward, operands, found.source)
            place = max(place, *map(program.defined, call.backward_operands))
            if any(place > program.defined(v) for v in call.backward_results):
                return
            inserted.append((place, backward))
            results |= zip(call.backward_results, outs, strict=True)
        kernels = [e for _, eqns in inserted for e in eqns if e.primitive.name in NAMES]
        if not all(map(self.has_kernels, kernels)):
            return
        for at, eqns in inserted:
            self.inserted[at] += eqns
        self.names.update(results)

    def _traced(
        self, fn: Callable[..., Any], operands: Any, source: Any
    ) -> tuple[list[JaxprEqn], list[Any]]:
        """The equations of a function of values of the program."""
        wide = any(x.aval.dtype in (np.float64, np.int64) for x in operands)
        with disable_jit(False), written_at(source), enable_x64(wide or config.enable_x64):
            traced = trace_to_jaxpr(fn, [x.aval for x in operands])
        names: dict[Var, Any] = dict(zip(traced.jaxpr.invars, operands, strict=True))
        for v, number in zip(traced.jaxpr.constvars, traced.consts, strict=True):
            names[v] = Literal(np.asarray(number)[()], v.aval)
        renamed = [
            e.replace(invars=[_read(names, x) for x in e.invars], source=source)
            for e in traced.eqns
        ]
        return renamed, [_read(names, v) for v in traced.jaxpr.outvars]

    def result(self) -> ClosedJaxpr:
        """The program as it is now."""
        old = self.program.closed
        eqns: list[JaxprEqn] = []
        for i, eqn in enumerate([*self.program.eqns, None]):
            for e in (*self.inserted[i], *(() if eqn is None else (eqn,))):
                eqns.append(e.replace(invars=[_read(self.names, x) for x in e.invars]))
        eqns = _in_order(eqns)
        outvars = [_read(self.names, v) for v in old.jaxpr.outvars]
        return old.replace(jaxpr=old.jaxpr.replace(eqns=eqns, outvars=outvars))


def _in_order(eqns: list[JaxprEqn]) -> list[JaxprEqn]:
    """Equations behind those that make what they read, else as they were."""
    makers = {v: e for e in eqns for v in e.outvars}
    out: list[JaxprEqn] = []
    done: set[int] = set()

    def put(eqn: JaxprEqn) -> None:
        if id(eqn) in done:
            return
        done.add(id(eqn))
        for x in eqn.invars:
            if isinstance(x, Var) and x in makers:
                put(makers[x])
        out.append(eqn)

    for eqn in eqns:
        put(eqn)
    return out


NAMES = ("attention", "attention_gradient")


def _read(names: dict[Var, Any], atom: Any) -> Any:
    return atom if isinstance(atom, Literal) else names.get(atom, atom)
