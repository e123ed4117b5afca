"""Models as programs of symbolic shapes, to be saved."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

import amdjax
from amdjax.core.config import enable_x64
from amdjax.core.dims import (
    ShapeEquations,
    SymbolicScope,
    at_sizes,
    scope_of,
    symbolic_shape,
    variables_of,
)
from amdjax.core.dims.polynomial import Polynomial, variables
from amdjax.core.errors import InconclusiveDimensionOperation, did_you_mean
from amdjax.core.pytree import tree_unflatten
from amdjax.transforms.staging import ShapeDtypeStruct

from .program import Exported, export
from .values import Value, told, value_of

__all__ = ["exported_model", "for_all_sizes", "interface", "sizes_in", "symbols_of"]

_WORDS = ("mod", "floordiv", "max", "min")  # of texts of dimensions
_TRIED = (8, 2, 32, 128)  # sizes about which a model that is none for all may be one


def exported_model(
    model: Any, example: Mapping[str, Any], constraints: Sequence[str] = ()
) -> Exported:
    """The program `f(params, **inputs)` of a model.

    Args:
      model: a `FileModel`.
      example: inputs by name, which tell shapes that the model does not.
      constraints: what holds of its sizes.

    Raises:
      ValueError: an input has no dtype or shape; the program depends on sizes or values.
    """
    symbols = symbols_of(model.inputs)
    if wrong := _named_by(constraints) - {*symbols.values()}:
        known = ", ".join(symbols.values()) or "none"
        raise ValueError(f"constraints: there is no dimension {min(wrong)!r}; there are {known}")
    if wrong := set(example) - {v.name for v in model.inputs}:
        hint = did_you_mean(min(wrong), [v.name for v in model.inputs])
        raise ValueError(f"save: example has {min(wrong)!r}, which is no input.{hint}")
    params = {n: ShapeDtypeStruct(np.shape(v), v.dtype) for n, v in model.params.items()}

    def specs(known: Sequence[str]) -> dict[str, ShapeDtypeStruct]:
        scope = SymbolicScope(known)
        return {v.name: _spec(v, example.get(v.name), symbols, scope) for v in model.inputs}

    with enable_x64(True):
        try:
            trace = export(amdjax.jit(model.function))
            return for_all_sizes(trace, model, params, specs, constraints, example)
        except (model.error, InconclusiveDimensionOperation) as e:
            fixed = {s: 1 for s in symbols.values()}
            advice = f"; give constraints, or load it with sizes, as in dims={fixed}"
            advice = advice if fixed else ""
            raise model.error(f"save: it is no program for all sizes{advice}: {e}") from e


def for_all_sizes(
    trace: Callable[..., Any], model: Any, params: Mapping[str, Any],
    specs: Callable[[Sequence[str]], Mapping[str, Any]], constraints: Sequence[str] = (),
    example: Mapping[str, Any] = MappingProxyType({}),
) -> Any:  # fmt: skip
    """A model traced for all sizes that it serves.

    Args:
      trace: traces it for types of parameters and, by name, of inputs.
      model: the model, whose function that is.
      params: the types of the parameters.
      specs: makes types of inputs of whose sizes constraints hold.
      constraints: those that are known; a bound at which tables are cut is added if need be.
      example: inputs by name, whose sizes are such.

    Raises:
      ValueError: there is no such program, or one that serves other sizes is another.
    """
    known = list(constraints)
    while True:
        types = specs(known)
        try:
            return trace(params, **types)
        except (model.error, InconclusiveDimensionOperation):
            more = _served_alone(model, params, types, example)
            if more is None or more in known:
                raise
            known.append(more)


def _named_by(constraints: Sequence[str]) -> set[str]:
    """The variables that constraints speak of."""
    return {n for row in SymbolicScope(constraints).rows_told for n in variables(row)}


def _served_alone(
    model: Any, params: Mapping[str, Any], specs: Mapping[str, Any], example: Mapping[str, Any]
) -> str | None:
    """A constraint that holds of all sizes for which a model is one, as far as some tell.

    Args:
      model: what could not be traced for types of symbolic sizes.
      params, specs: these types.
      example: inputs by name, whose sizes are such; some sizes if there is none.

    Returns:
      The constraint: a bound at which a table is cut, a number of which sizes are multiples; None
      where there is none, or the model can be traced for sizes that violate it.
    """
    scope = scope_of(specs.values())
    if scope is None:
        return None
    names = sorted(variables_of(specs.values()))
    given = {n: np.shape(x) for n, x in example.items()}
    found = ShapeEquations([specs[n].shape for n in given], scope).solved(list(given.values()))
    usual = [{name: start + i for i, name in enumerate(names)} for start in _TRIED]
    for sizes in ([usual[0] | found] if found else []) + usual:
        if scope.violated(sizes) is not None:
            continue
        for name, instead in scope.special_case(sizes).items():
            told = _told_range(name, instead, scope)
            if told is None:
                continue
            constraint, outside = told
            if not any(_is_traced(model, params, specs, {**sizes, name: n}) for n in outside):
                return constraint
    return None


def _told_range(
    name: str, instead: Polynomial, scope: SymbolicScope
) -> tuple[str, Sequence[int]] | None:
    """The constraint by which a variable is what stands for it, and sizes that violate it."""
    if len(instead) != 1:
        return None
    factor, new = instead[0][1], min(variables(instead), default="")
    least, most = scope.narrower.get(new, (0, 0))
    if factor > 1 and new in scope.narrower:
        return f"mod({name}, {factor}) == 0", range(4 * factor + 1, 5 * factor)
    if new in scope.narrower and (scope.range(name)[0] or 0) >= least:
        return f"{name} <= {most}", (most + 1, 2 * most)
    return None


def _is_traced(
    model: Any, params: Mapping[str, Any], specs: Mapping[str, Any], sizes: Mapping[str, int]
) -> bool:
    """Whether a model can be traced for sizes."""
    at = {
        n: ShapeDtypeStruct([at_sizes(d, sizes) for d in s.shape], s.dtype)
        for n, s in specs.items()
    }
    try:
        amdjax.eval_shape(model.function, params, **at)
    except model.error:
        return False
    return True


def interface(model: Any, exported: Exported) -> dict[str, Any]:
    """What a manifest says of parameters, inputs and outputs."""
    _, inputs = tree_unflatten(exported.in_tree, exported.in_avals)
    outputs = tree_unflatten(exported.out_tree, exported.out_avals)
    return {
        "params": list(model.params),
        "inputs": [told(value_of(v.name, inputs[v.name])) for v in model.inputs],
        "outputs": [told(value_of(v.name, outputs[v.name])) for v in model.outputs],
    }


def sizes_in(exported: Exported, example: Mapping[str, Any]) -> dict[str, int]:
    """The sizes of dimension variables that inputs by name have."""
    # late: loads the compiler
    from amdjax.core.dims import ShapeEquations

    _, inputs = tree_unflatten(exported.in_tree, exported.in_avals)
    scope = scope_of(exported.in_avals)
    if scope is None:
        return {}
    names = [n for n in inputs if n in example]
    equations = ShapeEquations([inputs[n].shape for n in names], scope)
    found = equations.solved([np.shape(example[n]) for n in names])
    if found is None:
        raise ValueError("save: the sizes of example do not fit the model's inputs")
    return found


def symbols_of(values: Sequence[Value]) -> dict[str, str]:
    """For names of dimensions, `input_axis` where they have none, names of variables."""
    found: dict[str, str] = {}
    for value in values:
        for axis, name in enumerate(value.shape or ()):
            if isinstance(name, int):
                continue
            name = f"{value.name}_{axis}" if name is None else name
            plain = re.sub(r"\W", "_", name, flags=re.ASCII)
            plain = plain if re.match("[A-Za-z]", plain) and plain not in _WORDS else f"n_{plain}"
            while plain in found.values() and name not in found:
                plain += "_"
            found.setdefault(name, plain)
    return found


def _spec(
    value: Value, example: Any, symbols: Mapping[str, str], scope: SymbolicScope
) -> ShapeDtypeStruct:
    dtype = getattr(example, "dtype", None) if value.dtype is None else value.dtype
    if value.kind != "tensor" or dtype is None or np.dtype(dtype).kind in "OSU":
        raise ValueError(f"save: input {value} is no tensor of numbers")
    if value.shape is None and example is None:
        raise ValueError(f"save: nothing is said of the shape of {value}: give an example")
    if value.shape is None:
        return ShapeDtypeStruct(np.shape(example), dtype)
    named = [f"{value.name}_{axis}" if n is None else n for axis, n in enumerate(value.shape)]
    text = ", ".join(str(n if isinstance(n, int) else symbols[n]) for n in named)
    return ShapeDtypeStruct(symbolic_shape(text, scope=scope) if text else (), dtype)
