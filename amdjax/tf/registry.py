"""The table of rules: what an operator computes, by its name.

A rule is a function of the node and of its inputs::

    @rule("ExpandDims", numbers=("dim",))
    def expand_dims(node, x, dim): ...

Values are arrays of amdjax, concrete or traced, or NumPy arrays ("host arrays") where they are
known as a program is traced: small constants, sizes, and what rules make of such alone. A host
array of dtype `object` holds sizes of which some are symbolic dimensions. Inputs named by `numbers`
are always host arrays; the others are either all host arrays or all of amdjax, so that
`namespace(x)` tells where a rule computes. It returns a value, or a tuple of several outputs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

import amdjax.numpy as jnp
from amdjax import lax
from amdjax.core.config import config
from amdjax.core.dims import is_symbolic_dim
from amdjax.core.dtypes import canonicalize_dtype

from .errors import TensorFlowError
from .nodes import Node

#: Host arrays of more elements become arrays of amdjax.
MAX_HOST = 4096


class Rule(NamedTuple):
    """What an operator computes.

    Attributes:
      run: the function.
      names: of inputs; of the last of `is_variadic` there are any number.
      numbers: which of them must be known as numbers.
      least: how many inputs there are at least.
      only_device: whether it computes by amdjax even of host arrays.
      mixed: whether it takes host arrays beside others.
      runs_graphs: whether it takes `run`, a function of a graph and its inputs.
    """

    run: Callable[..., Any]
    names: tuple[str, ...]
    numbers: tuple[str, ...]
    least: int
    is_variadic: bool
    only_device: bool
    runs_graphs: bool
    mixed: bool

    def name_of(self, at: int) -> str:
        """The name of an input."""
        return self.names[min(at, len(self.names) - 1)]

    def is_number(self, at: int, count: int) -> bool:
        """Whether an input, of so many, must be known as numbers."""
        if "-1" in self.numbers and at == count - 1:
            return True
        return bool(self.names) and self.name_of(at) in self.numbers


_RULES: dict[str, Rule] = {}


def rule(
    *operators: str, numbers: Sequence[str] = (), only_device: bool = False, mixed: bool = False
) -> Callable[[Any], Any]:
    """Register a function as what operators compute.

    Args:
      operators: their names.
      numbers: names of inputs that are host arrays; "-1" is the last one.
      only_device: whether it computes by amdjax even of host arrays.
      mixed: whether it takes host arrays beside others.
    """

    def register(function: Any) -> Any:
        every = list(inspect.signature(function).parameters.values())[1:]
        parameters = [p for p in every if p.kind is not p.KEYWORD_ONLY]
        least = sum(p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters)
        made = Rule(
            function, tuple(p.name for p in parameters), tuple(numbers), least,
            any(p.kind is p.VAR_POSITIONAL for p in parameters), only_device,
            any(p.name == "run" for p in every), mixed,
        )  # fmt: skip
        for name in operators:
            if name in _RULES:
                raise ValueError(f"there are two rules for {name}")
            _RULES[name] = made
        return function

    return register


def find_rule(op: str) -> Rule | None:
    """The rule of an operator."""
    return _RULES.get(op)


def operators() -> tuple[str, ...]:
    """Names of the operators of TensorFlow that are read.

    Returns:
      Names, sorted.

    Example:
      >>> "Conv2D" in operators()
      True
    """
    return tuple(sorted(_RULES))


# Values


def is_host(value: Any) -> bool:
    """Whether a value is known as programs are traced."""
    return isinstance(value, np.ndarray)


def namespace(*values: Any) -> Any:
    """NumPy where all values are host arrays, else `amdjax.numpy`."""
    return np if all(map(is_host, values)) else jnp


def host_array(values: Any) -> np.ndarray:
    """A host array of integers and symbolic dimensions.

    Args:
      values: nested lists of them, or a NumPy array.
    """
    made = np.empty((), object)
    if is_symbolic_dim(values):
        made[()] = values
        return made
    made = np.asarray(values)
    if made.dtype != object or any(map(is_symbolic_dim, made.flat)):
        return made
    fits = all(-(2**31) <= n < 2**31 for n in made.flat)
    return made.astype(np.int32 if fits else np.int64)


def sizes(value: np.ndarray) -> list[Any]:
    """Elements of a host array as Python integers and symbolic dimensions."""
    return [n if is_symbolic_dim(n) else int(n) for n in value.ravel().tolist()]


def size(node: Node, name: str, value: np.ndarray) -> Any:
    """The only element of a host array."""
    if value.size != 1:
        raise node.error(f"{name} must be one number, got shape {value.shape}")
    return sizes(value)[0]


def axis_of(node: Node, name: str, axis: Any, rank: int) -> int:
    """An axis counted from the front."""
    if is_symbolic_dim(axis) or not -rank <= axis < rank:
        raise node.error(f"{name} must be an axis of {rank} axes, got {axis}")
    return int(axis) % rank


def to_device(value: Any) -> Any:
    """A value as an array of amdjax.

    Raises:
      TensorFlowError: an integer needs 64 bits, which are off.
    """
    if not is_host(value):
        return value
    if value.dtype == object:
        if not all(is_symbolic_dim(n) or isinstance(n, int) for n in value.flat):
            raise TensorFlowError("texts are not computed with")
        numbers = [jnp.asarray(n, np.int32) for n in value.flat]
        return jnp.stack(numbers).reshape(value.shape)
    if value.dtype.kind in "iu" and value.itemsize == 8 and value.size and not config.enable_x64:
        narrow = np.iinfo(np.int32 if value.dtype.kind == "i" else np.uint32)
        if value.min() < narrow.min or value.max() > narrow.max:
            raise TensorFlowError(
                f"{value.dtype} constants hold numbers of more than 32 bits; enable jax_enable_x64"
            )
    if value.size > 1 and not any(value.strides):
        return lax.full(value.shape, jnp.asarray(value.flat[0]))
    return jnp.asarray(value)


def converted(value: Any, dtype: np.dtype) -> Any:
    """A value of another dtype; arrays that are no host arrays get 32 bits where 64 are off."""
    return value.astype(dtype if is_host(value) else canonicalize_dtype(dtype))


# What nodes compute


def evaluate(
    node: Node, made: Rule, inputs: Sequence[Any], run: Callable[..., Any]
) -> tuple[Any, ...]:
    """The outputs of a node.

    Args:
      node: the node.
      made: the rule of its operator.
      inputs: the values of its inputs.
      run: computes what a graph makes of inputs.

    Raises:
      TensorFlowError: they do not fit; the message names the node.
    """
    count = len(inputs)
    if count < made.least or (count > len(made.names) and not made.is_variadic):
        expected = ", ".join(made.names) or "none"
        raise node.invalid(f"takes {made.least} inputs ({expected}), got {count}")
    numbers = [made.is_number(i, count) for i in range(count)]
    for i, value in enumerate(inputs):
        if numbers[i] and not is_host(value):
            raise node.invalid(
                f"input {made.name_of(i)!r} must be known as the graph is traced, but depends on "
                "inputs or parameters"
            )
    others = [v for v, is_number in zip(inputs, numbers) if not is_number]
    kept = made.mixed or (all(map(is_host, others)) and not (others and made.only_device))
    try:
        given = [v if is_number or kept else to_device(v) for v, is_number in zip(inputs, numbers)]
        results = made.run(node, *given, **({"run": run} if made.runs_graphs else {}))
        results = results if isinstance(results, tuple) else (results,)
        return tuple(_kept(r) for r in results)
    except TensorFlowError as e:
        if str(e).startswith("node "):
            raise
        raise node.error(str(e)) from None
    except (TypeError, ValueError, IndexError, ZeroDivisionError, OverflowError) as e:
        shapes = ", ".join(
            f"{made.name_of(i)}: {_described(value)}" for i, value in enumerate(inputs)
        )
        raise node.error(f"{e} (inputs {shapes})") from e


def _described(value: Any) -> str:
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    return type(value).__name__ if shape is None else f"{dtype}{list(shape)}"


def _kept(value: Any) -> Any:
    """A result: NumPy's scalars are host arrays, large host arrays are none."""
    if isinstance(value, (np.generic, int, float)) or is_symbolic_dim(value):
        return host_array(value)
    if is_host(value):
        value = host_array(value) if value.dtype == object else value
        return to_device(value) if value.size > MAX_HOST else value
    return value
