"""What surrounds the modules of one `nn.apply`: its key, and what they record."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

from amdjax.core.config import make_user_context
from amdjax.core.context import context
from amdjax.nn import _random as random

__all__ = ["is_training"]

#: Whether the enclosing `apply` trains. A part of what traces depend on: a function that was
#: compiled for inference is compiled anew for training.
training = make_user_context(False)
_current: ContextVar[Scope | None] = ContextVar("amdjax_nn_scope", default=None)

_INSIDE = (
    "is called inside a function that is transformed on its own (scan, checkpoint, vmap, cond, "
    "grad or jit), within nn.apply. Call nn.apply(layer, ...) inside of that function, {what}."
)


class Scope:
    """The surroundings of the modules in one call of `nn.apply`.

    Args:
      key: of what its modules draw, or None.
      places: the paths of each of its modules, by its id; made when first needed.

    Attributes:
      records: what modules recorded, by id of the module: field and new value.
    """

    def __init__(self, key: Any, places: Any) -> None:
        self._key = key
        self._draws = 0
        self._places = places
        self._trace = context.trace
        self._outer = _current.get()
        self.records: dict[int, dict[str, Any]] = {}

    def __enter__(self) -> Scope:
        self._token = _current.set(self)
        return self

    def __exit__(self, *exc: object) -> None:
        _current.reset(self._token)

    def next_key(self, module: Any) -> Any:
        """A key that no other request got."""
        name = self.name(module)
        if self._key is None:
            if self._outer is None:
                raise ValueError(
                    f"{name}: a key must be given where train=True: "
                    "nn.apply(model, ..., key=key, train=True)."
                )
            return self._outer.next_key(module)
        self._refuse_inner_trace(name, "with a key of its own")
        self._draws += 1
        return random.fold_in(self._key, self._draws - 1)

    @property
    def has_key(self) -> bool:
        """Whether a request for a key would be served here and now."""
        if self._key is None:
            return self._outer is not None and self._outer.has_key
        return context.trace is self._trace

    def record(self, module: Any, values: dict[str, Any]) -> None:
        """Remember new values of a module's state."""
        name = self.name(module)
        self._refuse_inner_trace(name, "and return the layer that it returns")
        paths = self._places().get(id(module), [])
        if len(paths) > 1:
            # As arguments of a transformed function they are two, each with a state of its own.
            raise ValueError(
                f"{name}: it records state and is held at several places, "
                f"{' and '.join('model' + path for path in paths)}. Hold it at one of them."
            )
        if not paths:
            raise ValueError(
                f"{name}: it records state but is no part of the model that nn.apply was given: it "
                "was made, or taken apart and put together, within the call. Call "
                "nn.apply(layer, ...) on it and record the layer that it returns."
            )
        self.records.setdefault(id(module), {}).update(values)

    def name(self, module: Any) -> str:
        """A module's class and where it is, for errors."""
        (place, *_) = self._places().get(id(module), [""])
        return type(module).__name__ + (f" (model{place})" if place else "")

    def _refuse_inner_trace(self, name: str, what: str) -> None:
        if context.trace is not self._trace:
            raise RuntimeError(f"{name} {_INSIDE.format(what=what)}")


def current() -> Scope | None:
    """The scope of the innermost `apply` of this thread."""
    return _current.get()


def key_if_any(module: Any) -> Any:
    """A key for a module; None if there is none, as in inference."""
    scope = current()
    return scope.next_key(module) if scope is not None and scope.has_key else None


def is_training(train: bool | None = None) -> bool:
    """Whether a layer is to behave as in training.

    Args:
      train: what the layer's caller said; None to go by the `nn.apply` around the call.

    Returns:
      `train` if it was given, else that of `nn.apply`; False outside of one.

    Raises:
      TypeError: `train` is a string.

        >>> nn.is_training(), nn.is_training(True)
        (False, True)
    """
    if isinstance(train, str):
        raise TypeError(f"train must be True, False or None, got {train!r}.")
    return training.value if train is None else bool(train)
