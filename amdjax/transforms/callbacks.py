"""Calls of Python from traced programs: `pure_callback`, `io_callback`, `debug.callback`."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from amdjax.core.array import ConcreteArray
from amdjax.core.aval import ShapedArray, is_valid_value
from amdjax.core.backend import get_backend
from amdjax.core.dtypes import canonicalize_dtype, float0
from amdjax.core.effects import debug_effect, io_effect, ordered_debug_effect, ordered_io_effect
from amdjax.core.errors import JaxRuntimeError
from amdjax.core.lowering import Host
from amdjax.core.primitive import Primitive
from amdjax.core.pytree import tree_flatten, tree_unflatten
from amdjax.transforms import ops
from amdjax.transforms.axes import AxisData, batch_at, batched_aval
from amdjax.transforms.flat import fun_name, shaped

VMAP_METHODS = (
    "sequential",
    "sequential_unrolled",
    "expand_dims",
    "broadcast_all",
    "legacy_vectorized",
)


class FlatCallback:
    """A user's function on flat NumPy arrays.

    Args:
      fun: the function.
      in_tree: the structure of `(args, kwargs)`.
      out_tree: the structure of its results, of which only the number of leaves must be so.
      api: what called it, for messages.
    """

    def __init__(self, fun: Callable[..., Any], in_tree: Any, out_tree: Any, api: str):
        if not callable(fun):
            raise TypeError(f"callback must be callable, got {fun!r}")
        self.fun = fun
        self.in_tree = in_tree
        self.out_tree = out_tree
        self.api = api
        self.__name__ = fun_name(fun)

    def __call__(self, *leaves: Any) -> list[Any]:
        args, kwargs = tree_unflatten(self.in_tree, leaves)
        try:
            out = self.fun(*args, **kwargs)
        except Exception as error:
            # late: only failures are logged
            import logging
            import traceback

            logging.getLogger("amdjax.callbacks").exception("amdjax.%s failed", self.api)
            raise JaxRuntimeError(
                f"error in the callback {self.__name__} of {self.api}:\n{traceback.format_exc()}"
            ) from error
        outs, tree = tree_flatten(out)
        if tree.num_leaves != self.out_tree.num_leaves:
            raise JaxRuntimeError(
                f"the callback {self.__name__} returned the structure {tree}, but "
                f"result_shape_dtypes has {self.out_tree}"
            )
        return outs


def _checked(outs: Sequence[Any], avals: Sequence[ShapedArray], name: str) -> list[np.ndarray]:
    arrays = []
    for i, (x, aval) in enumerate(zip(outs, avals)):
        array = np.asarray(x)
        array = array.astype(canonicalize_dtype(array.dtype), copy=False)
        for what in ("shape", "dtype"):
            got, want = getattr(array, what), getattr(aval, what)
            if got != want:
                raise JaxRuntimeError(
                    f"Incorrect output {what} for return value #{i}: the callback {name} returned "
                    f"{got}, but result_shape_dtypes says {want}"
                )
        arrays.append(array)
    return arrays


def _as_arrays(views: Sequence[np.ndarray]) -> list[Any]:
    """Arrays for a callback to keep: what it is shown is memory that is used again."""
    put = get_backend().put
    return [
        x if x.dtype == float0 else ConcreteArray(ShapedArray(x.shape, x.dtype), put(x))
        for x in views
    ]


def _run(*views: np.ndarray, callback: Any, result_avals: Any, **_: Any) -> list[np.ndarray]:
    return _checked(callback(*_as_arrays(views)), result_avals, fun_name(callback))


class _OneByOne:
    """A callback on batches whose mapped axes come first, called for each element in turn.

    The axis that was mapped first, by the innermost `vmap`, changes slowest.

    Args:
      callback: what is called.
      axes: for each mapped axis its length, and which arguments have it.
      results: how many results there are.
    """

    def __init__(self, callback: Any, axes: list[tuple[int, tuple[bool, ...]]], results: int):
        self.callback, self.axes, self.results = callback, axes, results
        self.__name__ = fun_name(callback)

    def __call__(self, *arrays: Any) -> list[Any]:
        sizes = [size for size, _ in self.axes]
        rows = [
            self.callback(*(x[self._place(k, at)] for k, x in enumerate(arrays)))
            for at in itertools.product(*map(range, sizes))
        ]
        order = range(len(sizes))[::-1]
        outs = []
        for column in zip(*rows) if self.results else ():
            values = np.stack([np.asarray(v) for v in column])
            values = values.reshape(*sizes, *values.shape[1:])
            outs.append(np.moveaxis(values, range(len(sizes)), order))
        return outs

    def _place(self, k: int, at: tuple[int, ...]) -> tuple[int, ...]:
        """The index of an element in one argument, in which the last axis comes first."""
        return tuple(i for i, (_, mapped) in zip(at[::-1], self.axes[::-1]) if mapped[k])


def _one_by_one(callback: Any, mapped: tuple[bool, ...], size: int, results: int) -> Any:
    if isinstance(callback, _OneByOne):
        return _OneByOne(callback.callback, [*callback.axes, (size, mapped)], results)
    return _OneByOne(callback, [(size, mapped)], results)


def _batch_one_by_one(
    primitive: Primitive, axis: AxisData, args: Any, dims: Any, params: dict[str, Any]
) -> Any:
    args = [x if d is None else ops.moveaxis(x, d, 0) for x, d in zip(args, dims)]
    mapped = tuple(d is not None for d in dims)
    avals = params.get("result_avals", ())
    callback = _one_by_one(params["callback"], mapped, axis.size, len(avals))
    params = {**params, "callback": callback}
    if "result_avals" in params:
        params["result_avals"] = tuple(batched_aval(axis, a) for a in avals)
    return primitive.bind(*args, **params), [0] * len(avals)


def _bind(
    primitive: Primitive, callback: Callable[..., Any], results: Any, args: tuple[Any, ...],
    kwargs: dict[str, Any], **params: Any,
) -> Any:  # fmt: skip
    """Call a Python function whose results have the types in the pytree `results`."""
    types, out_tree = tree_flatten(results)
    for t in types:
        if not hasattr(t, "dtype"):
            raise TypeError(
                f"{primitive.name}: result_shape_dtypes must be a pytree of ShapeDtypeStructs or "
                f"arrays, got {t!r}"
            )
        if canonicalize_dtype(t.dtype, allow_extended_dtype=True) != t.dtype:
            raise ValueError(
                f"{primitive.name}: result_shape_dtypes cannot specify 64-bit types when "
                f"`jax_enable_x64` is disabled, got {t}"
            )
    avals = tuple(shaped(t).strong() for t in types)
    leaves, in_tree = tree_flatten((args, kwargs))
    flat = FlatCallback(callback, in_tree, out_tree, primitive.name)
    outs = primitive.bind(*leaves, callback=flat, result_avals=avals, sharding=None, **params)
    return tree_unflatten(out_tree, outs)


pure_callback_p = Primitive("pure_callback", multiple_results=True)
pure_callback_p.lowering = Host(_run)


@pure_callback_p.def_abstract_eval
def _pure_abstract(*avals: Any, result_avals: Any, **_: Any) -> list[Any]:
    return list(result_avals)


@pure_callback_p.def_jvp
def _pure_jvp(*args: Any, **_: Any) -> Any:
    raise ValueError(
        "Pure callbacks do not support JVP. Give the function around it a derivative with "
        "custom_jvp or custom_vjp."
    )


@pure_callback_p.def_batch
def _pure_batch(axis: AxisData, args: Any, dims: Any, **params: Any) -> Any:
    method = params["vmap_method"]
    if method is None:
        raise NotImplementedError(
            "vmap is only supported for pure_callback if it is told how: pass vmap_method, one of "
            f"{', '.join(map(repr, VMAP_METHODS))}."
        )
    if method in ("sequential", "sequential_unrolled"):
        return _batch_one_by_one(pure_callback_p, axis, args, dims, params)
    if method == "broadcast_all":
        args = [batch_at(axis, x, d, 0) for x, d in zip(args, dims)]
    elif method == "expand_dims":
        args = [
            ops.broadcast(x, 1, 0) if d is None else ops.moveaxis(x, d, 0)
            for x, d in zip(args, dims)
        ]
    else:
        args = [x if d is None else ops.moveaxis(x, d, 0) for x, d in zip(args, dims)]
    avals = tuple(batched_aval(axis, a) for a in params["result_avals"])
    return pure_callback_p.bind(*args, **{**params, "result_avals": avals}), [0] * len(avals)


def pure_callback(
    callback: Callable[..., Any], result_shape_dtypes: Any, *args: Any, sharding: Any = None,
    vmap_method: str | None = None, **kwargs: Any,
) -> Any:  # fmt: skip
    """Call a Python function without side effects from a traced program.

    Args:
      callback: takes arrays; must depend on nothing else. It may be called any number of
        times, or not at all.
      result_shape_dtypes: pytree of `ShapeDtypeStruct`s (or arrays) with the types of its results.
      *args: pytrees of arrays passed to it.
      sharding: accepted and ignored.
      vmap_method: what `vmap` does: "sequential" calls it for each element, "expand_dims" and
        "broadcast_all" call it once with a leading axis, which arguments that are not mapped have
        with size one or in full.
      **kwargs: keyword arguments passed to it.

    Returns:
      A pytree of arrays like `result_shape_dtypes`.

    Raises:
      ValueError: it is differentiated, or `vmap_method` is unknown.
      JaxRuntimeError: `callback` raised an error, which is its cause.

        >>> print(amdjax.pure_callback(np.cosh, np.float32(0), 0.0))
        1.0
    """
    if vmap_method is not None and vmap_method not in VMAP_METHODS:
        raise ValueError(f"vmap_method={vmap_method!r} is none of {', '.join(VMAP_METHODS)}.")
    return _bind(
        pure_callback_p, callback, result_shape_dtypes, args, kwargs, vmap_method=vmap_method
    )


io_callback_p = Primitive("io_callback", multiple_results=True)
io_callback_p.lowering = Host(_run)
io_callback_p.def_abstract_eval(_pure_abstract)


@io_callback_p.def_effects
def _io_effects(*avals: Any, ordered: bool, **_: Any) -> Any:
    return frozenset((ordered_io_effect if ordered else io_effect,))


@io_callback_p.def_jvp
def _io_jvp(*args: Any, **_: Any) -> Any:
    raise ValueError("IO callbacks do not support JVP. Apply stop_gradient to their arguments.")


@io_callback_p.def_transpose
def _io_transpose(cts: Any, *args: Any, **_: Any) -> Any:
    raise ValueError("IO callbacks do not support transpose.")


@pure_callback_p.def_transpose
def _pure_transpose(cts: Any, *args: Any, **_: Any) -> Any:
    raise ValueError("Pure callbacks do not support transpose.")


@io_callback_p.def_batch
def _io_batch(axis: AxisData, args: Any, dims: Any, **params: Any) -> Any:
    if params["ordered"]:
        raise ValueError("Cannot `vmap` ordered IO callback: the order of elements is not defined.")
    return _batch_one_by_one(io_callback_p, axis, args, dims, params)


def io_callback(
    callback: Callable[..., Any], result_shape_dtypes: Any, *args: Any, sharding: Any = None,
    ordered: bool = False, **kwargs: Any,
) -> Any:  # fmt: skip
    """Call a Python function for its side effects from a traced program.

    Args:
      callback: takes arrays; it is called once each time the program gets there.
      result_shape_dtypes: pytree of `ShapeDtypeStruct`s (or arrays) with the types of its results;
        None if it returns nothing.
      *args: pytrees of arrays passed to it.
      sharding: accepted and ignored.
      ordered: whether ordered callbacks run in the order of the program.
      **kwargs: keyword arguments passed to it.

    Returns:
      A pytree of arrays like `result_shape_dtypes`.

    Raises:
      ValueError: it is differentiated, or ordered and mapped by `vmap`.
      JaxRuntimeError: `callback` raised an error, which is its cause.

        >>> seen = []
        >>> amdjax.io_callback(lambda x: seen.append(float(x)), None, 2.0)
        >>> seen
        [2.0]
    """
    return _bind(io_callback_p, callback, result_shape_dtypes, args, kwargs, ordered=ordered)


debug_callback_p = Primitive("debug_callback", multiple_results=True)


def _run_debug(*views: np.ndarray, callback: Any, **_: Any) -> list[Any]:
    callback(*_as_arrays(views))
    return []


debug_callback_p.lowering = Host(_run_debug)
debug_callback_p.def_abstract_eval(lambda *avals, **_: [])


@debug_callback_p.def_effects
def _debug_effects(*avals: Any, ordered: bool, **_: Any) -> Any:
    return frozenset((ordered_debug_effect if ordered else debug_effect,))


@debug_callback_p.def_jvp
def _debug_jvp(primals: Any, tangents: Any, **params: Any) -> Any:
    return debug_callback_p.bind(*primals, **params), []


@debug_callback_p.def_transpose
def _debug_transpose(cts: Any, *args: Any, **params: Any) -> Any:
    return [None] * len(args)


@debug_callback_p.def_batch
def _debug_batch(axis: AxisData, args: Any, dims: Any, **params: Any) -> Any:
    return _batch_one_by_one(debug_callback_p, axis, args, dims, params)


def refuse_in_first_call(name: str, args: Any, kwargs: Any) -> None:
    """Raise TypeError for values where only settings belong, as in `f(ordered=True)(value)`."""
    if args or kwargs:
        raise TypeError(
            f"{name} received unexpected arguments in the two-call form: the first call takes "
            f"settings only, got {[*args, *kwargs]}"
        )


def debug_callback(
    callback: Callable[..., Any] | None = None,
    *args: Any,
    ordered: bool = False,
    partitioned: bool = False,
    **kwargs: Any,
) -> Any:
    """Call a Python function from a traced program to look at values.

    Unlike `io_callback` it goes along with every transform: derivatives see nothing of it, and
    `vmap` calls it for each element.

    Args:
      callback: takes arrays; its result is ignored. Without it, a function is returned that takes
        it and its arguments, with these settings.
      *args: pytrees passed to it; leaves that are not arrays are passed on as they are.
      ordered: whether such calls happen in the order of the program.
      partitioned: accepted and ignored.
      **kwargs: keyword arguments passed to it.

    Returns:
      None; without `callback`, the function that calls one.

        >>> seen = []
        >>> amdjax.debug.callback(lambda x: seen.append(float(x)), 2.0)
        >>> seen
        [2.0]
    """
    if callback is None:
        refuse_in_first_call("debug_callback", args, kwargs)
        return functools.partial(debug_callback, ordered=ordered, partitioned=partitioned)
    leaves, in_tree = tree_flatten((args, kwargs))
    dynamic = [is_valid_value(x) for x in leaves]
    static = [x for x, d in zip(leaves, dynamic) if not d]

    def flat(*arrays: Any) -> list[Any]:
        rest, known = iter(arrays), iter(static)
        everything = [next(rest) if d else next(known) for d in dynamic]
        args, kwargs = tree_unflatten(in_tree, everything)
        callback(*args, **kwargs)
        return []

    flat.__name__ = fun_name(callback)
    values = [x for x, d in zip(leaves, dynamic) if d]
    debug_callback_p.bind(*values, callback=flat, ordered=ordered)
