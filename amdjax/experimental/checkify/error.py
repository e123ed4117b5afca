"""Errors as values: which check failed first, and what it says."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

import amdjax.numpy as jnp
from amdjax.core.array import Array
from amdjax.core.aval import ShapedArray, get_aval
from amdjax.core.effects import Effect, allow_everywhere
from amdjax.core.pytree_registry import register_pytree_node
from amdjax.core.trace import Tracer


class JaxException(Exception):
    """Base of what a failed check raises."""


class JaxRuntimeError(ValueError):
    """A check failed."""


class FailedCheckError(JaxException):
    """A condition given to `check` was false."""


class NaNError(JaxException):
    """An operation generated NaN."""


class DivisionByZeroError(JaxException):
    """A divisor was zero."""


class OOBError(JaxException):
    """An index was out of bounds."""


ErrorCategory = type[JaxException]

_codes = itertools.count()


@functools.total_ordering
@allow_everywhere
class ErrorEffect(Effect):
    """That a program may fail with a class of errors, whose message reads arrays of some types.

    Args:
      error_type: the class, of those that derive from `JaxException`.
      shape_dtypes: the types of its message's arrays.
    """

    __slots__ = ("error_type", "shape_dtypes")
    not_masked = (
        "checkify-of-vmap-of-while is not supported where the examples take different numbers of"
        " steps: checks would be made for those that are done. Write vmap-of-checkify-of-while."
    )

    def __init__(self, error_type: ErrorCategory, shape_dtypes: Iterable[Any]):
        self.error_type = error_type
        self.shape_dtypes = tuple(
            ShapedArray(tuple(s.shape), np.dtype(s.dtype)) for s in shape_dtypes
        )

    def _key(self) -> tuple[Any, ...]:
        types = tuple((str(s.dtype), s.shape) for s in self.shape_dtypes)
        return self.error_type.__name__, types

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ErrorEffect) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash((ErrorEffect, self._key()))

    def __lt__(self, other: ErrorEffect) -> bool:
        return self._key() < other._key()

    def __repr__(self) -> str:
        return f"ErrorEffect({self.error_type.__name__}, {list(self.shape_dtypes)})"


# What a failed check says, from the arrays of its message.
Message = Callable[..., str]


class Error:
    """The outcome of the checks of a program; see `checkify`.

    A pytree. Under `vmap` it holds an outcome for each element of the batch. For each effect there
    is a flag, the number of the check that failed and the arrays of its message; at most one flag
    of an element is set, that of the check that failed first.

    Args:
      pred: for each effect whether a check failed, a boolean array.
      code: for each effect the number of the check.
      metadata: messages by number.
      payload: for each effect the arrays of its message.
    """

    __slots__ = ("_code", "_metadata", "_payload", "_pred")

    def __init__(
        self,
        pred: Mapping[ErrorEffect, Any],
        code: Mapping[ErrorEffect, Any],
        metadata: Mapping[int, Message],
        payload: Mapping[ErrorEffect, tuple[Any, ...]],
    ):
        self._pred = dict(pred)
        self._code = dict(code)
        self._metadata = dict(metadata)
        self._payload = dict(payload)

    def get(self) -> str | None:
        """What the failed check says, a line for each failed element of a batch; None if none did.

        Returns:
          The message.
        """
        found = self.get_exception()
        return None if found is None else str(found)

    def get_exception(self) -> JaxException | None:
        """The error as an exception, not raised; None if no check failed."""
        failed: dict[int, tuple[ErrorCategory, str]] = {}
        size = 1
        for effect, pred in self._pred.items():
            flags = np.atleast_1d(np.asarray(pred))
            size = flags.size
            for place in np.flatnonzero(flags):
                code = int(np.ravel(np.asarray(self._code[effect]))[place])
                arrays = [
                    np.asarray(x).reshape(-1, *s.shape)[place]
                    for x, s in zip(self._payload[effect], effect.shape_dtypes, strict=True)
                ]
                failed[int(place)] = effect.error_type, self._metadata[code](*arrays)
        if not failed:
            return None
        kind = failed[min(failed)][0]
        if size == 1 and not any(np.ndim(p) for p in self._pred.values()):
            return kind(failed[0][1])
        lines = [f"at mapped index {place}: {failed[place][1]}" for place in sorted(failed)]
        return kind("\n".join(lines))

    def throw(self) -> None:
        """Raise the error, if there is one.

        Raises:
          JaxRuntimeError: a check failed.
        """
        found = self.get_exception()
        if found is not None:
            raise JaxRuntimeError(str(found)) from found

    def __repr__(self) -> str:
        if any(isinstance(p, Tracer) for p in self._pred.values()):
            return f"Error(traced, {sorted(self._pred)})"
        return f"Error({self.get()})"

    @property
    def effects(self) -> tuple[ErrorEffect, ...]:
        """The errors that there may be, in order."""
        return tuple(sorted(self._pred))

    def any(self) -> Any:
        """Whether a check failed."""
        return functools.reduce(jnp.logical_or, self._pred.values(), False)

    def added(self, failed: Any, kind: ErrorCategory, message: Message, arrays: Any) -> Error:
        """The error after one more check, which counts if it `failed` and none did before."""
        payload = tuple(jnp.asarray(x) for x in arrays)
        effect = ErrorEffect(kind, [get_aval(x) for x in payload])
        number = next(_codes)
        return self.merged(effect, failed, np.int32(number), payload, {number: message})

    def merged(
        self, effect: ErrorEffect, failed: Any, code: Any, payload: tuple[Any, ...], metadata: Any
    ) -> Error:
        """The error after a check of an effect."""
        first = jnp.logical_and(failed, jnp.logical_not(self.any()))
        code = jnp.asarray(code, np.int32)
        if effect in self._pred:
            code = jnp.where(first, code, self._code[effect])
            pairs = zip(payload, self._payload[effect], strict=True)
            payload = tuple(jnp.where(first, new, old) for new, old in pairs)
            first = jnp.logical_or(first, self._pred[effect])
        return Error(
            {**self._pred, effect: first},
            {**self._code, effect: code},
            {**self._metadata, **metadata},
            {**self._payload, effect: payload},
        )

    def leaves(self, effects: Iterable[ErrorEffect]) -> list[Any]:
        """The arrays that stand for some effects, in order; those that cannot be are no failure."""
        flat: list[Any] = []
        for e in effects:
            if e in self._pred:
                flat += [self._pred[e], self._code[e], *self._payload[e]]
            else:
                flat += [jnp.zeros(s.shape, s.dtype) for s in leaf_types(e)]
        return flat


def leaf_types(effect: ErrorEffect) -> list[ShapedArray]:
    """The types of the arrays that stand for an effect."""
    flag, code = ShapedArray((), np.dtype(bool)), ShapedArray((), np.dtype(np.int32))
    return [flag, code, *effect.shape_dtypes]


def from_leaves(effects: Iterable[ErrorEffect], leaves: Iterable[Any], metadata: Any) -> Error:
    """The error that `Error.leaves` took apart."""
    rest = iter(leaves)
    pred, code, payload = {}, {}, {}
    for e in effects:
        pred[e], code[e] = next(rest), next(rest)
        payload[e] = tuple(next(rest) for _ in e.shape_dtypes)
    return Error(pred, code, metadata, payload)


class _Structure:
    """What is static of an error; all that may differ is which checks there are."""

    __slots__ = ("effects", "metadata")

    def __init__(self, error: Error):
        self.effects = error.effects
        self.metadata = error._metadata

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Structure) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[Any, ...]:
        return self.effects, frozenset(self.metadata)


register_pytree_node(
    Error,
    lambda error: (tuple(error.leaves(error.effects)), _Structure(error)),
    lambda structure, leaves: from_leaves(structure.effects, leaves, structure.metadata),
)

init_error = Error({}, {}, {}, {})


def first_of_batch(error: Error) -> Error:
    """One outcome for a batch of them: that of the first element that failed."""
    result = init_error
    for e in error.effects:
        flags = jnp.ravel(error._pred[e])
        place = jnp.argmax(flags)
        payload = tuple(
            jnp.reshape(x, (-1, *s.shape))[place] if jnp.ndim(x) > len(s.shape) else x
            for x, s in zip(error._payload[e], e.shape_dtypes, strict=True)
        )
        codes = jnp.ravel(error._code[e])
        code = codes[place] if codes.size == flags.size else codes[0]
        result = result.merged(e, flags[place], code, payload, error._metadata)
    return result


def is_array(x: Any) -> bool:
    """Whether the message of a check may read `x`."""
    return isinstance(x, (Array, np.ndarray))
