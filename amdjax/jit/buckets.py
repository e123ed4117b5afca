"""Arguments padded to sizes of which few programs are compiled: `jit(f, buckets=…)`."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from amdjax.core import dtypes
from amdjax.core.array import ConcreteArray, PlacedArray, asarray_concrete
from amdjax.core.aval import ShapedArray
from amdjax.core.dims import Dim, scope_of, symbolic_dimension
from amdjax.core.dtypes import ExtendedDType
from amdjax.core.jaxpr import ClosedJaxpr
from amdjax.core.ref import Ref
from amdjax.core.tracebacks import warn
from amdjax.jit.arrays import Runner, host_buffer
from amdjax.jit.padding import mixing
from amdjax.jit.padding_facts import Fact
from amdjax.jit.placement import put
from amdjax.transforms.flat import signature


class Buckets:
    """The sizes to which `jit(f, buckets=…)` pads.

    Args:
      fun: the function.
      name: what it is called.
      sizes: for each variable the sizes to choose from.
      pad_value: what arguments are filled up with.
      lengths: the parameter that takes the size before padding, or one by variable.
      variables: those of the shapes.

    Raises:
      ValueError: there are no sizes, or they are not positive; a parameter or a variable is not
        there.
    """

    def __init__(
        self, fun: Any, name: str, sizes: Any, pad_value: Any, lengths: Any,
        variables: frozenset[str],
    ):  # fmt: skip
        if not isinstance(sizes, Mapping) or not sizes:
            raise ValueError(f"jit: buckets must be a dictionary by variable, got {sizes!r}")
        for variable, choices in sizes.items():
            if variable not in variables:
                raise ValueError(
                    f"jit: buckets names {variable!r}, which no shape has; the variables of "
                    f"symbolic= are {sorted(variables)}"
                )
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
        self._signature = signature(fun)
        self._check_lengths()

    def _check_lengths(self) -> None:
        known = {} if self._signature is None else self._signature.parameters
        takes_any = any(p.kind is p.VAR_KEYWORD for p in known.values())
        named: dict[str, str] = {}
        for variable, name in self.lengths.items():
            if not isinstance(name, str):
                raise ValueError(f"jit: lengths must name parameters, got {name!r}")
            if name in named:
                raise ValueError(
                    f"jit: lengths names {name!r} for both {named[name]!r} and {variable!r}"
                )
            named[name] = variable
            parameter = known.get(name)
            if parameter is None and known and not takes_any:
                raise ValueError(f"jit: lengths names {name!r}, no parameter of {self.name}")
            by_name = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
            if parameter is not None and parameter.kind not in by_name:
                raise ValueError(
                    f"jit: lengths names {name!r}, which {self.name} does not take by name"
                )

    def check_call(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Raise ValueError if a call gives a size before padding itself."""
        given = set(kwargs)
        if self._signature is not None:
            given |= set(self._signature.bind_partial(*args, **kwargs).arguments)
        for name in self.lengths.values():
            if name in given:
                raise ValueError(
                    f"jit of {self.name}: lengths names {name!r}, which the call gives: callers "
                    "leave the size before padding out; name a parameter of its own for it"
                )

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

    def warn_of_mixing(self, closed: ClosedJaxpr, types: Sequence[Any]) -> None:
        """Warn where padding may change results of a program of symbolic shapes.

        Args:
          closed: the program.
          types: those of the arguments that are padded; sizes before padding follow.
        """
        padded, scope = frozenset(self.choices), scope_of(types)
        facts: list[Fact | None] = [self._fact(a) for a in closed.in_avals]
        if self.lengths and scope is not None:
            sizes = [symbolic_dimension(variable, scope) for variable in self.lengths]
            facts[len(facts) - len(sizes) :] = [Fact(size=size) for size in sizes]
        found = list(mixing(closed.jaxpr, padded, facts))
        if found:
            warn(
                f"Padding may change results of {self.name}, since elements along padded axes meet "
                "what is not known to change nothing, such as 0 in a sum, which a mask made of "
                "lengths would put there: " + "; ".join(found[:5])
            )

    def _fact(self, aval: Any) -> Fact | None:
        """What an argument holds beyond its size."""
        if not isinstance(aval, ShapedArray) or isinstance(aval.dtype, ExtendedDType):
            return None
        dims = enumerate(aval.shape)
        padded = [i for i, d in dims if isinstance(d, Dim) and d.variables() & {*self.choices}]
        return Fact(dict.fromkeys(padded, self._padding(aval.dtype)[()])) if padded else None


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
