"""What models that come from files have in common: their inputs are checked, calls are compiled."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar

import amdjax
from amdjax.numpy import asarray

from .prepared import Prepared
from .values import Value, bound

__all__ = ["FileModel"]


class FileModel:
    """A pure function of parameters and named inputs.

    Args:
      params: arrays by name.
      inputs, outputs: what is said of them.
      metadata: what its makers say of it.
      optional: names of inputs that may be left out.

    Classes under it say how it is computed (`_computed`), and how arrays become those that one
    computes with (`_to_device`).

    Attributes:
      error: the class of the errors about inputs and parameters.
      whose: what these call the model.
      names_are_equal: whether dimensions of one name are of one size.
    """

    error: ClassVar[type[ValueError]] = ValueError
    whose: ClassVar[str] = "the model"
    names_are_equal: ClassVar[bool] = True

    def __init__(
        self, params: Mapping[str, Any], inputs: Sequence[Value], outputs: Sequence[Value],
        metadata: Mapping[str, Any], optional: Collection[str],
    ) -> None:  # fmt: skip
        self.params = dict(params)
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)
        self.metadata = dict(metadata)
        self._optional = frozenset(optional)
        self._prepared = Prepared(self.function, self._to_device)

    def function(self, params: Mapping[str, Any], *args: Any, **inputs: Any) -> dict[str, Any]:
        """The model as a pure function, to be transformed by `jit`, `grad`, `vmap` and others.

        Args:
          params: arrays by name, as in `self.params`.
          args, inputs: the inputs, in their order or by name.

        Returns:
          The outputs by name. Types of 64 bits become those of 32 where `jax_enable_x64` is off.

        Raises:
          ValueError: an input is missing, unknown or of another dtype or shape, or a node fails, of
            the class that the module of the model names.
        """
        given = self._bound(args, inputs)
        if missing := [name for name in self.params if name not in params]:
            raise self.error(f"params lacks {missing[0]!r}; start from model.params")
        return self._computed(params, given)

    def __call__(self, *args: Any, **inputs: Any) -> dict[str, Any]:
        """The outputs by name, of inputs in their order or by name."""
        given = self._bound(args, inputs)
        with amdjax.enable_x64(True):
            made = self._run(given)
        return {v.name: made[v.name] for v in self.outputs}

    def lower(self, *args: Any, **inputs: Any) -> tuple[Any, tuple[Any, ...]]:
        """What a call of such inputs runs.

        Args:
          args, inputs: the inputs, in their order or by name.

        Returns:
          The program, ready to compile, and the arrays that are its arguments before the inputs,
          which are given by name.

        Raises:
          ValueError: an input does not fit; a node cannot be traced.
        """
        given = self._bound(args, inputs)
        with amdjax.enable_x64(True):
            return self._prepared.lower(self.params, given)

    @staticmethod
    def _to_device(value: Any) -> Any:
        """An array of NumPy as one to compute with."""
        return asarray(value)

    def _computed(self, params: Mapping[str, Any], given: dict[str, Any]) -> dict[str, Any]:
        """The outputs by name, of inputs that fit."""
        raise NotImplementedError

    def _run(self, given: dict[str, Any]) -> dict[str, Any]:
        """The same of the model's own parameters, compiled."""
        return self._prepared(self.params, given)

    def _bound(self, args: tuple[Any, ...], inputs: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return bound(
                self.inputs, args, inputs, whose=self.whose, optional=self._optional,
                names_are_equal=self.names_are_equal,
            )  # fmt: skip
        except ValueError as e:
            raise self.error(str(e)) from None

    def __repr__(self) -> str:
        inputs, outputs = (", ".join(map(str, v)) for v in (self.inputs, self.outputs))
        return f"{type(self).__name__}({inputs} -> {outputs})"
