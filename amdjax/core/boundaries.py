"""Public functions: errors that leave them name the call, and show the user's frames only."""

from __future__ import annotations

import functools
import inspect
import re
import reprlib
import sys
import types
from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, TypeVar

import numpy as np

from amdjax.core.config import Config, State
from amdjax.core.tracebacks import hide_internal_frames, is_hidden, is_internal

P = ParamSpec("P")
R = TypeVar("R")

_lay_out: Any = None
_obeying: set[Any] = set()


def obeys_out_sharding(fun: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function whose `out_sharding` is for itself."""
    _obeying.add(fun)
    return fun


def lay_out_results(function: Callable[[str, Any, Any], Any]) -> None:
    """Name `function(name, results, sharding)`, which gives arrays a sharding."""
    global _lay_out
    _lay_out = function


def _with_out_sharding(fun: Callable[P, R]) -> Callable[P, R]:
    """A function that takes `out_sharding`, which is obeyed here for all alike."""

    def laid_out(*args: P.args, **kwargs: P.kwargs) -> R:
        sharding = kwargs.pop("out_sharding", None) if kwargs else None
        if sharding is None:
            return fun(*args, **kwargs)
        return _lay_out(fun.__name__, fun(*args, **kwargs), sharding)

    return laid_out


def unwrapped(fun: Any) -> Any:
    """What decorators were put around; `inspect.unwrap` takes too long for all of a package."""
    while (inner := getattr(fun, "__wrapped__", None)) is not None:
        fun = inner
    return fun


def api_boundary(fun: Callable[P, R]) -> Callable[P, R]:
    """Decorate a public function so that tracebacks through it show the user's frames only.

    Args:
      fun: a function which users call. Costs one Python call while nothing is raised.

    Returns:
      The function with the same signature.

        >>> @api_boundary
        ... def twice(x):
        ...     return 2 * x
        >>> twice(2)
        4
    """
    code = getattr(unwrapped(fun), "__code__", None)
    inner = fun
    if code is not None and "out_sharding" in code.co_varnames and fun not in _obeying:
        inner = _with_out_sharding(fun)

    @functools.wraps(fun)
    def boundary(*args: P.args, **kwargs: P.kwargs) -> R:
        __tracebackhide__ = True  # honored by pytest and IPython
        try:
            return inner(*args, **kwargs)
        except Exception as e:
            _tell_the_call(e, fun, args, kwargs)
            hide_internal_frames(e)
            raise  # bare, so that this frame is not recorded again

    return boundary


_OF_PYTHON = (TypeError, ValueError, IndexError, np.exceptions.AxisError)
#: Python asks arrays by these; what for, only the function knows that they were given to.
_CONVERSIONS = {f"__{n}__" for n in ("index", "int", "float", "complex", "bool", "iter", "len")}


def _tell_the_call(
    exc: Exception, fun: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Add to the text of an error which function the user called, with what, if it does not say.

    So do the errors of Python and NumPy where amdjax works with an argument that is not what it
    should be, those of functions by which the called one is made, and those of checks that all
    functions share, which know no names of arguments.
    """
    caller = sys._getframe(2).f_code.co_filename
    if type(exc) not in _OF_PYTHON or is_internal(caller) or hasattr(exc, "_told"):
        return
    if fun.__name__ in _CONVERSIONS:
        return
    exc._told = True  # type: ignore[attr-defined]
    name, text, own = fun.__name__.strip("_"), str(exc), args
    if fun.__name__ in ("__init__", "__call__") and args:
        name, own = getattr(args[0], "__name__", type(args[0]).__name__), args[1:]
    if not _is_raised_here(exc):
        return
    if name not in text and fun.__qualname__ in text:  # Python names the class with the method
        text = text.replace(f"{fun.__qualname__}()", f"{name}()")
        exc.args = (text,)
    try:
        given = dict(inspect.signature(fun).bind(*args, **kwargs).arguments)
    except (TypeError, ValueError):
        given = {**{f"argument {i}": a for i, a in enumerate(own)}, **kwargs}
    given.pop("self", None)
    if re.search(rf"\b{name}\b", text) and (len(given) < 2 or _names_one(text, given)):
        return
    words = ", ".join(f"{k}: {_short(value)}" for k, value in given.items())
    exc.args = (f"{text}\n{name} was called with {words or 'no arguments'}.",)
    if isinstance(exc, np.exceptions.AxisError):
        exc._msg = exc.args[0]  # type: ignore[attr-defined]


def _names_one(text: str, given: Iterable[str]) -> bool:
    """Whether a text names one of the arguments; a letter only where it is said something of."""
    longer = "|".join(re.escape(n) for n in given if len(n) > 1)
    letters = "|".join(re.escape(n) for n in given if len(n) == 1)
    return bool(
        (longer and re.search(rf"\b({longer})\b", text))
        or (letters and re.search(rf"(^|\W)({letters})(['`:=]| must| has| should)", text))
    )


def _is_raised_here(exc: Exception) -> bool:
    """Whether amdjax, or what it called that is no user's, raised an error."""
    entry, frame = exc.__traceback__, None
    while entry is not None:
        code = entry.tb_frame.f_code
        if code.co_name not in _CONVERSIONS and not is_hidden(entry.tb_frame, True):
            frame = entry.tb_frame
        entry = entry.tb_next
    return frame is not None and is_internal(frame.f_code.co_filename)


def _short(value: Any, depth: int = 2) -> str:
    """A value in few words: an array by its type, of containers some of what they hold."""
    aval = getattr(value, "aval", None)
    if aval is not None and hasattr(aval, "str_short"):
        return aval.str_short()
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)}"
    if isinstance(value, (tuple, list)) and depth:
        parts = [_short(part, depth - 1) for part in value[:6]] + ["..."] * (len(value) > 6)
        return f"({', '.join(parts)})" if isinstance(value, tuple) else f"[{', '.join(parts)}]"
    if value is None or isinstance(value, (str, int, float, complex, slice, np.generic)):
        return reprlib.repr(value)
    if isinstance(value, np.dtype):
        return value.name
    return str(getattr(value, "__name__", type(value).__name__))


_BOUNDARY = api_boundary(len).__code__  # all boundaries share it


_CALLED = ("__init__", "__call__", "__getitem__", "__array__")


def public_surface(namespace: dict[str, Any]) -> None:
    """Make an `api_boundary` of every public function and method that a module offers.

    Called at the end of a module that users see. Offered is what `__all__` lists, or else what the
    module defines, or, where it defines nothing, what it imports. What amdjax itself imports from
    the modules below stays as it is, so that only calls from outside pay. Functions get the
    module's name as theirs, under which `pickle` finds them.

    Args:
        namespace: `globals()` of the module.
    """
    module = namespace["__name__"]
    made: dict[Any, Any] = {}  # two names of one function stay one function
    for name, value in _offered(namespace).items():
        if type(value) is types.FunctionType and value.__code__ is not _BOUNDARY:
            if value not in made:
                made[value] = outer = api_boundary(value)
                outer.__module__ = module
            namespace[name] = made[value]
        elif isinstance(value, type):
            for cls in value.__mro__:  # methods may come from a private base
                if cls.__module__.startswith("amdjax."):
                    names = [n for n in vars(cls) if not n.startswith("_")]
                    guard_methods(cls, [*_CALLED, *names])


def _offered(namespace: dict[str, Any]) -> dict[str, Any]:
    """The public functions and classes of a module by name."""
    kinds = (types.FunctionType, type)
    found = {
        name: value
        for name, value in namespace.items()
        if not name.startswith("_")
        and isinstance(value, kinds)
        and str(value.__module__).startswith("amdjax.")
    }
    if "__all__" in namespace:
        return {name: value for name, value in found.items() if name in namespace["__all__"]}
    own = {n: value for n, value in found.items() if value.__module__ == namespace["__name__"]}
    return own or found


def guard_methods(cls: type, names: Iterable[str]) -> None:
    """Make boundaries of methods of a class.

    Args:
        cls: a class of amdjax; errors and tuples stay as they are.
        names: methods; those that the class does not define itself are passed over.
    """
    if issubclass(cls, (BaseException, tuple)):
        return
    for name in names:
        method = vars(cls).get(name)
        if type(method) is types.FunctionType and method.__code__ is not _BOUNDARY:
            setattr(cls, name, api_boundary(method))


# That module cannot import this one.
guard_methods(Config, ("update",))
guard_methods(State, ("__call__",))
