"""The layout of convolutions and of what lies between them: channels last, where that is faster.

A network that is written with channels first, as PyTorch exports them, is computed with channels
last from its first convolution to its last. Convolutions, elementwise work, windows, padding,
joining, and reductions are done in the order of axes in which their operands lie; arguments and
results keep theirs. Weights are read as they lie, or with channels last. Whether it pays, estimates
of the target tell: those of all convolutions, against the transposes that are left. What is made of
constants alone costs nothing, since it is kept.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from amdjax.core.dims import cheapest, choosing
from amdjax.core.jaxpr import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var
from amdjax.core.lowering import Pointwise
from amdjax.core.primitive import Primitive
from amdjax.passes.axes import alike_axes

CONVOLUTION = "conv_general_dilated"
#: What an element takes to be moved to another place.
NANOSECONDS_PER_ELEMENT = 1.0

#: About how long an equation takes; some of the variables that it reads are constants.
Nanoseconds = Callable[[JaxprEqn, Collection[Var]], Any]
Order = tuple[int, ...]
T = TypeVar("T")


def choose_layouts(
    closed: ClosedJaxpr, nanoseconds: Nanoseconds, constants: Collection[Var] = ()
) -> ClosedJaxpr:
    """The program with channels last where convolutions are estimated to be faster so.

    Args:
      closed: the program.
      nanoseconds: about how long a convolution takes.
      constants: variables of which whatever is made is kept.
    """
    if not any(_has_channels_first(e) for e in closed.eqns):
        return closed
    with choosing():
        known: dict[Any, Any] = {}

        def estimate(eqn: JaxprEqn, fixed: Collection[Var]) -> Any:
            operands = ((x.aval, x in fixed) for x in eqn.invars)
            key = (*operands, *sorted(eqn.params.items()))
            if key not in known:
                known[key] = nanoseconds(eqn, fixed)
            return known[key]

        relayout = _Relayout(estimate, set(constants))
        new = relayout.run(closed)
        costs = lambda p: (
            estimate(e, relayout.constants) for e in p.eqns if e.primitive.name == CONVOLUTION
        )
        after = sum(costs(new)) + relayout.moved
        before: Any = 0.0
        for cost in costs(closed):
            before = before + cost
            if isinstance(before, float) and isinstance(after, float) and before > after:
                break  # of sizes that are known, the rest need not be looked at
        return new if cheapest([before, after]) == 1 else closed


def _has_channels_first(eqn: JaxprEqn) -> bool:
    """Whether a convolution's result has images first, features second, positions last."""
    if eqn.primitive.name != CONVOLUTION or eqn.params["out_sharding"] is not None:
        return False
    lhs, _, out = eqn.params["dimension_numbers"]
    return len(out) > 2 and tuple(out[:2]) == (0, 1) and lhs[0] == 0


def _last(spec: Sequence[int]) -> Order:
    """The axes of a convolution's array with its features last."""
    return (spec[0], *spec[2:], spec[1])


def _permuted(xs: Sequence[T], order: Order) -> tuple[T, ...]:
    return tuple(xs[i] for i in order)


def _inverse(order: Order) -> Order:
    return tuple(order.index(i) for i in range(len(order)))


def _is_one(n: Any) -> bool:
    return isinstance(n, int) and n == 1


@dataclass
class _Relayout:
    """Copies a program; what has a layout of its own is known by a value in that order.

    Attributes:
      estimate: about how long a convolution takes, in nanoseconds.
      constants: variables of the old program and of the new one that are made of constants alone.
      moved: what all transposes take.
      plain: values of the old program in their own order.
      laid_out: values in other orders of axes, by value and order.
      layouts: the order in which a value is computed, if it is not its own.
      late: broadcasts of something smaller, written where they are read.
    """

    estimate: Nanoseconds
    constants: set[Var]
    moved: Any = 0.0
    eqns: list[JaxprEqn] = field(default_factory=list)
    plain: dict[Var, Any] = field(default_factory=dict)
    laid_out: dict[Var, dict[Order, Any]] = field(default_factory=dict)
    layouts: dict[Var, Order] = field(default_factory=dict)
    late: dict[Var, JaxprEqn] = field(default_factory=dict)
    source: Any = None

    def run(self, closed: ClosedJaxpr) -> ClosedJaxpr:
        jaxpr = closed.jaxpr
        self.plain.update((v, v) for v in (*jaxpr.constvars, *jaxpr.invars))
        results = {v for v in jaxpr.outvars if isinstance(v, Var)}
        for eqn in jaxpr.eqns:
            self.source = eqn.source
            self.equation(eqn)
            for v in results.intersection(eqn.outvars):
                self.in_order(v)  # now, so that what it is made of need not stay
        outvars = [self.in_order(v) for v in jaxpr.outvars]
        new = Jaxpr(jaxpr.constvars, jaxpr.invars, outvars, self.eqns, None, jaxpr.debug_info)
        return closed.replace(jaxpr=new)

    def equation(self, eqn: JaxprEqn) -> None:
        rule = _RULES.get(eqn.primitive.name)
        if not eqn.effects and self.is_constant(*eqn.invars):
            self.constants.update(eqn.outvars)
        if rule is None and isinstance(eqn.primitive.lowering, Pointwise):
            rule = _elementwise
        if eqn.effects or rule is None or not rule(self, eqn):
            self.copy(eqn)

    def is_constant(self, *operands: Any) -> bool:
        """Whether operands, of which there are some, are made of constants alone."""
        variables = [x for x in operands if isinstance(x, Var)]
        return bool(variables) and self.constants.issuperset(variables)

    def copy(self, eqn: JaxprEqn) -> None:
        """The equation as it is, on operands in their own order."""
        self.eqns.append(eqn.replace(invars=[self.in_order(x) for x in eqn.invars]))
        self.plain.update((v, v) for v in eqn.outvars)

    # Values

    def layout(self, x: Any) -> Order | None:
        """The order in which a value is computed, if it is not its own."""
        return None if isinstance(x, Literal) else self.layouts.get(x)

    def in_order(self, x: Any) -> Any:
        """A value in its own order of axes."""
        if isinstance(x, Literal):
            return x
        if x in self.plain:
            return self.plain[x]
        eqn = self.late.get(x)
        if eqn is not None:
            operand = self.in_order(eqn.invars[0])
            self.plain[x] = self.apply(eqn.primitive, [operand], eqn.params)
        else:
            order = self.layouts[x]
            self.plain[x] = self.transposed(self.laid_out[x][order], _inverse(order))
        return self.plain[x]

    def ordered(self, x: Any, order: Order) -> Any:
        """A value with its axes in another order."""
        if isinstance(x, Literal) or not x.aval.shape:
            return self.in_order(x)
        if order == tuple(range(len(order))):
            return self.in_order(x)
        known = self.laid_out.setdefault(x, {})
        if order not in known:
            eqn = self.late.get(x)
            made = self.broadcast(eqn, order) if eqn is not None else None
            known[order] = self.transposed(self.in_order(x), order) if made is None else made
        return known[order]

    def moving(self, way: _Way) -> Any:
        """What it takes to have operands in these orders, and the result in its own."""
        x: Any
        moved: Any = 0.0
        for x, order in zip(way.eqn.invars, (way.lhs, way.rhs), strict=True):
            known = order in self.laid_out.get(x, ()) or x in self.late
            if known or x in self.constants:
                continue
            if order != tuple(range(len(order))) or x not in self.plain:
                moved = moved + x.aval.size
        if way.eqn.params["dimension_numbers"][0][0] != 0 and way.out != tuple(range(len(way.out))):
            moved = moved + way.eqn.outvars[0].aval.size
        return moved * NANOSECONDS_PER_ELEMENT

    def set(self, v: Var, value: Any, order: Order) -> None:
        """Make `value` what is known of `v`: `v` with its axes in that order."""
        if order == tuple(range(len(order))):
            self.plain[v] = value
        else:
            self.layouts[v] = order
            self.laid_out[v] = {order: value}

    # Equations

    def apply(self, primitive: Primitive, operands: Sequence[Any], params: dict[str, Any]) -> Any:
        (result,) = self.apply_all(primitive, operands, params)
        return result

    def apply_all(
        self, primitive: Primitive, operands: Sequence[Any], params: dict[str, Any]
    ) -> list[Any]:
        assert primitive.abstract_eval is not None
        out = primitive.abstract_eval(*(x.aval for x in operands), **params)
        outvars = [Var(a) for a in (out if primitive.multiple_results else [out])]
        self.eqns.append(JaxprEqn(primitive, list(operands), outvars, params, source=self.source))
        if self.is_constant(*operands):
            self.constants.update(outvars)
        return outvars

    def named(self, name: str, *operands: Any, **params: Any) -> Any:
        return self.apply(Primitive.by_name[name], operands, params)

    def transposed(self, x: Any, order: Order) -> Any:
        """An array with its axes in another order, which moves it unless they have length one."""
        if order == tuple(range(len(order))):
            return x
        shape = x.aval.shape
        long = [i for i in order if not _is_one(shape[i])]
        if long == sorted(long):
            new = _permuted(shape, order)
            return self.named("reshape", x, new_sizes=new, dimensions=None, sharding=None)
        if x not in self.constants:
            self.moved = self.moved + x.aval.size * NANOSECONDS_PER_ELEMENT
        return self.named("transpose", x, permutation=order)

    def broadcast(self, eqn: JaxprEqn, order: Order) -> Any:
        """The result of a broadcast with its axes in another order."""
        (x,) = eqn.invars
        own = self.layout(x) or tuple(range(len(x.aval.shape)))
        operand = self.in_order(x) if self.layout(x) is None else self.ordered(x, own)
        places = [order.index(eqn.params["broadcast_dimensions"][i]) for i in own]
        sort = tuple(sorted(range(len(places)), key=places.__getitem__))
        operand = self.transposed(operand, sort) if places else operand
        params = {
            **eqn.params, "shape": _permuted(eqn.params["shape"], order),
            "broadcast_dimensions": tuple(sorted(places)),
        }  # fmt: skip
        return self.apply(eqn.primitive, [operand], params)

    def common_order(self, operands: Sequence[Any]) -> Order | None:
        """The order in which most of some arrays of like shapes lie; None if that is their own."""
        size: dict[Order | None, Any] = {}
        for x in operands:
            if isinstance(x, Literal) or not x.aval.shape or x in self.late:
                continue
            order = self.layout(x)
            size[order] = size.get(order, 0) + x.aval.size
        if not size or set(size) == {None}:
            return None
        orders = list(size)
        return orders[cheapest([-size[o] for o in orders])]


def _convolution(m: _Relayout, eqn: JaxprEqn) -> bool:
    """Operands are read as they lie, or features last if that pays; results have features last.

    Those that are gradients of kernels have taps first, if that pays.
    """
    lhs_spec, rhs_spec, out_spec = eqn.params["dimension_numbers"]
    turned = _has_channels_first(eqn)
    plain = tuple(range(len(out_spec)))
    ways: list[list[Order]] = []
    x: Any
    for x, last in zip(eqn.invars, (_last(lhs_spec), _taps(rhs_spec)), strict=True):
        orders = [m.layout(x) or plain, *m.laid_out.get(x, ()), *([last] if turned else [])]
        ways.append(list(dict.fromkeys(orders)))
    if turned:
        ways.append([_last(out_spec)])
    else:
        first = (*out_spec[2:], *out_spec[:2])
        ways.append([plain] if lhs_spec[0] == 0 or first == plain else [plain, first])
    found = [_Way(eqn, *orders) for orders in itertools.product(*ways)]
    best = found[0]
    if len(found) > 1:
        best = found[cheapest([m.estimate(*way.asked(m)) + m.moving(way) for way in found])]
    operands = [m.ordered(x, o) for x, o in zip(eqn.invars, (best.lhs, best.rhs), strict=True)]
    m.set(eqn.outvars[0], m.apply(eqn.primitive, operands, best.params), best.out)
    return True


@dataclass(frozen=True)
class _Way:
    """A convolution of operands in these orders, with its result in that order."""

    eqn: JaxprEqn
    lhs: Order
    rhs: Order
    out: Order

    @property
    def params(self) -> dict[str, Any]:
        numbers = self.eqn.params["dimension_numbers"]
        orders = (self.lhs, self.rhs, self.out)
        specs = (tuple(map(order.index, spec)) for spec, order in zip(numbers, orders, strict=True))
        return {**self.eqn.params, "dimension_numbers": type(numbers)(*specs)}

    def asked(self, m: _Relayout) -> tuple[JaxprEqn, list[Var]]:
        """The equation, which is only asked about, and which of its operands are constants."""
        eqn, orders = self.eqn, (self.lhs, self.rhs)
        avals = [
            x.aval.update(shape=_permuted(x.aval.shape, o)) for x, o in zip(eqn.invars, orders)
        ]
        assert eqn.primitive.abstract_eval is not None
        out = Var(eqn.primitive.abstract_eval(*avals, **self.params))
        operands = [Var(a) for a in avals]
        fixed = [v for v, x in zip(operands, eqn.invars, strict=True) if m.is_constant(x)]
        return eqn.replace(invars=operands, outvars=[out], params=self.params), fixed


def _taps(spec: Sequence[int]) -> Order:
    """The axes of a kernel: its taps, then features of the input, then those of the result."""
    return (*spec[2:], spec[1], spec[0])


def _elementwise(m: _Relayout, eqn: JaxprEqn) -> bool:
    """Operands are numbers, or have all axes, some of which may have length one."""
    order = m.common_order(eqn.invars)
    ranks = {len(x.aval.shape) for x in eqn.invars} - {0}
    if order is None or ranks != {len(order)}:
        return False
    _set_all(m, eqn, order, eqn.params)
    return True


def _set_all(m: _Relayout, eqn: JaxprEqn, order: Order, params: dict[str, Any]) -> None:
    """The equation on operands in an order, of results in that order."""
    results = m.apply_all(eqn.primitive, [m.ordered(x, order) for x in eqn.invars], params)
    for v, value in zip(eqn.outvars, results, strict=True):
        m.set(v, value, order)


def _axis_by_axis(*names: str) -> Callable[[_Relayout, JaxprEqn], bool]:
    """Of operations with parameters for each axis."""

    def rule(m: _Relayout, eqn: JaxprEqn) -> bool:
        order = m.common_order(eqn.invars)
        if order is None or not _keeps_ties(eqn, order):
            return False
        changed = {
            name: _permuted(eqn.params[name], order)
            for name in names
            if eqn.params.get(name) is not None
        }
        _set_all(m, eqn, order, {**eqn.params, **changed})
        return True

    return rule


def _keeps_ties(eqn: JaxprEqn, order: Order) -> bool:
    """Whether the first of equals in a window stays the first."""
    if "select_prim" not in eqn.params:
        return True
    long = [a for a in order if eqn.params["window_dimensions"][a] > 1]
    return long == sorted(long)


def _along(name: str) -> Callable[[_Relayout, JaxprEqn], bool]:
    """Of operations along an axis, or along several."""

    def rule(m: _Relayout, eqn: JaxprEqn) -> bool:
        order = m.common_order(eqn.invars)
        if order is None:
            return False
        axes = eqn.params[name]
        new = order.index(axes) if isinstance(axes, int) else tuple(map(order.index, axes))
        _set_all(m, eqn, order, {**eqn.params, name: new})
        return True

    return rule


def _reduction(m: _Relayout, eqn: JaxprEqn) -> bool:
    """What is left of the axes keeps the order in which it lies."""
    order = m.layout(eqn.invars[0])
    if order is None or len(eqn.invars) > 1 or eqn.params.get("out_sharding") is not None:
        return False
    axes = eqn.params["axes"]
    params = {**eqn.params, "axes": tuple(sorted(map(order.index, axes)))}
    result = m.apply(eqn.primitive, [m.ordered(eqn.invars[0], order)], params)
    left = [a for a in order if a not in axes]
    m.set(eqn.outvars[0], result, tuple(sorted(left).index(a) for a in left))
    return True


def _transpose(m: _Relayout, eqn: JaxprEqn) -> bool:
    """Only another order of what lies there."""
    order = m.layout(eqn.invars[0])
    if order is None:
        return False
    permutation = eqn.params["permutation"]
    m.set(
        eqn.outvars[0],
        m.ordered(eqn.invars[0], order),
        tuple(permutation.index(a) for a in order),
    )
    return True


def _reshape(m: _Relayout, eqn: JaxprEqn) -> bool:
    """Axes that are split, or joined with those that lie behind them, stay where they lie."""
    (x, *_), new = eqn.invars, eqn.outvars[0].aval.shape
    order = m.layout(x)
    old = x.aval.shape
    if order is None or not all(isinstance(n, int) for n in (*old, *new)) or 0 in old:
        return False
    by_first = {}
    for axes, made in alike_axes(old, new):
        places = [order.index(a) for a in axes]
        if not places:
            continue
        between = order[places[0] : places[-1] + 1]
        if [a for a in between if old[a] > 1] != axes:
            return False
        by_first[places[0]] = made
    long = [a for place in sorted(by_first) for a in by_first[place]]
    wanted = (*long, *(a for a in range(len(new)) if a not in long))
    sizes = _permuted(new, wanted)
    result = m.named(
        "reshape", m.ordered(x, order), new_sizes=sizes, dimensions=None, sharding=None
    )
    m.set(eqn.outvars[0], result, wanted)
    return True


def _broadcast(m: _Relayout, eqn: JaxprEqn) -> bool:
    """Written where it is read, in the order that is wanted there."""
    (v,) = eqn.outvars
    small = isinstance(eqn.invars[0], Literal) or len(eqn.invars[0].aval.shape) < v.aval.ndim
    small = small or any(_is_one(n) for n in eqn.invars[0].aval.shape)
    if len(eqn.invars) > 1 or not small or eqn.params.get("sharding") is not None:
        return False
    m.late[v] = eqn
    return True


_WINDOWS = (
    "window_dimensions", "window_strides", "padding", "base_dilation", "window_dilation",
)  # fmt: skip

_RULES: dict[str, Callable[[_Relayout, JaxprEqn], bool]] = {
    CONVOLUTION: _convolution,
    "transpose": _transpose,
    "reshape": _reshape,
    "squeeze": _reshape,
    "broadcast_in_dim": _broadcast,
    **{
        name: _axis_by_axis(*_WINDOWS)
        for name in (
            "reduce_window_sum", "reduce_window_max", "reduce_window_min",
            "select_and_scatter_add", "select_and_gather_add",
        )
    },
    "pad": _axis_by_axis("padding_config"),
    "slice": _axis_by_axis("start_indices", "limit_indices", "strides"),
    "rev": _along("dimensions"),
    "concatenate": _along("dimension"),
    "split": _along("axis"),
    **dict.fromkeys(
        ("reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "argmax", "argmin"), _reduction
    ),
}  # fmt: skip
