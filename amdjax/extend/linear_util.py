"""Functions that transformations wrap one after the other, as libraries hand them to interpreters.

>>> def doubled(fun, *args):
...     return 2 * fun(*args)
>>> transformation2(doubled)(wrap_init(lambda x: x + 1)).call_wrapped(3)
8
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

from amdjax.core.config import config
from amdjax.transforms.flat import debug_info as _debug_info, fun_name

__all__ = [
    "StoreException", "WrappedFun", "cache", "merge_linear_aux", "transformation",
    "transformation2", "transformation_with_aux", "transformation_with_aux2", "wrap_init",
]  # fmt: skip


class StoreException(Exception):
    """A transformation's further result was asked for before the function ran, or came twice."""


_nothing = object()


class Store:
    """Holds what a transformation returns besides the function's results."""

    def __init__(self) -> None:
        self._value: Any = _nothing

    def store(self, value: Any) -> None:
        """Keep a value, once."""
        if self._value is not _nothing:
            raise StoreException("Store occupied")
        self._value = value

    def reset(self) -> None:
        """Forget the value, for the function to run again."""
        self._value = _nothing

    @property
    def val(self) -> Any:
        """The value."""
        if self._value is _nothing:
            raise StoreException("Store empty")
        return self._value


class WrappedFun:
    """A function, and what it has been wrapped in.

    Args:
      f: the innermost function.
      transformed: `f` inside all its transformations.
      stores: where transformations put their further results.
      params: keyword arguments of every call.
      debug_info: for error messages.
    """

    def __init__(
        self,
        f: Callable[..., Any],
        transformed: Callable[..., Any],
        stores: tuple[Store, ...] = (),
        params: tuple[tuple[str, Any], ...] = (),
        debug_info: Any = None,
    ):
        self.f, self.transformed, self.stores = f, transformed, stores
        self.params, self.debug_info = params, debug_info

    @property
    def __name__(self) -> str:
        return fun_name(self.f)

    def call_wrapped(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function inside its transformations."""
        return self.transformed(*args, **{**dict(self.params), **kwargs})

    def with_unknown_names(self) -> WrappedFun:
        """The same function."""
        return self

    def __repr__(self) -> str:
        return f"<wrapped {self.__name__}>"


def wrap_init(f: Callable[..., Any], params: Any = None, *, debug_info: Any = None) -> WrappedFun:
    """A function ready to be transformed.

    Args:
      f: the function.
      params: keyword arguments of every call, a dict.
      debug_info: for error messages; found from `f` if omitted.

    Returns:
      The function, wrapped.

        >>> wrap_init(lambda x: x + 1).call_wrapped(3)
        4
    """
    pairs = () if params is None else tuple(sorted(params.items()))
    return WrappedFun(f, f, (), pairs, debug_info or _debug_info("linear_util", f))


def _wrapped(fun: WrappedFun, transformed: Callable[..., Any], *stores: Store) -> WrappedFun:
    stores = (*fun.stores, *stores)
    return WrappedFun(fun.f, transformed, stores, fun.params, fun.debug_info)


Transformation = Callable[..., WrappedFun]
TransformationWithAux = Callable[..., tuple[WrappedFun, Callable[[], Any]]]


def transformation2(gen: Callable[..., Any]) -> Transformation:
    """A transformation `(fun, *static) -> fun` that calls `gen(fun, *static, *args, **kwargs)`.

    Args:
      gen: the function that wraps.

    Returns:
      The transformation.

        >>> @transformation2
        ... def doubled(fun, *args):
        ...     return 2 * fun(*args)
        >>> doubled(wrap_init(lambda x: x + 1)).call_wrapped(3)
        8
    """

    @functools.wraps(gen)
    def transform(fun: WrappedFun, *static: Any) -> WrappedFun:
        return _wrapped(fun, functools.partial(gen, fun.transformed, *static))

    return transform


def transformation_with_aux2(gen: Callable[..., Any]) -> TransformationWithAux:
    """As `transformation2` for `gen(fun, store, *static, *args)`, which may store something.

    What it stored is returned by a function that comes with the transformed one.

    Args:
      gen: the function that wraps.

    Returns:
      The transformation.

        >>> @transformation_with_aux2
        ... def counted(fun, store, *args):
        ...     store.store(len(args))
        ...     return fun(*args)
        >>> fun, count = counted(wrap_init(max))
        >>> fun.call_wrapped(3, 5), count()
        (5, 2)
    """

    @functools.wraps(gen)
    def transform(fun: WrappedFun, *static: Any) -> tuple[WrappedFun, Callable[[], Any]]:
        store = Store()
        call = functools.partial(gen, fun.transformed, store, *static)
        return _wrapped(fun, call, store), lambda: store.val

    return transform


def _drive(gen: Any, fun: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Run a transformation that yields arguments, is sent results and yields its own."""
    running = gen(*args, **kwargs)
    inner_args, inner_kwargs = next(running)
    return running.send(fun(*inner_args, **inner_kwargs))


def transformation(gen: Callable[..., Any]) -> Transformation:
    """As `transformation2` for a generator of `(*static, *args, **kwargs)`.

    It yields `(args, kwargs)`, is sent the result and yields its own.

    Args:
      gen: the generator.

    Returns:
      The transformation.

        >>> @transformation
        ... def doubled(*args):
        ...     result = yield args, {}
        ...     yield 2 * result
        >>> doubled(wrap_init(lambda x: x + 1)).call_wrapped(3)
        8
    """

    @functools.wraps(gen)
    def run(inner: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return _drive(gen, inner, args, kwargs)

    return transformation2(run)


def transformation_with_aux(gen: Callable[..., Any]) -> TransformationWithAux:
    """As `transformation`; the generator yields its result together with something further.

    Args:
      gen: the generator.

    Returns:
      The transformation.

        >>> @transformation_with_aux
        ... def counted(*args):
        ...     result = yield args, {}
        ...     yield result, len(args)
        >>> fun, count = counted(wrap_init(max))
        >>> fun.call_wrapped(3, 5), count()
        (5, 2)
    """

    @functools.wraps(gen)
    def run(inner: Callable[..., Any], store: Store, *args: Any, **kwargs: Any) -> Any:
        result, aux = _drive(gen, inner, args, kwargs)
        store.store(aux)
        return result

    return transformation_with_aux2(run)


def merge_linear_aux(first: Callable[[], Any], second: Callable[[], Any]) -> tuple[bool, Any]:
    """What one of two transformations stored, and whether it was the first.

    Args:
      first: returns what the first stored.
      second: returns what the second stored.

    Returns:
      Whether the first stored something, and what was stored.

        >>> merge_linear_aux(lambda: 1, lambda: 2)
        (True, 1)
    """
    try:
        return True, first()
    except StoreException:
        return False, second()


def cache(call: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """Remember what a function of a `WrappedFun` and hashable arguments returned.

    Args:
      call: `call(fun, *args)`.
      **options: accepted.

    Returns:
      A function that computes the same, with `cache_clear`.

        >>> called = cache(lambda fun, x: fun.call_wrapped(x))
        >>> fun = wrap_init(lambda x: x + 1)
        >>> called(fun, 3), called(fun, 3)
        (4, 4)
    """
    results: weakref.WeakKeyDictionary[Any, dict[Any, Any]] = weakref.WeakKeyDictionary()

    @functools.wraps(call)
    def cached(fun: WrappedFun, *args: Any) -> Any:
        known = results.setdefault(fun, {})
        key = (args, config.trace_key())
        if key not in known:
            known[key] = call(fun, *args)
        return known[key]

    cached.cache_clear = results.clear  # type: ignore[attr-defined]
    return cached
