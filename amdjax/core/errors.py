"""Error classes, the user's place in the code, and tracebacks without amdjax's own frames."""

from __future__ import annotations

import functools
import inspect
import os
import re
import reprlib
import sys
import types
import warnings
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, ParamSpec, TypeVar

import numpy as np

from amdjax.core.config import Config, State, config

P = ParamSpec("P")
R = TypeVar("R")

PACKAGE_DIR = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


class Location(NamedTuple):
    """A place in the user's code."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} ({self.function})"


exclude_paths = [PACKAGE_DIR, "<frozen "]
"""Beginnings of the names of files whose frames are no user's."""
_STANDARD = os.path.dirname(os.__file__) + os.sep
_PACKAGES = os.path.dirname(os.path.dirname(np.__file__))
_LIBRARIES = tuple(
    os.path.join(_PACKAGES, name, "")
    for name in ("numpy", "scipy", "opt_einsum", "ml_dtypes", "llvmlite")
)
# What the standard library's folder holds besides the standard library.
_INSTALLED = tuple(os.path.join(_STANDARD, d, "") for d in ("site-packages", "dist-packages"))


def _is_internal(filename: str) -> bool:
    return filename.startswith(tuple(exclude_paths))


def register_exclusion(path: str) -> None:
    """Leave a library's frames out of tracebacks, as amdjax's own are.

    Args:
      path: a file of the library, or the folder of its files.

    Example:
      >>> register_exclusion("/opt/library/")
    """
    if path not in exclude_paths:
        exclude_paths.append(path)


def user_frame() -> types.FrameType | None:
    """The nearest frame on the stack outside amdjax, or None when there is none."""
    frame: types.FrameType | None = sys._getframe(1)
    internal = tuple(exclude_paths)
    while frame is not None and frame.f_code.co_filename.startswith(internal):
        frame = frame.f_back
    return frame


def user_location() -> Location | None:
    """File, line and function of `user_frame`; holds no reference to the frame.

    >>> user_location().function
    '<module>'
    """
    frame = user_frame()
    if frame is None:
        return None
    return Location(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Issue a warning which points at the user's line, however deep in amdjax it arises."""
    level = 2
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None and _is_internal(frame.f_code.co_filename):
        frame = frame.f_back
        level += 1
    # The level counts from this function: 1 is here, 2 is the caller.
    warnings.warn(message, category, stacklevel=level if frame is not None else 2)


def _is_hidden(frame: types.FrameType, inside: bool) -> bool:
    """Whether a traceback leaves `frame` out.

    Args:
        frame: a frame of it.
        inside: whether the last frame before it that was not of a library is amdjax's.
    """
    filename = frame.f_code.co_filename
    if filename.startswith("<"):  # code made by exec, such as the __init__ of a dataclass
        return str(frame.f_globals.get("__name__", "")).startswith("amdjax.")
    if not inside:
        return False
    if filename.startswith(_STANDARD):
        return not filename.startswith(_INSTALLED) or filename.startswith(_LIBRARIES)
    return filename.startswith(_LIBRARIES)


def filtered_traceback(tb: types.TracebackType | None) -> types.TracebackType | None:
    """`tb` without amdjax's frames; None if that leaves nothing below the caller's own frame.

    Frames of libraries which amdjax called are left out too: the user did not write the call.
    """
    kept = []
    inside = False
    entry = tb
    while entry is not None:
        if _is_internal(entry.tb_frame.f_code.co_filename):
            inside = True
        elif not _is_hidden(entry.tb_frame, inside):
            inside = False
            kept.append(entry)
        entry = entry.tb_next
    out: types.TracebackType | None = None
    for entry in reversed(kept):
        out = types.TracebackType(out, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return out


def hide_internal_frames(exc: BaseException) -> None:
    """Drop amdjax's frames from `exc` and its causes unless AMDJAX_TRACEBACK=full.

    For callers which cannot afford `api_boundary`'s extra call::

        try:
            ...
        except Exception as e:
            hide_internal_frames(e)
            raise  # a bare raise, which does not record this frame again
    """
    if config.traceback == "full":
        return
    seen: set[int] = set()
    link: BaseException | None = exc
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        link.__traceback__ = filtered_traceback(link.__traceback__)
        link = link.__cause__ or link.__context__
    if config.traceback == "noted" and _FILTERED not in getattr(exc, "__notes__", ()):
        exc.add_note(_FILTERED)


_FILTERED = (
    "For simplicity, frames inside amdjax are left out of this traceback; "
    "AMDJAX_TRACEBACK=full shows them."
)


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

    Example:
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
    if type(exc) not in _OF_PYTHON or _is_internal(caller) or hasattr(exc, "_told"):
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
        if code.co_name not in _CONVERSIONS and not _is_hidden(entry.tb_frame, True):
            frame = entry.tb_frame
        entry = entry.tb_next
    return frame is not None and _is_internal(frame.f_code.co_filename)


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


def describe(value: Any) -> str:
    """A tracer or array in words: 'traced array with shape float32[3]'."""
    own = getattr(value, "_error_repr", None)
    if own is not None:
        return own()
    aval = getattr(value, "aval", None)
    if aval is None:
        return f"{value!r}"
    short = getattr(aval, "str_short", None)
    return f"traced array with shape {short() if short is not None else aval}"


def origin(value: Any) -> str:
    """Where a tracer came from, as sentences on lines of their own; empty when unknown."""
    message = getattr(value, "_origin_msg", None)
    text = message() if message is not None else ""
    return f"\n{text.strip()}" if text else ""


def _message(what: str, tracer: Any, remedy: str) -> str:
    """What happened, where the value came from, what to do instead."""
    return f"{what}{origin(tracer)}\n\n{remedy}"


def _with_link(error: BaseException, message: str) -> str:
    """A message with the page that explains the class of error at length."""
    kind = type(error)
    if kind.__module__ != __name__:
        return message
    return f"{message}\nSee https://docs.jax.dev/en/latest/errors.html#jax.errors.{kind.__name__}"


class JAXTypeError(TypeError):
    """A TypeError about how a value meets tracing."""

    def __init__(self, message: str) -> None:
        super().__init__(_with_link(self, message))


class JAXIndexError(IndexError):
    """An IndexError about how a value meets tracing."""

    def __init__(self, message: str) -> None:
        super().__init__(_with_link(self, message))


class JaxRuntimeError(RuntimeError):
    """A compiled computation failed while it ran, or its device did."""


class JaxprTypeError(TypeError):
    """A jaxpr is not well typed."""


class InconclusiveDimensionOperation(Exception):
    """A comparison of symbolic dimensions has no answer for all their values."""


class TypePromotionError(ValueError):
    """No implicit promotion joins the given dtypes."""


class ConcretizationTypeError(JAXTypeError):
    """A tracer was used where a value known at trace time is needed.

    Args:
        tracer: the offending tracer.
        context: one or two sentences on what needed the value.
    """

    def __init__(self, tracer: Any, context: str = "") -> None:
        needed = f"\n{context.strip()}" if context else ""
        super().__init__(
            _message(
                "Abstract tracer value encountered where concrete value is expected: "
                f"{describe(tracer)}."
                f"{needed}",
                tracer,
                "While a function is traced, its arguments have a shape and a dtype but no value.\n"
                "If the value decides shapes, axes or Python control flow, make it static:\n"
                "    @amdjax.jit(static_argnames='n')\n"
                "    def f(x, n): ...\n"
                "Otherwise keep it in the program: amdjax.numpy.where, amdjax.lax.cond and\n"
                "amdjax.lax.fori_loop accept traced values.",
            )
        )


class NonConcreteBooleanIndexError(JAXIndexError):
    """A traced boolean mask was used as an index, so the result's shape is unknown.

    Args:
        tracer: the mask.
    """

    def __init__(self, tracer: Any) -> None:
        super().__init__(
            _message(
                f"A boolean index must be concrete, got {describe(tracer)}: the number of True "
                "entries would decide the shape of the result.",
                tracer,
                "Keep the shape and select instead:\n"
                "    x.sum(where=mask)                   # for x[mask].sum()\n"
                "    amdjax.numpy.where(mask, new, x)    # for x.at[mask].set(new)\n"
                "or bound the size: amdjax.numpy.nonzero(mask, size=n, fill_value=0).",
            )
        )


class TracerArrayConversionError(JAXTypeError):
    """A tracer was handed to NumPy, which needs a concrete array.

    Args:
        tracer: the offending tracer.
    """

    def __init__(self, tracer: Any) -> None:
        super().__init__(
            _message(
                "The numpy.ndarray conversion method __array__() was called on "
                f"{describe(tracer)}.",
                tracer,
                "Call the amdjax function of the same name, which can be traced:\n"
                "    amdjax.numpy.sin(x)    # not numpy.sin(x)\n"
                "If a traced index selects from a NumPy array, convert the array first:\n"
                "    amdjax.numpy.asarray(table)[i]\n"
                "To run NumPy code on the values, use amdjax.pure_callback.",
            )
        )


class TracerIntegerConversionError(JAXTypeError):
    """A tracer was used as a Python integer, for example to index a list.

    Args:
        tracer: the offending tracer.
    """

    def __init__(self, tracer: Any) -> None:
        super().__init__(
            _message(
                f"The __index__() method was called on {describe(tracer)}.",
                tracer,
                "An argument which must be a Python int is made static:\n"
                "    @amdjax.jit(static_argnames='axis')\n"
                "    def f(x, axis): return x.min(axis)\n"
                "A list indexed by a traced value becomes an array:\n"
                "    amdjax.numpy.array(items)[i]\n"
                "and range(n) with a traced n becomes amdjax.lax.fori_loop(0, n, body, init).",
            )
        )


class TracerBoolConversionError(ConcretizationTypeError):
    """A tracer was used as a truth value, for example in `if` or `while`.

    Args:
        tracer: the offending tracer.
    """

    def __init__(self, tracer: Any) -> None:
        JAXTypeError.__init__(
            self,
            _message(
                f"Attempted boolean conversion of {describe(tracer)}. Its value is not known while "
                "the function is traced.",
                tracer,
                "Choose between values, or between functions, inside the program:\n"
                "    amdjax.numpy.where(x > 0, a, b)       # if x > 0: a else: b\n"
                "    amdjax.lax.cond(pred, f, g, x)        # f(x) if pred else g(x)\n"
                "    amdjax.lax.while_loop(cond, body, x)  # while cond(x): x = body(x)\n"
                "Combine conditions with &, | and ~ instead of `and`, `or` and `not`.\n"
                "If the value is known before tracing, pass it as a static argument:\n"
                "    amdjax.jit(f, static_argnames='flag')",
            ),
        )


class UnexpectedTracerError(JAXTypeError):
    """A tracer outlived the function being traced and was used afterwards.

    Args:
        msg: which tracer, where it was made and where it leaked to, as far as known.
    """

    def __init__(self, msg: str) -> None:
        super().__init__(
            f"{str(msg).rstrip()}\n\n"
            "A value made while a function is traced must leave it as an output, not through\n"
            "a global, an attribute, or a list from outside:\n"
            "    def f(x):\n"
            "        y = x + 1\n"
            "        return y    # not: cache.append(y)\n"
            "config.update('jax_check_tracer_leaks', True) reports the leak where it happens."
        )


def leaked_tracer_message(tracer: Any, context: str = "") -> str:
    """The text of an `UnexpectedTracerError` for `tracer`."""
    needed = f"\n{context.strip()}" if context else ""
    return (
        "Encountered an unexpected tracer. A value escaped, through global state or otherwise, "
        f"from the function that made it: {describe(tracer)}, of type "
        f"{getattr(tracer, 'aval', 'unknown')}.{needed}{origin(tracer)}"
    )


class KeyReuseError(JAXTypeError):
    """A PRNG key was consumed twice, which makes samples depend on one another.

    Args:
        message: which key, and where it was used before.
    """

    def __init__(self, message: str) -> None:
        super().__init__(
            f"{str(message).rstrip()}\n\n"
            "Derive one key for each use:\n"
            "    key, a, b = amdjax.random.split(key, 3)\n"
            "    x = amdjax.random.normal(a)\n"
            "    y = amdjax.random.normal(b)"
        )
