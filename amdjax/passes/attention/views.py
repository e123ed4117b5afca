"""Queries, keys and values that are parts of an array, read where they lie in it.

One product often makes all three, side by side, or a cache holds more of them than there are yet.
Kernels that go by strides need no copies: their equation reads the whole array, and `views` says
for each of the three what of it they take.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from amdjax.core.jaxpr import ClosedJaxpr, JaxprEqn, Literal, Var
from amdjax.core.lowering import Shaped
from amdjax.core.views import View
from amdjax.passes.cleanup import eliminate_dead_code

_KERNELS = ("attention", "attention_gradient")
_VIEWS = ("reshape", "slice", "transpose")


def read_views(closed: ClosedJaxpr, goes_by_strides: Callable[[JaxprEqn], bool]) -> ClosedJaxpr:
    """The program whose attention reads parts of arrays where they lie.

    Args:
      closed: the program.
      goes_by_strides: whether there is a kernel for an equation that has views.
    """
    readers = [e for e in closed.eqns if e.primitive.name in _KERNELS]
    makers = {v: e for e in closed.eqns for v in e.outvars}
    views = {x: found for e in readers for x in e.invars[:3] if (found := _view(x, makers))}
    views = _whole(views, makers)
    if not views:
        return closed

    def read(eqn: JaxprEqn) -> JaxprEqn:
        found = [views.get(x) for x in eqn.invars[:3]] if eqn in readers else []
        if not any(found):
            return eqn
        whole = [base[0] if base else x for base, x in zip(found, eqn.invars[:3], strict=True)]
        params = {**eqn.params, "views": tuple(x and x[1] for x in found)}
        new = eqn.replace(invars=[*whole, *eqn.invars[3:]], params=params)
        return new if goes_by_strides(new) else eqn

    eqns = [read(e) for e in closed.eqns]
    return eliminate_dead_code(closed.replace(jaxpr=closed.jaxpr.replace(eqns=eqns)))


def _whole(
    views: Mapping[Any, tuple[Var, View]], makers: Mapping[Var, JaxprEqn]
) -> dict[Any, tuple[Var, View]]:
    """Those of arrays that are stored anyway, or of which all is read."""
    read: dict[Var, int] = {}
    for base, view in dict.fromkeys(views.values()):
        read[base] = read.get(base, 0) + math.prod(view.shape)

    def is_stored(base: Var) -> bool:
        maker = makers.get(base)
        return maker is None or isinstance(maker.primitive.lowering, Shaped)

    return {x: v for x, v in views.items() if is_stored(v[0]) or read[v[0]] >= v[0].aval.size}


def _view(x: Any, makers: Mapping[Var, JaxprEqn]) -> tuple[Var, View] | None:
    """The array of which an operand is a part, and which; None if it is no part of one."""
    chain: list[JaxprEqn] = []
    while isinstance(x, Var) and (maker := makers.get(x)) and maker.primitive.name in _VIEWS:
        chain.append(maker)
        x = maker.invars[0]
    if isinstance(x, Literal) or all(e.primitive.name == "reshape" for e in chain):
        return None
    sizes = [n for e in chain for v in (*e.invars, *e.outvars) for n in v.aval.shape]
    if not all(isinstance(n, int) for n in sizes):
        return None
    view: View | None = View.of(x.aval.shape)
    for eqn in reversed(chain):
        view = view and _moved(view, eqn)
    return (x, view) if view and view.strides[-1] == 1 else None


def _moved(view: View, eqn: JaxprEqn) -> View | None:
    """The view that an operation makes of one; None where strides cannot say it."""
    params, shape = eqn.params, eqn.outvars[0].aval.shape
    if eqn.primitive.name == "transpose":
        order = params["permutation"]
        return View(shape, view.offset, tuple(view.strides[d] for d in order))
    if eqn.primitive.name == "slice":
        steps = params["strides"] or (1,) * len(shape)
        starts = zip(params["start_indices"], view.strides, strict=True)
        strides = tuple(s * n for s, n in zip(view.strides, steps, strict=True))
        return View(shape, view.offset + sum(n * s for n, s in starts), strides)
    if params.get("dimensions") is not None:
        return None
    found = _reshaped(view, shape)
    return None if found is None else View(shape, view.offset, found)


def _reshaped(view: View, shape: Sequence[int]) -> tuple[int, ...] | None:
    """Strides of a view in another shape; None where axes are joined that lie apart."""
    old = [(n, s) for n, s in zip(view.shape, view.strides, strict=True) if n != 1]
    strides: list[int] = []
    for n in reversed(shape):
        if n == 1:
            strides.append(1)
            continue
        size, stride = old.pop() if old else (0, 0)
        while size < n and old and old[-1][1] == size * stride:
            size *= old.pop()[0]
        if not size or size % n:
            return None
        strides.append(stride)
        if size > n:
            old.append((size // n, stride * n))
    return tuple(reversed(strides))
