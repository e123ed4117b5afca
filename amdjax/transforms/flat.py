"""Between functions of pytrees, which users write, and flat functions, which traces see."""

from __future__ import annotations

import functools
import inspect
import operator
import types
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from amdjax.core.aval import ShapedArray, get_aval, is_array_like, is_valid_value
from amdjax.core.context import context
from amdjax.core.dims import Dim
from amdjax.core.dtypes import canonicalize_dtype
from amdjax.core.jaxpr import DebugInfo
from amdjax.core.pytree import (
    PyTreeDef,
    keystr,
    tree_flatten,
    tree_flatten_with_path,
    tree_map,
    tree_unflatten,
)
from amdjax.core.ref import AbstractRef
from amdjax.core.sharding import Sharding, space_of_kind


class FlatFunction:
    """A function of pytrees as a function of leaves that returns a list of leaves.

    Args:
      fun: the function.
      in_tree: the structure of `(args, kwargs)`.
      what: named in errors about results that are not arrays.

    Attributes:
      out_tree: the structure of the result, once the function has run.
    """

    __slots__ = ("aux", "fun", "has_aux", "in_tree", "out_tree", "what")

    def __init__(self, fun: Callable[..., Any], in_tree: PyTreeDef, what: str = ""):
        self.fun = fun
        self.in_tree = in_tree
        self.what = what or fun_name(fun)
        self.out_tree: Any = None
        self.has_aux = False
        self.aux: Any = None

    def __call__(self, *leaves: Any) -> list[Any]:
        args, kwargs = tree_unflatten(self.in_tree, leaves)
        out = self.fun(*args, **kwargs)
        if self.has_aux:
            out, aux = split_aux(out, self.what)
            self.aux = tree_map(context.trace.outside, aux)
        outs, self.out_tree = flatten_result(out, self.what, self.fun)
        return outs

    def unflatten(self, outs: Sequence[Any]) -> Any:
        """The result from its leaves."""
        return tree_unflatten(self.out_tree, outs)


def flatten_fun(
    fun: Callable[..., Any], args: Any, kwargs: dict[str, Any], *, has_aux: bool = False
) -> tuple[list[Any], FlatFunction]:
    """The leaves of a call's arguments, and the function that takes them."""
    leaves, in_tree = tree_flatten((tuple(args), kwargs))
    flat = FlatFunction(fun, in_tree)
    flat.has_aux = has_aux
    return leaves, flat


def flatten_result(out: Any, what: str, fun: Any = None) -> tuple[list[Any], PyTreeDef]:
    """The leaves of a result, all of which must be arrays; `fun` is what returned it."""
    leaves, tree = tree_flatten(out)
    for leaf in leaves:
        if not is_array_like(leaf):
            _reject_result(out, what, fun_location(fun))
    return [x.__jax_array__() if hasattr(x, "__jax_array__") else x for x in leaves], tree


def _reject_result(out: Any, what: str, location: str) -> None:
    what += f" at {location}" if location else ""
    for path, leaf in tree_flatten_with_path(out)[0]:
        if not is_valid_value(leaf):
            where = f" at output component {keystr(path)}" if path else ""
            raise TypeError(
                f"function {what} returned a value of type {type(leaf)}{where}, which is not a "
                "valid JAX type: results are arrays, scalars, or pytrees of them."
            )


def split_aux(out: Any, what: str) -> tuple[Any, Any]:
    """The pair a function with `has_aux=True` returned."""
    if not isinstance(out, (tuple, list)) or len(out) != 2:
        size = f" of length {len(out)}" if isinstance(out, (tuple, list)) else ""
        raise TypeError(
            f"with has_aux=True the function {what} must return a two-element tuple (output, aux), "
            f"got {type(out).__name__}{size}"
        )
    return out[0], out[1]


def fun_name(fun: Any) -> str:
    """A short name for a callable."""
    name = getattr(fun, "__name__", None)
    if name is not None:
        return name
    if isinstance(fun, functools.partial):
        return fun_name(fun.func)
    return type(fun).__name__


def fun_location(fun: Any) -> str:
    """`file:line` of a function's definition, as far as known."""
    while isinstance(fun, functools.partial):
        fun = fun.func
    fun = inspect.unwrap(fun) if callable(fun) else fun
    code = getattr(fun, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else ""


def debug_info(
    kind: str, fun: Any, args: Any = (), kwargs: dict[str, Any] | None = None
) -> DebugInfo:
    """What error messages shall say about a traced function.

    Args:
      kind: the transform it is traced for, such as "jit".
      fun: the function.
      args: its arguments, for their names.
      kwargs: its keyword arguments.
    """
    return DebugInfo(kind, fun_name(fun), fun_location(fun), argument_names(fun, args, kwargs))


def argument_names(fun: Any, args: Any, kwargs: dict[str, Any] | None = None) -> tuple[str, ...]:
    """A name for each leaf of the arguments, such as `params['w']`."""
    sig = signature(fun)
    given: dict[str, Any] = {}
    try:
        bound = sig.bind(*args, **(kwargs or {})) if sig is not None else None
    except TypeError:
        bound = None
    if bound is None:
        given = {**{f"args[{i}]": a for i, a in enumerate(args)}, **(kwargs or {})}
    else:
        for name, value in bound.arguments.items():
            kind = sig.parameters[name].kind  # type: ignore[union-attr]
            if kind is inspect.Parameter.VAR_POSITIONAL:
                given.update((f"{name}[{i}]", v) for i, v in enumerate(value))
            elif kind is inspect.Parameter.VAR_KEYWORD:
                given.update(value)
            else:
                given[name] = value
    # Keyword arguments are flattened as a dict is, by sorted name, after the positional ones.
    first = [n for n in given if n not in (kwargs or {})]
    names = [*first, *sorted(n for n in given if n in (kwargs or {}))]
    return tuple(
        name + keystr(path) for name in names for path, _ in tree_flatten_with_path(given[name])[0]
    )


_signatures: weakref.WeakKeyDictionary[Any, inspect.Signature | None] = weakref.WeakKeyDictionary()


def signature(fun: Any) -> inspect.Signature | None:
    """The signature of a callable, None if it has none."""
    if type(fun) is types.FunctionType and fun in _signatures:
        return _signatures[fun]
    try:
        found = inspect.signature(fun)
    except (TypeError, ValueError):
        found = None
    if type(fun) is types.FunctionType:
        _signatures[fun] = found
    return found


def resolve_kwargs(
    fun: Callable[..., Any], args: Any, kwargs: dict[str, Any], kind: str
) -> tuple[Any, ...]:
    """Keyword arguments and defaults put in their positions.

    Args:
      fun: the function.
      args: positional arguments of the call.
      kwargs: its keyword arguments.
      kind: what decorates it, for messages.
    """
    failed = (
        f"The input arguments to the {kind}-decorated function {fun_name(fun)} could not be "
        "resolved to positional-only arguments. Binding failed with the error:\n"
    )
    sig = signature(fun)
    if sig is None:
        if kwargs:
            raise TypeError(f"{failed}its signature is not known")
        return tuple(args)
    try:
        bound = sig.bind(*args, **kwargs)
    except TypeError as e:
        raise TypeError(f"{failed}{e}") from None
    bound.apply_defaults()
    # What keeps its default is not part of the call.
    if given := sorted(name for name in bound.kwargs if name in kwargs):
        raise TypeError(
            f"{failed}The following keyword arguments could not be resolved to positions: "
            f"{', '.join(given)}"
        )
    return bound.args


def positions_of(argnums: Any) -> tuple[int, ...]:
    """Positions of arguments, given as one number or several."""
    return tuple(argnums) if isinstance(argnums, Iterable) else (argnums,)


def argnums_of_names(fun: Callable[..., Any], names: Any) -> tuple[int, ...]:
    """The positions of parameters given by name."""
    names = (names,) if isinstance(names, str) else tuple(names)
    if not names:
        return ()
    sig = signature(fun)
    parameters = list(sig.parameters) if sig is not None else []
    for name in names:
        if name not in parameters:
            raise ValueError(f"{fun_name(fun)} has no parameter named {name!r}")
    return tuple(parameters.index(n) for n in names)


def split_args(args: Sequence[Any], static: Sequence[int]) -> tuple[list[Any], list[Any]]:
    """Arguments at the positions `static`, and the others."""
    chosen = [args[i] for i in static]
    return chosen, [a for i, a in enumerate(args) if i not in static]


def join_args(static: Sequence[int], values: Sequence[Any], others: Sequence[Any]) -> list[Any]:
    """Inverse of `split_args`."""
    at = dict(zip(static, values))
    rest = iter(others)
    count = len(values) + len(others)
    return [at[i] if i in at else next(rest) for i in range(count)]


def shaped(x: Any) -> Any:
    """The type of a value or of something that has a shape and a dtype."""
    if isinstance(x, ShapedArray):
        return x.unsharded()
    if isinstance(x, AbstractRef):
        return x
    described = not is_valid_value(x) and hasattr(x, "shape") and hasattr(x, "dtype")
    return described_aval(x) if described else get_aval(x)


def described_aval(x: Any) -> Any:
    """The type that the attributes of `x` tell: `shape`, `dtype`, perhaps `weak_type`, `is_ref`."""
    dtype = canonicalize_dtype(x.dtype, allow_extended_dtype=True)
    for axis, size in enumerate(x.shape):
        is_integer = hasattr(size, "__index__")
        if isinstance(size, Dim) or (is_integer and 0 <= operator.index(size) < 2**63):
            continue
        raise (ValueError if is_integer else TypeError)(
            f"{type(x).__name__} of shape {tuple(x.shape)}: axis {axis} is {size!r}. Shapes must "
            "be 1D sequences of concrete values of integer type, at least 0 and less than 2**63, "
            "or name sizes that differ from call to call, as ('b', 128)"
        )
    place = getattr(x, "sharding", None)
    space = space_of_kind(place.memory_kind if isinstance(place, Sharding) else None)
    weak = getattr(x, "weak_type", False) or False
    aval = ShapedArray(x.shape, dtype, weak, memory_space=space)
    return AbstractRef(aval) if getattr(x, "is_ref", False) else aval
