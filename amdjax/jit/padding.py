"""Which operations let elements beyond sizes before padding meet others (see `padding_facts`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from amdjax.core.jaxpr import DropVar, Jaxpr, JaxprEqn
from amdjax.jit.padding_facts import (
    AS_IT_IS,
    SAME,
    UNKNOWN,
    Fact,
    Mark,
    Reader,
    Rule,
    inputs_of,
    is_identity,
    never_negative,
    pointwise,
)

_SCATTERS = {
    "scatter-add": "zero", "scatter_add": "zero", "scatter-mul": "one", "scatter_mul": "one",
    "scatter-max": "least", "scatter_max": "least", "scatter-min": "greatest",
    "scatter_min": "greatest", "scatter": None, "scatter-sub": "zero", "scatter_sub": "zero",
}  # fmt: skip
_WINDOWS = {
    "reduce_window_sum": "zero", "reduce_window_max": "least", "reduce_window_min": "greatest",
}  # fmt: skip


def mixing(jaxpr: Jaxpr, padded: frozenset[str], facts: Sequence[Fact | None]) -> Iterator[str]:
    """What may compute other results of padded arguments, and along which variables.

    Args:
      jaxpr: a program of symbolic shapes.
      padded: the variables whose sizes are padded.
      facts: what is known of arguments; None where nothing is.
    """
    reader = Reader(padded, _RULES)
    reader.run(jaxpr, facts)
    return iter(dict.fromkeys(reader.found))


# Operations that move elements


def _axis_map(reader: Reader, eqn: JaxprEqn, facts: list[Fact], to: Mapping[int, int]) -> Fact:
    """A result whose axes are those of the operand; the others are copies."""
    (out,) = eqn.outvars
    fact = facts[0].moved(to)
    new = {i: SAME for i in reader.axes(out.aval) if i not in to.values()}
    return fact._replace(beyond={**new, **fact.beyond})


def _broadcast(reader: Reader, eqn: JaxprEqn, facts: list[Fact]) -> list[Fact]:
    operand, (out,) = eqn.invars[0].aval, eqn.outvars
    to = dict(enumerate(eqn.params["broadcast_dimensions"]))
    kept = {i: j for i, j in to.items() if _equal(operand.shape[i], out.aval.shape[j])}
    return [_axis_map(reader, eqn, facts, kept)]


def _squeeze(reader: Reader, eqn: JaxprEqn, facts: list[Fact]) -> list[Fact]:
    gone = eqn.params["dimensions"]
    left = [i for i in range(len(eqn.invars[0].aval.shape)) if i not in gone]
    return [_axis_map(reader, eqn, facts, {i: j for j, i in enumerate(left)})]


def _transpose(reader: Reader, eqn: JaxprEqn, facts: list[Fact]) -> list[Fact]:
    order = eqn.params["permutation"]
    return [_axis_map(reader, eqn, facts, {i: j for j, i in enumerate(order)})]


def _reshape(reader: Reader, eqn: JaxprEqn, facts: list[Fact]) -> list[Fact]:
    operand, (out,) = eqn.invars[0].aval, eqn.outvars
    old, new = operand.shape, out.aval.shape
    to = {
        i: j
        for i in range(len(old))
        for j in range(len(new))
        if _equal(old[i], new[j]) and _equal(math.prod(old[:i]), math.prod(new[:j]))
    }
    lost = {n for i, names in reader.axes(operand).items() if i not in to for n in names}
    if lost and facts[0].number is None:
        reader.report(eqn, lost)
        return [reader.unknown(out.aval)]
    return [_axis_map(reader, eqn, facts, to)]


def _equal(a: Any, b: Any) -> bool:
    """Whether sizes are the same, which notes nothing where it depends on the variables."""
    return getattr(a, "polynomial", a) == getattr(b, "polynomial", b)


def _iota(reader: Reader, eqn: JaxprEqn, facts: list[Fact]) -> list[Fact]:
    (out,), axis = eqn.outvars, eqn.params["dimension"]
    beyond = {i: UNKNOWN if i == axis else SAME for i in reader.axes(out.aval)}
    wide = np.dtype(out.aval.dtype).itemsize >= 4  # in few bits positions begin anew
    return [Fact(beyond, position=(axis, 0) if wide else None)]


def _slice(reader: Reader, eqn: JaxprEqn, facts: list[Fact]) -> list[Fact]:
    operand, (out,) = eqn.invars[0].aval, eqn.outvars
    starts, limits = eqn.params["start_indices"], eqn.params["limit_indices"]
    padded = reader.axes(operand)
    alike = [facts[0].number is not None or (i in padded and facts[0].at(i) is SAME)
             for i in range(len(starts))]  # fmt: skip
    for start, same in zip(starts, alike):
        reader.meet(eqn, reader.variables(start), same)
    # Up to another limit than the size, the last ones may lie before it.
    beyond = {
        i: facts[0].at(i) if alike[i] or _equal(limits[i], operand.shape[i]) else UNKNOWN
        for i in reader.axes(out.aval)
    }
    return [Fact(beyond, facts[0].number)]


def _concatenate(reader: Reader, eqn: JaxprEqn, facts: list[Fact]) -> list[Fact]:
    axis, (out,) = eqn.params["dimension"], eqn.outvars
    for v in eqn.invars[:-1]:
        reader.meet(eqn, reader.axes(v.aval).get(axis, set()), False)
    beyond = {}
    for i in reader.axes(out.aval):
        values = [facts[-1].at(i)] if i == axis else [f.at(i) for f in facts]
        beyond[i] = UNKNOWN if i == axis and values[0] is SAME else _joined(values)
    return [Fact(beyond)]


def _joined(values: Sequence[Any]) -> Any:
    """What lies beyond where it is one of several."""
    first = values[0]
    alike = (v is first or (not (isinstance(v, Mark) or isinstance(first, Mark)) and v == first)
             for v in values)  # fmt: skip
    return first if all(alike) else UNKNOWN


def _pad(reader: Reader, eqn: JaxprEqn, facts: list[Fact]) -> list[Fact]:
    operand, (out,) = eqn.invars[0].aval, eqn.outvars
    padded, beyond = reader.axes(operand), dict[int, Any]()
    for i, (low, high, interior) in enumerate(eqn.params["padding_config"]):
        x, value = facts[0].at(i), facts[1].number
        like = value is not None and not isinstance(x, Mark) and x == value
        reader.meet(eqn, reader.variables(low) | reader.variables(interior), False)
        if i in padded:
            cut = isinstance(high, int) and high <= 0
            reader.meet(eqn, padded[i], like or cut)
        else:
            x, like = value, value is not None
        if i in reader.axes(out.aval):  # where it ends earlier, elements of the operand lie beyond
            beyond[i] = x if like and never_negative(high) else UNKNOWN
    return [Fact(beyond)]


def _whole_slices(which: int, sizes: str) -> Callable[..., list[Fact]]:
    """A rule for windows at positions that are computed: of padded axes they take all.

    Where a window that may be padded fits is another question than where it fits without.
    """

    def rule(reader: Reader, eqn: JaxprEqn, facts: list[Fact]) -> list[Fact]:
        operand = eqn.invars[0].aval
        taken = eqn.params[sizes] if sizes else eqn.invars[which].aval.shape
        for size, total in zip(taken, operand.shape, strict=True):
            names = reader.variables(size) | reader.variables(total)
            reader.meet(eqn, names, _equal(size, total))
        return [reader.unknown(v.aval) for v in eqn.outvars]

    return rule


def _scatter(reader: Reader, eqn: JaxprEqn, facts: list[Fact]) -> list[Fact]:
    numbers, identity = eqn.params["dimension_numbers"], _SCATTERS[eqn.primitive.name]
    operand, updates = eqn.invars[0].aval, eqn.invars[2].aval
    for i, names in reader.axes(operand).items():
        at_positions = i in numbers.scatter_dims_to_operand_dims
        reader.meet(eqn, names, not at_positions)
    gone = {*numbers.inserted_window_dims, *numbers.operand_batching_dims}
    kept = [i for i in range(len(operand.shape)) if i not in gone]
    window = dict(zip(numbers.update_window_dims, kept, strict=True))
    for i, names in reader.axes(updates).items():
        x = facts[2].at(i)
        none = identity is not None and is_identity(x, identity, updates.dtype)
        whole = i in window and _equal(updates.shape[i], operand.shape[window[i]])
        reader.meet(eqn, names, none or whole)
    return [reader.unknown(v.aval) for v in eqn.outvars]


# Operations by which elements meet


def _sort(reader: Reader, eqn: JaxprEqn, facts: list[Fact]) -> list[Fact]:
    axis, key = eqn.params["dimension"], eqn.invars[0].aval
    last = facts[0].at(axis)
    harmless = eqn.params["num_keys"] == 1 and is_identity(last, "greatest", key.dtype)
    reader.meet(eqn, reader.axes(key).get(axis, set()), harmless)
    outs = [reader.unknown(v.aval) for v in eqn.outvars]
    if harmless and axis in outs[0].beyond:
        outs[0] = Fact({**outs[0].beyond, axis: last})
    return outs


def _dot(reader: Reader, eqn: JaxprEqn, facts: list[Fact]) -> list[Fact]:
    (left, right), (batch_left, batch_right) = eqn.params["dimension_numbers"]
    a, b = facts
    padded = [reader.axes(v.aval) for v in eqn.invars[:2]]
    for i, j in zip(left, right):
        names = padded[0].get(i, set()) | padded[1].get(j, set())
        reader.meet(eqn, names, _is_zero_product(a.at(i), b.at(j)))
    beyond = [
        0 if _is_zero_product(a.at(i), b.at(j)) else UNKNOWN
        for i, j in zip(batch_left, batch_right)
    ]
    for fact, v, gone in zip(facts, eqn.invars, ((*left, *batch_left), (*right, *batch_right))):
        free = [fact.at(i) for i in range(len(v.aval.shape)) if i not in gone]
        beyond += [x if isinstance(x, Mark) else 0 if x == 0 else UNKNOWN for x in free]
    axes = reader.axes(eqn.outvars[0].aval)
    return [Fact({i: beyond[i] for i in axes})]


def _is_zero_product(x: Any, y: Any) -> bool:
    """Whether the product of what lies beyond is zero: of 0 and a number, or what was there."""
    numbers = [v for v in (x, y) if not isinstance(v, Mark)]
    if not numbers or not all(map(np.isfinite, numbers)) or all(v != 0 for v in numbers):
        return False
    return x is not UNKNOWN and y is not UNKNOWN


def _convolution(reader: Reader, eqn: JaxprEqn, facts: list[Fact]) -> list[Fact]:
    images, kernel = (v.aval for v in eqn.invars[:2])
    batch = eqn.params["dimension_numbers"].lhs_spec[0]
    for i, names in reader.axes(images).items():
        zero = not isinstance(x := facts[0].at(i), Mark) and bool(x == 0)
        alone = eqn.params["batch_group_count"] == 1 and i == batch
        reader.meet(eqn, names, alone or (zero and not reader.axes(kernel)))
    _fixed_start(reader, eqn)
    for names in reader.axes(kernel).values():
        reader.meet(eqn, names, False)
    return [reader.unknown(v.aval) for v in eqn.outvars]


def _fixed_start(reader: Reader, eqn: JaxprEqn) -> None:
    """Windows whose first position depends on the size are others where that is another."""
    for low, _ in eqn.params["padding"]:
        reader.meet(eqn, reader.variables(low), False)


def _window(reader: Reader, eqn: JaxprEqn, facts: list[Fact]) -> list[Fact]:
    operand, identity = eqn.invars[0].aval, _WINDOWS[eqn.primitive.name]
    for i, names in reader.axes(operand).items():
        one = eqn.params["window_dimensions"][i] == 1
        neutral = is_identity(facts[0].at(i), identity, operand.dtype)
        reader.meet(eqn, names, one or neutral)
    _fixed_start(reader, eqn)
    return [reader.unknown(v.aval) for v in eqn.outvars]


def _scan(reader: Reader, eqn: JaxprEqn, facts: list[Fact]) -> list[Fact]:
    params = eqn.params
    consts, carries = params["num_consts"], params["num_carry"]
    names = reader.variables(params["length"])
    left = any(type(v) is not DropVar for v in eqn.outvars[:carries])
    reader.meet(eqn, names, not carries or not (left or params["reverse"]))
    inputs = inputs_of(params["jaxpr"])
    rows = [
        f.moved({i: i - 1 for i in range(1, 1 + len(v.aval.shape))})
        for f, v in zip(facts[consts + carries :], inputs[consts + carries :])
    ]
    outs = reader.run(params["jaxpr"], [*facts[:consts], *[None] * carries, *rows])
    found = [reader.unknown(v.aval) for v in eqn.outvars[:carries]]
    for v, f in zip(eqn.outvars[carries:], outs[carries:]):
        beyond = {i: UNKNOWN if i == 0 else f.at(i - 1) for i in reader.axes(v.aval)}
        found.append(Fact(beyond))
    return found


def _while(reader: Reader, eqn: JaxprEqn, facts: list[Fact]) -> list[Fact]:
    params, first = eqn.params, eqn.params["cond_nconsts"]
    second = first + params["body_nconsts"]
    carries = [None] * (len(facts) - second)
    reader.run(params["cond_jaxpr"], [*facts[:first], *carries])
    reader.run(params["body_jaxpr"], [*facts[first:second], *carries])
    return [reader.unknown(v.aval) for v in eqn.outvars]


def _cond(reader: Reader, eqn: JaxprEqn, facts: list[Fact]) -> list[Fact]:
    outs = [reader.run(branch, facts[1:]) for branch in eqn.params["branches"]]
    return [
        Fact({i: _joined([f.at(i) for f in several]) for i in reader.axes(v.aval)})
        for v, several in zip(eqn.outvars, zip(*outs, strict=True), strict=True)
    ]


def _one(rule: Callable[[Reader, JaxprEqn, list[Fact]], Fact]) -> Callable[..., list[Fact]]:
    return lambda reader, eqn, facts: [rule(reader, eqn, facts)]


_RULES: dict[str, Rule] = {
    "broadcast_in_dim": _broadcast, "squeeze": _squeeze, "transpose": _transpose,
    "reshape": _reshape, "iota": _iota, "slice": _slice, "concatenate": _concatenate, "pad": _pad,
    "gather": _whole_slices(0, "slice_sizes"), "dynamic_slice": _whole_slices(0, "slice_sizes"),
    "dynamic_update_slice": _whole_slices(1, ""), "sort": _sort, "dot_general": _dot,
    "conv_general_dilated": _convolution, "scan": _scan, "while": _while, "cond": _cond,
    **dict.fromkeys(_SCATTERS, _scatter), **dict.fromkeys(_WINDOWS, _window),
    **dict.fromkeys(
        ("dim_as_value", "select_n", "convert_element_type", *AS_IT_IS), _one(pointwise)
    ),
}  # fmt: skip
