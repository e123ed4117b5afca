"""Models as programs of symbolic shapes, to be saved."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import amdjax
from amdjax.core.config import enable_x64
from amdjax.core.dims import SymbolicScope, scope_of, symbolic_shape
from amdjax.core.dims.polynomial import variables
from amdjax.core.errors import InconclusiveDimensionOperation, did_you_mean
from amdjax.core.pytree import tree_unflatten
from amdjax.transforms.staging import ShapeDtypeStruct

from .program import Exported, export
from .values import Value, told, value_of

__all__ = ["exported_model", "interface", "sizes_in", "symbols_of"]

_WORDS = ("mod", "floordiv", "max", "min")  # of texts of dimensions


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
    scope = SymbolicScope(constraints)
    if wrong := {n for row in scope.rows_told for n in variables(row)} - {*symbols.values()}:
        known = ", ".join(symbols.values()) or "none"
        raise ValueError(f"constraints: there is no dimension {min(wrong)!r}; there are {known}")
    if wrong := set(example) - {v.name for v in model.inputs}:
        hint = did_you_mean(min(wrong), [v.name for v in model.inputs])
        raise ValueError(f"save: example has {min(wrong)!r}, which is no input.{hint}")
    with enable_x64(True):
        specs = {v.name: _spec(v, example.get(v.name), symbols, scope) for v in model.inputs}
        params = {n: ShapeDtypeStruct(np.shape(v), v.dtype) for n, v in model.params.items()}
        try:
            return export(amdjax.jit(model.function))(params, **specs)
        except (model.error, InconclusiveDimensionOperation) as e:
            fixed = {s: 1 for s in symbols.values()}
            advice = f"; give constraints, or load it with sizes, as in dims={fixed}"
            advice = advice if fixed else ""
            raise model.error(f"save: it is no program for all sizes{advice}: {e}") from e


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
