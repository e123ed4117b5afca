"""Functions made of several operations, compiled as one program when called eagerly.

A library function such as `softmax` is a handful of primitives. Inside a trace it should leave
them flat in the jaxpr, where they fuse with their neighbors; called on concrete arrays it should
be one compiled call rather than one for each primitive. `composite` marks such functions. The
floors above core do not know the compiler, so the back of the house registers `jit` here.

    >>> @composite(static_argnames="power")
    ... def plus_power(x, power):
    ...     return x + x**power
    >>> int(plus_power(3, power=2))
    12
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, overload

from amdjax.core.config import config
from amdjax.core.context import Context, context
from amdjax.core.source_info import unknown, written_at
from amdjax.core.tracebacks import hide_internal_frames

Function = TypeVar("Function", bound=Callable[..., Any])

_jit: Callable[..., Any] | None = None


def set_jit(jit: Callable[..., Any]) -> None:
    """Register what compiles composites: `jit(fn, static_argnames=…) -> compiled fn`."""
    global _jit
    _jit = jit


@overload
def composite(fn: Function, /) -> Function: ...
@overload
def composite(*, static_argnames: str | Iterable[str] = ()) -> Callable[[Function], Function]: ...


def composite(
    fn: Function | None = None, /, *, static_argnames: str | Iterable[str] = ()
) -> Function | Callable[[Function], Function]:
    """Mark a function as one program: inlined under tracing, compiled when called eagerly.

    Args:
      fn: a traceable function.
      static_argnames: parameters that are not arrays, as for `jit`.

    Returns:
      A function with the same signature; `fn` itself is its `__wrapped__`.
    """
    if fn is None:
        return functools.partial(_composite, static_argnames=static_argnames)
    return _composite(fn, static_argnames=static_argnames)


def _composite(fn: Function, static_argnames: str | Iterable[str]) -> Function:
    names = (static_argnames,) if isinstance(static_argnames, str) else tuple(static_argnames)
    compiled: Callable[..., Any] | None = None

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal compiled
        try:
            if context.trace is not Context.base or _jit is None or config.disable_jit:
                return fn(*args, **kwargs)
            if compiled is None:
                compiled = _jit(_for_all_callers(fn), static_argnames=names)
            return compiled(*args, **kwargs)
        except Exception as e:
            hide_internal_frames(e)
            known = _hashable(fn, names, args, kwargs) if type(e) is ValueError else None
            if known is None:
                raise
        return call(**known)

    return call  # type: ignore[return-value]


def _hashable(
    fn: Function, names: tuple[str, ...], args: Any, kwargs: Any
) -> dict[str, Any] | None:
    """The arguments with numbers in place of static arrays without axes, None if there are none.

    Raises:
      TypeError: a static argument cannot be hashed; that it is static is no caller's concern.
    """
    given = inspect.signature(fn).bind(*args, **kwargs).arguments
    found = {name: given[name] for name in names if not _is_hashable(given.get(name))}
    for name, value in found.items():
        if getattr(value, "shape", None) != ():
            raise TypeError(
                f"{fn.__name__.strip('_')}: {name} must be a number, a string or a tuple of them, "
                f"got {value!r}."
            )
    return {**given, **{name: value.item() for name, value in found.items()}} if found else None


def _is_hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def _for_all_callers(fn: Function) -> Function:
    """`fn` whose operations count as no caller's: who happens to call first is not their author."""

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        with written_at(unknown):
            return fn(*args, **kwargs)

    return call  # type: ignore[return-value]
