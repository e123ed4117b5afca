"""Arguments padded to sizes of which few programs are compiled: `jit(f, buckets=…)`."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from amdjax.core import dtypes
from amdjax.core.array import ConcreteArray, PlacedArray, asarray_concrete
from amdjax.core.aval import ShapedArray
from amdjax.core.dims import Dim
from amdjax.core.dtypes import ExtendedDType
from amdjax.core.jaxpr import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, subjaxprs_of_value
from amdjax.core.lowering import Pointwise
from amdjax.core.ref import Ref
from amdjax.core.tracebacks import warn
from amdjax.jit.arrays import Runner, host_buffer
from amdjax.jit.placement import put
from amdjax.transforms.flat import signature

__all__ = ["Buckets"]


class Buckets:
    """The sizes to which `jit(f, buckets=…)` pads.

    Args:
      fun: the function.
      name: what it is called.
      sizes: for each variable the sizes to choose from.
      pad_value: what arguments are filled up with.
      lengths: the parameter that takes the size before padding, or one by variable.

    Raises:
      ValueError: there are no sizes, or they are not positive; a parameter is not there.
    """

    def __init__(self, fun: Any, name: str, sizes: Any, pad_value: Any, lengths: Any):
        if not isinstance(sizes, Mapping) or not sizes:
            raise ValueError(f"jit: buckets must be a dictionary by variable, got {sizes!r}")
        for variable, choices in sizes.items():
            several = isinstance(choices, Iterable) and not isinstance(choices, str)
            if not several or not choices or not all(map(_is_size, choices)):
                raise ValueError(
                    f"jit: buckets[{variable!r}] must be positive integers, got {choices!r}"
                )
        if np.ndim(pad_value) or np.asarray(pad_value).dtype.kind not in "biufcV":
            raise ValueError(f"jit: pad_value must be a number, got {pad_value!r}")
        self.name, self.pad_value = name, pad_value
        self.choices = {variable: sorted(map(int, s)) for variable, s in sizes.items()}
        self.lengths = _by_variable(lengths, self.choices)
        known = signature(fun)
        for parameter in self.lengths.values():
            if known is not None and parameter not in known.parameters:
                raise ValueError(f"jit: lengths names {parameter!r}, no parameter of {name}")

    def of(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """The next sizes that are compiled.

        Raises:
          ValueError: a size is above the largest, or a variable is in no shape.
        """
        found = dict(sizes)
        for variable, choices in self.choices.items():
            if variable not in sizes:
                raise ValueError(
                    f"jit of {self.name}: buckets names {variable!r}, which no shape has"
                )
            fitting = [n for n in choices if n >= sizes[variable]]
            if not fitting:
                raise ValueError(
                    f"jit of {self.name}: {variable} = {sizes[variable]} is above the largest of "
                    f"its buckets, {choices[-1]}: add a larger one, or make the argument smaller"
                )
            found[variable] = fitting[0]
        return found

    def padding(self, run: Runner, types: Sequence[Any], outs: Sequence[Any]) -> Runner:
        """`run`, which takes arguments of padded types, on arguments that are not.

        Args:
          run: the program; it may take more arguments than are padded.
          types: the types it takes.
          outs: the types of its results before padding.
        """

        def padded(args: Sequence[Any]) -> list[Any]:
            filled = [self._filled(x, a) for x, a in zip(args, types)]
            found = run([*filled, *args[len(filled) :]])
            return [_cut(x, a) for x, a in zip(found, outs, strict=True)]

        return padded

    def _filled(self, x: Any, aval: Any) -> Any:
        if type(x) is Ref or x.aval.shape == aval.shape:
            return x
        if isinstance(aval.dtype, ExtendedDType):
            raise ValueError(f"jit of {self.name}: arrays of {aval.dtype} cannot be padded")
        value = np.full(aval.shape, self._padding(aval.dtype), aval.dtype)
        value[tuple(map(slice, x.aval.shape))] = x._view()
        return _like(x, aval, value)

    def _padding(self, dtype: Any) -> Any:
        """`pad_value` as a number of a dtype: exactly as an integer, real as a real number."""
        wanted = np.asarray(self.pad_value)
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore", np.exceptions.ComplexWarning)
            value = wanted.astype(dtype)
        is_exact = dtypes.issubdtype(dtype, np.floating) and not np.iscomplex(wanted)
        if not is_exact and not dtypes.issubdtype(dtype, np.complexfloating) and value != wanted:
            raise ValueError(f"jit of {self.name}: pad_value {self.pad_value!r} is no {dtype}")
        return value

    @property
    def length_types(self) -> list[ShapedArray]:
        """The types of arguments that are sizes before padding."""
        return [ShapedArray((), np.dtype(np.int32))] * len(self.lengths)

    def lengths_at(self, sizes: Mapping[str, int]) -> list[Any]:
        """Sizes before padding as arguments."""
        return [asarray_concrete(np.int32(sizes[variable])) for variable in self.lengths]

    def with_lengths(self, run: Runner, sizes: Mapping[str, int]) -> Runner:
        """`run` without its last arguments, which are sizes before padding."""
        lengths = self.lengths_at(sizes)
        return (lambda args: run([*args, *lengths])) if lengths else run

    def warn_of_mixing(self, closed: ClosedJaxpr) -> None:
        """Warn where padding may change results of a program of symbolic shapes."""
        invars, count = closed.jaxpr.invars, len(self.lengths)
        masks = dict.fromkeys(invars[len(invars) - count :], _LENGTH) if count else {}
        found = list(dict.fromkeys(_mixing(closed.jaxpr, frozenset(self.choices), masks)))
        if found:
            warn(
                f"Padding may change results of {self.name}, since elements along padded axes meet "
                "where no mask made of lengths is known to be applied: " + "; ".join(found[:5])
            )


def _is_size(n: Any) -> bool:
    return isinstance(n, (int, np.integer)) and not isinstance(n, bool) and bool(n > 0)


def _by_variable(lengths: Any, choices: Mapping[str, Any]) -> dict[str, str]:
    if lengths is None:
        return {}
    if isinstance(lengths, str):
        if len(choices) != 1:
            raise ValueError("jit: lengths must tell the variable where several have buckets")
        return {next(iter(choices)): lengths}
    if not isinstance(lengths, Mapping):
        raise ValueError(
            f"jit: lengths must be a name or a dictionary by variable, got {lengths!r}"
        )
    wrong = [v for v in lengths if v not in choices]
    if wrong:
        raise ValueError(f"jit: lengths speaks of {wrong[0]!r}, which has no buckets")
    return dict(lengths)


def _like(x: ConcreteArray, aval: Any, value: np.ndarray) -> ConcreteArray:
    """An array of other contents where another one is."""
    made = ConcreteArray(aval, host_buffer(value))
    return put(made, x.placement) if isinstance(x, PlacedArray) else made


def _cut(x: ConcreteArray, aval: Any) -> ConcreteArray:
    """The leading elements along all axes."""
    if x.aval.shape == aval.shape:
        return x
    if any(n > m for n, m in zip(aval.shape, x.aval.shape)):
        raise ValueError(
            f"a result of shape {aval.shape} would be {x.aval.shape} of padded arguments, and "
            "cannot be cut out of it: give the axis no buckets"
        )
    return _like(x, aval, x._view()[tuple(map(slice, aval.shape))])


# Where elements along padded axes meet. What a comparison with a length reaches counts as masked.

_LENGTH, _MASK = 1, 2
_COMPARISONS = frozenset(("eq", "ne", "lt", "le", "gt", "ge"))
_KEEPS_PLACES = frozenset(
    ("broadcast_in_dim", "transpose", "squeeze", "expand_dims", "select_n", "iota", "stop_gradient",
     "copy", "copy_p", "convert_element_type", "reduce_precision")
)  # fmt: skip


def _mixing(jaxpr: Jaxpr, padded: frozenset[str], masks: dict[Any, int]) -> Iterator[str]:
    """What may compute other results of padded arguments, with the variables it does so along."""
    for eqn in jaxpr.eqns:
        level = max((masks.get(v, 0) for v in eqn.invars if not isinstance(v, Literal)), default=0)
        if level == _LENGTH and eqn.primitive.name in _COMPARISONS:
            level = _MASK
        if level:
            masks.update(dict.fromkeys(eqn.outvars, level))
        bodies = [b for value in eqn.params.values() for b in subjaxprs_of_value(value)]
        for body in bodies:
            inner = body.jaxpr if isinstance(body, ClosedJaxpr) else body
            same = len(inner.invars) == len(eqn.invars)
            own = {
                v: masks.get(x, 0) if same and not isinstance(x, Literal) else level
                for v, x in zip(inner.invars, eqn.invars if same else inner.invars)
            }
            yield from _mixing(inner, padded, own)
        along = _met(eqn, padded, bool(bodies))
        loose = [
            v
            for v in eqn.invars
            if not isinstance(v, Literal) and _axes(v.aval, padded) and masks.get(v, 0) < _MASK
        ]
        if along and (loose or not eqn.invars):
            yield f"{eqn.primitive.name} along {', '.join(sorted(along))} ({eqn.source})"


def _axes(aval: Any, padded: frozenset[str]) -> dict[int, set[str]]:
    """The axes that are padded, and the variables their sizes depend on."""
    dims = enumerate(getattr(aval, "shape", ()))
    found = {i: d.variables() & padded for i, d in dims if isinstance(d, Dim)}
    return {i: names for i, names in found.items() if names}


def _met(eqn: JaxprEqn, padded: frozenset[str], calls: bool) -> set[str]:
    """The variables along whose axes an equation lets elements meet, or moves them."""
    name, params = eqn.primitive.name, eqn.params
    if name == "dim_as_value":
        return params["dim"].variables() & padded
    operands = [_axes(v.aval, padded) for v in eqn.invars]
    if name == "gather":
        operands = operands[:1]
    if not any(operands) or name in _KEEPS_PLACES:
        return set()
    if isinstance(eqn.primitive.lowering, Pointwise):
        return set()
    every = set().union(*(names for o in operands for names in o.values()))
    if name == "scan":
        carries = params["num_carry"] > 0
        length = params["length"]
        return length.variables() & padded if carries and isinstance(length, Dim) else set()
    if calls and not name.startswith("reduce"):
        return set()
    if name == "dot_general":
        (left, right), _ = params["dimension_numbers"]
        chosen = [(operands[0], left), (operands[1], right)]
    elif "axes" in params and (name.startswith(("reduce", "arg"))):
        chosen = [(o, params["axes"]) for o in operands]
    elif name.startswith("cum"):
        chosen = [(operands[0], [params["axis"]] if params["reverse"] else [])]
    elif name == "sort" or name == "concatenate":
        chosen = [(o, [params["dimension"]]) for o in operands]
    elif name == "slice":
        starts = params["start_indices"]
        chosen = [(operands[0], [i for i, n in enumerate(starts) if isinstance(n, Dim)])]
    else:
        return every
    return set().union(*(o[i] for o, axes in chosen for i in axes if i in o))
