"""Error classes, and the words of their messages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


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


def did_you_mean(word: str, known: Iterable[str], count: int = 1) -> str:
    """A sentence, with a space before it, about what a misspelled name may be; "" if none is near.

    Args:
      word: the name.
      known: those that there are.
      count: how many are told at most.
    """
    # late: only misspelled names need it
    import difflib

    near = difflib.get_close_matches(word, sorted(known), count)
    return f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
