"""`ufunc`: an elementwise function with the methods of a NumPy ufunc."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from amdjax import lax
from amdjax.core.array import Array
from amdjax.core.boundaries import guard_methods
from amdjax.core.tracebacks import hide_internal_frames
from amdjax.numpy._util import (
    ArrayLike,
    as_array,
    as_arrays,
    broadcast_arrays,
    broadcast_to,
    canonical_axes,
    canonical_axis,
    check_arraylike,
    concrete_int,
    convert,
    is_kind,
    refuse_out,
)
from amdjax.numpy.vectorize import vectorize
from amdjax.transforms.staging import ShapeDtypeStruct, eval_shape


def _read_only(name: str, doc: str) -> Any:
    return property(lambda self: self._fixed[name], doc=doc)


class ufunc:
    """A universal function: elementwise, broadcasting, with reductions derived from it.

    Made by `frompyfunc`, and the type of `add`, `multiply`, `maximum` and their kind.

    Args:
      func: a traceable function of `nin` scalars or arrays.
      nin: how many inputs it takes.
      nout: how many outputs it gives.
      name: how it is called in messages.
      nargs: how many arguments it takes: `nin`.
      identity: the value that leaves the other operand alone, if there is one.
      call: the broadcasting function, if `func` is one already.
      reduce, accumulate: native forms, `f(a, axis, dtype, …)`, where lax has them.
    """

    def __init__(
        self, func: Callable[..., Any], /, nin: int, nout: int, *, name: str | None = None,
        nargs: int | None = None, identity: Any = None, call: Callable[..., Any] | None = None,
        reduce: Callable[..., Any] | None = None, accumulate: Callable[..., Any] | None = None,
    ):  # fmt: skip
        functools.update_wrapper(self, func)
        self.__name__: str = str(name or getattr(func, "__name__", "ufunc"))
        self.__signature__ = inspect.signature(type(self).__call__.__get__(self))
        nin, nout = concrete_int(nin, "nin"), concrete_int(nout, "nout")
        if nargs is not None and nargs != nin:
            raise ValueError(f"nargs must be nin = {nin}, got {nargs}")
        self._fixed = {"nin": nin, "nout": nout, "nargs": nin, "identity": identity, "_func": func}
        self._call = call or self._elementwise
        self._reduce, self._accumulate = reduce, accumulate

    nin = _read_only("nin", "How many inputs the function takes.")
    nout = _read_only("nout", "How many outputs it gives.")
    nargs = _read_only("nargs", "How many arguments it takes.")
    identity = _read_only("identity", "The value that leaves the other operand alone, or None.")
    _func = _read_only("_func", "The function of scalars or arrays.")

    def __repr__(self) -> str:
        return f"<jnp.ufunc '{self.__name__}'>"

    def __hash__(self) -> int:
        return hash((self._func, self.__name__, self.nin, self.nout, self.identity))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, ufunc)
            and self.__name__ == other.__name__
            and self._fixed == other._fixed
        )

    def __call__(self, *args: ArrayLike, out: None = None, where: ArrayLike | None = None) -> Any:
        """Apply the function to each element of the broadcast arguments."""
        try:
            if out is not None or where is not None:
                raise NotImplementedError(f"out and where arguments of {self}")
            if len(args) != self._fixed["nin"]:  # a property would cost a call
                raise TypeError(
                    f"{self.__name__} takes {self.nin} positional arguments, got {len(args)}"
                )
            return self._call(*args)
        except Exception as e:
            hide_internal_frames(e)
            raise

    def _elementwise(self, *args: ArrayLike) -> Any:
        check_arraylike(self.__name__, *args)
        return vectorize(self._func)(*args)

    def _binary(self, method: str) -> None:
        if self.nin != 2:
            raise ValueError(f"{method} only supported for binary ufuncs")
        if self.nout != 1:
            raise ValueError(f"{method} only supported for functions returning a single value")

    def reduce(
        self, a: ArrayLike, axis: Any = 0, dtype: Any = None, out: None = None,
        keepdims: bool = False, initial: ArrayLike | None = None, where: ArrayLike | None = None,
    ) -> Array:  # fmt: skip
        """Combine the elements along `axis`, left to right.

        >>> jnp.add.reduce(jnp.arange(5))
        Array(10, dtype=int32)
        """
        self._binary("reduce")
        refuse_out(f"{self.__name__}.reduce", out)
        if where is not None and self.identity is None and initial is None:
            raise ValueError(
                f"reduction operation {self.__name__!r} does not have an identity, so to use a"
                " where mask one has to specify 'initial'."
            )
        if self._reduce is not None:
            return self._reduce(
                a, axis=axis, dtype=dtype, keepdims=keepdims, initial=initial, where=where
            )
        a = as_array(self.__name__, a)
        a = a if dtype is None else convert(a, dtype)
        axes = canonical_axes(axis, a.ndim)
        if len(axes) > 1 and axis is not None and self.identity is None:
            raise NotImplementedError(
                f"reduction operation {self.__name__!r} is not reorderable: axis must be an integer"
                f" or None, got {axis}"
            )
        return self._fold(a, axes, keepdims, initial, where)

    def _fold(
        self, a: Array, axes: tuple[int, ...], keepdims: bool, initial: Any, where: Any
    ) -> Array:
        """Reduce over `axes` by a scan over all of them flattened into one."""
        kept = [i for i in range(a.ndim) if i not in axes]
        shape = [1 if i in axes else n for i, n in enumerate(a.shape)]
        order = (*axes, *kept)
        length = math.prod(a.shape[i] for i in axes)
        rest = tuple(a.shape[i] for i in kept)
        mask = a if where is None else broadcast_arrays(as_array(self.__name__, where), a)[0]
        rows = lax.reshape(lax.transpose(a, order), (length, *rest))
        masks = None if where is None else lax.reshape(lax.transpose(mask, order), rows.shape)
        start = self.identity if initial is None else initial
        first = 0
        if start is None:
            if not length:
                raise ValueError(f"zero-size array to {self.__name__}.reduce without identity")
            carry, first = lax.index_in_dim(rows, 0, keepdims=False), 1
        else:
            carry = broadcast_to(convert(start, a.dtype), rest)
        if first >= length:
            return lax.reshape(carry, tuple(shape)) if keepdims else carry

        def step(i: Any, carry: Array) -> Array:
            row = lax.dynamic_index_in_dim(rows, i, keepdims=False)
            new = convert(self._call(carry, row), carry.dtype)
            if masks is None:
                return new
            return lax.select(lax.dynamic_index_in_dim(masks, i, keepdims=False), new, carry)

        result = lax.fori_loop(first, length, step, carry)
        return lax.reshape(result, tuple(shape)) if keepdims else result

    def _as_operands(self, a: Array) -> Array:
        """The array in the dtype of results, with which later elements are combined."""
        logical = self.__name__.startswith("logical") and a.dtype != np.bool_
        return lax.ne(a, np.zeros((), a.dtype)) if logical else a

    def accumulate(self, a: ArrayLike, axis: int = 0, dtype: Any = None, out: None = None) -> Array:
        """The results of combining each element with all before it along `axis`.

        >>> jnp.add.accumulate(jnp.arange(4))
        Array([0, 1, 3, 6], dtype=int32)
        """
        self._binary("accumulate")
        refuse_out(f"{self.__name__}.accumulate", out)
        if self._accumulate is not None:
            return self._accumulate(a, axis=axis, dtype=dtype)
        a = as_array(self.__name__, a)
        a = self._as_operands(a) if dtype is None else convert(a, dtype)
        axis = canonical_axis(axis, a.ndim)
        if not a.shape[axis]:
            return a
        order = (axis, *(i for i in range(a.ndim) if i != axis))
        rows = lax.transpose(a, order)
        first = lax.index_in_dim(rows, 0, keepdims=False)

        def step(carry: Array, row: Array) -> tuple[Array, Array]:
            carry = convert(self._call(carry, row), first.dtype)
            return carry, carry

        _, rest = lax.scan(step, first, lax.slice_in_dim(rows, 1, None))
        rows = lax.concatenate([lax.expand_dims(first, (0,)), rest], 0)
        return lax.transpose(rows, tuple(np.argsort(order).tolist()))

    def at(
        self, a: ArrayLike, indices: Any, b: ArrayLike | None = None, *, inplace: bool = True
    ) -> Array:
        """`a` with the function applied at `indices`, repeated indices repeatedly.

        Arrays are immutable: `inplace=False` must be given to say that this is understood.

        >>> jnp.add.at(jnp.zeros(3), jnp.array([0, 0, 2]), 1.0, inplace=False)
        Array([2., 0., 1.], dtype=float32)
        """
        if inplace:
            raise NotImplementedError(
                "jnp.ufunc.at cannot modify arrays in place: use inplace=False"
            )
        a = as_array(self.__name__, a)
        operands = [a] if b is None else [a, as_array(self.__name__, b)]
        if len(operands) == 2 and self.__name__ in ("add", "subtract", "multiply"):
            method = self.__name__
            if all(x.dtype == np.bool_ for x in operands):
                # Sums and products of truths are "or" and "and".
                method = {"add": "max", "multiply": "min"}.get(method, method)
            return getattr(a.at[indices], method)(operands[1])
        scalars = [ShapeDtypeStruct((), x.dtype, weak_type=x.weak_type) for x in operands]
        operands = [convert(x, eval_shape(self._call, *scalars).dtype) for x in operands]
        if len(operands) == 1:
            return operands[0].at[indices].apply(self._call)
        method = {"maximum": "max", "minimum": "min"}.get(self.__name__, "")
        if method and not is_kind(operands[0].dtype, np.complexfloating):
            return getattr(operands[0].at[indices], method)(operands[1])
        return self._at_each(operands[0], indices, operands[1])

    def _at_each(self, a: Array, indices: Any, b: Array) -> Array:
        """One update after the other, so that repeated indices see earlier results."""
        flat = lax.reshape(lax.iota(np.int32, a.size), a.shape)[indices]
        b = broadcast_arrays(flat, b)[1]
        where, values = lax.reshape(flat, (flat.size,)), lax.reshape(b, (flat.size,))

        def step(i: Any, x: Array) -> Array:
            return x.at[where[i]].set(convert(self._call(x[where[i]], values[i]), x.dtype))

        return lax.reshape(lax.fori_loop(0, flat.size, step, lax.reshape(a, (a.size,))), a.shape)

    def reduceat(
        self, a: ArrayLike, indices: Any, axis: int = 0, dtype: Any = None, out: None = None
    ) -> Array:
        """Reductions over the slices that start at `indices` along `axis`.

        >>> jnp.add.reduceat(jnp.arange(6), jnp.array([0, 3, 4]))
        Array([3, 3, 9], dtype=int32)
        """
        self._binary("reduceat")
        refuse_out(f"{self.__name__}.reduceat", out)
        a, indices = as_arrays(self.__name__, a, indices)
        if a.ndim == 0 or indices.ndim != 1:
            raise ValueError("reduceat: a must have at least one axis and indices must have one")
        axis = canonical_axis(axis, a.ndim)
        a = self._as_operands(a) if dtype is None else convert(a, dtype)
        length = np.asarray(a.shape[axis], indices.dtype)
        stops = lax.concatenate([indices, lax.full((1,), length, indices.dtype)], 0)
        rows = lax.transpose(a, (axis, *(i for i in range(a.ndim) if i != axis)))

        def reduce_from(bounds: tuple[Array, Array]) -> Array:
            start, stop = bounds
            combine = lambda i, carry: convert(self._call(carry, rows[i]), carry.dtype)
            return lax.fori_loop(
                lax.add(start, np.ones((), start.dtype)), stop, combine, rows[start]
            )

        parts = lax.map(reduce_from, (indices, lax.slice_in_dim(stops, 1, None)))
        return lax.transpose(parts, (*range(1, axis + 1), 0, *range(axis + 1, a.ndim)))

    def outer(self, A: ArrayLike, B: ArrayLike, /) -> Array:
        """The function of every pair of elements, one from each array.

        >>> jnp.multiply.outer(jnp.arange(1, 3), jnp.arange(3))
        Array([[0, 1, 2],
               [0, 2, 4]], dtype=int32)
        """
        self._binary("outer")
        A, B = as_arrays(self.__name__, A, B)
        return self._call(
            lax.reshape(A, A.shape + (1,) * B.ndim), lax.reshape(B, (1,) * A.ndim + B.shape)
        )


guard_methods(ufunc, ("reduce", "accumulate", "at", "reduceat", "outer"))


def ufunc_of(nin: int = 2, **options: Any) -> Callable[[Callable[..., Any]], ufunc]:
    """Decorator: a function that broadcasts already, given the methods of a ufunc."""
    return lambda fn: ufunc(fn, nin, 1, call=fn, **options)


def frompyfunc(func: Callable[..., Any], /, nin: int, nout: int, *, identity: Any = None) -> ufunc:
    """A ufunc from a traceable function of scalars.

    Args:
      func: takes `nin` scalars, returns `nout`.
      nin: number of inputs.
      nout: number of outputs.
      identity: value that leaves the other operand of a binary function alone.

    Returns:
      A `ufunc`.

        >>> hypot2 = jnp.frompyfunc(lambda x, y: x * x + y * y, 2, 1)
        >>> hypot2(jnp.arange(3), 1)
        Array([1, 2, 5], dtype=int32)
    """
    return ufunc(func, nin, nout, identity=identity)
